/* SPDX-License-Identifier: MIT
 * upkeep.c: see upkeep.h. */
#include "node/store/upkeep.h"

#include "node/store/disk.h"
#include "node/store/engine.h"
#include "node/store/scrub.h"
#include "node/store/sync.h"
#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <stdlib.h>
#include <time.h>

#define TICK_NS 2000000000u
#define REPAIR_MAX 256     /* what is more comes when it is wanted */
#define CHUNK_NS 60000000u /* between two chunks of a scrub: 16 MiB a second */

struct upkeep {
    struct store *st;
    pthread_t thread;
    pthread_mutex_t mu;
    pthread_cond_t cv;
    bool stop;
    bool (*may)(void *ctx);
    void *may_ctx;
    int asking; /* inside of may */
    int computing;
    uint64_t period_s;
    struct scrub scrub;
    uint64_t total; /* chunks of own files */
    bool held;
    uint32_t again[REPAIR_MAX]; /* damaged objects that were set aside; the thread's own */
    uint32_t n_again;
};

static bool stopping(struct upkeep *u)
{
    pthread_mutex_lock(&u->mu);
    bool r = u->stop;
    pthread_mutex_unlock(&u->mu);
    return r;
}

static bool allowed(struct upkeep *u)
{
    pthread_mutex_lock(&u->mu);
    bool (*may)(void *) = u->may;
    void *ctx = u->may_ctx;
    bool ok = u->computing <= 0;
    u->asking += may != NULL;
    pthread_mutex_unlock(&u->mu);
    ok = ok && (!may || may(ctx));
    pthread_mutex_lock(&u->mu);
    u->asking -= may != NULL;
    u->held = !ok;
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
    return ok;
}

/* False: it is to stop. */
static bool pause_for(struct upkeep *u, uint64_t ns)
{
    uint64_t end = clock_ns() + ns;
    pthread_mutex_lock(&u->mu);
    while (!u->stop && clock_ns() < end) {
        sync_wait(&u->cv, &u->mu, end);
    }
    bool go = !u->stop;
    pthread_mutex_unlock(&u->mu);
    return go;
}

/* For a long reading: waits while it may not go on. Folders that come and go are met meanwhile. */
static bool hold(void *ctx)
{
    struct upkeep *u = ctx;
    for (uint64_t looked = clock_ns(); !allowed(u);) {
        if (!pause_for(u, TICK_NS / 8)) {
            return true;
        }
        if (clock_ns() - looked > TICK_NS) {
            disk_adopt_tick(u->st->disk);
            looked = clock_ns();
        }
    }
    return stopping(u);
}

/* What adopted folders offer. */
static void look(struct upkeep *u)
{
    struct store *st = u->st;
    struct err e = {0};
    int r = 0;
    while (!hold(u) && (r = disk_pass_next(st->disk, hold, u, &e)) == 0) {
    }
    if (r && r != ERR_NOTFOUND && r != ERR_CANCELLED) {
        eng_log(st, "an adopted shard cannot be compared: %s", e.msg);
    }
    for (uint32_t id = 0; !hold(u) && (id = disk_look_next(st->disk, id)) != MODEL_NONE; id++) {
        if (disk_look_at(st->disk, id, NULL, &e) == ERR_FULL) {
            eng_log(st, "%s", e.msg);
            return;
        }
    }
}

/* What was damaged comes again. A copy in RAM, which may not be its own bytes any more, goes for
 * that. */
static void repair(struct upkeep *u)
{
    struct store *st = u->st;
    uint32_t left = 0;
    for (uint32_t i = 0; i < u->n_again; i++) {
        uint32_t id = u->again[i];
        if (disk_has(st->disk, id)) {
            continue;
        }
        pthread_mutex_lock(&st->mu);
        if (!st->closing && eng_can_fetch(st)) {
            eng_take_back(st, &st->ent[id]);
            eng_want(st, id, STORE_BACKGROUND, false);
        }
        pthread_mutex_unlock(&st->mu);
        u->again[left++] = id;
    }
    u->n_again = left;
    eng_sweep(st);
}

static void scrub(struct upkeep *u)
{
    struct store *st = u->st;
    const char *dir = disk_path(st->disk);
    for (;;) {
        struct scrub s;
        uint32_t id = MODEL_NONE;
        struct err e = {0};
        uint64_t total = disk_own_chunks(st->disk), now = (uint64_t)time(NULL);
        pthread_mutex_lock(&u->mu);
        u->total = total;
        bool due = !u->stop && scrub_due(&u->scrub, total, u->period_s, now);
        s = u->scrub;
        pthread_mutex_unlock(&u->mu);
        if (!due || !allowed(u)) {
            return;
        }
        int r = scrub_step(&s, st->disk, &id, &e);
        if (s.unsaved >= 256 || now - s.saved_at > 300) {
            scrub_save(&s, dir);
            s.saved_at = now;
        }
        pthread_mutex_lock(&u->mu);
        u->scrub = s;
        pthread_mutex_unlock(&u->mu);
        if (r) {
            eng_log(st, "a scrub of the cache has found damage: %s", e.msg);
            pthread_mutex_lock(&st->mu);
            st->s.bad_chunks++;
            pthread_mutex_unlock(&st->mu);
            if (u->n_again < REPAIR_MAX) {
                u->again[u->n_again++] = id;
            }
            repair(u);
        }
        if (!pause_for(u, CHUNK_NS)) {
            return;
        }
    }
}

static void *upkeep_main(void *arg)
{
    struct upkeep *u = arg;
    qos_self(QOS_UPKEEP);
    while (!stopping(u)) {
        disk_adopt_tick(u->st->disk);
        look(u);
        repair(u);
        scrub(u);
        if (!pause_for(u, TICK_NS)) {
            break;
        }
    }
    scrub_save(&u->scrub, disk_path(u->st->disk));
    return NULL;
}

/* ---- life ---- */

int upkeep_start(struct store *st, struct err *e)
{
    struct upkeep *u = calloc(1, sizeof *u);
    if (!u || pthread_mutex_init(&u->mu, NULL)) {
        free(u);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (sync_cond_init(&u->cv)) {
        pthread_mutex_destroy(&u->mu);
        free(u);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    u->st = st;
    scrub_load(&u->scrub, disk_path(st->disk));
    if (pthread_create(&u->thread, NULL, upkeep_main, u)) {
        pthread_cond_destroy(&u->cv);
        pthread_mutex_destroy(&u->mu);
        free(u);
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    st->upkeep = u;
    return 0;
}

void upkeep_stop(struct store *st)
{
    struct upkeep *u = st->upkeep;
    if (!u) {
        return;
    }
    pthread_mutex_lock(&u->mu);
    u->stop = true;
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
    pthread_join(u->thread, NULL);
    pthread_cond_destroy(&u->cv);
    pthread_mutex_destroy(&u->mu);
    free(u);
    st->upkeep = NULL;
}

/* ---- upkeep.h ---- */

void store_background(struct store *st, bool (*may)(void *ctx), void *ctx)
{
    struct upkeep *u = st->upkeep;
    if (u) {
        pthread_mutex_lock(&u->mu);
        u->may = may;
        u->may_ctx = ctx;
        while (u->asking && !may) { /* nobody is inside when it returns */
            pthread_cond_wait(&u->cv, &u->mu);
        }
        pthread_mutex_unlock(&u->mu);
    }
}

void store_computing(struct store *st, int by)
{
    struct upkeep *u = st->upkeep;
    if (u) {
        pthread_mutex_lock(&u->mu);
        u->computing += by;
        pthread_mutex_unlock(&u->mu);
    }
}

void store_scrub(struct store *st, uint64_t period_s)
{
    struct upkeep *u = st->upkeep;
    if (u) {
        pthread_mutex_lock(&u->mu);
        u->period_s = period_s;
        pthread_mutex_unlock(&u->mu);
    }
}

size_t store_adopted(struct store *st, struct store_adopted *out, size_t max)
{
    struct disk_adopted v[STORE_ADOPTED_MAX];
    size_t n =
        st->disk ? disk_adopted(st->disk, v, max < STORE_ADOPTED_MAX ? max : STORE_ADOPTED_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct store_adopted){v[i].path,    v[i].here,    v[i].other_model,
                                        v[i].objects, v[i].experts, v[i].looked,
                                        v[i].refused, v[i].bytes,   v[i].looked_bytes};
    }
    return n;
}

void store_adopt_look(struct store *st)
{
    if (st->disk) {
        disk_adopt_scan(st->disk, true);
    }
}

void store_get_upkeep(struct store *st, struct store_upkeep *out)
{
    struct upkeep *u = st->upkeep;
    *out = (struct store_upkeep){0};
    if (!u) {
        return;
    }
    pthread_mutex_lock(&u->mu);
    out->scrub_period_s = u->period_s;
    out->scrub_started = u->scrub.started;
    out->scrub_done = u->scrub.done;
    out->scrub_rounds = u->scrub.rounds;
    out->scrub_bad = u->scrub.bad;
    out->scrub_total = u->total;
    out->held = u->held;
    pthread_mutex_unlock(&u->mu);
    disk_upkeep(st->disk, &out->to_look, &out->quarantine_bytes, &out->quarantine_files,
                &out->quarantine);
}
