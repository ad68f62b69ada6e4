/* SPDX-License-Identifier: MIT
 * mesh_int.h: private to peer/mesh*.c and peer/link.c.
 *
 *   mesh.c         life, threads, notes from other threads
 *   mesh_fetch.c   fetching, the origin, telling what is held here
 *   mesh_net.c     where this node announces itself: known networks, where members are met
 *   mesh_ban.c     bans across restarts
 *   mesh_dial.c    discovery, dialling, what discovery is told
 *   mesh_member.c  who is believed, rosters, doubles, admitting guests
 *   mesh_status.c  reports
 *   mesh_lease.c   one download for all
 *   mesh_model.c   a model that comes while the mesh runs
 *   mesh_file.c    small files from members; mesh_give.c: and for them
 *   mesh_verify.c  prompts that members run for each other
 *   mesh_statement.c  signed statements about digests
 *   mesh_key.c     the signing key on its way to a second keeper
 *   mesh_known.c   what is remembered of members
 *   mesh_place.c   homes: what members say about them
 *   mesh_join.c    the joining side, invites
 *   link.c         one connection */
#ifndef SHOAL_PEER_MESH_INT_H
#define SHOAL_PEER_MESH_INT_H

#include "peer/link.h"
#include "peer/listen.h"
#include "peer/invite.h"
#include "peer/member.h"
#include "peer/mesh.h"

#include <pthread.h>
#include <stdatomic.h>

#define MS_NS 1000000ull
#define WANT_BUCKETS 1024
#define LOG_MEMORY 32
#define MESH_COVER_KINDS 8 /* kinds below this are also counted by themselves */

/* What the TLS workers read about keys. */
struct mesh_trust {
    pthread_rwlock_t lock;
    struct key_id *ids; /* ascending */
    int8_t *what;       /* enum tls_trust */
    size_t n;
    bool in_group, guests; /* guests: an invite is open */
};

struct mwant {
    struct mwant *next;
    struct mesh *m;
    uint64_t id;
    struct object_key key;
    struct mesh_want o;
    struct fetch_want *want;
};

/* A note for the LAN thread; `run` frees it unless somebody waits for it. */
struct note {
    struct note *next;
    void (*run)(struct mesh *m, struct note *n);
    bool sync, done;
};

/* What is remembered of a member in this run, connected or not. */
struct mesh_known {
    struct key_id id;
    char name[WIRE_NAME_MAX + 1];
    uint64_t at;                /* last change here, for replacing the oldest */
    int64_t seen;               /* wall-clock second of the last sign of life, 0: never */
    uint64_t files, file_bytes; /* given to it */
};

struct mesh {
    struct mesh_opts o; /* copied; strings below */
    char *home, *machine_id, *software, *listen_host, *bus_host;
    char name[WIRE_NAME_MAX + 1];
    void *name_ctx; /* of o.name_of */
    char **statics;
    size_t n_statics;
    struct mesh_extent *extents;
    struct mesh_origin origin;
    struct mesh_words words;
    bool has_words;

    uv_loop_t own_loop, *loop;
    bool has_loop, threaded, started;
    uv_thread_t thread;
    _Atomic(bool) loop_set;
    uv_thread_t loop_thread;

    /* notes, and whoever waits for something */
    uv_mutex_t mu;
    uv_cond_t cond;
    struct note *notes, **notes_tail;
    unsigned waiters; /* threads inside a call that waits: mesh_close lets them leave */
    bool stopping;    /* whoever waits gives up */
    uv_async_t async;
    bool async_closed;
    _Atomic uint64_t next_want;
    _Atomic(int) n_up;
    _Atomic(bool) may_fetch; /* has a model: for other threads */

    struct identity me;
    struct instance self;
    struct member member;
    struct mesh_trust trust;
    char node[MESH_SHORT];
    uint64_t home_stamp;           /* of the files looked at */
    uint8_t acted_on[SHA256_SIZE]; /* digest of the roster, zero: in no shoal */
    struct err home_err;
    uint64_t locked_since; /* the home's lock was not to be had, since */
    struct mesh_late *late;

    struct tls_pool *pool;
    struct tls_listen *listen;
    int port;
    struct disco *disco;
    struct fetch *fetch;
    struct serve *serve;
    struct held *held;

    struct plink *links;
    size_t n_links;
    struct mwant *wants[WANT_BUCKETS];

    struct mesh_net *net; /* known_networks, else NULL */
    struct mesh_bans *bans;
    struct mesh_places *places; /* mesh_place.c */

    uv_timer_t tick, fetch_timer, dial_timer, have_timer, file_timer, close_timer;
    uint64_t opened_at, look_at, dial_due;
    uint64_t polite_until; /* somebody is left the time to dial until then */
    bool origin_up;
    bool said_works, said_busy; /* of the origin, to members */
    int (*wanted)(void *ctx, struct object_key k, enum fetch_prio prio); /* ctx: name_ctx */
    bool (*want_small)(void *ctx, struct object_key like);               /* the same */
    double origin_rate, origin_latency;                                  /* as told, 0: not known */
    bool asleep, closing, closed, pool_closing;
    int open; /* handles and parts whose close is awaited */

    /* questions */
    struct file_ask *files; /* being fetched */
    unsigned n_gives;       /* reads for peers that are out */
    uint64_t gives_refused, next_verify;
    struct mesh_known *known;
    size_t n_known;
    bool pool_gone, over;

    uint64_t refused[16]; /* inbound connections that never opened, by enum tls_end */
    uint64_t clones, guests_failed, joined, protocol_faults;
    struct {
        uint64_t hash, at;
    } logged[LOG_MEMORY];
    unsigned log_next;

    uint64_t cover_at, cover_have, cover_of;
    struct {
        uint64_t have, of;
    } cover_kind[MESH_COVER_KINDS];
};

/* ---- mesh.c ---- */
void mesh_log(struct mesh *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, but not again within a minute. */
void mesh_log_once(struct mesh *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool mesh_on_loop(struct mesh *m);
/* Leave a note; with n->sync wait until it ran. */
void mesh_post(struct mesh *m, struct note *n);
/* Between these a thread may wait on m->cond, until m->stopping. mesh_close waits for the end. */
void mesh_wait_begin(struct mesh *m);       /* takes m->mu */
void mesh_wait_end(struct mesh *m);         /* gives it back */
void mesh_count_up(struct mesh *m, int by); /* connected peers; LAN thread */
void mesh_maybe_over(struct mesh *m);       /* closing: a part that was awaited is over */
void mesh_link_gone(struct mesh *m);        /* a link was freed */
void mesh_ref(struct mesh *m);
void mesh_unref(void *m);
static inline void mesh_short(const struct key_id *id, char out[MESH_SHORT]);

/* ---- mesh_model.c ---- */
/* The engine and the server of the model in m->o, which are not open. */
int mesh_model_start(struct mesh *m, struct err *e);

/* ---- mesh_file.c ---- */
void mesh_on_file_data(struct plink *l, const Shoal__FileData *d, struct frame *raw);
void mesh_files_go(struct mesh *m); /* something is free: a place on a connection, a new peer */
void mesh_files_down(struct plink *l);
void mesh_files_tick(struct mesh *m, uint64_t now);
void mesh_files_close(struct mesh *m);

/* ---- mesh_give.c ---- */
void mesh_on_file_get(struct plink *l, const Shoal__FileGet *g);
void mesh_gives_down(struct plink *l);

/* ---- mesh_verify.c ---- */
void mesh_on_verify(struct plink *l, const Shoal__Verify *v);
void mesh_on_verify_reply(struct plink *l, const Shoal__VerifyReply *v);
void mesh_verify_down(struct plink *l);
void mesh_verify_close(struct mesh *m);

/* ---- mesh_key.c ---- */
void mesh_on_key_ask(struct plink *l);
void mesh_on_key_reply(struct plink *l, const Shoal__KeyReply *k);
void mesh_key_wish(struct plink *l, uint64_t now); /* ask it for the key, if that is called for */
void mesh_key_tick(struct mesh *m, uint64_t now);

/* ---- mesh_statement.c ---- */
void mesh_words_up(struct plink *l); /* objects may flow on it from now on */
void mesh_words_tick(struct mesh *m, uint64_t now);
void mesh_on_statements(struct plink *l, const Shoal__Statements *x);
void mesh_on_statements_ask(struct plink *l, const Shoal__StatementsAsk *a);

/* ---- mesh_known.c ---- */
/* Never NULL but without memory; the least recently changed entry makes room. */
struct mesh_known *mesh_known_of(struct mesh *m, const struct key_id *id, bool make);
void mesh_known_up(struct plink *l);
void mesh_known_down(struct plink *l);

/* ---- mesh_place.c ---- */
void mesh_place_up(struct plink *l); /* objects flow from now on */
void mesh_place_news(struct mesh *m);
void mesh_on_place(struct plink *l, const Shoal__Frame *f); /* Place, Warm, Offer, Kept */
void mesh_place_close(struct mesh *m);

/* ---- mesh_lease.c ---- */
void mesh_lease_ops(struct mesh *m, struct fetch_opts *f);
/* serve_opts.lease; peer: struct plink */
uint32_t mesh_lease_asked(void *mesh, void *peer, struct object_key k, unsigned prio,
                          uint32_t *retry_ms);
void mesh_on_lease_take(struct plink *l, const Shoal__LeaseTake *t);
void mesh_on_origin_state(struct plink *l, const Shoal__OriginState *s);
void mesh_lease_up(struct plink *l);  /* objects may flow */
void mesh_lease_tick(struct mesh *m); /* tell of the origin whoever is to hear it */

/* ---- mesh_fetch.c ---- */
int mesh_fetch_open(struct mesh *m, struct err *e);
void mesh_fetch_origin(struct mesh *m); /* tell the engine what is known of the origin */

/* ---- mesh_net.c; nothing of it does anything without known_networks ---- */
/* Puts its callbacks into the options of discovery. */
int mesh_net_open(struct mesh *m, struct disco_options *d, struct err *e);
void mesh_net_free(struct mesh *m);
/* At each look: the home's list, gateways, members that are connected. */
void mesh_net_look(struct mesh *m);
/* A member proved itself on that connection. */
void mesh_net_met(struct plink *l);

/* ---- mesh_ban.c ---- */
/* Load when there is an engine and that has not happened; write when bans have changed. At each
 * look; `now`: on this thread and before this returns. */
void mesh_bans_look(struct mesh *m, bool now);
/* fetch_unban, and off the disk. */
int mesh_bans_lift(struct mesh *m, const struct key_id *id);
void mesh_bans_free(struct mesh *m);

/* ---- mesh_dial.c ---- */
int mesh_disco_open(struct mesh *m, struct err *e);
void mesh_dial_soon(struct mesh *m);
void mesh_dial_timer(uv_timer_t *t);
/* TLS is done on a link that was dialled: other attempts at the same peer are given up. */
void mesh_dial_won(struct plink *l);
void mesh_report_up(struct plink *l);
void mesh_report_end(struct plink *l, const struct tls_close *why);

/* ---- mesh_member.c ---- */
int mesh_trust_init(struct mesh *m);
void mesh_trust_free(struct mesh *m);
int mesh_trusted_in(void *mesh, const uint8_t id[WIRE_ID]);
int mesh_trusted_out(void *mesh, const uint8_t id[WIRE_ID]);
/* The membership may have changed: trust, links of removed nodes, telling others (not `but`). */
void mesh_membership(struct mesh *m, const struct plink *but);
void mesh_look_now(struct mesh *m);
/* A peer sent its roster. */
void mesh_take_roster(struct plink *l, const Shoal__Roster *r);
void mesh_admit(struct plink *l, const Shoal__Join *j);
/* Its hello was read and is fine: is it the connection to keep? */
void mesh_decide(struct plink *l);
void mesh_probe_over(struct plink *old, bool answers);
struct plink *mesh_find_up(struct mesh *m, const struct key_id *id);

#include "peer/b32.h"
#include <string.h>
static inline void mesh_short(const struct key_id *id, char out[MESH_SHORT])
{
    char s[B32_CHARS(SHA256_SIZE) + 1];
    b32_encode(id->b, SHA256_SIZE, s);
    memcpy(out, s, MESH_SHORT - 1);
    out[MESH_SHORT - 1] = 0;
}

#endif
