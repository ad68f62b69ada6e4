/* SPDX-License-Identifier: MIT
 * origin_inner.h: what origin.c (queue, runs), origin_retry.c and the two transports share. */
#ifndef SHOAL_STORE_ORIGIN_INNER_H
#define SHOAL_STORE_ORIGIN_INNER_H

#include "node/store/http_head.h"
#include "node/store/origin.h"
#include "node/store/cap.h"

#include <pthread.h>

struct origin_file {
    char *name;
    uint64_t size;
    char etag[ORIGIN_ETAG_MAX];
    /* where redirects have led to; the transport's thread only */
    char *resolved;
    uint64_t resolved_at, good_until; /* clock_ns; good_until 0: it does not say how long */
    char linked[ORIGIN_ETAG_MAX];     /* the tag that the redirect gave, "": none */
    char far_etag[ORIGIN_ETAG_MAX];   /* the tag that the server there gives, "": none */
};

/* Parts of one file that follow each other: one request. */
struct run {
    struct origin_part *head; /* linked by next; bytes go to the first */
    uint32_t file;
    uint64_t pos, end; /* the next byte, and behind the last one; end ORIGIN_UNKNOWN: to the end */
    uint64_t skip;     /* bytes of a part that has ended early */
    uint64_t given;    /* bytes handed on in this attempt */
    uint64_t asked;    /* clock_ns of this attempt's beginning */
    bool completed;    /* a part was completed in this attempt */
    bool cut;          /* run_cut: not a failure */
    uint8_t prio;
};

struct http; /* origin_http.c */

struct origin {
    struct origin_opts o;
    char *url, *token, *host, *ca_file; /* host: for sentences */
    struct cap cap;                     /* of all; the transport's thread only */
    struct http *http;                  /* NULL: a folder */
    pthread_t thread;
    bool started;

    pthread_mutex_t mu; /* what follows */
    pthread_cond_t cv;  /* the folder's thread waits here */
    struct origin_file *files;
    uint32_t n_files, cap_files;
    struct origin_part *head, *tail; /* waiting, in order of submission */
    uint64_t seq, bytes, retries, unused;
    uint64_t cut_after;   /* clock_ns: no request is cut before, more may be dropped meanwhile */
    uint64_t renewed;     /* addresses of redirects given up before they expired */
    uint64_t far_life;    /* ns after which such an address was refused, the least; 0: none was */
    uint64_t floor;       /* bytes a second, 0: none */
    uint64_t pause_until; /* clock_ns: nobody asks before */
    uint64_t asked_until; /* the same, when it has said so itself (Retry-After) */
    uint64_t last_byte, last_wait_log, last_retry_log, last_retry_what;
    uint32_t host_fails; /* in a row, at the level of the host */
    uint32_t rng;
    bool stop;
    /* measured: see origin_measured */
    uint32_t running;    /* attempts under way */
    uint64_t busy_since; /* clock_ns, while running: what is not in busy_ns yet */
    uint64_t busy_ns, busy_bytes;
    uint64_t down_at; /* clock_ns when it was given up, 0: it was not, or has answered since */
    double rate, latency;
};

/* With mu: append to the queue. */
void origin_queue_add(struct origin *o, struct origin_part *p);
void origin_queue_cut(struct origin *o, struct origin_part *p);
void origin_wake(struct origin *o); /* the transport looks at the queue and at what was dropped */
void origin_unused(struct origin *o, uint64_t n); /* without mu: they came for nothing */
/* With mu: take the next request's parts out of the queue. *wake: when to look again if NULL. */
struct run *run_take(struct origin *o, uint64_t now, bool demand_only, uint64_t *wake);
/* Without mu: what an answer says about the file: remembered if new. Contradiction: an error. */
int run_learn(struct origin *o, struct run *r, uint64_t total, const char *etag, struct err *e);
/* Without mu: bytes at r->pos. An error means more bytes than asked. */
int run_data(struct origin *o, struct run *r, const void *p, size_t n, struct err *e);
/* Without mu: would what is not wanted any more of this request cost more than another one for the
 * rest? True: its dropped parts are done, and the attempt is to be ended. */
bool run_cut(struct origin *o, struct run *r);
void run_drop(struct origin *o, struct run *r); /* without mu: dropped parts are done */
/* Without mu: the attempt is over; what is not complete is queued again or fails. Frees r.
 * host_level: the fault is the host's, not this file's; wait_ms: the server's Retry-After. */
void run_end(struct origin *o, struct run *r, enum http_verdict v, bool host_level,
             uint64_t wait_ms, const struct err *e);
/* With mu: an attempt begins, gives bytes, ends: for origin_measured. */
void measure_begin(struct origin *o, uint64_t now);
void measure_bytes(struct origin *o, const struct run *r, size_t n, uint64_t now);
void measure_end(struct origin *o, uint64_t now);
/* Without mu, now and then by the thread: say what a long wait is for. */
void origin_tick(struct origin *o, uint64_t now);
void origin_say(struct origin *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- origin_far.c: without mu; on the transport's thread ---- */

/* The address that redirects of this file have led to, while it is good; malloc'ed. NULL: none.
 * linked[ORIGIN_ETAG_MAX]: the entity tag that the redirect gave. */
char *far_take(struct origin *o, uint32_t file, char *linked, uint64_t now);
/* The server there gives the same entity tag as at first, or none. */
bool far_same(struct origin *o, uint32_t file, const char *etag);
/* Redirects led to this address, and what came was right. asked_wall: seconds since 1970 when it
 * was made, by the clock of the server that made it. */
void far_learn(struct origin *o, uint32_t file, const char *url, int64_t asked_wall,
               const char *linked, const char *etag, uint64_t now);
void far_forget(struct origin *o, uint32_t file);
/* The same, and it was refused: others of this age will be, too. */
void far_refused(struct origin *o, uint32_t file, uint64_t now);

int http_open(struct origin *o, struct http **out, struct err *e);
void http_free(struct http *h);
void http_wake(struct http *h);
void *http_main(void *origin);

#endif
