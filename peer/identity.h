/* SPDX-License-Identifier: MIT
 * identity.h: who this node is: one P-256 key, made once and never replaced, and the forms in
 * which its id (the SHA-256 of the key's SubjectPublicKeyInfo) is shown to people and read back.
 *
 * An id in full is 52 characters of base 32 and 4 check characters in 14 groups of four; the short
 * form is its first 10 characters and 2 check characters in three groups ("k7qm-3v9d-x2ef"). Both
 * are also used for the id of a group. */
#ifndef SHOAL_PEER_IDENTITY_H
#define SHOAL_PEER_IDENTITY_H

#include "peer/crypto.h"

#define ID_TEXT 70  /* the full form with its NUL */
#define ID_SHORT 15 /* the short form with its NUL */

void id_text(const struct key_id *id, char out[ID_TEXT]);
void id_short(const struct key_id *id, char out[ID_SHORT]);
/* The short form from the first characters of an id without dashes, at least ten and nothing
 * else, such as an announcement has. False, and out empty: they are none. */
bool id_short_of(const char *chars, char out[ID_SHORT]);
bool id_equal(const struct key_id *a, const struct key_id *b);
/* The full form back, however it was typed (spaces, dashes, case). A wrong check is ERR_FORMAT. */
int id_parse(const char *text, struct key_id *out, struct err *e);
/* Which of ids[0..n) `text` means: a full form, a short form (both checked) or the first 4 to 10
 * characters. ERR_FORMAT when mistyped, ERR_NOTFOUND when it is none of them, ERR_ARG when it fits
 * more than one. */
int id_find(const char *text, const struct key_id *ids, size_t n, size_t *which, struct err *e);

#define MACHINE_MARK 16

struct identity {
    struct crypto_key *key; /* owned */
    struct key_id id;
    bool fresh; /* made by this call */
    /* A digest of this machine's id, bound to the node id so that it says nothing elsewhere; all
     * zero where the system offers none. */
    uint8_t machine[MACHINE_MARK];
    bool moved;      /* the folder was last used on another machine */
    uint8_t run[16]; /* random, new in every call: tells two running copies apart */
};

/* Open the identity of a home, making the key if there never was one. Two processes at once get
 * the same key. A key that is unreadable, malformed, open to others, not the one node.id names, or
 * gone while node.id is there, is an error that names the file and what to do: nothing is ever
 * replaced. `machine_id` is NULL for the system's own (tests and containers may name one).
 * A folder that moved stays marked as that until identity_settle. */
int identity_open(const char *home, const char *machine_id, struct identity *out, struct err *e);
/* The present machine is the right one from now on. */
int identity_settle(const char *home, struct identity *me, struct err *e);
void identity_close(struct identity *me);
/* The sentence for a moved folder, at start-up. */
void identity_moved_text(const struct identity *me, char *out, size_t cap);

/* The system's machine id in text (at most cap - 1 bytes), or ERR_NOTFOUND. */
int machine_id(char *out, size_t cap);

#endif
