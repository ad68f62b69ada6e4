/* SPDX-License-Identifier: MIT
 * forms.h: how the spine lies on disk: each bf16 object as it is, or packed into about two thirds
 * of its bytes (packed.h). It changes no byte of what the store gives: get, read, serving, checks
 * see the object. Reading a packed object costs fewer bytes of the disk and time of a core; its
 * packed file can be kept in memory, where the plain bytes would not fit.
 *
 * Any thread, unless said otherwise. Without a cache folder there is one form only. */
#ifndef SHOAL_STORE_FORMS_H
#define SHOAL_STORE_FORMS_H

#include "node/store/store.h"

struct store_forms {
    uint32_t objects, packed;    /* of the spine on disk that have two forms; that are packed */
    uint64_t bytes, packed_from; /* of their weights; of those that are packed */
    uint64_t packed_bytes;       /* that these take on disk */
    uint64_t kept;               /* bytes of packed files in memory, of all */
};
void store_get_forms(struct store *st, struct store_forms *out);
/* Bytes of the object's packed file; 0: it is not packed. */
uint64_t store_packed(struct store *st, uint32_t id);
/* Has the object two forms, and does it lie in the cache itself? */
bool store_has_forms(struct store *st, uint32_t id);

/* The packed files of these objects come into memory, several at a time, and stay there until
 * store_close: from then on they are unpacked from there. ERR_NOTFOUND: one is not packed. */
int store_keep_packed(struct store *st, const uint32_t *ids, size_t n, struct err *e);

/* Changing forms: one process at a time has the right to (ERR_BUSY), and its threads may change
 * different objects at once. Others that use the cache go on. A kill leaves each object in one form
 * or the other. store_convert: ERR_NOTFOUND where there is one form only; ERR_FULL; ERR_DIGEST: the
 * file there is damaged, or what was written is not what it should be: it stays as it was. */
struct store_converting; /* opaque */
int store_convert_begin(struct store *st, struct store_converting **out, struct err *e);
int store_convert(struct store_converting *c, uint32_t id, bool packed, struct err *e);
void store_convert_end(struct store_converting *c);

/* What was decided about it and why, one line kept in the cache for people and for the next time;
 * "" when nothing was. */
#define STORE_FORMS_NOTE 400
void store_forms_note(struct store *st, char out[STORE_FORMS_NOTE]);
int store_forms_say(struct store *st, const char *note, struct err *e);

/* Bytes a second at which the spine's files come from the disk, past the page cache where that can
 * be, several at a time, for about `seconds`. ERR_NOTFOUND: there are none. */
int store_measure_disk(struct store *st, double seconds, double *rate, struct err *e);

#endif
