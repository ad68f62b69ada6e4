/* SPDX-License-Identifier: MIT
 * crypto.c: see crypto.h. Each place where 2.28 and 3.6 differ is an #if of a few lines. */
#include "peer/crypto.h"

#include <mbedtls/ecdh.h>
#include <mbedtls/gcm.h>
#include <mbedtls/hkdf.h>
#include <mbedtls/md.h>
#include <mbedtls/pk.h>
#include <mbedtls/pkcs5.h>
#include <mbedtls/platform_util.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crt.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

struct crypto_key {
    mbedtls_pk_context pk;
    uint8_t pub[CRYPTO_PUBLIC];
};

/* SEQUENCE { SEQUENCE { id-ecPublicKey, prime256v1 }, BIT STRING }, up to the point. */
static const uint8_t spki_head[CRYPTO_SPKI - CRYPTO_PUBLIC] = {
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00};

/* ECPrivateKey { 1, OCTET STRING of 32 bytes, [0] prime256v1 }: head, number, tail. */
static const uint8_t sec1_head[7] = {0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20};
static const uint8_t sec1_tail[12] = {0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86,
                                      0x48, 0xce, 0x3d, 0x03, 0x01, 0x07};

int crypto_f_rng(void *unused, unsigned char *p, size_t n)
{
    (void)unused;
    while (n) {
        size_t k = n < 256 ? n : 256; /* what getentropy gives at once */
        if (getentropy(p, k) != 0) {
            return -1;
        }
        p += k;
        n -= k;
    }
    return 0;
}

int crypto_random(void *p, size_t n, struct err *e)
{
    if (crypto_f_rng(NULL, p, n)) {
        return err_sys(e, errno, "the system's random generator failed");
    }
    return 0;
}

bool crypto_equal(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;
    uint8_t d = 0;
    for (size_t i = 0; i < n; i++) {
        d |= (uint8_t)(x[i] ^ y[i]);
    }
    return d == 0;
}

void crypto_wipe(void *p, size_t n)
{
    mbedtls_platform_zeroize(p, n);
}

static int lib_err(struct err *e, int code, int ret, const char *what)
{
    if (ret == MBEDTLS_ERR_MPI_ALLOC_FAILED || ret == MBEDTLS_ERR_PK_ALLOC_FAILED) {
        return err_set(e, ERR_NOMEM, "%s: out of memory", what);
    }
    return err_set(e, code, "%s (TLS library: -0x%04x)", what, (unsigned)-ret);
}

static int parse_private(mbedtls_pk_context *pk, const uint8_t *p, size_t n)
{
#if MBEDTLS_VERSION_MAJOR >= 3
    return mbedtls_pk_parse_key(pk, p, n, NULL, 0, crypto_f_rng, NULL);
#else
    return mbedtls_pk_parse_key(pk, p, n, NULL, 0);
#endif
}

/* The point of a key held by the library, when it is a P-256 one. */
static int point_of(const mbedtls_pk_context *pk, uint8_t pub[CRYPTO_PUBLIC])
{
    uint8_t der[256]; /* a longer key is not ours and fails */
    mbedtls_pk_type_t type = mbedtls_pk_get_type(pk);
    if (type != MBEDTLS_PK_ECKEY && type != MBEDTLS_PK_ECDSA) {
        return ERR_FORMAT;
    }
    /* 2.28 asks for a mutable context, which it only reads */
    int n = mbedtls_pk_write_pubkey_der((mbedtls_pk_context *)(uintptr_t)pk, der, sizeof der);
    if (n != CRYPTO_SPKI || memcmp(der + sizeof der - n, spki_head, sizeof spki_head) != 0) {
        return ERR_FORMAT;
    }
    memcpy(pub, der + sizeof der - CRYPTO_PUBLIC, CRYPTO_PUBLIC);
    return pub[0] == 4 ? 0 : ERR_FORMAT;
}

static struct crypto_key *key_new(struct err *e)
{
    struct crypto_key *k = calloc(1, sizeof *k);
    if (!k) {
        err_set(e, ERR_NOMEM, "out of memory");
        return NULL;
    }
    mbedtls_pk_init(&k->pk);
    return k;
}

/* Fill in the public key and see that both halves belong together. */
static int key_finish(struct crypto_key *k, struct crypto_key **out, struct err *e)
{
    static const char probe[] = "shoal key check";
    uint8_t sig[CRYPTO_SIG_MAX];
    size_t n;
    int r = point_of(&k->pk, k->pub);
    if (r) {
        err_set(e, r, "it is not a P-256 key");
    } else {
        r = crypto_sign(k, probe, sizeof probe, sig, &n, e);
    }
    if (!r && crypto_verify(k->pub, probe, sizeof probe, sig, n, NULL)) {
        r = err_set(e, ERR_FORMAT, "its public and private halves do not belong together");
    }
    if (r) {
        crypto_key_free(k);
        return r;
    }
    *out = k;
    return 0;
}

int crypto_key_make(struct crypto_key **out, struct err *e)
{
    *out = NULL;
    struct crypto_key *k = key_new(e);
    if (!k) {
        return ERR_NOMEM;
    }
    int ret = mbedtls_pk_setup(&k->pk, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
    if (!ret) {
        ret =
            mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(k->pk), crypto_f_rng, NULL);
    }
    if (ret) {
        crypto_key_free(k);
        return lib_err(e, ERR_IO, ret, "cannot make a key");
    }
    return key_finish(k, out, e);
}

static int key_from(const uint8_t *p, size_t n, struct crypto_key **out, struct err *e)
{
    *out = NULL;
    struct crypto_key *k = key_new(e);
    if (!k) {
        return ERR_NOMEM;
    }
    int ret = parse_private(&k->pk, p, n);
    if (ret) {
        crypto_key_free(k);
        return lib_err(e, ERR_FORMAT, ret, "it is not a private key");
    }
    return key_finish(k, out, e);
}

int crypto_key_copy(const struct crypto_key *k, struct crypto_key **out, struct err *e)
{
    uint8_t d[CRYPTO_SECRET];
    int r = crypto_key_secret(k, d, e);
    r = r ? r : crypto_key_from_secret(d, out, e);
    crypto_wipe(d, sizeof d);
    return r;
}

void crypto_key_free(struct crypto_key *k)
{
    if (k) {
        mbedtls_pk_free(&k->pk);
        free(k);
    }
}

int crypto_key_pem(const struct crypto_key *k, char out[CRYPTO_PEM_MAX], size_t *n, struct err *e)
{
    int ret = mbedtls_pk_write_key_pem((mbedtls_pk_context *)(uintptr_t)&k->pk,
                                       (unsigned char *)out, CRYPTO_PEM_MAX);
    if (ret) {
        return lib_err(e, ERR_IO, ret, "cannot write a key");
    }
    *n = strlen(out);
    return 0;
}

int crypto_key_from_pem(const char *pem, size_t n, struct crypto_key **out, struct err *e)
{
    static const char head[] = "-----BEGIN EC PRIVATE KEY-----\n";
    static const char tail[] = "-----END EC PRIVATE KEY-----\n";
    const size_t h = sizeof head - 1, t = sizeof tail - 1;
    *out = NULL;
    if (n < h + t || n >= CRYPTO_PEM_MAX || memcmp(pem, head, h) != 0 ||
        memcmp(pem + n - t, tail, t) != 0) {
        return err_set(e, ERR_FORMAT, "it is not one private key in PEM form");
    }
    for (size_t i = h; i < n - t; i++) { /* base 64 and line ends only: no second block, no NUL */
        char c = pem[i];
        if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') &&
            c != '+' && c != '/' && c != '=' && c != '\n') {
            return err_set(e, ERR_FORMAT, "it is not one private key in PEM form");
        }
    }
    char copy[CRYPTO_PEM_MAX]; /* the library wants the NUL */
    memcpy(copy, pem, n);
    copy[n] = 0;
    int r = key_from((const uint8_t *)copy, n + 1, out, e);
    crypto_wipe(copy, sizeof copy);
    return r;
}

int crypto_key_secret(const struct crypto_key *k, uint8_t out[CRYPTO_SECRET], struct err *e)
{
    uint8_t der[256];
    int n = mbedtls_pk_write_key_der((mbedtls_pk_context *)(uintptr_t)&k->pk, der, sizeof der);
    const uint8_t *p = der + sizeof der - (n > 0 ? n : 0);
    int r = 0;
    /* the same head as ours but for the length, which counts the public key too */
    if (n < 39 || memcmp(p + 2, sec1_head + 2, sizeof sec1_head - 2) != 0) {
        r = lib_err(e, ERR_IO, n < 0 ? n : 0, "cannot take the number of a key");
    } else {
        memcpy(out, p + sizeof sec1_head, CRYPTO_SECRET);
    }
    crypto_wipe(der, sizeof der);
    return r;
}

int crypto_key_from_secret(const uint8_t d[CRYPTO_SECRET], struct crypto_key **out, struct err *e)
{
    uint8_t der[sizeof sec1_head + CRYPTO_SECRET + sizeof sec1_tail];
    memcpy(der, sec1_head, sizeof sec1_head);
    memcpy(der + sizeof sec1_head, d, CRYPTO_SECRET);
    memcpy(der + sizeof sec1_head + CRYPTO_SECRET, sec1_tail, sizeof sec1_tail);
    int r = key_from(der, sizeof der, out, e);
    crypto_wipe(der, sizeof der);
    return r;
}

const uint8_t *crypto_key_public(const struct crypto_key *k)
{
    return k->pub;
}

struct mbedtls_pk_context *crypto_key_pk(struct crypto_key *k)
{
    return &k->pk;
}

void crypto_spki(const uint8_t pub[CRYPTO_PUBLIC], uint8_t der[CRYPTO_SPKI])
{
    memcpy(der, spki_head, sizeof spki_head);
    memcpy(der + sizeof spki_head, pub, CRYPTO_PUBLIC);
}

void crypto_key_id(const uint8_t pub[CRYPTO_PUBLIC], struct key_id *id)
{
    uint8_t der[CRYPTO_SPKI];
    crypto_spki(pub, der);
    sha256(der, sizeof der, id->b);
}

/* *pk is initialised in any case. */
static int public_pk(const uint8_t pub[CRYPTO_PUBLIC], mbedtls_pk_context *pk, struct err *e)
{
    uint8_t der[CRYPTO_SPKI];
    mbedtls_pk_init(pk);
    crypto_spki(pub, der);
    int ret = pub[0] == 4 ? mbedtls_pk_parse_public_key(pk, der, sizeof der) : -1;
    return ret ? lib_err(e, ERR_FORMAT, ret, "it is not a P-256 public key") : 0;
}

int crypto_public_check(const uint8_t pub[CRYPTO_PUBLIC], struct err *e)
{
    mbedtls_pk_context pk;
    int r = public_pk(pub, &pk, e);
    mbedtls_pk_free(&pk);
    return r;
}

int crypto_sign(struct crypto_key *k, const void *msg, size_t n, uint8_t sig[CRYPTO_SIG_MAX],
                size_t *sig_n, struct err *e)
{
    uint8_t hash[SHA256_SIZE], out[MBEDTLS_PK_SIGNATURE_MAX_SIZE];
    sha256(msg, n, hash);
#if MBEDTLS_VERSION_MAJOR >= 3
    int ret = mbedtls_pk_sign(&k->pk, MBEDTLS_MD_SHA256, hash, sizeof hash, out, sizeof out, sig_n,
                              crypto_f_rng, NULL);
#else
    int ret = mbedtls_pk_sign(&k->pk, MBEDTLS_MD_SHA256, hash, sizeof hash, out, sig_n,
                              crypto_f_rng, NULL);
#endif
    if (ret || *sig_n > CRYPTO_SIG_MAX) {
        return lib_err(e, ERR_IO, ret, "cannot sign");
    }
    memcpy(sig, out, *sig_n);
    return 0;
}

int crypto_verify(const uint8_t pub[CRYPTO_PUBLIC], const void *msg, size_t n, const uint8_t *sig,
                  size_t sig_n, struct err *e)
{
    uint8_t hash[SHA256_SIZE];
    mbedtls_pk_context pk;
    int r = public_pk(pub, &pk, e);
    if (!r) {
        sha256(msg, n, hash);
        int ret = mbedtls_pk_verify(&pk, MBEDTLS_MD_SHA256, hash, sizeof hash, sig, sig_n);
        r = ret ? lib_err(e, ERR_DIGEST, ret, "the signature is not good") : 0;
    }
    mbedtls_pk_free(&pk);
    return r;
}

static int set_serial(mbedtls_x509write_cert *w, uint8_t *s, size_t n)
{
#if MBEDTLS_VERSION_NUMBER >= 0x03040000
    return mbedtls_x509write_crt_set_serial_raw(w, s, n);
#else
    mbedtls_mpi m;
    mbedtls_mpi_init(&m);
    int ret = mbedtls_mpi_read_binary(&m, s, n);
    ret = ret ? ret : mbedtls_x509write_crt_set_serial(w, &m);
    mbedtls_mpi_free(&m);
    return ret;
#endif
}

int crypto_certificate(struct crypto_key *k, uint8_t der[CRYPTO_CERT_MAX], size_t *n, struct err *e)
{
    mbedtls_x509write_cert w;
    uint8_t serial[16];
    int r = crypto_random(serial, sizeof serial, e);
    if (r) {
        return r;
    }
    serial[0] = (uint8_t)((serial[0] & 0x7f) | 0x40); /* positive, no leading zero */
    mbedtls_x509write_crt_init(&w);
    mbedtls_x509write_crt_set_version(&w, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(&w, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(&w, &k->pk);
    mbedtls_x509write_crt_set_issuer_key(&w, &k->pk);
    int ret = set_serial(&w, serial, sizeof serial);
    ret = ret ? ret : mbedtls_x509write_crt_set_validity(&w, "20000101000000", "99991231235959");
    ret = ret ? ret : mbedtls_x509write_crt_set_subject_name(&w, "CN=shoal");
    ret = ret ? ret : mbedtls_x509write_crt_set_issuer_name(&w, "CN=shoal");
    if (!ret) {
        ret = mbedtls_x509write_crt_der(&w, der, CRYPTO_CERT_MAX, crypto_f_rng, NULL);
    }
    mbedtls_x509write_crt_free(&w);
    if (ret <= 0) {
        return lib_err(e, ERR_IO, ret, "cannot make a certificate");
    }
    *n = (size_t)ret;
    memmove(der, der + CRYPTO_CERT_MAX - *n, *n); /* the library writes at the end */
    return 0;
}

int crypto_crt_key(const struct mbedtls_x509_crt *crt, uint8_t pub[CRYPTO_PUBLIC], struct err *e)
{
    if (point_of(&crt->pk, pub)) {
        return err_set(e, ERR_FORMAT, "the certificate does not carry a P-256 key");
    }
    return 0;
}

int crypto_certificate_key(const void *der, size_t n, uint8_t pub[CRYPTO_PUBLIC], struct err *e)
{
    mbedtls_x509_crt crt;
    if (n > 4096) {
        return err_set(e, ERR_LIMIT, "the certificate is longer than 4096 bytes");
    }
    mbedtls_x509_crt_init(&crt);
    int ret = mbedtls_x509_crt_parse_der(&crt, der, n);
    int r = ret ? lib_err(e, ERR_FORMAT, ret, "the certificate is malformed")
                : crypto_crt_key(&crt, pub, e);
    if (!r && crt.raw.len != n) {
        r = err_set(e, ERR_FORMAT, "bytes follow the certificate");
    }
    mbedtls_x509_crt_free(&crt);
    return r;
}

int crypto_hmac(const void *key, size_t key_n, const void *msg, size_t n, uint8_t out[SHA256_SIZE])
{
    return mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), key, key_n, msg, n, out)
               ? ERR_NOMEM
               : 0;
}

int crypto_hkdf(const void *salt, size_t salt_n, const void *secret, size_t secret_n,
                const char *info, uint8_t *out, size_t out_n)
{
    return mbedtls_hkdf(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), salt, salt_n, secret,
                        secret_n, (const uint8_t *)info, strlen(info), out, out_n)
               ? ERR_NOMEM
               : 0;
}

int crypto_pbkdf2(const void *pass, size_t pass_n, const void *salt, size_t salt_n,
                  uint32_t iterations, uint8_t *out, size_t out_n)
{
#if MBEDTLS_VERSION_NUMBER >= 0x03030000
    int ret = mbedtls_pkcs5_pbkdf2_hmac_ext(MBEDTLS_MD_SHA256, pass, pass_n, salt, salt_n,
                                            iterations, (uint32_t)out_n, out);
#else
    mbedtls_md_context_t md;
    mbedtls_md_init(&md);
    int ret = mbedtls_md_setup(&md, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1);
    ret = ret ? ret
              : mbedtls_pkcs5_pbkdf2_hmac(&md, pass, pass_n, salt, salt_n, iterations,
                                          (uint32_t)out_n, out);
    mbedtls_md_free(&md);
#endif
    return ret ? ERR_NOMEM : 0;
}

int crypto_seal(const uint8_t key[32], const uint8_t nonce[CRYPTO_NONCE], const void *aad,
                size_t aad_n, const void *p, size_t n, uint8_t *out, struct err *e)
{
    mbedtls_gcm_context g;
    mbedtls_gcm_init(&g);
    int ret = mbedtls_gcm_setkey(&g, MBEDTLS_CIPHER_ID_AES, key, 256);
    ret = ret ? ret
              : mbedtls_gcm_crypt_and_tag(&g, MBEDTLS_GCM_ENCRYPT, n, nonce, CRYPTO_NONCE, aad,
                                          aad_n, p, out, CRYPTO_TAG, out + n);
    mbedtls_gcm_free(&g);
    return ret ? lib_err(e, ERR_IO, ret, "cannot encrypt") : 0;
}

int crypto_open(const uint8_t key[32], const uint8_t nonce[CRYPTO_NONCE], const void *aad,
                size_t aad_n, const uint8_t *in, size_t n, uint8_t *out, struct err *e)
{
    if (n < CRYPTO_TAG) {
        return err_set(e, ERR_FORMAT, "too short to be encrypted text");
    }
    mbedtls_gcm_context g;
    mbedtls_gcm_init(&g);
    int ret = mbedtls_gcm_setkey(&g, MBEDTLS_CIPHER_ID_AES, key, 256);
    n -= CRYPTO_TAG;
    ret = ret ? ret
              : mbedtls_gcm_auth_decrypt(&g, n, nonce, CRYPTO_NONCE, aad, aad_n, in + n, CRYPTO_TAG,
                                         in, out);
    mbedtls_gcm_free(&g);
    return ret ? lib_err(e, ERR_DIGEST, ret, "it was encrypted with another key, or changed") : 0;
}

/* The key both ends derive: ECDH, salted with both public keys. */
static int shared_key(struct crypto_key *own, const uint8_t other[CRYPTO_PUBLIC],
                      const uint8_t once[CRYPTO_PUBLIC], const uint8_t fixed[CRYPTO_PUBLIC],
                      const char *context, uint8_t key[32], struct err *e)
{
    uint8_t secret[CRYPTO_SECRET], salt[2 * CRYPTO_PUBLIC];
    size_t n = 0;
    mbedtls_pk_context pk;
    mbedtls_ecdh_context dh;
    int r = public_pk(other, &pk, e);
    mbedtls_ecdh_init(&dh);
    if (!r) {
        int ret = mbedtls_ecdh_get_params(&dh, mbedtls_pk_ec(own->pk), MBEDTLS_ECDH_OURS);
        ret = ret ? ret : mbedtls_ecdh_get_params(&dh, mbedtls_pk_ec(pk), MBEDTLS_ECDH_THEIRS);
        ret = ret ? ret
                  : mbedtls_ecdh_calc_secret(&dh, &n, secret, sizeof secret, crypto_f_rng, NULL);
        memcpy(salt, once, CRYPTO_PUBLIC);
        memcpy(salt + CRYPTO_PUBLIC, fixed, CRYPTO_PUBLIC);
        ret = ret ? ret : crypto_hkdf(salt, sizeof salt, secret, n, context, key, 32);
        r = ret ? lib_err(e, ERR_IO, ret, "cannot agree on a key") : 0;
    }
    mbedtls_ecdh_free(&dh);
    mbedtls_pk_free(&pk);
    crypto_wipe(secret, sizeof secret);
    return r;
}

int crypto_seal_for(const uint8_t pub[CRYPTO_PUBLIC], const char *context, const void *p, size_t n,
                    uint8_t *out, struct err *e)
{
    uint8_t key[32];
    uint8_t *nonce = out + CRYPTO_PUBLIC, *body = nonce + CRYPTO_NONCE;
    struct crypto_key *once;
    int r = crypto_key_make(&once, e);
    if (r) {
        return r;
    }
    memcpy(out, once->pub, CRYPTO_PUBLIC);
    r = crypto_random(nonce, CRYPTO_NONCE, e);
    r = r ? r : shared_key(once, pub, once->pub, pub, context, key, e);
    r = r ? r : crypto_seal(key, nonce, out, CRYPTO_PUBLIC, p, n, body, e);
    crypto_wipe(key, sizeof key);
    crypto_key_free(once);
    return r;
}

int crypto_open_own(struct crypto_key *k, const char *context, const uint8_t *in, size_t n,
                    uint8_t *out, struct err *e)
{
    if (n < CRYPTO_SEAL_EXTRA) {
        return err_set(e, ERR_FORMAT, "too short to be a sealed message");
    }
    uint8_t key[32];
    const uint8_t *nonce = in + CRYPTO_PUBLIC, *body = nonce + CRYPTO_NONCE;
    int r = shared_key(k, in, in, k->pub, context, key, e);
    r = r ? r
          : crypto_open(key, nonce, in, CRYPTO_PUBLIC, body, n - CRYPTO_PUBLIC - CRYPTO_NONCE, out,
                        e);
    crypto_wipe(key, sizeof key);
    return r;
}
