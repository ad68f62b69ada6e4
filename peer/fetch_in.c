/* SPDX-License-Identifier: MIT
 * fetch_in.c: Gets, and what comes back for them from peers and from the origin. Nothing here
 * believes a peer: a message is compared with what was asked of exactly that peer. */
#include "peer/fetch_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_MIN_NS (20 * FETCH_MS) /* after the layer below or a peer said that it is busy */
#define BUSY_MAX_NS (10 * FETCH_S)
#define REFUSED_IN_A_ROW 8

/* ---- Gets ---- */

static void unask(struct flight *fl, const struct source *s, uint32_t i)
{
    struct fchunk *c = &fl->c[i];
    if (source_is_origin(s)) {
        c->origin = false;
        return;
    }
    c->asks--;
    fl->unasked += !c->done && c->asks == 0;
}

/* Chunk i of the Get has come, or will not. */
static void get_clear(struct get *g, uint32_t i)
{
    g->open &= ~(1ull << (i - g->first));
    g->s->in_flight[g->prio] -= storage_chunk_len(g->fl->size, i);
    unask(g->fl, g->s, i);
}

static uint32_t deadline_ms(const struct fetch *f, const struct flight *fl)
{
    uint64_t d = 0;
    for (struct link *l = fl->wants.next; l != &fl->wants; l = l->next) {
        d = u64_max(d, want_of(l)->deadline);
    }
    if (d == FETCH_NEVER || d <= f->now) {
        return 0;
    }
    uint64_t ms = (d - f->now) / FETCH_MS + 1;
    return ms > UINT32_MAX ? 0 : (uint32_t)ms;
}

int get_send(struct fetch *f, struct flight *fl, struct source *s, uint32_t first, uint32_t n,
             bool hedge)
{
    bool origin = source_is_origin(s);
    uint32_t m = origin ? FETCH_NOBODY : flight_member(fl, s->rec);
    struct get *g = m == FETCH_NOBODY && !origin ? NULL : calloc(1, sizeof *g);
    if (!g) {
        return ERR_NOMEM;
    }
    struct fetch_get w = {.id = s->next_id, .key = fl->key, .first = first, .n = n};
    w.prio = fl->prio;
    w.deadline_ms = deadline_ms(f, fl);
    uint64_t bytes = 0;
    for (uint32_t i = first; i < first + n; i++) {
        w.want_digests |= fl->c[i].basis < BASIS_TWO_MEMBERS;
        bytes += storage_chunk_len(fl->size, i);
    }
    int code;
    if (origin) {
        code = f->o.ops.origin_get(f->o.ops.ctx, w.id, fl->key, first, n, fl->prio);
    } else {
        code = f->o.ops.send_get(f->o.ops.ctx, s->slot, &w);
    }
    if (code) {
        free(g);
        if (origin) {
            f->origin_after = f->now + FETCH_ORIGIN_RETRY_NS;
            f->look_at = u64_min(f->look_at, f->origin_after);
        } else if (code == ERR_BUSY) {
            s->not_before = f->now + BUSY_MIN_NS;
            f->look_at = u64_min(f->look_at, s->not_before);
        } else {
            source_fault(f, s, "could not be sent a request");
        }
        return code;
    }
    s->next_id++;
    g->s = s;
    g->fl = fl;
    g->id = w.id;
    g->sent = g->last = f->now;
    g->first = first;
    g->n = n;
    g->open = n == 64 ? UINT64_MAX : (1ull << n) - 1;
    g->prio = fl->prio;
    g->want_digests = w.want_digests && !origin;
    g->hedge = hedge;
    g->member = (uint8_t)m;
    source_asked(f, s, g->prio, bytes);
    for (uint32_t i = first; i < first + n; i++) {
        struct fchunk *c = &fl->c[i];
        if (origin) {
            c->origin = true;
        } else {
            fl->unasked -= !c->done && c->asks == 0;
            c->asks++;
        }
    }
    link_add(&s->gets, &g->in_source);
    link_add(&fl->gets, &g->in_flight);
    s->n_gets++;
    fl->n_gets += !origin;
    if (hedge) {
        f->hedge_asked += bytes;
        f->s.hedges++;
        fl->r->hedges++;
    }
    return 0;
}

void get_raise(struct fetch *f, struct get *g, enum fetch_prio prio)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        bytes += g->open >> i & 1 ? storage_chunk_len(g->fl->size, g->first + i) : 0;
    }
    g->s->in_flight[g->prio] -= bytes;
    g->s->in_flight[prio] += bytes;
    g->prio = prio;
    f->o.ops.origin_raise(f->o.ops.ctx, g->id, prio);
}

void get_close(struct fetch *f, struct get *g, bool cancel)
{
    struct source *s = g->s;
    struct flight *fl = g->fl;
    uint64_t bytes = 0;
    bool was_late = s->late;
    for (uint32_t i = g->first; g->open; i++) {
        if (g->open >> (i - g->first) & 1) {
            bytes += storage_chunk_len(fl->size, i);
            get_clear(g, i);
        }
    }
    link_cut(&g->in_source);
    link_cut(&g->in_flight);
    s->n_gets--;
    if (source_is_origin(s)) {
        if (cancel && bytes) {
            f->o.ops.origin_cancel(f->o.ops.ctx, g->id);
        }
    } else {
        fl->n_gets--;
        if (cancel && bytes) {
            s->allow_late += bytes;
            f->o.ops.send_cancel(f->o.ops.ctx, s->slot, g->id);
            if (was_late) {
                source_fault(f, s, "did not give what it was asked for in time");
            }
        }
    }
    free(g);
    f->dirty = true;
}

void get_forget_chunk(struct fetch *f, struct flight *fl, uint32_t i)
{
    for (struct link *l = fl->gets.next, *next; l != &fl->gets; l = next) {
        struct get *g = get_of_flight(l);
        next = l->next;
        if (i < g->first || i - g->first >= g->n || !(g->open >> (i - g->first) & 1)) {
            continue;
        }
        bool needed = false;
        for (uint32_t k = 0; k < g->n && !needed; k++) {
            needed = (g->open >> k & 1) && !fl->c[g->first + k].done;
        }
        if (!needed) {
            get_close(f, g, true);
        }
    }
}

static struct get *find(struct source *s, uint64_t id)
{
    for (struct link *l = s->gets.next; l != &s->gets; l = l->next) {
        if (get_of_source(l)->id == id) {
            return get_of_source(l);
        }
    }
    return NULL;
}

static struct source *peer_of(const struct fetch *f, uint32_t peer)
{
    return peer < FETCH_PEERS_MAX ? f->peer[peer] : NULL;
}

static void protocol(struct fetch *f, struct source *s, const char *why)
{
    s->rec->protocol_faults++;
    source_strike(f, s, why);
}

/* This Get is over and the peer is not asked for the object again. */
static void give_up(struct fetch *f, struct get *g)
{
    g->fl->m[g->member].excluded = true;
    get_close(f, g, true);
}

/* ---- digests ---- */

/* Members state different digests of the whole object. With an origin it decides; without one, two
 * that agree and have it from their own downloads outweigh one. Returns false when fl has ended. */
static bool vote(struct fetch *f, struct flight *fl, uint32_t mine)
{
    uint32_t for_me = 0, for_them = 0;
    bool differs = false;
    for (uint32_t i = 0; i < fl->n_members; i++) {
        struct fmember *m = &fl->m[i];
        if (!m->has_object) {
            continue;
        }
        bool same = memcmp(m->object, fl->m[mine].object, SHA256_SIZE) == 0;
        differs |= !same;
        if (m->claimed >= BASIS_ORIGIN) {
            uint32_t *n = same ? &for_me : &for_them;
            ++*n;
        }
    }
    if (!differs) {
        return true;
    }
    if (plan_origin_usable(f, fl) || (for_me < 2 && for_them < 2) || for_me == for_them) {
        plan_conflict(f, fl, "members state different digests of it");
        return !fl->ended;
    }
    /* The digest of the majority; of several minorities each is wrong. */
    for (uint32_t i = 0; i < fl->n_members; i++) {
        struct fmember *m = &fl->m[i];
        if (!m->has_object) {
            continue;
        }
        bool same = memcmp(m->object, fl->m[mine].object, SHA256_SIZE) == 0;
        if (same == (for_me > for_them)) {
            m->excluded = m->disputed = false;
        } else {
            member_lied(f, fl, i, "states a digest that two other members deny");
        }
    }
    return true;
}

static void claim(struct flight *fl, uint32_t chunk, uint32_t member, const uint8_t *sha)
{
    if (fl->n_claims < FETCH_CLAIMS_MAX) {
        struct claim *x = &fl->claim[fl->n_claims++];
        x->chunk = chunk;
        x->member = (uint8_t)member;
        memcpy(x->sha, sha, SHA256_SIZE);
    }
}

void fetch_on_digests(struct fetch *f, uint32_t peer, uint64_t id, uint64_t object_size,
                      uint32_t first, uint32_t n, const uint8_t *sha, uint32_t source,
                      const uint8_t *object_digest)
{
    struct source *s = peer_of(f, peer);
    if (!s || s->rec->banned_until > f->o.ops.now(f->o.ops.ctx)) {
        return;
    }
    fetch_enter(f);
    struct get *g = find(s, id);
    struct flight *fl = g ? g->fl : NULL;
    uint8_t claimed = source <= BASIS_MANIFEST ? (uint8_t)source : BASIS_NONE;
    if (!g) {
        if (id >= s->next_id || id == 0) {
            protocol(f, s, "sent digests that were not asked for");
        }
        fetch_leave(f);
        return;
    }
    if (g->got_digests || first != g->first || n != g->n) {
        give_up(f, g);
        protocol(f, s, "sent digests of other chunks than asked for");
        fetch_leave(f);
        return;
    }
    if (object_size != fl->size) {
        give_up(f, g);
        protocol(f, s, "states another size of an object than the model has");
        fetch_leave(f);
        return;
    }
    g->got_digests = true;
    struct fmember *m = &fl->m[g->member];
    uint32_t mine = g->member;
    m->claimed = claimed;
    m->stated = true;
    bool clash = false;
    for (uint32_t i = 0; i < n; i++) {
        struct fchunk *c = &fl->c[first + i];
        const uint8_t *d = sha + (size_t)i * SHA256_SIZE;
        bool same = memcmp(c->sha, d, SHA256_SIZE) == 0;
        if (c->basis == BASIS_NONE) {
            memcpy(c->sha, d, SHA256_SIZE);
            c->basis = BASIS_ONE_MEMBER;
            c->member = (uint8_t)mine;
        } else if (c->basis == BASIS_ONE_MEMBER && c->member != mine) {
            if (!same) {
                clash = true;
                claim(fl, first + i, c->member, c->sha);
                claim(fl, first + i, mine, d);
            } else if (claimed >= BASIS_ORIGIN && fl->m[c->member].claimed >= BASIS_ORIGIN) {
                c->basis = BASIS_TWO_MEMBERS;
            }
        } else if (!same) {
            /* Something stronger, or itself before, says otherwise: its copy is no good. */
            record_add_bad(s->rec, fl->key, f->now);
            s->rec->bad_chunks++;
            f->s.bad_chunks++;
            fl->r->bad_chunks++;
            have_set(&s->have, fl->key.kind, fl->key.layer, fl->key.index, 1, false);
            if (f->o.ops.send_bad) {
                f->o.ops.send_bad(f->o.ops.ctx, peer, fl->key, first + i, d, c->sha,
                                  (enum basis)c->basis);
            }
            m->has_object = false;
            flight_void(f, fl, mine);
            give_up(f, g);
            source_strike(f, s, "stated a wrong digest of a chunk");
            fetch_leave(f);
            return;
        }
    }
    if (object_digest) {
        bool changed = m->has_object && memcmp(m->object, object_digest, SHA256_SIZE) != 0;
        m->has_object = true;
        memcpy(m->object, object_digest, SHA256_SIZE);
        if (changed) {
            flight_void(f, fl, mine);
            give_up(f, g);
            source_strike(f, s, "states two digests of one object");
            fetch_leave(f);
            return;
        }
        if (!vote(f, fl, mine)) {
            fetch_leave(f);
            return;
        }
        /* The vote may have settled the clash, and closed or voided this Get. */
        clash = clash && !fl->conflict && !fl->disputed && !fl->m[mine].excluded;
    }
    if (clash) {
        plan_conflict(f, fl, "members state different digests of a chunk");
    }
    fetch_leave(f);
}

/* ---- data ---- */

static void bad_chunk(struct fetch *f, struct source *s, struct get *g, uint32_t chunk,
                      const uint8_t got[SHA256_SIZE])
{
    struct flight *fl = g->fl;
    struct fchunk *c = &fl->c[chunk];
    char name[FETCH_NAME], why[FETCH_TEXT];
    snprintf(why, sizeof why, "gave a bad chunk %u of %s", chunk,
             flight_name(f, fl, name, sizeof name));
    s->rec->bad_chunks++;
    f->s.bad_chunks++;
    fl->r->bad_chunks++;
    record_add_bad(s->rec, fl->key, f->now);
    have_set(&s->have, fl->key.kind, fl->key.layer, fl->key.index, 1, false);
    if (f->o.ops.send_bad) {
        f->o.ops.send_bad(f->o.ops.ctx, s->slot, fl->key, chunk, got, c->sha, (enum basis)c->basis);
    }
    give_up(f, g);
    source_strike(f, s, why);
}

static void late_data(struct fetch *f, struct source *s, uint64_t id, size_t n)
{
    if (id != 0 && id < s->next_id && n <= s->allow_late) {
        s->allow_late -= n; /* it was on the way when we cancelled */
        s->rec->late_bytes += n;
    } else {
        protocol(f, s, "sent a chunk that was not asked for");
    }
}

void fetch_on_data(struct fetch *f, uint32_t peer, uint64_t id, uint32_t chunk, bool last,
                   const uint8_t *p, size_t n, const uint8_t *sha256_or_null)
{
    struct source *s = peer_of(f, peer);
    if (!s || s->rec->banned_until > f->o.ops.now(f->o.ops.ctx)) {
        return;
    }
    fetch_enter(f);
    struct get *g = find(s, id);
    if (!g) {
        late_data(f, s, id, n);
        fetch_leave(f);
        return;
    }
    struct flight *fl = g->fl;
    const char *wrong = NULL;
    if (chunk < g->first || chunk - g->first >= g->n) {
        wrong = "sent a chunk of another number than asked for";
    } else if (!(g->open >> (chunk - g->first) & 1)) {
        wrong = "sent a chunk twice";
    } else if (n != storage_chunk_len(fl->size, chunk)) {
        wrong = "sent a chunk of a wrong size";
    } else if (g->want_digests && !g->got_digests) {
        wrong = "sent a chunk before its digest";
    }
    if (wrong) {
        give_up(f, g);
        protocol(f, s, wrong);
        fetch_leave(f);
        return;
    }
    struct fchunk *c = &fl->c[chunk];
    uint8_t got[SHA256_SIZE];
    if (sha256_or_null) {
        memcpy(got, sha256_or_null, SHA256_SIZE);
    } else {
        sha256(p, n, got);
    }
    if (c->basis == BASIS_NONE) {
        /* What it was to be compared with has been taken back since: ask again. */
        get_close(f, g, true);
        fetch_leave(f);
        return;
    }
    if (memcmp(got, c->sha, SHA256_SIZE) != 0) {
        bool own = c->basis != BASIS_ONE_MEMBER || c->member == g->member;
        if (!own) {
            /* Its bytes against another member's word: nobody is struck for that. */
            plan_conflict(f, fl, "a member's bytes differ from another member's digest");
        } else {
            bad_chunk(f, s, g, chunk, got);
        }
        fetch_leave(f);
        return;
    }
    source_gave(f, s, n);
    fl->last_byte = g->last = f->now;
    fl->say_at = f->now + FETCH_SAY_NS;
    get_clear(g, chunk);
    uint32_t m = g->member;
    bool short_of = last && g->open;
    if (short_of) {
        give_up(f, g);
        source_fault(f, s, "ended a request before its last chunk");
    } else if (!g->open) {
        get_close(f, g, false);
    }
    if (c->done) {
        s->rec->dup_bytes += n;
        f->s.dup_bytes += n;
        fl->r->dup_bytes += n;
    } else {
        flight_chunk(f, fl, chunk, p, n, m);
    }
    f->dirty = true;
    fetch_leave(f);
}

void fetch_on_bytes(struct fetch *f, uint32_t peer, uint64_t n)
{
    struct source *s = peer_of(f, peer);
    if (!s || !s->n_gets || !n) {
        return;
    }
    fetch_enter(f);
    s->last_bytes = f->now;
    struct flight *fl = get_of_source(s->gets.next)->fl;
    fl->last_byte = f->now;
    fl->say_at = f->now + FETCH_SAY_NS;
    fetch_leave(f);
}

void fetch_on_refuse(struct fetch *f, uint32_t peer, uint64_t id, uint32_t reason,
                     uint32_t retry_ms, const char *text)
{
    struct source *s = peer_of(f, peer);
    if (!s) {
        return;
    }
    fetch_enter(f);
    struct get *g = find(s, id);
    if (!g) {
        if (id == 0 || id >= s->next_id) {
            protocol(f, s, "refused what it was not asked for");
        }
        fetch_leave(f);
        return;
    }
    struct object_key k = g->fl->key;
    struct fmember *m = &g->fl->m[g->member];
    uint64_t wait = u64_min((uint64_t)retry_ms * FETCH_MS, BUSY_MAX_NS);
    s->rec->refusals++;
    s->refused++;
    switch (reason) {
    case FETCH_REFUSE_NOT_HELD:
    case FETCH_REFUSE_DAMAGED:
        have_set(&s->have, k.kind, k.layer, k.index, 1, false);
        break;
    case FETCH_REFUSE_MODEL:
        have_free(&s->have);
        break;
    case FETCH_REFUSE_STOPPING:
        s->not_before = f->now + BUSY_MAX_NS;
        m->excluded = true;
        break;
    default:
        if (!retry_ms) {
            m->excluded = true; /* ask others; it may serve the next object */
        } else {
            s->not_before = f->now + u64_max(wait, BUSY_MIN_NS);
            f->look_at = u64_min(f->look_at, s->not_before);
        }
        break;
    }
    g->s->late = false; /* it answers: no fault on top of the refusal */
    get_close(f, g, false);
    if (s->refused >= REFUSED_IN_A_ROW) {
        char why[FETCH_TEXT];
        snprintf(why, sizeof why, "refused %u requests in a row%s%.100s", s->refused,
                 text && text[0] ? ": " : "", text ? text : "");
        s->refused = 0;
        source_fault(f, s, why);
    }
    f->origin_at = 0;
    fetch_leave(f);
}

/* ---- the origin ---- */

void fetch_on_origin_data(struct fetch *f, uint64_t id, uint32_t chunk, const uint8_t *p, size_t n,
                          const uint8_t *sha256_or_null)
{
    fetch_enter(f);
    struct get *g = find(&f->origin, id);
    struct flight *fl = g ? g->fl : NULL;
    if (!g || chunk < g->first || chunk - g->first >= g->n ||
        !(g->open >> (chunk - g->first) & 1) || n != storage_chunk_len(fl->size, chunk)) {
        fetch_leave(f); /* cancelled, or not ours */
        return;
    }
    struct fchunk *c = &fl->c[chunk];
    uint8_t got[SHA256_SIZE];
    if (sha256_or_null) {
        memcpy(got, sha256_or_null, SHA256_SIZE);
    } else {
        sha256(p, n, got);
    }
    source_gave(f, &f->origin, n);
    fl->last_byte = g->last = f->now;
    fl->say_at = f->now + FETCH_SAY_NS;
    bool same = c->basis != BASIS_NONE && memcmp(got, c->sha, SHA256_SIZE) == 0;
    if (c->basis >= BASIS_ORIGIN && !same) {
        struct err e;
        err_set(&e, ERR_DIGEST,
                "the origin's chunk %u is not what this node has on record: the model changed "
                "there, or something between changes bytes",
                chunk);
        fetch_on_origin_fail(f, id, 0, &e);
        fetch_leave(f);
        return;
    }
    if (c->basis != BASIS_NONE && c->basis < BASIS_ORIGIN && !same) {
        /* Whoever stated the digest told something false: nothing of its word is kept. */
        uint32_t m = c->member;
        flight_undo(f, fl, chunk);
        if (m != FETCH_NOBODY) {
            struct source *liar = fl->m[m].rec->up;
            if (liar && f->o.ops.send_bad) {
                f->o.ops.send_bad(f->o.ops.ctx, liar->slot, fl->key, chunk, c->sha, got,
                                  BASIS_ORIGIN);
            }
            member_lied(f, fl, m, "stated a digest that the origin denies");
        }
    }
    for (uint32_t i = 0; i < fl->n_claims; i++) {
        struct claim *x = &fl->claim[i];
        if (x->chunk == chunk && memcmp(x->sha, got, SHA256_SIZE) != 0) {
            member_lied(f, fl, x->member, "stated a digest that the origin denies");
        }
    }
    if (c->basis < BASIS_ORIGIN) {
        memcpy(c->sha, got, SHA256_SIZE);
        c->basis = BASIS_ORIGIN;
    }
    get_clear(g, chunk);
    if (!g->open) {
        get_close(f, g, false);
    }
    if (c->done) {
        f->s.dup_bytes += n;
        fl->r->dup_bytes += n;
    } else {
        flight_chunk(f, fl, chunk, p, n, FETCH_NOBODY);
    }
    f->dirty = true;
    fetch_leave(f);
}

void fetch_on_origin_fail(struct fetch *f, uint64_t id, uint64_t retry_ms, const struct err *e)
{
    fetch_enter(f);
    struct get *g = find(&f->origin, id);
    if (e) {
        f->origin_err = *e;
    } else {
        err_set(&f->origin_err, ERR_NET, "the origin did not deliver");
    }
    f->origin_after = f->now + (retry_ms ? retry_ms * FETCH_MS : FETCH_ORIGIN_RETRY_NS);
    f->look_at = u64_min(f->look_at, f->origin_after);
    if (g) {
        struct flight *fl = g->fl;
        fl->origin_failed |= retry_ms == 0;
        get_close(f, g, false);
    }
    f->dirty = true;
    fetch_leave(f);
}

void fetch_origin_up(struct fetch *f, bool up)
{
    fetch_enter(f);
    f->origin_up = up && f->o.ops.origin_get;
    if (!f->origin_up) {
        source_drop_gets(f, &f->origin, true);
    }
    f->origin_after = 0;
    f->dirty = true;
    f->origin_at = 0;
    fetch_leave(f);
}

void fetch_origin_estimate(struct fetch *f, double rate, uint64_t latency_ns)
{
    rate_set(&f->origin.rate, rate);
    memset(&f->origin.lat, 0, sizeof f->origin.lat);
    if (latency_ns) {
        latency_add(&f->origin.lat, latency_ns);
    }
}
