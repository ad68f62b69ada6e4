/* SPDX-License-Identifier: MIT
 * control_cred_darwin.c: who is at the other end of a Unix socket: getpeereid. */
#include "node/daemon/control.h"

#include <sys/types.h>
#include <unistd.h>

int control_peer_uid(int fd, unsigned *uid)
{
    uid_t u;
    gid_t g;
    if (getpeereid(fd, &u, &g)) {
        return ERR_IO;
    }
    *uid = u;
    return 0;
}
