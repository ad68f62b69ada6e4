/* SPDX-License-Identifier: MIT
 * util.c: see util.h. */
#include "tests/store/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

char *util_path(const char *fmt, ...)
{
    char b[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b, sizeof b, fmt, ap);
    va_end(ap);
    return strdup(b);
}

char *util_tmpdir(void)
{
    const char *t = getenv("TMPDIR");
    struct statvfs v; /* memory, where there is plenty: these tests sync thousands of files */
    bool shm = statvfs("/dev/shm", &v) == 0 && access("/dev/shm", W_OK) == 0 &&
               (uint64_t)v.f_bavail * v.f_frsize > (uint64_t)1 << 30;
    char *d = util_path("%s/shoal-store-XXXXXX", t && *t ? t : shm ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(d));
    return d;
}

static int rm_one(const char *p, const struct stat *st, int flag, struct FTW *f)
{
    (void)st;
    (void)flag;
    (void)f;
    return remove(p);
}

void util_rmtree(const char *path)
{
    nftw(path, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

void util_copy_dir(const char *from, const char *to)
{
    mkdir(to, 0700);
    DIR *d = opendir(from);
    assert_non_null(d);
    struct dirent *x;
    static char b[1 << 16];
    while ((x = readdir(d))) {
        char *a = util_path("%s/%s", from, x->d_name), *z = util_path("%s/%s", to, x->d_name);
        struct stat st;
        if (stat(a, &st) == 0 && S_ISREG(st.st_mode)) {
            int i = open(a, O_RDONLY), o = open(z, O_WRONLY | O_CREAT | O_TRUNC, 0600);
            ssize_t n;
            while ((n = read(i, b, sizeof b)) > 0) {
                assert_int_equal(write(o, b, (size_t)n), n);
            }
            close(i);
            close(o);
        }
        free(a);
        free(z);
    }
    closedir(d);
}

void util_log_init(struct util_log *l)
{
    memset(l, 0, sizeof *l);
    l->mu = malloc(sizeof(pthread_mutex_t));
    pthread_mutex_init(l->mu, NULL);
}

void util_log_free(struct util_log *l)
{
    pthread_mutex_destroy(l->mu);
    free(l->mu);
}

void util_log_line(void *ctx, const char *line)
{
    struct util_log *l = ctx;
    pthread_mutex_lock(l->mu);
    size_t n = strlen(line);
    if (l->n + n + 2 < sizeof l->text) {
        memcpy(l->text + l->n, line, n);
        l->n += n;
        l->text[l->n++] = '\n';
    }
    pthread_mutex_unlock(l->mu);
    if (getenv("STORE_TEST_VERBOSE")) {
        fprintf(stderr, "log: %s\n", line);
    }
}

int util_log_has(struct util_log *l, const char *part)
{
    int k = !*part;
    pthread_mutex_lock(l->mu);
    for (const char *p = l->text; *part && (p = strstr(p, part)); p += strlen(part)) {
        k++;
    }
    pthread_mutex_unlock(l->mu);
    return k;
}

uint8_t *util_truth(const struct model *m, const char *dir, uint32_t id)
{
    const struct model_object *o = model_object(m, id);
    char *p = util_path("%s/%s", dir, model_shard(m, o->shard)->file);
    int fd = open(p, O_RDONLY);
    assert_true(fd >= 0);
    uint8_t *b = malloc(o->size);
    assert_non_null(b);
    assert_int_equal(pread(fd, b, o->size, (off_t)o->offset), o->size);
    close(fd);
    free(p);
    return b;
}

int util_right(const struct model *m, const char *dir, const struct store_view *v)
{
    const struct model_object *o = model_object(m, v->id);
    if (v->n != o->size) {
        return 0;
    }
    uint8_t *b = util_truth(m, dir, v->id);
    int same = memcmp(b, v->p, v->n) == 0;
    free(b);
    return same;
}

static void count_in(const char *dir, const char *part, char **first, int *k)
{
    DIR *d = opendir(dir);
    if (!d) {
        return;
    }
    struct dirent *x;
    while ((x = readdir(d))) {
        if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) {
            continue;
        }
        char *p = util_path("%s/%s", dir, x->d_name);
        struct stat st;
        if (lstat(p, &st) == 0 && S_ISDIR(st.st_mode)) {
            count_in(p, part, first, k);
        } else if (strstr(p, part)) {
            if (first && !*k) {
                *first = strdup(p);
            }
            ++*k;
        }
        free(p);
    }
    closedir(d);
}

int util_count_files(const char *dir, const char *part, char **first)
{
    int k = 0;
    if (first) {
        *first = NULL;
    }
    count_in(dir, part, first, &k);
    return k;
}
