/* SPDX-License-Identifier: MIT
 * disco.c: see disco.h. Life of a disco, its clockwork and its callbacks; what it does on
 * interfaces is in sessions.c, with names in names.c, what it knows of peers in peers.c. */
#include "discovery/disco.h"

#include "discovery/addr.h"
#include "discovery/core.h"
#include "discovery/ifs.h"
#include "discovery/remember.h"

#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAVE_SOON_MS 2000 /* after a first meeting */
#define SAVE_GAP_MS 60000 /* between two writes of the file */
#define SLEPT_MS 15000    /* a clockwork this late, or a wall clock this far ahead: we slept */
#define EVENTS_AT_ONCE 512

void core_log(struct disco *d, const char *fmt, ...)
{
    char line[2 * DISCO_TEXT + 200];
    va_list ap;
    if (!d->log || d->closing) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    d->log(d->ctx, line);
}

uint64_t core_min(uint64_t a, uint64_t b)
{
    return !a ? b : (!b || a < b ? a : b);
}

/* Length of the valid UTF-8 sequence at s, 0 = none. */
static size_t utf8(const unsigned char *s)
{
    if (s[0] < 0x80) {
        return s[0] >= 0x20 && s[0] != 0x7f;
    }
    size_t n = s[0] >= 0xf0 ? 4 : (s[0] >= 0xe0 ? 3 : 2);
    if (s[0] < 0xc2 || s[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) {
        return 0;
    }
    return n;
}

void core_clean(const char *in, char *out, size_t room)
{
    const unsigned char *s = (const unsigned char *)in;
    size_t n = 0;
    while (*s) {
        size_t k = utf8(s);
        if (n + (k ? k : 1) >= room) {
            break;
        }
        if (k) {
            memcpy(out + n, s, k);
        } else {
            out[n] = '?';
            k = 1;
        }
        n += k;
        s += k;
    }
    out[n] = 0;
}

/* ---- clockwork ---- */

static int64_t unix_now(void)
{
    return (int64_t)time(NULL);
}

static void on_saved(uv_work_t *w, int status);

struct save {
    uv_work_t req;
    struct disco *d;
    struct buf b;
    char *path;
    struct err e;
};

static void write_file(uv_work_t *w)
{
    struct save *s = w->data;
    file_write_atomic(s->path, s->b.p, s->b.n, 0600, &s->e);
}

static void save_free(struct save *s)
{
    buf_free(&s->b);
    free(s->path);
    free(s);
}

static struct save *save_make(struct disco *d)
{
    struct save *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    buf_init(&s->b, REMEMBER_FILE_MAX);
    s->d = d;
    s->req.data = s;
    s->path = strdup(d->remember);
    if (!s->path || remember_text(&d->t, &s->b)) {
        save_free(s);
        return NULL;
    }
    return s;
}

/* The file is written off the loop: a disk may take its time to sync. */
static void save(struct disco *d, uint64_t now)
{
    struct save *s = save_make(d);
    d->save_at = 0;
    d->saved_ns = now;
    if (!s) {
        return;
    }
    if (uv_queue_work(d->loop, &s->req, write_file, on_saved)) {
        save_free(s);
        return;
    }
    d->saving = true;
    d->open++;
}

static void on_saved(uv_work_t *w, int status)
{
    struct save *s = w->data;
    struct disco *d = s->d;
    d->saving = false;
    if (s->e.code) {
        core_log(d, "remembered addresses are not saved: %s", s->e.msg);
    }
    save_free(s);
    core_release(d);
}

/* Only macOS 15 and later have that setting; elsewhere the same evidence means that hosts are off.
 */
static void privacy_line(struct disco *d)
{
    enum privacy_how how = privacy_how(&d->start);
    if (how == PRIVACY_NO_SETTING) {
        return;
    }
    if (privacy_report(&d->privacy)) {
        privacy_text(how, d->start.terminal, d->notice);
        d->notice_privacy = true;
        core_log(d, "%s", d->notice);
    } else if (d->notice_privacy && !privacy_is(&d->privacy)) {
        d->notice[0] = 0; /* the spell is over */
        d->notice_privacy = false;
        core_log(d, "the local network is reached again");
    }
}

static void tick(uv_timer_t *t)
{
    struct disco *d = t->data;
    uint64_t now = clock_ns();
    int64_t wall = unix_now();
    if (d->closing) {
        return;
    }
    if (d->tick_ns && !d->asleep) {
        uint64_t late = now > d->tick_due ? now - d->tick_due : 0;
        double ahead = (double)(wall - d->tick_unix) - (double)(now - d->tick_ns) / 1e9;
        if (late > SLEPT_MS * MS_NS || ahead > SLEPT_MS / 1000.0) {
            disco_wake(d);
        }
    }
    uint64_t next = 0;
    if (!d->asleep) {
        if (now >= d->poll_at) {
            d->poll_at = sessions_poll(d, now);
        }
        next = core_min(d->poll_at, sessions_run(d, now));
        next = core_min(next, sessions_refresh(d, now));
        next = core_min(next, names_run(d, now));
    }
    if (d->save_at && now >= d->save_at && !d->saving) {
        save(d, now);
    }
    next = core_min(next, d->saving ? 0 : d->save_at);
    privacy_line(d);
    d->tick_ns = now;
    d->tick_unix = wall;
    if (!next) {
        d->tick_ns = 0; /* asleep: nothing to be late for */
        return;
    }
    uint64_t ms = next > now ? (next - now) / MS_NS + 1 : 1;
    d->tick_due = now + ms * MS_NS;
    uv_timer_start(&d->tick, tick, ms, 0);
}

void core_soon(struct disco *d)
{
    if (!d->closing) {
        uv_timer_start(&d->tick, tick, 0, 0);
    }
}

static void tell(struct disco *d, const struct disco_peer *p, enum disco_event ev)
{
    const char *who = p->node[0] ? p->node : p->static_name;
    if (ev == DISCO_ADDED && !d->brief) {
        core_log(d, "peer %s: known%s%s", who, p->n_addrs ? " at " : "",
                 p->n_addrs ? p->addrs[0].text : "");
    } else if (ev == DISCO_REMOVED && p->node[0] && !d->brief) {
        core_log(d, "peer %s: gone", who);
    }
    if (d->on_peer) {
        d->on_peer(d->ctx, p, ev);
    }
}

static void flush(uv_timer_t *t)
{
    struct disco *d = t->data;
    const struct disco_peer *p;
    enum disco_event ev;
    int n = 0;
    while (!d->closing && n < EVENTS_AT_ONCE && (p = peers_next_event(&d->t, &d->gone, &ev))) {
        tell(d, p, ev);
        n++;
    }
    if (n == EVENTS_AT_ONCE) {
        core_touch(d);
    }
}

void core_touch(struct disco *d)
{
    if (!d->closing) {
        uv_timer_start(&d->flush, flush, 0, 0);
    }
}

/* ---- life ---- */

void core_release(struct disco *d)
{
    if (--d->open) {
        return;
    }
    void (*closed)(void *) = d->closed;
    void *ctx = d->closed_ctx;
    peers_free(&d->t);
    free(d->gone);
    free(d->remember);
    free(d);
    if (closed) {
        closed(ctx);
    }
}

static void handle_closed(uv_handle_t *h)
{
    core_release(h->data);
}

static void backend_closed(void *ctx)
{
    core_release(ctx);
}

static int take_id(const char *what, const char *v, char out[DISCO_ID_MAX + 1], struct err *e)
{
    size_t n = v ? strnlen(v, DISCO_ID_MAX + 1) : 0;
    if (!txt_id_ok(v ? v : "", n)) {
        return err_set(e, ERR_ARG, "the %s must be %d to %d characters 0-9 a-z, not \"%.40s\"",
                       what, DISCO_ID_MIN, DISCO_ID_MAX, v ? v : "");
    }
    memcpy(out, v, n + 1);
    return 0;
}

static int take_options(struct disco *d, const struct disco_options *o, struct err *e)
{
    int rc = take_id("node id", o->node, d->node, e);
    rc = rc ? rc : take_id("group id", o->group, d->txt.group, e);
    if (!rc && o->model) {
        rc = take_id("model root", o->model, d->txt.model, e);
    }
    if (rc) {
        return rc;
    }
    if (o->version < 1 || o->version > 65535 || o->port == 0) {
        return err_set(e, ERR_ARG, "discovery needs a protocol version (1 to 65535) and a port");
    }
    if (o->name) {
        core_clean(o->name, d->name, DISCO_WISH_MAX + 1);
    } else {
        snprintf(d->name, sizeof d->name, "shoal-%s", d->node);
    }
    if (!d->name[0] || (o->name && strcmp(o->name, d->name))) {
        return err_set(e, ERR_ARG,
                       "the announced name must be 1 to %d bytes of printable UTF-8, not \"%.60s\"",
                       DISCO_WISH_MAX, d->name);
    }
    memcpy(d->txt.node, d->node, sizeof d->node);
    d->txt.version = o->version;
    d->port = o->port;
    d->interval_ns = (o->interval_ms ? o->interval_ms : DISCO_INTERVAL_MS) * MS_NS;
    d->poll_ns = (o->poll_ms ? o->poll_ms : DISCO_POLL_MS) * MS_NS;
    d->ctx = o->ctx;
    d->allow = o->allow;
    d->why_not = o->why_not;
    d->on_peer = o->on_peer;
    d->log = o->log;
    d->brief = o->brief;
    if (o->start) {
        d->start = *o->start;
    } else {
        privacy_read(&d->start);
    }
    if (o->remember && !(d->remember = strdup(o->remember))) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < o->n_static; i++) {
        struct static_peer *s;
        rc = peers_add_static(&d->t, o->static_peers[i], &s, e);
        if (rc && rc != ERR_BUSY) {
            return rc;
        }
        s->due_ns = 1;
    }
    return 0;
}

static void load(struct disco *d)
{
    struct err e = {0};
    size_t skipped = 0;
    if (!d->remember) {
        return;
    }
    if (remember_load(&d->t, clock_ns(), d->node, d->remember, &skipped, &e)) {
        core_log(d, "remembered addresses are not used: %s", e.msg);
    } else if (skipped) {
        core_log(d, "%s: %zu lines are not usable now and passed over", d->remember, skipped);
    }
}

int disco_open(uv_loop_t *loop, const struct disco_options *o, struct disco **out, struct err *e)
{
    struct disco *d = calloc(1, sizeof *d);
    struct err mine = {0};
    *out = NULL;
    if (!d) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    d->loop = loop;
    peers_init(&d->t);
    int rc = take_options(d, o, e);
    if (!rc && o->bus) {
        rc = bus_open(loop, o->bus, o->bus_host, &sessions_events, d, &d->looker, e);
        d->be = o->no_bonjour ? NULL : d->looker;
        d->open += !rc;
    } else if (!rc && !o->no_bonjour) {
        rc = bonjour_open(loop, &sessions_events, d, &d->be, &mine);
        d->open += !rc;
        if (rc == ERR_UNSUPPORTED) { /* a program without Bonjour works with the other sources */
            core_log(d, "%s", mine.msg);
            rc = 0;
        } else if (rc && e) {
            *e = mine;
        }
    }
    if (rc) {
        peers_free(&d->t);
        free(d->remember);
        free(d);
        return rc;
    }
    uv_timer_init(loop, &d->tick);
    uv_timer_init(loop, &d->flush);
    d->tick.data = d->flush.data = d;
    d->open += 2;
    load(d);
    core_soon(d);
    core_touch(d);
    *out = d;
    return 0;
}

void disco_close(struct disco *d, void (*closed)(void *ctx), void *ctx)
{
    d->closing = true;
    d->closed = closed;
    d->closed_ctx = ctx;
    if (d->save_at && d->remember && !d->saving) {
        struct save *s = save_make(d);
        if (s) {
            write_file(&s->req);
            save_free(s);
        }
    }
    names_close(d);
    struct backend *be = d->looker ? d->looker : d->be;
    if (be) {
        be->close(be, backend_closed, d);
    }
    uv_close((uv_handle_t *)&d->tick, handle_closed);
    uv_close((uv_handle_t *)&d->flush, handle_closed);
}

/* ---- what the owner says ---- */

int disco_set_model(struct disco *d, const char *model, struct err *e)
{
    char id[DISCO_ID_MAX + 1] = "";
    int rc = model ? take_id("model root", model, id, e) : 0;
    if (rc || !strcmp(id, d->txt.model)) {
        return rc;
    }
    memcpy(d->txt.model, id, sizeof id);
    return sessions_update(d, e);
}

int disco_add_static(struct disco *d, const char *host_port, struct err *e)
{
    struct static_peer *s;
    int rc = peers_add_static(&d->t, host_port, &s, e);
    if (!rc) {
        s->due_ns = 1;
        core_touch(d);
        core_soon(d);
    }
    return rc;
}

static void save_later(struct disco *d, uint64_t now)
{
    if (d->remember && !d->save_at) {
        uint64_t soon = now + SAVE_SOON_MS * MS_NS;
        uint64_t gap = d->saved_ns ? d->saved_ns + SAVE_GAP_MS * MS_NS : 0;
        d->save_at = soon > gap ? soon : gap;
        core_soon(d);
    }
}

void disco_forget(struct disco *d, const char *node)
{
    peers_forget(&d->t, node);
    save_later(d, clock_ns());
    core_touch(d);
}

void disco_retry(struct disco *d, const char *node)
{
    peers_retry(&d->t, node);
}

void disco_sleep(struct disco *d)
{
    if (d->asleep || d->closing) {
        return;
    }
    core_log(d, "discovery sleeps");
    d->asleep = true;
    sessions_stop_all(d);
    core_soon(d);
}

void disco_wake(struct disco *d)
{
    if (d->closing) {
        return;
    }
    if (d->asleep) {
        core_log(d, "discovery is awake");
    }
    uint64_t now = clock_ns();
    d->asleep = false;
    d->tick_ns = 0;
    d->poll_at = 0;
    sessions_wake(d, now);
    names_due(d, now);
    core_touch(d);
    core_soon(d);
}

void disco_network_changed(struct disco *d)
{
    if (d->closing || d->asleep) {
        return;
    }
    d->ask_again = true;
    d->poll_at = 0;
    names_due(d, clock_ns());
    core_soon(d);
}

void disco_report(struct disco *d, const struct disco_report *r)
{
    uint64_t now = clock_ns();
    struct sockaddr_storage sa;
    if (d->closing || !r->addr || !addr_copy(&sa, r->addr)) {
        return;
    }
    d->reports++;
    peers_report(&d->t, now, unix_now(), r);
    sessions_reported(d, now, r->node, r->outcome);
    bool lan = !r->inbound && !addr_is_loopback(&sa) && ifs_for(d->t.ifs, d->t.n_ifs, &sa);
    if (lan && r->outcome >= DISCO_CONNECTED && r->outcome <= DISCO_REJECTED) {
        bool reached = r->outcome != DISCO_UNREACHABLE && r->outcome != DISCO_TIMEOUT;
        privacy_lan(&d->privacy, reached, r->sys, r->took_ms);
    }
    if (r->outcome == DISCO_AUTHENTICATED) {
        save_later(d, now);
    }
    for (size_t i = 0; i < d->t.n_statics; i++) { /* a name may have moved */
        struct static_peer *s = d->t.statics[i];
        if (r->outcome >= DISCO_REFUSED && r->outcome <= DISCO_TIMEOUT && s->due_ns &&
            peers_among(s->addrs, s->n_addrs, &sa)) {
            s->due_ns = core_min(s->due_ns, now + d->interval_ns);
        }
    }
    core_touch(d);
    core_soon(d);
}

void disco_measured(struct disco *d, const char *node, const struct sockaddr *addr, double bytes_s,
                    double rtt_s)
{
    peers_measured(&d->t, node, addr, bytes_s, rtt_s);
    core_touch(d);
}

void disco_outside(struct disco *d, bool answered)
{
    privacy_outside(&d->privacy, answered);
    core_soon(d);
}

size_t disco_interfaces(const struct disco *d, struct disco_if *out, size_t max)
{
    size_t n = d->t.n_ifs < max ? d->t.n_ifs : max;
    memcpy(out, d->t.ifs, n * sizeof *out);
    return n;
}

void disco_each(struct disco *d, void (*f)(void *ctx, const struct disco_peer *p), void *ctx)
{
    for (size_t i = 0; i < d->t.n; i++) {
        if (!peers_row_empty(d->t.rows[i])) {
            peers_sort(&d->t.rows[i]->p);
            f(ctx, &d->t.rows[i]->p);
        }
    }
}

size_t disco_count(const struct disco *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->t.n; i++) {
        n += !peers_row_empty(d->t.rows[i]);
    }
    return n;
}
