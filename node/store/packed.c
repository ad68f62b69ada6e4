/* SPDX-License-Identifier: MIT
 * packed.c: see packed.h. */
#include "node/store/packed.h"

#include "kernels/pack.h"
#include "node/store/chunk.h"
#include "node/store/layout.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "SHOALPK1"
#define FIXED 24u                   /* bytes before the lengths */
#define LEAST ((uint64_t)64 << 10)  /* of an object */
#define AT_ONCE ((uint64_t)4 << 20) /* bytes of the file read at a time, and one chunk at least */

bool packed_may(const struct model_object *o)
{
    return o->kind == MODEL_SPINE && o->dtype == MODEL_BF16 && o->size >= LEAST;
}

size_t packed_bound(size_t n)
{
    return kern_pack_bound(n / 2);
}

char *packed_path(const char *model_dir, const struct model *m, uint32_t id)
{
    char *plain = layout_object(model_dir, m, id);
    char *p = plain ? layout_path("%s.packed", plain) : NULL;
    free(plain);
    return p;
}

static size_t head_size(uint32_t n)
{
    return FIXED + (size_t)n * 4 + 8;
}

static enum kern_isa best(void)
{
    return kern_isa_available(KERN_ISA_AVX2)   ? KERN_ISA_AVX2
           : kern_isa_available(KERN_ISA_NEON) ? KERN_ISA_NEON
                                               : KERN_ISA_SCALAR;
}

/* ---- reading ---- */

static int damaged(const char *path, struct err *e)
{
    return err_set(e, ERR_DIGEST, "the packed file %s is damaged (its head is not right)", path);
}

/* What the head says, once it is known to be whole. */
static int take_head(struct packed *p, const uint8_t *h, const char *path, struct err *e)
{
    size_t n = head_size(p->n);
    if (memcmp(h, MAGIC, 8) != 0 || num_get_le64(h + 8) != p->size ||
        num_get_le32(h + 16) != p->n || num_get_le32(h + 20) != 0 ||
        num_get_le64(h + n - 8) != chunk_xxh(h, n - 8)) {
        return damaged(path, e);
    }
    p->at = calloc((size_t)p->n + 1, sizeof *p->at);
    if (!p->at) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    p->at[0] = n;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t len = num_get_le32(h + FIXED + (size_t)i * 4);
        if (len > packed_bound(chunk_len(p->size, i))) {
            return damaged(path, e);
        }
        p->at[i + 1] = p->at[i] + len;
    }
    return p->at[p->n] == p->file ? 0 : damaged(path, e);
}

int packed_open(struct packed *p, struct uncached *u, const char *path, uint64_t size,
                uint64_t file, struct err *e)
{
    *p = (struct packed){.size = size, .file = file, .n = chunk_count(size)};
    size_t n = head_size(p->n);
    if (file < n) {
        return damaged(path, e);
    }
    uint8_t *h = malloc(n);
    int r = h ? uncached_read(u, path, h, n, 0, e) : err_set(e, ERR_NOMEM, "out of memory");
    r = r ? r : take_head(p, h, path, e);
    free(h);
    return r;
}

int packed_open_ram(struct packed *p, const uint8_t *ram, uint64_t file, uint64_t size,
                    struct err *e)
{
    *p = (struct packed){.size = size, .file = file, .n = chunk_count(size), .ram = ram};
    return file < head_size(p->n) ? damaged("in memory", e) : take_head(p, ram, "in memory", e);
}

void packed_close(struct packed *p)
{
    free(p->at);
    p->at = NULL;
}

static int decode(const struct packed *p, uint32_t first, uint32_t end, const uint8_t *file,
                  const char *path, uint8_t *to, struct err *e)
{
    enum kern_isa isa = best();
    for (uint32_t i = first; i < end; i++) {
        size_t n = chunk_len(p->size, i) / 2, len = (size_t)(p->at[i + 1] - p->at[i]);
        if (kern_unpack(file + (p->at[i] - p->at[first]), len, n, 0, n, (uint16_t *)(void *)to,
                        isa)) {
            return err_set(e, ERR_DIGEST, "the packed file %s is damaged (its MiB %u)", path, i);
        }
        to += 2 * n;
    }
    return 0;
}

int packed_read(const struct packed *p, struct uncached *u, const char *path, uint64_t off,
                uint8_t *to, size_t n, struct err *e)
{
    uint32_t i = (uint32_t)(off / CHUNK_SIZE), end = i + chunk_count(n);
    if (p->ram) {
        return decode(p, i, end, p->ram + p->at[i], path, to, e);
    }
    uint8_t *b = NULL;
    size_t room = 0;
    int r = 0;
    while (i < end && !r) {
        uint32_t to_i = i + 1;
        while (to_i < end && p->at[to_i + 1] - p->at[i] <= AT_ONCE) {
            to_i++;
        }
        /* whole blocks, so that they come straight here */
        uint64_t from = p->at[i] - p->at[i] % UNCACHED_BLOCK;
        uint64_t stop = num_round_up(p->at[to_i], UNCACHED_BLOCK);
        size_t len = (size_t)((stop < p->file ? stop : p->file) - from);
        if (len > room) {
            free(b);
            room = (size_t)num_round_up(len, UNCACHED_BLOCK);
            b = aligned_alloc(UNCACHED_BLOCK, room);
            r = b ? 0 : err_set(e, ERR_NOMEM, "out of memory");
        }
        r = r ? r : uncached_read(u, path, b, len, from, e);
        r = r ? r : decode(p, i, to_i, b + (p->at[i] - from), path, to, e);
        to += (size_t)(to_i - i) * CHUNK_SIZE;
        i = to_i;
    }
    free(b);
    return r;
}

/* ---- writing ---- */

int packed_write_begin(struct packed_writer *w, int fd, const char *path, uint64_t size,
                       struct err *e)
{
    *w = (struct packed_writer){.fd = fd, .path = path, .size = size, .n = chunk_count(size)};
    w->at = head_size(w->n);
    w->head = calloc(1, head_size(w->n));
    w->buf = malloc(packed_bound(CHUNK_SIZE));
    if (!w->head || !w->buf) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memcpy(w->head, MAGIC, 8);
    num_put_le64(w->head + 8, size);
    num_put_le32(w->head + 16, w->n);
    return 0;
}

int packed_write_chunk(struct packed_writer *w, const uint8_t *p, size_t n, struct err *e)
{
    size_t len = kern_pack((const uint16_t *)(const void *)p, n / 2, w->buf);
    int r = file_pwrite(w->fd, w->path, w->buf, len, w->at, e);
    num_put_le32(w->head + FIXED + (size_t)w->done * 4, (uint32_t)len);
    w->done++;
    w->at += len;
    return r;
}

int packed_write_end(struct packed_writer *w, struct err *e)
{
    size_t n = head_size(w->n);
    num_put_le64(w->head + n - 8, chunk_xxh(w->head, n - 8));
    return file_pwrite(w->fd, w->path, w->head, n, 0, e);
}

void packed_write_free(struct packed_writer *w)
{
    free(w->head);
    free(w->buf);
    w->head = w->buf = NULL;
}
