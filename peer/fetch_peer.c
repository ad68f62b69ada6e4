/* SPDX-License-Identifier: MIT
 * fetch_peer.c: peers as sources: what was measured of each, faults, strikes and bans, the record
 * that outlives a connection. */
#include "peer/fetch_int.h"

#include <stdlib.h>
#include <string.h>

void source_init(struct source *s, uint32_t slot, struct record *rec)
{
    memset(s, 0, sizeof *s);
    s->slot = slot;
    s->rec = rec;
    s->next_id = 1;
    link_init(&s->gets);
    rate_init(&s->rate);
}

struct rate *source_rate(struct source *s)
{
    return s->rec ? &s->rec->rate : &s->rate;
}

static struct latency *lat_of(struct source *s)
{
    return s->rec ? &s->rec->first : &s->lat;
}

uint64_t source_latency(const struct source *s)
{
    if (!s->rec) {
        return latency_get(&s->lat, FETCH_ORIGIN_LATENCY_NS);
    }
    return latency_get(&s->rec->first, s->rtt);
}

static uint64_t total(const struct source *s)
{
    return s->in_flight[0] + s->in_flight[1] + s->in_flight[2];
}

double source_rate_now(const struct fetch *f, struct source *s)
{
    double unknown = s->rec ? FETCH_RATE_UNKNOWN : FETCH_ORIGIN_RATE;
    if (!total(s)) {
        return rate_get(source_rate(s), unknown);
    }
    /* Twice the time that a chunk takes may be chance; what is longer says something. */
    uint64_t waited = f->now - u64_max(source_since(s), u64_min(f->held_up, f->now)),
             lat = s->first ? source_latency(s) : 0;
    waited = waited > lat ? (waited - lat) / 2 : 0;
    return rate_at_most(source_rate(s), unknown, u64_min(total(s), STORAGE_CHUNK), waited);
}

uint64_t source_queued(const struct source *s, enum fetch_prio p)
{
    uint64_t n = 0;
    for (int i = p; i < FETCH_PRIOS; i++) {
        n += s->in_flight[i];
    }
    return n;
}

void source_asked(struct fetch *f, struct source *s, enum fetch_prio p, uint64_t bytes)
{
    if (!total(s)) {
        s->busy_since = f->now;
        s->last_data = s->last_bytes = s->part = 0;
        s->first = true;
        s->late = false;
    }
    s->in_flight[p] += bytes;
}

void source_gave(struct fetch *f, struct source *s, uint64_t bytes)
{
    uint64_t dt = f->now - source_since(s);
    struct rate *r = source_rate(s);
    struct latency *l = lat_of(s);
    /* The very first chunk cannot be told apart from the latency; a pause of this thread says
     * nothing about a peer. */
    bool held = f->held_up > source_since(s) && dt > 2 * plan_hedge_ns(s);
    bool useless = held || (s->first && !l->known);
    if (s->first && !held) {
        uint64_t tx = rate_known(r) ? (uint64_t)((double)bytes / rate_get(r, 1) * 1e9) : 0;
        latency_add(l, dt > tx ? dt - tx : dt / 8);
        /* A connection that never has two chunks asked is still measured, without its latency. */
        uint64_t least = latency_least(l, 0);
        dt = u64_max(dt / 2, dt > least ? dt - least : 0);
    }
    if (!useless) {
        rate_add(r, bytes, dt);
    }
    if (s->rec && !held) {
        pct_add(&s->rec->gap, f->now - source_since(s));
        if (++s->rec->hedge_age >= 8) {
            s->rec->hedge = s->rec->hedge_age = 0;
        }
    }
    if (s->rec) {
        s->rec->seen = f->now;
    }
    s->first = false;
    s->late = false;
    s->last_data = s->last_bytes = f->now;
    s->part = 0;
    s->refused = 0;
    s->good++;
    if (s->rec && s->good >= FETCH_PROVEN) {
        s->rec->pause = 0;
        s->rec->tried = 0;
    }
}

static void remember_fault(struct source *s, const char *why)
{
    size_t n = strlen(why);
    n = n < FETCH_TEXT - 1 ? n : FETCH_TEXT - 1;
    memcpy(s->rec->last_fault, why, n);
    s->rec->last_fault[n] = 0;
}

void source_fault(struct fetch *f, struct source *s, const char *why)
{
    if (!s->rec) {
        return;
    }
    struct record *r = s->rec;
    s->good = 0;
    if (r->pause_until > f->now) {
        return; /* the same trouble again */
    }
    r->pause = r->pause ? u64_min(r->pause * 2, FETCH_PAUSE_MAX_NS) : FETCH_PAUSE_MIN_NS;
    r->pause_until = f->now + r->pause;
    remember_fault(s, why);
    fetch_log(f, "peer %s %s; it is not asked for %.0f s", r->name, why, (double)r->pause / 1e9);
}

static uint32_t strikes_in_force(const struct record *r, uint64_t now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_strikes; i++) {
        n += now - r->strike[i] < FETCH_STRIKE_NS;
    }
    return n;
}

static void ban(struct record *r, uint64_t until)
{
    r->bans++;
    r->banned_until = until;
    r->n_strikes = 0;
}

void source_strike(struct fetch *f, struct source *s, const char *why)
{
    struct record *r = s->rec;
    remember_fault(s, why);
    s->good = 0;
    /* The array holds FETCH_STRIKES; the oldest goes when it is full of old ones. */
    if (r->n_strikes == FETCH_STRIKES) {
        memmove(r->strike, r->strike + 1, (FETCH_STRIKES - 1) * sizeof r->strike[0]);
        r->n_strikes--;
    }
    r->strike[r->n_strikes++] = f->now;
    uint32_t n = strikes_in_force(r, f->now);
    if (r->banned_until > f->now) {
        return;
    }
    if (n < FETCH_STRIKES) {
        fetch_log(f, "peer %s %s (strike %u of %d)", r->name, why, n, FETCH_STRIKES);
        return;
    }
    uint64_t t = r->bans == 0 ? FETCH_BAN_1_NS : r->bans == 1 ? FETCH_BAN_2_NS : FETCH_BAN_3_NS;
    ban(r, f->now + t);
    fetch_log(f, "peer %s %s: strike %d, banned for %.0f minutes (shoal peers unban lifts it)",
              r->name, why, FETCH_STRIKES, (double)t / 60e9);
    source_drop_gets(f, s, true);
    if (f->o.ops.banned) {
        f->o.ops.banned(f->o.ops.ctx, s->slot, t, why);
    }
}

void member_lied(struct fetch *f, struct flight *fl, uint32_t m, const char *why)
{
    struct record *r = fl->m[m].rec;
    bool again = record_is_bad(r, fl->key);
    fl->m[m].excluded = true;
    fl->m[m].has_object = false;
    flight_void(f, fl, m);
    record_add_bad(r, fl->key, f->now);
    if (r->up && !again && fl->m[m].claimed < BASIS_ORIGIN) {
        source_fault(f, r->up, why); /* it may have believed somebody else: no strike for that */
    } else if (r->up && !again) {
        source_strike(f, r->up, why);
    }
}

void source_drop_gets(struct fetch *f, struct source *s, bool cancel)
{
    while (s->gets.next != &s->gets) {
        get_close(f, get_of_source(s->gets.next), cancel);
    }
    f->dirty = true;
}

void source_drop_plain(struct fetch *f, struct source *s)
{
    for (struct link *l = s->gets.next, *next; l != &s->gets; l = next) {
        next = l->next;
        if (!get_of_source(l)->relay) {
            get_close(f, get_of_source(l), true);
        }
    }
    f->dirty = true;
}

bool record_is_bad(const struct record *r, struct object_key k)
{
    for (uint32_t i = 0; i < r->n_bad; i++) {
        if (object_key_equal(r->bad[i].key, k)) {
            return true;
        }
    }
    return false;
}

void record_add_bad(struct record *r, struct object_key k, uint64_t now)
{
    if (record_is_bad(r, k)) {
        return;
    }
    if (r->n_bad == FETCH_BAD_MAX) {
        memmove(r->bad, r->bad + 1, (FETCH_BAD_MAX - 1) * sizeof r->bad[0]);
        r->n_bad--;
    }
    r->bad[r->n_bad].key = k;
    r->bad[r->n_bad++].at = now;
}

/* A copy that was bad may have been replaced after as long as a strike counts. */
static void forget_old_bad(struct record *r, uint64_t now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_bad; i++) {
        if (now - r->bad[i].at < FETCH_STRIKE_NS) {
            r->bad[n++] = r->bad[i];
        }
    }
    r->n_bad = n;
}

struct record *record_get(struct fetch *f, const uint8_t id[SHA256_SIZE], bool make)
{
    uint32_t at = FETCH_RECORDS_MAX;
    for (uint32_t i = 0; i < FETCH_RECORDS_MAX; i++) {
        struct record *r = f->rec[i];
        if (r && memcmp(r->id, id, SHA256_SIZE) == 0) {
            return r;
        }
        /* A free place, or else the one longest unseen; a ban is kept as long as it can be. */
        if (!r) {
            if (at == FETCH_RECORDS_MAX || f->rec[at]) {
                at = i;
            }
        } else if (!r->up && !r->users && (at == FETCH_RECORDS_MAX || f->rec[at])) {
            bool banned = r->banned_until > f->now;
            bool worse = at < FETCH_RECORDS_MAX && f->rec[at]->banned_until > f->now;
            if (at == FETCH_RECORDS_MAX || (worse && !banned) ||
                (worse == banned && r->seen < f->rec[at]->seen)) {
                at = i;
            }
        }
    }
    if (!make || at == FETCH_RECORDS_MAX) {
        return NULL;
    }
    struct record *r = calloc(1, sizeof *r);
    if (!r) {
        return NULL;
    }
    free(f->rec[at]);
    f->rec[at] = r;
    memcpy(r->id, id, SHA256_SIZE);
    rate_init(&r->rate);
    pct_init(&r->gap);
    r->seen = f->now;
    return r;
}

uint32_t flight_member(struct flight *fl, struct record *rec)
{
    for (uint32_t i = 0; i < fl->n_members; i++) {
        if (fl->m[i].rec == rec) {
            return i;
        }
    }
    if (fl->n_members == FETCH_MEMBERS_MAX) {
        return FETCH_NOBODY;
    }
    struct fmember *m = &fl->m[fl->n_members];
    memset(m, 0, sizeof *m);
    m->rec = rec;
    rec->users++;
    return fl->n_members++;
}

static void set_name(struct record *r, const char *name)
{
    size_t n = 0;
    /* A name comes from a peer: one line, no control characters. */
    for (; name && name[n] && n < FETCH_NAME - 1; n++) {
        r->name[n] = (unsigned char)name[n] < 32 || name[n] == 127 ? '?' : name[n];
    }
    if (n) {
        r->name[n] = 0;
    } else {
        char hex[2 * SHA256_SIZE + 1];
        sha256_hex(r->id, hex);
        memcpy(r->name, hex, 12);
        r->name[12] = 0;
    }
}

int fetch_on_peer_up(struct fetch *f, const uint8_t id[SHA256_SIZE], const char *name,
                     uint32_t *peer, struct err *e)
{
    fetch_enter(f);
    int code = 0;
    uint32_t slot = 0;
    while (slot < FETCH_PEERS_MAX && f->peer[slot]) {
        slot++;
    }
    struct record *r = record_get(f, id, true);
    struct source *s = NULL;
    if (!r) {
        code = err_set(e, ERR_NOMEM, "no memory for another peer");
    } else if (r->up) {
        code = err_set(e, ERR_BUSY, "peer %s is connected already", r->name);
    } else if (r->banned_until > f->now) {
        code = err_set(e, ERR_REFUSED, "peer %s is banned for another %.0f s: %s", r->name,
                       (double)(r->banned_until - f->now) / 1e9, r->last_fault);
    } else if (slot == FETCH_PEERS_MAX) {
        code = err_set(e, ERR_LIMIT, "%d peers are connected, no more are taken", FETCH_PEERS_MAX);
    } else if (!(s = malloc(sizeof *s))) {
        code = err_set(e, ERR_NOMEM, "no memory for another peer");
    }
    if (!code) {
        set_name(r, name);
        forget_old_bad(r, f->now);
        source_init(s, slot, r);
        r->up = s;
        r->seen = f->now;
        f->peer[slot] = s;
        f->n_peers++;
        f->slots = slot + 1 > f->slots ? slot + 1 : f->slots;
        *peer = slot;
        f->dirty = true;
    }
    fetch_leave(f);
    return code;
}

void fetch_on_peer_down(struct fetch *f, uint32_t peer, bool goodbye)
{
    if (peer >= FETCH_PEERS_MAX || !f->peer[peer]) {
        return;
    }
    fetch_enter(f);
    struct source *s = f->peer[peer];
    if (s->n_gets && !goodbye) {
        s->rec->losses++;
        source_fault(f, s, "was lost while chunks were on the way");
    }
    source_drop_gets(f, s, false);
    relay_peer_down(f, s);
    f->peer[peer] = NULL;
    f->n_peers--;
    while (f->slots && !f->peer[f->slots - 1]) {
        f->slots--;
    }
    s->rec->up = NULL;
    s->rec->seen = f->now;
    have_free(&s->have);
    free(s);
    f->origin_at = 0;
    f->dirty = true;
    fetch_leave(f);
}

void fetch_on_rtt(struct fetch *f, uint32_t peer, uint64_t ns)
{
    if (peer < FETCH_PEERS_MAX && f->peer[peer]) {
        struct source *s = f->peer[peer];
        s->rtt = s->rtt ? (s->rtt * 7 + ns) / 8 : ns;
    }
}

uint64_t fetch_banned_ns(const struct fetch *f, const uint8_t id[SHA256_SIZE])
{
    uint64_t now = f->o.ops.now(f->o.ops.ctx);
    for (uint32_t i = 0; i < FETCH_RECORDS_MAX; i++) {
        if (f->rec[i] && memcmp(f->rec[i]->id, id, SHA256_SIZE) == 0) {
            return f->rec[i]->banned_until > now ? f->rec[i]->banned_until - now : 0;
        }
    }
    return 0;
}

int fetch_unban(struct fetch *f, const uint8_t id[SHA256_SIZE])
{
    fetch_enter(f);
    struct record *r = record_get(f, id, false);
    int code = r && r->banned_until > f->now ? 0 : ERR_NOTFOUND;
    if (!code) {
        r->banned_until = 0;
        r->n_strikes = 0;
        r->bans = 0;
        r->pause = r->pause_until = 0;
        r->n_bad = 0;
        f->dirty = true;
    }
    fetch_leave(f);
    return code;
}

int fetch_ban(struct fetch *f, const uint8_t id[SHA256_SIZE], const char *name, uint64_t ns)
{
    fetch_enter(f);
    struct record *r = record_get(f, id, true);
    int code = r ? 0 : ERR_NOMEM;
    if (r) {
        if (!r->name[0]) {
            set_name(r, name);
        }
        ban(r, f->now + ns);
        if (r->up) {
            source_drop_gets(f, r->up, true);
        }
    }
    fetch_leave(f);
    return code;
}
