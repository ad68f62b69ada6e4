/* SPDX-License-Identifier: MIT
 * listen.h: accepts connections for a tls_pool, within its limits.
 *
 * A connection over a limit is closed before a byte is read or written and counted (over_limit of
 * tls_pool_stats). All others get the listener's callbacks and ctx (tls_conn_set_owner in
 * on_open gives them their own); on_close comes also for those that never opened, once each. Loop
 * thread.
 */
#ifndef SHOAL_PEER_LISTEN_H
#define SHOAL_PEER_LISTEN_H

#include "peer/tls_conn.h"

struct tls_listen;

/* `host` is a numeric IPv4 or IPv6 address ("::" takes both), port 0 lets the system choose. */
int tls_listen_open(struct tls_pool *p, uv_loop_t *loop, const char *host, int port,
                    const struct tls_conn_cb *cb, void *ctx, struct tls_listen **out,
                    struct err *e);
int tls_listen_port(const struct tls_listen *l);
/* Accepts no more; connections go on. `closed` may be NULL. */
void tls_listen_close(struct tls_listen *l, void (*closed)(void *ctx), void *ctx);

#endif
