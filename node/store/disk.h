/* SPDX-License-Identifier: MIT
 * disk.h: private to node/store: the disk tier of one model. Files with exactly an object's bytes,
 * published by rename after their digest is in journal and catalog; partial files that survive the
 * death of the process; byte budget and free-space floor. Any thread; it has a mutex of its own and
 * calls nobody back but the log. */
#ifndef SHOAL_STORE_DISK_H
#define SHOAL_STORE_DISK_H

#include "node/model/model.h"
#include "node/store/chunk.h"
#include "proto/base/err.h"

#include <stdbool.h>

struct disk; /* opaque */

struct disk_opts {
    const char *cache_dir;
    const struct model *m; /* outlives the disk */
    uint64_t budget;       /* bytes, 0 = none */
    uint64_t floor;        /* bytes left free on the volume */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

/* Opens (makes, repairs) the model's part of the cache. */
int disk_open(const struct disk_opts *o, struct disk **out, struct err *e);
void disk_close(struct disk *d);

bool disk_has(struct disk *d, uint32_t id);
/* As disk_has, and looks whether another process has published it meanwhile. */
bool disk_look(struct disk *d, uint32_t id);
/* The last chunk of an object, by the digest on record; false: there is none. */
bool disk_last_chunk(struct disk *d, uint32_t id, uint32_t *chunk, uint64_t *xxh);
/* Wanted by a present request (+1) or no longer (-1): such an object is not evicted. Counts as use.
 */
void disk_pin(struct disk *d, uint32_t id, int by);

/* The whole object into p, every chunk verified. On a missing, short, long or damaged file: the
 * file is removed and forgotten (its digest is not), and the sentence names it. */
int disk_read(struct disk *d, uint32_t id, uint8_t *p, struct err *e);
/* n bytes at off; the chunks that hold them are verified. */
int disk_read_part(struct disk *d, uint32_t id, uint64_t off, void *p, size_t n, struct err *e);

/* ---- writing one object: begin, chunks in order, then publish or abandon ---- */

struct disk_file {
    struct disk_file *next; /* for the caller's queue */
    uint32_t id;
    uint32_t done;          /* chunks complete, from the beginning */
    struct chunk_sum *sums; /* [chunks of the object] */
    struct digest *digest;  /* set by disk_digest */
    int result;             /* of disk_publish */
    /* private */
    int fd, rec_fd;
    uint64_t reserved;
};

bool disk_has_partial(struct disk *d, uint32_t id);
/* Makes the room (evicting), opens a temporary file; takes up a partial one: f->done of its chunks
 * are good, verified, and copied to `ram` when that is not NULL. ERR_FULL: no room by budget, floor
 * or volume. */
int disk_begin(struct disk *d, uint32_t id, uint8_t *ram, struct disk_file **out, struct err *e);
/* Chunk f->done, whose sum the caller has computed. */
int disk_chunk(struct disk *d, struct disk_file *f, const void *p, size_t n,
               const struct chunk_sum *s, struct err *e);
/* All chunks are there: compute the digest and compare it with the one on record. ERR_DIGEST: the
 * bytes differ from what this object was when it was first fetched. */
int disk_digest(struct disk *d, struct disk_file *f, struct err *e);
/* As disk_digest for an object that was received into RAM only. */
int disk_check(struct disk *d, uint32_t id, const struct chunk_sum *sums, struct err *e);
/* Sync, record, rename a list (through `next`); each one's `result` says what became of it, the
 * first failure is returned. The files stay the caller's, to be given to disk_free. */
int disk_publish(struct disk *d, struct disk_file *list, struct err *e);
/* Give up: a partial file is kept for a later disk_begin, or removed. Frees f. */
void disk_abandon(struct disk *d, struct disk_file *f, bool keep);
void disk_free(struct disk *d, struct disk_file *f);

/* Root folder of this model in the cache, for sentences. */
const char *disk_path(const struct disk *d);
uint64_t disk_used(struct disk *d);

#endif
