/* SPDX-License-Identifier: MIT
 * mesh_dial.c: from what discovery knows to connections, and what came of them back to discovery.
 *
 * For each row that is not connected, its addresses are tried best first, the next one
 * stagger_ms after the one before while none has answered; the first on which TLS is done wins and
 * the others are given up. When an address may be tried again is discovery's matter (retry_ns).
 * Two that know each other's ids would both dial, and one of the two handshakes be for nothing: the
 * higher id leaves the other a moment, and nobody dials a machine that is just dialling him.
 * See mesh_int.h. */
#include "discovery/addr.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define DIAL_ROW_MAX 4              /* attempts at one row at a time */
#define DIAL_MAX 32                 /* in all */
#define POLITE_NS (400 * MS_NS)     /* that the lower id has to dial first */
#define SHAKING_NS (50 * MS_NS)     /* between looks whether who is dialling us has come through */
#define PICKS_MAX 16                /* begun in one go */
#define COPY_ENDS_NS (5000 * MS_NS) /* after "you live twice" the one let go is the copy */

static void on_peer(void *ctx, const struct disco_peer *p, enum disco_event ev)
{
    struct mesh *m = ctx;
    (void)p;
    if (ev != DISCO_REMOVED) {
        mesh_dial_soon(m);
    }
}

static bool allow(void *ctx, const struct disco_if *net)
{
    struct mesh *m = ctx;
    return m->o.allow(m->o.ctx, net);
}

/* Discovery knows a node by the characters of its announcement; people by the short form. */
static void disco_line(void *ctx, const char *line)
{
    char node[MESH_SHORT] = "", who[ID_SHORT];
    int n = 0;
    if (sscanf(line, "peer %16[0-9a-z]%n", node, &n) == 1 && line[n] == ':' &&
        id_short_of(node, who)) {
        mesh_log(ctx, "peer %s%s", who, line + n);
    } else {
        mesh_log(ctx, "%s", line);
    }
}

int mesh_disco_open(struct mesh *m, struct err *e)
{
    char group[MESH_SHORT], model[MESH_SHORT], remember[4096];
    struct key_id root;
    struct disco_options d = {0};
    mesh_short(&m->member.group, group);
    memcpy(root.b, m->o.model_root, SHA256_SIZE);
    mesh_short(&root, model);
    snprintf(remember, sizeof remember, "%s/addresses", m->home);
    d.node = m->node;
    d.group = group;
    d.model = m->o.has_model ? model : NULL;
    d.version = WIRE_VERSION;
    d.port = (uint16_t)m->port;
    d.no_bonjour = m->o.no_bonjour;
    d.static_peers = (const char *const *)m->statics;
    d.n_static = m->n_statics;
    d.remember = remember;
    d.bus = m->o.bus;
    d.bus_host = m->bus_host;
    d.ctx = m;
    d.allow = m->o.allow ? allow : NULL;
    d.on_peer = on_peer;
    d.log = m->o.log ? disco_line : NULL;
    d.brief = m->o.brief;
    int r = mesh_net_open(m, &d, e);
    r = r ? r : disco_open(m->loop, &d, &m->disco, e);
    if (!r) {
        mesh_ref(m);
    }
    return r;
}

/* ---- dialling ---- */

struct pick {
    char row[LINK_ROW];
    struct sockaddr_storage addr;
};

struct round {
    struct mesh *m;
    uint64_t now, next;
    size_t n, attempts;
    struct pick pick[PICKS_MAX];
};

static void later(struct round *r, uint64_t at)
{
    r->next = at < r->next ? at : r->next;
}

static const char *row_of(const struct disco_peer *p)
{
    return p->node[0] ? p->node : p->static_name;
}

static void look_at_row(void *ctx, const struct disco_peer *p)
{
    struct round *r = ctx;
    struct mesh *m = r->m;
    const char *row = row_of(p);
    unsigned n = 0;
    uint64_t newest = 0;
    if (strcmp(p->node, m->node) == 0) {
        return;
    }
    for (const struct plink *l = m->links; l; l = l->next) {
        if (l->state == LINK_DIAL && strcmp(l->row, row) == 0) {
            n++;
            newest = l->began > newest ? l->began : newest;
        } else if (l->state != LINK_DIAL && l->state != LINK_CLOSING &&
                   (strcmp(l->node, p->node) == 0 || strcmp(l->row, row) == 0) && l->node[0]) {
            return; /* connected, or about to be */
        }
    }
    r->attempts += n;
    if (n >= DIAL_ROW_MAX || r->attempts >= DIAL_MAX) {
        return; /* the end of an attempt brings the next round */
    }
    uint64_t stagger = newest + m->o.stagger_ms * MS_NS;
    for (size_t i = 0; i < p->n_addrs; i++) {
        const struct disco_addr *a = &p->addrs[i];
        bool busy = false;
        for (const struct plink *l = m->links; l && !busy; l = l->next) {
            busy = l->dialed && l->state != LINK_CLOSING && addr_same(&l->addr, &a->sa, true);
        }
        for (size_t k = 0; k < r->n && !busy; k++) { /* two rows may know one address */
            busy = addr_same(&r->pick[k].addr, &a->sa, true);
        }
        if (busy) {
            continue;
        }
        uint64_t at = n && stagger > a->retry_ns ? stagger : a->retry_ns;
        uint64_t news = a->seen_ns > m->opened_at ? a->seen_ns : m->opened_at;
        if (p->node[0] && strcmp(m->node, p->node) > 0 && at < news + POLITE_NS) {
            at = news + POLITE_NS;
            m->polite_until = at > m->polite_until ? at : m->polite_until;
        }
        if (at > r->now) {
            later(r, at);
            continue;
        }
        if (r->n == PICKS_MAX) {
            later(r, r->now);
            return;
        }
        if (p->node[0] && !addr_is_loopback(&a->sa) &&
            tls_pool_shaking(m->pool, (const struct sockaddr *)&a->sa)) {
            later(r, r->now + SHAKING_NS);
            return;
        }
        snprintf(r->pick[r->n].row, LINK_ROW, "%s", row);
        r->pick[r->n++].addr = a->sa;
        r->attempts++;
        if (p->n_addrs > 1) {
            later(r, r->now + m->o.stagger_ms * MS_NS);
        }
        return;
    }
}

void mesh_dial_timer(uv_timer_t *t)
{
    struct mesh *m = t->data;
    m->dial_due = 0;
    if (!m->disco || m->closing || m->asleep) {
        return;
    }
    struct round *r = malloc(sizeof *r);
    if (!r) {
        return;
    }
    r->m = m;
    r->now = clock_ns();
    r->next = UINT64_MAX;
    r->n = r->attempts = 0;
    disco_each(m->disco, look_at_row, r);
    for (size_t i = 0; i < r->n; i++) {
        if (!link_dial(m, r->pick[i].row, &r->pick[i].addr)) {
            later(r, r->now + 1000 * MS_NS); /* too many connections */
            break;
        }
    }
    uint64_t now = r->now, next = r->next;
    free(r);
    if (next != UINT64_MAX) {
        uint64_t ms = next > now ? (next - now) / MS_NS + 1 : 1;
        m->dial_due = next;
        uv_timer_start(&m->dial_timer, mesh_dial_timer, ms, 0);
    }
}

void mesh_dial_soon(struct mesh *m)
{
    if (m->disco && !m->closing && !m->asleep) {
        uv_timer_start(&m->dial_timer, mesh_dial_timer, 1, 0);
    }
}

void mesh_dial_won(struct plink *w)
{
    for (struct plink *l = w->m->links, *next; l; l = next) {
        next = l->next;
        if (l != w && l->dialed && l->state == LINK_DIAL && strcmp(l->row, w->row) == 0) {
            l->silent = true;
            link_abort(l, DISCO_CLOSED, "");
        }
    }
    /* A second one that was further on already: nothing was said on this one yet. */
    for (struct plink *l = w->m->links; l; l = l->next) {
        if (l != w && l->dialed && !l->retiring && l->state != LINK_DIAL &&
            l->state != LINK_CLOSING && memcmp(l->tls.id, w->tls.id, WIRE_ID) == 0) {
            w->silent = true;
            link_abort(w, DISCO_CLOSED, "");
            return;
        }
    }
}

/* ---- reports to discovery ---- */

static void report(struct plink *l, enum disco_outcome o, int sys, const char *text)
{
    struct disco_report r = {0};
    if (!l->m->disco || !l->has_addr || !addr_usable(&l->addr)) {
        return;
    }
    bool known = o == DISCO_AUTHENTICATED || l->live;
    r.node = known ? l->node : l->row;
    r.addr = (const struct sockaddr *)&l->addr;
    r.outcome = o;
    r.as = o == DISCO_AUTHENTICATED ? l->node : NULL;
    r.asleep = l->asleep;
    r.inbound = !l->dialed;
    r.sys = sys;
    r.took_ms = (unsigned)((clock_ns() - l->began) / MS_NS);
    r.text = text && text[0] ? text : NULL;
    disco_report(l->m->disco, &r);
}

void mesh_report_up(struct plink *l)
{
    if (!l->live) {
        report(l, DISCO_AUTHENTICATED, 0, l->tls.version);
        l->live = true;
        mesh_net_met(l);
    }
}

static enum disco_outcome outcome_of(const struct tls_close *why, int *sys)
{
    static const struct {
        int uv, sys;
        enum disco_outcome o;
    } known[] = {{UV_ECONNREFUSED, ECONNREFUSED, DISCO_REFUSED},
                 {UV_EHOSTUNREACH, EHOSTUNREACH, DISCO_UNREACHABLE},
                 {UV_ENETUNREACH, ENETUNREACH, DISCO_UNREACHABLE},
                 {UV_ETIMEDOUT, ETIMEDOUT, DISCO_TIMEOUT}};
    switch (why->end) {
    case TLS_END_TIMEOUT:
        return DISCO_TIMEOUT;
    case TLS_END_CONNECT:
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            if (strstr(why->err.msg, uv_strerror(known[i].uv))) {
                *sys = known[i].sys;
                return known[i].o;
            }
        }
        return why->err.code == ERR_TIMEOUT ? DISCO_TIMEOUT : DISCO_UNREACHABLE;
    default:
        return DISCO_REJECTED;
    }
}

void mesh_report_end(struct plink *l, const struct tls_close *why)
{
    struct mesh *m = l->m;
    int sys = 0;
    if (l->silent && !l->live) {
        return;
    }
    enum disco_outcome o = l->end;
    const char *text = l->end_text;
    if (o == DISCO_UNTRIED) { /* not decided here: by what TLS says */
        o = l->live ? DISCO_CLOSED : outcome_of(why, &sys);
        text = why->err.msg;
        if (why->end == TLS_END_REFUSED && why->alert >= 0) {
            text = tls_alert_text(why->alert);
        }
    }
    if (l->live) {
        /* Whoever is told that it is a copy and is let go was refused, up for a moment or not. */
        bool copy = o == DISCO_CLOSED && l->clone_at && clock_ns() - l->clone_at < COPY_ENDS_NS;
        bool rejected = o == DISCO_REJECTED || copy;
        report(l, o == DISCO_GOODBYE || o == DISCO_DEAD ? o : DISCO_CLOSED, sys, text);
        l->live = false;
        if (rejected && l->dialed) {
            report(l, DISCO_REJECTED, 0, text);
        }
        if (o == DISCO_CLOSED && l->end == DISCO_UNTRIED && !m->closing) {
            mesh_log(m, "peer %s: %s", l->who, text[0] ? text : tls_end_text(why->end));
        }
        return;
    }
    if (!l->dialed || m->closing) {
        return;
    }
    if (o == DISCO_CLOSED) { /* to be dialled again at once */
        return;
    }
    report(l, o == DISCO_GOODBYE || o == DISCO_DEAD ? DISCO_TIMEOUT : o, sys, text);
    if (o == DISCO_REJECTED) {
        char s[DISCO_ADDR_TEXT];
        addr_text(&l->addr, true, s);
        char who[ID_SHORT];
        bool named = strcmp(l->row, s) != 0;
        mesh_log_once(m, "peer %s%s%s: not connected: %s", id_short_of(l->row, who) ? who : l->row,
                      named ? " at " : "", named ? s : "", text);
    }
}
