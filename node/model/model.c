/* SPDX-License-Identifier: MIT
 * model.c: the numbering of objects, and everything that asks a finished model. */
#include "node/model/config.h"
#include "node/model/inner.h"
#include "proto/base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t dtype_size[] = {[MODEL_BF16] = 2, [MODEL_F32] = 4, [MODEL_U8] = 1};

static uint64_t shape_bytes(const struct model_shape *s)
{
    /* Dimensions are at most 2^24, 2^16 and 2^4 by the configuration's ranges: no overflow. */
    return (uint64_t)s->d[0] * s->d[1] * s->d[2] * dtype_size[s->dtype];
}

static uint32_t add_spine(struct model *m, uint32_t layer, enum model_role role)
{
    struct model_shape s;
    if (!model_role_shape(&m->cfg, layer == MODEL_NONE ? 0 : layer, role, &s)) {
        return MODEL_NONE;
    }
    if (m->obj) {
        m->obj[m->n_spine] = (struct model_object){
            .size = shape_bytes(&s),
            .layer = layer,
            .index = (uint32_t)role,
            .shape = {s.d[0], s.d[1], s.d[2]},
            .kind = MODEL_SPINE,
            .dtype = (uint8_t)s.dtype,
        };
    }
    return m->n_spine++;
}

/* Number the spine; counts only as long as m->obj is NULL. */
static void number_spine(struct model *m)
{
    m->n_spine = 0;
    for (int r = MODEL_GLOBAL_FIRST; r < MODEL_ROLE_COUNT; r++) {
        m->global_id[r - MODEL_GLOBAL_FIRST] = add_spine(m, MODEL_NONE, (enum model_role)r);
    }
    for (uint32_t l = 0; l < m->cfg.n_layers; l++) {
        for (int r = 0; r < MODEL_LAYER_ROLE_COUNT; r++) {
            m->role_id[l * MODEL_LAYER_ROLE_COUNT + (uint32_t)r] =
                add_spine(m, l, (enum model_role)r);
        }
    }
}

int model_frame(struct model_config *c, struct model **out, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        model_config_free(c);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    m->cfg = *c;
    *c = (struct model_config){0};
    m->role_id = calloc((size_t)m->cfg.n_layers * MODEL_LAYER_ROLE_COUNT, sizeof *m->role_id);
    if (m->role_id) {
        number_spine(m);
        m->n_obj = m->n_spine + (m->cfg.n_layers - m->cfg.first_dense) * m->cfg.n_experts;
        m->obj = calloc(m->n_obj, sizeof *m->obj);
    }
    if (!m->obj) {
        model_close(m);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    number_spine(m);
    for (unsigned k = 0; k < 6; k++) {
        struct model_shape s;
        model_expert_shape(&m->cfg, k, &s);
        m->layout.size += shape_bytes(&s);
    }
    uint32_t id = m->n_spine;
    for (uint32_t l = m->cfg.first_dense; l < m->cfg.n_layers; l++) {
        for (uint32_t x = 0; x < m->cfg.n_experts; x++) {
            m->obj[id++] = (struct model_object){
                .size = m->layout.size,
                .layer = l,
                .index = x,
                .shape = {1, 1, 1},
                .kind = MODEL_EXPERT,
                .dtype = MODEL_U8,
            };
        }
    }
    *out = m;
    return 0;
}

bool model_set_alog(struct model *m, uint32_t id, uint64_t n)
{
    if (n < m->cfg.kda_heads || n > 1u << 16) {
        return false;
    }
    m->obj[id].shape[0] = (uint32_t)n;
    m->obj[id].size = n * 4;
    return true;
}

void model_sum(struct model *m)
{
    m->spine_bytes = m->expert_bytes = 0;
    for (uint32_t i = 0; i < m->n_obj; i++) {
        *(m->obj[i].kind == MODEL_SPINE ? &m->spine_bytes : &m->expert_bytes) += m->obj[i].size;
    }
}

void model_close(struct model *m)
{
    if (m) {
        model_config_free(&m->cfg);
        free(m->shards);
        free(m->shard_names);
        free(m->obj);
        free(m->role_id);
        free(m);
    }
}

const struct model_config *model_config(const struct model *m)
{
    return &m->cfg;
}

const struct model_expert_layout *model_expert_layout(const struct model *m)
{
    return &m->layout;
}

const uint8_t *model_root(const struct model *m)
{
    return m->root;
}

uint32_t model_shard_count(const struct model *m)
{
    return m->n_shards;
}

const struct model_shard *model_shard(const struct model *m, uint32_t i)
{
    return i < m->n_shards ? &m->shards[i] : NULL;
}

uint32_t model_object_count(const struct model *m)
{
    return m->n_obj;
}

const struct model_object *model_object(const struct model *m, uint32_t id)
{
    return id < m->n_obj ? &m->obj[id] : NULL;
}

uint32_t model_spine_id(const struct model *m, uint32_t layer, enum model_role role)
{
    if ((int)role < 0 || role >= MODEL_ROLE_COUNT) {
        return MODEL_NONE;
    }
    if (role >= MODEL_GLOBAL_FIRST) {
        return m->global_id[role - MODEL_GLOBAL_FIRST];
    }
    return layer < m->cfg.n_layers ? m->role_id[layer * MODEL_LAYER_ROLE_COUNT + role] : MODEL_NONE;
}

bool model_unread(const struct model_object *o)
{
    return o->kind == MODEL_SPINE && o->layer == 0 &&
           (o->index == MODEL_ATTN_RES_NORM || o->index == MODEL_ATTN_RES_PROJ);
}

uint32_t model_expert_id(const struct model *m, uint32_t layer, uint32_t x)
{
    if (layer < m->cfg.first_dense || layer >= m->cfg.n_layers || x >= m->cfg.n_experts) {
        return MODEL_NONE;
    }
    return m->n_spine + (layer - m->cfg.first_dense) * m->cfg.n_experts + x;
}

const char *model_object_name(const struct model *m, uint32_t id, char *out, size_t n)
{
    const struct model_object *o = model_object(m, id);
    if (!o) {
        snprintf(out, n, "object %u (none such)", id);
    } else if (o->kind == MODEL_EXPERT) {
        snprintf(out, n, "expert %u/%u", o->layer, o->index);
    } else if (o->layer == MODEL_NONE) {
        snprintf(out, n, "%s", model_role_name((enum model_role)o->index));
    } else {
        snprintf(out, n, "layer %u %s", o->layer, model_role_name((enum model_role)o->index));
    }
    return out;
}

uint64_t model_spine_bytes(const struct model *m)
{
    return m->spine_bytes;
}

uint64_t model_expert_bytes(const struct model *m)
{
    return m->expert_bytes;
}

int model_check_alog(const struct model *m, uint32_t layer, const float *v, size_t n, struct err *e)
{
    const struct model_object *o = model_object(m, model_spine_id(m, layer, MODEL_KDA_ALOG));
    if (!o) {
        return err_set(e, ERR_ARG, "layer %u has no self_attn.A_log", layer);
    }
    if (n != o->shape[0]) {
        return err_set(e, ERR_ARG, "layer %u self_attn.A_log has %u values, %zu were given", layer,
                       o->shape[0], n);
    }
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            return err_set(e, ERR_NUMERIC, "layer %u self_attn.A_log: value %zu is not finite",
                           layer, i);
        }
        if (i >= m->cfg.kda_heads && v[i] != 0.0f) {
            return err_set(e, ERR_FORMAT,
                           "layer %u self_attn.A_log: value %zu is %g; it is one value for each of "
                           "the %u heads, and the padding behind them must be zero",
                           layer, i, (double)v[i], m->cfg.kda_heads);
        }
    }
    return 0;
}
