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

bool homes_file_check(const uint8_t *p, size_t n, const uint8_t root[SHA256_SIZE], uint32_t experts,
                      uint32_t all, uint32_t *members)
{
    uint8_t sum[SHA256_SIZE];
    uint64_t one = 48 + all / 8 + 1;
    if (n < HEAD + SHA256_SIZE || memcmp(p, MAGIC, 8) != 0 ||
        memcmp(p + 8, root, SHA256_SIZE) != 0 || num_get_le32(p + 40) != experts ||
        num_get_le32(p + 44) != all || num_get_le32(p + 48) > PLACE_MEMBERS_MAX) {
        return false;
    }
    *members = num_get_le32(p + 48);
    sha256(p, n - SHA256_SIZE, sum);
    return n == HEAD + *members * one + SHA256_SIZE &&
           memcmp(sum, p + n - SHA256_SIZE, SHA256_SIZE) == 0;
}

void homes_file_member(const uint8_t *p, uint32_t all, uint32_t i, struct homes_seen *out)
{
    p += HEAD + i * (48 + (size_t)all / 8 + 1);
    out->id = p;
    out->budget = num_get_le64(p + 32);
    out->seen = (int64_t)(num_get_le64(p + 40) & INT64_MAX);
    out->held = p + 48;
}

static void read_members(struct homes *h, const uint8_t *p, uint32_t n)
{
    size_t bits = bits_of(h);
    for (uint32_t i = 0; i < n && h->n_m < PLACE_MEMBERS_MAX; i++) {
        struct homes_member *x = &h->m[h->n_m];
        struct homes_seen s;
        struct key_id id;
        homes_file_member(p, h->n_all, i, &s);
        memcpy(id.b, s.id, SHA256_SIZE);
        uint8_t *held = malloc(bits);
        if (!held || id_equal(&id, &h->m[0].id) || homes_member(h, &id)) {
            free(held);
            continue;
        }
        memset(x, 0, sizeof *x);
        x->id = id;
        x->budget = s.budget;
        x->seen = s.seen;
        memcpy(held, s.held, bits);
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
    uint32_t members = 0;
    path_of(h, path, sizeof path);
    buf_init(&b, max_of(h));
    int r = file_read_all(path, &b, &e);
    const uint8_t *p = (const uint8_t *)b.p;
    if (!r && p &&
        homes_file_check(p, b.n, model_root(store_model(h->st)), h->n_experts, h->n_all,
                         &members)) {
        read_members(h, p, members);
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
