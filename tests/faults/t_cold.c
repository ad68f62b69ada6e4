/* SPDX-License-Identifier: MIT
 * t_cold.c: three nodes of one shoal, cold at once, on the same prompt: the origin gives one copy
 * of all they need, and the receipts are those of one that is alone. Then the same with one of them
 * killed, or stopped for a while, at a random moment. With the argument `bench`: how long it takes
 * until the last of three has its first token, against one that is alone. */
#include "tests/faults/household.h"
#include "tests/peer/rng.h"

#include "proto/base/clock.h"

#include <signal.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <time.h>

enum { NODES = 3 };

static const char *const prompt[] = {"--ids", "2819", "--max-new", "24", "--ignore-eos", NULL};
static const char *const prompt_alone[] = {"--ids",        "2819",         "--max-new", "24",
                                           "--ignore-eos", "--rate-limit", "12M",       NULL};

static struct household h;
static struct kit_mesh second, third;
static const struct kit_mesh *home[NODES];
static int port[NODES];
static char want[65];
static uint64_t copy; /* bytes of the origin for one that is alone */

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
    close(s);
    return ntohs(a.sin_port);
}

static uint64_t origin_bytes(void)
{
    struct demo_server_stats s;
    demo_server_get_stats(h.origin, &s);
    return s.bytes;
}

/* Nobody has anything; all know where the others are. */
static void all_cold(void)
{
    for (int i = 0; i < NODES; i++) {
        household_fresh(home[i]);
        port[i] = free_port();
    }
    for (int i = 0; i < NODES; i++) {
        int others[NODES], n = 0;
        for (int k = 0; k < NODES; k++) {
            if (k != i) {
                others[n++] = port[k];
            }
        }
        household_peers(home[i], others, n);
    }
}

static void start_all(struct proc run[NODES])
{
    for (int i = 0; i < NODES; i++) {
        household_start(&h, &run[i], home[i]->home, false, prompt);
    }
}

/* The nodes stay when a run is over: who has got everything first still serves the others. */
static void up_some(struct proc up[NODES], int nodes, const char *rate)
{
    for (int i = 0; i < nodes; i++) {
        char listen[32];
        snprintf(listen, sizeof listen, "127.0.0.1:%d", port[i]);
        PROC(&up[i], SHOAL_PROGRAM, "up", "--home", home[i]->home, "--model", h.url, "--no-bonjour",
             "--peer-listen", listen, "--rate-limit", rate, "--json");
    }
    for (int i = 0; i < nodes; i++) { /* all of them read the metadata at once */
        if (!proc_listen(&up[i], proc_has_line, 60000)) {
            fail_msg("shoal up: %s", up[i].grumbled.n ? up[i].grumbled.p : "");
        }
    }
}

static void up_all(struct proc up[NODES])
{
    up_some(up, NODES, "12M");
}

static void down_some(struct proc up[NODES], int nodes)
{
    for (int i = 0; i < nodes; i++) {
        if (up[i].pid) {
            proc_kill(&up[i], SIGTERM);
            proc_wait(&up[i], 20000);
        }
        proc_free(&up[i]);
    }
}

static void down_all(struct proc up[NODES])
{
    down_some(up, NODES);
}

static int setup(void **state)
{
    household_open(&h);
    household_member(&h, &second);
    household_member(&h, &third);
    home[0] = &h.keeper;
    home[1] = &second;
    home[2] = &third;
    uint64_t before = origin_bytes();
    json_t *j = household_run(&h, second.home, prompt_alone);
    snprintf(want, sizeof want, "%s", json_string_value(json_object_get(j, "receipt")));
    json_decref(j);
    copy = origin_bytes() - before;
    print_message("alone: %.1f MB of the origin\n", (double)copy / 1e6);
    return 0;
}

static int teardown(void **state)
{
    kit_free(&second);
    kit_free(&third);
    household_close(&h);
    return 0;
}

/* Returns what the origin gave, in copies. */
static double cold(void)
{
    struct proc up[NODES], run[NODES];
    char got[65];
    all_cold();
    uint64_t before = origin_bytes();
    up_all(up);
    start_all(run);
    for (int i = 0; i < NODES; i++) {
        proc_wait(&run[i], 100000);
        if (getenv("COLD_LOG")) {
            fprintf(stderr, "---- %d\n%s%s\n", i, run[i].said.p, run[i].grumbled.p);
        }
        assert_string_equal(household_receipt(&run[i], got), want);
        proc_free(&run[i]);
    }
    down_all(up);
    double ratio = (double)(origin_bytes() - before) / (double)copy;
    print_message("three cold at once: %.3f copies\n", ratio);
    return ratio;
}

/* A machine that is busy with other tests makes members late for half a second now and then, and
 * then the origin is asked: so the best of three counts. */
static void test_cold(void **state)
{
    double best = cold();
    for (int i = 0; i < 2 && best > 1.02; i++) {
        double again = cold();
        best = again < best ? again : best;
    }
    assert_true(best <= 1.02);
}

/* One of the three fails at a random moment: killed, or stopped for a while (which looks like a cut
 * cable from outside, for as long as it lasts). The others' receipts stay, and the origin gives
 * little more than one copy: what the one that failed had alone, and what was on its way to it. */
static void test_failures(void **state)
{
    const char *runs = getenv("COLD_RUNS");
    int n = runs ? (int)strtol(runs, NULL, 10) : 2;
    struct rng r = rng_start((uint64_t)time(NULL) * 1000003u + (uint64_t)getpid());
    double most = 0, sum = 0;
    for (int k = 0; k < n; k++) {
        struct proc up[NODES], run[NODES];
        char got[65];
        int victim = (int)rng_below(&r, NODES), sig = rng_below(&r, 2) ? SIGKILL : SIGSTOP;
        all_cold();
        uint64_t before = origin_bytes();
        up_all(up);
        start_all(run);
        usleep(1000 * rng_below(&r, 2500));
        proc_kill(&up[victim], sig);
        proc_kill(&run[victim], sig);
        if (sig == SIGSTOP) {
            usleep(1000 * (500 + rng_below(&r, 6000)));
            proc_kill(&up[victim], SIGCONT);
            proc_kill(&run[victim], SIGCONT);
        }
        for (int i = 0; i < NODES; i++) {
            if (i == victim && sig == SIGKILL) {
                proc_wait(&run[i], 20000);
            } else {
                proc_wait(&run[i], 100000);
                assert_string_equal(household_receipt(&run[i], got), want);
            }
            proc_free(&run[i]);
        }
        double ratio = (double)(origin_bytes() - before) / (double)copy;
        if (ratio > 1.1) {
            print_message("%s of node %d: %.3f copies\n", sig == SIGKILL ? "kill" : "stop", victim,
                          ratio);
        }
        most = ratio > most ? ratio : most;
        sum += ratio;
        down_all(up);
        for (int i = 0; i < NODES; i++) {
            household_check(h.url, at(home[i]->home, "cache"));
        }
    }
    print_message("%d failures: %.3f copies on average, %.3f at most\n", n, sum / n, most);
    /* Objects of the demo model are a chunk or less: an event costs those that were on their way.
     */
    assert_true(sum / n < 1.2 && most < 1.8);
}

/* ---- bench ---- */

/* Seconds until the last of so many cold nodes has its first token; the origin gives each 3 MB/s.
 */
static double first_token(int nodes, uint64_t *bytes)
{
    static const char *const one[] = {"--ids", "2819", "--max-new", "1", NULL};
    struct proc up[NODES], run[NODES];
    all_cold();
    uint64_t before = origin_bytes();
    up_some(up, nodes, "3M");
    double began = clock_s();
    for (int i = 0; i < nodes; i++) {
        household_start(&h, &run[i], home[i]->home, true, one);
    }
    for (int i = 0; i < nodes; i++) {
        assert_true(proc_listen(&run[i], proc_has_line, 100000));
    }
    double took = clock_s() - began;
    for (int i = 0; i < nodes; i++) {
        proc_wait(&run[i], 20000);
        proc_free(&run[i]);
    }
    down_some(up, nodes);
    *bytes = origin_bytes() - before;
    return took;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rounds of both in turn, the median of their ratios. */
static void bench_cold(void **state)
{
    enum { ROUNDS = 3 };
    double ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t a, b;
        double alone = first_token(1, &a), all = first_token(NODES, &b);
        ratio[i] = all / alone;
        print_message("alone %.2f s, last of three %.2f s: %.3f; origin %.3f copies\n", alone, all,
                      ratio[i], (double)b / (double)a);
    }
    qsort(ratio, ROUNDS, sizeof *ratio, by_size);
    print_message("time to the last first token: %.3f of that of one alone\n", ratio[ROUNDS / 2]);
    assert_true(ratio[ROUNDS / 2] <= 1.2); /* the loopback's share is nothing */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest bench[] = {
        cmocka_unit_test(bench_cold),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold),
        cmocka_unit_test(test_failures),
    };
    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        return cmocka_run_group_tests(bench, setup, teardown);
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
