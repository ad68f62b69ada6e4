/* SPDX-License-Identifier: MIT
 * codec.h: frame bodies to and from the messages of proto/shoal.proto, with every limit of
 * proto/limits.h checked in both directions. What passed codec_decode needs no more range checks;
 * what it means (do we have this object, is this id open) is for the caller.
 *
 * Unknown fields are ignored; a frame of an unknown kind decodes to kind NOT_SET, to be ignored.
 * The memory of a decoded message is bounded by WIRE_DECODE_BASE + WIRE_DECODE_FACTOR x body, so
 * a body made of a hundred thousand empty parts is an error, not a load. Any thread. */
#ifndef SHOAL_PEER_CODEC_H
#define SHOAL_PEER_CODEC_H

#include "proto/base/buf.h"
#include "proto/base/err.h"
#include "proto/limits.h"

#include "shoal.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A decoded message; `f` and all it points to live until codec_free. */
struct codec_msg {
    const Shoal__Frame *f;
    struct codec_block *blocks; /* private */
    size_t used, max;           /* private */
};

/* Fill *m from a body that came with raw_n raw bytes. ERR_FORMAT with a sentence, ERR_LIMIT (too
 * much memory) or ERR_NOMEM; then there is nothing to free. */
int codec_decode(const uint8_t *body, size_t n, uint32_t raw_n, struct codec_msg *m, struct err *e);
void codec_free(struct codec_msg *m);

/* Append the body of `f` to *out. Refuses (ERR_ARG) what codec_decode of the peer would. */
int codec_encode(const Shoal__Frame *f, uint32_t raw_n, struct buf *out, struct err *e);

/* Every range and length of `f`, as both functions above use it. */
int codec_check(const Shoal__Frame *f, uint32_t raw_n, struct err *e);

/* The protocol version to speak with the sender of `h`: the highest that both know, in *version.
 * ERR_UNSUPPORTED with a sentence for people of both sides when there is none, or when `h`
 * requires a feature that is not among known[0..n), or when its chunks have another size. */
int codec_agree(const Shoal__Hello *h, const uint32_t *known, size_t n, uint32_t *version,
                struct err *e);

/* May it be shown on a terminal: UTF-8 of at most max bytes without control characters? */
bool codec_text_ok(const char *s, size_t max);
/* Text that may be sent and shown: `in` (may be NULL) without what is no UTF-8, control characters,
 * and the marks that change the direction of text or are not seen; cut to `max` bytes between
 * characters. `out` has room for max + 1 bytes. */
void codec_clean(const char *in, char *out, size_t max);

/* "Hello", "Get", ...; "a message of an unknown kind" for the others. */
const char *codec_kind_name(Shoal__Frame__KindCase kind);
/* A sentence for reasons; unknown numbers have one, too. */
const char *codec_goodbye_text(int reason);
const char *codec_refuse_text(int reason);
const char *codec_join_text(int result);

#endif
