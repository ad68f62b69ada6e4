/* SPDX-License-Identifier: MIT
 * origin.h: private to node/store: byte ranges of a model's files from an HTTP server, or from a
 * local folder as if it were one. A thread of its own takes wanted parts by priority, merges
 * adjacent ones into one range, checks every answer, retries, and hands the bytes on in order.
 *
 * Threads: any thread may call; begin, data and done run on the origin's thread without locks held.
 * After done (or a successful cancel) a part belongs to the caller again. */
#ifndef SHOAL_STORE_ORIGIN_H
#define SHOAL_STORE_ORIGIN_H

#include "node/store/store.h"
#include "proto/base/buf.h"
#include "proto/base/err.h"

struct origin; /* opaque */

struct origin_opts {
    const char *url; /* http(s)://... without a slash at the end, or a folder */
    bool folder;
    const char *token;
    const char *ca_file;            /* see store_opts */
    uint64_t rate_limit, rate_conn; /* bytes a second: of all, of each connection; 0 = no cap */
    uint64_t mirror_rate;           /* for mirrors_open: the rate_limit of each of them */
    uint32_t retries, retry_ms, stall_ms; /* 0 = defaults, see store_opts */
    uint32_t merge_ms; /* so long a part waits for neighbours that come after it; 0 = not at all */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    /* Size and entity tag of a file have been learned from a first answer. */
    void (*learned)(void *ctx, const char *name, uint64_t size, const char *etag);
    void *learned_ctx;
    /* It has asked to be left alone for so long (Retry-After). On the origin's thread, without
     * locks. May be NULL. */
    void (*asked)(void *ctx, uint64_t ms);
    void (*trouble)(void *ctx); /* likewise: as store_origin_answers.trouble (share.h) */
    void *asked_ctx;            /* of both */
};

#define ORIGIN_ETAG_MAX 200
#define ORIGIN_UNKNOWN UINT64_MAX

int origin_open(const struct origin_opts *o, struct origin **out, struct err *e);
/* Parts still waiting or running end with ERR_CANCELLED, and so do, at once and on the caller's
 * thread, those submitted later. NULL is fine for both. */
void origin_stop(struct origin *o);
void origin_free(struct origin *o);

/* Number of the file with this name (made on first use), and what is known of it: its size (or
 * ORIGIN_UNKNOWN) and entity tag (or ""). An answer that contradicts them is refused. */
int origin_file(struct origin *o, const char *name, uint32_t *file, struct err *e);
void origin_expect(struct origin *o, uint32_t file, uint64_t size, const char *etag);
uint64_t origin_size(struct origin *o, uint32_t file);

struct origin_part {
    void *user;
    const char *name; /* of the object, for sentences; lives as long as the part */
    uint32_t file;
    uint64_t off, size; /* size ORIGIN_UNKNOWN: the whole file, off 0 */
    uint8_t prio;       /* enum store_prio; change by origin_raise */
    /* The first byte is about to be given; may be NULL. An error ends the part. For a whole file it
     * may come again after bytes were given: then everything begins anew. */
    int (*begin)(struct origin_part *p, struct err *e);
    /* The next n bytes. An error ends the part with that error; it is not tried again. */
    int (*data)(struct origin_part *p, const void *b, size_t n, struct err *e);
    /* All bytes were given (code 0), or it has failed for good. */
    void (*done)(struct origin_part *p, int code, const struct err *e);
    bool sure; /* from the origin itself, from no mirror (mirrors.h) */
    /* Set by mirrors.c: bytes came from this mirror (its number and 1, 0: none); those of this
     * moment do. */
    uint8_t mirror;
    bool at_mirror;
    /* private */
    struct mirror_part *via;
    struct origin_part *next;
    uint64_t got;        /* bytes given so far */
    uint64_t not_before; /* clock_ns of the next attempt */
    uint64_t ripe;       /* clock_ns from when on it may begin a request, see merge_ms */
    uint64_t since;      /* clock_ns of submission or of the last byte */
    uint64_t seq;
    uint32_t attempts, refusals;
    bool queued, begun, dropped;
};

void origin_submit(struct origin *o, struct origin_part *p);
void origin_raise(struct origin *o, struct origin_part *p, enum store_prio prio);
/* True: it had not begun and has been taken out; done will not be called. */
bool origin_cancel(struct origin *o, struct origin_part *p);
/* Nobody wants its bytes any more. True: it was not running and has been taken out; done will not
 * be called. Else done comes. What is left of a running request is then read only as far as that
 * costs less than another request for what is still wanted of it. */
bool origin_drop(struct origin *o, struct origin_part *p);

/* Blocking forms: a whole small file (ERR_NOTFOUND: none such), or a range. */
int origin_get_file(struct origin *o, const char *name, struct buf *out, struct err *e);
int origin_get_range(struct origin *o, const char *name, uint64_t off, void *p, size_t n,
                     struct err *e);

/* Counters since the beginning. unused: of bytes, those that were thrown away, because nobody
 * wanted them any more or nobody could take them. */
void origin_numbers(struct origin *o, uint64_t *bytes, uint64_t *retries, uint64_t *unused);
/* Is it answering? Bytes a second while it was busy, seconds to the first byte; 0: not known. One
 * that was given up counts as up again after a while, so that somebody tries it. */
void origin_measured(struct origin *o, bool *up, double *bytes_s, double *latency_s);
/* How long it wants to be left alone still (Retry-After and the like); 0: not known. */
uint64_t origin_pause_ms(struct origin *o);
uint64_t origin_asked_ms(struct origin *o); /* the same, only what it has said itself */
/* Begin nothing new for so long; what runs goes on. */
void origin_pause(struct origin *o, uint64_t ms);
const char *origin_url(const struct origin *o);
/* From now on a request that gives fewer bytes a second than this for some seconds is ended. */
void origin_floor(struct origin *o, uint64_t bytes_s);

#endif
