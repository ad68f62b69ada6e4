/* SPDX-License-Identifier: MIT
 * origin.c: see origin.h: the queue of wanted parts and their merging into runs. The bytes come
 * through origin_http.c or, from a local folder, origin_dir.c; what happens after an attempt is in
 * origin_retry.c. */
#include "node/store/origin_inner.h"

#include "node/store/chunk.h"
#include "node/store/sync.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_DEMAND ((uint64_t)64 << 20) /* largest merged request */
#define RUN_OTHER ((uint64_t)16 << 20)  /* ... of those that nobody waits for */
#define RUN_PARTS 256

void origin_say(struct origin *o, const char *fmt, ...)
{
    if (o->o.log) {
        char line[1000];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        o->o.log(o->o.log_ctx, line);
    }
}

const char *origin_url(const struct origin *o)
{
    return o->url;
}

void origin_floor(struct origin *o, uint64_t bytes_s)
{
    pthread_mutex_lock(&o->mu);
    o->floor = bytes_s;
    pthread_mutex_unlock(&o->mu);
}

/* ---- files ---- */

static bool name_ok(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > 200 || s[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 32 || s[i] == '/' || s[i] == '\\' || s[i] == 127) {
            return false;
        }
    }
    return true;
}

int origin_file(struct origin *o, const char *name, uint32_t *file, struct err *e)
{
    if (!name_ok(name)) {
        return err_set(e, ERR_FORMAT, "\"%.200s\" is no name of a model's file", name);
    }
    pthread_mutex_lock(&o->mu);
    int r = 0;
    uint32_t i = 0;
    while (i < o->n_files && strcmp(o->files[i].name, name) != 0) {
        i++;
    }
    if (i == o->n_files) {
        if (o->n_files == o->cap_files) {
            uint32_t cap = o->cap_files ? o->cap_files * 2 : 32;
            struct origin_file *f = realloc(o->files, cap * sizeof *f);
            if (f) {
                o->files = f;
                o->cap_files = cap;
            } else {
                r = ERR_NOMEM;
            }
        }
        char *own = r ? NULL : strdup(name);
        if (own) {
            o->files[i] = (struct origin_file){.name = own, .size = ORIGIN_UNKNOWN};
            o->n_files++;
        } else {
            r = ERR_NOMEM;
        }
    }
    *file = i;
    pthread_mutex_unlock(&o->mu);
    return r ? err_set(e, r, "out of memory") : 0;
}

void origin_expect(struct origin *o, uint32_t file, uint64_t size, const char *etag)
{
    pthread_mutex_lock(&o->mu);
    struct origin_file *f = &o->files[file];
    f->size = size;
    if (etag && *etag) {
        snprintf(f->etag, sizeof f->etag, "%s", etag);
        http_etag_plain(f->etag);
    }
    pthread_mutex_unlock(&o->mu);
}

uint64_t origin_size(struct origin *o, uint32_t file)
{
    pthread_mutex_lock(&o->mu);
    uint64_t n = o->files[file].size;
    pthread_mutex_unlock(&o->mu);
    return n;
}

int run_learn(struct origin *o, struct run *r, uint64_t total, const char *etag, struct err *e)
{
    int rc = 0;
    bool news = false;
    char old[ORIGIN_ETAG_MAX];
    pthread_mutex_lock(&o->mu);
    struct origin_file *f = &o->files[r->file];
    if (total != ORIGIN_UNKNOWN && f->size == ORIGIN_UNKNOWN) {
        f->size = total;
        news = true;
    }
    if (*etag && !*f->etag) {
        snprintf(f->etag, sizeof f->etag, "%s", etag);
        news = true;
    } else if (*etag && strcmp(etag, f->etag) != 0) {
        rc = ERR_NET;
        snprintf(old, sizeof old, "%s", f->etag);
    }
    uint64_t size = f->size;
    char name[256];
    snprintf(name, sizeof name, "%s", f->name);
    pthread_mutex_unlock(&o->mu);
    if (rc) {
        return err_set(e, rc,
                       "the file has changed since it was first read (its entity tag was %s and is "
                       "%s): use another cache folder for the new files",
                       old, etag);
    }
    if (news && o->o.learned) {
        o->o.learned(o->o.learned_ctx, name, size, etag);
    }
    return 0;
}

/* ---- the queue ---- */

void origin_queue_cut(struct origin *o, struct origin_part *p)
{
    struct origin_part **at = &o->head, *before = NULL;
    while (*at && *at != p) {
        before = *at;
        at = &(*at)->next;
    }
    if (*at) {
        *at = p->next;
        if (o->tail == p) {
            o->tail = before;
        }
        p->next = NULL;
    }
}

void origin_queue_add(struct origin *o, struct origin_part *p)
{
    p->next = NULL;
    p->queued = true;
    *(o->tail ? &o->tail->next : &o->head) = p;
    o->tail = p;
}

void origin_wake(struct origin *o)
{
    if (o->http) {
        http_wake(o->http);
    } else {
        pthread_cond_signal(&o->cv);
    }
}

void origin_submit(struct origin *o, struct origin_part *p)
{
    pthread_mutex_lock(&o->mu);
    bool stopped = o->stop, dropped = p->dropped;
    if (!stopped && !dropped) {
        p->got = 0;
        p->attempts = p->refusals = 0;
        p->not_before = 0;
        p->since = clock_ns();
        p->ripe = p->size == ORIGIN_UNKNOWN ? 0 : p->since + o->o.merge_ms * 1000000ull;
        p->seq = o->seq++;
        p->begun = false;
        origin_queue_add(o, p);
        origin_wake(o);
    }
    pthread_mutex_unlock(&o->mu);
    if (stopped || dropped) {
        struct err e = {0};
        err_set(&e, ERR_CANCELLED, "%s: %s", p->name,
                stopped ? "the store is being closed" : "nobody wants it any more");
        p->done(p, e.code, &e);
    }
}

void origin_raise(struct origin *o, struct origin_part *p, enum store_prio prio)
{
    pthread_mutex_lock(&o->mu);
    if (prio < p->prio) {
        p->prio = (uint8_t)prio;
        origin_wake(o);
    }
    pthread_mutex_unlock(&o->mu);
}

bool origin_cancel(struct origin *o, struct origin_part *p)
{
    pthread_mutex_lock(&o->mu);
    bool can = p->queued && !p->begun && !o->stop;
    if (can) {
        origin_queue_cut(o, p);
        p->queued = false;
    }
    pthread_mutex_unlock(&o->mu);
    return can;
}

static int by_offset(const void *a, const void *b)
{
    const struct origin_part *x = *(struct origin_part *const *)a,
                             *y = *(struct origin_part *const *)b;
    return (x->off > y->off) - (x->off < y->off);
}

/* Which waiting parts lie next to `best`, without gap: they go into the same request. Those before
 * it only when they are as urgent, for they come first on the wire. */
static size_t gather(struct origin *o, struct origin_part *best, uint64_t now,
                     struct origin_part **out)
{
    struct origin_part *near[RUN_PARTS];
    size_t n = 0;
    uint64_t reach = best->prio == STORE_DEMAND ? RUN_DEMAND : RUN_OTHER;
    if (best->size == ORIGIN_UNKNOWN) {
        out[0] = best;
        return 1;
    }
    for (struct origin_part *p = o->head; p && n < RUN_PARTS; p = p->next) {
        uint64_t dist = p->off > best->off ? p->off - best->off : best->off - p->off;
        if (p == best || (p->file == best->file && p->got == 0 && p->size != ORIGIN_UNKNOWN &&
                          dist <= reach && p->not_before <= now)) {
            near[n++] = p;
        }
    }
    qsort(near, n, sizeof *near, by_offset);
    size_t at = 0;
    while (at < n && near[at] != best) {
        at++;
    }
    if (at == n) { /* more neighbours than the list holds */
        out[0] = best;
        return 1;
    }
    size_t lo = at, hi = at + 1;
    uint64_t total = best->size;
    while (hi < n && near[hi]->off == near[hi - 1]->off + near[hi - 1]->size &&
           total + near[hi]->size <= reach) {
        total += near[hi++]->size;
    }
    while (!best->got && lo > 0 && near[lo - 1]->off + near[lo - 1]->size == near[lo]->off &&
           near[lo - 1]->prio <= best->prio && total + near[lo - 1]->size <= reach) {
        total += near[--lo]->size;
    }
    memcpy(out, near + lo, (hi - lo) * sizeof *out);
    return hi - lo;
}

struct run *run_take(struct origin *o, uint64_t now, bool demand_only, uint64_t *wake_at)
{
    *wake_at = UINT64_MAX;
    if (now < o->pause_until) {
        *wake_at = o->pause_until;
        return NULL;
    }
    struct origin_part *best = NULL;
    for (struct origin_part *p = o->head; p; p = p->next) {
        uint64_t from = p->not_before > p->ripe ? p->not_before : p->ripe;
        if (from > now) {
            *wake_at = from < *wake_at ? from : *wake_at;
        } else if (!(demand_only && p->prio != STORE_DEMAND) &&
                   (!best || p->prio < best->prio ||
                    (p->prio == best->prio && p->seq < best->seq))) {
            best = p;
        }
    }
    struct run *r = best ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        if (best) {
            *wake_at = now + 100000000u; /* no memory: look again soon */
        }
        return NULL;
    }
    struct origin_part *list[RUN_PARTS];
    size_t n = gather(o, best, now, list);
    for (size_t i = 0; i < n; i++) {
        origin_queue_cut(o, list[i]);
        list[i]->queued = false;
    }
    for (size_t i = 0; i + 1 < n; i++) {
        list[i]->next = list[i + 1];
    }
    r->asked = now;
    measure_begin(o, now);
    r->head = list[0];
    r->file = best->file;
    r->prio = best->prio;
    r->pos = list[0]->off + list[0]->got;
    r->end =
        list[n - 1]->size == ORIGIN_UNKNOWN ? ORIGIN_UNKNOWN : list[n - 1]->off + list[n - 1]->size;
    return r;
}

/* ---- bytes ---- */

static void pop_done(struct run *r, int code, const struct err *e)
{
    struct origin_part *p = r->head;
    r->head = p->next;
    p->next = NULL;
    p->done(p, code, e);
}

void origin_unused(struct origin *o, uint64_t n)
{
    pthread_mutex_lock(&o->mu);
    o->unused += n;
    pthread_mutex_unlock(&o->mu);
}

/* The part at the head cannot take its bytes: it ends, what follows it in the request goes on. */
static int part_fails(struct run *r, int code, const struct err *why, struct err *e)
{
    struct origin_part *p = r->head;
    bool last = !p->next || p->size == ORIGIN_UNKNOWN;
    r->skip = last ? 0 : p->off + p->size - r->pos;
    pop_done(r, code, why);
    return last ? err_set(e, ERR_CANCELLED, "nobody wants the rest") : 0;
}

int run_data(struct origin *o, struct run *r, const void *bytes, size_t n, struct err *e)
{
    const uint8_t *b = bytes;
    pthread_mutex_lock(&o->mu);
    o->bytes += n;
    o->last_byte = clock_ns();
    measure_bytes(o, r, n, o->last_byte);
    o->host_fails = 0;
    pthread_mutex_unlock(&o->mu);
    while (n) {
        if (run_cut(o, r)) {
            origin_unused(o, n);
            return err_set(e, ERR_CANCELLED, "most of the rest is not wanted any more");
        }
        struct origin_part *p = r->head;
        if (!p && !r->skip) {
            return err_set(e, ERR_NET, "the server sends more bytes than were asked for");
        }
        uint64_t left = r->skip                     ? r->skip
                        : p->size == ORIGIN_UNKNOWN ? UINT64_MAX
                                                    : p->off + p->size - r->pos;
        size_t k = n < left ? n : (size_t)left;
        if (r->skip) {
            r->skip -= k;
            origin_unused(o, k);
        } else {
            struct err e1 = {0};
            int rc = 0;
            if (!p->begun) {
                p->begun = true;
                rc = p->begin ? p->begin(p, &e1) : 0;
            }
            if (!rc) {
                rc = p->data(p, b, k, &e1);
            }
            if (rc) {
                rc = part_fails(r, rc, &e1, e);
                if (rc) {
                    origin_unused(o, n);
                    return rc;
                }
                continue; /* skips these same bytes */
            }
            p->got += k;
            r->given += k;
        }
        r->pos += k;
        b += k;
        n -= k;
        p = r->head;
        if (p && !r->skip && p->size != ORIGIN_UNKNOWN && p->got == p->size) {
            r->completed = true;
            pop_done(r, 0, NULL);
        }
    }
    return 0;
}

/* ---- life ---- */

void *dir_main(void *origin);

/* The host of a URL, or the folder: what sentences call the origin. Never user names or passwords.
 */
static char *host_of(const char *url, bool folder)
{
    if (folder) {
        return strdup(url);
    }
    const char *p = strstr(url, "://");
    p = p ? p + 3 : url;
    const char *end = p + strcspn(p, "/?#");
    for (const char *q = p; q < end; q++) {
        if (*q == '@') {
            p = q + 1;
        }
    }
    size_t n = (size_t)(end - p);
    char *h = malloc(n + 1);
    if (h) {
        memcpy(h, p, n);
        h[n] = 0;
    }
    return h;
}

int origin_open(const struct origin_opts *op, struct origin **out, struct err *e)
{
    *out = NULL;
    if (!op->folder && strpbrk(op->url, "?# \t\r\n")) {
        return err_set(e, ERR_ARG,
                       "the model's address \"%s\" must be a plain folder URL, without ? and #",
                       op->url);
    }
    if (op->token && strpbrk(op->token, "\r\n")) {
        return err_set(e, ERR_ARG, "the token contains a line break");
    }
    if (op->ca_file && access(op->ca_file, R_OK)) {
        return err_sys(e, errno, "cannot read the certificates in %s", op->ca_file);
    }
    struct origin *o = calloc(1, sizeof *o);
    if (!o) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    o->o = *op;
    o->url = strdup(op->url);
    o->host = host_of(op->url, op->folder);
    o->token = op->token ? strdup(op->token) : NULL;
    o->ca_file = op->ca_file ? strdup(op->ca_file) : NULL;
    cap_init(&o->cap, op->rate_limit, clock_ns());
    o->rng = (uint32_t)clock_ns() | 1u;
    o->last_byte = clock_ns();
    if (!o->url || !o->host || (op->token && !o->token) || (op->ca_file && !o->ca_file) ||
        pthread_mutex_init(&o->mu, NULL) || sync_cond_init(&o->cv)) {
        free(o->url);
        free(o->host);
        free(o->token);
        free(o->ca_file);
        free(o);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = op->folder ? 0 : http_open(o, &o->http, e);
    if (!r) {
        int rc = pthread_create(&o->thread, NULL, op->folder ? dir_main : http_main, o);
        r = rc ? err_sys(e, rc, "cannot start the thread that fetches") : 0;
        o->started = !r;
    }
    if (r) {
        origin_free(o);
        return r;
    }
    *out = o;
    return 0;
}

void origin_stop(struct origin *o)
{
    if (!o || !o->started) {
        return;
    }
    pthread_mutex_lock(&o->mu);
    o->stop = true;
    origin_wake(o);
    pthread_mutex_unlock(&o->mu);
    pthread_join(o->thread, NULL);
    o->started = false;
    struct err e = {0};
    err_set(&e, ERR_CANCELLED, "the store is being closed");
    while (o->head) {
        struct origin_part *p = o->head;
        o->head = p->next;
        p->next = NULL;
        p->done(p, e.code, &e);
    }
    o->tail = NULL;
}

void origin_free(struct origin *o)
{
    if (!o) {
        return;
    }
    origin_stop(o);
    http_free(o->http);
    for (uint32_t i = 0; i < o->n_files; i++) {
        free(o->files[i].name);
        free(o->files[i].resolved);
    }
    free(o->files);
    free(o->url);
    free(o->host);
    free(o->token);
    free(o->ca_file);
    pthread_cond_destroy(&o->cv);
    pthread_mutex_destroy(&o->mu);
    free(o);
}

void origin_numbers(struct origin *o, uint64_t *bytes, uint64_t *retries, uint64_t *unused)
{
    pthread_mutex_lock(&o->mu);
    *bytes = o->bytes;
    *retries = o->retries;
    *unused = o->unused;
    pthread_mutex_unlock(&o->mu);
}
