/* SPDX-License-Identifier: MIT
 * sessions.c: one session (announce and browse) for each interface that is up and allowed: started,
 * restarted after failures, stopped. An error belongs to the attempt that met it: no interface is
 * ever given up, and none is tried more often than the back-off says. */
#include "discovery/addr.h"
#include "discovery/core.h"
#include "discovery/ifs.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <string.h>

#define BASE_DIV 30 /* first pause: this part of the announce interval */
#define SWEEP_DIV 6 /* after a restart, this part of the interval to be seen again */
#define STALE_MUL 3 /* without a responder, announcements last this many intervals */
#define DEAD_MUL 5  /* a dead node's records leave caches within 120 s: ask after 150 s */
#define REFRESH_DOUBLINGS 4

static struct ifstate *state_of(struct disco *d, uint32_t ifindex)
{
    for (size_t i = 0; i < d->n_ifs; i++) {
        if (d->ifs[i].net.index == ifindex) {
            return &d->ifs[i];
        }
    }
    return NULL;
}

static struct ifstate *new_state(struct disco *d)
{
    if (d->n_ifs < DISCO_IFS_MAX) {
        return &d->ifs[d->n_ifs++];
    }
    for (size_t i = 0; i < d->n_ifs; i++) {
        if (!d->ifs[i].up && !d->ifs[i].started) {
            return &d->ifs[i];
        }
    }
    return NULL;
}

/* ---- announcing and browsing ---- */

static void stop(struct disco *d, struct ifstate *f)
{
    if (f->started) {
        d->be->stop(d->be, f->net.index);
    }
    f->started = f->registered = f->browsed = f->broken = false;
    f->name[0] = 0;
}

static void went_wrong(struct disco *d, struct ifstate *f, uint64_t now, int code, const char *text)
{
    bool first = !f->error[0];
    f->failures++;
    f->error_ns = now;
    core_clean(text, f->error, sizeof f->error);
    privacy_bonjour(&d->privacy, code);
    for (size_t i = 0; i < d->t.n_sights; i++) {
        if (d->t.sights[i]->ifindex == f->net.index && !d->t.sights[i]->stale_ns) {
            d->t.sights[i]->stale_ns = now + STALE_MUL * d->interval_ns;
        }
    }
    if (code == BE_NO_RESPONDER) {
        if (d->responder != RESPONDER_DOWN && !d->brief) {
            core_log(
                d,
                "Bonjour does not answer (%s): other nodes are found by --peer and by remembered "
                "addresses only; asked again at least every %u s",
                f->error, (unsigned)(d->interval_ns / (1000 * MS_NS)));
        }
        d->responder = RESPONDER_DOWN;
    } else if (first) {
        core_log(d, "%s: cannot announce: %s; tried again", f->net.name, f->error);
    }
}

/* An interface comes or goes; whether this node is announced there is said when it is. */
static void note(struct disco *d, const struct ifstate *f, const char *what)
{
    if (!d->brief) {
        core_log(d, "%s: %s", f->net.name, what);
    }
}

static void works(struct disco *d, struct ifstate *f)
{
    if (d->responder == RESPONDER_DOWN && !d->brief) {
        core_log(d, "Bonjour answers again");
    }
    d->responder = RESPONDER_UP;
    privacy_bonjour(&d->privacy, 0);
    f->error[0] = 0;
    f->callbacks++;
    f->callback_ns = clock_ns();
}

/* Each interface announces a name of its own: on two interfaces of one LAN one name would clash
 * with itself, and Avahi 0.8 withdraws a name that was announced on several from one of them only.
 */
static void wished_name(const struct disco *d, const struct ifstate *f,
                        char out[DISCO_NAME_MAX + 1])
{
    snprintf(out, DISCO_NAME_MAX + 1, "%.*s-%.15s", DISCO_WISH_MAX, d->name, f->net.name);
}

/* The responder looks: what was known from before is to be seen again soon. */
static void browses(struct disco *d, struct ifstate *f, uint64_t now)
{
    f->browsed = true;
    for (size_t i = 0; i < d->t.n_sights; i++) {
        struct sight *s = d->t.sights[i];
        if (s->ifindex == f->net.index) {
            s->stale_ns = now + d->interval_ns / SWEEP_DIV;
        }
    }
}

static void start(struct disco *d, struct ifstate *f, uint64_t now)
{
    uint8_t bytes[TXT_OWN_MAX];
    char name[DISCO_NAME_MAX + 1];
    struct be_announce a = {.name = name, .port = d->port, .txt = bytes};
    struct err e = {0};
    int code = -1;
    a.n_txt = txt_make(&d->txt, bytes);
    wished_name(d, f, name);
    /* One that had run for a whole interval starts over with the shortest pause. */
    f->backoff = f->start_ns && now - f->start_ns < d->interval_ns
                     ? (f->backoff < 8 ? f->backoff + 1 : 8)
                     : 0;
    uint64_t pause = (d->interval_ns / BASE_DIV) << f->backoff;
    f->retry_ns = now + (pause < d->interval_ns ? pause : d->interval_ns);
    f->start_ns = now;
    f->starts++;
    if (d->be->start(d->be, f->net.index, &a, &code, &e)) {
        went_wrong(d, f, now, code, e.msg);
        return;
    }
    f->started = true;
    if (!d->be->later) {
        browses(d, f, now);
    }
}

uint64_t sessions_run(struct disco *d, uint64_t now)
{
    uint64_t next = 0;
    for (size_t i = 0; d->be && i < d->n_ifs; i++) {
        struct ifstate *f = &d->ifs[i];
        bool want = f->up && f->allowed && !d->asleep;
        if (f->started && (f->broken || !want)) {
            stop(d, f);
        }
        if (want && !f->started && now >= f->retry_ns) {
            start(d, f, now);
        }
        if (want && !f->started) {
            next = core_min(next, f->retry_ns);
        }
    }
    for (size_t i = 0; i < d->t.n_sights;) {
        struct sight *s = d->t.sights[i];
        if (s->stale_ns && now >= s->stale_ns) {
            peers_unsight(&d->t, s->ifindex, s->instance);
            core_touch(d);
        } else {
            next = core_min(next, s->stale_ns);
            i++;
        }
    }
    return next;
}

void sessions_stop_all(struct disco *d)
{
    for (size_t i = 0; d->be && i < d->n_ifs; i++) {
        stop(d, &d->ifs[i]);
    }
    peers_unsight_if(&d->t, 0);
    core_touch(d);
}

/* Browsing anew makes the responder ask the network anew. Twice in a row is once. */
void sessions_wake(struct disco *d, uint64_t now)
{
    for (size_t i = 0; d->be && i < d->n_ifs; i++) {
        struct ifstate *f = &d->ifs[i];
        f->broken |= f->started && now - f->start_ns > d->interval_ns / SWEEP_DIV;
    }
    peers_retry_all(&d->t, now, d->interval_ns / SWEEP_DIV);
}

int sessions_update(struct disco *d, struct err *e)
{
    uint8_t bytes[TXT_OWN_MAX];
    struct be_announce a = {.name = d->name, .port = d->port, .txt = bytes};
    int rc = 0;
    a.n_txt = txt_make(&d->txt, bytes);
    for (size_t i = 0; d->be && i < d->n_ifs; i++) {
        struct ifstate *f = &d->ifs[i];
        if (f->started && d->be->update(d->be, f->net.index, &a, e)) {
            rc = e ? e->code : ERR_NET; /* a start carries the new record too */
            f->broken = true;
        }
    }
    core_soon(d);
    return rc;
}

/* ---- interfaces ---- */

uint64_t sessions_poll(struct disco *d, uint64_t now)
{
    struct disco_if t[DISCO_IFS_MAX];
    size_t n =
        d->looker ? d->looker->interfaces(d->looker, t, DISCO_IFS_MAX) : ifs_read(t, DISCO_IFS_MAX);
    bool changed = d->ask_again, came = false;
    for (size_t i = 0; i < d->n_ifs; i++) {
        struct ifstate *f = &d->ifs[i];
        bool here = false;
        for (size_t k = 0; k < n; k++) {
            here |= t[k].index == f->net.index && !strcmp(t[k].name, f->net.name);
        }
        if (f->up && !here) {
            note(d, f, "down");
            f->up = false;
            changed = true;
            peers_unsight_if(&d->t, f->net.index);
            core_touch(d);
        }
    }
    for (size_t k = 0; k < n; k++) {
        struct ifstate *f = state_of(d, t[k].index);
        bool was_up = f && f->up;
        if (f && strcmp(f->net.name, t[k].name)) { /* the index serves another interface now */
            stop(d, f);
            memset(f, 0, sizeof *f);
        } else if (!f) {
            f = new_state(d);
            if (!f) {
                continue;
            }
            memset(f, 0, sizeof *f);
        }
        bool other = !was_up || !ifs_same(&f->net, &t[k]);
        if (!other && !d->ask_again) {
            continue;
        }
        changed = true;
        came |= other;
        f->net = t[k];
        f->up = true;
        f->allowed = !t[k].loopback && (d->allow ? d->allow(d->ctx, &t[k]) : !t[k].virtual_if);
        for (size_t i = 0; other && was_up && i < d->t.n_sights; i++) {
            if (d->t.sights[i]->ifindex == f->net.index) {
                d->t.sights[i]->refresh_ns = now;
            }
        }
        if (!was_up && !t[k].loopback && d->be) {
            note(d, f, "up");
        }
    }
    if (changed) {
        peers_ifs(&d->t, t, n);
        names_due(d, now);
    }
    if (came) {
        peers_retry_all(&d->t, now, d->interval_ns / SWEEP_DIV);
        core_touch(d);
    }
    d->ask_again = false;
    return now + d->poll_ns;
}

/* ---- resolving again ---- */

uint64_t sessions_refresh(struct disco *d, uint64_t now)
{
    uint64_t next = 0;
    for (size_t i = 0; d->be && i < d->t.n_sights; i++) {
        struct sight *s = d->t.sights[i];
        if (s->refresh_ns && now >= s->refresh_ns) {
            const struct row *r = peers_find(&d->t, s->txt.node);
            unsigned shift = s->refreshes < REFRESH_DOUBLINGS ? s->refreshes : REFRESH_DOUBLINGS;
            s->refresh_ns = now + (d->interval_ns << shift);
            if (!r || !r->p.live) { /* who is connected tells of itself */
                s->refreshes++;
                s->refreshed_ns = now;
                d->resolves++;
                d->be->refresh(d->be, s->ifindex, s->instance);
            }
        }
        next = core_min(next, s->refresh_ns);
    }
    return next;
}

void sessions_reported(struct disco *d, uint64_t now, const char *node, enum disco_outcome o)
{
    for (size_t i = 0; node && i < d->t.n_sights; i++) {
        struct sight *s = d->t.sights[i];
        if (strcmp(s->txt.node, node)) {
            continue;
        }
        if (o == DISCO_DEAD || o == DISCO_GOODBYE) {
            s->refresh_ns = now + DEAD_MUL * d->interval_ns;
        } else if (o == DISCO_REFUSED || o == DISCO_UNREACHABLE || o == DISCO_TIMEOUT) {
            uint64_t at = s->refreshed_ns + d->interval_ns;
            s->refresh_ns = core_min(s->refresh_ns, at > now ? at : now);
        }
    }
}

/* ---- events of the responder ---- */

static void registered(void *ctx, uint32_t ifindex, const char *name)
{
    struct disco *d = ctx;
    struct ifstate *f = state_of(d, ifindex);
    if (!f || d->closing || !f->started) {
        return;
    }
    works(d, f);
    char clean[DISCO_NAME_MAX + 1], wish[DISCO_NAME_MAX + 1];
    core_clean(name, clean, sizeof clean);
    wished_name(d, f, wish);
    if (!d->brief && (!f->registered || strcmp(clean, f->name))) {
        core_log(d, "%s: announced as \"%s\"%s", f->net.name, clean,
                 strcmp(name, wish) ? ": another node has the wished name" : "");
    }
    f->registered = true;
    memcpy(f->name, clean, sizeof f->name);
    core_soon(d);
}

static void started(void *ctx, uint32_t ifindex)
{
    struct disco *d = ctx;
    struct ifstate *f = state_of(d, ifindex);
    if (f && !d->closing && f->started && !f->broken) {
        browses(d, f, clock_ns());
        core_soon(d);
    }
}

static void failed(void *ctx, uint32_t ifindex, int code, const char *text)
{
    struct disco *d = ctx;
    struct ifstate *f = state_of(d, ifindex);
    if (!f || d->closing || !f->started || f->broken) {
        return;
    }
    went_wrong(d, f, clock_ns(), code, text);
    f->broken = true;
    core_soon(d);
}

/* Our id, announced from an address that is not ours: the data folder was copied. */
static void own_id(struct disco *d, const struct be_found *b)
{
    struct disco_if t[DISCO_IFS_MAX];
    size_t n =
        d->looker ? d->looker->interfaces(d->looker, t, DISCO_IFS_MAX) : ifs_read(t, DISCO_IFS_MAX);
    for (size_t i = 0; i < b->n_addrs; i++) {
        if (ifs_own(t, n, &b->addrs[i])) {
            return; /* one of ours: this is us, or an address that just left us is among them */
        }
    }
    for (size_t i = 0; i < b->n_addrs; i++) {
        char text[DISCO_ADDR_TEXT];
        addr_text(&b->addrs[i], true, text);
        if (d->clones == 0 || !addr_same(&d->clone, &b->addrs[i], true)) {
            snprintf(d->notice, sizeof d->notice,
                     "the machine at %s announces this node's own id: its data folder is a copy of "
                     "this one; run `shoal init` or `shoal join` there with a new folder",
                     text);
            core_log(d, "%s", d->notice);
        }
        d->clones++;
        d->clone = b->addrs[i];
        return;
    }
}

static void found(void *ctx, uint32_t ifindex, const struct be_found *b)
{
    struct disco *d = ctx;
    struct ifstate *f = state_of(d, ifindex);
    struct txt txt;
    if (!f || d->closing || !f->started) {
        return;
    }
    works(d, f);
    struct sight *s = peers_sight_find(&d->t, ifindex, b->instance);
    bool bad = txt_parse(b->txt, b->n_txt, &txt, NULL) != 0;
    if (bad || strcmp(txt.group, d->txt.group) || !strcmp(txt.node, d->node)) {
        d->malformed += bad;
        d->other_group += !bad && strcmp(txt.group, d->txt.group);
        if (!bad && !strcmp(txt.node, d->node)) {
            own_id(d, b);
        }
        peers_unsight(&d->t, ifindex, b->instance);
        core_touch(d);
        return;
    }
    uint64_t now = clock_ns();
    f->found += !s;
    s = peers_sight(&d->t, now, ifindex, b->instance, &txt, b->addrs, b->n_addrs, !s);
    if (s) {
        s->stale_ns = 0;
        if (!s->refresh_ns) {
            s->refresh_ns = now + d->interval_ns;
        }
    }
    core_touch(d);
    core_soon(d);
}

static void unresolved(void *ctx, uint32_t ifindex, const char *instance, const char *text)
{
    struct disco *d = ctx;
    struct ifstate *f = state_of(d, ifindex);
    if (f && !d->closing) {
        d->resolve_failures++; /* what was known stays until its goodbye or its death */
        f->callbacks++;
        f->callback_ns = clock_ns();
    }
}

static void lost(void *ctx, uint32_t ifindex, const char *instance)
{
    struct disco *d = ctx;
    struct ifstate *f = state_of(d, ifindex);
    if (!f || d->closing) {
        return;
    }
    f->callbacks++;
    f->callback_ns = clock_ns();
    peers_unsight(&d->t, ifindex, instance);
    core_touch(d);
}

const struct be_events sessions_events = {registered, failed, found, unresolved, lost, started};
