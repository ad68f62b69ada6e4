/* SPDX-License-Identifier: MIT
 * fetch_relay.c: leases: one member goes to the origin for all. Who it is, asking it, and passing
 * the lease on when it brings nothing. The rules, and why they make no circle, are in
 * peer/README.md. */
#include "peer/fetch_int.h"

#include <string.h>

#define SECOND FETCH_S
#define AGAIN_MS 200 /* a refusal that is about a moment */
#define JITTER_NS (200 * FETCH_MS)
#define SOON_NS (500 * FETCH_MS) /* what comes by then is as good as there */

/* ---- rooms ---- */

bool room_has(const struct fetch *f, const struct flight *fl, enum room r)
{
    static const uint32_t most[ROOMS] = {FETCH_BEGUN_MAX, FETCH_OTHERS_MAX, FETCH_BEGUN_MAX,
                                         FETCH_OTHERS_LEASE_MAX};
    bool demand = fl->prio == FETCH_DEMAND;
    uint64_t max = demand ? f->o.max_bytes * 2 : f->o.max_bytes;
    uint32_t n = demand ? most[r] : most[r] - most[r] / 8;
    return !f->room[r].n || (f->room[r].bytes + fl->size <= max && f->room[r].n < n);
}

void room_take(struct fetch *f, struct flight *fl, enum room r)
{
    fl->room = r;
    f->room[r].n++;
    f->room[r].bytes += fl->size;
}

void room_leave(struct fetch *f, struct flight *fl)
{
    f->room[fl->room].n--;
    f->room[fl->room].bytes -= fl->size;
}

static void room_move(struct fetch *f, struct flight *fl, enum room r)
{
    room_leave(f, fl);
    room_take(f, fl, r);
}

/* ---- who ---- */

static struct taken *taken_find(const struct fetch *f, struct object_key k)
{
    for (uint32_t i = 0; i < f->n_taken; i++) {
        if (object_key_equal(f->taken[i].key, k)) {
            return (struct taken *)&f->taken[i];
        }
    }
    return NULL;
}

static void taken_set(struct fetch *f, struct object_key k, struct source *s)
{
    struct taken *t = taken_find(f, k);
    for (uint32_t i = 0; i < f->n_taken && !t; i++) {
        t = f->taken[i].until <= f->now ? &f->taken[i] : NULL;
    }
    if (!t && f->n_taken < FETCH_TAKEN_MAX) {
        t = &f->taken[f->n_taken++];
    }
    for (uint32_t i = 0; i < f->n_taken && !t; i++) { /* full: the oldest makes room */
        t = !t || f->taken[i].until < t->until ? &f->taken[i] : t;
    }
    if (t) {
        *t = (struct taken){k, s, f->now + FETCH_LEASE_TAKEN_NS};
    }
}

static bool before_me(const struct fetch *f, const struct source *s, struct object_key k)
{
    return order_before(order_score_of(&s->seed, k), s->rec->id, order_score_of(&f->seed, k),
                        f->o.self);
}

static struct fmember *member_of(const struct flight *fl, const struct source *s)
{
    for (uint32_t i = 0; i < fl->n_members; i++) {
        if (fl->m[i].rec == s->rec) {
            return &fl->m[i];
        }
    }
    return NULL;
}

/* The lease that the object has goes on. */
static bool keeps(const struct fetch *f, const struct flight *fl)
{
    const struct source *s = fl->via;
    const struct fmember *m = member_of(fl, s);
    return s->leases && s->rec->banned_until <= f->now && !fl->conflict && !fl->peers_only &&
           !fl->own && !s->rec->disbelieved && !(m && (m->excluded || m->no_lease));
}

/* May this member be asked for the object by lease, now? */
static bool able(const struct fetch *f, const struct flight *fl, const struct source *s)
{
    const struct fmember *m = member_of(fl, s);
    return s->leases && s->works && !s->rec->disbelieved && s->rec->banned_until <= f->now &&
           s->rec->lease_pause <= f->now && !have_test(&s->have, fl->key) &&
           !record_is_bad(s->rec, fl->key) &&
           (m ? !m->excluded && !m->no_lease : fl->n_members < FETCH_MEMBERS_MAX);
}

struct pick {
    struct source *via;
    bool self, out; /* out: not the first in the order */
    uint64_t not_before;
};

static struct pick choose(const struct fetch *f, const struct flight *fl)
{
    struct pick p = {NULL, plan_origin_usable(f, fl), false, 0};
    if (!f->o.leases || !f->o.ops.origin_get || fl->conflict || fl->peers_only ||
        f->busy_until > f->now) {
        return p; /* without any origin (--offline) nothing is downloaded on its behalf either */
    }
    if (fl->own) {
        p.out = f->n_peers > 0;
        return p;
    }
    const struct taken *t = taken_find(f, fl->key);
    if (t && t->until > f->now) {
        if (able(f, fl, t->by)) {
            return (struct pick){t->by, false, false, 0};
        }
        p.out = true;
    }
    uint64_t best = 0, paused_at = 0, before = 0;
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (!s || !s->leases || !s->works || (p.self && !before_me(f, s, fl->key))) {
            continue;
        }
        if (!able(f, fl, s)) {
            p.out |= !have_test(&s->have, fl->key);
            if (s->rec->lease_pause > f->now && before_me(f, s, fl->key)) {
                paused_at = u64_max(paused_at, s->rec->lease_paused_at);
                before++;
            }
            continue;
        }
        uint64_t score = order_score_of(&s->seed, fl->key);
        if (!p.via || order_before(score, s->rec->id, best, p.via->rec->id)) {
            p.via = s;
            best = score;
        }
    }
    p.self = p.self && !p.via;
    p.not_before = paused_at + before * FETCH_LEASE_YIELD_NS;
    return p;
}

bool relay_outside(const struct fetch *f, const struct flight *fl)
{
    return fl->how == HOW_LEASE || plan_origin_usable(f, fl) || choose(f, fl).via;
}

bool relay_foreign(const struct fetch *f, const struct flight *fl)
{
    return fl->how == HOW_LEASE || (fl->how == HOW_OPEN && choose(f, fl).via);
}

/* ---- saying that this node fetches it ---- */

static uint32_t chunks_here(const struct flight *fl)
{
    return fl && fl->begun ? fl->n - fl->left_chunks : 0;
}

void relay_say(struct fetch *f)
{
    uint32_t chunks[WIRE_TAKE_MAX];
    for (uint32_t i = 0; i < f->n_take; i++) {
        chunks[i] = chunks_here(fetch_find(f, f->take[i]));
    }
    for (uint32_t i = 0; i < f->slots && f->n_take; i++) {
        if (f->peer[i] && f->peer[i]->leases) {
            f->o.ops.send_take(f->o.ops.ctx, i, f->take, chunks, f->n_take);
        }
    }
    f->n_take = 0;
}

static void take(struct fetch *f, struct flight *fl)
{
    if (f->n_take == WIRE_TAKE_MAX) {
        relay_say(f);
    }
    f->s.takes += fl->take_at == 0;
    fl->take_at = f->now + FETCH_LEASE_TAKEN_NS / 2;
    f->take[f->n_take++] = fl->key;
}

/* A peer that comes up is told what is being fetched here, whatever the order. */
static void say_all(struct fetch *f, uint32_t peer)
{
    struct object_key k[WIRE_TAKE_MAX];
    uint32_t chunks[WIRE_TAKE_MAX], n = 0;
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next; l != &f->begun[p] && n < WIRE_TAKE_MAX;
             l = l->next) {
            if (flight_of(l)->how == HOW_SELF) {
                chunks[n] = chunks_here(flight_of(l));
                k[n++] = flight_of(l)->key;
            }
        }
    }
    if (n) {
        f->o.ops.send_take(f->o.ops.ctx, peer, k, chunks, n);
    }
}

/* ---- an object's way ---- */

void relay_leave(struct fetch *f, struct flight *fl)
{
    if (fl->how == HOW_OPEN) {
        return;
    }
    for (struct link *l = fl->gets.next, *next; l != &fl->gets; l = next) {
        next = l->next;
        if (get_outside(get_of_flight(l))) {
            get_close(f, get_of_flight(l), true);
        }
    }
    if (fl->how == HOW_LEASE) {
        f->n_leases--;
        room_move(f, fl, fl->others ? ROOM_OTHERS : ROOM_OWN);
    }
    fl->how = HOW_OPEN;
    fl->via = NULL;
    fl->take_at = 0;
    f->dirty = true;
}

static void lease(struct fetch *f, struct flight *fl, struct source *s)
{
    fl->how = HOW_LEASE;
    fl->via = s;
    fl->via_since = f->now;
    fl->lease_retry = 0;
    f->n_leases++;
    f->s.leases++;
    enum room r = fl->others ? ROOM_OTHERS_LEASE : ROOM_OWN_LEASE;
    room_move(f, fl, fl->others || room_has(f, fl, r) ? r : ROOM_OWN);
    /* Waiting goes up the order. One that goes down may not have others waiting behind it. */
    if (!before_me(f, s, fl->key)) {
        f->o.ops.lease_end(f->o.ops.ctx, fl->key, AGAIN_MS);
    }
}

bool relay_settle(struct fetch *f, struct flight *fl)
{
    bool usable = plan_origin_usable(f, fl);
    if ((fl->how == HOW_SELF && usable) || (fl->how == HOW_LEASE && keeps(f, fl))) {
        return true;
    }
    if (fl->how == HOW_LEASE) {
        relay_leave(f, fl);
    }
    struct pick p = choose(f, fl);
    if (p.via && fl->others && !room_has(f, fl, ROOM_OTHERS_LEASE)) {
        p = (struct pick){NULL, usable, true, 0};
    }
    if (p.via) {
        relay_leave(f, fl);
        lease(f, fl, p.via);
        return true;
    }
    if (p.self && p.not_before > f->now) {
        f->look_at = u64_min(f->look_at, p.not_before);
        return false;
    }
    if (p.self) {
        fl->how = HOW_SELF;
        if (p.out) {
            take(f, fl);
        }
    }
    return p.self;
}

/* Somebody else, or this node, is to do it. */
static void pass_on(struct fetch *f, struct flight *fl)
{
    struct fmember *m = member_of(fl, fl->via);
    uint32_t made = m ? 0 : flight_member(fl, fl->via->rec);
    m = m ? m : made == FETCH_NOBODY ? NULL : &fl->m[made];
    if (m) {
        m->no_lease = true;
    }
    f->s.passed_on++;
    relay_leave(f, fl);
}

void relay_gets(struct fetch *f, struct flight *fl)
{
    struct source *s = fl->via;
    uint64_t at = u64_max(fl->lease_retry, s->not_before);
    uint32_t most =
        FETCH_LEASE_GETS_MAX - (fl->prio == FETCH_DEMAND ? 0 : FETCH_LEASE_GETS_MAX / 4);
    if (f->now < at) {
        f->look_at = u64_min(f->look_at, at);
    } else if (s->n_relays < most && s->n_relays + s->n_gets < FETCH_GETS_MAX) {
        plan_outside_gets(f, fl, s, FETCH_LEASE_GETS);
    }
}

void relay_asked(struct fetch *f, struct source *s)
{
    if (!s->n_relays) {
        s->window_at = f->now;
        s->window_bytes = 0;
        s->slow_once = false;
    }
}

/* A pause for silence ends before its time, but for who is silent again and again: that one may
 * only say so. */
void relay_alive(struct fetch *f, struct source *s)
{
    struct record *r = s->rec;
    if (r->lease_pause > f->now && r->lease_paused == FETCH_LEASE_PAUSE_NS) {
        r->lease_pause = f->now;
        f->dirty = true;
    }
}

void relay_gave(struct fetch *f, struct source *s, uint64_t n)
{
    s->lease_byte = s->rec->seen = f->now;
    s->rec->lease_paused = 0;
    s->window_bytes += n;
    s->refused = 0;
    f->s.lease_bytes += n;
}

void relay_refused(struct fetch *f, struct get *g, uint32_t reason, uint32_t retry_ms)
{
    struct flight *fl = g->fl;
    struct source *s = g->s;
    bool moment = retry_ms && reason != FETCH_REFUSE_NOT_HELD && reason != FETCH_REFUSE_DAMAGED;
    s->rec->refusals++;
    get_close(f, g, false);
    if (fl->how != HOW_LEASE || fl->via != s) {
        return;
    }
    if (moment) {
        uint64_t wait = (uint64_t)retry_ms * FETCH_MS;
        fl->lease_retry = f->now + u64_min(wait, FETCH_LEASE_NS / 4);
        f->look_at = u64_min(f->look_at, fl->lease_retry);
    } else {
        pass_on(f, fl);
    }
}

/* ---- what time brings ---- */

static uint64_t flow(const struct fetch *f)
{
    uint64_t age = f->now - f->flow_at;
    if (age >= 2 * SECOND) {
        return 0;
    }
    if (age >= SECOND) {
        return (uint64_t)((double)f->flow_now * 1e9 / (double)age);
    }
    return (uint64_t)((double)(f->flow_now + f->flow_before) * 1e9 / (double)(age + SECOND));
}

void relay_flow(struct fetch *f, uint64_t n)
{
    uint64_t age = f->now - f->flow_at;
    if (age >= SECOND) {
        f->flow_before = age < 2 * SECOND ? f->flow_now : 0;
        f->flow_now = 0;
        f->flow_at = f->now;
    }
    f->flow_now += n;
}

static bool claims(const struct fetch *f, const struct source *s)
{
    return s->flow && f->now - s->flow_at < FETCH_LEASE_NS;
}

/* Below half of what this node would get as one of those who are fetching. */
static bool slow(const struct fetch *f, const struct source *s)
{
    uint32_t busy = flow(f) > 0;
    for (uint32_t i = 0; i < f->slots; i++) {
        busy += f->peer[i] && f->peer[i]->leases && (f->peer[i] == s || claims(f, f->peer[i]));
    }
    double got = (double)s->window_bytes * 1e9 / (double)(f->now - s->window_at);
    double said = claims(f, s) ? (double)s->flow : 0;
    return rate_known(&f->origin.rate) &&
           (got > said ? got : said) * FETCH_LEASE_SLOW * busy < plan_origin_rate(f);
}

/* One that stood still in the middle of a stretch is not slow, nor is one that gives nothing at all
 * (that is silence): slow is who gives too little in this one and a shorter one behind it. */
static void sources(struct fetch *f)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (!s || !s->n_relays ||
            f->now - s->window_at < (s->slow_once ? FETCH_LEASE_NS / 2 : FETCH_LEASE_NS)) {
            continue;
        }
        bool is = s->window_bytes && s->window_at > f->stood_still && slow(f, s);
        bool again = is && s->slow_once;
        s->slow_once = is && !again;
        if (again) {
            s->rec->lease_pause = f->now + FETCH_LEASE_SLOW_NS;
            s->rec->lease_paused_at = f->now;
            fetch_log(f, "peer %s: what it fetches from the origin for this node comes too slowly",
                      s->rec->name);
        }
        s->window_at = f->now;
        s->window_bytes = 0;
    }
}

static void look_at_lease(struct fetch *f, struct flight *fl)
{
    struct source *s = fl->via;
    struct record *r = s->rec;
    if (f->busy_until > f->now) { /* nobody may fetch */
        fl->via_since = f->now;
        return;
    }
    if (r->lease_pause > f->now) { /* another of its leases has failed just now */
        pass_on(f, fl);
        return;
    }
    uint64_t sign = u64_max(f->stood_still, u64_max(fl->via_since, s->lease_byte));
    if (claims(f, s)) {
        sign = u64_max(sign, u64_min(s->flow_at, sign + FETCH_LEASE_CLAIM_NS));
    }
    if (f->now - sign >= FETCH_LEASE_NS) {
        uint64_t twice = 2 * r->lease_paused;
        r->lease_paused = u64_min(u64_max(twice, FETCH_LEASE_PAUSE_NS), FETCH_LEASE_PAUSE_MAX_NS);
        r->lease_pause = f->now + r->lease_paused;
        r->lease_paused_at = f->now;
        fetch_log(f,
                  "peer %s: nothing of what it fetches from the origin for this node came for "
                  "%.1f s",
                  r->name, (double)(f->now - sign) / 1e9);
        pass_on(f, fl);
    }
}

void relay_timers(struct fetch *f)
{
    if (!f->o.leases) {
        return;
    }
    sources(f);
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
            struct flight *fl = flight_of(l);
            if (fl->how == HOW_LEASE) {
                look_at_lease(f, fl);
            } else if (fl->how == HOW_SELF && fl->take_at && f->now >= fl->take_at) {
                take(f, fl);
            }
        }
    }
}

/* ---- from the layer below ---- */

void relay_peer_down(struct fetch *f, struct source *s)
{
    for (int p = 0; p < FETCH_PRIOS; p++) {
        for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
            if (flight_of(l)->via == s) {
                relay_leave(f, flight_of(l));
            }
        }
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_taken; i++) {
        if (f->taken[i].by != s) {
            f->taken[n++] = f->taken[i];
        }
    }
    f->n_taken = n;
}

void fetch_origin_busy(struct fetch *f, uint64_t ms)
{
    static const struct object_key first = {0, 0, 0};
    uint64_t rank = 0;
    fetch_enter(f);
    ms = ms < WIRE_BUSY_MS_MAX ? ms : WIRE_BUSY_MS_MAX;
    f->busy_until = u64_max(f->busy_until, f->now + ms * FETCH_MS);
    for (uint32_t i = 0; i < f->slots; i++) {
        rank += f->peer[i] && f->peer[i]->leases && before_me(f, f->peer[i], first);
    }
    /* They begin again one after the other. */
    f->origin_after = u64_max(f->origin_after, f->busy_until + rank * JITTER_NS);
    f->look_at = u64_min(f->look_at, f->origin_after);
    f->dirty = true;
    fetch_leave(f);
}

void fetch_on_origin_state(struct fetch *f, uint32_t peer, bool works, uint64_t busy_ms,
                           uint64_t bytes_s)
{
    struct source *s = fetch_peer(f, peer);
    if (!s || !f->o.leases) {
        return;
    }
    fetch_enter(f);
    if (!s->leases) {
        s->leases = true;
        order_seed(&s->seed, f->o.root, s->rec->id);
        relay_alive(f, s);
        say_all(f, peer);
    }
    f->dirty |= s->works != works;
    s->works = works;
    s->flow = bytes_s;
    s->flow_at = f->now;
    if (bytes_s) {
        relay_alive(f, s);
    }
    /* One that cries wolf stops the others for half of the time at most. */
    if (busy_ms && f->now >= s->busy_next) {
        busy_ms = busy_ms < WIRE_BUSY_MS_MAX ? busy_ms : WIRE_BUSY_MS_MAX;
        s->busy_next = f->now + 2 * busy_ms * FETCH_MS;
        fetch_origin_busy(f, busy_ms);
        if (f->o.ops.origin_busy) {
            f->o.ops.origin_busy(f->o.ops.ctx, busy_ms);
        }
    }
    fetch_leave(f);
}

void fetch_origin_state(const struct fetch *f, bool *works, uint64_t *busy_ms, uint64_t *bytes_s)
{
    uint64_t now = u64_max(f->now, f->o.ops.now(f->o.ops.ctx));
    *works = f->origin_up && (now >= f->origin_after || f->busy_until > now);
    *busy_ms = f->busy_until > now ? (f->busy_until - now) / FETCH_MS + 1 : 0;
    *bytes_s = now - f->flow_at < 2 * SECOND ? flow(f) : 0;
}

uint32_t fetch_on_ask(struct fetch *f, uint32_t peer, struct object_key k, uint32_t *retry_ms)
{
    struct source *s = fetch_peer(f, peer);
    *retry_ms = 0;
    if (!s || !s->leases || !f->o.leases) {
        return FETCH_REFUSE_ORIGIN;
    }
    fetch_enter(f);
    struct flight *fl = fetch_find(f, k);
    uint32_t no = 0;
    if (!f->origin_up || f->now < f->origin_after || (fl && fl->origin_failed)) {
        no = FETCH_REFUSE_ORIGIN;
        *retry_ms = f->busy_until > f->now ? AGAIN_MS : 0;
    } else if (fl && fl->how == HOW_LEASE && !before_me(f, fl->via, k)) {
        if (fl->via == s) { /* each waits for the other: the first of the two does it */
            pass_on(f, fl);
        } else {
            no = FETCH_REFUSE_ORIGIN;
            *retry_ms = AGAIN_MS;
        }
    } else if (fl && fl->how == HOW_LEASE && fl->via == s) {
        no = FETCH_REFUSE_ORIGIN;
        *retry_ms = AGAIN_MS;
    }
    if (!no && fl) {
        flight_asked(f, fl);
    }
    fetch_leave(f);
    return no;
}

/* The last chunk is as good as there, if what the origin is asked for here comes at a rate. */
static bool worth_stopping(const struct fetch *f, const struct flight *fl)
{
    double queued = (double)source_queued(&f->origin, FETCH_BACKGROUND);
    return !fl->conflict &&
           (fl->left_chunks > 1 || queued * 1e9 >= (double)flow(f) * (double)SOON_NS);
}

/* What a member has is not fetched to its end: two halves of the house have met again. Once for an
 * object; if nothing comes of it the origin is asked when patience ends. */
void relay_have(struct fetch *f, struct source *s)
{
    if (!f->o.leases || !s->leases) {
        return;
    }
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
            struct flight *fl = flight_of(l);
            if (fl->how == HOW_SELF && !fl->stood_aside && !fl->own && worth_stopping(f, fl) &&
                have_test(&s->have, fl->key) && plan_candidate(f, fl, s)) {
                relay_leave(f, fl);
                fl->stood_aside = true;
                fl->origin_wanted = false;
                fl->patient_from = f->now;
            }
        }
    }
}

/* Two fetch the same: who has less of it stops; of equals who did not say so, for the other one has
 * reasons. */
static bool keeps_on(const struct flight *fl, uint32_t theirs)
{
    return fl->how == HOW_SELF && chunks_here(fl) > theirs;
}

void fetch_on_take(struct fetch *f, uint32_t peer, const struct object_key *k,
                   const uint32_t *chunks, uint32_t n)
{
    struct source *s = fetch_peer(f, peer);
    if (!s || !s->leases || !f->o.leases) {
        return;
    }
    fetch_enter(f);
    relay_alive(f, s);
    for (uint32_t i = 0; i < n; i++) {
        struct flight *fl = fetch_find(f, k[i]);
        if (fl && !fl->conflict && keeps_on(fl, chunks ? chunks[i] : 0)) {
            take(f, fl); /* so that the other one stops */
            continue;
        }
        taken_set(f, k[i], s);
        struct fmember *m = fl ? member_of(fl, s) : NULL;
        if (m && s->rec->lease_pause <= f->now) {
            m->no_lease = false; /* it is at it again */
        }
        if (fl && fl->how != HOW_OPEN && fl->via != s && worth_stopping(f, fl) && able(f, fl, s)) {
            relay_leave(f, fl);
        }
    }
    f->dirty = true;
    fetch_leave(f);
}
