/* SPDX-License-Identifier: MIT
 * remember.h: the file of addresses at which members were met. Text: the line "shoal-addresses 1",
 * then for each address "NODE ADDRESS:PORT SECONDS" (wall clock of the last meeting). It is a hint
 * and no more: a line that is broken, or whose interface is not there, is passed over. */
#ifndef SHOAL_DISCOVERY_REMEMBER_H
#define SHOAL_DISCOVERY_REMEMBER_H

#include "discovery/peers.h"

#define REMEMBER_FILE_MAX (256 * 1024)
#define REMEMBER_PER_NODE 8

/* Puts the addresses of `text` into the table; returns how many lines were passed over. */
size_t remember_parse(struct peers *t, uint64_t now, const char *own, const char *text, size_t n);
/* A missing file is no error. *skipped = lines passed over. */
int remember_load(struct peers *t, uint64_t now, const char *own, const char *path, size_t *skipped,
                  struct err *e);
/* The bytes to write: the latest REMEMBER_PER_NODE addresses of each node. */
int remember_text(const struct peers *t, struct buf *out);

#endif
