/* SPDX-License-Identifier: MIT
 * mesh.h: a node among its peers: finds them (discovery/), knows whom to believe (identity,
 * roster), holds one connection with each, serves them objects and fetches objects from them.
 *
 * Threads: a mesh has its own thread with its own loop, the LAN thread (or runs on a loop of the
 * caller, see mesh_opts.loop). Every function here may be called from any thread at any time
 * between mesh_open and mesh_close. All callbacks, the storage's and the origin's too, come on the
 * LAN thread and must not wait for anything; they may call every function here but mesh_close.
 * Functions that return a report wait for the LAN thread, others only leave it a note.
 *
 * Membership is what the home's files say (home.h). Other processes may change them while the mesh
 * runs (`shoal init`, `invite`, `join`, `remove`): it looks every MESH_LOOK_MS and acts on it. A
 * home without a shoal is fine: then nothing is announced, nobody is let in, and mesh_fetch goes to
 * the origin alone. */
#ifndef SHOAL_PEER_MESH_H
#define SHOAL_PEER_MESH_H

#include "discovery/disco.h"
#include "peer/fetch.h"
#include "peer/gateway.h"
#include "peer/identity.h"
#include "peer/statement.h"
#include "peer/storage.h"
#include "peer/token.h"

#include <uv.h>

#define MESH_HEARTBEAT_MS 3000 /* a ping; a peer silent for three of them is dead */
#define MESH_STAGGER_MS 250    /* between the attempts at two addresses of one peer */
#define MESH_LOOK_MS 2000      /* between two looks at the home's files */
#define MESH_HELLO_MS 5000     /* until the other side has said hello */
#define MESH_SHORT 17          /* a short id with its NUL */

struct mesh;

/* Objects of one kind and layer that the model has: what coverage is counted over. */
struct mesh_extent {
    uint8_t kind;
    uint16_t layer;
    uint32_t count; /* indexes 0 .. count - 1 */
};

/* Where to go when peers cannot give an object: as fetch_ops.origin_get, on the LAN thread. Answers
 * come by mesh_origin_data and mesh_origin_fail, also before `get` returns. */
struct mesh_origin {
    void *ctx;
    int (*get)(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
               enum fetch_prio prio, bool sure);
    void (*cancel)(void *ctx, uint64_t id); /* what still comes for id is ignored */
    /* The priority is higher now. May be NULL: then it is a cancel and another get. */
    void (*raise)(void *ctx, uint64_t id, enum fetch_prio prio);
    /* A member heard that it wants to be left alone: begin nothing new there. May be NULL. */
    void (*busy)(void *ctx, uint64_t ms);
    /* As fetch_ops.origin_spot; the answer comes by mesh_origin_spot. May be NULL. */
    int (*spot)(void *ctx, uint64_t id, struct object_key k, uint64_t off, uint32_t n,
                enum fetch_prio prio);
};

/* ---- signed statements about digests (peer/statement.h) ---- */

struct mesh_seen {
    struct key_id signer;
    uint64_t seq; /* the highest number that is here; UINT64_MAX: nothing of it is wanted */
};
/* What the mesh needs from whoever keeps them, on the LAN thread. */
struct mesh_words {
    void *ctx;
    size_t (*seen)(void *ctx, struct mesh_seen *out, size_t max);
    bool (*known)(void *ctx, const uint8_t signer[SHA256_SIZE], uint64_t seq);
    /* The signer's next statement after number seq, appended; *more: there are further ones. */
    bool (*next)(void *ctx, const uint8_t signer[SHA256_SIZE], uint64_t seq, struct buf *out,
                 uint64_t *got, bool *more);
    /* A statement about the model that says it is a member's, from the peer `from`; to be copied.
     * Its signature has not been looked at (milliseconds: not for this thread): statement_open,
     * then mesh_words_taken when it has been kept (peers are asked for more), or mesh_words_bad. */
    void (*take)(void *ctx, const uint8_t from[SHA256_SIZE], const void *blob, size_t n);
    /* A member stated a digest, as its own download, that the origin (or a manifest) denies. */
    void (*lied)(void *ctx, const uint8_t member[SHA256_SIZE], struct object_key k,
                 const char *why);
};

/* ---- questions of members, beside objects ---- */

#define MESH_FILE_NAME 256 /* bytes of a name with its NUL */
/* One read of a small file of a model's address, for a peer (share.h of the store). */
struct mesh_file_read {
    uint8_t scope[SHA256_SIZE]; /* which address */
    uint8_t asker[SHA256_SIZE]; /* node id */
    char name[MESH_FILE_NAME];
    uint64_t off;
    size_t n; /* at most WIRE_RAW_MAX */
    /* Called once, on any thread, also before file_read returns. code 0: p (malloc'ed, the mesh's
     * from now on) has `got` bytes, the file `total`. ERR_NOTFOUND: not here. ERR_BUSY: ask again
     * (it is being fetched). */
    void (*done)(struct mesh_file_read *r, int code);
    uint8_t *p;
    size_t got;
    uint64_t total;
    void *user; /* the mesh's */
};

#define MESH_VERIFY_PROMPT 4096 /* bytes */
#define MESH_VERIFY_NEW 64
struct mesh_verify_ask {
    char prompt[MESH_VERIFY_PROMPT + 1]; /* "": the built-in one */
    uint32_t max_new;                    /* 1..MESH_VERIFY_NEW */
};
struct mesh_verify_answer {
    int code;                     /* enum err_code; 0: the rest is filled */
    char text[WIRE_TEXT_MAX + 1]; /* with a code: a sentence */
    uint8_t receipt[SHA256_SIZE];
    uint8_t model_root[SHA256_SIZE];
    uint32_t numerics_version, n_ids;
    uint32_t ids[MESH_VERIFY_NEW];
};

/* 0 in a number and NULL mean the default or "none". Copied; what it points to, too, except the
 * storage (lives until mesh_close returns) and the bus. */
struct mesh_opts {
    const char *home;       /* data folder */
    const char *machine_id; /* as identity_open */
    const char *software;   /* name and version, shown to people */

    bool has_model; /* false: nothing to share yet, see mesh_set_model; what follows up to
                       n_extents is not looked at */
    uint8_t model_root[SHA256_SIZE];
    uint32_t numerics_version;
    const struct storage_ops *storage;
    void *storage_ctx;
    const struct mesh_origin *origin; /* NULL: there is none (--offline) */
    const struct mesh_extent *extents;
    size_t n_extents;
    const char *(*name_of)(void *ctx, struct object_key k, char *buf, size_t n);

    const char *listen_host;         /* numeric; "::" */
    int listen_port;                 /* 0: the system chooses, mesh_port says */
    const char *const *static_peers; /* "host:port" */
    size_t n_static;
    bool no_bonjour;
    /* As disco_options.allow: where may this node announce itself? NULL: everywhere that is not
     * virtual. The node decides by networks.h and what its system tells of gateways. */
    bool (*allow)(void *ctx, const struct disco_if *net);

    uint64_t out_bytes_s;      /* to all peers together, 0: no limit */
    uint64_t out_peer_bytes_s; /* to each peer, 0: no limit */
    /* Serving yields: asked before each chunk of priority 0..2 (background, prefetch, demand); a
     * number of milliseconds puts that priority off for so long, 0 lets it go. NULL: never. */
    unsigned (*yield_ms)(void *ctx, unsigned prio);
    /* Announce only on networks that the home's file of networks names (peer/networks.h), and note
     * there where members are met. Not looked at when `allow` is given. */
    bool known_networks;
    const char *name; /* of this machine, shown to members; NULL: none */
    /* Questions of members that the node answers; NULL: refused in words. On the LAN thread.
     * Reads: at most WIRE_FILE_OPEN are out for a peer and 32 in all. verify: one for a peer;
     * `ask` is valid during the call, mesh_verify_reply(id) must come, also when it fails. */
    void (*file_read)(void *ctx, struct mesh_file_read *r);
    void (*verify)(void *ctx, uint64_t id, const struct mesh_verify_ask *ask);
    /* A peer says that our copy of a chunk is bad: check it against the disk. May be NULL. */
    void (*bad_copy)(void *ctx, struct object_key k, uint32_t chunk);
    /* One line for the log, without a newline. May be NULL. */
    void (*log)(void *ctx, const char *line);
    bool brief; /* no lines about interfaces and peers that come and go as they should */
    void *ctx;  /* of name_of, allow, yield_ms, file_read, verify, bad_copy, log and gateway */

    unsigned heartbeat_ms, stagger_ms, look_ms, hello_ms;
    unsigned tls_workers;                               /* 2 */
    uint64_t replace_bytes;                             /* as tls_opts */
    uint64_t max_fetch_bytes, no_source_ms, give_up_ms; /* as fetch_opts */
    uint32_t samples; /* as fetch_opts; of a model that comes later: mesh_model */
    uint64_t sample_bytes;

    /* Tests: what stands in for gateway_of (gateway.h) with known_networks; NULL: the system. */
    void (*gateway)(void *ctx, uint32_t ifindex, struct gateway *out);
    /* Tests: run on this loop, which the thread that calls mesh_open runs; with it the network in
     * memory of discovery/bus.h. Another protocol version to claim, 0: the real ones. */
    uv_loop_t *loop;
    struct disco_bus *bus;
    const char *bus_host;
    uint32_t version, version_min;
    bool no_features; /* as a program that has none of the optional features of shoal.proto */
};

/* Opens the identity (making the key in a home that never had one), listens, connects. */
int mesh_open(const struct mesh_opts *o, struct mesh **out, struct err *e);
/* Withdraws, says goodbye, ends every fetch with ERR_CANCELLED; calls of other threads that wait
 * for peers or their answers end, too. Takes 3 s at most, and as long as reads of the storage and
 * of mesh_opts.file_read are out. No callback comes after it. With mesh_opts.loop it runs that loop
 * until all is closed. NULL is fine. */
void mesh_close(struct mesh *m);

/* What a mesh that was opened without a model shares from now on: the fields of mesh_opts from
 * model_root to name_of (its ctx: `ctx`), as there. Once in a mesh's life. Waits for the LAN
 * thread; connections are told by a new hello. */
struct mesh_model {
    uint8_t root[SHA256_SIZE];
    uint32_t numerics_version;
    const struct storage_ops *storage;
    void *storage_ctx;
    const struct mesh_origin *origin;
    const struct mesh_extent *extents;
    size_t n_extents;
    const char *(*name_of)(void *ctx, struct object_key k, char *buf, size_t n);
    void *ctx;
    const struct mesh_words *words; /* copied; NULL: statements are neither taken nor given */
    /* Another member waits for this object, which is to be fetched for it: ask for it (by
     * mesh_fetch, sooner or later) and keep it. Called again with a higher priority, too. Nonzero:
     * this node cannot keep it. NULL: the mesh asks for it itself. On the LAN thread. */
    int (*wanted)(void *ctx, struct object_key k, enum fetch_prio prio);
    uint32_t samples; /* as fetch_opts */
    uint64_t sample_bytes;
    bool (*want_small)(void *ctx, struct object_key like); /* as fetch_ops; may be NULL */
};
int mesh_set_model(struct mesh *m, const struct mesh_model *model, struct err *e);

int mesh_port(const struct mesh *m);
const struct key_id *mesh_id(const struct mesh *m);

/* ---- objects ---- */

/* Called once for each fetch, on the LAN thread; `r` (fetch.h: code, who gave how much, digest and
 * what it rests on) is valid during the call. The bytes went to storage_ops.put_*. */
typedef void (*mesh_done_fn)(void *ctx, uint64_t id, const struct fetch_result *r);

struct mesh_want {
    enum fetch_prio prio;
    unsigned deadline_ms; /* from now, 0: none; then it ends with ERR_TIMEOUT */
    bool peers_only;      /* never the origin */
    bool own;             /* if the origin, then by this node, not by another one for it */
    mesh_done_fn done;
    void *ctx;
};

/* Fetch an object from whoever is quickest: peers, at last the origin, within the one request.
 * `done` always comes, never before this returns. *id names the request. */
int mesh_fetch(struct mesh *m, struct object_key k, const struct mesh_want *w, uint64_t *id,
               struct err *e);
/* `done` comes with ERR_CANCELLED unless it has come or is coming already. */
void mesh_cancel(struct mesh *m, uint64_t id);
void mesh_raise(struct mesh *m, uint64_t id, enum fetch_prio prio);

/* Objects that this node can serve from now on, and that it cannot any more. The first call after
 * mesh_open, or mesh_set_model, brings all that it has; without a model it is ignored. Peers are
 * told within 50 ms. */
int mesh_have_changed(struct mesh *m, const struct object_key *added, size_t n_added,
                      const struct object_key *removed, size_t n_removed);

/* Answers of the origin (fetch_on_origin_*). `p` is malloc'ed and becomes the mesh's, also on
 * failure. `sha256` may be NULL: then the LAN thread computes it. */
int mesh_origin_data(struct mesh *m, uint64_t id, uint32_t chunk, void *p, size_t n,
                     const uint8_t *sha256);
/* code 0: the same bytes, ERR_DIGEST: others; else it could not be found out. */
void mesh_origin_spot(struct mesh *m, uint64_t id, int code, uint64_t retry_ms);
void mesh_origin_fail(struct mesh *m, uint64_t id, uint64_t retry_ms, const struct err *e);
/* It has asked to be left alone for so long (Retry-After): that holds for all members. */
void mesh_origin_busy(struct mesh *m, uint64_t ms);
/* Attempts at it fail one after the other: what waits for a comparison with it (peer/README.md,
 * samples) waits no longer. To be called again at each further one. */
void mesh_origin_trouble(struct mesh *m);
/* Is it usable, and what was measured (0: not known)? Told to peers at the next hello. */
void mesh_origin_state(struct mesh *m, bool up, double bytes_s, double latency_s);

void mesh_words_taken(struct mesh *m);
/* That peer gave one whose signature is wrong: it broke the protocol. */
void mesh_words_bad(struct mesh *m, const uint8_t from[SHA256_SIZE]);
/* Sign a statement of this node about the model; waits for the LAN thread. */
int mesh_words_sign(struct mesh *m, uint64_t seq, const struct statement_entry *v, size_t n,
                    struct buf *out, struct err *e);
/* Give one to all connected members that take them. */
void mesh_words_tell(struct mesh *m, const void *blob, size_t n);
/* A member's word is void (or counts again): it is asked only for what is known otherwise. */
void mesh_words_void(struct mesh *m, const uint8_t id[SHA256_SIZE], bool on);
/* In our roster? Waits for the LAN thread. */
bool mesh_is_member(struct mesh *m, const struct key_id *id);

/* ---- reports; JSON appended to *out ---- */

/* {"node","name","port","group","roster_version","rosters_beside","members","listen":[...],"model","peers":[{"id",
 * "short","name","last","state","address","addresses":[...],"software","version","model_same",
 * "rate_in","rate_out","bytes_in","bytes_out","rtt_ms","files_served","file_bytes_served",
 * "objects","fetch":{...}}],"objects","coverage":{"have","of","missing","percent","kinds":[{"kind",
 * "have","of"}]},"limits":{...},"fetch":{...},"serve":{...},"refused":{...}}
 * A peer's name is what it says at hello, else its Bonjour name; last: wall-clock second of its
 * last sign of life, 0 never; files_served: parts of files given to it in this run. */
int mesh_status(struct mesh *m, struct buf *out, struct err *e);
/* Per interface and address: what was tried, what happened (disco_why_json), and one line per
 * object under way under "fetching". */
int mesh_why(struct mesh *m, struct buf *out, struct err *e);
/* How many peers are connected, hello done. */
int mesh_peers(struct mesh *m);
/* Wait until n peers (INT_MAX: all members) are connected, at most timeout_ms; not at all when the
 * home is in no shoal or alone in it. Returns how many are. Not on the LAN thread. */
int mesh_wait_peers(struct mesh *m, int n, unsigned timeout_ms);
/* Is somebody about to be connected: a handshake under way, an address that is being tried just
 * now? A host that has said nothing for MESH_SIGHT_MS does not count. Not on the mesh's thread. */
bool mesh_in_sight(struct mesh *m);
#define MESH_SIGHT_MS 300
/* How many connected members have this object and are not banned. */
int mesh_holders(struct mesh *m, struct object_key k, uint32_t *n);

/* ---- doing ---- */

void mesh_limits(struct mesh *m, uint64_t out_bytes_s, uint64_t out_peer_bytes_s);
int mesh_unban(struct mesh *m, const struct key_id *id, struct err *e);
int mesh_add_static(struct mesh *m, const char *host_port, struct err *e);
/* Look at the home's files now (an invite was made, a member removed). */
void mesh_look(struct mesh *m);
void mesh_sleep(struct mesh *m); /* before sleep: goodbye to all, nothing is announced */
void mesh_wake(struct mesh *m);
void mesh_network_changed(struct mesh *m);
/* An invite with the addresses under which this node is reached, as text. */
int mesh_invite(struct mesh *m, uint32_t uses, uint32_t seconds, char out[TOKEN_TEXT_MAX],
                struct err *e);

/* ---- asking members; each blocks its caller, which is not the LAN thread ---- */

/* Append a whole small file of a model's address, of at most `max` bytes (and WIRE_FILE_MAX), from
 * a connected member (the next one goes on where one fails, so two of them may have given parts).
 * from: the short id of the one that gave the last part; may be NULL. timeout_ms 0: 30 s.
 * ERR_NOTFOUND: no connected member has it, or gave it; ERR_BUSY: for three seconds one asked for
 * patience; ERR_LIMIT: it is longer than `max`;
 * ERR_TIMEOUT; ERR_CANCELLED: closing. The bytes are whatever the member said: the caller compares
 * digests. A name has parts between slashes, none of them empty, "." or "..". */
int mesh_file(struct mesh *m, const uint8_t scope[SHA256_SIZE], const char *name, uint64_t max,
              unsigned timeout_ms, struct buf *out, char from[MESH_SHORT], struct err *e);
/* What that member gave was no good: it is not asked for files again while it is connected. */
void mesh_file_bad(struct mesh *m, const char *from);
/* Have a connected member (by id, short id, prefix or name) run a prompt, and hear its receipt. One
 * question at a time to one member. timeout_ms 0: 10 minutes. Not 0: *out has the same code and
 * sentence as *e. ERR_NOTFOUND: no such member; ERR_OFFLINE: it is not connected; ERR_ARG: the name
 * is that of two; ERR_BUSY: it is busy with another question, of this node too; ERR_REFUSED: it
 * does not do that; ERR_UNSUPPORTED: an older program; ERR_IO: it failed there; ERR_NET: the
 * connection ended; ERR_TIMEOUT; ERR_CANCELLED: closing. */
int mesh_verify(struct mesh *m, const char *peer, const struct mesh_verify_ask *ask,
                unsigned timeout_ms, struct mesh_verify_answer *out, struct err *e);
/* Answers mesh_opts.verify's question `id`, from any thread, once. An answer whose asker is gone
 * is dropped. */
void mesh_verify_reply(struct mesh *m, uint64_t id, const struct mesh_verify_answer *a);

/* ---- joining, without a mesh ---- */

/* Put the addresses of this machine with that port into a token: all of them, or `host` alone when
 * it is not a wildcard. */
int mesh_token_addresses(struct token *t, const char *host, int port, struct err *e);
/* Ask the holder of the token's invite to take the node of this home in; blocks for at most
 * timeout_ms (0: 20000) in a loop of its own. A mesh that runs on the home notices. The sentence of
 * a failure names the first step that failed at the address that came furthest, and what the other
 * side said. `log` (may be NULL) gets a line for each step. */
int mesh_join(const char *home, const char *token, unsigned timeout_ms,
              void (*log)(void *ctx, const char *line), void *ctx, struct err *e);

#endif
