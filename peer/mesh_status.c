/* SPDX-License-Identifier: MIT
 * mesh_status.c: reports and the small commands of mesh.h. Reports are made on the LAN thread from
 * what is true at that moment. */
#include "discovery/addr.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#define COVER_NS (2000 * MS_NS) /* counting coverage looks at every object */
#define STATUS_PEERS 512

struct report_note {
    struct note n;
    json_t *json;
    struct buf *out;
    struct err *e;
    int code;
};

/* ---- pieces ---- */

static json_t *text_id(const struct key_id *id)
{
    char s[ID_TEXT];
    id_text(id, s);
    return json_string(s);
}

static json_t *short_id(const struct key_id *id)
{
    char s[ID_SHORT];
    id_short(id, s);
    return json_string(s);
}

static json_t *num(uint64_t v)
{
    return json_integer((json_int_t)v);
}

static const char *state_word(const struct plink *l)
{
    switch (l->state) {
    case LINK_DIAL:
        return "connecting";
    case LINK_HELLO:
    case LINK_PROBE:
    case LINK_GUEST:
        return "greeting";
    case LINK_UP:
        return "connected";
    default:
        return "closing";
    }
}

static json_t *fetch_json(const struct fetch_peer_stats *s)
{
    return json_pack("{s:f,s:f,s:f,s:I,s:I,s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:s}", "rate",
                     s->rate, "latency_s", (double)s->latency_ns / 1e9, "hedge_s",
                     (double)s->hedge_ns / 1e9, "bytes", (json_int_t)s->bytes, "chunks",
                     (json_int_t)s->chunks, "dup_bytes", (json_int_t)s->dup_bytes, "bad_chunks",
                     (int)s->bad_chunks, "refusals", (int)s->refusals, "timeouts", (int)s->timeouts,
                     "losses", (int)s->losses, "strikes", (int)s->strikes, "bans", (int)s->bans,
                     "banned_s", (double)s->banned_ns / 1e9, "paused_s", (double)s->paused_ns / 1e9,
                     "last_fault", s->last_fault);
}

struct addrs {
    const char *node;
    json_t *list;
    char name[DISCO_NAME_MAX + 1];
    int64_t met; /* wall-clock second, 0: never */
};

static void add_addrs(void *ctx, const struct disco_peer *p)
{
    struct addrs *a = ctx;
    if (strcmp(p->node, a->node) != 0) {
        return;
    }
    memcpy(a->name, p->instance, sizeof a->name);
    for (size_t i = 0; i < p->n_addrs; i++) {
        const struct disco_addr *d = &p->addrs[i];
        a->met = d->met_unix > a->met ? d->met_unix : a->met;
        json_array_append_new(a->list, json_pack("{s:s,s:b,s:f,s:f,s:i,s:s}", "address", d->text,
                                                 "used", d->live > 0, "bytes_s", d->bytes_s,
                                                 "rtt_s", d->rtt_s, "fails", (int)d->fails, "last",
                                                 disco_outcome_word(d->last[0].outcome)));
    }
}

static void add_link(json_t *o, const struct plink *l)
{
    uint64_t in, out;
    struct serve_peer_stats s = {0};
    tls_conn_bytes(l->c, &in, &out);
    json_object_set_new(o, "state", json_string(state_word(l)));
    json_object_set_new(o, "address", json_string(tls_conn_address(l->c)));
    json_object_set_new(o, "dialed", json_boolean(l->dialed));
    json_object_set_new(o, "software", json_string(l->software));
    json_object_set_new(o, "version", num(l->version));
    json_object_set_new(o, "tls", json_string(l->tls.version));
    json_object_set_new(o, "suite", json_string(l->tls.suite));
    json_object_set_new(o, "model_same", json_boolean(l->model_same));
    json_object_set_new(o, "numerics", num(l->numerics));
    json_object_set_new(o, "origin_works", json_boolean(l->origin_works));
    json_object_set_new(o, "rate_in", json_real(l->rate_in));
    json_object_set_new(o, "rate_out", json_real(l->rate_out));
    json_object_set_new(o, "bytes_in", num(in));
    json_object_set_new(o, "bytes_out", num(out));
    json_object_set_new(o, "rtt_ms", json_real((double)l->rtt / 1e6));
    json_object_set_new(o, "connected_s",
                        json_real(l->up_at ? (double)(clock_ns() - l->up_at) / 1e9 : 0));
    if (l->serve) {
        serve_peer_get_stats(l->serve, &s);
        json_object_set_new(o, "served",
                            json_pack("{s:I,s:I,s:I,s:i,s:i}", "bytes", (json_int_t)s.bytes,
                                      "chunks", (json_int_t)s.chunks, "gets", (json_int_t)s.gets,
                                      "open", (int)s.open, "reading", (int)s.reading));
    }
}

static json_t *peer_json(struct mesh *m, const struct roster_member *r,
                         const struct fetch_peer_stats *fs, size_t n_fs)
{
    char node[MESH_SHORT];
    json_t *o = json_object();
    struct addrs a = {.node = node, .list = json_array()};
    mesh_short(&r->id, node);
    json_object_set_new(o, "id", text_id(&r->id));
    json_object_set_new(o, "short", short_id(&r->id));
    json_object_set_new(o, "keeper", json_boolean(r->flags & ROSTER_KEEPER));
    json_object_set_new(o, "state", json_string("not connected"));
    const struct plink *best = NULL;
    for (const struct plink *l = m->links; l; l = l->next) {
        if (l->state != LINK_CLOSING && strcmp(l->node, node) == 0 &&
            (!best || l->state == LINK_UP)) {
            best = l;
        }
    }
    if (best) {
        add_link(o, best);
    }
    if (m->disco) {
        disco_each(m->disco, add_addrs, &a);
    }
    const struct mesh_known *k = mesh_known_of(m, &r->id, false);
    bool up = best && best->state == LINK_UP;
    json_object_set_new(o, "name", json_string(k && k->name[0] ? k->name : a.name));
    json_object_set_new(o, "last",
                        json_integer(up                     ? (json_int_t)time(NULL)
                                     : k && k->seen > a.met ? (json_int_t)k->seen
                                                            : (json_int_t)a.met));
    json_object_set_new(o, "files_served", num(k ? k->files : 0));
    json_object_set_new(o, "file_bytes_served", num(k ? k->file_bytes : 0));
    json_object_set_new(o, "addresses", a.list);
    for (size_t i = 0; i < n_fs; i++) {
        if (memcmp(fs[i].id, r->id.b, SHA256_SIZE) == 0) {
            json_object_set_new(o, "objects", num(fs[i].up ? fs[i].objects : 0));
            json_object_set_new(o, "fetch", fetch_json(&fs[i]));
        }
    }
    return o;
}

static void count_coverage(struct mesh *m)
{
    uint64_t now = clock_ns();
    if (m->cover_at && now - m->cover_at < COVER_NS) {
        return;
    }
    m->cover_at = now;
    m->cover_have = m->cover_of = 0;
    memset(m->cover_kind, 0, sizeof m->cover_kind);
    for (size_t i = 0; i < m->o.n_extents; i++) {
        struct object_key k = {m->extents[i].kind, m->extents[i].layer, 0};
        uint64_t have = 0;
        for (; k.index < m->extents[i].count; k.index++) {
            have += held_has(m->held, k) || (m->fetch && fetch_holders(m->fetch, k));
        }
        m->cover_have += have;
        m->cover_of += m->extents[i].count;
        if (k.kind < MESH_COVER_KINDS) {
            m->cover_kind[k.kind].have += have;
            m->cover_kind[k.kind].of += m->extents[i].count;
        }
    }
}

static json_t *coverage_json(struct mesh *m)
{
    count_coverage(m);
    json_t *kinds = json_array();
    for (int i = 0; i < MESH_COVER_KINDS; i++) {
        if (m->cover_kind[i].of) {
            json_array_append_new(kinds, json_pack("{s:i,s:I,s:I}", "kind", i, "have",
                                                   (json_int_t)m->cover_kind[i].have, "of",
                                                   (json_int_t)m->cover_kind[i].of));
        }
    }
    return json_pack(
        "{s:I,s:I,s:I,s:f,s:o}", "have", (json_int_t)m->cover_have, "of", (json_int_t)m->cover_of,
        "missing", (json_int_t)(m->cover_of - m->cover_have), "percent",
        m->cover_of ? 100.0 * (double)m->cover_have / (double)m->cover_of : 0.0, "kinds", kinds);
}

static json_t *listen_json(struct mesh *m)
{
    json_t *list = json_array();
    struct token t;
    struct err e = {0};
    memset(&t, 0, sizeof t);
    if (mesh_token_addresses(&t, m->listen_host, m->port, &e)) {
        return list;
    }
    for (size_t i = 0; i < t.addrs_n; i++) {
        bool v6 = strchr(t.addrs[i].host, ':') != NULL;
        json_array_append_new(
            list, json_sprintf(v6 ? "[%s]:%d" : "%s:%d", t.addrs[i].host, (int)t.addrs[i].port));
    }
    return list;
}

static json_t *refused_json(struct mesh *m)
{
    struct tls_stats s = {0};
    json_t *o = json_object();
    if (m->pool) {
        tls_pool_stats(m->pool, &s);
    }
    json_object_set_new(o, "strangers", num(s.strangers));
    json_object_set_new(o, "not_tls", num(s.not_tls));
    json_object_set_new(o, "over_limit", num(s.over_limit));
    /* the pool counts strangers and what is no TLS among the failed ones, too */
    uint64_t named = s.strangers + s.not_tls;
    json_object_set_new(o, "failed", num(s.failed > named ? s.failed - named : 0));
    json_object_set_new(o, "invites", num(m->guests_failed));
    json_object_set_new(o, "protocol_faults", num(m->protocol_faults));
    json_object_set_new(o, "doubles", num(m->clones));
    return o;
}

static json_t *serve_json(struct mesh *m, uint64_t *out, uint64_t *out_peer)
{
    struct serve_stats s = {0};
    if (m->serve) {
        serve_get_stats(m->serve, &s);
    }
    *out = s.bytes_s;
    *out_peer = s.peer_bytes_s;
    uint64_t refused = 0;
    for (size_t i = 0; i < sizeof s.refused / sizeof *s.refused; i++) {
        refused += s.refused[i];
    }
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:i}", "bytes", (json_int_t)s.bytes, "chunks",
                     (json_int_t)s.chunks, "gets", (json_int_t)s.gets, "refused",
                     (json_int_t)refused, "yields", (json_int_t)s.yields, "limited",
                     (json_int_t)s.limited, "open", (int)s.open, "reading", (int)s.reading);
}

static json_t *fetch_total_json(struct mesh *m)
{
    struct fetch_stats s = {0};
    if (m->fetch) {
        fetch_get_stats(m->fetch, &s);
    }
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:f,s:b,s:{s:I,s:I,s:I,s:I},s:{"
        "s:I,s:I,s:I,s:I,s:I,s:I,s:I}}",
        "objects", (json_int_t)s.objects, "failed", (json_int_t)s.failed, "cancelled",
        (json_int_t)s.cancelled, "peer_bytes", (json_int_t)s.peer_bytes, "origin_bytes",
        (json_int_t)s.origin_bytes, "dup_bytes", (json_int_t)s.dup_bytes, "bad_chunks",
        (json_int_t)s.bad_chunks, "hedges", (json_int_t)s.hedges, "conflicts",
        (json_int_t)s.conflicts, "waiting", (int)s.waiting, "begun", (int)s.begun, "origin_rate",
        s.origin_rate, "origin_up", s.origin_up, "leases", "asked", (json_int_t)s.leases,
        "passed_on", (json_int_t)s.passed_on, "taken", (json_int_t)s.takes, "bytes",
        (json_int_t)s.lease_bytes, "samples", "compared", (json_int_t)s.samples, "bytes",
        (json_int_t)s.sample_bytes, "false", (json_int_t)s.samples_false, "uncompared",
        (json_int_t)s.uncompared, "pieces", (json_int_t)s.spots, "piece_bytes",
        (json_int_t)s.spot_bytes, "pieces_false", (json_int_t)s.spots_false);
}

/* ---- status ---- */

static json_t *peers_json(struct mesh *m)
{
    json_t *list = json_array();
    size_t n = 0;
    struct fetch_peer_stats *fs = m->fetch ? calloc(STATUS_PEERS, sizeof *fs) : NULL;
    if (fs) {
        n = fetch_get_peers(m->fetch, fs, STATUS_PEERS);
        n = n < STATUS_PEERS ? n : STATUS_PEERS;
    }
    for (size_t i = 0; m->member.in_group && i < m->member.roster.members_n; i++) {
        const struct roster_member *r = &m->member.roster.members[i];
        if (!id_equal(&r->id, &m->me.id)) {
            json_array_append_new(list, peer_json(m, r, fs, n));
        }
    }
    free(fs);
    return list;
}

static json_t *status_json(struct mesh *m)
{
    json_t *o = json_object();
    char hex[2 * SHA256_SIZE + 1];
    uint64_t out, out_peer;
    json_object_set_new(o, "node", text_id(&m->me.id));
    json_object_set_new(o, "short", short_id(&m->me.id));
    json_object_set_new(o, "name", json_string(m->name));
    json_object_set_new(o, "software", json_string(m->software));
    json_object_set_new(o, "protocol", num(WIRE_VERSION));
    json_object_set_new(o, "port", json_integer(m->port));
    json_object_set_new(o, "listen", listen_json(m));
    json_object_set_new(o, "group", m->member.in_group ? text_id(&m->member.group) : json_null());
    json_object_set_new(o, "keeper", json_boolean(m->member.signing_key != NULL));
    json_object_set_new(
        o, "removed",
        json_boolean(m->member.in_group && roster_has_removed(&m->member.roster, &m->me.id)));
    json_object_set_new(o, "roster_version", num(m->member.roster.version));
    json_object_set_new(o, "rosters_beside", num(m->member.also_n));
    json_object_set_new(o, "members", num(m->member.roster.members_n));
    json_object_set_new(o, "moved", json_boolean(m->me.moved));
    json_object_set_new(o, "invites_open", json_boolean(m->trust.guests));
    sha256_hex(m->o.model_root, hex);
    json_object_set_new(o, "model", m->o.has_model ? json_string(hex) : json_null());
    json_object_set_new(o, "connected", json_integer(atomic_load(&m->n_up)));
    json_object_set_new(o, "peers", peers_json(m));
    json_object_set_new(o, "objects", num(held_count(m->held)));
    json_object_set_new(o, "coverage", coverage_json(m));
    json_object_set_new(o, "serve", serve_json(m, &out, &out_peer));
    json_object_set_new(o, "limits",
                        json_pack("{s:I,s:I}", "out_bytes_s", (json_int_t)out, "out_peer_bytes_s",
                                  (json_int_t)out_peer));
    json_object_set_new(o, "fetch", fetch_total_json(m));
    json_object_set_new(o, "refused", refused_json(m));
    return o;
}

static void note_status(struct mesh *m, struct note *n)
{
    struct report_note *x = (struct report_note *)n;
    x->json = status_json(m);
}

static int give(json_t *j, struct buf *out, struct err *e)
{
    char *s = j ? json_dumps(j, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    int r = s ? buf_adds(out, s) : ERR_NOMEM;
    free(s);
    json_decref(j);
    return r ? err_set(e, r, "the report is too large") : 0;
}

int mesh_status(struct mesh *m, struct buf *out, struct err *e)
{
    struct report_note n = {.n = {.run = note_status, .sync = true}};
    mesh_post(m, &n.n);
    return give(n.json, out, e);
}

/* ---- why ---- */

static void note_why(struct mesh *m, struct note *n)
{
    struct report_note *x = (struct report_note *)n;
    struct buf b;
    json_t *o = NULL;
    buf_init(&b, 8u << 20);
    if (m->disco) {
        struct disco_why *w = disco_why(m->disco);
        if (w && !disco_why_json(w, &b, x->e)) {
            o = json_loadb(b.p, b.n, 0, NULL);
        }
        disco_why_free(w);
    }
    b.n = 0;
    o = o ? o : json_object();
    if (!m->member.in_group) {
        json_object_set_new(o, "notice",
                            json_string("this node belongs to no shoal: make one with shoal init, "
                                        "or join one with shoal join"));
    } else if (m->me.moved) {
        char text[600];
        identity_moved_text(&m->me, text, sizeof text);
        json_object_set_new(o, "moved", json_string(text));
    }
    json_object_set_new(o, "refused", refused_json(m));
    if (m->fetch && !fetch_explain(m->fetch, &b)) {
        json_object_set_new(o, "fetching", json_stringn(b.p ? b.p : "", b.n));
    }
    buf_free(&b);
    x->json = o;
}

int mesh_why(struct mesh *m, struct buf *out, struct err *e)
{
    struct report_note n = {.n = {.run = note_why, .sync = true}, .e = e};
    mesh_post(m, &n.n);
    return give(n.json, out, e);
}

struct small_note {
    struct note n;
    struct object_key k;
    struct key_id id;
    const char *text;
    uint64_t a, b;
    uint32_t count;
    int code;
    struct err *e;
};

static void note_holders(struct mesh *m, struct note *n)
{
    struct small_note *x = (struct small_note *)n;
    x->count = m->fetch ? fetch_holders(m->fetch, x->k) : 0;
}

int mesh_holders(struct mesh *m, struct object_key k, uint32_t *n)
{
    struct small_note x = {.n = {.run = note_holders, .sync = true}, .k = k};
    mesh_post(m, &x.n);
    *n = x.count;
    return 0;
}

/* ---- doing ---- */

static void note_limits(struct mesh *m, struct note *n)
{
    struct small_note *x = (struct small_note *)n;
    if (m->serve) {
        serve_limits(m->serve, x->a, x->b);
    }
}

void mesh_limits(struct mesh *m, uint64_t out_bytes_s, uint64_t out_peer_bytes_s)
{
    struct small_note x = {
        .n = {.run = note_limits, .sync = true}, .a = out_bytes_s, .b = out_peer_bytes_s};
    mesh_post(m, &x.n);
}

static void note_unban(struct mesh *m, struct note *n)
{
    struct small_note *x = (struct small_note *)n;
    x->code = mesh_bans_lift(m, &x->id);
}

int mesh_unban(struct mesh *m, const struct key_id *id, struct err *e)
{
    struct small_note x = {.n = {.run = note_unban, .sync = true}, .id = *id};
    mesh_post(m, &x.n);
    return x.code ? err_set(e, x.code, "that peer is not banned") : 0;
}

static void note_static(struct mesh *m, struct note *n)
{
    struct small_note *x = (struct small_note *)n;
    x->code = m->disco ? disco_add_static(m->disco, x->text, x->e)
                       : err_set(x->e, ERR_REFUSED, "this node belongs to no shoal yet");
}

int mesh_add_static(struct mesh *m, const char *host_port, struct err *e)
{
    struct small_note x = {.n = {.run = note_static, .sync = true}, .text = host_port, .e = e};
    mesh_post(m, &x.n);
    return x.code;
}

static void note_look(struct mesh *m, struct note *n)
{
    (void)n;
    if (!m->closing) {
        m->home_stamp = 0;
        mesh_look_now(m);
    }
}

void mesh_look(struct mesh *m)
{
    struct small_note x = {.n = {.run = note_look, .sync = true}};
    mesh_post(m, &x.n);
}

static void note_sleep(struct mesh *m, struct note *n)
{
    (void)n;
    if (m->asleep || m->closing) {
        return;
    }
    m->asleep = true;
    uv_timer_stop(&m->dial_timer);
    for (struct plink *l = m->links, *next; l; l = next) {
        next = l->next;
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_SLEEP, NULL, DISCO_CLOSED, "");
    }
    if (m->disco) {
        disco_sleep(m->disco);
    }
}

void mesh_sleep(struct mesh *m)
{
    struct small_note x = {.n = {.run = note_sleep, .sync = true}};
    mesh_post(m, &x.n);
}

static void note_wake(struct mesh *m, struct note *n)
{
    (void)n;
    m->asleep = false;
    if (m->disco && !m->closing) {
        disco_wake(m->disco);
    }
    mesh_dial_soon(m);
}

void mesh_wake(struct mesh *m)
{
    struct small_note x = {.n = {.run = note_wake, .sync = true}};
    mesh_post(m, &x.n);
}

static void note_network(struct mesh *m, struct note *n)
{
    (void)n;
    if (m->disco && !m->closing) {
        disco_network_changed(m->disco);
    }
}

void mesh_network_changed(struct mesh *m)
{
    struct small_note x = {.n = {.run = note_network, .sync = true}};
    mesh_post(m, &x.n);
}

static void note_invite(struct mesh *m, struct note *n)
{
    struct small_note *x = (struct small_note *)n;
    x->code = member_need_key(&m->member, x->e);
    x->id = m->member.group;
}

int mesh_invite(struct mesh *m, uint32_t uses, uint32_t seconds, char out[TOKEN_TEXT_MAX],
                struct err *e)
{
    struct small_note x = {.n = {.run = note_invite, .sync = true}, .e = e};
    struct token t;
    mesh_post(m, &x.n);
    /* On the caller's thread: the home's lock may have to be waited for. */
    int r =
        x.code ? x.code : invite_make(m->home, &x.id, uses, seconds, (uint64_t)time(NULL), &t, e);
    r = r ? r : mesh_token_addresses(&t, m->listen_host, m->port, e);
    if (!r) {
        token_text(&t, out);
        mesh_look(m);
    }
    crypto_wipe(&t, sizeof t);
    return r;
}
