/* SPDX-License-Identifier: MIT
 * networks_here.c: see networks_here.h. */
#include "peer/networks_here.h"

#include "discovery/addr.h"
#include "discovery/ifs.h"
#include "peer/home.h"

#include "proto/base/clock.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_NS 3000000000u
#define LOOK_NS 100000000

const char *network_state_word(enum network_state s)
{
    static const char *const words[] = {"new", "met", "allowed", "waiting for its gateway"};
    return (unsigned)s < sizeof words / sizeof *words ? words[s] : "?";
}

static bool link_local(const struct network *n)
{
    return n->v6 ? n->addr[0] == 0xfe && (n->addr[1] & 0xc0) == 0x80
                 : n->addr[0] == 169 && n->addr[1] == 254;
}

static int rank(const struct network *n)
{
    return (link_local(n) ? 2 : 0) + n->v6;
}

static enum network_state state_of(const struct networks *list, const struct network_here *h)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct network_entry *x = &list->v[i];
        if (!network_same(&x->net, &h->net)) {
            continue;
        }
        if (!h->virtual_if) {
            return x->why == NETWORK_ALLOW ? NETWORK_HERE_ALLOWED : NETWORK_HERE_MET;
        }
        /* what was allowed for a cable must not hold for every tunnel that has no addresses yet */
        return x->why == NETWORK_ALLOW && !h->alike ? NETWORK_HERE_ALLOWED : NETWORK_HERE_NEW;
    }
    return NETWORK_HERE_NEW;
}

static bool bytes_of(const struct sockaddr_storage *a, uint8_t out[16], bool *v6)
{
    *v6 = a->ss_family == AF_INET6;
    if (*v6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    } else {
        memcpy(out, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    }
    return *v6 || a->ss_family == AF_INET;
}

size_t networks_of(const struct networks *list, const struct disco_if *f, const struct gateway *g,
                   struct network_here *out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_addrs; i++) {
        struct network_here h;
        uint8_t raw[16];
        bool v6;
        size_t at = 0;
        memset(&h, 0, sizeof h);
        if (!bytes_of(&f->addrs[i].sa, raw, &v6) ||
            network_make(raw, v6, f->addrs[i].prefix, g->state == GATEWAY_KNOWN ? g->mac : NULL,
                         &h.net, NULL)) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            at += network_same(&out[k].net, &h.net);
        }
        if (at || n == max) {
            continue;
        }
        snprintf(h.interface, sizeof h.interface, "%s", f->name);
        h.virtual_if = f->virtual_if;
        h.alike = link_local(&h.net) && !h.net.has_gateway;
        network_text(&h.net, h.subnet);
        h.subnet[strcspn(h.subnet, " ")] = 0;
        h.state = g->state == GATEWAY_UNKNOWN ? NETWORK_HERE_WAITING : state_of(list, &h);
        for (at = n; at && rank(&out[at - 1].net) > rank(&h.net); at--) {
            out[at] = out[at - 1];
        }
        out[at] = h;
        n++;
    }
    return n;
}

bool networks_may(const struct network_here *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].state == NETWORK_HERE_MET || v[i].state == NETWORK_HERE_ALLOWED) {
            return true;
        }
    }
    return false;
}

/* With `ask`: gateways that are not known are made to be. */
static size_t present(const struct networks *list, struct network_here *out, size_t max, bool ask)
{
    struct disco_if *ifs = calloc(DISCO_IFS_MAX, sizeof *ifs);
    size_t n_ifs = ifs ? ifs_read(ifs, DISCO_IFS_MAX) : 0, n = 0;
    for (size_t i = 0; i < n_ifs; i++) {
        struct gateway g = {0};
        if (ifs[i].loopback) {
            continue;
        }
        if (!ifs[i].virtual_if) { /* those are told by their subnet alone */
            gateway_of(ifs[i].index, &g);
        }
        if (ask && g.state == GATEWAY_UNKNOWN) {
            gateway_ask(ifs[i].index, &g);
        }
        n += networks_of(list, &ifs[i], &g, out + n, max - n);
    }
    free(ifs);
    return n;
}

int networks_here(const char *home, struct network_here *out, size_t max, size_t *n, struct err *e)
{
    struct networks *list = malloc(sizeof *list);
    *n = 0;
    if (!list) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = networks_load(home, list, e);
    if (!r) {
        *n = present(list, out, max, false);
    }
    free(list);
    return r;
}

/* ---- changing the list ---- */

static bool meant(const struct network_here *h, const char *which)
{
    char full[NETWORK_TEXT];
    if (!which) {
        return !h->virtual_if && !h->alike;
    }
    network_text(&h->net, full);
    return strcmp(which, h->subnet) == 0 || strcmp(which, full) == 0 ||
           strcmp(which, h->interface) == 0;
}

/* Those that are meant, once their gateways are known or the time is over. */
static size_t look_for(const char *which, struct network_here *v, size_t max)
{
    static const struct networks none;
    uint64_t end = clock_ns() + WAIT_NS;
    for (bool first = true;; first = false) {
        size_t n = present(&none, v, max, first);
        bool waits = false;
        for (size_t i = 0; i < n; i++) {
            waits |= v[i].state == NETWORK_HERE_WAITING && meant(&v[i], which);
        }
        if (!waits || clock_ns() > end) {
            return n;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

static int not_here(const struct network_here *v, size_t n, const char *which, struct err *e)
{
    char list[300] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof list; i++) {
        int k = snprintf(list + at, sizeof list - at, "%s%s %s", at ? ", " : "", v[i].interface,
                         v[i].subnet);
        at += k > 0 ? (size_t)k : 0;
    }
    return err_set(e, ERR_NOTFOUND, "this machine is not in a network %.80s now; it is in: %s",
                   which, list[0] ? list : "none");
}

static int add_all(struct networks *list, const struct network_here *v, size_t n, const char *which,
                   size_t *added, bool *dirty, struct err *e)
{
    uint64_t now = (uint64_t)time(NULL);
    size_t matched = 0, waiting = 0;
    bool changed;
    int r = 0;
    for (size_t i = 0; !r && i < n; i++) {
        if (!meant(&v[i], which)) {
            continue;
        }
        matched++;
        if (v[i].state == NETWORK_HERE_WAITING) {
            waiting++;
            continue;
        }
        bool had = networks_has(list, &v[i].net);
        r = networks_add(list, &v[i].net, NETWORK_ALLOW, now, &changed, e);
        *added += !r && !had;
        *dirty |= !r && changed;
    }
    if (!r && which && !matched) {
        struct network net;
        if (!strchr(which, ' ')) {
            return not_here(v, n, which, e);
        }
        bool had = (r = network_parse(which, &net, e)) == 0 && networks_has(list, &net);
        r = r ? r : networks_add(list, &net, NETWORK_ALLOW, now, &changed, e);
        *added += !r && !had;
        *dirty |= !r && changed;
    } else if (!r && which && waiting == matched) {
        r = err_set(e, ERR_BUSY,
                    "the gateway of %.80s does not answer, and without its hardware address the "
                    "network cannot be told from others: try again when it does",
                    which);
    }
    return r;
}

int networks_allow_here(const char *home, const char *which, size_t *added, struct err *e)
{
    struct networks *list = malloc(sizeof *list);
    struct network_here *v = calloc(NETWORKS_HERE_MAX, sizeof *v);
    size_t k = 0;
    bool dirty = false;
    int lock = -1, r = list && v ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    size_t n = r ? 0 : look_for(which, v, NETWORKS_HERE_MAX);
    r = r ? r : home_lock(home, &lock, e);
    r = r ? r : networks_load(home, list, e);
    r = r ? r : add_all(list, v, n, which, &k, &dirty, e);
    if (!r && dirty) {
        r = networks_save(home, list, e);
    }
    home_unlock(lock);
    free(list);
    free(v);
    if (added) {
        *added = r ? 0 : k;
    }
    return r;
}

int networks_forget_named(const char *home, const char *which, size_t *gone, struct err *e)
{
    struct networks *list = malloc(sizeof *list);
    size_t k = 0, len = strlen(which);
    int lock = -1, r = list ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    r = r ? r : home_lock(home, &lock, e);
    r = r ? r : networks_load(home, list, e);
    for (size_t i = 0; !r && i < list->n;) {
        char text[NETWORK_TEXT];
        struct network net = list->v[i].net;
        network_text(&net, text);
        if (strncmp(text, which, len) == 0 && (text[len] == 0 || text[len] == ' ')) {
            networks_forget(list, &net);
            k++;
        } else {
            i++;
        }
    }
    if (!r && !k) {
        r = err_set(e, ERR_NOTFOUND, "no network %.80s is in the list: shoal networks shows it",
                    which);
    }
    r = r ? r : networks_save(home, list, e);
    home_unlock(lock);
    free(list);
    if (gone) {
        *gone = r ? 0 : k;
    }
    return r;
}
