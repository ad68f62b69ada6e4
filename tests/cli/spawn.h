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

/* A JSON array of integers equals ids[0..n). */
void spawn_expect_ids(const json_t *got, const json_t *want);

#endif
