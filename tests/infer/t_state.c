/* SPDX-License-Identifier: MIT
 * t_state.c: states (copy, rollback, save, load, damage) and refusals (weights that must not be
 * used, numbers that are not finite, rows that make no sense, cancelling). */
#include "rig.h"

#include "node/model/config.h"
#include "proto/base/file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static const char tiny_a[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
static const char tiny_c[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_c";

static void open_or_fail(struct rig *r, const char *model)
{
    struct err e = {0};
    struct rig_opts o = {.model = model};
    if (rig_open(r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
}

/* Feed n tokens (k, k+1, ... scrambled) and return the last row of logits. */
static void feed(struct rig *r, struct infer_state *st, uint32_t k, uint32_t n, float *logits)
{
    struct err e = {0};
    uint32_t V = infer_config(r->f)->vocab;
    for (uint32_t i = 0; i < n; i++) {
        struct infer_row row = {st, (k + i) * 37 % V, true};
        if (infer_forward(r->f, &row, 1, logits, &e)) {
            fail_msg("%s", e.msg);
        }
    }
}

/* The numbers of the architecture note (2.11), not those of our reader of config.json. */
static void bytes_at_the_released_shape(void **s)
{
    (void)s;
    enum { KDA_LAYERS = 69, MLA_LAYERS = 24, HEADS = 96, WIDTH = 128, STREAMS = 3, PAST = 3 };
    const uint64_t fixed = 4ull * KDA_LAYERS *
                           (STREAMS * PAST * (HEADS * WIDTH) + (uint64_t)HEADS * WIDTH * WIDTH),
                   each = 4ull * MLA_LAYERS * (512 + 64);
    struct buf text;
    struct model_config c;
    struct err e = {0};
    buf_init(&text, 1 << 20);
    assert_int_equal(file_read_all(SHOAL_TEST_DIR "/model/data/k3/config.json", &text, &e), 0);
    assert_int_equal(model_config_parse(text.p, text.n, &c, &e), 0);
    static const uint32_t at[] = {0, 1, 2000, 100000};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(infer_shape_bytes(&c, at[i]), fixed + at[i] * each);
    }
    assert_int_equal(fixed, 464633856); /* 464 MB, and 55 KB a token */
    assert_int_equal(each, 55296);
    model_config_free(&c);
    buf_free(&text);
}

/* What the formula says is what a state's file holds, beside its head (56) and checksum (32). */
static void bytes_are_what_is_stored(void **s)
{
    (void)s;
    char dir[] = "/tmp/t_state_XXXXXX", path[64];
    struct rig r;
    struct err e = {0};
    struct stat sb;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    open_or_fail(&r, tiny_a);
    float *a = malloc(infer_config(r.f)->vocab * sizeof *a);
    struct infer_state *st;
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    for (uint32_t n = 0; n < 3; n++) {
        assert_int_equal(infer_state_save(st, path, &e), 0);
        assert_int_equal(stat(path, &sb), 0);
        assert_int_equal(sb.st_size, 56 + infer_shape_bytes(infer_config(r.f), 35 * n) + 32);
        feed(&r, st, 35 * n, 35, a);
    }
    infer_state_free(st);
    free(a);
    rig_close(&r);
    rig_remove(dir);
}

static void rollback_by_copy(void **s)
{
    struct rig r;
    struct err e = {0};
    open_or_fail(&r, tiny_a);
    uint32_t V = infer_config(r.f)->vocab;
    size_t n = V * sizeof(float);
    float *a = malloc(n), *b = malloc(n);
    struct infer_state *st, *kept, *again;
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    feed(&r, st, 0, 70, a);
    assert_int_equal(infer_state_copy(st, &kept, &e), 0);
    feed(&r, st, 1000, 9, a); /* a draft that is thrown away */
    infer_state_free(st);
    assert_int_equal(infer_state_pos(kept), 70);
    assert_int_equal(infer_state_copy(kept, &again, &e), 0);
    feed(&r, kept, 70, 80, a);
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    feed(&r, st, 0, 150, b);
    assert_memory_equal(a, b, n);
    feed(&r, again, 70, 80, b); /* and the copy was not touched by its original */
    assert_memory_equal(a, b, n);
    infer_state_free(st);
    infer_state_free(kept);
    infer_state_free(again);
    free(a);
    free(b);
    rig_close(&r);
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    unsigned char c;
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 0x10;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static void save_load_damage(void **s)
{
    struct rig r, other;
    struct err e = {0};
    char dir[] = "/tmp/t_state_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/state", dir);
    open_or_fail(&r, tiny_a);
    uint32_t V = infer_config(r.f)->vocab;
    size_t n = V * sizeof(float);
    float *a = malloc(n), *b = malloc(n);
    struct infer_state *st, *back;
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    feed(&r, st, 0, 75, a);
    assert_int_equal(infer_state_save(st, path, &e), 0);
    struct stat fs;
    assert_int_equal(stat(path, &fs), 0);
    assert_int_equal(fs.st_mode & 0777, 0600);
    assert_int_equal(infer_state_load(r.f, path, &back, &e), 0);
    assert_int_equal(infer_state_pos(back), 75);
    feed(&r, st, 75, 5, a);
    feed(&r, back, 75, 5, b);
    assert_memory_equal(a, b, n);
    infer_state_free(back);

    open_or_fail(&other, tiny_c);
    assert_int_equal(infer_state_load(other.f, path, &back, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "another model"));
    rig_close(&other);

    /* one flipped bit anywhere, a shorter and a longer file */
    for (off_t at = 0; at < fs.st_size; at += fs.st_size / 23 + 1) {
        flip(path, at);
        assert_int_not_equal(infer_state_load(r.f, path, &back, &e), 0);
        assert_null(back);
        assert_non_null(strstr(e.msg, path));
        flip(path, at);
    }
    assert_int_equal(truncate(path, fs.st_size - 1), 0);
    assert_int_equal(infer_state_load(r.f, path, &back, &e), ERR_FORMAT);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_not_equal(infer_state_load(r.f, path, &back, &e), 0);
    assert_int_equal(truncate(path, fs.st_size + 1), 0);
    assert_int_not_equal(infer_state_load(r.f, path, &back, &e), 0);
    infer_state_free(st);
    free(a);
    free(b);
    rig_close(&r);
    rig_remove(dir);
}

/* Overwrite bytes of one object of a copied model. */
static void poke(const struct model *m, const char *dir, uint32_t id, uint64_t at, const void *p,
                 size_t n)
{
    const struct model_object *o = model_object(m, id);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, model_shard(m, o->shard)->file);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, p, n, (off_t)(o->offset + at)), n);
    close(fd);
}

/* A copy of tiny_a with one change; running it must fail with `code` and a sentence holding `say`.
 */
static void refused(enum model_role role, uint32_t layer, uint64_t at, const void *p, size_t n,
                    int code, const char *say, const char *say2)
{
    struct rig r;
    struct err e = {0};
    char dir[] = "/tmp/t_state_XXXXXX";
    assert_non_null(mkdtemp(dir));
    rig_copy_model(tiny_a, dir);
    open_or_fail(&r, tiny_a);
    poke(r.m, dir, model_spine_id(r.m, layer, role), at, p, n);
    rig_close(&r);
    struct rig_opts o = {.model = dir};
    int rc = rig_open(&r, &o, &e);
    if (!rc) {
        float *l = malloc(infer_config(r.f)->vocab * sizeof *l);
        struct infer_state *st;
        assert_int_equal(infer_state_new(r.f, &st, &e), 0);
        struct infer_row row = {st, 3, true};
        rc = infer_forward(r.f, &row, 1, l, &e);
        assert_int_not_equal(rc, 0);
        struct err e2 = {0}; /* a state left half done is not used again */
        assert_int_equal(infer_forward(r.f, &row, 1, l, &e2), ERR_ARG);
        struct infer_state *copy;
        assert_int_equal(infer_state_copy(st, &copy, &e2), ERR_ARG);
        infer_state_free(st);
        free(l);
        rig_close(&r);
    }
    assert_int_equal(rc, code);
    if (!strstr(e.msg, say) || !strstr(e.msg, say2)) {
        fail_msg("expected \"%s\" and \"%s\" in: %s", say, say2, e.msg);
    }
    rig_remove(dir);
}

static void weights_are_refused_by_name(void **s)
{
    const uint16_t nan16 = 0x7fc0, inf16 = 0xff80;
    const float nanf32 = __builtin_nanf(""), one = 1.0f, tiny = 1e-30f;
    refused(MODEL_KDA_Q, 1, 64, &nan16, 2, ERR_FORMAT, "q_proj", "layer 1");
    refused(MODEL_LM_HEAD, MODEL_NONE, 2, &inf16, 2, ERR_FORMAT, "lm_head", "finite");
    refused(MODEL_KDA_DTBIAS, 2, 8, &nanf32, 4, ERR_FORMAT, "dt_bias", "layer 2");
    /* tiny_a has 4 heads: entry 4 is padding; a small value there is as wrong as a large one */
    refused(MODEL_KDA_ALOG, 5, 16, &one, 4, ERR_FORMAT, "A_log", "5");
    refused(MODEL_KDA_ALOG, 5, 16, &tiny, 4, ERR_FORMAT, "A_log", "5");
}

static void not_finite_names_the_layer(void **s)
{
    uint16_t huge[64];
    for (int i = 0; i < 64; i++) {
        huge[i] = 0x7f7f; /* the largest bf16 */
    }
    refused(MODEL_ATTN_O, 2, 0, huge, sizeof huge, ERR_NUMERIC, "layer 2", "NaN");
    refused(MODEL_LM_HEAD, MODEL_NONE, 0, huge, sizeof huge, ERR_NUMERIC, "output head", "NaN");
}

/* Every expert of a layer is damaged in the same way: whichever is chosen is named. */
static void expert_refused(uint8_t scale, bool zero_block, bool ok)
{
    struct rig r;
    struct err e = {0};
    char dir[] = "/tmp/t_state_XXXXXX";
    assert_non_null(mkdtemp(dir));
    rig_copy_model(tiny_a, dir);
    open_or_fail(&r, tiny_a);
    const uint8_t zero[16] = {0x80, 0x08}; /* both signs of zero */
    const uint8_t some[16] = {0x01};
    for (uint32_t x = 0; x < model_config(r.m)->n_experts; x++) {
        uint32_t id = model_expert_id(r.m, 3, x);
        poke(r.m, dir, id, model_expert_layout(r.m)->scale[1] + 5, &scale, 1);
        poke(r.m, dir, id, model_expert_layout(r.m)->packed[1] + 5 * 16, zero_block ? zero : some,
             16);
    }
    rig_close(&r);
    open_or_fail(&r, dir);
    float *l = malloc(infer_config(r.f)->vocab * sizeof *l);
    struct infer_state *st;
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    struct infer_row row = {st, 3, true};
    int rc = infer_forward(r.f, &row, 1, l, &e);
    if (ok) {
        assert_int_equal(rc, 0);
    } else {
        assert_int_equal(rc, ERR_FORMAT);
        if (!strstr(e.msg, "expert 3/") || !strstr(e.msg, "w2")) {
            fail_msg("no expert named in: %s", e.msg);
        }
    }
    infer_state_free(st);
    free(l);
    rig_close(&r);
    rig_remove(dir);
}

static void experts_are_refused_by_name(void **s)
{
    expert_refused(255, false, false);
    expert_refused(65, false, false); /* 0.5 * 2^(65-127) = 2^-63 */
    expert_refused(66, false, true);
    expert_refused(190, false, true); /* 0.5 * 2^63 = 2^62 */
    expert_refused(191, false, false);
    expert_refused(3, true, true); /* an all-zero block may carry any byte but 255 */
    expert_refused(255, true, false);
}

static void rows_are_checked(void **s)
{
    struct rig r;
    struct err e = {0};
    open_or_fail(&r, tiny_a);
    uint32_t V = infer_config(r.f)->vocab;
    float *l = malloc(4 * V * sizeof *l);
    struct infer_state *a, *b;
    assert_int_equal(infer_state_new(r.f, &a, &e), 0);
    assert_int_equal(infer_state_new(r.f, &b, &e), 0);
    struct infer_row rows[3] = {{a, 1, true}, {b, 1, true}, {a, 2, true}};
    assert_int_equal(infer_forward(r.f, rows, 3, l, &e), ERR_ARG);
    rows[0].token = V;
    assert_int_equal(infer_forward(r.f, rows, 1, l, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "vocabulary"));
    rows[0].token = 1;
    assert_int_equal(infer_forward(r.f, rows, 2, l, &e), 0); /* nothing of it broke a state */
    assert_int_equal(infer_forward(r.f, rows, 0, l, &e), 0);
    uint32_t max = infer_config(r.f)->max_positions;
    struct infer_row *many = calloc(max, sizeof *many);
    for (uint32_t i = 0; i < max; i++) {
        many[i] = (struct infer_row){a, 1, false};
    }
    assert_int_equal(infer_forward(r.f, many, max, l, &e), ERR_LIMIT);
    assert_int_equal(infer_state_pos(a), 1);
    free(many);
    infer_state_free(a);
    infer_state_free(b);
    free(l);
    rig_close(&r);
}

static int stop_in_layer_4(void *ctx, const struct infer_progress *p)
{
    return *(int *)ctx && p->layer == 4;
}

static void cancels_within_a_layer(void **s)
{
    struct rig r;
    struct err e = {0};
    int on = 0;
    struct rig_opts o = {.model = tiny_a, .progress = stop_in_layer_4, .progress_ctx = &on};
    assert_int_equal(rig_open(&r, &o, &e), 0);
    float *l = malloc(infer_config(r.f)->vocab * sizeof *l);
    struct infer_state *st;
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    struct infer_row row = {st, 1, true};
    on = 1;
    assert_int_equal(infer_forward(r.f, &row, 1, l, &e), ERR_CANCELLED);
    infer_state_free(st);
    on = 0;
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    row.state = st;
    assert_int_equal(infer_forward(r.f, &row, 1, l, &e), 0);
    infer_state_free(st);
    free(l);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_at_the_released_shape),
        cmocka_unit_test(bytes_are_what_is_stored),
        cmocka_unit_test(rollback_by_copy),
        cmocka_unit_test(save_load_damage),
        cmocka_unit_test(weights_are_refused_by_name),
        cmocka_unit_test(not_finite_names_the_layer),
        cmocka_unit_test(experts_are_refused_by_name),
        cmocka_unit_test(rows_are_checked),
        cmocka_unit_test(cancels_within_a_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
