/* SPDX-License-Identifier: MIT
 * tls_conn.c: the loop's side of a connection: states, timers, callbacks; its socket is in
 * tls_io.c. See tls_conn.h for the
 * contract and tls_internal.h for the division of labour with the worker.
 *
 * States: CONNECTING (TCP), RUNNING (TLS handshake, then frames), LINGER (the engine has ended: its
 * last bytes, an alert perhaps, go out, then what still comes in is thrown away until the other
 * side closes; closing at once could make the kernel reset the connection and destroy the alert),
 * CLOSING (three goodbyes outstanding: socket, timer, worker). */
#include "peer/tls_internal.h"

#include "proto/base/num.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTSENT = 256 * 1024 };

static void on_timer(uv_timer_t *t);

void tls_start_timer(struct tls_conn *c, unsigned ms)
{
    uv_timer_start(&c->timer, on_timer, ms, 0);
}

static void set_why(struct tls_conn *c, enum tls_end end, int code, const char *text)
{
    if (!c->has_why) {
        c->has_why = true;
        c->why.end = end;
        c->why.alert = -1;
        err_set(&c->why.err, code, "%s", text);
    }
}

void tls_finish(struct tls_conn *c, enum tls_end end, int code, const char *text)
{
    set_why(c, end, code, text);
    tls_enter_closing(c);
}

static void lost(struct tls_conn *c)
{
    char text[160];
    snprintf(text, sizeof text, "the connection was lost: %s", uv_strerror(c->io_error));
    tls_finish(c, TLS_END_LOST, ERR_NET, text);
}

/* ---- the end of life ---- */

void tls_release(struct tls_outs *l)
{
    while (l->head) {
        struct tls_out *o = l->head;
        l->head = o->next;
        if (o->raw.release) {
            o->raw.release(o->raw.ctx, o->raw.p);
        }
        free(o);
    }
    l->tail = NULL;
}

static void count_failure(struct tls_conn *c)
{
    struct tls_stats *st = &c->pool->st;
    if (!c->accepted || c->opened) {
        return;
    }
    st->handshakes--;
    st->failed++;
    switch (c->why.end) {
    case TLS_END_LOCAL:
        return; /* not the other side's doing */
    case TLS_END_STRANGER:
    case TLS_END_NO_CERT:
    case TLS_END_REMOVED:
        st->strangers++;
        break;
    case TLS_END_NOT_TLS:
        st->not_tls++;
        break;
    default:
        break;
    }
    tls_address_failed(c->pool, c->addr_key);
}

static void one_less(struct tls_conn *c)
{
    if (--c->pending) {
        return;
    }
    /* The worker has let go: nobody else touches the mailbox any more. */
    tls_blocks_free(&c->sh.in);
    tls_blocks_free(&c->sh.out);
    tls_frames_free(&c->sh.frames);
    tls_frames_free(&c->deliver);
    tls_release(&c->sh.done);
    for (int i = 0; i < TLS_PRIORITIES; i++) {
        tls_release(&c->sh.tx[i]);
    }
    c->why.opened = c->opened;
    c->why.in = c->sh.plain_in;
    c->why.out = c->sh.plain_out;
    if (!c->why.has_id && c->opened) {
        c->why.has_id = true;
        memcpy(c->why.id, c->sh.peer.id, WIRE_ID);
    }
    count_failure(c);
    c->cb.on_close(c->ctx, c, &c->why);
    tls_pool_forget(c);
    free(c->tcp);
    free(c);
}

static void on_handle_closed(uv_handle_t *h)
{
    one_less(h->data);
}

void tls_enter_closing(struct tls_conn *c)
{
    if (c->due) { /* a goodbye, perhaps */
        tls_write_due(c);
    }
    if (c->state == TLS_CLOSING) {
        return;
    }
    c->state = TLS_CLOSING;
    c->pending = 3;
    uv_close((uv_handle_t *)c->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    tls_lock(c);
    c->sh.detach = true;
    tls_worker_ready(c);
    tls_unlock(c);
}

static void on_timer(uv_timer_t *t)
{
    struct tls_conn *c = t->data;
    char text[200];
    if (c->state == TLS_CONNECTING) {
        snprintf(text, sizeof text, "%s does not answer", c->address);
        tls_finish(c, TLS_END_CONNECT, ERR_TIMEOUT, text);
    } else if (c->state == TLS_RUNNING && c->write_failed) {
        lost(c);
    } else if (c->state == TLS_RUNNING && !c->opened) {
        snprintf(text, sizeof text, "no TLS handshake with %s within %u ms", c->address,
                 c->pool->o.handshake_ms);
        tls_finish(c, TLS_END_TIMEOUT, ERR_TIMEOUT, text);
    } else {
        tls_finish(c, TLS_END_LOCAL, ERR_OK,
                   "closed here"); /* flushing or lingering took too long */
    }
}

/* ---- news from the worker ---- */

static void opened(struct tls_conn *c, const struct tls_peer *peer)
{
    c->opened = true;
    uv_timer_stop(&c->timer);
    c->pool->st.opened++;
    if (c->accepted) {
        c->pool->st.handshakes--;
    }
    c->cb.on_open(c->ctx, c, peer);
}

static void deliver(struct tls_conn *c)
{
    size_t bytes = 0, n = 0;
    bool wanted;
    while (c->deliver.head) {
        wanted = c->state == TLS_RUNNING && !c->user_closed;
        if (wanted && c->paused) {
            break;
        }
        struct frame *f = c->deliver.head;
        c->deliver.head = f->next;
        c->deliver.tail = f->next ? c->deliver.tail : NULL;
        f->next = NULL;
        bytes += f->body_n + f->raw_n + sizeof *f;
        n++;
        if (wanted) {
            c->cb.on_frame(c->ctx, c, f);
        } else {
            frame_free(f);
        }
    }
    if (n) {
        tls_lock(c);
        c->sh.rx_bytes -= bytes;
        c->sh.rx_frames -= n;
        if (c->sh.rx_stalled && c->sh.rx_bytes <= c->pool->o.receive_max / 2 &&
            c->sh.rx_frames <= TLS_FRAMES_MAX / 2) {
            c->sh.rx_stalled = false;
            tls_worker_ready(c);
        }
        tls_unlock(c);
    }
}

/* The engine has ended and all it decrypted is delivered. */
static void ended(struct tls_conn *c, const struct tls_close *why)
{
    if (!c->has_why) {
        c->has_why = true;
        c->why = *why;
        if (why->end == TLS_END_LOST && c->io_error) {
            err_set(&c->why.err, ERR_NET, "the connection was lost: %s", uv_strerror(c->io_error));
        }
    }
    if (c->eof || c->write_failed) {
        tls_enter_closing(c); /* nobody to linger for */
        return;
    }
    c->state = TLS_LINGER;
    c->received = 0;
    tls_start_timer(c, c->pool->o.linger_ms);
    tls_start_reading(c);
    tls_maybe_shutdown(c);
}

void tls_conn_pump(struct tls_conn *c)
{
    struct tls_blocks out = {0};
    struct tls_outs done = {0};
    struct tls_close why;
    struct tls_peer peer;
    tls_lock(c);
    TLS_SPLICE(&out, &c->sh.out);
    TLS_SPLICE(&done, &c->sh.done);
    TLS_SPLICE(&c->deliver, &c->sh.frames);
    bool open = c->sh.open, end = c->sh.ended, detached = c->sh.detached;
    bool read_on = !c->sh.in_stalled;
    size_t tx = c->sh.tx_bytes;
    uint64_t volume = c->sh.plain_in + c->sh.plain_out;
    if (open && !c->opened) {
        peer = c->sh.peer;
    }
    if (end) {
        why = c->sh.why;
    }
    if (detached) {
        /* It may have been put there again since it was taken out: the worker's last word came
         * between. Nothing comes after it. */
        tls_worker_unnotify(c);
    }
    tls_unlock(c);
    if (out.head) {
        tls_write_out(c, &out);
    }
    tls_release(&done);
    if (detached) {
        one_less(c); /* perhaps the last: c is gone */
        return;
    }
    if (open && !c->opened && c->state == TLS_RUNNING && !c->user_closed) {
        opened(c, &peer);
    }
    deliver(c);
    if (c->state != TLS_RUNNING) {
        return;
    }
    if (c->tx_refused && tx < c->pool->o.send_max / 2 && !c->user_closed) {
        c->tx_refused = false;
        if (c->cb.on_drain) {
            c->cb.on_drain(c->ctx, c);
        }
    }
    if (!c->replaced && volume >= c->pool->o.replace_bytes && !c->user_closed) {
        c->replaced = true;
        if (c->cb.on_replace) {
            c->cb.on_replace(c->ctx, c);
        }
    }
    if (c->state == TLS_RUNNING && read_on) {
        tls_start_reading(c);
    }
    if (end && c->state == TLS_RUNNING && !c->deliver.head) {
        ended(c, &why);
    }
}

/* ---- the beginning ---- */

static void set_address(struct tls_conn *c, const struct sockaddr *a)
{
    char ip[INET6_ADDRSTRLEN] = "?", scope[UV_IF_NAMESIZE + 2] = "";
    if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)(const void *)a;
        if (IN6_IS_ADDR_V4MAPPED(&s->sin6_addr)) {
            uv_inet_ntop(AF_INET, s->sin6_addr.s6_addr + 12, ip, sizeof ip);
            snprintf(c->address, sizeof c->address, "%s:%u", ip, ntohs(s->sin6_port));
        } else {
            size_t n = sizeof scope - 1;
            uv_ip6_name(s, ip, sizeof ip);
            if (s->sin6_scope_id && uv_if_indextoname(s->sin6_scope_id, scope + 1, &n) == 0) {
                scope[0] = '%';
            }
            snprintf(c->address, sizeof c->address, "[%s%s]:%u", ip, scope, ntohs(s->sin6_port));
        }
    } else {
        const struct sockaddr_in *s = (const struct sockaddr_in *)(const void *)a;
        uv_ip4_name(s, ip, sizeof ip);
        snprintf(c->address, sizeof c->address, "%s:%u", ip, ntohs(s->sin_port));
    }
    tls_address_key(a, c->addr_key);
}

static void start_tls(struct tls_conn *c)
{
    uv_os_fd_t fd;
    c->state = TLS_RUNNING;
    uv_tcp_nodelay(c->tcp, 1);
    uv_tcp_keepalive(c->tcp, 1, 60);
#ifdef TCP_NOTSENT_LOWAT
    /* What lies unsent in the kernel cannot be overtaken by a more urgent frame: keep it short. */
    if (uv_fileno((const uv_handle_t *)c->tcp, &fd) == 0) {
        int low = NOTSENT;
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
    }
#else
    (void)fd;
#endif
    tls_start_timer(c, c->pool->o.handshake_ms);
    tls_start_reading(c);
    if (!c->server) {
        tls_lock(c);
        tls_worker_ready(c); /* the client speaks first */
        tls_unlock(c);
    }
}

static struct tls_worker *least_loaded(struct tls_pool *p)
{
    struct tls_worker *best = &p->workers[p->next_worker++ % p->n_workers];
    for (unsigned i = 0; i < p->n_workers; i++) {
        if (p->workers[i].load < best->load) {
            best = &p->workers[i];
        }
    }
    return best;
}

static struct tls_conn *make(struct tls_pool *p, bool server, const struct tls_conn_opts *o,
                             const struct tls_conn_cb *cb, void *ctx, struct err *e)
{
    if (p->closing) {
        err_set(e, ERR_CANCELLED, "the node is stopping");
        return NULL;
    }
    if (p->st.conns >= p->o.max_conns) {
        err_set(e, ERR_LIMIT, "%u connections are open, which is the limit", p->st.conns);
        return NULL;
    }
    struct tls_conn *c = calloc(1, sizeof *c);
    if (!c || uv_timer_init(p->loop, &c->timer)) {
        free(c);
        err_set(e, ERR_NOMEM, "no memory for a connection");
        return NULL;
    }
    c->pool = p;
    c->worker = least_loaded(p);
    c->server = server;
    c->trusted = o && o->trusted ? o->trusted : p->o.trusted;
    c->trusted_ctx = o && o->trusted ? o->trusted_ctx : p->o.trusted_ctx;
    if (o && o->expect) {
        c->has_expect = true;
        memcpy(c->expect, o->expect, WIRE_ID);
    }
    c->cb = *cb;
    c->ctx = ctx;
    c->timer.data = c;
    c->why.alert = -1;
    c->next = p->conns;
    if (p->conns) {
        p->conns->prev = c;
    }
    p->conns = c;
    c->worker->load++;
    p->st.conns++;
    return c;
}

int tls_conn_attach(struct tls_pool *p, uv_tcp_t *tcp, bool server, const struct tls_conn_opts *o,
                    const struct tls_conn_cb *cb, void *ctx, struct tls_conn **out, struct err *e)
{
    struct sockaddr_storage a = {0};
    int n = sizeof a;
    int r = uv_tcp_getpeername(tcp, (struct sockaddr *)&a, &n);
    if (r) {
        return err_set(e, ERR_NET, "the other side is gone already: %s", uv_strerror(r));
    }
    struct tls_conn *c = make(p, server, o, cb, ctx, e);
    if (!c) {
        return e ? e->code : ERR_LIMIT;
    }
    c->tcp = tcp;
    tcp->data = c;
    set_address(c, (struct sockaddr *)&a);
    start_tls(c);
    *out = c;
    return 0;
}

static void on_connect(uv_connect_t *req, int status)
{
    struct tls_conn *c = req->data;
    if (c->state != TLS_CONNECTING) {
        return; /* closed meanwhile */
    }
    if (status < 0) {
        char text[200];
        snprintf(text, sizeof text, "%s cannot be reached: %s", c->address, uv_strerror(status));
        tls_finish(c, TLS_END_CONNECT, ERR_NET, text);
        return;
    }
    start_tls(c);
}

int tls_conn_connect(struct tls_pool *p, const struct sockaddr *addr, const struct tls_conn_opts *o,
                     const struct tls_conn_cb *cb, void *ctx, struct tls_conn **out, struct err *e)
{
    uv_tcp_t *tcp = calloc(1, sizeof *tcp);
    struct tls_conn *c = tcp ? make(p, false, o, cb, ctx, e) : NULL;
    if (!c) {
        int code = tcp ? (e ? e->code : ERR_LIMIT) : err_set(e, ERR_NOMEM, "no memory to connect");
        free(tcp);
        return code;
    }
    c->tcp = tcp;
    set_address(c, addr);
    uv_tcp_init(p->loop, tcp); /* without a socket yet: cannot fail */
    tcp->data = c;
    c->state = TLS_CONNECTING;
    c->connect.data = c;
    p->st.connected++;
    int r = uv_tcp_connect(&c->connect, tcp, addr, on_connect);
    if (r) {
        on_connect(&c->connect, r); /* no route, for one; on_close comes from the loop */
    } else {
        tls_start_timer(c, p->o.connect_ms);
    }
    *out = c;
    return 0;
}

/* ---- the owner's calls ---- */

/* With the lock: do a small send now; it leaves in tls_flush. What else came of it is left to the
 * next round of the loop, since no callback may run inside tls_conn_send. */
static void send_now(struct tls_conn *c)
{
    if (!tls_worker_inline(c)) {
        tls_worker_ready(c);
        return;
    }
    c->due = c->pool->due = true;
    if (c->sh.frames.head || c->sh.ended) {
        tls_worker_notify(c);
    }
}

int tls_conn_send(struct tls_conn *c, const void *body, size_t body_n, const struct tls_raw *raw,
                  enum tls_priority pr)
{
    if (c->state != TLS_RUNNING || !c->opened || c->user_closed) {
        return ERR_CANCELLED;
    }
    size_t raw_n = raw ? raw->n : 0;
    uint8_t head[WIRE_HEAD];
    if (frame_head(head, body_n, raw_n) || (unsigned)pr >= TLS_PRIORITIES) {
        return ERR_LIMIT;
    }
    struct tls_out *o = malloc(sizeof *o + WIRE_HEAD + body_n);
    if (!o) {
        return ERR_NOMEM;
    }
    o->next = NULL;
    o->raw = raw ? *raw : (struct tls_raw){0};
    o->head_n = WIRE_HEAD + body_n;
    o->sent = 0;
    memcpy(o->head, head, WIRE_HEAD);
    memcpy(o->head + WIRE_HEAD, body, body_n);
    size_t n = o->head_n + raw_n, max = c->pool->o.send_max;
    max += pr == TLS_CONTROL ? max / 4 : 0;
    int r = 0;
    tls_lock(c);
    if (c->sh.ended) {
        r = ERR_CANCELLED;
    } else if (c->sh.tx_bytes && c->sh.tx_bytes + n > max) {
        r = ERR_BUSY;
        c->tx_refused = true;
    } else {
        struct tls_outs *l = &c->sh.tx[pr];
        if (l->tail) {
            l->tail->next = o;
        } else {
            l->head = o;
        }
        l->tail = o;
        c->sh.tx_bytes += n;
        send_now(c);
    }
    tls_unlock(c);
    if (r) {
        free(o);
    }
    return r;
}

size_t tls_conn_queued(struct tls_conn *c)
{
    tls_lock(c);
    size_t n = c->sh.tx_bytes + c->sh.out_bytes;
    tls_unlock(c);
    return n;
}

void tls_conn_promote(struct tls_conn *c)
{
    tls_lock(c);
    c->sh.promoted = true;
    tls_worker_ready(c);
    tls_unlock(c);
}

void tls_conn_pause(struct tls_conn *c)
{
    c->paused = true;
}

void tls_conn_resume(struct tls_conn *c)
{
    c->paused = false;
    tls_lock(c);
    if (!c->sh.detached) {
        tls_worker_notify(c);
    }
    tls_unlock(c);
}

void tls_conn_close(struct tls_conn *c)
{
    if (c->state == TLS_CONNECTING || (c->state == TLS_RUNNING && !c->opened)) {
        tls_conn_abort(c);
        return;
    }
    if (c->state != TLS_RUNNING || c->user_closed) {
        return;
    }
    c->user_closed = true;
    tls_start_timer(c, TLS_FLUSH_MS);
    tls_lock(c);
    c->sh.close = true;
    tls_worker_ready(c);
    tls_worker_notify(c); /* frees what waits for delivery */
    tls_unlock(c);
}

void tls_conn_abort(struct tls_conn *c)
{
    c->user_closed = true;
    tls_finish(c, TLS_END_LOCAL, ERR_OK, "closed here");
}

void tls_conn_set_owner(struct tls_conn *c, const struct tls_conn_cb *cb, void *ctx)
{
    if (cb) {
        c->cb = *cb;
    }
    c->ctx = ctx;
}

void *tls_conn_ctx(const struct tls_conn *c)
{
    return c->ctx;
}

bool tls_conn_is_server(const struct tls_conn *c)
{
    return c->server;
}

const char *tls_conn_address(const struct tls_conn *c)
{
    return c->address;
}

void tls_conn_bytes(struct tls_conn *c, uint64_t *in, uint64_t *out)
{
    tls_lock(c);
    *in = c->sh.plain_in;
    *out = c->sh.plain_out;
    tls_unlock(c);
}
