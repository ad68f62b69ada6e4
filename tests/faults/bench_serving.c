/* SPDX-License-Identifier: MIT
 * bench_serving.c: what serving costs the one that serves: a node decodes with all in its memory,
 * alone and while two members take 5 MB/s each from it. Rounds are interleaved, medians compared.
 * The two run on this machine, too; the node computes with one thread, so that on two cores they
 * have the other.
 * usage: bench_serving [ROUNDS] (default 7). Exit 1 when decode keeps less than 95 % of its speed.
 */
#include "tests/faults/household.h"

#include "proto/base/clock.h"

enum { ROUNDS_MAX = 50, TAKERS = 2, KB_S = 5000 };

static const char *const prompt[] = {"--ids",        "2819",      "--max-new", "3000",
                                     "--ignore-eos", "--threads", "1",         NULL};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, int n)
{
    double s[ROUNDS_MAX];
    memcpy(s, v, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_size);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static double decode(struct household *h, double *seconds)
{
    json_t *j = household_run(h, h->keeper.home, prompt);
    double v = household_stat(j, "decode_tok_s");
    *seconds = household_stat(j, "decode_s");
    json_decref(j);
    return v;
}

static int rounds = 7;
static bool failed;

static void test_serving(void **state)
{
    static double with[ROUNDS_MAX], without[ROUNDS_MAX], rate[ROUNDS_MAX];
    struct household h;
    struct kit_mesh taker[TAKERS];
    struct proc evil[TAKERS];
    struct evil_numbers n;
    int ports[TAKERS];
    double s;
    household_open(&h);
    for (int i = 0; i < TAKERS; i++) {
        household_member(&h, &taker[i]);
        evil_proc(&evil[i], taker[i].home, "pull", "0", KB_S, &ports[i]);
    }
    decode(&h, &s); /* fills the cache */
    for (int i = 0; i < rounds; i++) {
        household_peers(&h.keeper, ports, 0);
        unlink(at(h.keeper.home, "run/seen"));
        without[i] = decode(&h, &s);
        double took = -clock_s(), bytes = 0;
        for (int k = 0; k < TAKERS; k++) {
            assert_true(evil_proc_numbers(&evil[k], &n));
            bytes -= (double)n.pulled;
        }
        household_peers(&h.keeper, ports, TAKERS);
        with[i] = decode(&h, &s);
        took += clock_s();
        for (int k = 0; k < TAKERS; k++) {
            assert_true(evil_proc_numbers(&evil[k], &n));
            bytes += (double)n.pulled;
        }
        rate[i] = bytes / took / 1e6;
        printf("%2d: alone %.1f tokens/s; serving %.1f tokens/s, %.2f MB/s over %.1f s\n", i,
               without[i], with[i], rate[i], took);
        fflush(stdout);
    }
    for (int k = 0; k < TAKERS; k++) {
        proc_free(&evil[k]);
        kit_free(&taker[k]);
    }
    double ratio = median(with, rounds) / median(without, rounds);
    printf("serving %.2f MB/s: decode has %.3f of its speed alone (limit 0.95)\n",
           median(rate, rounds), ratio);
    failed = ratio < 0.95;
    household_close(&h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_serving)};
    if (argc > 1) {
        long v = strtol(argv[1], NULL, 10);
        rounds = v < 1 ? 1 : v > ROUNDS_MAX ? ROUNDS_MAX : (int)v;
    }
    return cmocka_run_group_tests(tests, NULL, NULL) || failed;
}
