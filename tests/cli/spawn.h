/* SPDX-License-Identifier: MIT
 * spawn.h: runs the real `shoal` and catches what it says. */
#ifndef SHOAL_TESTS_CLI_SPAWN_H
#define SHOAL_TESTS_CLI_SPAWN_H

#include "proto/base/buf.h"

#include <jansson.h>

struct spawn_result {
    int status;          /* exit status; 128 + signal when it was killed */
    struct buf out, err; /* always NUL-terminated */
    json_t *json;        /* out as JSON, or NULL when it is none */
};

/* Run shoal with these arguments (NULL-terminated) and `input` (may be NULL) on standard input.
 * Fails the test when it does not end within the limit of the test program. */
void spawn(struct spawn_result *r, const char *input, const char *const *args);
void spawn_free(struct spawn_result *r);
#define SPAWN(r, input, ...) spawn(r, input, (const char *const[]){__VA_ARGS__, NULL})

/* The same with a terminal of its own: `lines` (NULL-terminated) are typed one by one, each when a
 * prompt that ends with ": " is there. All that the terminal shows is in r->out. */
void spawn_tty(struct spawn_result *r, const char *const *lines, const char *const *args);

/* ---- one that goes on running ---- */

struct spawn_child {
    long pid;              /* 0: not running */
    char out[64], err[64]; /* files that its outputs go to */
    int status;            /* after spawn_end */
};
/* Children that still run when the test program ends are killed. */
void spawn_start(struct spawn_child *c, const char *const *args);
#define SPAWN_START(c, ...) spawn_start(c, (const char *const[]){__VA_ARGS__, NULL})
/* With a pipe to its standard input: the end to write to, which the caller closes. */
int spawn_start_in(struct spawn_child *c, const char *const *args);
#define SPAWN_START_IN(c, ...) spawn_start_in(c, (const char *const[]){__VA_ARGS__, NULL})
/* The nth line, from 0, of its standard output; waits for it. The caller frees it. */
char *spawn_line(struct spawn_child *c, size_t nth);
/* The first line on its standard output, as JSON (the caller's). Fails the test when it ends, or
 * nothing comes within SPAWN_WAIT_S. */
#define SPAWN_WAIT_S 100
json_t *spawn_ready(struct spawn_child *c);
/* Wait until its standard error says that; fails the test when it does not. */
void spawn_await(struct spawn_child *c, const char *words);
/* All that it wrote to standard error so far; the caller frees it. */
char *spawn_said(const struct spawn_child *c);
/* Send the signal (0: none), wait for the end, set status, remove the files. Returns the status. */
int spawn_end(struct spawn_child *c, int sig);

/* A JSON array of integers equals ids[0..n). */
void spawn_expect_ids(const json_t *got, const json_t *want);

#endif
