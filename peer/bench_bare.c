/* SPDX-License-Identifier: MIT
 * bench_bare.c: the plain program that the mesh is compared with: blocking sockets, one thread for
 * each end, full records, no copy but the library's. The client is the caller's thread.
 *
 * A request is REQUEST bytes: the number of the object first. An answer is a chunk at a time:
 * HEAD bytes, about what a message of the mesh has before its bytes, then the chunk. */
#include "peer/bench_int.h"
#include "peer/tls_suite.h"

#include "proto/base/clock.h"

#include <mbedtls/net_sockets.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crt.h>
#if MBEDTLS_VERSION_MAJOR >= 3
#include <psa/crypto.h>
#endif

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST = 32, HEAD = 20, LARGE = 'o', SMALL = 's', QUIT = 'q' };

struct end {
    struct crypto_key *key;
    mbedtls_net_context net;
    mbedtls_x509_crt cert;
    mbedtls_ssl_config conf;
    mbedtls_ssl_context ssl;
};

struct bench_bare {
    const struct bench_data *d;
    struct end server, client;
    pthread_t thread;
    bool running;
    int shaken;      /* the server's handshake: 0 or the library's error */
    uint8_t *object; /* what the client receives */
};

/* ---- set-up ---- */

/* The other end is known by its certificate. */
static int verify(void *ctx, mbedtls_x509_crt *crt, int depth, uint32_t *flags)
{
    const struct end *other = ctx;
    bool same = crt->raw.len == other->cert.raw.len &&
                memcmp(crt->raw.p, other->cert.raw.p, crt->raw.len) == 0;
    (void)depth;
    *flags = same ? 0 : MBEDTLS_X509_BADCERT_NOT_TRUSTED;
    return 0;
}

static int tls_err(struct err *e, int r)
{
    return err_set(e, ERR_NET, "the plain TLS program failed (-0x%04x)", (unsigned)-r);
}

static int end_key(struct end *x, struct err *e)
{
    uint8_t der[CRYPTO_CERT_MAX];
    size_t n;
    int r = crypto_key_make(&x->key, e);
    r = r ? r : crypto_certificate(x->key, der, &n, e);
    if (!r && (r = mbedtls_x509_crt_parse_der(&x->cert, der, n))) {
        r = tls_err(e, r);
    }
    return r;
}

static int end_tls(struct end *x, struct end *other, int role, struct err *e)
{
    int one = 1;
    int r = mbedtls_ssl_config_defaults(&x->conf, role, MBEDTLS_SSL_TRANSPORT_STREAM,
                                        MBEDTLS_SSL_PRESET_DEFAULT);
    mbedtls_ssl_conf_rng(&x->conf, crypto_f_rng, NULL);
    mbedtls_ssl_conf_ciphersuites(&x->conf, tls_suite_list(TLS_FASTEST));
    mbedtls_ssl_conf_authmode(&x->conf, MBEDTLS_SSL_VERIFY_REQUIRED);
    mbedtls_ssl_conf_verify(&x->conf, verify, other);
    mbedtls_ssl_conf_ca_chain(&x->conf, &x->cert, NULL);
    r = r ? r : mbedtls_ssl_conf_own_cert(&x->conf, &x->cert, crypto_key_pk(x->key));
    r = r ? r : mbedtls_ssl_setup(&x->ssl, &x->conf);
    if (!r && role == MBEDTLS_SSL_IS_CLIENT) {
        r = mbedtls_ssl_set_hostname(&x->ssl, NULL);
    }
    setsockopt(x->net.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    mbedtls_ssl_set_bio(&x->ssl, &x->net, mbedtls_net_send, mbedtls_net_recv, NULL);
    return r ? tls_err(e, r) : 0;
}

/* Two ends of one TCP connection over 127.0.0.1. */
static int join_ends(struct bench_bare *b, struct err *e)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    struct sockaddr *s = (struct sockaddr *)&a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    b->client.net.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && b->client.net.fd >= 0 && !bind(fd, s, n) && !listen(fd, 1) &&
        !getsockname(fd, s, &n) && !connect(b->client.net.fd, s, n)) {
        b->server.net.fd = accept(fd, NULL, NULL);
    }
    if (fd >= 0) {
        close(fd);
    }
    return b->server.net.fd < 0 ? err_set(e, ERR_NET, "no connection over 127.0.0.1 can be made")
                                : 0;
}

/* ---- bytes ---- */

static int put(struct end *x, const void *p, size_t n)
{
    for (const uint8_t *at = p; n;) {
        int r = mbedtls_ssl_write(&x->ssl, at, n);
        if (r < 0) {
            return r;
        }
        at += r;
        n -= (size_t)r;
    }
    return 0;
}

static int get(struct end *x, void *p, size_t n)
{
    for (uint8_t *at = p; n;) {
        int r = mbedtls_ssl_read(&x->ssl, at, n);
#ifdef MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET
        if (r == MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET) {
            continue;
        }
#endif
        if (r <= 0) {
            return r ? r : MBEDTLS_ERR_SSL_CONN_EOF;
        }
        at += r;
        n -= (size_t)r;
    }
    return 0;
}

/* ---- server ---- */

static int answer(struct bench_bare *b, int what)
{
    uint8_t head[HEAD + PEER_BENCH_SMALL] = {0};
    struct end *x = &b->server;
    if (what == SMALL) { /* one record */
        memcpy(head + HEAD, b->d->small, PEER_BENCH_SMALL);
        return put(x, head, sizeof head);
    }
    int r = 0;
    for (uint32_t i = 0; !r && i < storage_chunks(PEER_BENCH_OBJECT); i++) {
        r = put(x, head, HEAD);
        r = r ? r
              : put(x, b->d->large + (size_t)i * STORAGE_CHUNK,
                    storage_chunk_len(PEER_BENCH_OBJECT, i));
    }
    return r;
}

static void *server_main(void *arg)
{
    struct bench_bare *b = arg;
    uint8_t ask[REQUEST] = {0};
    b->shaken = mbedtls_ssl_handshake(&b->server.ssl);
    int r = b->shaken;
    while (!r && ask[0] != QUIT) {
        r = get(&b->server, ask, sizeof ask);
        if (!r && ask[0] != QUIT) {
            r = answer(b, ask[0]);
        }
    }
    shutdown(b->server.net.fd, SHUT_RDWR); /* the client must not wait for more */
    return NULL;
}

/* ---- client ---- */

static int ask_for(struct bench_bare *b, int what)
{
    uint8_t ask[REQUEST] = {(uint8_t)what};
    return put(&b->client, ask, sizeof ask);
}

/* One chunk to p, hashed while in the cache. */
static int take_chunk(struct bench_bare *b, uint8_t *p, size_t n, uint8_t sha[SHA256_SIZE])
{
    uint8_t head[HEAD];
    struct sha256 s;
    int r = get(&b->client, head, sizeof head);
    sha256_init(&s);
    for (size_t at = 0; !r && at < n;) {
        size_t k = n - at < BENCH_RECORD ? n - at : BENCH_RECORD;
        r = get(&b->client, p + at, k);
        sha256_add(&s, p + at, k);
        at += k;
    }
    sha256_done(&s, sha);
    return r;
}

static int take_object(struct bench_bare *b, uint64_t size, const uint8_t *want, struct err *e)
{
    struct sha256 all;
    uint8_t d[SHA256_SIZE];
    sha256_init(&all);
    for (uint32_t i = 0; i < storage_chunks(size); i++) {
        int r = take_chunk(b, b->object + (size_t)i * STORAGE_CHUNK, storage_chunk_len(size, i), d);
        if (r) {
            return tls_err(e, r);
        }
        sha256_add(&all, d, sizeof d);
    }
    sha256_done(&all, d);
    return memcmp(d, want, sizeof d) == 0
               ? 0
               : err_set(e, ERR_DIGEST, "the plain TLS program received wrong bytes");
}

int bench_bare_objects(struct bench_bare *b, double seconds, struct bench_count *c, struct err *e)
{
    double t = clock_s();
    unsigned asked = 0, got = 0;
    int r = 0;
    do {
        while (!r && asked < got + BENCH_AHEAD && (asked == 0 || clock_s() - t < seconds)) {
            r = ask_for(b, LARGE);
            r = r ? tls_err(e, r) : 0;
            asked++;
        }
        if (!r && got < asked) {
            r = take_object(b, PEER_BENCH_OBJECT, b->d->large_digest, e);
            got++;
        }
    } while (!r && got < asked);
    *c = (struct bench_count){got, clock_s() - t};
    return r;
}

int bench_bare_small(struct bench_bare *b, unsigned batch, double seconds, struct bench_count *c,
                     struct err *e)
{
    double t = clock_s(), n = 0;
    int r = 0;
    do {
        for (unsigned i = 0; !r && i < batch; i++) {
            r = ask_for(b, SMALL);
            r = r ? tls_err(e, r) : 0;
        }
        for (unsigned i = 0; !r && i < batch; i++, n++) {
            r = take_object(b, PEER_BENCH_SMALL, b->d->small_digest, e);
        }
    } while (!r && clock_s() - t < seconds);
    *c = (struct bench_count){n, clock_s() - t};
    return r;
}

/* ---- life ---- */

int bench_bare_open(const struct bench_data *d, struct bench_bare **out, struct err *e)
{
    struct bench_bare *b = calloc(1, sizeof *b);
    *out = b;
    if (!b || !(b->object = malloc(PEER_BENCH_OBJECT))) {
        return err_set(e, ERR_NOMEM, "no memory for the comparison");
    }
    b->d = d;
    struct end *const ends[] = {&b->server, &b->client};
    for (int i = 0; i < 2; i++) {
        ends[i]->net.fd = -1;
        mbedtls_x509_crt_init(&ends[i]->cert);
        mbedtls_ssl_config_init(&ends[i]->conf);
        mbedtls_ssl_init(&ends[i]->ssl);
    }
#if MBEDTLS_VERSION_MAJOR >= 3
    if (psa_crypto_init() != PSA_SUCCESS) {
        return err_set(e, ERR_IO, "the cryptographic library cannot be started");
    }
#endif
    int r = end_key(&b->server, e);
    r = r ? r : end_key(&b->client, e);
    r = r ? r : join_ends(b, e);
    r = r ? r : end_tls(&b->server, &b->client, MBEDTLS_SSL_IS_SERVER, e);
    r = r ? r : end_tls(&b->client, &b->server, MBEDTLS_SSL_IS_CLIENT, e);
    if (!r && pthread_create(&b->thread, NULL, server_main, b)) {
        r = err_set(e, ERR_NOMEM, "a thread for the comparison cannot be started");
    }
    if (!r) {
        b->running = true;
        r = mbedtls_ssl_handshake(&b->client.ssl);
        r = r ? tls_err(e, r) : 0;
    }
    return r;
}

const char *bench_bare_suite(const struct bench_bare *b)
{
    return mbedtls_ssl_get_ciphersuite(&b->client.ssl);
}

const char *bench_bare_version(const struct bench_bare *b)
{
    return mbedtls_ssl_get_version(&b->client.ssl);
}

void bench_bare_close(struct bench_bare *b)
{
    if (!b) {
        return;
    }
    if (b->running) {
        if (ask_for(b, QUIT)) {
            shutdown(b->client.net.fd, SHUT_RDWR);
        }
        pthread_join(b->thread, NULL);
    }
    struct end *const ends[] = {&b->server, &b->client};
    for (int i = 0; i < 2 && b->d; i++) {
        mbedtls_ssl_free(&ends[i]->ssl);
        mbedtls_ssl_config_free(&ends[i]->conf);
        mbedtls_x509_crt_free(&ends[i]->cert);
        crypto_key_free(ends[i]->key);
        mbedtls_net_free(&ends[i]->net);
    }
    free(b->object);
    free(b);
}
