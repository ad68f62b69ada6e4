/* SPDX-License-Identifier: MIT
 * journal.c: see journal.h. A record, little-endian: magic u32, id u32, size u64, source u32,
 * chunks u32, SHA-256 [32], xxHash64 of each chunk u64 [chunks], with "SHJ2" SHA-256 of each chunk
 * [chunks][32], xxHash64 of all before it u64. */
#include "node/store/journal.h"

#include "proto/base/file.h"
#include "proto/base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC_1 0x314a4853u /* "SHJ1": without SHA-256s of chunks */
#define MAGIC_2 0x324a4853u /* "SHJ2" */
#define HEAD 56u
#define SIZE_MAX_OBJECT (1ull << 40)
#define FILE_MAX ((size_t)1 << 30)

int journal_record(struct buf *out, uint32_t id, const struct digest *d)
{
    size_t sums = HEAD + (size_t)d->n * 8, at = out->n;
    size_t n = sums + (d->shas ? (size_t)d->n * SHA256_SIZE : 0);
    int r = buf_reserve(out, n + 8);
    if (r) {
        return r;
    }
    uint8_t *p = (uint8_t *)out->p + at;
    num_put_le32(p, d->shas ? MAGIC_2 : MAGIC_1);
    num_put_le32(p + 4, id);
    num_put_le64(p + 8, d->size);
    num_put_le32(p + 16, d->source);
    num_put_le32(p + 20, d->n);
    memcpy(p + 24, d->sha, SHA256_SIZE);
    for (uint32_t i = 0; i < d->n; i++) {
        num_put_le64(p + HEAD + 8 * (size_t)i, d->xxh[i]);
    }
    if (d->shas) {
        memcpy(p + sums, d->shas, (size_t)d->n * SHA256_SIZE);
    }
    num_put_le64(p + n, chunk_xxh(p, n));
    out->n += n + 8;
    out->p[out->n] = 0;
    return 0;
}

int journal_append(const char *path, const struct buf *records, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(e, errno, "cannot open %s", path);
    }
    int r = 0;
    size_t done = 0;
    while (done < records->n && !r) { /* one write as a rule, so that processes do not interleave */
        ssize_t k = write(fd, records->p + done, records->n - done);
        if (k < 0 && errno != EINTR) {
            r = err_sys(e, errno, "cannot write %s", path);
        } else if (k > 0) {
            done += (size_t)k;
        }
    }
    if (!r) {
        r = file_sync(fd, path, e);
    }
    close(fd);
    return r;
}

int journal_scan(const void *bytes, size_t n, int (*each)(void *ctx, uint32_t id, struct digest *d),
                 void *ctx, uint64_t *skipped, struct err *e)
{
    const uint8_t *p = bytes;
    size_t at = 0;
    uint64_t lost = 0;
    int r = 0;
    while (at < n && !r) {
        size_t left = n - at;
        const uint8_t *q = p + at;
        uint64_t size = 0;
        uint32_t chunks = 0;
        uint32_t magic = left >= HEAD + 8 ? num_get_le32(q) : 0;
        bool ok = magic == MAGIC_1 || magic == MAGIC_2, shas = magic == MAGIC_2;
        if (ok) {
            size = num_get_le64(q + 8);
            chunks = num_get_le32(q + 20);
            ok = size > 0 && size <= SIZE_MAX_OBJECT && chunks == chunk_count(size) &&
                 (left - HEAD - 8) / (shas ? 8 + SHA256_SIZE : 8) >= chunks;
        }
        size_t sums = HEAD + (size_t)chunks * 8;
        size_t len = sums + (shas ? (size_t)chunks * SHA256_SIZE : 0);
        ok = ok && num_get_le64(q + len) == chunk_xxh(q, len);
        if (!ok) {
            at++;
            lost++;
            continue;
        }
        struct digest *d = digest_alloc(size, shas);
        if (!d) {
            return err_set(e, ERR_NOMEM, "out of memory");
        }
        d->source = num_get_le32(q + 16);
        memcpy(d->sha, q + 24, SHA256_SIZE);
        for (uint32_t i = 0; i < chunks; i++) {
            d->xxh[i] = num_get_le64(q + HEAD + 8 * (size_t)i);
        }
        if (shas) {
            memcpy(d->shas, q + sums, (size_t)chunks * SHA256_SIZE);
        }
        r = each(ctx, num_get_le32(q + 4), d);
        at += len + 8;
    }
    if (skipped) {
        *skipped = lost;
    }
    return r;
}

int journal_read(const char *path, int (*each)(void *ctx, uint32_t id, struct digest *d), void *ctx,
                 uint64_t *skipped, struct err *e)
{
    struct buf b;
    buf_init(&b, FILE_MAX);
    struct err e1 = {0};
    *skipped = 0;
    int r = file_read_all(path, &b, &e1);
    if (r == ERR_NOTFOUND) {
        r = 0;
    } else if (r) {
        if (e) {
            *e = e1;
        }
    } else {
        r = journal_scan(b.p, b.n, each, ctx, skipped, e);
    }
    buf_free(&b);
    return r;
}
