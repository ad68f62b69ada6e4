/* SPDX-License-Identifier: MIT
 * model_mini.h: the smallest K3-shaped model for fuzz_index and fuzz_header: one MoE layer, KDA,
 * two experts, one shard "s.safetensors". */
#ifndef SHOAL_TESTS_MODEL_MINI_H
#define SHOAL_TESTS_MODEL_MINI_H

#include "node/model/config.h"
#include "node/model/inner.h"

#include <stdlib.h>

static inline struct model *mini_model(void)
{
    struct model_config c = {
        .n_layers = 1,
        .hidden = 3,
        .vocab = 5,
        .max_positions = 64,
        .rms_eps = 1e-5f,
        .lora_eps = 1e-6f,
        .heads = 1,
        .q_rank = 2,
        .kv_rank = 2,
        .nope = 1,
        .rope = 1,
        .vdim = 1,
        .kda_heads = 2,
        .kda_dim = 2,
        .conv = 4,
        .gate_lower_bound = -5,
        .dense_inter = 4,
        .first_dense = 0,
        .n_experts = 2,
        .topk = 1,
        .n_shared = 1,
        .moe_inter = 32,
        .latent = 32,
        .routed_scale = 1,
        .renormalize = true,
        .situ_beta = 4,
        .situ_linear_beta = 25,
        .attn_res_block = 1,
        .bos = MODEL_NONE,
        .eos = 1,
        .pad = MODEL_NONE,
        .attn = calloc(1, 1), /* MODEL_KDA */
    };
    struct model *m = NULL;
    if (!c.attn || model_config_check(&c, NULL) || model_frame(&c, &m, NULL)) {
        abort();
    }
    return m;
}

#endif
