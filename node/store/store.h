/* SPDX-License-Identifier: MIT
 * store.h: get(object) through the tiers: RAM, disk, peers (share.h), origin.
 *
 * Data flow: an object is asked for by id (node/model numbering). It is in RAM (pinned at once), or
 * on disk (read, its chunk checksums verified), or at the origin (one range per run of adjacent
 * objects, each 1 MiB chunk hashed as it arrives and written to a temporary file; that is synced,
 * its digest recorded, then renamed). It is handed out as soon as its bytes are complete; the
 * publishing goes on behind. Before an object is handed out for the first time from RAM the
 * caller's `admit` hook has accepted its bytes. One request in flight per object, however many
 * callers. Whatever goes wrong ends as one err whose sentence names object, source and remedy;
 * never as wrong bytes.
 *
 * Threads: all functions may be called from any thread. The store has threads of its own for disk
 * reads and for the origin; hooks run on them. */
#ifndef SHOAL_NODE_STORE_H
#define SHOAL_NODE_STORE_H

#include "node/model/model.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_meta_peers;

enum store_prio { STORE_DEMAND, STORE_PREFETCH, STORE_BACKGROUND };
enum store_tier { STORE_NOWHERE, STORE_ORIGIN, STORE_DISK, STORE_RAM, STORE_PEERS };

/* Memory for object bytes, given by the caller so that a GPU can see it. Page-aligned. NULL fields:
 * the store uses anonymous pages. */
struct store_mem {
    void *ctx;
    void *(*alloc)(void *ctx, size_t size, void **handle); /* NULL when there is no memory */
    void (*release)(void *ctx, void *handle);
};

struct store_opts {
    const char *model;     /* folder, or http(s) URL of one (without file name) */
    const char *cache_dir; /* disk tier and catalog; NULL: none (a folder is read in place) */
    bool offline;          /* never use the network; a folder as origin is still read */
    uint64_t ram_budget;   /* bytes of expert objects kept in RAM (pinned ones may exceed it) */
    uint64_t disk_budget;  /* bytes of the disk tier; 0 = what the cache folder keeps (budget.h), */
    uint64_t disk_floor;   /* else no limit but this floor: bytes left free on the volume; 0 =
                              what the folder keeps, else automatic (budget.h) */
    const char *const
        *mirrors; /* [n_mirrors] http(s) URLs asked before the origin, in this order;
                     not with a folder as model. What they give counts as own download */
    size_t n_mirrors;
    const char *token;    /* HTTP bearer token for the origin's host only; may be NULL */
    const char *ca_file;  /* certificates of authorities for https, a file or folder, in place of
                             the system's; NULL: the system's */
    uint64_t rate_limit;  /* bytes a second from the origin; 0 = none */
    uint64_t mirror_rate; /* from each mirror; 0 = none: rate_limit is for the origin alone */
    uint64_t rate_conn;   /* the same for each connection (one file, one range); 0 = none */
    uint32_t retries;     /* attempts without progress before an origin error counts; 0 = 8,
                             5 before the origin's first byte */
    uint32_t retry_ms;    /* first wait between attempts, doubled each time; 0 = 500 ms */
    uint32_t stall_ms;    /* a transfer without bytes for so long is begun anew; 0 = 10 s */
    bool past_cache;      /* for measurements: large objects are read past the system's page cache
                             however much memory there is, as where it could not hold the model */
    struct store_mem mem;
    const struct store_meta_peers *meta; /* share.h; NULL: none. Lives as long as the store */
    /* Called once per entry into RAM, before anybody sees the bytes; may rewrite them in place
     * (the disk keeps the original). An error refuses the object by name. May be NULL. */
    int (*admit)(void *ctx, uint32_t id, uint8_t *p, size_t n, struct err *e);
    void *admit_ctx;
    /* One line for people (retry, re-fetch of a damaged file, waiting for what); may be NULL. */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

struct store; /* opaque */

/* Opens cache and origin; reads (and caches) the model's metadata; *model (owned by the store) is
 * the inventory. Fails with a sentence when neither cache nor origin has a usable model. */
int store_open(const struct store_opts *o, struct store **out, struct err *e);
/* No call may be in progress and no view be held. What is being published is finished first. */
void store_close(struct store *st);
const struct model *store_model(const struct store *st);
/* Late wiring, before the first get: the hook often needs the model that store_open found. */
void store_set_admit(struct store *st,
                     int (*admit)(void *ctx, uint32_t id, uint8_t *p, size_t n, struct err *e),
                     void *ctx);
/* The same for the RAM budget: how it divides between experts and spine depends on the model's
 * sizes. Later calls take effect as objects come and go. */
void store_set_ram_budget(struct store *st, uint64_t bytes);
/* The memory that experts live in is wanted elsewhere: the budget becomes what they hold now less
 * `bytes`, or a layer's choice, whichever is more (never more than it was), and the least recently
 * used leave at once. Returns the bytes that went back; objects that are in use stay. Any thread.
 */
uint64_t store_ram_back_off(struct store *st, uint64_t bytes);
/* Append a small model file (tokenizer and so on), from cache or origin. ERR_NOTFOUND: none such.
 */
int store_read_file(struct store *st, const char *name, struct buf *out, struct err *e);

/* ---- objects ---- */

struct store_view { /* a pinned object in RAM; read-only; valid until released */
    const uint8_t *p;
    size_t n;
    void *mem_handle; /* of store_mem.alloc; p is its beginning */
    uint32_t id;
    uint8_t from;  /* enum store_tier that answered */
    uint8_t again; /* it had to be got more than once: what there was first was damaged */
    void *priv;    /* private */
};

/* For an orderly end: whoever waits for an object from here on, or does already, gets ERR_CANCELLED
 * within a quarter of a second. What is there is still given. Serving goes on until store_close. */
void store_interrupt(struct store *st);

/* One object; blocks. Release with store_release. deadline_ns: absolute clock_ns time, 0 = none;
 * after it ERR_TIMEOUT, while a fetch that has begun goes on. */
int store_get(struct store *st, uint32_t id, enum store_prio prio, uint64_t deadline_ns,
              struct store_view *out, struct err *e);
/* An expert stays in RAM while the budget lasts (least recently used goes first); a spine object
 * leaves with its last holder unless a hint for it came since it was taken. v becomes empty. */
void store_release(struct store *st, struct store_view *v);
/* As store_release; the bytes leave RAM at once when nobody else holds them (streamed spine). */
void store_release_drop(struct store *st, struct store_view *v);

/* Many objects, handed out in the order in which they become ready. ids are copied, at most
 * STORE_BATCH_MAX, no id twice. */
#define STORE_BATCH_MAX 65536
struct store_batch;
int store_batch_begin(struct store *st, const uint32_t *ids, size_t n, enum store_prio prio,
                      struct store_batch **out, struct err *e);
/* Blocks for the next one: *which is its index in ids. ERR_NOTFOUND when all have been handed out.
 * An object's failure is returned once, with *which set; the others can still be taken. After
 * store_interrupt ERR_CANCELLED, which leaves *which alone.
 * The pin budget is the caller's care: release each view when done. Experts for which the RAM
 * budget has no room wait until views are released (two are always under way); until then they come
 * as far as the disk. */
int store_batch_next(struct store_batch *b, size_t *which, struct store_view *out, struct err *e);
bool store_batch_ready(struct store_batch *b); /* would store_batch_next return at once? */
void store_batch_end(struct store_batch *b);   /* gives up what was not taken */

/* A hint: these will probably be wanted soon. Never blocks, never fails, never changes a result.
 * Experts come into RAM while the budget has room, else as far as the disk; spine objects stay in
 * RAM until they have been taken once (at most 4 GiB of them). */
void store_hint(struct store *st, const uint32_t *ids, size_t n);

/* n bytes at `off` of an object without bringing all of it into RAM (a row of the embedding): from
 * the RAM or disk copy if there is one, else the object is fetched to disk first; without a disk
 * tier, a range of the origin. `admit` is not called on these bytes. */
int store_read(struct store *st, uint32_t id, uint64_t off, void *p, size_t n, struct err *e);

/* ---- numbers ---- */

struct store_stats {
    uint64_t origin_bytes, peer_bytes, disk_bytes; /* payload bytes taken from each tier */
    uint64_t mirror_bytes;
    uint64_t origin_unused; /* came from the origin as well, for nothing: not wanted any more */
    /* expert requests answered by each tier; peers: by another machine, or by it and the origin */
    uint64_t ram_hits, disk_hits, peer_fetches, origin_fetches;
    uint64_t experts_fetched;                  /* expert objects that came from the origin, */
    uint64_t experts_from_peers;               /* and those that came from peers */
    uint64_t ram_used, ram_peak, ram_budget;   /* bytes of objects in RAM */
    uint64_t ram_experts;                      /* of ram_used: what the budget bounds */
    uint64_t spine_bytes_read;                 /* spine bytes brought into RAM */
    uint64_t retries, bad_chunks, refetched;   /* faults survived */
    double origin_rate;                        /* bytes a second, last seconds */
    uint64_t disk_written, disk_written_today; /* bytes: by this store; by all processes, UTC day */
    uint64_t wait_ns;                          /* time that demand requests have waited */
};
void store_get_stats(struct store *st, struct store_stats *out);

/* A mirror as it is now. */
#define STORE_MIRRORS_MAX 16
struct store_mirror {
    char host[200];    /* of its address, with the port, without user name and password */
    bool wrong;        /* it has other bytes: not asked any more */
    uint64_t pause_ms; /* left alone for so long still, after a failure */
    uint64_t bytes, parts, failed; /* taken; requests that it answered whole, that it failed */
    double bytes_s;                /* measured, 0: not known */
    char why[200];                 /* its last failure, "" none */
};
size_t store_mirrors(struct store *st, struct store_mirror *out, size_t max);
bool store_mirrors_up(struct store *st); /* is one worth asking? */

/* Where an object is now, without touching it: for progress, status and doctor. */
enum store_tier store_where(struct store *st, uint32_t id);

/* Objects that are read from the disk at the same time: a layer's experts. */
#define STORE_READS 16
/* For measurements: the file in which an object lies on disk, malloc'ed; NULL: it does not, or
 * there is no memory. *past: it is read past the page cache, *step bytes at a time. */
char *store_file(struct store *st, uint32_t id, bool *past, size_t *step);

#endif
