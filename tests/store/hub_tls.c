/* SPDX-License-Identifier: MIT
 * hub_tls.c: see hub_tls.h. */
#include "tests/store/hub_tls.h"

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/pem.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crt.h>
#if MBEDTLS_VERSION_MAJOR >= 3
#include <psa/crypto.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif
#define PEM_MAX 4096

struct hub_cert {
    mbedtls_pk_context key;
    mbedtls_x509_crt crt;
};

struct hub_conn {
    int fd;
    bool tls;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context rng;
    mbedtls_ssl_config conf;
    mbedtls_ssl_context ssl;
};

static void must(int bad)
{
    if (bad) {
        abort();
    }
}

static void new_key(mbedtls_pk_context *k, mbedtls_ctr_drbg_context *rng)
{
    mbedtls_pk_init(k);
    must(mbedtls_pk_setup(k, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY)) ||
         mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*k), mbedtls_ctr_drbg_random,
                             rng));
}

static void set_serial(mbedtls_x509write_cert *w, unsigned char n)
{
#if MBEDTLS_VERSION_NUMBER >= 0x03040000
    must(mbedtls_x509write_crt_set_serial_raw(w, &n, 1));
#else
    mbedtls_mpi m;
    mbedtls_mpi_init(&m);
    must(mbedtls_mpi_lset(&m, n) || mbedtls_x509write_crt_set_serial(w, &m));
    mbedtls_mpi_free(&m);
#endif
}

/* SubjectAltName by hand, for the older library cannot: localhost, 127.0.0.1, ::1. */
static const unsigned char alt[] = {
    0x30, 0x23, 0x82, 9, 'l', 'o', 'c', 'a', 'l', 'h', 'o', 's', 't', 0x87, 4, 127, 0, 0, 1,
    0x87, 16,   0,    0, 0,   0,   0,   0,   0,   0,   0,   0,   0,   0,    0, 0,   0, 1};

static void sign(mbedtls_x509write_cert *w, mbedtls_pk_context *key, mbedtls_pk_context *by,
                 const char *name, unsigned char n, bool ca, mbedtls_ctr_drbg_context *rng,
                 unsigned char pem[PEM_MAX])
{
    mbedtls_x509write_crt_init(w);
    mbedtls_x509write_crt_set_version(w, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(w, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(w, key);
    mbedtls_x509write_crt_set_issuer_key(w, by);
    set_serial(w, n);
    must(mbedtls_x509write_crt_set_validity(w, "20200101000000", "20991231235959") ||
         mbedtls_x509write_crt_set_subject_name(w, name) ||
         mbedtls_x509write_crt_set_issuer_name(w, "CN=Test authority of Shoal") ||
         mbedtls_x509write_crt_set_basic_constraints(w, ca, -1) ||
         mbedtls_x509write_crt_set_subject_key_identifier(w) ||
         mbedtls_x509write_crt_set_authority_key_identifier(w) ||
         mbedtls_x509write_crt_set_key_usage(w, ca ? MBEDTLS_X509_KU_KEY_CERT_SIGN
                                                   : MBEDTLS_X509_KU_DIGITAL_SIGNATURE));
    if (!ca) {
        must(mbedtls_x509write_crt_set_extension(w, "\x55\x1d\x11", 3, 0, alt, sizeof alt));
    }
    must(mbedtls_x509write_crt_pem(w, pem, PEM_MAX, mbedtls_ctr_drbg_random, rng));
    mbedtls_x509write_crt_free(w);
}

struct hub_cert *hub_cert_new(const char *ca_path)
{
    struct hub_cert *c = calloc(1, sizeof *c);
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context rng;
    mbedtls_pk_context ca;
    mbedtls_x509write_cert w;
    unsigned char pem[PEM_MAX];
#if MBEDTLS_VERSION_MAJOR >= 3
    must(psa_crypto_init() != PSA_SUCCESS);
#endif
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&rng);
    must(mbedtls_ctr_drbg_seed(&rng, mbedtls_entropy_func, &entropy, NULL, 0));
    new_key(&ca, &rng);
    new_key(&c->key, &rng);
    sign(&w, &ca, &ca, "CN=Test authority of Shoal", 1, true, &rng, pem);
    FILE *f = fopen(ca_path, "w");
    must(!f || fputs((const char *)pem, f) < 0 || fclose(f));
    sign(&w, &c->key, &ca, "CN=localhost", 2, false, &rng, pem);
    mbedtls_x509_crt_init(&c->crt);
    must(mbedtls_x509_crt_parse(&c->crt, pem, strlen((const char *)pem) + 1));
    mbedtls_pk_free(&ca);
    mbedtls_ctr_drbg_free(&rng);
    mbedtls_entropy_free(&entropy);
    return c;
}

void hub_cert_free(struct hub_cert *c)
{
    if (c) {
        mbedtls_pk_free(&c->key);
        mbedtls_x509_crt_free(&c->crt);
        free(c);
    }
}

static int tls_send(void *ctx, const unsigned char *p, size_t n)
{
    ssize_t k = send(((struct hub_conn *)ctx)->fd, p, n, MSG_NOSIGNAL);
    return k < 0 ? MBEDTLS_ERR_NET_SEND_FAILED : (int)k;
}

static int tls_recv(void *ctx, unsigned char *p, size_t n)
{
    ssize_t k = recv(((struct hub_conn *)ctx)->fd, p, n, 0);
    return k < 0 ? MBEDTLS_ERR_NET_RECV_FAILED : (int)k;
}

struct hub_conn *hub_conn_new(int fd, struct hub_cert *cert)
{
    struct hub_conn *c = calloc(1, sizeof *c);
    c->fd = fd;
    c->tls = cert != NULL;
    if (!cert) {
        return c;
    }
    mbedtls_entropy_init(&c->entropy);
    mbedtls_ctr_drbg_init(&c->rng);
    mbedtls_ssl_config_init(&c->conf);
    mbedtls_ssl_init(&c->ssl);
    must(mbedtls_ctr_drbg_seed(&c->rng, mbedtls_entropy_func, &c->entropy, NULL, 0) ||
         mbedtls_ssl_config_defaults(&c->conf, MBEDTLS_SSL_IS_SERVER, MBEDTLS_SSL_TRANSPORT_STREAM,
                                     MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_rng(&c->conf, mbedtls_ctr_drbg_random, &c->rng);
    must(mbedtls_ssl_conf_own_cert(&c->conf, &cert->crt, &cert->key) ||
         mbedtls_ssl_setup(&c->ssl, &c->conf));
    mbedtls_ssl_set_bio(&c->ssl, c, tls_send, tls_recv, NULL);
    int r;
    do {
        r = mbedtls_ssl_handshake(&c->ssl);
    } while (r == MBEDTLS_ERR_SSL_WANT_READ || r == MBEDTLS_ERR_SSL_WANT_WRITE);
    if (r) {
        hub_conn_free(c);
        return NULL;
    }
    return c;
}

bool hub_write(struct hub_conn *c, const void *p, size_t n)
{
    const unsigned char *b = p;
    while (n) {
        long k = c->tls ? mbedtls_ssl_write(&c->ssl, b, n) : send(c->fd, b, n, MSG_NOSIGNAL);
        if (k <= 0) {
            return false;
        }
        b += k;
        n -= (size_t)k;
    }
    return true;
}

long hub_read(struct hub_conn *c, void *p, size_t n)
{
    return c->tls ? mbedtls_ssl_read(&c->ssl, p, n) : recv(c->fd, p, n, 0);
}

int hub_socket(const struct hub_conn *c)
{
    return c->fd;
}

void hub_conn_free(struct hub_conn *c)
{
    if (c->tls) {
        mbedtls_ssl_free(&c->ssl);
        mbedtls_ssl_config_free(&c->conf);
        mbedtls_ctr_drbg_free(&c->rng);
        mbedtls_entropy_free(&c->entropy);
    }
    close(c->fd);
    free(c);
}
