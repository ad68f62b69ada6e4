/* SPDX-License-Identifier: MIT
 * sink.c: one object on its way from the origin: into a RAM slot, into a file of the cache, or
 * both; chunk by chunk, each hashed as soon as it is complete. See engine.h. */
#include "node/store/engine.h"

#include "node/store/disk.h"
#include "node/store/mirrors.h"
#include "node/store/origin.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAY_RESUME ((uint64_t)8 << 20)

struct sink {
    struct store *st;
    struct entry *en;
    uint32_t id;
    uint64_t size, pos;    /* bytes of the object, and those that are there */
    uint64_t uncounted;    /* received, not yet in the statistics */
    uint64_t of_mirror;    /* the same, from a mirror */
    struct ram_slot *slot; /* the entry's, or NULL */
    struct disk_file *f;   /* or NULL */
    uint8_t *stage;        /* one chunk, when there is no slot */
    struct chunk_sum *sums;
    bool ready; /* destinations are there */
    struct origin_part part;
    char name[128];
};

void sink_count(struct store *st, uint64_t bytes)
{
    st->s.origin_bytes += bytes;
    uint64_t t = clock_ns() / 1000000000u;
    unsigned i = (unsigned)(t % 16);
    if (st->rate_t[i] != t) {
        st->rate_t[i] = t;
        st->rate_b[i] = 0;
    }
    st->rate_b[i] += bytes;
}

static void count(struct sink *s)
{
    pthread_mutex_lock(&s->st->mu);
    sink_count(s->st, s->uncounted);
    s->st->s.mirror_bytes += s->of_mirror;
    pthread_mutex_unlock(&s->st->mu);
    s->uncounted = s->of_mirror = 0;
}

static void sink_free(struct sink *s, bool keep_partial)
{
    if (s->f) {
        disk_abandon(s->st->disk, s->f, keep_partial);
    }
    free(s->stage);
    free(s->sums);
    free(s);
}

/* Where the bytes will go. An error: nowhere. */
static int destinations(struct sink *s, struct err *e)
{
    struct store *st = s->st;
    struct entry *en = s->en;
    pthread_mutex_lock(&st->mu);
    bool use_disk = st->disk && !en->no_disk;
    if (en->want_ram || !use_disk) {
        s->slot = eng_slot(st, en);
    }
    bool hint = !en->waiters;
    pthread_mutex_unlock(&st->mu);
    s->sums = calloc(s->size ? chunk_count(s->size) : 1, sizeof *s->sums);
    if (!s->sums) {
        return err_set(e, ERR_NOMEM, "%s: out of memory", s->name);
    }
    struct err e1 = {0};
    if (use_disk && disk_begin(st->disk, s->id, s->slot ? s->slot->p : NULL, &s->f, &e1)) {
        eng_disk_trouble(st, &e1);
    }
    if (!s->slot && !s->f) {
        if (use_disk) {
            return err_set(e, ERR_FULL, "%s", e1.msg);
        }
        return hint ? err_set(e, ERR_CANCELLED, "no room for what is only a hint")
                    : err_set(e, ERR_NOMEM, "no memory for the %llu bytes of %s",
                              (unsigned long long)s->size, s->name);
    }
    if (!s->slot) {
        s->stage = malloc(CHUNK_SIZE);
        if (!s->stage) {
            return err_set(e, ERR_NOMEM, "%s: out of memory", s->name);
        }
    }
    if (s->f && s->f->done) {
        memcpy(s->sums, s->f->sums, s->f->done * sizeof *s->sums);
        s->pos = (uint64_t)s->f->done * CHUNK_SIZE;
        s->pos = s->pos > s->size ? s->size : s->pos;
    }
    s->ready = true;
    return 0;
}

static int on_begin(struct origin_part *p, struct err *e)
{
    struct sink *s = p->user;
    return s->ready ? 0 : destinations(s, e);
}

static int chunk_complete(struct sink *s, const uint8_t *c, size_t n, struct err *e)
{
    uint32_t i = (uint32_t)((s->pos - 1) / CHUNK_SIZE);
    chunk_sum(c, n, &s->sums[i]);
    count(s);
    struct err e1 = {0};
    if (s->f && disk_chunk(s->st->disk, s->f, c, n, &s->sums[i], &e1)) {
        eng_disk_trouble(s->st, &e1);
        disk_abandon(s->st->disk, s->f, false);
        s->f = NULL;
        if (!s->slot) {
            return err_set(e, ERR_FULL, "%s", e1.msg);
        }
    }
    return 0;
}

static int on_data(struct origin_part *p, const void *bytes, size_t n, struct err *e)
{
    struct sink *s = p->user;
    const uint8_t *b = bytes;
    while (n) {
        size_t at = (size_t)(s->pos % CHUNK_SIZE);
        uint64_t base = s->pos - at;
        size_t len = chunk_len(s->size, (uint32_t)(base / CHUNK_SIZE));
        size_t k = n < len - at ? n : len - at;
        uint8_t *c = s->slot ? s->slot->p + base : s->stage;
        memcpy(c + at, b, k);
        s->pos += k;
        *(p->at_mirror ? &s->of_mirror : &s->uncounted) += k;
        b += k;
        n -= k;
        if (at + k == len) {
            int r = chunk_complete(s, c, len, e);
            if (r) {
                return r;
            }
        }
    }
    return 0;
}

void sink_complete(struct store *st, struct entry *en, struct disk_file **f,
                   const struct chunk_sum *sums, enum basis b, uint64_t rests)
{
    uint32_t id = eng_id(st, en);
    struct err e = {0};
    if (*f) {
        (*f)->rests = rests;
    }
    uint32_t source = digest_source_of(b);
    en->doomed = false; /* from here on it is */
    pthread_mutex_unlock(&st->mu);
    int r = !st->disk ? 0
            : *f      ? disk_digest(st->disk, *f, b, &e)
                      : disk_check(st->disk, id, sums, b, &source, &rests, &e);
    if (*f && (*f)->digest) {
        source = (*f)->digest->source;
        rests = (*f)->digest->rests;
    }
    if (r) { /* at once: the next request may have a file of the same name */
        disk_abandon(st->disk, *f, r != ERR_DIGEST);
        *f = NULL;
    }
    if (r == ERR_DIGEST) {
        eng_log(st, "%s", e.msg);
    }
    pthread_mutex_lock(&st->mu);
    if (!r && !*f && st->disk && disk_on_void(st->disk, source, rests)) { /* since it was judged */
        r = err_set(&e, ERR_DIGEST, "the word that it rests on has just become void");
    }
    if (r == ERR_DIGEST) {
        st->s.bad_chunks++;
        if (++en->tries <
            3) { /* a transfer that went wrong, or a changed origin: see whether it lasts */
            en->state = ENT_IDLE;
            eng_want(st, id, (enum store_prio)en->prio, en->want_ram);
            return;
        }
    }
    if (r) {
        eng_fail(st, en, r, &e);
        return;
    }
    en->past_peers = en->past_mirrors = false;
    en->came = true;
    en->source = (uint8_t)source;
    en->rests = rests;
    if (eng_is_expert(st, id)) {
        *(en->from == STORE_PEERS ? &st->s.experts_from_peers : &st->s.experts_fetched) += 1;
    }
    if (*f) {
        worker_publish(st, *f);
        *f = NULL;
    }
    if (en->slot) {
        eng_enqueue(st, en, JOB_ADMIT);
    } else {
        en->state = en->want_ram ? ENT_PUBLISH : ENT_IDLE;
    }
}

static void complete(struct sink *s)
{
    s->en->sink = NULL;
    s->en->from = STORE_ORIGIN;
    sink_complete(s->st, s->en, &s->f, s->sums, BASIS_ORIGIN, 0);
}

/* A mirror's bytes are not taken when something known says otherwise: the origin tells, and only
 * what it says is held against others. */
static bool mirror_doubted(struct sink *s)
{
    enum disk_doubt d =
        s->part.mirror && s->st->disk ? disk_doubts(s->st->disk, s->id, s->sums) : DISK_AGREES;
    if (d == DISK_CONTRADICTS) {
        mirrors_wrong(s->st->mirrors, s->part.mirror, s->name);
    } else if (d != DISK_AGREES) {
        eng_log(s->st, "%s: a mirror's bytes are not what members say; the origin is asked",
                s->name);
    }
    return d != DISK_AGREES;
}

static void on_done(struct origin_part *p, int code, const struct err *e)
{
    struct sink *s = p->user;
    struct store *st = s->st;
    struct entry *en = s->en;
    count(s);
    bool doubted = !code && mirror_doubted(s);
    if (doubted && s->f) { /* at once: the next request has a file of the same name */
        disk_abandon(st->disk, s->f, false);
        s->f = NULL;
    }
    pthread_mutex_lock(&st->mu);
    if (doubted) {
        st->s.bad_chunks++;
        en->sink = NULL;
        en->past_mirrors = true;
        en->state = ENT_IDLE;
        eng_want(st, s->id, (enum store_prio)en->prio, en->want_ram);
    } else if (!code) {
        complete(s);
    } else {
        en->sink = NULL;
        if (code == ERR_FULL && en->want_ram && !en->no_disk) {
            en->no_disk = true; /* once more, into RAM alone */
            en->state = ENT_IDLE;
            eng_want(st, s->id, (enum store_prio)en->prio, true);
        } else {
            eng_fail(st, en, code, e);
        }
    }
    pthread_mutex_unlock(&st->mu);
    sink_free(s, true);
    eng_sweep(st);
}

static struct sink *sink_new(struct store *st, struct entry *en)
{
    struct sink *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    const struct model_object *o = eng_object(st, eng_id(st, en));
    s->st = st;
    s->en = en;
    s->id = eng_id(st, en);
    s->size = o->size;
    model_object_name(st->m, s->id, s->name, sizeof s->name);
    s->part = (struct origin_part){.user = s,
                                   .name = s->name,
                                   .file = st->shard_file[o->shard],
                                   .off = o->offset,
                                   .size = o->size,
                                   .prio = en->prio,
                                   .sure = en->past_mirrors,
                                   .begin = on_begin,
                                   .data = on_data,
                                   .done = on_done};
    return s;
}

static void no_memory(struct store *st, struct entry *en)
{
    struct err e = {0};
    err_set(&e, ERR_NOMEM, "out of memory");
    eng_fail(st, en, e.code, &e);
}

void sink_start(struct store *st, struct entry *en)
{
    if (st->has_up && !en->past_peers) {
        in_start(st, en);
        return;
    }
    struct sink *s = sink_new(st, en);
    if (!s) {
        no_memory(st, en);
        return;
    }
    en->state = ENT_ORIGIN;
    en->sink = s;
    mirrors_submit(st->mirrors, st->origin, &s->part);
}

void sink_resume(struct store *st, struct entry *en)
{
    struct sink *s = sink_new(st, en);
    struct err e = {0};
    int r = s ? destinations(s, &e) : err_set(&e, ERR_NOMEM, "out of memory");
    if (r) {
        pthread_mutex_lock(&st->mu);
        if (r == ERR_FULL && en->want_ram && !en->no_disk) {
            en->no_disk = true;
            en->state = ENT_IDLE;
            eng_want(st, eng_id(st, en), (enum store_prio)en->prio, true);
        } else {
            eng_fail(st, en, r, &e);
        }
        pthread_mutex_unlock(&st->mu);
        if (s) {
            sink_free(s, true);
        }
        return;
    }
    if (s->pos && s->size >= SAY_RESUME) {
        eng_log(st, "%s: %llu of %llu MiB are here from an earlier start", s->name,
                (unsigned long long)(s->pos >> 20), (unsigned long long)(s->size >> 20));
    }
    s->part.off += s->pos;
    s->part.size -= s->pos;
    pthread_mutex_lock(&st->mu);
    en->state = ENT_ORIGIN;
    en->sink = s;
    s->part.prio = en->prio;
    if (s->pos == s->size) { /* it was complete but for its name */
        complete(s);
        pthread_mutex_unlock(&st->mu);
        sink_free(s, true);
        return;
    }
    bool closing = st->closing;
    if (!closing) {
        mirrors_submit(st->mirrors, st->origin, &s->part);
    }
    pthread_mutex_unlock(&st->mu);
    if (closing) {
        err_set(&e, ERR_CANCELLED, "the store is being closed");
        on_done(&s->part, e.code, &e);
    }
}

void sink_raise(struct store *st, struct entry *en)
{
    if (en->in) {
        in_raise(st, en);
    } else if (en->sink) {
        mirrors_raise(st->mirrors, st->origin, &en->sink->part, (enum store_prio)en->prio);
    }
}

bool sink_cancel(struct store *st, struct entry *en)
{
    struct sink *s = en->sink;
    if (en->in) {
        in_cancel(st, en);
    }
    if (!s || !mirrors_cancel(st->mirrors, st->origin, &s->part)) {
        return false;
    }
    en->sink = NULL;
    sink_free(s, true);
    return true;
}
