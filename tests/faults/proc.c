/* SPDX-License-Identifier: MIT
 * proc.c: see proc.h. */
#include "tests/faults/proc.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>

extern char **environ;

void proc_start(struct proc *p, const char *const *argv)
{
    int in[2], out[2], err[2];
    posix_spawn_file_actions_t fa;
    memset(p, 0, sizeof *p);
    buf_init(&p->said, (size_t)64 << 20);
    buf_init(&p->grumbled, (size_t)64 << 20);
    assert_int_equal(pipe(in) | pipe(out) | pipe(err), 0);
    int *const all[] = {in, out, err};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(fcntl(all[i / 2][i % 2], F_SETFD, FD_CLOEXEC), 0);
    }
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in[0], 0);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    posix_spawn_file_actions_adddup2(&fa, err[1], 2);
    if (posix_spawn(&p->pid, argv[0], &fa, NULL, (char *const *)argv, environ)) {
        fail_msg("%s cannot be started", argv[0]);
    }
    posix_spawn_file_actions_destroy(&fa);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    p->in = in[1];
    p->out = out[0];
    p->err = err[0];
}

static void take(int *fd, struct buf *b)
{
    char room[65536];
    ssize_t n = read(*fd, room, sizeof room);
    if (n > 0) {
        assert_int_equal(buf_add(b, room, (size_t)n), 0);
    } else if (n == 0 || errno != EINTR) {
        close(*fd);
        *fd = -1;
    }
}

static void reap(struct proc *p)
{
    int st;
    while (waitpid(p->pid, &st, 0) < 0) {
        assert_int_equal(errno, EINTR);
    }
    p->status = WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    p->pid = 0;
}

bool proc_listen(struct proc *p, bool (*done)(const struct proc *p), unsigned ms)
{
    uint64_t end = clock_ns() + (uint64_t)ms * 1000000u;
    while (p->pid && !(done && done(p))) {
        uint64_t now = clock_ns();
        struct pollfd f[2] = {{p->out, POLLIN, 0}, {p->err, POLLIN, 0}};
        if (p->out < 0 && p->err < 0) {
            reap(p);
            break;
        }
        if (now >= end) {
            return false;
        }
        if (poll(f, 2, (int)((end - now) / 1000000u) + 1) > 0) {
            if (f[0].revents) {
                take(&p->out, &p->said);
            }
            if (f[1].revents) {
                take(&p->err, &p->grumbled);
            }
        }
    }
    return done ? done(p) : p->pid == 0;
}

bool proc_has_said(const struct proc *p)
{
    return p->said.n > 0;
}

bool proc_has_line(const struct proc *p)
{
    return p->said.n && memchr(p->said.p, '\n', p->said.n);
}

int proc_wait(struct proc *p, unsigned ms)
{
    if (!proc_listen(p, NULL, ms)) {
        kill(p->pid, SIGABRT);
        proc_listen(p, NULL, 5000);
        fail_msg("it did not end: %s", p->grumbled.n ? p->grumbled.p : "");
    }
    return p->status;
}

void proc_kill(struct proc *p, int sig)
{
    if (p->pid) {
        kill(p->pid, sig);
    }
}

void proc_eof(struct proc *p)
{
    if (p->in >= 0) {
        close(p->in);
    }
    p->in = -1;
}

void proc_free(struct proc *p)
{
    proc_eof(p);
    if (p->pid) {
        kill(p->pid, SIGKILL);
        kill(p->pid, SIGCONT);
        reap(p);
    }
    if (p->out >= 0) {
        close(p->out);
    }
    if (p->err >= 0) {
        close(p->err);
    }
    buf_free(&p->said);
    buf_free(&p->grumbled);
    memset(p, 0, sizeof *p);
    p->in = p->out = p->err = -1;
}
