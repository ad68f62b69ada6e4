/* SPDX-License-Identifier: MIT
 * home.h: the files of identity and membership below a node's home folder.
 *
 *   identity/node.key   the node's private key (PEM, 0600), written once
 *   identity/node.id    its id in text, so that a lost key is noticed
 *   identity/machine    a digest of the machine's id, so that a copied folder is noticed
 *   shoal/group         the id of the group this node belongs to: the pin
 *   shoal/roster        the newest signed roster
 *   shoal/roster.also   others that say more than it, signed by keepers at once (member_fork.c)
 *   shoal/group.key     the group's signing key (PEM, 0600), on keepers only
 *   shoal/invites/ID    one open or spent invite each, on keepers only
 *   networks            where Bonjour may announce
 *   bans                peers from which nothing is fetched until a stated time
 *   addresses           where members were met (discovery/remember.h)
 *   trust.lock          held while any of these is read and changed
 *
 * Everything is made 0600 in folders of 0700, and either written once or replaced as a whole. All
 * functions may be called from any thread and from several processes. */
#ifndef SHOAL_PEER_HOME_H
#define SHOAL_PEER_HOME_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define HOME_PATH_MAX 3072
#define HOME_LOCK_MS 10000

/* "home/rel" into path; ERR_LIMIT when that is too long. */
int home_path(const char *home, const char *rel, char path[HOME_PATH_MAX], struct err *e);
/* Does home/rel exist? (Anything but "no such file" counts as yes: it has to be looked at.) */
bool home_has(const char *home, const char *rel);
/* Append a whole file of at most max bytes. With `secret`, a file that others than its owner may
 * read or write is ERR_REFUSED with the command that mends it. A link is not followed. */
int home_read(const char *home, const char *rel, bool secret, size_t max, struct buf *out,
              struct err *e);
/* Make the file with these bytes, 0600 and down to the disk, and never over another: *made says
 * whether it is ours, or one was there already (which is left alone and is no error). The folder
 * must exist. Of two callers at once exactly one gets true. */
int home_write_once(const char *home, const char *rel, const void *p, size_t n, bool *made,
                    struct err *e);
/* Replace or make the file, all or nothing. */
int home_write(const char *home, const char *rel, const void *p, size_t n, struct err *e);
/* Changes when the file or folder home/rel is replaced, made or removed, or its times or size
 * change. `h` chains several; HOME_STAMP at first. */
#define HOME_STAMP 0xcbf29ce484222325u
uint64_t home_stamp(const char *home, const char *rel, uint64_t h);
/* Make the folder home/rel, and home above it. */
int home_folder(const char *home, const char *rel, struct err *e);
/* Remove what a process killed in the middle of a write left in the folder home/rel; with the lock
 * held, so that nobody else is in the middle of one. */
void home_sweep(const char *home, const char *rel);
/* Take the lock of this home's trust files, waiting at most ten seconds for another holder
 * (ERR_BUSY then). The result goes to home_unlock. Not recursive. */
int home_lock(const char *home, int *lock, struct err *e);
/* The same, waiting at most `ms`; for a thread that must not be held up. */
int home_lock_for(const char *home, unsigned ms, int *lock, struct err *e);
void home_unlock(int lock);

#endif
