/* SPDX-License-Identifier: MIT
 * fetch_sim.h: a household on virtual time for the fetch engine: peers with links, queues and
 * vices, an origin, a storage that compares every byte. Deterministic for a seed. Checks the
 * engine's invariants after every event. */
#ifndef SHOAL_TESTS_FETCH_SIM_H
#define SHOAL_TESTS_FETCH_SIM_H

#include "peer/fetch_int.h"
#include "tests/peer/event_heap.h"

#define SIM_PEERS 16
#define SIM_OBJECTS 4096
#define SIM_SIZE 17547264u /* bytes of an expert: 16.7 chunks */
#define SIM_KIND 1

enum vice {
    V_NONE,
    V_SILENT,        /* claims everything, gives nothing */
    V_SLOW,          /* 1 KB/s */
    V_FLIP,          /* a flipped bit in each chunk, honest digests */
    V_ZERO,          /* zeros, honest digests */
    V_LIE,           /* flipped bits and digests to match, "from my own download" */
    V_CLOSE_GET,     /* closes after a Get, comes again 50 ms later */
    V_CLOSE_DIGESTS, /* closes after Digests */
    V_CLOSE_DATA,    /* closes after the first Data */
    V_TWICE,         /* every chunk twice */
    V_UNASKED,       /* chunks of a Get that never was */
    V_WRONG_CHUNK,   /* other chunk numbers than asked */
    V_WRONG_SIZE,    /* a byte less */
    V_REFUSE,        /* refuses all, for all reasons in turn */
    V_NO_DIGESTS,    /* Data without Digests */
    V_ODD_DIGESTS,   /* Digests of other chunks */
    V_OTHER_SIZE,    /* Digests with another size of the object */
    V_LAST_EARLY,    /* says that the first chunk is the last */
    V_STARVE,        /* gives the first Get only, keeps the others waiting */
    V_COUNT,
    V_PERJURE, /* as V_LIE, and the object's digest to match: only others' words tell */
    V_FEW,     /* the same about one object in SIM_FEW alone, all of whose bytes it replaces */
    V_FEW_BIT, /* the same, but for one bit of each of its chunks */
};
#define SIM_FEW 16 /* those whose number leaves 7 */

struct sim_event {
    uint64_t t, seq;
    int kind;
    uint32_t peer, gen, chunk, n;
    uint64_t id;
    bool flag;
};

struct sim_get {
    uint64_t id;
    struct object_key key;
    uint32_t first, n, next;
    int prio;
    bool digests, told, waiting; /* waiting: not there yet (on the way) */
};

struct sim_peer {
    enum vice vice;
    double rate;      /* bytes/s of its link */
    uint64_t latency; /* ns, one way */
    bool up, cut;
    uint32_t slot, gen;
    uint8_t id[SHA256_SIZE];
    struct sim_get q[4096];
    uint32_t n_q;
    bool sending;
    uint32_t reasons, gets, cancels, bad_told, chunks;
    uint64_t given; /* bytes */
    bool banned, away;
};

struct sim_put {
    struct storage_put *unused;
    struct object_key key;
    uint64_t size;
    uint32_t n, got;
    uint8_t *have;
    uint8_t *sums; /* of what was put */
    const uint8_t **at;
};

struct sim_done {
    int code;
    uint32_t times;
    struct fetch_result r;
    uint64_t at;
};

struct sim {
    struct fetch *f;
    uint64_t now, events;
    uint32_t rng;
    struct event_heap heap;
    struct sim_peer peer[SIM_PEERS];
    uint32_t n_peers;
    /* the origin: one link, one range after the other */
    bool origin, origin_fails, origin_cut, origin_busy;
    double origin_rate;
    uint64_t origin_latency, origin_sent, spot_sent;
    struct sim_get oq[4096];
    uint32_t n_oq;
    /* the storage */
    struct storage_ops ops;
    uint8_t *known;   /* [SIM_OBJECTS]: basis of digests on record, 0: none */
    bool known_wrong; /* they are those of other bytes */
    uint64_t size;    /* of each object */
    uint32_t live_puts, wrong_bytes, puts_ok;
    struct sim_put *put[SIM_OBJECTS]; /* under way */
    bool full;                        /* put_begin says ERR_BUSY */
    struct sim_done done[SIM_OBJECTS];
    uint32_t n_done, n_ok, pending;
    uint64_t line_at[SIM_OBJECTS];
    uint32_t lines;
    char last_line[600];
    const char *hope; /* lines with this text are counted in hoped */
    uint32_t hoped;
    bool real_sha; /* the engine computes the SHA-256s */
    bool quiet_ok; /* do not check the ten seconds */
    uint64_t woken;
};

/* Engine options may be changed before sim_start. */
void sim_init(struct sim *s, uint32_t seed, struct fetch_opts *o);
void sim_start(struct sim *s, const struct fetch_opts *o);
void sim_free(struct sim *s); /* closes the engine; checks that nothing is left */
uint32_t sim_rand(struct sim *s, uint32_t below);

/* A peer that has all objects, connected at once. Returns its number here. */
uint32_t sim_peer(struct sim *s, enum vice v, double rate, uint64_t latency);
void sim_up(struct sim *s, uint32_t p); /* again */
void sim_kill(struct sim *s, uint32_t p, bool goodbye);
void sim_origin(struct sim *s, double rate, uint64_t latency);

struct fetch_want *sim_want(struct sim *s, uint32_t index, enum fetch_prio prio);
struct fetch_want *sim_want_opts(struct sim *s, uint32_t index, const struct fetch_want_opts *o);
struct object_key sim_key(uint32_t index);
/* Run until everything wanted is done, or `until`; false when time ran out. */
bool sim_run(struct sim *s, uint64_t until);
void sim_until(struct sim *s, uint64_t t); /* run just so far */
void sim_check(struct sim *s);             /* the invariants */

/* The right bytes of a chunk, and the digest of an object. */
const uint8_t *sim_bytes(uint32_t index, uint32_t chunk);
void sim_object_digest(const struct sim *s, uint32_t index, uint8_t out[SHA256_SIZE]);
void sim_stats(struct sim *s, uint32_t p, struct fetch_peer_stats *o);

#endif
