/* SPDX-License-Identifier: MIT
 * why.c: the state of discovery as a snapshot, in sentences, and as JSON. */
#include "discovery/addr.h"
#include "discovery/core.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double ago(uint64_t now, uint64_t then)
{
    return then && now > then ? (double)(now - then) / 1e9 : 0;
}

static double until(uint64_t now, uint64_t then)
{
    return then > now ? (double)(then - now) / 1e9 : 0;
}

static void say_if(const struct disco *d, uint64_t now, struct disco_why_if *w)
{
    if (!w->up) {
        snprintf(w->says, sizeof w->says, "down");
    } else if (w->net.loopback) {
        snprintf(w->says, sizeof w->says, "loopback, never announced on");
    } else if (!d->be) {
        snprintf(w->says, sizeof w->says, "up; Bonjour is off");
    } else if (!w->allowed && d->why_not) {
        char why[DISCO_TEXT] = "";
        d->why_not(d->ctx, &w->net, why);
        snprintf(w->says, sizeof w->says, "up; %.190s", why);
    } else if (!w->allowed) {
        snprintf(w->says, sizeof w->says, "up; not announced on: %s",
                 w->net.virtual_if && !d->allow ? "it belongs to a VM, container or VPN"
                                                : "this network is not allowed");
    } else if (d->asleep) {
        snprintf(w->says, sizeof w->says, "withdrawn for sleep");
    } else if (w->error[0]) {
        snprintf(w->says, sizeof w->says, "failed %.0f s ago: %.110s; tried again in %.0f s",
                 ago(now, w->error_ns), w->error, until(now, w->retry_ns));
    } else if (w->registered) {
        snprintf(w->says, sizeof w->says, "announced as \"%s\", browsing; %llu other nodes seen",
                 w->name, (unsigned long long)w->found);
    } else {
        snprintf(w->says, sizeof w->says, "being announced");
    }
}

static void say_addr(uint64_t now, const struct disco_addr *a, char out[DISCO_TEXT])
{
    const struct disco_try *t = &a->last[0];
    char when[64] = "";
    if (a->live) {
        if (a->live > 1) {
            snprintf(when, sizeof when, " (%u times)", a->live);
        }
        snprintf(out, DISCO_TEXT, "connected%s", when);
        return;
    }
    if (until(now, a->retry_ns) > 0) {
        snprintf(when, sizeof when, "; tried again in %.0f s", until(now, a->retry_ns));
    }
    if (t->outcome == DISCO_UNTRIED) {
        snprintf(out, DISCO_TEXT, "not tried yet%s", when);
    } else {
        snprintf(out, DISCO_TEXT, "%s %.0f s ago%s%.90s%s", disco_outcome_word(t->outcome),
                 ago(now, t->ns), t->text[0] || t->sys ? ": " : "",
                 t->text[0] ? t->text : (t->sys ? strerror(t->sys) : ""), when);
    }
}

static void say_peer(const struct disco *d, struct disco_why_peer *w)
{
    const struct disco_peer *p = &w->peer;
    const char *name_error = "";
    for (size_t i = 0; i < d->t.n_statics; i++) {
        if (!strcmp(d->t.statics[i]->name, p->static_name)) {
            name_error = d->t.statics[i]->error;
        }
    }
    if (p->live) {
        snprintf(w->says, sizeof w->says, "connected");
    } else if (!p->n_addrs) {
        snprintf(w->says, sizeof w->says, "no address: %.150s",
                 name_error[0] ? name_error : "the name is being looked up");
    } else if (p->announced) {
        snprintf(w->says, sizeof w->says, "announced, not connected; best address: %.100s",
                 w->addr_says[0]);
    } else {
        snprintf(w->says, sizeof w->says, "%s, not announced now; best address: %.100s",
                 p->static_name[0] ? "named by the user" : (p->authentic ? "met" : "remembered"),
                 w->addr_says[0]);
    }
}

static void say_all(const struct disco *d, struct disco_why *w)
{
    size_t on = 0;
    for (size_t i = 0; i < w->n_ifs; i++) {
        on += w->ifs[i].registered;
    }
    if (d->asleep) {
        snprintf(w->says, sizeof w->says, "asleep: nothing is announced");
    } else if (!d->be) {
        snprintf(w->says, sizeof w->says,
                 "Bonjour is off: named, remembered and inbound peers only");
    } else if (d->responder == RESPONDER_DOWN) {
        snprintf(w->says, sizeof w->says,
                 "Bonjour does not answer: named, remembered and inbound peers only");
    } else {
        snprintf(w->says, sizeof w->says, "announced on %zu interface%s", on, on == 1 ? "" : "s");
    }
}

struct disco_why *disco_why(struct disco *d)
{
    struct disco_why *w = calloc(1, sizeof *w);
    if (w) {
        w->ifs = calloc(d->n_ifs + 1, sizeof *w->ifs);
        w->peers = calloc(d->t.n + 1, sizeof *w->peers);
    }
    if (!w || !w->ifs || !w->peers) {
        disco_why_free(w);
        return NULL;
    }
    w->now_ns = clock_ns();
    w->asleep = d->asleep;
    w->responder = d->responder == RESPONDER_UP;
    memcpy(w->notice, d->notice, sizeof w->notice);
    w->other_group = d->other_group;
    w->malformed = d->malformed;
    w->over_limit = d->t.over_limit;
    w->clones = d->clones;
    w->reports = d->reports;
    w->resolves = d->resolves;
    w->resolve_failures = d->resolve_failures;
    for (size_t i = 0; i < d->n_ifs; i++) {
        const struct ifstate *f = &d->ifs[i];
        struct disco_why_if *o = &w->ifs[w->n_ifs++];
        o->net = f->net;
        o->up = f->up;
        o->allowed = f->allowed;
        o->registered = f->registered;
        o->browsed = f->browsed;
        memcpy(o->name, f->name, sizeof o->name);
        o->starts = f->starts;
        o->failures = f->failures;
        o->callbacks = f->callbacks;
        o->callback_ns = f->callback_ns;
        o->found = f->found;
        o->error_ns = f->error_ns;
        o->retry_ns = f->started ? 0 : f->retry_ns;
        memcpy(o->error, f->error, sizeof o->error);
        say_if(d, w->now_ns, o);
    }
    for (size_t i = 0; i < d->t.n; i++) {
        if (peers_row_empty(d->t.rows[i])) {
            continue;
        }
        struct disco_why_peer *o = &w->peers[w->n_peers++];
        o->peer = d->t.rows[i]->p;
        peers_sort(&o->peer);
        for (size_t k = 0; k < o->peer.n_addrs; k++) {
            say_addr(w->now_ns, &o->peer.addrs[k], o->addr_says[k]);
        }
        say_peer(d, o);
    }
    say_all(d, w);
    return w;
}

void disco_why_free(struct disco_why *w)
{
    if (w) {
        free(w->ifs);
        free(w->peers);
        free(w);
    }
}

/* ---- JSON ---- */

/* A writer that remembers the first failure and puts commas where they belong. */
struct out {
    struct buf *b;
    int rc;
    bool first;
};

static void raw(struct out *o, const char *s)
{
    o->rc = o->rc ? o->rc : buf_adds(o->b, s);
}

static void quoted(struct out *o, const char *in)
{
    char s[2 * DISCO_TEXT]; /* the longest text here */
    core_clean(in, s, sizeof s);
    raw(o, "\"");
    for (const char *c = s; *c; c++) {
        char one[3] = {*c == '"' || *c == '\\' ? '\\' : *c, *c, 0};
        if (one[0] != '\\') {
            one[1] = 0;
        }
        raw(o, one);
    }
    raw(o, "\"");
}

static void key(struct out *o, const char *k)
{
    if (!o->first) {
        raw(o, ",");
    }
    o->first = false;
    if (k) {
        quoted(o, k);
        raw(o, ":");
    }
}

static void open_(struct out *o, const char *k, const char *bracket)
{
    key(o, k);
    raw(o, bracket);
    o->first = true;
}

static void close_(struct out *o, const char *bracket)
{
    raw(o, bracket);
    o->first = false;
}

static void str(struct out *o, const char *k, const char *v)
{
    key(o, k);
    quoted(o, v);
}

static void flag(struct out *o, const char *k, bool v)
{
    key(o, k);
    raw(o, v ? "true" : "false");
}

static void count(struct out *o, const char *k, uint64_t v)
{
    char s[24];
    snprintf(s, sizeof s, "%llu", (unsigned long long)v);
    key(o, k);
    raw(o, s);
}

static void real(struct out *o, const char *k, bool known, double v)
{
    char s[40];
    snprintf(s, sizeof s, "%.6g", v);
    key(o, k);
    raw(o, known ? s : "null");
}

static void past(struct out *o, const char *k, uint64_t now, uint64_t then)
{
    real(o, k, then != 0, ago(now, then));
}

static void sources(struct out *o, unsigned s)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{DISCO_STATIC, "static"},
                 {DISCO_REMEMBERED, "remembered"},
                 {DISCO_BONJOUR, "bonjour"},
                 {DISCO_INBOUND, "inbound"}};
    open_(o, "sources", "[");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (s & names[i].bit) {
            str(o, NULL, names[i].name);
        }
    }
    close_(o, "]");
}

static void put_if(struct out *o, uint64_t now, const struct disco_why_if *f)
{
    open_(o, NULL, "{");
    str(o, "name", f->net.name);
    count(o, "index", f->net.index);
    flag(o, "up", f->up);
    flag(o, "loopback", f->net.loopback);
    flag(o, "virtual", f->net.virtual_if);
    flag(o, "allowed", f->allowed);
    flag(o, "registered", f->registered);
    flag(o, "browsed", f->browsed);
    str(o, "announced_as", f->name);
    open_(o, "addresses", "[");
    for (size_t i = 0; i < f->net.n_addrs; i++) {
        char text[DISCO_ADDR_TEXT], both[DISCO_ADDR_TEXT + 8];
        addr_text(&f->net.addrs[i].sa, false, text);
        snprintf(both, sizeof both, "%s/%u", text, f->net.addrs[i].prefix);
        str(o, NULL, both);
    }
    close_(o, "]");
    count(o, "starts", f->starts);
    count(o, "failures", f->failures);
    count(o, "callbacks", f->callbacks);
    past(o, "last_callback_s", now, f->callback_ns);
    count(o, "found", f->found);
    str(o, "error", f->error);
    past(o, "error_s", now, f->error_ns);
    real(o, "retry_in_s", f->retry_ns != 0, until(now, f->retry_ns));
    str(o, "says", f->says);
    close_(o, "}");
}

static void put_addr(struct out *o, uint64_t now, const struct disco_addr *a, const char *says)
{
    open_(o, NULL, "{");
    str(o, "address", a->text);
    sources(o, a->sources);
    str(o, "interface", a->ifname);
    flag(o, "virtual", a->virtual_if);
    count(o, "live", a->live);
    count(o, "tries", a->tries);
    count(o, "goods", a->goods);
    count(o, "fails_in_a_row", a->fails);
    past(o, "seen_s", now, a->seen_ns);
    real(o, "retry_in_s", a->retry_ns > now, until(now, a->retry_ns));
    real(o, "bytes_per_s", a->bytes_s > 0, a->bytes_s);
    real(o, "round_trip_s", a->rtt_s > 0, a->rtt_s);
    open_(o, "history", "[");
    for (size_t i = 0; i < DISCO_HISTORY && a->last[i].outcome != DISCO_UNTRIED; i++) {
        const struct disco_try *t = &a->last[i];
        open_(o, NULL, "{");
        str(o, "outcome", disco_outcome_word(t->outcome));
        past(o, "ago_s", now, t->ns);
        str(o, "error", t->sys ? strerror(t->sys) : "");
        str(o, "text", t->text);
        close_(o, "}");
    }
    close_(o, "]");
    str(o, "says", says);
    close_(o, "}");
}

static void put_peer(struct out *o, uint64_t now, const struct disco_why_peer *w)
{
    const struct disco_peer *p = &w->peer;
    open_(o, NULL, "{");
    str(o, "node", p->node);
    str(o, "static", p->static_name);
    str(o, "instance", p->instance);
    str(o, "model", p->model);
    count(o, "version", p->version);
    flag(o, "announced", p->announced);
    flag(o, "authentic", p->authentic);
    count(o, "live", p->live);
    open_(o, "addresses", "[");
    for (size_t i = 0; i < p->n_addrs; i++) {
        put_addr(o, now, &p->addrs[i], w->addr_says[i]);
    }
    close_(o, "]");
    str(o, "says", w->says);
    close_(o, "}");
}

int disco_why_json(const struct disco_why *w, struct buf *b, struct err *e)
{
    struct out o = {.b = b, .first = true};
    open_(&o, NULL, "{");
    str(&o, "says", w->says);
    str(&o, "notice", w->notice);
    flag(&o, "asleep", w->asleep);
    flag(&o, "responder", w->responder);
    open_(&o, "interfaces", "[");
    for (size_t i = 0; i < w->n_ifs; i++) {
        put_if(&o, w->now_ns, &w->ifs[i]);
    }
    close_(&o, "]");
    open_(&o, "peers", "[");
    for (size_t i = 0; i < w->n_peers; i++) {
        put_peer(&o, w->now_ns, &w->peers[i]);
    }
    close_(&o, "]");
    open_(&o, "counters", "{");
    count(&o, "other_group", w->other_group);
    count(&o, "malformed", w->malformed);
    count(&o, "over_limit", w->over_limit);
    count(&o, "clones", w->clones);
    count(&o, "reports", w->reports);
    count(&o, "resolves", w->resolves);
    count(&o, "resolve_failures", w->resolve_failures);
    close_(&o, "}");
    close_(&o, "}");
    return o.rc ? err_set(e, o.rc, "cannot write the state of discovery: %s", err_text(o.rc)) : 0;
}
