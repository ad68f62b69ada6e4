/* SPDX-License-Identifier: MIT
 * keep.h: private to node/engine: states of prefixes, kept for later requests: in RAM, behind that
 * on disk. One thread.
 *
 * Policy. A state of K3 takes 464 MB and 55 KB a token, and saves seconds for each of its tokens,
 * so few are kept, at places where conversations part: the ends of messages. A look-up takes the
 * longest kept prefix. Out goes first what a longer kept state makes superfluous unless it was used
 * since (a growing chat), then what was not used longest. What leaves RAM goes to disk if there is
 * room; the disk's copies go by the same rule. */
#ifndef SHOAL_ENGINE_KEEP_H
#define SHOAL_ENGINE_KEEP_H

#include "node/infer/infer.h"

#define KEEP_FILES_MAX 4096
#define KEEP_SHORTEST 16 /* tokens: shorter prefixes are not worth a state */

struct keep;

struct keep_opts {
    struct infer *f;
    uint64_t ram, disk; /* bytes */
    const char *dir;    /* NULL: none on disk */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

/* Reads what earlier runs left in the folder. A folder that cannot be used is said and done
 * without. */
int keep_open(const struct keep_opts *o, struct keep **out, struct err *e);
void keep_close(struct keep *k); /* writes what is not on disk yet, as far as there is room */

/* A copy of the state of the longest kept prefix of ids[0..n) that is shorter than n; its length in
 * *used (0 and NULL: there is none). An entry that cannot be read is put aside and not tried again.
 */
struct infer_state *keep_find(struct keep *k, const uint32_t *ids, size_t n, size_t *used);
/* Is this very prefix kept? */
bool keep_has(const struct keep *k, const uint32_t *ids, size_t n);
/* Keep a copy of the state of ids[0..n). Not being able to does no harm. */
void keep_put(struct keep *k, const uint32_t *ids, size_t n, const struct infer_state *st);
/* Write one state that is in RAM only; false: there was none to write. For idle times. */
bool keep_write_one(struct keep *k);
int keep_forget(struct keep *k, struct err *e);

struct keep_stats {
    size_t ram, disk;
    uint64_t ram_bytes, disk_bytes, hits;
};
void keep_get_stats(const struct keep *k, struct keep_stats *out);

#endif
