/* SPDX-License-Identifier: MIT
 * wire_kit.h: what tests and benchmarks of the wire share: identities, nodes with a TLS pool on one
 * loop, logs of what their callbacks saw, and a bare blocking TLS peer of the same library. */
#ifndef SHOAL_TESTS_PEER_WIRE_KIT_H
#define SHOAL_TESTS_PEER_WIRE_KIT_H

#include "peer/listen.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A P-256 key with its certificate. */
struct kit_id {
    char pem[600];
    size_t pem_n; /* with the NUL */
    uint8_t cert[1024];
    size_t cert_n;
    uint8_t id[WIRE_ID];
};
void kit_id_make(struct kit_id *k);

/* Trust: a list of ids with what to answer; others are strangers. */
struct kit_trust {
    struct {
        const uint8_t *id;
        int trust;
    } of[8];
    int n;
};
int kit_trusted(void *ctx, const uint8_t id[WIRE_ID]); /* ctx: struct kit_trust */

/* What the callbacks of one connection saw. ctx of its callbacks. */
struct kit_log {
    struct tls_conn *c; /* NULL after on_close */
    int opens, frames, drains, replaces, closes;
    struct tls_peer peer;
    struct tls_close why;
    char address[80];
    uint64_t bytes;            /* body and raw */
    struct frame *head, *tail; /* kept when `keep` */
    bool keep;
    void (*on_open)(struct kit_log *l);
    void (*on_frame)(struct kit_log *l, struct frame *f); /* then the frame is its */
    void *user;
};
extern const struct tls_conn_cb kit_cb; /* ctx: struct kit_log */

/* A node: pool and listener. Accepted connections get in[0], in[1], ... as logs. */
struct kit_node {
    uv_loop_t *loop;
    struct tls_pool *pool;
    struct tls_listen *listen;
    int port;
    struct kit_log *in;
    int n_in, max_in;
    struct kit_log model; /* copied into each new in[] */
    int closes;           /* of accepted ones that never opened */
    struct tls_close why; /* of the last of those */
    bool gone;
};
void kit_node_open(struct kit_node *n, uv_loop_t *loop, const struct tls_opts *o, const char *host,
                   int max_in);
void kit_node_close(struct kit_node *n); /* runs the loop until all is closed */
void kit_opts(struct tls_opts *o, const struct kit_id *k, struct kit_trust *t);
/* Connect to host:port; failures to start fail the test. */
void kit_connect(struct kit_node *from, struct kit_log *l, const char *host, int port,
                 const struct tls_conn_opts *o);

/* Run the loop until *flag >= want; false after `ms`. */
bool kit_until(uv_loop_t *loop, const int *flag, int want, unsigned ms);
bool kit_until_fn(uv_loop_t *loop, bool (*done)(void *), void *ctx, unsigned ms);
void kit_run_ms(uv_loop_t *loop, unsigned ms);

#endif
