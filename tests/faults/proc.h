/* SPDX-License-Identifier: MIT
 * proc.h: programs that run beside the test: started, listened to while they run, killed, waited
 * for. A failure of the machinery itself fails the test. */
#ifndef SHOAL_TESTS_FAULTS_PROC_H
#define SHOAL_TESTS_FAULTS_PROC_H

#include "tests/peer/home_util.h"

#include "proto/base/buf.h"

#include <sys/types.h>

#define PROC_ARGS 48

struct proc {
    pid_t pid; /* 0: it is over */
    int in, out, err;
    struct buf said, grumbled; /* standard output and error so far, NUL-terminated */
    int status;                /* exit status, 128 + signal when killed; valid when it is over */
};

/* argv[0] is the program; NULL-terminated. */
void proc_start(struct proc *p, const char *const *argv);
#define PROC(p, ...) proc_start(p, (const char *const[]){__VA_ARGS__, NULL})
/* Listen until `done` (NULL: its end) says so, it ends, or ms are over. True when `done` is. */
bool proc_listen(struct proc *p, bool (*done)(const struct proc *p), unsigned ms);
bool proc_has_line(const struct proc *p);
bool proc_has_said(const struct proc *p); /* anything */
/* Wait for its end, at most `ms`; the test fails when it does not come. */
int proc_wait(struct proc *p, unsigned ms);
void proc_kill(struct proc *p, int sig);
/* Close its standard input. */
void proc_eof(struct proc *p);
void proc_free(struct proc *p); /* and kill it when it runs */

#endif
