/* SPDX-License-Identifier: MIT
 * web.h: private to node/api: requests in, answers out, by libmicrohttpd. A request is handed over
 * when its body is there; the answer may come then or later, from any thread, whole or as a stream.
 * Whoever works on a request hears when its client is gone.
 *
 * Limits: bytes of a body, of headers, connections, seconds without a byte, seconds for a request
 * to come; a stream whose reader is too slow counts as gone. Nothing here knows what is said. */
#ifndef SHOAL_API_WEB_H
#define SHOAL_API_WEB_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEB_BODY_MAX ((size_t)64 << 20)
#define WEB_BODIES_MAX ((size_t)256 << 20) /* of all requests together */
#define WEB_HEADER_MAX ((size_t)32 << 10)
#define WEB_CONNECTIONS_MAX 1024
#define WEB_IDLE_S 75                    /* a connection without a byte */
#define WEB_HEAD_S 60                    /* more, and a request's headers must be there */
#define WEB_BODY_S 60                    /* for a body, and */
#define WEB_BODY_RATE ((size_t)64 << 10) /* a second more for each so many bytes of it */
#define WEB_INLINE ((size_t)64 << 10)    /* a longer body is worked on by a thread of its own */
#define WEB_STREAM_MAX ((size_t)1 << 20) /* bytes that wait for a slow reader */
#define WEB_WATCH_MS 50                  /* between looks for clients that are gone */

struct web;
struct web_req;

struct web_opts {
    const char *host; /* numeric or "localhost" */
    int port;         /* 0: the system's choice */
    const char *key; /* what "Authorization: Bearer" or "x-api-key" must say; NULL: loopback only */
    const char *cors;     /* origin that browsers may come from, "*" for any; NULL: none */
    unsigned connections; /* 0: WEB_CONNECTIONS_MAX */
    unsigned head_ms;     /* of one request's headers, idle time before included; 0: the above */
    unsigned body_ms;     /* 0: WEB_BODY_S */
    void *ctx;
    /* On one of two threads of the server, at the same time. It answers now or keeps the request
     * (web_hold) and answers later; a request that is neither answered nor held when this returns
     * is answered 500. */
    void (*handle)(void *ctx, struct web_req *r);
    /* A request that never reached `handle` (key, host, size): the body of its answer. */
    void (*refuse)(void *ctx, struct web_req *r, int status, const char *code, const char *text);
};

/* Could web_open listen there now? ERR_BUSY: another program has the port. Port 0 always can. */
int web_may_listen(const char *host, int port, struct err *e);
int web_open(const struct web_opts *o, struct web **out, struct err *e);
/* Takes no new requests; when it returns, `handle` is not called any more. Those under way go on.
 * Not to be called within `handle`. */
void web_quiet(struct web *h);
/* Every held request must have been answered. NULL is fine. */
void web_close(struct web *h);
/* "http://127.0.0.1:8080": one that can be opened on this machine, also where o->host means all its
 * addresses. */
const char *web_url(const struct web *h);
struct web_stats {
    uint64_t requests, refused, gone, bytes_out;
    unsigned connections;
};
void web_get_stats(struct web *h, struct web_stats *out);

/* ---- a request; valid while held ---- */

const char *web_method(const struct web_req *r);
const char *web_path(const struct web_req *r); /* without query */
/* NULL: none. Inside `handle` only. */
const char *web_header(const struct web_req *r, const char *name);
const char *web_body(const struct web_req *r, size_t *n); /* a NUL follows */
const char *web_client(const struct web_req *r);          /* its address, for turns */

void web_hold(struct web_req *r);
void web_release(struct web_req *r);
/* Called once, on any thread, when the client is gone before its answer was complete; at once when
 * it is gone already. It must not block, and may neither release the request nor call this. NULL:
 * none from now on; when that returns, no call is under way. */
void web_on_gone(struct web_req *r, void (*gone)(void *ctx), void *ctx);

/* One more header of the answer, before it begins. Bounded: at most 8. */
void web_add_header(struct web_req *r, const char *name, const char *value);
/* The whole answer; bytes are copied. Answers after the first are ignored. */
void web_answer(struct web_req *r, int status, const char *type, const void *p, size_t n);
/* Headers now, bytes as they come. web_write: false when the client is gone or too slow. */
void web_stream(struct web_req *r, int status, const char *type);
bool web_write(struct web_req *r, const void *p, size_t n);
void web_end(struct web_req *r);

#endif
