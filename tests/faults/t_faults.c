/* SPDX-License-Identifier: MIT
 * t_faults.c: a node decodes while a peer that it trusts goes bad: after the first token. The
 * receipt is the one of a node that has only the origin, and the cache is right afterwards.
 * usage: t_faults origin|peer|brief|close: beside an origin; beside an honest peer, with the origin
 * gone; the same with the vices that stand for all; closing after each kind of message */
#include "tests/faults/evil.h"
#include "tests/faults/household.h"

#include "peer/codec.h"
#include "proto/base/clock.h"

static struct household h;
static struct kit_mesh bad, b;
static struct proc honest; /* its `shoal up` */
static int honest_port;
static bool with_peer;
static char want[65];
static char *first;      /* a cache of what the first token needs */
static unsigned objects; /* that a run touches */

/* One token to begin with, so that most experts are fetched while tokens are made. */
static const char *const prompt[] = {"--ids", "2819", "--max-new", "48", "--ignore-eos", NULL};
/* An origin of a quarter of what the loopback carries: peers are worth asking. */
static const char *const slow_origin[] = {"--ids",        "2819",         "--max-new", "48",
                                          "--ignore-eos", "--rate-limit", "16M",       NULL};

/* True when the evil peer was asked for something while it was evil. */
static bool try_round(enum evil_vice vice, int arg)
{
    struct proc evil, run;
    struct evil_numbers n = {0};
    char got[65];
    int ports[2] = {0, honest_port};
    uint64_t began = clock_ns();
    household_fresh(&b);
    evil_proc(&evil, bad.home, evil_word(vice),
              vice == EVIL_CLOSE || vice == EVIL_FILES || evil_at_hello(vice) ? "0" : "5", arg,
              &ports[0]);
    household_peers(&b, ports, with_peer ? 2 : 1);
    if (vice != EVIL_FILES && shell("cp -r '%s' '%s'", first, at(b.home, "cache"))) {
        fail_msg("%s cannot be copied", first);
    }
    household_start(&h, &run, b.home, false, with_peer ? prompt : slow_origin);
    proc_wait(&run, 100000);
    bool there = evil_proc_numbers(&evil, &n);
    if (getenv("EVIL_LOG")) {
        fprintf(stderr,
                "%-9s %3d: %4.0f ms; evil: %llu connections, %llu gets, %llu chunks, %llu acts, "
                "told %llu\n%s\n",
                evil_word(vice), arg, (double)(clock_ns() - began) / 1e6, n.conns, n.gets, n.chunks,
                n.vices, n.told, run.grumbled.p);
    }
    if (strcmp(household_receipt(&run, got), want) != 0) {
        fail_msg("%s %d: another receipt: %s", evil_word(vice), arg, run.grumbled.p);
    }
    assert_int_equal(household_check(h.url, at(b.home, "cache")), objects);
    assert_true(there || (vice == EVIL_KILL && evil.status == 128 + 9));
    proc_free(&run);
    proc_eof(&evil);
    assert_int_equal(there ? proc_wait(&evil, 20000) : 0, 0); /* it is clean itself */
    proc_free(&evil);
    return !there || n.vices > 0 || vice == EVIL_HONEST;
}

/* On a busy machine the evil peer may be too slow to be asked once more: that says nothing. */
static void round_of(enum evil_vice vice, int arg)
{
    for (int i = 0; i < 8; i++) {
        if (try_round(vice, arg)) {
            return;
        }
    }
    if (vice == EVIL_FILES && with_peer) {
        /* Who is connected first is asked, and the honest one gives all. Each round compared the
         * receipt; that the evil one is asked is certain where it is alone (`origin`). */
        print_message("%s %d: the honest peer was asked first each time\n", evil_word(vice), arg);
        return;
    }
    fail_msg("%s %d: it was never evil", evil_word(vice), arg);
}

static void test_vices(void **state)
{
    for (enum evil_vice v = EVIL_HONEST; v < EVIL_COUNT; v++) {
        bool twisted = v == EVIL_LIES || (v == EVIL_DIGEST && with_peer);
        if (v != EVIL_CLOSE && v != EVIL_PULL && !twisted &&
            (!getenv("EVIL_ONLY") || !strcmp(getenv("EVIL_ONLY"), evil_word(v)))) {
            /* with the origin gone a cold start may fail when the only member connected by then
             * gives no file at all; one that gives noise is left for the next */
            int ways = v != EVIL_FILES ? 0 : with_peer ? 1 : 4;
            for (int way = ways > 0; way <= ways; way++) {
                round_of(v, way);
            }
        }
    }
}

static void test_brief(void **state)
{
    static const enum evil_vice some[] = {EVIL_KILL,     EVIL_CUT,   EVIL_SLOW,   EVIL_FLIP,
                                          EVIL_ZEROS,    EVIL_HALF,  EVIL_SILENT, EVIL_FRAME0,
                                          EVIL_FRAMEMAX, EVIL_OLDER, EVIL_NEWER,  EVIL_ROOT};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        round_of(some[i], 0);
    }
    round_of(EVIL_CLOSE, SHOAL__FRAME__KIND_DATA);
    round_of(EVIL_CLOSE, -SHOAL__FRAME__KIND_GET);
}

static void test_close_after(void **state)
{
    static const int received[] = {SHOAL__FRAME__KIND_HAVE_DELTA, SHOAL__FRAME__KIND_GET};
    for (int kind = 1; kind <= SHOAL__FRAME__KIND_BAD_CHUNK; kind++) {
        round_of(EVIL_CLOSE, kind);
    }
    for (size_t i = 0; i < sizeof received / sizeof *received; i++) {
        round_of(EVIL_CLOSE, -received[i]);
    }
}

static int setup(void **state)
{
    struct proc p;
    household_open(&h);
    household_member(&h, &bad);
    household_member(&h, &b);
    /* the truth: a node without any peer */
    char *cache = strdup(at(h.tmp, "alone"));
    const char *more[] = {"--cache", cache,     prompt[0], prompt[1],
                          prompt[2], prompt[3], prompt[4], NULL};
    household_start(&h, &p, NULL, false, more);
    proc_wait(&p, 100000);
    household_receipt(&p, want);
    proc_free(&p);
    objects = household_check(h.url, cache);
    assert_true(objects > 100);
    free(cache);
    /* all that is missing in this one is asked for after the first token */
    first = strdup(at(h.tmp, "first"));
    const char *one[] = {"--cache", first, prompt[0], prompt[1], "--max-new", "1", NULL};
    household_start(&h, &p, NULL, false, one);
    assert_int_equal(proc_wait(&p, 100000), 0);
    proc_free(&p);
    assert_true(household_check(h.url, first) < objects - 100);
    if (with_peer) {
        json_t *j = household_run(&h, h.keeper.home, prompt);
        assert_string_equal(json_string_value(json_object_get(j, "receipt")), want);
        json_decref(j);
        demo_server_stop(h.origin);
        h.origin = NULL;
        household_up(&h, &honest, h.keeper.home, &honest_port);
    }
    return 0;
}

static int teardown(void **state)
{
    if (with_peer) {
        proc_kill(&honest, 15);
        assert_int_equal(proc_wait(&honest, 20000), 0);
        proc_free(&honest);
    }
    free(first);
    kit_free(&b);
    kit_free(&bad);
    household_close(&h);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "origin";
    const struct CMUnitTest vices[] = {cmocka_unit_test(test_vices)};
    const struct CMUnitTest brief[] = {cmocka_unit_test(test_brief)};
    const struct CMUnitTest closing[] = {cmocka_unit_test(test_close_after)};
    with_peer = strcmp(what, "peer") == 0 || strcmp(what, "brief") == 0;
    if (strcmp(what, "brief") == 0) {
        return cmocka_run_group_tests(brief, setup, teardown);
    }
    return strcmp(what, "close") == 0 ? cmocka_run_group_tests(closing, setup, teardown)
                                      : cmocka_run_group_tests(vices, setup, teardown);
}
