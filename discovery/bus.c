/* SPDX-License-Identifier: MIT
 * bus.c: see bus.h and backend.h. The network is a table of announcements; each attached node
 * compares what it should see with what it was told of, after every change, from its own loop. */
#include "discovery/bus.h"

#include "discovery/addr.h"
#include "discovery/backend.h"
#include "discovery/ifs.h"
#include "discovery/txt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bus_if {
    struct disco_if net;
    unsigned segment;
    bool up;
    int fail;
};

struct bus_host {
    char name[BUS_HOST_NAME];
    struct bus_if ifs[DISCO_IFS_MAX];
    size_t n;
    bool runs, cut;
    uint64_t announced;
};

/* An announcement as the network knows it. */
struct reg {
    struct reg *next;
    struct node *owner; /* NULL = it was cut off and is gone; a ghost */
    struct bus_host *host;
    uint32_t ifindex;
    unsigned segment;
    char wish[DISCO_NAME_MAX + 1], name[DISCO_NAME_MAX + 1];
    uint16_t port;
    uint8_t txt[TXT_MAX];
    size_t n_txt;
    uint64_t version;
    bool told; /* the owner knows its name */
};

/* What a node was told of. */
struct seen {
    struct seen *next;
    uint32_t ifindex;
    char name[DISCO_NAME_MAX + 1];
    uint64_t version;
    bool again; /* asked to resolve it anew */
};

struct session {
    uint32_t ifindex;
    int broken; /* code to report, 0 = works */
    bool on;
};

struct node {
    struct backend be;
    struct node *next;
    struct disco_bus *bus;
    struct bus_host *host;
    struct be_events ev;
    void *ctx;
    uv_timer_t kick;
    struct session s[DISCO_IFS_MAX];
    struct seen *seen;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

struct disco_bus {
    struct bus_host *hosts[BUS_HOSTS_MAX];
    size_t n_hosts;
    struct node *nodes;
    struct reg *regs;
    uint64_t version;
    unsigned silent[DISCO_IFS_MAX]; /* segments without multicast */
    size_t n_silent;
};

static void kicked(uv_timer_t *t);

static void kick_all(struct disco_bus *b)
{
    for (struct node *n = b->nodes; n; n = n->next) {
        if (!uv_is_closing((uv_handle_t *)&n->kick)) {
            uv_timer_start(&n->kick, kicked, 0, 0);
        }
    }
}

static struct bus_host *host_of(const struct disco_bus *b, const char *name)
{
    for (size_t i = 0; i < b->n_hosts; i++) {
        if (!strcmp(b->hosts[i]->name, name)) {
            return b->hosts[i];
        }
    }
    return NULL;
}

static struct bus_if *if_of(struct bus_host *h, uint32_t ifindex)
{
    for (size_t i = 0; h && i < h->n; i++) {
        if (h->ifs[i].net.index == ifindex) {
            return &h->ifs[i];
        }
    }
    return NULL;
}

static bool passes(const struct disco_bus *b, unsigned segment)
{
    for (size_t i = 0; i < b->n_silent; i++) {
        if (b->silent[i] == segment) {
            return false;
        }
    }
    return true;
}

/* ---- the network, for tests ---- */

struct disco_bus *disco_bus_new(void)
{
    return calloc(1, sizeof(struct disco_bus));
}

void disco_bus_free(struct disco_bus *b)
{
    while (b && b->regs) {
        struct reg *r = b->regs;
        b->regs = r->next;
        free(r);
    }
    for (size_t i = 0; b && i < b->n_hosts; i++) {
        free(b->hosts[i]);
    }
    free(b);
}

int disco_bus_addr(struct disco_bus *b, const char *host, uint32_t ifindex, const char *ifname,
                   unsigned segment, const char *addr, unsigned prefix, struct err *e)
{
    struct bus_host *h = host_of(b, host);
    if (!h) {
        h = b->n_hosts < BUS_HOSTS_MAX ? calloc(1, sizeof *h) : NULL;
        if (!h) {
            return err_set(e, ERR_LIMIT, "no room for the machine %s", host);
        }
        snprintf(h->name, sizeof h->name, "%s", host);
        h->runs = true;
        b->hosts[b->n_hosts++] = h;
    }
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
    struct sockaddr_storage sa;
    if (inet_pton(AF_INET, addr, &a4.sin_addr) == 1) {
        addr_copy(&sa, (const struct sockaddr *)&a4);
    } else if (inet_pton(AF_INET6, addr, &a6.sin6_addr) == 1) {
        a6.sin6_scope_id = ifindex;
        addr_copy(&sa, (const struct sockaddr *)&a6);
    } else {
        return err_set(e, ERR_FORMAT, "\"%s\" is no address", addr);
    }
    struct bus_if *f = if_of(h, ifindex);
    if (!f) {
        if (h->n == DISCO_IFS_MAX) {
            return err_set(e, ERR_LIMIT, "no room for the interface %s", ifname);
        }
        f = &h->ifs[h->n++];
    }
    size_t one = f->net.index ? 1 : 0;
    if (!ifs_add(&f->net, &one, 1, ifindex, ifname, false, &sa, prefix)) {
        return err_set(e, ERR_LIMIT, "no room for the address %s", addr);
    }
    f->segment = segment;
    f->up = true;
    for (struct reg *r = b->regs; r; r = r->next) {
        r->version = r->host == h ? ++b->version : r->version;
    }
    kick_all(b);
    return 0;
}

void disco_bus_if_up(struct disco_bus *b, const char *host, uint32_t ifindex, bool up)
{
    struct bus_if *f = if_of(host_of(b, host), ifindex);
    if (f) {
        f->up = up;
        kick_all(b);
    }
}

void disco_bus_if_clear(struct disco_bus *b, const char *host, uint32_t ifindex)
{
    struct bus_if *f = if_of(host_of(b, host), ifindex);
    if (f) {
        f->net.n_addrs = 0;
    }
}

void disco_bus_fail(struct disco_bus *b, const char *host, uint32_t ifindex, int code)
{
    struct bus_host *h = host_of(b, host);
    struct bus_if *f = if_of(h, ifindex);
    if (!f) {
        return;
    }
    f->fail = code;
    for (struct node *n = b->nodes; n; n = n->next) {
        for (size_t i = 0; code && n->host == h && i < DISCO_IFS_MAX; i++) {
            if (n->s[i].on && n->s[i].ifindex == ifindex) {
                n->s[i].broken = code;
            }
        }
    }
    kick_all(b);
}

void disco_bus_responder(struct disco_bus *b, const char *host, bool runs)
{
    struct bus_host *h = host_of(b, host);
    if (!h) {
        return;
    }
    h->runs = runs;
    for (struct node *n = b->nodes; n; n = n->next) {
        for (size_t i = 0; !runs && n->host == h && i < DISCO_IFS_MAX; i++) {
            n->s[i].broken = n->s[i].on ? BE_NO_RESPONDER : 0;
        }
    }
    for (struct reg **p = &b->regs; !runs && *p;) {
        struct reg *r = *p;
        if (r->host == h && r->owner) {
            *p = r->next;
            free(r);
        } else {
            p = &r->next;
        }
    }
    kick_all(b);
}

void disco_bus_cut(struct disco_bus *b, const char *host, bool cut)
{
    struct bus_host *h = host_of(b, host);
    if (!h) {
        return;
    }
    h->cut = cut;
    for (struct reg **p = &b->regs; !cut && *p;) { /* what it left behind is replaced now */
        struct reg *r = *p;
        if (r->host == h && !r->owner) {
            *p = r->next;
            free(r);
        } else {
            p = &r->next;
        }
    }
    kick_all(b);
}

void disco_bus_multicast(struct disco_bus *b, unsigned segment, bool on)
{
    for (size_t i = 0; i < b->n_silent;) {
        if (b->silent[i] == segment) {
            b->silent[i] = b->silent[--b->n_silent];
        } else {
            i++;
        }
    }
    if (!on && b->n_silent < DISCO_IFS_MAX) {
        b->silent[b->n_silent++] = segment;
    }
    kick_all(b);
}

uint64_t disco_bus_announcements(const struct disco_bus *b, const char *host)
{
    const struct bus_host *h = host_of(b, host);
    return h ? h->announced : 0;
}

/* ---- what a node sees ---- */

static struct session *session_of(struct node *n, uint32_t ifindex)
{
    for (size_t i = 0; i < DISCO_IFS_MAX; i++) {
        if (n->s[i].on && n->s[i].ifindex == ifindex) {
            return &n->s[i];
        }
    }
    return NULL;
}

static void tell(struct node *n, struct seen *k, const struct reg *r)
{
    struct bus_if *f = if_of(r->host, r->ifindex);
    struct sockaddr_storage addrs[DISCO_IF_ADDRS_MAX];
    size_t na = 0;
    for (size_t i = 0; f && i < f->net.n_addrs; i++) {
        addrs[na] = f->net.addrs[i].sa;
        if (addr_is_linklocal6(&addrs[na])) { /* the scope is the looker's interface */
            ((struct sockaddr_in6 *)(void *)&addrs[na])->sin6_scope_id = k->ifindex;
        }
        addr_set_port(&addrs[na++], r->port);
    }
    k->again = false;
    if (r->host->cut || !r->owner) {
        n->ev.unresolved(n->ctx, k->ifindex, k->name, "no answer");
        return;
    }
    k->version = r->version;
    struct be_found found = {.instance = r->name,
                             .port = r->port,
                             .txt = r->txt,
                             .n_txt = r->n_txt,
                             .addrs = addrs,
                             .n_addrs = na};
    n->ev.found(n->ctx, k->ifindex, &found);
}

static const struct reg *reg_named(const struct disco_bus *b, unsigned segment, const char *name)
{
    for (const struct reg *r = b->regs; r; r = r->next) {
        if (r->segment == segment && !strcmp(r->name, name)) {
            return r;
        }
    }
    return NULL;
}

static void look(struct node *n, struct session *s)
{
    struct bus_if *f = if_of(n->host, s->ifindex);
    if (!f) {
        return;
    }
    for (struct seen **p = &n->seen; *p;) { /* goodbyes */
        struct seen *k = *p;
        if (k->ifindex != s->ifindex || reg_named(n->bus, f->segment, k->name)) {
            p = &k->next;
            continue;
        }
        *p = k->next;
        n->ev.lost(n->ctx, k->ifindex, k->name);
        free(k);
    }
    for (const struct reg *r = n->bus->regs; r; r = r->next) {
        struct seen *k = n->seen;
        if (r->segment != f->segment) {
            continue;
        }
        while (k && (k->ifindex != s->ifindex || strcmp(k->name, r->name))) {
            k = k->next;
        }
        bool hears = f->up && !n->host->cut && !r->host->cut && passes(n->bus, f->segment);
        if (!k && hears) {
            k = calloc(1, sizeof *k);
            if (!k) {
                return;
            }
            k->ifindex = s->ifindex;
            memcpy(k->name, r->name, sizeof k->name);
            k->next = n->seen;
            n->seen = k;
            tell(n, k, r);
        } else if (k && (k->again || (hears && k->version != r->version))) {
            tell(n, k, r);
        }
    }
}

static void kicked(uv_timer_t *t)
{
    struct node *n = t->data;
    for (struct reg *r = n->bus->regs; r; r = r->next) {
        if (r->owner == n && !r->told) {
            r->told = true;
            n->ev.registered(n->ctx, r->ifindex, r->name);
        }
    }
    for (size_t i = 0; i < DISCO_IFS_MAX; i++) {
        struct session *s = &n->s[i];
        if (s->on && s->broken) {
            int code = s->broken;
            s->broken = 0;
            n->ev.failed(n->ctx, s->ifindex, code,
                         code == BE_NO_RESPONDER ? "the responder went away"
                                                 : strerror(EHOSTUNREACH));
        } else if (s->on && n->host->runs) {
            look(n, s);
        }
    }
}

/* ---- backend ---- */

static size_t be_interfaces(struct backend *be, struct disco_if *out, size_t max)
{
    struct node *n = (struct node *)be;
    size_t k = 0;
    for (size_t i = 0; i < n->host->n && k < max; i++) {
        if (n->host->ifs[i].up && n->host->ifs[i].net.n_addrs) {
            out[k++] = n->host->ifs[i].net;
        }
    }
    return k;
}

static int be_start(struct backend *be, uint32_t ifindex, const struct be_announce *a, int *code,
                    struct err *e)
{
    struct node *n = (struct node *)be;
    struct bus_if *f = if_of(n->host, ifindex);
    struct session *s = NULL;
    n->host->announced++;
    if (!n->host->runs) {
        *code = BE_NO_RESPONDER;
        return err_set(e, ERR_NET, "the responder does not answer");
    }
    if (!f || f->fail) {
        *code = f ? f->fail : -1;
        return err_set(e, ERR_NET, "%s", strerror(EHOSTUNREACH));
    }
    for (size_t i = 0; !s && i < DISCO_IFS_MAX; i++) {
        s = n->s[i].on ? NULL : &n->s[i];
    }
    struct reg *r = s && a->n_txt <= sizeof r->txt ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        *code = -1;
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    *s = (struct session){.ifindex = ifindex, .on = true};
    r->owner = n;
    r->host = n->host;
    r->ifindex = ifindex;
    r->segment = f->segment;
    snprintf(r->wish, sizeof r->wish, "%s", a->name);
    snprintf(r->name, sizeof r->name, "%s", a->name);
    for (unsigned i = 2; reg_named(n->bus, r->segment, r->name); i++) {
        snprintf(r->name, sizeof r->name, "%.50s #%u", r->wish, i);
    }
    r->port = a->port;
    memcpy(r->txt, a->txt, a->n_txt);
    r->n_txt = a->n_txt;
    r->version = ++n->bus->version;
    r->next = n->bus->regs;
    n->bus->regs = r;
    kick_all(n->bus);
    return 0;
}

static void be_stop(struct backend *be, uint32_t ifindex)
{
    struct node *n = (struct node *)be;
    struct session *s = session_of(n, ifindex);
    if (s) {
        s->on = false;
    }
    for (struct reg **p = &n->bus->regs; *p;) {
        struct reg *r = *p;
        if (r->owner != n || r->ifindex != ifindex) {
            p = &r->next;
        } else if (n->host->cut) {
            r->owner = NULL; /* nobody hears the goodbye */
            p = &r->next;
        } else {
            *p = r->next;
            free(r);
        }
    }
    for (struct seen **p = &n->seen; *p;) {
        struct seen *k = *p;
        if (k->ifindex == ifindex) {
            *p = k->next;
            free(k);
        } else {
            p = &k->next;
        }
    }
    kick_all(n->bus);
}

static int be_update(struct backend *be, uint32_t ifindex, const struct be_announce *a,
                     struct err *e)
{
    struct node *n = (struct node *)be;
    for (struct reg *r = n->bus->regs; r; r = r->next) {
        if (r->owner == n && r->ifindex == ifindex && a->n_txt <= sizeof r->txt) {
            memcpy(r->txt, a->txt, a->n_txt);
            r->n_txt = a->n_txt;
            r->version = ++n->bus->version;
        }
    }
    kick_all(n->bus);
    return 0;
}

static void be_refresh(struct backend *be, uint32_t ifindex, const char *instance)
{
    struct node *n = (struct node *)be;
    for (struct seen *k = n->seen; k; k = k->next) {
        if (k->ifindex == ifindex && !strcmp(k->name, instance)) {
            k->again = true;
            uv_timer_start(&n->kick, kicked, 0, 0);
        }
    }
}

static void kick_closed(uv_handle_t *h)
{
    struct node *n = h->data;
    n->closed(n->closed_ctx);
    free(n);
}

static void be_close(struct backend *be, void (*closed)(void *ctx), void *ctx)
{
    struct node *n = (struct node *)be;
    for (size_t i = 0; i < DISCO_IFS_MAX; i++) {
        if (n->s[i].on) {
            be_stop(be, n->s[i].ifindex);
        }
    }
    for (struct node **p = &n->bus->nodes; *p; p = &(*p)->next) {
        if (*p == n) {
            *p = n->next;
            break;
        }
    }
    n->closed = closed;
    n->closed_ctx = ctx;
    uv_close((uv_handle_t *)&n->kick, kick_closed);
}

int bus_open(uv_loop_t *loop, struct disco_bus *bus, const char *host, const struct be_events *ev,
             void *ctx, struct backend **out, struct err *e)
{
    struct bus_host *h = host ? host_of(bus, host) : NULL;
    struct node *n = h ? calloc(1, sizeof *n) : NULL;
    if (!n) {
        return err_set(e, h ? ERR_NOMEM : ERR_NOTFOUND, "no machine %s on the bus",
                       host ? host : "(none)");
    }
    n->be =
        (struct backend){be_interfaces, be_start, be_stop, be_update, be_refresh, be_close, false};
    n->bus = bus;
    n->host = h;
    n->ev = *ev;
    n->ctx = ctx;
    uv_timer_init(loop, &n->kick);
    n->kick.data = n;
    n->next = bus->nodes;
    bus->nodes = n;
    *out = &n->be;
    return 0;
}
