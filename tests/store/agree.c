/* SPDX-License-Identifier: MIT
 * agree.c: see agree.h. */
#include "tests/store/agree.h"

#include "tests/store/util.h"

#include "node/store/catalog.h"
#include "node/store/disk_inner.h"
#include "node/store/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct rows {
    const struct model *m;
    uint8_t (*sha)[SHA256_SIZE];
    uint8_t *has;
};

static int take_row(void *ctx, uint32_t id, struct digest *d, uint64_t last_use)
{
    struct rows *r = ctx;
    (void)last_use;
    assert_true(id < model_object_count(r->m));
    assert_int_equal(d->size, model_object(r->m, id)->size);
    assert_false(r->has[id]); /* one row an object */
    r->has[id] = 1;
    memcpy(r->sha[id], d->sha, SHA256_SIZE);
    free(d);
    return 0;
}

uint32_t agree(struct disk *d, const char *cache, const struct model *m)
{
    uint32_t n = model_object_count(m), files = 0;
    struct err e = {0};
    uint8_t *bits = calloc(n / 8 + 1, 1);
    struct rows rows = {m, calloc(n, SHA256_SIZE), calloc(n, 1)};
    assert_true(bits && rows.sha && rows.has);
    assert_int_equal(disk_watch(d, bits, &e), 0);
    assert_int_equal(disk_watch(d, NULL, &e), 0);

    char hex[2 * SHA256_SIZE + 1];
    sha256_hex(model_root(m), hex);
    struct catalog *cat = NULL;
    int64_t no = 0;
    uint64_t bad = 0, used = 0, experts = 0;
    if (catalog_open(cache, NULL, NULL, &cat, &e) || catalog_model(cat, hex, &no, &e) ||
        catalog_load(cat, no, take_row, &rows, &bad, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(bad, 0);
    catalog_close(cat);

    for (uint32_t id = 0; id < n; id++) {
        char *p = layout_object(disk_path(d), m, id);
        struct stat st;
        bool file = stat(p, &st) == 0, bit = bits[id / 8] >> id % 8 & 1;
        pthread_mutex_lock(&d->mu);
        bool own = d->it[id].own, lent = d->it[id].present && !own;
        pthread_mutex_unlock(&d->mu);
        if (file != own || bit != (own || lent) || bit != disk_has(d, id)) {
            fail_msg("%s: the file is %s, the bitmap says %d, own %d, lent by a folder %d", p,
                     file ? "there" : "not there", bit, own, lent);
        }
        if (file) {
            uint8_t sha[1][SHA256_SIZE], object[SHA256_SIZE];
            enum basis b;
            assert_int_equal(st.st_size, model_object(m, id)->size);
            assert_true(rows.has[id]);
            assert_true(disk_digests(d, id, 0, 1, sha, &b, object));
            assert_memory_equal(object, rows.sha[id], SHA256_SIZE);
            files++;
            used += (uint64_t)st.st_size;
            experts += model_object(m, id)->kind == MODEL_EXPERT ? (uint64_t)st.st_size : 0;
        }
        free(p);
    }
    /* and no others */
    char *ex = util_path("%s/experts", disk_path(d)), *sp = util_path("%s/spine", disk_path(d));
    assert_int_equal(util_count_files(ex, "", NULL) + util_count_files(sp, "", NULL), files);
    struct disk_space s;
    disk_space(d, &s);
    assert_int_equal(s.used, used);
    assert_int_equal(s.experts, experts);
    free(ex);
    free(sp);
    free(bits);
    free(rows.sha);
    free(rows.has);
    return files;
}

int agree_orphans(struct disk *d, const char *cache, const struct model *m)
{
    int known = 0;
    for (uint32_t id = 0; d && id < model_object_count(m); id++) {
        known += disk_has_partial(d, id);
    }
    return util_count_files(cache, ".part", NULL) + util_count_files(cache, ".rec", NULL) -
           2 * known;
}

int agree_cut_off(const char *cache)
{
    return util_count_files(cache, ".tmp", NULL);
}
