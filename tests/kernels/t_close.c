/* SPDX-License-Identifier: MIT
 * t_close.c: every command is near the formula of the model in double precision, written here anew
 * (expanded attention, libm); check values of the model's description; compiler flags. */
#include "kernels/kt.h"

#ifdef __FAST_MATH__
#error "built with fast-math: results would differ between machines"
#endif

static struct kern_backend *backend;
static struct kt_config config;

static double sig(double x)
{
    return 1 / (1 + exp(-x));
}

static double bf16(const struct kt *k, struct kern_ref r, size_t i)
{
    uint16_t v;
    memcpy(&v, (char *)k->buf.host + r.off + 2 * i, 2);
    uint32_t u = (uint32_t)v << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static double vec(const struct kt *k, const struct kern_vec *v, size_t i)
{
    return v->type == KERN_BF16 ? bf16(k, v->data, i) : kt_f(k, v->data)[i];
}

/* Element (r, c) of a matrix. */
static double mat(const struct kt *k, const struct kern_mat *m, size_t r, size_t c)
{
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    const uint8_t *data = (const uint8_t *)k->buf.host + m->data.off;
    size_t i = r * m->cols + c;
    switch (m->type) {
    case KERN_F32:
        return kt_f(k, m->data)[i];
    case KERN_BF16:
        return bf16(k, m->data, i);
    case KERN_I8:
        return (double)(int8_t)data[i] * (double)kt_f(k, m->scale)[r];
    default: {
        uint8_t b = data[r * ((m->cols + 1) / 2) + c / 2];
        uint8_t s = *((uint8_t *)k->buf.host + m->scale.off + r * ((m->cols + 31) / 32) + c / 32);
        return ldexp(e2m1[c % 2 ? b >> 4 : b & 15], s - 127);
    }
    }
}

static void near(double got, double want, double scale, const char *what, size_t i)
{
    if (!(fabs(got - want) <= 4e-6 * (fabs(want) + scale))) {
        fail_msg("%s: element %zu is %.9g, in double precision %.9g", what, i, got, want);
    }
}

static double rms(const float *x, size_t n, double eps)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) {
        s += (double)x[i] * x[i];
    }
    return 1 / sqrt(s / (double)n + eps);
}

static void begin(struct kt *k, const char *what)
{
    kt_begin(k, what, KT_TAME, 4711);
}

/* Operands that a command changes must be kept by the test before it runs. */
static void go(struct kt *k)
{
    kt_run(k, &config, 0);
}

static void test_matmul(void **state)
{
    for (int type = KERN_F32; type <= KERN_I8; type++) {
        struct kt k;
        begin(&k, "matmul");
        uint32_t rows = 37, cols = 203, T = 3;
        k.cmd.op = KERN_MATMUL;
        k.cmd.u.matmul.w = kt_mat(&k, (enum kern_type)type, rows, cols);
        k.cmd.u.matmul.x = kt_floats(&k, T * cols);
        k.cmd.u.matmul.y = kt_room(&k, T, rows, rows);
        k.cmd.u.matmul.xstride = cols;
        k.cmd.u.matmul.ystride = rows;
        k.cmd.u.matmul.T = T;
        go(&k);
        for (size_t i = 0; i < T * rows; i++) {
            double s = 0, a = 0;
            for (size_t c = 0; c < cols; c++) {
                double p = mat(&k, &k.cmd.u.matmul.w, i % rows, c) *
                           (double)kt_f(&k, k.cmd.u.matmul.x)[i / rows * cols + c];
                s += p;
                a += fabs(p);
            }
            near(kt_f(&k, k.cmd.u.matmul.y)[i], s, a, "matmul", i);
        }
        kt_end(&k);
    }
}

static void test_elementwise(void **state)
{
    struct kt k;
    uint32_t n = 1000;
    begin(&k, "situ");
    k.cmd.op = KERN_SITU;
    k.cmd.u.situ.g = kt_floats(&k, n);
    k.cmd.u.situ.u = kt_floats(&k, n);
    k.cmd.u.situ.y = kt_room(&k, 1, n, n);
    k.cmd.u.situ.n = n;
    k.cmd.u.situ.beta = 4;
    k.cmd.u.situ.lbeta = 25;
    kt_f(&k, k.cmd.u.situ.g)[0] = 3;
    kt_f(&k, k.cmd.u.situ.u)[0] = 40;
    go(&k);
    for (size_t i = 0; i < n; i++) {
        double g = kt_f(&k, k.cmd.u.situ.g)[i], u = kt_f(&k, k.cmd.u.situ.u)[i];
        near(kt_f(&k, k.cmd.u.situ.y)[i], 4 * tanh(g / 4) * sig(g) * 25 * tanh(u / 25), 0, "situ",
             i);
    }
    near(kt_f(&k, k.cmd.u.situ.y)[0], 55.763386, 0, "situ(3, 40)", 0);
    kt_end(&k);

    begin(&k, "gate");
    k.cmd.op = KERN_GATE;
    k.cmd.u.gate.x = kt_floats(&k, n);
    k.cmd.u.gate.g = kt_floats(&k, n);
    k.cmd.u.gate.y = kt_room(&k, 1, n, n);
    k.cmd.u.gate.n = n;
    go(&k);
    for (size_t i = 0; i < n; i++) {
        near(kt_f(&k, k.cmd.u.gate.y)[i],
             (double)kt_f(&k, k.cmd.u.gate.x)[i] * sig(kt_f(&k, k.cmd.u.gate.g)[i]), 0, "gate", i);
    }
    kt_end(&k);

    begin(&k, "mulvec");
    k.cmd.op = KERN_MULVEC;
    k.cmd.u.mulvec.a = kt_vec(&k, KERN_BF16, n);
    k.cmd.u.mulvec.b = kt_vec(&k, KERN_F32, n);
    k.cmd.u.mulvec.y = kt_room(&k, 1, n, n);
    k.cmd.u.mulvec.n = n;
    go(&k);
    for (size_t i = 0; i < n; i++) {
        near(kt_f(&k, k.cmd.u.mulvec.y)[i],
             vec(&k, &k.cmd.u.mulvec.a, i) * vec(&k, &k.cmd.u.mulvec.b, i), 0, "mulvec", i);
    }
    kt_end(&k);
}

static void test_norms(void **state)
{
    struct kt k;
    uint32_t n = 333, T = 2;
    begin(&k, "rmsnorm");
    k.cmd.op = KERN_RMSNORM;
    k.cmd.u.rmsnorm.x = kt_floats(&k, T * n);
    k.cmd.u.rmsnorm.w = kt_vec(&k, KERN_BF16, n);
    k.cmd.u.rmsnorm.y = kt_room(&k, T, n, n);
    k.cmd.u.rmsnorm.xstride = k.cmd.u.rmsnorm.ystride = k.cmd.u.rmsnorm.n = n;
    k.cmd.u.rmsnorm.T = T;
    k.cmd.u.rmsnorm.eps = 0.5f; /* large enough that a misplaced eps shows */
    go(&k);
    for (size_t i = 0; i < T * n; i++) {
        const float *x = kt_f(&k, k.cmd.u.rmsnorm.x) + i / n * n;
        near(kt_f(&k, k.cmd.u.rmsnorm.y)[i],
             vec(&k, &k.cmd.u.rmsnorm.w, i % n) * (double)x[i % n] * rms(x, n, 0.5), 0, "rmsnorm",
             i);
    }
    kt_end(&k);

    begin(&k, "gated_norm");
    uint32_t H = 3, D = 44;
    k.cmd.op = KERN_GATED_NORM;
    k.cmd.u.gated_norm.o = kt_floats(&k, T * H * D);
    k.cmd.u.gated_norm.z = kt_floats(&k, T * H * D);
    k.cmd.u.gated_norm.w = kt_floats(&k, D);
    k.cmd.u.gated_norm.y = kt_room(&k, T, H * D, H * D);
    k.cmd.u.gated_norm.H = H;
    k.cmd.u.gated_norm.D = D;
    k.cmd.u.gated_norm.T = T;
    k.cmd.u.gated_norm.eps = 0.5f;
    go(&k);
    for (size_t i = 0; i < T * H * D; i++) {
        const float *o = kt_f(&k, k.cmd.u.gated_norm.o) + i / D * D;
        near(kt_f(&k, k.cmd.u.gated_norm.y)[i],
             (double)kt_f(&k, k.cmd.u.gated_norm.w)[i % D] * (double)o[i % D] * rms(o, D, 0.5) *
                 sig(kt_f(&k, k.cmd.u.gated_norm.z)[i]),
             0, "gated_norm", i);
    }
    kt_end(&k);
}

static void test_mix(void **state)
{
    struct kt k;
    begin(&k, "mix");
    uint32_t n = 77, T = 2, nb = 3, stride = 200;
    k.cmd.op = KERN_MIX;
    k.cmd.u.mix.bank = kt_floats(&k, nb * stride);
    k.cmd.u.mix.p = kt_floats(&k, T * n);
    k.cmd.u.mix.s = kt_floats(&k, n);
    k.cmd.u.mix.y = kt_room(&k, T, n, n);
    k.cmd.u.mix.bank_stride = stride;
    k.cmd.u.mix.nb = nb;
    k.cmd.u.mix.n = n;
    k.cmd.u.mix.T = T;
    k.cmd.u.mix.eps = 1e-5f;
    for (uint32_t i = 0; i < n; i++) {
        kt_f(&k, k.cmd.u.mix.s)[i] *= 0.1f; /* weights of similar size */
    }
    go(&k);
    for (size_t t = 0; t < T; t++) {
        const float *v[4], *s = kt_f(&k, k.cmd.u.mix.s);
        double w[4], sum = 0;
        for (size_t i = 0; i <= nb; i++) {
            v[i] = (i < nb ? kt_f(&k, k.cmd.u.mix.bank) + i * stride : kt_f(&k, k.cmd.u.mix.p)) +
                   t * n;
            double d = 0;
            for (size_t j = 0; j < n; j++) {
                d += (double)v[i][j] * s[j];
            }
            w[i] = exp(d * rms(v[i], n, 1e-5));
            sum += w[i];
        }
        for (size_t j = 0; j < n; j++) {
            double y = 0;
            for (size_t i = 0; i <= nb; i++) {
                y += w[i] / sum * (double)v[i][j];
            }
            near(kt_f(&k, k.cmd.u.mix.y)[t * n + j], y, 1, "mix", t * n + j);
        }
    }
    kt_end(&k);
}

static void test_conv(void **state)
{
    struct kt k;
    begin(&k, "conv");
    uint32_t C = 45, K = 4, T = 6;
    k.cmd.op = KERN_CONV;
    k.cmd.u.conv.x = kt_floats(&k, T * C);
    k.cmd.u.conv.w = kt_floats(&k, C * K);
    k.cmd.u.conv.hist = kt_floats(&k, (K - 1) * C);
    k.cmd.u.conv.y = kt_room(&k, T, C, C);
    k.cmd.u.conv.xstride = k.cmd.u.conv.ystride = k.cmd.u.conv.C = C;
    k.cmd.u.conv.K = K;
    k.cmd.u.conv.T = T;
    kt_writes(&k, k.cmd.u.conv.hist, 1, (K - 1) * C, (K - 1) * C);
    float all[9 * 45]; /* history, then x */
    memcpy(all, kt_f(&k, k.cmd.u.conv.hist), 3 * 45 * sizeof *all);
    memcpy(all + 3 * 45, kt_f(&k, k.cmd.u.conv.x), 6 * 45 * sizeof *all);
    go(&k);
    for (size_t t = 0; t < T; t++) {
        for (size_t c = 0; c < C; c++) {
            double s = 0;
            for (size_t j = 0; j < K; j++) {
                s += (double)kt_f(&k, k.cmd.u.conv.w)[c * K + j] * all[(t + j) * C + c];
            }
            near(kt_f(&k, k.cmd.u.conv.y)[t * C + c], s * sig(s), 1, "conv", t * C + c);
        }
    }
    assert_memory_equal(kt_f(&k, k.cmd.u.conv.hist), all + T * C, (K - 1) * C * 4);
    kt_end(&k);
}

static void test_kda(void **state)
{
    struct kt k;
    begin(&k, "kda");
    enum { H = 2, D = 12, T = 5, HD = H * D };
    struct kern_cmd *c = &k.cmd;
    c->op = KERN_KDA;
    c->u.kda.q = kt_floats(&k, T * HD);
    c->u.kda.k = kt_floats(&k, T * HD);
    c->u.kda.v = kt_floats(&k, T * HD);
    c->u.kda.f = kt_floats(&k, T * HD);
    c->u.kda.b = kt_floats(&k, T * H);
    c->u.kda.a_log = kt_floats(&k, H);
    c->u.kda.dt_bias = kt_floats(&k, HD);
    c->u.kda.S = kt_floats(&k, HD * D);
    c->u.kda.o = kt_room(&k, T, HD, HD);
    c->u.kda.H = H;
    c->u.kda.D = D;
    c->u.kda.T = T;
    c->u.kda.lower = -5;
    c->u.kda.eps = 0.01f;
    kt_writes(&k, c->u.kda.S, 1, HD * D, HD * D);
    static double S[H][D][D];
    for (size_t i = 0; i < HD * D; i++) {
        S[i / D / D][i / D % D][i % D] = kt_f(&k, c->u.kda.S)[i];
    }
    go(&k);
    for (size_t t = 0; t < T; t++) {
        for (size_t h = 0; h < H; h++) {
            size_t at = (t * H + h) * D;
            const float *q = kt_f(&k, c->u.kda.q) + at, *kk = kt_f(&k, c->u.kda.k) + at;
            double nq = 0.01, nk = 0.01, beta = sig(kt_f(&k, c->u.kda.b)[t * H + h]);
            for (size_t d = 0; d < D; d++) {
                nq += (double)q[d] * q[d];
                nk += (double)kk[d] * kk[d];
            }
            for (size_t d = 0; d < D; d++) {
                double f = kt_f(&k, c->u.kda.f)[at + d], dt = kt_f(&k, c->u.kda.dt_bias)[h * D + d];
                double alpha = exp(-5 * sig(exp(kt_f(&k, c->u.kda.a_log)[h]) * (f + dt)));
                for (size_t v = 0; v < D; v++) {
                    S[h][d][v] *= alpha;
                }
            }
            for (size_t v = 0; v < D; v++) {
                double r = 0, o = 0;
                for (size_t d = 0; d < D; d++) {
                    r += kk[d] / sqrt(nk) * S[h][d][v];
                }
                double u = beta * (kt_f(&k, c->u.kda.v)[at + v] - r);
                for (size_t d = 0; d < D; d++) {
                    S[h][d][v] += kk[d] / sqrt(nk) * u;
                    o += q[d] / sqrt(nq) / sqrt(D) * S[h][d][v];
                }
                near(kt_f(&k, c->u.kda.o)[at + v], o, 1, "kda o", at + v);
            }
        }
    }
    for (size_t i = 0; i < HD * D; i++) {
        near(kt_f(&k, c->u.kda.S)[i], S[i / D / D][i / D % D][i % D], 1, "kda S", i);
    }
    kt_end(&k);
}

/* alpha as a decay factor: with v = beta * 0 the state is only multiplied. */
static void test_kda_gate_value(void **state)
{
    struct kt k;
    begin(&k, "kda gate");
    struct kern_cmd *c = &k.cmd;
    c->op = KERN_KDA;
    struct kern_ref *const one[] = {&c->u.kda.q, &c->u.kda.k,     &c->u.kda.v,       &c->u.kda.f,
                                    &c->u.kda.b, &c->u.kda.a_log, &c->u.kda.dt_bias, &c->u.kda.S};
    static const float value[] = {1, 1, 0, 0.7f, -INFINITY, 0.2912f, -0.3f, 1};
    for (size_t i = 0; i < 8; i++) {
        *one[i] = kt_floats(&k, 1);
        kt_f(&k, *one[i])[0] = value[i];
    }
    c->u.kda.o = kt_room(&k, 1, 1, 1);
    kt_writes(&k, c->u.kda.S, 1, 1, 1);
    c->u.kda.H = c->u.kda.D = c->u.kda.T = 1;
    c->u.kda.lower = -5;
    c->u.kda.eps = 1e-6f;
    go(&k);
    near(kt_f(&k, c->u.kda.S)[0], 0.0427028, 1e-3, "alpha", 0);
    kt_end(&k);
}

/* Attention in its expanded form: keys and values of every head and position. */
static void test_mla(void **state)
{
    static const enum kern_type types[] = {KERN_F32, KERN_BF16, KERN_I8};
    for (int type = 0; type < 3; type++) {
        struct kt k;
        begin(&k, "mla");
        enum { H = 5, NOPE = 9, ROPE = 6, VDIM = 11, RANK = 40, T = 3, POS0 = 70 };
        struct kern_cmd *c = &k.cmd;
        c->op = KERN_MLA;
        c->u.mla.q = kt_floats(&k, T * H * (NOPE + ROPE));
        c->u.mla.cache = kt_floats(&k, (POS0 + T) * (RANK + ROPE));
        c->u.mla.kvb = kt_mat(&k, types[type], H * (NOPE + VDIM), RANK);
        c->u.mla.o = kt_room(&k, T, H * VDIM, H * VDIM);
        c->u.mla.H = H;
        c->u.mla.nope = NOPE;
        c->u.mla.rope = ROPE;
        c->u.mla.vdim = VDIM;
        c->u.mla.rank = RANK;
        c->u.mla.T = T;
        c->u.mla.pos0 = POS0;
        for (size_t i = 0; i < T * H * (NOPE + ROPE); i++) {
            kt_f(&k, c->u.mla.q)[i] *= types[type] == KERN_I8 ? 1e-4f : 0.02f; /* broad softmax */
        }
        go(&k);
        for (size_t t = 0; t < T; t++) {
            for (size_t h = 0; h < H; h++) {
                const float *q = kt_f(&k, c->u.mla.q) + (t * H + h) * (NOPE + ROPE);
                double o[VDIM] = {0}, big[VDIM] = {0}, sum = 0;
                for (size_t i = 0; i <= POS0 + t; i++) {
                    const float *row = kt_f(&k, c->u.mla.cache) + i * (RANK + ROPE);
                    double s = 0;
                    for (size_t j = 0; j < NOPE; j++) {
                        double key = 0;
                        for (size_t r = 0; r < RANK; r++) {
                            key += mat(&k, &c->u.mla.kvb, h * (NOPE + VDIM) + j, r) * row[r];
                        }
                        s += key * q[j];
                    }
                    for (size_t j = 0; j < ROPE; j++) {
                        s += (double)q[NOPE + j] * row[RANK + j];
                    }
                    double e = exp(s / sqrt(NOPE + ROPE));
                    sum += e;
                    for (size_t j = 0; j < VDIM; j++) {
                        double value = 0;
                        for (size_t r = 0; r < RANK; r++) {
                            value +=
                                mat(&k, &c->u.mla.kvb, h * (NOPE + VDIM) + NOPE + j, r) * row[r];
                        }
                        o[j] += e * value;
                        big[j] += e * fabs(value);
                    }
                }
                for (size_t j = 0; j < VDIM; j++) {
                    size_t at = (t * H + h) * VDIM + j;
                    near(kt_f(&k, c->u.mla.o)[at], o[j] / sum, big[j] / sum, "mla", at);
                }
            }
        }
        kt_end(&k);
    }
}

static void test_mla_store(void **state)
{
    struct kt k;
    begin(&k, "mla_store");
    enum { RANK = 21, ROPE = 5, W = RANK + ROPE, T = 2, POS0 = 3 };
    struct kern_cmd *c = &k.cmd;
    c->op = KERN_MLA_STORE;
    c->u.mla_store.c = kt_floats(&k, T * W);
    c->u.mla_store.w = kt_vec(&k, KERN_BF16, RANK);
    c->u.mla_store.cache = kt_room(&k, POS0 + T, W, W);
    c->u.mla_store.cstride = W;
    c->u.mla_store.rank = RANK;
    c->u.mla_store.rope = ROPE;
    c->u.mla_store.T = T;
    c->u.mla_store.pos0 = POS0;
    c->u.mla_store.eps = 1e-6f;
    go(&k);
    for (size_t i = 0; i < T * W; i++) {
        const float *x = kt_f(&k, c->u.mla_store.c) + i / W * W;
        size_t j = i % W;
        double want = j < RANK ? vec(&k, &c->u.mla_store.w, j) * x[j] * rms(x, RANK, 1e-6) : x[j];
        near(kt_f(&k, c->u.mla_store.cache)[POS0 * W + i], want, 0, "mla_store", i);
    }
    kt_end(&k);
}

static void test_router(void **state)
{
    struct kt k;
    begin(&k, "router");
    static const float logits[] = {0, 2, 1, 2, -3, NAN, 2, 5}, bias[] = {0, 0, 0, 0, 9, 9, 0, -9};
    struct kern_cmd *c = &k.cmd;
    c->op = KERN_ROUTER;
    c->u.router.logits = kt_floats(&k, 8);
    c->u.router.bias = kt_floats(&k, 8);
    c->u.router.ids = kt_room(&k, 1, 3, 3);
    c->u.router.w = kt_room(&k, 1, 3, 3);
    c->u.router.E = 8;
    c->u.router.k = 3;
    c->u.router.T = 1;
    c->u.router.renorm = true;
    c->u.router.scale = 2;
    memcpy(kt_f(&k, c->u.router.logits), logits, sizeof logits);
    memcpy(kt_f(&k, c->u.router.bias), bias, sizeof bias);
    go(&k);
    /* 4 by its bias, then 1 and 3, the lower ids among three equals; NaN and the biased-away 7 are
     * out; weights without the bias */
    static const uint32_t want[] = {1, 3, 4};
    assert_memory_equal(kt_f(&k, c->u.router.ids), want, sizeof want);
    double d = 2 * sig(2) + sig(-3);
    near(kt_f(&k, c->u.router.w)[0], 2 * sig(2) / d, 0, "router", 0);
    near(kt_f(&k, c->u.router.w)[1], 2 * sig(2) / d, 0, "router", 1);
    near(kt_f(&k, c->u.router.w)[2], 2 * sig(-3) / d, 0, "router", 2);
    c->u.router.renorm = false;
    go(&k);
    near(kt_f(&k, c->u.router.w)[2], 2 * sig(-3), 0, "router", 2);
    kt_end(&k);
}

static void test_combine(void **state)
{
    struct kt k;
    begin(&k, "combine");
    uint32_t n = 50, K = 4, T = 2;
    k.cmd.op = KERN_COMBINE;
    k.cmd.u.combine.y = kt_floats(&k, T * K * n);
    k.cmd.u.combine.w = kt_floats(&k, T * K);
    k.cmd.u.combine.u = kt_room(&k, T, n, n);
    k.cmd.u.combine.n = n;
    k.cmd.u.combine.k = K;
    k.cmd.u.combine.T = T;
    go(&k);
    for (size_t i = 0; i < T * n; i++) {
        double s = 0;
        for (size_t j = 0; j < K; j++) {
            s += (double)kt_f(&k, k.cmd.u.combine.w)[i / n * K + j] *
                 kt_f(&k, k.cmd.u.combine.y)[(i / n * K + j) * n + i % n];
        }
        near(kt_f(&k, k.cmd.u.combine.u)[i], s, 1, "combine", i);
    }
    kt_end(&k);
}

/* The small-number rule, by value. */
static void test_small_numbers(void **state)
{
    struct kt k;
    begin(&k, "small");
    static const float in[] = {0x1p-62f,         0x1.fffffep-63f, -0x1p-62f,
                               -0x1.fffffep-63f, -0.0f,           0x1p-149f};
    static const float want[] = {0x1p-62f, 0, -0x1p-62f, 0, 0, 0};
    k.cmd.op = KERN_WIDEN;
    k.cmd.u.widen.src = kt_vec(&k, KERN_F32, 6);
    k.cmd.u.widen.y = kt_room(&k, 1, 6, 6);
    k.cmd.u.widen.n = 6;
    memcpy(kt_f(&k, k.cmd.u.widen.src.data), in, sizeof in);
    go(&k);
    assert_memory_equal(kt_f(&k, k.cmd.u.widen.y), want, sizeof want);
    kt_end(&k);
}

/* x*y + z must round twice where it is written so: here the product 1 - 2^-40 rounds to 1. */
static void test_no_contraction(void **state)
{
    volatile float x = 1 + 0x1p-20f, y = 1 - 0x1p-20f, z = -1;
    float a = x, b = y, c = z;
    assert_true(a * b + c == 0.0f);
    assert_true(fmaf(a, b, c) == -0x1p-40f);
}

/* Every file of kernels/ was compiled without contraction and without fast-math. */
static void test_flags(void **state)
{
    FILE *f = fopen(SHOAL_COMPILE_COMMANDS, "r");
    assert_non_null(f);
    static char line[65536];
    size_t seen = 0;
    while (fgets(line, sizeof line, f)) {
        if (strstr(line, "\"command\"") && strstr(line, "kernels/CMakeFiles/shoal_kernels.dir")) {
            seen++;
            if (!strstr(line, "-ffp-contract=off") || strstr(line, "-ffast-math") ||
                strstr(line, "-Ofast") || strstr(line, "-funsafe-math")) {
                fail_msg("flags of: %s", line);
            }
        }
    }
    fclose(f);
    assert_true(seen >= 15);
}

static int setup(void **state)
{
    struct kern_cpu_opts o = {.threads = 2};
    if (kern_cpu_open(&o, &backend)) {
        return -1;
    }
    config = (struct kt_config){.b = backend, .threads = 2};
    config.arena = backend->alloc(backend, KT_ARENA);
    return config.arena ? 0 : -1;
}

static int teardown(void **state)
{
    backend->free(backend, config.arena);
    backend->close(backend);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),         cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_norms),          cmocka_unit_test(test_mix),
        cmocka_unit_test(test_conv),           cmocka_unit_test(test_kda),
        cmocka_unit_test(test_kda_gate_value), cmocka_unit_test(test_mla),
        cmocka_unit_test(test_mla_store),      cmocka_unit_test(test_router),
        cmocka_unit_test(test_combine),        cmocka_unit_test(test_small_numbers),
        cmocka_unit_test(test_no_contraction), cmocka_unit_test(test_flags),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
