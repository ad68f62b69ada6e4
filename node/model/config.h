/* SPDX-License-Identifier: MIT
 * config.h: config.json and generation_config.json into a checked struct model_config. Internal to
 * node/model (and its tests and fuzzers). */
#ifndef SHOAL_NODE_MODEL_CONFIG_H
#define SHOAL_NODE_MODEL_CONFIG_H

#include "node/model/model.h"

#define MODEL_MAX_LAYERS 1024u
#define MODEL_MAX_EXPERT_OBJECTS (1u << 20) /* MoE layers x experts */

/* Parse and check. On success the caller frees with model_config_free; on failure *c holds nothing.
 * Sentences begin with "config.json: ". c->eos may still be MODEL_NONE (see model_config_finish).
 */
int model_config_parse(const char *text, size_t n, struct model_config *c, struct err *e);
/* generation_config.json: its eos_token_id, when it has one, replaces c->eos. */
int model_config_generation(const char *text, size_t n, struct model_config *c, struct err *e);
/* After both: there is a stop token, and all token ids lie in the vocabulary. */
int model_config_finish(const struct model_config *c, struct err *e);
/* Ranges and consistency of a filled struct (attn included): what model_config_parse ends with,
 * also for a struct that came from a saved inventory. */
int model_config_check(const struct model_config *c, struct err *e);
void model_config_free(struct model_config *c);

#endif
