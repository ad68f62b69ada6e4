/* SPDX-License-Identifier: MIT
 * gpu.c: see gpu.h. */
#include "shaders/gpu.h"

#include "kernels/exec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY 200

struct gpu_buf {
    struct kern_buf b; /* first: a kern_buf of ours is one of these */
    struct sh_mem m;
    struct gpu_buf *next; /* of the freed ones */
    uint64_t last;        /* the last batch that uses it: after that the memory may go */
};

struct gpu {
    struct kern_backend b;
    struct sh_device *d;
    struct gpu_opts o;
    struct gpu_buf *scratch; /* or NULL */
    struct sh_launch *plan;  /* of one command */
    size_t plan_n, plan_cap;
    /* Buffers come and go on any thread: the store's fill slots while others compute. Of what the
     * lock guards, the submitting thread alone writes last, pending and all counts but `allocated`.
     */
    pthread_mutex_t lock;
    struct gpu_buf *freed; /* wait for their last batch */
    bool pending;          /* the open batch has launches */
    uint64_t last;         /* the last batch committed */
    struct gpu_counts counts;
};

/* Gives memory back to the device, outside of the lock: it takes its time. */
static void drop(struct gpu *g, struct gpu_buf *list)
{
    while (list) {
        struct gpu_buf *buf = list;
        size_t size = buf->b.size;
        list = buf->next;
        g->d->free(g->d, &buf->m);
        free(buf);
        pthread_mutex_lock(&g->lock);
        g->counts.allocated -= size;
        pthread_mutex_unlock(&g->lock);
    }
}

/* Memory whose last user is done goes. */
static void reap(struct gpu *g)
{
    struct gpu_buf *gone = NULL;
    pthread_mutex_lock(&g->lock);
    uint64_t done = g->freed ? g->d->done(g->d) : 0;
    for (struct gpu_buf **p = &g->freed; *p;) {
        struct gpu_buf *buf = *p;
        if (buf->last <= done) {
            *p = buf->next;
            buf->next = gone;
            gone = buf;
        } else {
            p = &buf->next;
        }
    }
    pthread_mutex_unlock(&g->lock);
    drop(g, gone);
}

static void account(struct gpu *g, size_t add, size_t sub)
{
    pthread_mutex_lock(&g->lock);
    g->counts.allocated += add - sub;
    pthread_mutex_unlock(&g->lock);
}

static struct gpu_buf *take(struct gpu *g, size_t size)
{
    reap(g);
    pthread_mutex_lock(&g->lock);
    bool fits = size <= g->d->limit && g->counts.allocated <= g->d->limit - size;
    g->counts.allocated += fits ? size : 0;
    pthread_mutex_unlock(&g->lock);
    if (!fits) {
        return NULL;
    }
    struct gpu_buf *buf = calloc(1, sizeof *buf);
    if (!buf || g->d->alloc(g->d, size, &buf->m)) {
        account(g, 0, size);
        free(buf);
        return NULL;
    }
    buf->b = (struct kern_buf){buf->m.host, size, buf->m.handle};
    return buf;
}

static void give(struct gpu *g, struct gpu_buf *buf)
{
    pthread_mutex_lock(&g->lock);
    buf->next = g->freed;
    g->freed = buf;
    pthread_mutex_unlock(&g->lock);
    reap(g);
}

static struct kern_buf *gpu_alloc(struct kern_backend *b, size_t size)
{
    struct gpu_buf *buf = take(b->impl, size);
    return buf ? &buf->b : NULL;
}

static void gpu_free(struct kern_backend *b, struct kern_buf *buf)
{
    if (buf) {
        give(b->impl, (struct gpu_buf *)(void *)buf);
    }
}

/* ---- submit ---- */

static int keep(void *ctx, const struct sh_launch *l)
{
    struct gpu *g = ctx;
    if (g->plan_n == g->plan_cap) {
        size_t cap = g->plan_cap ? 2 * g->plan_cap : 16;
        struct sh_launch *p = realloc(g->plan, cap * sizeof *p);
        if (!p) {
            return KERN_ENOMEM;
        }
        g->plan = p;
        g->plan_cap = cap;
    }
    g->plan[g->plan_n++] = *l;
    return 0;
}

/* The device is used no more. Whoever sees the error it is returned with knows that what was not
 * waited for is lost; what comes after it is the CPU's, in the same memory, so nothing that the
 * device still has may come late. */
static void fail(struct gpu *g, const char *why)
{
    char line[WHY + 100], again[WHY];
    pthread_mutex_lock(&g->lock);
    bool news = !g->counts.lost;
    g->counts.lost = true;
    pthread_mutex_unlock(&g->lock);
    if (news && g->last) {
        (void)g->d->wait(g->d, g->last, again, sizeof again);
    }
    if (news && g->o.say) {
        snprintf(line, sizeof line, "%s%s", why,
                 g->o.cpu ? "; what was being computed is lost, the CPU does the rest" : "");
        g->o.say(g->o.ctx, line);
    }
    reap(g);
}

static int wait_for(struct gpu *g, uint64_t batch)
{
    char why[WHY] = "";
    if (batch && !g->counts.lost && g->d->wait(g->d, batch, why, sizeof why)) {
        fail(g, why);
        return KERN_EINVAL;
    }
    reap(g);
    return 0;
}

static int commit(struct gpu *g)
{
    if (!g->pending) {
        return 0;
    }
    pthread_mutex_lock(&g->lock);
    g->pending = false;
    int rc = g->d->commit(g->d, &g->last);
    g->counts.batches += !rc;
    pthread_mutex_unlock(&g->lock);
    if (rc) {
        fail(g, "the GPU takes no more work");
        return rc;
    }
    /* Far ahead, the host would only pile up work and memory. */
    return g->last > GPU_AHEAD ? wait_for(g, g->last - GPU_AHEAD) : 0;
}

/* Scratch of at least `need` bytes. Launches are in order, so all commands share one. */
static int scratch_for(struct gpu *g, size_t need)
{
    if (!need || (g->scratch && g->scratch->b.size >= need)) {
        return 0;
    }
    if (g->scratch) {
        give(g, g->scratch);
        g->scratch = NULL;
    }
    g->scratch = take(g, need);
    if (!g->scratch && g->last) { /* what is in flight may hold the memory */
        if (wait_for(g, g->last)) {
            return KERN_EINVAL;
        }
        g->scratch = take(g, need);
    }
    return g->scratch ? 0 : KERN_ENOMEM;
}

static bool allowed(const struct gpu *g)
{
    for (size_t i = 0; i < g->plan_n; i++) {
        if (g->o.broken[g->plan[i].kernel]) {
            return false;
        }
    }
    return true;
}

static int on_cpu(struct gpu *g, const struct kern_cmd *c, size_t n)
{
    uint64_t fence;
    if (commit(g) || wait_for(g, g->last)) {
        return KERN_EINVAL;
    }
    pthread_mutex_lock(&g->lock);
    g->counts.on_cpu += n;
    pthread_mutex_unlock(&g->lock);
    int rc = g->o.cpu->submit(g->o.cpu, c, n, &fence);
    return rc ? rc : g->o.cpu->wait(g->o.cpu, fence);
}

static int encode(struct gpu *g, const struct sh_launch *l)
{
    void *handle[SH_BUFFERS] = {0};
    for (uint32_t k = 0; k < l->buffers; k++) {
        struct gpu_buf *buf = (struct gpu_buf *)(uintptr_t)l->buf[k].buf;
        buf->last = g->last + 1;
        handle[k] = buf->b.impl;
    }
    int rc = g->d->encode(g->d, l, handle);
    if (!rc && !g->pending) {
        pthread_mutex_lock(&g->lock);
        g->pending = true;
        pthread_mutex_unlock(&g->lock);
    }
    return rc;
}

static int one(struct gpu *g, const struct kern_cmd *c)
{
    g->plan_n = 0;
    int rc = sh_plan(c, &g->o.plan, g->scratch ? &g->scratch->b : NULL, keep, g);
    if (rc == KERN_ENOTSUP || (!rc && !allowed(g))) {
        return on_cpu(g, c, 1);
    }
    for (size_t i = 0; !rc && i < g->plan_n; i++) {
        rc = encode(g, &g->plan[i]);
    }
    return rc;
}

static void drop_open(struct gpu *g)
{
    g->d->discard(g->d);
    pthread_mutex_lock(&g->lock);
    g->pending = false;
    pthread_mutex_unlock(&g->lock);
}

static int gpu_submit(struct kern_backend *b, const struct kern_cmd *cmds, size_t n,
                      uint64_t *fence)
{
    struct gpu *g = b->impl;
    size_t most = 0;
    for (size_t i = 0; i < n; i++) { /* nothing is started when one cannot be right, */
        size_t need;
        if (kern_check_cmd(&cmds[i])) {
            return KERN_EINVAL;
        }
        if (!sh_plan_scratch(&cmds[i], &g->o.plan, &need)) {
            return KERN_ENOMEM;
        }
        most = need > most ? need : most;
    }
    if (g->counts.lost) {
        *fence = g->last;
        return g->o.cpu ? on_cpu(g, cmds, n) : KERN_EINVAL;
    }
    int rc = scratch_for(g, most); /* or has no memory: the caller may make room and try again */
    if (rc) {
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        rc = one(g, &cmds[i]);
        if (rc) { /* half a submission would leave the state half moved on: end it all */
            drop_open(g);
            if (i && !g->counts.lost) {
                fail(g, "a command could not be given to the GPU");
            }
            return rc;
        }
    }
    rc = commit(g);
    *fence = g->last;
    return rc;
}

static int gpu_wait(struct kern_backend *b, uint64_t fence)
{
    struct gpu *g = b->impl;
    if (g->counts.lost && !g->o.cpu) {
        return KERN_EINVAL;
    }
    return fence <= g->last ? wait_for(g, fence) : KERN_EINVAL;
}

static uint64_t gpu_done(struct kern_backend *b)
{
    struct gpu *g = b->impl;
    return g->counts.lost ? g->last : g->d->done(g->d);
}

static void gpu_close(struct kern_backend *b)
{
    struct gpu *g = b->impl;
    wait_for(g, g->last);
    if (g->scratch) {
        give(g, g->scratch);
    }
    drop(g, g->freed);
    g->d->close(g->d);
    pthread_mutex_destroy(&g->lock);
    free(g->plan);
    free(g);
}

int gpu_open(struct sh_device *d, const struct gpu_opts *o, struct kern_backend **out)
{
    struct gpu *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g || pthread_mutex_init(&g->lock, NULL)) {
        d->close(d);
        free(g);
        return KERN_ENOMEM;
    }
    g->d = d;
    g->o = *o;
    g->b = (struct kern_backend){
        .alloc = gpu_alloc,
        .free = gpu_free,
        .submit = gpu_submit,
        .wait = gpu_wait,
        .done = gpu_done,
        .close = gpu_close,
        .name = d->name,
        .threads = 1,
        .impl = g,
    };
    *out = &g->b;
    return 0;
}

void gpu_counts(const struct kern_backend *b, struct gpu_counts *c)
{
    struct gpu *g = b->impl;
    pthread_mutex_lock(&g->lock);
    *c = g->counts;
    pthread_mutex_unlock(&g->lock);
}
