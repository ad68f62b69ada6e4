/* SPDX-License-Identifier: MIT
 * num.h: checked arithmetic for lengths that come from outside, and little-endian bytes. */
#ifndef SHOAL_BASE_NUM_H
#define SHOAL_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True and *out = a op b when the result fits; false (and *out untouched) when it does not. */
static inline bool num_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool num_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool num_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline uint64_t num_round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

static inline uint32_t num_get_le32(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t num_get_le64(const void *p)
{
    return (uint64_t)num_get_le32(p) | (uint64_t)num_get_le32((const uint8_t *)p + 4) << 32;
}

static inline void num_put_le32(void *p, uint32_t v)
{
    uint8_t *b = p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
    b[2] = (uint8_t)(v >> 16);
    b[3] = (uint8_t)(v >> 24);
}

static inline void num_put_le64(void *p, uint64_t v)
{
    num_put_le32(p, (uint32_t)v);
    num_put_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

#endif
