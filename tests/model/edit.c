/* SPDX-License-Identifier: MIT
 * edit.c: see edit.h. */
#include "model/edit.h"

#include "proto/base/file.h"
#include "proto/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void edit_begin(struct edit *d, const char *from)
{
    snprintf(d->dir, sizeof d->dir, "/tmp/shoal-edit-XXXXXX");
    assert_non_null(mkdtemp(d->dir));
    DIR *dir = opendir(from);
    assert_non_null(dir);
    for (struct dirent *f; (f = readdir(dir));) {
        if (f->d_name[0] != '.') {
            char a[4096], b[4096];
            snprintf(a, sizeof a, "%s/%s", from, f->d_name);
            snprintf(b, sizeof b, "%s/%s", d->dir, f->d_name);
            assert_int_equal(symlink(a, b), 0);
        }
    }
    closedir(dir);
}

void edit_end(struct edit *d)
{
    DIR *dir = opendir(d->dir);
    assert_non_null(dir);
    for (struct dirent *f; (f = readdir(dir));) {
        char p[4096];
        snprintf(p, sizeof p, "%s/%s", d->dir, f->d_name);
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0 && unlink(p) != 0) {
            rmdir(p);
        }
    }
    closedir(dir);
    assert_int_equal(rmdir(d->dir), 0);
}

void edit_read(const struct edit *d, const char *file, struct buf *out)
{
    char p[4096];
    struct err e = {0};
    snprintf(p, sizeof p, "%s/%s", d->dir, file);
    buf_init(out, 1 << 24);
    if (file_read_all(p, out, &e)) {
        fail_msg("%s", e.msg);
    }
}

void edit_remove(const struct edit *d, const char *file)
{
    char p[4096];
    snprintf(p, sizeof p, "%s/%s", d->dir, file);
    assert_int_equal(unlink(p), 0);
}

void edit_write(const struct edit *d, const char *file, const void *p, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", d->dir, file);
    unlink(path); /* the link, never what it points to */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* text[0..n) with the first `from` replaced, appended to *out. */
static void replace(struct buf *out, const char *text, size_t n, const char *from, const char *to)
{
    size_t k = strlen(from);
    for (size_t i = 0; i + k <= n; i++) {
        if (memcmp(text + i, from, k) == 0) {
            assert_int_equal(buf_add(out, text, i), 0);
            assert_int_equal(buf_adds(out, to), 0);
            assert_int_equal(buf_add(out, text + i + k, n - i - k), 0);
            return;
        }
    }
    fail_msg("nothing to edit: no %s", from);
}

void edit_text(const struct edit *d, const char *file, const char *from, const char *to)
{
    struct buf a, b;
    edit_read(d, file, &a);
    buf_init(&b, 1 << 24);
    replace(&b, a.p, a.n, from, to);
    edit_write(d, file, b.p, b.n);
    buf_free(&a);
    buf_free(&b);
}

void edit_header(const struct edit *d, const char *file, const char *from, const char *to)
{
    struct buf a, b;
    edit_read(d, file, &a);
    buf_init(&b, 1 << 24);
    size_t n = (size_t)num_get_le64(a.p);
    assert_int_equal(buf_add(&b, a.p, 8), 0);
    replace(&b, a.p + 8, n, from, to);
    num_put_le64(b.p, b.n - 8);
    assert_int_equal(buf_add(&b, a.p + 8 + n, a.n - 8 - n), 0);
    edit_write(d, file, b.p, b.n);
    buf_free(&a);
    buf_free(&b);
}

void edit_append(const struct edit *d, const char *file, const void *p, size_t n)
{
    struct buf a;
    edit_read(d, file, &a);
    assert_int_equal(buf_add(&a, p, n), 0);
    edit_write(d, file, a.p, a.n);
    buf_free(&a);
}
