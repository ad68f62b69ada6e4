/* SPDX-License-Identifier: MIT
 * web_int.h: private to web*.c. Locks: h->mu (lists, counters), then r->mu (one answer). */
#ifndef SHOAL_API_WEB_INT_H
#define SHOAL_API_WEB_INT_H

#include "node/api/web.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#define WEB_BLOCK ((size_t)32 << 10)
#define WEB_ADDED_MAX 8
#define WEB_LIMITS_MS 250 /* between looks at connections without a request */

struct web {
    struct web_opts o;
    char *key, *cors;
    struct MHD_Daemon *d;
    char url[100];
    pthread_t watcher;
    bool watching;
    pthread_mutex_t mu; /* list, counters */
    pthread_cond_t cond;
    bool stop;
    struct web_req *list;   /* requests under way */
    struct web_conn *conns; /* all connections */
    size_t bodies;          /* bytes of bodies held */
    unsigned handling;      /* calls of o.handle under way; 0 is told by done */
    pthread_cond_t done;
    pthread_t worker; /* web_work.c */
    bool working;
    struct web_req *work, **work_end;
    pthread_cond_t work_cond;
    atomic_uint_least64_t requests, refused, gone, bytes_out;
    atomic_bool quiet;
};

enum web_at { WEB_HEAD, WEB_BODY, WEB_ANSWER };

/* One connection, from its beginning to its end. With h->mu. */
struct web_conn {
    struct web_conn *next, *prev;
    int fd;
    enum web_at at; /* what comes next */
    uint64_t since; /* clock_ns, of the first two */
    uint64_t got;   /* bytes of this body */
    bool cut;
};

enum web_answer { NONE, WHOLE, STREAM };

struct web_req {
    struct web *h;
    struct web_req *next, *prev, *work_next;
    struct web_conn *conn; /* NULL: not watched */
    atomic_uint refs;
    char method[16], path[512];
    char client[INET6_ADDRSTRLEN];
    struct MHD_Connection *c;
    int fd;
    struct buf body;
    size_t counted; /* of h->bodies */
    size_t thrown;  /* bytes of a body that is refused */
    bool handled;
    int refuse; /* status; the body is read and thrown away */
    const char *refuse_code, *refuse_text;

    pthread_mutex_t mu; /* what follows */
    bool over;          /* the library is done with it: c is no more */
    bool suspended, queued;
    enum web_answer answer;
    int status;
    char type[64];
    struct {
        char *name, *value;
    } added[WEB_ADDED_MAX];
    size_t n_added;
    struct buf out; /* WHOLE: the body; STREAM: what waits */
    size_t out_at;
    bool ended, lost;        /* lost: the client is gone or too slow */
    pthread_mutex_t gone_mu; /* before mu; held while on_gone runs */
    void (*on_gone)(void *ctx);
    void *gone_ctx;
};

/* web_conn.c. Of libmicrohttpd's notice of connections. */
void web_conn_notice(void *cls, struct MHD_Connection *c, void **ctx,
                     enum MHD_ConnectionNotificationCode what);
/* What the connection of `r` does now; got: bytes more of its body. */
void web_conn_at(struct web_req *r, enum web_at at, size_t got);
/* With h->mu: cuts the connections whose request takes too long to come. */
void web_conn_look(struct web *h);

/* web_work.c. Answers r, or has it answered; own: how many hold r here. */
void web_dispatch(struct web_req *r, unsigned own);
int web_work_start(struct web *h, struct err *e);
/* False: not now, or not for so little: the caller does it. Else r is suspended and will be
 * handled. */
bool web_work_take(struct web_req *r);
void web_work_stop(struct web *h); /* all that was taken has been handled */

/* web_answer.c. The client is gone: tell whoever works for it, once. Without locks. */
void web_lose(struct web_req *r);
/* Once, on the library's thread, without locks: the answer is known, hand it over. */
enum MHD_Result web_queue(struct web_req *r);

#endif
