/* SPDX-License-Identifier: MIT
 * names.h: tensor names to numbers and back, expected shapes, and a table of strings. Internal to
 * node/model.
 *
 * A tensor number is the object id of a spine tensor, or n_spine + 6 * expert ordinal + slot, where
 * the slots are w1, w2, w3, each packed then scale (ordinal: object id - n_spine). */
#ifndef SHOAL_NODE_MODEL_NAMES_H
#define SHOAL_NODE_MODEL_NAMES_H

#include "node/model/jscan.h"
#include "node/model/model.h"

#define MODEL_PREFIX "language_model."
#define MODEL_NAME_MAX 160 /* longest name that model_tensor_name writes, with its NUL */

/* Bytes for a sentence: at most n - 1 of them, what is not printable ASCII as '?', "..." when cut.
 */
void model_printable(const char *s, size_t len, char *out, size_t n);

/* The tensor's number, or MODEL_NONE when this model has no tensor of that name. */
uint32_t model_tensor_number(const struct model *m, struct jstr name);
const char *model_tensor_name(const struct model *m, uint32_t number, char out[MODEL_NAME_MAX]);
uint32_t model_tensor_count(const struct model *m);
/* The suffix (layer roles) or the name below MODEL_PREFIX (globals). */
const char *model_role_name(enum model_role role);

struct model_shape {
    enum model_dtype dtype;
    unsigned n;
    uint32_t d[3]; /* unused ones 1 */
};

/* The released shape of a spine tensor; false when this layer has no such tensor. A_log's length is
 * the smallest allowed (the head count). */
bool model_role_shape(const struct model_config *c, uint32_t layer, enum model_role role,
                      struct model_shape *out);
/* The stored shape of an expert's tensor, slot 0 to 5 (U8). */
void model_expert_shape(const struct model_config *c, unsigned slot, struct model_shape *out);

/* Strings numbered in the order in which they are added. */
struct strtab {
    char *pool;
    size_t pool_n, pool_cap;
    struct strtab_entry {
        size_t at; /* in pool; NUL-terminated there */
        size_t n;
        uint64_t hash;
    } * e;
    uint32_t n, cap;
    uint32_t *slot; /* open addressing: number + 1 */
    uint32_t n_slots;
};

void strtab_free(struct strtab *t);
/* The number of `s`, or MODEL_NONE. */
uint32_t strtab_find(const struct strtab *t, struct jstr s);
/* Adds a string that is not there yet; at most `max` strings. ERR_NOMEM or ERR_LIMIT. */
int strtab_add(struct strtab *t, struct jstr s, uint32_t max, uint32_t *number);
const char *strtab_get(const struct strtab *t, uint32_t number);

#endif
