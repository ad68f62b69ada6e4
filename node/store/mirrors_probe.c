/* SPDX-License-Identifier: MIT
 * mirrors_probe.c: see mirrors.h: before a mirror's file is used, a piece of it is compared with
 * the origin's; and what becomes of a mirror that has failed. */
#include "node/store/mirrors_inner.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_NS 5000000000ull       /* after a failure, doubled with each, */
#define PAUSE_MAX_NS 600000000000ull /* up to this */
#define MISSING_NS 600000000000ull   /* until a file that was not there is asked for again */
#define SAMPLE 4096                  /* bytes compared before a file is used */

struct probe {
    struct mirrors *ms;
    int mirror;
    uint32_t file;
    struct origin_part a, b; /* of the mirror, of the origin */
    uint8_t pa[SAMPLE], pb[SAMPLE];
    size_t na, nb;
    int ca, cb;
    struct err ea;
    int left; /* with ms->mu */
    char name[300];
};

static int probe_data(struct origin_part *p, const void *b, size_t n, struct err *e)
{
    struct probe *pr = p->user;
    uint8_t *to = p == &pr->a ? pr->pa : pr->pb;
    size_t *have = p == &pr->a ? &pr->na : &pr->nb;
    if (n > SAMPLE - *have) {
        return err_set(e, ERR_NET, "too many bytes");
    }
    memcpy(to + *have, b, n);
    *have += n;
    return 0;
}

/* With mu: the mirror has failed just now. */
static void fails(struct mirror *m, const char *why, uint64_t now)
{
    uint32_t k = m->fails < 7 ? m->fails : 7;
    uint64_t ns = PAUSE_NS << k;
    m->fails++;
    m->failed++;
    m->paused_until = now + (ns < PAUSE_MAX_NS ? ns : PAUSE_MAX_NS);
    snprintf(m->why, sizeof m->why, "%.190s", why);
}

void mirror_failed(struct mirrors *ms, int mirror, uint32_t file, int code, const struct err *e)
{
    struct mirror *m = &ms->m[mirror];
    const char *msg = e && *e->msg ? e->msg : "it does not answer";
    char line[600] = "";
    uint64_t now = clock_ns();
    pthread_mutex_lock(&ms->mu);
    if (code == ERR_NOTFOUND) {
        struct mfile *f = mirror_file(ms, m, file);
        if (f && f->state != FILE_MISSING) {
            f->state = FILE_MISSING;
            f->until = now + MISSING_NS;
            m->failed++;
            snprintf(m->why, sizeof m->why, "%.190s", msg);
            snprintf(line, sizeof line, "%.400s; the next source is asked for that file", msg);
        }
    } else if (m->paused_until <= now && !ms->stopping) { /* not once for each that was cut */
        fails(m, msg, now);
        snprintf(line, sizeof line, "%.400s; left alone for %.0f s", msg,
                 (double)(m->paused_until - now) * 1e-9);
    }
    pthread_mutex_unlock(&ms->mu);
    if (*line) {
        mirror_say(ms, m->o->host, line);
    }
}

/* Parts that have waited for a file's sample, in the order in which they came. */
static void pass_on(struct mirrors *ms, int mirror, uint32_t file)
{
    struct mirror_part *go = NULL, **end = &go;
    pthread_mutex_lock(&ms->mu);
    for (struct mirror_part **at = &ms->waiting; *at;) {
        struct mirror_part *w = *at;
        if (w->at == mirror && w->user->file == file) {
            *at = w->next;
            w->next = NULL;
            *end = w;
            end = &w->next;
        } else {
            at = &w->next;
        }
    }
    pthread_mutex_unlock(&ms->mu);
    while (go) {
        struct mirror_part *w = go;
        go = w->next;
        mirror_route(w);
    }
}

static void probe_over(struct probe *pr)
{
    struct mirrors *ms = pr->ms;
    struct mirror *m = &ms->m[pr->mirror];
    char line[600] = "";
    if (pr->ca) {
        mirror_failed(ms, pr->mirror, pr->file, pr->ca, &pr->ea);
    }
    bool differs = !pr->ca && !pr->cb && (pr->na != pr->nb || memcmp(pr->pa, pr->pb, pr->na) != 0);
    pthread_mutex_lock(&ms->mu);
    struct mfile *f = &m->f[pr->file];
    if (differs && !m->wrong) {
        m->wrong = true;
        m->failed++;
        snprintf(m->why, sizeof m->why, "%.150s is not what the origin has", pr->a.name);
        snprintf(line, sizeof line, "%.300s is not what the origin has: nothing is taken from it",
                 pr->a.name);
    } else if (!pr->ca) {
        f->state = FILE_GOOD;
        f->until = pr->cb ? clock_ns() + MIRROR_UNSURE_NS : 0;
        if (pr->cb && !m->said) {
            m->said = true;
            snprintf(
                line, sizeof line,
                "its files cannot be compared with the origin, which does not answer: they are "
                "used as they are, since it was named");
        }
    } else if (f->state == FILE_ASKED) {
        f->state = FILE_NEW;
    }
    pthread_mutex_unlock(&ms->mu);
    if (*line) {
        mirror_say(ms, m->o->host, line);
    }
    pass_on(ms, pr->mirror, pr->file);
    free(pr);
}

static void probe_done(struct origin_part *p, int code, const struct err *e)
{
    struct probe *pr = p->user;
    struct mirrors *ms = pr->ms;
    pthread_mutex_lock(&ms->mu);
    if (p == &pr->a) {
        pr->ca = code;
        if (e) {
            pr->ea = *e;
        }
    } else {
        pr->cb = code;
    }
    bool last = --pr->left == 0;
    pthread_mutex_unlock(&ms->mu);
    if (last) {
        probe_over(pr);
    }
}

void mirror_probe(struct mirrors *ms, int mirror, uint32_t file, uint32_t no, uint64_t off,
                  uint64_t size, uint64_t rnd)
{
    struct probe *pr = calloc(1, sizeof *pr);
    if (!pr) {
        pthread_mutex_lock(&ms->mu);
        ms->m[mirror].f[file].state = FILE_MISSING; /* as good as: the next one is asked */
        ms->m[mirror].f[file].until = clock_ns() + MIRROR_UNSURE_NS;
        pthread_mutex_unlock(&ms->mu);
        pass_on(ms, mirror, file);
        return;
    }
    size_t n = size < SAMPLE ? (size_t)size : SAMPLE;
    off += rnd % (size - n + 1);
    pr->ms = ms;
    pr->mirror = mirror;
    pr->file = file;
    pr->left = 2;
    pthread_mutex_lock(&ms->o->mu);
    snprintf(pr->name, sizeof pr->name, "%.250s", ms->o->files[pr->file].name);
    pthread_mutex_unlock(&ms->o->mu);
    pr->a = (struct origin_part){.user = pr,
                                 .name = pr->name,
                                 .file = no,
                                 .off = off,
                                 .size = n,
                                 .prio = STORE_DEMAND,
                                 .data = probe_data,
                                 .done = probe_done};
    pr->b = pr->a;
    pr->b.file = pr->file;
    origin_submit(ms->m[mirror].o, &pr->a);
    origin_submit(ms->o, &pr->b);
}
