/* SPDX-License-Identifier: MIT
 * at_rest.c: what commands read and change in a home whose node does not run. See node.h. */
#include "node/daemon/node_int.h"

#include "peer/home.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A port that is free now, on all addresses. */
static int free_port(int *port, struct err *e)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    socklen_t n = sizeof a, n4 = sizeof a4;
    int fd = socket(AF_INET6, SOCK_STREAM, 0), r = 0;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) &&
        !getsockname(fd, (struct sockaddr *)&a, &n)) {
        *port = ntohs(a.sin6_port);
    } else { /* a machine without IPv6 */
        if (fd >= 0) {
            close(fd);
        }
        fd = socket(AF_INET, SOCK_STREAM, 0);
        r = fd < 0 || bind(fd, (struct sockaddr *)&a4, sizeof a4) ||
                    getsockname(fd, (struct sockaddr *)&a4, &n4)
                ? err_sys(e, errno, "no port is free")
                : 0;
        *port = ntohs(a4.sin_port);
    }
    if (fd >= 0) {
        close(fd);
    }
    return r;
}

int node_next_port(const char *home, int *port, struct err *e)
{
    struct node_files f;
    files_load(home, &f, NULL, NULL);
    *port = f.port;
    files_free(&f);
    if (*port) {
        return 0;
    }
    int r = free_port(port, e);
    r = r ? r : home_folder(home, "run", e);
    return r ? r : files_save_port(home, *port, e);
}

int node_keep_peer(const char *home, const char *host_port, struct err *e)
{
    struct node_files f;
    int lock, r = files_check_peer(host_port, e);
    r = r ? r : home_folder(home, "", e);
    r = r ? r : home_lock(home, &lock, e);
    if (r) {
        return r;
    }
    files_load(home, &f, NULL, NULL);
    size_t before = f.n_peers;
    if (files_add_peer(&f, host_port)) {
        r = files_save_peers(home, &f, e);
    } else if (before == DISCO_STATIC_MAX) {
        r = err_set(e, ERR_LIMIT, "%s/peers holds %d peers already: remove some there", home,
                    DISCO_STATIC_MAX);
    }
    files_free(&f);
    home_unlock(lock);
    return r;
}
