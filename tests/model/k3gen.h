/* SPDX-License-Identifier: MIT
 * k3gen.h: the released K3 checkpoint's files without its data: config, index, and 96 sparse shards
 * with their exact headers, remade from the released index and the published shapes. Knows nothing
 * of node/model, so that it can judge it. */
#ifndef SHOAL_TESTS_K3GEN_H
#define SHOAL_TESTS_K3GEN_H

#include <stdint.h>

#define K3_SHARDS 96

struct k3_totals {
    uint64_t tensors, expert_tensors, spine_tensors, vision_tensors;
    uint64_t expert_bytes, spine_bytes, vision_bytes, header_bytes;
};

/* Fill the existing folder `dir`; `data` is the folder with index.json.gz and config.json (needs
 * gzip on the path). Shards are sparse: a few MB in all. Returns 0, or prints why not. */
int k3gen(const char *data, const char *dir, struct k3_totals *t);
/* Remove what k3gen has written, and the folder. */
void k3gen_remove(const char *dir);

#endif
