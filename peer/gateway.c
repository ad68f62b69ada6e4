/* SPDX-License-Identifier: MIT
 * gateway.c: what gateway.h needs of every system; the tables are read in gateway_linux.c and
 * gateway_darwin.c. */
#include "peer/gateway.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DISCARD_PORT 9

void gateway_ask(uint32_t ifindex, const struct gateway *g)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(DISCARD_PORT)};
    struct sockaddr_in6 a6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(DISCARD_PORT), .sin6_scope_id = ifindex};
    int fd = g->has_addr ? socket(g->v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0) : -1;
    if (fd < 0) {
        return;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    memcpy(&a4.sin_addr, g->addr, 4);
    memcpy(&a6.sin6_addr, g->addr, 16);
    const struct sockaddr *to = g->v6 ? (const struct sockaddr *)&a6 : (const struct sockaddr *)&a4;
    ssize_t sent = sendto(fd, "", 0, MSG_DONTWAIT, to, g->v6 ? sizeof a6 : sizeof a4);
    (void)sent; /* what matters is the entry in the table */
    close(fd);
}
