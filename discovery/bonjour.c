/* SPDX-License-Identifier: MIT
 * bonjour.c: announcing and browsing through dns_sd.h, the system's on macOS and Avahi's
 * compatibility library on Linux. Only what works in both: Register, UpdateRecord of the primary
 * TXT record, Browse, Resolve, QueryRecord for A and AAAA, RefSockFD, ProcessResult, RefDeallocate.
 *
 * Every reference costs a connection to the daemon (and with Avahi a thread), so resolves and
 * address queries are short-lived and few at a time. The calls themselves are round trips to a
 * daemon on this machine, which may hang: all of this runs on a thread of its own (bridge.h).
 *
 * With Avahi an instance is added once for each of IPv4 and IPv6, so adds are counted. Callbacks
 * run inside DNSServiceProcessResult: the reference that is being processed is never deallocated
 * there. */
#include "discovery/addr.h"
#include "discovery/backend.h"
#include "discovery/bridge.h"
#include "discovery/ifs.h"
#include "discovery/privacy.h"
#include "discovery/txt.h"

#include <arpa/inet.h>
#include <dns_sd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANCES_MAX 256    /* of one interface */
#define OPS_MAX 24           /* resolves and queries at a time */
#define RESOLVE_MS 5000      /* an instance that does not answer */
#define QUIET_MS 250         /* no further address for this long: that was all */
#define NOT_RUNNING (-65563) /* kDNSServiceErr_ServiceNotRunning, absent from older headers */

struct op {
    DNSServiceRef ref;
    uv_poll_t poll;
    struct bonjour *b;
    struct session *s;
    struct inst *i; /* of a resolve or query, else NULL */
    struct op **at; /* where its owner keeps it */
    bool running;   /* inside ProcessResult */
    bool end;       /* close it after ProcessResult */
};

struct inst {
    struct inst *next;
    struct session *s;
    char name[DISCO_NAME_MAX + 1];
    char domain[DISCO_HOST_MAX + 1];
    unsigned adds;
    bool want;  /* to be resolved when there is room */
    bool asked; /* being resolved: the timer runs */
    struct op *resolve, *a, *aaaa;
    uv_timer_t timer;
    char host[DISCO_HOST_MAX + 1];
    uint16_t port;
    uint8_t txt[TXT_MAX];
    size_t n_txt;
    struct sockaddr_storage addrs[DISCO_ADDRS_MAX];
    size_t n;
};

struct session {
    struct session *next;
    struct bonjour *b;
    uint32_t ifindex;
    struct op *reg, *browse;
    struct inst *list;
    size_t n;
};

struct bonjour {
    struct backend be;
    uv_loop_t *loop;
    struct be_events ev;
    void *ctx;
    struct session *sessions;
    unsigned busy;    /* resolves and queries open */
    unsigned handles; /* open handles; the backend goes with the last */
    bool closing;
    uv_timer_t pump;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

static const char *text_of(DNSServiceErrorType c)
{
    switch (c) {
    case PRIVACY_POLICY_DENIED:
        return "the system's Local Network setting forbids it";
    case NOT_RUNNING:
        return "the service is not running";
    case kDNSServiceErr_NoMemory:
        return "out of memory";
    case kDNSServiceErr_NameConflict:
        return "the name is taken";
    case kDNSServiceErr_BadInterfaceIndex:
        return "no such interface";
    case kDNSServiceErr_Refused:
        return "refused";
    case kDNSServiceErr_Firewall:
        return "a firewall is in the way";
    default:
        return "the daemon does not answer; is mDNSResponder or avahi-daemon running?";
    }
}

static int code_of(DNSServiceErrorType c)
{
    return c == kDNSServiceErr_Unknown || c == NOT_RUNNING ? BE_NO_RESPONDER : (int)c;
}

/* ---- references on the loop ---- */

static void finish(struct bonjour *b)
{
    if (b->closing && b->handles == 0) {
        void (*closed)(void *) = b->closed;
        void *ctx = b->closed_ctx;
        free(b);
        closed(ctx);
    }
}

static void op_closed(uv_handle_t *h)
{
    struct op *o = h->data;
    struct bonjour *b = o->b;
    free(o);
    b->handles--;
    finish(b);
}

/* Takes the reference out of use; its memory goes with the handle's close callback. */
static void op_end(struct op *o)
{
    if (!o) {
        return;
    }
    if (o->at) {
        *o->at = NULL;
        o->at = NULL;
        o->b->busy -= o->i != NULL;
    }
    if (o->running) {
        o->end = true;
        return;
    }
    uv_close((uv_handle_t *)&o->poll, op_closed);
    DNSServiceRefDeallocate(o->ref);
}

static void broken(struct session *s, DNSServiceErrorType c)
{
    struct bonjour *b = s->b;
    char text[DISCO_TEXT];
    snprintf(text, sizeof text, "%s (code %d)", text_of(c), (int)c);
    b->ev.failed(b->ctx, s->ifindex, code_of(c), text);
}

static void readable(uv_poll_t *p, int status, int events)
{
    struct op *o = p->data;
    o->running = true;
    DNSServiceErrorType c = status < 0 ? kDNSServiceErr_Unknown : DNSServiceProcessResult(o->ref);
    o->running = false;
    if (o->end) {
        op_end(o);
    } else if (c) {
        struct session *s = o->s;
        bool main = !o->i;
        op_end(o); /* a dead socket stays readable */
        if (main) {
            broken(s, c);
        }
    }
}

static struct op *op_make(struct bonjour *b, struct session *s, struct inst *i)
{
    struct op *o = calloc(1, sizeof *o);
    if (o) {
        o->b = b;
        o->s = s;
        o->i = i;
    }
    return o;
}

/* Puts a fresh reference on the loop; on failure it is gone. */
static DNSServiceErrorType op_watch(struct op *o, DNSServiceErrorType c, struct op **at)
{
    int fd = c ? -1 : DNSServiceRefSockFD(o->ref);
    if (!c && (fd < 0 || uv_poll_init(o->b->loop, &o->poll, fd))) {
        DNSServiceRefDeallocate(o->ref);
        c = kDNSServiceErr_NoMemory;
    }
    if (c) {
        free(o);
        return c;
    }
    o->poll.data = o;
    o->b->handles++;
    o->at = at;
    *at = o;
    o->b->busy += o->i != NULL;
    if (uv_poll_start(&o->poll, UV_READABLE, readable)) {
        op_end(o);
        return kDNSServiceErr_NoMemory;
    }
    return 0;
}

/* ---- one instance: resolve, ask its addresses, tell ---- */

static void pumped(uv_timer_t *t);

static void pump_soon(struct bonjour *b)
{
    if (!b->closing) {
        uv_timer_start(&b->pump, pumped, 0, 0);
    }
}

static void inst_stop(struct inst *i)
{
    op_end(i->resolve);
    op_end(i->a);
    op_end(i->aaaa);
    uv_timer_stop(&i->timer);
    i->asked = false;
    pump_soon(i->s->b);
}

static void inst_time(uv_timer_t *t)
{
    struct inst *i = t->data;
    struct bonjour *b = i->s->b;
    inst_stop(i);
    if (i->n == 0) {
        b->ev.unresolved(b->ctx, i->s->ifindex, i->name, "no answer");
        return;
    }
    struct be_found f = {.instance = i->name,
                         .port = i->port,
                         .txt = i->txt,
                         .n_txt = i->n_txt,
                         .addrs = i->addrs,
                         .n_addrs = i->n};
    b->ev.found(b->ctx, i->s->ifindex, &f);
}

static void on_address(DNSServiceRef r, DNSServiceFlags flags, uint32_t ifindex,
                       DNSServiceErrorType c, const char *name, uint16_t type, uint16_t class_,
                       uint16_t n, const void *p, uint32_t ttl, void *ctx)
{
    struct op *o = ctx;
    struct inst *i = o->i;
    struct sockaddr_storage a;
    if (c || o->end || !p) {
        return;
    }
    if (type == kDNSServiceType_A && n == 4) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(i->port)};
        memcpy(&in.sin_addr, p, 4);
        addr_copy(&a, (const struct sockaddr *)&in);
    } else if (type == kDNSServiceType_AAAA && n == 16) {
        struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(i->port)};
        memcpy(&in.sin6_addr, p, 16);
        in.sin6_scope_id = i->s->ifindex; /* addr_copy keeps it for link-local only */
        addr_copy(&a, (const struct sockaddr *)&in);
    } else {
        return;
    }
    size_t k = 0;
    while (k < i->n && !addr_same(&i->addrs[k], &a, true)) {
        k++;
    }
    if (!(flags & kDNSServiceFlagsAdd)) {
        if (k < i->n) {
            i->addrs[k] = i->addrs[--i->n];
        }
    } else if (k == i->n && i->n < DISCO_ADDRS_MAX && addr_usable(&a)) {
        i->addrs[i->n++] = a;
    }
    uv_timer_start(&i->timer, inst_time, QUIET_MS, 0);
}

static void ask_address(struct inst *i, uint16_t type, struct op **at)
{
    struct op *o = op_make(i->s->b, i->s, i);
    if (o) {
        op_watch(o,
                 DNSServiceQueryRecord(&o->ref, 0, i->s->ifindex, i->host, type,
                                       kDNSServiceClass_IN, on_address, o),
                 at);
    }
}

static void on_resolve(DNSServiceRef r, DNSServiceFlags flags, uint32_t ifindex,
                       DNSServiceErrorType c, const char *full, const char *host, uint16_t port,
                       uint16_t n, const unsigned char *txt, void *ctx)
{
    struct op *o = ctx;
    struct inst *i = o->i;
    if (o->end) {
        return;
    }
    op_end(o); /* one answer is enough; the timer ends what goes wrong from here */
    if (c || !host || strlen(host) > DISCO_HOST_MAX || n > TXT_MAX || (n && !txt)) {
        i->n = 0;
        uv_timer_start(&i->timer, inst_time, 0, 0);
        return;
    }
    memcpy(i->host, host, strlen(host) + 1);
    i->port = ntohs(port);
    if (n) {
        memcpy(i->txt, txt, n);
    }
    i->n_txt = n;
    i->n = 0;
    ask_address(i, kDNSServiceType_A, &i->a);
    ask_address(i, kDNSServiceType_AAAA, &i->aaaa);
}

static void inst_ask(struct inst *i)
{
    struct op *o = op_make(i->s->b, i->s, i);
    i->want = false;
    i->asked = true;
    i->n = 0;
    if (o) {
        op_watch(o,
                 DNSServiceResolve(&o->ref, 0, i->s->ifindex, i->name, DISCO_SERVICE, i->domain,
                                   on_resolve, o),
                 &i->resolve);
    }
    uv_timer_start(&i->timer, inst_time, RESOLVE_MS, 0);
}

static void pumped(uv_timer_t *t)
{
    struct bonjour *b = t->data;
    for (struct session *s = b->sessions; s; s = s->next) {
        for (struct inst *i = s->list; i; i = i->next) {
            if (i->want && !i->asked && b->busy + 2 <= OPS_MAX) {
                inst_ask(i);
            }
        }
    }
}

static void inst_closed(uv_handle_t *h)
{
    struct inst *i = h->data;
    struct bonjour *b = i->s->b;
    struct session *s = i->s;
    free(i);
    if (--s->n == 0 && s->ifindex == 0) {
        free(s); /* it was taken out of the list before */
    }
    b->handles--;
    finish(b);
}

static void inst_drop(struct session *s, struct inst **at)
{
    struct inst *i = *at;
    *at = i->next;
    inst_stop(i);
    uv_close((uv_handle_t *)&i->timer, inst_closed);
}

/* ---- one interface ---- */

static void on_browse(DNSServiceRef r, DNSServiceFlags flags, uint32_t ifindex,
                      DNSServiceErrorType c, const char *name, const char *type, const char *domain,
                      void *ctx)
{
    struct op *o = ctx;
    struct session *s = o->s;
    struct bonjour *b = s->b;
    if (o->end) {
        return;
    }
    if (c) {
        op_end(o);
        broken(s, c);
        return;
    }
    if (!name || !domain || !name[0] || strlen(name) > DISCO_NAME_MAX ||
        strlen(domain) > DISCO_HOST_MAX) {
        return;
    }
    struct inst **at = &s->list;
    while (*at && strcmp((*at)->name, name)) {
        at = &(*at)->next;
    }
    if (flags & kDNSServiceFlagsAdd) {
        struct inst *i = *at;
        if (!i) {
            i = s->n < INSTANCES_MAX ? calloc(1, sizeof *i) : NULL;
            if (!i) {
                return;
            }
            i->s = s;
            memcpy(i->name, name, strlen(name) + 1);
            memcpy(i->domain, domain, strlen(domain) + 1);
            uv_timer_init(b->loop, &i->timer);
            i->timer.data = i;
            b->handles++;
            s->n++;
            *at = i;
        }
        i->adds++;
        i->want = !i->asked;
        pump_soon(b);
    } else if (*at && --(*at)->adds == 0) {
        inst_drop(s, at);
        b->ev.lost(b->ctx, s->ifindex, name);
    }
}

static void on_register(DNSServiceRef r, DNSServiceFlags flags, DNSServiceErrorType c,
                        const char *name, const char *type, const char *domain, void *ctx)
{
    struct op *o = ctx;
    struct session *s = o->s;
    if (o->end) {
        return;
    }
    if (c) {
        op_end(o);
        broken(s, c);
    } else if (name && strlen(name) <= DISCO_NAME_MAX) {
        s->b->ev.registered(s->b->ctx, s->ifindex, name);
    }
}

static struct session **session_at(struct bonjour *b, uint32_t ifindex)
{
    struct session **p = &b->sessions;
    while (*p && (*p)->ifindex != ifindex) {
        p = &(*p)->next;
    }
    return p;
}

static void session_end(struct bonjour *b, struct session **at)
{
    struct session *s = *at;
    *at = s->next;
    op_end(s->reg);
    op_end(s->browse);
    while (s->list) {
        inst_drop(s, &s->list);
    }
    s->next = NULL;
    s->ifindex = 0; /* the last instance's handle frees it */
    if (s->n == 0) {
        free(s);
    }
}

static void be_stop(struct backend *be, uint32_t ifindex)
{
    struct bonjour *b = (struct bonjour *)be;
    struct session **at = session_at(b, ifindex);
    if (*at) {
        session_end(b, at);
    }
}

static int be_start(struct backend *be, uint32_t ifindex, const struct be_announce *a, int *code,
                    struct err *e)
{
    struct bonjour *b = (struct bonjour *)be;
    struct session *s = calloc(1, sizeof *s);
    DNSServiceErrorType c = kDNSServiceErr_NoMemory;
    if (!s) {
        *code = c;
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    s->b = b;
    s->ifindex = ifindex;
    s->next = b->sessions;
    b->sessions = s;
    struct op *o = op_make(b, s, NULL);
    if (o) {
        c = op_watch(o,
                     DNSServiceRegister(&o->ref, 0, ifindex, a->name, DISCO_SERVICE, NULL, NULL,
                                        htons(a->port), (uint16_t)a->n_txt, a->txt, on_register, o),
                     &s->reg);
    }
    o = c ? NULL : op_make(b, s, NULL);
    if (o) {
        c = op_watch(o, DNSServiceBrowse(&o->ref, 0, ifindex, DISCO_SERVICE, NULL, on_browse, o),
                     &s->browse);
    }
    if (!s->browse) {
        *code = code_of(c);
        be_stop(be, ifindex);
        return err_set(e, ERR_NET, "%s (code %d)", text_of(c), (int)c);
    }
    return 0;
}

static int be_update(struct backend *be, uint32_t ifindex, const struct be_announce *a,
                     struct err *e)
{
    struct session *s = *session_at((struct bonjour *)be, ifindex);
    if (!s || !s->reg) {
        return err_set(e, ERR_NOTFOUND, "not announced on interface %u", (unsigned)ifindex);
    }
    DNSServiceErrorType c =
        DNSServiceUpdateRecord(s->reg->ref, NULL, 0, (uint16_t)a->n_txt, a->txt, 0);
    return c ? err_set(e, ERR_NET, "cannot change the announcement: %s (code %d)", text_of(c),
                       (int)c)
             : 0;
}

static void be_refresh(struct backend *be, uint32_t ifindex, const char *instance)
{
    struct bonjour *b = (struct bonjour *)be;
    struct session *s = *session_at(b, ifindex);
    for (struct inst *i = s ? s->list : NULL; i; i = i->next) {
        if (!strcmp(i->name, instance)) {
            i->want = !i->asked;
            pump_soon(b);
        }
    }
}

static size_t be_interfaces(struct backend *be, struct disco_if *out, size_t max)
{
    return ifs_read(out, max);
}

static void pump_closed(uv_handle_t *h)
{
    struct bonjour *b = h->data;
    b->handles--;
    finish(b);
}

static void be_close(struct backend *be, void (*closed)(void *ctx), void *ctx)
{
    struct bonjour *b = (struct bonjour *)be;
    while (b->sessions) {
        session_end(b, &b->sessions);
    }
    b->closing = true;
    b->closed = closed;
    b->closed_ctx = ctx;
    uv_close((uv_handle_t *)&b->pump, pump_closed);
}

static int open_here(uv_loop_t *loop, const struct be_events *ev, void *ctx, struct backend **out,
                     struct err *e)
{
    struct bonjour *b = calloc(1, sizeof *b);
    if (!b) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    b->be =
        (struct backend){be_interfaces, be_start, be_stop, be_update, be_refresh, be_close, false};
    b->loop = loop;
    b->ev = *ev;
    b->ctx = ctx;
    uv_timer_init(loop, &b->pump);
    b->pump.data = b;
    b->handles = 1;
    *out = &b->be;
    return 0;
}

int bonjour_open(uv_loop_t *loop, const struct be_events *ev, void *ctx, struct backend **out,
                 struct err *e)
{
    return bridge_open(loop, open_here, ev, ctx, out, e);
}
