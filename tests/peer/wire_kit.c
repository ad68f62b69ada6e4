/* SPDX-License-Identifier: MIT
 * wire_kit.c: see wire_kit.h. */
#include "tests/peer/wire_kit.h"

#include "peer/crypto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(bool ok, const char *what, const struct err *e)
{
    if (!ok) {
        fprintf(stderr, "wire_kit: %s: %s\n", what, e ? e->msg : "");
        abort();
    }
}

void kit_id_make(struct kit_id *k)
{
    struct err e = {0};
    struct crypto_key *key;
    struct key_id id;
    must(crypto_key_make(&key, &e) == 0, "key", &e);
    must(crypto_key_pem(key, k->pem, &k->pem_n, &e) == 0, "pem", &e);
    k->pem_n++;
    must(crypto_certificate(key, k->cert, &k->cert_n, &e) == 0, "certificate", &e);
    crypto_key_id(crypto_key_public(key), &id);
    memcpy(k->id, id.b, WIRE_ID);
    crypto_key_free(key);
}

int kit_trusted(void *ctx, const uint8_t id[WIRE_ID])
{
    const struct kit_trust *t = ctx;
    for (int i = 0; i < t->n; i++) {
        if (memcmp(t->of[i].id, id, WIRE_ID) == 0) {
            return t->of[i].trust;
        }
    }
    return TLS_STRANGER;
}

/* ---- callbacks ---- */

static void on_open(void *ctx, struct tls_conn *c, const struct tls_peer *p)
{
    struct kit_log *l = ctx;
    l->c = c;
    l->opens++;
    l->peer = *p;
    if (l->on_open) {
        l->on_open(l);
    }
}

static void on_frame(void *ctx, struct tls_conn *c, struct frame *f)
{
    struct kit_log *l = ctx;
    l->frames++;
    l->bytes += f->body_n + f->raw_n;
    if (l->on_frame) {
        l->on_frame(l, f);
    } else if (l->keep) {
        f->next = NULL;
        if (l->tail) {
            l->tail->next = f;
        } else {
            l->head = f;
        }
        l->tail = f;
    } else {
        frame_free(f);
    }
}

static void on_drain(void *ctx, struct tls_conn *c)
{
    ((struct kit_log *)ctx)->drains++;
}

static void on_replace(void *ctx, struct tls_conn *c)
{
    ((struct kit_log *)ctx)->replaces++;
}

static void on_close(void *ctx, struct tls_conn *c, const struct tls_close *why)
{
    struct kit_log *l = ctx;
    l->closes++;
    l->why = *why;
    l->c = NULL;
    while (l->head) {
        struct frame *f = l->head;
        l->head = f->next;
        frame_free(f);
    }
    l->tail = NULL;
}

const struct tls_conn_cb kit_cb = {on_open, on_frame, on_drain, on_replace, on_close};

/* ---- nodes ---- */

static void in_open(void *ctx, struct tls_conn *c, const struct tls_peer *p)
{
    struct kit_node *n = ctx;
    must(n->n_in < n->max_in, "more connections than the test expects", NULL);
    struct kit_log *l = &n->in[n->n_in++];
    *l = n->model;
    snprintf(l->address, sizeof l->address, "%s", tls_conn_address(c));
    tls_conn_set_owner(c, &kit_cb, l);
    on_open(l, c, p);
}

static void in_frame(void *ctx, struct tls_conn *c, struct frame *f)
{
    must(false, "a frame before on_open", NULL);
}

static void in_close(void *ctx, struct tls_conn *c, const struct tls_close *why)
{
    struct kit_node *n = ctx;
    must(!why->opened, "opened without on_open", NULL);
    n->closes++;
    n->why = *why;
}

void kit_opts(struct tls_opts *o, const struct kit_id *k, struct kit_trust *t)
{
    memset(o, 0, sizeof *o);
    o->key = k->pem;
    o->key_n = k->pem_n;
    o->cert = k->cert;
    o->cert_n = k->cert_n;
    o->trusted = kit_trusted;
    o->trusted_ctx = t;
}

void kit_node_open(struct kit_node *n, uv_loop_t *loop, const struct tls_opts *o, const char *host,
                   int max_in)
{
    static const struct tls_conn_cb cb = {in_open, in_frame, NULL, NULL, in_close};
    struct err e = {0};
    memset(n, 0, sizeof *n);
    n->loop = loop;
    n->max_in = max_in;
    n->in = calloc((size_t)(max_in ? max_in : 1), sizeof *n->in);
    must(tls_pool_open(loop, o, &n->pool, &e) == 0, "pool", &e);
    if (host) {
        must(tls_listen_open(n->pool, loop, host, 0, &cb, n, &n->listen, &e) == 0, "listen", &e);
        n->port = tls_listen_port(n->listen);
    }
}

static void gone(void *ctx)
{
    ((struct kit_node *)ctx)->gone = true;
}

void kit_node_close(struct kit_node *n)
{
    if (n->listen) {
        tls_listen_close(n->listen, NULL, NULL);
    }
    tls_pool_close(n->pool, gone, n);
    while (!n->gone) {
        uv_run(n->loop, UV_RUN_ONCE);
    }
    free(n->in);
}

void kit_connect(struct kit_node *from, struct kit_log *l, const char *host, int port,
                 const struct tls_conn_opts *o)
{
    struct sockaddr_storage a;
    struct err e = {0};
    if (uv_ip4_addr(host, port, (struct sockaddr_in *)&a)) {
        must(uv_ip6_addr(host, port, (struct sockaddr_in6 *)&a) == 0, host, NULL);
    }
    must(tls_conn_connect(from->pool, (struct sockaddr *)&a, o, &kit_cb, l, &l->c, &e) == 0,
         "connect", &e);
}

/* ---- running ---- */

static void on_timeout(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

static void on_timer_closed(uv_handle_t *h)
{
    *(bool *)h->data = true;
}

bool kit_until_fn(uv_loop_t *loop, bool (*done)(void *), void *ctx, unsigned ms)
{
    uv_timer_t t;
    bool late = false, closed = false;
    uv_timer_init(loop, &t);
    t.data = &late;
    uv_update_time(loop); /* the loop has not run for a while: else it may be late at once */
    uv_timer_start(&t, on_timeout, ms, 0);
    bool ok;
    while (!(ok = done && done(ctx)) && !late) {
        uv_run(loop, UV_RUN_ONCE);
    }
    t.data = &closed;
    uv_close((uv_handle_t *)&t, on_timer_closed);
    while (!closed) {
        uv_run(loop, UV_RUN_ONCE);
    }
    return ok;
}

struct flag {
    const int *p;
    int want;
};

static bool reached(void *ctx)
{
    const struct flag *f = ctx;
    return *f->p >= f->want;
}

bool kit_until(uv_loop_t *loop, const int *flag, int want, unsigned ms)
{
    struct flag f = {flag, want};
    return kit_until_fn(loop, reached, &f, ms);
}

void kit_run_ms(uv_loop_t *loop, unsigned ms)
{
    kit_until_fn(loop, NULL, NULL, ms);
}
