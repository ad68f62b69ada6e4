/* SPDX-License-Identifier: MIT
 * header.c: the JSON header of one safetensors shard: dtype, shape and place of each tensor. */
#include "node/model/inner.h"
#include "proto/base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIMS 8

struct entry {
    char dtype[16];
    uint64_t dim[MAX_DIMS];
    unsigned dims;
    uint64_t begin, end; /* in the data section */
};

struct range {
    uint64_t begin, end;
    uint32_t id; /* tensor number, or the count of those plus the number in build.others */
};

struct ctx {
    struct build *b;
    struct jscan s;
    uint32_t shard;
    struct range *range;
    size_t n, cap;
};

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[] = {{"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
              {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
              {"F32", 32}, {"F64", 64}, {"I64", 64}, {"U64", 64}};
static const char *const model_dtypes[] = {
    [MODEL_BF16] = "BF16", [MODEL_F32] = "F32", [MODEL_U8] = "U8"};

/* The value of one key of a tensor's entry. */
static int entry_value(struct jscan *s, struct jstr key, struct entry *t, unsigned *have,
                       struct err *e)
{
    unsigned bit = jstr_eq(key, "dtype")          ? 1
                   : jstr_eq(key, "shape")        ? 2
                   : jstr_eq(key, "data_offsets") ? 4
                                                  : 0;
    if (!bit) {
        return jscan_skip(s);
    }
    if (*have & bit) {
        return err_set(e, ERR_FORMAT, "has %.*s twice", (int)key.n, key.p);
    }
    *have |= bit;
    if (bit == 1) {
        struct jstr v;
        int r = jscan_string(s, &v);
        if (!r) {
            model_printable(v.p, v.n, t->dtype, sizeof t->dtype);
        }
        return r;
    }
    uint64_t v[MAX_DIMS];
    unsigned n = 0;
    bool more;
    int r = jscan_array(s);
    while (!r && !(r = jscan_item(s, &more)) && more) {
        if (n == MAX_DIMS) {
            return err_set(e, ERR_FORMAT, "has more than %d numbers in %s", MAX_DIMS,
                           bit == 2 ? "shape" : "data_offsets");
        }
        r = jscan_u64(s, &v[n++]);
    }
    if (r) {
        return r;
    }
    if (bit == 2) {
        memcpy(t->dim, v, n * sizeof *v);
        t->dims = n;
    } else if (n != 2 || v[0] > v[1] || v[1] > MODEL_MAX_SHARD) {
        return err_set(e, ERR_FORMAT,
                       "has data_offsets that are not a begin and an end below 2^50");
    } else {
        t->begin = v[0];
        t->end = v[1];
    }
    return 0;
}

static int entry_read(struct jscan *s, struct entry *t, struct err *e)
{
    unsigned have = 0;
    bool more;
    struct jstr key;
    *t = (struct entry){0};
    int r = jscan_object(s);
    while (!r && !(r = jscan_key(s, &key, &more)) && more) {
        r = entry_value(s, key, t, &have, e);
    }
    if (!r && have != 7) {
        r = err_set(e, ERR_FORMAT, "has no %s",
                    !(have & 1)   ? "dtype"
                    : !(have & 2) ? "shape"
                                  : "data_offsets");
    }
    return r;
}

/* "[a,b,c]" for a sentence. */
static const char *dims_text(const uint64_t *d, unsigned n, char out[128])
{
    size_t at = 0;
    out[0] = 0;
    for (unsigned i = 0; i < n && at < 100; i++) {
        at +=
            (size_t)snprintf(out + at, 128 - at, "%s%llu", i ? "," : "", (unsigned long long)d[i]);
    }
    return out;
}

/* Shape and dtype are those of the released checkpoint at this configuration's sizes. */
static int check_known(struct build *b, uint32_t number, const struct entry *t, struct err *e)
{
    struct model *m = b->m;
    struct model_shape want;
    bool alog = false;
    if (number < m->n_spine) {
        const struct model_object *o = &m->obj[number];
        enum model_role role = (enum model_role)o->index;
        model_role_shape(&m->cfg, o->layer == MODEL_NONE ? 0 : o->layer, role, &want);
        alog = role == MODEL_KDA_ALOG;
    } else {
        model_expert_shape(&m->cfg, (number - m->n_spine) % 6, &want);
    }
    if (strcmp(t->dtype, model_dtypes[want.dtype]) != 0) {
        return err_set(e, ERR_FORMAT, "has dtype %s, it must be %s", t->dtype,
                       model_dtypes[want.dtype]);
    }
    if (alog && t->dims == 1) {
        if (!model_set_alog(m, number, t->dim[0])) {
            return err_set(e, ERR_FORMAT, "has %llu values, it must have one for each of %u heads",
                           (unsigned long long)t->dim[0], m->cfg.kda_heads);
        }
        return 0;
    }
    bool same = t->dims == want.n;
    uint64_t w[3];
    for (unsigned i = 0; i < want.n; i++) {
        w[i] = want.d[i];
        same = same && t->dim[i] == want.d[i];
    }
    if (!same) {
        char a[128], c[128];
        return err_set(e, ERR_FORMAT, "has shape [%s], by config.json it must be [%s]",
                       dims_text(t->dim, t->dims, a), dims_text(w, want.n, c));
    }
    return 0;
}

static int check_size(const struct entry *t, struct err *e)
{
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(t->dtype, dtypes[i].name) == 0) {
            n = dtypes[i].bits / 8;
        }
    }
    if (n == 0) {
        return err_set(e, ERR_FORMAT, "has the unknown dtype %s", t->dtype);
    }
    for (unsigned i = 0; i < t->dims; i++) {
        if (!num_mul_u64(n, t->dim[i], &n)) {
            return err_set(e, ERR_FORMAT, "has a shape of more than 2^64 bytes");
        }
    }
    if (n != t->end - t->begin) {
        return err_set(e, ERR_FORMAT,
                       "has data_offsets [%llu,%llu] for %llu bytes, dtype and shape say %llu",
                       (unsigned long long)t->begin, (unsigned long long)t->end,
                       (unsigned long long)(t->end - t->begin), (unsigned long long)n);
    }
    return 0;
}

/* The index names this very shard for the tensor, and it is the first of its name. */
static int claim(struct ctx *c, struct jstr name, uint32_t number, const struct entry *t,
                 struct err *e)
{
    struct build *b = c->b;
    uint32_t *shard, other = MODEL_NONE;
    bool found;
    if (number != MODEL_NONE) {
        shard = &b->shard[number];
        found = b->offset[number] != UINT64_MAX;
    } else {
        other = strtab_find(&b->others, name);
        if (other == MODEL_NONE) {
            return err_set(e, ERR_FORMAT,
                           model_skipped_name(name)
                               ? "is not in the index"
                               : "is unknown: a model of this config.json has none such");
        }
        shard = &b->other_shard[other];
        found = *shard == MODEL_NONE;
    }
    if (*shard != c->shard && *shard != MODEL_NONE) {
        return err_set(e, ERR_FORMAT, "belongs in %s by the index", b->m->shards[*shard].file);
    }
    if (found) {
        return err_set(e, ERR_FORMAT, "is there twice");
    }
    if (number != MODEL_NONE) {
        b->offset[number] = t->begin + b->m->shards[c->shard].header_size;
    } else {
        *shard = MODEL_NONE;
    }
    return 0;
}

/* One member of the header's object; its name has been read. */
static int tensor(struct ctx *c, struct jstr name, struct err *e)
{
    struct build *b = c->b;
    char copy[JSCAN_MAX_STRING], clean[200];
    if (name.p < c->s.begin ||
        name.p >= c->s.end) { /* it had escapes: the next key overwrites it */
        memcpy(copy, name.p, name.n);
        name.p = copy;
    }
    struct entry t;
    uint32_t number = model_tensor_number(b->m, name), id = number;
    int r = entry_read(&c->s, &t, e);
    if (c->s.e.code) {
        return c->s.e.code;
    }
    r = r ? r : claim(c, name, number, &t, e);
    if (!r && number != MODEL_NONE) {
        r = check_known(b, number, &t, e);
    }
    r = r ? r : check_size(&t, e);
    if (r) {
        model_printable(name.p, name.n, clean, sizeof clean);
        return err_prefix(e, "tensor %s", clean);
    }
    if (number == MODEL_NONE) {
        id = model_tensor_count(b->m) + strtab_find(&b->others, name);
    }
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 1024;
        struct range *p = realloc(c->range, cap * sizeof *p);
        if (!p) {
            return err_set(e, ERR_NOMEM, "out of memory");
        }
        c->range = p;
        c->cap = cap;
    }
    c->range[c->n++] = (struct range){t.begin, t.end, id};
    return 0;
}

static int scan(struct ctx *c, struct err *e)
{
    struct jscan *s = &c->s;
    bool more, have_meta = false;
    struct jstr key;
    int r = s->p < s->end && *s->p == '{'
                ? jscan_object(s)
                : err_set(e, ERR_FORMAT, "the header does not begin with {");
    while (!r && !(r = jscan_key(s, &key, &more)) && more) {
        if (!jstr_eq(key, "__metadata__")) {
            r = tensor(c, key, e);
        } else if (have_meta) {
            r = err_set(e, ERR_FORMAT, "__metadata__ is there twice");
        } else {
            have_meta = true;
            r = jscan_skip(s);
        }
    }
    return r ? r : jscan_end(s);
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

static const char *range_name(const struct build *b, const struct range *r, char out[200])
{
    uint32_t n = model_tensor_count(b->m);
    if (r->id < n) {
        char name[MODEL_NAME_MAX];
        snprintf(out, 200, "%s", model_tensor_name(b->m, r->id, name));
    } else {
        const char *s = strtab_get(&b->others, r->id - n);
        model_printable(s, strlen(s), out, 200);
    }
    return out;
}

/* Tensors do not overlap (gaps are allowed), and the last one ends where the file does. */
static int check_ranges(struct ctx *c, uint64_t file_size, struct err *e)
{
    struct model_shard *sh = &c->b->m->shards[c->shard];
    char x[200], y[200];
    if (c->n == 0) {
        return err_set(e, ERR_FORMAT, "the header lists no tensor");
    }
    qsort(c->range, c->n, sizeof *c->range, by_begin);
    const struct range *last = &c->range[0]; /* the one that ends last so far */
    for (size_t i = 1; i < c->n; i++) {
        const struct range *r = &c->range[i];
        if (r->begin < last->end && r->end > r->begin) {
            return err_set(e, ERR_FORMAT, "tensors %s and %s overlap in data_offsets",
                           range_name(c->b, last, x), range_name(c->b, r, y));
        }
        last = r->end >= last->end ? r : last;
    }
    sh->size = sh->header_size + last->end;
    if (file_size != UINT64_MAX && file_size < sh->size) {
        return err_set(
            e, ERR_FORMAT,
            "tensor %s ends at byte %llu, but the file has only %llu: it is cut short or "
            "data_offsets is wrong",
            range_name(c->b, last, x), (unsigned long long)sh->size, (unsigned long long)file_size);
    }
    if (file_size != UINT64_MAX && file_size > sh->size) {
        return err_set(e, ERR_FORMAT, "the file has %llu bytes, its header accounts for only %llu",
                       (unsigned long long)file_size, (unsigned long long)sh->size);
    }
    return 0;
}

int build_header(struct build *b, uint32_t shard, const char *text, size_t n, uint64_t file_size,
                 struct err *e)
{
    struct ctx *c = calloc(1, sizeof *c);
    if (!c) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    struct err why = {0};
    c->b = b;
    c->shard = shard;
    jscan_init(&c->s, text, n);
    b->m->shards[shard].header_size = 8 + n;
    int r = scan(c, &why);
    if (c->s.e.code) {
        r = err_set(&why, c->s.e.code, "header: %s", c->s.e.msg);
    }
    r = r ? r : check_ranges(c, file_size, &why);
    free(c->range);
    free(c);
    return r ? err_set(e, r, "%s: %s", b->m->shards[shard].file, why.msg) : 0;
}

/* ---- all headers together ---- */

static int check_found(const struct build *b, struct err *e)
{
    uint32_t n = model_tensor_count(b->m);
    char name[200];
    for (uint32_t t = 0; t < n; t++) {
        if (b->offset[t] == UINT64_MAX) {
            return err_set(e, ERR_FORMAT, "%s: tensor %s is missing; the index says it is here",
                           b->m->shards[b->shard[t]].file, model_tensor_name(b->m, t, name));
        }
    }
    for (uint32_t i = 0; i < b->others.n; i++) {
        if (b->other_shard[i] != MODEL_NONE) {
            struct range r = {0, 0, n + i};
            return err_set(e, ERR_FORMAT, "%s: tensor %s is missing; the index says it is here",
                           b->m->shards[b->other_shard[i]].file, range_name(b, &r, name));
        }
    }
    return 0;
}

/* Place expert object `id`: its six tensors are one run of bytes, in the model's one layout. */
static int place_expert(struct build *b, uint32_t id, struct err *e)
{
    struct model *m = b->m;
    struct model_object *o = &m->obj[id];
    uint32_t t = m->n_spine + 6 * (id - m->n_spine);
    uint64_t begin = UINT64_MAX, end = 0, at[6];
    char name[64], tn[MODEL_NAME_MAX];
    for (uint32_t k = 0; k < 6; k++) {
        struct model_shape s;
        model_expert_shape(&m->cfg, k, &s);
        at[k] = b->offset[t + k];
        begin = at[k] < begin ? at[k] : begin;
        uint64_t stop = at[k] + (uint64_t)s.d[0] * s.d[1];
        end = stop > end ? stop : end;
        if (b->shard[t + k] != b->shard[t]) {
            return err_set(
                e, ERR_FORMAT, "%s: tensor %s is not in the shard of the rest of %s (%s)",
                m->shards[b->shard[t + k]].file, model_tensor_name(m, t + k, tn),
                model_object_name(m, id, name, sizeof name), m->shards[b->shard[t]].file);
        }
    }
    const char *file = m->shards[b->shard[t]].file;
    if (end - begin != o->size) {
        return err_set(
            e, ERR_FORMAT,
            "%s: the six tensors of %s are spread over %llu bytes, they must be contiguous "
            "(%llu bytes)",
            file, model_object_name(m, id, name, sizeof name), (unsigned long long)(end - begin),
            (unsigned long long)o->size);
    }
    for (uint32_t k = 0; k < 6; k++) {
        uint64_t *place = k % 2 ? &m->layout.scale[k / 2] : &m->layout.packed[k / 2];
        if (id == m->n_spine) {
            *place = at[k] - begin;
        } else if (*place != at[k] - begin) {
            return err_set(
                e, ERR_FORMAT,
                "%s: tensor %s lies at byte %llu of its expert, in the first expert it is "
                "at %llu; all must be laid out alike",
                file, model_tensor_name(m, t + k, tn), (unsigned long long)(at[k] - begin),
                (unsigned long long)*place);
        }
    }
    o->shard = b->shard[t];
    o->offset = begin;
    return 0;
}

int build_finish(struct build *b, struct err *e)
{
    struct model *m = b->m;
    int r = check_found(b, e);
    for (uint32_t id = 0; !r && id < m->n_spine; id++) {
        m->obj[id].shard = b->shard[id];
        m->obj[id].offset = b->offset[id];
    }
    for (uint32_t id = m->n_spine; !r && id < m->n_obj; id++) {
        r = place_expert(b, id, e);
    }
    if (!r) {
        model_sum(m);
    }
    return r;
}
