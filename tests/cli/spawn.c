/* SPDX-License-Identifier: MIT
 * spawn.c: see spawn.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "spawn.h"

#include <errno.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
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

void spawn_expect_ids(const json_t *got, const json_t *want)
{
    assert_true(json_is_array(got));
    assert_int_equal(json_array_size(got), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++) {
        assert_int_equal(json_integer_value(json_array_get(got, i)),
                         json_integer_value(json_array_get(want, i)));
    }
}
