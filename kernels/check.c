/* SPDX-License-Identifier: MIT
 * check.c: are the operands of a command possible? See exec.h. */
#include "kernels/exec.h"

/* Rows of `len` bytes, `stride` bytes apart. */
struct region {
    uintptr_t at;
    size_t len, stride, rows;
};

static bool region_of(struct kern_ref r, size_t elem, size_t rows, size_t row, size_t stride,
                      struct region *g)
{
    if (!r.buf || !r.buf->host || !rows || !row || r.off % elem || r.off > r.buf->size) {
        return false;
    }
    if (rows == 1) {
        stride = row;
    }
    size_t n;
    if (stride < row || __builtin_mul_overflow(rows - 1, stride, &n) ||
        __builtin_add_overflow(n, row, &n) || __builtin_mul_overflow(n, elem, &n) ||
        n > r.buf->size - r.off) {
        return false;
    }
    *g = (struct region){(uintptr_t)r.buf->host + r.off, row * elem, stride * elem, rows};
    return true;
}

static bool floats(struct kern_ref r, size_t a, size_t b, struct region *g)
{
    size_t n;
    return !__builtin_mul_overflow(a, b, &n) && region_of(r, 4, 1, n, n, g);
}

static size_t span(const struct region *g)
{
    return (g->rows - 1) * g->stride + g->len;
}

static bool overlap(const struct region *a, const struct region *b)
{
    if (a->at + span(a) <= b->at || b->at + span(b) <= a->at) {
        return false;
    }
    if (a->rows > 1 && b->rows > 1 && a->stride == b->stride) { /* columns of one wider array? */
        size_t s = a->stride;
        size_t d = b->at >= a->at ? (b->at - a->at) % s : (s - (a->at - b->at) % s) % s;
        return d < a->len || d + b->len > s;
    }
    return true;
}

static bool same(const struct region *a, const struct region *b)
{
    return a->at == b->at && a->len == b->len && a->rows == b->rows &&
           (a->rows == 1 || a->stride == b->stride);
}

/* y apart from x, or (in place) exactly x. */
static bool apart(const struct region *y, const struct region *x)
{
    return !overlap(y, x);
}

static bool apart_or_same(const struct region *y, const struct region *x)
{
    return same(y, x) || !overlap(y, x);
}

static bool vec(const struct kern_vec *v, size_t n, struct region *g)
{
    if (v->type != KERN_F32 && v->type != KERN_BF16) {
        return false;
    }
    return region_of(v->data, v->type == KERN_F32 ? 4 : 2, 1, n, n, g);
}

/* The data and the scales of a matrix. `scales` is left empty for types without. */
static bool mat(const struct kern_mat *m, struct region *data, struct region *scales)
{
    size_t rows = m->rows, cols = m->cols, n = 0;
    *scales = (struct region){0, 0, 0, 1};
    switch (m->type) {
    case KERN_F32:
    case KERN_BF16:
        return !__builtin_mul_overflow(rows, cols, &n) &&
               region_of(m->data, m->type == KERN_F32 ? 4 : 2, 1, n, n, data);
    case KERN_I8:
        return !__builtin_mul_overflow(rows, cols, &n) && region_of(m->data, 1, 1, n, n, data) &&
               floats(m->scale, rows, 1, scales);
    case KERN_MXFP4:
        return !__builtin_mul_overflow(rows, cols / 2 + cols % 2, &n) &&
               region_of(m->data, 1, 1, n, n, data) &&
               region_of(m->scale, 1, 1, rows * ((cols + 31) / 32), rows * ((cols + 31) / 32),
                         scales);
    }
    return false;
}

/* Rows of x or y that a map reaches. */
static bool mapped(struct kern_ref map, uint32_t T, size_t *rows, struct region *g)
{
    *rows = T;
    *g = (struct region){0, 0, 0, 1};
    if (!map.buf) {
        return true;
    }
    if (!floats(map, T, 1, g)) {
        return false;
    }
    const uint32_t *m = kern_ptr(map);
    uint32_t top = 0;
    for (uint32_t t = 0; t < T; t++) {
        top = m[t] > top ? m[t] : top;
    }
    *rows = (size_t)top + 1;
    return true;
}

static bool check_matmul(const struct kern_cmd *c)
{
    struct region w, scale, x, y, xm, ym;
    size_t xrows, yrows;
    if (!c->u.matmul.T || !mat(&c->u.matmul.w, &w, &scale) ||
        !mapped(c->u.matmul.xmap, c->u.matmul.T, &xrows, &xm) ||
        !mapped(c->u.matmul.ymap, c->u.matmul.T, &yrows, &ym)) {
        return false;
    }
    return region_of(c->u.matmul.x, 4, xrows, c->u.matmul.w.cols, c->u.matmul.xstride, &x) &&
           region_of(c->u.matmul.y, 4, yrows, c->u.matmul.w.rows, c->u.matmul.ystride, &y) &&
           apart(&y, &x) && apart(&y, &w) && apart(&y, &scale) && apart(&y, &xm) && apart(&y, &ym);
}

static bool check_widen(const struct kern_cmd *c)
{
    struct region src, y;
    size_t n = c->u.widen.n;
    return vec(&c->u.widen.src, n, &src) && floats(c->u.widen.y, n, 1, &y) && apart(&y, &src);
}

static bool check_mulvec(const struct kern_cmd *c)
{
    struct region a, b, y;
    size_t n = c->u.mulvec.n;
    return vec(&c->u.mulvec.a, n, &a) && vec(&c->u.mulvec.b, n, &b) &&
           floats(c->u.mulvec.y, n, 1, &y) && apart(&y, &a) && apart(&y, &b);
}

static bool check_three(struct kern_ref a, struct kern_ref b, struct kern_ref y, size_t n)
{
    struct region ra, rb, ry;
    return floats(a, n, 1, &ra) && floats(b, n, 1, &rb) && floats(y, n, 1, &ry) &&
           apart_or_same(&ry, &ra) && apart_or_same(&ry, &rb);
}

static bool check_rmsnorm(const struct kern_cmd *c)
{
    struct region x, y, w;
    size_t n = c->u.rmsnorm.n, T = c->u.rmsnorm.T;
    return region_of(c->u.rmsnorm.x, 4, T, n, c->u.rmsnorm.xstride, &x) &&
           region_of(c->u.rmsnorm.y, 4, T, n, c->u.rmsnorm.ystride, &y) &&
           vec(&c->u.rmsnorm.w, n, &w) && apart_or_same(&y, &x) && apart(&y, &w);
}

static bool check_mix(const struct kern_cmd *c)
{
    struct region bank, p, s, y;
    size_t n = c->u.mix.n, all;
    return !__builtin_mul_overflow(n, (size_t)c->u.mix.T, &all) &&
           region_of(c->u.mix.bank, 4, c->u.mix.nb, all, c->u.mix.bank_stride, &bank) &&
           floats(c->u.mix.p, all, 1, &p) && floats(c->u.mix.s, n, 1, &s) &&
           floats(c->u.mix.y, all, 1, &y) && apart(&y, &bank) && apart(&y, &p) && apart(&y, &s);
}

static bool check_conv(const struct kern_cmd *c)
{
    struct region x, y, w, hist = {0, 0, 0, 1};
    size_t C = c->u.conv.C, K = c->u.conv.K, T = c->u.conv.T;
    return K >= 1 && K <= KERN_CONV_TAPS &&
           region_of(c->u.conv.x, 4, T, C, c->u.conv.xstride, &x) &&
           region_of(c->u.conv.y, 4, T, C, c->u.conv.ystride, &y) &&
           floats(c->u.conv.w, C, K, &w) && (K == 1 || floats(c->u.conv.hist, C, K - 1, &hist)) &&
           apart(&y, &x) && apart(&y, &w) && apart(&y, &hist) && apart(&hist, &x) &&
           apart(&hist, &w);
}

static bool check_kda(const struct kern_cmd *c)
{
    size_t H = c->u.kda.H, D = c->u.kda.D, T = c->u.kda.T, HD;
    struct region in[7], S, o;
    if (__builtin_mul_overflow(H, D, &HD)) {
        return false;
    }
    if (!floats(c->u.kda.q, T, HD, &in[0]) || !floats(c->u.kda.k, T, HD, &in[1]) ||
        !floats(c->u.kda.v, T, HD, &in[2]) || !floats(c->u.kda.f, T, HD, &in[3]) ||
        !floats(c->u.kda.b, T, H, &in[4]) || !floats(c->u.kda.a_log, H, 1, &in[5]) ||
        !floats(c->u.kda.dt_bias, HD, 1, &in[6]) || !floats(c->u.kda.S, HD, D, &S) ||
        !floats(c->u.kda.o, T, HD, &o) || !apart(&S, &o)) {
        return false;
    }
    for (size_t i = 0; i < 7; i++) {
        if (!apart(&S, &in[i]) || !apart(&o, &in[i])) {
            return false;
        }
    }
    return true;
}

static bool check_gated_norm(const struct kern_cmd *c)
{
    struct region o, z, w, y;
    size_t HD;
    return !__builtin_mul_overflow((size_t)c->u.gated_norm.H, (size_t)c->u.gated_norm.D, &HD) &&
           floats(c->u.gated_norm.o, c->u.gated_norm.T, HD, &o) &&
           floats(c->u.gated_norm.z, c->u.gated_norm.T, HD, &z) &&
           floats(c->u.gated_norm.w, c->u.gated_norm.D, 1, &w) &&
           floats(c->u.gated_norm.y, c->u.gated_norm.T, HD, &y) && apart_or_same(&y, &o) &&
           apart_or_same(&y, &z) && apart(&y, &w);
}

static bool check_mla_store(const struct kern_cmd *c)
{
    struct region in, cache, rows, w;
    size_t width = (size_t)c->u.mla_store.rank + c->u.mla_store.rope, first;
    size_t end = (size_t)c->u.mla_store.pos0 + c->u.mla_store.T;
    if (!c->u.mla_store.rank || !floats(c->u.mla_store.cache, end, width, &cache) ||
        __builtin_mul_overflow((size_t)c->u.mla_store.pos0, width * 4, &first)) {
        return false;
    }
    struct kern_ref at = kern_at(c->u.mla_store.cache.buf, c->u.mla_store.cache.off + first);
    return floats(at, c->u.mla_store.T, width, &rows) &&
           region_of(c->u.mla_store.c, 4, c->u.mla_store.T, width, c->u.mla_store.cstride, &in) &&
           vec(&c->u.mla_store.w, c->u.mla_store.rank, &w) && apart(&rows, &in) && apart(&rows, &w);
}

static bool check_mla(const struct kern_cmd *c)
{
    struct region q, cache, o, w, scale;
    size_t H = c->u.mla.H, T = c->u.mla.T, nope = c->u.mla.nope, vdim = c->u.mla.vdim, nq, no, nw;
    size_t end = (size_t)c->u.mla.pos0 + T;
    const struct kern_mat *m = &c->u.mla.kvb;
    if (!nope || !vdim || !c->u.mla.rank || m->type == KERN_MXFP4 || m->cols != c->u.mla.rank ||
        __builtin_mul_overflow(H, nope + c->u.mla.rope, &nq) ||
        __builtin_mul_overflow(H, vdim, &no) || __builtin_mul_overflow(H, nope + vdim, &nw) ||
        m->rows != nw) {
        return false;
    }
    return mat(m, &w, &scale) && floats(c->u.mla.q, T, nq, &q) &&
           floats(c->u.mla.cache, end, (size_t)c->u.mla.rank + c->u.mla.rope, &cache) &&
           floats(c->u.mla.o, T, no, &o) && apart(&o, &q) && apart(&o, &cache) && apart(&o, &w) &&
           apart(&o, &scale);
}

static bool check_router(const struct kern_cmd *c)
{
    struct region logits, bias, ids, w;
    size_t E = c->u.router.E, k = c->u.router.k, T = c->u.router.T;
    return k && k <= E && floats(c->u.router.logits, T, E, &logits) &&
           floats(c->u.router.bias, E, 1, &bias) && floats(c->u.router.ids, T, k, &ids) &&
           floats(c->u.router.w, T, k, &w) && apart(&ids, &w) && apart(&ids, &logits) &&
           apart(&ids, &bias) && apart(&w, &logits) && apart(&w, &bias);
}

static bool check_combine(const struct kern_cmd *c)
{
    struct region y, w, u;
    size_t k = c->u.combine.k, T = c->u.combine.T, kn;
    return !__builtin_mul_overflow(k, (size_t)c->u.combine.n, &kn) &&
           floats(c->u.combine.y, T, kn, &y) && floats(c->u.combine.w, T, k, &w) &&
           floats(c->u.combine.u, T, c->u.combine.n, &u) && apart(&u, &y) && apart(&u, &w);
}

static bool check_check(const struct kern_cmd *c)
{
    struct region x, flag;
    return floats(c->u.check.x, c->u.check.n, 1, &x) && floats(c->u.check.flag, 1, 1, &flag) &&
           apart(&flag, &x);
}

static bool check_op(const struct kern_cmd *c)
{
    switch (c->op) {
    case KERN_MATMUL:
        return check_matmul(c);
    case KERN_WIDEN:
        return check_widen(c);
    case KERN_MULVEC:
        return check_mulvec(c);
    case KERN_ADD:
        return check_three(c->u.add.a, c->u.add.b, c->u.add.y, c->u.add.n);
    case KERN_RMSNORM:
        return check_rmsnorm(c);
    case KERN_MIX:
        return check_mix(c);
    case KERN_SITU:
        return check_three(c->u.situ.g, c->u.situ.u, c->u.situ.y, c->u.situ.n);
    case KERN_GATE:
        return check_three(c->u.gate.x, c->u.gate.g, c->u.gate.y, c->u.gate.n);
    case KERN_CONV:
        return check_conv(c);
    case KERN_KDA:
        return check_kda(c);
    case KERN_GATED_NORM:
        return check_gated_norm(c);
    case KERN_MLA_STORE:
        return check_mla_store(c);
    case KERN_MLA:
        return check_mla(c);
    case KERN_ROUTER:
        return check_router(c);
    case KERN_COMBINE:
        return check_combine(c);
    case KERN_CHECK:
        return check_check(c);
    }
    return false;
}

int kern_check_cmd(const struct kern_cmd *c)
{
    return check_op(c) ? 0 : KERN_EINVAL;
}
