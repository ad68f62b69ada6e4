/* SPDX-License-Identifier: MIT
 * node_int.h: private to node/daemon.
 *
 *   node.c     opening and closing, in order
 *   files.c    what a home remembers of its node: port, static peers
 *   lan.c      store and mesh together: requests, what is held, the origin, metadata
 *   yield.c    serving gives way to the own decode
 *   gave.c     who gave what
 *   guests.c   the owner's side of other processes that read the same cache
 *   guest.c    their side
 *   sleep*.c   goodbye before the machine sleeps, and back after it (sleep.h)
 *   words.c    what members say about digests
 *   homes*.c   who keeps what (homes.h)
 *   verify.c   running a prompt for a member
 *   budget.c   what the cache may take
 *   drop.c     experts taken from the disk
 *   adopted.c  adopted folders, scrub, quarantine; when the store may work in the background
 *   ops.c      requests on the control socket
 *   status.c   the report */
#ifndef SHOAL_NODE_DAEMON_NODE_INT_H
#define SHOAL_NODE_DAEMON_NODE_INT_H

#include "node/daemon/control.h"
#include "node/daemon/homes.h"
#include "node/daemon/node.h"
#include "node/daemon/pool.h"
#include "node/daemon/sleep.h"
#include "node/store/share.h"

#include <pthread.h>
#include <stdatomic.h>

#define MS_NS 1000000ull
#define META_WAIT_MS 3000
#define META_LOOK_MS 1000 /* ... of them whether there is a sign of anybody or not */
#define META_STEP_MS 100
#define META_FILE_MS 15000
#define META_AGAIN_MS                                                                            \
    2000                   /* who reads from the origin asks again when nothing came for so long \
                            */
#define META_ALL_MS 500    /* for all members, when none of those there has it */
#define META_BUSY_MS 60000 /* for one that fetches it */

/* ---- files.c ---- */

struct node_files {
    int port; /* 0: none remembered */
    char *peers[DISCO_STATIC_MAX];
    size_t n_peers;
};
/* What cannot be read is said by `log` and left out. */
void files_load(const char *home, struct node_files *f, void (*log)(void *ctx, const char *line),
                void *ctx);
void files_free(struct node_files *f);
/* Is it "host:port" with a port? */
int files_check_peer(const char *host_port, struct err *e);
/* True: it was not there. */
bool files_add_peer(struct node_files *f, const char *host_port);
int files_save_peers(const char *home, const struct node_files *f, struct err *e);
int files_save_port(const char *home, int port, struct err *e);
void files_host_name(char out[WIRE_NAME_MAX + 1]);

/* ---- yield.c ---- */

struct yield {
    pthread_mutex_t mu;
    int computing;      /* decodes under way, of this process and of guests */
    double rate, level; /* bytes a second; may be sent now, at most a quarter second's */
    uint64_t at, puts_off;
};
void yield_init(struct yield *y);
void yield_free(struct yield *y);
void yield_computing(struct yield *y, int by);
/* mesh_opts.yield_ms: prio 0 background, 1 prefetch, 2 demand. */
unsigned yield_ms(struct yield *y, unsigned prio);
void yield_served(struct yield *y, uint64_t bytes);
bool yield_busy(struct yield *y); /* does a decode run? */
json_t *yield_json(struct yield *y);

/* ---- gave.c ---- */

struct gave_one {
    struct key_id id;
    char name[FETCH_NAME];
    uint64_t bytes, chunks, objects, experts; /* objects: it took part in */
};
struct gave {
    pthread_mutex_t mu;
    struct gave_one *v;
    size_t n;
    uint64_t objects, failed, from_peers, from_origin, mixed; /* objects */
    uint64_t peer_bytes, origin_bytes;
};
void gave_init(struct gave *g);
void gave_free(struct gave *g);
void gave_add(struct gave *g, const struct fetch_result *r);
/* {"objects",...,"peers":[{"id","name","bytes","chunks","objects","experts"}]} */
json_t *gave_json(struct gave *g);

/* ---- lan.c ---- */

struct lan; /* opaque: the store's requests at the mesh */
int lan_open(struct node *n, struct lan **out, struct err *e);
/* No new requests reach the mesh, nothing of the origin either. Before mesh_close. */
void lan_stop(struct lan *l);
/* After mesh_close: takes the upstream from the store. NULL is fine. */
void lan_close(struct lan *l);
void lan_tick(struct lan *l);
/* Forget, then read, what the last request for an object brought. */
void lan_forget(struct lan *l, uint32_t id);
void lan_brought(struct lan *l, uint32_t id, uint64_t *peer_bytes, uint64_t *origin_bytes);
/* store_opts.meta */
int lan_meta_get(void *node, const char *name, uint64_t max, struct buf *out, struct err *e);
void lan_meta_bad(void *node);
/* mesh_opts.file_read and bad_copy */
void lan_file_read(void *node, struct mesh_file_read *r);
void lan_bad_copy(void *node, struct object_key k, uint32_t chunk);

/* ---- sample.c ---- */

/* As mesh_model.samples and sample_bytes. */
void sample_sizes(const struct model *m, uint32_t *samples, uint64_t *bytes);
/* As mesh_model.want_small: they are brought to the disk. */
struct wanted;
bool sample_small(struct store *st, struct wanted *w, struct object_key like);

/* ---- words.c ---- */

struct words; /* opaque */
struct words_stats {
    uint64_t taken, refused; /* statements of others */
    uint64_t made, made_objects;
    uint64_t audits, audit_bytes, audits_failed;
};
/* Between opening the store and lan_open; then words_start. */
int words_open(struct node *n, struct words **out, struct err *e);
int words_start(struct words *w, struct err *e);
void words_stop(struct words *w); /* before mesh_close; NULL is fine */
void words_free(struct words *w); /* after it, before store_close; NULL is fine */
const struct mesh_words *words_mesh(struct words *w);
void words_get_stats(struct words *w, struct words_stats *out);
/* A member's word counts again. ERR_NOTFOUND: it was not void. */
int words_believe(struct node *n, const struct key_id *id, struct err *e);

/* ---- verify.c ---- */

struct verify; /* opaque */
int verify_open(struct node *n, struct verify **out, struct err *e);
void verify_stop(struct verify *v); /* waits for the prompt that runs; before mesh_close */
void verify_free(struct verify *v); /* after mesh_close; NULL is fine */
void verify_ask(struct verify *v, uint64_t id, const struct mesh_verify_ask *ask);

/* ---- guests.c ---- */

struct guests; /* opaque */
int guests_open(struct node *n, struct guests **out, struct err *e);
void guests_stop(struct guests *g); /* before the mesh goes */
void guests_close(struct guests *g);
/* True: it was one of its requests ("hello", "fetch", "cancel", "raise", "computing"). */
bool guests_request(struct guests *g, const struct control_to *to, const json_t *req);
/* The store of this home has taken these objects back: those that use its cache are told. */
void guests_taken_back(struct guests *g, const uint32_t *ids, size_t n, const char *why);
void guests_gone(struct guests *g, uint64_t client);
json_t *guests_json(struct guests *g);
/* What says that two processes use the same cache. */
json_t *guests_cache_mark(const char *cache);

/* ---- guest.c ---- */

struct guest; /* opaque */
int guest_open(struct node *n, struct guest **out, struct err *e);
void guest_close(struct guest *g); /* NULL is fine */
void guest_computing(struct guest *g, int by);

/* ---- ops.c ---- */

struct ops; /* opaque */
int ops_open(struct node *n, struct ops **out, struct err *e);
void ops_stop(struct ops *o); /* what runs ends; nothing new is taken. The mesh still lives */
void ops_close(struct ops *o);
void ops_request(void *ops, const struct control_to *to, json_t *req);
void ops_gone(void *ops, uint64_t client);

/* ---- budget.c ---- */

/* {"budget", "budget_from", "floor", "floor_from", "may", "used", ...}; null without a store or
 * disk tier. */
json_t *budget_json(struct store *st);
/* {"op": "budget", "budget", "floor"}: each a number of bytes or "auto", absent: as it is. */
int budget_request(struct node *n, const json_t *req, json_t **out, struct err *e);

/* ---- adopted.c ---- */

/* The store's work in the background: not beside a decode nor on battery; a scrub in so many
 * seconds. After the store was opened. */
void upkeep_join(struct node *n, uint64_t scrub_s);
/* [{"path", "here", "other_model", "objects", "experts", "bytes", "looked", "looked_bytes",
 * "refused"}] */
json_t *adopted_json(struct store *st);
/* {"to_look", "held", "scrub": {"period_s", "started", "done", "total", "rounds", "bad"},
 * "quarantine": {"folder", "files", "bytes"}} */
json_t *upkeep_json(struct store *st);

/* ---- drop.c ---- */

/* {"op": "drop", "root", "experts": [[layer, expert], ...], "older_than": seconds, "dry"}:
 * {"objects", "bytes", "last_copies" (dry: no connected member holds them), "in_use" (these stay)}.
 */
int drop_request(struct node *n, const json_t *req, json_t **out, struct err *e);

/* ---- status.c ---- */

int status_make(struct node *n, json_t **out, struct err *e);

/* ---- node.c ---- */

struct node {
    struct node_opts o; /* strings are those below */
    char *home, *cache, *model;
    bool owner;
    int lock;
    uint64_t opened_at;
    char name[WIRE_NAME_MAX + 1];
    struct store_meta_peers meta;
    bool meta_waited, meta_all;
    uint64_t meta_asked;        /* when members were asked last */
    atomic_bool meta_origin;    /* it has begun to read the small files from the origin */
    uint64_t meta_waited_ns;    /* for members that were fetching small files, in vain */
    int meta_bad;               /* members whose small files were no good */
    char meta_from[MESH_SHORT]; /* who gave the last one */
    struct yield yield;
    struct gave gave;
    struct pool *pool;
    struct control *control;
    struct ops *ops;
    struct verify *verify;
    struct mesh *mesh;
    struct guest *guest;
    struct words *words;
    _Atomic(struct homes *) homes;
    uint64_t power_at; /* of the store's thread: when it asked for batteries, */
    bool on_battery;   /* and the answer */
    struct sleeper sleeper;
    struct sleep_watch *sleep_watch; /* NULL: this system does not tell */

    pthread_mutex_t mu; /* guards what follows: it comes while others look */
    struct store *st;
    struct lan *lan;
    struct guests *guests;
    struct node_files files;
    char *late[DISCO_STATIC_MAX]; /* static peers to be named once there is a shoal */
    size_t n_late;

    pthread_t ticker;
    bool ticking, tick_stop;
    pthread_cond_t tick;
};

void node_log(struct node *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* NULL while it is being opened. */
struct store *node_store_now(struct node *n);
struct guests *node_guests_now(struct node *n);

#endif
