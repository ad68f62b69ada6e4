/* SPDX-License-Identifier: MIT
 * fuzz_pack.c: any bytes as packed bf16: the first two are how many values (more than one block can
 * be meant), the rest the packed form. Every instruction set says the same; what unpacks packs
 * again to something that unpacks to the same. */
#include "kernels/pack.h"

#include <stdlib.h>
#include <string.h>

#define MOST 12000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum kern_isa others[] = {KERN_ISA_AVX2, KERN_ISA_NEON};
    if (size < 2) {
        return 0;
    }
    size_t n = (data[0] | (size_t)data[1] << 8) % (MOST + 1);
    uint16_t *a = malloc(n * sizeof *a + 1), *b = malloc(n * sizeof *b + 1);
    uint8_t *p = malloc(size - 1), *again = malloc(kern_pack_bound(n) + 1);
    check(a && b && p && again);
    memcpy(p, data + 2, size - 2);
    int r = kern_unpack(p, size - 2, n, 0, n, a, KERN_ISA_SCALAR);
    for (size_t i = 0; i < 2; i++) {
        if (kern_isa_available(others[i])) {
            check(kern_unpack(p, size - 2, n, 0, n, b, others[i]) == r);
            check(r || !n || !memcmp(a, b, n * sizeof *a));
        }
    }
    if (!r) {
        size_t m = kern_pack(a, n, again);
        check(m <= kern_pack_bound(n));
        check(!kern_unpack(again, m, n, 0, n, b, KERN_ISA_SCALAR));
        check(!n || !memcmp(a, b, n * sizeof *a));
    }
    free(a);
    free(b);
    free(p);
    free(again);
    return 0;
}
