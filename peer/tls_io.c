/* SPDX-License-Identifier: MIT
 * tls_io.c: the socket of a connection: ciphertext between the kernel and the worker's mailbox.
 * Loop thread; see tls_internal.h. */
#include "peer/tls_internal.h"

#include <stdlib.h>
#include <string.h>

enum { LINGER_BYTES = 4 << 20, SENDABLE_BLOCKS = 64, FLUSH_ROUNDS = 64 };

/* ---- in ---- */

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    struct tls_conn *c = h->data;
    struct tls_pool *p = c->pool;
    (void)hint;
    if (!p->rbuf) {
        p->rbuf = tls_block_new(TLS_READ);
    }
    *buf = p->rbuf ? uv_buf_init((char *)p->rbuf->p, c->opened ? TLS_READ : TLS_READ_EARLY)
                   : uv_buf_init(NULL, 0);
}

static void stop_reading(struct tls_conn *c)
{
    if (c->reading) {
        uv_read_stop((uv_stream_t *)c->tcp);
        c->reading = false;
    }
}

/* Pass `n` bytes of the pool's read buffer on: large ones with the buffer, small ones copied,
 * behind others if there is room, so that bytes that come one by one do not cost a block each. */
static int pass_on(struct tls_conn *c, size_t n)
{
    struct tls_pool *p = c->pool;
    struct tls_block *b = NULL;
    if (n >= TLS_READ / 4) {
        b = p->rbuf;
        b->n = n;
        p->rbuf = NULL;
    }
    tls_lock(c);
    struct tls_block *tail = c->sh.in.tail;
    if (!b && tail && tail->cap - tail->n >= n) {
        memcpy(tail->p + tail->n, p->rbuf->p, n);
        tail->n += n;
    } else {
        if (!b && (b = tls_block_new(n < 4096 ? 4096 : n))) {
            memcpy(b->p, p->rbuf->p, n);
            b->n = n;
        }
        if (!b) {
            tls_unlock(c);
            return -1;
        }
        tls_blocks_add(&c->sh.in, b);
        c->sh.in_bytes += b->cap;
    }
    /* A TLS 1.3 client is done before this side and may send much at once: what it sends waits in
     * the kernel until the worker has seen the end of the handshake, and does not count before it.
     */
    c->sh.in_stalled = c->sh.in_bytes >= (c->opened ? TLS_WIRE_MAX : TLS_READ_EARLY);
    bool stop = c->sh.in_stalled, done = tls_worker_inline(c);
    if (!done) {
        tls_worker_ready(c);
    }
    tls_unlock(c);
    if (stop) {
        stop_reading(c);
    }
    if (done) {
        tls_conn_pump(c);
    }
    return 0;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct tls_conn *c = s->data;
    (void)buf;
    if (n == 0) {
        return;
    }
    if (n == UV_ENOBUFS) {
        tls_finish(c, TLS_END_INTERNAL, ERR_NOMEM, "no memory to receive");
        return;
    }
    if (n < 0) {
        c->eof = true;
        c->io_error = n == UV_EOF ? c->io_error : (int)n;
        stop_reading(c);
        if (c->state == TLS_LINGER) {
            tls_enter_closing(c);
            return;
        }
        tls_lock(c);
        c->sh.eof = true;
        tls_worker_ready(c);
        tls_unlock(c);
        return;
    }
    if (c->state == TLS_LINGER || !c->opened) {
        c->received += (size_t)n;
        if (c->state == TLS_LINGER) {
            if (c->received > LINGER_BYTES) {
                tls_enter_closing(c);
            }
            return;
        }
        if (c->received > c->pool->o.handshake_bytes) {
            tls_finish(c, TLS_END_LIMIT, ERR_LIMIT,
                       "the peer sent too much before the handshake was done");
            return;
        }
    }
    if (pass_on(c, (size_t)n)) {
        tls_finish(c, TLS_END_INTERNAL, ERR_NOMEM, "no memory to receive");
    }
}

void tls_start_reading(struct tls_conn *c)
{
    if (!c->reading && !c->eof && uv_read_start((uv_stream_t *)c->tcp, on_alloc, on_read) == 0) {
        c->reading = true;
    }
}

/* ---- out ---- */

struct write_req {
    uv_write_t req;
    struct tls_conn *c;
    struct tls_blocks list;
};

/* Blocks went to the kernel (or nowhere): the worker may make others. */
static void written(struct tls_conn *c, struct tls_blocks *l)
{
    size_t caps = 0;
    for (const struct tls_block *b = l->head; b; b = b->next) {
        caps += b->cap;
    }
    tls_blocks_free(l);
    tls_lock(c);
    c->sh.out_bytes -= caps;
    if (c->sh.tx_stalled && c->sh.out_bytes < TLS_WIRE_MAX / 2) {
        c->sh.tx_stalled = false;
        tls_worker_ready(c);
    }
    tls_unlock(c);
}

static void write_error(struct tls_conn *c, int status)
{
    if (c->write_failed || c->state == TLS_CLOSING) {
        return;
    }
    c->write_failed = true;
    c->io_error = status;
    /* The other side may have said why before it closed: read that first. */
    if (c->state == TLS_RUNNING) {
        tls_start_timer(c, c->pool->o.linger_ms);
    } else {
        tls_enter_closing(c);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct write_req *w = (struct write_req *)req->data;
    struct tls_conn *c = w->c;
    written(c, &w->list);
    free(w);
    if (status < 0) {
        write_error(c, status);
    } else {
        tls_maybe_shutdown(c);
    }
}

static unsigned gather(const struct tls_blocks *l, uv_buf_t bufs[SENDABLE_BLOCKS])
{
    unsigned n = 0;
    for (struct tls_block *b = l->head; b && n < SENDABLE_BLOCKS; b = b->next) {
        bufs[n++] = uv_buf_init((char *)b->p + b->off, (unsigned)(b->n - b->off));
    }
    return n;
}

/* Takes all blocks of *l. What the kernel takes at once needs no request and no callback. */
void tls_write_out(struct tls_conn *c, struct tls_blocks *l)
{
    uv_buf_t bufs[SENDABLE_BLOCKS];
    struct tls_blocks gone = {0};
    bool keep = (c->state == TLS_RUNNING || c->state == TLS_LINGER) && !c->write_failed;
    while (keep && l->head) {
        int r = uv_try_write((uv_stream_t *)c->tcp, bufs, gather(l, bufs));
        if (r <= 0) {
            break; /* the kernel is full, or an error that uv_write will report */
        }
        for (size_t left = (size_t)r; left;) {
            struct tls_block *b = l->head;
            size_t k = b->n - b->off < left ? b->n - b->off : left;
            b->off += k;
            left -= k;
            if (b->off == b->n) {
                l->head = b->next;
                l->tail = b->next ? l->tail : NULL;
                tls_blocks_add(&gone, b);
            }
        }
    }
    while (keep && l->head) { /* one request for up to SENDABLE_BLOCKS */
        struct write_req *w = malloc(sizeof *w);
        if (!w) {
            tls_finish(c, TLS_END_INTERNAL, ERR_NOMEM, "no memory to send");
            break;
        }
        unsigned n = gather(l, bufs);
        w->c = c;
        w->req.data = w;
        w->list = (struct tls_blocks){0};
        for (unsigned i = 0; i < n; i++) {
            struct tls_block *b = l->head;
            l->head = b->next;
            l->tail = b->next ? l->tail : NULL;
            tls_blocks_add(&w->list, b);
        }
        int r = uv_write(&w->req, (uv_stream_t *)c->tcp, bufs, n, on_written);
        if (r) {
            TLS_SPLICE(&gone, &w->list);
            free(w);
            write_error(c, r);
            break;
        }
    }
    TLS_SPLICE(&gone, l);
    if (gone.head) {
        written(c, &gone);
    }
}

void tls_write_due(struct tls_conn *c)
{
    struct tls_blocks out = {0};
    c->due = false;
    tls_lock(c);
    TLS_SPLICE(&out, &c->sh.out);
    tls_unlock(c);
    if (out.head) {
        tls_write_out(c, &out);
    }
}

void tls_flush(struct tls_conn *c)
{
    /* Whoever gets bytes back may have others to send: they go with these. */
    for (int i = 0; i < FLUSH_ROUNDS; i++) {
        struct tls_outs done = {0};
        tls_lock(c);
        TLS_SPLICE(&done, &c->sh.done);
        tls_unlock(c);
        if (!done.head) {
            break;
        }
        tls_release(&done);
    }
    tls_write_due(c);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    struct tls_conn *c = req->data;
    if (status < 0 && status != UV_ECANCELED) {
        tls_enter_closing(c);
    }
}

/* Lingering: once all is written, say so to the other side's kernel. */
void tls_maybe_shutdown(struct tls_conn *c)
{
    if (c->state != TLS_LINGER || c->shut) {
        return;
    }
    tls_lock(c);
    bool all = c->sh.out_bytes == 0;
    tls_unlock(c);
    if (!all) {
        return;
    }
    c->shut = true;
    c->shutdown.data = c;
    if (c->why.end == TLS_END_PEER || c->eof || c->write_failed ||
        uv_shutdown(&c->shutdown, (uv_stream_t *)c->tcp, on_shutdown)) {
        tls_enter_closing(c); /* the other side waits for us, or is gone */
    }
}
