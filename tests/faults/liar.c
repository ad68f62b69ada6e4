/* SPDX-License-Identifier: MIT
 * liar.c: see liar.h. */
#include "tests/faults/liar.h"

#include "node/store/share.h"

static uint32_t object(const struct bad *b, struct object_key k)
{
    return k.kind == STORE_KEY_EXPERT ? model_expert_id(b->m, k.layer, k.index) : k.index;
}

static bool src_size(void *ctx, struct object_key k, uint64_t *size)
{
    const struct bad *b = ctx;
    uint32_t id = object(b, k);
    bool known = id < model_object_count(b->m);
    *size = known ? model_object(b->m, id)->size : 0;
    return known;
}

static void src_read(void *ctx, struct object_key k, uint32_t chunk, uint8_t *p, size_t n)
{
    const struct bad *b = ctx;
    uint32_t id = object(b, k);
    memcpy(p, b->truth[b->lies ? b->lies(b->m, id) : id] + (size_t)chunk * STORAGE_CHUNK, n);
}

void bad_start(struct bad *b, const struct kit_node *keeper, const struct kit_node *with,
               const struct evil_opts *o, uint32_t (*lies)(const struct model *m, uint32_t id))
{
    struct evil_opts x = *o;
    struct identity me;
    struct err e = {0};
    memset(b, 0, sizeof *b);
    b->lies = lies;
    kit_member(&b->k, keeper);
    ok(identity_open(b->k.home, NULL, &me, &e));
    b->id = me.id;
    id_short(&me.id, b->who);
    identity_close(&me);
    b->m = with->m;
    uint32_t n = model_object_count(b->m);
    b->truth = calloc(n, sizeof *b->truth);
    b->keys = calloc(n, sizeof *b->keys);
    assert_true(b->truth && b->keys);
    for (uint32_t id = 0; id < n; id++) {
        b->truth[id] = util_truth(b->m, DEMO_MODEL, id);
        b->keys[id] = store_key(with->st, id);
    }
    b->src = (struct evil_source){b, model_root(b->m), b->keys, n, src_size, src_read};
    x.home = b->k.home;
    x.source = &b->src;
    b->e = evil_start(&x);
}

void bad_stop(struct bad *b)
{
    if (b->e) {
        evil_stop(b->e);
    }
    for (size_t i = 0; i < b->src.n; i++) {
        free(b->truth[i]);
    }
    free(b->truth);
    free(b->keys);
    kit_end(&b->k);
}

void meet(struct kit_node *k, int port)
{
    struct err e = {0};
    char s[64];
    snprintf(s, sizeof s, "127.0.0.1:%d", port);
    int r = mesh_add_static(node_mesh(k->n), s, &e);
    assert_true(r == 0 || r == ERR_BUSY);
}

/* ---- what a node says of a member ---- */

static double row_of(struct kit_node *k, const struct key_id *id, const char *list,
                     const char *field)
{
    struct err e = {0};
    json_t *root;
    char text[ID_TEXT];
    double v = -1;
    id_text(id, text);
    ok(node_status(k->n, &root, &e));
    json_t *rows = strcmp(list, "peers") ? json_object_get(json_object_get(root, "words"), list)
                                         : json_object_get(root, list);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *m = json_array_get(rows, i);
        const char *s = json_string_value(json_object_get(m, "id"));
        if (s && !strcmp(s, text)) {
            const json_t *j = json_object_get(m, field);
            j = j ? j : json_object_get(json_object_get(m, "fetch"), field);
            v = json_is_number(j) ? json_number_value(j) : json_is_true(j);
        }
    }
    json_decref(root);
    return v;
}

double word(struct kit_node *k, const struct key_id *id, const char *field)
{
    return row_of(k, id, "members", field);
}

double peer(struct kit_node *k, const struct key_id *id, const char *field)
{
    return row_of(k, id, "peers", field);
}
