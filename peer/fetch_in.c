/* SPDX-License-Identifier: MIT
 * fetch_in.c: what comes back for Gets from peers and from the origin. Nothing here believes a
 * peer: a message is compared with what was asked of exactly that peer. */
#include "peer/fetch_int.h"

#include <stdio.h>
#include <string.h>

#define BUSY_MIN_NS (20 * FETCH_MS) /* after a peer said that it is busy */
#define BUSY_MAX_NS (10 * FETCH_S)
#define REFUSED_IN_A_ROW 8

static struct get *find(struct source *s, uint64_t id)
{
    for (struct link *l = s->gets.next; l != &s->gets; l = l->next) {
        if (get_of_source(l)->id == id) {
            return get_of_source(l);
        }
    }
    return NULL;
}

/* Bits of chunks first .. first + n - 1 in the Get's masks; they are among its chunks. */
static uint64_t mask_of(const struct get *g, uint32_t first, uint32_t n)
{
    return (n >= 64 ? UINT64_MAX : (1ull << n) - 1) << (first - g->first);
}

/* A lease's digests come as the chunks do; others all at once. */
static bool digests_fit(const struct get *g, uint32_t first, uint32_t n)
{
    if (!g->relay) {
        return !g->digested && first == g->first && n == g->n;
    }
    return first >= g->first && n <= g->n && first - g->first <= g->n - n &&
           !(g->digested & mask_of(g, first, n));
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
    /* Of what is on record as one member's word it is not known here whose. */
    if (member != FETCH_NOBODY && fl->n_claims < FETCH_CLAIMS_MAX) {
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
    struct source *s = fetch_peer(f, peer);
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
    if (n < 1 || !digests_fit(g, first, n)) {
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
    g->digested |= mask_of(g, first, n);
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
            } else if (c->member == FETCH_NOBODY) {
                c->member = (uint8_t)mine; /* on record as the word of one, who may be this one */
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
    if (word_stated(f, fl, mine, first, n, sha, object_digest) == WORD_LEAVE) {
        g = find(s, id);
        if (g) {
            get_close(f, g, true);
        }
        fetch_leave(f);
        return;
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
    struct source *s = fetch_peer(f, peer);
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
    } else if (g->want_digests && !(g->digested >> (chunk - g->first) & 1)) {
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
    if (g->relay) {
        relay_gave(f, s, n);
    } else {
        source_gave(f, s, n);
    }
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
    struct source *s = fetch_peer(f, peer);
    if (!s || !(s->n_gets + s->n_relays) || !n) {
        return;
    }
    fetch_enter(f);
    struct get *g = get_of_source(s->gets.next);
    s->lease_byte = f->now;
    s->part = s->part + n < n ? UINT64_MAX : s->part + n;
    double least = (double)(f->now - source_since(s)) / 1e9 * FETCH_DRIP_BYTES_S;
    if (g->relay || (double)s->part >= least) {
        s->last_bytes = g->fl->last_byte = f->now;
        g->fl->say_at = f->now + FETCH_SAY_NS;
    }
    fetch_leave(f);
}

void fetch_on_refuse(struct fetch *f, uint32_t peer, uint64_t id, uint32_t reason,
                     uint32_t retry_ms, const char *text)
{
    struct source *s = fetch_peer(f, peer);
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
    if (g->relay) {
        relay_refused(f, g, reason, retry_ms);
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
        if (!g) { /* closed since, or not ours */
            get_late(f, id, chunk, p, n, sha256_or_null);
        }
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
    source_gave(f, &f->origin, n);
    relay_flow(f, n);
    fl->last_byte = g->last = f->now;
    fl->say_at = f->now + FETCH_SAY_NS;
    bool same = c->basis != BASIS_NONE && memcmp(got, c->sha, SHA256_SIZE) == 0;
    bool sample = g->sample != NULL;
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
    if (sample) {
        sample_came(f, g, chunk, same, n);
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
            word_denied(f, fl, m, "stated a digest that the origin denies");
        }
    }
    for (uint32_t i = 0; i < fl->n_claims; i++) {
        struct claim *x = &fl->claim[i];
        if (x->chunk == chunk && memcmp(x->sha, got, SHA256_SIZE) != 0) {
            member_lied(f, fl, x->member, "stated a digest that the origin denies");
            word_denied(f, fl, x->member, "stated a digest that the origin denies");
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
    if (c->done && !sample) {
        f->s.dup_bytes += n;
        fl->r->dup_bytes += n;
    } else if (!c->done) {
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
        if (g->sample) {
            sample_failed(f);
        }
        get_close(f, g, false);
    }
    f->dirty = true;
    fetch_leave(f);
}

void fetch_origin_trouble(struct fetch *f)
{
    fetch_enter(f);
    f->sample_trouble = f->now;
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
