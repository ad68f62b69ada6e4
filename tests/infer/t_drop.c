/* SPDX-License-Identifier: MIT
 * t_drop.c: sequences in one call: some leave it at any layer, the others get the bits that they
 * get alone. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEQS 3

struct plan {
    struct infer_state *drop[SEQS];
    uint32_t at[SEQS]; /* the layer before which it leaves */
};

static int on_progress(void *ctx, const struct infer_progress *p)
{
    struct plan *d = ctx;
    for (int i = 0; i < SEQS; i++) {
        if (d->drop[i] && p->layer == d->at[i]) {
            infer_drop(d->drop[i]);
        }
    }
    return 0;
}

static uint32_t token(uint32_t seq, uint32_t i, uint32_t V)
{
    return (seq * 1009 + i * 37 + 5) % V;
}

/* Lengths of the three sequences; rows with logits: the last of each, and the first of the second.
 */
static const uint32_t len[SEQS] = {5, 9, 4};

static int call(struct rig *r, struct infer_state **st, unsigned which, float *logits,
                struct err *e)
{
    struct infer_row rows[32];
    uint32_t n = 0, V = infer_config(r->f)->vocab;
    for (uint32_t s = 0; s < SEQS; s++) {
        for (uint32_t i = 0; (which >> s & 1) && i < len[s]; i++) {
            bool want = i + 1 == len[s] || (s == 1 && i == 0);
            rows[n++] = (struct infer_row){st[s], token(s, i, V), want};
        }
    }
    return infer_forward(r->f, rows, n, logits, e);
}

static void test_leave(void **state)
{
    (void)state;
    static const char tiny[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
    static const uint32_t max_rows[] = {0, 7, 3};
    for (size_t k = 0; k < sizeof max_rows / sizeof *max_rows; k++) {
        struct plan plan = {{0}, {0}};
        struct rig r;
        struct err e = {0};
        struct rig_opts o = {
            .model = tiny, .max_rows = max_rows[k], .progress = on_progress, .progress_ctx = &plan};
        if (rig_open(&r, &o, &e)) {
            fail_msg("%s", e.msg);
        }
        uint32_t V = infer_config(r.f)->vocab, layers = infer_config(r.f)->n_layers;
        size_t row = V * sizeof(float);
        float *alone = malloc(4 * row), *got = malloc(4 * row); /* seq 0, 1 first, 1 last, 2 */
        static const unsigned at[SEQS] = {0, 1, 3};
        assert_true(alone && got);
        struct infer_state *st[SEQS];
        for (uint32_t s = 0; s < SEQS; s++) {
            assert_int_equal(infer_state_new(r.f, &st[s], &e), 0);
            assert_int_equal(call(&r, st, 1u << s, alone + at[s] * V, &e), 0);
            infer_state_free(st[s]);
        }
        for (unsigned gone = 1; gone < 1u << SEQS; gone++) {
            for (uint32_t l = 0; l < layers; l += gone == 2 ? 1 : layers / 2) {
                for (uint32_t s = 0; s < SEQS; s++) {
                    assert_int_equal(infer_state_new(r.f, &st[s], &e), 0);
                    plan.drop[s] = gone >> s & 1 ? st[s] : NULL;
                    plan.at[s] = (l + s) % layers; /* not all at one layer */
                }
                memset(got, 0, 4 * row);
                int rc = call(&r, st, 7, got, &e);
                assert_int_equal(rc, gone == 7 ? ERR_CANCELLED : 0);
                for (uint32_t s = 0; s < SEQS; s++) {
                    bool left = gone >> s & 1;
                    assert_int_equal(infer_dropped(st[s]), left);
                    if (!left) {
                        assert_memory_equal(got + at[s] * V, alone + at[s] * V,
                                            s == 1 ? 2 * row : row);
                        assert_int_equal(infer_state_pos(st[s]), len[s]);
                    } else {
                        struct infer_row again = {st[s], 1, false};
                        memset(&plan, 0, sizeof plan);
                        assert_int_equal(infer_forward(r.f, &again, 1, NULL, &e), ERR_ARG);
                    }
                    infer_state_free(st[s]);
                }
                memset(&plan, 0, sizeof plan);
            }
        }
        free(alone);
        free(got);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
