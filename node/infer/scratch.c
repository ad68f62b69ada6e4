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

int scratch_open(struct infer *f, struct err *e)
{
    const struct model_config *c = f->c;
    size_t T = f->max_rows, G = T < AHEAD_ROWS ? T : AHEAD_ROWS;
    size_t P = (size_t)c->kda_heads * c->kda_dim;
    size_t Q = (size_t)c->heads * (c->nope + c->rope);
    size_t V = (size_t)c->heads * c->vdim;
    size_t banks = (c->n_layers + c->attn_res_block - 1) / c->attn_res_block;
    size_t wide = max_u32(c->dense_inter, c->n_shared * c->moe_inter);
    struct scratch *s = &f->s;
    const struct {
        struct kern_buf **b;
        size_t n; /* 4-byte elements */
    } all[] = {
        {&s->p, T * c->hidden},
        {&s->bank, banks * T * c->hidden},
        {&s->h, T * c->hidden},
        {&s->xn, T * c->hidden},
        {&s->a, T * c->hidden},
        {&s->site, c->hidden},
        {&s->raw, T * P},
        {&s->q, T * (P > Q ? P : Q)},
        {&s->k, T * P},
        {&s->v, T * P},
        {&s->f, T * P},
        {&s->fa, T * c->kda_dim},
        {&s->b, T * c->kda_heads},
        {&s->gate, T * (P > V ? P : V)},
        {&s->o, T * (P > V ? P : V)},
        {&s->qa, T * c->q_rank},
        {&s->ckv, T * (c->kv_rank + c->rope)},
        {&s->up, T * wide},
        {&s->down, T * wide},
        {&s->mlp, T * c->hidden},
        {&s->rlogits, T * c->n_experts},
        {&s->ids, T * c->topk},
        {&s->rw, T * c->topk},
        {&s->z, T * c->latent},
        {&s->eg, T * c->moe_inter},
        {&s->eu, T * c->moe_inter},
        {&s->ey, T * c->topk * c->latent},
        {&s->u, T * c->latent},
        {&s->maps, 2 * T * c->topk + T},
        {&s->flag, 1},
        {&s->emb, T * c->hidden},
        {&s->logits, (size_t)f->logit_rows * c->vocab},
        {&s->gsite, c->hidden},
        {&s->gh, G * c->hidden},
        {&s->gxn, G * c->hidden},
        {&s->glogits, G * c->n_experts},
        {&s->gids, G * c->topk},
        {&s->grw, G * c->topk},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i].b = infer_buf(f, (all[i].n ? all[i].n : 1) * 4);
        if (!*all[i].b) {
            return err_set(e, ERR_NOMEM, "no memory for the work arrays of %u rows", f->max_rows);
        }
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
