/* SPDX-License-Identifier: MIT
 * open.c: model_open: the files in order, the checks of each, and the model root. */
#include "node/model/config.h"
#include "node/model/inner.h"
#include "proto/base/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The metadata files that are part of the model root, with their maxima; sorted by name. */
enum { F_CONFIG, F_GENERATION, F_INDEX, F_TIKTOKEN, F_TOKENIZER, F_COUNT };
static const struct {
    const char *name;
    size_t max;
    bool optional;
} files[F_COUNT] = {
    [F_CONFIG] = {"config.json", MODEL_MAX_CONFIG, false},
    [F_GENERATION] = {"generation_config.json", MODEL_MAX_CONFIG, true},
    [F_INDEX] = {MODEL_INDEX_FILE, MODEL_MAX_INDEX, false},
    [F_TIKTOKEN] = {"tiktoken.model", MODEL_MAX_TOKENIZER, true},
    [F_TOKENIZER] = {"tokenizer_config.json", MODEL_MAX_TOKENIZER, true},
};

struct seen { /* a metadata file, for the root */
    bool there;
    uint64_t size;
    uint8_t digest[SHA256_SIZE];
};

/* Read file f into *text (initialised here; freed by the caller in every case). */
static int read_meta(const struct model_source *src, int f, struct buf *text, struct seen *seen,
                     struct err *e)
{
    buf_init(text, files[f].max);
    struct err why = {0};
    int r = src->read_file(src->ctx, files[f].name, text, &why);
    if (r == ERR_NOTFOUND && files[f].optional) {
        return 0;
    }
    if (r) {
        return err_set(e, r, "%s: %s", files[f].name, why.msg[0] ? why.msg : err_text(r));
    }
    seen[f].there = true;
    seen[f].size = text->n;
    sha256(text->p ? text->p : "", text->n, seen[f].digest);
    return 0;
}

static const char *text_of(const struct buf *b)
{
    return b->p ? b->p : "";
}

static int read_config(const struct model_source *src, struct seen *seen, struct model_config *c,
                       struct err *e)
{
    struct buf t;
    int r = read_meta(src, F_CONFIG, &t, seen, e);
    r = r ? r : model_config_parse(text_of(&t), t.n, c, e);
    buf_free(&t);
    if (r) {
        return r;
    }
    r = read_meta(src, F_GENERATION, &t, seen, e);
    if (!r && seen[F_GENERATION].there) {
        r = model_config_generation(text_of(&t), t.n, c, e);
    }
    buf_free(&t);
    r = r ? r : model_config_finish(c, e);
    if (r) {
        model_config_free(c);
    }
    return r;
}

static int read_header(const struct model_source *src, struct build *b, uint32_t shard, char **text,
                       size_t *cap, struct err *e)
{
    const char *file = b->m->shards[shard].file;
    uint64_t size = UINT64_MAX;
    uint8_t head[8];
    struct err why = {0};
    int r = src->file_size(src->ctx, file, &size, &why);
    if (!r && size < 8) {
        r = err_set(&why, ERR_FORMAT, "the file has only %" PRIu64 " bytes, a shard begins with 8",
                    size);
    }
    r = r ? r : src->read_range(src->ctx, file, 0, head, sizeof head, &why);
    if (r) {
        return err_set(e, r, "%s: %s", file, why.msg[0] ? why.msg : err_text(r));
    }
    uint64_t n = num_get_le64(head);
    if (n < 2 || n > MODEL_MAX_HEADER) {
        return err_set(e, ERR_FORMAT,
                       "%s: the header length is %" PRIu64 " bytes; it must be from 2 to %u", file,
                       n, MODEL_MAX_HEADER);
    }
    if (size != UINT64_MAX && n > size - 8) {
        return err_set(e, ERR_FORMAT,
                       "%s: the header length is %" PRIu64 " bytes, but the file has only %" PRIu64
                       ": it is cut short or is no safetensors file",
                       file, n, size);
    }
    if (n > *cap) {
        char *p = realloc(*text, n);
        if (!p) {
            return err_set(e, ERR_NOMEM, "%s: out of memory for its header", file);
        }
        *text = p;
        *cap = n;
    }
    r = src->read_range(src->ctx, file, 8, *text, n, &why);
    if (r) {
        return err_set(e, r, "%s: %s", file, why.msg[0] ? why.msg : err_text(r));
    }
    return build_header(b, shard, *text, n, size, e);
}

static int read_inventory(const struct model_source *src, struct model *m, struct seen *seen,
                          struct err *e)
{
    struct build b;
    struct buf t;
    int r = build_init(&b, m, e);
    if (r) {
        return r;
    }
    r = read_meta(src, F_INDEX, &t, seen, e);
    r = r ? r : build_index(&b, text_of(&t), t.n, e);
    buf_free(&t);
    char *text = NULL;
    size_t cap = 0;
    for (uint32_t i = 0; !r && i < m->n_shards; i++) {
        r = read_header(src, &b, i, &text, &cap, e);
    }
    free(text);
    r = r ? r : build_finish(&b, e);
    build_free(&b);
    return r;
}

/* The two sorted lists, metadata and shards, merged by name into the hash. */
static void make_root(struct model *m, const struct seen *seen)
{
    struct sha256 h;
    char line[MODEL_MAX_SHARD_NAME + 128], hex[2 * SHA256_SIZE + 1];
    sha256_init(&h);
    uint32_t s = 0;
    int f = 0;
    while (s < m->n_shards || f < F_COUNT) {
        if (f < F_COUNT && !seen[f].there) {
            f++;
            continue;
        }
        bool meta =
            f < F_COUNT && (s == m->n_shards || strcmp(files[f].name, m->shards[s].file) < 0);
        if (meta) {
            sha256_hex(seen[f].digest, hex);
            snprintf(line, sizeof line, "%s\t%" PRIu64 "\t%s\n", files[f].name, seen[f].size, hex);
            f++;
        } else {
            snprintf(line, sizeof line, "%s\t%" PRIu64 "\tunknown\n", m->shards[s].file,
                     m->shards[s].size);
            s++;
        }
        sha256_add(&h, line, strlen(line));
    }
    sha256_done(&h, m->root);
}

int model_open(const struct model_source *src, struct model **out, struct err *e)
{
    struct seen seen[F_COUNT] = {{0}};
    struct model_config c;
    struct model *m = NULL;
    struct buf t;
    *out = NULL;
    int r = read_config(src, seen, &c, e);
    r = r ? r : model_frame(&c, &m, e);
    for (int f = F_TIKTOKEN; !r && f <= F_TOKENIZER; f++) {
        r = read_meta(src, f, &t, seen, e);
        buf_free(&t);
    }
    r = r ? r : read_inventory(src, m, seen, e);
    if (r) {
        model_close(m);
        return r;
    }
    make_root(m, seen);
    *out = m;
    return 0;
}
