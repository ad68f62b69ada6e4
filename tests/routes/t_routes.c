/* SPDX-License-Identifier: MIT
 * t_routes.c: recorded routes: what is written is read again, what is wrong is refused by its line;
 * the policies against plain ones that search, on random routes of several kinds, and against what
 * must hold of any. */
#include "node/routes/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static uint32_t rnd(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* ---- the file ---- */

#define ROOT "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define HEAD "shoal-routes 1\nmodel " ROOT " layers 4 experts 10 topk 3 bytes 1000\n"

static void test_write_read(void **state)
{
    char dir[] = "/tmp/shoal-routes.XXXXXX", path[80];
    struct routes_head h = {.layers = 4, .experts = 10, .topk = 3, .expert_bytes = 1000};
    struct routes_out *w;
    struct routes r;
    struct stat st;
    struct err e = {0};
    (void)state;
    for (unsigned i = 0; i < sizeof h.root; i++) {
        h.root[i] = (uint8_t)(i % 16 * 0x11);
    }
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/r", dir);
    assert_int_equal(routes_create(path, &h, &w, &e), 0);
    routes_add(w, 1, 2, (uint32_t[]){7, 2, 9, 0}, 4);
    routes_add(w, 3, 2, (uint32_t[]){5}, 1);
    routes_add(w, 1, 1, (uint32_t[]){4, 3, 2}, 3);
    assert_int_equal(routes_finish(w, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    FILE *f = fopen(path, "r");
    char text[400];
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    assert_string_equal(text, HEAD "step 2\n1 0 2 7 9\n3 5\nstep 1\n1 2 3 4\n");

    assert_int_equal(routes_read(path, &r, &e), 0);
    assert_memory_equal(&r.head.root, h.root, sizeof h.root);
    assert_int_equal(r.head.layers, 4);
    assert_int_equal(r.head.experts, 10);
    assert_int_equal(r.head.topk, 3);
    assert_int_equal(r.head.expert_bytes, 1000);
    assert_int_equal(r.steps, 2);
    assert_int_equal(r.rows, 3);
    static const struct routes_use want[] = {{10, 0}, {12, 0}, {17, 0}, {19, 0},
                                             {35, 0}, {12, 1}, {13, 1}, {14, 1}};
    assert_int_equal(r.n, 8);
    assert_memory_equal(r.use, want, sizeof want);
    routes_free(&r);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(routes_read(path, &r, &e), ERR_NOTFOUND);
    routes_free(&r);
    snprintf(path, sizeof path, "%s/no/r", dir);
    assert_int_equal(routes_create(path, &h, &w, &e), ERR_IO);
    assert_non_null(strstr(e.msg, path));
    assert_null(w);
    rmdir(dir);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        {"", "does not begin"},
        {"shoal-routes 2\n", "does not begin"},
        {"shoal-routes 1\nmodel " ROOT " layers 0 experts 10 topk 3 bytes 1000\n", "not begin"},
        {"shoal-routes 1\nmodel " ROOT " layers 5000 experts 10 topk 3 bytes 1000\n", "not begin"},
        {"shoal-routes 1\nmodel " ROOT " layers 4 experts 10 topk 11 bytes 1000\n", "not begin"},
        {"shoal-routes 1\nmodel 0G layers 4 experts 10 topk 3 bytes 1000\n", "not begin"},
        {HEAD, "empty"},
        {HEAD "step 1\n", "empty"},
        {HEAD "1 2\n", "line 3"},
        {HEAD "step 0\n1 2\n", "line 3"},
        {HEAD "step 65537\n1 2\n", "line 3"},
        {HEAD "step 1\n4 2\n", "line 4"},
        {HEAD "step 1\n1 10\n", "line 4"},
        {HEAD "step 1\n1 2 2\n", "line 4"},
        {HEAD "step 1\n1 3 2\n", "line 4"},
        {HEAD "step 1\n1 2\n1 3\n", "line 5"},
        {HEAD "step 1\n1 2", "line 4"},
        {HEAD "step 1\n1 2 x\n", "line 4"},
        {HEAD "step 1\n1  2\n", "line 4"},
        {HEAD "step 1\n1 99999999999999999999\n", "line 4"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct routes r;
        struct err e = {0};
        assert_int_equal(routes_parse(bad[i].text, strlen(bad[i].text), &r, &e), ERR_FORMAT);
        if (!strstr(e.msg, bad[i].says)) {
            fail_msg("case %zu: %s", i, e.msg);
        }
        routes_free(&r);
    }
}

/* ---- plain policies: an array, searched ---- */

struct plain {
    uint32_t x[64];
    uint64_t key[64], last[64], age;
    unsigned n;
};

static size_t next_use(const struct routes *r, size_t at)
{
    size_t i = at + 1;
    while (i < r->n && r->use[i].object != r->use[at].object) {
        i++;
    }
    return i < r->n ? i : SIZE_MAX;
}

static uint64_t plain_misses(const struct routes *r, enum replay_policy p, unsigned capacity)
{
    struct plain c = {.n = 0};
    uint64_t misses = 0;
    for (size_t at = 0; at < r->n; at++) {
        unsigned i = 0;
        while (i < c.n && c.x[i] != r->use[at].object) {
            i++;
        }
        bool hit = i < c.n;
        misses += !hit;
        uint64_t next = p == REPLAY_BEST ? next_use(r, at) : 0;
        if (!hit && c.n == capacity) {
            unsigned out = 0;
            for (unsigned k = 1; k < c.n; k++) {
                bool worse = p == REPLAY_LRU   ? c.last[k] < c.last[out]
                             : p == REPLAY_LFU ? c.key[k] < c.key[out] || (c.key[k] == c.key[out] &&
                                                                           c.last[k] < c.last[out])
                                               : c.key[k] > c.key[out];
                out = worse ? k : out;
            }
            if (p == REPLAY_BEST && c.key[out] <= next) {
                continue;
            }
            c.age = c.key[out];
            i = out;
        } else if (!hit) {
            i = c.n++;
        }
        c.x[i] = r->use[at].object;
        c.last[i] = at;
        c.key[i] = p == REPLAY_BEST ? next : hit ? c.key[i] + 1 : c.age + 1;
    }
    return misses;
}

/* Routes of a few kinds: flat, skewed, cyclic, drifting. */
static void make(struct routes *r, uint32_t *s, unsigned kind)
{
    memset(r, 0, sizeof *r);
    r->head = (struct routes_head){.layers = 5, .experts = 12, .topk = 3, .expert_bytes = 7};
    r->use = malloc(2000 * sizeof *r->use);
    uint32_t steps = 5 + rnd(s) % 95;
    for (uint32_t t = 0; t < steps; t++) {
        r->steps++;
        r->rows++;
        for (uint32_t l = 1; l < 5; l++) {
            for (uint32_t e = 0; e < 12; e++) {
                uint32_t odds = kind == 0               ? 25
                                : kind == 1             ? 90 / (1 + e)
                                : kind == 2             ? (e + t) % 4 ? 0 : 100
                                : (e + t / 10) % 12 < 4 ? 70
                                                        : 5;
                if (rnd(s) % 100 < odds && r->n < 2000) {
                    r->use[r->n++] = (struct routes_use){l * 12 + e, t};
                }
            }
        }
    }
}

static void test_policies(void **state)
{
    uint32_t s = 5;
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        struct routes r;
        struct err e = {0};
        struct replay_result x[REPLAY_POLICIES];
        uint32_t used;
        make(&r, &s, round % 4);
        assert_int_equal(replay_objects(&r, &used, &e), 0);
        assert_true(used <= 60);
        for (uint32_t capacity = 1; capacity <= 60; capacity += 1 + rnd(&s) % 9) {
            for (int p = 0; p < REPLAY_POLICIES; p++) {
                assert_int_equal(replay_run(&r, (enum replay_policy)p, capacity, &x[p], &e), 0);
                assert_int_equal(x[p].uses, r.n);
                assert_int_equal(x[p].bytes, 7 * x[p].misses);
                assert_true(x[p].misses >= used && x[p].misses <= r.n);
                assert_true(x[p].worst <= 12);
                assert_true(capacity < used || x[p].misses == used);
                if (p != REPLAY_S3FIFO) {
                    assert_int_equal(x[p].misses,
                                     plain_misses(&r, (enum replay_policy)p, capacity));
                }
            }
            for (int p = 0; p < REPLAY_BEST; p++) {
                assert_true(x[REPLAY_BEST].misses <= x[p].misses);
            }
        }
        routes_free(&r);
    }
}

/* Twelve objects in turn through a cache of eleven: LRU finds nothing, the optimum ten of twelve a
 * round; S3-FIFO keeps what came again. */
static void test_cycle(void **state)
{
    struct routes r = {.head = {.layers = 1, .experts = 12, .topk = 1, .expert_bytes = 1}};
    struct replay_result x;
    struct err e = {0};
    (void)state;
    r.n = 1200;
    r.use = malloc(r.n * sizeof *r.use);
    for (size_t i = 0; i < r.n; i++) {
        r.use[i] = (struct routes_use){(uint32_t)(i % 12), (uint32_t)i};
    }
    assert_int_equal(replay_run(&r, REPLAY_LRU, 11, &x, &e), 0);
    assert_int_equal(x.misses, 1200);
    assert_int_equal(replay_run(&r, REPLAY_BEST, 11, &x, &e), 0);
    assert_int_equal(x.misses, plain_misses(&r, REPLAY_BEST, 11));
    assert_true(x.misses < 120);
    assert_int_equal(replay_run(&r, REPLAY_LRU, 0, &x, &e), ERR_ARG);
    routes_free(&r);
}

/* What a flat router leaves to any policy that does not know the future: its share. */
static void test_flat(void **state)
{
    struct routes r;
    struct replay_result x;
    struct err e = {0};
    (void)state;
    assert_int_equal(routes_flat(60, &r, &e), 0);
    assert_int_equal(r.n, 60 * 92 * 16);
    assert_int_equal(r.rows, 60);
    for (size_t i = 1; i < r.n; i++) {
        assert_true(r.use[i].step > r.use[i - 1].step || r.use[i].object > r.use[i - 1].object);
    }
    for (int p = 0; p < REPLAY_BEST; p++) {
        assert_int_equal(replay_run(&r, (enum replay_policy)p, 82432 / 5, &x, &e), 0);
        assert_true((double)(x.uses - x.misses) / (double)x.uses < 0.22);
    }
    routes_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_read), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_policies),   cmocka_unit_test(test_cycle),
        cmocka_unit_test(test_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
