/* SPDX-License-Identifier: MIT
 * engine.h: private to node/store: the table of objects in movement and in RAM, and who waits for
 * them. One mutex (`mu`) guards all of it; it is never held over a read, a write, a hook or a call
 * of the memory allocator. Order of locks: mu, then those inside disk.c and origin.c. */
#ifndef SHOAL_STORE_ENGINE_H
#define SHOAL_STORE_ENGINE_H

#include "node/store/ram.h"
#include "node/store/share.h"
#include "node/store/store.h"
#include "node/store/words.h"

#include <pthread.h>

struct chunk_sum;
struct disk;
struct disk_back;
struct disk_file;
struct incoming;
struct meta;
struct mirrors;
struct origin;
struct share;
struct sink;
struct takers;
struct trim;
struct asks;
struct upkeep;

/* ENT_IDLE: not in RAM, nothing under way. ENT_QUEUED: in a worker's queue. ENT_BUSY: a worker has
 * it. ENT_ORIGIN: the origin or the upstream has been asked. ENT_PUBLISH: to be read again once its
 * file is published. ENT_READY: in RAM, admitted. */
enum ent_state { ENT_IDLE, ENT_QUEUED, ENT_BUSY, ENT_ORIGIN, ENT_PUBLISH, ENT_READY };
enum ent_job { JOB_READ, JOB_ADMIT, JOB_FETCH };

struct entry {
    struct entry *next, *prev; /* in a queue (ENT_QUEUED) or in the LRU list (ENT_READY) */
    struct waiter *waiters;
    struct ram_slot *slot;
    struct sink *sink;   /* ENT_ORIGIN: the origin was asked, */
    struct incoming *in; /* or the upstream */
    uint32_t pins;
    uint8_t state, job, prio;
    uint8_t tries;     /* faults met by the present request */
    bool want_ram;     /* somebody wants it in RAM, not only on disk */
    bool hinted;       /* wanted by a hint and not taken since */
    bool promised;     /* its size is in `promised` */
    bool in_lru;       /* READY, an expert, no pins */
    bool no_disk;      /* this request goes past the disk (it is full) */
    bool past_peers;   /* the upstream is gone: this request goes to the origin */
    bool past_lent;    /* an adopted folder has failed: this request goes past what they offer */
    bool past_mirrors; /* one gave other bytes than are on record: this request asks the origin */
    bool taken_back;   /* READY and pinned: it leaves with its last holder */
    bool large;        /* ENT_QUEUED in `large`, or taken from there and ENT_BUSY */
    bool second;       /* as it came, another member held it or downloaded it for all */
    bool publishing;   /* its file is in the publisher's queue */
    bool bad;          /* taken_back, since its bytes do not count any more (used.c) */
    bool doomed;       /* the same, before it was READY: it is fetched again */
    bool came;         /* while this store was open: no earlier process has used it */
    uint8_t from;      /* enum store_tier the bytes came from */
    uint8_t source;    /* enum digest_source, and `rests`: of what came last, on disk or not; 0 */
    uint64_t rests;
    uint64_t used;      /* store.use_no when its bytes were last handed out; 0: never */
    uint64_t back;      /* store.back_no when they were taken back; 0: never. Who had used */
    uint64_t back_used; /* them: those that began no later than this */
};

/* Whoever waits: one waiter per object in a group; the group is woken as objects become ready. */
struct group {
    pthread_cond_t cv;
    struct waiter *head, *tail; /* done, not yet taken */
};

struct waiter {
    struct waiter *next;      /* in entry.waiters */
    struct waiter *next_done; /* in group */
    struct group *g;
    uint32_t id;
    uint32_t which;
    bool want_ram; /* else on disk is enough; done without a pin */
    bool done;
    uint8_t from, again; /* of store_view */
    int code;
    struct err *err; /* malloc'ed, may be NULL */
};

/* A batch's items: not yet asked for, asked for, done (perhaps taken). */
struct store_batch {
    struct store *st;
    struct store_batch *next; /* in store.batches while something is pending */
    struct group g;
    struct waiter *w; /* [n] */
    uint8_t *phase;   /* [n], enum batch_phase */
    size_t n, taken, first_pending, pending;
    size_t active; /* asked for or ready, not taken */
    uint8_t prio;
};
enum batch_phase { PH_PENDING, PH_DISK_ASKED, PH_ASKED, PH_TAKEN };

/* Large experts that are read at the same time: enough to keep a disk busy. With more they would
 * all come together at the end, where computing wants one after the other. What is only guessed
 * begins later: what has begun is read to its end, right or wrong. */
#define LARGE_FROM ((uint64_t)1 << 20) /* bytes */
#define LARGE_READS 6
#define LARGE_GUESSES 3

/* Objects a batch may have under way even when the RAM budget is used up by pins. */
#define BATCH_MIN_ACTIVE 2

struct queue {
    struct entry *head, *tail;
};

struct store {
    struct store_opts o; /* strings copied */
    char *model_path, *cache_dir, *token;
    bool in_place; /* a local folder read directly */
    bool closing, interrupted;
    struct model *m;
    struct model_source folder; /* in_place */
    struct meta *meta;          /* else */
    uint32_t *shard_file;       /* the origin's number of each shard */
    struct disk *disk;          /* may be NULL */
    struct origin *origin;      /* may be NULL */
    struct mirrors *mirrors;    /* may be NULL */

    pthread_mutex_t mu;
    pthread_cond_t work, pub;
    struct entry *ent; /* [n_ent] */
    uint32_t n_ent;
    struct queue q[3];                    /* by enum store_prio */
    struct queue large[3];                /* the same: large objects to be read from the disk, */
    uint32_t large_queued[3], large_busy; /* so many of them, and being read */
    struct queue lru;                     /* head = most recent */
    struct queue keep; /* ENT_READY, pinned for it: to be written to the disk (keep.c) */
    uint64_t lru_bytes, promised, hint_spine;
    struct ram ram;
    uint64_t ram_said; /* the budget that back_off.c last told of, 0: none */
    struct store_batch *batches;
    bool pumping, pump_again;
    struct store_stats s;
    struct store_upstream up; /* has_up */
    bool has_up;
    uint64_t up_no;      /* counts store_set_upstream */
    struct takers *in;   /* incoming.c; NULL until there is an upstream */
    struct share *share; /* share.c; NULL until something is shared */
    struct store_words_listener listener;
    uint64_t use_no, back_no; /* used.c */
    uint8_t trust;            /* enum store_rests: what is handed out rests on as much */
    char back_why[sizeof((struct err *)0)->msg]; /* the last sentence */
    struct trim *trim;                           /* trim.c; NULL without a disk tier */
    struct asks *asks;     /* origin_ask.c; NULL until the upstream uses the origin */
    struct upkeep *upkeep; /* upkeep.c; NULL without a disk */

    pthread_t *workers;
    uint32_t n_workers;
    pthread_t publisher;
    bool have_publisher, pub_stop;
    struct disk_file *pub_head, *pub_tail;
    bool disk_trouble;        /* said once, until writing has worked for a while */
    uint64_t disk_trouble_at; /* clock_ns of the last failure */
    uint32_t no_room_id;      /* store_read: this object did not fit on the disk a moment ago, */
    uint64_t no_room_until;   /* so until then (clock_ns) only the bytes asked for are fetched */

    uint64_t rate_t[16], rate_b[16]; /* origin bytes by second, for origin_rate */
};

/* ---- engine.c; with mu held unless said otherwise ---- */

static inline const struct model_object *eng_object(const struct store *st, uint32_t id)
{
    return model_object(st->m, id);
}
static inline uint32_t eng_id(const struct store *st, const struct entry *en)
{
    return (uint32_t)(en - st->ent);
}
bool eng_is_expert(const struct store *st, uint32_t id);
/* Can what is not here be got? */
static inline bool eng_can_fetch(const struct store *st)
{
    return st->origin || st->has_up;
}

/* Set the machine moving for this object; waiters and want flags are in place. */
void eng_want(struct store *st, uint32_t id, enum store_prio prio, bool ram);
void eng_hint(struct store *st, uint32_t id);
void eng_add_waiter(struct store *st, struct waiter *w);
void eng_drop_waiter(struct store *st, struct waiter *w);
/* Nobody waits any more: take it out of queues as far as it has not begun. */
void eng_lose_interest(struct store *st, uint32_t id);
void eng_pin(struct store *st, struct entry *en);
void eng_unpin(struct store *st, struct entry *en, bool drop);
/* What is in RAM of it counts no longer: it leaves, at the latest with its last holder. */
void eng_take_back(struct store *st, struct entry *en);
/* May `size` more bytes of experts come in without evicting what is wanted? */
bool eng_has_room(const struct store *st, uint64_t size);
/* A slot for the entry, evicting; NULL for lack of memory or, for a mere hint, of room. Releases
 * and retakes mu while memory is allocated. */
struct ram_slot *eng_slot(struct store *st, struct entry *en);
void eng_put_slot(struct store *st, struct entry *en);
/* Nobody holds it: its memory goes. */
void eng_evict(struct store *st, struct entry *en);
/* ram_fill, with room made for it by steps (back_off.c). Releases and retakes mu. */
bool eng_fill(struct store *st, struct ram_slot *s);
/* The request is over: in RAM (ENT_READY) or failed; wakes the waiters. */
void eng_ready(struct store *st, struct entry *en);
void eng_fail(struct store *st, struct entry *en, int code, const struct err *e);
/* It is on disk now: those for whom that suffices are done. */
void eng_on_disk(struct store *st, struct entry *en);
void eng_enqueue(struct store *st, struct entry *en, enum ent_job job);
void eng_list_push(struct queue *q, struct entry *en); /* behind the others */
void eng_list_cut(struct queue *q, struct entry *en);
struct entry *eng_pop(struct store *st);
/* A worker has done what it took from eng_pop (as `large` as it was then). */
void eng_popped(struct store *st, bool large);
/* Start what batches could not start for lack of room. */
void eng_pump(struct store *st);
/* Without mu. */
void eng_log(struct store *st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void eng_sweep(struct store *st);
/* Without mu: the cache could not, or could, be written. Said once per change, not per object. */
void eng_disk_trouble(struct store *st, const struct err *e);
void eng_disk_fine(struct store *st);

/* ---- worker.c ---- */
int worker_start(struct store *st, struct err *e);
/* Without mu; joins. The origin must have been closed. */
void worker_stop(struct store *st);
/* Without mu: bytes [off, off+n) of an object straight out of the folder's shard. */
int worker_read_in_place(struct store *st, uint32_t id, uint64_t off, void *p, size_t n,
                         struct err *e);
/* With mu: hand a complete file to the publisher. */
void worker_publish(struct store *st, struct disk_file *f);

/* ---- keep.c ---- */
/* With mu: somebody wants on disk what is in RAM alone. It is being written from now on
 * (`publishing`), or has left RAM because its bytes cannot be vouched for, or nothing can be done.
 */
void keep_start(struct store *st, struct entry *en);
/* With mu, by a worker: the next one of these; false: there is none. Releases mu meanwhile. */
bool keep_next(struct store *st);

/* ---- trim.c ---- */
/* After disk_open: which limits the disk has; then the thread that keeps them. Without mu. */
int trim_open(struct store *st, struct err *e);
int trim_start(struct store *st, struct err *e);
void trim_stop(struct store *st); /* before disk_close; joins, writes what is to be kept */
/* store_stats: bytes written to the disk; any thread. */
void trim_numbers(struct store *st, uint64_t *written, uint64_t *today);

/* ---- sink.c ---- */
/* With mu: ask the origin for the object; en is ENT_ORIGIN afterwards, or has failed. */
void sink_start(struct store *st, struct entry *en);
/* Without mu, by a worker that owns the entry (ENT_BUSY): take up a partial file, then ask. */
void sink_resume(struct store *st, struct entry *en);
/* With mu: the request has become more urgent; or cancel it when it has not begun
 * (true: cancelled, freed). */
void sink_raise(struct store *st, struct entry *en);
bool sink_cancel(struct store *st, struct entry *en);
void sink_count(struct store *st, uint64_t bytes); /* with mu: origin bytes, for the rate */
/* All bytes are here, in the entry's slot, in *f (taken; NULL afterwards) or both; en->from says
 * whence. With mu, which is released and retaken. */
void sink_complete(struct store *st, struct entry *en, struct disk_file **f,
                   const struct chunk_sum *sums, enum basis b, uint64_t rests);
/* ---- words.c, used.c ---- */
/* disk_opts.taken_back, voided and settled; ctx is the store. */
void words_taken_back(void *store, const struct disk_back *v, size_t n, const char *why);
void words_voided(void *store, const uint8_t member[SHA256_SIZE], const char *why);
void words_settled(void *store, uint64_t lost, const char *why);
/* With mu: the bytes of a READY entry are handed out. */
void used_now(struct store *st, struct entry *en);
/* With mu: may they be (store_set_trust)? ERR_REFUSED. */
int used_may(struct store *st, uint32_t id, struct err *e);

/* ---- incoming.c: objects on their way from the upstream ---- */
/* With mu. */
void in_start(struct store *st, struct entry *en);
void in_raise(struct store *st, struct entry *en);
void in_cancel(struct store *st, struct entry *en);
void in_again(struct entry *en); /* wanted again, perhaps after in_cancel */
/* Without mu; ends what is left. After the origin has been stopped, before worker_stop. */
void in_stop(struct store *st);

/* ---- upkeep.c ---- */
int upkeep_start(struct store *st, struct err *e);
void upkeep_stop(struct store *st); /* first of all */

/* ---- share.c, origin_ask.c ---- */
void share_disk_changed(void *store); /* disk_opts.changed */
void share_stop(struct store *st);
void ask_free(struct store *st);         /* after origin_free */
void ask_busy(void *store, uint64_t ms); /* origin_opts.asked: tells the upstream */
void ask_trouble(void *store);           /* origin_opts.trouble: likewise */

#endif
