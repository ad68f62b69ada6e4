/* SPDX-License-Identifier: MIT
 * k3rig.h: an origin with K3's 96 shards at their real sizes, with their real headers; every byte
 * behind a header is computed from (shard, offset). Scale bytes lie between 110 and 130. */
#ifndef SHOAL_TESTS_STORE_K3RIG_H
#define SHOAL_TESTS_STORE_K3RIG_H

#include <stddef.h>
#include <stdint.h>

#define K3_LAYERS 93 /* layer 0 has no experts */
#define K3_EXPERTS 896
#define K3_EXPERT_BYTES 17547264u

/* Bytes of shard 1..96 at `off`; what is in the header's place is left alone. */
void k3_bytes(unsigned shard, uint64_t off, uint8_t *p, size_t n);
/* Where expert `e` of layer 1..92 begins in its shard, which is number layer + 1: from the
 * published table of shards, not from headers. */
uint64_t k3_expert_at(unsigned layer, unsigned e);
/* Reads the table of shards; before all else. 0, or prints why not. */
int k3_table(void);

struct faulty;
/* The files into the new folder `dir`, by a process of its own, whose memory does not count. */
int k3_folder(const char *dir);
/* Serves them. */
struct faulty *k3_origin(const char *dir);

#endif
