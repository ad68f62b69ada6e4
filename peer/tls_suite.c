/* SPDX-License-Identifier: MIT
 * tls_suite.c: see tls_suite.h. */
#include "peer/tls_suite.h"

#include "proto/base/clock.h"

#include <mbedtls/chachapoly.h>
#include <mbedtls/gcm.h>
#include <mbedtls/ssl_ciphersuites.h>
#include <mbedtls/version.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { RECORD = 16384, ROUNDS = 12, RECORDS = 4 };

#if MBEDTLS_VERSION_MAJOR >= 3
#define TLS13(s) s,
#else
#define TLS13(s)
#endif

static const int aes_first[] = {
    TLS13(MBEDTLS_TLS1_3_AES_128_GCM_SHA256)       /**/
    TLS13(MBEDTLS_TLS1_3_AES_256_GCM_SHA384)       /**/
    TLS13(MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256) /**/
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    0,
};
static const int chacha_first[] = {
    TLS13(MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256) /**/
    TLS13(MBEDTLS_TLS1_3_AES_128_GCM_SHA256)       /**/
    TLS13(MBEDTLS_TLS1_3_AES_256_GCM_SHA384)       /**/
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    0,
};

/* The one process-wide memory of this folder: a fact about the processor, written once. */
static struct tls_speed speed;
static pthread_once_t measured = PTHREAD_ONCE_INIT;

static int seal_aes(void *ctx, const uint8_t *in, uint8_t *out)
{
    static const uint8_t iv[12], aad[13];
    uint8_t tag[16];
    return mbedtls_gcm_crypt_and_tag(ctx, MBEDTLS_GCM_ENCRYPT, RECORD, iv, sizeof iv, aad,
                                     sizeof aad, in, out, sizeof tag, tag);
}

static int seal_chacha(void *ctx, const uint8_t *in, uint8_t *out)
{
    static const uint8_t iv[12], aad[13];
    uint8_t tag[16];
    return mbedtls_chachapoly_encrypt_and_tag(ctx, RECORD, iv, aad, sizeof aad, in, out, tag);
}

/* Bytes a second in one short round, or `best` if that is more. */
static double better(double best, int (*seal)(void *, const uint8_t *, uint8_t *), void *ctx,
                     uint8_t *mem)
{
    double t = clock_s();
    for (int i = 0; i < RECORDS; i++) {
        if (seal(ctx, mem, mem + RECORD)) {
            return 0;
        }
    }
    t = clock_s() - t;
    double bytes_s = t > 0 ? (double)RECORD * RECORDS / t : 0;
    return bytes_s > best ? bytes_s : best;
}

/* The best of short rounds in turn: a busy machine only makes rounds slower, and both alike. */
static void measure(void)
{
    static const uint8_t key[32] = {1};
    uint8_t *mem = calloc(2, RECORD);
    if (!mem) {
        return; /* both 0: AES first */
    }
    mbedtls_gcm_context g;
    mbedtls_chachapoly_context c;
    mbedtls_gcm_init(&g);
    mbedtls_chachapoly_init(&c);
    bool aes = !mbedtls_gcm_setkey(&g, MBEDTLS_CIPHER_ID_AES, key, 128);
    bool chacha = !mbedtls_chachapoly_setkey(&c, key);
    for (int i = 0; i < ROUNDS; i++) {
        speed.aes_gcm = aes ? better(speed.aes_gcm, seal_aes, &g, mem) : 0;
        speed.chacha20 = chacha ? better(speed.chacha20, seal_chacha, &c, mem) : 0;
    }
    mbedtls_gcm_free(&g);
    mbedtls_chachapoly_free(&c);
    free(mem);
}

const struct tls_speed *tls_suite_speed(void)
{
    pthread_once(&measured, measure);
    return &speed;
}

const int *tls_suite_list(enum tls_family prefer)
{
    if (prefer == TLS_FASTEST) {
        const struct tls_speed *s = tls_suite_speed();
        prefer = s->chacha20 > s->aes_gcm ? TLS_CHACHA20 : TLS_AES_GCM;
    }
    return prefer == TLS_CHACHA20 ? chacha_first : aes_first;
}
