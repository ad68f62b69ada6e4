/* SPDX-License-Identifier: MIT
 * incoming_put.c: see incoming.h: what comes on the thread of the upstream (and on that of the
 * origin, which may work for it). */
#include "node/store/incoming.h"

#include "node/store/disk.h"

#include <stdlib.h>
#include <string.h>

/* Where the bytes go. With mu, which may be released and retaken. */
static int destination(struct store *st, struct entry *en, struct storage_put *p, struct err *e)
{
    char name[128];
    p->use_disk = st->disk && !en->no_disk;
    p->resumes = p->use_disk && disk_has_partial(st->disk, p->in->id);
    if (en->want_ram || !p->use_disk) {
        p->slot = eng_slot(st, en);
    }
    if (p->slot || p->use_disk) {
        return 0;
    }
    return en->waiters ? err_set(e, ERR_NOMEM, "no memory for the %llu bytes of %s",
                                 (unsigned long long)p->size,
                                 model_object_name(st->m, p->in->id, name, sizeof name))
                       : err_set(e, ERR_CANCELLED, "no room for what is only a hint");
}

int in_put_begin(struct store *st, uint32_t id, uint64_t size, struct storage_put **out,
                 struct err *e)
{
    char name[128];
    *out = NULL;
    struct storage_put *p = calloc(1, sizeof *p);
    uint32_t n = chunk_count(eng_object(st, id)->size);
    if (p) {
        p->n = n;
        p->size = size;
        p->came = calloc(n ? n : 1, 1);
        p->sums = calloc(n ? n : 1, sizeof *p->sums);
    }
    if (!p || !p->came || !p->sums) {
        in_put_free(st, p);
        return err_set(e, ERR_BUSY, "out of memory");
    }
    int r = 0;
    pthread_mutex_lock(&st->mu);
    struct entry *en = &st->ent[id];
    struct incoming *in = en->in;
    if (!in || in->done || st->closing) {
        r = err_set(e, ERR_NOTFOUND, "%s is not asked for",
                    model_object_name(st->m, id, name, sizeof name));
    } else if (size != eng_object(st, id)->size) {
        r = err_set(e, ERR_FORMAT, "%s has another size",
                    model_object_name(st->m, id, name, sizeof name));
    } else {
        pthread_mutex_lock(&st->in->mu);
        bool full = st->in->queued > STORE_PUT_MAX;
        pthread_mutex_unlock(&st->in->mu);
        if (full || in->put) {
            r = err_set(e, ERR_BUSY, "the cache is being written");
        }
    }
    if (!r) {
        p->in = in;
        in->put = p;
        r = destination(st, en, p, e);
        if (r) {
            in->put = NULL;
        } else if (p->resumes) {
            p->open = (struct in_item){.kind = IT_OPEN, .in = in, .put = p};
            pthread_mutex_lock(&st->in->mu);
            in_push(st->in, &p->open);
            pthread_mutex_unlock(&st->in->mu);
        }
        if (r && in->late) { /* its end waits for that of the put */
            pthread_mutex_lock(&st->in->mu);
            in_push(st->in, &in->over);
            pthread_mutex_unlock(&st->in->mu);
        }
    }
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    if (r) {
        in_put_free(st, p);
        return r;
    }
    *out = p;
    return 0;
}

int in_put_chunk(struct store *st, struct storage_put *p, uint32_t chunk, const uint8_t *bytes,
                 size_t n, const uint8_t sha[SHA256_SIZE], struct err *e)
{
    struct takers *t = st->in;
    if (chunk >= p->n || n != chunk_len(p->size, chunk)) {
        return err_set(e, ERR_ARG, "no such chunk");
    }
    struct in_item *it = calloc(1, sizeof *it);
    if (!it) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    *it = (struct in_item){.kind = IT_CHUNK, .in = p->in, .put = p, .chunk = chunk, .n = n};
    memcpy(it->sha, sha, SHA256_SIZE);
    bool direct = p->slot && !p->came[chunk];
    if (direct) { /* nobody else looks at these bytes of the slot yet */
        memcpy(p->slot->p + (size_t)chunk * CHUNK_SIZE, bytes, n);
    } else {
        it->copy = malloc(n);
        if (!it->copy) {
            free(it);
            return err_set(e, ERR_NOMEM, "out of memory");
        }
        memcpy(it->copy, bytes, n);
    }
    pthread_mutex_lock(&t->mu);
    while (it->copy && t->queued + n > STORE_PUT_MAX && !p->code && !t->stop) {
        pthread_cond_wait(&t->room, &t->mu); /* the disk is slower than the network */
    }
    int r = p->code;
    if (r && e) {
        *e = p->err;
    } else if (t->stop) {
        r = err_set(e, ERR_CANCELLED, "the store is being closed");
    }
    if (!r) {
        t->queued += it->copy ? n : 0;
        in_push(t, it);
    }
    pthread_mutex_unlock(&t->mu);
    if (r) {
        free(it->copy);
        free(it);
        return r;
    }
    p->have += !p->came[chunk];
    p->came[chunk] = 1;
    return 0;
}

void in_second(struct store *st, uint32_t id)
{
    pthread_mutex_lock(&st->mu);
    if (st->ent[id].in) {
        st->ent[id].second = true;
    }
    pthread_mutex_unlock(&st->mu);
}

void in_put_words(struct store *st, struct storage_put *p, const uint8_t (*ids)[SHA256_SIZE],
                  size_t n)
{
    (void)st;
    p->n_words = n <= STORAGE_WORDS_MAX ? n : 0;
    memcpy(p->words, ids, p->n_words * SHA256_SIZE);
}

int in_put_end(struct store *st, struct storage_put *p, int code, enum basis b,
               const uint8_t object[SHA256_SIZE], struct err *e)
{
    struct takers *t = st->in;
    if (!code && p->have != p->n) {
        code = err_set(e, ERR_FORMAT, "%u of %u chunks have come", p->have, p->n);
    }
    pthread_mutex_lock(&st->mu); /* nothing is queued for it behind the end */
    p->over = true;
    pthread_mutex_unlock(&st->mu);
    pthread_mutex_lock(&t->mu);
    if (!code && p->code) {
        code = p->code;
        if (e) {
            *e = p->err;
        }
    }
    p->ok = !code;
    p->b = b;
    if (!code) {
        memcpy(p->object, object, SHA256_SIZE);
    }
    p->end = (struct in_item){.kind = IT_PUT_END, .in = p->in, .put = p};
    in_push(t, &p->end);
    pthread_mutex_unlock(&t->mu);
    return code;
}

/* ---- what our own origin gives ---- */

bool in_call(struct store *st, uint32_t id, bool resumes,
             void (*call)(void *ctx, struct storage_put *p), void *ctx)
{
    struct in_item *it = calloc(1, sizeof *it);
    pthread_mutex_lock(&st->mu);
    struct incoming *in = st->ent[id].in;
    bool r = it && in && in->put && (in->put->resumes || !resumes) && !in->put->over;
    if (r) {
        *it = (struct in_item){.kind = IT_CALL, .in = in, .put = in->put, .call = call, .ctx = ctx};
        pthread_mutex_lock(&st->in->mu);
        in_push(st->in, it);
        pthread_mutex_unlock(&st->in->mu);
    }
    pthread_mutex_unlock(&st->mu);
    if (!r) {
        free(it);
    }
    return r;
}

void in_own(struct store *st, uint32_t id, uint32_t chunk, const uint8_t sha[SHA256_SIZE])
{
    uint32_t n = chunk_count(eng_object(st, id)->size);
    pthread_mutex_lock(&st->mu);
    struct incoming *in = st->ent[id].in;
    if (in && st->disk && !in->own) {
        in->own = calloc(n, SHA256_SIZE);
        in->has_own = in->own ? calloc(n / 8 + 1, 1) : NULL;
        if (!in->has_own) { /* then it is not taken up after a death */
            free(in->own);
            in->own = NULL;
        }
    }
    if (in && in->own) {
        memcpy(in->own[chunk], sha, SHA256_SIZE);
        in->has_own[chunk / 8] |= (uint8_t)(1u << chunk % 8);
    }
    pthread_mutex_unlock(&st->mu);
}
