/* SPDX-License-Identifier: MIT
 * util.h: what the store's tests share: folders, the source model as the truth, logs. */
#ifndef TEST_STORE_UTIL_H
#define TEST_STORE_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "node/store/store.h"

#define DEMO_MODEL SHOAL_SOURCE_DIR "/node/demo/model"

/* A new folder for one test; malloc'ed path. */
char *util_tmpdir(void);
void util_rmtree(const char *path);
char *util_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Copy a folder of plain files. */
void util_copy_dir(const char *from, const char *to);
/* Lines a store has logged. Any thread. */
struct util_log {
    char text[1 << 16];
    size_t n;
    void *mu;
};
void util_log_init(struct util_log *l);
void util_log_free(struct util_log *l);
void util_log_line(void *ctx, const char *line);
int util_log_has(struct util_log *l, const char *part); /* how often it occurs */
/* The object's true bytes, read from the demo model's shard by hand. */
uint8_t *util_truth(const struct model *m, const char *dir, uint32_t id);
/* 1 when the view is exactly the object. */
int util_right(const struct model *m, const char *dir, const struct store_view *v);
/* Files below `dir` whose path contains `part`; the first one's path is given back if wanted. */
int util_count_files(const char *dir, const char *part, char **first);

#endif
