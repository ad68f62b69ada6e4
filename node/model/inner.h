/* SPDX-License-Identifier: MIT
 * inner.h: the model's own memory, and the steps of model_open. Internal to node/model (and its
 * fuzzers). */
#ifndef SHOAL_NODE_MODEL_INNER_H
#define SHOAL_NODE_MODEL_INNER_H

#include "node/model/model.h"
#include "node/model/names.h"

/* Stated maxima of what a model's files may hold. */
#define MODEL_MAX_CONFIG (1u << 20)     /* config.json, generation_config.json: bytes */
#define MODEL_MAX_INDEX (256u << 20)    /* model.safetensors.index.json: bytes */
#define MODEL_MAX_TOKENIZER (64u << 20) /* tokenizer files: bytes */
#define MODEL_MAX_HEADER 100000000u     /* one shard's JSON header: bytes, safetensors' own limit */
#define MODEL_MAX_SHARDS 16384u         /* files */
#define MODEL_MAX_SHARD_NAME 255u       /* bytes */
#define MODEL_MAX_OTHERS 65536u         /* tensors that text inference skips */
#define MODEL_MAX_SHARD (1ull << 50)    /* bytes of one shard file */

#define MODEL_INDEX_FILE "model.safetensors.index.json"

struct model {
    struct model_config cfg;
    struct model_expert_layout layout;
    uint8_t root[SHA256_SIZE];
    struct model_shard *shards; /* sorted by name */
    uint32_t n_shards;
    char *shard_names; /* the pool that shards[].file point into */
    struct model_object *obj;
    uint32_t n_obj, n_spine;
    uint32_t *role_id; /* [n_layers][MODEL_LAYER_ROLE_COUNT] object ids or MODEL_NONE */
    uint32_t global_id[MODEL_ROLE_COUNT - MODEL_GLOBAL_FIRST];
    uint64_t spine_bytes, expert_bytes;
};

/* A model of this configuration with all objects numbered, typed and sized, none placed yet. Takes
 * the configuration over (c becomes empty), also on failure. */
int model_frame(struct model_config *c, struct model **out, struct err *e);
/* Give A_log of `layer` its length; false when that is out of range. */
bool model_set_alog(struct model *m, uint32_t id, uint64_t n);
void model_sum(struct model *m); /* the totals, at the end */

/* What model_open gathers before the inventory is complete. */
struct build {
    struct model *m;
    uint32_t *shard;  /* [tensors] the shard that the index names, or MODEL_NONE */
    uint64_t *offset; /* [tensors] absolute place in the shard, or UINT64_MAX: not found yet */
    struct strtab files;
    struct strtab others;  /* names of the skipped tensors */
    uint32_t *other_shard; /* [MODEL_MAX_OTHERS] MODEL_NONE once it has been found */
};

/* Of the vision part, which text inference skips. */
bool model_skipped_name(struct jstr name);
/* A plain file name that cannot leave the model's folder. */
bool model_shard_name_ok(const char *s, size_t n);

int build_init(struct build *b, struct model *m, struct err *e);
void build_free(struct build *b); /* not the model */
/* The index file's text: names each tensor's shard; makes m->shards (names only). */
int build_index(struct build *b, const char *text, size_t n, struct err *e);
/* One shard's JSON header. `file_size`: UINT64_MAX when not known. */
int build_header(struct build *b, uint32_t shard, const char *text, size_t n, uint64_t file_size,
                 struct err *e);
/* After all headers: nothing is missing; experts are contiguous and alike. */
int build_finish(struct build *b, struct err *e);

#endif
