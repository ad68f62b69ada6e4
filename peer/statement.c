/* SPDX-License-Identifier: MIT
 * statement.c: see statement.h: the bytes. */
#include "peer/statement.h"

#include "proto/base/num.h"

#include <string.h>

#define PUB 65
static const char magic[8] = {'s', 'h', 'o', 'a', 'l', 's', 't', '1'};

static int bad(struct err *e, const char *why)
{
    return err_set(e, ERR_FORMAT, "the statement is malformed: %s", why);
}

int statement_key_order(struct object_key a, struct object_key b)
{
    return a.kind != b.kind     ? (a.kind < b.kind ? -1 : 1)
           : a.layer != b.layer ? (a.layer < b.layer ? -1 : 1)
           : a.index != b.index ? (a.index < b.index ? -1 : 1)
                                : 0;
}

static struct object_key key_at(const uint8_t *p)
{
    return (struct object_key){
        .kind = p[0], .layer = (uint16_t)(p[1] | p[2] << 8), .index = num_get_le32(p + 3)};
}

void statement_get(const struct statement *s, uint32_t i, struct statement_entry *out)
{
    const uint8_t *p = s->entries + (size_t)i * STATEMENT_ENTRY;
    out->key = key_at(p);
    memcpy(out->digest, p + 7, SHA256_SIZE);
}

int statement_parse(const void *blob, size_t n, struct statement *out, struct err *e)
{
    const uint8_t *p = blob;
    memset(out, 0, sizeof *out);
    if (n > STATEMENT_BLOB_MAX || n < STATEMENT_HEAD + STATEMENT_ENTRY + 1) {
        return bad(e, "its length");
    }
    if (memcmp(p, magic, sizeof magic) != 0) {
        return bad(e, "it does not begin like one of version 1");
    }
    out->pub = p + 8;
    out->root = p + 8 + PUB;
    out->seq = num_get_le64(p + 105);
    out->n = num_get_le32(p + 113);
    if (!out->seq || !out->n || out->n > STATEMENT_OBJECTS_MAX) {
        return bad(e, "its number or the number of its objects");
    }
    out->signed_n = STATEMENT_HEAD + (size_t)out->n * STATEMENT_ENTRY;
    if (n < out->signed_n + 1) {
        return bad(e, "it ends before its last object");
    }
    out->entries = p + STATEMENT_HEAD;
    out->sig_n = p[out->signed_n];
    out->sig = p + out->signed_n + 1;
    if (!out->sig_n || out->sig_n > STATEMENT_SIG_MAX || n != out->signed_n + 1 + out->sig_n) {
        return bad(e, "the length of its signature");
    }
    for (uint32_t i = 0; i < out->n; i++) {
        const uint8_t *q = out->entries + (size_t)i * STATEMENT_ENTRY;
        if (num_get_le32(q + 3) > WIRE_INDEX_MAX) {
            return bad(e, "an object that no model has");
        }
        if (i && statement_key_order(key_at(q - STATEMENT_ENTRY), key_at(q)) >= 0) {
            return bad(e, "objects out of order");
        }
    }
    return 0;
}

int statement_body(const uint8_t *pub, const uint8_t root[SHA256_SIZE], uint64_t seq,
                   const struct statement_entry *v, size_t n, struct buf *out, struct err *e)
{
    bool ok = seq && n && n <= STATEMENT_OBJECTS_MAX;
    for (size_t i = 0; ok && i < n; i++) {
        ok = v[i].key.index <= WIRE_INDEX_MAX &&
             (!i || statement_key_order(v[i - 1].key, v[i].key) < 0);
    }
    if (!ok) {
        return err_set(e, ERR_ARG, "these objects make no statement");
    }
    int r = buf_reserve(out, STATEMENT_HEAD + n * STATEMENT_ENTRY);
    if (r) {
        return err_set(e, r, "a statement of %zu objects: %s", n, err_text(r));
    }
    uint8_t *p = (uint8_t *)out->p + out->n;
    memcpy(p, magic, sizeof magic);
    memcpy(p + 8, pub, PUB);
    memcpy(p + 8 + PUB, root, SHA256_SIZE);
    num_put_le64(p + 105, seq);
    num_put_le32(p + 113, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        uint8_t *q = p + STATEMENT_HEAD + i * STATEMENT_ENTRY;
        q[0] = v[i].key.kind;
        q[1] = (uint8_t)v[i].key.layer;
        q[2] = (uint8_t)(v[i].key.layer >> 8);
        num_put_le32(q + 3, v[i].key.index);
        memcpy(q + 7, v[i].digest, SHA256_SIZE);
    }
    out->n += STATEMENT_HEAD + n * STATEMENT_ENTRY;
    out->p[out->n] = 0;
    return 0;
}
