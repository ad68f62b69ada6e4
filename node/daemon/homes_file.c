/* SPDX-License-Identifier: MIT
 * homes_file.c: see homes_int.h: what is remembered of members, so that one that is switched off
 * counts with what it holds. One file for each model, HOME/shoal/homes-<16 hex of the root>:
 *
 *   "SHOALHM1", root (32), experts and objects (u32 each), members (u32), zero (u32)
 *   for each member: id (32), budget (u64), seen (u64, wall-clock second), bits of what it holds
 *     (objects / 8 + 1 bytes)
 *   SHA-256 of all that (32)
 *
 * Little-endian. A file that is damaged, or of another model, is as none: it is made anew. */
#include "node/daemon/homes_int.h"

#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "SHOALHM1"
#define HEAD 56

static size_t bits_of(const struct homes *h)
{
    return h->n_all / 8 + 1;
}

static size_t max_of(const struct homes *h)
{
    return HEAD + PLACE_MEMBERS_MAX * (48 + bits_of(h)) + SHA256_SIZE;
}

static void path_of(const struct homes *h, char *out, size_t n)
{
    char hex[2 * SHA256_SIZE + 1];
    sha256_hex(model_root(store_model(h->st)), hex);
    snprintf(out, n, "%s/shoal/homes-%.16s", h->n->home, hex);
}

static void read_members(struct homes *h, const uint8_t *p, uint32_t n)
{
    size_t bits = bits_of(h);
    for (uint32_t i = 0; i < n && h->n_m < PLACE_MEMBERS_MAX; i++, p += 48 + bits) {
        struct homes_member *x = &h->m[h->n_m];
        uint8_t *held = malloc(bits);
        if (!held || memcmp(p, h->m[0].id.b, SHA256_SIZE) == 0) {
            free(held);
            continue;
        }
        memset(x, 0, sizeof *x);
        memcpy(x->id.b, p, SHA256_SIZE);
        x->budget = num_get_le64(p + 32);
        x->seen = (int64_t)(num_get_le64(p + 40) & INT64_MAX);
        memcpy(held, p + 48, bits);
        x->held = held;
        for (uint32_t o = 0; o < h->n_experts; o++) {
            x->used += homes_bit(held, o) ? h->obj[o].size : 0;
        }
        h->n_m++;
    }
}

void homes_load(struct homes *h)
{
    char path[4096];
    struct buf b;
    struct err e = {0};
    uint8_t sum[SHA256_SIZE];
    path_of(h, path, sizeof path);
    buf_init(&b, max_of(h));
    int r = file_read_all(path, &b, &e);
    const uint8_t *p = (const uint8_t *)b.p;
    bool ok = !r && b.n >= HEAD + SHA256_SIZE && memcmp(p, MAGIC, 8) == 0;
    if (ok) {
        uint64_t n = num_get_le32(p + 48);
        sha256(p, b.n - SHA256_SIZE, sum);
        ok = memcmp(sum, p + b.n - SHA256_SIZE, SHA256_SIZE) == 0 &&
             memcmp(p + 8, model_root(store_model(h->st)), SHA256_SIZE) == 0 &&
             num_get_le32(p + 40) == h->n_experts && num_get_le32(p + 44) == h->n_all &&
             n <= PLACE_MEMBERS_MAX && b.n == HEAD + n * (48 + bits_of(h)) + SHA256_SIZE;
    }
    if (ok) {
        read_members(h, p + HEAD, num_get_le32(p + 48));
    } else if (r != ERR_NOTFOUND) {
        node_log(h->n, "what other members kept is not known any more (%s): it is asked of them",
                 r ? e.msg : "the file is damaged");
    }
    buf_free(&b);
}

void homes_save(struct homes *h)
{
    uint64_t now = clock_ns();
    if (!h->save || (h->saved_at && now - h->saved_at < HOMES_SAVE_MS * MS_NS)) {
        return;
    }
    char path[4096];
    struct buf b;
    struct err e = {0};
    uint8_t head[HEAD] = MAGIC, one[48], sum[SHA256_SIZE];
    h->saved_at = now;
    memcpy(head + 8, model_root(store_model(h->st)), SHA256_SIZE);
    num_put_le32(head + 40, h->n_experts);
    num_put_le32(head + 44, h->n_all);
    num_put_le32(head + 48, (uint32_t)(h->n_m - 1));
    buf_init(&b, max_of(h));
    int r = buf_add(&b, head, sizeof head);
    for (size_t i = 1; !r && i < h->n_m; i++) {
        memcpy(one, h->m[i].id.b, SHA256_SIZE);
        num_put_le64(one + 32, h->m[i].budget);
        num_put_le64(one + 40, (uint64_t)h->m[i].seen);
        r = buf_add(&b, one, sizeof one);
        r = r ? r : buf_add(&b, h->m[i].held, bits_of(h));
    }
    if (!r) {
        sha256(b.p, b.n, sum);
        r = buf_add(&b, sum, sizeof sum);
    }
    path_of(h, path, sizeof path);
    r = r ? r : file_write_atomic(path, b.p, b.n, 0600, &e);
    /* A node in no shoal has no such folder, and nobody to remember. */
    if (r && !(r == ERR_NOTFOUND && h->n_m < 2)) {
        node_log(h->n, "what other members keep is not remembered: %s",
                 e.msg[0] ? e.msg : "out of memory");
    } else {
        h->save = false;
    }
    buf_free(&b);
}
