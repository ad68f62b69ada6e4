/* SPDX-License-Identifier: MIT
 * pack.c: packing, the layout's checks, and the scalar decoder; see pack.h. */
#include "kernels/pack_impl.h"

#include <string.h>

#define HEAD 17
#define RAW 0
#define CODED 1

static uint32_t get16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static uint8_t exponent(uint16_t v)
{
    return (uint8_t)(v >> 7);
}

size_t kern_pack_bound(size_t n)
{
    size_t blocks = n / KERN_PACK_BLOCK + (n % KERN_PACK_BLOCK != 0);
    return n > SIZE_MAX / 4 ? 0 : 2 * n + 3 * blocks;
}

/* ---- packing ---- */

/* The k most frequent exponents of which none is taken yet, the lower one first among equals; they
 * are removed from the counts. */
static void most(uint32_t count[256], uint8_t *out, unsigned k)
{
    for (unsigned i = 0; i < k; i++) {
        unsigned best = 0;
        for (unsigned e = 1; e < 256; e++) {
            best = count[e] > count[best] ? e : best;
        }
        out[i] = (uint8_t)best;
        count[best] = 0;
    }
}

static uint32_t sum_of(const uint32_t count[256])
{
    uint32_t s = 0;
    for (unsigned e = 0; e < 256; e++) {
        s += count[e];
    }
    return s;
}

static size_t pack_raw(const uint16_t *v, uint32_t n, uint8_t *out)
{
    out[0] = RAW;
    for (uint32_t i = 0; i < n; i++) {
        put16(out + 1 + 2 * i, v[i]);
    }
    return 1 + 2 * (size_t)n;
}

static size_t pack_one(const uint16_t *v, uint32_t n, uint8_t *out)
{
    uint32_t count[256] = {0}, others, patches;
    uint8_t top[3], next[8], code[256];
    for (uint32_t i = 0; i < n; i++) {
        count[exponent(v[i])]++;
    }
    most(count, top, 3);
    others = sum_of(count);
    most(count, next, 8);
    patches = sum_of(count);
    uint32_t first_bytes = (n + 3) / 4, second_bytes = (3 * others + 7) / 8;
    size_t size = HEAD + (size_t)n + first_bytes + second_bytes + 3 * (size_t)patches;
    if (size > 2 * (size_t)n) {
        return pack_raw(v, n, out);
    }
    /* code: 0..2, or 3 + the second code; 0xff: a patch. The tables may name an exponent twice when
     * a block has few of them; the first place counts. */
    memset(code, 0xff, sizeof code);
    for (unsigned i = 8; i-- > 0;) {
        code[next[i]] = (uint8_t)(3 + i);
    }
    for (unsigned i = 3; i-- > 0;) {
        code[top[i]] = (uint8_t)i;
    }
    out[0] = CODED;
    memcpy(out + 1, top, 3);
    memcpy(out + 4, next, 8);
    put16(out + 12, others);
    put16(out + 14, patches);
    out[16] = 0;
    uint8_t *low = out + HEAD, *first = low + n, *second = first + first_bytes;
    uint8_t *list = second + second_bytes;
    memset(first, 0, first_bytes + second_bytes);
    uint32_t bit = 0;
    for (uint32_t i = 0; i < n; i++) {
        unsigned c = code[exponent(v[i])], b = 0;
        low[i] = (uint8_t)(v[i] << 1 | v[i] >> 15);
        if (c < 3) {
            first[i / 4] |= (uint8_t)(c << i % 4 * 2);
            continue;
        }
        if (c == 0xff) {
            put16(list, i);
            list[2] = exponent(v[i]);
            list += 3;
        } else {
            b = c - 3;
        }
        first[i / 4] |= (uint8_t)(3u << i % 4 * 2);
        second[bit / 8] |= (uint8_t)(b << bit % 8);
        if (bit % 8 > 5) {
            second[bit / 8 + 1] |= (uint8_t)(b >> (8 - bit % 8));
        }
        bit += 3;
    }
    return size;
}

size_t kern_pack(const uint16_t *v, size_t n, uint8_t *out)
{
    size_t blocks = (n + KERN_PACK_BLOCK - 1) / KERN_PACK_BLOCK, at = 2 * blocks;
    for (size_t i = 0; i < blocks; i++) {
        size_t left = n - i * KERN_PACK_BLOCK;
        uint32_t k = left < KERN_PACK_BLOCK ? (uint32_t)left : KERN_PACK_BLOCK;
        size_t size = pack_one(v + i * KERN_PACK_BLOCK, k, out + at);
        put16(out + 2 * i, (uint32_t)size);
        at += size;
    }
    return at;
}

/* ---- unpacking ---- */

static uint16_t value(uint8_t low, uint8_t upper)
{
    uint32_t w = (uint32_t)upper << 8 | low;
    return (uint16_t)(w >> 1 | w << 15);
}

void pack_decode_scalar(const struct pack_block *b, uint16_t *v)
{
    uint32_t bit = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        unsigned c = b->first[i / 4] >> i % 4 * 2 & 3;
        uint8_t upper;
        if (c < 3) {
            upper = b->top[c];
        } else {
            unsigned s = b->second[bit / 8] >> bit % 8;
            if (bit % 8 > 5) {
                s |= (unsigned)b->second[bit / 8 + 1] << (8 - bit % 8);
            }
            upper = b->next[s & 7];
            bit += 3;
        }
        v[i] = value(b->low[i], upper);
    }
}

/* How many of the first n codes are 3. */
static uint32_t threes(const uint8_t *first, uint32_t n)
{
    uint32_t sum = 0, i = 0;
    for (; i + 32 <= n; i += 32) {
        uint64_t w;
        memcpy(&w, first + i / 4, 8);
        sum += (uint32_t)__builtin_popcountll(w & w >> 1 & 0x5555555555555555u);
    }
    for (; i < n; i++) {
        sum += (first[i / 4] >> i % 4 * 2 & 3) == 3;
    }
    return sum;
}

static int unpack_raw(const uint8_t *p, size_t size, uint32_t n, uint16_t *v)
{
    if (size != 1 + 2 * (size_t)n) {
        return KERN_EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) {
        v[i] = (uint16_t)get16(p + 1 + 2 * i);
    }
    return 0;
}

static int unpack_one(const uint8_t *p, size_t size, uint32_t n, uint16_t *v,
                      pack_decode_fn *decode)
{
    struct pack_block b = {.n = n};
    if (size && p[0] == RAW) {
        return unpack_raw(p, size, n, v);
    }
    if (size < HEAD || p[0] != CODED || p[16]) {
        return KERN_EINVAL;
    }
    b.top = p + 1;
    b.next = p + 4;
    b.others = get16(p + 12);
    b.patches = get16(p + 14);
    uint32_t first_bytes = (n + 3) / 4, second_bytes = (3 * b.others + 7) / 8;
    if (size != HEAD + (size_t)n + first_bytes + second_bytes + 3 * (size_t)b.patches) {
        return KERN_EINVAL;
    }
    b.low = p + HEAD;
    b.first = b.low + n;
    b.second = b.first + first_bytes;
    b.list = b.second + second_bytes;
    if (threes(b.first, n) != b.others) {
        return KERN_EINVAL;
    }
    decode(&b, v);
    for (uint32_t i = 0, from = 0; i < b.patches; i++) {
        uint32_t at = get16(b.list + 3 * i);
        if (at < from || at >= n) {
            return KERN_EINVAL;
        }
        uint16_t old = v[at];
        v[at] = value((uint8_t)(old << 1 | old >> 15), b.list[3 * i + 2]);
        from = at + 1;
    }
    return 0;
}

static pack_decode_fn *decoder(enum kern_isa isa)
{
#ifdef KERN_HAVE_AVX2
    if (isa == KERN_ISA_AVX2) {
        return pack_decode_avx2;
    }
#endif
#ifdef KERN_HAVE_NEON
    if (isa == KERN_ISA_NEON) {
        return pack_decode_neon;
    }
#endif
    (void)isa;
    return pack_decode_scalar;
}

int kern_unpack(const uint8_t *p, size_t size, size_t n, size_t first, size_t count, uint16_t *v,
                enum kern_isa isa)
{
    size_t blocks = n / KERN_PACK_BLOCK + (n % KERN_PACK_BLOCK != 0);
    if (size / 2 < blocks || first % KERN_PACK_BLOCK || first > n || count > n - first) {
        return KERN_EINVAL;
    }
    size_t at = 2 * blocks;
    for (size_t i = 0; i < blocks; i++) {
        size_t len = get16(p + 2 * i), begin = i * KERN_PACK_BLOCK;
        size_t here = n - begin < KERN_PACK_BLOCK ? n - begin : KERN_PACK_BLOCK;
        if (len > size - at) {
            return KERN_EINVAL;
        }
        if (begin >= first && begin - first < count) {
            size_t want = count - (begin - first);
            uint16_t part[KERN_PACK_BLOCK], *to = want < here ? part : v + (begin - first);
            if (unpack_one(p + at, len, (uint32_t)here, to, decoder(isa))) {
                return KERN_EINVAL;
            }
            if (want < here) {
                memcpy(v + (begin - first), part, want * sizeof *v);
            }
        }
        at += len;
    }
    return at == size ? 0 : KERN_EINVAL;
}
