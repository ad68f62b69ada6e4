/* SPDX-License-Identifier: MIT
 * mirrors.c: see mirrors.h. A wanted part is wrapped, and the wrapper goes from source to source;
 * bytes that have come stay. Order of locks: mu, then those inside origin.c. */
#include "node/store/mirrors_inner.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STALL_MS 5000        /* without bytes for so long, a mirror is left */
#define SLOW_MIN (64u << 10) /* bytes a second: less is as good as nothing */
#define SLOW_SHARE                                                    \
    16 /* a connection that gives less than this part of what another \
          source gives in all (four connections): too slow */

void mirror_say(struct mirrors *ms, const char *host, const char *what)
{
    if (ms->log) {
        char line[900];
        snprintf(line, sizeof line, "mirror %.200s: %.600s", host, what);
        ms->log(ms->log_ctx, line);
    }
}

/* ---- life ---- */

int mirrors_open(struct origin *o, const struct origin_opts *base, const char *const *urls,
                 size_t n, struct mirrors **out, struct err *e)
{
    *out = NULL;
    if (!n) {
        return 0;
    }
    if (n > STORE_MIRRORS_MAX) {
        return err_set(e, ERR_ARG, "%d mirrors at most", STORE_MIRRORS_MAX);
    }
    struct mirrors *ms = calloc(1, sizeof *ms);
    if (!ms || pthread_mutex_init(&ms->mu, NULL)) {
        free(ms);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    ms->o = o;
    ms->rate = base->mirror_rate;
    ms->log = base->log;
    ms->log_ctx = base->log_ctx;
    ms->rng = clock_ns() | 1u;
    int r = 0;
    for (size_t i = 0; i < n && !r; i++) {
        size_t len = strlen(urls[i]);
        while (len && urls[i][len - 1] == '/') {
            len--;
        }
        char *url = malloc(len + 1);
        if (!url) {
            r = err_set(e, ERR_NOMEM, "out of memory");
            break;
        }
        memcpy(url, urls[i], len);
        url[len] = 0;
        if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) {
            r = err_set(e, ERR_ARG, "the mirror \"%.200s\" is no http(s) URL", url);
        } else if (strcmp(url, origin_url(o)) == 0) {
            r = err_set(e, ERR_ARG, "the mirror \"%.200s\" is the model's own address", url);
        }
        struct origin_opts mo = {
            .url = url,
            .ca_file = base->ca_file,
            .rate_limit = base->mirror_rate,
            .retries = 1,
            .stall_ms = base->stall_ms && base->stall_ms < STALL_MS ? base->stall_ms : STALL_MS};
        r = r ? r : origin_open(&mo, &ms->m[i].o, e);
        free(url);
        ms->n += !r;
    }
    if (r) {
        mirrors_free(ms);
        return r;
    }
    *out = ms;
    return 0;
}

void mirrors_free(struct mirrors *ms)
{
    if (!ms) {
        return;
    }
    for (size_t i = 0; i < ms->n; i++) {
        origin_free(ms->m[i].o);
        free(ms->m[i].f);
    }
    pthread_mutex_destroy(&ms->mu);
    free(ms);
}

/* ---- which source ---- */

struct mfile *mirror_file(struct mirrors *ms, struct mirror *m, uint32_t file)
{
    if (file >= m->cap) {
        uint32_t cap = file < 64 ? 64 : file * 2;
        struct mfile *f = realloc(m->f, cap * sizeof *f);
        if (!f) {
            return NULL;
        }
        memset(f + m->cap, 0, (cap - m->cap) * sizeof *f);
        m->f = f;
        m->cap = cap;
    }
    struct mfile *f = &m->f[file];
    if (f->state == FILE_NEW) {
        char name[256];
        struct err e;
        pthread_mutex_lock(&ms->o->mu);
        snprintf(name, sizeof name, "%s", ms->o->files[file].name);
        uint64_t size = ms->o->files[file].size;
        pthread_mutex_unlock(&ms->o->mu);
        if (origin_file(m->o, name, &f->no, &e)) {
            return NULL;
        }
        origin_expect(m->o, f->no, size, ""); /* its entity tags are its own */
    }
    return f;
}

/* The best measured rate of the usable sources but `but`; 0: none is known. */
static double other_rate(struct mirrors *ms, int but, uint64_t now)
{
    bool up;
    double rate, latency, best = 0;
    origin_measured(ms->o, &up, &rate, &latency);
    best = up ? rate : 0;
    for (int i = 0; i < (int)ms->n; i++) {
        const struct mirror *m = &ms->m[i];
        if (i != but && !m->wrong && m->paused_until <= now) {
            origin_measured(m->o, &up, &rate, &latency);
            best = up && rate > best ? rate : best;
        }
    }
    return best;
}

/* With mu: the first that is worth asking for this file; MIRROR_NONE: none. */
static int choose(struct mirrors *ms, const struct mirror_part *w, uint64_t now, struct mfile **out)
{
    for (int i = 0; i < (int)ms->n && !ms->stopping; i++) {
        struct mirror *m = &ms->m[i];
        if (m->wrong || m->paused_until > now || w->tried >> i & 1) {
            continue;
        }
        struct mfile *f = mirror_file(ms, m, w->user->file);
        if (!f || (f->state == FILE_MISSING && f->until > now)) {
            continue;
        }
        if (f->until && f->until <= now) {
            f->state = FILE_NEW;
            f->until = 0;
        }
        *out = f;
        return i;
    }
    return MIRROR_NONE;
}

/* ---- parts ---- */

static int on_data(struct origin_part *p, const void *b, size_t n, struct err *e)
{
    struct mirror_part *w = p->user;
    struct origin_part *u = w->user;
    u->at_mirror = w->at >= 0;
    u->mirror = w->at >= 0 ? (uint8_t)(w->at + 1) : u->mirror;
    if (!w->begun) {
        w->begun = true;
        w->own = u->begin ? u->begin(u, e) : 0;
    }
    if (!w->own) {
        w->own = u->data(u, b, n, e);
    }
    if (w->own) {
        w->own_err = *e;
        return w->own;
    }
    w->got += n;
    return 0;
}

static void finish(struct mirror_part *w, int code, const struct err *e)
{
    struct origin_part *u = w->user;
    pthread_mutex_lock(&w->ms->mu);
    u->via = NULL;
    pthread_mutex_unlock(&w->ms->mu);
    u->got = w->got;
    free(w);
    u->done(u, code, e);
}

static void on_done(struct origin_part *p, int code, const struct err *e)
{
    struct mirror_part *w = p->user;
    struct mirrors *ms = w->ms;
    if (w->own) {
        struct err own = w->own_err;
        finish(w, w->own, &own);
        return;
    }
    if (w->at == MIRROR_NONE || code == ERR_CANCELLED) {
        finish(w, code, e);
        return;
    }
    if (!code) {
        pthread_mutex_lock(&ms->mu);
        ms->m[w->at].fails = 0;
        ms->m[w->at].objects++;
        pthread_mutex_unlock(&ms->mu);
        finish(w, 0, NULL);
        return;
    }
    mirror_failed(ms, w->at, w->user->file, code, e);
    w->tried |= 1u << w->at;
    mirror_route(w);
}

/* Bytes a second: a connection that gives fewer is too slow. Not for its cap's sake. */
static uint64_t least_rate(const struct mirrors *ms, double floor)
{
    uint64_t least = floor > SLOW_MIN ? (uint64_t)floor : SLOW_MIN, capped = ms->rate / SLOW_SHARE;
    return ms->rate && least > capped ? (capped ? capped : 1) : least;
}

void mirror_route(struct mirror_part *w)
{
    struct mirrors *ms = w->ms;
    struct origin_part *u = w->user;
    struct mfile *f = NULL;
    uint64_t now = clock_ns(), rnd = 0;
    bool up, probe = false;
    double rate, latency, floor;
    origin_measured(ms->o, &up, &rate, &latency);
    pthread_mutex_lock(&ms->mu);
    int at = choose(ms, w, now, &f);
    if (at >= 0 && f->state != FILE_GOOD && f->state != FILE_ASKED) {
        f->state = up ? FILE_ASKED : FILE_GOOD;
        f->until = up ? 0 : now + MIRROR_UNSURE_NS;
        probe = up;
        ms->rng = ms->rng * 6364136223846793005ull + 1442695040888963407ull;
        rnd = ms->rng >> 20;
    }
    w->at = at;
    w->waiting = at >= 0 && f->state == FILE_ASKED;
    uint32_t no = at >= 0 ? f->no : u->file;
    floor = at >= 0 ? other_rate(ms, at, now) / SLOW_SHARE : 0;
    w->part = (struct origin_part){.user = w,
                                   .name = u->name,
                                   .file = no,
                                   .off = u->off + w->got,
                                   .size = u->size - w->got,
                                   .prio = u->prio,
                                   .data = on_data,
                                   .done = on_done};
    bool waits = w->waiting;
    if (waits) {
        struct mirror_part **end = &ms->waiting;
        while (*end) {
            end = &(*end)->next;
        }
        w->next = NULL;
        *end = w;
    }
    uint32_t file = u->file;
    uint64_t off = u->off, size = u->size;
    pthread_mutex_unlock(&ms->mu);
    if (probe) { /* w may be gone by now */
        mirror_probe(ms, at, file, no, off, size, rnd);
    } else if (!waits) {
        if (at >= 0) {
            origin_floor(ms->m[at].o, least_rate(ms, floor));
        }
        origin_submit(at >= 0 ? ms->m[at].o : ms->o, &w->part);
    }
}

void mirrors_submit(struct mirrors *ms, struct origin *o, struct origin_part *p)
{
    struct mirror_part *w =
        ms && p->size && p->size != ORIGIN_UNKNOWN && !p->sure ? calloc(1, sizeof *w) : NULL;
    p->mirror = 0;
    p->at_mirror = false;
    p->via = w;
    if (!w) {
        origin_submit(o, p);
        return;
    }
    w->user = p;
    w->ms = ms;
    mirror_route(w);
}

void mirrors_raise(struct mirrors *ms, struct origin *o, struct origin_part *p,
                   enum store_prio prio)
{
    if (!ms) {
        origin_raise(o, p, prio);
        return;
    }
    pthread_mutex_lock(&ms->mu);
    struct mirror_part *w = p->via;
    if (!w) {
        origin_raise(o, p, prio);
    } else {
        p->prio = prio < p->prio ? (uint8_t)prio : p->prio;
        if (w->waiting) {
            w->part.prio = p->prio;
        } else {
            origin_raise(w->at >= 0 ? ms->m[w->at].o : o, &w->part, prio);
        }
    }
    pthread_mutex_unlock(&ms->mu);
}

/* With mu. False: it is being passed on at this moment. */
static bool unwait(struct mirrors *ms, struct mirror_part *w)
{
    struct mirror_part **at = &ms->waiting;
    while (*at && *at != w) {
        at = &(*at)->next;
    }
    if (!*at) {
        return false;
    }
    *at = w->next;
    return true;
}

bool mirrors_cancel(struct mirrors *ms, struct origin *o, struct origin_part *p)
{
    if (!ms) {
        return origin_cancel(o, p);
    }
    pthread_mutex_lock(&ms->mu);
    struct mirror_part *w = p->via;
    bool can;
    if (!w) {
        can = origin_cancel(o, p);
    } else if (w->begun) { /* with another source, but it has bytes already */
        can = false;
    } else if (w->waiting) {
        can = unwait(ms, w);
    } else {
        can = origin_cancel(w->at >= 0 ? ms->m[w->at].o : o, &w->part);
    }
    if (can && w) {
        p->via = NULL;
        free(w);
    }
    pthread_mutex_unlock(&ms->mu);
    return can;
}

bool mirrors_drop(struct mirrors *ms, struct origin *o, struct origin_part *p)
{
    if (!ms) {
        return origin_drop(o, p);
    }
    pthread_mutex_lock(&ms->mu);
    struct mirror_part *w = p->via;
    bool out = w && w->waiting && unwait(ms, w);
    if (!w) {
        out = origin_drop(o, p);
    } else if (!out && !w->waiting) {
        out = origin_drop(w->at >= 0 ? ms->m[w->at].o : o, &w->part);
    }
    if (out && w) {
        p->via = NULL;
        free(w);
    }
    pthread_mutex_unlock(&ms->mu);
    return out;
}

void mirrors_stop(struct mirrors *ms)
{
    if (!ms) {
        return;
    }
    pthread_mutex_lock(&ms->mu);
    ms->stopping = true;
    struct mirror_part *go = ms->waiting;
    ms->waiting = NULL;
    pthread_mutex_unlock(&ms->mu);
    while (go) {
        struct mirror_part *w = go;
        go = w->next;
        mirror_route(w);
    }
    for (size_t i = 0; i < ms->n; i++) {
        origin_stop(ms->m[i].o);
    }
}

/* ---- numbers ---- */

void mirrors_wrong(struct mirrors *ms, unsigned mirror, const char *what)
{
    bool news = false;
    if (!ms || !mirror || mirror > ms->n) {
        return;
    }
    struct mirror *m = &ms->m[mirror - 1];
    pthread_mutex_lock(&ms->mu);
    if (!m->wrong) {
        news = m->wrong = true;
        m->failed++;
        snprintf(m->why, sizeof m->why, "%.130s differs from what is on record", what);
    }
    pthread_mutex_unlock(&ms->mu);
    if (news) {
        char line[300];
        snprintf(line, sizeof line,
                 "%.150s differs from what is on record: nothing is taken from it any more", what);
        mirror_say(ms, m->o->host, line);
    }
}

size_t mirrors_get(struct mirrors *ms, struct store_mirror *out, size_t max)
{
    size_t n = ms ? ms->n : 0;
    uint64_t now = clock_ns();
    n = n < max ? n : max;
    for (size_t i = 0; i < n; i++) {
        struct mirror *m = &ms->m[i];
        struct store_mirror *x = &out[i];
        bool up;
        double latency;
        uint64_t retries, unused;
        memset(x, 0, sizeof *x);
        snprintf(x->host, sizeof x->host, "%.199s", m->o->host);
        origin_numbers(m->o, &x->bytes, &retries, &unused);
        origin_measured(m->o, &up, &x->bytes_s, &latency);
        pthread_mutex_lock(&ms->mu);
        x->wrong = m->wrong;
        x->pause_ms = m->paused_until > now ? (m->paused_until - now) / 1000000u : 0;
        x->parts = m->objects;
        x->failed = m->failed;
        memcpy(x->why, m->why, sizeof x->why);
        pthread_mutex_unlock(&ms->mu);
    }
    return n;
}

bool mirrors_up(struct mirrors *ms)
{
    bool up = false;
    uint64_t now = clock_ns();
    if (!ms) {
        return false;
    }
    pthread_mutex_lock(&ms->mu);
    for (size_t i = 0; i < ms->n; i++) {
        up = up || (!ms->m[i].wrong && ms->m[i].paused_until <= now);
    }
    pthread_mutex_unlock(&ms->mu);
    return up;
}
