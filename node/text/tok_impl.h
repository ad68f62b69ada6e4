/* SPDX-License-Identifier: MIT
 * tok_impl.h: the inside of struct tok, shared by the tok_*.c files and nobody else. */
#ifndef SHOAL_TEXT_TOK_IMPL_H
#define SHOAL_TEXT_TOK_IMPL_H

#include "node/text/tok.h"

#define TOK_NONE UINT32_MAX

struct tok {
    uint32_t ranks; /* ordinary tokens; special ids follow */
    uint32_t vocab;
    size_t longest; /* bytes of the longest ordinary token */

    /* Token id's bytes are bytes[off[id]..off[id + 1]); off has vocab + 1 entries. */
    char *bytes;
    uint32_t *off;

    /* Open addressing, linear probing, mask + 1 slots, at most half full. A slot holds the upper
     * half of the token's hash over its id; TOK_EMPTY marks a free one. */
    uint64_t *slots;
    size_t mask;

    bool skipped[TOK_SPECIALS];    /* by id - ranks */
    uint16_t sorted[TOK_SPECIALS]; /* id - ranks in the byte order of the spellings */
    uint32_t byte_id[256];         /* of each single byte */
    bool first[256];               /* does a special spelling begin with this byte? */
};

#define TOK_EMPTY UINT64_MAX

/* Parse the two files into a zeroed t; on an error t holds what tok_close frees. */
int tok_load_ranks(struct tok *t, const char *p, size_t n, struct err *e);
int tok_load_specials(struct tok *t, const char *json, size_t n, struct err *e);

/* The rank of these bytes, or TOK_NONE. */
uint32_t tok_rank_of(const struct tok *t, const uint8_t *p, size_t n);
/* Make the table of t->slots from off and bytes. ERR_FORMAT when two ranks have equal bytes. */
int tok_index(struct tok *t, struct err *e);

/* The longest special spelling that p[0..n) begins with: its id and length, or false. */
bool tok_special_at(const struct tok *t, const uint8_t *p, size_t n, uint32_t *id, size_t *len);

/* Working memory of merging, reused from piece to piece. Zeroed at first. The arrays go by the byte
 * position in the piece at which a part begins. */
struct tok_merge {
    uint32_t *next; /* where the next part begins */
    uint32_t *prev;
    uint32_t *id;            /* of the part */
    uint32_t *rank;          /* of the part joined with the next; TOK_NONE: no such token */
    uint64_t *heap;          /* rank << 32 | position, smallest first */
    size_t cap;              /* bytes of a piece for which there is room */
    struct tok_join *joined; /* the last answers to "what do these two ids join to?" */
};
void tok_merge_free(struct tok_merge *m);
/* Append the ids of one piece, n > 0 bytes. 0 or ERR_NOMEM. */
int tok_merge_piece(const struct tok *t, struct tok_merge *m, const uint8_t *p, size_t n,
                    struct tok_ids *out);

#endif
