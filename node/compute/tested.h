/* SPDX-License-Identifier: MIT
 * tested.h: what the self-test of a GPU found, kept for later starts; inside node/compute. */
#ifndef SHOAL_NODE_COMPUTE_TESTED_H
#define SHOAL_NODE_COMPUTE_TESTED_H

#include "proto/base/err.h"
#include "shaders/gpu.h"

#define TESTED_TRIES 2 /* self-tests that did not come to their end, before it is given up */

struct tested_key { /* what it holds for */
    const char *gpu, *system, *program;
    const char *code; /* code.h: which compiled kernels */
};
struct tested {
    bool done; /* else it was begun `begun` times and the process ended within */
    unsigned begun;
    bool broken[SH_KERNELS];
};

/* False: nothing is known for this key (no file, another's, one that makes no sense). */
bool tested_read(const char *folder, const struct tested_key *k, struct tested *out);
int tested_write(const char *folder, const struct tested_key *k, const struct tested *t,
                 struct err *e);

#endif
