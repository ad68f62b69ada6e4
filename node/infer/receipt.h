/* SPDX-License-Identifier: MIT
 * receipt.h: proof of a run: a SHA-256 chain over what was computed.
 *
 * h0 = SHA-256("shoal receipt 1\n" | numerics version le32 | model root | spine form length le32
 * and text | count le32 | prompt ids le32 each); at each sampled position h = SHA-256(h | bits of
 * the logits, le32 each | chosen id le32). Prompt positions are not in it. */
#ifndef SHOAL_NODE_RECEIPT_H
#define SHOAL_NODE_RECEIPT_H

#include "proto/base/sha256.h"

struct receipt {
    uint8_t h[SHA256_SIZE];
};

void receipt_begin(struct receipt *r, const uint8_t root[SHA256_SIZE], const char *spine_form,
                   const uint32_t *prompt, size_t n);
void receipt_add(struct receipt *r, const float *logits, size_t n, uint32_t id);
void receipt_hex(const struct receipt *r, char out[2 * SHA256_SIZE + 1]);

#endif
