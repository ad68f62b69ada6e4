/* SPDX-License-Identifier: MIT
 * worker.c: the store's own threads: workers that read the disk and run the admission hook, and the
 * publisher that makes received files permanent, many at a time. See engine.h. */
#include "node/store/engine.h"

#include "node/store/disk.h"
#include "node/store/sync.h"
#include "node/store/uncached.h"
#include "proto/base/qos.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PUBLISH_AT_ONCE 64
#define PAST_FROM ((size_t)1 << 20) /* reads shorter than this may well be repeated soon */

int worker_read_in_place(struct store *st, uint32_t id, uint64_t off, void *p, size_t n,
                         struct err *e)
{
    const struct model_object *ob = eng_object(st, id);
    const char *file = model_shard(st->m, ob->shard)->file;
    size_t len = strlen(st->model_path) + strlen(file) + 2;
    char *path = malloc(len);
    if (!path) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    snprintf(path, len, "%s/%s", st->model_path, file);
    /* opened for each read: a volume that went away and came back is found again */
    struct uncached f;
    bool past = n >= PAST_FROM && (st->o.past_cache || uncached_wins(model_expert_bytes(st->m)));
    uncached_open(&f, path, O_NONBLOCK, past); /* a pipe must not block us */
    int r = f.fd < 0 ? err_sys(e, errno, "cannot open %s", path)
                     : uncached_read(&f, path, p, n, ob->offset + off, e);
    if (f.fd >= 0) {
        close(f.fd);
    }
    free(path);
    if (r) {
        char name[128];
        err_prefix(e, "%s", model_object_name(st->m, id, name, sizeof name));
    }
    return r;
}

/* The hook has the last word on bytes that enter RAM. Returns with mu held. */
static void admit(struct store *st, struct entry *en)
{
    struct err e = {0};
    uint32_t id = eng_id(st, en);
    int r = 0;
    int (*hook)(void *, uint32_t, uint8_t *, size_t, struct err *) = st->o.admit;
    void *ctx = st->o.admit_ctx;
    pthread_mutex_unlock(&st->mu);
    if (hook) {
        r = hook(ctx, id, en->slot->p, en->slot->size, &e);
        if (r) {
            char name[128];
            err_prefix(&e, "%s is refused", model_object_name(st->m, id, name, sizeof name));
        }
    }
    pthread_mutex_lock(&st->mu);
    if (en->doomed) { /* taken back while it was on its way: as if it had not come */
        en->doomed = false;
        eng_put_slot(st, en);
        en->state = ENT_IDLE;
        eng_want(st, id, (enum store_prio)en->prio, en->want_ram);
    } else if (r) {
        eng_fail(st, en, r, &e);
    } else {
        eng_ready(st, en);
    }
}

/* A damaged or missing cache file: named, then fetched again inside the same request. */
static void refetch(struct store *st, struct entry *en, const struct err *e)
{
    uint32_t id = eng_id(st, en);
    bool lent = e->code == ERR_OFFLINE; /* an adopted folder's: said already */
    st->s.refetched += !lent;
    if (e->code == ERR_DIGEST) {
        st->s.bad_chunks++;
    }
    en->past_lent |= lent;
    bool elsewhere = eng_can_fetch(st) || disk_has(st->disk, id) ||
                     (!en->past_lent && disk_offers(st->disk, id));
    if (!elsewhere || (!lent && ++en->tries > 3)) {
        struct err e2 = *e;
        if (!elsewhere) {
            err_prefix(&e2, "offline, so it cannot be fetched again");
        }
        eng_fail(st, en, e->code, &e2);
        return;
    }
    if (!lent) {
        pthread_mutex_unlock(&st->mu);
        eng_log(st, "%s; fetching it again", e->msg);
        pthread_mutex_lock(&st->mu);
    }
    en->state = ENT_IDLE;
    eng_want(st, id, (enum store_prio)en->prio, en->want_ram);
}

/* Somebody wants it on disk: what an adopted folder offers is there once it was looked at. */
static void job_look(struct store *st, struct entry *en)
{
    uint32_t id = eng_id(st, en);
    struct err e = {0};
    pthread_mutex_unlock(&st->mu);
    int r = disk_offers(st->disk, id) ? disk_look_at(st->disk, id, NULL, &e) : 0;
    pthread_mutex_lock(&st->mu);
    if (r) {
        refetch(st, en, &e);
        return;
    }
    en->state = ENT_IDLE;
    eng_on_disk(st, en);
    if (en->want_ram || en->waiters) {
        eng_want(st, id, (enum store_prio)en->prio, en->want_ram);
    }
}

static void job_read(struct store *st, struct entry *en)
{
    uint32_t id = eng_id(st, en);
    const struct model_object *ob = eng_object(st, id);
    struct err e = {0};
    if (!st->in_place && !en->want_ram) {
        job_look(st, en);
        return;
    }
    struct ram_slot *s = eng_slot(st, en);
    if (!s) {
        char name[128];
        err_set(&e, ERR_NOMEM, "no memory for the %llu bytes of %s: give a smaller RAM budget",
                (unsigned long long)ob->size, model_object_name(st->m, id, name, sizeof name));
        eng_fail(st, en, e.code, &e);
        return;
    }
    pthread_mutex_unlock(&st->mu);
    uint64_t cost = st->in_place ? ob->size : disk_cost(st->disk, id);
    int r = st->in_place ? worker_read_in_place(st, id, 0, s->p, s->size, &e)
                         : disk_read(st->disk, id, s->p, &e);
    pthread_mutex_lock(&st->mu);
    if (r && st->in_place) {
        eng_fail(st, en, r, &e);
        return;
    }
    if (r) {
        refetch(st, en, &e);
        return;
    }
    st->s.disk_bytes += cost;
    if (ob->kind == MODEL_SPINE) {
        st->s.spine_bytes_read += ob->size;
    }
    if (en->from != STORE_ORIGIN &&
        en->from != STORE_PEERS) { /* else fetched for this very request, read back from its file */
        en->from = cost ? STORE_DISK : STORE_RAM; /* packed, in memory */
    }
    admit(st, en);
}

static void *worker_main(void *arg)
{
    struct store *st = arg;
    qos_self(QOS_ANSWER);
    pthread_mutex_lock(&st->mu);
    for (;;) {
        struct entry *en = eng_pop(st);
        if (!en && keep_next(st)) {
            pthread_mutex_unlock(&st->mu);
            eng_sweep(st);
            pthread_mutex_lock(&st->mu);
            continue;
        }
        if (!en) {
            if (st->closing) {
                break;
            }
            pthread_cond_wait(&st->work, &st->mu);
            continue;
        }
        bool large = en->large;
        if (st->closing) {
            struct err e = {0};
            err_set(&e, ERR_CANCELLED, "the store is being closed");
            eng_fail(st, en, e.code, &e);
            eng_popped(st, large);
            continue;
        }
        if (en->job == JOB_ADMIT) {
            if (!eng_is_expert(st, eng_id(st, en))) {
                st->s.spine_bytes_read += en->slot->size;
            }
            admit(st, en);
        } else if (en->job == JOB_FETCH) {
            pthread_mutex_unlock(&st->mu);
            sink_resume(st, en);
            pthread_mutex_lock(&st->mu);
        } else {
            job_read(st, en);
        }
        eng_popped(st, large);
        pthread_mutex_unlock(&st->mu);
        eng_sweep(st);
        pthread_mutex_lock(&st->mu);
    }
    pthread_mutex_unlock(&st->mu);
    return NULL;
}

/* ---- publishing ---- */

void worker_publish(struct store *st, struct disk_file *f)
{
    st->ent[f->id].publishing = true;
    f->next = NULL;
    *(st->pub_head ? &st->pub_tail->next : &st->pub_head) = f;
    st->pub_tail = f;
    pthread_cond_signal(&st->pub);
}

/* With mu: what became of one file. */
static void published(struct store *st, struct disk_file *f)
{
    struct entry *en = &st->ent[f->id];
    en->publishing = false;
    bool wake_up = en->state == ENT_PUBLISH;
    if (wake_up) {
        en->state = ENT_IDLE;
    }
    if (f->result == 0) {
        eng_on_disk(st, en);
    } else if (wake_up) {
        en->no_disk = true; /* its file could not be kept: into RAM past the disk */
    }
    if (wake_up && (en->waiters || en->hinted)) {
        eng_want(st, f->id, (enum store_prio)en->prio, en->want_ram);
    } else if (en->state == ENT_IDLE && f->result && en->waiters) {
        struct err e = {0}; /* they wanted it on disk */
        err_set(&e, ERR_FULL, "the cache cannot be written");
        eng_fail(st, en, e.code, &e);
    } else if (en->state == ENT_IDLE) {
        en->from = STORE_NOWHERE;
    }
}

static void *publisher_main(void *arg)
{
    struct store *st = arg;
    qos_self(QOS_ANSWER);
    pthread_mutex_lock(&st->mu);
    for (;;) {
        if (!st->pub_head) {
            if (st->pub_stop) {
                break;
            }
            pthread_cond_wait(&st->pub, &st->mu);
            continue;
        }
        struct disk_file *list = st->pub_head, *last = list;
        for (int i = 1; i < PUBLISH_AT_ONCE && last->next; i++) {
            last = last->next;
        }
        st->pub_head = last->next;
        last->next = NULL;
        pthread_mutex_unlock(&st->mu);

        struct err e = {0};
        int r = disk_publish(st->disk, list, &e);
        for (const struct disk_file *f = list; f; f = f->next) {
            disk_reconsider(st->disk, f->id);
        }
        if (r) {
            eng_disk_trouble(st, &e);
        } else {
            eng_disk_fine(st);
        }
        pthread_mutex_lock(&st->mu);
        while (list) {
            struct disk_file *f = list;
            list = f->next;
            published(st, f);
            disk_free(st->disk, f);
        }
    }
    pthread_mutex_unlock(&st->mu);
    return NULL;
}

int worker_start(struct store *st, struct err *e)
{
    st->workers = calloc(STORE_READS, sizeof *st->workers);
    if (!st->workers) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (int i = 0; i < STORE_READS; i++) {
        int r = pthread_create(&st->workers[i], NULL, worker_main, st);
        if (r) {
            return err_sys(e, r, "cannot start a thread for disk reads");
        }
        st->n_workers++;
    }
    if (st->disk) {
        int r = pthread_create(&st->publisher, NULL, publisher_main, st);
        if (r) {
            return err_sys(e, r, "cannot start the thread that writes the cache");
        }
        st->have_publisher = true;
    }
    return 0;
}

void worker_stop(struct store *st)
{
    pthread_mutex_lock(&st->mu);
    st->closing = true;
    pthread_cond_broadcast(&st->work);
    pthread_mutex_unlock(&st->mu);
    for (uint32_t i = 0; i < st->n_workers; i++) {
        pthread_join(st->workers[i], NULL);
    }
    free(st->workers);
    st->n_workers = 0;
    st->workers = NULL;
    pthread_mutex_lock(&st->mu);
    st->pub_stop = true;
    pthread_cond_broadcast(&st->pub);
    pthread_mutex_unlock(&st->mu);
    if (st->have_publisher) {
        pthread_join(st->publisher, NULL);
        st->have_publisher = false;
    }
}
