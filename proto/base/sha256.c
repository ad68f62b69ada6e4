/* SPDX-License-Identifier: MIT
 * sha256.c: see sha256.h. The contexts hold no pointers, so they may be copied by value. */
#include "proto/base/sha256.h"

#include <string.h>

#ifdef __APPLE__
#include <CommonCrypto/CommonDigest.h>
typedef CC_SHA256_CTX lib_ctx;
static void lib_init(lib_ctx *c)
{
    CC_SHA256_Init(c);
}
static void lib_add(lib_ctx *c, const void *p, size_t n)
{
    while (n) { /* CC_LONG is 32 bits */
        CC_LONG k = n > (1u << 30) ? (1u << 30) : (CC_LONG)n;
        CC_SHA256_Update(c, p, k);
        p = (const char *)p + k;
        n -= k;
    }
}
static void lib_done(lib_ctx *c, uint8_t *out)
{
    CC_SHA256_Final(out, c);
}
#else
#include <mbedtls/sha256.h>
#include <mbedtls/version.h>
typedef mbedtls_sha256_context lib_ctx;
#if MBEDTLS_VERSION_MAJOR < 3
#define mbedtls_sha256_starts mbedtls_sha256_starts_ret
#define mbedtls_sha256_update mbedtls_sha256_update_ret
#define mbedtls_sha256_finish mbedtls_sha256_finish_ret
#endif
static void lib_init(lib_ctx *c)
{
    mbedtls_sha256_init(c);
    mbedtls_sha256_starts(c, 0);
}
static void lib_add(lib_ctx *c, const void *p, size_t n)
{
    mbedtls_sha256_update(c, p, n);
}
static void lib_done(lib_ctx *c, uint8_t *out)
{
    mbedtls_sha256_finish(c, out);
    mbedtls_sha256_free(c);
}
#endif

_Static_assert(sizeof(lib_ctx) <= sizeof(((struct sha256 *)0)->opaque), "sha256 context too small");

void sha256_init(struct sha256 *s)
{
    memset(s, 0, sizeof *s);
    lib_init((lib_ctx *)(void *)s->opaque);
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    if (n) {
        lib_add((lib_ctx *)(void *)s->opaque, p, n);
    }
}

void sha256_done(struct sha256 *s, uint8_t out[SHA256_SIZE])
{
    lib_done((lib_ctx *)(void *)s->opaque, out);
}

void sha256(const void *p, size_t n, uint8_t out[SHA256_SIZE])
{
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, p, n);
    sha256_done(&s, out);
}

void sha256_hex(const uint8_t d[SHA256_SIZE], char out[2 * SHA256_SIZE + 1])
{
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < SHA256_SIZE; i++) {
        out[2 * i] = hex[d[i] >> 4];
        out[2 * i + 1] = hex[d[i] & 15];
    }
    out[2 * SHA256_SIZE] = 0;
}
