/* SPDX-License-Identifier: MIT
 * model.h: what a K3-shaped checkpoint is: its configuration, and one inventory of objects (what
 * can be fetched, cached and shared as a unit), each with its place in a shard, checked before use.
 *
 * A model is read through a model_source (a folder, an HTTP origin behind a cache); this module
 * never opens a file or a socket by itself. After model_open a model is immutable and may be read
 * from any thread. Names, shapes and offsets follow the released checkpoint; nothing is trusted. */
#ifndef SHOAL_NODE_MODEL_H
#define SHOAL_NODE_MODEL_H

#include "proto/base/buf.h"
#include "proto/base/err.h"
#include "proto/base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- where the files come from ---- */

struct model_source {
    void *ctx;
    /* Append the whole small file `name` to *out (its maximum applies). ERR_NOTFOUND when the model
     * has no such file. */
    int (*read_file)(void *ctx, const char *name, struct buf *out, struct err *e);
    /* Exactly n bytes at `off` of file `name`, or an error; never fewer. Used for shard headers. */
    int (*read_range)(void *ctx, const char *name, uint64_t off, void *p, size_t n, struct err *e);
    /* Size of the file in bytes; *size = UINT64_MAX when the source cannot tell. */
    int (*file_size)(void *ctx, const char *name, uint64_t *size, struct err *e);
};

/* ---- configuration (config.json) ---- */

enum model_attn { MODEL_KDA, MODEL_MLA };

struct model_config {
    uint32_t n_layers, hidden, vocab, max_positions;
    float rms_eps;  /* every norm but the two low-rank ones */
    float lora_eps; /* q_a_layernorm and kv_a_layernorm: 1e-6 */
    /* MLA */
    uint32_t heads, q_rank, kv_rank, nope, rope, vdim;
    /* KDA: heads, key = value width, taps of the short convolution, lower bound of the log decay */
    uint32_t kda_heads, kda_dim, conv;
    float gate_lower_bound;
    /* feed-forward: layers < first_dense are dense, the others MoE */
    uint32_t dense_inter, first_dense;
    uint32_t n_experts, topk, n_shared, moe_inter, latent;
    float routed_scale; /* routed_scaling_factor */
    bool renormalize;   /* moe_renormalize */
    float situ_beta, situ_linear_beta;
    uint32_t attn_res_block;
    uint32_t bos, eos, pad; /* of config.json; eos of generation_config.json wins when present */
    uint8_t *attn;          /* [n_layers], enum model_attn; owned by the model */
};

/* ---- the inventory ---- */

enum model_dtype { MODEL_BF16, MODEL_F32, MODEL_U8 };

enum model_kind { MODEL_EXPERT, MODEL_SPINE };

/* Every spine tensor that inference uses: X(role, suffix below the layer's prefix, or whole name
 * below "language_model." for the globals). */
#define MODEL_LAYER_ROLES(X)                                           \
    X(IN_NORM, "input_layernorm.weight")                               \
    X(POST_NORM, "post_attention_layernorm.weight")                    \
    X(ATTN_RES_NORM, "self_attention_res_norm.weight")                 \
    X(ATTN_RES_PROJ, "self_attention_res_proj.weight")                 \
    X(MLP_RES_NORM, "mlp_res_norm.weight")                             \
    X(MLP_RES_PROJ, "mlp_res_proj.weight")                             \
    X(KDA_Q, "self_attn.q_proj.weight")                                \
    X(KDA_K, "self_attn.k_proj.weight")                                \
    X(KDA_V, "self_attn.v_proj.weight")                                \
    X(KDA_QCONV, "self_attn.q_conv1d.weight")                          \
    X(KDA_KCONV, "self_attn.k_conv1d.weight")                          \
    X(KDA_VCONV, "self_attn.v_conv1d.weight")                          \
    X(KDA_FA, "self_attn.f_a_proj.weight")                             \
    X(KDA_FB, "self_attn.f_b_proj.weight")                             \
    X(KDA_B, "self_attn.b_proj.weight")                                \
    X(KDA_ALOG, "self_attn.A_log")                                     \
    X(KDA_DTBIAS, "self_attn.dt_bias")                                 \
    X(KDA_ONORM, "self_attn.o_norm.weight")                            \
    X(ATTN_G, "self_attn.g_proj.weight")                               \
    X(ATTN_O, "self_attn.o_proj.weight")                               \
    X(MLA_QA, "self_attn.q_a_proj.weight")                             \
    X(MLA_QA_NORM, "self_attn.q_a_layernorm.weight")                   \
    X(MLA_QB, "self_attn.q_b_proj.weight")                             \
    X(MLA_KVA, "self_attn.kv_a_proj_with_mqa.weight")                  \
    X(MLA_KVA_NORM, "self_attn.kv_a_layernorm.weight")                 \
    X(MLA_KVB, "self_attn.kv_b_proj.weight")                           \
    X(MLP_GATE, "mlp.gate_proj.weight")                                \
    X(MLP_UP, "mlp.up_proj.weight")                                    \
    X(MLP_DOWN, "mlp.down_proj.weight")                                \
    X(ROUTER, "block_sparse_moe.gate.weight")                          \
    X(ROUTER_BIAS, "block_sparse_moe.gate.e_score_correction_bias")    \
    X(LATENT_DOWN, "block_sparse_moe.routed_expert_down_proj.weight")  \
    X(LATENT_NORM, "block_sparse_moe.routed_expert_norm.weight")       \
    X(LATENT_UP, "block_sparse_moe.routed_expert_up_proj.weight")      \
    X(SHARED_GATE, "block_sparse_moe.shared_experts.gate_proj.weight") \
    X(SHARED_UP, "block_sparse_moe.shared_experts.up_proj.weight")     \
    X(SHARED_DOWN, "block_sparse_moe.shared_experts.down_proj.weight")
#define MODEL_GLOBAL_ROLES(X)                            \
    X(EMBED, "model.embed_tokens.weight")                \
    X(FINAL_NORM, "model.norm.weight")                   \
    X(OUT_RES_NORM, "model.output_attn_res_norm.weight") \
    X(OUT_RES_PROJ, "model.output_attn_res_proj.weight") \
    X(LM_HEAD, "lm_head.weight")

enum model_role {
#define MODEL_ROLE_ENUM(n, s) MODEL_##n,
    MODEL_LAYER_ROLES(MODEL_ROLE_ENUM) MODEL_LAYER_ROLE_COUNT,
    MODEL_GLOBAL_FIRST = MODEL_LAYER_ROLE_COUNT,
    MODEL_BEFORE_GLOBALS = MODEL_GLOBAL_FIRST - 1,
    MODEL_GLOBAL_ROLES(MODEL_ROLE_ENUM) MODEL_ROLE_COUNT
#undef MODEL_ROLE_ENUM
};

#define MODEL_NONE UINT32_MAX

/* One object: contiguous bytes of one shard. Experts hold six tensors (see model_expert_layout),
 * spine objects exactly one. `layer` is MODEL_NONE for the globals. */
struct model_object {
    uint64_t offset; /* in the shard file, absolute (behind the header) */
    uint64_t size;   /* bytes */
    uint32_t shard;  /* index for model_shard */
    uint32_t layer;
    uint32_t index;    /* expert id, or enum model_role */
    uint32_t shape[3]; /* spine: dimensions, unused ones 1 */
    uint8_t kind;      /* enum model_kind */
    uint8_t dtype;     /* enum model_dtype */
};

/* Where the six tensors lie inside every expert object; the same for all experts of a model.
 * w1 (gate) and w3 (up): [moe_inter, latent], w2 (down): [latent, moe_inter]; packed rows of cols/2
 * bytes (low nibble = even column), scale rows of cols/32 e8m0 bytes. */
struct model_expert_layout {
    uint64_t size;
    uint64_t packed[3]; /* w1, w2, w3 */
    uint64_t scale[3];
};

struct model_shard {
    const char *file;     /* name in the model folder */
    uint64_t header_size; /* 8 + JSON header: the data begins here */
    uint64_t size;        /* whole file, as the header implies */
};

struct model; /* opaque */

/* Read config.json, the index and every shard header, check all of it (see the folder's README for
 * the list of refusals), and build the inventory. On error the sentence names file, tensor and
 * reason. The caller owns *out and frees it with model_close. The source is used during the call
 * only. */
int model_open(const struct model_source *src, struct model **out, struct err *e);
void model_close(struct model *m);

/* The same inventory from / to one compact checked blob, for the catalog: opening K3 from it takes
 * milliseconds. A blob of another program version or a damaged one is refused (ERR_FORMAT). */
int model_save(const struct model *m, struct buf *out, struct err *e);
int model_load(const void *blob, size_t n, struct model **out, struct err *e);

const struct model_config *model_config(const struct model *m);
const struct model_expert_layout *model_expert_layout(const struct model *m);
/* SHA-256 over the sorted list of (file name, size, SHA-256 of metadata files or "unknown" for
 * shards): the identity of the weights. */
const uint8_t *model_root(const struct model *m); /* SHA256_SIZE bytes */
uint32_t model_shard_count(const struct model *m);
const struct model_shard *model_shard(const struct model *m, uint32_t i);
/* Objects are numbered 0 .. model_object_count-1; the numbering is a function of the config alone:
 * spine globals, then per layer its spine roles in enum order, then all experts by (layer, id). */
uint32_t model_object_count(const struct model *m);
const struct model_object *model_object(const struct model *m, uint32_t id);
/* Object id, or MODEL_NONE when this layer has no such tensor. layer is ignored for global roles.
 */
uint32_t model_spine_id(const struct model *m, uint32_t layer, enum model_role role);
/* True for what is on disk and nothing reads: the attention mix of the first layer, whose bank is
 * empty. A token needs all of the spine but these. */
bool model_unread(const struct model_object *o);
/* Object id of expert `e` of MoE layer `layer`, or MODEL_NONE. */
uint32_t model_expert_id(const struct model *m, uint32_t layer, uint32_t e);
/* "expert 12/345", "layer 3 self_attn.q_proj.weight", ...: for sentences. Writes at most n bytes.
 */
const char *model_object_name(const struct model *m, uint32_t id, char *out, size_t n);
/* Totals for plans and progress. */
uint64_t model_spine_bytes(const struct model *m);
uint64_t model_expert_bytes(const struct model *m);

/* A_log holds one value per KDA head and may be longer; what is behind the heads is padding and
 * must be zero. That needs data, so whoever admits the tensor calls this with all n values of layer
 * `layer` (n as in the object's shape). ERR_FORMAT or ERR_NUMERIC with layer and place in the
 * sentence. */
int model_check_alog(const struct model *m, uint32_t layer, const float *v, size_t n,
                     struct err *e);

/* A source that reads a local folder. `dir` is copied. Free with model_folder_close. */
int model_folder_open(const char *dir, struct model_source *out, struct err *e);
void model_folder_close(struct model_source *src);

#endif
