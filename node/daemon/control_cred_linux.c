/* SPDX-License-Identifier: MIT
 * control_cred_linux.c: who is at the other end of a Unix socket: SO_PEERCRED. */
#include "node/daemon/control.h"

#include <sys/socket.h>

int control_peer_uid(int fd, unsigned *uid)
{
    struct ucred c;
    socklen_t n = sizeof c;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) || n != sizeof c) {
        return ERR_IO;
    }
    *uid = c.uid;
    return 0;
}
