/* SPDX-License-Identifier: MIT
 * tok.h: K3's tokenizer: bytes to token ids and back.
 *
 * A struct tok is immutable after tok_open: any number of threads may use one at the same time.
 * Texts are bytes with a length (they may hold NUL), read as UTF-8. Invalid UTF-8 is not an error:
 * each maximal invalid subpart is read as U+FFFD, as Python's errors="replace" and the WHATWG
 * decoder do, so that such a text encodes like the text a JSON parser would have handed over.
 *
 * The rules (pre-tokeniser, merges, length guards, special ids) are those of the released
 * tokenizer; README.md states them with their sources. */
#ifndef SHOAL_TEXT_TOK_H
#define SHOAL_TEXT_TOK_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOK_SPECIALS 256          /* special ids: this many, right after the last rank */
#define TOK_MAX_RANKS (1u << 20)  /* most ordinary tokens a rank file may have */
#define TOK_MAX_TOKEN 1024        /* longest ordinary token in bytes */
#define TOK_MAX_SPECIAL 256       /* longest special spelling in bytes */
#define TOK_MAX_FILE (64u << 20)  /* largest rank file in bytes */
#define TOK_MAX_CONFIG (1u << 20) /* largest tokenizer_config.json in bytes */
#define TOK_MAX_TEXT (1u << 30)   /* longest text of one tok_encode in bytes */

struct tok;

/* Build a tokenizer from the bytes of `tiktoken.model` (lines `base64 SP rank`, ranks 0.. in order)
 * and of `tokenizer_config.json` (its added_tokens_decoder names special ids; config_json may be
 * NULL: no names). Neither is needed after the call. Both are checked in full: ERR_FORMAT with line
 * or id and reason, ERR_LIMIT over one of the maxima above. The sentence does not name the file:
 * the caller adds it by err_prefix ("... tokenizer_config.json" is named where it is the cause). */
int tok_open(const void *ranks, size_t ranks_len, const char *config_json, size_t config_len,
             struct tok **out, struct err *e);
void tok_close(struct tok *t); /* NULL is fine */

uint32_t tok_vocab(const struct tok *t); /* number of ids: ranks + TOK_SPECIALS */
uint32_t tok_ranks(const struct tok *t); /* number of ordinary tokens = the first special id */

/* A growing list of ids. Zero bytes or tok_ids_init make an empty one. */
struct tok_ids {
    uint32_t *v;
    size_t n;
    size_t max; /* more than so many are refused with ERR_LIMIT; 0: no maximum */
    size_t cap; /* private */
};
void tok_ids_init(struct tok_ids *l);
void tok_ids_free(struct tok_ids *l);            /* empty again, usable again */
int tok_ids_add(struct tok_ids *l, uint32_t id); /* 0, ERR_NOMEM or ERR_LIMIT */

/* Append the ids of text[0..n) to *out. `trusted`: the spellings of all special tokens are read as
 * their ids (structure the program wrote itself); otherwise they are ordinary characters (anything
 * that came from a user, a tool or a model). Nothing is added in front or behind. One call is one
 * segment: no token crosses its ends. On an error (ERR_LIMIT, ERR_NOMEM) *out is as it was. */
int tok_encode(const struct tok *t, const char *text, size_t n, bool trusted, struct tok_ids *out,
               struct err *e);

/* The bytes of a token, or the spelling of a special one; lives as long as t. Not terminated by
 * NUL: *n is the length. NULL (and *n = 0) when id >= tok_vocab. */
const char *tok_bytes(const struct tok *t, uint32_t id, size_t *n);

/* Is it one of the TOK_SPECIALS ids? */
bool tok_is_special(const struct tok *t, uint32_t id);
/* Is it left out when decoding skips special tokens? (the config's "special": true; K3's open,
 * close and sep are special ids that stay. Unnamed ids are skipped.) */
bool tok_is_skipped(const struct tok *t, uint32_t id);
/* The id spelled exactly `name` (NUL-terminated), e.g. "<|open|>". */
bool tok_special_id(const struct tok *t, const char *name, uint32_t *id);

/* Streaming decode: token bytes in, whole characters out. At most 3 bytes are held back (the begin
 * of a character whose rest may still come); each maximal invalid subpart comes out as U+FFFD. What
 * comes out over a stream and its flush does not depend on how the input was cut. Zero bytes make
 * a fresh one; it owns nothing. One thread at a time. */
struct tok_stream {
    uint8_t held[4]; /* private */
    uint8_t n;       /* bytes held back, 0..3 */
};
/* Bytes that tok_stream_push of n bytes can write at most. */
#define TOK_STREAM_ROOM(n) (3 * ((size_t)(n) + 3))
/* Feed n bytes; writes at most TOK_STREAM_ROOM(n) bytes of valid UTF-8 to dst, returns how many. */
size_t tok_stream_push(struct tok_stream *s, const void *p, size_t n, char *dst);
/* End of stream: writes 0 or 3 bytes (U+FFFD for what was held back); s is fresh again. */
size_t tok_stream_flush(struct tok_stream *s, char *dst);

#endif
