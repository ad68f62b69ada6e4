/* SPDX-License-Identifier: MIT
 * kept.h: private to node/store: two small files of a cache folder. CACHE/budget holds what `shoal
 * cache budget` chose for the next start; MODEL/written how many bytes were written for it on each
 * day. Both are text, one fact a line; what cannot be read counts as not there. */
#ifndef SHOAL_STORE_KEPT_H
#define SHOAL_STORE_KEPT_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kept_budget {
    bool has_budget, has_floor;
    uint64_t budget, floor; /* bytes; a budget is never 0 */
};
/* Of the file's bytes; false: they are no such file, *out is empty. */
bool kept_budget_parse(const char *p, size_t n, struct kept_budget *out);
/* None, or none that can be read: empty. */
void kept_budget_load(const char *cache_dir, struct kept_budget *out);
/* An empty one removes the file. */
int kept_budget_save(const char *cache_dir, const struct kept_budget *b, struct err *e);

#define KEPT_DAYS 31 /* the last ones with anything written; older ones are forgotten */
struct kept_day {
    int32_t day; /* since 1970-01-01, UTC */
    uint64_t bytes;
};
int32_t kept_today(void);
/* "2026-11-30" */
#define KEPT_DATE 16
void kept_date(int32_t day, char out[KEPT_DATE]);
/* Days in ascending order; at most KEPT_DAYS. Lines that cannot be read are left out. */
size_t kept_written_parse(const char *p, size_t n, struct kept_day out[KEPT_DAYS]);
size_t kept_written_load(const char *model_dir, struct kept_day out[KEPT_DAYS]);
/* Bytes written today by all processes: what is kept, and what those that run, or were killed, have
 * in their own folders. */
uint64_t kept_written_today(const char *model_dir);
/* What is counted in a process's folder (session.h) is added to the model's. With the lock. */
#define KEPT_WRITTEN "written"
void kept_written_take(const char *model_dir, const char *session_dir);
/* Adds to a day. Several processes may do so: the cache folder's lock is taken. */
int kept_written_add(const char *cache_dir, const char *model_dir, int32_t day, uint64_t bytes,
                     struct err *e);

#endif
