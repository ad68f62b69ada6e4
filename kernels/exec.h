/* SPDX-License-Identifier: MIT
 * exec.h: how the CPU backend checks and runs one command; inside kernels/. */
#ifndef SHOAL_KERNELS_EXEC_H
#define SHOAL_KERNELS_EXEC_H

#include "kernels/backend.h"
#include "kernels/ops.h"
#include "kernels/pool.h"

/* Are all operands inside their buffers, aligned, of a size that makes sense, and free of forbidden
 * overlap? Row maps are read. Returns 0 or KERN_EINVAL. */
int kern_check_cmd(const struct kern_cmd *c);

/* Less work than this (a few microseconds) is not worth waking a thread. */
#define KERN_MIN_WORK 32768
/* Scores of latent attention kept at a time: 64 MiB. */
#define KERN_MAX_SCORES ((size_t)16 << 20)

struct kern_exec {
    const struct kern_ops *ops;
    enum kern_isa isa;
    struct kern_pool *pool;
    size_t min_work;    /* multiply-adds that are worth another thread */
    size_t max_scores;  /* floats of attention scores at a time */
    char *shared;       /* scratch of the running command, 64-byte aligned */
    char *worker;       /* scratch of worker i: worker + i * worker_size */
    size_t worker_size; /* a multiple of 64 */
};

/* Scratch bytes that a checked command needs: returns false when they overflow. */
bool kern_exec_need(const struct kern_exec *x, const struct kern_cmd *c, size_t *shared,
                    size_t *worker);
/* Runs a checked command; returns when it is done. */
void kern_exec_cmd(const struct kern_exec *x, const struct kern_cmd *c);

/* run_mla.c */
bool kern_exec_mla_need(const struct kern_exec *x, const struct kern_cmd *c, size_t *shared);
void kern_exec_mla(const struct kern_exec *x, const struct kern_cmd *c);

/* Units of `cost` multiply-adds each that are worth another thread. */
size_t kern_grain(const struct kern_exec *x, size_t cost);

static inline void *kern_ptr(struct kern_ref r)
{
    return (char *)r.buf->host + r.off;
}

#endif
