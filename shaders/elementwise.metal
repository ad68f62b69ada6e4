// SPDX-License-Identifier: MIT
// elementwise.metal: widen, mulvec, add, situ, gate, combine, check: one thread an element.
// In place as backend.h allows: a thread reads and writes its own element only.
#include "prelude.metal"

kernel void widen(constant sh_map &a [[buffer(0)]], SH_POS,
                  device const uchar *src [[buffer(1)]], device float *y [[buffer(2)]])
{
    uint i = group.x * SH_MAP_THREADS + tid;
    if (i < a.n) {
        y[i] = sh_z(sh_vec(src, a.ta, i));
    }
}

kernel void mulvec(constant sh_map &a [[buffer(0)]], SH_POS, device const uchar *p [[buffer(1)]],
                   device const uchar *q [[buffer(2)]], device float *y [[buffer(3)]])
{
    uint i = group.x * SH_MAP_THREADS + tid;
    if (i < a.n) {
        y[i] = sh_z(sh_vec(p, a.ta, i) * sh_vec(q, a.tb, i));
    }
}

kernel void add(constant sh_map &a [[buffer(0)]], SH_POS, device const float *p [[buffer(1)]],
                device const float *q [[buffer(2)]], device float *y [[buffer(3)]])
{
    uint i = group.x * SH_MAP_THREADS + tid;
    if (i < a.n) {
        y[i] = sh_z(p[i] + q[i]);
    }
}

kernel void situ(constant sh_map &a [[buffer(0)]], SH_POS, device const float *g [[buffer(1)]],
                 device const float *u [[buffer(2)]], device float *y [[buffer(3)]])
{
    uint i = group.x * SH_MAP_THREADS + tid;
    if (i < a.n) {
        float s = (a.beta * sh_tanh(g[i] / a.beta)) * sh_sigmoid(g[i]);
        float c = a.lbeta * sh_tanh(u[i] / a.lbeta);
        y[i] = sh_z(s * c);
    }
}

kernel void gate(constant sh_map &a [[buffer(0)]], SH_POS, device const float *x [[buffer(1)]],
                 device const float *g [[buffer(2)]], device float *y [[buffer(3)]])
{
    uint i = group.x * SH_MAP_THREADS + tid;
    if (i < a.n) {
        y[i] = sh_z(x[i] * sh_sigmoid(g[i]));
    }
}

// Row group.y: u[i] over the chosen experts in ascending id.
kernel void combine(constant sh_combine &a [[buffer(0)]], SH_POS,
                    device const float *y [[buffer(1)]], device const float *w [[buffer(2)]],
                    device float *u [[buffer(3)]])
{
    uint i = group.x * SH_MAP_THREADS + tid;
    if (i >= a.n) {
        return;
    }
    y += (ulong)group.y * a.k * a.n;
    w += (ulong)group.y * a.k;
    float acc = 0.0f;
    for (uint j = 0; j < a.k; j++) {
        acc = sh_fma(w[j], y[(ulong)j * a.n + i], acc);
    }
    u[(ulong)group.y * a.n + i] = sh_z(acc);
}

// A thread looks at every gridful-th value; whoever finds one sets the flag unless it is set.
kernel void check(constant sh_check &a [[buffer(0)]], SH_POS, device const uint *x [[buffer(1)]],
                  device atomic_uint *flag [[buffer(2)]])
{
    ulong i = (ulong)group.x * 4096 + tid;
    ulong end = (ulong)group.x * 4096 + 4096;
    bool found = false;
    for (; i < a.n && i < end; i += SH_MAP_THREADS) {
        found = found || (x[i] & 0x7f800000u) == 0x7f800000u;
    }
    if (found) {
        uint none = 0;
        while (!atomic_compare_exchange_weak_explicit(flag, &none, a.tag, memory_order_relaxed,
                                                      memory_order_relaxed) &&
               none == 0) {
        }
    }
}
