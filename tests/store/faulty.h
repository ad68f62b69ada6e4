/* SPDX-License-Identifier: MIT
 * faulty.h: an HTTP server for tests that serves a folder with ranges, counts, and misbehaves on
 * command. Loopback, own port, own threads. */
#ifndef TEST_STORE_FAULTY_H
#define TEST_STORE_FAULTY_H

#include <stddef.h>
#include <stdint.h>

enum fault {
    F_NONE,
    F_DEAD,       /* closes without an answer */
    F_CUT,        /* the right head, `arg` bytes of the body, then the connection ends */
    F_STATUS,     /* status `arg` and an error page */
    F_BUSY,       /* 503 with Retry-After: arg */
    F_WHOLE,      /* 200 with the whole file */
    F_RANGE_OFF,  /* Content-Range one byte off, body likewise */
    F_RANGE_NONE, /* 206 without Content-Range */
    F_RANGE_TEXT, /* a Content-Range that is no range */
    F_TOTAL,      /* a total that is too large by one */
    F_LONGER,     /* more body than announced */
    F_SHORTER,    /* Content-Length and body shorter than the range */
    F_STALL,      /* head, arg bytes, then silence */
    F_REDIRECT,   /* 302 to redirect_to + path */
    F_ENCODED,    /* Content-Encoding: gzip */
    F_ETAG,       /* another entity tag */
    F_LIE,        /* one bit of the body is flipped */
    F_GARBAGE,    /* no HTTP at all */
    F_KINDS
};

struct faulty; /* opaque */

struct faulty_numbers {
    uint64_t requests, body_bytes, faults, with_token, without_token;
    uint64_t shard_bytes; /* of body_bytes: from files named *.safetensors, behind their headers */
};

struct faulty *faulty_start(const char *dir);
int faulty_port(const struct faulty *f);
/* The next `times` requests whose path contains `match` (NULL: any) and which ask at or behind byte
 * min_off misbehave so. times < 0: for ever. Replaces what was set before. */
void faulty_set(struct faulty *f, enum fault kind, long arg, const char *match, uint64_t min_off,
                int times);
void faulty_redirect_to(struct faulty *f, const char *base);
void faulty_slow(struct faulty *f, unsigned us_per_64k);
/* What is behind the file's bytes in truth, for folders of sparse files: called by the server's
 * threads with each piece of a body before it is sent. To be set before the first request. */
void faulty_fill(struct faulty *f,
                 void (*fill)(void *ctx, const char *path, uint64_t off, uint8_t *p, size_t n),
                 void *ctx);
void faulty_get(struct faulty *f, struct faulty_numbers *n);
void faulty_zero(struct faulty *f);
void faulty_stop(struct faulty *f);

#endif
