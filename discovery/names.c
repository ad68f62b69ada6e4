/* SPDX-License-Identifier: MIT
 * names.c: the addresses of static peers, asked of the system's resolver off the loop, again while
 * a peer cannot be reached, and never more often than once in an announce interval. */
#include "discovery/addr.h"
#include "discovery/core.h"

#include "proto/base/clock.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MUL 10 /* a name that resolved is asked again after this many intervals */

struct lookup {
    uv_getaddrinfo_t req;
    struct disco *d;
    struct static_peer *s;
};

static void failed(struct disco *d, struct static_peer *s, const char *why)
{
    bool first = !s->error[0];
    snprintf(s->error, sizeof s->error, "%s", why);
    unsigned shift = s->fails < 3 ? s->fails : 3;
    s->fails++;
    s->due_ns = clock_ns() + (d->interval_ns << shift);
    if (first) {
        core_log(d, "peer %s: %s; asked again", s->name, s->error);
    }
}

static void got(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
    struct lookup *l = (struct lookup *)req->data;
    struct disco *d = l->d;
    struct static_peer *s = l->s;
    free(l);
    s->busy = false;
    s->req = NULL;
    if (d->closing) {
        uv_freeaddrinfo(res);
        core_release(d);
        return;
    }
    if (status) {
        failed(d, s, uv_strerror(status));
    } else {
        struct sockaddr_storage a[DISCO_ADDRS_MAX];
        size_t n = 0;
        for (const struct addrinfo *i = res; i && n < DISCO_ADDRS_MAX; i = i->ai_next) {
            if (addr_copy(&a[n], i->ai_addr)) {
                addr_set_port(&a[n], s->port);
                n++;
            }
        }
        peers_static_addrs(&d->t, clock_ns(), s, a, n);
        if (s->n_addrs) {
            s->error[0] = 0;
            s->fails = 0;
            s->due_ns = clock_ns() + AGAIN_MUL * d->interval_ns;
        } else {
            failed(d, s, "the name has no usable address");
        }
        core_touch(d);
    }
    uv_freeaddrinfo(res);
    core_soon(d);
    core_release(d);
}

static void ask(struct disco *d, struct static_peer *s, uint64_t now)
{
    struct sockaddr_storage a;
    int rc = addr_parse(s->name, &a);
    if (!rc) {
        peers_static_addrs(&d->t, now, s, &a, 1);
        s->error[0] = 0;
        s->due_ns = 0;
        if (!s->n_addrs) {
            failed(d, s, "no node can have this address");
        }
        core_touch(d);
        return;
    }
    if (rc == ERR_NOTFOUND) {
        failed(d, s, "this machine has no interface of that name now");
        return;
    }
    struct lookup *l = calloc(1, sizeof *l);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (!l) {
        failed(d, s, "out of memory");
        return;
    }
    l->d = d;
    l->s = s;
    l->req.data = l;
    rc = uv_getaddrinfo(d->loop, &l->req, got, s->host, NULL, &hints);
    if (rc) {
        free(l);
        failed(d, s, uv_strerror(rc));
        return;
    }
    s->busy = true;
    s->req = &l->req;
    s->due_ns = 0;
    d->open++;
}

uint64_t names_run(struct disco *d, uint64_t now)
{
    uint64_t next = 0;
    for (size_t i = 0; i < d->t.n_statics; i++) {
        struct static_peer *s = d->t.statics[i];
        if (!s->busy && s->due_ns && now >= s->due_ns && !d->asleep) {
            ask(d, s, now);
        }
        next = core_min(next, s->busy ? 0 : s->due_ns);
    }
    return next;
}

void names_due(struct disco *d, uint64_t now)
{
    for (size_t i = 0; i < d->t.n_statics; i++) {
        struct static_peer *s = d->t.statics[i];
        if (!s->n_addrs) {
            s->due_ns = now;
        }
    }
}

void names_close(struct disco *d)
{
    for (size_t i = 0; i < d->t.n_statics; i++) {
        if (d->t.statics[i]->req) {
            uv_cancel((uv_req_t *)d->t.statics[i]->req); /* one that runs ends by itself */
        }
    }
}
