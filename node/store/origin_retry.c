/* SPDX-License-Identifier: MIT
 * origin_retry.c: what happens after an attempt: parts that are complete are done, the others go
 * back into the queue with a growing wait, or fail with a sentence. */
#include "node/store/chunk.h"
#include "node/store/origin_inner.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRIES 8
#define FIRST_RETRIES 5 /* of an origin that has not given a byte yet: often a wrong address */
#define RETRY_MS 500
#define RETRY_MAX_MS 30000
#define REFUSALS 3
#define PROGRESS (64u << 10) /* bytes that make an attempt a success in part */
#define SAY_NS 9000000000ull

static uint64_t backoff_ns(struct origin *o, uint32_t attempt)
{
    uint64_t ms = o->o.retry_ms ? o->o.retry_ms : RETRY_MS;
    for (uint32_t i = 1; i < attempt && ms < RETRY_MAX_MS; i++) {
        ms *= 2;
    }
    ms = ms > RETRY_MAX_MS ? RETRY_MAX_MS : ms;
    o->rng = o->rng * 1664525u + 1013904223u;
    /* between half and all of it, so that many nodes do not come back at once */
    return (ms * 500000u + ms * 500000u / 65536u * (o->rng >> 16));
}

static void fail_part(struct origin *o, struct origin_part *p, const struct err *why)
{
    struct err e = *why;
    pthread_mutex_lock(&o->mu);
    const char *file = o->files[p->file].name;
    pthread_mutex_unlock(&o->mu);
    if (strcmp(p->name, file) == 0) {
        err_prefix(&e, "cannot fetch %s from %s", p->name, o->host);
    } else {
        err_prefix(&e, "cannot fetch %s (%s) from %s", p->name, file, o->host);
    }
    p->done(p, e.code ? e.code : ERR_NET, &e);
}

/* One line per failed attempt, but not more than one a second for the same trouble. */
static void say_retry(struct origin *o, const struct origin_part *p, const struct err *e,
                      uint64_t wait_ns, bool asked, uint64_t now)
{
    pthread_mutex_lock(&o->mu);
    uint64_t what = chunk_xxh(e->msg, strlen(e->msg)) ^ chunk_xxh(p->name, strlen(p->name));
    bool say = now > o->last_retry_log + 1000000000u || what != o->last_retry_what;
    if (say) {
        o->last_retry_what = what;
        o->last_retry_log = o->last_wait_log = now;
    }
    pthread_mutex_unlock(&o->mu);
    if (say) {
        origin_say(o, "%s from %s: %s; %s in %.1f s", p->name, o->host, e->msg,
                   asked ? "as it asks, trying again" : "trying again", (double)wait_ns * 1e-9);
    }
}

void run_end(struct origin *o, struct run *r, enum http_verdict v, bool host_level,
             uint64_t wait_ms, const struct err *e)
{
    uint64_t now = clock_ns();
    uint32_t max = o->o.retries ? o->o.retries : RETRIES;
    bool progress = r->completed || r->given >= PROGRESS;
    struct err why = {0};
    if (e) {
        why = *e;
    }
    if (!why.code) {
        err_set(&why, ERR_NET, "the connection ended early");
    }
    run_drop(o, r);
    struct origin_part *list = r->head, *doomed = NULL;
    bool dead = false, asked = false, trouble = false;
    if (list && list->size == ORIGIN_UNKNOWN && v == HTTP_BODY) { /* its end was the end */
        r->head = NULL;
        if (!list->begun && list->begin) {
            list->begin(list, NULL);
        }
        list->done(list, 0, NULL);
        list = NULL;
    }
    pthread_mutex_lock(&o->mu);
    measure_end(o, now);
    if (!o->o.retries && !o->bytes) {
        max = FIRST_RETRIES;
    }
    if (r->cut) {
        for (struct origin_part *next; list; list = next) { /* at its next byte, at once */
            next = list->next;
            origin_queue_add(o, list);
        }
    }
    if (list && host_level && v == HTTP_RETRY && !progress) {
        o->host_fails++;
        trouble = o->host_fails > 1;
        dead = o->host_fails >= max;
    }
    if (dead) { /* whoever waits for this host need not try it all over again each for himself */
        o->host_fails = 0;
        o->down_at = now;
        doomed = o->head;
        o->head = o->tail = NULL;
        for (struct origin_part *p = doomed; p; p = p->next) {
            p->queued = false;
        }
    }
    pthread_mutex_unlock(&o->mu);
    bool said = false;
    while (list) {
        struct origin_part *p = list;
        list = p->next;
        p->next = NULL;
        if (progress) {
            p->attempts = p->refusals = 0;
        }
        p->attempts++;
        p->refusals += v == HTTP_REFUSED;
        bool over = v == HTTP_FATAL || dead || p->attempts >= max || p->refusals >= REFUSALS;
        uint64_t wait = wait_ms ? wait_ms * 1000000u : backoff_ns(o, p->attempts);
        if (!over && !said) {
            said = true;
            say_retry(o, p, &why, wait, wait_ms > 1, now);
        }
        pthread_mutex_lock(&o->mu);
        bool stopped = o->stop;
        if (!over && !stopped) {
            if (p->size == ORIGIN_UNKNOWN) { /* where it ended is not known: from the beginning */
                p->got = 0;
                p->begun = false;
            }
            p->not_before = now + wait;
            o->retries++;
            origin_queue_add(o, p);
            if ((host_level || wait_ms) && o->pause_until < p->not_before) {
                o->pause_until = p->not_before;
                asked |= host_level && wait_ms;
                o->asked_until = asked ? p->not_before : o->asked_until;
            }
        }
        pthread_mutex_unlock(&o->mu);
        if (over) {
            struct err last = why;
            if (v != HTTP_FATAL) {
                err_prefix(&last, "given up after %u attempts", dead ? max : p->attempts);
            }
            fail_part(o, p, &last);
        } else if (stopped) {
            err_set(&why, ERR_CANCELLED, "the store is being closed");
            fail_part(o, p, &why);
        }
    }
    while (doomed) {
        struct origin_part *p = doomed;
        doomed = p->next;
        p->next = NULL;
        fail_part(o, p, &why);
    }
    if (asked && o->o.asked) {
        o->o.asked(o->o.asked_ctx, wait_ms);
    }
    if (trouble && o->o.trouble) {
        o->o.trouble(o->o.asked_ctx);
    }
    free(r);
}

void origin_tick(struct origin *o, uint64_t now)
{
    char what[160] = "";
    double secs = 0, next = 0;
    pthread_mutex_lock(&o->mu);
    struct origin_part *p = o->head;
    if (p && now > o->last_byte + SAY_NS && now > o->last_wait_log + SAY_NS &&
        now > p->since + SAY_NS) {
        uint64_t from = o->last_byte > p->since ? o->last_byte : p->since;
        uint64_t at = p->not_before > o->pause_until ? p->not_before : o->pause_until;
        snprintf(what, sizeof what, "%s", p->name);
        secs = (double)(now - from) * 1e-9;
        next = at > now ? (double)(at - now) * 1e-9 : 0;
        o->last_wait_log = now;
    }
    pthread_mutex_unlock(&o->mu);
    if (*what) {
        origin_say(o, "waiting for %s from %s: no bytes for %.0f s; next attempt in %.0f s", what,
                   o->host, secs, next);
    }
}

/* ---- what was measured ---- */

#define SAMPLE_NS 200000000u
#define SAMPLE_BYTES (1u << 20)
#define WEIGHT 0.3           /* of a new sample */
#define DOWN_NS 30000000000u /* after so long one that was given up is worth a try */

void measure_begin(struct origin *o, uint64_t now)
{
    if (!o->running++) {
        o->busy_since = now;
    }
}

void measure_end(struct origin *o, uint64_t now)
{
    if (o->running && !--o->running) {
        o->busy_ns += now - o->busy_since;
    }
}

void measure_bytes(struct origin *o, const struct run *r, size_t n, uint64_t now)
{
    o->down_at = 0;
    if (!r->given && !r->skip) {
        double s = (double)(now - r->asked) * 1e-9;
        o->latency = o->latency > 0 ? o->latency + WEIGHT * (s - o->latency) : s;
    }
    o->busy_bytes += n;
    uint64_t busy = o->busy_ns + (now - o->busy_since);
    if (busy >= SAMPLE_NS && o->busy_bytes >= SAMPLE_BYTES) {
        double rate = (double)o->busy_bytes / ((double)busy * 1e-9);
        o->rate = o->rate > 0 ? o->rate + WEIGHT * (rate - o->rate) : rate;
        o->busy_ns = o->busy_bytes = 0;
        o->busy_since = now;
    }
}

void origin_measured(struct origin *o, bool *up, double *bytes_s, double *latency_s)
{
    pthread_mutex_lock(&o->mu);
    *up = !o->down_at || clock_ns() - o->down_at > DOWN_NS;
    *bytes_s = o->rate;
    *latency_s = o->latency;
    pthread_mutex_unlock(&o->mu);
}

uint64_t origin_asked_ms(struct origin *o)
{
    uint64_t now = clock_ns();
    pthread_mutex_lock(&o->mu);
    uint64_t ns = o->asked_until > now ? o->asked_until - now : 0;
    pthread_mutex_unlock(&o->mu);
    return ns / 1000000u;
}

void origin_pause(struct origin *o, uint64_t ms)
{
    uint64_t until = clock_ns() + ms * 1000000u;
    pthread_mutex_lock(&o->mu);
    o->pause_until = o->pause_until > until ? o->pause_until : until;
    pthread_mutex_unlock(&o->mu);
}

uint64_t origin_pause_ms(struct origin *o)
{
    uint64_t now = clock_ns();
    pthread_mutex_lock(&o->mu);
    uint64_t ns = o->pause_until > now ? o->pause_until - now : 0;
    pthread_mutex_unlock(&o->mu);
    return ns / 1000000u;
}
