/* SPDX-License-Identifier: MIT
 * blob.c: an inventory as one compact checked blob (model_save, model_load). What follows from the
 * configuration alone (numbering, shapes, sizes) is not in it; layout in README.md. */
#include "node/model/config.h"
#include "node/model/inner.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "SHOALINV"
#define VERSION 1u

/* The configuration's words, in the order in which the blob holds them. */
#define CONFIG_WORDS(U, F) \
    U(n_layers)            \
    U(hidden)              \
    U(vocab)               \
    U(max_positions)       \
    F(rms_eps)             \
    F(lora_eps)            \
    U(heads)               \
    U(q_rank)              \
    U(kv_rank)             \
    U(nope)                \
    U(rope)                \
    U(vdim)                \
    U(kda_heads)           \
    U(kda_dim)             \
    U(conv)                \
    F(gate_lower_bound)    \
    U(dense_inter)         \
    U(first_dense)         \
    U(n_experts)           \
    U(topk)                \
    U(n_shared)            \
    U(moe_inter)           \
    U(latent)              \
    F(routed_scale)        \
    F(situ_beta)           \
    F(situ_linear_beta)    \
    U(attn_res_block)      \
    U(bos)                 \
    U(eos)                 \
    U(pad)

struct out {
    struct buf *b;
    int r;
};

static void put(struct out *o, const void *p, size_t n)
{
    o->r = o->r ? o->r : buf_add(o->b, p, n);
}

static void put32(struct out *o, uint32_t v)
{
    uint8_t w[4];
    num_put_le32(w, v);
    put(o, w, sizeof w);
}

static void put64(struct out *o, uint64_t v)
{
    uint8_t w[8];
    num_put_le64(w, v);
    put(o, w, sizeof w);
}

static void putf(struct out *o, float f)
{
    uint32_t v;
    memcpy(&v, &f, sizeof v);
    put32(o, v);
}

int model_save(const struct model *m, struct buf *b, struct err *e)
{
    struct out o = {b, 0};
    size_t from = b->n;
    const struct model_config *c = &m->cfg;
    put(&o, MAGIC, 8);
    put32(&o, VERSION);
#define PUT_U(f) put32(&o, c->f);
#define PUT_F(f) putf(&o, c->f);
    CONFIG_WORDS(PUT_U, PUT_F)
#undef PUT_U
#undef PUT_F
    put32(&o, c->renormalize);
    put(&o, c->attn, c->n_layers);
    put(&o, m->root, SHA256_SIZE);
    for (int w = 0; w < 3; w++) {
        put64(&o, m->layout.packed[w]);
        put64(&o, m->layout.scale[w]);
    }
    put32(&o, m->n_shards);
    for (uint32_t i = 0; i < m->n_shards; i++) {
        size_t n = strlen(m->shards[i].file);
        put32(&o, (uint32_t)n);
        put(&o, m->shards[i].file, n);
        put64(&o, m->shards[i].header_size);
        put64(&o, m->shards[i].size);
    }
    for (uint32_t i = 0; i < m->n_obj; i++) {
        put32(&o, m->obj[i].shard);
        put64(&o, m->obj[i].offset);
        if (m->obj[i].kind == MODEL_SPINE) {
            put32(&o, m->obj[i].shape[0]); /* of A_log it does not follow from the configuration */
        }
    }
    if (!o.r) {
        uint8_t d[SHA256_SIZE];
        sha256(b->p + from, b->n - from, d);
        put(&o, d, sizeof d);
    }
    if (o.r) {
        b->n = from;
        return err_set(e, o.r, "cannot save the inventory: %s", err_text(o.r));
    }
    return 0;
}

struct in {
    const uint8_t *p;
    size_t n;
    bool bad; /* the blob ended early */
};

static const uint8_t *get(struct in *i, size_t n)
{
    if (i->bad || i->n < n) {
        i->bad = true;
        return NULL;
    }
    const uint8_t *p = i->p;
    i->p += n;
    i->n -= n;
    return p;
}

static uint32_t get32(struct in *i)
{
    const uint8_t *p = get(i, 4);
    return p ? num_get_le32(p) : 0;
}

static uint64_t get64(struct in *i)
{
    const uint8_t *p = get(i, 8);
    return p ? num_get_le64(p) : 0;
}

static float getf(struct in *i)
{
    uint32_t v = get32(i);
    float f;
    memcpy(&f, &v, sizeof f);
    return f;
}

static int broken(struct err *e, const char *what)
{
    return err_set(e, ERR_FORMAT,
                   "the saved inventory is damaged (%s); it is made anew from the "
                   "model's files",
                   what);
}

static int load_config(struct in *in, struct model_config *c, struct err *e)
{
    *c = (struct model_config){0};
#define GET_U(f) c->f = get32(in);
#define GET_F(f) c->f = getf(in);
    CONFIG_WORDS(GET_U, GET_F)
#undef GET_U
#undef GET_F
    uint32_t renorm = get32(in);
    c->renormalize = renorm != 0;
    if (in->bad || renorm > 1 || c->lora_eps != 1e-6f || c->n_layers > MODEL_MAX_LAYERS) {
        return broken(e, "configuration");
    }
    const uint8_t *attn = get(in, c->n_layers);
    if (!attn) {
        return broken(e, "configuration");
    }
    c->attn = malloc(c->n_layers ? c->n_layers : 1);
    if (!c->attn) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memcpy(c->attn, attn, c->n_layers);
    int r = model_config_check(c, e);
    r = r ? r : model_config_finish(c, e);
    if (r) {
        model_config_free(c);
    }
    return r;
}

static int load_shards(struct in *in, struct model *m, struct err *e)
{
    uint32_t n = get32(in);
    if (in->bad || n == 0 || n > MODEL_MAX_SHARDS || n > in->n / 20) {
        return broken(e, "shard count");
    }
    m->shards = calloc(n, sizeof *m->shards);
    m->shard_names = malloc(in->n + n); /* more than all names can take */
    if (!m->shards || !m->shard_names) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    char *at = m->shard_names;
    for (uint32_t i = 0; i < n; i++) {
        struct model_shard *s = &m->shards[i];
        uint32_t len = get32(in);
        const uint8_t *name = len <= MODEL_MAX_SHARD_NAME ? get(in, len) : NULL;
        s->header_size = get64(in);
        s->size = get64(in);
        if (!name || in->bad || !model_shard_name_ok((const char *)name, len) ||
            s->size < s->header_size || s->size > 2 * MODEL_MAX_SHARD) {
            return broken(e, "shards");
        }
        memcpy(at, name, len);
        at[len] = 0;
        s->file = at;
        at += len + 1;
        if (i && strcmp(m->shards[i - 1].file, s->file) >= 0) {
            return broken(e, "order of shards");
        }
    }
    m->n_shards = n;
    return 0;
}

static int load_object(struct in *in, struct model *m, uint32_t id, struct err *e)
{
    struct model_object *o = &m->obj[id];
    o->shard = get32(in);
    o->offset = get64(in);
    bool ok = true;
    if (o->kind == MODEL_SPINE) {
        uint32_t d = get32(in);
        ok = o->index == MODEL_KDA_ALOG && o->layer != MODEL_NONE ? model_set_alog(m, id, d)
                                                                  : d == o->shape[0];
    }
    if (!ok || in->bad || o->shard >= m->n_shards) {
        return broken(e, "objects");
    }
    const struct model_shard *s = &m->shards[o->shard];
    if (o->offset < s->header_size || o->offset > s->size || o->size > s->size - o->offset) {
        return broken(e, "place of an object");
    }
    return 0;
}

static int load_rest(struct in *in, struct model *m, struct err *e)
{
    const uint8_t *root = get(in, SHA256_SIZE);
    if (!root) {
        return broken(e, "root");
    }
    memcpy(m->root, root, SHA256_SIZE);
    for (unsigned k = 0; k < 6; k++) {
        struct model_shape s;
        model_expert_shape(&m->cfg, k, &s);
        uint64_t at = get64(in), n = (uint64_t)s.d[0] * s.d[1];
        if (at > m->layout.size || n > m->layout.size - at) {
            return broken(e, "expert layout");
        }
        *(k % 2 ? &m->layout.scale[k / 2] : &m->layout.packed[k / 2]) = at;
    }
    int r = load_shards(in, m, e);
    for (uint32_t id = 0; !r && id < m->n_obj; id++) {
        r = load_object(in, m, id, e);
    }
    if (!r && (in->bad || in->n)) {
        r = broken(e, "length");
    }
    return r;
}

int model_load(const void *blob, size_t n, struct model **out, struct err *e)
{
    *out = NULL;
    if (n < 12 + SHA256_SIZE || memcmp(blob, MAGIC, 8) != 0) {
        return broken(e, "no inventory");
    }
    struct in in = {(const uint8_t *)blob + 8, n - 8 - SHA256_SIZE, false};
    uint32_t version = get32(&in);
    if (version != VERSION) {
        return err_set(e, ERR_FORMAT,
                       "the saved inventory has version %u, this program reads %u; it "
                       "is made anew from the model's files",
                       version, VERSION);
    }
    uint8_t d[SHA256_SIZE];
    sha256(blob, n - SHA256_SIZE, d);
    if (memcmp(d, (const uint8_t *)blob + n - SHA256_SIZE, SHA256_SIZE) != 0) {
        return broken(e, "checksum");
    }
    struct model_config c;
    struct model *m = NULL;
    int r = load_config(&in, &c, e);
    r = r ? r : model_frame(&c, &m, e);
    r = r ? r : load_rest(&in, m, e);
    if (r) {
        model_close(m);
        return r;
    }
    model_sum(m);
    *out = m;
    return 0;
}
