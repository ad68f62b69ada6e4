/* SPDX-License-Identifier: MIT
 * link_in.c: see link.h. What the messages of a peer mean, by the state of the connection. */
#include "discovery/addr.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <inttypes.h>
#include <stdio.h>

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

/* ---- hello ---- */

/* What a further Hello may bring anew. */
static void take_hello(struct plink *l, const Shoal__Hello *h)
{
    l->roster_version = h->roster_version;
    l->numerics = h->numerics_version;
    l->said_objects = h->object_count;
    l->origin_works = h->origin_works;
    l->has_model = h->model_root.len == WIRE_ID;
    if (l->has_model) {
        memcpy(l->model_root, h->model_root.data, WIRE_ID);
    }
    codec_clean(h->software, l->software, WIRE_NAME_MAX);
    codec_clean(h->name, l->name, WIRE_NAME_MAX);
    l->renews = l->answers = l->words = false;
    l->places = l->leases = false;
    for (size_t i = 0; i < h->n_optional; i++) {
        l->leases |= h->optional[i] == SHOAL__FEATURE__FEATURE_RELAY;
        l->places |= h->optional[i] == SHOAL__FEATURE__FEATURE_PLACE;
        l->renews |= h->optional[i] == SHOAL__FEATURE__FEATURE_RENEW;
        l->answers |= h->optional[i] == SHOAL__FEATURE__FEATURE_QUESTIONS;
        l->words |= h->optional[i] == SHOAL__FEATURE__FEATURE_STATEMENTS;
    }
}

static bool same_model(const struct plink *l)
{
    const struct mesh_opts *o = &l->m->o;
    return l->has_model && o->has_model && memcmp(l->model_root, o->model_root, WIRE_ID) == 0;
}

/* Both have said the same model: objects may flow. */
static void share(struct plink *l)
{
    struct mesh *m = l->m;
    struct err e = {0};
    char s[ID_SHORT];
    id_short(&l->inst.id, s);
    l->serve = serve_peer_add(m->serve, l->c);
    send_credit(l, LINK_CREDIT);
    link_send_snapshot(l);
    if (fetch_on_peer_up(m->fetch, l->inst.id.b, s, &l->slot, &e)) {
        l->slot = LINK_NO_SLOT;
        mesh_log_once(m, "nothing is fetched from peer %s: %s", s, e.msg);
    }
    mesh_place_up(l);
    mesh_words_up(l);
    mesh_lease_up(l);
}

static void share_from_now(struct plink *l)
{
    if (!l->model_same && same_model(l)) {
        l->model_same = true;
        if (!l->m->o.brief) {
            mesh_log(l->m, "peer %s: has the same model now", l->who);
        }
        share(l);
    }
}

static void on_further_hello(struct plink *l, const Shoal__Hello *h)
{
    if (memcmp(h->node_id.data, l->tls.id, WIRE_ID) != 0 || h->group_id.len != WIRE_ID ||
        memcmp(h->group_id.data, l->group, WIRE_ID) != 0 ||
        memcmp(h->session.data, l->inst.run, sizeof l->inst.run) != 0 ||
        memcmp(h->machine.data, l->inst.machine, sizeof l->inst.machine) != 0) {
        link_broke(l, "a further Hello of another node, shoal or session");
        return;
    }
    if (l->has_model &&
        (h->model_root.len != WIRE_ID || memcmp(h->model_root.data, l->model_root, WIRE_ID) != 0)) {
        link_broke(l, "a further Hello with another model");
        return;
    }
    take_hello(l, h);
    share_from_now(l);
}

void link_renew(struct plink *l)
{
    if (l->state != LINK_UP || l->said_model) {
        return; /* one that is not up yet is told when it is */
    }
    if (!l->renews) {
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_REPLACED, NULL, DISCO_CLOSED,
                   "a fresh connection, since this node has a model now");
        return;
    }
    link_send_hello(l, true);
    share_from_now(l);
}

static void on_hello(struct plink *l, const Shoal__Hello *h)
{
    struct mesh *m = l->m;
    struct err e = {0};
    if (memcmp(h->node_id.data, l->tls.id, WIRE_ID) != 0) {
        link_broke(l, "the node id in Hello is not that of its key");
        return;
    }
    if (codec_agree(h, NULL, 0, &l->version, &e)) {
        bool version =
            h->version < WIRE_VERSION_MIN || (h->version_min ? h->version_min : 1) > WIRE_VERSION;
        mesh_log_once(m, "peer %s: %s", l->who, e.msg);
        link_close(l,
                   version ? SHOAL__GOODBYE_REASON__GOODBYE_VERSION
                           : SHOAL__GOODBYE_REASON__GOODBYE_FEATURE,
                   e.msg, DISCO_REJECTED, e.msg);
        return;
    }
    memcpy(l->inst.id.b, l->tls.id, WIRE_ID);
    memcpy(l->inst.run, h->session.data, sizeof l->inst.run);
    memcpy(l->inst.machine, h->machine.data, sizeof l->inst.machine);
    l->knows_us = h->group_id.len == WIRE_ID;
    if (l->knows_us) {
        memcpy(l->group, h->group_id.data, WIRE_ID);
    }
    l->listen_port = (uint16_t)h->listen_port;
    take_hello(l, h);
    if (!l->dialed && l->listen_port && addr_parse(tls_conn_address(l->c), &l->addr) == 0) {
        addr_set_port(&l->addr, l->listen_port);
        l->has_addr = true;
    }
    if (l->tls.trust == TLS_GUEST) {
        if (!l->dialed) {
            link_send_hello(l, false);
        }
        link_set_state(l, LINK_GUEST); /* it brings a Join, or the Roster that lists it */
        return;
    }
    if (l->knows_us && memcmp(h->group_id.data, m->member.group.b, WIRE_ID) != 0) {
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_GROUP, NULL, DISCO_REJECTED,
                   "it belongs to another shoal");
        return;
    }
    if (!l->knows_us) { /* it does not know us as a member yet: our roster is what it waits for */
        link_send_roster(l);
        link_set_state(l, LINK_GUEST);
        return;
    }
    mesh_decide(l);
}

void link_up(struct plink *l)
{
    struct mesh *m = l->m;
    bool paused = l->state == LINK_PROBE, told = l->said_model || !m->o.has_model;
    link_set_state(l, LINK_UP);
    l->up_at = l->alive_at = l->since;
    l->ping_at = l->since;
    l->model_same = told && same_model(l);
    bool other = !same_model(l) && l->has_model && m->o.has_model;
    if (!m->o.brief || other) {
        mesh_log(m, "peer %s: connected %s %s%s", l->who, l->dialed ? "to" : "from",
                 tls_conn_address(l->c),
                 same_model(l) ? ""
                 : other       ? "; it holds another model: no objects"
                               : "; one side has no model: no objects");
    }
    mesh_report_up(l);
    mesh_count_up(m, 1); /* whoever waits for it finds the line in the log */
    if (m->member.roster.version >= l->roster_version) {
        link_send_roster(l);
    }
    if (l->model_same) {
        share(l);
    }
    if (paused) {
        tls_conn_resume(l->c);
    }
    mesh_known_up(l);
    if (!told) { /* it came between the two hellos */
        link_renew(l);
    }
    if (l->state == LINK_UP) {
        mesh_key_wish(l, l->since);
        mesh_files_go(m);
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
        if (!link_guest(l) && !l->m->o.brief) {
            mesh_log(l->m, "peer %s says goodbye: %s", l->who, text);
        }
        break;
    case SHOAL__GOODBYE_REASON__GOODBYE_DUPLICATE:
    case SHOAL__GOODBYE_REASON__GOODBYE_REPLACED:
        end = DISCO_CLOSED;
        break;
    case SHOAL__GOODBYE_REASON__GOODBYE_CLONE:
        l->m->clones++;
        mesh_log_once(l->m, "peer %s: %s", l->who, text);
        if (l->state == LINK_UP) {
            l->clone_at = clock_ns();
            return; /* a piece of news; the connection goes on, or this is the copy and it ends */
        }
        break;
    case SHOAL__GOODBYE_REASON__GOODBYE_SELF:
        break;
    default:
        if (!link_guest(l)) {
            mesh_log_once(l->m, "peer %s ends the connection: %s", l->who, text);
        }
        break;
    }
    if (end != DISCO_CLOSED) { /* those are of nodes that turned out to be members */
        link_guest_left(l);
    }
    l->asleep = g->reason == SHOAL__GOODBYE_REASON__GOODBYE_SLEEP;
    if (!l->silent) {
        link_decide_end(l, end, text);
    }
    link_set_state(l, LINK_CLOSING);
    tls_conn_close(l->c);
    link_down(l, true);
}

static void on_have(struct plink *l, const Shoal__Have *h)
{
    struct fetch *f = l->m->fetch;
    enum held_verdict v = held_rx_have(&l->rx, h->seq, h->part, h->last);
    if (v == HELD_ASK) {
        link_send_have_ask(l);
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
            link_broke(l, "Have: more objects than a model can have");
            return;
        }
    }
    mesh_place_news(l->m);
}

static void on_delta(struct plink *l, const Shoal__HaveDelta *d)
{
    struct fetch *f = l->m->fetch;
    enum held_verdict v = held_rx_delta(&l->rx, d->seq);
    if (v == HELD_ASK) {
        mesh_log_once(l->m, "peer %s: a piece of news about what it has is missing, asking anew",
                      l->who);
        link_send_have_ask(l);
    }
    if (v != HELD_TAKE) {
        return;
    }
    for (size_t i = 0; i < d->n_added + d->n_removed && l->slot != LINK_NO_SLOT; i++) {
        bool on = i < d->n_added;
        const Shoal__HaveSpan *s = on ? d->added[i] : d->removed[i - d->n_added];
        if (fetch_on_have(f, l->slot, (uint8_t)s->kind, (uint16_t)s->layer, s->first, s->count,
                          on) == ERR_LIMIT) {
            link_broke(l, "HaveDelta: more objects than a model can have");
            return;
        }
    }
    mesh_place_news(l->m);
}

static void on_data(struct plink *l, const Shoal__Data *d, const struct frame *f)
{
    if (f->raw_n > l->credit) {
        link_broke(l, "Data: more bytes than it has credit for");
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
    if (l->live && l->m->disco) {
        disco_measured(l->m->disco, l->node, (const struct sockaddr *)&l->addr, 0,
                       (double)l->rtt / 1e9);
    }
    if (l->probe) {
        mesh_probe_over(l, true);
    }
}

static void on_bad_chunk(struct plink *l, const Shoal__BadChunk *b)
{
    struct mesh *m = l->m;
    struct object_key k = {(uint8_t)b->object->kind, (uint16_t)b->object->layer, b->object->index};
    uint64_t now = clock_ns();
    char more[48] = "";
    if (!l->accused_at || now - l->accused_at >= 5000000000u) { /* a liar names thousands */
        if (l->accused) {
            snprintf(more, sizeof more, ", and %" PRIu32 " others before it", l->accused);
        }
        mesh_log(m, "peer %s says that our copy of object %u/%u/%u is bad in chunk %u%s", l->who,
                 k.kind, k.layer, k.index, b->chunk, more);
        l->accused_at = now;
        l->accused = 0;
    } else {
        l->accused++;
    }
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
    case SHOAL__FRAME__KIND_ORIGIN_STATE:
        mesh_on_origin_state(l, f->origin_state);
        break;
    case SHOAL__FRAME__KIND_LEASE_TAKE:
        mesh_on_lease_take(l, f->lease_take);
        break;
    case SHOAL__FRAME__KIND_PLACE:
    case SHOAL__FRAME__KIND_WARM:
    case SHOAL__FRAME__KIND_OFFER:
    case SHOAL__FRAME__KIND_KEPT:
        mesh_on_place(l, f);
        break;
    case SHOAL__FRAME__KIND_STATEMENTS:
        mesh_on_statements(l, f->statements);
        break;
    case SHOAL__FRAME__KIND_STATEMENTS_ASK:
        mesh_on_statements_ask(l, f->statements_ask);
        break;
    default:
        break;
    }
    if (r) {
        link_broke(l, e.msg);
    }
}

static void on_question(struct plink *l, const Shoal__Frame *f, struct frame *raw)
{
    switch (f->kind_case) {
    case SHOAL__FRAME__KIND_FILE_GET:
        mesh_on_file_get(l, f->file_get);
        break;
    case SHOAL__FRAME__KIND_FILE_DATA:
        mesh_on_file_data(l, f->file_data, raw);
        break;
    case SHOAL__FRAME__KIND_KEY_ASK:
        mesh_on_key_ask(l);
        break;
    case SHOAL__FRAME__KIND_KEY_REPLY:
        mesh_on_key_reply(l, f->key_reply);
        break;
    case SHOAL__FRAME__KIND_VERIFY:
        mesh_on_verify(l, f->verify);
        break;
    case SHOAL__FRAME__KIND_VERIFY_REPLY:
        mesh_on_verify_reply(l, f->verify_reply);
        break;
    default:
        break;
    }
}

void link_take(struct plink *l, const Shoal__Frame *f, struct frame *raw)
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
    /* Also from a member: one that lost the answer asks again. */
    if (l->state == LINK_GUEST && k == SHOAL__FRAME__KIND_JOIN && !l->dialed) {
        mesh_admit(l, f->join);
        return;
    }
    if (l->state == LINK_GUEST && l->tls.trust == TLS_MEMBER) {
        return;
    }
    if (l->state == LINK_UP && k == SHOAL__FRAME__KIND_HELLO && !l->m->o.no_features) {
        on_further_hello(l, f->hello);
        return;
    }
    if (l->state != LINK_UP || k == SHOAL__FRAME__KIND_HELLO || k == SHOAL__FRAME__KIND_JOIN ||
        k == SHOAL__FRAME__KIND_JOIN_REPLY) {
        snprintf(text, sizeof text, "%s at the wrong time", codec_kind_name(k));
        link_broke(l, text);
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
    case SHOAL__FRAME__KIND_FILE_GET:
    case SHOAL__FRAME__KIND_FILE_DATA:
    case SHOAL__FRAME__KIND_KEY_ASK:
    case SHOAL__FRAME__KIND_KEY_REPLY:
    case SHOAL__FRAME__KIND_VERIFY:
    case SHOAL__FRAME__KIND_VERIFY_REPLY:
        if (!l->m->o.no_features) {
            on_question(l, f, raw);
        }
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
