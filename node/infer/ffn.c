/* SPDX-License-Identifier: MIT
 * ffn.c: the feed-forward half of a layer: dense MLP, or router, routed experts in the latent space
 * and shared experts. Routed experts are computed as they arrive, each into its own place, and
 * summed afterwards in ascending expert id, so that arrival order cannot be seen in the result. */
#include "node/infer/internal.h"
#include "node/infer/sample.h"

#include <string.h>

static void mlp(struct infer *f, uint32_t l, enum model_role gate, enum model_role up,
                enum model_role down, struct kern_ref out, uint32_t T)
{
    struct kern_mat g = weight_mat(f, l, gate);
    struct kern_ref xn = kern_at(f->s.xn, 0);
    struct kern_ref a = kern_at(f->s.up, 0), b = kern_at(f->s.down, 0);
    cmd_matmul(f, g, xn, a, T);
    cmd_matmul(f, weight_mat(f, l, up), xn, b, T);
    cmd_situ(f, a, b, a, T * g.rows);
    cmd_matmul(f, weight_mat(f, l, down), a, out, T);
}

/* From the chosen ids [T][k] to the list of wanted experts and, per expert, the maps of its rows:
 * for each use the token row (into z) and the place of its output (into ey). Returns the number
 * wanted. */
static uint32_t plan(struct infer *f, uint32_t l, uint32_t T)
{
    const struct model_config *c = f->c;
    const uint32_t *ids = f->s.ids->host;
    uint32_t uses = T * c->topk, n = 0, at = 0;
    memset(f->count, 0, c->n_experts * sizeof *f->count);
    for (uint32_t i = 0; i < uses; i++) {
        f->count[ids[i]]++;
    }
    for (uint32_t x = 0; x < c->n_experts; x++) {
        f->start[x] = at;
        at += f->count[x];
        if (f->count[x]) {
            f->want_e[n] = x;
            f->want[n++] = model_expert_id(f->m, l, x);
        }
    }
    uint32_t *xmap = f->s.maps->host, *ymap = xmap + uses;
    for (uint32_t i = 0; i < uses; i++) {
        uint32_t to = f->start[ids[i]]++;
        xmap[to] = i / c->topk;
        ymap[to] = i;
    }
    for (uint32_t x = 0; x < c->n_experts; x++) {
        f->start[x] -= f->count[x];
    }
    return n;
}

/* Another order of the wanted list, for proofs that order does not matter (Fisher-Yates). */
static void shuffle(struct infer *f, uint32_t n)
{
    for (uint32_t i = n; f->shuffle && i > 1; i--) {
        uint32_t ctr[4] = {(uint32_t)f->shuffled, (uint32_t)(f->shuffled >> 32), 0, 0}, r[4];
        uint32_t key[2] = {(uint32_t)f->shuffle, (uint32_t)(f->shuffle >> 32)};
        f->shuffled++;
        sample_philox(ctr, key, r);
        uint32_t j = r[0] % i, a = f->want[i - 1], b = f->want_e[i - 1];
        f->want[i - 1] = f->want[j];
        f->want_e[i - 1] = f->want_e[j];
        f->want[j] = a;
        f->want_e[j] = b;
    }
}

static struct kern_mat expert_mat(const struct infer *f, const struct store_view *v, int which,
                                  uint32_t nrows, uint32_t ncols)
{
    const struct model_expert_layout *y = model_expert_layout(f->m);
    struct kern_mat w = {.type = KERN_MXFP4, .rows = nrows, .cols = ncols};
    w.data = kern_at(v->mem_handle, y->packed[which]);
    w.scale = kern_at(v->mem_handle, y->scale[which]);
    return w;
}

static void expert(struct infer *f, const struct store_view *v, uint32_t id, uint32_t uses)
{
    const struct model_config *c = f->c;
    uint32_t n = f->count[id];
    struct kern_ref xmap = kern_at(f->s.maps, (size_t)f->start[id] * 4);
    struct kern_ref ymap = kern_at(f->s.maps, ((size_t)uses + f->start[id]) * 4);
    struct kern_ref g = kern_at(f->s.eg, 0), u = kern_at(f->s.eu, 0), z = kern_at(f->s.z, 0);
    cmd_matmul(f, expert_mat(f, v, 0, c->moe_inter, c->latent), z, g, n)->u.matmul.xmap = xmap;
    cmd_matmul(f, expert_mat(f, v, 2, c->moe_inter, c->latent), z, u, n)->u.matmul.xmap = xmap;
    cmd_situ(f, g, u, g, n * c->moe_inter);
    struct kern_mat w2 = expert_mat(f, v, 1, c->latent, c->moe_inter);
    cmd_matmul(f, w2, g, kern_at(f->s.ey, 0), n)->u.matmul.ymap = ymap;
}

/* The i-th to arrive. Those that are there are submitted a few at a time; before it is blocked for
 * one that is not, the memory of all that are held goes back, for the store may need it for that
 * one. */
static int next_expert(struct infer *f, struct store_batch *b, uint32_t uses, uint32_t i,
                       struct err *e)
{
    struct store_view v;
    size_t which;
    int r = !store_batch_ready(b) ? cmds_run(f, e) : i % TOGETHER == 0 ? cmds_submit(f, e) : 0;
    r = r ? r : timed_next(f, b, &which, &v, e);
    if (!r) {
        expert(f, &v, f->want_e[which], uses);
        r = cmds_release(f, &v, e);
    }
    return r;
}

static int moe(struct infer *f, uint32_t l, const struct step *s, struct err *e)
{
    const struct model_config *c = f->c;
    uint32_t T = s->T, uses = T * c->topk;
    struct kern_ref xn = kern_at(f->s.xn, 0), z = kern_at(f->s.z, 0), u = kern_at(f->s.u, 0);
    cmd_router(f, l, xn, f->s.rlogits, f->s.ids, f->s.rw, T);
    int r = cmds_run(f, e);
    r = r ? r : verdict(f, e); /* of the layers before, which were not waited for */
    if (r) {
        return r;
    }
    uint32_t n = plan(f, l, T);
    if (f->routed) {
        f->routed(f->routed_ctx, l, T, f->want_e, n);
    }
    shuffle(f, n);
    struct store_batch *b;
    r = timed_begin(f, f->want, n, STORE_DEMAND, &b, e);
    if (r) {
        return r;
    }
    ahead_settle(f, l, n);
    /* While the experts come: everything of this layer that does not need them. */
    cmd_matmul(f, weight_mat(f, l, MODEL_LATENT_DOWN), xn, z, T);
    mlp(f, l, MODEL_SHARED_GATE, MODEL_SHARED_UP, MODEL_SHARED_DOWN, kern_at(f->s.mlp, 0), T);
    bool guess = ahead_record(f, l, s);
    r = guess ? cmds_run(f, e) : cmds_submit(f, e);
    if (!r && guess) {
        ahead_ask(f, l, T);
    }
    for (uint32_t i = 0; i < n && !r; i++) {
        struct infer_progress p = {l, c->n_layers, i, n};
        if (f->progress && f->progress(f->progress_ctx, &p)) {
            r = err_set(e, ERR_CANCELLED, "cancelled in layer %u", l);
            break;
        }
        r = next_expert(f, b, uses, i, e);
    }
    timed_end(f, b);
    if (r) {
        return r;
    }
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_COMBINE);
    k->u.combine.y = kern_at(f->s.ey, 0);
    k->u.combine.w = kern_at(f->s.rw, 0);
    k->u.combine.u = u;
    k->u.combine.n = c->latent;
    k->u.combine.k = c->topk;
    k->u.combine.T = T;
    cmd_rmsnorm(f, u, c->latent, weight_vec(f, l, MODEL_LATENT_NORM), z, c->latent, T, c->rms_eps);
    cmd_matmul(f, weight_mat(f, l, MODEL_LATENT_UP), z, kern_at(f->s.a, 0), T);
    cmd_add_rows(f, kern_at(f->s.a, 0), kern_at(f->s.mlp, 0), kern_at(f->s.a, 0), T * c->hidden);
    return 0;
}

int ffn(struct infer *f, uint32_t l, const struct step *s, struct err *e)
{
    if (l < f->c->first_dense) {
        if (ahead_record(f, l, s)) { /* read while the dense MLP is computed */
            int r = cmds_run(f, e);
            if (r) {
                return r;
            }
            ahead_ask(f, l, s->T);
        }
        mlp(f, l, MODEL_MLP_GATE, MODEL_MLP_UP, MODEL_MLP_DOWN, kern_at(f->s.a, 0), s->T);
        return 0;
    }
    return moe(f, l, s, e);
}
