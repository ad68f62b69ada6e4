/* SPDX-License-Identifier: MIT
 * fetch_spot.c: spot checks. What rests on the word of one member alone is held until a random
 * piece of it, different on each node, has been compared with the origin, also when that member's
 * samples (fetch_sample.c) have all been right. Who replaces a few objects is so found out before
 * they are used; who changes one byte of one, as often as all pieces together are a part of all
 * bytes. */
#include "peer/fetch_int.h"

static bool spots(const struct fetch *f)
{
    return f->o.samples && f->o.ops.origin_spot;
}

uint32_t spot_due(const struct fetch *f, const struct flight *fl)
{
    for (uint32_t i = 0; i < fl->n && spots(f) && !fl->spot_done; i++) {
        uint32_t m = sample_word(fl, i);
        if (m != FETCH_NOBODY) {
            return m;
        }
    }
    return FETCH_NOBODY;
}

static uint64_t rand_below(struct fetch *f, uint64_t n)
{
    f->random ^= f->random << 13; /* xorshift64 */
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (f->random >> 8) % n;
}

/* Every byte of what rests on a lone word comes up at least as often as in one of all places where
 * such a piece could lie, those at the ends too. */
static int ask(struct fetch *f, struct flight *fl)
{
    uint32_t chunks = 0, i = 0;
    uint64_t most = fl->size / (FETCH_SPOT_SHARE * (uint64_t)(f->n_peers ? f->n_peers : 1));
    most = most < FETCH_SPOT_MIN ? FETCH_SPOT_MIN : u64_min(most, FETCH_SPOT_MAX);
    for (uint32_t k = 0; k < fl->n; k++) {
        chunks += sample_word(fl, k) != FETCH_NOBODY;
    }
    uint64_t k = rand_below(f, chunks);
    while (sample_word(fl, i) == FETCH_NOBODY || k-- > 0) {
        i++;
    }
    uint64_t len = storage_chunk_len(fl->size, i), at = rand_below(f, len + u64_min(most, len) - 1);
    uint64_t n = u64_min(most, len), from = at + 1 > n ? u64_min(at + 1 - n, len - n) : 0;
    fl->spot_chunk = i;
    fl->spot_n = (uint32_t)n;
    fl->spot_at = f->now;
    fl->spot_id = ++f->spot_id;
    return f->o.ops.origin_spot(f->o.ops.ctx, fl->spot_id, fl->key,
                                (uint64_t)i * STORAGE_CHUNK + from, fl->spot_n, fl->prio);
}

bool spot_look(struct fetch *f, struct flight *fl)
{
    uint32_t m = spot_due(f, fl);
    if (m == FETCH_NOBODY) {
        return false;
    }
    if (f->busy_until > f->now) {
        fl->held_since = f->now;
        f->look_at = u64_min(f->look_at, f->busy_until);
        return true;
    }
    if (fl->spot_id) {
        uint64_t end = fl->spot_at + FETCH_SAMPLE_NS;
        if (f->now < end && fl->spot_at > f->sample_trouble) {
            f->look_at = u64_min(f->look_at, end);
            return true;
        }
        fl->spot_id = 0;
        sample_failed(f);
    } else if (f->now < f->origin_after) {
        f->look_at = u64_min(f->look_at, f->origin_after);
        return true;
    } else if (!ask(f, fl)) {
        f->look_at = u64_min(f->look_at, f->now + FETCH_SAMPLE_NS);
        return true;
    } else {
        fl->spot_id = 0;
        sample_failed(f);
    }
    return false;
}

/* What the piece's owner said was false: nothing of it is kept, and only the origin counts. */
static void differs(struct fetch *f, struct flight *fl)
{
    uint32_t m = sample_word(fl, fl->spot_chunk);
    char name[FETCH_NAME];
    f->s.spots_false++;
    if (m == FETCH_NOBODY) {
        sample_drop(f, fl);
        return; /* it has been settled meanwhile */
    }
    struct record *r = fl->m[m].rec;
    fetch_log(f, "%s: a piece of what peer %s gave is not what the origin has",
              flight_name(f, fl, name, sizeof name), r->name);
    r->disbelieved |= fl->m[m].claimed >= BASIS_ORIGIN; /* else it has believed somebody itself */
    sample_throw_away(f, fl, m);
    member_lied(f, fl, m, "stated a digest of bytes that the origin denies");
    word_denied(f, fl, m, "stated a digest of bytes that the origin denies");
    if (fl->peers_only) {
        flight_end(f, fl, ERR_DIGEST, "what peer %s gave is not what the origin has", r->name);
    } else {
        fl->conflict = true;
        plan_want_origin(f, fl, "the origin denies what a member gave");
    }
}

void fetch_on_spot(struct fetch *f, uint64_t id, enum fetch_spot what, uint64_t retry_ms)
{
    struct flight *fl = NULL;
    fetch_enter(f);
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND && f->n_held && !fl; p--) {
        for (struct link *l = f->begun[p].next; l != &f->begun[p] && !fl; l = l->next) {
            fl = id && flight_of(l)->held && flight_of(l)->spot_id == id ? flight_of(l) : NULL;
        }
    }
    if (fl && what == FETCH_SPOT_FAILED) {
        fl->spot_id = 0;
        f->origin_after = u64_max(f->origin_after, f->now + retry_ms * FETCH_MS);
        sample_failed(f);
    } else if (fl) {
        fl->spot_id = 0;
        f->s.spots++;
        f->s.spot_bytes += fl->spot_n;
        f->sample_quiet = f->sample_trouble = 0;
        if (what == FETCH_SPOT_DIFFERS) {
            differs(f, fl);
        } else {
            fl->spot_done = true;
        }
    }
    f->dirty = true;
    fetch_leave(f);
}
