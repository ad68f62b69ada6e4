/* SPDX-License-Identifier: MIT
 * fuzz_packed.c: any bytes as a file of packed weights (node/store/packed.h). The first four: with
 * the lowest bit of the first one, what a writer would put before the lengths and their checksum
 * are set right, so that what lies behind them is met; three of the object's size in two bytes. A
 * file that is read whole is read the same chunk by chunk, last one first. */
#include "node/store/chunk.h"
#include "node/store/packed.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define MOST ((uint64_t)5 << 19) /* bytes of an object: two chunks and a half */
#define FIXED 24u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static void set_right(uint8_t *file, size_t n, uint64_t size)
{
    uint32_t chunks = chunk_count(size);
    size_t head = FIXED + (size_t)chunks * 4 + 8;
    if (n >= head) {
        memcpy(file, "SHOALPK1", 8);
        num_put_le64(file + 8, size);
        num_put_le32(file + 16, chunks);
        num_put_le32(file + 20, 0);
        num_put_le64(file + head - 8, chunk_xxh(file, head - 8));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct packed p;
    struct err e = {0};
    if (size < 4) {
        return 0;
    }
    uint64_t object =
        2 * ((data[1] | (uint64_t)data[2] << 8 | (uint64_t)data[3] << 16) % (MOST / 2));
    size_t n = size - 4;
    uint8_t *file = malloc(n + 1), *a = malloc(MOST), *b = malloc(MOST);
    check(file && a && b);
    memcpy(file, data + 4, n);
    if (data[0] & 1) {
        set_right(file, n, object);
    }
    int r = packed_open_ram(&p, file, n, object, &e);
    check(!r || r == ERR_DIGEST);
    if (!r) {
        int whole = packed_read(&p, NULL, "it", 0, a, object, &e), each = 0;
        check(!whole || whole == ERR_DIGEST);
        for (uint32_t i = p.n; i-- > 0 && !each;) {
            uint64_t at = (uint64_t)i * CHUNK_SIZE;
            each = packed_read(&p, NULL, "it", at, b + at, chunk_len(object, i), &e);
        }
        check(each == whole);
        check(whole || !object || !memcmp(a, b, object));
    }
    packed_close(&p);
    free(file);
    free(a);
    free(b);
    return 0;
}
