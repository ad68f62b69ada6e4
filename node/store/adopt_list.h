/* SPDX-License-Identifier: MIT
 * adopt_list.h: which folders of others a cache uses in place: the file `adopted` in the cache
 * folder, one absolute path a line, and what a path that a person gives means. Nothing here opens a
 * model's file. Any thread; changes are made under the folder's lock. */
#ifndef SHOAL_STORE_ADOPT_LIST_H
#define SHOAL_STORE_ADOPT_LIST_H

#include "proto/base/err.h"
#include "proto/base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADOPT_FOLDERS_MAX 64
#define ADOPT_PATH_MAX 4096

struct adopt_list {
    char *path[ADOPT_FOLDERS_MAX]; /* owned */
    size_t n;
};

void adopt_list_free(struct adopt_list *l); /* and empty */
/* Fills an empty list from the file's bytes. Lines that are no absolute path, and what is more than
 * the maximum, are left out; another version of the file is ERR_UNSUPPORTED. */
int adopt_list_parse(struct adopt_list *l, const char *p, size_t n, struct err *e);
/* The list of a cache; a missing file is an empty one. */
int adopt_list_read(const char *cache_dir, struct adopt_list *l, struct err *e);
/* Add or take out (add false) these; *changed says how many that were. ERR_LIMIT. */
int adopt_list_change(const char *cache_dir, const struct adopt_list *folders, bool add,
                      size_t *changed, struct err *e);

/* Fills an empty list with the folders, as absolute paths without symbolic links, that `dir` means:
 * a hub's cache (models--ORG--NAME folders in it, or in its folder "hub"), one of these folders
 * (the snapshot that refs/main names, else all), a snapshot or any folder with shards, a folder of
 * expert files L<layer>-E<expert>.bin, or one that has such a folder called k3-experts.
 * ERR_NOTFOUND: there is nothing of this kind. */
int adopt_find(const char *dir, struct adopt_list *out, struct err *e);
/* The layer and expert that the name of an expert file says; false: it is none. */
bool adopt_expert_name(const char *name, unsigned *layer, unsigned *expert);

/* 64 lower-case hex digits and nothing else. */
bool adopt_hex_sha(const char *s, uint8_t out[SHA256_SIZE]);

#endif
