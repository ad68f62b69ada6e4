/* SPDX-License-Identifier: MIT
 * at_rest.h: a cache folder looked at by itself, without the address of a model: which models lie
 * in it, what adopted folders give, is all of it right. Beside processes that use it: what is found
 * bad is set aside, and they notice. */
#ifndef SHOAL_NODE_STORE_AT_REST_H
#define SHOAL_NODE_STORE_AT_REST_H

#include "node/model/model.h"
#include "node/store/upkeep.h"

/* 0, or ERR_FULL (the volume) or ERR_REFUSED (permissions, a read-only volume) and half a sentence:
 * nothing can be written in this folder, or, where it is not there, beside it. It is tried. */
int rest_can_write(const char *dir, struct err *why);
/* May the cache be changed by who runs this? ERR_REFUSED: it may only be read, so `what` ("removing
 * experts") cannot be done. A full volume, and a folder that is not there, are no reason. */
int rest_writable(const char *cache_dir, const char *what, struct err *e);

/* ---- models ---- */

struct rest_model {
    char root[2 * SHA256_SIZE + 1];
    char folder[24]; /* its name below models/ */
    char *address;   /* one that it was used by; "" when none is on record */
    struct model *m; /* NULL: its metadata are not in the cache */
};
struct rest_models {
    struct rest_model *v;
    size_t n;
};
int rest_models(const char *cache_dir, struct rest_models *out, struct err *e);
void rest_models_free(struct rest_models *l);

/* Every address by which the model with this root (64 hex digits) was used: its folder in the cache
 * and itself, "" when it is not on record. Stops at the first error of `each`. */
int rest_origins(const char *cache_dir, const char *root,
                 int (*each)(void *ctx, const char *dir, const char *address, struct err *e),
                 void *ctx, struct err *e);

/* ---- adopted folders ---- */

/* What the folders of the list give of one model now; v[].path are malloc'ed, to be freed. */
int rest_adopted(const char *cache_dir, const struct rest_model *x, struct store_adopted *v,
                 size_t max, size_t *n, struct err *e);

/* ---- verifying ---- */

struct rest_verify {
    bool deep; /* read everything */
    /* A sentence for each fault; `id` is an object to be fetched again, or MODEL_NONE. */
    void (*found)(void *ctx, uint32_t id, const char *line);
    /* Bytes read of all that are to be; true: stop. May be NULL. */
    bool (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};
struct rest_verified {
    uint64_t objects, bytes;   /* own files */
    uint64_t lent, lent_bytes; /* adopted objects that were looked at once */
    uint64_t read_bytes;       /* with deep */
    uint64_t faults, damaged;  /* sentences; of them objects set aside, or refused */
    uint64_t journal_added;    /* records that the journal lacked */
    bool stopped;
};
/* ERR_CANCELLED: stopped. Other errors: it could not be looked at. Faults are no error. */
int rest_verify(const char *cache_dir, const struct rest_model *x, const struct rest_verify *o,
                struct rest_verified *out, struct err *e);

#endif
