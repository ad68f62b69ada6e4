/* SPDX-License-Identifier: MIT
 * place.h: where a cache lies. A cache that was moved (rest_move.h) leaves the file `moved` behind,
 * which names the new folder and an id that stands there in `moved-here`; so another volume at the
 * same place is not taken for it. While it is moved, `moving` is in the new folder and a lock on
 * `move.lock` in the present one. */
#ifndef SHOAL_NODE_STORE_PLACE_H
#define SHOAL_NODE_STORE_PLACE_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>

#define PLACE_ID 16 /* hex digits */
#define PLACE_PATH_MAX 4096

/* The folder that `dir` means now, appended to *out: mostly `dir` itself, there or not.
 * ERR_OFFLINE: it was moved to a volume that is not there. ERR_BUSY: a process moves it at this
 * moment, or a move into it was not finished. Any thread. */
int place_find(const char *dir, struct buf *out, struct err *e);
/* Under the lock of a cache folder: has nobody moved it away since it was found? ERR_BUSY. */
int place_still(const char *dir, struct err *e);

/* ---- for rest_move.c ---- */

/* As place_find, whoever moves it. */
int place_follow(const char *dir, struct buf *out, struct err *e);
bool place_same(const char *a, const char *b); /* the same folder, by whatever names */

/* The files' content. */
struct place_mark {
    char id[PLACE_ID + 1];
    char *root, *from; /* `moved`: root is the new folder, from is NULL; `moving`: the folder whose
                          `moved` is the switch, and the one where the files were; `moved-here`:
                          neither */
};
/* ERR_NOTFOUND: there is no such file; other errors: it cannot be read. */
int place_mark_read(const char *dir, const char *name, struct place_mark *m, struct err *e);
int place_mark_write(const char *dir, const char *name, const struct place_mark *m, struct err *e);
void place_mark_free(struct place_mark *m);
/* Of the bytes of such a file: true when they are one, with `paths` paths. */
bool place_mark_parse(const char *p, size_t n, int paths, struct place_mark *m);
/* `moving` is in this folder (*m): has the switch been made? */
bool place_moved(const char *dir, const struct place_mark *m);

#endif
