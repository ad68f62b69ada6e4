/* SPDX-License-Identifier: MIT
 * trim.c: see budget.h: which limits the disk tier has, and the thread that comes down to them and
 * writes down when objects were used. */
#include "node/store/budget.h"
#include "node/store/disk.h"
#include "node/store/engine.h"
#include "node/store/kept.h"
#include "node/store/layout.h"
#include "node/store/sync.h"
#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SECOND_NS 1000000000ull
#define LOOK_NS SECOND_NS           /* between two looks at volume and kept numbers */
#define STEP 16                     /* objects that leave at once */
#define STEP_NS 2000000ull          /* between two steps, for readers */
#define SAVE_NS (30 * SECOND_NS)    /* between two savings */
#define OTHERS_NS (900 * SECOND_NS) /* between two countings of other models */
#define HOLD_NS (8 * SECOND_NS)     /* after evicting has freed nothing, doubled each time */
#define HOLD_MOST (1800 * SECOND_NS)
#define GIB (1ull << 30)

struct trim {
    struct store *st;
    pthread_t thread;
    bool running;

    pthread_mutex_t mu; /* what follows; the disk's lock is taken inside of it */
    pthread_cond_t cond;
    bool stop, poke;
    bool given_budget, given_floor; /* the options of store_open hold still */
    enum store_from budget_from, floor_from;
    uint64_t budget, floor, auto_floor;
    uint64_t soft, now; /* of the automatic floor what counts yet; of t->floor what counts */
    uint64_t trimmed, written;
    bool said_over;

    /* of the thread alone */
    uint64_t saved_at, others_at, hold_until, hold;
};

uint64_t store_auto_floor(uint64_t volume, uint64_t free, uint64_t own)
{
    uint64_t floor = volume / 20, half = (free + (own < UINT64_MAX - free ? own : 0)) / 2;
    uint64_t least = volume && volume / 8 < GIB ? volume / 8 : GIB;
    floor = floor < half ? floor : half;
    floor = floor < 32 * GIB ? floor : 32 * GIB;
    return floor > least ? floor : least;
}

uint64_t store_soft_floor(uint64_t automatic, uint64_t volume, uint64_t free)
{
    uint64_t least = store_auto_floor(volume, 0, 0);
    return free >= automatic ? automatic : free > least ? free : least;
}

/* ---- the limits ---- */

/* With mu: from options, what is kept, or automatic. True: something is new. */
static bool decide(struct trim *t)
{
    struct kept_budget k;
    const struct store_opts *o = &t->st->o;
    uint64_t budget = t->budget, now = t->now;
    kept_budget_load(t->st->cache_dir, &k);
    t->budget = t->given_budget ? o->disk_budget : k.has_budget ? k.budget : 0;
    t->budget_from = t->given_budget ? STORE_GIVEN : k.has_budget ? STORE_KEPT : STORE_AUTO;
    t->floor = t->given_floor ? o->disk_floor : k.has_floor ? k.floor : t->auto_floor;
    t->floor_from = t->given_floor ? STORE_GIVEN : k.has_floor ? STORE_KEPT : STORE_AUTO;
    t->now = t->floor_from == STORE_AUTO ? t->soft : t->floor;
    bool news = budget != t->budget || now != t->now;
    if (news) {
        disk_limits(t->st->disk, t->budget, t->now);
        t->said_over = false;
    }
    return news;
}

static int keep(const char *cache_dir, const uint64_t *budget, const uint64_t *floor, struct err *e)
{
    struct kept_budget k;
    kept_budget_load(cache_dir, &k);
    if (budget) {
        k.has_budget = *budget != 0;
        k.budget = *budget;
    }
    if (floor) {
        k.has_floor = *floor != UINT64_MAX;
        k.floor = *floor;
    }
    return kept_budget_save(cache_dir, &k, e);
}

void store_kept_budget(const char *cache_dir, uint64_t *budget, uint64_t *floor)
{
    struct kept_budget k;
    kept_budget_load(cache_dir, &k);
    *budget = k.has_budget ? k.budget : 0;
    *floor = k.has_floor ? k.floor : UINT64_MAX;
}

int store_keep_budget(const char *cache_dir, const uint64_t *budget, const uint64_t *floor,
                      struct err *e)
{
    int r = layout_prepare(cache_dir, e);
    return r ? r : keep(cache_dir, budget, floor, e);
}

int store_set_budget(struct store *st, const uint64_t *budget, const uint64_t *floor, struct err *e)
{
    struct trim *t = st->trim;
    if (!t) {
        return err_set(e, ERR_UNSUPPORTED, "this store keeps nothing on disk");
    }
    pthread_mutex_lock(&t->mu);
    int r = keep(st->cache_dir, budget, floor, e);
    if (!r) {
        t->given_budget = t->given_budget && !budget;
        t->given_floor = t->given_floor && !floor;
        decide(t);
        t->poke = true;
        pthread_cond_signal(&t->cond);
    }
    pthread_mutex_unlock(&t->mu);
    return r;
}

void trim_numbers(struct store *st, uint64_t *written, uint64_t *today)
{
    struct trim *t = st->trim;
    *written = *today = 0;
    if (t) {
        pthread_mutex_lock(&t->mu);
        t->written += disk_written(st->disk);
        *written = t->written;
        pthread_mutex_unlock(&t->mu);
        *today = kept_written_today(disk_path(st->disk));
    }
}

int store_closed(struct store *st, struct err *why)
{
    return st->disk ? disk_closed(st->disk, true, why) : 0;
}

int store_get_budget(struct store *st, struct store_budget *out, struct err *e)
{
    struct trim *t = st->trim;
    struct disk_space s;
    memset(out, 0, sizeof *out);
    if (!t) {
        return err_set(e, ERR_UNSUPPORTED, "this store keeps nothing on disk");
    }
    disk_space(st->disk, &s);
    trim_numbers(st, &out->written, &out->written_today);
    pthread_mutex_lock(&t->mu);
    out->budget = t->budget;
    out->floor = t->floor;
    out->floor_now = t->now;
    out->budget_from = t->budget_from;
    out->floor_from = t->floor_from;
    out->trimmed = t->trimmed;
    pthread_mutex_unlock(&t->mu);
    out->may = s.budget;
    out->used = s.used;
    out->others = s.others;
    out->unfinished = s.unfinished;
    out->volume = s.volume;
    out->free = s.free;
    out->model = model_expert_bytes(st->m) + model_spine_bytes(st->m);
    return 0;
}

uint64_t store_drop(struct store *st, uint32_t id)
{
    return st->disk && id < st->n_ent ? disk_drop(st->disk, id) : 0;
}

uint64_t store_last_use(struct store *st, uint32_t id)
{
    return st->disk && id < st->n_ent ? disk_last_use(st->disk, id) : 0;
}

/* ---- the thread ---- */

/* Bytes of plain files below a folder, at most `depth` folders down. */
static uint64_t bytes_below(const char *dir, int depth)
{
    uint64_t sum = 0;
    DIR *d = opendir(dir);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        struct stat sb;
        char *p = x->d_name[0] == '.' ? NULL : layout_path("%s/%s", dir, x->d_name);
        if (p && !lstat(p, &sb)) {
            sum += S_ISREG(sb.st_mode)            ? (uint64_t)sb.st_size
                   : S_ISDIR(sb.st_mode) && depth ? bytes_below(p, depth - 1)
                                                  : 0;
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    return sum;
}

static void count_others(struct trim *t)
{
    char *models = layout_path("%s/models", t->st->cache_dir);
    const char *own = strrchr(disk_path(t->st->disk), '/');
    uint64_t sum = 0;
    DIR *d = models ? opendir(models) : NULL;
    struct dirent *x;
    while (d && own && (x = readdir(d))) {
        char *p = x->d_name[0] == '.' || !strcmp(x->d_name, own + 1)
                      ? NULL
                      : layout_path("%s/%s", models, x->d_name);
        if (p) {
            sum += bytes_below(p, 3);
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    free(models);
    disk_others(t->st->disk, sum);
}

static bool pause_ns(struct trim *t, uint64_t ns)
{
    uint64_t end = clock_ns() + ns;
    pthread_mutex_lock(&t->mu);
    while (!t->stop && clock_ns() < end) {
        sync_wait(&t->cond, &t->mu, end);
    }
    bool stop = t->stop;
    pthread_mutex_unlock(&t->mu);
    return !stop;
}

/* Down to the limits, in steps. For the floor no more leaves than was missing at the beginning: on
 * a volume with snapshots, space comes late or not at all. */
static void come_down(struct trim *t)
{
    struct disk *d = t->st->disk;
    struct disk_space before, after;
    uint64_t sum = 0, gone, floor, budget;
    disk_space(d, &before);
    pthread_mutex_lock(&t->mu);
    floor = t->now;
    budget = t->budget;
    pthread_mutex_unlock(&t->mu);
    if (before.volume && before.free >= t->auto_floor) { /* from now on it counts as a whole */
        pthread_mutex_lock(&t->mu);
        t->soft = t->auto_floor;
        decide(t);
        floor = t->now;
        pthread_mutex_unlock(&t->mu);
    }
    uint64_t missing = before.volume && before.free < floor ? floor - before.free : 0;
    bool held = clock_ns() < t->hold_until;
    while ((gone = disk_trim(d, STEP, !held && sum < missing))) {
        sum += gone;
        pthread_mutex_lock(&t->mu);
        t->trimmed += gone;
        pthread_mutex_unlock(&t->mu);
        if (!pause_ns(t, STEP_NS)) {
            return;
        }
    }
    disk_space(d, &after);
    if (sum) {
        eng_log(t->st, "%.1f MB of experts were taken from the cache: it holds %.1f MB now (%s)",
                (double)sum * 1e-6, (double)after.used * 1e-6,
                missing ? "the volume is nearly full" : "down to its budget");
    }
    if (missing && sum && after.free < before.free + sum / 2) {
        t->hold = t->hold ? t->hold * 2 : HOLD_NS;
        t->hold = t->hold < HOLD_MOST ? t->hold : HOLD_MOST;
        t->hold_until = clock_ns() + t->hold;
        eng_log(t->st,
                "evicting did not free the volume of %s (others fill it, or snapshots hold "
                "the space): the cache keeps what it has for a while",
                t->st->cache_dir);
    } else if (!missing) {
        t->hold = 0;
    }
    uint64_t all = after.used + after.others;
    pthread_mutex_lock(&t->mu);
    bool say = budget && all > budget && !t->said_over;
    t->said_over = t->said_over || say;
    pthread_mutex_unlock(&t->mu);
    if (say) {
        eng_log(t->st,
                "the cache stays %.1f MB over its budget: the spine and what is in use do not "
                "leave%s",
                (double)(all - budget) * 1e-6,
                after.others ? ", nor do other models (shoal cache ls)" : "");
    }
}

static void *trim_main(void *arg)
{
    struct trim *t = arg;
    qos_self(QOS_SERVE);
    for (;;) {
        uint64_t now = clock_ns();
        if (!t->others_at || now >= t->others_at + OTHERS_NS) {
            count_others(t);
            t->others_at = now;
        }
        come_down(t);
        if (now >= t->saved_at + SAVE_NS) {
            disk_save_use(t->st->disk);
            t->saved_at = now;
        }
        uint64_t next = clock_ns() + LOOK_NS;
        pthread_mutex_lock(&t->mu);
        while (!t->stop && !t->poke && clock_ns() < next) {
            sync_wait(&t->cond, &t->mu, next);
        }
        t->poke = false;
        bool stop = t->stop;
        decide(t); /* another process may have kept other numbers */
        pthread_mutex_unlock(&t->mu);
        if (stop) {
            return NULL;
        }
    }
}

/* ---- life ---- */

int trim_open(struct store *st, struct err *e)
{
    struct trim *t = calloc(1, sizeof *t);
    struct disk_space s;
    if (!t || pthread_mutex_init(&t->mu, NULL) || sync_cond_init(&t->cond)) {
        free(t);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    t->st = st;
    t->given_budget = st->o.disk_budget != 0;
    t->given_floor = st->o.disk_floor != 0;
    t->saved_at = clock_ns();
    disk_space(st->disk, &s);
    t->auto_floor = store_auto_floor(s.volume, s.free, s.used);
    t->soft = store_soft_floor(t->auto_floor, s.volume, s.volume ? s.free : UINT64_MAX);
    decide(t);
    disk_limits(st->disk, t->budget, t->now);
    st->trim = t;
    return 0;
}

int trim_start(struct store *st, struct err *e)
{
    struct trim *t = st->trim;
    if (t && pthread_create(&t->thread, NULL, trim_main, t)) {
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    if (t) {
        t->running = true;
    }
    return 0;
}

void trim_stop(struct store *st)
{
    struct trim *t = st->trim;
    if (!t) {
        return;
    }
    pthread_mutex_lock(&t->mu);
    t->stop = true;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->mu);
    if (t->running) {
        pthread_join(t->thread, NULL);
    }
    pthread_cond_destroy(&t->cond);
    pthread_mutex_destroy(&t->mu);
    st->trim = NULL;
    free(t);
}
