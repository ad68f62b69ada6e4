/* SPDX-License-Identifier: MIT
 * manifest.c: see manifest.h: the bytes. */
#include "node/store/manifest.h"

#include "proto/base/num.h"

#include <string.h>

#define HEAD 48u
#define OBJECT 40u
#define SHARD_FIXED 42u /* a shard without its name */
#define OBJECT_SIZE_MAX (1ull << 40)

static const char magic[8] = {'s', 'h', 'o', 'a', 'l', 'm', 'f', '1'};
static const uint8_t zero[SHA256_SIZE];

static int bad(struct err *e, const char *why)
{
    return err_set(e, ERR_FORMAT, "the manifest is malformed: %s", why);
}

static bool name_ok(const uint8_t *p, size_t n)
{
    bool ok = n > 0 && p[0] != '.';
    for (size_t i = 0; i < n; i++) {
        ok = ok && p[i] > ' ' && p[i] < 0x7f && p[i] != '/' && p[i] != '\\';
    }
    return ok;
}

static int name_order(const uint8_t *a, size_t na, const uint8_t *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : na < nb ? -1 : na > nb;
}

static int parse_shards(const uint8_t *p, size_t n, size_t *at, uint32_t shards, struct err *e)
{
    const uint8_t *last = NULL;
    for (uint32_t i = 0; i < shards; i++) {
        const uint8_t *q = p + *at;
        size_t left = n - *at, len = left ? q[0] : 0;
        if (left < len + SHARD_FIXED || !name_ok(q + 1, len)) {
            return bad(e, "a shard");
        }
        if (last && name_order(last + 1, last[0], q + 1, len) >= 0) {
            return bad(e, "shards out of order");
        }
        if (q[len + SHARD_FIXED - 1] > MANIFEST_HUB) {
            return bad(e, "what a shard was compared with");
        }
        last = q;
        *at += len + SHARD_FIXED;
    }
    return 0;
}

int manifest_parse(const void *bytes, size_t n, struct manifest *out, struct err *e)
{
    const uint8_t *p = bytes;
    uint8_t sum[SHA256_SIZE];
    memset(out, 0, sizeof *out);
    if (n < HEAD + OBJECT + 1 + SHA256_SIZE || n > MANIFEST_MAX ||
        memcmp(p, magic, sizeof magic) != 0) {
        return bad(e, "it does not begin like one of version 1");
    }
    sha256(p, n - SHA256_SIZE, sum);
    if (memcmp(sum, p + n - SHA256_SIZE, SHA256_SIZE) != 0) {
        return bad(e, "its checksum is wrong, so the file is damaged or not complete");
    }
    n -= SHA256_SIZE;
    out->root = p + 8;
    out->n = num_get_le32(p + 40);
    out->n_shards = num_get_le32(p + 44);
    if (!out->n || out->n > MANIFEST_OBJECTS_MAX || out->n_shards > MANIFEST_SHARDS_MAX) {
        return bad(e, "the number of objects or shards");
    }
    size_t at = HEAD;
    out->shards = p + at;
    int r = parse_shards(p, n, &at, out->n_shards, e);
    if (r) {
        return r;
    }
    out->objects = p + at;
    if ((n - at) / OBJECT < out->n) {
        return bad(e, "it ends before its last object");
    }
    for (uint32_t i = 0; i < out->n; i++) {
        const uint8_t *q = p + at + (size_t)i * OBJECT;
        if (num_get_le64(q) > OBJECT_SIZE_MAX) {
            return bad(e, "the size of an object");
        }
        out->known += memcmp(q + 8, zero, SHA256_SIZE) != 0;
    }
    at += (size_t)out->n * OBJECT;
    out->signed_n = at;
    if (at >= n || p[at] > 1 || (!p[at] && n != at + 1)) {
        return bad(e, "what follows its objects");
    }
    if (p[at]) {
        size_t left = n - at;
        out->pub = p + at + 1;
        out->sig_n = left > MANIFEST_PUBLIC + 2 ? p[at + 1 + MANIFEST_PUBLIC] : 0;
        out->sig = p + at + MANIFEST_PUBLIC + 2;
        if (!out->sig_n || out->sig_n > MANIFEST_SIG_MAX ||
            left != MANIFEST_PUBLIC + 2 + out->sig_n) {
            return bad(e, "its signature");
        }
    }
    return 0;
}

uint64_t manifest_size(const struct manifest *m, uint32_t id)
{
    return num_get_le64(m->objects + (size_t)id * OBJECT);
}

const uint8_t *manifest_digest(const struct manifest *m, uint32_t id)
{
    const uint8_t *d = m->objects + (size_t)id * OBJECT + 8;
    return id < m->n && memcmp(d, zero, SHA256_SIZE) != 0 ? d : NULL;
}

bool manifest_shard(const struct manifest *m, size_t *at, struct manifest_shard *out)
{
    const uint8_t *q = m->shards + *at;
    if (q >= m->objects) {
        return false;
    }
    size_t len = q[0];
    memset(out, 0, sizeof *out);
    memcpy(out->name, q + 1, len);
    out->size = num_get_le64(q + 1 + len);
    memcpy(out->sha256, q + 9 + len, SHA256_SIZE);
    out->checked = q[len + SHARD_FIXED - 1];
    *at += len + SHARD_FIXED;
    return true;
}

/* ---- writing ---- */

static int add_le64(struct buf *out, uint64_t v)
{
    uint8_t b[8];
    num_put_le64(b, v);
    return buf_add(out, b, sizeof b);
}

int manifest_begin(struct buf *out, const uint8_t root[SHA256_SIZE], uint32_t objects,
                   uint32_t shards)
{
    int r = buf_add(out, magic, sizeof magic);
    r = r ? r : buf_add(out, root, SHA256_SIZE);
    return r ? r : add_le64(out, objects | (uint64_t)shards << 32);
}

int manifest_add_shard(struct buf *out, const struct manifest_shard *s)
{
    uint8_t len = (uint8_t)strlen(s->name);
    int r = buf_add(out, &len, 1);
    r = r ? r : buf_add(out, s->name, len);
    r = r ? r : add_le64(out, s->size);
    r = r ? r : buf_add(out, s->sha256, SHA256_SIZE);
    return r ? r : buf_add(out, &s->checked, 1);
}

int manifest_add_object(struct buf *out, uint64_t size, const uint8_t *digest)
{
    int r = add_le64(out, size);
    return r ? r : buf_add(out, digest ? digest : zero, SHA256_SIZE);
}

int manifest_end(struct buf *out, const uint8_t *pub, const uint8_t *sig, size_t sig_n)
{
    uint8_t is = pub != NULL, len = (uint8_t)sig_n, sum[SHA256_SIZE];
    int r = buf_add(out, &is, 1);
    if (pub) {
        r = r ? r : buf_add(out, pub, MANIFEST_PUBLIC);
        r = r ? r : buf_add(out, &len, 1);
        r = r ? r : buf_add(out, sig, sig_n);
    }
    if (!r) {
        sha256(out->p, out->n, sum);
        r = buf_add(out, sum, sizeof sum);
    }
    return r;
}
