/* SPDX-License-Identifier: MIT
 * cmds.c: recording of backend commands. */
#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

struct kern_cmd *cmd_add(struct cmds *l, enum kern_op op)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct kern_cmd *v = realloc(l->v, cap * sizeof *v);
        if (!v) {
            l->failed = true;
            return &l->lost;
        }
        l->v = v;
        l->cap = cap;
    }
    struct kern_cmd *c = &l->v[l->n++];
    memset(c, 0, sizeof *c);
    c->op = op;
    return c;
}

struct kern_cmd *cmd_matmul(struct infer *f, struct kern_mat w, struct kern_ref x,
                            struct kern_ref y, uint32_t T)
{
    struct kern_cmd *c = cmd_add(&f->cmds, KERN_MATMUL);
    c->u.matmul.w = w;
    c->u.matmul.x = x;
    c->u.matmul.y = y;
    c->u.matmul.xstride = w.cols;
    c->u.matmul.ystride = w.rows;
    c->u.matmul.T = T;
    return c;
}

void cmd_rmsnorm(struct infer *f, struct kern_ref x, uint32_t xstride, struct kern_vec w,
                 struct kern_ref y, uint32_t n, uint32_t T, float eps)
{
    struct kern_cmd *c = cmd_add(&f->cmds, KERN_RMSNORM);
    c->u.rmsnorm.x = x;
    c->u.rmsnorm.w = w;
    c->u.rmsnorm.y = y;
    c->u.rmsnorm.xstride = xstride;
    c->u.rmsnorm.ystride = n;
    c->u.rmsnorm.n = n;
    c->u.rmsnorm.T = T;
    c->u.rmsnorm.eps = eps;
}

void cmd_add_rows(struct infer *f, struct kern_ref a, struct kern_ref b, struct kern_ref y,
                  uint32_t n)
{
    struct kern_cmd *c = cmd_add(&f->cmds, KERN_ADD);
    c->u.add.a = a;
    c->u.add.b = b;
    c->u.add.y = y;
    c->u.add.n = n;
}

void cmd_situ(struct infer *f, struct kern_ref g, struct kern_ref u, struct kern_ref y, uint32_t n)
{
    struct kern_cmd *c = cmd_add(&f->cmds, KERN_SITU);
    c->u.situ.g = g;
    c->u.situ.u = u;
    c->u.situ.y = y;
    c->u.situ.n = n;
    c->u.situ.beta = f->c->situ_beta;
    c->u.situ.lbeta = f->c->situ_linear_beta;
}

void cmd_gate(struct infer *f, struct kern_ref x, struct kern_ref g, struct kern_ref y, uint32_t n)
{
    struct kern_cmd *c = cmd_add(&f->cmds, KERN_GATE);
    c->u.gate.x = x;
    c->u.gate.g = g;
    c->u.gate.y = y;
    c->u.gate.n = n;
}

void cmd_router(struct infer *f, uint32_t l, struct kern_ref x, struct kern_buf *logits,
                struct kern_buf *ids, struct kern_buf *w, uint32_t T)
{
    const struct model_config *c = f->c;
    cmd_matmul(f, weight_mat(f, l, MODEL_ROUTER), x, kern_at(logits, 0), T);
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_ROUTER);
    k->u.router.logits = kern_at(logits, 0);
    k->u.router.bias = weight_vec(f, l, MODEL_ROUTER_BIAS).data;
    k->u.router.ids = kern_at(ids, 0);
    k->u.router.w = kern_at(w, 0);
    k->u.router.E = c->n_experts;
    k->u.router.k = c->topk;
    k->u.router.T = T;
    k->u.router.renorm = c->renormalize;
    k->u.router.scale = c->routed_scale;
}

/* ---- submitting ---- */

static int told(const struct infer *f, int r, struct err *e)
{
    if (r == KERN_ENOMEM) {
        return err_set(e, ERR_NOMEM, "out of memory in the forward pass");
    }
    return r ? err_set(e, ERR_ARG, "the %s backend refused a command, or failed (%d)", f->be->name,
                       r)
             : 0;
}

/* The views whose commands are done up to `fence`, or all of them. */
static void give_back(struct infer *f, uint64_t fence, bool all)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->n_later; i++) {
        struct later *x = &f->later[i];
        if (all || (x->fence && x->fence <= fence)) {
            timed_release(f, &x->v, false);
        } else {
            f->later[kept++] = *x;
        }
    }
    f->n_later = kept;
}

int cmds_submit(struct infer *f, struct err *e)
{
    int r = f->cmds.failed ? KERN_ENOMEM : 0;
    if (!r && f->cmds.n) {
        uint64_t fence = f->fence;
        r = f->be->submit(f->be, f->cmds.v, f->cmds.n, &fence);
        if (r == KERN_ENOMEM && store_ram_back_off(f->st, ROOM_BYTES)) {
            r = f->be->submit(f->be, f->cmds.v, f->cmds.n, &fence); /* nothing had been started */
        }
        f->fence = fence;
        times_computed(f);
    }
    f->cmds.n = 0;
    f->cmds.failed = false;
    if (r) {
        return told(f, r, e);
    }
    for (uint32_t i = 0; i < f->n_later; i++) {
        if (!f->later[i].fence) {
            f->later[i].fence = f->fence;
        }
    }
    give_back(f, f->be->done(f->be), false);
    return 0;
}

/* Until what was submitted up to `fence` is done. */
static int wait_for(struct infer *f, uint64_t fence, struct err *e)
{
    int r = f->be->wait(f->be, fence);
    times_computed(f);
    if (!r) {
        give_back(f, fence, false);
    }
    return told(f, r, e);
}

int cmds_run(struct infer *f, struct err *e)
{
    int r = cmds_submit(f, e);
    return r ? r : wait_for(f, f->fence, e);
}

bool cmds_done(const struct infer *f)
{
    return f->be->done(f->be) >= f->fence;
}

int cmds_release(struct infer *f, struct store_view *v, struct err *e)
{
    int r = 0;
    if (f->n_later == LATER) {
        r = f->later[0].fence ? 0 : cmds_submit(f, e);
        r = r || f->n_later < LATER ? r : wait_for(f, f->later[0].fence, e);
    }
    if (r) { /* whoever settles has no place for it, so nothing may use it from here on */
        cmds_settle(f);
        timed_release(f, v, false);
        return r;
    }
    f->later[f->n_later++] = (struct later){*v, 0};
    return 0;
}

void cmds_settle(struct infer *f)
{
    f->cmds.n = 0;
    f->cmds.failed = false;
    (void)f->be->wait(f->be, f->fence); /* a device that failed uses nothing any more either */
    give_back(f, 0, true);
}
