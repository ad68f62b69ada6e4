/* SPDX-License-Identifier: MIT
 * mirrors_inner.h: what mirrors.c (parts and sources) and mirrors_probe.c (samples, failures)
 * share. */
#ifndef SHOAL_STORE_MIRRORS_INNER_H
#define SHOAL_STORE_MIRRORS_INNER_H

#include "node/store/mirrors.h"
#include "node/store/origin_inner.h"

#define MIRROR_UNSURE_NS 60000000000ull /* until a file that could not be compared is, again */

enum state { FILE_NEW, FILE_ASKED, FILE_GOOD, FILE_MISSING };

struct mfile {
    uint8_t state;  /* enum state */
    uint32_t no;    /* the mirror's number of it */
    uint64_t until; /* FILE_MISSING, and FILE_GOOD that was not compared: clock_ns; else 0 */
};

struct mirror {
    struct origin *o;
    struct mfile *f; /* [cap], by the origin's number of the file */
    uint32_t cap;
    bool wrong, said; /* said: that it cannot be compared */
    uint32_t fails;   /* in a row */
    uint64_t paused_until, objects, failed;
    char why[200];
};

/* A part on its way through the sources. */
struct mirror_part {
    struct origin_part part; /* at the present source */
    struct origin_part *user;
    struct mirrors *ms;
    struct mirror_part *next; /* in ms->waiting */
    int at;                   /* which mirror, ORIGIN or, in the list, the one it waits for */
    bool waiting;
    uint32_t tried; /* bits by mirror */
    uint64_t got;
    bool begun;
    int own; /* the user's own error, which is no source's fault */
    struct err own_err;
};
#define MIRROR_NONE (-1)

struct mirrors {
    uint64_t rate; /* cap of each, bytes a second; 0: none */
    struct origin *o;
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    pthread_mutex_t mu; /* what follows */
    struct mirror m[STORE_MIRRORS_MAX];
    size_t n;
    struct mirror_part *waiting; /* for a sample */
    uint64_t rng;
    bool stopping;
};

/* With mu. NULL: no memory. */
struct mfile *mirror_file(struct mirrors *ms, struct mirror *m, uint32_t file);
void mirror_say(struct mirrors *ms, const char *host, const char *what);
/* Without mu: on to the next source. */
void mirror_route(struct mirror_part *w);

/* Without mu: what a failed request means for its mirror; it is logged. */
void mirror_failed(struct mirrors *ms, int mirror, uint32_t file, int code, const struct err *e);
/* Without mu; the file is FILE_ASKED, `no` is the mirror's number of it. A piece of [off, off +
 * size) is compared, then the parts that wait for it go on. */
void mirror_probe(struct mirrors *ms, int mirror, uint32_t file, uint32_t no, uint64_t off,
                  uint64_t size, uint64_t rnd);

#endif
