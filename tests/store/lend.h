/* SPDX-License-Identifier: MIT
 * lend.h: folders of others to be adopted, made of the demo model. */
#ifndef TEST_STORE_LEND_H
#define TEST_STORE_LEND_H

#include "node/model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* The named shards (by number from 1, a string of digits), and config and index if wanted. */
void lend_shards(const char *dir, const char *which, bool meta);
/* As huggingface_hub lays it out below `hub`: blobs by SHA-256, relative links. Returns the
 * snapshot, malloc'ed. */
char *lend_hub(const char *hub, const char *which);
/* Each step-th expert object of that layer (0: of all) as a file of its own. */
void lend_experts(const struct model *m, const char *dir, uint32_t layer, uint32_t step);

#endif
