/* SPDX-License-Identifier: MIT
 * t_tiny.c: the tiny checkpoints: every tensor's place against a reading of the headers by jansson,
 * the model root, saved inventories and their damage, the source's part. */
#include "model/edit.h"
#include "node/model/model.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY_A SHOAL_TEST_DIR "/fixtures/k3/tiny_a"
#define TINY_C SHOAL_TEST_DIR "/fixtures/k3/tiny_c"

static struct model *open_dir(const char *dir)
{
    struct model_source src;
    struct err e = {0};
    struct model *m = NULL;
    if (model_folder_open(dir, &src, &e) || model_open(&src, &m, &e)) {
        fail_msg("%s", e.msg);
    }
    model_folder_close(&src);
    return m;
}

static const char *const layer_names[] = {
#define NAME(n, s) s,
    MODEL_LAYER_ROLES(NAME)};
static const char *const global_names[] = {MODEL_GLOBAL_ROLES(NAME)};
#undef NAME

/* The entry of a full name in the header of the shard that the index names for it. */
static json_t *entry(const char *dir, const json_t *map, const char *name, const char **file,
                     uint64_t *start)
{
    char path[4096];
    *file = json_string_value(json_object_get(map, name));
    if (!*file) {
        return NULL;
    }
    snprintf(path, sizeof path, "%s/%s", dir, *file);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    uint8_t head[8];
    assert_int_equal(fread(head, 1, 8, f), 8);
    size_t n = (size_t)num_get_le64(head);
    char *t = malloc(n);
    assert_non_null(t);
    assert_int_equal(fread(t, 1, n, f), n);
    fclose(f);
    *start = 8 + n;
    json_t *h = json_loadb(t, n, 0, NULL);
    free(t);
    json_t *v = json_incref(json_object_get(h, name));
    assert_non_null(v);
    json_decref(h);
    return v;
}

/* Returns whether the checkpoint has that tensor; if so the object `id` must be it. */
static bool same_place(const struct model *m, const char *dir, const json_t *map, const char *name,
                       uint32_t id)
{
    static const char *const dtypes[] = {
        [MODEL_BF16] = "BF16", [MODEL_F32] = "F32", [MODEL_U8] = "U8"};
    const char *file;
    uint64_t start;
    json_t *v = entry(dir, map, name, &file, &start);
    const struct model_object *o = model_object(m, id);
    assert_int_equal(v == NULL, o == NULL);
    if (!v) {
        return false;
    }
    json_t *off = json_object_get(v, "data_offsets"), *shape = json_object_get(v, "shape");
    uint64_t begin = (uint64_t)json_integer_value(json_array_get(off, 0));
    uint64_t end = (uint64_t)json_integer_value(json_array_get(off, 1));
    assert_string_equal(model_shard(m, o->shard)->file, file);
    assert_int_equal(model_shard(m, o->shard)->header_size, start);
    assert_int_equal(o->offset, start + begin);
    assert_int_equal(o->size, end - begin);
    assert_string_equal(json_string_value(json_object_get(v, "dtype")), dtypes[o->dtype]);
    for (size_t i = 0; i < 3; i++) {
        json_t *d = json_array_get(shape, i);
        assert_int_equal(o->shape[i], d ? json_integer_value(d) : 1);
    }
    json_decref(v);
    return true;
}

static void check_all(const char *dir)
{
    struct model *m = open_dir(dir);
    const struct model_config *c = model_config(m);
    char path[4096], name[256];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    json_t *index = json_load_file(path, 0, NULL);
    json_t *map = json_object_get(index, "weight_map");
    assert_non_null(map);
    size_t seen = 0;
    uint32_t next = 0; /* ids count up in the promised order */
    uint64_t spine = 0;
    for (uint32_t g = 0; g < sizeof global_names / sizeof *global_names; g++) {
        snprintf(name, sizeof name, "language_model.%s", global_names[g]);
        uint32_t id = model_spine_id(m, 0, (enum model_role)(MODEL_GLOBAL_FIRST + g));
        assert_true(same_place(m, dir, map, name, id));
        assert_int_equal(id, next++);
        spine += model_object(m, id)->size;
        seen++;
    }
    for (uint32_t l = 0; l < c->n_layers; l++) {
        for (uint32_t r = 0; r < MODEL_LAYER_ROLE_COUNT; r++) {
            snprintf(name, sizeof name, "language_model.model.layers.%u.%s", l, layer_names[r]);
            uint32_t id = model_spine_id(m, l, (enum model_role)r);
            if (same_place(m, dir, map, name, id)) {
                assert_int_equal(id, next++);
                spine += model_object(m, id)->size;
                seen++;
            }
        }
    }
    assert_int_equal(model_spine_bytes(m), spine);
    const struct model_expert_layout *lay = model_expert_layout(m);
    for (uint32_t l = c->first_dense; l < c->n_layers; l++) {
        for (uint32_t x = 0; x < c->n_experts; x++) {
            uint32_t id = model_expert_id(m, l, x);
            const struct model_object *o = model_object(m, id);
            assert_int_equal(id, next++);
            assert_int_equal(o->size, lay->size);
            for (int w = 0; w < 3; w++) {
                for (int s = 0; s < 2; s++) {
                    const char *file;
                    uint64_t start;
                    snprintf(name, sizeof name,
                             "language_model.model.layers.%u.block_sparse_moe.experts.%u.w%d.%s", l,
                             x, w + 1, s ? "weight_scale" : "weight_packed");
                    json_t *v = entry(dir, map, name, &file, &start);
                    assert_non_null(v);
                    json_t *off = json_object_get(v, "data_offsets");
                    assert_int_equal(o->offset + (s ? lay->scale[w] : lay->packed[w]),
                                     start + (uint64_t)json_integer_value(json_array_get(off, 0)));
                    assert_string_equal(model_shard(m, o->shard)->file, file);
                    json_decref(v);
                    seen++;
                }
            }
        }
    }
    assert_int_equal(next, model_object_count(m));
    assert_int_equal(seen, json_object_size(map)); /* none besides */
    json_decref(index);
    model_close(m);
}

static void t_places(void **state)
{
    check_all(TINY_A);
    check_all(TINY_C);
}

/* Computed by another program from the files: SHA-256 of the lines "name TAB size TAB digest LF".
 */
static void t_root(void **state)
{
    static const struct {
        const char *dir, *hex;
    } want[] = {
        {TINY_A, "f160298a6e2d396ba8f873e6af2095f7e4a74c2722989610bd8883be77b1c985"},
        {TINY_C, "83b16039188241d38ab1b89ad62afd1cc5ab16fabbd2e187a8c910972febdea9"},
    };
    char hex[2 * SHA256_SIZE + 1];
    for (int i = 0; i < 2; i++) {
        struct model *m = open_dir(want[i].dir);
        sha256_hex(model_root(m), hex);
        assert_string_equal(hex, want[i].hex);
        model_close(m);
    }
    struct edit d; /* another file, another root */
    edit_begin(&d, TINY_A);
    edit_write(&d, "tiktoken.model", "", 0);
    struct model *m = open_dir(d.dir);
    sha256_hex(model_root(m), hex);
    assert_string_not_equal(hex, want[0].hex);
    model_close(m);
    edit_end(&d);
}

static void t_eos(void **state)
{
    struct edit d;
    edit_begin(&d, TINY_A);
    struct model *m = open_dir(d.dir);
    assert_int_equal(model_config(m)->eos, 509);
    model_close(m);
    edit_write(&d, "generation_config.json", "{\"eos_token_id\": 7}", 19);
    m = open_dir(d.dir);
    assert_int_equal(model_config(m)->eos, 7);
    model_close(m);
    edit_end(&d);
}

/* Whatever a blob says, objects lie inside their shards. */
static void check_bounds(const struct model *m)
{
    for (uint32_t i = 0; i < model_object_count(m); i++) {
        const struct model_object *o = model_object(m, i);
        const struct model_shard *s = model_shard(m, o->shard);
        assert_non_null(s);
        assert_true(o->offset >= s->header_size && o->size <= s->size &&
                    o->offset <= s->size - o->size);
    }
}

static void t_saved(void **state)
{
    struct model *m = open_dir(TINY_C), *n;
    struct buf b, b2;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    buf_init(&b2, 1 << 20);
    assert_int_equal(model_save(m, &b, &e), 0);
    assert_int_equal(model_load(b.p, b.n, &n, &e), 0);
    assert_int_equal(model_save(n, &b2, &e), 0); /* all that the blob holds came through */
    assert_int_equal(b.n, b2.n);
    assert_memory_equal(b.p, b2.p, b.n);
    assert_int_equal(model_spine_bytes(m), model_spine_bytes(n));
    assert_int_equal(model_expert_bytes(m), model_expert_bytes(n));
    model_close(n);
    for (size_t i = 0; i < b.n; i++) { /* any one bit */
        b.p[i] ^= (char)(1 << i % 8);
        assert_int_equal(model_load(b.p, b.n, &n, &e), ERR_FORMAT);
        assert_null(n);
        b.p[i] ^= (char)(1 << i % 8);
    }
    for (size_t i = 0; i < b.n; i += 7) { /* any length */
        char *cut = malloc(i ? i : 1);
        assert_non_null(cut);
        memcpy(cut, b.p, i);
        assert_int_equal(model_load(cut, i, &n, &e), ERR_FORMAT);
        free(cut);
    }
    buf_free(&b2);
    buf_init(&b2, 100); /* no room: an error, and nothing half written */
    assert_int_equal(model_save(m, &b2, &e), ERR_LIMIT);
    assert_int_equal(b2.n, 0);
    buf_free(&b2);
    buf_free(&b);
    model_close(m);
}

/* Blobs that are wrong under a right checksum: refused, or a model that keeps its promises. */
static void t_forged(void **state)
{
    struct model *m = open_dir(TINY_C), *n;
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    assert_int_equal(model_save(m, &b, &e), 0);
    model_close(m);
    char *t = malloc(b.n);
    assert_non_null(t);
    uint64_t x = 88172645463325252ull;
    int good = 0, bad = 0;
    for (int i = 0; i < 6000; i++) {
        memcpy(t, b.p, b.n);
        for (int k = 0; k < 1 + i % 3; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            size_t span = i % 2 ? 400 : b.n - SHA256_SIZE; /* often the configuration */
            t[12 + x % (span - 12)] = (char)(x >> 32);
        }
        sha256(t, b.n - SHA256_SIZE, (uint8_t *)t + b.n - SHA256_SIZE);
        if (model_load(t, b.n, &n, &e) == 0) {
            check_bounds(n);
            model_close(n);
            good++;
        } else {
            assert_null(n);
            bad++;
        }
    }
    assert_true(good > 100 && bad > 100);
    free(t);
    buf_free(&b);
}

static void t_alog(void **state)
{
    struct model *m = open_dir(TINY_C); /* 2 heads, 128 values */
    struct err e = {0};
    float v[128] = {0.5f, -1.0f, -0.0f};
    assert_int_equal(model_check_alog(m, 1, v, 128, &e), 0);
    assert_int_equal(model_check_alog(m, 1, v, 127, &e), ERR_ARG);
    assert_int_equal(model_check_alog(m, 3, v, 128, &e), ERR_ARG); /* MLA */
    v[127] = 1e-40f;
    assert_int_equal(model_check_alog(m, 1, v, 128, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "layer 1 self_attn.A_log: value 127"));
    v[127] = 0;
    v[2] = 1;
    assert_int_equal(model_check_alog(m, 1, v, 128, &e), ERR_FORMAT);
    v[2] = 0;
    v[0] = NAN;
    assert_int_equal(model_check_alog(m, 1, v, 128, &e), ERR_NUMERIC);
    model_close(m);
}

/* ---- the source's part ---- */

struct wrapped {
    struct model_source in;
    int fail_at, calls; /* the call number that fails */
};

static int w_file(void *ctx, const char *name, struct buf *out, struct err *e)
{
    struct wrapped *w = ctx;
    return w->calls++ == w->fail_at ? err_set(e, ERR_NET, "the line is dead")
                                    : w->in.read_file(w->in.ctx, name, out, e);
}

static int w_range(void *ctx, const char *name, uint64_t off, void *p, size_t n, struct err *e)
{
    struct wrapped *w = ctx;
    return w->calls++ == w->fail_at ? err_set(e, ERR_NET, "the line is dead")
                                    : w->in.read_range(w->in.ctx, name, off, p, n, e);
}

static int w_size(void *ctx, const char *name, uint64_t *size, struct err *e)
{
    struct wrapped *w = ctx;
    *size = UINT64_MAX; /* cannot tell */
    return w->calls++ == w->fail_at ? err_set(e, ERR_NET, "the line is dead") : 0;
}

/* A source that cannot tell sizes gives the same model; one that fails at any call gives its error.
 */
static void t_source(void **state)
{
    struct wrapped w = {.fail_at = -1};
    struct model_source src = {&w, w_file, w_range, w_size};
    struct err e = {0};
    struct model *m, *n = open_dir(TINY_C);
    assert_int_equal(model_folder_open(TINY_C, &w.in, &e), 0);
    assert_int_equal(model_open(&src, &m, &e), 0);
    assert_memory_equal(model_root(m), model_root(n), SHA256_SIZE);
    model_close(m);
    model_close(n);
    int calls = w.calls;
    assert_int_equal(calls, 5 + 6 * 3);
    for (w.fail_at = 0; w.fail_at < calls; w.fail_at++) {
        w.calls = 0;
        assert_int_equal(model_open(&src, &m, &e), ERR_NET);
        assert_null(m);
        assert_non_null(strstr(e.msg, ": the line is dead"));
    }
    model_folder_close(&w.in);
}

static void t_folder(void **state)
{
    struct model_source src;
    struct err e = {0};
    struct buf b;
    char p[4];
    uint64_t size;
    assert_int_equal(model_folder_open(TINY_C "/none", &src, &e), ERR_NOTFOUND);
    assert_int_equal(model_folder_open(TINY_C "/config.json", &src, &e), ERR_ARG);
    assert_int_equal(model_folder_open(TINY_C, &src, &e), 0);
    buf_init(&b, 1 << 20);
    assert_int_equal(src.read_file(src.ctx, "tiktoken.model", &b, &e), ERR_NOTFOUND);
    assert_int_equal(src.read_file(src.ctx, "../tiny_a/config.json", &b, &e), ERR_ARG);
    assert_int_equal(src.read_file(src.ctx, "..", &b, &e), ERR_ARG);
    assert_int_equal(src.read_file(src.ctx, "config.json", &b, &e), 0);
    assert_int_equal(src.file_size(src.ctx, "config.json", &size, &e), 0);
    assert_int_equal(size, b.n);
    assert_int_equal(src.read_range(src.ctx, "config.json", 3, p, 4, &e), 0);
    assert_memory_equal(p, b.p + 3, 4);
    assert_int_equal(src.read_range(src.ctx, "config.json", b.n - 3, p, 4, &e), ERR_FORMAT);
    buf_free(&b);
    model_folder_close(&src);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_places), cmocka_unit_test(t_root),   cmocka_unit_test(t_eos),
        cmocka_unit_test(t_saved),  cmocka_unit_test(t_forged), cmocka_unit_test(t_alog),
        cmocka_unit_test(t_source), cmocka_unit_test(t_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
