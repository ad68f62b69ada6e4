/* SPDX-License-Identifier: MIT
 * mesh_net.c: where this node announces itself: on networks that the home's file names because the
 * user allowed them or a member was met there (networks.h), told by subnet and gateway
 * (networks_here.h). See mesh_int.h.
 *
 * Discovery asks when an interface or its addresses change; what it cannot see (the file, a gateway
 * that turns up later) is looked at every look_ms, and then it is made to ask again. A network
 * counts as one without a gateway only when two looks in a row found none: an interface has its
 * addresses before its routes, and for that moment every network looks like a bare cable. */
#include "discovery/addr.h"
#include "discovery/ifs.h"
#include "peer/home.h"
#include "peer/mesh_int.h"
#include "peer/networks_here.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ASK_EVERY_NS (30000 * MS_NS) /* a gateway that does not say who it is */
#define ASK_AGAIN_NS (2000 * MS_NS)  /* the first few times */
#define ASK_OFTEN 5
#define ALIVE_NS                                                                     \
    (1000 * MS_NS) /* what arrived is noticed by a connection's tick, up to 1 s late \
                    */
#define MET_MAX 16 /* networks to be written down at a time */
#define LOCK_MS 2000
#define PER_IF (2 * DISCO_IF_ADDRS_MAX)

struct net_if {
    struct disco_if net;
    struct gateway gw;
    unsigned nones; /* looks in a row without a gateway */
    unsigned asked;
    uint64_t ask_at;
    uint64_t since; /* it is this network */
};

struct mesh_net {
    struct networks list;
    uint64_t stamp;
    bool fresh;    /* the list has not been read yet */
    bool unusable; /* the file is malformed: it is not written either */
    struct net_if ifs[DISCO_IFS_MAX];
    size_t n_ifs;
    struct disco_if present[DISCO_IFS_MAX];
    struct network met[MET_MAX];
    size_t n_met;
    bool writing;
};

/* ---- gateways ---- */

static struct net_if *if_of(struct mesh_net *x, const struct disco_if *net)
{
    struct net_if *f = NULL;
    for (size_t i = 0; i < x->n_ifs && !f; i++) {
        f = x->ifs[i].net.index == net->index ? &x->ifs[i] : NULL;
    }
    if (!f && x->n_ifs < DISCO_IFS_MAX) {
        f = &x->ifs[x->n_ifs++];
        memset(f, 0, sizeof *f);
    }
    return f;
}

static bool same_gateway(const struct gateway *a, const struct gateway *b)
{
    return a->state == b->state && (a->state != GATEWAY_KNOWN || !memcmp(a->mac, b->mac, 6));
}

/* True when what it says about the network has changed. */
static bool look_at_gateway(struct mesh *m, struct net_if *f, const struct disco_if *net,
                            bool count)
{
    struct gateway old = f->gw, g;
    bool moved = !ifs_same(&f->net, net);
    if (moved) {
        f->net = *net;
        f->nones = f->asked = 0;
        f->ask_at = 0;
    }
    if (net->virtual_if) { /* told by its subnet alone */
        memset(&g, 0, sizeof g);
        f->nones = 2;
    } else if (m->o.gateway) {
        m->o.gateway(m->o.ctx, net->index, &g);
    } else {
        gateway_of(net->index, &g);
    }
    f->nones = g.state != GATEWAY_NONE ? 0 : f->nones + (count || !f->nones);
    if (g.state == GATEWAY_NONE && f->nones < 2) {
        g.state = GATEWAY_UNKNOWN;
    }
    uint64_t now = clock_ns();
    if (g.state == GATEWAY_UNKNOWN && g.has_addr && now >= f->ask_at) {
        if (!m->o.gateway) {
            gateway_ask(net->index, &g);
        }
        f->ask_at = now + (f->asked++ < ASK_OFTEN ? ASK_AGAIN_NS : ASK_EVERY_NS);
    }
    f->gw = g;
    if (!moved && same_gateway(&old, &g)) {
        return false;
    }
    f->since = now;
    return true;
}

/* ---- what discovery asks ---- */

static bool allow(void *ctx, const struct disco_if *net)
{
    struct mesh *m = ctx;
    struct net_if *f = if_of(m->net, net);
    struct network_here v[PER_IF];
    if (!f) {
        return false;
    }
    look_at_gateway(m, f, net, false);
    return networks_may(v, networks_of(&m->net->list, net, &f->gw, v, PER_IF));
}

static void why_not(void *ctx, const struct disco_if *net, char out[DISCO_TEXT])
{
    struct mesh *m = ctx;
    struct net_if *f = if_of(m->net, net);
    struct network_here v[PER_IF];
    size_t n = f ? networks_of(&m->net->list, net, &f->gw, v, PER_IF) : 0;
    if (m->net->unusable) {
        snprintf(out, DISCO_TEXT,
                 "not announced on this network: the list of networks (%.80s) "
                 "cannot be used",
                 "networks");
    } else if (!n) {
        snprintf(out, DISCO_TEXT, "not announced on: it has no address");
    } else if (net->virtual_if) {
        snprintf(out, DISCO_TEXT,
                 "not announced on: it belongs to a VM, container or VPN; "
                 "shoal networks allow %s",
                 v[0].subnet);
    } else if (v[0].state == NETWORK_HERE_WAITING && f->gw.has_addr) {
        snprintf(out, DISCO_TEXT,
                 "not announced on this network yet: its gateway does not say which one it is; "
                 "looked at again every %u s",
                 (m->o.look_ms + 999) / 1000);
    } else if (v[0].state == NETWORK_HERE_WAITING) {
        snprintf(out, DISCO_TEXT,
                 "not announced on this network yet: its gateway is being "
                 "looked for");
    } else {
        snprintf(out, DISCO_TEXT,
                 "not announced on this network: no member was met here and it is not allowed; "
                 "shoal networks allow %s",
                 v[0].subnet);
    }
}

int mesh_net_open(struct mesh *m, struct disco_options *d, struct err *e)
{
    if (!m->o.known_networks || m->o.allow) {
        return 0;
    }
    if (!m->net) {
        m->net = calloc(1, sizeof *m->net);
        if (!m->net) {
            return err_set(e, ERR_NOMEM, "out of memory");
        }
        m->net->fresh = true;
    }
    d->allow = allow;
    d->why_not = why_not;
    mesh_net_look(m);
    return 0;
}

void mesh_net_free(struct mesh *m)
{
    free(m->net);
    m->net = NULL;
}

/* ---- the list ---- */

/* True when it changed. */
static bool read_list(struct mesh *m)
{
    struct mesh_net *x = m->net;
    struct err e = {0};
    uint64_t s = home_stamp(m->home, "networks", HOME_STAMP);
    if (s == x->stamp && !x->fresh) {
        return false;
    }
    struct networks *list = malloc(sizeof *list);
    if (!list) {
        return false;
    }
    x->stamp = s;
    x->fresh = false;
    x->unusable = networks_load(m->home, list, &e) != 0;
    if (x->unusable) {
        mesh_log_once(m, "announced on no network: %s", e.msg);
        list->n = 0;
    }
    x->list = *list;
    free(list);
    return true;
}

struct met_work {
    uv_work_t req;
    struct mesh *m;
    char *home;
    struct network met[MET_MAX];
    size_t n;
    struct err e;
};

/* Off the loop: a lock may be waited for, and a disk may take its time. */
static void write_met(uv_work_t *w)
{
    struct met_work *x = w->data;
    struct networks *list = malloc(sizeof *list);
    bool dirty = false;
    int lock = -1, r = list ? 0 : err_set(&x->e, ERR_NOMEM, "out of memory");
    r = r ? r : home_lock_for(x->home, LOCK_MS, &lock, &x->e);
    r = r ? r : networks_load(x->home, list, &x->e);
    for (size_t i = 0; !r && i < x->n; i++) {
        bool changed;
        r = networks_add(list, &x->met[i], NETWORK_MET, (uint64_t)time(NULL), &changed, &x->e);
        dirty |= !r && changed;
    }
    if (!r && dirty) {
        networks_save(x->home, list, &x->e);
    }
    home_unlock(lock);
    free(list);
}

static void met_written(uv_work_t *w, int status)
{
    struct met_work *x = w->data;
    struct mesh *m = x->m;
    (void)status;
    m->net->writing = false;
    if (!x->e.code) {
        m->net->n_met -= x->n;
        memmove(m->net->met, m->net->met + x->n, m->net->n_met * sizeof *m->net->met);
    } else if (x->e.code != ERR_BUSY) { /* busy: tried again at the next look */
        mesh_log_once(m, "that a member was met here is not written down: %s", x->e.msg);
        m->net->n_met = 0;
    }
    free(x);
    mesh_unref(m);
}

static void write_down(struct mesh *m)
{
    struct mesh_net *x = m->net;
    struct met_work *w = x->writing || !x->n_met || m->closing ? NULL : calloc(1, sizeof *w);
    if (!w) {
        return;
    }
    w->req.data = w;
    w->m = m;
    w->home = m->home;
    w->n = x->n_met;
    memcpy(w->met, x->met, x->n_met * sizeof *x->met);
    if (uv_queue_work(m->loop, &w->req, write_met, met_written)) {
        free(w);
        return;
    }
    x->writing = true;
    mesh_ref(m);
}

/* ---- members that are met ---- */

static void met(struct mesh *m, const struct plink *l, const struct disco_if *ifs, size_t n)
{
    struct mesh_net *x = m->net;
    const struct disco_if *f = l->has_addr ? ifs_for(ifs, n, &l->addr) : NULL;
    struct network_here v[PER_IF];
    if (!f || f->loopback || f->virtual_if || ifs_own(ifs, n, &l->addr) || x->unusable) {
        return; /* through a router or a tunnel, or on this machine: says nothing about the LAN */
    }
    struct net_if *g = if_of(x, f);
    /* A laptop that was carried elsewhere has connections for a while that are dead already: only
     * one that has received something since then counts. */
    bool alive = g && l->alive_at > g->since + ALIVE_NS;
    size_t k = alive ? networks_of(&x->list, f, &g->gw, v, PER_IF) : 0;
    for (size_t i = 0; i < k; i++) {
        struct sockaddr_storage net = {0};
        bool changed;
        if (v[i].net.v6) {
            struct sockaddr_in6 *a = (struct sockaddr_in6 *)(void *)&net;
            a->sin6_family = AF_INET6;
            memcpy(&a->sin6_addr, v[i].net.addr, 16);
        } else {
            struct sockaddr_in *a = (struct sockaddr_in *)(void *)&net;
            a->sin_family = AF_INET;
            memcpy(&a->sin_addr, v[i].net.addr, 4);
        }
        if (v[i].state == NETWORK_HERE_WAITING || v[i].alike || x->n_met == MET_MAX ||
            !addr_in_net(&l->addr, &net, v[i].net.prefix) ||
            networks_add(&x->list, &v[i].net, NETWORK_MET, (uint64_t)time(NULL), &changed, NULL) ||
            !changed) {
            continue;
        }
        x->met[x->n_met++] = v[i].net;
        if (v[i].state == NETWORK_HERE_NEW) {
            mesh_log(m, "%s: peer %s was met on the network %s: announced there from now on",
                     f->name, l->who, v[i].subnet);
            disco_network_changed(m->disco);
        }
    }
}

void mesh_net_met(struct plink *l)
{
    struct mesh *m = l->m;
    if (m->net && m->disco && !m->closing) {
        struct mesh_net *x = m->net;
        met(m, l, x->present, disco_interfaces(m->disco, x->present, DISCO_IFS_MAX));
        write_down(m);
    }
}

void mesh_net_look(struct mesh *m)
{
    struct mesh_net *x = m->net;
    if (!x) {
        return;
    }
    bool changed = read_list(m);
    if (!m->disco || m->closing) {
        return;
    }
    size_t n = disco_interfaces(m->disco, x->present, DISCO_IFS_MAX);
    for (size_t i = 0; i < x->n_ifs;) { /* those that went away */
        bool here = false;
        for (size_t k = 0; k < n; k++) {
            here |= x->present[k].index == x->ifs[i].net.index;
        }
        if (here || n == 0) {
            i++;
        } else {
            x->ifs[i] = x->ifs[--x->n_ifs];
        }
    }
    for (size_t i = 0; i < n; i++) {
        struct net_if *f = x->present[i].loopback ? NULL : if_of(x, &x->present[i]);
        changed |= f && look_at_gateway(m, f, &x->present[i], true);
    }
    if (changed) {
        disco_network_changed(m->disco);
    }
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->state == LINK_UP && l->live) {
            met(m, l, x->present, n);
        }
    }
    write_down(m);
}
