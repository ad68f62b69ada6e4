/* SPDX-License-Identifier: MIT
 * k3full.h: a cache that holds K3 already: sparse files of the real sizes in the real folders, with
 * journal and catalog; and what its experts are refilled with. For the disk tier alone: the files'
 * bytes are not what their digests say. */
#ifndef SHOAL_TESTS_STORE_K3FULL_H
#define SHOAL_TESTS_STORE_K3FULL_H

#include "node/store/disk.h"

/* Spine and the experts of layers 1..layers; bytes of all of these. */
uint64_t k3_fill(const char *cache, const struct model *m, uint32_t layers);
/* The digests of everything, and no file: somebody else has them. */
uint64_t k3_record(const char *cache, const struct model *m);
/* The sums of an object's chunks here; free it. */
struct chunk_sum *k3_sums(const struct model *m, uint32_t id);
/* Writes an object as if it had been fetched, publishes it, and makes its file sparse again.
 * Returns the error that was met. */
int k3_refill(struct disk *d, const struct model *m, uint32_t id, struct err *e);

#endif
