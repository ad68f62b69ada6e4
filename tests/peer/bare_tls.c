/* SPDX-License-Identifier: MIT
 * bare_tls.c: see bare_tls.h. */
#include "tests/peer/bare_tls.h"

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>
#if MBEDTLS_VERSION_MAJOR >= 3
#include <psa/crypto.h>
#endif

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct bare {
    mbedtls_net_context net;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context rng;
    mbedtls_x509_crt cert;
    mbedtls_pk_context key;
    mbedtls_ssl_config conf;
    mbedtls_ssl_context ssl;
};

static void must(int bad)
{
    if (bad) {
        abort();
    }
}

int bare_listen(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(fd < 0 || bind(fd, (struct sockaddr *)&a, n) || listen(fd, 8) ||
         getsockname(fd, (struct sockaddr *)&a, &n));
    *port = ntohs(a.sin_port);
    return fd;
}

int bare_connect(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval tv = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    return fd;
}

/* Nobody is refused: who is let in is what the tests ask of the other side. */
static int verify(void *ctx, mbedtls_x509_crt *crt, int depth, uint32_t *flags)
{
    *flags = 0;
    return 0;
}

struct bare *bare_new(int fd, bool server, const struct kit_id *id, enum tls_family prefer)
{
    struct bare *b = calloc(1, sizeof *b);
    int one = 1;
    must(!b);
#if MBEDTLS_VERSION_MAJOR >= 3
    must(psa_crypto_init() != PSA_SUCCESS);
#endif
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    b->net.fd = fd;
    mbedtls_entropy_init(&b->entropy);
    mbedtls_ctr_drbg_init(&b->rng);
    mbedtls_x509_crt_init(&b->cert);
    mbedtls_pk_init(&b->key);
    mbedtls_ssl_config_init(&b->conf);
    mbedtls_ssl_init(&b->ssl);
    must(mbedtls_ctr_drbg_seed(&b->rng, mbedtls_entropy_func, &b->entropy, NULL, 0));
    must(mbedtls_ssl_config_defaults(&b->conf,
                                     server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT,
                                     MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_rng(&b->conf, mbedtls_ctr_drbg_random, &b->rng);
    mbedtls_ssl_conf_ciphersuites(&b->conf, tls_suite_list(prefer));
    mbedtls_ssl_conf_authmode(&b->conf, MBEDTLS_SSL_VERIFY_REQUIRED);
    mbedtls_ssl_conf_verify(&b->conf, verify, NULL);
    if (id) {
#if MBEDTLS_VERSION_MAJOR >= 3
        must(mbedtls_pk_parse_key(&b->key, (const uint8_t *)id->pem, id->pem_n, NULL, 0,
                                  mbedtls_ctr_drbg_random, &b->rng));
#else
        must(mbedtls_pk_parse_key(&b->key, (const uint8_t *)id->pem, id->pem_n, NULL, 0));
#endif
        must(mbedtls_x509_crt_parse_der(&b->cert, id->cert, id->cert_n));
        must(mbedtls_ssl_conf_own_cert(&b->conf, &b->cert, &b->key));
        mbedtls_ssl_conf_ca_chain(&b->conf, &b->cert, NULL);
    } else {
        mbedtls_ssl_conf_authmode(&b->conf, MBEDTLS_SSL_VERIFY_NONE);
    }
    must(mbedtls_ssl_setup(&b->ssl, &b->conf));
    must(!server && mbedtls_ssl_set_hostname(&b->ssl, NULL));
    mbedtls_ssl_set_bio(&b->ssl, &b->net, mbedtls_net_send, mbedtls_net_recv, NULL);
    return b;
}

int bare_handshake(struct bare *b)
{
    return mbedtls_ssl_handshake(&b->ssl);
}

int bare_write(struct bare *b, const void *p, size_t n)
{
    while (n) {
        int r = mbedtls_ssl_write(&b->ssl, p, n);
        if (r < 0) {
            return r;
        }
        p = (const uint8_t *)p + r;
        n -= (size_t)r;
    }
    return 0;
}

int bare_read(struct bare *b, void *p, size_t n)
{
    while (n) {
        int r = mbedtls_ssl_read(&b->ssl, p, n);
#ifdef MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET
        if (r == MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET) {
            continue;
        }
#endif
        if (r <= 0) {
            return r ? r : MBEDTLS_ERR_SSL_CONN_EOF;
        }
        p = (uint8_t *)p + r;
        n -= (size_t)r;
    }
    return 0;
}

bool bare_wait(struct bare *b, int ms)
{
    struct pollfd p = {.fd = b->net.fd, .events = POLLIN};
    return mbedtls_ssl_get_bytes_avail(&b->ssl) || poll(&p, 1, ms) > 0;
}

int bare_socket(const struct bare *b)
{
    return b->net.fd;
}

const char *bare_suite(const struct bare *b)
{
    return mbedtls_ssl_get_ciphersuite(&b->ssl);
}

void bare_free(struct bare *b, bool notify)
{
    if (notify) {
        mbedtls_ssl_close_notify(&b->ssl);
    }
    mbedtls_ssl_free(&b->ssl);
    mbedtls_ssl_config_free(&b->conf);
    mbedtls_x509_crt_free(&b->cert);
    mbedtls_pk_free(&b->key);
    mbedtls_ctr_drbg_free(&b->rng);
    mbedtls_entropy_free(&b->entropy);
    close(b->net.fd);
    free(b);
}
