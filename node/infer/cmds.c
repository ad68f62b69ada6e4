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

int cmds_run(struct infer *f, struct err *e)
{
    int r = f->cmds.failed ? KERN_ENOMEM : 0;
    uint64_t fence = 0;
    if (!r && f->cmds.n) {
        r = f->be->submit(f->be, f->cmds.v, f->cmds.n, &fence);
        if (!r) {
            r = f->be->wait(f->be, fence);
        }
        times_computed(f);
    }
    f->cmds.n = 0;
    f->cmds.failed = false;
    if (r == KERN_ENOMEM) {
        return err_set(e, ERR_NOMEM, "out of memory in the forward pass");
    }
    if (r) {
        return err_set(e, ERR_ARG, "the %s backend refused a command (%d)", f->be->name, r);
    }
    return 0;
}
