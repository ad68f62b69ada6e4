/* SPDX-License-Identifier: MIT
 * names.c: see names.h. */
#include "node/model/names.h"

#include "node/model/inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[MODEL_ROLE_COUNT] = {
#define ROLE_NAME(n, s) [MODEL_##n] = s,
    MODEL_LAYER_ROLES(ROLE_NAME) MODEL_GLOBAL_ROLES(ROLE_NAME)
#undef ROLE_NAME
};

static const char layer_prefix[] = MODEL_PREFIX "model.layers.";
static const char expert_prefix[] = "block_sparse_moe.experts.";
static const char *const slot_names[6] = {"w1.weight_packed", "w1.weight_scale",
                                          "w2.weight_packed", "w2.weight_scale",
                                          "w3.weight_packed", "w3.weight_scale"};

void model_printable(const char *s, size_t len, char *out, size_t n)
{
    if (n == 0) {
        return;
    }
    size_t k = len < n ? len : n - 1;
    for (size_t i = 0; i < k; i++) {
        out[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
    }
    if (k < len && k >= 3) {
        memcpy(out + k - 3, "...", 3);
    }
    out[k] = 0;
}

const char *model_role_name(enum model_role role)
{
    return role < MODEL_ROLE_COUNT ? role_names[role] : "?";
}

static bool take(struct jstr *s, const char *z, size_t n)
{
    if (s->n < n || memcmp(s->p, z, n) != 0) {
        return false;
    }
    s->p += n;
    s->n -= n;
    return true;
}

/* A decimal number without leading zeros below `below`, and the dot after it. */
static bool take_number(struct jstr *s, uint32_t below, uint32_t *out)
{
    size_t i = 0;
    uint64_t v = 0;
    while (i < s->n && i < 10 && s->p[i] >= '0' && s->p[i] <= '9') {
        v = v * 10 + (uint64_t)(s->p[i++] - '0');
    }
    if (i == 0 || (i > 1 && s->p[0] == '0') || v >= below || i == s->n || s->p[i] != '.') {
        return false;
    }
    s->p += i + 1;
    s->n -= i + 1;
    *out = (uint32_t)v;
    return true;
}

uint32_t model_tensor_count(const struct model *m)
{
    return m->n_spine + 6 * (m->n_obj - m->n_spine);
}

uint32_t model_tensor_number(const struct model *m, struct jstr name)
{
    uint32_t layer, expert;
    if (!take(&name, layer_prefix, sizeof layer_prefix - 1)) {
        if (!take(&name, MODEL_PREFIX, sizeof MODEL_PREFIX - 1)) {
            return MODEL_NONE;
        }
        for (int r = MODEL_GLOBAL_FIRST; r < MODEL_ROLE_COUNT; r++) {
            if (jstr_eq(name, role_names[r])) {
                return model_spine_id(m, 0, (enum model_role)r);
            }
        }
        return MODEL_NONE;
    }
    if (!take_number(&name, m->cfg.n_layers, &layer)) {
        return MODEL_NONE;
    }
    if (take(&name, expert_prefix, sizeof expert_prefix - 1)) {
        if (layer < m->cfg.first_dense || !take_number(&name, m->cfg.n_experts, &expert)) {
            return MODEL_NONE;
        }
        for (uint32_t k = 0; k < 6; k++) {
            if (jstr_eq(name, slot_names[k])) {
                return m->n_spine + 6 * (model_expert_id(m, layer, expert) - m->n_spine) + k;
            }
        }
        return MODEL_NONE;
    }
    for (int r = 0; r < MODEL_LAYER_ROLE_COUNT; r++) {
        if (jstr_eq(name, role_names[r])) {
            return model_spine_id(m, layer, (enum model_role)r);
        }
    }
    return MODEL_NONE;
}

const char *model_tensor_name(const struct model *m, uint32_t number, char out[MODEL_NAME_MAX])
{
    if (number < m->n_spine) {
        const struct model_object *o = &m->obj[number];
        if (o->layer == MODEL_NONE) {
            snprintf(out, MODEL_NAME_MAX, "%s%s", MODEL_PREFIX, role_names[o->index]);
        } else {
            snprintf(out, MODEL_NAME_MAX, "%s%u.%s", layer_prefix, o->layer, role_names[o->index]);
        }
    } else {
        const struct model_object *o = &m->obj[m->n_spine + (number - m->n_spine) / 6];
        snprintf(out, MODEL_NAME_MAX, "%s%u.%s%u.%s", layer_prefix, o->layer, expert_prefix,
                 o->index, slot_names[(number - m->n_spine) % 6]);
    }
    return out;
}

static bool shape(struct model_shape *s, enum model_dtype dtype, unsigned n, uint32_t a, uint32_t b,
                  uint32_t c)
{
    *s = (struct model_shape){dtype, n, {a, b, c}};
    return true;
}

static bool vec(struct model_shape *s, uint32_t n)
{
    return shape(s, MODEL_BF16, 1, n, 1, 1);
}

static bool vec32(struct model_shape *s, uint32_t n)
{
    return shape(s, MODEL_F32, 1, n, 1, 1);
}

static bool mat(struct model_shape *s, uint32_t rows, uint32_t cols)
{
    return shape(s, MODEL_BF16, 2, rows, cols, 1);
}

static bool kda_shape(const struct model_config *c, enum model_role role, struct model_shape *s)
{
    uint32_t h = c->hidden, p = c->kda_heads * c->kda_dim;
    switch (role) {
    case MODEL_KDA_Q:
    case MODEL_KDA_K:
    case MODEL_KDA_V:
    case MODEL_ATTN_G:
        return mat(s, p, h);
    case MODEL_KDA_QCONV:
    case MODEL_KDA_KCONV:
    case MODEL_KDA_VCONV:
        return shape(s, MODEL_F32, 3, p, 1, c->conv);
    case MODEL_KDA_FA:
        return mat(s, c->kda_dim, h);
    case MODEL_KDA_FB:
        return mat(s, p, c->kda_dim);
    case MODEL_KDA_B:
        return mat(s, c->kda_heads, h);
    case MODEL_KDA_ALOG:
        return vec32(s, c->kda_heads);
    case MODEL_KDA_DTBIAS:
        return vec32(s, p);
    case MODEL_KDA_ONORM:
        return vec32(s, c->kda_dim);
    case MODEL_ATTN_O:
        return mat(s, h, p);
    default:
        return false;
    }
}

static bool mla_shape(const struct model_config *c, enum model_role role, struct model_shape *s)
{
    uint32_t h = c->hidden;
    switch (role) {
    case MODEL_ATTN_G:
        return mat(s, c->heads * c->vdim, h);
    case MODEL_ATTN_O:
        return mat(s, h, c->heads * c->vdim);
    case MODEL_MLA_QA:
        return mat(s, c->q_rank, h);
    case MODEL_MLA_QA_NORM:
        return vec(s, c->q_rank);
    case MODEL_MLA_QB:
        return mat(s, c->heads * (c->nope + c->rope), c->q_rank);
    case MODEL_MLA_KVA:
        return mat(s, c->kv_rank + c->rope, h);
    case MODEL_MLA_KVA_NORM:
        return vec(s, c->kv_rank);
    case MODEL_MLA_KVB:
        return mat(s, c->heads * (c->nope + c->vdim), c->kv_rank);
    default:
        return false;
    }
}

static bool dense_shape(const struct model_config *c, enum model_role role, struct model_shape *s)
{
    switch (role) {
    case MODEL_MLP_GATE:
    case MODEL_MLP_UP:
        return mat(s, c->dense_inter, c->hidden);
    case MODEL_MLP_DOWN:
        return mat(s, c->hidden, c->dense_inter);
    default:
        return false;
    }
}

static bool moe_shape(const struct model_config *c, enum model_role role, struct model_shape *s)
{
    uint32_t h = c->hidden, shared = c->n_shared * c->moe_inter;
    switch (role) {
    case MODEL_ROUTER:
        return mat(s, c->n_experts, h);
    case MODEL_ROUTER_BIAS:
        return vec32(s, c->n_experts);
    case MODEL_LATENT_DOWN:
        return mat(s, c->latent, h);
    case MODEL_LATENT_NORM:
        return vec(s, c->latent);
    case MODEL_LATENT_UP:
        return mat(s, h, c->latent);
    case MODEL_SHARED_GATE:
    case MODEL_SHARED_UP:
        return mat(s, shared, h);
    case MODEL_SHARED_DOWN:
        return mat(s, h, shared);
    default:
        return false;
    }
}

bool model_role_shape(const struct model_config *c, uint32_t layer, enum model_role role,
                      struct model_shape *out)
{
    switch (role) {
    case MODEL_EMBED:
    case MODEL_LM_HEAD:
        return mat(out, c->vocab, c->hidden);
    case MODEL_OUT_RES_PROJ:
    case MODEL_ATTN_RES_PROJ:
    case MODEL_MLP_RES_PROJ:
        return mat(out, 1, c->hidden);
    case MODEL_FINAL_NORM:
    case MODEL_OUT_RES_NORM:
    case MODEL_IN_NORM:
    case MODEL_POST_NORM:
    case MODEL_ATTN_RES_NORM:
    case MODEL_MLP_RES_NORM:
        return vec(out, c->hidden);
    default:
        break;
    }
    bool attn = c->attn[layer] == MODEL_KDA ? kda_shape(c, role, out) : mla_shape(c, role, out);
    return attn || (layer < c->first_dense ? dense_shape(c, role, out) : moe_shape(c, role, out));
}

void model_expert_shape(const struct model_config *c, unsigned slot, struct model_shape *out)
{
    bool down = slot / 2 == 1;
    uint32_t rows = down ? c->latent : c->moe_inter, cols = down ? c->moe_inter : c->latent;
    shape(out, MODEL_U8, 2, rows, slot % 2 ? cols / 32 : cols / 2, 1);
}

/* ---- strings ---- */

static uint64_t hash(struct jstr s)
{
    uint64_t h = 14695981039346656037ull; /* FNV-1a */
    for (size_t i = 0; i < s.n; i++) {
        h = (h ^ (unsigned char)s.p[i]) * 1099511628211ull;
    }
    return h ^ h >> 29;
}

void strtab_free(struct strtab *t)
{
    free(t->pool);
    free(t->e);
    free(t->slot);
    *t = (struct strtab){0};
}

const char *strtab_get(const struct strtab *t, uint32_t number)
{
    return t->pool + t->e[number].at;
}

uint32_t strtab_find(const struct strtab *t, struct jstr s)
{
    uint64_t h = hash(s);
    for (uint32_t i = t->n_slots ? (uint32_t)h & (t->n_slots - 1) : 0; t->n_slots && t->slot[i];
         i = (i + 1) & (t->n_slots - 1)) {
        const struct strtab_entry *e = &t->e[t->slot[i] - 1];
        if (e->hash == h && e->n == s.n && memcmp(t->pool + e->at, s.p, s.n) == 0) {
            return t->slot[i] - 1;
        }
    }
    return MODEL_NONE;
}

static void put_slot(struct strtab *t, uint32_t number)
{
    uint32_t i = (uint32_t)t->e[number].hash & (t->n_slots - 1);
    while (t->slot[i]) {
        i = (i + 1) & (t->n_slots - 1);
    }
    t->slot[i] = number + 1;
}

static int grow(struct strtab *t)
{
    uint32_t cap = t->cap ? 2 * t->cap : 64;
    struct strtab_entry *e = realloc(t->e, cap * sizeof *e);
    if (!e) {
        return ERR_NOMEM;
    }
    t->e = e;
    uint32_t *slot = calloc(2 * (size_t)cap, sizeof *slot);
    if (!slot) {
        return ERR_NOMEM;
    }
    free(t->slot);
    t->slot = slot;
    t->n_slots = 2 * cap;
    t->cap = cap;
    for (uint32_t i = 0; i < t->n; i++) {
        put_slot(t, i);
    }
    return 0;
}

int strtab_add(struct strtab *t, struct jstr s, uint32_t max, uint32_t *number)
{
    if (t->n >= max) {
        return ERR_LIMIT;
    }
    if (t->n == t->cap && grow(t)) {
        return ERR_NOMEM;
    }
    if (t->pool_cap - t->pool_n < s.n + 1) {
        size_t cap = 2 * t->pool_cap + s.n + 256;
        char *p = realloc(t->pool, cap);
        if (!p) {
            return ERR_NOMEM;
        }
        t->pool = p;
        t->pool_cap = cap;
    }
    memcpy(t->pool + t->pool_n, s.p, s.n);
    t->pool[t->pool_n + s.n] = 0;
    t->e[t->n] = (struct strtab_entry){t->pool_n, s.n, hash(s)};
    t->pool_n += s.n + 1;
    put_slot(t, t->n);
    *number = t->n++;
    return 0;
}
