/* SPDX-License-Identifier: MIT
 * fetch.h: the fetch engine: which peer is asked for which chunks of an object, when, and what
 * happens when one is slow, lies, refuses or dies. It owns no socket, no thread and no clock: the
 * layer below gives functions to send with and calls fetch_on_*; time comes from `now`; a timer is
 * armed for fetch_deadline and calls fetch_tick. The same calls at the same times do the same.
 *
 * How it decides is written in peer/README.md; the numbers are the FETCH_ constants below.
 *
 * Threads: one, the loop thread. Functions of fetch_ops must not call back into the engine; a
 * want's `done` may (it is called when the engine is consistent, at the end of the outermost call).
 * Times are nanoseconds of `now`, rates bytes per second. Peers are named by a slot number that
 * fetch_on_peer_up returns and that is valid until fetch_on_peer_down. */
#ifndef SHOAL_PEER_FETCH_H
#define SHOAL_PEER_FETCH_H

#include "peer/storage.h"
#include "proto/base/buf.h"

#define FETCH_MS 1000000ull
#define FETCH_S 1000000000ull

#define FETCH_PEERS_MAX 256      /* connected at a time, and remembered ones beside them */
#define FETCH_RUN_MAX 64         /* chunks of one Get */
#define FETCH_BEGUN_MAX 512      /* objects under way at a time; others wait in order */
#define FETCH_WAITING_MAX 100000 /* objects in that order */
#define FETCH_MEMBERS_MAX 32     /* peers that may take part in one object */
#define FETCH_NAME 64
#define FETCH_TEXT 240

/* Choice */
#define FETCH_RATE_UNKNOWN 50e6         /* assumed of a peer until it is measured */
#define FETCH_WINDOW_NS (50 * FETCH_MS) /* bytes asked ahead: twice rate x (latency + this) */
#define FETCH_WINDOW_MIN 2              /* chunks */
#define FETCH_WINDOW_MAX 64             /* chunks */
#define FETCH_GETS_MAX 224              /* open Gets at one peer: it takes 256 of us */
#define FETCH_GETS_SPARE 64             /* of them for demand */
#define FETCH_TRIAL_CHUNKS 2            /* asked at most of a peer that has proved nothing */
#define FETCH_PROVEN 3                  /* good chunks in a row that prove it */
/* Hedging: a peer whose next chunk has not come after the 95th percentile of its last 64 times
 * between chunks, and not before twice the median either, is late: its chunks are asked of others
 * too. Bounds, and what is taken before 8 times are known: */
#define FETCH_HEDGE_PERCENT 95
#define FETCH_HEDGE_MIN_NS (20 * FETCH_MS)
#define FETCH_HEDGE_MAX_NS (2 * FETCH_S)
#define FETCH_HEDGE_FIRST_NS (100 * FETCH_MS)
#define FETCH_HEDGE_SHARE 10        /* duplicates asked: at most 1 / this of good bytes ... */
#define FETCH_HEDGE_FREE (8u << 20) /* ... and this */
/* The origin: its estimate until measured, the share of its own time that peers may cost, the
 * savings that may be spent on waiting, and the first trial of unknown peers. */
#define FETCH_ORIGIN_RATE 50e6
#define FETCH_ORIGIN_LATENCY_NS (50 * FETCH_MS)
#define FETCH_ORIGIN_SLACK 0.03
#define FETCH_SAVINGS_NS (250 * FETCH_MS)
#define FETCH_TRIAL_NS (150 * FETCH_MS) /* at most once in ... */
#define FETCH_TRIAL_EVERY_NS (10 * FETCH_S)
#define FETCH_ORIGIN_RETRY_NS (5 * FETCH_S)
/* Leases: the origin by way of another member (fetch_on_ask and what follows it) */
#define FETCH_LEASE_NS (2 * FETCH_S)             /* without a byte of it, or too slow: passed on */
#define FETCH_LEASE_PATIENCE_NS (500 * FETCH_MS) /* before the origin gives what a member has */
/* For each member that comes before this one and was taken to be silent just now: it may be about
 * to begin out of order, too, with another view of who is silent. */
#define FETCH_LEASE_YIELD_NS (150 * FETCH_MS)
#define FETCH_LEASE_SLOW 2                  /* too slow: below 1 / this of the own origin's rate */
#define FETCH_LEASE_CLAIM_NS (20 * FETCH_S) /* that it says to be at it counts so long */
#define FETCH_LEASE_PAUSE_NS                                             \
    (10 * FETCH_S) /* no new leases after one was passed on; doubles ... \
                    */
#define FETCH_LEASE_PAUSE_MAX_NS (640 * FETCH_S) /* ... up to this, until one brings something */
#define FETCH_LEASE_SLOW_NS (60 * FETCH_S)       /* no new leases after slowness */
#define FETCH_LEASE_TAKEN_NS (10 * FETCH_S)      /* who said that it fetches it is asked so long */
#define FETCH_LEASE_GETS 4                       /* open Gets by lease for one object ... */
#define FETCH_LEASE_GETS_MAX 128                 /* ... and at one peer */
#define FETCH_OTHERS_MAX 256                     /* objects under way that others want */
#define FETCH_OTHERS_LEASE_MAX 64                /* and of those by lease */
/* Samples of what rests on one member's word alone (fetch_sample.c) */
#define FETCH_SAMPLE_NS (10 * FETCH_S)     /* without a chunk of one: the origin does not answer */
#define FETCH_SAMPLE_WAIT_NS (3 * FETCH_S) /* for a smaller object */
#define FETCH_SAMPLE_BYTES ((uint64_t)FETCH_RUN_MAX * STORAGE_CHUNK)
/* Spot checks of everything else that does (fetch_spot.c): all members together compare one part in
 * so many of what they get, a piece of each object. */
#define FETCH_SPOT_SHARE 128
#define FETCH_SPOT_MIN 64u
#define FETCH_SPOT_MAX (64u << 10)
/* Faults */
#define FETCH_DEAD_MIN_NS (2 * FETCH_S) /* no byte for eight hedge times, within these bounds: */
#define FETCH_DEAD_MAX_NS (8 * FETCH_S) /* its Gets are given up */
/* What comes of a chunk counts as a byte only from this rate on (mean since the last whole chunk):
 * who lets bytes drip is as silent as who sends none. */
#define FETCH_DRIP_BYTES_S 8192u
#define FETCH_SAY_NS (5 * FETCH_S)        /* a line for an object without bytes, each time */
#define FETCH_PAUSE_MIN_NS (1 * FETCH_S)  /* after a fault; doubles ... */
#define FETCH_PAUSE_MAX_NS (60 * FETCH_S) /* ... up to this, and ends with FETCH_PROVEN chunks */
#define FETCH_STRIKES 3                   /* within FETCH_STRIKE_NS: a ban */
#define FETCH_STRIKE_NS (600 * FETCH_S)
#define FETCH_BAN_1_NS (600 * FETCH_S)   /* first ban: 10 minutes */
#define FETCH_BAN_2_NS (3600 * FETCH_S)  /* second: an hour */
#define FETCH_BAN_3_NS (86400 * FETCH_S) /* every later one: a day */

enum fetch_prio { FETCH_BACKGROUND = 0, FETCH_PREFETCH = 1, FETCH_DEMAND = 2, FETCH_PRIOS = 3 };

/* The numbers are those of RefuseReason in shoal.proto; others count as FETCH_REFUSE_UNSAID. */
enum fetch_refusal {
    FETCH_REFUSE_UNSAID = 0,
    FETCH_REFUSE_NOT_HELD = 1, /* clears the object's bit of that peer */
    FETCH_REFUSE_BUSY = 2,
    FETCH_REFUSE_RATE = 3,
    FETCH_REFUSE_STOPPING = 4,
    FETCH_REFUSE_RANGE = 5,
    FETCH_REFUSE_DAMAGED = 6, /* clears the bit, too */
    FETCH_REFUSE_DEADLINE = 7,
    FETCH_REFUSE_MODEL = 8, /* clears all bits */
    FETCH_REFUSE_TOO_MANY = 9,
    FETCH_REFUSE_ORIGIN = 10, /* to a lease */
};

struct fetch_get {
    uint64_t id; /* not used before on this connection */
    struct object_key key;
    uint32_t first, n; /* chunks; n is 1 .. FETCH_RUN_MAX */
    enum fetch_prio prio;
    uint32_t deadline_ms; /* 0: none */
    bool want_digests;    /* Digests before the first Data */
    bool relay;           /* a lease: fetch it, each chunk comes after a Digests of its own */
};

/* What the engine needs. All required unless said. */
struct fetch_ops {
    void *ctx;
    uint64_t (*now)(void *ctx); /* monotonic */
    /* ERR_BUSY: the connection's queue is full, try a little later. Any other error counts as a
     * fault of the peer. */
    int (*send_get)(void *ctx, uint32_t peer, const struct fetch_get *g);
    void (*send_cancel)(void *ctx, uint32_t peer, uint64_t id);
    /* Tell a peer that its copy of a chunk is bad. May be NULL. */
    void (*send_bad)(void *ctx, uint32_t peer, struct object_key k, uint32_t chunk,
                     const uint8_t got[SHA256_SIZE], const uint8_t want[SHA256_SIZE], enum basis b);
    /* A member said that a digest is from its own download, and the origin (or a manifest) denies
     * it. May be NULL. */
    void (*lied)(void *ctx, const uint8_t id[SHA256_SIZE], struct object_key k, const char *why);
    /* A peer has been banned for `ns`; close its connection if you like. May be NULL. */
    void (*banned)(void *ctx, uint32_t peer, uint64_t ns, const char *why);
    /* Go to the origin for these chunks: fetch_on_origin_data for each, in any order, or
     * fetch_on_origin_fail. sure: members' words will be judged by what comes, so it must be the
     * origin's own bytes, not a mirror's. Both NULL: there is no origin. */
    int (*origin_get)(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                      enum fetch_prio prio, bool sure);
    void (*origin_cancel)(void *ctx, uint64_t id);
    /* What is under way there is wanted more. NULL: it is cancelled and asked for anew, so that
     * bytes that are coming already come twice. */
    void (*origin_raise)(void *ctx, uint64_t id, enum fetch_prio prio);
    /* Compare bytes off .. off + n - 1 of the object that is being put, all of whose chunks came,
     * with the origin's own: fetch_on_spot, not before this returns. Nonzero: it cannot be asked.
     * NULL: there are no spot checks. */
    int (*origin_spot)(void *ctx, uint64_t id, struct object_key k, uint64_t off, uint32_t n,
                       enum fetch_prio prio);
    /* fetch_deadline has become earlier. May be NULL when it is read after every call. */
    void (*wake)(void *ctx);
    /* One line for the log, without a newline. May be NULL. */
    void (*log)(void *ctx, const char *line);
    /* ---- leases; not looked at without fetch_opts.leases ---- */
    /* A chunk has come that may be handed on before the object is whole: from this node's origin,
     * or equal to a digest that two members or more vouch for. p is valid during the call. */
    void (*chunk)(void *ctx, struct object_key k, uint64_t size, uint32_t chunk, const uint8_t *p,
                  size_t n, const uint8_t sha[SHA256_SIZE], enum basis b);
    /* Whoever waits for it here by lease is to be refused (FETCH_REFUSE_ORIGIN). */
    void (*lease_end)(void *ctx, struct object_key k, uint32_t retry_ms);
    /* Tell a peer that this node fetches these itself and has so many chunks of each; n is 1 ..
     * WIRE_TAKE_MAX. */
    void (*send_take)(void *ctx, uint32_t peer, const struct object_key *k, const uint32_t *chunks,
                      uint32_t n);
    /* A large object is held on a word that has not been compared: have a few small ones of its
     * kind asked for. False: there are none. May be NULL. */
    bool (*want_small)(void *ctx, struct object_key like);
    /* A member says that the origin has asked to be left alone for so long. May be NULL. */
    void (*origin_busy)(void *ctx, uint64_t ms);
};

/* 0 in a number means the default beside it. */
struct fetch_opts {
    struct fetch_ops ops;
    const struct storage_ops *storage; /* size, digests, put_*; lives longer than the engine */
    void *storage_ctx;
    uint64_t max_bytes;    /* 256 MiB: sizes of the objects under way; twice that with demands */
    uint64_t no_source_ms; /* 5000: how long an object that nobody can give is waited for */
    uint64_t give_up_ms;   /* 30000: without any byte for an object, and without an origin */
    /* While an origin answers: so many objects of each kind (0 and the others) on a member's lone
     * word must have equalled the origin's before what rests on it is handed over; 0: none. */
    uint32_t samples;
    uint64_t sample_bytes; /* of a larger object one chunk is enough; FETCH_SAMPLE_BYTES */
    uint64_t seed;         /* of the choice: a secret */
    const char *(*name_of)(void *ctx, struct object_key k, char *buf, size_t n); /* may be NULL */
    void *name_ctx;
    /* Leases: members download each object from the origin once, in the order of order.h. */
    bool leases;
    uint8_t self[SHA256_SIZE], root[SHA256_SIZE]; /* this node, the model */
};

struct fetch;      /* opaque */
struct fetch_want; /* opaque: one caller's wish for one object */

struct fetch_from { /* "who got what from whom" */
    uint8_t id[SHA256_SIZE];
    char name[FETCH_NAME];
    uint32_t chunks; /* good ones used */
    uint64_t bytes;
};

struct fetch_result {
    struct object_key key;
    uint64_t size;
    int code; /* as err.code */
    struct err err;
    enum basis basis;            /* weakest of its chunks' digests */
    uint8_t object[SHA256_SIZE]; /* the object's digest */
    uint64_t took_ns;            /* since the first want for it */
    uint64_t origin_bytes, dup_bytes;
    uint32_t origin_chunks, bad_chunks, hedges;
    uint32_t n_from;
    struct fetch_from from[FETCH_MEMBERS_MAX];
};

/* Called once; the want is gone afterwards. `r` is valid during the call. */
typedef void (*fetch_done_fn)(void *ctx, struct fetch_want *w, const struct fetch_result *r);

struct fetch_want_opts {
    enum fetch_prio prio;
    uint64_t deadline_ns; /* by `now`; 0: none. Then it ends with ERR_TIMEOUT */
    bool peers_only; /* never the origin (background copies); ERR_NOTFOUND when no peer has it */
    bool own;    /* this node is the one to go to the origin for it, whoever is first in order */
    bool others; /* on behalf of other nodes: has room of its own among objects under way */
    fetch_done_fn done;
    void *ctx;
};

int fetch_open(const struct fetch_opts *o, struct fetch **out, struct err *e);
/* Every want that is left ends with ERR_CANCELLED, open Gets are cancelled. NULL is fine. */
void fetch_close(struct fetch *f);

/* Ask for an object: one transfer however many want it, at the highest priority of them. Always
 * ends with `done`, never before this call returns. ERR_NOTFOUND: no such object; ERR_LIMIT: more
 * than FETCH_WAITING_MAX wait; ERR_CANCELLED: closing; ERR_NOMEM. */
int fetch_get_object(struct fetch *f, struct object_key k, const struct fetch_want_opts *o,
                     struct fetch_want **out, struct err *e);
/* No `done` any more. The transfer ends when nobody else wants it. */
void fetch_cancel(struct fetch *f, struct fetch_want *w);
void fetch_raise(struct fetch *f, struct fetch_want *w, enum fetch_prio prio);

/* When fetch_tick is due, by `now`; UINT64_MAX: not. A tick too early does no harm. */
uint64_t fetch_deadline(const struct fetch *f);
void fetch_tick(struct fetch *f);

/* ---- from the layer below ---- */

/* A member is connected and both hellos are done. `name` is for people. ERR_LIMIT when there are
 * too many, ERR_REFUSED while it is banned (the sentence says until when), ERR_BUSY when this
 * node id is up already. */
int fetch_on_peer_up(struct fetch *f, const uint8_t id[SHA256_SIZE], const char *name,
                     uint32_t *peer, struct err *e);
/* Its set is forgotten and its chunks are planned anew at once. `goodbye`: it said that it leaves;
 * otherwise a loss with open Gets counts as a fault. */
void fetch_on_peer_down(struct fetch *f, uint32_t peer, bool goodbye);

/* What a peer has. A row is as in Have: bit i is value 1 << i % 8 of byte i / 8. Indexes beyond
 * the limit of the wire are dropped. ERR_LIMIT: more pages than FETCH_PAGES_MAX. */
void fetch_on_have_reset(struct fetch *f, uint32_t peer);
int fetch_on_have_row(struct fetch *f, uint32_t peer, uint8_t kind, uint16_t layer, uint32_t first,
                      const uint8_t *bits, size_t n);
int fetch_on_have(struct fetch *f, uint32_t peer, uint8_t kind, uint16_t layer, uint32_t first,
                  uint32_t count, bool have);
#define FETCH_PAGES_MAX 4096 /* of 4096 objects each, per peer: 2 MiB */

/* `source` is the sender's word on what its digests rest on (enum basis; others count as none).
 * object_digest may be NULL. sha[0..n) are for chunks first .. first + n - 1. */
void fetch_on_digests(struct fetch *f, uint32_t peer, uint64_t id, uint64_t object_size,
                      uint32_t first, uint32_t n, const uint8_t *sha, uint32_t source,
                      const uint8_t *object_digest);
/* `sha256` of the n bytes at p as the layer below computed it, or NULL. p is the caller's. */
void fetch_on_data(struct fetch *f, uint32_t peer, uint64_t id, uint32_t chunk, bool last,
                   const uint8_t *p, size_t n, const uint8_t *sha256);
/* retry_ms: as in Refuse, 0: do not ask for this again here. */
void fetch_on_refuse(struct fetch *f, uint32_t peer, uint64_t id, uint32_t reason,
                     uint32_t retry_ms, const char *text);
/* Bytes of a chunk that is not complete yet came (they need not be counted exactly): keeps a slow
 * peer from being taken for a dead one. */
void fetch_on_bytes(struct fetch *f, uint32_t peer, uint64_t n);
/* A round trip of Ping and Pong. */
void fetch_on_rtt(struct fetch *f, uint32_t peer, uint64_t ns);

/* ---- from the origin ---- */

void fetch_on_origin_data(struct fetch *f, uint64_t id, uint32_t chunk, const uint8_t *p, size_t n,
                          const uint8_t *sha256);
/* What came of a spot check (fetch_ops.origin_spot). `retry_ms` as in fetch_on_origin_fail. */
enum fetch_spot { FETCH_SPOT_SAME, FETCH_SPOT_DIFFERS, FETCH_SPOT_FAILED };
void fetch_on_spot(struct fetch *f, uint64_t id, enum fetch_spot what, uint64_t retry_ms);
/* Nothing more comes for this id; `e` says why (may be NULL). The origin is not asked again for
 * `retry_ms` (0: FETCH_ORIGIN_RETRY_NS). */
void fetch_on_origin_fail(struct fetch *f, uint64_t id, uint64_t retry_ms, const struct err *e);
/* Attempts at it have failed one after the other, and not a byte came since: it cannot be reached,
 * though nobody has given it up yet. Told at each further one. */
void fetch_origin_trouble(struct fetch *f);
/* Is it to be used at all? It is until somebody says no. */
void fetch_origin_up(struct fetch *f, bool up);
/* What is known of it from elsewhere (measured by the store, remembered from last time). */
void fetch_origin_estimate(struct fetch *f, double rate, uint64_t latency_ns);

/* ---- leases ---- */

/* This peer understands leases, and says this of its origin: at hello and whenever it tells more.
 * busy_ms: the origin has asked to be left alone for so long; that holds for this node, too. */
void fetch_on_origin_state(struct fetch *f, uint32_t peer, bool works, uint64_t busy_ms,
                           uint64_t bytes_s);
/* The same of this node, for telling others. */
void fetch_origin_state(const struct fetch *f, bool *works, uint64_t *busy_ms, uint64_t *bytes_s);
/* This node's origin has asked to be left alone. */
void fetch_origin_busy(struct fetch *f, uint64_t ms);
/* A peer asks for an object by lease, which this node does not hold. 0: yes (the caller then wants
 * it, unless it does already); else the reason to refuse with, and *retry_ms. */
uint32_t fetch_on_ask(struct fetch *f, uint32_t peer, struct object_key k, uint32_t *retry_ms);
/* A peer says that it fetches these itself, and how many chunks of each it has (NULL: none). */
void fetch_on_take(struct fetch *f, uint32_t peer, const struct object_key *k,
                   const uint32_t *chunks, uint32_t n);

/* ---- what a peer has, bans, numbers ---- */

bool fetch_peer_has(const struct fetch *f, uint32_t peer, struct object_key k);
/* May others count with what it says that it holds? */
enum fetch_trust {
    FETCH_TRUSTED,
    FETCH_DOUBTED, /* it has not given what it was asked for, several times in a row, and rests */
    FETCH_BANNED,
};
#define FETCH_DOUBT_NS (16 * FETCH_S) /* of a pause: the fifth in a row */
enum fetch_trust fetch_peer_trust(const struct fetch *f, uint32_t peer);
/* Which of objects 0 .. count - 1 of that kind and layer a peer has: set in bits from bit `at`. */
void fetch_peer_row(const struct fetch *f, uint32_t peer, uint8_t kind, uint16_t layer,
                    uint32_t count, uint8_t *bits, uint64_t at);
uint32_t fetch_holders(const struct fetch *f, struct object_key k); /* peers up and not banned */
/* How long still, 0: not banned. */
uint64_t fetch_banned_ns(const struct fetch *f, const uint8_t id[SHA256_SIZE]);
/* ERR_NOTFOUND when it was not banned. Its strikes are forgotten, too. */
int fetch_unban(struct fetch *f, const uint8_t id[SHA256_SIZE]);
/* A ban remembered from the last run of the program. Its connection is the caller's to close. */
int fetch_ban(struct fetch *f, const uint8_t id[SHA256_SIZE], const char *name, uint64_t ns);

/* This node's word on digests is void: from now on it is asked only for objects whose digests are
 * known otherwise (or it is believed again). */
void fetch_disbelieve(struct fetch *f, const uint8_t id[SHA256_SIZE], bool on);

struct fetch_peer_stats {
    uint8_t id[SHA256_SIZE];
    char name[FETCH_NAME];
    bool up, proven, late;
    uint32_t peer;              /* slot while up */
    double rate;                /* measured, 0: not yet */
    uint64_t latency_ns;        /* to a first chunk, 0: not yet */
    uint64_t hedge_ns;          /* after which it is late */
    uint64_t window, in_flight; /* bytes */
    uint32_t gets;              /* open */
    uint64_t objects;           /* it has */
    uint64_t bytes, chunks;     /* good ones used */
    uint64_t dup_bytes;         /* good ones that another source was quicker with */
    uint64_t late_bytes;        /* after a cancel */
    uint32_t bad_chunks, protocol_faults, refusals, timeouts, losses;
    uint32_t strikes; /* that count now */
    uint32_t bans;
    uint64_t banned_ns, paused_ns; /* how long still */
    char last_fault[FETCH_TEXT];
};

struct fetch_stats {
    uint64_t objects, failed, cancelled; /* that ended */
    uint64_t peer_bytes, origin_bytes, dup_bytes, bad_chunks, hedges, conflicts;
    uint64_t origin_objects;    /* that needed it */
    uint64_t leases, passed_on; /* objects asked by lease; leases that did not do */
    uint64_t takes;             /* objects fetched out of order */
    uint64_t late_chunks;       /* of the origin, kept though their Get was closed */
    uint64_t lease_bytes;       /* of peer_bytes: came by lease */
    uint64_t samples, sample_bytes, samples_false; /* objects compared with the origin's */
    uint64_t spots, spot_bytes, spots_false;       /* pieces compared with the origin's */
    uint64_t uncompared; /* objects used on one member's word with no origin to compare it with */
    uint32_t waiting, begun, wants, peers;
    uint64_t buffered;  /* bytes of objects under way (the storage holds them) */
    uint64_t in_flight; /* bytes asked for and not there, peers */
    double origin_rate; /* estimate in use */
    uint64_t origin_latency_ns;
    bool origin_up;
};

void fetch_get_stats(const struct fetch *f, struct fetch_stats *out);
/* Peers up first, then remembered ones. Returns how many there are; fills out[0..max). */
size_t fetch_get_peers(struct fetch *f, struct fetch_peer_stats *out, size_t max);
/* One line for each object under way: how much is there, who is asked, what it waits for. */
int fetch_explain(struct fetch *f, struct buf *out);

#endif
