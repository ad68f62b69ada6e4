/* SPDX-License-Identifier: MIT
 * bare_tls.h: the plainest TLS there is: one blocking socket, one thread, the same library. Tests
 * use it as a member that misbehaves, bench_tls as what Shoal's transport is compared with. */
#ifndef SHOAL_TESTS_PEER_BARE_TLS_H
#define SHOAL_TESTS_PEER_BARE_TLS_H

#include "tests/peer/wire_kit.h"

struct bare;

int bare_listen(int *port); /* a listening socket on 127.0.0.1 */
int bare_connect(int port); /* a connected one; reads time out after 20 s */
/* Takes fd. `id` NULL: shows no certificate. Any certificate of the other side is accepted. */
struct bare *bare_new(int fd, bool server, const struct kit_id *id, enum tls_family prefer);
int bare_handshake(struct bare *b);                      /* 0 or the library's error */
int bare_write(struct bare *b, const void *p, size_t n); /* all of it: 0, or the library's error */
int bare_read(struct bare *b, void *p, size_t n);        /* the same */
/* Is there something to read, at most `ms` from now? */
bool bare_wait(struct bare *b, int ms);
int bare_socket(const struct bare *b); /* to write past TLS */
const char *bare_suite(const struct bare *b);
void bare_free(struct bare *b, bool notify); /* closes the socket, with a close_notify or without */

#endif
