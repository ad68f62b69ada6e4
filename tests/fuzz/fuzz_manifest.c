/* SPDX-License-Identifier: MIT
 * fuzz_manifest.c: any bytes as a manifest; with a checksum put in place, too, so that what lies
 * behind that is reached. What the parser takes is in its one form: written again it is the same.
 */
#include "node/store/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static void one(const uint8_t *data, size_t size)
{
    struct manifest m;
    struct manifest_shard s;
    struct err e = {0};
    struct buf b;
    size_t at = 0;
    uint32_t n = 0;
    int r = manifest_parse(data, size, &m, &e);
    if (r) {
        check(r == ERR_FORMAT && e.code == r && e.msg[0]);
        return;
    }
    buf_init(&b, MANIFEST_MAX);
    check(!manifest_begin(&b, m.root, m.n, m.n_shards));
    while (manifest_shard(&m, &at, &s)) {
        check(!manifest_add_shard(&b, &s));
        n++;
    }
    check(n == m.n_shards);
    n = 0;
    for (uint32_t i = 0; i < m.n; i++) {
        const uint8_t *d = manifest_digest(&m, i);
        n += d != NULL;
        check(!manifest_add_object(&b, manifest_size(&m, i), d));
    }
    check(n == m.known && b.n == m.signed_n);
    check(!manifest_end(&b, m.pub, m.sig, m.sig_n));
    check(b.n == size && memcmp(b.p, data, size) == 0);
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    one(data, size);
    uint8_t *p = malloc(size + SHA256_SIZE);
    check(p != NULL);
    if (size) {
        memcpy(p, data, size);
    }
    sha256(p, size, p + size);
    one(p, size + SHA256_SIZE);
    free(p);
    return 0;
}
