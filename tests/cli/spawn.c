/* SPDX-License-Identifier: MIT
 * spawn.c: see spawn.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/base/file.h"
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define MAX_ARGS 64

/* The emulator of a cross build, then the program, then the arguments. */
static void make_argv(const char **argv, const char *const *args)
{
    static const char *const emulator[] = {SHOAL_EMULATOR NULL};
    size_t n = 0;
    for (size_t i = 0; emulator[i]; i++) {
        argv[n++] = emulator[i];
    }
    argv[n++] = SHOAL_PROGRAM;
    for (size_t i = 0; args[i]; i++) {
        assert_true(n + 1 < MAX_ARGS);
        argv[n++] = args[i];
    }
    argv[n] = NULL;
}

/* Feed input and read both outputs until both end. */
static void pump(int in, const char *input, int out, int err, struct spawn_result *r)
{
    size_t left = input ? strlen(input) : 0;
    struct pollfd p[3] = {{out, POLLIN, 0}, {err, POLLIN, 0}, {in, POLLOUT, 0}};
    struct buf *dst[2] = {&r->out, &r->err};
    if (!left) {
        close(in);
        p[2].fd = -1;
    }
    while (p[0].fd >= 0 || p[1].fd >= 0) {
        assert_true(poll(p, 3, -1) > 0 || errno == EINTR);
        for (int i = 0; i < 2; i++) {
            if (p[i].fd >= 0 && p[i].revents) {
                char room[65536];
                ssize_t k = read(p[i].fd, room, sizeof room);
                if (k <= 0) {
                    p[i].fd = -1;
                } else {
                    assert_int_equal(buf_add(dst[i], room, (size_t)k), 0);
                }
            }
        }
        if (p[2].fd >= 0 && p[2].revents) {
            ssize_t k = write(in, input, left);
            if (k > 0) {
                input += k;
                left -= (size_t)k;
            }
            if (k <= 0 || !left) {
                close(in);
                p[2].fd = -1;
            }
        }
    }
}

void spawn(struct spawn_result *r, const char *input, const char *const *args)
{
    const char *argv[MAX_ARGS];
    int in[2], out[2], err[2], st;
    pid_t pid;
    posix_spawn_file_actions_t fa;
    memset(r, 0, sizeof *r);
    buf_init(&r->out, (size_t)64 << 20);
    buf_init(&r->err, (size_t)64 << 20);
    make_argv(argv, args);
    assert_int_equal(pipe(in) | pipe(out) | pipe(err), 0);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in[0], 0);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    posix_spawn_file_actions_adddup2(&fa, err[1], 2);
    int *const all[] = {in, out, err};
    for (int i = 0; i < 3; i++) {
        posix_spawn_file_actions_addclose(&fa, all[i][0]);
        posix_spawn_file_actions_addclose(&fa, all[i][1]);
    }
    assert_int_equal(posix_spawnp(&pid, argv[0], &fa, NULL, (char *const *)argv, environ), 0);
    posix_spawn_file_actions_destroy(&fa);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    pump(in[1], input, out[0], err[0], r);
    close(out[0]);
    close(err[0]);
    while (waitpid(pid, &st, 0) < 0) {
        assert_int_equal(errno, EINTR);
    }
    r->status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    assert_int_equal(buf_adds(&r->out, ""), 0);
    assert_int_equal(buf_adds(&r->err, ""), 0);
    r->json = json_loadb(r->out.p, r->out.n, JSON_DECODE_ANY, NULL);
}

void spawn_free(struct spawn_result *r)
{
    json_decref(r->json);
    buf_free(&r->out);
    buf_free(&r->err);
}

/* In the child: the terminal's other end becomes its terminal and all its descriptors. */
static void on_terminal(const char *slave, const char *const *argv)
{
    setsid();
    int fd = open(slave, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 ||
        dup2(fd, 2) < 0) {
        _exit(126);
    }
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static size_t prompts(const struct buf *b)
{
    size_t n = 0;
    for (const char *p = b->p; p && (p = strstr(p, ": ")); p += 2) {
        n++;
    }
    return n;
}

void spawn_tty(struct spawn_result *r, const char *const *lines, const char *const *args)
{
    const char *argv[MAX_ARGS];
    char slave[128];
    int st, master = posix_openpt(O_RDWR | O_NOCTTY);
    size_t typed = 0;
    memset(r, 0, sizeof *r);
    buf_init(&r->out, 1 << 20);
    make_argv(argv, args);
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) | unlockpt(master), 0);
    assert_int_equal(fcntl(master, F_SETFD, FD_CLOEXEC), 0);
    snprintf(slave, sizeof slave, "%s", ptsname(master));
    /* Held open here too, so that the other end does not read as closed before the child is there.
     */
    int held = open(slave, O_RDWR | O_NOCTTY | O_CLOEXEC);
    pid_t pid = fork();
    assert_true(held >= 0 && pid >= 0);
    if (pid == 0) {
        on_terminal(slave, argv);
    }
    for (bool over = false; !over;) {
        struct pollfd p = {master, POLLIN, 0};
        char room[4096];
        over = waitpid(pid, &st, WNOHANG) == pid;
        while (poll(&p, 1, over ? 0 : 20) > 0 && (p.revents & POLLIN)) {
            ssize_t k = read(master, room, sizeof room);
            if (k <= 0) {
                break;
            }
            assert_int_equal(buf_add(&r->out, room, (size_t)k), 0);
        }
        if (!over && lines[typed] && prompts(&r->out) > typed) {
            size_t n = strlen(lines[typed]);
            assert_int_equal(write(master, lines[typed], n), n);
            assert_int_equal(write(master, "\n", 1), 1);
            typed++;
        }
    }
    close(held);
    close(master);
    assert_int_equal(buf_adds(&r->out, ""), 0);
    r->status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

/* ---- one that goes on running ---- */

#define CHILDREN 16
static long children[CHILDREN]; /* for kill_all, which runs at exit */

static void kill_all(void)
{
    for (size_t i = 0; i < CHILDREN; i++) {
        if (children[i]) {
            kill((pid_t)children[i], SIGKILL);
        }
    }
}

static void remember(long was, long now)
{
    static int hooked;
    if (!hooked) {
        hooked = !atexit(kill_all);
    }
    for (size_t i = 0; i < CHILDREN; i++) {
        if (children[i] == was) {
            children[i] = now;
            return;
        }
    }
    fail_msg("too many children");
}

static void start(struct spawn_child *c, int in, const char *const *args)
{
    const char *argv[MAX_ARGS];
    posix_spawn_file_actions_t fa;
    pid_t pid;
    memset(c, 0, sizeof *c);
    make_argv(argv, args);
    snprintf(c->out, sizeof c->out, "/tmp/t_cli_out.XXXXXX");
    snprintf(c->err, sizeof c->err, "/tmp/t_cli_err.XXXXXX");
    int out = mkstemp(c->out), err = mkstemp(c->err);
    assert_true(out >= 0 && err >= 0);
    posix_spawn_file_actions_init(&fa);
    if (in < 0) {
        posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    } else {
        posix_spawn_file_actions_adddup2(&fa, in, 0);
    }
    posix_spawn_file_actions_adddup2(&fa, out, 1);
    posix_spawn_file_actions_adddup2(&fa, err, 2);
    posix_spawn_file_actions_addclose(&fa, out);
    posix_spawn_file_actions_addclose(&fa, err);
    assert_int_equal(posix_spawnp(&pid, argv[0], &fa, NULL, (char *const *)argv, environ), 0);
    posix_spawn_file_actions_destroy(&fa);
    close(out);
    close(err);
    c->pid = pid;
    remember(0, pid);
}

static char *slurp(const char *path);
static void still_runs(struct spawn_child *c, const char *waiting_for);

void spawn_start(struct spawn_child *c, const char *const *args)
{
    start(c, -1, args);
}

int spawn_start_in(struct spawn_child *c, const char *const *args)
{
    int in[2];
    assert_int_equal(pipe(in), 0);
    assert_true(fcntl(in[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(in[1], F_SETFD, FD_CLOEXEC) == 0);
    start(c, in[0], args);
    close(in[0]);
    return in[1];
}

char *spawn_line(struct spawn_child *c, size_t nth)
{
    for (int i = 0; i < SPAWN_WAIT_S * 100; i++) {
        char *s = slurp(c->out), *at = s, *nl = NULL;
        for (size_t k = 0; at && k <= nth; k++) {
            at = k ? nl + 1 : at;
            nl = strchr(at, '\n');
            if (!nl) {
                break;
            }
        }
        char *line = nl ? strndup(at, (size_t)(nl - at)) : NULL;
        free(s);
        if (line) {
            return line;
        }
        still_runs(c, "a line");
        usleep(10000);
    }
    fail_msg("it wrote no line %zu: %s", nth, spawn_said(c));
    return NULL;
}

static char *slurp(const char *path)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, (size_t)16 << 20);
    assert_int_equal(file_read_all(path, &b, &e), 0);
    assert_int_equal(buf_adds(&b, ""), 0);
    return buf_take(&b, NULL);
}

char *spawn_said(const struct spawn_child *c)
{
    return slurp(c->err);
}

/* Has it ended by itself? Then its words are the test's failure. */
static void still_runs(struct spawn_child *c, const char *waiting_for)
{
    int st;
    if (waitpid((pid_t)c->pid, &st, WNOHANG) == c->pid) {
        char *said = spawn_said(c);
        remember(c->pid, 0);
        c->pid = 0;
        fail_msg("it ended (%d) before \"%s\": %s", st, waiting_for, said);
    }
}

json_t *spawn_ready(struct spawn_child *c)
{
    for (int i = 0; i < SPAWN_WAIT_S * 100; i++) {
        char *s = slurp(c->out), *nl = s ? strchr(s, '\n') : NULL;
        json_t *j = nl ? json_loadb(s, (size_t)(nl - s), 0, NULL) : NULL;
        free(s);
        if (nl) {
            assert_non_null(j);
            return j;
        }
        still_runs(c, "ready");
        usleep(10000);
    }
    fail_msg("it is not ready: %s", spawn_said(c));
    return NULL;
}

void spawn_await(struct spawn_child *c, const char *words)
{
    for (int i = 0; i < SPAWN_WAIT_S * 100; i++) {
        char *s = spawn_said(c);
        bool said = s && strstr(s, words);
        free(s);
        if (said) {
            return;
        }
        still_runs(c, words);
        usleep(10000);
    }
    fail_msg("it never said \"%s\": %s", words, spawn_said(c));
}

int spawn_end(struct spawn_child *c, int sig)
{
    int st;
    assert_true(c->pid > 0);
    if (sig) {
        assert_int_equal(kill((pid_t)c->pid, sig), 0);
    }
    while (waitpid((pid_t)c->pid, &st, 0) < 0) {
        assert_int_equal(errno, EINTR);
    }
    remember(c->pid, 0);
    c->pid = 0;
    c->status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    if (c->status && sig != SIGKILL) { /* what a sanitizer found, say */
        char *said = spawn_said(c);
        fprintf(stderr, "%s\n", said);
        free(said);
    }
    unlink(c->out);
    unlink(c->err);
    return c->status;
}

void spawn_expect_ids(const json_t *got, const json_t *want)
{
    assert_true(json_is_array(got));
    assert_int_equal(json_array_size(got), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++) {
        assert_int_equal(json_integer_value(json_array_get(got, i)),
                         json_integer_value(json_array_get(want, i)));
    }
}
