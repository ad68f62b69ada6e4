/* SPDX-License-Identifier: MIT
 * bench_useless.c: what useless peers cost: a cold run from an origin of 2 MB/s, alone and beside
 * four members who claim to have everything: two give nothing, one gives 1 KB/s, one refuses.
 * Rounds are interleaved, medians compared. Time is that of prefill and decode, and from the start
 * to the answer. usage: bench_useless [ROUNDS] (default 3). Exit 1 when they cost more than 5 %, or
 * bytes. */
#include "tests/faults/household.h"

#include "proto/base/clock.h"

enum { ROUNDS_MAX = 50, EVIL = 4 };

static const char *const prompt[] = {"--ids",        "2819",         "--max-new", "48",
                                     "--ignore-eos", "--rate-limit", "2M",        NULL};

struct times {
    double compute[ROUNDS_MAX], whole[ROUNDS_MAX], bytes;
    char receipt[65];
};

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

static void measure(struct household *h, const struct kit_mesh *k, struct times *t, int i)
{
    struct proc p;
    double began = clock_s();
    household_start(h, &p, k->home, true, prompt);
    proc_listen(&p, proc_has_line, 100000);
    t->whole[i] = clock_s() - began; /* saying goodbye to who does not listen may last a second */
    assert_int_equal(proc_wait(&p, 20000), 0);
    json_t *j = json_loadb(p.said.p, p.said.n, 0, NULL);
    assert_non_null(j);
    proc_free(&p);
    t->compute[i] = household_stat(j, "prefill_s") + household_stat(j, "decode_s");
    t->bytes = household_stat(j, "origin_bytes");
    snprintf(t->receipt, sizeof t->receipt, "%s", json_string_value(json_object_get(j, "receipt")));
    json_decref(j);
}

static int rounds = 3;
static bool failed;

static void test_useless(void **state)
{
    static const char *const vices[EVIL] = {"silent", "silent", "slow", "refuse"};
    static struct times with, without;
    struct household h;
    struct kit_mesh alone, b, bad[EVIL];
    struct proc evil[EVIL];
    int ports[EVIL];
    household_open(&h);
    kit_home(&alone, NULL); /* a shoal of one: nobody to wait for */
    for (int i = 0; i < EVIL; i++) {
        household_member(&h, &bad[i]);
        evil_proc(&evil[i], bad[i].home, vices[i], "0", 0, &ports[i]);
    }
    household_member(&h, &b);
    for (int i = 0; i < rounds; i++) {
        household_fresh(&alone);
        measure(&h, &alone, &without, i);
        household_fresh(&b);
        household_peers(&b, ports, EVIL);
        measure(&h, &b, &with, i);
        assert_string_equal(with.receipt, without.receipt);
        printf("%2d: alone %.3f s (answer after %.3f s); with useless peers %.3f s (%.3f s)\n", i,
               without.compute[i], without.whole[i], with.compute[i], with.whole[i]);
        fflush(stdout);
    }
    for (int i = 0; i < EVIL; i++) {
        struct evil_numbers n;
        assert_true(evil_proc_numbers(&evil[i], &n));
        printf("%-7s was asked %llu times\n", vices[i], n.gets);
        assert_true(n.gets > 0);
        proc_free(&evil[i]);
        kit_free(&bad[i]);
    }
    double ratio = median(with.compute, rounds) / median(without.compute, rounds);
    double whole = median(with.whole, rounds) / median(without.whole, rounds);
    printf("useless peers: prefill and decode take %.3f of what they take alone, the "
           "whole way to the answer %.3f (limits 1.05); %.0f bytes from the origin, %.0f alone\n",
           ratio, whole, with.bytes, without.bytes);
    failed = ratio > 1.05 || whole > 1.05 || with.bytes > without.bytes * 1.02;
    kit_free(&alone);
    kit_free(&b);
    household_close(&h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_useless)};
    if (argc > 1) {
        long n = strtol(argv[1], NULL, 10);
        rounds = n < 1 ? 1 : n > ROUNDS_MAX ? ROUNDS_MAX : (int)n;
    }
    return cmocka_run_group_tests(tests, NULL, NULL) || failed;
}
