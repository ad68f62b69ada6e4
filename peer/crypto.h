/* SPDX-License-Identifier: MIT
 * crypto.h: the few primitives of identity and trust, alike over mbedTLS 2.28 and 3.6. This and
 * crypto.c are the only files of the trust part that know the library.
 *
 * Keys are P-256. A public key is its uncompressed point, 04 | X | Y. A key's id is the SHA-256 of
 * its DER SubjectPublicKeyInfo (RFC 5480), what
 *   openssl pkey -in KEY -pubout -outform DER | sha256sum
 * prints. Signatures are ECDSA over SHA-256 in DER.
 *
 * Threads: a crypto_key belongs to one thread at a time (the library caches in it); give each its
 * own by crypto_key_copy. Everything else has no state. */
#ifndef SHOAL_PEER_CRYPTO_H
#define SHOAL_PEER_CRYPTO_H

#include "proto/base/err.h"
#include "proto/base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRYPTO_PUBLIC 65    /* bytes of a public key */
#define CRYPTO_SPKI 91      /* its SubjectPublicKeyInfo */
#define CRYPTO_SIG_MAX 72   /* the longest DER signature */
#define CRYPTO_SECRET 32    /* bytes of a private key */
#define CRYPTO_PEM_MAX 512  /* a private key in PEM with its NUL */
#define CRYPTO_CERT_MAX 768 /* a certificate of crypto_certificate in DER */
#define CRYPTO_NONCE 12
#define CRYPTO_TAG 16
/* What crypto_seal_for adds: the one-time public key, the nonce and the tag. */
#define CRYPTO_SEAL_EXTRA (CRYPTO_PUBLIC + CRYPTO_NONCE + CRYPTO_TAG)

struct key_id {
    uint8_t b[SHA256_SIZE];
};

struct crypto_key;
struct mbedtls_pk_context;
struct mbedtls_x509_crt;

/* The operating system's generator; the second has the shape the library wants (context unused)
 * and may serve every thread. */
int crypto_random(void *p, size_t n, struct err *e);
int crypto_f_rng(void *unused, unsigned char *p, size_t n);
/* Equal or not, in a time that does not depend on where they differ. */
bool crypto_equal(const void *a, const void *b, size_t n);
void crypto_wipe(void *p, size_t n);

int crypto_key_make(struct crypto_key **out, struct err *e);
int crypto_key_copy(const struct crypto_key *k, struct crypto_key **out, struct err *e);
void crypto_key_free(struct crypto_key *k); /* NULL is fine; the memory is wiped */
/* "EC PRIVATE KEY" (SEC 1) PEM. Reading takes one such block and nothing around it, and refuses a
 * block whose public key is not that of its private key. *n counts no NUL. */
int crypto_key_pem(const struct crypto_key *k, char out[CRYPTO_PEM_MAX], size_t *n, struct err *e);
int crypto_key_from_pem(const char *pem, size_t n, struct crypto_key **out, struct err *e);
/* The private number, big-endian, and the key again from it. The caller wipes it. */
int crypto_key_secret(const struct crypto_key *k, uint8_t out[CRYPTO_SECRET], struct err *e);
int crypto_key_from_secret(const uint8_t d[CRYPTO_SECRET], struct crypto_key **out, struct err *e);
const uint8_t *crypto_key_public(const struct crypto_key *k);   /* CRYPTO_PUBLIC bytes */
struct mbedtls_pk_context *crypto_key_pk(struct crypto_key *k); /* for TLS; belongs to k */

/* ERR_FORMAT when it is no point of the curve. */
int crypto_public_check(const uint8_t pub[CRYPTO_PUBLIC], struct err *e);
void crypto_spki(const uint8_t pub[CRYPTO_PUBLIC], uint8_t der[CRYPTO_SPKI]);
void crypto_key_id(const uint8_t pub[CRYPTO_PUBLIC], struct key_id *id);

int crypto_sign(struct crypto_key *k, const void *msg, size_t n, uint8_t sig[CRYPTO_SIG_MAX],
                size_t *sig_n, struct err *e);
/* 0 or ERR_DIGEST. */
int crypto_verify(const uint8_t pub[CRYPTO_PUBLIC], const void *msg, size_t n, const uint8_t *sig,
                  size_t sig_n, struct err *e);

/* A self-signed X.509 v3 certificate that carries the key and no names: subject and issuer are
 * "CN=shoal" in all of them, the dates are the widest there are. A new one for the same key is as
 * good as the old one. */
int crypto_certificate(struct crypto_key *k, uint8_t der[CRYPTO_CERT_MAX], size_t *n,
                       struct err *e);
/* The P-256 key of a certificate, as DER or as the library's object (in a verify callback). Names,
 * dates and its own signature are not looked at: TLS proves that the peer holds the key. */
int crypto_certificate_key(const void *der, size_t n, uint8_t pub[CRYPTO_PUBLIC], struct err *e);
int crypto_crt_key(const struct mbedtls_x509_crt *crt, uint8_t pub[CRYPTO_PUBLIC], struct err *e);

int crypto_hmac(const void *key, size_t key_n, const void *msg, size_t n, uint8_t out[SHA256_SIZE]);
/* HKDF-SHA256 (RFC 5869). */
int crypto_hkdf(const void *salt, size_t salt_n, const void *secret, size_t secret_n,
                const char *info, uint8_t *out, size_t out_n);
/* PBKDF2 with HMAC-SHA256 (RFC 8018). */
int crypto_pbkdf2(const void *pass, size_t pass_n, const void *salt, size_t salt_n,
                  uint32_t iterations, uint8_t *out, size_t out_n);

/* AES-256-GCM. out: n bytes, then the tag of CRYPTO_TAG bytes. */
int crypto_seal(const uint8_t key[32], const uint8_t nonce[CRYPTO_NONCE], const void *aad,
                size_t aad_n, const void *p, size_t n, uint8_t *out, struct err *e);
/* in: n bytes with the tag as the last of them; out: n - CRYPTO_TAG bytes. ERR_DIGEST when it was
 * sealed with another key or changed since. */
int crypto_open(const uint8_t key[32], const uint8_t nonce[CRYPTO_NONCE], const void *aad,
                size_t aad_n, const uint8_t *in, size_t n, uint8_t *out, struct err *e);
/* For the holder of one private key only: ECDH with a one-time key, HKDF-SHA256 over both public
 * keys and `context` (not secret, the same text on both sides), AES-256-GCM. out has
 * n + CRYPTO_SEAL_EXTRA bytes. It says nothing about who sealed. */
int crypto_seal_for(const uint8_t pub[CRYPTO_PUBLIC], const char *context, const void *p, size_t n,
                    uint8_t *out, struct err *e);
int crypto_open_own(struct crypto_key *k, const char *context, const uint8_t *in, size_t n,
                    uint8_t *out, struct err *e);

#endif
