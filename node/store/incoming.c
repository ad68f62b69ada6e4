/* SPDX-License-Identifier: MIT
 * incoming.c: objects on their way from the upstream (share.h): the chunks come on its thread, in
 * any order, into a RAM slot or a copy; a thread of ours writes them to the file and ends requests.
 *
 * One queue holds chunks, ends of puts and ends of requests in the order in which they came: when
 * the end of a request is at its head, all its chunks have been dealt with. The first coming of a
 * chunk is copied into the slot by whoever brings it, every later one by the writer: so nobody
 * touches a chunk that the writer reads. Order of locks: store.mu, then takers.mu. */
#include "node/store/engine.h"

#include "node/store/disk.h"
#include "node/store/incoming.h"
#include "node/store/sync.h"
#include "proto/base/qos.h"

#include <stdlib.h>
#include <string.h>

/* ---- the queue ---- */

void in_push(struct takers *t, struct in_item *it)
{
    it->next = NULL;
    *(t->head ? &t->tail->next : &t->head) = it;
    t->tail = it;
    pthread_cond_signal(&t->work);
}

void in_put_free(struct store *st, struct storage_put *p)
{
    if (p) {
        if (p->f) {
            disk_abandon(st->disk, p->f, true);
        }
        free(p->came);
        free(p->sums);
        free(p);
    }
}

static void in_free(struct incoming *in)
{
    free(in->own);
    free(in->has_own);
    free(in);
}

/* ---- the writer ---- */

static void put_fails(struct takers *t, struct storage_put *p, int code, const struct err *e)
{
    pthread_mutex_lock(&t->mu);
    p->code = code;
    p->err = *e;
    pthread_mutex_unlock(&t->mu);
}

/* The file cannot be written: on in RAM, if there is a slot. */
static void no_file(struct store *st, struct storage_put *p, struct err *e)
{
    eng_disk_trouble(st, e);
    if (p->f) {
        disk_abandon(st->disk, p->f, false);
        p->f = NULL;
    }
    if (!p->slot) {
        e->code = ERR_FULL;
        put_fails(st->in, p, ERR_FULL, e);
    }
}

static void open_file(struct store *st, struct storage_put *p)
{
    struct err e = {0};
    if (!p->begun) {
        p->begun = true;
        pthread_mutex_lock(&st->mu);
        bool second = p->in->en->second;
        pthread_mutex_unlock(&st->mu);
        if (p->use_disk && disk_begin_loose(st->disk, p->in->id, second, &p->f, &e)) {
            no_file(st, p, &e);
        }
    }
}

static bool is_own(struct store *st, const struct in_item *it)
{
    const struct incoming *in = it->in;
    uint32_t i = it->chunk;
    pthread_mutex_lock(&st->mu);
    bool r = in->own && (in->has_own[i / 8] >> i % 8 & 1) &&
             memcmp(in->own[i], it->sha, SHA256_SIZE) == 0;
    pthread_mutex_unlock(&st->mu);
    return r;
}

static void write_chunk(struct store *st, struct in_item *it)
{
    struct storage_put *p = it->put;
    struct err e = {0};
    open_file(st, p);
    uint8_t *at = p->slot ? p->slot->p + (size_t)it->chunk * CHUNK_SIZE : NULL;
    const uint8_t *bytes = it->copy ? it->copy : at;
    struct chunk_sum *s = &p->sums[it->chunk];
    memcpy(s->sha, it->sha, SHA256_SIZE);
    s->xxh = chunk_xxh(bytes, it->n);
    if (p->f && disk_chunk_at(st->disk, p->f, it->chunk, bytes, it->n, s, is_own(st, it), &e)) {
        no_file(st, p, &e);
    }
    if (it->copy && at) {
        memcpy(at, it->copy, it->n);
    }
}

static bool right_object(const struct storage_put *p)
{
    struct sha256 h;
    uint8_t sum[SHA256_SIZE];
    sha256_init(&h);
    for (uint32_t i = 0; i < p->n; i++) {
        sha256_add(&h, p->sums[i].sha, SHA256_SIZE);
    }
    sha256_done(&h, sum);
    return memcmp(sum, p->object, SHA256_SIZE) == 0;
}

/* From whom the object of this request came, for the numbers: from whoever gave more of it. */
static enum store_tier source(const struct incoming *in)
{
    uint64_t size = eng_object(in->st, in->id)->size;
    return in->peer_bytes && in->peer_bytes >= size / 2 ? STORE_PEERS : STORE_ORIGIN;
}

static void want_again(struct store *st, struct entry *en)
{
    en->state = ENT_IDLE;
    eng_want(st, eng_id(st, en), (enum store_prio)en->prio, en->want_ram);
}

/* Nothing was put: another process has published it. With mu. */
static void published_elsewhere(struct store *st, struct incoming *in)
{
    struct entry *en = in->en;
    if (st->disk && disk_look(st->disk, in->id)) {
        if (in->peer_bytes || in->origin_bytes) {
            en->from = (uint8_t)source(in);
            if (eng_is_expert(st, in->id)) {
                *(en->from == STORE_PEERS ? &st->s.experts_from_peers : &st->s.experts_fetched) +=
                    1;
            }
        }
        en->tries = 0;
    } else if (++en->tries > 3) {
        struct err e = {0};
        char name[128];
        err_set(&e, ERR_NOTFOUND, "%s was fetched by another process but is not in the cache %s",
                model_object_name(st->m, in->id, name, sizeof name),
                st->cache_dir ? st->cache_dir : "(none)");
        eng_fail(st, en, e.code, &e);
        return;
    }
    want_again(st, en);
}

/* The upstream has not brought it. With mu. */
static void not_brought(struct store *st, struct incoming *in, int code, struct err *e)
{
    struct entry *en = in->en;
    if (code == ERR_OFFLINE && st->origin) {
        en->past_peers = true;
        want_again(st, en);
    } else if (code == ERR_CANCELLED && in->cancelled && in->again) {
        want_again(st, en);
    } else if (code == ERR_FULL && en->want_ram && !en->no_disk) {
        en->no_disk = true; /* once more, into RAM alone */
        want_again(st, en);
    } else {
        char name[128];
        if (!e->code) {
            err_set(e, code, "%s has not come from peers: %s",
                    model_object_name(st->m, in->id, name, sizeof name), err_text(code));
        }
        eng_fail(st, en, code, e);
    }
}

/* The request is over. Without mu. */
static void finish(struct store *st, struct incoming *in)
{
    pthread_mutex_lock(&st->mu);
    struct storage_put *p = in->put;
    if (p && !p->ended) {
        in->late = true;
        pthread_mutex_unlock(&st->mu);
        return;
    }
    int code = in->code;
    struct err e = in->err;
    if (!code && p) {
        pthread_mutex_lock(&st->in->mu);
        code = p->code;
        e = p->err;
        pthread_mutex_unlock(&st->in->mu);
    }
    if (!code && p && !right_object(p)) {
        char name[128];
        code = err_set(&e, ERR_DIGEST, "%s: its chunks do not make the digest that was stated",
                       model_object_name(st->m, in->id, name, sizeof name));
    }
    if (code && p) { /* its file must be out of the way of the next request */
        in->put = NULL;
        pthread_mutex_unlock(&st->mu);
        in_put_free(st, p);
        p = NULL;
        pthread_mutex_lock(&st->mu);
    }
    struct entry *en = in->en;
    en->in = NULL;
    st->s.peer_bytes += in->peer_bytes;
    if (code) {
        not_brought(st, in, code, &e);
    } else if (!p) {
        sink_count(st, in->origin_bytes);
        published_elsewhere(st, in);
    } else {
        struct disk_file *left = p->f;
        p->f = NULL;
        en->from = (uint8_t)source(in);
        sink_complete(st, en, &left, p->sums, p->b, p->rests);
    }
    pthread_mutex_unlock(&st->mu);
    in_put_free(st, p);
    in_free(in);
    eng_sweep(st);
}

/* Thrown away, or complete and waiting for the end of the request. */
static void put_over(struct store *st, struct storage_put *p)
{
    struct incoming *in = p->in;
    if (p->ok && st->disk) {
        p->rests = disk_members(st->disk, p->words, p->n_words);
    }
    pthread_mutex_lock(&st->mu);
    p->ended = true;
    if (!p->ok) {
        in->put = NULL;
    }
    bool late = in->late;
    pthread_mutex_unlock(&st->mu);
    if (!p->ok) {
        in_put_free(st, p);
    }
    if (late) {
        finish(st, in);
    }
}

static void chunk_came(struct store *st, struct in_item *it)
{
    struct takers *t = st->in;
    pthread_mutex_lock(&t->mu);
    bool skip = it->put->code != 0;
    pthread_mutex_unlock(&t->mu);
    if (!skip) {
        write_chunk(st, it);
    }
    if (it->copy) {
        free(it->copy);
        pthread_mutex_lock(&t->mu);
        t->queued -= it->n;
        pthread_cond_broadcast(&t->room);
        pthread_mutex_unlock(&t->mu);
    }
    free(it);
}

static void *writer_main(void *arg)
{
    struct store *st = arg;
    struct takers *t = st->in;
    qos_self(QOS_ANSWER);
    pthread_mutex_lock(&t->mu);
    while (t->head || !t->stop) {
        struct in_item *it = t->head;
        if (!it) {
            pthread_cond_wait(&t->work, &t->mu);
            continue;
        }
        t->head = it->next;
        pthread_mutex_unlock(&t->mu);
        if (it->kind == IT_OPEN) {
            open_file(st, it->put);
        } else if (it->kind == IT_CALL) {
            it->call(it->ctx, it->put);
            free(it);
        } else if (it->kind == IT_PUT_END) {
            put_over(st, it->put); /* the item is part of what may go with it, likewise below */
        } else if (it->kind == IT_DONE) {
            finish(st, it->in);
        } else {
            chunk_came(st, it);
        }
        pthread_mutex_lock(&t->mu);
    }
    pthread_mutex_unlock(&t->mu);
    return NULL;
}

/* ---- requests ---- */

int in_open(struct store *st, struct err *e)
{
    struct takers *t = calloc(1, sizeof *t);
    if (!t || pthread_mutex_init(&t->mu, NULL)) {
        free(t);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (sync_cond_init(&t->work) || sync_cond_init(&t->room)) {
        pthread_mutex_destroy(&t->mu);
        free(t);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    st->in = t;
    int r = pthread_create(&t->thread, NULL, writer_main, st);
    if (r) {
        st->in = NULL;
        pthread_mutex_destroy(&t->mu);
        free(t);
        return err_sys(e, r, "cannot start the thread that writes what peers give");
    }
    t->started = true;
    return 0;
}

void in_start(struct store *st, struct entry *en)
{
    struct incoming *in = calloc(1, sizeof *in);
    if (!in) {
        struct err e = {0};
        err_set(&e, ERR_NOMEM, "out of memory");
        eng_fail(st, en, e.code, &e);
        return;
    }
    in->st = st;
    in->en = en;
    in->id = eng_id(st, en);
    in->up_no = st->up_no;
    en->second = false;
    en->in = in;
    en->state = ENT_ORIGIN;
    st->up.fetch(st->up.ctx, in->id, (enum store_prio)en->prio);
}

void in_raise(struct store *st, struct entry *en)
{
    if (st->has_up && en->in->up_no == st->up_no) {
        st->up.raise(st->up.ctx, en->in->id, (enum store_prio)en->prio);
    }
}

void in_cancel(struct store *st, struct entry *en)
{
    struct incoming *in = en->in;
    if (in->cancelled) {
        in->again = false;
    } else if (!in->put && !in->done && st->has_up && in->up_no == st->up_no) {
        in->cancelled = true;
        st->up.cancel(st->up.ctx, in->id);
    } /* else it has begun; what arrives is kept */
}

void in_again(struct entry *en)
{
    en->in->again = en->in->cancelled;
}

void store_upstream_done(struct store *st, uint32_t id, const struct store_upstream_result *r)
{
    pthread_mutex_lock(&st->mu);
    struct incoming *in = id < st->n_ent ? st->ent[id].in : NULL;
    if (!in || in->done) {
        pthread_mutex_unlock(&st->mu);
        return;
    }
    in->done = true;
    in->code = r->code;
    if (r->code && r->err) {
        in->err = *r->err;
        in->err.code = r->code;
    }
    in->peer_bytes = r->peer_bytes;
    in->origin_bytes = r->origin_bytes;
    in->over = (struct in_item){.kind = IT_DONE, .in = in};
    struct takers *t = st->in;
    pthread_mutex_lock(&t->mu);
    in_push(t, &in->over);
    pthread_mutex_unlock(&t->mu);
    pthread_mutex_unlock(&st->mu);
}

void in_stop(struct store *st)
{
    struct takers *t = st->in;
    if (!t) {
        return;
    }
    pthread_mutex_lock(&t->mu);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_cond_broadcast(&t->room);
    pthread_mutex_unlock(&t->mu);
    pthread_join(t->thread, NULL);
    for (uint32_t id = 0; id < st->n_ent; id++) { /* requests that were never ended */
        struct incoming *in = st->ent[id].in;
        if (in) {
            in_put_free(st, in->put);
            in_free(in);
            st->ent[id].in = NULL;
        }
    }
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->room);
    pthread_mutex_destroy(&t->mu);
    free(t);
    st->in = NULL;
}
