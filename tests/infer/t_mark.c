/* SPDX-License-Identifier: MIT
 * t_mark.c: rows that are taken back: the bytes of a state that goes back to any of its positions
 * are those of one that never went further, whatever the instruction set, the number of threads,
 * the size of steps, what is resident, and what else is in the call. */
#include "rig.h"

#include "node/infer/internal.h"
#include "proto/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tiny_a[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
static const char tiny_c[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_c";

#define BEFORE 5 /* tokens before the mark */
#define ROWS 5   /* behind it */
#define STATE_MAX ((size_t)16 << 20)

static bool brief;                         /* for slow machines: one way for each model */
static struct buf want[BEFORE + ROWS + 2]; /* the plain run's states by position */
static float *want_logits[BEFORE + ROWS + 2];

static uint32_t token(uint32_t i, uint32_t V)
{
    return (i * 37 + 11) % V;
}

/* All bytes of a state, as infer_state_save writes them. */
static void bytes_of(const struct infer_state *st, struct buf *out)
{
    const struct kern_buf *fixed[2] = {st->kda, st->conv};
    size_t n = (size_t)st->pos * state_latent_width(st->f) * sizeof(float);
    buf_init(out, STATE_MAX);
    for (int i = 0; i < 2; i++) {
        assert_true(!fixed[i] || !buf_add(out, fixed[i]->host, fixed[i]->size));
    }
    for (uint32_t i = 0; n && i < state_count(st->f, MODEL_MLA); i++) {
        assert_false(buf_add(out, st->latent[i]->host, n));
    }
    assert_int_equal(out->n, infer_state_bytes(st->f, st->pos));
}

static void feed(struct rig *r, struct infer_state *st, uint32_t from, uint32_t n, uint32_t salt,
                 float *logits)
{
    struct infer_row rows[BEFORE + ROWS];
    struct err e = {0};
    uint32_t V = infer_config(r->f)->vocab;
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (struct infer_row){st, token(from + i + salt * 1000, V), logits && i + 1 == n};
    }
    if (infer_forward(r->f, rows, n, logits, &e)) {
        fail_msg("%s", e.msg);
    }
}

/* One token a call by the scalar set: states and logits at each position. */
static void plain_run(const char *model)
{
    struct rig r;
    struct err e = {0};
    struct rig_opts o = {.model = model, .isa = KERN_ISA_SCALAR, .threads = 1};
    struct infer_state *st;
    assert_int_equal(rig_open(&r, &o, &e), 0);
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    for (uint32_t i = 0; i < BEFORE + ROWS + 2; i++) {
        want_logits[i] = malloc(infer_config(r.f)->vocab * sizeof(float));
        assert_non_null(want_logits[i]);
        bytes_of(st, &want[i]);
        feed(&r, st, i, 1, 0, want_logits[i]);
    }
    infer_state_free(st);
    rig_close(&r);
}

static void plain_free(void)
{
    for (uint32_t i = 0; i < BEFORE + ROWS + 2; i++) {
        buf_free(&want[i]);
        free(want_logits[i]);
    }
}

static void same_state(const struct infer_state *st, uint32_t pos)
{
    struct buf got;
    assert_int_equal(infer_state_pos(st), pos);
    bytes_of(st, &got);
    assert_int_equal(got.n, want[pos].n);
    if (memcmp(got.p, want[pos].p, got.n) != 0) {
        fail_msg("the state at position %u has other bytes than the plain run's", pos);
    }
    buf_free(&got);
}

/* From every number of rows back to every position, and on from there. `calls`: how many forward
 * calls the rows come in. */
static void all_positions(struct rig *r, uint32_t calls)
{
    uint32_t V = infer_config(r->f)->vocab;
    float *l = malloc(V * sizeof *l);
    struct err e = {0};
    struct infer_state *st;
    assert_non_null(l);
    for (uint32_t n = 1; n <= ROWS; n++) {
        for (uint32_t keep = 0; keep <= n; keep++) {
            assert_int_equal(infer_state_new(r->f, &st, &e), 0);
            feed(r, st, 0, BEFORE, 0, NULL);
            /* twice: the room of the first mark serves the second, and the first leaves nothing */
            assert_int_equal(infer_state_mark(st, ROWS, &e), 0);
            feed(r, st, BEFORE, n, 7, NULL);
            assert_int_equal(infer_state_rewind(st, 0, &e), 0);
            if (!keep) {
                same_state(st, BEFORE);
            }
            assert_int_equal(infer_state_mark(st, n, &e), 0);
            /* what stays is right, what goes is another token than the plain run's */
            uint32_t each = (keep + calls - 1) / calls;
            for (uint32_t at = 0; at < keep; at += each) {
                feed(r, st, BEFORE + at, keep - at < each ? keep - at : each, 0, NULL);
            }
            if (n > keep) {
                feed(r, st, BEFORE + keep, n - keep, 3, NULL);
            }
            assert_int_equal(infer_state_rewind(st, keep, &e), 0);
            same_state(st, BEFORE + keep);
            feed(r, st, BEFORE + keep, 1, 0, l);
            assert_memory_equal(l, want_logits[BEFORE + keep], V * sizeof *l);
            same_state(st, BEFORE + keep + 1);
            infer_state_free(st);
        }
    }
    free(l);
}

static void goes_back_anywhere(void **s)
{
    (void)s;
    static const struct rig_opts ways[] = {
        {.isa = KERN_ISA_SCALAR, .threads = 1},
        {.threads = 3},
        {.threads = 1, .max_rows = 2},
        {.threads = 2, .no_spine = true, .max_rows = 4},
    };
    static const char *const models[] = {tiny_a, tiny_c};
    for (size_t m = 0; m < 2; m++) {
        plain_run(models[m]);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i += m || brief ? 3 : 1) {
            struct rig r;
            struct rig_opts o = ways[i];
            struct err e = {0};
            o.model = models[m];
            if (rig_open(&r, &o, &e)) {
                fail_msg("%s", e.msg);
            }
            all_positions(&r, 1 + i % 3);
            rig_close(&r);
        }
        plain_free();
    }
}

/* Three in one call: two go back to different places, one has no mark. */
static void beside_others(void **s)
{
    (void)s;
    struct rig r;
    struct err e = {0};
    struct rig_opts o = {.model = tiny_a};
    struct infer_state *st[3];
    plain_run(tiny_a);
    assert_int_equal(rig_open(&r, &o, &e), 0);
    uint32_t V = infer_config(r.f)->vocab, n = 0;
    struct infer_row rows[16];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(infer_state_new(r.f, &st[i], &e), 0);
        feed(&r, st[i], 0, BEFORE, 0, NULL);
    }
    assert_int_equal(infer_state_mark(st[0], 4, &e), 0);
    assert_int_equal(infer_state_mark(st[2], 5, &e), 0);
    static const uint32_t len[3] = {4, 1, 5}, right[3] = {2, 1, 4};
    for (int i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < len[i]; k++) {
            uint32_t t = token(BEFORE + k, V);
            rows[n++] = (struct infer_row){st[i], k < right[i] ? t : (t + 1) % V, false};
        }
    }
    assert_int_equal(infer_forward(r.f, rows, n, NULL, &e), 0);
    assert_int_equal(infer_state_rewind(st[0], right[0], &e), 0);
    assert_int_equal(infer_state_rewind(st[2], right[2], &e), 0);
    for (int i = 0; i < 3; i++) {
        same_state(st[i], BEFORE + right[i]);
        infer_state_free(st[i]);
    }
    rig_close(&r);
    plain_free();
}

struct stop {
    uint32_t layer; /* 0: none */
    struct infer_state *drop;
};

static int on_progress(void *ctx, const struct infer_progress *p)
{
    struct stop *x = ctx;
    if (!x->layer || p->layer != x->layer) {
        return 0;
    }
    if (x->drop) {
        infer_drop(x->drop);
    }
    return !x->drop;
}

/* A pass that failed, or that the state left: it is again what it was at the mark. */
static void after_an_error(void **s)
{
    (void)s;
    struct rig r;
    struct err e = {0};
    struct stop stop = {0, NULL};
    struct rig_opts o = {.model = tiny_a, .progress = on_progress, .progress_ctx = &stop};
    struct infer_state *st;
    plain_run(tiny_a);
    assert_int_equal(rig_open(&r, &o, &e), 0);
    for (uint32_t l = 1; l < infer_config(r.f)->n_layers; l++) {
        for (int drop = 0; drop < 2; drop++) {
            struct infer_row rows[3];
            assert_int_equal(infer_state_new(r.f, &st, &e), 0);
            feed(&r, st, 0, BEFORE, 0, NULL);
            assert_int_equal(infer_state_mark(st, 3, &e), 0);
            for (uint32_t i = 0; i < 3; i++) {
                rows[i] = (struct infer_row){st, 5 + i, false};
            }
            stop = (struct stop){l, drop ? st : NULL};
            assert_int_equal(infer_forward(r.f, rows, 3, NULL, &e), ERR_CANCELLED);
            stop.layer = 0;
            assert_int_equal(infer_state_rewind(st, 1, &e), ERR_ARG);
            assert_int_equal(infer_state_rewind(st, 0, &e), 0);
            same_state(st, BEFORE);
            feed(&r, st, BEFORE, 2, 0, NULL);
            same_state(st, BEFORE + 2);
            infer_state_free(st);
        }
    }
    rig_close(&r);
    plain_free();
}

static void refusals(void **s)
{
    (void)s;
    struct rig r;
    struct err e = {0};
    struct rig_opts o = {.model = tiny_a};
    struct infer_state *st, *copy;
    assert_int_equal(rig_open(&r, &o, &e), 0);
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    assert_int_equal(infer_state_rewind(st, 0, &e), ERR_ARG);
    assert_int_equal(infer_state_mark(st, 0, &e), ERR_ARG);
    assert_int_equal(infer_state_mark(st, 2, &e), 0);
    struct infer_row rows[3] = {{st, 1, false}, {st, 2, false}, {st, 3, false}};
    assert_int_equal(infer_forward(r.f, rows, 3, NULL, &e), ERR_ARG); /* and nothing is broken */
    assert_int_equal(infer_forward(r.f, rows, 2, NULL, &e), 0);
    assert_int_equal(infer_state_rewind(st, 3, &e), ERR_ARG);
    assert_int_equal(infer_state_copy(st, &copy, &e), 0);
    assert_int_equal(infer_state_rewind(copy, 0, &e), ERR_ARG);
    infer_state_free(copy);
    assert_int_equal(infer_state_rewind(st, 1, &e), 0);
    assert_int_equal(infer_state_pos(st), 1);
    assert_int_equal(infer_state_rewind(st, 0, &e), ERR_ARG); /* it is used up */
    assert_int_equal(infer_forward(r.f, rows, 3, NULL, &e), 0);
    infer_state_free(st);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    brief = argc > 1 && !strcmp(argv[1], "brief");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_back_anywhere),
        cmocka_unit_test(beside_others),
        cmocka_unit_test(after_an_error),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
