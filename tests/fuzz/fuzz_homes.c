/* SPDX-License-Identifier: MIT
 * fuzz_homes.c: any bytes as the file of what members kept, as it is and with a checksum that fits;
 * the first two bytes say how many experts and objects the model has. What is taken stays within
 * the bytes, names nobody twice and not this node. */
#include "node/daemon/homes_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static void try_file(const uint8_t *p, size_t n, uint32_t experts, uint32_t all)
{
    static const uint8_t root[SHA256_SIZE] = {'r'};
    uint32_t members = 0;
    size_t bits = all / 8 + 1;
    uint64_t sum = 0;
    if (!homes_file_check(p, n, root, experts, all, &members)) {
        return;
    }
    check(members <= PLACE_MEMBERS_MAX);
    for (uint32_t i = 0; i < members; i++) {
        struct homes_seen s;
        homes_file_member(p, all, i, &s);
        check(s.seen >= 0 && s.held >= p && s.held + bits <= p + n - SHA256_SIZE);
        for (size_t k = 0; k < bits; k++) {
            sum += s.held[k];
        }
    }
    check(sum <= (uint64_t)n * UINT8_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    uint32_t all = data[1], experts = data[0] < all ? data[0] : all;
    data += 2;
    size -= 2;
    try_file(data, size, experts, all);
    /* the checksum keeps most inputs out: put a right one behind */
    uint8_t *copy = malloc(size + SHA256_SIZE);
    check(copy != NULL);
    memcpy(copy, data, size);
    sha256(copy, size, copy + size);
    try_file(copy, size + SHA256_SIZE, experts, all);
    free(copy);
    return 0;
}
