/* SPDX-License-Identifier: MIT
 * index.c: model.safetensors.index.json: which shard holds which tensor. */
#include "node/model/inner.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const other_prefixes[] = {"vision_tower.", "mm_projector."};

int build_init(struct build *b, struct model *m, struct err *e)
{
    size_t n = model_tensor_count(m);
    *b = (struct build){.m = m};
    b->shard = malloc(n * sizeof *b->shard);
    b->offset = malloc(n * sizeof *b->offset);
    b->other_shard = malloc(MODEL_MAX_OTHERS * sizeof *b->other_shard);
    if (!b->shard || !b->offset || !b->other_shard) {
        build_free(b);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memset(b->shard, 0xff, n * sizeof *b->shard);
    memset(b->offset, 0xff, n * sizeof *b->offset);
    return 0;
}

void build_free(struct build *b)
{
    free(b->shard);
    free(b->offset);
    free(b->other_shard);
    strtab_free(&b->files);
    strtab_free(&b->others);
    *b = (struct build){0};
}

bool model_skipped_name(struct jstr name)
{
    for (size_t i = 0; i < sizeof other_prefixes / sizeof *other_prefixes; i++) {
        size_t n = strlen(other_prefixes[i]);
        if (name.n >= n && memcmp(name.p, other_prefixes[i], n) == 0) {
            return true;
        }
    }
    return false;
}

bool model_shard_name_ok(const char *s, size_t n)
{
    static const char ext[] = ".safetensors";
    size_t k = sizeof ext - 1;
    if (n <= k || n > MODEL_MAX_SHARD_NAME || memcmp(s + n - k, ext, k) != 0 || s[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        bool word = (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') ||
                    (s[i] >= 'A' && s[i] <= 'Z') || s[i] == '-' || s[i] == '_' || s[i] == '.';
        if (!word || (s[i] == '.' && s[i + 1] == '.')) { /* i + 1 < n: the last is no dot */
            return false;
        }
    }
    return true;
}

static int index_entry(struct build *b, struct jstr name, struct jstr file, uint32_t *last,
                       struct err *e)
{
    char clean[200];
    uint32_t shard = *last;
    if (shard == MODEL_NONE || !jstr_eq(file, strtab_get(&b->files, shard))) {
        shard = strtab_find(&b->files, file);
    }
    if (shard == MODEL_NONE) {
        if (!model_shard_name_ok(file.p, file.n)) {
            model_printable(file.p, file.n, clean, sizeof clean);
            return err_set(e, ERR_FORMAT,
                           "\"%s\" is no usable shard name: letters, digits, '-', '_' and single "
                           "dots, ending in .safetensors",
                           clean);
        }
        int r = strtab_add(&b->files, file, MODEL_MAX_SHARDS, &shard);
        if (r) {
            return err_set(e, r, "%s: more than %u shards", err_text(r), MODEL_MAX_SHARDS);
        }
    }
    *last = shard;
    model_printable(name.p, name.n, clean, sizeof clean);
    uint32_t t = model_tensor_number(b->m, name);
    if (t != MODEL_NONE) {
        if (b->shard[t] != MODEL_NONE) {
            return err_set(e, ERR_FORMAT, "tensor %s is listed twice", clean);
        }
        b->shard[t] = shard;
        return 0;
    }
    if (!model_skipped_name(name)) {
        return err_set(e, ERR_FORMAT,
                       "unknown tensor %s: a model of this config.json has none such", clean);
    }
    if (strtab_find(&b->others, name) != MODEL_NONE) {
        return err_set(e, ERR_FORMAT, "tensor %s is listed twice", clean);
    }
    int r = strtab_add(&b->others, name, MODEL_MAX_OTHERS, &t);
    if (r) {
        return err_set(e, r, "%s: more than %u tensors that are not of the text model", err_text(r),
                       MODEL_MAX_OTHERS);
    }
    b->other_shard[t] = shard;
    return 0;
}

static int weight_map(struct build *b, struct jscan *s, struct err *e)
{
    uint32_t last = MODEL_NONE;
    bool more;
    if (jscan_object(s)) {
        return ERR_FORMAT;
    }
    for (;;) {
        struct jstr name, file;
        if (jscan_key(s, &name, &more)) {
            return ERR_FORMAT;
        }
        if (!more) {
            return 0;
        }
        if (jscan_string(s, &file)) {
            return ERR_FORMAT;
        }
        int r = index_entry(b, name, file, &last, e);
        if (r) {
            return r;
        }
    }
}

static int scan(struct build *b, struct jscan *s, struct err *e)
{
    bool more, have_map = false, have_meta = false;
    struct jstr key;
    int r = jscan_object(s);
    while (!r && !(r = jscan_key(s, &key, &more)) && more) {
        if (jstr_eq(key, "weight_map")) {
            if (have_map) {
                return err_set(e, ERR_FORMAT, "weight_map is there twice");
            }
            have_map = true;
            r = weight_map(b, s, e);
        } else {
            bool meta = jstr_eq(key, "metadata");
            if (meta && have_meta) {
                return err_set(e, ERR_FORMAT, "metadata is there twice");
            }
            have_meta |= meta;
            r = jscan_skip(s);
        }
    }
    r = r ? r : jscan_end(s);
    if (!r && !have_map) {
        r = err_set(e, ERR_FORMAT, "it has no weight_map");
    }
    return r;
}

struct named {
    const char *name;
    uint32_t old;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int by_folded(const void *a, const void *b)
{
    return strcasecmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Two names that differ only in case are one file where volumes do not tell them apart, as the
 * Mac's do by default: in a cache, and in a folder that is copied there. Such a model is refused on
 * every system, so that none works on one machine of a shoal only. (Names are of ASCII alone.) */
static int same_but_for_case(struct named *v, uint32_t n, struct err *e)
{
    qsort(v, n, sizeof *v, by_folded);
    for (uint32_t i = 1; i < n; i++) {
        if (!strcasecmp(v[i - 1].name, v[i].name)) {
            return err_set(e, ERR_FORMAT,
                           "the shards %s and %s differ only in upper and lower case, which many "
                           "volumes take for one file: rename one",
                           v[i - 1].name, v[i].name);
        }
    }
    return 0;
}

/* Number the shards by name, whatever the order of the index, and move the names into the model. */
static int sort_shards(struct build *b, struct err *e)
{
    struct model *m = b->m;
    uint32_t n = b->files.n;
    struct named *order = malloc(n * sizeof *order);
    uint32_t *rank = malloc(n * sizeof *rank);
    m->shards = calloc(n, sizeof *m->shards);
    if (!order || !rank || !m->shards) {
        free(order);
        free(rank);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < n; i++) {
        order[i] = (struct named){strtab_get(&b->files, i), i};
    }
    int r = same_but_for_case(order, n, e);
    if (r) {
        free(order);
        free(rank);
        return r;
    }
    qsort(order, n, sizeof *order, by_name);
    for (uint32_t i = 0; i < n; i++) {
        rank[order[i].old] = i;
        m->shards[i].file = order[i].name;
    }
    m->n_shards = n;
    m->shard_names = b->files.pool;
    b->files.pool = NULL;
    uint32_t tensors = model_tensor_count(m);
    for (uint32_t t = 0; t < tensors; t++) {
        b->shard[t] = rank[b->shard[t]];
    }
    for (uint32_t i = 0; i < b->others.n; i++) {
        b->other_shard[i] = rank[b->other_shard[i]];
    }
    free(order);
    free(rank);
    return 0;
}

int build_index(struct build *b, const char *text, size_t n, struct err *e)
{
    struct jscan *s = malloc(sizeof *s);
    if (!s) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    struct err why = {0};
    jscan_init(s, text, n);
    int r = scan(b, s, &why);
    if (s->e.code) {
        why = s->e;
        r = s->e.code;
    }
    free(s);
    uint32_t tensors = model_tensor_count(b->m);
    for (uint32_t t = 0; !r && t < tensors; t++) {
        if (b->shard[t] == MODEL_NONE) {
            char name[MODEL_NAME_MAX];
            r = err_set(&why, ERR_FORMAT, "tensor %s is missing", model_tensor_name(b->m, t, name));
        }
    }
    r = r ? r : sort_shards(b, &why);
    return r ? err_set(e, r, "%s: %s", MODEL_INDEX_FILE, why.msg) : 0;
}
