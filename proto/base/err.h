/* SPDX-License-Identifier: MIT
 * err.h: the one error type of the whole program: a code for programs, a sentence for people.
 *
 * Convention: a function that can fail returns 0 or a nonzero enum err_code and, when `e` is not
 * NULL, fills it. The first failure wins nothing: the caller that knows more (which file, which
 * peer) adds it with err_prefix. Errors are values; nothing here allocates or exits. */
#ifndef SHOAL_BASE_ERR_H
#define SHOAL_BASE_ERR_H

#include <stddef.h>

/* X(name, text): the text names the kind of failure where only a code is at hand. */
#define ERR_CODES(X)                      \
    X(ERR_OK, "ok")                       \
    X(ERR_NOMEM, "out of memory")         \
    X(ERR_ARG, "bad argument")            \
    X(ERR_IO, "input/output error")       \
    X(ERR_NOTFOUND, "not found")          \
    X(ERR_FORMAT, "malformed data")       \
    X(ERR_LIMIT, "over a limit")          \
    X(ERR_UNSUPPORTED, "not supported")   \
    X(ERR_NET, "network error")           \
    X(ERR_DIGEST, "checksum mismatch")    \
    X(ERR_FULL, "no space left")          \
    X(ERR_BUSY, "in use")                 \
    X(ERR_OFFLINE, "offline")             \
    X(ERR_CANCELLED, "cancelled")         \
    X(ERR_TIMEOUT, "timed out")           \
    X(ERR_NUMERIC, "not a finite number") \
    X(ERR_REFUSED, "not allowed")         \
    X(ERR_RECEIPT, "a receipt differs")

enum err_code {
#define ERR_ENUM(n, t) n,
    ERR_CODES(ERR_ENUM)
#undef ERR_ENUM
};

struct err {
    int code;      /* enum err_code; ERR_OK when unset */
    char msg[600]; /* one sentence, NUL-terminated, cut when longer */
};

/* Fill *e (may be NULL) and return `code`, so that `return err_set(e, ...)` reads well. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As err_set, with ": " and the text of the errno value `errnum` appended. ENOSPC and EDQUOT turn
 * the code into ERR_FULL, ENOENT into ERR_NOTFOUND, ENOMEM into ERR_NOMEM. */
int err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Put "<formatted>: " before the present sentence; returns e->code. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *err_text(int code);

#endif
