/* SPDX-License-Identifier: MIT
 * serve.c: see serve.h. Peers and their requests; opening and closing. */
#include "peer/serve_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>

/* ---- messages ---- */

int serve_put(struct tls_conn *c, const Shoal__Frame *f, const struct tls_raw *raw,
              enum tls_priority pr)
{
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    int r = codec_encode(f, raw ? (uint32_t)raw->n : 0, &b, NULL);
    r = r ? r : tls_conn_send(c, b.p, b.n, raw, pr);
    buf_free(&b);
    return r;
}

int serve_refuse(struct tls_conn *c, uint64_t id, int reason, uint32_t retry_ms,
                 enum tls_priority pr)
{
    Shoal__Refuse x = SHOAL__REFUSE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.id = id;
    x.reason = (Shoal__RefuseReason)reason;
    x.text = (char *)(uintptr_t)codec_refuse_text(reason);
    x.retry_ms = retry_ms;
    f.kind_case = SHOAL__FRAME__KIND_REFUSE;
    f.refuse = &x;
    return serve_put(c, &f, NULL, pr);
}

void serve_refuse_get(struct serve_peer *p, uint64_t id, int reason, uint32_t retry_ms,
                      unsigned prio, bool late)
{
    p->s->st.refused[(unsigned)reason < SERVE_REASONS ? reason : 0]++;
    serve_refuse(p->c, id, reason, retry_ms, late ? serve_tls_prio(prio) : TLS_CONTROL);
}

int serve_send_digests(struct serve_peer *p, struct serve_job *j)
{
    Shoal__Digests d = SHOAL__DIGESTS__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    const struct serve_opts *o = &p->s->o;
    uint32_t n = j->end - j->at;
    enum basis b = BASIS_NONE;
    uint8_t object[SHA256_SIZE];
    uint8_t(*sha)[SHA256_SIZE] = malloc((size_t)n * SHA256_SIZE);
    if (!sha) {
        return ERR_NOMEM;
    }
    if (!o->storage->digests(o->storage_ctx, j->key, j->at, n, sha, &b, object)) {
        free(sha);
        return ERR_NOTFOUND;
    }
    d.id = j->id;
    d.object_size = j->size;
    d.first_chunk = j->at;
    d.sha256.data = sha[0];
    d.sha256.len = (size_t)n * SHA256_SIZE;
    d.source = (Shoal__Source)b;
    d.object_digest.data = object;
    d.object_digest.len = sizeof object;
    f.kind_case = SHOAL__FRAME__KIND_DIGESTS;
    f.digests = &d;
    j->source = (uint32_t)b;
    int r = serve_put(p->c, &f, NULL, serve_tls_prio(j->prio));
    free(sha);
    return r;
}

/* ---- requests ---- */

bool serve_get_open(const struct serve_peer *p, uint64_t id)
{
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        for (const struct serve_job *j = p->jobs[q]; j; j = j->next) {
            if (j->id == id) {
                return true;
            }
        }
    }
    return serve_lease_open(p, id);
}

static void unlink_job(struct serve_peer *p, unsigned q, struct serve_job **l)
{
    struct serve_job *j = *l;
    *l = j->next;
    if (!*l) {
        p->tail[q] = l;
    }
    p->n_jobs--;
    if (j->block) {
        serve_block_unref(j->block);
    }
    free(j);
}

void serve_job_end(struct serve_peer *p, struct serve_job *j)
{
    for (struct serve_job **l = &p->jobs[j->prio]; *l; l = &(*l)->next) {
        if (*l == j) {
            unlink_job(p, j->prio, l);
            return;
        }
    }
}

int serve_job_add(struct serve_peer *p, const struct serve_job *x)
{
    struct serve_job *j = malloc(sizeof *j);
    if (!j) {
        return ERR_NOMEM;
    }
    *j = *x;
    j->next = NULL;
    *p->tail[j->prio] = j;
    p->tail[j->prio] = &j->next;
    p->n_jobs++;
    return 0;
}

void serve_drop(struct serve_peer *p, uint64_t id)
{
    serve_lease_drop(p, id);
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        for (struct serve_job **l = &p->jobs[q]; *l;) {
            if ((*l)->id == id) {
                unlink_job(p, q, l);
            } else {
                l = &(*l)->next;
            }
        }
    }
}

/* Nothing more is sent for this request. */
void serve_drop_pieces(struct serve_peer *p, uint64_t id)
{
    for (struct serve_piece *x = p->pieces; x; x = x->next) {
        if (x->id == id) {
            x->cancelled = true;
        }
    }
}

/* ---- peers ---- */

struct serve_peer *serve_peer_add(struct serve *s, struct tls_conn *c)
{
    struct serve_peer *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    p->s = s;
    p->c = c;
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        p->tail[q] = &p->jobs[q];
    }
    serve_bucket_set(&p->limit, s->o.peer_bytes_s, clock_ns());
    if (s->peers) {
        p->next = s->peers;
        p->prev = s->peers->prev;
        p->prev->next = p->next->prev = p;
    } else {
        s->peers = p->next = p->prev = p;
    }
    return p;
}

void serve_peer_remove(struct serve_peer *p)
{
    struct serve *s = p->s;
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        while (p->jobs[q]) {
            unlink_job(p, q, &p->jobs[q]);
        }
    }
    serve_lease_drop_all(p);
    s->n_lease_peers -= p->takes_leases;
    for (struct serve_piece *x = p->pieces; x; x = x->next) {
        x->p = NULL; /* not unlinked by piece_free then; the list is gone */
    }
    if (p->next == p) {
        s->peers = NULL;
    } else {
        p->prev->next = p->next;
        p->next->prev = p->prev;
        s->peers = s->peers == p ? p->next : s->peers;
    }
    free(p);
}

/* Can the limits keep this deadline, given what waits before it? */
static bool in_time(const struct serve_peer *p, const struct serve_job *x)
{
    double rate = p->limit.rate, total = p->s->limit.rate;
    if (total > 0 && (rate <= 0 || total < rate)) {
        rate = total;
    }
    if (rate <= 0 || !x->deadline) {
        return true;
    }
    double bytes = (double)(x->end - x->at) * STORAGE_CHUNK;
    for (unsigned q = x->prio; q < SERVE_PRIOS; q++) {
        for (const struct serve_job *j = p->jobs[q]; j; j = j->next) {
            bytes += (double)(j->end - j->at) * STORAGE_CHUNK;
        }
    }
    return (bytes - STORAGE_CHUNK) / rate * 1e9 <= (double)(x->deadline - clock_ns());
}

int serve_on_get(struct serve_peer *p, const Shoal__Get *g, struct err *e)
{
    struct serve *s = p->s;
    const struct serve_opts *o = &s->o;
    struct serve_job x = {.id = g->id, .at = g->first_chunk};
    x.key.kind = (uint8_t)g->object->kind;
    x.key.layer = (uint16_t)g->object->layer;
    x.key.index = g->object->index;
    x.end = g->first_chunk + g->chunk_count;
    x.prio = (unsigned)g->priority < SERVE_PRIOS ? (unsigned)g->priority : 0;
    x.deadline = g->deadline_ms ? clock_ns() + g->deadline_ms * SERVE_MS_NS : 0;
    s->st.gets++;
    p->st.gets++;
    if (serve_get_open(p, g->id)) {
        return err_set(e, ERR_FORMAT, "Get: the id is in use");
    }
    int why = 0;
    uint32_t retry = 0;
    bool known = o->storage->size(o->storage_ctx, x.key, &x.size);
    bool lease = known && g->relay && o->lease && p->takes_leases &&
                 !o->storage->have(o->storage_ctx, x.key);
    if (p->n_jobs + p->n_leases >= SERVE_GETS_MAX) {
        why = SHOAL__REFUSE_REASON__REFUSE_TOO_MANY;
        retry = 500;
    } else if (!known || (!lease && !o->storage->have(o->storage_ctx, x.key))) {
        why = SHOAL__REFUSE_REASON__REFUSE_NOT_HELD;
    } else if (x.end > storage_chunks(x.size)) {
        why = SHOAL__REFUSE_REASON__REFUSE_RANGE;
    } else if (!in_time(p, &x)) {
        why = SHOAL__REFUSE_REASON__REFUSE_RATE;
        retry = 1000;
    }
    if (!why && lease) {
        why = (int)o->lease(o->lease_ctx, p->user, x.key, x.prio, &retry);
        if (!why && serve_lease_add(p, &x, g->want_digests)) {
            why = SHOAL__REFUSE_REASON__REFUSE_BUSY;
            retry = 1000;
        }
        if (!why) {
            return 0;
        }
    } else if (!why && g->want_digests && serve_send_digests(p, &x)) {
        why = SHOAL__REFUSE_REASON__REFUSE_BUSY;
        retry = 1000;
    }
    if (!why && serve_job_add(p, &x)) {
        why = SHOAL__REFUSE_REASON__REFUSE_BUSY;
        retry = 1000;
    }
    if (why) {
        serve_refuse_get(p, g->id, why, retry, x.prio, g->want_digests);
        return 0;
    }
    serve_pump(s);
    return 0;
}

void serve_on_cancel(struct serve_peer *p, uint64_t id)
{
    serve_drop_pieces(p, id);
    serve_drop(p, id);
    serve_pump(p->s);
}

int serve_on_credit(struct serve_peer *p, uint64_t bytes, struct err *e)
{
    if (bytes > WIRE_CREDIT_MAX || p->st.credit + bytes > WIRE_CREDIT_MAX) {
        return err_set(e, ERR_FORMAT, "Credit: more than %u bytes", WIRE_CREDIT_MAX);
    }
    p->st.credit += bytes;
    serve_pump(p->s);
    return 0;
}

void serve_on_drain(struct serve_peer *p)
{
    serve_pump(p->s);
}

void serve_peer_get_stats(const struct serve_peer *p, struct serve_peer_stats *out)
{
    *out = p->st;
    out->open = p->n_jobs;
}

/* ---- life ---- */

int serve_open(uv_loop_t *loop, const struct serve_opts *o, struct serve **out, struct err *e)
{
    struct serve *s = calloc(1, sizeof *s);
    if (!s || pthread_mutex_init(&s->mu, NULL)) {
        free(s);
        return err_set(e, ERR_NOMEM, "no memory to serve peers");
    }
    s->o = *o;
    s->loop = loop;
    s->ready_tail = &s->ready;
    s->kept_tail = &s->kept;
    if (uv_async_init(loop, &s->async, serve_on_async)) {
        pthread_mutex_destroy(&s->mu);
        free(s);
        return err_set(e, ERR_IO, "the event loop takes no more handles");
    }
    uv_timer_init(loop, &s->timer);
    s->async.data = s->timer.data = s;
    s->handles = 2;
    serve_bucket_set(&s->limit, o->bytes_s, clock_ns());
    *out = s;
    return 0;
}

void serve_limits(struct serve *s, uint64_t bytes_s, uint64_t peer_bytes_s)
{
    uint64_t now = clock_ns();
    s->o.bytes_s = bytes_s;
    s->o.peer_bytes_s = peer_bytes_s;
    serve_bucket_set(&s->limit, bytes_s, now);
    struct serve_peer *p = s->peers;
    if (p) {
        do {
            serve_bucket_set(&p->limit, peer_bytes_s, now);
            p = p->next;
        } while (p != s->peers);
    }
    serve_pump(s);
}

void serve_get_stats(const struct serve *s, struct serve_stats *out)
{
    *out = s->st;
    out->bytes_s = s->o.bytes_s;
    out->peer_bytes_s = s->o.peer_bytes_s;
    out->reading = s->n_pieces;
    const struct serve_peer *p = s->peers;
    if (p) {
        do {
            out->open += p->n_jobs;
            p = p->next;
        } while (p != s->peers);
    }
}

static void on_handle_closed(uv_handle_t *h)
{
    struct serve *s = h->data;
    if (--s->handles) {
        return;
    }
    void (*closed)(void *) = s->closed;
    void *ctx = s->closed_ctx;
    pthread_mutex_destroy(&s->mu);
    free(s);
    if (closed) {
        closed(ctx);
    }
}

void serve_close_if_idle(struct serve *s)
{
    if (s->closing && !s->n_pieces && !uv_is_closing((uv_handle_t *)&s->async)) {
        pthread_mutex_lock(&s->mu); /* until the last on_read has let go of the handle */
        pthread_mutex_unlock(&s->mu);
        uv_close((uv_handle_t *)&s->async, on_handle_closed);
        uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    }
}

void serve_close(struct serve *s, void (*closed)(void *ctx), void *ctx)
{
    s->closing = true;
    s->closed = closed;
    s->closed_ctx = ctx;
    serve_lease_close(s);
    serve_take_ready(s);
    serve_close_if_idle(s);
}
