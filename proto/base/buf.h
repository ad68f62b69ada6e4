/* SPDX-License-Identifier: MIT
 * buf.h: a growing byte buffer with a compulsory maximum, fixed when it is made.
 * Whatever a file or a peer fills goes through one, so it can never take more than was stated. */
#ifndef SHOAL_BASE_BUF_H
#define SHOAL_BASE_BUF_H

#include <stddef.h>

struct buf {
    char *p;    /* the bytes; always followed by a NUL that `n` does not count (p may be NULL) */
    size_t n;   /* bytes in use */
    size_t cap; /* private */
    size_t max; /* private: the stated maximum */
};

void buf_init(struct buf *b, size_t max);
void buf_free(struct buf *b);
/* All return 0, ERR_LIMIT (over max) or ERR_NOMEM, and leave the content as it was on failure. */
int buf_add(struct buf *b, const void *p, size_t n);
int buf_adds(struct buf *b, const char *s);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_reserve(struct buf *b, size_t extra); /* room for `extra` more bytes at p + n */
/* Hand the bytes (malloc'ed, NUL-terminated) to the caller; the buffer becomes empty. */
char *buf_take(struct buf *b, size_t *n);

#endif
