/* SPDX-License-Identifier: MIT
 * web_conn.c: how long a request may take to come. The library ends a connection without a byte,
 * but one byte a minute would hold it, and what its body holds of the memory for bodies, for days.
 */
#include "node/api/web_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <sys/socket.h>

void web_conn_notice(void *cls, struct MHD_Connection *c, void **ctx,
                     enum MHD_ConnectionNotificationCode what)
{
    struct web *h = cls;
    struct web_conn *k = *ctx;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *i =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        k = i ? calloc(1, sizeof *k) : NULL;
        *ctx = k;
        if (!k) {
            return;
        }
        k->fd = i->connect_fd;
        k->since = clock_ns();
        pthread_mutex_lock(&h->mu);
        k->next = h->conns;
        if (k->next) {
            k->next->prev = k;
        }
        h->conns = k;
        pthread_cond_signal(&h->cond);
        pthread_mutex_unlock(&h->mu);
    } else if (k) { /* before the library closes its descriptor */
        pthread_mutex_lock(&h->mu);
        if (k->prev) {
            k->prev->next = k->next;
        } else {
            h->conns = k->next;
        }
        if (k->next) {
            k->next->prev = k->prev;
        }
        pthread_mutex_unlock(&h->mu);
        *ctx = NULL;
        free(k);
    }
}

void web_conn_at(struct web_req *r, enum web_at at, size_t got)
{
    struct web_conn *k = r->conn;
    if (!k) {
        return;
    }
    pthread_mutex_lock(&r->h->mu);
    if (k->at != at) {
        k->at = at;
        k->since = clock_ns();
        k->got = 0;
    }
    k->got += got;
    pthread_mutex_unlock(&r->h->mu);
}

void web_conn_look(struct web *h)
{
    uint64_t now = clock_ns();
    for (struct web_conn *k = h->conns; k; k = k->next) {
        /* WEB_HEAD: had there been no byte at all, the library would have ended it earlier */
        uint64_t ms =
            k->at == WEB_HEAD ? h->o.head_ms : h->o.body_ms + k->got * 1000 / WEB_BODY_RATE;
        if (k->at != WEB_ANSWER && !k->cut && now - k->since > ms * 1000000) {
            k->cut = true;
            shutdown(k->fd, SHUT_RDWR); /* the library sees an end, and closes */
        }
    }
}
