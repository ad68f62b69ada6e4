/* SPDX-License-Identifier: MIT
 * tls_pair_peer.c: one end of one connection, so that two builds over different releases of the TLS
 * library can meet. It says on standard output what happened, for t_tls_pairs to compare.
 *
 *   tls_pair_peer version                      the library's version
 *   tls_pair_peer key FILE                     makes a key; prints its id in hex
 *   tls_pair_peer serve FILE WHO...            prints "port N", takes one connection
 *   tls_pair_peer call FILE PORT WHO...        makes one
 *
 * WHO: member=ID or removed=ID, everybody else is a stranger. The caller sends a chunk of 1 MiB
 * when the connection opens, the server compares it and sends another, the caller compares that
 * and closes. Lines: "open VERSION SUITE", "chunk good" or "chunk bad", and last
 * "end KIND: SENTENCE". Exit status: 0 when the chunk was good, 1 otherwise, 2 for wrong usage. */
#include "peer/crypto.h"
#include "proto/base/file.h"
#include "tests/peer/wire_kit.h"

#include <mbedtls/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WAIT_MS = 30000, WHO_MAX = 8 };

static uint8_t chunk[2][WIRE_RAW_MAX]; /* what the caller sends, what the server sends */

struct run {
    int role; /* 0 calls, 1 serves */
    bool good;
    struct kit_id me;
    struct kit_trust trust;
    uint8_t ids[WHO_MAX][WIRE_ID];
};

static void make_chunks(void)
{
    uint64_t x = 88172645463325252u;
    for (int r = 0; r < 2; r++) {
        for (size_t i = 0; i < sizeof chunk[r]; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            chunk[r][i] = (uint8_t)(x >> 40);
        }
    }
}

static void send_chunk(struct kit_log *l, int role)
{
    static const uint8_t body[] = "chunk";
    struct tls_raw raw = {chunk[role], sizeof chunk[role], NULL, NULL};
    if (tls_conn_send(l->c, body, sizeof body, &raw, TLS_DEMAND)) {
        printf("the chunk cannot be sent\n");
    }
}

static void on_open(struct kit_log *l)
{
    struct run *r = l->user;
    printf("open %s %s\n", l->peer.version, l->peer.suite);
    if (r->role == 0) {
        send_chunk(l, 0);
    }
}

static void on_frame(struct kit_log *l, struct frame *f)
{
    struct run *r = l->user;
    uint8_t want[SHA256_SIZE];
    const uint8_t *other = chunk[!r->role];
    sha256(other, WIRE_RAW_MAX, want);
    r->good = f->raw_n == WIRE_RAW_MAX && memcmp(f->raw, other, WIRE_RAW_MAX) == 0 &&
              memcmp(f->raw_sha256, want, sizeof want) == 0;
    printf("chunk %s\n", r->good ? "good" : "bad");
    frame_free(f);
    if (r->role == 1) {
        send_chunk(l, 1);
    } else {
        tls_conn_close(l->c);
    }
}

static void say_end(const struct tls_close *why)
{
    printf("end %s: %s\n", tls_end_text(why->end), why->err.msg);
}

/* ---- arguments ---- */

static int from_hex(const char *s, uint8_t id[WIRE_ID])
{
    if (strlen(s) != (size_t)2 * WIRE_ID || strspn(s, "0123456789abcdef") != (size_t)2 * WIRE_ID) {
        return -1;
    }
    for (int i = 0; i < WIRE_ID; i++) {
        char two[3] = {s[2 * i], s[2 * i + 1], 0};
        id[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    return 0;
}

static int read_who(struct run *r, char **argv, int n)
{
    for (int i = 0; i < n && i < WHO_MAX; i++) {
        bool removed = strncmp(argv[i], "removed=", 8) == 0;
        if ((!removed && strncmp(argv[i], "member=", 7) != 0) ||
            from_hex(strchr(argv[i], '=') + 1, r->ids[i])) {
            return -1;
        }
        r->trust.of[i].id = r->ids[i];
        r->trust.of[i].trust = removed ? TLS_REMOVED : TLS_MEMBER;
        r->trust.n = i + 1;
    }
    return 0;
}

static int make_key(const char *path)
{
    struct kit_id k;
    struct err e = {0};
    kit_id_make(&k);
    if (file_write_atomic(path, k.pem, k.pem_n - 1, 0600, &e)) {
        fprintf(stderr, "tls_pair_peer: %s\n", e.msg);
        return 1;
    }
    char hex[2 * SHA256_SIZE + 1];
    sha256_hex(k.id, hex);
    puts(hex);
    return 0;
}

static int read_key(const char *path, struct kit_id *k)
{
    struct err e = {0};
    struct crypto_key *key = NULL;
    struct buf b;
    buf_init(&b, sizeof k->pem - 1);
    int r = file_read_all(path, &b, &e);
    r = r ? r : crypto_key_from_pem((const char *)b.p, b.n, &key, &e);
    r = r ? r : crypto_certificate(key, k->cert, &k->cert_n, &e);
    if (r) {
        fprintf(stderr, "tls_pair_peer: %s\n", e.msg);
    } else {
        memcpy(k->pem, b.p, b.n);
        k->pem[b.n] = 0;
        k->pem_n = b.n + 1;
        struct key_id id;
        crypto_key_id(crypto_key_public(key), &id);
        memcpy(k->id, id.b, WIRE_ID);
    }
    crypto_key_free(key);
    buf_free(&b);
    return r;
}

/* ---- the two roles ---- */

static bool served(void *node)
{
    const struct kit_node *n = node;
    return n->closes || (n->n_in && n->in[0].closes);
}

static int serve(struct run *r, uv_loop_t *loop, const struct tls_opts *o)
{
    struct kit_node n;
    kit_node_open(&n, loop, o, "127.0.0.1", 1);
    n.model.on_open = on_open;
    n.model.on_frame = on_frame;
    n.model.user = r;
    printf("port %d\n", n.port);
    if (!kit_until_fn(loop, served, &n, WAIT_MS)) {
        printf("end nothing happened\n");
    } else {
        say_end(n.closes ? &n.why : &n.in[0].why);
    }
    kit_node_close(&n);
    return 0;
}

static int call(struct run *r, uv_loop_t *loop, const struct tls_opts *o, int port)
{
    struct kit_node n;
    struct kit_log l = {.on_open = on_open, .on_frame = on_frame, .user = r};
    kit_node_open(&n, loop, o, NULL, 0);
    kit_connect(&n, &l, "127.0.0.1", port, NULL);
    if (!kit_until(loop, &l.closes, 1, WAIT_MS)) {
        printf("end nothing happened\n");
    } else {
        say_end(&l.why);
    }
    kit_node_close(&n);
    return 0;
}

int main(int argc, char **argv)
{
    struct run r = {0};
    struct tls_opts o;
    uv_loop_t loop;
    long port = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "version") == 0) {
        char v[32];
        mbedtls_version_get_string(v);
        puts(v);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "key") == 0) {
        return make_key(argv[2]);
    }
    r.role = argc >= 3 && strcmp(argv[1], "serve") == 0;
    int who = r.role ? 3 : 4;
    if (argc >= 4 && strcmp(argv[1], "call") == 0) {
        char *end;
        port = strtol(argv[3], &end, 10);
        port = *end || port > 65535 ? 0 : port;
    }
    if ((!r.role && port < 1) || read_who(&r, argv + who, argc - who)) {
        fprintf(stderr, "usage: tls_pair_peer version | key FILE | serve FILE WHO... | call FILE "
                        "PORT WHO...\n");
        return 2;
    }
    if (read_key(argv[2], &r.me)) {
        return 1;
    }
    make_chunks();
    kit_opts(&o, &r.me, &r.trust);
    uv_loop_init(&loop);
    if (r.role) {
        serve(&r, &loop, &o);
    } else {
        call(&r, &loop, &o, (int)port);
    }
    return uv_loop_close(&loop) || !r.good;
}
