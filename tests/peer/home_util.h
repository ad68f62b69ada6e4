/* SPDX-License-Identifier: MIT
 * home_util.h: a temporary home per test, whole-file helpers, and the openssl command line as the
 * independent judge of keys, certificates and signatures. */
#ifndef SHOAL_TESTS_PEER_HOME_UTIL_H
#define SHOAL_TESTS_PEER_HOME_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/base/file.h"

#define ok(x)                                        \
    do {                                             \
        e.msg[0] = 0;                                \
        int ok_r_ = (x);                             \
        if (ok_r_) {                                 \
            fail_msg("%s: %d %s", #x, ok_r_, e.msg); \
        }                                            \
    } while (0)

/* x fails with `code`, and the sentence contains `words`. */
#define fails(x, code_, words)                                      \
    do {                                                            \
        memset(&e, 0, sizeof e);                                    \
        assert_int_equal((x), (code_));                             \
        assert_int_equal(e.code, (code_));                          \
        if (!strstr(e.msg, (words))) {                              \
            fail_msg("\"%s\" does not say \"%s\"", e.msg, (words)); \
        }                                                           \
    } while (0)

static inline char *temp_home(void)
{
    const char *tmp = getenv("TMPDIR");
    char *p = malloc(512);
    assert_non_null(p);
    snprintf(p, 512, "%s/shoal-trust-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(p));
    return p;
}

/* 0..255: the exit status of a shell command. */
static inline int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline int shell(const char *fmt, ...)
{
    char cmd[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    assert_true(n > 0 && n < (int)sizeof cmd);
    int st = system(cmd);
    return WIFEXITED(st) ? WEXITSTATUS(st) : 255;
}

/* The command's output without its last line end, or NULL when it failed. Freed by the caller. */
static inline char *output(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline char *output(const char *fmt, ...)
{
    char cmd[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    assert_true(n > 0 && n < (int)sizeof cmd);
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    char *out = calloc(1, 65536);
    assert_non_null(out);
    size_t k = fread(out, 1, 65535, f);
    if (k && out[k - 1] == '\n') {
        out[k - 1] = 0;
    }
    if (pclose(f) != 0) {
        free(out);
        return NULL;
    }
    return out;
}

static inline void drop_home(char *home)
{
    shell("chmod -R u+rwx '%s' && rm -rf '%s'", home, home);
    free(home);
}

static inline bool have_openssl(void)
{
    return shell("openssl version >/dev/null 2>&1") == 0;
}

/* "home/rel"; it stays valid for the next 255 calls. */
static inline char *at(const char *home, const char *rel)
{
    static char *kept[256]; /* so that a leak checker still sees them */
    static size_t n;
    size_t cap = strlen(home) + strlen(rel) + 2;
    char *s = malloc(cap);
    assert_non_null(s);
    snprintf(s, cap, "%s/%s", home, rel);
    free(kept[n & 255]); /* no test holds that many */
    kept[n++ & 255] = s;
    return s;
}

static inline void put(const char *path, const void *p, size_t n, mode_t mode)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static inline struct buf slurp(const char *path)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    if (file_read_all(path, &b, &e)) {
        fail_msg("%s", e.msg);
    }
    return b;
}

static inline mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

/* How many names the folder has, without the dots. */
static inline int names_in(const char *path)
{
    char *s = output("ls -A '%s' | wc -l", path);
    assert_non_null(s);
    char *end;
    long n = strtol(s, &end, 10);
    assert_true(end != s && !*end && n >= 0 && n <= 1000000);
    free(s);
    return (int)n;
}

#endif
