/* SPDX-License-Identifier: MIT
 * http_head.c: see http_head.h. */
#include "node/store/http_head.h"

#include "proto/base/num.h"

#include <curl/curl.h>
#include <string.h>
#include <strings.h>

#define RETRY_AFTER_MAX_S 86400 /* what is more than a day is no answer to "when" */

static bool digits(const char **p, const char *end, uint64_t *out)
{
    const char *q = *p;
    uint64_t v = 0;
    while (q < end && *q >= '0' && *q <= '9') {
        if (!num_mul_u64(v, 10, &v) || !num_add_u64(v, (uint64_t)(*q - '0'), &v)) {
            return false;
        }
        q++;
    }
    if (q == *p) {
        return false;
    }
    *p = q;
    *out = v;
    return true;
}

/* "bytes 0-99/1000" or "bytes 0-99/" followed by "*". */
static bool content_range(struct http_head *h, const char *p, const char *end)
{
    if (end - p < 6 || strncasecmp(p, "bytes", 5) != 0 || (p[5] != ' ' && p[5] != '\t')) {
        return false;
    }
    p += 6;
    while (p < end && *p == ' ') {
        p++;
    }
    if (!digits(&p, end, &h->start) || p == end || *p++ != '-' || !digits(&p, end, &h->end) ||
        p == end || *p++ != '/') {
        return false;
    }
    h->total = HTTP_UNKNOWN;
    if (end - p == 1 && *p == '*') {
        return h->start <= h->end;
    }
    return digits(&p, end, &h->total) && p == end && h->start <= h->end && h->end < h->total;
}

void http_etag_plain(char *tag)
{
    static const char *const packed[] = {"-gzip\"", "-br\"", "-zstd\""};
    size_t n = strlen(tag);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        size_t k = strlen(packed[i]);
        if (n > k + 1 && strcmp(tag + n - k, packed[i]) == 0) {
            memcpy(tag + n - k, "\"", 2);
            return;
        }
    }
}

static void etag(struct http_head *h, const char *p, const char *end, bool linked)
{
    size_t n = (size_t)(end - p);
    if (h->linked && !linked) {
        return;
    }
    /* a weak tag promises nothing about bytes */
    if (n == 0 || n >= sizeof h->etag || (n > 1 && p[0] == 'W' && p[1] == '/')) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] <= ' ' || p[i] == 127) {
            return;
        }
    }
    memcpy(h->etag, p, n);
    h->etag[n] = 0;
    h->linked = linked;
    http_etag_plain(h->etag);
}

static int64_t http_date(const char *p, const char *end)
{
    char date[64];
    size_t n = (size_t)(end - p);
    if (n >= sizeof date) {
        return 0;
    }
    memcpy(date, p, n);
    date[n] = 0;
    time_t t = curl_getdate(date, NULL);
    return t == (time_t)-1 || t < 0 ? 0 : (int64_t)t;
}

static uint64_t wait_ms(uint64_t s)
{
    return (s > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : s) * 1000;
}

/* A date means the server's clock, whatever ours says. */
static void retry_by_date(struct http_head *h, int64_t now_wall)
{
    int64_t now = h->date ? h->date : now_wall;
    h->retry_after_ms = h->retry_at > now ? wait_ms((uint64_t)(h->retry_at - now)) : 0;
}

static void retry_after(struct http_head *h, const char *p, const char *end, int64_t now_wall)
{
    uint64_t s = 0;
    const char *q = p;
    if (digits(&q, end, &s) && q == end) {
        h->retry_at = 0;
        h->retry_after_ms = wait_ms(s);
        return;
    }
    h->retry_at = http_date(p, end);
    if (h->retry_at) {
        retry_by_date(h, now_wall);
    }
}

/* RateLimit: "api";r=0;t=55 of a hub: seconds until there is room again. Retry-After counts more.
 */
static void rate_limit(struct http_head *h, const char *p, const char *end)
{
    uint64_t s;
    if (h->status != 429 || h->retry_after_ms || h->retry_at) {
        return;
    }
    for (; end - p > 3; p++) {
        const char *q = p + 3;
        if (memcmp(p, ";t=", 3) == 0 && digits(&q, end, &s)) {
            h->retry_after_ms = wait_ms(s);
            return;
        }
    }
}

static void commit(struct http_head *h, const char *p, const char *end)
{
    size_t n = (size_t)(end - p);
    if (n < 40 || n >= sizeof h->commit) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f'))) {
            return;
        }
    }
    memcpy(h->commit, p, n);
    h->commit[n] = 0;
}

void http_head_line(struct http_head *h, const char *line, size_t n, int64_t now_wall)
{
    const char *end = line + n;
    while (end > line &&
           (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    if (end - line >= 5 && strncmp(line, "HTTP/", 5) == 0) {
        memset(h, 0, sizeof *h);
        h->total = h->length = HTTP_UNKNOWN;
        const char *p = memchr(line, ' ', (size_t)(end - line));
        uint64_t status = 0;
        if (p) {
            p++;
            h->status = digits(&p, end, &status) && status < 1000 ? (int)status : 0;
        }
        return;
    }
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (!colon) {
        return;
    }
    size_t k = (size_t)(colon - line);
    const char *v = colon + 1;
    while (v < end && (*v == ' ' || *v == '\t')) {
        v++;
    }
#define IS(name) (k == sizeof name - 1 && strncasecmp(line, name, k) == 0)
    if (IS("content-range")) {
        h->bad_range = h->has_range || !content_range(h, v, end); /* two of them are no answer */
        h->has_range = true;
    } else if (IS("content-length")) {
        uint64_t len;
        const char *q = v;
        h->length = digits(&q, end, &len) && q == end ? len : HTTP_UNKNOWN;
    } else if (IS("content-encoding")) {
        h->encoded = !((size_t)(end - v) == 8 && strncasecmp(v, "identity", 8) == 0) && v < end;
    } else if (IS("retry-after")) {
        retry_after(h, v, end, now_wall);
    } else if (IS("date")) {
        h->date = http_date(v, end);
        if (h->retry_at) {
            retry_by_date(h, now_wall);
        }
    } else if (IS("ratelimit")) {
        rate_limit(h, v, end);
    } else if (IS("x-repo-commit")) {
        commit(h, v, end);
    } else if (IS("etag")) {
        etag(h, v, end, false);
    } else if (IS("x-linked-etag")) {
        etag(h, v, end, true);
    }
#undef IS
}

static enum http_verdict by_status(const struct http_head *h, uint64_t off, uint64_t n,
                                   struct err *e)
{
    switch (h->status) {
    case 401:
    case 403:
        err_set(e, ERR_NET,
                "the server refuses access (status %d): check the address, and the token if the "
                "model needs one (a user name and password: in ~/.netrc, which only you may read)",
                h->status);
        return HTTP_FATAL;
    case 404:
    case 410:
        err_set(e, ERR_NOTFOUND, "the server has no such file (status %d)", h->status);
        return HTTP_FATAL;
    case 407:
        err_set(e, ERR_NET,
                "the proxy wants a user name and password (status 407): name it as "
                "http://USER:PASSWORD@HOST:PORT in https_proxy or http_proxy");
        return HTTP_FATAL;
    case 416:
        err_set(e, ERR_NET,
                "the server's file is shorter than the model says: it has no bytes at %llu (status "
                "416)",
                (unsigned long long)off);
        return HTTP_FATAL;
    case 408:
    case 425:
    case 429:
        err_set(e, ERR_NET, "the server asks to slow down (status %d)", h->status);
        return HTTP_RETRY;
    default:
        if (h->status >= 500) {
            err_set(e, ERR_NET, "the server has a fault (status %d)", h->status);
            return HTTP_RETRY;
        }
        err_set(e, ERR_NET, "the server gives an unexpected answer (status %d)", h->status);
        return h->status >= 400 ? HTTP_FATAL : HTTP_REFUSED;
    }
}

enum http_verdict http_judge(const struct http_head *h, uint64_t off, uint64_t n, uint64_t total,
                             struct err *e)
{
    if (h->status != 200 && h->status != 206) {
        return by_status(h, off, n, e);
    }
    if (h->encoded) {
        err_set(e, ERR_NET, "the server sends an encoded body though none was asked for");
        return HTTP_REFUSED;
    }
    if (h->status == 200) {
        bool whole = n == HTTP_UNKNOWN || (off == 0 && h->length == n && total == n);
        if (!whole) {
            err_set(e, ERR_NET,
                    "the server answers a range request with the whole file (status 200): it, or a "
                    "proxy before it, does not support ranges");
            return HTTP_REFUSED;
        }
        if (total != HTTP_UNKNOWN && h->length != HTTP_UNKNOWN && h->length != total) {
            err_set(e, ERR_NET, "the server's file has %llu bytes instead of %llu: it has changed",
                    (unsigned long long)h->length, (unsigned long long)total);
            return HTTP_FATAL;
        }
        return HTTP_BODY;
    }
    if (n == HTTP_UNKNOWN) {
        err_set(e, ERR_NET, "the server answers a plain request with a part (status 206)");
        return HTTP_REFUSED;
    }
    if (!h->has_range || h->bad_range) {
        err_set(e, ERR_NET, "the server's part has %s Content-Range",
                h->has_range ? "a malformed" : "no");
        return HTTP_REFUSED;
    }
    if (h->start != off || h->end != off + n - 1) {
        err_set(e, ERR_NET, "the server gives bytes %llu-%llu instead of %llu-%llu",
                (unsigned long long)h->start, (unsigned long long)h->end, (unsigned long long)off,
                (unsigned long long)(off + n - 1));
        return HTTP_REFUSED;
    }
    if (total != HTTP_UNKNOWN && h->total != HTTP_UNKNOWN && h->total != total) {
        err_set(
            e, ERR_NET,
            "the server's file has %llu bytes instead of %llu: it has changed since the model's "
            "metadata were fetched",
            (unsigned long long)h->total, (unsigned long long)total);
        return HTTP_FATAL;
    }
    if (h->length != HTTP_UNKNOWN && h->length != n) {
        err_set(e, ERR_NET, "the server announces %llu bytes instead of %llu",
                (unsigned long long)h->length, (unsigned long long)n);
        return HTTP_REFUSED;
    }
    return HTTP_BODY;
}
