/* SPDX-License-Identifier: MIT
 * link.c: see link.h. Life of a connection, its callbacks and clockwork; what its messages mean is
 * in link_in.c. */
#include "discovery/addr.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUEST_MS 10000 /* for a join, which writes to disk */
#define SNAPSHOT_GAP_MS 100

static const struct tls_conn_cb link_cb;

void link_set_state(struct plink *l, enum link_state s)
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
    link_set_state(l, LINK_DIAL);
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

void link_send_hello(struct plink *l, bool full)
{
    struct mesh *m = l->m;
    static uint8_t none[WIRE_SESSION];
    static uint32_t features[] = {SHOAL__FEATURE__FEATURE_RENEW, SHOAL__FEATURE__FEATURE_QUESTIONS,
                                  SHOAL__FEATURE__FEATURE_RELAY, SHOAL__FEATURE__FEATURE_PLACE,
                                  SHOAL__FEATURE__FEATURE_STATEMENTS};
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
    if (!m->o.no_features) {
        h.n_optional = sizeof features / sizeof *features;
        h.optional = features;
    }
    l->said_model = full && m->o.has_model;
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
        h.name = m->name;
        h.origin_works = m->o.origin && m->origin_up;
    }
    f.kind_case = SHOAL__FRAME__KIND_HELLO;
    f.hello = &h;
    link_send(l, &f, TLS_CONTROL);
}

static void send_roster(struct plink *l, const struct buf *blob)
{
    Shoal__Roster r = SHOAL__ROSTER__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    if (!blob->n) {
        return;
    }
    r.version = roster_version_of(blob->p, blob->n);
    r.blob.data = (uint8_t *)blob->p;
    r.blob.len = blob->n;
    f.kind_case = SHOAL__FRAME__KIND_ROSTER;
    f.roster = &r;
    link_send(l, &f, TLS_CONTROL);
}

void link_send_roster(struct plink *l)
{
    const struct member *b = &l->m->member;
    size_t first = 0; /* 0: the one that wins; else also[first - 1] */
    /* A guest is judged by the first that it shows: one that lists it. */
    for (size_t i = 0; i < b->also_n && !member_listed(b, &b->blob) && !first; i++) {
        first = member_listed(b, &b->also[i]) ? i + 1 : 0;
    }
    for (size_t i = 0; i <= b->also_n; i++) {
        size_t k = i == 0 ? first : i == first ? 0 : i;
        send_roster(l, k ? &b->also[k - 1] : &b->blob);
    }
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

void link_send_have_ask(struct plink *l)
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
    snprintf(cut, sizeof cut, "%.*s", WIRE_TEXT_MAX, text ? text : codec_goodbye_text(reason));
    g.reason = (Shoal__GoodbyeReason)reason;
    g.text = cut;
    f.kind_case = SHOAL__FRAME__KIND_GOODBYE;
    f.goodbye = &g;
    link_send(l, &f, TLS_CONTROL);
}

/* ---- the end ---- */

/* The parts that know of this peer let go of it. */
void link_down(struct plink *l, bool goodbye)
{
    struct mesh *m = l->m;
    if (l->probe) { /* somebody waits for what becomes of this one, or this one for another */
        struct plink *other = l->probe;
        l->probe = NULL;
        other->probe = NULL;
        if (other->state == LINK_PROBE) {
            link_set_state(l, LINK_CLOSING);
            mesh_decide(other);
        }
    }
    if (l->up_at) {
        mesh_count_up(m, -1);
        l->up_at = 0;
        mesh_known_down(l);
        mesh_files_down(l);
        mesh_gives_down(l);
        mesh_verify_down(l);
        mesh_place_news(m);
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

void link_decide_end(struct plink *l, enum disco_outcome end, const char *text)
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
    link_decide_end(l, end, text);
    bool opened = l->state != LINK_DIAL;
    bool was_up = l->state == LINK_UP;
    link_set_state(l, LINK_CLOSING);
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
    link_decide_end(l, end, text);
    link_set_state(l, LINK_CLOSING);
    tls_conn_abort(l->c);
    link_down(l, end == DISCO_GOODBYE);
}

void link_broke(struct plink *l, const char *how)
{
    l->m->protocol_faults++;
    mesh_log_once(l->m, "peer %s broke the protocol: %s", l->who, how);
    link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_PROTOCOL, how, DISCO_REJECTED, how);
}

/* Without the port, which is a new one each time. */
void link_host(const struct tls_conn *c, char host[80])
{
    snprintf(host, 80, "%s", tls_conn_address(c));
    char *colon = strrchr(host, ':');
    if (colon) {
        *colon = 0;
    }
}

bool link_guest(const struct plink *l)
{
    return !l->dialed && (l->state == LINK_HELLO || l->state == LINK_GUEST) &&
           l->tls.trust == TLS_GUEST;
}

void link_guest_left(struct plink *l)
{
    struct key_id k;
    char host[80], id[ID_SHORT];
    if (!link_guest(l) || l->m->closing) {
        return;
    }
    memcpy(k.b, l->tls.id, WIRE_ID);
    id_short(&k, id);
    link_host(l->c, host);
    l->m->guests_failed++;
    mesh_log_once(l->m, "refused %s with the key %s: it is not a member and came with no invite",
                  host, id);
}

static void on_close(void *ctx, struct tls_conn *c, const struct tls_close *why)
{
    struct plink *l = ctx;
    (void)c;
    link_guest_left(l);
    if (l->state != LINK_CLOSING) {
        link_set_state(l, LINK_CLOSING);
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
    id_short(&id, l->who);
    link_set_state(l, LINK_HELLO);
    l->alive_at = l->since;
}

static void on_open(void *ctx, struct tls_conn *c, const struct tls_peer *p)
{
    struct plink *l = ctx;
    opened(l, c, p);
    mesh_dial_won(l);
    if (l->state == LINK_HELLO) {
        link_send_hello(l, p->trust == TLS_MEMBER);
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
        link_send_hello(l, true);
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
    m->refused[(unsigned)why->end < 16 ? why->end : 15]++;
    if (why->has_id) {
        struct key_id k;
        memcpy(k.b, why->id, WIRE_ID);
        id_short(&k, id);
    }
    char host[80];
    link_host(c, host);
    mesh_log_once(m, "refused %s%s%s: %s", host, id[0] ? " with the key " : "", id,
                  why->err.msg[0] ? why->err.msg : tls_end_text(why->end));
}

const struct tls_conn_cb link_accept_cb = {accept_open, accept_frame, NULL, NULL, accept_close};

static void on_frame(void *ctx, struct tls_conn *c, struct frame *f)
{
    struct plink *l = ctx;
    struct codec_msg msg;
    struct err e = {0};
    (void)c;
    l->alive_at = clock_ns();
    if (l->state != LINK_CLOSING) {
        if (codec_decode(f->body, f->body_n, f->raw_n, &msg, &e)) {
            link_broke(l, e.msg);
        } else {
            link_take(l, msg.f, f);
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
        mesh_log(m, "peer %s is silent for %u ms: taken for dead", l->who, 3 * m->o.heartbeat_ms);
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
        link_send_have_ask(l);
    }
}

void link_tick(struct plink *l, uint64_t now)
{
    struct mesh *m = l->m;
    uint64_t in_state = now - l->since;
    switch (l->state) {
    case LINK_HELLO:
        if (in_state > m->o.hello_ms * MS_NS) {
            link_guest_left(l);
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
            link_guest_left(l);
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
