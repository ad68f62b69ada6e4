/* SPDX-License-Identifier: MIT
 * rig.h: a whole engine over a model folder, for the tests of node/infer. */
#ifndef SHOAL_TESTS_INFER_RIG_H
#define SHOAL_TESTS_INFER_RIG_H

#include "kernels/cpu.h"
#include "node/infer/generate.h"

struct rig_opts {
    const char *model;       /* folder or URL */
    const char *cache;       /* may be NULL */
    struct kern_backend *be; /* stays the caller's; NULL: a CPU's of its own: */
    enum kern_isa isa;
    unsigned threads; /* 0 = 2 */
    bool flush;
    uint64_t ram;          /* expert budget; 0 = 1 GiB */
    uint64_t spine_budget; /* 0 = all */
    bool no_spine;         /* nothing resident */
    uint32_t max_rows;
    bool offline;
    uint64_t shuffle;
    enum infer_prefetch prefetch;
    int (*progress)(void *ctx, const struct infer_progress *p);
    void *progress_ctx;
    void (*routed)(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n);
    void *routed_ctx;
};

struct rig {
    struct kern_backend *be;
    bool borrowed; /* be is another's */
    struct store *st;
    struct infer *f;
    const struct model *m;
};

/* 0, or the error of the part that failed (everything closed again). */
int rig_open(struct rig *r, const struct rig_opts *o, struct err *e);
void rig_close(struct rig *r);

/* Whole file as floats; *n their number. Fails the test when the file is not there. */
float *rig_floats(const char *path, size_t *n);
/* Copy every file of folder `from` into the new folder `to`. */
void rig_copy_model(const char *from, const char *to);
/* rm -r of a folder made by a test. */
void rig_remove(const char *dir);

#endif
