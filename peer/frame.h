/* SPDX-License-Identifier: MIT
 * frame.h: how one message lies in the byte stream inside TLS, and the reader of that stream.
 *
 *   u32 LE  body length, 1 .. WIRE_BODY_MAX
 *   u32 LE  raw length, 0 .. WIRE_RAW_MAX
 *   body    protobuf `Frame` (proto/shoal.proto)
 *   raw     bytes of one chunk, only after a Data body (codec.h checks that)
 *
 * The reader never copies: it says where the next bytes belong, the caller puts them there. Memory
 * is taken only after both lengths were compared with the limits. No threads, no I/O. */
#ifndef SHOAL_PEER_FRAME_H
#define SHOAL_PEER_FRAME_H

#include "proto/base/err.h"
#include "proto/base/sha256.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One received frame; free it with frame_free, from any thread. */
struct frame {
    struct frame *next;     /* for lists of the owner */
    uint32_t body_n, raw_n; /* bytes */
    uint8_t *body;          /* body_n bytes; memory of this struct */
    uint8_t *raw;           /* raw_n bytes or NULL, malloc'ed: may be taken out (set to NULL) */
    uint8_t raw_sha256[SHA256_SIZE]; /* of raw, when raw_n > 0 */
};

struct frame_reader {
    /* Limits of this stream; may be changed between frames. */
    uint32_t body_max, raw_max;
    /* private */
    uint8_t head[WIRE_HEAD];
    uint32_t got; /* bytes of the present part */
    int part;
    struct frame *f;
    struct sha256 sha;
};

/* Write the 8 bytes before a body. Returns 0 or ERR_LIMIT when a length is not allowed. */
int frame_head(uint8_t out[WIRE_HEAD], size_t body_n, size_t raw_n);

void frame_reader_init(struct frame_reader *r, uint32_t body_max, uint32_t raw_max);
void frame_reader_free(struct frame_reader *r);
/* Where the next bytes go: *n >= 1 of them at the returned place. NULL and *e when the lengths
 * just read are not allowed (ERR_FORMAT) or there is no memory; the stream cannot go on then. */
uint8_t *frame_reader_want(struct frame_reader *r, size_t *n, struct err *e);
/* `n` bytes (at most what was wanted) were put there. Returns a frame when it is complete. */
struct frame *frame_reader_got(struct frame_reader *r, size_t n);
/* True when the stream may end here without loss. */
bool frame_reader_idle(const struct frame_reader *r);

/* True in the middle of raw bytes. */
bool frame_reader_in_raw(const struct frame_reader *r);

void frame_free(struct frame *f);

#endif
