/* SPDX-License-Identifier: MIT
 * code.h: the compiled kernels of a GPU, kept for later starts; inside node/compute.
 *
 * In the folder `kernels` of the home, one file for each GPU, system, kernel text and program,
 * named by the SHA-256 of these four and by its own, so that one rename publishes it and a damaged
 * one is never given to the system. */
#ifndef SHOAL_NODE_COMPUTE_CODE_H
#define SHOAL_NODE_COMPUTE_CODE_H

#include "proto/base/sha256.h"
#include "shaders/gpu.h"

#define CODE_FILES_MAX 4 /* what has not been made for longest leaves beyond that */

struct code_setup {
    const char *folder;  /* the home; NULL: nothing is kept */
    const char *program; /* names this very build */
    /* One line for people: why nothing can be kept. May be NULL. */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};

struct code {
    bool kept; /* by an earlier start */
    /* Of the file that the kernels were taken from; "" where they are just compiled: what a
     * self-test found holds for this very code. */
    char from[2 * SHA256_SIZE + 1];
};

/* Makes d's kernels ready: loads them, or builds them and keeps them. 0, or KERN_ENOTSUP and a
 * sentence in why: the device does not take them. What goes wrong with files only costs time. Any
 * number of processes and threads (each with a device) at once. */
int code_ready(struct sh_device *d, const struct code_setup *o, struct code *out, char *why,
               size_t size);

#endif
