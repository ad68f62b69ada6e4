/* SPDX-License-Identifier: MIT
 * drop.c: experts taken from the disk by request. See node_int.h. */
#include "node/daemon/node_int.h"
#include "node/store/budget.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYERS_MAX 1024 /* rows of an answer; a list that is not by layers may need more */

struct dropped {
    uint64_t objects, bytes, last, last_bytes, in_use;
    json_t *layers; /* [[layer, experts], ...] of the last copies, by layer */
};

static void count_layer(struct dropped *d, uint32_t layer)
{
    size_t n = json_array_size(d->layers);
    json_t *top = n ? json_array_get(d->layers, n - 1) : NULL;
    if (top && json_integer_value(json_array_get(top, 0)) == (json_int_t)layer) {
        json_array_set_new(top, 1, json_integer(1 + json_integer_value(json_array_get(top, 1))));
    } else if (n < LAYERS_MAX) {
        json_array_append_new(d->layers, json_pack("[i,i]", (int)layer, 1));
    }
}

/* Counts it, and takes it away unless `dry`. */
static void drop_one(struct node *n, struct store *st, uint32_t id, bool dry, struct dropped *d)
{
    uint64_t size = model_object(store_model(st), id)->size;
    if (!store_last_use(st, id)) {
        return; /* it is not here */
    }
    uint32_t others = 0;
    if (dry) {
        bool known = !mesh_holders(n->mesh, store_key(st, id), &others);
        if (!known || !others) {
            d->last++;
            d->last_bytes += size;
            count_layer(d, model_object(store_model(st), id)->layer);
        }
    } else if (!store_drop(st, id)) {
        d->in_use++;
        return;
    }
    d->objects++;
    d->bytes += size;
}

int drop_request(struct node *n, const json_t *req, json_t **out, struct err *e)
{
    struct store *st = node_store_now(n);
    const json_t *list = json_object_get(req, "experts"), *root = json_object_get(req, "root");
    const json_t *older = json_object_get(req, "older_than");
    bool dry = json_is_true(json_object_get(req, "dry"));
    struct dropped d = {.layers = NULL};
    char hex[2 * SHA256_SIZE + 1];
    if (!st) {
        return err_set(e, ERR_OFFLINE, "this node works on no model");
    }
    const struct model *m = store_model(st);
    sha256_hex(model_root(m), hex);
    if (!json_is_string(root) || strcmp(json_string_value(root), hex) != 0) {
        return err_set(e, ERR_NOTFOUND, "this node works on another model");
    }
    d.layers = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        json_int_t layer = json_integer_value(json_array_get(one, 0));
        json_int_t expert = json_integer_value(json_array_get(one, 1));
        uint32_t id = layer < 0 || layer > UINT16_MAX || expert < 0 || expert > UINT16_MAX
                          ? MODEL_NONE
                          : model_expert_id(m, (uint32_t)layer, (uint32_t)expert);
        if (id == MODEL_NONE || id >= model_object_count(m)) {
            json_decref(d.layers);
            return err_set(e, ERR_ARG, "the model has no expert %lld.%lld", (long long)layer,
                           (long long)expert);
        }
        drop_one(n, st, id, dry, &d);
    }
    if (json_is_integer(older)) {
        struct timespec t = {0};
        clock_gettime(CLOCK_REALTIME, &t);
        json_int_t s = json_integer_value(older);
        uint64_t before = s < 0 || s > t.tv_sec
                              ? 0
                              : (uint64_t)(t.tv_sec - s) * 1000000u + (uint64_t)t.tv_nsec / 1000u;
        for (uint32_t id = 0; id < model_object_count(m); id++) {
            uint64_t used = store_last_use(st, id);
            if (model_object(m, id)->kind == MODEL_EXPERT && used && used < before) {
                drop_one(n, st, id, dry, &d);
            }
        }
    }
    *out = json_pack("{s:I,s:I,s:I,s:I,s:I,s:o}", "objects", (json_int_t)d.objects, "bytes",
                     (json_int_t)d.bytes, "last_copies", (json_int_t)d.last, "in_use",
                     (json_int_t)d.in_use, "last_bytes", (json_int_t)d.last_bytes, "last_layers",
                     d.layers);
    return 0;
}
