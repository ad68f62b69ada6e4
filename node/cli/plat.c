/* SPDX-License-Identifier: MIT
 * plat.c: see plat.h; the part that is the same on every POSIX system. */
#include "node/cli/plat.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

uint64_t plat_page(void)
{
    long v = sysconf(_SC_PAGESIZE);
    return v > 0 ? (uint64_t)v : 4096;
}

uint64_t plat_raise_files(uint64_t *before)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) {
        return 0;
    }
    if (before) {
        *before = l.rlim_cur;
    }
    /* The Mac refuses more than OPEN_MAX even where the hard limit says infinity. */
    static const rlim_t steps[] = {65536, 24576, 10240, 4096};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        rlim_t want = l.rlim_max != RLIM_INFINITY && l.rlim_max < steps[i] ? l.rlim_max : steps[i];
        if (want <= l.rlim_cur) {
            break;
        }
        struct rlimit up = {want, l.rlim_max};
        if (!setrlimit(RLIMIT_NOFILE, &up)) {
            return want;
        }
    }
    return l.rlim_cur;
}

int plat_disk_free(const char *path, uint64_t *bytes, struct err *e)
{
    char p[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof p) {
        return err_set(e, ERR_ARG, "the path %.100s... cannot be used", path);
    }
    memcpy(p, path, n + 1);
    for (;;) {
        struct statvfs v;
        if (!statvfs(p, &v)) {
            *bytes = (uint64_t)v.f_bavail * v.f_frsize;
            return 0;
        }
        char *slash = strrchr(p, '/');
        if (errno != ENOENT || !strcmp(p, ".") || !strcmp(p, "/")) {
            return err_sys(e, errno, "cannot ask for the free space at %s", path);
        }
        if (!slash) {
            memcpy(p, ".", 2);
        } else if (slash == p) {
            p[1] = 0;
        } else {
            *slash = 0;
        }
    }
}

int plat_read_stdin(struct buf *out, struct err *e)
{
    char room[16384];
    for (;;) {
        ssize_t k = read(STDIN_FILENO, room, sizeof room);
        if (k == 0) {
            return 0;
        }
        if (k < 0 && errno != EINTR) {
            return err_sys(e, errno, "cannot read standard input");
        }
        int r = k > 0 ? buf_add(out, room, (size_t)k) : 0;
        if (r) {
            return err_set(e, r, "cannot read standard input: %s", err_text(r));
        }
    }
}

/* One line, byte by byte; erase, kill and the interrupt key are done here. */
static int read_hidden(int fd, char *out, size_t cap, size_t *n, struct err *e)
{
    enum { CTRL_C = 3, CTRL_D = 4, BACKSPACE = 8, CTRL_U = 21, DELETE = 127 };
    sigset_t waiting;
    *n = 0;
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        unsigned char c;
        int k = poll(&p, 1, 200);
        /* A signal that ends the program waits until the terminal shows what is typed again. */
        if (!sigpending(&waiting) &&
            (sigismember(&waiting, SIGTERM) == 1 || sigismember(&waiting, SIGHUP) == 1)) {
            return err_set(e, ERR_CANCELLED, "given up");
        }
        if (k < 0 && errno != EINTR) {
            return err_sys(e, errno, "cannot read from the terminal");
        }
        if (k <= 0) {
            continue;
        }
        ssize_t got = read(fd, &c, 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0 || c == CTRL_C || (c == CTRL_D && !*n)) {
            return err_set(e, ERR_CANCELLED, "given up");
        }
        if (c == '\n' || c == '\r') {
            return 0;
        }
        if (c == CTRL_U) {
            *n = 0;
        } else if (c == BACKSPACE || c == DELETE) {
            while (*n && ((unsigned char)out[--*n] & 0xc0) == 0x80) { /* a whole character */
            }
        } else if (*n == cap) {
            return err_set(e, ERR_LIMIT, "that is longer than %zu bytes", cap);
        } else {
            out[(*n)++] = (char)c;
        }
    }
}

int plat_ask_secret(const char *prompt, char *out, size_t cap, size_t *n, struct err *e)
{
    struct termios was, now;
    sigset_t late, before;
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || tcgetattr(fd, &was)) {
        if (fd >= 0) {
            close(fd);
        }
        return err_set(e, ERR_NOTFOUND, "there is no terminal");
    }
    sigemptyset(&late);
    sigaddset(&late, SIGTERM);
    sigaddset(&late, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &late, &before);
    now = was;
    now.c_lflag &= ~(tcflag_t)(ECHO | ICANON | ISIG);
    now.c_cc[VMIN] = 1;
    now.c_cc[VTIME] = 0;
    int r = tcsetattr(fd, TCSAFLUSH, &now) ? err_sys(e, errno, "cannot hide what is typed") : 0;
    if (!r && write(fd, prompt, strlen(prompt)) < 0) {
        r = err_sys(e, errno, "cannot write to the terminal");
    }
    r = r ? r : read_hidden(fd, out, cap, n, e);
    (void)!write(fd, "\n", 1);
    tcsetattr(fd, TCSAFLUSH, &was);
    close(fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

int plat_listens(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) {
        return ENAMETOOLONG;
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), no = 0;
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) {
        no = errno;
    }
    if (fd >= 0) {
        close(fd);
    }
    return no;
}

static int remove_one(const char *path, const struct stat *sb, int what, struct FTW *at)
{
    return remove(path);
}

int plat_remove_tree(const char *path, struct err *e)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS)) {
        return err_sys(e, errno, "cannot remove the folder %s", path);
    }
    return 0;
}

uint64_t plat_peak_rss(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) || u.ru_maxrss < 0) {
        return 0;
    }
#ifdef __APPLE__
    return (uint64_t)u.ru_maxrss; /* bytes */
#else
    return (uint64_t)u.ru_maxrss * 1024;
#endif
}

extern char **environ;

int plat_run(const char *const *argv, struct buf *said, int *status, struct err *e)
{
    int p[2], st;
    char part[512];
    ssize_t n;
    pid_t pid;
    posix_spawn_file_actions_t fa;
    if (pipe(p)) {
        return err_set(e, ERR_IO, "no pipe can be made: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, p[1], 1);
    posix_spawn_file_actions_adddup2(&fa, p[1], 2);
    posix_spawn_file_actions_addclose(&fa, p[0]);
    posix_spawn_file_actions_addclose(&fa, p[1]);
    int r = posix_spawnp(&pid, argv[0], &fa, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    close(p[1]);
    if (r) {
        close(p[0]);
        return err_set(e, r == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s cannot be started: %s", argv[0],
                       strerror(r));
    }
    for (;;) {
        n = read(p[0], part, sizeof part);
        if (n > 0) {
            (void)buf_add(said, part, (size_t)n); /* what is too much is left out */
        } else if (n == 0 || errno != EINTR) {
            break;
        }
    }
    close(p[0]);
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR) {
    }
    *status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    return 0;
}
