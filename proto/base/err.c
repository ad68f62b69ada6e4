/* SPDX-License-Identifier: MIT
 * err.c: see err.h. */
#include "proto/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        e->code = code;
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_sys(struct err *e, int errnum, const char *fmt, ...)
{
    int code = ERR_IO;
    if (errnum == ENOSPC || errnum == EDQUOT) {
        code = ERR_FULL;
    } else if (errnum == ENOENT) {
        code = ERR_NOTFOUND;
    } else if (errnum == ENOMEM) {
        code = ERR_NOMEM;
    }
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        e->code = code;
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        size_t n = strlen(e->msg);
        char text[128];
        text[0] = 0;
        /* strerror_r has two incompatible forms; strerror's table is immutable on both systems. */
        snprintf(text, sizeof text, "%s", strerror(errnum));
        snprintf(e->msg + n, sizeof e->msg - n, ": %s", text);
    }
    return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e) {
        return ERR_OK;
    }
    char tail[sizeof e->msg];
    memcpy(tail, e->msg, sizeof tail);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %s", tail);
    return e->code;
}

const char *err_text(int code)
{
    switch (code) {
#define ERR_CASE(n, t) \
    case n:            \
        return t;
        ERR_CODES(ERR_CASE)
#undef ERR_CASE
    }
    return "unknown error";
}
