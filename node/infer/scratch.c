/* SPDX-License-Identifier: MIT
 * scratch.c: the arrays one step works in, allocated once for max_rows rows. */
#include "node/infer/internal.h"

#include <stdlib.h>

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

struct kern_buf *infer_buf(struct infer *f, size_t size)
{
    struct kern_buf *b = f->be->alloc(f->be, size);
    return b || !store_ram_back_off(f->st, size) ? b : f->be->alloc(f->be, size);
}

struct widths { /* 4-byte elements of each array */
#define SCRATCH_WIDTH(n) size_t n;
    SCRATCH(SCRATCH_WIDTH)
#undef SCRATCH_WIDTH
};

static void widths(const struct model_config *c, size_t T, size_t logits, struct widths *n)
{
    size_t G = T < AHEAD_ROWS ? T : AHEAD_ROWS;
    size_t P = (size_t)c->kda_heads * c->kda_dim;
    size_t Q = (size_t)c->heads * (c->nope + c->rope);
    size_t V = (size_t)c->heads * c->vdim;
    size_t banks = (c->n_layers + c->attn_res_block - 1) / c->attn_res_block;
    size_t wide = max_u32(c->dense_inter, c->n_shared * c->moe_inter);
    n->p = T * c->hidden;
    n->bank = banks * T * c->hidden;
    n->h = T * c->hidden;
    n->xn = T * c->hidden;
    n->a = T * c->hidden;
    n->site = (size_t)c->hidden;
    n->raw = T * P;
    n->q = T * (P > Q ? P : Q);
    n->k = T * P;
    n->v = T * P;
    n->f = T * P;
    n->fa = T * c->kda_dim;
    n->b = T * c->kda_heads;
    n->gate = T * (P > V ? P : V);
    n->o = T * (P > V ? P : V);
    n->qa = T * c->q_rank;
    n->ckv = T * (c->kv_rank + c->rope);
    n->up = T * wide;
    n->down = T * wide;
    n->mlp = T * c->hidden;
    n->rlogits = T * c->n_experts;
    n->ids = T * c->topk;
    n->rw = T * c->topk;
    n->z = T * c->latent;
    n->eg = T * c->moe_inter;
    n->eu = T * c->moe_inter;
    n->ey = T * c->topk * c->latent;
    n->u = T * c->latent;
    n->maps = 2 * T * c->topk + T;
    n->flag = 1;
    n->emb = T * c->hidden;
    n->logits = logits * c->vocab;
    n->gsite = (size_t)c->hidden;
    n->gh = G * c->hidden;
    n->gxn = G * c->hidden;
    n->glogits = G * c->n_experts;
    n->gids = G * c->topk;
    n->grw = G * c->topk;
}

static uint64_t bytes(const struct model_config *c, size_t T)
{
    struct widths n;
    widths(c, T, 0, &n);
    uint64_t sum = 0;
#define SCRATCH_SUM(x) sum += n.x * 4;
    SCRATCH(SCRATCH_SUM)
#undef SCRATCH_SUM
    return sum;
}

uint64_t infer_row_bytes(const struct model_config *c)
{
    return bytes(c, AHEAD_ROWS + 1) - bytes(c, AHEAD_ROWS);
}

int scratch_open(struct infer *f, struct err *e)
{
    const struct model_config *c = f->c;
    struct widths n;
    bool ok = true;
    widths(c, f->max_rows, f->logit_rows, &n);
#define SCRATCH_OPEN(x) ok = ok && (f->s.x = infer_buf(f, (n.x ? n.x : 1) * 4)) != NULL;
    SCRATCH(SCRATCH_OPEN)
#undef SCRATCH_OPEN
    if (!ok) {
        return err_set(e, ERR_NOMEM, "no memory for the work arrays of %u rows", f->max_rows);
    }
    f->want = calloc(c->n_experts, sizeof *f->want);
    f->want_e = calloc(c->n_experts, sizeof *f->want_e);
    f->count = calloc(c->n_experts, sizeof *f->count);
    f->start = calloc(c->n_experts, sizeof *f->start);
    if (!f->want || !f->want_e || !f->count || !f->start) {
        return err_set(e, ERR_NOMEM, "no memory for the routing of %u experts", c->n_experts);
    }
    return 0;
}

void scratch_close(struct infer *f)
{
#define SCRATCH_FREE(n) f->be->free(f->be, f->s.n);
    SCRATCH(SCRATCH_FREE)
#undef SCRATCH_FREE
    free(f->want);
    free(f->want_e);
    free(f->count);
    free(f->start);
    free(f->cmds.v);
}
