/* SPDX-License-Identifier: MIT
 * keeper.h: where the signing key of a shoal may go: to a second keeper, and under a passphrase
 * into a backup. It never leaves a keeper in any other form.
 *
 * A backup is text. Its first line says what it is; the rest is base 32 in groups of four
 * (peer/b32.h) of: 1 version (1), 4 iterations (little-endian), 32 group id, 16 salt, 12 nonce,
 * 32 encrypted private key, 16 tag, 4 first bytes of the SHA-256 of all before. The key is
 * encrypted by AES-256-GCM, the 65 bytes before the encrypted part authenticated with it, under
 * PBKDF2-HMAC-SHA256 of the passphrase. */
#ifndef SHOAL_PEER_KEEPER_H
#define SHOAL_PEER_KEEPER_H

#include "peer/member.h"

#define KEEPER_SEALED (CRYPTO_SECRET + CRYPTO_SEAL_EXTRA)
#define BACKUP_ITERATIONS 600000u /* about a second; what new backups have */
#define BACKUP_ITERATIONS_MIN 10000u
#define BACKUP_ITERATIONS_MAX 10000000u
#define BACKUP_TEXT_MAX 1024
#define BACKUP_PASS_MIN 8 /* bytes */
#define BACKUP_PASS_MAX 1024

/* Mark a member as keeper in the roster (`which` as in id_find). The key itself follows when the
 * two nodes are connected: the new keeper asks, keeper_seal answers. */
int keeper_add(struct member *m, const char *which, struct key_id *id, struct err *e);
/* Does this node still have to ask for the key? */
bool keeper_wanted(const struct member *m);
/* The signing key for this node only. ERR_REFUSED unless the roster marks it as keeper. */
int keeper_seal(const struct member *m, const struct key_id *to, uint8_t out[KEEPER_SEALED],
                struct err *e);
/* The answer to keeper_wanted. Anything but this shoal's signing key is refused. */
int keeper_take(struct member *m, const void *sealed, size_t n, struct err *e);

/* Append the backup's text. The passphrase is bytes as typed; iterations 0 for the usual. */
int keeper_backup(const struct member *m, const char *pass, size_t pass_n, uint32_t iterations,
                  struct buf *out, struct err *e);
/* Bring the signing key back. A home in no shoal becomes a keeper of that one (its roster lists
 * only itself until it meets a member and both lists are joined); in the same shoal it becomes a
 * keeper again. ERR_DIGEST: the passphrase is wrong; ERR_FORMAT: the text is damaged or no backup.
 */
int keeper_restore(struct member *m, const char *text, size_t n, const char *pass, size_t pass_n,
                   uint64_t now, struct err *e);

#endif
