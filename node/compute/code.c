/* SPDX-License-Identifier: MIT
 * code.c: see code.h.
 *
 * A name is KEY-OWN.code, both 64 hex digits; KEY-OWN.bad (empty) says that what this system makes
 * it does not take back, so that not every start tries it again; new-PID-N is a file that is being
 * written. All else in the folder is not ours and stays. */
#include "node/compute/code.h"

#include "proto/base/buf.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEX (2 * SHA256_SIZE)
#define FILE_LEAST 1
#define FILE_MOST ((off_t)256 << 20) /* bytes of compiled kernels */
#define PIECE ((size_t)1 << 20)
#define UNFINISHED_S 3600 /* a file that was being written so long ago is nobody's */
#define PATH 4096

struct place {
    const struct code_setup *o;
    char dir[PATH - 300], key[HEX + 1];
};

__attribute__((format(printf, 2, 3))) static void say(const struct code_setup *o, const char *fmt,
                                                      ...)
{
    char line[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (o->say) {
        o->say(o->say_ctx, line);
    }
}

/* ---- names ---- */

/* Each with its length, so that no two keys run into the same bytes. */
static void add(struct sha256 *s, const void *p, size_t n)
{
    uint64_t len = n;
    sha256_add(s, &len, sizeof len);
    sha256_add(s, p, n);
}

static void make_key(const struct sh_device *d, const char *program, char hex[HEX + 1])
{
    struct sha256 s;
    uint8_t sum[SHA256_SIZE];
    sha256_init(&s);
    add(&s, d->name, strlen(d->name));
    add(&s, d->system, strlen(d->system));
    add(&s, d->text, d->text_size);
    add(&s, program, strlen(program));
    sha256_done(&s, sum);
    sha256_hex(sum, hex);
}

static bool is_hex(const char *s)
{
    return strspn(s, "0123456789abcdef") >= HEX;
}

static bool is_code(const char *name)
{
    return strlen(name) == 2 * HEX + 6 && is_hex(name) && name[HEX] == '-' &&
           is_hex(name + HEX + 1) && !strcmp(name + 2 * HEX + 1, ".code");
}

static bool is_bad(const char *name)
{
    return strlen(name) == HEX + 4 && is_hex(name) && !strcmp(name + HEX, ".bad");
}

static void path_of(const struct place *p, const char *name, char out[PATH])
{
    snprintf(out, PATH, "%s/%.255s", p->dir, name);
}

static void path_bad(const struct place *p, char out[PATH])
{
    snprintf(out, PATH, "%s/%s.bad", p->dir, p->key);
}

/* ---- files ---- */

/* The SHA-256 of a plain file of a size that makes sense. */
static bool digest(const char *path, char hex[HEX + 1])
{
    struct stat sb;
    struct sha256 s;
    uint8_t sum[SHA256_SIZE], *piece = malloc(PIECE);
    int fd = file_open_read(path, O_NOFOLLOW | O_NONBLOCK);
    bool ok = piece && fd >= 0 && !fstat(fd, &sb) && S_ISREG(sb.st_mode) &&
              sb.st_size >= FILE_LEAST && sb.st_size <= FILE_MOST;
    sha256_init(&s);
    for (off_t at = 0; ok && at < sb.st_size; at += (off_t)PIECE) {
        size_t n = sb.st_size - at < (off_t)PIECE ? (size_t)(sb.st_size - at) : PIECE;
        ok = !file_pread(fd, path, piece, n, (uint64_t)at, NULL);
        sha256_add(&s, piece, ok ? n : 0);
    }
    sha256_done(&s, sum);
    sha256_hex(sum, hex);
    if (fd >= 0) {
        close(fd);
    }
    free(piece);
    return ok;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The files that are too many, the oldest first, other keys' notes, and what a process left that
 * ended while it wrote.
 * Another process may be about to read one of them: then it builds. */
static void tidy(const struct place *p)
{
    char path[PATH], oldest[PATH];
    struct stat sb;
    DIR *d;
    for (;;) {
        unsigned n = 0;
        time_t at = 0;
        struct dirent *x;
        d = opendir(p->dir);
        while (d && (x = readdir(d))) {
            path_of(p, x->d_name, path);
            if (is_code(x->d_name) && !lstat(path, &sb)) {
                n++;
                if (n == 1 || sb.st_mtime < at) {
                    at = sb.st_mtime;
                    memcpy(oldest, path, sizeof oldest);
                }
            } else if (is_bad(x->d_name)
                           ? strncmp(x->d_name, p->key, HEX) != 0
                           : !strncmp(x->d_name, "new-", 4) && !lstat(path, &sb) &&
                                 S_ISREG(sb.st_mode) && sb.st_mtime < time(NULL) - UNFINISHED_S) {
                (void)unlink(path);
            }
        }
        if (d) {
            closedir(d);
        }
        if (n <= CODE_FILES_MAX || (unlink(oldest) && errno != ENOENT)) {
            return;
        }
    }
}

/* ---- load ---- */

/* From the first file of this key that is whole and that the device takes; others of the key go. */
static bool load(struct sh_device *d, const struct place *p, struct code *out)
{
    char path[PATH], sum[HEX + 1], why[300];
    bool got = false;
    DIR *dir = opendir(p->dir);
    struct dirent *x;
    while (!got && dir && (x = readdir(dir))) {
        if (!is_code(x->d_name) || strncmp(x->d_name, p->key, HEX) != 0) {
            continue;
        }
        path_of(p, x->d_name, path);
        got = digest(path, sum) && !strncmp(sum, x->d_name + HEX + 1, HEX) &&
              !d->load(d, path, why, sizeof why);
        if (got) {
            memcpy(out->from, sum, sizeof sum);
        } else {
            (void)unlink(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return got;
}

/* ---- build ---- */

/* Its name, once it is whole on the disk. */
static bool publish(const struct place *p, const char *unfinished, char to[PATH], char sum[HEX + 1],
                    struct err *e)
{
    int fd = open(unfinished, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat a, b;
    bool ok = fd >= 0 && !fchmod(fd, 0600) && !file_sync(fd, unfinished, e) && !fstat(fd, &a) &&
              digest(unfinished, sum) && !lstat(unfinished, &b) && same_file(&a, &b);
    if (fd >= 0) {
        close(fd);
    }
    if (!ok) {
        return false;
    }
    snprintf(to, PATH, "%s/%s-%s.code", p->dir, p->key, sum);
    if (rename(unfinished, to)) {
        err_sys(e, errno, "cannot rename %s", unfinished);
        return false;
    }
    return !file_sync_dir_of(to, e);
}

/* What was just written is taken back from the disk, as later starts will do it: what the self-test
 * sees is what these compute with, too. */
static void take_back(struct sh_device *d, const struct place *p, const char *path, const char *sum,
                      struct code *out)
{
    char why[300] = "", bad[PATH], now[HEX + 1];
    bool taken = !d->load(d, path, why, sizeof why);
    if (taken) {
        memcpy(out->from, sum, HEX + 1);
    } else if (digest(path, now) && !strcmp(now, sum) && !unlink(path)) {
        /* not for what somebody has just damaged or taken away */
        path_bad(p, bad);
        (void)file_write_atomic(bad, "", 0, 0600, NULL);
    }
    tidy(p);
    if (taken) {
        return;
    }
    say(p->o, "%s: its compiled kernels cannot be kept, so each start compiles them: %s", d->name,
        why);
}

static int build(struct sh_device *d, const struct place *p, struct code *out, char *why,
                 size_t size)
{
    static atomic_uint number;
    char unfinished[PATH], to[PATH], sum[HEX + 1];
    struct err e = {0};
    bool kept = false;
    why[0] = 0;
    int rc = file_mkdirs(p->dir, &e);
    snprintf(unfinished, sizeof unfinished, "%s/new-%ld-%u", p->dir, (long)getpid(),
             atomic_fetch_add(&number, 1));
    if (!rc && access(p->dir, W_OK)) {
        rc = err_sys(&e, errno, "cannot write to %s", p->dir);
    }
    bool may = !rc;
    rc = d->build(d, may ? unfinished : NULL, &kept, why, size);
    bool published = !rc && kept && publish(p, unfinished, to, sum, &e);
    if (may && !published) {
        (void)unlink(unfinished);
    }
    if (published) {
        take_back(d, p, to, sum, out);
    } else if (!rc) {
        say(p->o, "%s: its compiled kernels cannot be kept, so each start compiles them: %s",
            d->name,
            e.msg[0] ? e.msg
            : why[0] ? why
                     : "the file is not whole");
        why[0] = 0;
    }
    return rc;
}

int code_ready(struct sh_device *d, const struct code_setup *o, struct code *out, char *why,
               size_t size)
{
    struct place p = {.o = o};
    char bad[PATH];
    bool none, ok = o->folder &&
                    (size_t)snprintf(p.dir, sizeof p.dir, "%s/kernels", o->folder) < sizeof p.dir;
    memset(out, 0, sizeof *out);
    if (ok) {
        make_key(d, o->program ? o->program : "", p.key);
        if (load(d, &p, out)) {
            out->kept = true;
            return 0;
        }
        path_bad(&p, bad);
        ok = access(bad, F_OK) != 0;
    }
    return ok ? build(d, &p, out, why, size) : d->build(d, NULL, &none, why, size);
}
