/* SPDX-License-Identifier: MIT
 * k3full.c: see k3full.h. */
#include "tests/store/k3full.h"

#include "tests/store/util.h"

#include "node/store/catalog.h"
#include "node/store/journal.h"
#include "node/store/layout.h"
#include "proto/base/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_AT_ONCE 4096

struct chunk_sum *k3_sums(const struct model *m, uint32_t id)
{
    uint32_t n = chunk_count(model_object(m, id)->size);
    struct chunk_sum *s = calloc(n, sizeof *s);
    assert_non_null(s);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t x = ((uint64_t)id << 32 | i) * 0x9e3779b97f4a7c15u;
        s[i].xxh = x ^ x >> 29;
        memset(s[i].sha, (int)(x >> 56), SHA256_SIZE);
        memcpy(s[i].sha, &s[i].xxh, sizeof s[i].xxh);
    }
    return s;
}

static struct digest *digest_for(const struct model *m, uint32_t id)
{
    struct chunk_sum *s = k3_sums(m, id);
    struct digest *d = digest_make(model_object(m, id)->size, s, DIGEST_ORIGIN);
    assert_non_null(d);
    free(s);
    return d;
}

static void sparse(const char *path, uint64_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

static void put_rows(struct catalog *c, int64_t no, const char *journal, struct catalog_row *rows,
                     size_t n)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, (size_t)256 << 20);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(journal_record(&b, rows[i].id, rows[i].d), 0);
    }
    if (journal_append(journal, &b, &e) || catalog_add(c, no, rows, n, &e)) {
        fail_msg("%s", e.msg);
    }
    buf_free(&b);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(rows[i].result, 0);
        free((void *)rows[i].d);
    }
}

static uint64_t fill(const char *cache, const struct model *m, uint32_t layers, bool files)
{
    struct err e = {0};
    char hex[2 * SHA256_SIZE + 1], *dir = layout_model_dir(cache, model_root(m));
    char *journal = util_path("%s/digests.log", dir), *folder = NULL;
    struct catalog *c = NULL;
    int64_t no = 0;
    uint64_t bytes = 0;
    sha256_hex(model_root(m), hex);
    if (file_mkdirs(dir, &e) || catalog_open(cache, NULL, NULL, &c, &e) ||
        catalog_model(c, hex, &no, &e)) {
        fail_msg("%s", e.msg);
    }
    struct catalog_row *rows = calloc(ROWS_AT_ONCE, sizeof *rows);
    size_t n = 0;
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        const struct model_object *o = model_object(m, id);
        if (o->kind == MODEL_EXPERT && o->layer > layers) {
            continue;
        }
        char *p = layout_object(dir, m, id), *slash = strrchr(p, '/');
        *slash = 0;
        if (files && (!folder || strcmp(folder, p) != 0)) {
            free(folder);
            folder = strdup(p);
            assert_int_equal(file_mkdirs(p, &e), 0);
        }
        *slash = '/';
        if (files) {
            sparse(p, o->size);
        }
        free(p);
        bytes += o->size;
        /* scattered, as use is */
        rows[n++] = (struct catalog_row){
            .id = id, .d = digest_for(m, id), .last_use = 1 + id * 7919u % 99991u};
        if (n == ROWS_AT_ONCE) {
            put_rows(c, no, journal, rows, n);
            n = 0;
        }
    }
    put_rows(c, no, journal, rows, n);
    catalog_close(c);
    free(rows);
    free(folder);
    free(journal);
    free(dir);
    return bytes;
}

uint64_t k3_fill(const char *cache, const struct model *m, uint32_t layers)
{
    return fill(cache, m, layers, true);
}

uint64_t k3_record(const char *cache, const struct model *m)
{
    return fill(cache, m, UINT32_MAX, false);
}

int k3_refill(struct disk *d, const struct model *m, uint32_t id, struct err *e)
{
    static const uint8_t zero[CHUNK_SIZE];
    uint64_t size = model_object(m, id)->size;
    struct chunk_sum *s = k3_sums(m, id);
    struct disk_file *f;
    int r = disk_begin(d, id, NULL, &f, e);
    for (uint32_t i = 0; !r && i < chunk_count(size); i++) {
        r = disk_chunk(d, f, zero, chunk_len(size, i), &s[i], e);
    }
    free(s);
    if (!r) {
        r = disk_digest(d, f, BASIS_ORIGIN, e);
    }
    if (r) {
        return r;
    }
    f->next = NULL;
    r = disk_publish(d, f, e);
    disk_free(d, f);
    if (!r) {
        char *p = layout_object(disk_path(d), m, id);
        sparse(p, size);
        free(p);
    }
    return r;
}
