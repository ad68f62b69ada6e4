/* SPDX-License-Identifier: MIT
 * t_pack.c: packed bf16: every value comes back, from every instruction set and for every part; the
 * layout's worked example; the size on normally distributed weights and on the demo model's; and
 * damaged bytes, which give an error or other values, the same everywhere, and touch nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/pack.h"
#include "proto/base/sha256.h"

static const enum kern_isa isas[] = {KERN_ISA_SCALAR, KERN_ISA_AVX2, KERN_ISA_NEON};

static uint32_t rnd(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* A sum of twelve uniform numbers is close to a normal one; exact in binary32, so every machine has
 * the same. Rounded to nearest even as weights are. */
static uint16_t normal(uint32_t *s)
{
    int32_t sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (int32_t)(rnd(s) & 0xffff);
    }
    float f = (float)(sum - 12 * 0x8000) * 0x1p-21f;
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Packs into memory of exactly the bound, unpacks by all sets, whole and in parts, from memory of
 * exactly the size. Returns the size. */
static size_t round_trip(const uint16_t *v, size_t n)
{
    size_t bound = kern_pack_bound(n);
    uint8_t *big = malloc(bound + 1);
    size_t size = kern_pack(v, n, big);
    assert_true(size <= bound);
    uint8_t *p = malloc(size + 1);
    memcpy(p, big, size);
    memset(big, 0xa5, bound);
    assert_int_equal(kern_pack(v, n, big), size); /* nothing of the memory before is in it */
    assert_memory_equal(p, big, size);
    free(big);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!kern_isa_available(isas[i])) {
            continue;
        }
        uint16_t *w = malloc(n * sizeof *w + 1);
        assert_int_equal(kern_unpack(p, size, n, 0, n, w, isas[i]), 0);
        assert_memory_equal(w, v, n * sizeof *w);
        for (size_t first = 0; first < n; first += KERN_PACK_BLOCK) {
            size_t count = (n - first + 1) / 2;
            memset(w, 0x5a, n * sizeof *w);
            assert_int_equal(kern_unpack(p, size, n, first, count, w, isas[i]), 0);
            assert_memory_equal(w, v + first, count * sizeof *w);
            for (size_t k = count; k < n; k++) {
                assert_int_equal(w[k], 0x5a5a);
            }
        }
        assert_int_equal(kern_unpack(p, size - 1, n, 0, n, w, isas[i]), KERN_EINVAL);
        free(w);
    }
    free(p);
    return size;
}

static void test_every_value(void **state)
{
    uint16_t *v = malloc(65536 * 2 * sizeof *v);
    uint32_t s = 1;
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        v[i] = (uint16_t)i;
    }
    round_trip(v, 65536);
    for (uint32_t i = 65535; i; i--) { /* shuffled */
        uint32_t k = rnd(&s) % (i + 1);
        uint16_t t = v[i];
        v[i] = v[k];
        v[k] = t;
    }
    round_trip(v, 65536);
    for (uint32_t i = 0; i < 65536; i++) { /* each among frequent ones, so that it is a patch */
        v[65536 + i] = v[i];
    }
    for (uint32_t i = 0; i < 65536; i++) {
        v[2 * i] = v[65536 + i];
        v[2 * i + 1] = normal(&s);
    }
    round_trip(v, 2 * 65536);
    free(v);
}

static void test_sizes(void **state)
{
    uint16_t v[2 * KERN_PACK_BLOCK + 200];
    uint32_t s = 7;
    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        v[i] = normal(&s);
    }
    for (size_t n = 0; n <= 200; n++) {
        round_trip(v, n);
        round_trip(v, KERN_PACK_BLOCK - 100 + n);
        round_trip(v, 2 * KERN_PACK_BLOCK + n);
    }
    assert_int_equal(round_trip(v, 0), 0);
    uint16_t same[KERN_PACK_BLOCK];
    for (size_t i = 0; i < KERN_PACK_BLOCK; i++) {
        same[i] = 0x3f80;
    }
    /* index, head, a byte and a quarter for each value */
    assert_int_equal(round_trip(same, KERN_PACK_BLOCK), 2 + 17 + 4096 + 1024);
}

/* Sixteen kinds of exponents and more, in changing shares. */
static void test_mixtures(void **state)
{
    uint16_t v[KERN_PACK_BLOCK];
    uint32_t s = 99;
    (void)state;
    for (unsigned round = 0; round < 400; round++) {
        size_t n = 1 + rnd(&s) % KERN_PACK_BLOCK;
        unsigned spread = 1 + rnd(&s) % 60, base = rnd(&s) % 256;
        for (size_t i = 0; i < n; i++) {
            unsigned e = base + rnd(&s) % (1 + rnd(&s) % spread);
            v[i] = (uint16_t)((rnd(&s) & 0x807f) | (e & 255) << 7);
        }
        size_t size = round_trip(v, n);
        assert_true(size <= 2 * n + 3);
    }
}

/* The layout of pack.h by hand. */
static void test_layout(void **state)
{
    uint16_t v[64], w[64];
    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        v[i] = (uint16_t)(100u << 7 | i); /* exponent 100 */
    }
    v[1] = 101u << 7 | 0x8000u; /* two of 101, in minus */
    v[2] = 101u << 7 | 0x8000u;
    v[9] = 90u << 7; /* three of 90: before 101 in frequency */
    v[10] = v[11] = v[9];
    v[20] = 1u << 7; /* 1, 2: once each, the lower one first */
    v[21] = 2u << 7 | 0x7f;
    uint8_t want[2 + 17 + 64 + 16 + 1] = {98, 0, 1, 100, 90, 101, 1, 2, 0, 0,
                                          0,  0, 0, 0,   2,  0,   0, 0, 0};
    uint8_t *low = want + 19, *first = low + 64, *second = first + 16;
    for (unsigned i = 0; i < 64; i++) {
        low[i] = (uint8_t)(i << 1);
    }
    low[1] = low[2] = 1;
    low[9] = low[10] = low[11] = 0;
    low[20] = 0;
    low[21] = 0xfe;
    first[0] = 2 << 2 | 2 << 4;
    first[2] = 1 << 2 | 1 << 4 | 1 << 6;
    first[5] = 3 | 3 << 2;
    second[0] = 0 | 1 << 3;
    uint8_t out[2 * 64 + 3];
    assert_int_equal(kern_pack_bound(64), sizeof out);
    assert_int_equal(kern_pack(v, 64, out), sizeof want);
    assert_memory_equal(out, want, sizeof want);

    /* A patch over it, as no packer here would write it, is fine; out of order or outside is not.
     */
    uint8_t more[sizeof want + 6];
    memcpy(more, want, sizeof want);
    memcpy(more + sizeof want, (uint8_t[]){3, 0, 77, 5, 0, 78}, 6);
    more[0] = 104;
    more[16] = 2;
    assert_int_equal(kern_unpack(more, sizeof more, 64, 0, 64, w, KERN_ISA_SCALAR), 0);
    v[3] = 77u << 7 | 3;
    v[5] = 78u << 7 | 5;
    assert_memory_equal(v, w, sizeof v);
    more[sizeof want + 3] = 3;
    assert_int_equal(kern_unpack(more, sizeof more, 64, 0, 64, w, KERN_ISA_SCALAR), KERN_EINVAL);
    more[sizeof want + 3] = 64;
    assert_int_equal(kern_unpack(more, sizeof more, 64, 0, 64, w, KERN_ISA_SCALAR), KERN_EINVAL);
}

/* All bytes of all machines, told by one number: x86-64 and arm64 must agree. */
static void test_digest(void **state)
{
    uint16_t v[3 * KERN_PACK_BLOCK + 77];
    uint32_t s = 2026;
    uint8_t out[sizeof v + 12], sha[SHA256_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        v[i] = normal(&s);
    }
    size_t n = kern_pack(v, sizeof v / sizeof *v, out);
    sha256(out, n, sha);
    static const uint8_t want[4] = {0x16, 0x60, 0x35, 0xde};
    assert_memory_equal(sha, want, 4);
}

static void test_ratio(void **state)
{
    size_t n = (size_t)1 << 20;
    uint16_t *v = malloc(n * sizeof *v);
    uint32_t s = 3;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        v[i] = normal(&s);
    }
    double ratio = (double)round_trip(v, n) / (double)(2 * n);
    print_message("normally distributed: %.4f of the bytes\n", ratio);
    assert_true(ratio < 0.685);
    for (size_t i = 0; i < n; i++) { /* noise cannot be packed, and costs next to nothing */
        v[i] = (uint16_t)rnd(&s);
    }
    ratio = (double)round_trip(v, n) / (double)(2 * n);
    assert_true(ratio < 1.0005);
    free(v);
}

/* Damage: one bit, one byte, one length at a time. The guard values around v stay. */
static void test_damage(void **state)
{
    enum { N = KERN_PACK_BLOCK + 300 };
    uint16_t v[N], a[N + 2], b[N + 2];
    uint32_t s = 11;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        v[i] = normal(&s);
    }
    uint8_t good[2 * N + 6];
    size_t size = kern_pack(v, N, good);
    unsigned refused = 0;
    for (unsigned round = 0; round < 3000; round++) {
        size_t len = round % 7 ? size : rnd(&s) % (size + 1);
        uint8_t *p = malloc(len + 1);
        memcpy(p, good, len);
        for (unsigned k = 0; k < 1 + round % 3 && len; k++) {
            size_t at = round % 2 ? rnd(&s) % len : rnd(&s) % (len < 40 ? len : 40);
            p[at] ^= (uint8_t)(1u << rnd(&s) % 8);
        }
        a[0] = a[N + 1] = b[0] = b[N + 1] = 0xbeef;
        int ra = kern_unpack(p, len, N, 0, N, a + 1, KERN_ISA_SCALAR);
        refused += ra != 0;
        for (size_t i = 1; i < sizeof isas / sizeof *isas; i++) {
            if (kern_isa_available(isas[i])) {
                assert_int_equal(kern_unpack(p, len, N, 0, N, b + 1, isas[i]), ra);
                if (!ra) {
                    assert_memory_equal(a, b, sizeof a);
                }
                assert_int_equal(b[0], 0xbeef);
                assert_int_equal(b[N + 1], 0xbeef);
            }
        }
        assert_int_equal(a[0], 0xbeef);
        assert_int_equal(a[N + 1], 0xbeef);
        free(p);
    }
    assert_true(refused > 500);
    assert_int_equal(kern_unpack(good, size, N, 1, 10, a, KERN_ISA_SCALAR), KERN_EINVAL);
    assert_int_equal(kern_unpack(good, size, N, 0, N + 1, a, KERN_ISA_SCALAR), KERN_EINVAL);
    assert_int_equal(kern_unpack(good, size, N, 2 * KERN_PACK_BLOCK, 0, a, KERN_ISA_SCALAR),
                     KERN_EINVAL);
    assert_int_equal(kern_unpack(good, size, N + 1, 0, N, a, KERN_ISA_SCALAR), KERN_EINVAL);
    assert_int_equal(kern_unpack(good, size, N - 1, 0, N - 1, a, KERN_ISA_SCALAR), KERN_EINVAL);
    assert_int_equal(kern_unpack(good, size, SIZE_MAX, 0, 0, a, KERN_ISA_SCALAR), KERN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_mixtures),    cmocka_unit_test(test_layout),
        cmocka_unit_test(test_digest),      cmocka_unit_test(test_ratio),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
