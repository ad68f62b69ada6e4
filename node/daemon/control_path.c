/* SPDX-License-Identifier: MIT
 * control_path.c: the lock of a home and the place of its socket. See control.h.
 *
 * A socket's path has room for about a hundred bytes, a home may be longer, or lie on a volume that
 * takes no sockets. Then the socket goes to a folder of this user below TMPDIR or /tmp, named by a
 * digest of the home's real path; the home says in run/control.at where, since TMPDIR may differ
 * between two processes. A folder there that is a link, another user's, or open to others is not
 * used. */
#include "node/daemon/control.h"

#include "peer/home.h"
#include "proto/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define AT_FILE "run/control.at"
#define ROOM sizeof(((struct sockaddr_un *)0)->sun_path)

int control_lock(const char *home, int *lock, struct err *e)
{
    char path[HOME_PATH_MAX];
    int r = home_folder(home, "run", e);
    r = r ? r : home_path(home, "run/lock", path, e);
    if (r) {
        return r;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(e, errno, "cannot open %s", path);
    }
    while ((r = flock(fd, LOCK_EX | LOCK_NB)) && errno == EINTR) {
    }
    if (r) {
        int no = errno;
        char who[32] = "";
        ssize_t n = pread(fd, who, sizeof who - 1, 0);
        who[n > 0 ? (size_t)n : 0] = 0;
        who[strspn(who, "0123456789")] = 0;
        close(fd);
        return no == EWOULDBLOCK ? err_set(e, ERR_BUSY, "a node runs in %s already%s%s%s", home,
                                           *who ? " (process " : "", who, *who ? ")" : "")
                                 : err_sys(e, no, "cannot lock %s", path);
    }
    char me[32];
    int n = snprintf(me, sizeof me, "%ld\n", (long)getpid());
    /* For people alone: what counts is the lock, also on a full volume. */
    if (ftruncate(fd, 0) || pwrite(fd, me, (size_t)n, 0) != n) {
        (void)ftruncate(fd, 0);
    }
    *lock = fd;
    return 0;
}

/* The folder is really ours. */
static int check_folder(const char *dir, struct err *e)
{
    struct stat st;
    if (lstat(dir, &st)) {
        return err_sys(e, errno, "cannot look at %s", dir);
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077)) {
        return err_set(e, ERR_REFUSED,
                       "%s is not a folder of this user alone: remove it, or set TMPDIR to a "
                       "folder that others cannot write to",
                       dir);
    }
    return 0;
}

static int outside(const char *home, const char *base, char path[CONTROL_PATH_MAX], struct err *e)
{
    uint8_t d[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1], dir[CONTROL_PATH_MAX], *real = realpath(home, NULL);
    const char *name = real ? real : home;
    sha256(name, strlen(name), d);
    free(real);
    sha256_hex(d, hex);
    int n = snprintf(dir, sizeof dir, "%s/shoal-%u-%.16s", base, (unsigned)geteuid(), hex);
    if (n < 0 || (size_t)n + sizeof "/control" > ROOM) {
        return err_set(e, ERR_LIMIT, "the path %s is too long for a socket", base);
    }
    if (mkdir(dir, 0700) && errno != EEXIST) {
        return err_sys(e, errno, "cannot make the folder %s", dir);
    }
    int r = check_folder(dir, e);
    if (!r) {
        snprintf(path, CONTROL_PATH_MAX, "%.*s/control", CONTROL_PATH_MAX - 9, dir);
    }
    return r;
}

/* HOME/run/control by the home's real path, so that every process sees the same length. False: too
 * long for a socket. */
static bool inside(const char *home, char path[CONTROL_PATH_MAX])
{
    char *real = realpath(home, NULL);
    int n = snprintf(path, CONTROL_PATH_MAX, "%s/run/control", real ? real : home);
    free(real);
    return n > 0 && (size_t)n < ROOM && n < CONTROL_PATH_MAX;
}

int control_path_make(const char *home, bool elsewhere, char path[CONTROL_PATH_MAX], struct err *e)
{
    char at[HOME_PATH_MAX];
    int r = home_folder(home, "run", e);
    r = r ? r : home_path(home, AT_FILE, at, e);
    if (r) {
        return r;
    }
    if (!elsewhere && inside(home, path)) {
        unlink(at);
        return 0;
    }
    const char *tmp = getenv("TMPDIR");
    r = tmp && *tmp == '/' ? outside(home, tmp, path, e) : ERR_LIMIT;
    r = r ? outside(home, "/tmp", path, e) : 0;
    return r ? r : home_write(home, AT_FILE, path, strlen(path), e);
}

int control_path_find(const char *home, char path[CONTROL_PATH_MAX], struct err *e)
{
    struct err e1 = {0};
    struct buf b;
    buf_init(&b, CONTROL_PATH_MAX);
    int r = home_read(home, AT_FILE, false, CONTROL_PATH_MAX - 1, &b, &e1);
    if (r == ERR_NOTFOUND && inside(home, path)) {
        buf_free(&b);
        return 0;
    }
    char *slash = !r && b.n && b.n < ROOM && *b.p == '/' ? strrchr(b.p, '/') : NULL;
    if (!slash || strlen(b.p) != b.n) {
        buf_free(&b);
        return err_set(e, ERR_OFFLINE, "no node runs in %s", home);
    }
    memcpy(path, b.p, b.n + 1);
    *slash = 0;
    r = check_folder(b.p, &e1);
    buf_free(&b);
    return r ? err_set(e, r == ERR_NOTFOUND ? ERR_OFFLINE : r, "no node is found in %s: %s", home,
                       e1.msg)
             : 0;
}

int control_tame(int fd)
{
    int fl = fcntl(fd, F_GETFL);
    if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC)) {
        return ERR_IO;
    }
#ifdef SO_NOSIGPIPE
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) && errno != ENOTSOCK) {
        return ERR_IO;
    }
#endif
    return 0;
}
