/* SPDX-License-Identifier: MIT
 * admit.c: what may enter RAM as a weight (kernels/NUMERICS.md, section 1). Experts are checked and
 * left as they are; spine weights below 2^-62 become +0, so that no product is ever subnormal. */
#include "node/infer/internal.h"

#include <string.h>

#define EXP_2_62 (127 - 62) /* exponent field of 2^-62 */

/* Twice the e2m1 magnitudes: 0, 0.5, 1, 1.5, 2, 3, 4, 6. */
static const uint8_t twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};

/* Is every nonzero weight of the block (16 bytes) within [2^-62, 2^62]? */
static bool block_ok(const uint8_t *b, int s)
{
    if (s == 255) { /* not a number, even over zeros */
        return false;
    }
    for (size_t i = 0; i < 32; i++) {
        unsigned m = twice[(i & 1 ? b[i / 2] >> 4 : b[i / 2]) & 7];
        if (!m) {
            continue;
        }
        /* |W| = m * 2^(s-128); its top bit is at s-128+top, and 2^62 itself is the only value with
         * top exponent 62 that is allowed. */
        int top = 31 - __builtin_clz(m), ex = s - 128 + top;
        bool pow2 = (m & (m - 1)) == 0;
        if (ex < -62 || ex > 62 || (ex == 62 && !pow2)) {
            return false;
        }
    }
    return true;
}

static int admit_expert(const struct model *m, uint32_t id, const uint8_t *p, struct err *e)
{
    const struct model_config *c = model_config(m);
    const struct model_expert_layout *y = model_expert_layout(m);
    char name[64];
    for (int w = 0; w < 3; w++) {
        uint32_t rows = w == 1 ? c->latent : c->moe_inter, cols = w == 1 ? c->moe_inter : c->latent;
        const uint8_t *packed = p + y->packed[w], *scale = p + y->scale[w];
        size_t n = (size_t)rows * (cols / 32);
        for (size_t i = 0; i < n; i++) {
            int s = scale[i];
            /* From 66 to 186 every e2m1 value is in range, whatever the nibbles are. */
            if (s >= 66 && s <= 186) {
                continue;
            }
            if (!block_ok(packed + i * 16, s)) {
                return err_set(
                    e, ERR_FORMAT,
                    "%s is refused: w%d row %zu block %zu has scale byte %d with weights "
                    "outside [2^-62, 2^62]",
                    model_object_name(m, id, name, sizeof name), w + 1, i / (cols / 32),
                    i % (cols / 32), s);
            }
        }
    }
    return 0;
}

static int not_finite(const struct model *m, uint32_t id, size_t i, struct err *e)
{
    char name[96];
    return err_set(e, ERR_FORMAT, "%s is refused: value %zu is not a finite number",
                   model_object_name(m, id, name, sizeof name), i);
}

/* Are these RUN values all as they may be? Without branches, so that compilers make vectors of it:
 * a packed or streamed spine passes here for every token. */
#define RUN 64
#define LEAST (EXP_2_62 << 7) /* 2^-62 */
#define INFINITE 0x7f80

static bool run_fine(const uint8_t *p)
{
    uint16_t v[RUN], bad = 0;
    memcpy(v, p, sizeof v);
    for (size_t i = 0; i < RUN; i++) {
        uint16_t above = (uint16_t)((v[i] & 0x7fff) - LEAST); /* wraps for what is smaller */
        bad |= (uint16_t)((above >= INFINITE - LEAST) & (v[i] != 0));
    }
    return !bad;
}

static int admit_bf16(const struct model *m, uint32_t id, uint8_t *p, size_t n, struct err *e)
{
    for (size_t at = 0; at < n; at += RUN) {
        size_t end = n - at < RUN ? n : at + RUN;
        if (end == at + RUN && run_fine(p + 2 * at)) {
            continue;
        }
        for (size_t i = at; i < end; i++) {
            uint16_t v;
            memcpy(&v, p + 2 * i, 2);
            unsigned ex = v >> 7 & 0xff;
            if (ex == 0xff) {
                return not_finite(m, id, i, e);
            }
            if (ex < EXP_2_62 && v) {
                memset(p + 2 * i, 0, 2);
            }
        }
    }
    return 0;
}

static int admit_f32(const struct model *m, uint32_t id, uint8_t *p, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, p + 4 * i, 4);
        unsigned ex = v >> 23 & 0xff;
        if (ex == 0xff) {
            return not_finite(m, id, i, e);
        }
        if (ex < EXP_2_62 && v) {
            memset(p + 4 * i, 0, 4);
        }
    }
    return 0;
}

int infer_admit(void *model, uint32_t id, uint8_t *p, size_t n, struct err *e)
{
    const struct model *m = model;
    const struct model_object *o = model_object(m, id);
    if (o->size != n) {
        return err_set(e, ERR_FORMAT, "object %u has %zu bytes, expected %llu", id, n,
                       (unsigned long long)o->size);
    }
    if (o->kind == MODEL_EXPERT) {
        return admit_expert(m, id, p, e);
    }
    if (o->dtype == MODEL_BF16) {
        return admit_bf16(m, id, p, n / 2, e);
    }
    if (o->index == MODEL_KDA_ALOG) { /* before small values are rounded away */
        int r = model_check_alog(m, o->layer, (const float *)(const void *)p, n / 4, e);
        if (r) {
            return r;
        }
    }
    return admit_f32(m, id, p, n / 4, e);
}
