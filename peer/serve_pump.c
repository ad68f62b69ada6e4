/* SPDX-License-Identifier: MIT
 * serve_pump.c: see serve.h. Which chunk goes next: limits, reads, sending. */
#include "peer/serve_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>

/* ---- limits ---- */

void serve_bucket_set(struct serve_bucket *b, uint64_t rate, uint64_t now)
{
    b->rate = (double)rate;
    b->have = 0;
    b->at = now;
}

/* Nanoseconds until something may be sent, 0: now. */
static uint64_t bucket_wait(struct serve_bucket *b, uint64_t now)
{
    if (b->rate <= 0) {
        return 0;
    }
    b->have += b->rate * (double)(now - b->at) / 1e9;
    b->at = now;
    if (b->have > 0) {
        b->have = 0; /* an idle time saves nothing up */
    }
    return b->have >= 0 ? 0 : (uint64_t)(-b->have / b->rate * 1e9) + 1;
}

static void bucket_take(struct serve_bucket *b, size_t n)
{
    if (b->rate > 0) {
        b->have -= (double)n;
    }
}

/* ---- pieces ---- */

static void piece_free(struct serve_piece *x)
{
    if (x->p) {
        if (x->prev) {
            x->prev->next = x->next;
        } else {
            x->p->pieces = x->next;
        }
        if (x->next) {
            x->next->prev = x->prev;
        }
        x->p->in_pipe[x->prio]--;
        x->p->st.reading--;
        if (!x->sent) { /* it cost nothing */
            x->p->st.credit += x->n;
            x->p->limit.have += (double)x->n;
        }
    }
    if (!x->sent) {
        x->s->limit.have += (double)x->n;
    }
    x->s->n_pieces--;
    free(x);
}

/* Its bytes are not needed any more. */
static void piece_release(struct serve_piece *x)
{
    if (x->block) {
        serve_block_unref(x->block);
    } else {
        x->s->o.storage->release(x->s->o.storage_ctx, &x->rd);
    }
}

static void piece_sent(void *ctx, const uint8_t *bytes)
{
    struct serve_piece *x = ctx;
    struct serve *s = x->s;
    (void)bytes;
    piece_release(x);
    piece_free(x);
    if (s->closing) {
        serve_close_if_idle(s);
    } else {
        serve_pump(s);
    }
}

static void piece_failed(struct serve_piece *x, int code)
{
    struct serve_peer *p = x->p;
    int why = code == ERR_NOTFOUND ? SHOAL__REFUSE_REASON__REFUSE_NOT_HELD
              : code == ERR_DIGEST ? SHOAL__REFUSE_REASON__REFUSE_DAMAGED
                                   : SHOAL__REFUSE_REASON__REFUSE_BUSY;
    serve_drop_pieces(p, x->id);
    serve_drop(p, x->id);
    serve_refuse_get(p, x->id, why, why == SHOAL__REFUSE_REASON__REFUSE_BUSY ? 200 : 0, x->prio,
                     true);
}

/* A read is back, on the loop thread. */
static void piece_read(struct serve_piece *x)
{
    struct serve *s = x->s;
    if (x->code) {
        if (x->p && !x->cancelled) {
            piece_failed(x, x->code);
        }
        piece_free(x);
        return;
    }
    if (!x->p || x->cancelled) {
        piece_release(x);
        piece_free(x);
        return;
    }
    Shoal__Data d = SHOAL__DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    struct tls_raw raw = {x->rd.p, x->rd.n, piece_sent, x};
    d.id = x->id;
    d.chunk = x->rd.chunk;
    d.last = !serve_get_open(x->p, x->id);
    for (const struct serve_piece *o = x->p->pieces; o && d.last; o = o->next) {
        d.last = o == x || o->sent || o->id != x->id; /* reads come back in any order */
    }
    d.source = (Shoal__Source)x->source;
    f.kind_case = SHOAL__FRAME__KIND_DATA;
    f.data = &d;
    int r = x->rd.n == x->n ? serve_put(x->p->c, &f, &raw, serve_tls_prio(x->prio)) : ERR_DIGEST;
    if (r) {
        if (r != ERR_CANCELLED) {
            piece_failed(x, r);
        }
        piece_release(x);
        piece_free(x);
        return;
    }
    x->sent = true;
    s->st.bytes += x->n;
    s->st.chunks++;
    x->p->st.bytes += x->n;
    x->p->st.chunks++;
}

void serve_take_ready(struct serve *s)
{
    pthread_mutex_lock(&s->mu);
    struct serve_piece *x = s->ready;
    s->ready = NULL;
    s->ready_tail = &s->ready;
    pthread_mutex_unlock(&s->mu);
    while (x) {
        struct serve_piece *next = x->ready;
        piece_read(x);
        x = next;
    }
}

static void on_read(struct storage_read *r, int code)
{
    struct serve_piece *x = r->user;
    struct serve *s = x->s;
    x->code = code;
    x->ready = NULL;
    pthread_mutex_lock(&s->mu);
    bool first = !s->ready;
    *s->ready_tail = x;
    s->ready_tail = &x->ready;
    if (first) {
        uv_async_send(&s->async); /* with the lock: the handle lives while a read is out */
    }
    pthread_mutex_unlock(&s->mu);
}

void serve_on_async(uv_async_t *a)
{
    struct serve *s = a->data;
    serve_pump(s);
    serve_close_if_idle(s);
}

/* ---- what next ---- */

static bool pipe_full(const struct serve_peer *p, unsigned prio)
{
    uint32_t n = 0;
    for (unsigned q = prio; q < SERVE_PRIOS; q++) {
        n += p->in_pipe[q];
    }
    return n >= SERVE_PIPE;
}

/* The request at the head of the queue is over before it is served. */
static bool head_ends(struct serve_peer *p, unsigned prio, uint64_t now)
{
    struct serve_job *j = p->jobs[prio];
    if (j->deadline && now > j->deadline) {
        serve_refuse_get(p, j->id, SHOAL__REFUSE_REASON__REFUSE_DEADLINE, 0, prio, j->begun);
        serve_drop_pieces(p, j->id);
        serve_drop(p, j->id);
        return true;
    }
    return false;
}

/* Start the next chunk of the peer at this priority. False: none can start now; *wait becomes the
 * time after which one may, if that is a matter of time. */
static bool start(struct serve_peer *p, unsigned prio, uint64_t now, uint64_t *wait)
{
    struct serve *s = p->s;
    while (p->jobs[prio] && head_ends(p, prio, now)) {
    }
    struct serve_job *j = p->jobs[prio];
    if (!j || pipe_full(p, prio)) {
        return false;
    }
    size_t n = storage_chunk_len(j->size, j->at);
    if (p->st.credit < n) {
        return false;
    }
    uint64_t w = bucket_wait(&s->limit, now), wp = bucket_wait(&p->limit, now);
    w = w > wp ? w : wp;
    if (w) {
        s->st.limited++;
        *wait = w < *wait ? w : *wait;
        return false;
    }
    if (s->o.yield_ms) {
        unsigned ms = s->o.yield_ms(s->o.ctx, prio);
        if (ms) {
            s->st.yields++;
            s->yield_until[prio] = now + ms * SERVE_MS_NS;
            return false;
        }
    }
    struct serve_piece *x = calloc(1, sizeof *x);
    if (!x) {
        *wait = 100 * SERVE_MS_NS < *wait ? 100 * SERVE_MS_NS : *wait;
        return false;
    }
    x->rd.key = j->key;
    x->rd.chunk = j->at;
    x->rd.prio = (uint8_t)prio;
    x->rd.done = on_read;
    x->rd.user = x;
    x->s = s;
    x->p = p;
    x->id = j->id;
    x->source = j->source;
    x->prio = prio;
    x->n = n;
    x->next = p->pieces;
    if (x->next) {
        x->next->prev = x;
    }
    p->pieces = x;
    p->in_pipe[prio]++;
    p->st.reading++;
    s->n_pieces++;
    p->st.credit -= n;
    bucket_take(&s->limit, n);
    bucket_take(&p->limit, n);
    j->begun = true;
    x->block = j->block;
    if (x->block) { /* it is there already */
        x->block->refs++;
        x->rd.p = x->block->p;
        x->rd.n = x->block->n;
        int code = j->tell ? serve_block_digest(p, j) : 0;
        serve_job_end(p, j);
        if (code) {
            serve_block_unref(x->block);
        }
        on_read(&x->rd, code);
        return true;
    }
    if (++j->at == j->end) {
        serve_job_end(p, j);
    }
    s->o.storage->read(s->o.storage_ctx, &x->rd);
    return true;
}

/* One chunk for each peer in turn until nobody can have one. */
static void pump_prio(struct serve *s, unsigned prio, uint64_t now, uint64_t *wait)
{
    bool any = true;
    while (any && s->peers && now >= s->yield_until[prio]) {
        any = false;
        struct serve_peer *p = s->peers, *from = p;
        do {
            if (now >= s->yield_until[prio] && start(p, prio, now, wait)) {
                any = true;
                s->peers = p->next;
            }
            p = p->next;
        } while (p != from);
    }
    if (now < s->yield_until[prio] && s->yield_until[prio] - now < *wait) {
        *wait = s->yield_until[prio] - now;
    }
}

static void on_timer(uv_timer_t *t)
{
    serve_pump(t->data);
}

void serve_pump(struct serve *s)
{
    if (s->closing) {
        serve_take_ready(s);
        return;
    }
    if (s->pumping) {
        s->again = true;
        return;
    }
    s->pumping = true;
    uint64_t wait;
    do {
        s->again = false;
        wait = UINT64_MAX;
        serve_take_ready(s);
        uint64_t now = clock_ns();
        for (unsigned q = SERVE_PRIOS; q-- > 0;) {
            pump_prio(s, q, now, &wait);
        }
        pthread_mutex_lock(&s->mu);
        s->again |= s->ready != NULL; /* reads that were answered at once */
        pthread_mutex_unlock(&s->mu);
    } while (s->again);
    s->pumping = false;
    if (wait != UINT64_MAX) {
        uv_timer_start(&s->timer, on_timer, wait / SERVE_MS_NS + 1, 0);
    }
}
