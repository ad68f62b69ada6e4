/* SPDX-License-Identifier: MIT
 * rig.c: see rig.h. */
#include "rig.h"

#include "proto/base/file.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

int rig_open(struct rig *r, const struct rig_opts *o, struct err *e)
{
    memset(r, 0, sizeof *r);
    struct kern_cpu_opts ko = {
        .isa = o->isa, .threads = o->threads ? o->threads : 2, .flush_subnormals = o->flush};
    r->be = o->be;
    r->borrowed = o->be != NULL;
    if (!o->be && kern_cpu_open(&ko, &r->be)) {
        return err_set(e, ERR_UNSUPPORTED, "no backend %s", kern_isa_name(o->isa));
    }
    struct store_opts so = {.model = o->model,
                            .cache_dir = o->cache,
                            .offline = o->offline,
                            .ram_budget = o->ram ? o->ram : 1u << 30,
                            .mem = infer_store_mem(r->be)};
    int rc = store_open(&so, &r->st, e);
    if (!rc) {
        r->m = store_model(r->st);
        store_set_admit(r->st, infer_admit, (void *)(uintptr_t)r->m);
        struct infer_opts io = {.st = r->st,
                                .be = r->be,
                                .spine_budget = o->no_spine       ? 0
                                                : o->spine_budget ? o->spine_budget
                                                                  : UINT64_MAX,
                                .max_rows = o->max_rows,
                                .shuffle = o->shuffle,
                                .prefetch = o->prefetch,
                                .progress = o->progress,
                                .progress_ctx = o->progress_ctx,
                                .routed = o->routed,
                                .routed_ctx = o->routed_ctx};
        rc = infer_open(&io, &r->f, e);
    }
    if (rc) {
        rig_close(r);
    }
    return rc;
}

void rig_close(struct rig *r)
{
    infer_close(r->f);
    if (r->st) {
        store_close(r->st);
    }
    if (r->be && !r->borrowed) {
        r->be->close(r->be);
    }
    memset(r, 0, sizeof *r);
}

float *rig_floats(const char *path, size_t *n)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 26);
    if (file_read_all(path, &b, &e)) {
        fail_msg("%s", e.msg);
    }
    size_t bytes;
    float *p = (float *)(void *)buf_take(&b, &bytes);
    *n = bytes / sizeof *p;
    return p;
}

void rig_copy_model(const char *from, const char *to)
{
    struct err e = {0};
    assert_int_equal(file_mkdirs(to, &e), 0);
    DIR *d = opendir(from);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));) {
        char a[1024], b[1024];
        struct stat st;
        snprintf(a, sizeof a, "%s/%s", from, f->d_name);
        snprintf(b, sizeof b, "%s/%s", to, f->d_name);
        if (stat(a, &st) != 0 || !S_ISREG(st.st_mode)) {
            continue;
        }
        struct buf x;
        buf_init(&x, 1 << 26);
        assert_int_equal(file_read_all(a, &x, &e), 0);
        assert_int_equal(file_write_atomic(b, x.p, x.n, 0600, &e), 0);
        buf_free(&x);
    }
    closedir(d);
}

void rig_remove(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) {
        return;
    }
    for (struct dirent *f; (f = readdir(d));) {
        char p[1024];
        struct stat st;
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..")) {
            continue;
        }
        snprintf(p, sizeof p, "%s/%s", dir, f->d_name);
        if (lstat(p, &st) == 0 && S_ISDIR(st.st_mode)) {
            rig_remove(p);
        } else {
            unlink(p);
        }
    }
    closedir(d);
    rmdir(dir);
}
