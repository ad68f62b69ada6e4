/* SPDX-License-Identifier: MIT
 * link.h: one connection with a peer and its protocol state machine. Private to peer/mesh*.c.
 *
 * States: DIAL (TCP or TLS under way; only links that this node dialled), HELLO (TLS is done, the
 * other side has not said hello), PROBE (it has, but another run of the same node is connected:
 * asking that one whether it lives), GUEST (no member yet: only Join, or the Roster that proves
 * membership, is taken), UP, CLOSING. What a link tells the rest of the mesh are the mesh_* calls
 * of mesh_int.h. Loop thread. */
#ifndef SHOAL_PEER_LINK_H
#define SHOAL_PEER_LINK_H

#include "discovery/disco.h"
#include "peer/codec.h"
#include "peer/have.h"
#include "peer/instance.h"
#include "peer/mesh.h"
#include "peer/mesh_place.h"
#include "peer/serve.h"
#include "peer/tls_conn.h"

#define LINK_ROW DISCO_STATIC_TEXT
#define LINK_NO_SLOT UINT32_MAX
#define LINK_PASSED_MAX 8
#define LINK_CREDIT (128ull << 20)     /* raw bytes a peer may send ahead */
#define LINK_CREDIT_STEP (16ull << 20) /* given back in such steps */

struct mesh;

enum link_state { LINK_DIAL, LINK_HELLO, LINK_PROBE, LINK_GUEST, LINK_UP, LINK_CLOSING };

/* A part of a file that was asked of the peer and not answered. */
struct link_part {
    bool used;
    struct file_ask *of; /* NULL: nobody wants it any more, the answer still comes */
    uint64_t id, off;
    uint32_t n;
};

struct plink {
    struct plink *next, *prev; /* of the mesh */
    struct mesh *m;
    struct tls_conn *c;
    bool dialed;
    enum link_state state;
    uint64_t since; /* in this state */

    /* Of discovery: which row and address it was dialled for, or (inbound) where it listens. */
    char row[LINK_ROW];
    struct sockaddr_storage addr;
    bool has_addr;
    uint64_t began;
    bool live; /* discovery counts it as a live connection */
    /* How it ends, decided before it is closed; UNTRIED: by what TLS says. */
    enum disco_outcome end;
    char end_text[DISCO_TEXT];
    bool asleep;       /* its goodbye was for sleep */
    uint64_t clone_at; /* when it said that this node lives twice, 0: never */
    bool silent;       /* no report about its end: an attempt that lost the race */

    struct tls_peer tls;
    char node[MESH_SHORT];
    char who[ID_SHORT]; /* the same as people read it */
    struct instance inst;
    uint64_t roster_version;
    uint32_t version, numerics;
    bool model_same, has_model, origin_works;
    bool said_model;        /* our last hello had the model */
    bool leases;            /* its feature of leases */
    bool renews, answers;   /* its features: a further Hello, questions */
    bool places, has_place; /* its feature: homes; it has said what it keeps, last: */
    uint64_t place_seq;
    struct mesh_place place;
    uint8_t model_root[WIRE_ID], group[WIRE_ID];
    bool knows_us; /* it sees us as a member: its hello was the full one */
    uint16_t listen_port;
    uint64_t said_objects;
    char software[WIRE_NAME_MAX + 1], name[WIRE_NAME_MAX + 1];

    struct plink *probe;    /* PROBE: the older link; of that one: the newer */
    uint8_t told_clone[16]; /* run of the double that this peer was told of */

    uint32_t slot; /* of the fetch engine, or LINK_NO_SLOT */
    struct serve_peer *serve;
    struct held_rx rx;
    bool need_snapshot;
    uint64_t snapshot_at;
    uint64_t credit, consumed; /* left to the peer; not given back yet */

    uint64_t alive_at, seen_in; /* last sign of life; bytes in at that time */
    uint64_t ping_at, ping_id, rtt;
    bool data_since;     /* a Data came since the last tick */
    bool retiring;       /* its keys are worn: a fresh connection was dialled */
    bool bad_files;      /* a small file that it gave was no good: not asked for more */
    uint64_t accused_at; /* when the log was last told that it finds copies of ours bad ... */
    uint32_t accused;    /* ... and how many it named since */
    uint64_t rate_at, rate_in0, rate_out0;
    double rate_in, rate_out;
    uint64_t up_at;

    /* Questions (mesh_file.c, mesh_give.c, mesh_verify.c, mesh_key.c). */
    struct link_part parts[WIRE_FILE_OPEN];
    uint64_t next_part;
    struct file_give *gives; /* being read for it */
    unsigned n_gives;
    struct verify_ask *verify; /* ours to it */
    uint64_t verify_id;
    uint64_t verifying, verifying_id; /* its to us: id of the mesh, 0: none; id on the wire */
    uint64_t key_asked_at, key_given_at;
    /* Statements (mesh_statement.c): its feature; a question is open; there is more to ask for;
     * when it was asked; signatures that may be looked at; signers that are not wanted of it. */
    bool words, words_open, words_more;
    uint64_t words_at, words_checked_at;
    unsigned words_checks;
    struct key_id passed[LINK_PASSED_MAX];
    size_t n_passed;
    bool key_open; /* asked and not answered */
};

/* A connection that this node dials; NULL when it cannot even begin. */
struct plink *link_dial(struct mesh *m, const char *row, const struct sockaddr_storage *addr);
/* ctx: struct mesh. For the listener. */
/* The other side's host, without the port, for lines that are said once. */
void link_host(const struct tls_conn *c, char host[80]);
extern const struct tls_conn_cb link_accept_cb;

/* Say goodbye and close. `reason` is a GoodbyeReason; end and text are for discovery and the log.
 */
void link_close(struct plink *l, int reason, const char *goodbye, enum disco_outcome end,
                const char *text);
void link_abort(struct plink *l, enum disco_outcome end, const char *text);

/* Encode and queue. Returns as tls_conn_send. */
int link_send(struct plink *l, const Shoal__Frame *f, enum tls_priority pr);
int link_send_body(struct plink *l, const void *body, size_t n);
void link_send_roster(struct plink *l);
void link_send_snapshot(struct plink *l);
/* Tell a connected peer that a double of it came (its run: for telling once). */
void link_tell_clone(struct plink *l, const uint8_t run[16], const char *text);
/* Heartbeat, time limits, rates. */
void link_tick(struct plink *l, uint64_t now);
/* HELLO or PROBE is over: it is the connection with that node from now on. */
void link_up(struct plink *l);
void link_ping(struct plink *l, uint64_t now);
/* This node has a model now: tell a connected peer, by a further Hello or a fresh connection. */
void link_renew(struct plink *l);

/* ---- between link.c and link_in.c ---- */
void link_set_state(struct plink *l, enum link_state s);
/* The parts that know of this peer let go of it. */
void link_down(struct plink *l, bool goodbye);
void link_decide_end(struct plink *l, enum disco_outcome end,
                     const char *text); /* the first counts */
void link_broke(struct plink *l, const char *how);
/* It came in because an invite is open (or as a member that we have not heard of), and has not
 * shown anything yet. */
bool link_guest(const struct plink *l);
/* Such a one ends by itself: a stranger; counted, and said once. Before its state changes. */
void link_guest_left(struct plink *l);
void link_send_hello(struct plink *l, bool full);
void link_send_have_ask(struct plink *l);
/* A decoded message; `raw` has its raw bytes, which may be taken out. */
void link_take(struct plink *l, const Shoal__Frame *f, struct frame *raw);

#endif
