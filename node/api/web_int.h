/* SPDX-License-Identifier: MIT
 * web_int.h: private to web*.c. Locks: h->mu (list, counters), then r->mu (one answer). */
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
    struct web_req *list; /* requests under way */
    size_t bodies;        /* bytes of bodies held */
    atomic_uint_least64_t requests, refused, gone, bytes_out;
    atomic_bool quiet;
};

enum web_answer { NONE, WHOLE, STREAM };

struct web_req {
    struct web *h;
    struct web_req *next, *prev;
    atomic_uint refs;
    char method[16], path[512];
    char client[INET6_ADDRSTRLEN];
    struct MHD_Connection *c;
    int fd;
    struct buf body;
    size_t counted; /* of h->bodies */
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

/* web_answer.c. The client is gone: tell whoever works for it, once. Without locks. */
void web_lose(struct web_req *r);
/* Once, on the library's thread, without locks: the answer is known, hand it over. */
enum MHD_Result web_queue(struct web_req *r);

#endif
