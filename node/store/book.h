/* SPDX-License-Identifier: MIT
 * book.h: private to node/store: what others say about the digests of one model's objects: signed
 * statements of members (peer/statement.h) and a published manifest (manifest.h). It only knows
 * who said what; what follows for objects on disk is in disk_words.c.
 *
 * Members have numbers (catalog_words.h); sets of them are bits of a uint64_t. Whose word is void
 * says nothing. Any thread; its mutex is held over no other lock and no call. */
#ifndef SHOAL_STORE_BOOK_H
#define SHOAL_STORE_BOOK_H

#include "node/model/model.h"
#include "node/store/catalog_words.h"
#include "node/store/manifest.h"
#include "peer/statement.h"

#define BOOK_BYTES_MAX ((size_t)96 << 20) /* of all statements in memory: K3, 28 members */
#define BOOK_BLOBS_MAX 1024               /* of one member */

struct book; /* opaque */

struct book_opts {
    const struct model *m; /* these three live longer */
    struct catalog *cat;
    int64_t model_no;
    const char *manifest; /* path of the imported one, if there is one */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};
int book_open(const struct book_opts *o, struct book **out, struct err *e);
void book_close(struct book *b);

/* The object that a key names (share.h); MODEL_NONE. */
uint32_t book_object(const struct model *m, struct object_key k);
struct object_key book_key(const struct model *m, uint32_t id);

/* A member's number, given now if it had none (then it writes to the disk); 0: there are too many.
 */
uint32_t book_member(struct book *b, const uint8_t id[SHA256_SIZE]);
/* The same for what is known already. */
uint32_t book_member_known(struct book *b, const uint8_t id[SHA256_SIZE]);
/* False: no such number. objects: that its statements speak of. */
bool book_member_get(struct book *b, uint32_t no, struct catalog_member *out, uint32_t *objects);
uint64_t book_void_set(struct book *b); /* bits of those whose word is void */
/* Its word counts no longer (why, a sentence), or again (NULL). True: that is news. */
int book_void(struct book *b, uint32_t no, const char *why, bool *news, struct err *e);
/* What it said is forgotten, nothing is held against it (it left the shoal). */
int book_forget(struct book *b, uint32_t no, struct err *e);

struct book_says {
    enum basis basis; /* BASIS_NONE: nothing, or what is said is said as often as its opposite */
    uint8_t digest[SHA256_SIZE];
    uint64_t who;  /* members, unless it is the manifest */
    bool disputed; /* somebody whose word counts says otherwise */
};
/* The strongest of what is said about an object. */
void book_says(struct book *b, uint32_t object, struct book_says *out);
/* Members whose statements have this digest, and those that have another. */
uint64_t book_agree(struct book *b, uint32_t object, const uint8_t digest[SHA256_SIZE],
                    uint64_t *against);

/* A statement whose signature is good. *taken false: an old one. ERR_REFUSED: its word is void;
 * ERR_FORMAT: of another model, or of objects that the model has not; ERR_LIMIT. Writes to the
 * disk. */
int book_take(struct book *b, const uint8_t signer[SHA256_SIZE], const void *blob, size_t n,
              bool *taken, struct err *e);
struct book_seen {
    uint8_t signer[SHA256_SIZE];
    uint64_t seq; /* the highest number here; UINT64_MAX: its word is void */
};
size_t book_seen(struct book *b, struct book_seen *out, size_t max);
/* The signer's next statement after number seq, appended; false: there is none. */
bool book_next(struct book *b, const uint8_t signer[SHA256_SIZE], uint64_t seq, struct buf *out,
               uint64_t *got, bool *more);
/* The digest that a member's statements have for an object; false: none. */
bool book_word(struct book *b, uint32_t no, uint32_t object, uint8_t digest[SHA256_SIZE]);
/* How many statements there are of it, and how many would do. */
void book_count(struct book *b, uint32_t no, uint32_t *blobs, uint32_t *objects);

/* Read the imported manifest again. True: it is another one than before (or gone). */
bool book_look_manifest(struct book *b);
/* 0 objects: there is none. */
void book_manifest_info(struct book *b, uint32_t *objects, uint8_t sha256[SHA256_SIZE]);

#endif
