/* SPDX-License-Identifier: MIT
 * t_cold.c: three nodes of one shoal, cold at once, on the same prompt, behind one line: the origin
 * gives one copy of all they need, and the receipts are those of one that is alone. Then the same
 * with one of them killed, stopped, cut off or slowed at a random moment, and with an origin that
 * asks one of them to leave it alone. With the argument `bench`: how long it takes until the last
 * of three has its first token, against one that is alone. */
#include "tests/faults/cold.h"
#include "tests/peer/rng.h"

#include "proto/base/clock.h"

#include <signal.h>
#include <time.h>

#define LINE_RATE 8e6

static struct cold c;

static int setup(void **state)
{
    cold_open(&c);
    cold_alone(&c);
    return 0;
}

static int teardown(void **state)
{
    cold_close(&c);
    return 0;
}

/* Returns what the origin gave, in copies. */
static double cold(void)
{
    cold_fresh(&c);
    line_rate(c.line, LINE_RATE);
    cold_up(&c, COLD_NODES);
    cold_run(&c, COLD_NODES, false, NULL);
    cold_wait(&c, COLD_NODES, -1);
    double ratio = (double)line_bytes(c.line) / (double)c.copy;
    struct cold_twice t = cold_count(&c, 0);
    print_message("three cold at once: %.3f copies; twice: %u chunks, %.1f KB, small files %.1f "
                  "KB\n",
                  ratio, t.chunks, (double)t.bytes / 1e3, (double)t.small / 1e3);
    cold_down(&c);
    return ratio;
}

/* One copy, as is printed. A machine that is busy with other tests makes members late for half a
 * second now and then, and then the origin is asked: so the best of three counts, and the bound is
 * only far from the three copies of members that do not know each other. */
static void test_cold(void **state)
{
    double best = cold();
    for (int i = 0; i < 2 && best > 1.02; i++) {
        double again = cold();
        best = again < best ? again : best;
    }
    assert_true(best <= 1.5);
}

/* ---- failures ---- */

enum what { KILLED, STOPPED, CUT, APART, SLOWED, WHATS };
static const char *const word[WHATS] = {"killed", "stopped", "cut off", "apart from the others",
                                        "slowed"};

/* Going away and coming back are two events. */
static const unsigned events[WHATS] = {1, 2, 2, 2, 1};

/* At a random point of the download. Returns the bytes that cannot but be fetched twice: what
 * members that did not see each other needed both. In *nobody those that the origin has given and
 * that lay in buffers of the system, for a process that read nothing any more. */
static uint64_t happens(enum what what, int victim, struct rng *r, uint64_t *nobody)
{
    uint64_t small = c.copy - c.objects, least = 0;
    uint64_t at_bytes = small + c.objects / 100 * (2 + rng_below(r, 96));
    for (int i = 0; i < 30000 && line_bytes(c.line) < at_bytes; i++) {
        usleep(1000);
    }
    unsigned for_ms = 500 + rng_below(r, 6000);
    if (getenv("LINE_LOG")) {
        fprintf(stderr, "line: %7.3f node %d %s, perhaps for %u ms\n", line_time(c.line), victim,
                word[what], for_ms);
    }
    switch (what) {
    case KILLED:
        /* It stands still for a moment first, so that what it has not read can be counted. */
        proc_kill(&c.up[victim], SIGSTOP);
        proc_kill(&c.run[victim], SIGSTOP);
        usleep(50000);
        *nobody = cold_unread(&c, victim);
        proc_kill(&c.up[victim], SIGKILL);
        proc_kill(&c.run[victim], SIGKILL);
        break;
    case STOPPED:
        proc_kill(&c.up[victim], SIGSTOP);
        proc_kill(&c.run[victim], SIGSTOP);
        usleep(1000 * for_ms);
        *nobody = cold_unread(&c, victim);
        proc_kill(&c.up[victim], SIGCONT);
        proc_kill(&c.run[victim], SIGCONT);
        break;
    case CUT: /* its only cable: members and internet */
        cable_cut(c.cable, victim, true);
        line_cut(c.line, victim, true);
        usleep(1000 * for_ms);
        line_cut(c.line, victim, false);
        cable_cut(c.cable, victim, false);
        break;
    case APART:
        cable_cut(c.cable, victim, true);
        usleep(1000 * for_ms);
        least = cold_count(&c, 1u << victim).both;
        cable_cut(c.cable, victim, false);
        break;
    default:
        line_member_rate(c.line, victim, LINE_RATE / 50);
        break;
    }
    return least;
}

struct sums {
    unsigned n, within, within_read, within_events, chunks_most;
    double nobody, ratio, ratio_most, chunks, bytes, bytes_most, least;
};

/* One of the three fails at a random moment. The others' receipts stay, and the origin gives little
 * more than one copy: what the one that failed had alone, and what was on its way to it. */
static void failure(enum what what, struct rng *r, struct sums *s)
{
    int victim = (int)rng_below(r, COLD_NODES);
    cold_fresh(&c);
    line_rate(c.line, LINE_RATE);
    cold_up(&c, COLD_NODES);
    cold_run(&c, COLD_NODES, false, NULL);
    uint64_t nobody = 0, least = happens(what, victim, r, &nobody);
    cold_wait(&c, COLD_NODES, what == KILLED ? victim : -1);
    double ratio = (double)line_bytes(c.line) / (double)c.copy;
    struct cold_twice t = cold_count(&c, 0);
    uint64_t beyond = t.bytes - least, read = beyond - (nobody < beyond ? nobody : beyond);
    print_message("node %d %s: %.3f copies; twice: %u chunks, %.1f KB (%.1f beyond the least, "
                  "%.1f unread), small files %.1f KB\n",
                  victim, word[what], ratio, t.chunks, (double)t.bytes / 1e3, (double)beyond / 1e3,
                  (double)nobody / 1e3, (double)t.small / 1e3);
    cold_down(&c);
    for (int i = 0; i < COLD_NODES; i++) {
        household_check(c.h.url, at(c.home[i]->home, "cache"));
    }
    s->n++;
    s->ratio += ratio;
    s->chunks += t.chunks;
    s->within += beyond <= STORAGE_CHUNK;
    s->within_read += read <= STORAGE_CHUNK;
    s->within_events += read <= (uint64_t)events[what] * STORAGE_CHUNK;
    s->nobody += (double)nobody;
    s->least += (double)least;
    s->bytes += (double)beyond;
    s->ratio_most = ratio > s->ratio_most ? ratio : s->ratio_most;
    s->chunks_most = t.chunks > s->chunks_most ? t.chunks : s->chunks_most;
    s->bytes_most = (double)beyond > s->bytes_most ? (double)beyond : s->bytes_most;
}

static void test_failures(void **state)
{
    const char *runs = getenv("COLD_RUNS"), *kind = getenv("COLD_KIND");
    int n = runs ? (int)strtol(runs, NULL, 10) : 1;
    struct rng r = rng_start((uint64_t)time(NULL) * 1000003u + (uint64_t)getpid());
    struct sums sums[WHATS] = {{0}};
    for (int k = 0; k < n; k++) {
        enum what what = runs ? (enum what)(k % WHATS) : (enum what)rng_below(&r, WHATS);
        what = kind ? (enum what)strtol(kind, NULL, 10) : what;
        if ((what == CUT || what == APART) && !cable_possible()) {
            what = KILLED;
        }
        failure(what, &r, &sums[what]);
    }
    for (int i = 0; i < WHATS; i++) {
        const struct sums *s = &sums[i];
        if (s->n) {
            print_message(
                "%-22s %3u times: %.3f copies on average, %.3f at most; twice %.1f chunks "
                "(%u); beyond the least (%.1f KB) %.1f KB (%.1f), %u times within a chunk; "
                "without what nobody read (%.1f KB) %u times, within a chunk an event (%u) %u\n",
                word[i], s->n, s->ratio / s->n, s->ratio_most, s->chunks / s->n, s->chunks_most,
                s->least / s->n / 1e3, s->bytes / s->n / 1e3, s->bytes_most / 1e3, s->within,
                s->nobody / s->n / 1e3, s->within_read, events[i], s->within_events);
        }
    }
}

/* ---- the origin asks to be left alone ---- */

static bool heard(const struct proc *p)
{
    return p->grumbled.n && strstr(p->grumbled.p, "has asked a member to be left alone");
}

/* One member meets a 429 with Retry-After: from when the others have heard of it nobody asks the
 * origin for anything before that time is over; then they go on. */
static void test_busy(void **state)
{
    enum { PAUSE_S = 3 };
    cold_fresh(&c);
    line_rate(c.line, LINE_RATE);
    line_busy(c.line, 1, PAUSE_S);
    cold_up(&c, COLD_NODES);
    cold_run(&c, COLD_NODES, false, NULL);
    for (int i = 0; i < 60000 && !line_busy_said(c.line); i++) {
        usleep(1000);
    }
    uint64_t said = line_busy_said(c.line), end = said + PAUSE_S * 1000000000ull;
    assert_true(said);
    for (int i = 0; i < COLD_NODES; i++) {
        assert_true(i == 1 || proc_listen(&c.up[i], heard, 60000));
    }
    line_settle(c.line); /* what was asked before they heard of it counts as before */
    uint64_t told = clock_ns(), first = UINT64_MAX;
    cold_wait(&c, COLD_NODES, -1);
    for (int i = 0; i < COLD_NODES; i++) {
        assert_int_equal(line_requests(c.line, i, told, end, NULL), 0);
        uint64_t at;
        if (line_requests(c.line, i, end, UINT64_MAX, &at)) {
            first = at < first ? at : first;
        }
    }
    assert_true(first != UINT64_MAX); /* all of it cannot have come before */
    print_message("told after %.3f s, the first request %.3f s after the pause\n",
                  (double)(told - said) / 1e9, (double)(first - end) / 1e9);
    assert_true((double)line_bytes(c.line) < 2.2 * (double)c.copy); /* three: each its own */
    cold_down(&c);
}

/* ---- bench ---- */

/* Seconds until the last of so many cold nodes has its first token. */
static double first_token(int nodes, double rate, uint64_t *bytes)
{
    static const char *const one[] = {"--ids", "2819", "--max-new", "1", NULL};
    cold_solo(&c, nodes == 1);
    cold_fresh(&c);
    line_rate(c.line, rate);
    line_latency(c.line, 30);
    double began = clock_s();
    cold_up(&c, nodes);
    double ready = clock_s();
    cold_run(&c, nodes, true, one);
    for (int i = 0; i < nodes; i++) {
        assert_true(proc_listen(&c.run[i], proc_has_line, 100000));
    }
    double took = clock_s() - began;
    for (int i = 0; i < nodes; i++) {
        proc_wait(&c.run[i], 20000);
        proc_free(&c.run[i]);
    }
    *bytes = line_bytes(c.line);
    print_message("  %d nodes: up after %.2f s, first token after %.2f s, the line at %.2f of its "
                  "rate since\n",
                  nodes, ready - began, took, (double)*bytes / (took - (ready - began)) / rate);
    cold_down(&c);
    cold_solo(&c, false);
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
    const char *mb = getenv("COLD_MB");
    double ratio[ROUNDS], rate = mb ? strtod(mb, NULL) * 1e6 : 3e6;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t a, b;
        double alone = first_token(1, rate, &a), all = first_token(COLD_NODES, rate, &b);
        ratio[i] = all / alone;
        print_message("alone %.2f s, last of three %.2f s: %.3f; origin %.3f copies\n", alone, all,
                      ratio[i], (double)b / (double)a);
    }
    qsort(ratio, ROUNDS, sizeof *ratio, by_size);
    print_message("time to the last first token: %.3f of that of one alone\n", ratio[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest bench[] = {
        cmocka_unit_test(bench_cold),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_busy),
    };
    cmocka_set_test_filter(getenv("COLD_ONLY"));
    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        return cmocka_run_group_tests(bench, setup, teardown);
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
