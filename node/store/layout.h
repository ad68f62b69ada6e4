/* SPDX-License-Identifier: MIT
 * layout.h: private to node/store: where things lie in a cache folder, and its lock. All paths are
 * malloc'ed; NULL means no memory. */
#ifndef SHOAL_STORE_LAYOUT_H
#define SHOAL_STORE_LAYOUT_H

#include "node/model/model.h"
#include "proto/base/err.h"

char *layout_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Can a folder be written, or its nearest parent, where it is not there? Tried by a small file that
 * goes again. `why` (may be NULL): half a sentence about `dir`, ERR_FULL or ERR_REFUSED. */
enum layout_state { LAYOUT_OPEN, LAYOUT_FULL, LAYOUT_LOCKED };
enum layout_state layout_state(const char *dir, struct err *why);
/* Make the cache folder and its marks. */
int layout_prepare(const char *cache_dir, struct err *e);
/* The lock of the whole folder, for short critical work (opening, repairing, lists): an open file
 * descriptor to give to layout_unlock, or -1. Works between processes and within one. */
int layout_lock(const char *cache_dir, struct err *e);
void layout_unlock(int fd);
/* Removes what writes that were cut off have left in this folder (file_write_atomic's temporary
 * files): of processes that have ended, and with `all`, for folders that are written with the lock
 * alone, whoever they are from. With the lock. */
void layout_sweep(const char *dir, bool all);
/* <cache>/models/<16 digits of the root> and, in it, the file of an object. */
char *layout_model_dir(const char *cache_dir, const uint8_t *root);
char *layout_object(const char *model_dir, const struct model *m, uint32_t id);
/* <cache>/origins/<16 digits of SHA-256 of the address> */
char *layout_origin_dir(const char *cache_dir, const char *address);

#endif
