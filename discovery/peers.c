/* SPDX-License-Identifier: MIT
 * peers.c: see peers.h. Sources of an address are not stored as facts but worked out again from
 * what announces it (sights) and what names it (statics), so that no count can go wrong. */
#include "discovery/peers.h"

#include "discovery/addr.h"
#include "discovery/ifs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void peers_init(struct peers *t)
{
    memset(t, 0, sizeof *t);
}

void peers_free(struct peers *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->rows[i]);
    }
    for (size_t i = 0; i < t->n_sights; i++) {
        free(t->sights[i]);
    }
    for (size_t i = 0; i < t->n_statics; i++) {
        free(t->statics[i]);
    }
    memset(t, 0, sizeof *t);
}

/* ---- rows and addresses ---- */

struct row *peers_find(struct peers *t, const char *node)
{
    for (size_t i = 0; node && node[0] && i < t->n; i++) {
        if (!strcmp(t->rows[i]->p.node, node)) {
            return t->rows[i];
        }
    }
    return NULL;
}

static struct row *find_static_row(struct peers *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++) {
        if (!t->rows[i]->p.node[0] && !t->rows[i]->over &&
            !strcmp(t->rows[i]->p.static_name, name)) {
            return t->rows[i];
        }
    }
    return NULL;
}

struct disco_addr *peers_find_addr(struct row *r, const struct sockaddr_storage *a)
{
    for (size_t i = 0; r && i < r->p.n_addrs; i++) {
        if (addr_same(&r->p.addrs[i].sa, a, true)) {
            return &r->p.addrs[i];
        }
    }
    return NULL;
}

bool peers_row_empty(const struct row *r)
{
    return r->p.n_addrs == 0 && (r->over || !r->p.static_name[0]);
}

/* Only announced, never proved: the first to go when the table is full. */
static bool claim_only(const struct row *r)
{
    if (r->p.authentic || r->p.static_name[0] || r->p.live) {
        return false;
    }
    for (size_t i = 0; i < r->p.n_addrs; i++) {
        if (r->p.addrs[i].sources != DISCO_BONJOUR) {
            return false;
        }
    }
    return true;
}

void peers_drop_row(struct peers *t, size_t i)
{
    free(t->rows[i]);
    memmove(&t->rows[i], &t->rows[i + 1], (t->n - i - 1) * sizeof *t->rows);
    t->n--;
}

/* A new row in order of node id (rows without one first, as they came). A claim does not displace
 * anything; what is named or proved displaces a claim that was not yet told of or is empty. */
struct row *peers_add_row(struct peers *t, const char *node, bool claim)
{
    for (size_t i = 0; t->n == DISCO_PEERS_MAX && i < t->n; i++) {
        if (!t->rows[i]->told &&
            (peers_row_empty(t->rows[i]) || (!claim && claim_only(t->rows[i])))) {
            peers_drop_row(t, i);
        }
    }
    /* The last places are kept for peers that are more than a claim. */
    size_t max = claim ? DISCO_PEERS_MAX - DISCO_STATIC_MAX : DISCO_PEERS_MAX;
    struct row *r = t->n < max ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        t->over_limit++;
        return NULL;
    }
    snprintf(r->p.node, sizeof r->p.node, "%s", node);
    size_t at = t->n;
    while (at > 0 && strcmp(t->rows[at - 1]->p.node, node) > 0) {
        at--;
    }
    memmove(&t->rows[at + 1], &t->rows[at], (t->n - at) * sizeof *t->rows);
    t->rows[at] = r;
    t->n++;
    return r;
}

static void place(struct peers *t, struct disco_addr *a, uint32_t ifindex)
{
    const struct disco_if *f = ifs_for(t->ifs, t->n_ifs, &a->sa);
    for (size_t i = 0; !f && ifindex && i < t->n_ifs; i++) {
        f = t->ifs[i].index == ifindex ? &t->ifs[i] : NULL;
    }
    a->ifindex = f ? f->index : 0;
    snprintf(a->ifname, sizeof a->ifname, "%s", f ? f->name : "");
    a->virtual_if = f && f->virtual_if;
    addr_text(&a->sa, true, a->text);
}

/* Make room by dropping an address that failed and that nothing but an announcement backs. */
static bool make_room(struct row *r)
{
    struct disco_addr *worst = NULL;
    for (size_t i = 0; i < r->p.n_addrs; i++) {
        struct disco_addr *a = &r->p.addrs[i];
        if (!a->live && !(a->sources & DISCO_STATIC) && a->fails &&
            (!worst || a->fails > worst->fails)) {
            worst = a;
        }
    }
    if (!worst) {
        return false;
    }
    *worst = r->p.addrs[--r->p.n_addrs];
    return true;
}

struct disco_addr *peers_need_addr(struct peers *t, struct row *r, uint64_t now,
                                   const struct sockaddr_storage *sa, uint32_t ifindex)
{
    struct disco_addr *a = peers_find_addr(r, sa);
    if (!a) {
        if (r->p.n_addrs == DISCO_ADDRS_MAX && !make_room(r)) {
            t->over_limit++;
            return NULL;
        }
        a = &r->p.addrs[r->p.n_addrs++];
        memset(a, 0, sizeof *a);
        a->sa = *sa;
        a->port = addr_port(sa);
        r->dirty = true;
    }
    a->seen_ns = now;
    place(t, a, ifindex);
    return a;
}

void peers_ifs(struct peers *t, const struct disco_if *ifs, size_t n)
{
    t->n_ifs = n < DISCO_IFS_MAX ? n : DISCO_IFS_MAX;
    memcpy(t->ifs, ifs, t->n_ifs * sizeof *ifs);
    for (size_t i = 0; i < t->n; i++) {
        for (size_t k = 0; k < t->rows[i]->p.n_addrs; k++) {
            struct disco_addr *a = &t->rows[i]->p.addrs[k];
            place(t, a, a->ifindex);
        }
    }
}

bool peers_among(const struct sockaddr_storage *s, size_t n, const struct sockaddr_storage *a)
{
    for (size_t i = 0; i < n; i++) {
        if (addr_same(&s[i], a, true)) {
            return true;
        }
    }
    return false;
}

/* Work out again who announces and who names the addresses of a row; drop those nobody backs. */
void peers_settle(struct peers *t, struct row *r)
{
    struct disco_peer *p = &r->p;
    const struct sight *told = NULL;
    const struct static_peer *named = NULL;
    for (size_t k = 0; k < t->n_sights; k++) {
        if (p->node[0] && !strcmp(t->sights[k]->txt.node, p->node)) {
            told = !told && t->sights[k]->n_addrs ? t->sights[k] : told;
        }
    }
    for (size_t k = 0; k < t->n_statics; k++) {
        const struct static_peer *s = t->statics[k];
        if (s->node[0] ? !strcmp(s->node, p->node)
                       : !p->node[0] && !strcmp(s->name, p->static_name)) {
            named = named ? named : s;
        }
    }
    for (size_t i = 0; i < p->n_addrs;) {
        struct disco_addr *a = &p->addrs[i];
        unsigned src = a->sources & ~(unsigned)(DISCO_BONJOUR | DISCO_STATIC);
        for (size_t k = 0; p->node[0] && k < t->n_sights; k++) {
            const struct sight *s = t->sights[k];
            if (!strcmp(s->txt.node, p->node) && peers_among(s->addrs, s->n_addrs, &a->sa)) {
                src |= DISCO_BONJOUR;
            }
        }
        for (size_t k = 0; k < t->n_statics; k++) {
            const struct static_peer *s = t->statics[k];
            bool mine = s->node[0] ? !strcmp(s->node, p->node)
                                   : !p->node[0] && !strcmp(s->name, p->static_name);
            if (mine && peers_among(s->addrs, s->n_addrs, &a->sa)) {
                src |= DISCO_STATIC;
            }
        }
        r->dirty |= src != a->sources;
        a->sources = src;
        if (!src && !a->live) {
            *a = p->addrs[--p->n_addrs];
            r->dirty = true;
        } else {
            i++;
        }
    }
    bool announced = told != NULL;
    if (announced != p->announced ||
        (told && (strcmp(told->txt.model, p->model) || told->txt.version != p->version ||
                  strcmp(told->instance, p->instance)))) {
        r->dirty = true;
        p->announced = announced;
        if (told) { /* else what was told last stays known */
            p->version = told->txt.version;
            memcpy(p->model, told->txt.model, sizeof p->model);
        }
        memcpy(p->instance, told ? told->instance : "", told ? sizeof p->instance : 1);
    }
    if (p->node[0]) {
        char name[DISCO_STATIC_TEXT];
        snprintf(name, sizeof name, "%s", named ? named->name : "");
        r->dirty |= strcmp(name, p->static_name) != 0;
        memcpy(p->static_name, name, sizeof name);
    } else {
        r->over = !named; /* the name has met its node and stands in that row */
    }
}

static void settle_node(struct peers *t, const char *node)
{
    struct row *r = peers_find(t, node);
    if (r) {
        peers_settle(t, r);
    }
}

/* ---- announcements ---- */

struct sight *peers_sight_find(struct peers *t, uint32_t ifindex, const char *instance)
{
    for (size_t i = 0; i < t->n_sights; i++) {
        if (t->sights[i]->ifindex == ifindex && !strcmp(t->sights[i]->instance, instance)) {
            return t->sights[i];
        }
    }
    return NULL;
}

struct sight *peers_sight(struct peers *t, uint64_t now, uint32_t ifindex, const char *instance,
                          const struct txt *txt, const struct sockaddr_storage *addrs, size_t n,
                          bool fresh)
{
    if (strlen(instance) > DISCO_NAME_MAX) {
        return NULL;
    }
    struct row *r = peers_find(t, txt->node);
    if (!r) {
        r = peers_add_row(t, txt->node, true);
    }
    struct sight *s = peers_sight_find(t, ifindex, instance);
    if (!r) {
        peers_unsight(t, ifindex, instance);
        return NULL;
    }
    char before[DISCO_ID_MAX + 1] = "";
    if (!s) {
        s = t->n_sights < PEERS_SIGHTS_MAX ? calloc(1, sizeof *s) : NULL;
        if (!s) {
            t->over_limit++;
            return NULL;
        }
        t->sights[t->n_sights++] = s;
        s->ifindex = ifindex;
        memcpy(s->instance, instance, strlen(instance) + 1);
    } else {
        memcpy(before, s->txt.node, sizeof before);
    }
    s->txt = *txt;
    s->n_addrs = 0;
    for (size_t i = 0; i < n && s->n_addrs < DISCO_ADDRS_MAX; i++) {
        if (!addr_usable(&addrs[i]) || peers_among(s->addrs, s->n_addrs, &addrs[i])) {
            continue;
        }
        s->addrs[s->n_addrs++] = addrs[i];
        struct disco_addr *a = peers_need_addr(t, r, now, &addrs[i], ifindex);
        if (a && (fresh || !(a->sources & DISCO_BONJOUR))) {
            a->retry_ns = 0; /* failure counts stay: a second failure waits as long as before */
        }
    }
    peers_settle(t, r);
    if (before[0] && strcmp(before, txt->node)) {
        settle_node(t, before);
    }
    return s;
}

static void drop_sight(struct peers *t, size_t i)
{
    char node[DISCO_ID_MAX + 1];
    memcpy(node, t->sights[i]->txt.node, sizeof node);
    free(t->sights[i]);
    t->sights[i] = t->sights[--t->n_sights];
    settle_node(t, node);
}

void peers_unsight(struct peers *t, uint32_t ifindex, const char *instance)
{
    for (size_t i = 0; i < t->n_sights; i++) {
        if (t->sights[i]->ifindex == ifindex && !strcmp(t->sights[i]->instance, instance)) {
            drop_sight(t, i);
            return;
        }
    }
}

void peers_unsight_if(struct peers *t, uint32_t ifindex)
{
    for (size_t i = 0; i < t->n_sights;) {
        if (!ifindex || t->sights[i]->ifindex == ifindex) {
            drop_sight(t, i);
        } else {
            i++;
        }
    }
}

/* ---- named and remembered addresses ---- */

int peers_add_static(struct peers *t, const char *host_port, struct static_peer **out,
                     struct err *e)
{
    char host[DISCO_HOST_MAX + 1];
    uint16_t port;
    int rc = addr_split(host_port, host, &port, e);
    if (rc) {
        return rc;
    }
    for (size_t i = 0; i < t->n_statics; i++) {
        if (!strcmp(t->statics[i]->name, host_port)) {
            *out = t->statics[i];
            return err_set(e, ERR_BUSY, "the peer %s is named already", host_port);
        }
    }
    if (t->n_statics == DISCO_STATIC_MAX) {
        return err_set(e, ERR_LIMIT, "more than %d named peers; %s is one too many",
                       DISCO_STATIC_MAX, host_port);
    }
    struct static_peer *s = calloc(1, sizeof *s);
    struct row *r = s ? peers_add_row(t, "", false) : NULL;
    if (!r) {
        free(s);
        return err_set(e, ERR_NOMEM, "no room for the peer %s", host_port);
    }
    snprintf(s->name, sizeof s->name, "%s", host_port);
    memcpy(s->host, host, sizeof host);
    s->port = port;
    memcpy(r->p.static_name, s->name, sizeof s->name);
    t->statics[t->n_statics++] = s;
    *out = s;
    return 0;
}

void peers_static_addrs(struct peers *t, uint64_t now, struct static_peer *s,
                        const struct sockaddr_storage *addrs, size_t n)
{
    s->n_addrs = 0;
    for (size_t i = 0; i < n && s->n_addrs < DISCO_ADDRS_MAX; i++) {
        if (addr_usable(&addrs[i]) && !peers_among(s->addrs, s->n_addrs, &addrs[i])) {
            s->addrs[s->n_addrs++] = addrs[i];
        }
    }
    struct row *r = s->node[0] ? peers_find(t, s->node) : find_static_row(t, s->name);
    if (!r) { /* the node's row went; the name has a row of its own again */
        s->node[0] = 0;
        r = peers_add_row(t, "", false);
        if (!r) {
            return;
        }
        memcpy(r->p.static_name, s->name, sizeof s->name);
    }
    for (size_t i = 0; i < s->n_addrs; i++) {
        peers_need_addr(t, r, now, &s->addrs[i], 0);
    }
    peers_settle(t, r);
}

void peers_remembered(struct peers *t, uint64_t now, const char *node,
                      const struct sockaddr_storage *a, int64_t met_unix)
{
    struct row *r = peers_find(t, node);
    r = r ? r : peers_add_row(t, node, false);
    struct disco_addr *x = r && addr_usable(a) ? peers_need_addr(t, r, now, a, 0) : NULL;
    if (x) {
        x->sources |= DISCO_REMEMBERED;
        x->met_unix = met_unix;
        x->seen_ns = 0;
    }
}

void peers_retry(struct peers *t, const char *node)
{
    for (size_t i = 0; i < t->n; i++) {
        struct disco_peer *p = &t->rows[i]->p;
        if (strcmp(p->node, node ? node : "") != 0) {
            continue;
        }
        for (size_t k = 0; k < p->n_addrs; k++) {
            if (p->addrs[k].last[0].outcome == DISCO_REJECTED) {
                p->addrs[k].retry_ns = 0;
                p->addrs[k].fails = 0;
            }
        }
    }
}

void peers_forget(struct peers *t, const char *node)
{
    struct row *r = peers_find(t, node);
    if (!r) {
        return;
    }
    for (size_t i = 0; i < r->p.n_addrs; i++) {
        r->p.addrs[i].sources &= ~(unsigned)(DISCO_REMEMBERED | DISCO_INBOUND);
    }
    r->p.authentic = false;
    peers_settle(t, r);
}
