/* SPDX-License-Identifier: MIT
 * peers_report.c: what attempts and measurements do to the table (peers.h), the order of addresses,
 * and the events that follow. */
#include "discovery/peers.h"

#include "discovery/addr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000u

const char *disco_outcome_word(enum disco_outcome o)
{
    static const char *const words[] = {
#define WORD(n, w) w,
        DISCO_OUTCOMES(WORD)
#undef WORD
    };
    return (unsigned)o < sizeof words / sizeof *words ? words[o] : "?";
}

/* ---- order ---- */

static bool good(const struct disco_addr *a)
{
    return a->live || (a->goods && !a->fails);
}

static int group_of(const struct disco_addr *a)
{
    if (a->fails) {
        return a->virtual_if ? 5 : 4;
    }
    return (a->virtual_if ? 2 : 0) + (good(a) ? 0 : 1);
}

static int source_rank(unsigned s)
{
    return s & DISCO_REMEMBERED ? 0 : (s & DISCO_STATIC ? 1 : (s & DISCO_BONJOUR ? 2 : 3));
}

static int order(const void *pa, const void *pb)
{
    const struct disco_addr *a = pa, *b = pb;
    int d = group_of(a) - group_of(b);
    if (d) {
        return d;
    }
    if (a->bytes_s != b->bytes_s) { /* not measured counts as 0 */
        return a->bytes_s > b->bytes_s ? -1 : 1;
    }
    if (a->rtt_s != b->rtt_s) {
        return a->rtt_s == 0 ? 1 : (b->rtt_s == 0 ? -1 : (a->rtt_s < b->rtt_s ? -1 : 1));
    }
    d = source_rank(a->sources) - source_rank(b->sources);
    if (d) {
        return d;
    }
    if (a->fails != b->fails) {
        return a->fails < b->fails ? -1 : 1;
    }
    d = (int)addr_is_linklocal6(&a->sa) - (int)addr_is_linklocal6(&b->sa);
    return d ? d : strcmp(a->text, b->text);
}

void peers_sort(struct disco_peer *p)
{
    qsort(p->addrs, p->n_addrs, sizeof *p->addrs, order);
}

/* ---- reports ---- */

static void note(struct disco_addr *a, uint64_t now, const struct disco_report *r)
{
    memmove(&a->last[1], &a->last[0], (DISCO_HISTORY - 1) * sizeof a->last[0]);
    struct disco_try *t = &a->last[0];
    memset(t, 0, sizeof *t);
    t->outcome = r->outcome;
    t->sys = r->sys;
    t->ns = now;
    snprintf(t->text, sizeof t->text, "%s", r->text ? r->text : "");
}

static void wait_longer(struct disco_addr *a, uint64_t now, enum disco_outcome o)
{
    uint64_t base_ms = o == DISCO_REJECTED ? PEERS_REJECTED_MS : PEERS_RETRY_BASE_MS;
    uint64_t max = a->fails >= 10           ? DISCO_ASLEEP_MS
                   : o == DISCO_UNREACHABLE ? DISCO_UNREACHABLE_MS
                                            : DISCO_RETRY_MAX_MS;
    unsigned doublings = a->fails < 16 ? a->fails : 16;
    uint64_t ms = base_ms << doublings;
    a->fails++;
    ms = ms < max ? ms : max;
    uint32_t h = 2166136261u; /* spread over peers, alike in every run: FNV-1a of the address */
    for (const char *c = a->text; *c; c++) {
        h = (h ^ (uint8_t)*c) * 16777619u;
    }
    ms += ms * ((h + a->fails) % 256) / 1024; /* up to a quarter more */
    a->retry_ns = now + ms * MS;
}

static void sum_live(struct row *r)
{
    unsigned live = 0;
    for (size_t i = 0; i < r->p.n_addrs; i++) {
        live += r->p.addrs[i].live;
    }
    r->dirty |= live != r->p.live;
    r->p.live = live;
}

/* The announcement of this address (NULL = of any) by this node is not believed any more. */
static void disbelieve(struct peers *t, const char *node, const struct sockaddr_storage *a)
{
    for (size_t i = 0; node[0] && i < t->n_sights; i++) {
        struct sight *s = t->sights[i];
        if (strcmp(s->txt.node, node)) {
            continue;
        }
        for (size_t k = 0; k < s->n_addrs;) {
            if (!a || addr_same(&s->addrs[k], a, true)) {
                s->addrs[k] = s->addrs[--s->n_addrs];
            } else {
                k++;
            }
        }
    }
}

static struct row *row_with(struct peers *t, const struct sockaddr_storage *a)
{
    struct row *found = NULL;
    for (size_t i = 0; i < t->n; i++) {
        if (peers_find_addr(t->rows[i], a)) {
            /* a named peer without a node is what such a report is about */
            if (!t->rows[i]->p.node[0]) {
                return t->rows[i];
            }
            found = found ? found : t->rows[i];
        }
    }
    return found;
}

/* The address proved to be `to`: the name that led to it and its history go there, a claim that it
 * was `from` ends. */
static void hand_over(struct peers *t, uint64_t now, struct row *from, struct row *to,
                      const struct sockaddr_storage *sa)
{
    for (size_t k = 0; k < t->n_statics; k++) {
        struct static_peer *s = t->statics[k];
        bool of_from = s->node[0] ? !strcmp(s->node, from->p.node)
                                  : !from->p.node[0] && !strcmp(s->name, from->p.static_name);
        if (of_from && peers_among(s->addrs, s->n_addrs, sa)) {
            memcpy(s->node, to->p.node, sizeof s->node);
            for (size_t i = 0; i < s->n_addrs; i++) {
                peers_need_addr(t, to, now, &s->addrs[i], 0);
            }
        }
    }
    disbelieve(t, from->p.node, sa);
    struct disco_addr *old = peers_find_addr(from, sa);
    struct disco_addr *new = peers_need_addr(t, to, now, sa, 0);
    if (old && new && !new->tries) {
        struct disco_addr keep = *new;
        *new = *old;
        new->sources = keep.sources;
        new->live = keep.live;
    }
    if (old) {
        old->sources = 0;
    }
    peers_settle(t, from);
    sum_live(from);
}

static void authenticated(struct peers *t, uint64_t now, int64_t unix_s,
                          const struct disco_report *rep, const struct sockaddr_storage *sa)
{
    const char *id = rep->as;
    if (!id || !txt_id_ok(id, strlen(id))) {
        return;
    }
    struct row *to = peers_find(t, id);
    to = to ? to : peers_add_row(t, id, false);
    if (!to) {
        return;
    }
    /* Every other row that holds this address was wrong about it. */
    for (size_t i = 0; i < t->n; i++) {
        struct row *from = t->rows[i];
        if (from != to && peers_find_addr(from, sa)) {
            hand_over(t, now, from, to, sa);
        }
    }
    struct disco_addr *a = peers_need_addr(t, to, now, sa, 0);
    if (!a) {
        peers_settle(t, to);
        return;
    }
    a->sources |= DISCO_REMEMBERED | (rep->inbound ? DISCO_INBOUND : 0u);
    a->met_unix = unix_s;
    a->fails = 0;
    a->retry_ns = 0;
    a->live++;
    a->goods++;
    a->tries += !rep->inbound;
    note(a, now, rep);
    to->dirty |= !to->p.authentic;
    to->p.authentic = true;
    for (size_t i = 0; i < to->p.n_addrs; i++) { /* addresses it had in another life */
        struct disco_addr *o = &to->p.addrs[i];
        if (o->fails >= PEERS_INBOUND_FAILS && !o->live) {
            o->sources &= ~(unsigned)(DISCO_REMEMBERED | DISCO_INBOUND);
        }
    }
    peers_settle(t, to);
    sum_live(to);
}

static void ended(struct peers *t, uint64_t now, struct row *r, struct disco_addr *a,
                  const struct disco_report *rep)
{
    enum disco_outcome o = rep->outcome;
    if (a->live) {
        a->live--;
    }
    sum_live(r);
    if (o == DISCO_CLOSED) {
        a->retry_ns = now + (uint64_t)PEERS_RETRY_BASE_MS * MS;
        return;
    }
    if (o == DISCO_DEAD) {
        wait_longer(a, now, o);
    }
    if (r->p.live) {
        return; /* gone on this address, here on another */
    }
    disbelieve(t, r->p.node, NULL);
    for (size_t i = 0; i < r->p.n_addrs; i++) {
        struct disco_addr *x = &r->p.addrs[i];
        x->sources &= ~(unsigned)DISCO_INBOUND;
        if (o == DISCO_GOODBYE) {
            x->retry_ns = now + (rep->asleep ? DISCO_ASLEEP_MS : DISCO_STOPPED_MS) * (uint64_t)MS;
        }
    }
}

void peers_report(struct peers *t, uint64_t now, int64_t unix_s, const struct disco_report *rep)
{
    struct sockaddr_storage sa;
    if (!rep->addr || !addr_copy(&sa, rep->addr) || !addr_usable(&sa)) {
        return;
    }
    if (rep->outcome == DISCO_AUTHENTICATED) {
        authenticated(t, now, unix_s, rep, &sa);
        return;
    }
    struct row *r = peers_find(t, rep->node);
    struct disco_addr *a = peers_find_addr(r, &sa);
    if (!a) {
        r = row_with(t, &sa);
        a = peers_find_addr(r, &sa);
    }
    if (!a) {
        return;
    }
    note(a, now, rep);
    switch (rep->outcome) {
    case DISCO_CONNECTED:
        a->seen_ns = now;
        break;
    case DISCO_REFUSED:
    case DISCO_UNREACHABLE:
    case DISCO_TIMEOUT:
    case DISCO_REJECTED:
        a->tries++;
        wait_longer(a, now, rep->outcome);
        if (a->fails >= PEERS_INBOUND_FAILS && !a->live) {
            a->sources &= ~(unsigned)DISCO_INBOUND;
        }
        break;
    case DISCO_CLOSED:
    case DISCO_GOODBYE:
    case DISCO_DEAD:
        ended(t, now, r, a, rep);
        break;
    default:
        break;
    }
    peers_settle(t, r);
}

void peers_measured(struct peers *t, const char *node, const struct sockaddr *addr, double bytes_s,
                    double rtt_s)
{
    struct sockaddr_storage sa;
    struct row *r = peers_find(t, node);
    struct disco_addr *a = r && addr_copy(&sa, addr) ? peers_find_addr(r, &sa) : NULL;
    if (!a) {
        return;
    }
    peers_sort(&r->p);
    struct sockaddr_storage first = r->p.addrs[0].sa;
    a = peers_find_addr(r, &sa);
    a->bytes_s = bytes_s > 0 ? bytes_s : a->bytes_s;
    a->rtt_s = rtt_s > 0 ? rtt_s : a->rtt_s;
    peers_sort(&r->p);
    r->dirty |= !addr_same(&first, &r->p.addrs[0].sa, true);
}

void peers_retry_all(struct peers *t, uint64_t now, uint64_t gap_ns)
{
    for (size_t i = 0; i < t->n; i++) {
        for (size_t k = 0; k < t->rows[i]->p.n_addrs; k++) {
            struct disco_addr *a = &t->rows[i]->p.addrs[k];
            uint64_t at = a->last[0].ns ? a->last[0].ns + gap_ns : now;
            at = at > now ? at : now;
            a->retry_ns = a->retry_ns > at ? at : a->retry_ns;
        }
    }
}

/* ---- events ---- */

const struct disco_peer *peers_next_event(struct peers *t, struct row **gone, enum disco_event *ev)
{
    free(*gone);
    *gone = NULL;
    for (size_t i = 0; i < t->n;) {
        struct row *r = t->rows[i];
        if (peers_row_empty(r)) {
            if (!r->told) {
                peers_drop_row(t, i);
                continue;
            }
            struct row *copy = malloc(sizeof *copy);
            if (!copy) {
                i++; /* stays empty and is told of when there is memory */
                continue;
            }
            *copy = *r;
            peers_drop_row(t, i);
            *gone = copy;
            *ev = DISCO_REMOVED;
            return &copy->p;
        }
        if (r->dirty || !r->told) {
            *ev = r->told ? DISCO_CHANGED : DISCO_ADDED;
            r->told = true;
            r->dirty = false;
            peers_sort(&r->p);
            return &r->p;
        }
        i++;
    }
    return NULL;
}
