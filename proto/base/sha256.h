/* SPDX-License-Identifier: MIT
 * sha256.h: SHA-256 through one function: CommonCrypto on the Mac, mbedTLS elsewhere. */
#ifndef SHOAL_BASE_SHA256_H
#define SHOAL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32

struct sha256 {
    uint64_t opaque[32]; /* the library's context; only sha256.c knows which */
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_done(struct sha256 *s, uint8_t out[SHA256_SIZE]);
void sha256(const void *p, size_t n, uint8_t out[SHA256_SIZE]);
/* 64 lower-case hex digits and a NUL. */
void sha256_hex(const uint8_t d[SHA256_SIZE], char out[2 * SHA256_SIZE + 1]);

#endif
