/* SPDX-License-Identifier: MIT
 * infer.c: opening and closing, and the memory that store and backend share. */
#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_ROWS 64
#define LOGIT_ROWS 8 /* rows of logits computed at a time; K3: 655 KB each */

int infer_open(const struct infer_opts *o, struct infer **out, struct err *e)
{
    struct infer *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    f->st = o->st;
    f->be = o->be;
    f->m = store_model(o->st);
    f->c = model_config(f->m);
    f->max_rows = o->max_rows ? o->max_rows : DEFAULT_ROWS;
    f->logit_rows = f->max_rows < LOGIT_ROWS ? f->max_rows : LOGIT_ROWS;
    f->shuffle = o->shuffle;
    f->progress = o->progress;
    f->progress_ctx = o->progress_ctx;
    f->routed = o->routed;
    f->routed_ctx = o->routed_ctx;
    f->backs = store_backs(o->st);
    int r = scratch_open(f, e);
    r = r ? r : ahead_open(f, o->prefetch, e);
    r = r ? r : weights_open(f, o->spine_budget, e);
    memset(&f->times, 0, sizeof f->times); /* of forward calls alone */
    if (r) {
        infer_close(f);
        return r;
    }
    *out = f;
    return 0;
}

void infer_close(struct infer *f)
{
    if (!f) {
        return;
    }
    ahead_close(f);
    mark_close(f);
    weights_close(f);
    scratch_close(f);
    free(f);
}

const struct model_config *infer_config(const struct infer *f)
{
    return f->c;
}

struct store *infer_store(const struct infer *f)
{
    return f->st;
}

static void *mem_alloc(void *ctx, size_t size, void **handle)
{
    struct kern_backend *be = ctx;
    struct kern_buf *b = be->alloc(be, size);
    *handle = b;
    return b ? b->host : NULL;
}

static void mem_release(void *ctx, void *handle)
{
    struct kern_backend *be = ctx;
    be->free(be, handle);
}

struct store_mem infer_store_mem(struct kern_backend *be)
{
    struct store_mem m = {be, mem_alloc, mem_release};
    return m;
}
