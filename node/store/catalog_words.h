/* SPDX-License-Identifier: MIT
 * catalog_words.h: private to node/store: the members whose word something rests on, and their
 * signed statements (peer/statement.h), in the catalog. That is their place because voiding a
 * member takes its statements, what is known of it and the rows that rest on it in one
 * transaction. A lost catalog loses all of it: statements come again from peers, and the digests
 * that the journals bring back do not say any more on whom they rest. */
#ifndef SHOAL_STORE_CATALOG_WORDS_H
#define SHOAL_STORE_CATALOG_WORDS_H

#include "node/store/catalog.h"

#define CATALOG_MEMBERS_MAX 63 /* numbers 1..63, bits of digest.rests */

struct catalog_member {
    uint32_t no;
    uint8_t id[SHA256_SIZE];
    uint64_t void_at; /* wall clock; 0: its word counts */
    char why[200];    /* a sentence, when it does not */
};

int catalog_members(struct catalog *c, int (*each)(void *ctx, const struct catalog_member *m),
                    void *ctx, struct err *e);
/* Its number, given now if it had none. ERR_LIMIT: there are CATALOG_MEMBERS_MAX. */
int catalog_member(struct catalog *c, const uint8_t id[SHA256_SIZE], struct catalog_member *out,
                   struct err *e);
/* Sets void_at and why; with void_at its statements go, of every model. */
int catalog_member_void(struct catalog *c, const struct catalog_member *m, struct err *e);

/* In order of numbers. Damaged rows are left out; they come again. */
int catalog_statements(struct catalog *c, int64_t model,
                       int (*each)(void *ctx, uint32_t member, const void *blob, size_t n),
                       void *ctx, struct err *e);
int catalog_statement_add(struct catalog *c, int64_t model, uint32_t member, uint64_t seq,
                          const void *blob, size_t n, struct err *e);
int catalog_statement_drop(struct catalog *c, int64_t model, uint32_t member, uint64_t seq,
                           struct err *e);
/* All of a member; 0 all of everybody, of this model. */
int catalog_statements_drop(struct catalog *c, int64_t model, uint32_t member, struct err *e);

/* What rests on somebody has changed: rows are replaced whatever they say (d NULL: removed). */
int catalog_settle(struct catalog *c, int64_t model, const struct catalog_row *rows, size_t n,
                   struct err *e);

#endif
