/* SPDX-License-Identifier: MIT
 * cache_rig.c: see cache_rig.h. */
#include "tests/store/cache_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void rig_open(struct rig *r)
{
    struct err e = {0};
    r->log.n = 0;
    memset(r->log.text, 0, sizeof r->log.text);
    if (store_open(&r->o, &r->st, &e)) {
        fail_msg("%s", e.msg);
    }
    r->m = store_model(r->st);
    r->n = model_object_count(r->m);
}

void rig_start(struct rig *r)
{
    memset(r, 0, sizeof *r);
    r->tmp = util_tmpdir();
    r->cache = util_path("%s/cache", r->tmp);
    util_log_init(&r->log);
    r->o = (struct store_opts){.model = DEMO_MODEL,
                               .cache_dir = r->cache,
                               .ram_budget = 1 << 18,
                               .disk_floor = 1,
                               .log = util_log_line,
                               .log_ctx = &r->log};
    rig_open(r);
}

void rig_close(struct rig *r)
{
    store_close(r->st);
    r->st = NULL;
}

void rig_end(struct rig *r)
{
    if (r->st) {
        rig_close(r);
    }
    util_rmtree(r->tmp);
    util_log_free(&r->log);
    free(r->tmp);
    free(r->cache);
}

uint64_t origin_bytes(struct rig *r)
{
    struct store_stats s;
    store_get_stats(r->st, &s);
    return s.origin_bytes;
}

int try_get(struct store *st, uint32_t id)
{
    struct store_view v;
    struct err e = {0};
    if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    int right = util_right(store_model(st), DEMO_MODEL, &v);
    store_release(st, &v);
    return !right;
}

void get_right(struct rig *r, uint32_t id)
{
    assert_int_equal(try_get(r->st, id), 0);
}

void get_all(struct rig *r, uint32_t step)
{
    for (uint32_t id = 0; id < r->n; id += step) {
        get_right(r, id);
    }
}

uint64_t sizes(struct rig *r, uint32_t step)
{
    uint64_t n = 0;
    for (uint32_t id = 0; id < r->n; id += step) {
        n += model_object(r->m, id)->size;
    }
    return n;
}

char *file_of(struct rig *r, const char *part)
{
    char *f;
    assert_int_equal(util_count_files(r->cache, part, &f), 1);
    return f;
}

void poke(const char *path, long off, int bit)
{
    int fd = open(path, O_RDWR);
    unsigned char b;
    assert_true(fd >= 0);
    struct stat st;
    fstat(fd, &st);
    off = off < 0 ? (long)st.st_size + off : off;
    assert_int_equal(pread(fd, &b, 1, off), 1);
    b ^= (unsigned char)(1 << bit);
    assert_int_equal(pwrite(fd, &b, 1, off), 1);
    close(fd);
}
