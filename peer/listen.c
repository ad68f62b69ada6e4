/* SPDX-License-Identifier: MIT
 * listen.c: see listen.h. */
#include "peer/listen.h"
#include "peer/tls_internal.h"

#include "proto/base/clock.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { BACKLOG = 64 };
#define FAIL_WINDOW_NS 10000000000ull

struct tls_listen {
    struct tls_pool *pool;
    uv_loop_t *loop;
    uv_tcp_t tcp;
    int port;
    struct tls_conn_cb cb;
    void *ctx;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

/* ---- addresses ---- */

/* What one household machine cannot change at will: an IPv4 address, the /64 of an IPv6 address;
 * link-local addresses whole, since all of a LAN share their prefix. */
void tls_address_key(const struct sockaddr *a, uint8_t key[16])
{
    memset(key, 0, 16);
    if (a->sa_family == AF_INET6) {
        const struct in6_addr *i = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        bool whole = IN6_IS_ADDR_V4MAPPED(i) || IN6_IS_ADDR_LINKLOCAL(i) || IN6_IS_ADDR_LOOPBACK(i);
        memcpy(key, i->s6_addr, whole ? 16 : 8);
    } else {
        key[10] = key[11] = 0xff;
        memcpy(key + 12, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    }
}

static struct tls_failures *failures(struct tls_pool *p, const uint8_t key[16], uint64_t now)
{
    for (int i = 0; i < TLS_FAIL_SLOTS; i++) {
        struct tls_failures *f = &p->fails[i];
        if (f->n && now - f->since_ns > FAIL_WINDOW_NS) {
            f->n = 0;
        }
        if (f->n && memcmp(f->key, key, 16) == 0) {
            return f;
        }
    }
    return NULL;
}

void tls_address_failed(struct tls_pool *p, const uint8_t key[16])
{
    uint64_t now = clock_ns();
    struct tls_failures *f = failures(p, key, now);
    if (!f) { /* an empty slot, else the oldest */
        f = &p->fails[0];
        for (int i = 1; i < TLS_FAIL_SLOTS && f->n; i++) {
            if (!p->fails[i].n || p->fails[i].since_ns < f->since_ns) {
                f = &p->fails[i];
            }
        }
        memcpy(f->key, key, 16);
        f->n = 0;
        f->since_ns = now;
    }
    f->n++;
}

static unsigned shaking(const struct tls_pool *p, const uint8_t key[16])
{
    unsigned same = 0;
    for (const struct tls_conn *c = p->conns; c; c = c->next) {
        same += c->accepted && !c->opened && memcmp(c->addr_key, key, 16) == 0;
    }
    return same;
}

bool tls_pool_shaking(const struct tls_pool *p, const struct sockaddr *a)
{
    static const uint8_t half[8];
    uint8_t key[16];
    tls_address_key(a, key);
    bool net = a->sa_family == AF_INET6 && memcmp(key + 8, half, 8) == 0; /* a whole /64 */
    return !net && shaking(p, key) > 0;
}

static bool admits(struct tls_pool *p, const uint8_t key[16])
{
    if (p->closing || p->st.conns >= p->o.max_conns || p->st.handshakes >= p->o.max_handshakes) {
        return false;
    }
    const struct tls_failures *f = failures(p, key, clock_ns());
    if (f && f->n >= p->o.max_failures_per_address) {
        return false;
    }
    return shaking(p, key) < p->o.max_handshakes_per_address;
}

/* ---- accepting ---- */

static void free_tcp(uv_handle_t *h)
{
    free(h);
}

static void on_connection(uv_stream_t *s, int status)
{
    struct tls_listen *l = s->data;
    struct tls_pool *p = l->pool;
    if (status < 0) {
        p->st.over_limit++; /* no descriptors left: libuv has closed it */
        return;
    }
    uv_tcp_t *tcp = malloc(sizeof *tcp);
    if (!tcp) {
        return; /* it stays in the backlog; the next connection tries again */
    }
    struct sockaddr_storage a = {0};
    int n = sizeof a;
    uint8_t key[16];
    uv_tcp_init(l->loop, tcp);
    if (uv_accept(s, (uv_stream_t *)tcp) || uv_tcp_getpeername(tcp, (struct sockaddr *)&a, &n)) {
        uv_close((uv_handle_t *)tcp, free_tcp);
        return;
    }
    tls_address_key((struct sockaddr *)&a, key);
    struct tls_conn *c;
    p->st.accepted++;
    if (!admits(p, key) || tls_conn_attach(p, tcp, true, NULL, &l->cb, l->ctx, &c, NULL)) {
        p->st.over_limit++;
        uv_close((uv_handle_t *)tcp, free_tcp);
        return;
    }
    c->accepted = true;
    p->st.handshakes++;
}

int tls_listen_open(struct tls_pool *p, uv_loop_t *loop, const char *host, int port,
                    const struct tls_conn_cb *cb, void *ctx, struct tls_listen **out, struct err *e)
{
    struct sockaddr_storage a = {0};
    if (port < 0 || port > 65535 ||
        (uv_ip4_addr(host, port, (struct sockaddr_in *)(void *)&a) &&
         uv_ip6_addr(host, port, (struct sockaddr_in6 *)(void *)&a))) {
        return err_set(e, ERR_ARG, "%s port %d is no address to listen on", host, port);
    }
    struct tls_listen *l = calloc(1, sizeof *l);
    if (!l) {
        return err_set(e, ERR_NOMEM, "no memory to listen on %s", host);
    }
    l->pool = p;
    l->loop = loop;
    l->cb = *cb;
    l->ctx = ctx;
    l->tcp.data = l;
    int n = sizeof a;
    int r = uv_tcp_init(loop, &l->tcp);
    if (r) {
        free(l);
        return err_set(e, ERR_IO, "the event loop takes no more handles: %s", uv_strerror(r));
    }
    l->tcp.data = l;
    r = uv_tcp_bind(&l->tcp, (struct sockaddr *)&a, 0);
    if (!r) {
        r = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_connection);
    }
    if (!r) {
        r = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&a, &n);
    }
    if (r) {
        tls_listen_close(l, NULL, NULL);
        return err_set(e, r == UV_EADDRINUSE ? ERR_BUSY : ERR_NET,
                       "cannot listen on %s port %d: %s", host, port, uv_strerror(r));
    }
    l->port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&a)->sin6_port
                                            : ((struct sockaddr_in *)(void *)&a)->sin_port);
    *out = l;
    return 0;
}

int tls_listen_port(const struct tls_listen *l)
{
    return l->port;
}

static void on_listen_closed(uv_handle_t *h)
{
    struct tls_listen *l = h->data;
    if (l->closed) {
        l->closed(l->closed_ctx);
    }
    free(l);
}

void tls_listen_close(struct tls_listen *l, void (*closed)(void *ctx), void *ctx)
{
    l->closed = closed;
    l->closed_ctx = ctx;
    uv_close((uv_handle_t *)&l->tcp, on_listen_closed);
}
