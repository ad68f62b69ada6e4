/* SPDX-License-Identifier: MIT
 * fetch_int.h: private to peer/fetch*.c (and to its test, which checks the invariants below).
 *
 *   fetch.c       wants; entering and leaving the engine
 *   fetch_flight.c  an object's life
 *   fetch_plan.c  which source is asked for which chunks; hedges
 *   fetch_origin.c  when the origin takes part; members that contradict each other
 *   fetch_time.c  late and dead peers, lines about objects without bytes
 *   fetch_get.c   Gets
 *   fetch_in.c    what comes from peers and the origin
 *   fetch_relay.c leases: the origin by way of another member
 *   fetch_sample.c what rests on one member's word alone, compared with the origin
 *   fetch_spot.c  a piece of each object that does
 *   fetch_peer.c  peers: connection, records by node id, strikes and bans, rates
 *   fetch_have.c  sets of what a peer has
 *   fetch_stats.c numbers and sentences for people
 *
 * A lease is the origin by way of another member: its Gets count as the origin's, not as the
 * peer's.
 *
 * Invariants after every call: a chunk's `asks` is the number of open Gets of peers (but leases)
 * whose `open` has its bit, `origin` is set when one of the origin or of a lease has it; `unasked`
 * is the number of chunks neither done nor asked of a peer; `left` is the bytes of chunks not done;
 * a source's in_flight[p] is the bytes of the open chunks of its Gets (but leases) of priority p;
 * f->begun_bytes the sizes of the objects begun, f->room[] the same by class. */
#ifndef SHOAL_PEER_FETCH_INT_H
#define SHOAL_PEER_FETCH_INT_H

#include "peer/fetch.h"
#include "peer/order.h"
#include "peer/rate.h"

#define FETCH_NEVER UINT64_MAX
#define FETCH_ORIGIN UINT32_MAX /* slot number of the origin */
#define FETCH_NOBODY 0xff       /* no member */
#define FETCH_RECORDS_MAX (2 * FETCH_PEERS_MAX)
#define FETCH_BAD_MAX 64 /* bad copies remembered per node */

struct link {
    struct link *next, *prev;
};

struct want {
    struct link in_flight;
    struct object_key key;
    struct flight *fl; /* NULL: its deadline passed, only `done` is left */
    enum fetch_prio prio;
    uint64_t deadline;
    bool peers_only, others, own;
    fetch_done_fn done;
    void *ctx;
};

struct fchunk {
    uint8_t sha[SHA256_SIZE]; /* when basis is not BASIS_NONE */
    uint8_t basis;
    uint8_t member;    /* whose word sha is, with BASIS_ONE_MEMBER */
    uint8_t by;        /* member whose bytes they are; FETCH_NOBODY: the origin */
    bool done, origin; /* origin: in an open Get of the origin, or of a lease */
    uint8_t asks;
};

/* A peer that took part in an object. */
struct fmember {
    struct record *rec;
    bool excluded; /* not asked again for this object */
    bool stated;   /* digests came from it */
    bool no_lease; /* not asked by lease for this object */
    bool has_object, disputed;
    uint8_t claimed;             /* what it says that its digests rest on */
    uint8_t object[SHA256_SIZE]; /* digest of the object that it stated */
    uint32_t chunks;
    uint64_t bytes;
};

/* What a member said about a chunk that another one contradicted. */
struct claim {
    uint32_t chunk;
    uint8_t member;
    uint8_t sha[SHA256_SIZE];
};
#define FETCH_CLAIMS_MAX 8

/* Whose way to the origin an object takes. */
enum how { HOW_OPEN, HOW_SELF, HOW_LEASE };

/* Objects begun are bounded in classes, so that what waits for another node never takes the room
 * of what others wait for here (peer/README.md has the argument). */
enum room { ROOM_OWN, ROOM_OTHERS, ROOM_OWN_LEASE, ROOM_OTHERS_LEASE, ROOMS };

/* One object under way, or waiting to be. */
struct flight {
    struct link all; /* f->waiting[prio] or f->begun[prio], in order of arrival */
    struct flight *hash_next;
    struct object_key key;
    uint64_t size;
    uint32_t n; /* chunks */
    enum fetch_prio prio;
    bool begun, ended;              /* ended: only `done` calls are left */
    bool origin_wanted;             /* the origin takes part from now on */
    bool origin_failed;             /* for good, see r.err */
    bool conflict;                  /* members contradict each other: only the origin counts */
    bool held;                      /* whole, but on one member's word: fetch_sample.c */
    bool disputed;                  /* the same without an origin: two members must agree */
    bool known;                     /* its digest is known, and not by one member's word alone */
    uint8_t expects;                /* enum basis: what `expect` rests on; none: nothing is known */
    uint8_t expect[SHA256_SIZE];    /* its digest, by statements or a manifest */
    bool own;                       /* somebody wants it as fetch_want_opts.own */
    bool peers_only, others, asked; /* others: wanted for other nodes, too; asked: by one */
    enum how how;                   /* with origin_wanted */
    enum room room;                 /* when begun */
    struct source *via;             /* HOW_LEASE: the member that fetches it */
    uint64_t via_since;             /* HOW_LEASE */
    uint64_t lease_retry;           /* HOW_LEASE: not asked again before */
    uint64_t take_at;               /* HOW_SELF out of order: when to say so again, 0: in order */
    struct link wants;
    struct storage_put *put;
    struct fchunk *c; /* [n] when begun */
    uint32_t unasked, left_chunks;
    uint64_t left;
    uint64_t asked_at, begun_at, due; /* due: by FETCH_ORIGIN_SLACK */
    uint64_t patient_from;            /* plan_patient */
    bool stood_aside;                 /* a member got it while it was being fetched here */
    uint64_t last_byte, say_at;
    uint64_t no_source; /* since when nobody can give it, 0: somebody can */
    uint64_t retry_put;
    uint64_t held_since;
    bool asked_small, small_comes;
    bool spot_done;            /* a piece of it equals the origin's */
    uint64_t spot_id, spot_at; /* the check under way, 0: none; since when */
    uint32_t spot_chunk, spot_n;
    struct link gets;  /* by get.in_flight */
    uint32_t n_gets;   /* of peers */
    struct fmember *m; /* [FETCH_MEMBERS_MAX] when begun */
    uint32_t n_members;
    struct claim claim[FETCH_CLAIMS_MAX];
    uint32_t n_claims;
    struct fetch_result *r; /* when begun or ended; NULL at the end: no memory for it */
};

struct get {
    struct link in_source, in_flight;
    struct source *s;
    struct flight *fl;
    uint64_t id, sent, last; /* last: the latest chunk of it */
    uint32_t first, n;
    uint64_t open; /* bit i: chunk first + i has not come */
    enum fetch_prio prio;
    uint64_t digested;     /* the same: its digest has come */
    struct record *sample; /* of the origin: whose word is compared by it, NULL: none */
    bool want_digests, hedge, relay;
    uint8_t member;
};

struct bad_copy {
    struct object_key key;
    uint64_t at;
};

/* What is remembered of a node by its id, connected or not. */
struct record {
    uint8_t id[SHA256_SIZE];
    char name[FETCH_NAME];
    struct source *up; /* NULL: not connected */
    uint32_t users;    /* objects under way that name it */
    bool disbelieved;  /* its word is void: asked only for what is known otherwise */
    bool said_uncompared;
    /* by kind (experts, others): chunks on its word alone that equal the origin's; being compared
     */
    uint32_t agreed[2], sampling[2];
    uint64_t seen;
    uint64_t strike[FETCH_STRIKES];
    uint32_t n_strikes, bans;
    uint64_t banned_until, pause_until, pause; /* pause: the next one's length */
    uint64_t tried;                            /* last trial that it failed, 0: none */
    uint64_t lease_pause, lease_paused; /* no leases until then; how long the last pause was */
    uint64_t lease_paused_at;           /* when that pause began */
    struct rate rate;                   /* kept over a reconnect */
    struct latency first;               /* from an idle connection to the first chunk */
    struct pct gap;                     /* between chunks while something is asked */
    uint64_t hedge;                     /* plan_hedge_ns of it, 0: to be computed */
    uint32_t hedge_age;
    struct bad_copy bad[FETCH_BAD_MAX];
    uint32_t n_bad;
    uint64_t bytes, chunks, dup_bytes, late_bytes;
    uint32_t bad_chunks, protocol_faults, refusals, timeouts, losses;
    char last_fault[FETCH_TEXT];
};

struct page {
    uint32_t row; /* kind << 16 | layer */
    uint32_t page;
    uint32_t count;
    uint64_t bits[64];
};
struct have_set {
    struct page **slot; /* open addressing, power of two */
    uint32_t cap, n;
    uint64_t objects;
};

/* A Get of the origin that was closed before all of it had come: what had come by then, and waits
 * to be handed over, is as good as before. */
struct closed_get {
    uint64_t id; /* 0: none */
    struct object_key key;
    uint32_t first, n;
};
#define FETCH_CLOSED_MAX 256

/* A connected peer, or the origin. */
struct source {
    uint32_t slot;
    struct record *rec; /* NULL: the origin */
    struct have_set have;
    struct link gets; /* in the order sent */
    uint32_t n_gets;
    uint64_t in_flight[FETCH_PRIOS];
    uint64_t next_id;
    uint64_t busy_since;            /* something is asked for since then */
    uint64_t last_data, last_bytes; /* of this busy time */
    uint64_t part;                  /* bytes since the last whole chunk, or since it is busy */
    uint64_t since_data;            /* partial bytes since last_data */
    uint64_t not_before;            /* said that it is busy */
    uint64_t allow_late;            /* bytes that may still come for cancelled Gets */
    uint64_t rtt;
    uint32_t good;    /* chunks since the last fault */
    uint32_t refused; /* in a row */
    bool late, first; /* first: no chunk came yet in this busy time */
    /* leases: what it says of its origin, and what it brings of what it fetches for us */
    bool leases, works;
    struct order_seed seed;
    uint64_t flow, flow_at;           /* bytes/s from its origin, said at flow_at */
    uint64_t busy_next;               /* its word that the origin is busy counts again */
    uint32_t n_relays;                /* open Gets by lease; not in n_gets */
    uint64_t lease_byte;              /* the last byte of one */
    uint64_t window_at, window_bytes; /* a stretch in which it is held to a rate */
    bool slow_once;                   /* so it was in the stretch before */
    /* the origin */
    struct rate rate;
    struct latency lat;
};

/* A member fetches this out of order. */
struct taken {
    struct object_key key;
    struct source *by;
    uint64_t until;
};
#define FETCH_TAKEN_MAX 256

struct fetch {
    struct fetch_opts o;
    int depth;
    uint64_t now;
    bool closing, dirty, hold; /* hold: no `done` at the end of this call */
    uint64_t told;             /* deadline that wake told of */
    uint64_t due;              /* deadline at the end of the last call */
    /* waiting: by priority, then those wanted for others, too, by priority */
    struct link waiting[2 * FETCH_PRIOS], begun[FETCH_PRIOS], ended, expired;
    struct {
        uint32_t n;
        uint64_t bytes;
    } room[ROOMS];
    struct order_seed seed;
    uint32_t n_leases; /* objects begun with HOW_LEASE */
    struct taken taken[FETCH_TAKEN_MAX];
    uint32_t n_taken;
    struct object_key take[WIRE_TAKE_MAX]; /* to be said to all */
    uint32_t n_take;
    uint64_t busy_until;                     /* the origin has asked to be left alone */
    uint64_t flow_at, flow_now, flow_before; /* bytes of the origin in this second and the last */
    uint32_t n_waiting, n_begun, n_wants;
    uint64_t begun_bytes;
    uint64_t owed[FETCH_PRIOS]; /* bytes that objects of a priority still miss, waiting ones too */
    struct flight **hash;
    uint32_t hash_cap, n_flights;
    struct source *peer[FETCH_PEERS_MAX];
    uint32_t n_peers, slots; /* slots: highest slot in use + 1 */
    struct record *rec[FETCH_RECORDS_MAX];
    struct source origin;
    bool origin_up;
    uint64_t origin_after; /* not before this, after a failure */
    struct err origin_err;
    double virtual_end[FETCH_PRIOS]; /* when the origin alone would have delivered all so far */
    uint64_t last_trial;             /* the last one that failed */
    uint64_t origin_said;            /* the last line that it is asked, 0: never */
    uint32_t origin_unsaid;          /* objects that it was asked for since, without a line */
    uint64_t failed_since;           /* begin of a stretch in which failed objects are counted */
    uint32_t failed_lines;           /* in it, those without a line too */
    uint64_t held_up;                /* this thread was, until then: nobody is late for it */
    uint64_t stood_still;            /* the same, for so long that leases seem to bring nothing */
    uint64_t origin_at;              /* when to look at the origin rule again */
    uint64_t want_deadline;          /* not later than the earliest of all */
    uint64_t look_at;                /* not later than the earliest say_at, no_source, retry */
    uint64_t hedge_asked;            /* bytes */
    uint64_t hedge_at;               /* not before this again */
    uint32_t n_held;                 /* objects that wait for a sample */
    uint64_t sample_quiet;           /* the origin gave none: not asked for one before */
    uint64_t spot_id;                /* the latest check's number */
    uint64_t sample_trouble;         /* attempts at the origin have failed in a row, 0: not */
    struct closed_get closed[FETCH_CLOSED_MAX]; /* a ring */
    uint32_t n_closed;
    uint64_t random;
    struct fetch_stats s;
};

static inline struct flight *flight_of(struct link *l)
{
    return (struct flight *)((char *)l - offsetof(struct flight, all));
}
static inline struct get *get_of_source(struct link *l)
{
    return (struct get *)((char *)l - offsetof(struct get, in_source));
}
static inline struct get *get_of_flight(struct link *l)
{
    return (struct get *)((char *)l - offsetof(struct get, in_flight));
}
static inline struct want *want_of(struct link *l)
{
    return (struct want *)((char *)l - offsetof(struct want, in_flight));
}
static inline void link_init(struct link *l)
{
    l->next = l->prev = l;
}
static inline void link_add(struct link *head, struct link *l) /* at the end */
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}
static inline void link_cut(struct link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    link_init(l);
}
static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
/* What a chunk of it costs to move; the last one is taken for a whole one. */
static inline double flight_chunk_bytes(const struct flight *fl)
{
    return fl->size < STORAGE_CHUNK ? (double)fl->size : (double)STORAGE_CHUNK;
}
static inline bool source_is_origin(const struct source *s)
{
    return !s->rec;
}
/* Of the origin, directly or by lease. */
static inline bool get_outside(const struct get *g)
{
    return g->relay || source_is_origin(g->s);
}
static inline struct source *fetch_peer(const struct fetch *f, uint32_t peer)
{
    return peer < FETCH_PEERS_MAX ? f->peer[peer] : NULL;
}
static inline struct link *flight_queue(struct fetch *f, const struct flight *fl)
{
    return fl->begun ? &f->begun[fl->prio] : &f->waiting[fl->prio + (fl->others ? FETCH_PRIOS : 0)];
}

/* ---- fetch.c ---- */
/* Every public function that changes something is between these two; leave plans and calls back. */
void fetch_enter(struct fetch *f);
void fetch_leave(struct fetch *f);
struct flight *fetch_find(const struct fetch *f, struct object_key k);
void flight_asked(struct fetch *f, struct flight *fl); /* another node waits for it */
void fetch_hash_out(struct fetch *f, struct flight *fl);
/* Get the memory and the storage's room; 0, ERR_BUSY (later) or another error (it has ended). */
int flight_begin(struct fetch *f, struct flight *fl);
void flight_end(struct fetch *f, struct flight *fl, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Chunk i, whose bytes at p match c[i].sha, is there. m: member or FETCH_NOBODY. */
void flight_chunk(struct fetch *f, struct flight *fl, uint32_t i, const uint8_t *p, size_t n,
                  uint32_t m);
void flight_undo(struct fetch *f, struct flight *fl,
                 uint32_t i); /* chunk i is not done after all */
/* All chunks are there: judge them, hand the object over. */
void flight_complete(struct fetch *f, struct flight *fl);
/* All chunks that rest on the word of member m alone are undone, their digests forgotten. */
void flight_void(struct fetch *f, struct flight *fl, uint32_t m);
const char *flight_name(const struct fetch *f, const struct flight *fl, char *buf, size_t n);
void fetch_log(struct fetch *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* An object that is not to be had. A full disk or an absent household makes thousands of them: the
 * first few of a stretch of time get a line, the next stretch begins with how many more there were.
 */
void fetch_log_failed(struct fetch *f, const char *name, const char *text);

/* ---- fetch_plan.c ---- */
struct cand {
    struct source *s;
    double rate, latency, queued; /* bytes/s, seconds, bytes */
    uint32_t room;                /* chunks */
};
/* What was asked for has been waited for since then. */
static inline uint64_t source_since(const struct source *s)
{
    return u64_max(s->busy_since, s->last_data);
}
static inline bool source_proven(const struct source *s)
{
    return s->good >= FETCH_PROVEN;
}
/* Peers that may be asked now, and those that merely have no room: c[FETCH_PEERS_MAX]. Without any
 * and without an origin, late and paused ones are better than nothing (`desperate`). */
uint32_t plan_candidates(struct fetch *f, const struct flight *fl, bool desperate, struct cand *c);
/* When all candidates together would be done with `bytes` more, in seconds. */
double plan_horizon(const struct cand *c, uint32_t n, double bytes);
void plan_run(struct fetch *f);                        /* give out what can be given out */
void plan_arrival(struct fetch *f, struct flight *fl); /* a new object: its due time */
uint64_t plan_hedge_ns(struct source *s);              /* after which a source is late */
uint64_t plan_window(const struct source *s);
uint64_t plan_deadline(const struct fetch *f);
void plan_timers(struct fetch *f); /* late and dead sources, lines, deadlines of objects */
bool plan_origin_usable(const struct fetch *f, const struct flight *fl); /* now */
void plan_want_origin(struct fetch *f, struct flight *fl, const char *why);
/* A member has it that it downloaded for all: it gets a moment more than the origin would need. */
bool plan_patient(struct fetch *f, const struct flight *fl);
void plan_origin_gets(struct fetch *f, struct flight *fl);
/* Ask s (the origin, or a member by lease) for what is missing, with `most` Gets at a time. */
void plan_outside_gets(struct fetch *f, struct flight *fl, struct source *s, uint32_t most);
void plan_origin_rule(struct fetch *f);
/* Members contradict each other about fl: only the origin can tell. Without one the object goes on
 * when two others can agree, or ends. */
void plan_conflict(struct fetch *f, struct flight *fl, const char *what);
double plan_origin_rate(const struct fetch *f);
/* May this peer be asked for this object at all (also later)? */
bool plan_candidate(const struct fetch *f, const struct flight *fl, const struct source *s);

/* ---- gets (fetch_get.c) ---- */
enum get_kind { GET_PLAIN, GET_HEDGE, GET_RELAY };
int get_send(struct fetch *f, struct flight *fl, struct source *s, uint32_t first, uint32_t n,
             enum get_kind kind);
/* Chunk i of the Get has come, or will not. */
void get_clear(struct get *g, uint32_t i);
/* A Get of the origin is worth more from now on. */
void get_raise(struct fetch *f, struct get *g, enum fetch_prio prio);
/* The Get is over; what is open of it may be asked of others. cancel: tell the source. */
void get_close(struct fetch *f, struct get *g, bool cancel);
/* Chunk i of a Get of the origin that is closed has come all the same. */
void get_late(struct fetch *f, uint64_t id, uint32_t i, const uint8_t *p, size_t n,
              const uint8_t *sha256_or_null);
/* Chunk i is done: close the Gets from which nothing is needed any more. */
void get_forget_chunk(struct fetch *f, struct flight *fl, uint32_t i);

/* ---- fetch_peer.c ---- */
void source_init(struct source *s, uint32_t slot, struct record *rec);
struct rate *source_rate(struct source *s);
double source_rate_now(const struct fetch *f, struct source *s);
uint64_t source_latency(const struct source *s);
uint64_t source_queued(const struct source *s, enum fetch_prio p); /* of priority p and above */
void source_asked(struct fetch *f, struct source *s, enum fetch_prio p, uint64_t bytes);
void source_gave(struct fetch *f, struct source *s, uint64_t bytes);
/* It did not do what it was asked (no blame): pause and prove again. */
void source_fault(struct fetch *f, struct source *s, const char *why);
/* It did what no honest, healthy peer does. May ban it and close all its Gets. */
void source_strike(struct fetch *f, struct source *s, const char *why);
/* Close all its Gets. */
void source_drop_gets(struct fetch *f, struct source *s, bool cancel);
void source_drop_plain(struct fetch *f, struct source *s); /* all but leases */
/* Member m stated a digest of fl that something stronger denies: strike, and its copy is bad. */
void member_lied(struct fetch *f, struct flight *fl, uint32_t m, const char *why);
bool record_is_bad(const struct record *r, struct object_key k);
void record_add_bad(struct record *r, struct object_key k, uint64_t now);
struct record *record_get(struct fetch *f, const uint8_t id[SHA256_SIZE], bool make);
/* Member number of a record in an object; makes it; FETCH_NOBODY when there are too many. */
uint32_t flight_member(struct flight *fl, struct record *rec);

/* ---- fetch_relay.c ---- */
/* May anybody go to the origin for it now: this node, or another that it would ask? */
bool relay_outside(const struct fetch *f, const struct flight *fl);
/* Would it go by lease now? */
bool relay_foreign(const struct fetch *f, const struct flight *fl);
/* Who goes to the origin for it, from now on: fl->how. False: nobody can at the moment. */
bool relay_settle(struct fetch *f, struct flight *fl);
void relay_gets(struct fetch *f, struct flight *fl); /* HOW_LEASE: ask for what is missing */
void relay_asked(struct fetch *f, struct source *s);
void relay_gave(struct fetch *f, struct source *s, uint64_t n);
void relay_refused(struct fetch *f, struct get *g, uint32_t reason, uint32_t retry_ms);
void relay_have(struct fetch *f, struct source *s);  /* it has more than before */
void relay_alive(struct fetch *f, struct source *s); /* it gets objects again */
void relay_flow(struct fetch *f, uint64_t n);        /* bytes of this node's own origin */
void relay_timers(struct fetch *f);                  /* leases that bring nothing, or too little */
void relay_peer_down(struct fetch *f, struct source *s); /* after its Gets are closed */
void relay_say(struct fetch *f);                         /* what was taken, to all */
/* The object leaves HOW_LEASE or HOW_SELF (it ends, or somebody else is chosen). */
void relay_leave(struct fetch *f, struct flight *fl);
void room_take(struct fetch *f, struct flight *fl, enum room r);
void room_leave(struct fetch *f, struct flight *fl);
bool room_has(const struct fetch *f, const struct flight *fl, enum room r);

/* ---- fetch_word.c ---- */
enum word_verdict { WORD_GOES_ON, WORD_LEAVE }; /* LEAVE: the Get is closed, or may be */
/* known: the storage has the digests of its chunks. */
void word_begin(struct fetch *f, struct flight *fl, bool known);
/* Member m stated digests of chunks, and of the object (may be NULL). */
enum word_verdict word_stated(struct fetch *f, struct flight *fl, uint32_t m, uint32_t first,
                              uint32_t n, const uint8_t *sha, const uint8_t *object);
/* All chunks are there; false: it goes on, or has ended. *least may be raised. */
bool word_complete(struct fetch *f, struct flight *fl, enum basis *least);
/* Tell the storage whose word it is. */
void word_put(struct fetch *f, struct flight *fl, enum basis least);
/* The origin or a manifest denies what member m stated: tell whoever keeps words. */
void word_denied(struct fetch *f, struct flight *fl, uint32_t m, const char *why);

/* ---- fetch_sample.c ---- */
/* All chunks of fl are there, at least one on the word of one member alone. True: it is held until
 * enough of that member's words have been compared with the origin. */
bool sample_holds(struct fetch *f, struct flight *fl);
void sample_run(struct fetch *f);                     /* what is held: ask, hand over, throw away */
void sample_drop(struct fetch *f, struct flight *fl); /* it ends */
/* A chunk of such a Get is there, n bytes, still open; same: as the member said. */
void sample_came(struct fetch *f, struct get *g, uint32_t chunk, bool same, size_t n);
void sample_over(struct fetch *f, struct get *g); /* it is closed */
void sample_failed(struct fetch *f);              /* the origin did not give one */
/* Whose word chunk i is, if it is one member's alone; FETCH_NOBODY: it is not. */
uint32_t sample_word(const struct flight *fl, uint32_t i);
/* Nothing that rests on member m's word is kept of fl. */
void sample_throw_away(struct fetch *f, struct flight *fl, uint32_t m);
/* Nobody can tell: it counts as what it is, the word of one member. */
void sample_uncompared(struct fetch *f, struct record *r);

/* ---- fetch_spot.c ---- */
/* All chunks of fl are there: on whose word alone one rests, if a piece is to be compared with the
 * origin's before it is handed over; else FETCH_NOBODY. */
uint32_t spot_due(const struct fetch *f, const struct flight *fl);
/* The same, while it is held: ask, or wait. False: it is not waited for any longer. */
bool spot_look(struct fetch *f, struct flight *fl);

/* ---- fetch_stats.c ---- */
/* A sentence: whom this object waits for. */
void flight_waits_for(const struct fetch *f, const struct flight *fl, char *buf, size_t n);

/* ---- fetch_have.c ---- */
void have_free(struct have_set *h);
bool have_test(const struct have_set *h, struct object_key k);
int have_set(struct have_set *h, uint8_t kind, uint16_t layer, uint32_t first, uint32_t count,
             bool on);

#endif
