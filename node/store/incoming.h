/* SPDX-License-Identifier: MIT
 * incoming.h: private to node/store: what share.c and incoming.c have in common. The functions
 * below come on the upstream's thread, without locks held. */
#ifndef SHOAL_STORE_INCOMING_H
#define SHOAL_STORE_INCOMING_H

#include "node/store/engine.h"

/* With mu: starts the writer. */
int in_open(struct store *st, struct err *e);

/* As storage_ops.put_*; id is one of the model's. */
int in_put_begin(struct store *st, uint32_t id, uint64_t size, struct storage_put **out,
                 struct err *e);
int in_put_chunk(struct store *st, struct storage_put *p, uint32_t chunk, const uint8_t *bytes,
                 size_t n, const uint8_t sha[SHA256_SIZE], struct err *e);
int in_put_end(struct store *st, struct storage_put *p, int code, enum basis b,
               const uint8_t object[SHA256_SIZE], struct err *e);

#endif
