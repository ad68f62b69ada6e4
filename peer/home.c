/* SPDX-License-Identifier: MIT
 * home.c: see home.h. */
#include "peer/home.h"
#include "peer/crypto.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int home_path(const char *home, const char *rel, char path[HOME_PATH_MAX], struct err *e)
{
    int n = snprintf(path, HOME_PATH_MAX, "%s/%s", home, rel);
    if (n < 0 || n >= HOME_PATH_MAX) {
        return err_set(e, ERR_LIMIT, "the path of the data folder is too long");
    }
    return 0;
}

bool home_has(const char *home, const char *rel)
{
    char path[HOME_PATH_MAX];
    struct stat st;
    return !home_path(home, rel, path, NULL) && (lstat(path, &st) == 0 || errno != ENOENT);
}

static int check_file(const char *path, const struct stat *st, bool secret, struct err *e)
{
    if (!S_ISREG(st->st_mode)) {
        return err_set(e, ERR_FORMAT, "%s is not a plain file", path);
    }
    if (secret && (st->st_mode & 077)) {
        return err_set(e, ERR_REFUSED,
                       "%s is secret but its mode %04o lets others in: if nobody else can have "
                       "read it, run: chmod 600 '%s'",
                       path, (unsigned)(st->st_mode & 07777), path);
    }
    return 0;
}

int home_read(const char *home, const char *rel, bool secret, size_t max, struct buf *out,
              struct err *e)
{
    char path[HOME_PATH_MAX];
    int r = home_path(home, rel, path, e);
    if (r) {
        return r;
    }
    /* non-blocking: somebody's pipe in its place must not stop the program */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == EACCES || errno == EPERM)) {
        return err_set(e, ERR_REFUSED,
                       "%s cannot be read by this user: run as its owner, or give it back with: "
                       "sudo chown \"$(id -un)\" '%s'",
                       path, path);
    }
    if (fd < 0 && errno == ELOOP) {
        return err_set(e, ERR_FORMAT, "%s is a link, not a file: put the file itself there", path);
    }
    if (fd < 0) {
        return err_sys(e, errno, "cannot open %s", path);
    }
    struct stat st;
    if (fstat(fd, &st) != 0) {
        r = err_sys(e, errno, "cannot look at %s", path);
    } else {
        r = check_file(path, &st, secret, e);
    }
    if (!r && (st.st_size < 0 || (uintmax_t)st.st_size > max)) {
        r = err_set(e, ERR_LIMIT, "%s is larger than the %zu bytes allowed", path, max);
    }
    if (!r && buf_reserve(out, (size_t)st.st_size)) {
        r = err_set(e, ERR_NOMEM, "cannot read %s: out of memory", path);
    }
    if (!r && st.st_size) {
        r = file_pread(fd, path, out->p + out->n, (size_t)st.st_size, 0, e);
        if (!r) {
            out->n += (size_t)st.st_size;
            out->p[out->n] = 0;
        }
    }
    close(fd);
    return r;
}

/* A file under a name nobody uses, complete and synced. */
static int write_fresh(const char *tmp, const void *p, size_t n, struct err *e)
{
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return err_sys(e, errno, "cannot create %s", tmp);
    }
    int r = file_pwrite(fd, tmp, p, n, 0, e);
    r = r ? r : file_sync(fd, tmp, e);
    if (close(fd) != 0 && !r) {
        r = err_sys(e, errno, "cannot write %s", tmp);
    }
    if (r) {
        unlink(tmp);
    }
    return r;
}

int home_write_once(const char *home, const char *rel, const void *p, size_t n, bool *made,
                    struct err *e)
{
    char path[HOME_PATH_MAX], tmp[HOME_PATH_MAX + 32];
    uint64_t unique;
    *made = false;
    int r = home_path(home, rel, path, e);
    r = r ? r : crypto_random(&unique, sizeof unique, e);
    if (r) {
        return r;
    }
    snprintf(tmp, sizeof tmp, "%s.new%016llx", path, (unsigned long long)unique);
    r = write_fresh(tmp, p, n, e);
    if (r) {
        return r;
    }
    /* link, not rename: it fails where there is a file already */
    if (link(tmp, path) == 0) {
        *made = true;
    } else if (errno != EEXIST) {
        r = err_sys(e, errno,
                    "cannot put %s in place (the data folder must be on a file system "
                    "with owners and links)",
                    path);
    }
    unlink(tmp);
    return r ? r : file_sync_dir_of(path, e);
}

int home_write(const char *home, const char *rel, const void *p, size_t n, struct err *e)
{
    char path[HOME_PATH_MAX];
    int r = home_path(home, rel, path, e);
    return r ? r : file_write_atomic(path, p, n, 0600, e);
}

int home_folder(const char *home, const char *rel, struct err *e)
{
    char path[HOME_PATH_MAX];
    int r = home_path(home, rel, path, e);
    return r ? r : file_mkdirs(path, e);
}

/* NAME.new and 16 hex digits, or NAME.tmp and a process id. */
static bool leftover(const char *name)
{
    const char *at = strrchr(name, '.');
    if (!at || at == name) {
        return false;
    }
    size_t n = strlen(at + 1);
    if (strncmp(at, ".new", 4) == 0) {
        return n == 19 && strspn(at + 4, "0123456789abcdef") == 16;
    }
    return strncmp(at, ".tmp", 4) == 0 && n > 3 && strspn(at + 4, "0123456789") == n - 3;
}

void home_sweep(const char *home, const char *rel)
{
    char path[HOME_PATH_MAX];
    DIR *d = home_path(home, rel, path, NULL) ? NULL : opendir(path);
    if (!d) {
        return;
    }
    for (struct dirent *f; (f = readdir(d));) {
        if (leftover(f->d_name)) {
            unlinkat(dirfd(d), f->d_name, 0);
        }
    }
    closedir(d);
}

uint64_t home_stamp(const char *home, const char *rel, uint64_t h)
{
    char path[HOME_PATH_MAX];
    struct stat st;
    uint64_t v[4] = {0};
    if (!home_path(home, rel, path, NULL) && stat(path, &st) == 0) {
#ifdef __APPLE__
        const struct timespec *t = &st.st_mtimespec;
#else
        const struct timespec *t = &st.st_mtim;
#endif
        v[0] = (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
        v[1] = (uint64_t)st.st_ino;
        v[2] = (uint64_t)st.st_size;
        v[3] = 1;
    }
    for (int i = 0; i < 4; i++) {
        h = (h ^ v[i]) * 0x100000001b3u;
    }
    return h;
}

int home_lock(const char *home, int *lock, struct err *e)
{
    return home_lock_for(home, HOME_LOCK_MS, lock, e);
}

int home_lock_for(const char *home, unsigned ms, int *lock, struct err *e)
{
    char path[HOME_PATH_MAX];
    *lock = -1;
    int r = home_path(home, "trust.lock", path, e);
    r = r ? r : file_mkdirs(home, e);
    if (r) {
        return r;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EROFS) { /* nobody writes there: who only looks may go on */
        return 0;
    }
    if (fd < 0) {
        return err_sys(e, errno, "cannot open %s", path);
    }
    for (uint64_t end = clock_ns() + ms * UINT64_C(1000000); flock(fd, LOCK_EX | LOCK_NB) != 0;) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            r = err_sys(e, errno, "cannot lock %s", path);
            close(fd);
            return r;
        }
        if (clock_ns() > end) {
            close(fd);
            return err_set(e, ERR_BUSY,
                           "another shoal process has held %s for %.1f seconds: wait for it or "
                           "end it",
                           path, ms / 1000.0);
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    *lock = fd;
    return 0;
}

void home_unlock(int lock)
{
    if (lock >= 0) {
        close(lock);
    }
}
