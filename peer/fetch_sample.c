/* SPDX-License-Identifier: MIT
 * fetch_sample.c: objects that rest on the word of one member alone, while an origin answers. They
 * are held, whole but not handed over, until chunks of some of them have been compared with the
 * origin: the first ones of each kind that came by that member's word. What is held and right is
 * handed over; one that differs ends the member's word, and all that is held on it is thrown away
 * and fetched again. Of what comes by its word later a piece of each object is compared
 * (fetch_spot.c). The rules are in peer/README.md. */
#include "peer/fetch_int.h"

#define NOT_ANSWERING_NS (60 * FETCH_S) /* then it is tried again */

static uint32_t kind_of(const struct flight *fl)
{
    return fl->key.kind ? 1 : 0;
}

/* Of a digest that only the storage knows: who gave the bytes. */
uint32_t sample_word(const struct flight *fl, uint32_t i)
{
    const struct fchunk *c = &fl->c[i];
    if (c->basis != BASIS_ONE_MEMBER) {
        return FETCH_NOBODY;
    }
    return c->member != FETCH_NOBODY ? c->member : c->by;
}

/* A member on whose word alone the object rests, and of whose words too few have been compared;
 * FETCH_NOBODY: there is none. *chunks: how many rest on it. */
static uint32_t unproven(const struct fetch *f, const struct flight *fl, uint32_t *chunks)
{
    uint32_t m = FETCH_NOBODY;
    *chunks = 0;
    for (uint32_t i = 0; i < fl->n; i++) {
        uint32_t w = sample_word(fl, i);
        if (w != FETCH_NOBODY && m == FETCH_NOBODY &&
            fl->m[w].rec->agreed[kind_of(fl)] < f->o.samples) {
            m = w;
        }
        *chunks += w != FETCH_NOBODY && w == m;
    }
    return m;
}

static bool answers(const struct fetch *f)
{
    return f->busy_until > f->now || (f->origin_up && f->now >= f->sample_quiet);
}

static void hold_end(struct fetch *f, struct flight *fl)
{
    if (fl->held) {
        fl->held = false;
        f->n_held--;
        f->dirty = true;
    }
}

void sample_uncompared(struct fetch *f, struct record *r)
{
    f->s.uncompared++;
    if (!r->said_uncompared) {
        r->said_uncompared = true;
        fetch_log(f,
                  "what peer %s gives is used on its word alone: nobody else has stated it and the "
                  "origin does not answer",
                  r->name);
    }
}

bool sample_holds(struct fetch *f, struct flight *fl)
{
    uint32_t chunks, m = f->o.samples ? unproven(f, fl, &chunks) : FETCH_NOBODY;
    if (m == FETCH_NOBODY) {
        m = spot_due(f, fl);
    }
    if (m == FETCH_NOBODY) {
        return false;
    }
    if (!answers(f) || fl->origin_failed) {
        sample_uncompared(f, fl->m[m].rec);
        return false;
    }
    if (!fl->held) {
        relay_leave(f, fl);
        while (fl->gets.next != &fl->gets) {
            get_close(f, get_of_flight(fl->gets.next), true);
        }
        fl->held = true;
        fl->held_since = f->now;
        f->n_held++;
        f->dirty = true;
    }
    return true;
}

void sample_drop(struct fetch *f, struct flight *fl)
{
    hold_end(f, fl);
}

void sample_throw_away(struct fetch *f, struct flight *fl, uint32_t m)
{
    for (uint32_t i = 0; i < fl->n; i++) {
        if (sample_word(fl, i) == m) {
            flight_undo(f, fl, i);
            fl->c[i].basis = BASIS_NONE;
            fl->c[i].member = FETCH_NOBODY;
        }
    }
    fl->m[m].excluded = true;
    fl->m[m].has_object = false;
    hold_end(f, fl);
}

static uint32_t rand_below(struct fetch *f, uint32_t n)
{
    f->random ^= f->random << 13; /* xorshift64 */
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (uint32_t)((f->random >> 32) * n >> 32);
}

static bool large(const struct fetch *f, const struct flight *fl)
{
    return fl->size > f->o.sample_bytes || fl->n > FETCH_RUN_MAX;
}

/* The whole object, if it is not large; else one chunk of what rests on m. */
static void ask(struct fetch *f, struct flight *fl, uint32_t m, uint32_t chunks)
{
    uint32_t k = rand_below(f, chunks), i = 0, n = fl->n;
    if (large(f, fl)) {
        while (sample_word(fl, i) != m || k-- > 0) {
            i++;
        }
        n = 1;
    }
    if (!get_send(f, fl, &f->origin, i, n, GET_PLAIN)) {
        struct get *g = get_of_flight(fl->gets.prev);
        g->sample = fl->m[m].rec;
        g->sample->sampling[kind_of(fl)]++;
        f->look_at = u64_min(f->look_at, f->now + FETCH_SAMPLE_NS);
    }
}

/* Smaller ones, of which a sample costs less, may be through soon: some are asked for. */
static bool smaller_comes(struct fetch *f, struct flight *fl)
{
    if (!large(f, fl) || !f->o.ops.want_small || f->now - fl->held_since >= FETCH_SAMPLE_WAIT_NS) {
        return false;
    }
    if (!fl->asked_small) {
        fl->asked_small = true;
        /* what nobody waits for comes in an order of its own, small ones too */
        fl->small_comes = fl->prio < FETCH_DEMAND || f->o.ops.want_small(f->o.ops.ctx, fl->key);
    }
    return fl->small_comes;
}

static void look(struct fetch *f, struct flight *fl)
{
    uint32_t chunks, m = unproven(f, fl, &chunks);
    struct record *r = m == FETCH_NOBODY ? NULL : fl->m[m].rec;
    if (r && r->disbelieved) {
        sample_throw_away(f, fl, m);
        return;
    }
    if (r && f->busy_until > f->now) {
        fl->held_since = f->now;
        f->look_at = u64_min(f->look_at, f->busy_until);
        return;
    }
    if (r && fl->gets.next != &fl->gets) { /* its sample is under way */
        uint64_t end = get_of_flight(fl->gets.next)->last + FETCH_SAMPLE_NS;
        if (f->now < end && get_of_flight(fl->gets.next)->sent > f->sample_trouble) {
            f->look_at = u64_min(f->look_at, end);
            return;
        }
        get_close(f, get_of_flight(fl->gets.next), true);
        f->sample_quiet = f->now + NOT_ANSWERING_NS;
    }
    if (!r && answers(f) && !fl->origin_failed && spot_look(f, fl)) {
        return;
    }
    if (!r || !answers(f) || fl->origin_failed) {
        hold_end(f, fl);
        flight_complete(f, fl);
        return;
    }
    if (f->now < f->origin_after) {
        f->look_at = u64_min(f->look_at, f->origin_after);
    } else if (r->sampling[kind_of(fl)] + r->agreed[kind_of(fl)] < f->o.samples) {
        if (smaller_comes(f, fl)) {
            f->look_at = u64_min(f->look_at, fl->held_since + FETCH_SAMPLE_WAIT_NS);
        } else {
            ask(f, fl, m, chunks);
        }
    }
}

void sample_run(struct fetch *f)
{
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND && f->n_held; p--) {
        for (struct link *l = f->begun[p].next, *next; l != &f->begun[p]; l = next) {
            struct flight *fl = flight_of(l);
            next = l->next;
            if (fl->held) {
                look(f, fl);
            }
        }
    }
}

void sample_came(struct fetch *f, struct get *g, uint32_t chunk, bool same, size_t n)
{
    struct flight *fl = g->fl;
    struct record *r = g->sample;
    f->s.sample_bytes += n;
    f->sample_quiet = f->sample_trouble = 0;
    if (same) {
        bool last = g->open == 1ull << (chunk - g->first);
        f->s.samples += last && fl->held;
        r->agreed[kind_of(fl)] += last && fl->held;
        g->fl->spot_done = true;
        return;
    }
    if (!fl->held) {
        return; /* found out already: the rest of it comes as from the origin */
    }
    f->s.samples++;
    f->s.samples_false++;
    for (uint32_t m = 0; m < fl->n_members; m++) {
        /* who says that it downloaded it itself is the one to blame */
        if (fl->m[m].rec == r && fl->m[m].claimed >= BASIS_ORIGIN) {
            r->disbelieved = true;
        }
    }
    hold_end(f, fl);
}

void sample_over(struct fetch *f, struct get *g)
{
    g->sample->sampling[kind_of(g->fl)]--;
    f->dirty = true;
}

void sample_failed(struct fetch *f)
{
    if (f->busy_until <= f->now) {
        f->sample_quiet = f->now + NOT_ANSWERING_NS;
    }
}
