/* SPDX-License-Identifier: MIT
 * hub_tls.h: TLS for hub.c: an authority and a server certificate made at run time, and the
 * plainest blocking connection, with TLS or without. */
#ifndef TEST_STORE_HUB_TLS_H
#define TEST_STORE_HUB_TLS_H

#include <stdbool.h>
#include <stddef.h>

struct hub_cert; /* opaque: a key and certificate for 127.0.0.1, ::1 and localhost */
/* Made and signed by a new authority whose certificate is written to ca_path, as PEM. */
struct hub_cert *hub_cert_new(const char *ca_path);
void hub_cert_free(struct hub_cert *c);

struct hub_conn; /* opaque */
/* Takes the connected socket. cert NULL: plain. NULL: the handshake has failed; it is closed. */
struct hub_conn *hub_conn_new(int fd, struct hub_cert *cert);
bool hub_write(struct hub_conn *c, const void *p, size_t n); /* all of it */
long hub_read(struct hub_conn *c, void *p, size_t n);        /* 0 and less: the end */
int hub_socket(const struct hub_conn *c);
void hub_conn_free(struct hub_conn *c);

#endif
