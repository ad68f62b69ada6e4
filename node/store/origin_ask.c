/* SPDX-License-Identifier: MIT
 * origin_ask.c: see share.h: chunks of objects from this store's origin, for the upstream. */
#include "node/store/engine.h"

#include "node/store/chunk.h"
#include "node/store/disk.h"
#include "node/store/incoming.h"
#include "node/store/mirrors.h"
#include "node/store/origin.h"
#include "node/store/sync.h"

#include <stdlib.h>
#include <string.h>

/* One store_origin_get. */
struct ask {
    struct ask *next, *prev;
    struct store *st;
    uint64_t id, size;      /* the object's size */
    uint32_t obj, end;      /* the object; behind the last chunk */
    uint32_t chunk;         /* the one that is coming */
    uint64_t of_mirror;     /* bytes of it that a mirror gave */
    struct chunk_sum *sums; /* of a whole object that the manifest knows, else NULL */
    uint8_t *p;             /* its bytes so far, NULL: none */
    size_t n;
    bool cancelled; /* with asks.mu */
    bool stale;     /* the same: its id was another upstream's */
    struct origin_part part;
    char name[128];
};

struct asks {
    pthread_mutex_t mu;
    pthread_cond_t idle;
    struct ask *head;
    struct store_origin_answers to; /* data NULL: nobody */
    uint32_t calls;                 /* of them, at this moment */
    uint64_t turn;                  /* of `to`: counts who was set */
};

/* One store_origin_spot. */
struct spot {
    struct store *st;
    uint64_t id, turn, off; /* of the object */
    uint32_t obj;
    struct origin_part part;
    size_t got;
    char name[128];
    uint8_t p[]; /* part.size bytes */
};

/* With store.mu. */
static struct asks *need(struct store *st)
{
    if (!st->asks) {
        struct asks *a = calloc(1, sizeof *a);
        if (a && pthread_mutex_init(&a->mu, NULL)) {
            free(a);
            a = NULL;
        }
        if (a && sync_cond_init(&a->idle)) {
            pthread_mutex_destroy(&a->mu);
            free(a);
            a = NULL;
        }
        st->asks = a;
    }
    return st->asks;
}

static struct asks *need_asks(struct store *st)
{
    pthread_mutex_lock(&st->mu);
    struct asks *a = need(st);
    pthread_mutex_unlock(&st->mu);
    return a;
}

void ask_free(struct store *st)
{
    if (st->asks) {
        pthread_cond_destroy(&st->asks->idle);
        pthread_mutex_destroy(&st->asks->mu);
        free(st->asks);
        st->asks = NULL;
    }
}

/* Without locks. */
static void ask_drop(struct ask *k)
{
    if (k->n > k->of_mirror) { /* of a chunk that does not come to its end */
        pthread_mutex_lock(&k->st->mu);
        k->st->s.origin_unused += k->n - k->of_mirror;
        pthread_mutex_unlock(&k->st->mu);
    }
    free(k->p);
    free(k->sums);
    free(k);
}

static bool wanted(struct asks *a, const struct ask *k)
{
    pthread_mutex_lock(&a->mu);
    bool r = !k->cancelled;
    pthread_mutex_unlock(&a->mu);
    return r;
}

/* True: *to may be called until call_end. late: also for what was cancelled meanwhile. */
static bool call_begin(struct asks *a, const struct ask *k, bool late,
                       struct store_origin_answers *to)
{
    pthread_mutex_lock(&a->mu);
    bool r = (!k->cancelled || (late && !k->stale)) && a->to.data;
    a->calls += r;
    *to = a->to;
    pthread_mutex_unlock(&a->mu);
    return r;
}

static void call_end(struct asks *a)
{
    pthread_mutex_lock(&a->mu);
    if (!--a->calls) {
        pthread_cond_broadcast(&a->idle);
    }
    pthread_mutex_unlock(&a->mu);
}

/* p becomes theirs. */
static void give(struct asks *a, struct ask *k, uint32_t chunk, uint8_t *p, size_t n,
                 const uint8_t sha[SHA256_SIZE])
{
    struct store_origin_answers to;
    in_own(k->st, k->obj, chunk, sha);
    if (call_begin(a, k, true, &to)) { /* a whole chunk is paid for */
        to.data(to.ctx, k->id, chunk, p, n, sha);
        call_end(a);
    } else {
        free(p);
    }
}

/* Somebody who is to be called outside of asks.mu; to be ended by call_end. NULL: nobody. */
static struct asks *call_any(struct store *st, struct store_origin_answers *to)
{
    pthread_mutex_lock(&st->mu);
    struct asks *a = st->asks;
    pthread_mutex_unlock(&st->mu);
    if (a) {
        pthread_mutex_lock(&a->mu);
        *to = a->to;
        a->calls++;
        pthread_mutex_unlock(&a->mu);
    }
    return a;
}

void ask_trouble(void *store)
{
    struct store_origin_answers to;
    struct asks *a = call_any(store, &to);
    if (a) {
        if (to.trouble) {
            to.trouble(to.ctx);
        }
        call_end(a);
    }
}

void ask_busy(void *store, uint64_t ms)
{
    struct store_origin_answers to;
    struct asks *a = call_any(store, &to);
    if (a) {
        if (to.busy) {
            to.busy(to.ctx, ms);
        }
        call_end(a);
    }
}

static int chunk_done(struct asks *a, struct ask *k, struct err *e)
{
    struct store *st = k->st;
    uint8_t sha[SHA256_SIZE], *p = k->p;
    size_t n = k->n;
    sha256(p, n, sha);
    pthread_mutex_lock(&st->mu);
    sink_count(st, n - k->of_mirror);
    st->s.mirror_bytes += k->of_mirror;
    pthread_mutex_unlock(&st->mu);
    bool doubted = k->of_mirror && st->disk && disk_chunk_differs(st->disk, k->obj, k->chunk, sha);
    if (k->sums) {
        memcpy(k->sums[k->chunk].sha, sha, sizeof sha);
        if (k->part.mirror && k->chunk + 1 == k->end &&
            disk_doubts(st->disk, k->obj, k->sums) == DISK_CONTRADICTS) {
            mirrors_wrong(st->mirrors, k->part.mirror,
                          k->name); /* it is asked for again, elsewhere */
        }
    }
    k->of_mirror = 0;
    k->n = 0;
    if (doubted) {
        mirrors_wrong(st->mirrors, k->part.mirror, k->name);
        return err_set(e, ERR_DIGEST, "%s: other bytes than are on record", k->name);
    }
    k->p = NULL;
    give(a, k, k->chunk++, p, n, sha);
    return 0;
}

static int on_data(struct origin_part *part, const void *bytes, size_t n, struct err *e)
{
    struct ask *k = part->user;
    struct asks *a = k->st->asks;
    const uint8_t *b = bytes;
    if (!wanted(a, k)) {
        return err_set(e, ERR_CANCELLED, "nobody wants it any more");
    }
    while (n) {
        size_t len = chunk_len(k->size, k->chunk), m = n < len - k->n ? n : len - k->n;
        if (!k->p && !(k->p = malloc(len))) {
            return err_set(e, ERR_NOMEM, "out of memory");
        }
        memcpy(k->p + k->n, b, m);
        k->n += m;
        k->of_mirror += part->at_mirror ? m : 0;
        b += m;
        n -= m;
        int r = k->n == len ? chunk_done(a, k, e) : 0;
        if (r) {
            return r;
        }
    }
    return 0;
}

static void add(struct asks *a, struct ask *k)
{
    pthread_mutex_lock(&a->mu);
    k->prev = NULL;
    k->next = a->head;
    if (k->next) {
        k->next->prev = k;
    }
    a->head = k;
    pthread_mutex_unlock(&a->mu);
}

/* With `others` nothing more comes for its id. */
static void forget(struct asks *a, struct ask *k, bool others)
{
    pthread_mutex_lock(&a->mu);
    *(k->prev ? &k->prev->next : &a->head) = k->next;
    if (k->next) {
        k->next->prev = k->prev;
    }
    for (struct ask *o = a->head; o && others; o = o->next) {
        o->cancelled = o->cancelled || o->id == k->id;
    }
    pthread_mutex_unlock(&a->mu);
}

static void fails(struct asks *a, struct ask *k, const struct err *e)
{
    struct store_origin_answers to;
    bool say = call_begin(a, k, false, &to);
    forget(a, k, say);
    if (say) {
        to.fail(to.ctx, k->id, origin_pause_ms(k->st->origin), e);
        call_end(a);
    }
}

static void submit(struct ask *k);

static void on_done(struct origin_part *part, int code, const struct err *e)
{
    struct ask *k = part->user;
    struct asks *a = k->st->asks;
    if (code == ERR_DIGEST && part->mirror) { /* see chunk_done: from this chunk on, the origin */
        part->sure = true;
        submit(k);
        return;
    }
    if (code) {
        fails(a, k, e);
    } else {
        forget(a, k, false);
    }
    ask_drop(k);
}

/* Chunks k->chunk .. k->end - 1 of the origin. */
static void submit(struct ask *k)
{
    const struct model_object *o = eng_object(k->st, k->obj);
    uint64_t off = (uint64_t)k->chunk * CHUNK_SIZE, end = (uint64_t)k->end * CHUNK_SIZE;
    end = end < o->size ? end : o->size;
    k->part.off = o->offset + off;
    k->part.size = end - off;
    mirrors_submit(k->st->mirrors, k->st->origin, &k->part);
}

/* The origin is asked for chunks from .. to - 1 of k only. */
static bool submit_part(struct asks *a, const struct ask *k, uint32_t from, uint32_t to)
{
    struct ask *part = malloc(sizeof *part);
    if (part) {
        pthread_mutex_lock(&a->mu);
        *part = *k;
        pthread_mutex_unlock(&a->mu);
        part->chunk = from;
        part->end = to;
        part->part.user = part;
        part->part.name = part->name;
        part->part.sure = k->part.sure || k->sums; /* a piece cannot be compared as a whole */
        part->sums = NULL;
        add(a, part);
        submit(part);
    }
    return part != NULL;
}

/* On the writer's thread: what an earlier start has left of the object is not asked for again. */
static void from_partial(void *ctx, struct storage_put *put)
{
    struct ask *k = ctx;
    struct disk_file *f = put->f;
    struct store *st = k->st;
    struct asks *a = st->asks;
    uint32_t from = k->chunk; /* missing so far */
    bool ok = true;
    for (uint32_t i = k->chunk; i < k->end && ok && wanted(a, k); i++) {
        uint8_t sha[SHA256_SIZE], *p = f ? malloc(CHUNK_SIZE) : NULL;
        if (!p || !disk_proven(st->disk, f, i, p, sha)) {
            free(p);
            continue;
        }
        ok = from == i || submit_part(a, k, from, i);
        from = i + 1;
        give(a, k, i, p, chunk_len(k->size, i), sha);
    }
    if (ok && from < k->end && wanted(a, k)) {
        ok = submit_part(a, k, from, k->end);
    }
    if (ok) {
        forget(a, k, false);
    } else {
        struct err e = {0};
        err_set(&e, ERR_NOMEM, "%s: out of memory", k->name);
        fails(a, k, &e);
    }
    ask_drop(k);
}

void store_origin_answer_to(struct store *st, const struct store_origin_answers *to)
{
    struct asks *a = need_asks(st);
    if (!a) {
        return;
    }
    pthread_mutex_lock(&a->mu);
    memset(&a->to, 0, sizeof a->to);
    a->turn++;
    while (a->calls) {
        pthread_cond_wait(&a->idle, &a->mu);
    }
    for (struct ask *k = a->head; k; k = k->next) { /* the ids were the old ones' */
        k->cancelled = k->stale = true;
    }
    if (to) {
        a->to = *to;
    }
    pthread_mutex_unlock(&a->mu);
}

int store_origin_get(struct store *st, uint64_t id, struct object_key key, uint32_t first,
                     uint32_t n, enum store_prio prio, bool sure)
{
    uint32_t obj = store_key_id(st, key);
    struct asks *a = st->origin ? need_asks(st) : NULL;
    if (!a) {
        return ERR_OFFLINE;
    }
    if (obj == MODEL_NONE) {
        return ERR_ARG;
    }
    const struct model_object *o = eng_object(st, obj);
    uint32_t chunks = chunk_count(o->size);
    if (!n || first >= chunks || n > chunks - first) {
        return ERR_ARG;
    }
    struct ask *k = calloc(1, sizeof *k);
    if (!k) {
        return ERR_NOMEM;
    }
    k->st = st;
    k->id = id;
    k->obj = obj;
    k->size = o->size;
    k->chunk = first;
    k->end = first + n;
    model_object_name(st->m, obj, k->name, sizeof k->name);
    k->part = (struct origin_part){.user = k,
                                   .name = k->name,
                                   .file = st->shard_file[o->shard],
                                   .prio = (uint8_t)prio,
                                   .data = on_data,
                                   .done = on_done};
    pthread_mutex_lock(&a->mu);
    bool to = a->to.data != NULL;
    pthread_mutex_unlock(&a->mu);
    enum disk_known known = st->mirrors && st->disk ? disk_known(st->disk, obj) : DISK_UNKNOWN;
    if (known == DISK_MANIFEST && n == chunks) {
        k->sums = calloc(chunks, sizeof *k->sums);
    }
    k->part.sure = sure || known == DISK_MEMBERS || (known == DISK_MANIFEST && !k->sums);
    if (!to) {
        free(k->sums);
        free(k);
        return ERR_OFFLINE;
    }
    add(a, k);
    if (!in_call(st, obj, true, from_partial, k)) {
        submit(k);
    }
    return 0;
}

/* ---- spot checks ---- */

static void spot_says(struct spot *s, int code)
{
    struct asks *a = s->st->asks;
    pthread_mutex_lock(&a->mu);
    struct store_origin_answers to = a->to;
    bool say = to.spot && a->turn == s->turn;
    a->calls += say;
    pthread_mutex_unlock(&a->mu);
    if (say) {
        to.spot(to.ctx, s->id, code, code ? origin_pause_ms(s->st->origin) : 0);
        call_end(a);
    }
    free(s);
}

/* On the writer's thread, behind all chunks. */
static void spot_compare(void *ctx, struct storage_put *put)
{
    struct spot *s = ctx;
    size_t n = (size_t)s->part.size;
    struct err e = {0};
    const uint8_t *at = put->slot ? put->slot->p + s->off : NULL;
    uint8_t *read = at ? NULL : malloc(n);
    int code = at ? 0 : read && put->f ? disk_part(put->f, s->off, read, n, &e) : ERR_NOMEM;
    if (!code) {
        code = memcmp(at ? at : read, s->p, n) == 0 ? 0 : ERR_DIGEST;
    }
    free(read);
    spot_says(s, code);
}

static int spot_data(struct origin_part *part, const void *bytes, size_t n, struct err *e)
{
    struct spot *s = part->user;
    (void)e;
    memcpy(s->p + s->got, bytes, n);
    s->got += n;
    return 0;
}

static void spot_done(struct origin_part *part, int code, const struct err *e)
{
    struct spot *s = part->user;
    (void)e;
    pthread_mutex_lock(&s->st->mu);
    sink_count(s->st, s->got);
    pthread_mutex_unlock(&s->st->mu);
    if (code || !in_call(s->st, s->obj, false, spot_compare, s)) {
        spot_says(s, code == ERR_DIGEST ? ERR_NET : code ? code : ERR_CANCELLED);
    }
}

int store_origin_spot(struct store *st, uint64_t id, struct object_key key, uint64_t off,
                      uint32_t n, enum store_prio prio)
{
    uint32_t obj = store_key_id(st, key);
    struct asks *a = st->origin ? need_asks(st) : NULL;
    if (!a) {
        return ERR_OFFLINE;
    }
    const struct model_object *o = obj == MODEL_NONE ? NULL : eng_object(st, obj);
    struct spot *s = o && n && n <= o->size && off <= o->size - n ? calloc(1, sizeof *s + n) : NULL;
    if (!s) {
        return o ? ERR_NOMEM : ERR_ARG;
    }
    s->st = st;
    s->id = id;
    s->obj = obj;
    s->off = off;
    model_object_name(st->m, obj, s->name, sizeof s->name);
    pthread_mutex_lock(&a->mu);
    s->turn = a->turn;
    pthread_mutex_unlock(&a->mu);
    s->part = (struct origin_part){.user = s,
                                   .name = s->name,
                                   .file = st->shard_file[o->shard],
                                   .off = o->offset + off,
                                   .size = n,
                                   .prio = (uint8_t)prio,
                                   .sure = true,
                                   .data = spot_data,
                                   .done = spot_done};
    origin_submit(st->origin, &s->part);
    return 0;
}

uint64_t store_origin_asked_ms(struct store *st)
{
    return st->origin ? origin_asked_ms(st->origin) : 0;
}

void store_origin_pause(struct store *st, uint64_t ms)
{
    if (st->origin) {
        origin_pause(st->origin, ms);
    }
}

void store_origin_raise(struct store *st, uint64_t id, enum store_prio prio)
{
    struct asks *a = need_asks(st);
    if (!a) {
        return;
    }
    pthread_mutex_lock(&a->mu);
    for (struct ask *k = a->head; k; k = k->next) {
        if (k->id == id && !k->cancelled) {
            mirrors_raise(st->mirrors, st->origin, &k->part, prio);
        }
    }
    pthread_mutex_unlock(&a->mu);
}

void store_origin_cancel(struct store *st, uint64_t id)
{
    struct asks *a = need_asks(st);
    struct ask *gone = NULL;
    if (!a) {
        return;
    }
    pthread_mutex_lock(&a->mu);
    for (struct ask *k = a->head, *next; k; k = next) {
        next = k->next;
        if (k->id != id || k->cancelled) {
            continue;
        }
        k->cancelled = true;
        if (mirrors_drop(st->mirrors, st->origin, &k->part)) { /* it was not running */
            *(k->prev ? &k->prev->next : &a->head) = k->next;
            if (k->next) {
                k->next->prev = k->prev;
            }
            k->next = gone;
            gone = k;
        }
    }
    pthread_mutex_unlock(&a->mu);
    while (gone) {
        struct ask *k = gone;
        gone = k->next;
        ask_drop(k);
    }
}

bool store_has_origin(const struct store *st)
{
    return st->origin != NULL;
}

void store_origin_measured(struct store *st, bool *up, double *bytes_s, double *latency_s)
{
    *up = false;
    *bytes_s = *latency_s = 0;
    if (st->origin) {
        origin_measured(st->origin, up, bytes_s, latency_s);
    }
}
