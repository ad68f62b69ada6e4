/* SPDX-License-Identifier: MIT
 * http_head.h: private to node/store: the head of an HTTP answer, as far as it matters, and whether
 * its body may be believed to be the range that was asked for. Pure functions of bytes. */
#ifndef SHOAL_STORE_HTTP_HEAD_H
#define SHOAL_STORE_HTTP_HEAD_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_ETAG_MAX 200
#define HTTP_COMMIT_MAX 65
#define HTTP_UNKNOWN UINT64_MAX

struct http_head {
    int status;
    bool has_range, bad_range; /* a Content-Range was there; it could not be understood */
    uint64_t start, end;       /* inclusive, as sent */
    uint64_t total;            /* of Content-Range; HTTP_UNKNOWN for "*" */
    uint64_t length;           /* Content-Length or HTTP_UNKNOWN */
    bool encoded;              /* a Content-Encoding other than identity */
    uint64_t retry_after_ms;   /* 0: none; at most a day */
    int64_t retry_at;          /* Retry-After was a date: seconds since 1970, else 0 */
    int64_t date;              /* the server's clock, seconds since 1970; 0: not said */
    char etag[HTTP_ETAG_MAX];  /* strong entity tag; X-Linked-ETag if there is one */
    bool linked;
    char commit[HTTP_COMMIT_MAX]; /* X-Repo-Commit of a hub, or "" */
};

/* One header line (with or without its line end); a status line begins a new head. now_wall:
 * seconds since 1970, for a Retry-After that is a date in a head without one (Date). */
void http_head_line(struct http_head *h, const char *line, size_t n, int64_t now_wall);

/* Take off what some servers put behind the tag of the same bytes when others ask for them packed:
 * "abc-gzip" becomes "abc". In place. */
void http_etag_plain(char *tag);

enum http_verdict {
    HTTP_BODY,    /* the body is exactly what was asked */
    HTTP_RETRY,   /* try again later */
    HTTP_REFUSED, /* not usable; may be a passing fault, so a few tries */
    HTTP_FATAL    /* it will not get better */
};
/* Asked: bytes [off, off + n) of a file of `total` bytes (HTTP_UNKNOWN: not known), or with n ==
 * HTTP_UNKNOWN the whole file. Redirects (3xx) are the caller's affair. */
enum http_verdict http_judge(const struct http_head *h, uint64_t off, uint64_t n, uint64_t total,
                             struct err *e);

#endif
