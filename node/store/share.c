/* SPDX-License-Identifier: MIT
 * share.c: see share.h: names of objects, what is served, and who is told of it. Two threads read
 * for peers, and do what else takes a disk: they tell the upstream what has changed, look at copies
 * that somebody complained of, and compute the SHA-256s of chunks that an older program did not
 * keep. Order of locks: store.mu, the disk's, share.mu; nothing is called with share.mu held. */
#include "node/store/engine.h"

#include "node/store/disk.h"
#include "node/store/incoming.h"
#include "node/store/sync.h"
#include "proto/base/qos.h"

#include <stdlib.h>
#include <string.h>

#define READERS 2
#define READS_MAX 256 /* waiting; more are refused */
#define CHECKS_MAX 64 /* the same for complaints */
#define BUFFERS_KEPT 16
#define TELL_AT_ONCE 1024

struct read_job {
    struct read_job *next;
    struct storage_read *r;
    uint32_t id;
};

struct check {
    uint32_t id, chunk;
};

struct buffer { /* at the beginning of a chunk's memory while it is kept for reuse */
    struct buffer *next;
};

struct share {
    struct store *st;
    pthread_t thread[READERS];
    int n_threads;
    pthread_mutex_t mu; /* what follows */
    pthread_cond_t work, idle;
    struct {
        struct read_job *head, *tail;
    } q[3]; /* by storage_read.prio */
    uint32_t n_reads, n_checks, n_kept;
    struct check checks[CHECKS_MAX];
    struct buffer *kept;
    bool stop, changed, telling, computing;
    bool watching;
    uint32_t no_shas; /* where to look for objects without SHA-256s; MODEL_NONE: all have them */
    uint8_t *told;    /* bits: what the upstream has been told; the teller's while `telling` */
};

/* ---- names ---- */

struct object_key store_key(const struct store *st, uint32_t id)
{
    const struct model_object *o = eng_object(st, id);
    return o->kind == MODEL_EXPERT
               ? (struct object_key){STORE_KEY_EXPERT, (uint16_t)o->layer, o->index}
               : (struct object_key){STORE_KEY_SPINE, 0, id};
}

uint32_t store_key_id(const struct store *st, struct object_key k)
{
    if (k.kind == STORE_KEY_EXPERT) {
        return model_expert_id(st->m, k.layer, k.index);
    }
    bool spine = k.kind == STORE_KEY_SPINE && k.layer == 0 && k.index < st->n_ent &&
                 eng_object(st, k.index)->kind == MODEL_SPINE;
    return spine ? k.index : MODEL_NONE;
}

/* ---- the threads ---- */

static void drop(struct share *h, uint8_t *p)
{
    pthread_mutex_lock(&h->mu);
    bool keep = h->n_kept < BUFFERS_KEPT;
    if (keep) {
        struct buffer *b = (struct buffer *)(void *)p;
        b->next = h->kept;
        h->kept = b;
        h->n_kept++;
    }
    pthread_mutex_unlock(&h->mu);
    if (!keep) {
        free(p);
    }
}

static uint8_t *buffer(struct share *h)
{
    pthread_mutex_lock(&h->mu);
    struct buffer *b = h->kept;
    if (b) {
        h->kept = b->next;
        h->n_kept--;
    }
    pthread_mutex_unlock(&h->mu);
    return b ? (uint8_t *)b : malloc(CHUNK_SIZE);
}

static void damaged(struct store *st, const struct err *e)
{
    pthread_mutex_lock(&st->mu);
    st->s.bad_chunks++;
    pthread_mutex_unlock(&st->mu);
    eng_log(st, "%s; peers are not given it any more", e->msg);
}

static void serve(struct share *h, struct read_job *j)
{
    struct store *st = h->st;
    struct storage_read *r = j->r;
    struct err e = {0};
    uint8_t *p = buffer(h);
    int code = !p ? ERR_BUSY : disk_serves(st->disk, j->id) ? 0 : ERR_NOTFOUND;
    if (!code) {
        code = disk_read_chunk(st->disk, j->id, r->chunk, p, &r->n, &e);
        if (code == ERR_NOMEM) {
            code = ERR_BUSY;
        } else if (code == ERR_OFFLINE) { /* an adopted folder's, said already */
            code = ERR_NOTFOUND;
        } else if (code && code != ERR_BUSY) {
            damaged(st, &e);
            code = code == ERR_NOTFOUND ? code : ERR_DIGEST;
        }
    }
    disk_hold(st->disk, j->id, -1);
    free(j);
    if (code) {
        if (p) {
            drop(h, p);
        }
        r->done(r, code);
        return;
    }
    r->p = r->private = p;
    r->done(r, 0);
}

/* Tell the upstream what has changed since it was told last. */
static void tell(struct share *h)
{
    struct store *st = h->st;
    static const size_t max = TELL_AT_ONCE;
    uint32_t *ids = malloc(3 * max * sizeof *ids);
    bool *now = malloc(max * sizeof *now);
    pthread_mutex_lock(&st->mu);
    struct store_upstream up = st->up;
    bool has = st->has_up && up.changed;
    pthread_mutex_unlock(&st->mu);
    for (size_t n = max; ids && now && n == max;) {
        uint32_t *added = ids + max, *removed = added + max;
        size_t n_added = 0, n_removed = 0;
        n = disk_changes(st->disk, ids, now, max);
        for (size_t i = 0; i < n; i++) {
            uint8_t bit = (uint8_t)(1u << ids[i] % 8), *at = &h->told[ids[i] / 8];
            if (now[i] && !(*at & bit)) {
                added[n_added++] = ids[i];
            } else if (!now[i] && (*at & bit)) {
                removed[n_removed++] = ids[i];
            }
            *at = (uint8_t)(now[i] ? *at | bit : *at & ~bit);
        }
        if (has && (n_added || n_removed)) {
            up.changed(up.ctx, added, n_added, removed, n_removed);
        }
    }
    free(ids);
    free(now);
}

static void compute(struct share *h, uint32_t id)
{
    struct err e = {0};
    int r = disk_make_shas(h->st->disk, id, &e);
    if (r == ERR_DIGEST || r == ERR_NOTFOUND) {
        damaged(h->st, &e);
    } else if (r) {
        eng_log(h->st, "it cannot be given to peers: %s", e.msg);
    }
}

static void check(struct share *h, struct check c)
{
    struct err e = {0};
    if (disk_has(h->st->disk, c.id) && disk_check_chunk(h->st->disk, c.id, c.chunk, &e)) {
        damaged(h->st, &e);
    }
}

static struct read_job *pop(struct share *h)
{
    for (int i = 2; i >= 0; i--) {
        struct read_job *j = h->q[i].head;
        if (j) {
            h->q[i].head = j->next;
            h->n_reads--;
            return j;
        }
    }
    return NULL;
}

/* With mu, which is released meanwhile: whatever is due; false: nothing is. */
static bool one(struct share *h)
{
    struct read_job *j;
    if (h->changed && h->watching && !h->telling) {
        h->telling = true;
        h->changed = false;
        pthread_mutex_unlock(&h->mu);
        tell(h);
        pthread_mutex_lock(&h->mu);
        h->telling = false;
        pthread_cond_broadcast(&h->idle);
    } else if ((j = pop(h))) {
        pthread_mutex_unlock(&h->mu);
        serve(h, j);
        pthread_mutex_lock(&h->mu);
    } else if (h->n_checks) {
        struct check c = h->checks[--h->n_checks];
        pthread_mutex_unlock(&h->mu);
        check(h, c);
        pthread_mutex_lock(&h->mu);
    } else if (h->watching && !h->computing && h->no_shas != MODEL_NONE) {
        h->computing = true;
        uint32_t from = h->no_shas;
        pthread_mutex_unlock(&h->mu);
        uint32_t id = disk_without_shas(h->st->disk, from);
        if (id != MODEL_NONE) {
            compute(h, id);
        }
        pthread_mutex_lock(&h->mu);
        h->no_shas = id == MODEL_NONE ? id : id + 1;
        h->computing = false;
    } else {
        return false;
    }
    return true;
}

static void *reader_main(void *arg)
{
    struct share *h = arg;
    qos_self(QOS_SERVE);
    pthread_mutex_lock(&h->mu);
    while (!h->stop) {
        if (!one(h)) {
            pthread_cond_wait(&h->work, &h->mu);
        }
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

static void share_free(struct share *h)
{
    while (h->kept) {
        struct buffer *b = h->kept;
        h->kept = b->next;
        free(b);
    }
    pthread_cond_destroy(&h->work);
    pthread_cond_destroy(&h->idle);
    pthread_mutex_destroy(&h->mu);
    free(h->told);
    free(h);
}

/* With store.mu: the threads are there, or cannot be had (NULL). */
static struct share *need(struct store *st)
{
    if (st->share || !st->disk || st->closing) {
        return st->share;
    }
    struct share *h = calloc(1, sizeof *h);
    uint8_t *told = calloc(st->n_ent / 8 + 1, 1);
    if (!h || !told || pthread_mutex_init(&h->mu, NULL)) {
        free(h);
        free(told);
        return NULL;
    }
    if (sync_cond_init(&h->work) || sync_cond_init(&h->idle)) {
        pthread_mutex_destroy(&h->mu);
        free(h);
        free(told);
        return NULL;
    }
    h->st = st;
    h->told = told;
    while (h->n_threads < READERS &&
           pthread_create(&h->thread[h->n_threads], NULL, reader_main, h) == 0) {
        h->n_threads++;
    }
    if (!h->n_threads) {
        share_free(h);
        return NULL;
    }
    st->share = h;
    return h;
}

static struct share *need_share(struct store *st)
{
    pthread_mutex_lock(&st->mu);
    struct share *h = need(st);
    pthread_mutex_unlock(&st->mu);
    return h;
}

void share_stop(struct store *st)
{
    struct share *h = st->share;
    if (!h) {
        return;
    }
    pthread_mutex_lock(&h->mu);
    h->stop = true;
    pthread_cond_broadcast(&h->work);
    pthread_mutex_unlock(&h->mu);
    for (int i = 0; i < h->n_threads; i++) {
        pthread_join(h->thread[i], NULL);
    }
    struct read_job *j;
    while ((j = pop(h))) {
        struct storage_read *r = j->r;
        disk_hold(st->disk, j->id, -1);
        free(j);
        r->done(r, ERR_NOTFOUND);
    }
    struct err e;
    disk_watch(st->disk, NULL, &e);
    share_free(h);
    st->share = NULL;
}

void share_disk_changed(void *store)
{
    struct share *h = ((struct store *)store)->share; /* set before the disk was told to watch */
    pthread_mutex_lock(&h->mu);
    h->changed = true;
    pthread_cond_signal(&h->work);
    pthread_mutex_unlock(&h->mu);
}

/* ---- the upstream ---- */

/* Nobody is being told of anything when it returns. */
static void watch(struct store *st, struct share *h, bool on)
{
    struct err e = {0};
    pthread_mutex_lock(&h->mu);
    h->watching = false;
    while (h->telling) {
        pthread_cond_wait(&h->idle, &h->mu);
    }
    h->changed = false;
    pthread_mutex_unlock(&h->mu);
    memset(h->told, 0, st->n_ent / 8 + 1);
    if (disk_watch(st->disk, on ? h->told : NULL, &e)) {
        eng_log(st, "peers are not told what is here: %s", e.msg);
        on = false;
    }
    pthread_mutex_lock(&h->mu);
    h->watching = on;
    h->no_shas = 0;
    pthread_cond_broadcast(&h->work);
    pthread_mutex_unlock(&h->mu);
}

void store_set_upstream(struct store *st, const struct store_upstream *u)
{
    struct err e = {0};
    struct share *h = u ? need_share(st) : st->share;
    if (h) {
        watch(st, h, false);
    }
    pthread_mutex_lock(&st->mu);
    st->has_up = false;
    st->up_no++;
    int r = u && !st->in ? in_open(st, &e) : 0;
    if (u && !r && !st->closing) {
        st->up = *u;
        st->has_up = true;
    }
    bool on = st->has_up;
    pthread_mutex_unlock(&st->mu);
    if (r) {
        eng_log(st, "peers are not asked: %s", e.msg);
    }
    if (h && on) {
        watch(st, h, true);
    }
}

/* ---- storage_ops ---- */

static bool op_size(void *ctx, struct object_key k, uint64_t *size)
{
    struct store *st = ctx;
    uint32_t id = store_key_id(st, k);
    if (id != MODEL_NONE) {
        *size = eng_object(st, id)->size;
    }
    return id != MODEL_NONE;
}

static bool op_have(void *ctx, struct object_key k)
{
    struct store *st = ctx;
    uint32_t id = store_key_id(st, k);
    return id != MODEL_NONE && st->disk && disk_serves(st->disk, id);
}

static bool op_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                       uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t object[SHA256_SIZE])
{
    struct store *st = ctx;
    uint32_t id = store_key_id(st, k);
    return id != MODEL_NONE && st->disk && disk_digests(st->disk, id, first, n, sha, b, object);
}

static void op_read(void *ctx, struct storage_read *r)
{
    struct store *st = ctx;
    uint32_t id = store_key_id(st, r->key);
    if (id == MODEL_NONE || r->chunk >= chunk_count(eng_object(st, id)->size) ||
        !op_have(st, r->key)) {
        r->done(r, ERR_NOTFOUND);
        return;
    }
    struct share *h = need_share(st);
    struct read_job *j = h ? malloc(sizeof *j) : NULL;
    if (!j) {
        r->done(r, ERR_BUSY);
        return;
    }
    *j = (struct read_job){.r = r, .id = id};
    disk_hold(st->disk, id, 1);
    int i = r->prio > 2 ? 2 : r->prio;
    pthread_mutex_lock(&h->mu);
    bool full = h->n_reads >= READS_MAX || h->stop;
    if (!full) {
        *(h->q[i].head ? &h->q[i].tail->next : &h->q[i].head) = j;
        h->q[i].tail = j;
        h->n_reads++;
        pthread_cond_signal(&h->work);
    }
    pthread_mutex_unlock(&h->mu);
    if (full) {
        disk_hold(st->disk, id, -1);
        free(j);
        r->done(r, ERR_BUSY);
    }
}

static void op_release(void *ctx, struct storage_read *r)
{
    struct store *st = ctx;
    drop(st->share, r->private);
    r->p = r->private = NULL;
}

static int op_put_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                        struct err *e)
{
    struct store *st = ctx;
    uint32_t id = store_key_id(st, k);
    *put = NULL;
    return id == MODEL_NONE ? err_set(e, ERR_NOTFOUND, "the model has no such object")
                            : in_put_begin(st, id, size, put, e);
}

static void op_put_second(void *ctx, struct object_key k)
{
    struct store *st = ctx;
    uint32_t id = store_key_id(st, k);
    if (id != MODEL_NONE) {
        in_second(st, id);
    }
}

static int op_put_chunk(void *ctx, struct storage_put *put, uint32_t chunk, const uint8_t *p,
                        size_t n, const uint8_t sha[SHA256_SIZE], struct err *e)
{
    return in_put_chunk(ctx, put, chunk, p, n, sha, e);
}

static int op_put_end(void *ctx, struct storage_put *put, int code, enum basis b,
                      const uint8_t object[SHA256_SIZE], struct err *e)
{
    return in_put_end(ctx, put, code, b, object, e);
}

static bool op_expect(void *ctx, struct object_key k, uint8_t object[SHA256_SIZE], enum basis *b)
{
    struct store *st = ctx;
    uint32_t id = store_key_id(st, k);
    return id != MODEL_NONE && st->disk && disk_expect(st->disk, id, object, b);
}

static void op_put_words(void *ctx, struct storage_put *put, const uint8_t (*ids)[SHA256_SIZE],
                         size_t n)
{
    in_put_words(ctx, put, ids, n);
}

const struct storage_ops store_storage_ops = {
    .expect = op_expect,
    .put_words = op_put_words,
    .put_second = op_put_second,
    .size = op_size,
    .have = op_have,
    .digests = op_digests,
    .read = op_read,
    .release = op_release,
    .put_begin = op_put_begin,
    .put_chunk = op_put_chunk,
    .put_end = op_put_end,
};

/* ---- room ---- */

int store_ranks(struct store *st, const uint8_t *rank, uint8_t most)
{
    return st->disk ? disk_ranks(st->disk, rank, most) : 0;
}

bool store_rank(struct store *st, uint32_t id, uint8_t rank)
{
    return st->disk && id < st->n_ent && disk_rank(st->disk, id, rank);
}

void store_rank_coming(struct store *st, uint32_t id, uint8_t rank)
{
    if (st->disk && id < st->n_ent) {
        disk_rank_coming(st->disk, id, rank);
    }
}

size_t store_oldest(struct store *st, uint8_t rank, uint32_t *ids, size_t max)
{
    return st->disk ? disk_oldest(st->disk, rank, ids, max) : 0;
}

void store_get_space(struct store *st, struct store_space *out)
{
    struct disk_space s = {0};
    if (st->disk) {
        disk_space(st->disk, &s);
    }
    *out = (struct store_space){s.budget, s.used, s.experts};
}

/* ---- lists and complaints ---- */

int store_share_list(struct store *st, uint32_t **out, size_t *n, struct err *e)
{
    *n = 0;
    *out = malloc((st->n_ent ? st->n_ent : 1) * sizeof **out);
    if (!*out) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (uint32_t id = 0; st->disk && id < st->n_ent; id++) {
        if (disk_serves(st->disk, id)) {
            (*out)[(*n)++] = id;
        }
    }
    return 0;
}

void store_share_check(struct store *st, uint32_t id, uint32_t chunk)
{
    struct share *h = need_share(st);
    if (!h || id >= st->n_ent || chunk >= chunk_count(eng_object(st, id)->size)) {
        return;
    }
    pthread_mutex_lock(&h->mu);
    bool known = false;
    for (uint32_t i = 0; i < h->n_checks; i++) {
        known = known || (h->checks[i].id == id && h->checks[i].chunk == chunk);
    }
    if (!known && h->n_checks < CHECKS_MAX) { /* they will complain again */
        h->checks[h->n_checks++] = (struct check){id, chunk};
        pthread_cond_signal(&h->work);
    }
    pthread_mutex_unlock(&h->mu);
}

void store_get_basis(struct store *st, struct store_basis *out)
{
    memset(out, 0, sizeof *out);
    if (st->disk) {
        disk_basis(st->disk, out->objects, out->bytes);
    }
}
