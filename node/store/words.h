/* SPDX-License-Identifier: MIT
 * words.h: the store and the words of others about digests: signed statements of members
 * (peer/statement.h), an imported manifest (manifest.h), audits. The third contract of the store,
 * beside store.h and share.h; node/daemon puts it together with the mesh.
 *
 * What follows from a word: it raises what digests rest on where it agrees, keeps bytes out that it
 * contradicts, and makes its signer a liar when this node's own download or the manifest denies it:
 * then all that member's words are void, on disk too, until store_words_believe; what rested on
 * them alone is taken back and fetched again before it is used.
 *
 * Any thread; everything but store_words_seen, _next and _known may wait for the disk. Without a
 * disk tier there are no words. */
#ifndef SHOAL_NODE_STORE_WORDS_H
#define SHOAL_NODE_STORE_WORDS_H

#include "node/store/store.h"
#include "peer/statement.h"

struct store_words_listener {
    void *ctx;
    /* A member's word is void from now on. Any thread, no lock held; it must not call the store. */
    void (*voided)(void *ctx, const uint8_t member[SHA256_SIZE], const char *why);
    /* A member as people know it, into out[cap]. */
    void (*name)(void *ctx, const uint8_t member[SHA256_SIZE], char *out, size_t cap);
    /* The bytes of these objects count no longer: for other processes that use this cache. `why`
     * is a sentence about the first of them. */
    void (*taken_back)(void *ctx, const uint32_t *ids, size_t n, const char *why);
};
/* Which member this node is: its own word is never void. Before anything else here. */
void store_words_self(struct store *st, const uint8_t self[SHA256_SIZE]);
/* NULL: nobody. */
void store_words_listen(struct store *st, const struct store_words_listener *l);

/* A statement whose signature is good, of a member. ERR_REFUSED: its word is void. */
int store_words_take(struct store *st, const uint8_t signer[SHA256_SIZE], const void *blob,
                     size_t n, bool *taken, struct err *e);
struct store_words_seen {
    uint8_t signer[SHA256_SIZE];
    uint64_t seq; /* UINT64_MAX: its word is void, nothing of it is wanted */
};
size_t store_words_seen(struct store *st, struct store_words_seen *out, size_t max);
/* Is the statement of that number, or a later one, here already (or not wanted)? */
bool store_words_known(struct store *st, const uint8_t signer[SHA256_SIZE], uint64_t seq);
/* The signer's next statement after number seq, appended; *more: there are further ones. */
bool store_words_next(struct store *st, const uint8_t signer[SHA256_SIZE], uint64_t seq,
                      struct buf *out, uint64_t *got, bool *more);
/* What a new statement of this node (`self`) should say: *v (freed by the caller) with n entries,
 * ascending, of which the first STATEMENT_OBJECTS_MAX fit; *seq is the number to give it. Many
 * small statements are replaced by few large ones. n 0: nothing. */
int store_words_due(struct store *st, const uint8_t self[SHA256_SIZE], struct statement_entry **v,
                    size_t *n, uint64_t *seq, struct err *e);

/* Another number than before: something may be due. */
uint64_t store_words_stamp(struct store *st);

/* A member stated what something stronger has denied. */
void store_words_lied(struct store *st, const uint8_t member[SHA256_SIZE], const char *why);
/* Its word counts again from now on. ERR_NOTFOUND: it is not void. */
int store_words_believe(struct store *st, const uint8_t member[SHA256_SIZE], struct err *e);
/* It is no member any more: its statements are forgotten. */
void store_words_forget(struct store *st, const uint8_t member[SHA256_SIZE]);

/* Has a manifest been imported, or another one? From time to time. */
void store_words_look(struct store *st);
/* Compare one chunk that rests on members' words, chosen by `random`, with the origin. *bytes read
 * from it; 0: there is nothing to audit, or no origin. ERR_DIGEST: it differs (and what follows
 * from that has happened). Other errors: the origin does not answer. */
int store_words_audit(struct store *st, uint64_t random, uint64_t *bytes, struct err *e);

struct store_words_member {
    uint8_t id[SHA256_SIZE];
    uint32_t statements, objects; /* signed, and how many objects they speak of */
    uint64_t alone;               /* objects on disk that rest on its word alone */
    uint64_t void_at;             /* wall clock; 0: its word counts */
    char why[200];
};
#define STORE_WORDS_MEMBERS 63
size_t store_words_members(struct store *st, struct store_words_member *out, size_t max);
/* Objects that the imported manifest knows, 0: there is none; its file's SHA-256. */
void store_words_manifest(struct store *st, uint32_t *objects, uint8_t sha256[SHA256_SIZE]);

/* ---- manifests in a cache folder whose model need not be open ---- */

/* Put a manifest (its bytes; whoever vouches for it has been checked) in place of the one that is
 * there. Refused in words (ERR_DIGEST) when objects that the cache has by its own download differ:
 * then it is of another checkpoint with the same metadata. A node that runs notices. */
int store_manifest_import(const char *cache_dir, const void *p, size_t n, struct err *e);
/* Append the one that was imported for a model (its root, 64 hex digits or the first 16).
 * ERR_NOTFOUND. */
int store_manifest_export(const char *cache_dir, const char *root_hex, struct buf *out,
                          struct err *e);
/* Append what this cache's own downloads (and the imported manifest) say, not yet ended
 * (manifest_end): begun by manifest_begin with no shards. */
int store_manifest_gather(struct store *st, struct buf *out, uint32_t *known, struct err *e);

#endif
