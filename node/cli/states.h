/* SPDX-License-Identifier: MIT
 * states.h: the folders in which states of conversations are kept: BASE/states/<the first 16 hex
 * digits of the model's root>, one for each model, 0700. What lies in them is node/engine's affair;
 * here they are found, counted, locked and emptied. */
#ifndef SHOAL_NODE_CLI_STATES_H
#define SHOAL_NODE_CLI_STATES_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATES_NAME 17 /* bytes of a folder's name with its NUL */

/* Append BASE/states/NAME for the model with this root digest. */
int states_folder(const char *base, const uint8_t *root, struct buf *out, struct err *e);
/* Make the folder and take its lock, which one process at a time has, for as long as *fd is open.
 * ERR_BUSY: another one has it. */
int states_lock(const char *folder, int *fd, struct err *e);

struct states_info {
    char name[STATES_NAME];
    size_t n; /* states */
    uint64_t bytes;
    bool busy; /* a process works with them */
};
/* The folders below BASE, at most cap of them, in *n; none when there are no states. */
int states_list(const char *base, struct states_info *out, size_t cap, size_t *n, struct err *e);
/* Count those of one folder (not its parent), adding to *count and *bytes. */
int states_count(const char *folder, size_t *count, uint64_t *bytes, struct err *e);
/* Delete those of the model of that name, adding to *count and *bytes, and their folder. ERR_BUSY:
 * a process works with them. */
int states_drop(const char *base, const char *name, size_t *count, uint64_t *bytes, struct err *e);
/* Delete the states of all folders below BASE but that of the name `except` (may be NULL), adding
 * to *count and *bytes. ERR_BUSY, after the others were emptied: a process works with some. */
int states_clear(const char *base, const char *except, size_t *count, uint64_t *bytes,
                 struct err *e);

#endif
