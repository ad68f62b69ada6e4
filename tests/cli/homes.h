/* SPDX-License-Identifier: MIT
 * homes.h: what the tests of nodes and their homes share: a folder of homes that goes away,
 * commands that must work or fail with certain words, the report of a running node. Includes
 * cmocka. */
#ifndef SHOAL_TESTS_CLI_HOMES_H
#define SHOAL_TESTS_CLI_HOMES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "spawn.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL SHOAL_SOURCE_DIR "/node/demo/model"

/* A new temporary folder; removed with all in it by homes_drop. */
char *homes_new(void);
void homes_drop(char *dir);
/* "dir/name"; freed by the caller. */
char *homes_at(const char *dir, const char *name);

/* Run with --json; it must end with 0. Its result, the caller's. */
json_t *must(const char *input, const char *const *args);
#define MUST(...) must(NULL, (const char *const[]){__VA_ARGS__, "--json", NULL})
/* The same, the result thrown away. */
#define DO(...) json_decref(MUST(__VA_ARGS__))
/* Run with --json; it must end with 1, and the error's message contain the words. */
void must_fail(const char *words, const char *input, const char *const *args);
#define FAILS(words, ...) must_fail(words, NULL, (const char *const[]){__VA_ARGS__, "--json", NULL})

const char *str_of(const json_t *o, const char *key);
/* A number of a report by path, "serve.bytes"; -1 when absent. */
double num_of(const json_t *o, const char *path);
/* `shoal status` of a home. */
json_t *status_of(const char *home);
/* Wait until that number of the report has this value. */
void await_num(const char *home, const char *path, double value);

/* `shoal up` on that home, listening on 127.0.0.1, without Bonjour; extra arguments end with NULL.
 * Returns the "ready" object, the caller's. */
json_t *up(struct spawn_child *c, const char *home, const char *const *extra);
#define UP(c, home, ...) up(c, home, (const char *const[]){__VA_ARGS__, NULL})
/* "127.0.0.1:port" of a ready object; freed by the caller. */
char *address_of(const json_t *ready);
/* Make `home` a member of the shoal whose keeper's node runs on `keeper`. */
void take_in(const char *keeper, const char *home);

#endif
