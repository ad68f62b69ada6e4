/* SPDX-License-Identifier: MIT
 * fuzz_header.c: any bytes as the JSON header of the one shard of a small model; what is accepted
 * goes through a saved inventory and back. */
#include "fuzz/model_mini.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct model *m)
{
    for (uint32_t i = 0; i < m->n_obj; i++) {
        const struct model_object *o = &m->obj[i];
        const struct model_shard *s = &m->shards[o->shard];
        if (o->offset < s->header_size || o->size > s->size || o->offset > s->size - o->size) {
            abort();
        }
    }
    struct buf b;
    struct model *n;
    buf_init(&b, 1 << 20);
    if (model_save(m, &b, NULL) || model_load(b.p, b.n, &n, NULL)) {
        abort();
    }
    model_close(n);
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char file[] = "s.safetensors";
    struct model *m = mini_model();
    struct build b;
    struct buf index;
    struct err e = {0};
    buf_init(&index, 1 << 16);
    int r = build_init(&b, m, &e);
    uint32_t n = model_tensor_count(m);
    r = r ? r : buf_addf(&index, "{\"weight_map\":{\"vision_tower.x\":\"%s\"", file);
    for (uint32_t t = 0; t < n; t++) {
        char name[MODEL_NAME_MAX];
        r = r ? r : buf_addf(&index, ",\"%s\":\"%s\"", model_tensor_name(m, t, name), file);
    }
    r = r ? r : buf_adds(&index, "}}");
    r = r ? r : build_index(&b, index.p, index.n, &e);
    if (r) {
        abort();
    }
    if (build_header(&b, 0, (const char *)data, size, UINT64_MAX, &e) == 0 &&
        build_finish(&b, &e) == 0) {
        check(m);
    } else if (strncmp(e.msg, "s.safetensors: ", 15) != 0) {
        abort();
    }
    build_free(&b);
    buf_free(&index);
    model_close(m);
    return 0;
}
