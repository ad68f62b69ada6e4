/* SPDX-License-Identifier: MIT
 * router.c: the choice of experts (NUMERICS.md, "router"), the same code for all instruction sets.
 */
#include "kernels/math.h"
#include "kernels/ops.h"

/* Does a candidate with value a rank before an earlier id with value b? Ties and NaN do not. */
static bool before(float a, float b)
{
    return a > b || (a == a && b != b);
}

void kern_router_row(const float *s, const float *bias, size_t E, size_t k, bool renorm,
                     float scale, uint32_t *ids, float *w, float *tmp)
{
    /* ids and tmp hold the best so far in order of rank */
    size_t n = 0;
    for (size_t e = 0; e < E; e++) {
        float v = s[e] + bias[e];
        if (n == k && !before(v, tmp[k - 1])) {
            continue;
        }
        size_t i = n < k ? n++ : k - 1;
        for (; i > 0 && before(v, tmp[i - 1]); i--) {
            tmp[i] = tmp[i - 1];
            ids[i] = ids[i - 1];
        }
        tmp[i] = v;
        ids[i] = (uint32_t)e;
    }
    for (size_t i = 1; i < k; i++) { /* now ascending id */
        uint32_t id = ids[i];
        size_t j = i;
        for (; j > 0 && ids[j - 1] > id; j--) {
            ids[j] = ids[j - 1];
        }
        ids[j] = id;
    }
    float d = 0.0f;
    for (size_t i = 0; i < k; i++) {
        d += s[ids[i]];
    }
    for (size_t i = 0; i < k; i++) {
        w[i] = kern_z(renorm ? (s[ids[i]] / (d + 1e-20f)) * scale : s[ids[i]] * scale);
    }
}
