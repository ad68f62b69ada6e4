/* SPDX-License-Identifier: MIT
 * link.c: see link.h. */
#include "discovery/addr.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUEST_MS 10000 /* for a join, which writes to disk */
#define SNAPSHOT_GAP_MS 100

static const struct tls_conn_cb link_cb;

static void set_state(struct plink *l, enum link_state s)
{
    l->state = s;
    l->since = clock_ns();
}

static struct plink *link_new(struct mesh *m, bool dialed)
{
    struct plink *l = calloc(1, sizeof *l);
    if (!l) {
        return NULL;
    }
    l->m = m;
    l->dialed = dialed;
    l->slot = LINK_NO_SLOT;
    l->began = clock_ns();
    set_state(l, LINK_DIAL);
    l->next = m->links;
    if (l->next) {
        l->next->prev = l;
    }
    m->links = l;
    m->n_links++;
    return l;
}

static void link_free(struct plink *l)
{
    struct mesh *m = l->m;
    if (l->prev) {
        l->prev->next = l->next;
    } else {
        m->links = l->next;
    }
    if (l->next) {
        l->next->prev = l->prev;
    }
    m->n_links--;
    free(l);
}

struct plink *link_dial(struct mesh *m, const char *row, const struct sockaddr_storage *addr)
{
    struct plink *l = link_new(m, true);
    struct tls_conn_opts o = {.trusted = mesh_trusted_out, .trusted_ctx = m};
    if (!l) {
        return NULL;
    }
    snprintf(l->row, sizeof l->row, "%s", row);
    l->addr = *addr;
    l->has_addr = true;
    if (tls_conn_connect(m->pool, (const struct sockaddr *)addr, &o, &link_cb, l, &l->c, NULL)) {
        link_free(l);
        return NULL;
    }
    return l;
}

/* ---- sending ---- */

int link_send_body(struct plink *l, const void *body, size_t n)
{
    return tls_conn_send(l->c, body, n, NULL, TLS_CONTROL);
}

int link_send(struct plink *l, const Shoal__Frame *f, enum tls_priority pr)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, WIRE_BODY_MAX);
    int r = codec_encode(f, 0, &b, &e);
    if (r) {
        mesh_log_once(l->m, "a message could not be encoded: %s", e.msg);
    }
    r = r ? r : tls_conn_send(l->c, b.p, b.n, NULL, pr);
    buf_free(&b);
    return r;
}

static void send_hello(struct plink *l, bool full)
{
    struct mesh *m = l->m;
    static uint8_t none[WIRE_SESSION];
    Shoal__Hello h = SHOAL__HELLO__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    h.version = m->o.version ? m->o.version : WIRE_VERSION;
    h.version_min = m->o.version_min ? m->o.version_min : WIRE_VERSION_MIN;
    h.node_id.data = m->me.id.b;
    h.node_id.len = WIRE_ID;
    h.session.data = m->self.run;
    h.session.len = WIRE_SESSION;
    h.machine.data = none;
    h.machine.len = WIRE_SESSION;
    h.chunk_size = WIRE_CHUNK;
    if (full) {
        h.group_id.data = m->member.group.b;
        h.group_id.len = WIRE_ID;
        if (m->o.has_model) {
            h.model_root.data = m->o.model_root;
            h.model_root.len = WIRE_ID;
            h.numerics_version = m->o.numerics_version;
            h.object_count = held_count(m->held);
        }
        h.roster_version = m->member.roster.version;
        h.listen_port = (uint32_t)m->port;
        h.uptime_ms = (clock_ns() - m->opened_at) / MS_NS;
        h.machine.data = m->self.machine;
        h.software = m->software;
        h.origin_works = m->o.origin && m->origin_up;
    }
    f.kind_case = SHOAL__FRAME__KIND_HELLO;
    f.hello = &h;
    link_send(l, &f, TLS_CONTROL);
}

void link_send_roster(struct plink *l)
{
    Shoal__Roster r = SHOAL__ROSTER__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    struct member *b = &l->m->member;
    if (!b->blob.n) {
        return;
    }
    r.version = b->roster.version;
    r.blob.data = (uint8_t *)b->blob.p;
    r.blob.len = b->blob.n;
    f.kind_case = SHOAL__FRAME__KIND_ROSTER;
    f.roster = &r;
    link_send(l, &f, TLS_CONTROL);
}

static int emit_have(void *ctx, const void *body, size_t n)
{
    return link_send_body(ctx, body, n);
}

void link_send_snapshot(struct plink *l)
{
    uint64_t now = clock_ns();
    if (l->state != LINK_UP || !l->model_same) {
        return;
    }
    if (l->snapshot_at && now - l->snapshot_at < SNAPSHOT_GAP_MS * MS_NS) {
        l->need_snapshot = true; /* at the next tick */
        return;
    }
    l->snapshot_at = now;
    l->need_snapshot = held_snapshot(l->m->held, emit_have, l, NULL) == ERR_BUSY;
}

static void send_credit(struct plink *l, uint64_t bytes)
{
    Shoal__Credit c = SHOAL__CREDIT__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    c.bytes = bytes;
    f.kind_case = SHOAL__FRAME__KIND_CREDIT;
    f.credit = &c;
    if (!link_send(l, &f, TLS_CONTROL)) {
        l->credit += bytes;
    }
}

static void send_have_ask(struct plink *l)
{
    Shoal__HaveAsk a = SHOAL__HAVE_ASK__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    a.seq = l->rx.seq;
    f.kind_case = SHOAL__FRAME__KIND_HAVE_ASK;
    f.have_ask = &a;
    link_send(l, &f, TLS_CONTROL);
}

void link_ping(struct plink *l, uint64_t now)
{
    Shoal__Ping p = SHOAL__PING__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    p.id = ++l->ping_id;
    f.kind_case = SHOAL__FRAME__KIND_PING;
    f.ping = &p;
    l->ping_at = now;
    link_send(l, &f, TLS_CONTROL);
}

static void send_goodbye(struct plink *l, int reason, const char *text)
{
    Shoal__Goodbye g = SHOAL__GOODBYE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    char cut[WIRE_TEXT_MAX + 1];
    snprintf(cut, sizeof cut, "%s", text ? text : codec_goodbye_text(reason));
    g.reason = (Shoal__GoodbyeReason)reason;
    g.text = cut;
    f.kind_case = SHOAL__FRAME__KIND_GOODBYE;
    f.goodbye = &g;
    link_send(l, &f, TLS_CONTROL);
}

/* ---- the end ---- */

/* The parts that know of this peer let go of it. */
static void link_down(struct plink *l, bool goodbye)
{
    struct mesh *m = l->m;
    if (l->probe) { /* somebody waits for what becomes of this one, or this one for another */
        struct plink *other = l->probe;
        l->probe = NULL;
        other->probe = NULL;
        if (other->state == LINK_PROBE) {
            set_state(l, LINK_CLOSING);
            mesh_decide(other);
        }
    }
    if (l->up_at) {
        atomic_fetch_sub(&m->n_up, 1);
        l->up_at = 0;
    }
    if (l->slot != LINK_NO_SLOT) {
        uint32_t slot = l->slot;
        l->slot = LINK_NO_SLOT;
        fetch_on_peer_down(m->fetch, slot, goodbye);
    }
    if (l->serve) {
        serve_peer_remove(l->serve);
        l->serve = NULL;
    }
}

static void decide_end(struct plink *l, enum disco_outcome end, const char *text)
{
    if (l->end == DISCO_UNTRIED) {
        l->end = end;
        snprintf(l->end_text, sizeof l->end_text, "%.*s", DISCO_TEXT - 1, text ? text : "");
    }
}

void link_close(struct plink *l, int reason, const char *goodbye, enum disco_outcome end,
                const char *text)
{
    if (l->state == LINK_CLOSING) {
        return;
    }
    decide_end(l, end, text);
    bool opened = l->state != LINK_DIAL;
    bool was_up = l->state == LINK_UP;
    set_state(l, LINK_CLOSING);
    if (opened) {
        send_goodbye(l, reason, goodbye);
    }
    tls_conn_close(l->c);
    if (was_up || l->probe) {
        link_down(l, true);
    }
}

void link_abort(struct plink *l, enum disco_outcome end, const char *text)
{
    if (l->state == LINK_CLOSING) {
        return;
    }
    decide_end(l, end, text);
    set_state(l, LINK_CLOSING);
    tls_conn_abort(l->c);
    link_down(l, end == DISCO_GOODBYE);
}

static void broke(struct plink *l, const char *how)
{
    l->m->protocol_faults++;
    mesh_log_once(l->m, "peer %s broke the protocol: %s", l->node, how);
    link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_PROTOCOL, how, DISCO_REJECTED, how);
}

static void on_close(void *ctx, struct tls_conn *c, const struct tls_close *why)
{
    struct plink *l = ctx;
    (void)c;
    if (l->state != LINK_CLOSING) {
        set_state(l, LINK_CLOSING);
    }
    link_down(l, l->end == DISCO_GOODBYE);
    mesh_report_end(l, why);
    struct mesh *m = l->m;
    link_free(l);
    mesh_link_gone(m);
    mesh_dial_soon(m);
}

/* ---- the beginning ---- */

static void opened(struct plink *l, struct tls_conn *c, const struct tls_peer *p)
{
    struct key_id id;
    l->c = c;
    l->tls = *p;
    memcpy(id.b, p->id, WIRE_ID);
    mesh_short(&id, l->node);
    set_state(l, LINK_HELLO);
    l->alive_at = l->since;
}

static void on_open(void *ctx, struct tls_conn *c, const struct tls_peer *p)
{
    struct plink *l = ctx;
    opened(l, c, p);
    mesh_dial_won(l);
    if (l->state == LINK_HELLO) {
        send_hello(l, p->trust == TLS_MEMBER);
    }
}

static void accept_open(void *ctx, struct tls_conn *c, const struct tls_peer *p)
{
    struct mesh *m = ctx;
    struct plink *l = m->closing || m->asleep ? NULL : link_new(m, false);
    if (!l) {
        tls_conn_abort(c);
        return;
    }
    tls_conn_set_owner(c, &link_cb, l);
    opened(l, c, p);
    if (p->trust == TLS_MEMBER) {
        send_hello(l, true);
    }
}

static void accept_frame(void *ctx, struct tls_conn *c, struct frame *f)
{
    (void)ctx;
    (void)c;
    frame_free(f); /* closed in accept_open */
}

static void accept_close(void *ctx, struct tls_conn *c, const struct tls_close *why)
{
    struct mesh *m = ctx;
    char id[ID_SHORT] = "";
    if (why->end == TLS_END_LOCAL) {
        return;
    }
    uint64_t n = ++m->refused[(unsigned)why->end < 16 ? why->end : 15];
    if (why->has_id) {
        struct key_id k;
        memcpy(k.b, why->id, WIRE_ID);
        id_short(&k, id);
    }
    char host[80];
    snprintf(host, sizeof host, "%s", tls_conn_address(c));
    char *colon = strrchr(host, ':'); /* the port is a new one each time */
    if (colon) {
        *colon = 0;
    }
    (void)n;
    mesh_log_once(m, "refused %s%s%s: %s%s%s", host, id[0] ? " with the key " : "", id,
                  tls_end_text(why->end), why->err.msg[0] ? ": " : "", why->err.msg);
}

const struct tls_conn_cb link_accept_cb = {accept_open, accept_frame, NULL, NULL, accept_close};

/* ---- hello ---- */

static void on_hello(struct plink *l, const Shoal__Hello *h)
{
    struct mesh *m = l->m;
    struct err e = {0};
    if (memcmp(h->node_id.data, l->tls.id, WIRE_ID) != 0) {
        broke(l, "the node id in Hello is not that of its key");
        return;
    }
    if (codec_agree(h, NULL, 0, &l->version, &e)) {
        bool version =
            h->version < WIRE_VERSION_MIN || (h->version_min ? h->version_min : 1) > WIRE_VERSION;
        mesh_log_once(m, "peer %s: %s", l->node, e.msg);
        link_close(l,
                   version ? SHOAL__GOODBYE_REASON__GOODBYE_VERSION
                           : SHOAL__GOODBYE_REASON__GOODBYE_FEATURE,
                   e.msg, DISCO_REJECTED, e.msg);
        return;
    }
    memcpy(l->inst.id.b, l->tls.id, WIRE_ID);
    memcpy(l->inst.run, h->session.data, sizeof l->inst.run);
    memcpy(l->inst.machine, h->machine.data, sizeof l->inst.machine);
    l->roster_version = h->roster_version;
    l->numerics = h->numerics_version;
    l->listen_port = (uint16_t)h->listen_port;
    l->said_objects = h->object_count;
    l->origin_works = h->origin_works;
    l->knows_us = h->group_id.len == WIRE_ID;
    l->has_model = h->model_root.len == WIRE_ID;
    l->model_same =
        l->has_model && m->o.has_model && memcmp(h->model_root.data, m->o.model_root, WIRE_ID) == 0;
    snprintf(l->software, sizeof l->software, "%s", h->software);
    if (!l->dialed && l->listen_port && addr_parse(tls_conn_address(l->c), &l->addr) == 0) {
        addr_set_port(&l->addr, l->listen_port);
        l->has_addr = true;
    }
    if (l->tls.trust == TLS_GUEST) {
        if (!l->dialed) {
            send_hello(l, false);
        }
        set_state(l, LINK_GUEST); /* it brings a Join, or the Roster that lists it */
        return;
    }
    if (l->knows_us && memcmp(h->group_id.data, m->member.group.b, WIRE_ID) != 0) {
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_GROUP, NULL, DISCO_REJECTED,
                   "it belongs to another shoal");
        return;
    }
    if (!l->knows_us) { /* it does not know us as a member yet: our roster is what it waits for */
        link_send_roster(l);
        set_state(l, LINK_GUEST);
        return;
    }
    mesh_decide(l);
}

void link_up(struct plink *l)
{
    struct mesh *m = l->m;
    char s[ID_SHORT];
    struct err e = {0};
    bool paused = l->state == LINK_PROBE;
    set_state(l, LINK_UP);
    l->up_at = l->alive_at = l->since;
    l->ping_at = l->since;
    atomic_fetch_add(&m->n_up, 1);
    id_short(&l->inst.id, s);
    mesh_log(m, "peer %s: connected %s %s%s", s, l->dialed ? "to" : "from", tls_conn_address(l->c),
             l->model_same                    ? ""
             : l->has_model && m->o.has_model ? "; it holds another model: no objects"
                                              : "; one side has no model: no objects");
    mesh_report_up(l);
    if (m->member.roster.version >= l->roster_version) {
        link_send_roster(l);
    }
    if (l->model_same) {
        l->serve = serve_peer_add(m->serve, l->c);
        send_credit(l, LINK_CREDIT);
        link_send_snapshot(l);
        if (fetch_on_peer_up(m->fetch, l->inst.id.b, s, &l->slot, &e)) {
            l->slot = LINK_NO_SLOT;
            mesh_log_once(m, "nothing is fetched from peer %s: %s", s, e.msg);
        }
    }
    if (paused) {
        tls_conn_resume(l->c);
    }
}

/* ---- frames ---- */

static void on_goodbye(struct plink *l, const Shoal__Goodbye *g)
{
    const char *text = g->text && g->text[0] ? g->text : codec_goodbye_text((int)g->reason);
    enum disco_outcome end = DISCO_REJECTED;
    switch (g->reason) {
    case SHOAL__GOODBYE_REASON__GOODBYE_SHUTDOWN:
    case SHOAL__GOODBYE_REASON__GOODBYE_SLEEP:
        end = DISCO_GOODBYE;
        mesh_log(l->m, "peer %s says goodbye: %s", l->node, text);
        break;
    case SHOAL__GOODBYE_REASON__GOODBYE_DUPLICATE:
    case SHOAL__GOODBYE_REASON__GOODBYE_REPLACED:
        end = DISCO_CLOSED;
        break;
    case SHOAL__GOODBYE_REASON__GOODBYE_CLONE:
        l->m->clones++;
        mesh_log_once(l->m, "peer %s: %s", l->node, text);
        if (l->state == LINK_UP) {
            return; /* a piece of news; the connection goes on */
        }
        break;
    case SHOAL__GOODBYE_REASON__GOODBYE_SELF:
        break;
    default:
        mesh_log_once(l->m, "peer %s ends the connection: %s", l->node, text);
        break;
    }
    if (!l->silent) {
        decide_end(l, end, text);
    }
    set_state(l, LINK_CLOSING);
    tls_conn_close(l->c);
    link_down(l, true);
}

static void on_have(struct plink *l, const Shoal__Have *h)
{
    struct fetch *f = l->m->fetch;
    enum held_verdict v = held_rx_have(&l->rx, h->seq, h->part, h->last);
    if (v == HELD_ASK) {
        send_have_ask(l);
    }
    if (v == HELD_RESET && l->slot != LINK_NO_SLOT) {
        fetch_on_have_reset(f, l->slot);
    }
    if (v != HELD_TAKE && v != HELD_RESET) {
        return;
    }
    for (size_t i = 0; i < h->n_rows && l->slot != LINK_NO_SLOT; i++) {
        const Shoal__HaveRow *r = h->rows[i];
        if (fetch_on_have_row(f, l->slot, (uint8_t)r->kind, (uint16_t)r->layer, r->first,
                              r->bits.data, r->bits.len) == ERR_LIMIT) {
            broke(l, "Have: more objects than a model can have");
            return;
        }
    }
}

static void on_delta(struct plink *l, const Shoal__HaveDelta *d)
{
    struct fetch *f = l->m->fetch;
    enum held_verdict v = held_rx_delta(&l->rx, d->seq);
    if (v == HELD_ASK) {
        mesh_log_once(l->m, "peer %s: a piece of news about what it has is missing, asking anew",
                      l->node);
        send_have_ask(l);
    }
    if (v != HELD_TAKE) {
        return;
    }
    for (size_t i = 0; i < d->n_added + d->n_removed && l->slot != LINK_NO_SLOT; i++) {
        bool on = i < d->n_added;
        const Shoal__HaveSpan *s = on ? d->added[i] : d->removed[i - d->n_added];
        if (fetch_on_have(f, l->slot, (uint8_t)s->kind, (uint16_t)s->layer, s->first, s->count,
                          on) == ERR_LIMIT) {
            broke(l, "HaveDelta: more objects than a model can have");
            return;
        }
    }
}

static void on_data(struct plink *l, const Shoal__Data *d, const struct frame *f)
{
    if (f->raw_n > l->credit) {
        broke(l, "Data: more bytes than it has credit for");
        return;
    }
    l->credit -= f->raw_n;
    l->consumed += f->raw_n;
    l->data_since = true;
    if (l->slot != LINK_NO_SLOT) {
        fetch_on_data(l->m->fetch, l->slot, d->id, d->chunk, d->last, f->raw, f->raw_n,
                      f->raw_n ? f->raw_sha256 : NULL);
    }
    if (l->state == LINK_UP && l->consumed >= LINK_CREDIT_STEP) {
        uint64_t n = l->consumed;
        l->consumed = 0;
        send_credit(l, n);
    }
}

static void on_pong(struct plink *l, const Shoal__Pong *p)
{
    if (p->id != l->ping_id) {
        return;
    }
    l->rtt = clock_ns() - l->ping_at;
    if (l->slot != LINK_NO_SLOT) {
        fetch_on_rtt(l->m->fetch, l->slot, l->rtt);
    }
    if (l->probe) {
        mesh_probe_over(l, true);
    }
}

static void on_bad_chunk(struct plink *l, const Shoal__BadChunk *b)
{
    struct mesh *m = l->m;
    struct object_key k = {(uint8_t)b->object->kind, (uint16_t)b->object->layer, b->object->index};
    mesh_log_once(m, "peer %s says that our copy of object %u/%u/%u is bad in chunk %u", l->node,
                  k.kind, k.layer, k.index, b->chunk);
    if (m->o.bad_copy) {
        m->o.bad_copy(m->o.ctx, k, b->chunk);
    }
}

static void pong(struct plink *l, const Shoal__Ping *p)
{
    Shoal__Pong x = SHOAL__PONG__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    size_t queued = tls_conn_queued(l->c);
    x.id = p->id;
    x.queued_bytes = queued < UINT32_MAX ? (uint32_t)queued : UINT32_MAX;
    f.kind_case = SHOAL__FRAME__KIND_PONG;
    f.pong = &x;
    link_send(l, &f, TLS_CONTROL);
}

/* A peer that is up and has the same model. */
static void on_transfer(struct plink *l, const Shoal__Frame *f, const struct frame *raw)
{
    struct err e = {0};
    struct mesh *m = l->m;
    int r = 0;
    switch (f->kind_case) {
    case SHOAL__FRAME__KIND_HAVE:
        on_have(l, f->have);
        break;
    case SHOAL__FRAME__KIND_HAVE_DELTA:
        on_delta(l, f->have_delta);
        break;
    case SHOAL__FRAME__KIND_HAVE_ASK:
        link_send_snapshot(l);
        break;
    case SHOAL__FRAME__KIND_GET:
        r = l->serve ? serve_on_get(l->serve, f->get, &e)
                     : serve_refuse(l->c, f->get->id, SHOAL__REFUSE_REASON__REFUSE_BUSY, 1000,
                                    TLS_CONTROL) *
                           0;
        break;
    case SHOAL__FRAME__KIND_CANCEL:
        if (l->serve) {
            serve_on_cancel(l->serve, f->cancel->id);
        }
        break;
    case SHOAL__FRAME__KIND_CREDIT:
        r = l->serve ? serve_on_credit(l->serve, f->credit->bytes, &e) : 0;
        break;
    case SHOAL__FRAME__KIND_DATA:
        on_data(l, f->data, raw);
        break;
    case SHOAL__FRAME__KIND_DIGESTS:
        if (l->slot != LINK_NO_SLOT) {
            const Shoal__Digests *d = f->digests;
            fetch_on_digests(m->fetch, l->slot, d->id, d->object_size, d->first_chunk,
                             (uint32_t)(d->sha256.len / SHA256_SIZE), d->sha256.data,
                             (uint32_t)d->source,
                             d->object_digest.len ? d->object_digest.data : NULL);
        }
        break;
    case SHOAL__FRAME__KIND_REFUSE:
        if (l->slot != LINK_NO_SLOT) {
            fetch_on_refuse(m->fetch, l->slot, f->refuse->id, (uint32_t)f->refuse->reason,
                            f->refuse->retry_ms, f->refuse->text);
        }
        break;
    case SHOAL__FRAME__KIND_BAD_CHUNK:
        on_bad_chunk(l, f->bad_chunk);
        break;
    default:
        break;
    }
    if (r) {
        broke(l, e.msg);
    }
}

static void take(struct plink *l, const Shoal__Frame *f, const struct frame *raw)
{
    Shoal__Frame__KindCase k = f->kind_case;
    char text[120];
    if (k == SHOAL__FRAME__KIND_GOODBYE) {
        on_goodbye(l, f->goodbye);
        return;
    }
    if (k == SHOAL__FRAME__KIND__NOT_SET) {
        return; /* of a newer program */
    }
    if (l->state == LINK_HELLO ? k == SHOAL__FRAME__KIND_HELLO : false) {
        on_hello(l, f->hello);
        return;
    }
    if (l->state == LINK_GUEST && k == SHOAL__FRAME__KIND_ROSTER) {
        mesh_take_roster(l, f->roster);
        return;
    }
    if (l->state == LINK_GUEST && k == SHOAL__FRAME__KIND_JOIN && !l->dialed &&
        l->tls.trust == TLS_GUEST) {
        mesh_admit(l, f->join);
        return;
    }
    if (l->state == LINK_GUEST && l->tls.trust == TLS_MEMBER) {
        return;
    }
    if (l->state != LINK_UP || k == SHOAL__FRAME__KIND_HELLO || k == SHOAL__FRAME__KIND_JOIN ||
        k == SHOAL__FRAME__KIND_JOIN_REPLY) {
        snprintf(text, sizeof text, "%s at the wrong time", codec_kind_name(k));
        broke(l, text);
        return;
    }
    switch (k) {
    case SHOAL__FRAME__KIND_PING:
        pong(l, f->ping);
        break;
    case SHOAL__FRAME__KIND_PONG:
        on_pong(l, f->pong);
        break;
    case SHOAL__FRAME__KIND_ROSTER:
        mesh_take_roster(l, f->roster);
        break;
    default:
        if (l->model_same) {
            on_transfer(l, f, raw);
        } else if (k == SHOAL__FRAME__KIND_GET) {
            serve_refuse(l->c, f->get->id, SHOAL__REFUSE_REASON__REFUSE_MODEL, 0, TLS_CONTROL);
        }
        break;
    }
}

static void on_frame(void *ctx, struct tls_conn *c, struct frame *f)
{
    struct plink *l = ctx;
    struct codec_msg msg;
    struct err e = {0};
    (void)c;
    l->alive_at = clock_ns();
    if (l->state != LINK_CLOSING) {
        if (codec_decode(f->body, f->body_n, f->raw_n, &msg, &e)) {
            broke(l, e.msg);
        } else {
            take(l, msg.f, f);
            codec_free(&msg);
        }
    }
    frame_free(f);
}

static void on_drain(void *ctx, struct tls_conn *c)
{
    struct plink *l = ctx;
    (void)c;
    if (l->state != LINK_UP) {
        return;
    }
    if (l->need_snapshot) {
        link_send_snapshot(l);
    }
    if (l->serve) {
        serve_on_drain(l->serve);
    }
}

static void on_replace(void *ctx, struct tls_conn *c)
{
    struct plink *l = ctx;
    (void)c;
    if (l->state == LINK_UP && l->dialed && !l->retiring) {
        l->retiring = true; /* the new one takes over in mesh_decide */
        if (!link_dial(l->m, l->row, &l->addr)) {
            l->retiring = false;
        }
    }
}

static const struct tls_conn_cb link_cb = {on_open, on_frame, on_drain, on_replace, on_close};

void link_tell_clone(struct plink *l, const uint8_t run[16], const char *text)
{
    if (memcmp(l->told_clone, run, 16) != 0) {
        memcpy(l->told_clone, run, 16);
        send_goodbye(l, SHOAL__GOODBYE_REASON__GOODBYE_CLONE, text);
    }
}

/* ---- time ---- */

static void tick_up(struct plink *l, uint64_t now)
{
    struct mesh *m = l->m;
    uint64_t in, out, hb = m->o.heartbeat_ms * MS_NS;
    struct err e = {0};
    tls_conn_bytes(l->c, &in, &out);
    if (in != l->seen_in) {
        if (!l->data_since && l->slot != LINK_NO_SLOT) {
            fetch_on_bytes(m->fetch, l->slot, in - l->seen_in);
        }
        l->seen_in = in;
        l->alive_at = now;
    }
    l->data_since = false;
    if (now - l->rate_at >= 1000 * MS_NS) {
        double s = (double)(now - l->rate_at) / 1e9;
        if (l->rate_at) {
            l->rate_in = l->rate_in * 0.5 + 0.5 * (double)(in - l->rate_in0) / s;
            l->rate_out = l->rate_out * 0.5 + 0.5 * (double)(out - l->rate_out0) / s;
        }
        l->rate_at = now;
        l->rate_in0 = in;
        l->rate_out0 = out;
    }
    if (now - l->alive_at > 3 * hb) {
        mesh_log(m, "peer %s is silent for %u ms: taken for dead", l->node, 3 * m->o.heartbeat_ms);
        link_abort(l, DISCO_DEAD, "no sign of life for three intervals");
        return;
    }
    if (now - l->ping_at >= hb) {
        link_ping(l, now);
    }
    if (l->need_snapshot) {
        link_send_snapshot(l);
    }
    if (l->model_same && l->slot == LINK_NO_SLOT && !fetch_banned_ns(m->fetch, l->inst.id.b) &&
        !fetch_on_peer_up(m->fetch, l->inst.id.b, l->node, &l->slot, &e)) {
        memset(&l->rx, 0, sizeof l->rx); /* a ban is over, or its old connection is gone */
        send_have_ask(l);
    }
}

void link_tick(struct plink *l, uint64_t now)
{
    struct mesh *m = l->m;
    uint64_t in_state = now - l->since;
    switch (l->state) {
    case LINK_HELLO:
        if (in_state > m->o.hello_ms * MS_NS) {
            link_abort(l, DISCO_TIMEOUT, "connected, but no hello came");
        }
        break;
    case LINK_PROBE:
        if (in_state > 2000 * MS_NS && l->probe) {
            mesh_probe_over(l->probe, false);
        }
        break;
    case LINK_GUEST:
        if (in_state > GUEST_MS * MS_NS) {
            m->guests_failed += !l->dialed;
            link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_GROUP, "nothing came that makes a member",
                       DISCO_REJECTED, "the node there is no member of this shoal");
        }
        break;
    case LINK_UP:
        tick_up(l, now);
        break;
    default:
        break;
    }
}
