/* SPDX-License-Identifier: MIT
 * disk_inner.h: what disk.c and disk_write.c share. */
#ifndef SHOAL_STORE_DISK_INNER_H
#define SHOAL_STORE_DISK_INNER_H

#include "node/store/book.h"
#include "node/store/catalog.h"
#include "node/store/disk.h"
#include "node/store/disk_adopt.h"
#include "node/store/layout.h"
#include "node/store/packed.h"
#include "node/store/quarantine.h"
#include "node/store/session.h"

#include <pthread.h>

#define DISK_CHUNKS_KEPT 8
#define DISK_READ_SIZE ((size_t)4 << 20) /* of whole objects at a time; whole chunks */

struct disk_item {
    struct digest *digest; /* on record; those that it has replaced hang on it to the end */
    uint64_t last_use;     /* microseconds since 1970, and always more than any before */
    uint64_t partial_bytes;
    uint64_t
        packed; /* bytes of the cache's own file, which is packed; 0: it is the object's bytes */
    uint32_t pins;
    uint32_t place; /* in disk.order, counted from 1; 0: not in it */
    bool found;     /* at open: there is a file */
    bool back;      /* at open: the journal says that it was taken back */
    bool own;       /* a file of the cache, and its digest */
    bool present;   /* own, or lent by a folder and looked at */
    bool orphan;    /* a file of the cache without a digest: to be looked at */
    uint8_t lent;   /* 1 + number of the adopted folder that offers it; 0: none does */
    bool seen;      /* lent: it was looked at and agrees with the digest on record */
    bool refused;   /* lent: it does not, or cannot be read */
    bool partial;   /* an unfinished file is in the session folder, in nobody's hands */
    bool used_now;  /* last_use has changed since open */
    bool noted;     /* in disk.noted */
    bool stale;     /* a bad file that could not be removed lies in its place, */
    bool litter;    /* or an unfinished one that is of no use in the session folder */
};

/* A packed file in memory, to be read from there for good (disk_form.c). */
struct disk_image {
    struct packed at;
    uint8_t *ram;
    struct disk_image *next; /* in image_dead */
};

struct disk_kept {
    uint8_t *p; /* one verified chunk */
    uint32_t id, chunk;
    uint64_t used;
};

struct disk {
    struct disk_opts o;
    char *dir, *journal, *manifest, *quarantine_dir;
    uint32_t n;
    struct catalog *cat;
    int64_t model_no;
    bool uncached; /* large objects are read past the page cache */
    struct session *session;
    struct book *book;
    uint64_t self; /* bit of this node among members */
    bool adopt_open;
    struct adopt adopt;
    struct quarantine quarantine;

    pthread_mutex_t again;    /* one at a time looks whether it can be written again; before mu */
    pthread_mutex_t mu;       /* what follows */
    enum layout_state closed; /* nothing is written: there is no session, the catalog is a copy */
    bool was_closed;
    struct err closed_why;
    struct disk_item *it;
    uint64_t used, experts, others, reserved, partial_bytes, tick, kept_tick;
    uint32_t *order; /* [n]: what may leave, a heap: order[0] is the first (disk_order.c) */
    uint32_t n_order, n_stale; /* in order; marks "stale" and "litter" */
    uint64_t written;          /* bytes, since disk_written was asked */
    uint64_t counted;          /* bytes of that day which are not in MODEL/written yet */
    int32_t count_day;
    struct disk_kept kept[DISK_CHUNKS_KEPT];
    uint32_t *noted; /* [n]: whose presence has changed; NULL: nobody wants to know */
    uint32_t n_noted;
    uint64_t digests_set;          /* counts what has been recorded */
    struct disk_image **image;     /* [n], NULL: none is kept; an image goes with the disk */
    struct disk_image *image_dead; /* not used any more */
    uint64_t image_bytes;
    uint8_t *rank; /* [n]: of what is here or may come; NULL: all are alike */
    uint8_t rank_most;
};

/* ---- disk_closed.c ---- */
/* At open: the folders, and this process's own one (nothing of that while closed). */
int disk_prepare(struct disk *d, const char *hex, struct err *e);
/* At open, after a failure: is it that nothing can be written? Then it is closed from now on. */
bool disk_close_for_writing(struct disk *d);

void disk_log(struct disk *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* With mu: `id` enters, leaves or changes its place in the order of what leaves first, after its
 * presence, pins, last use or rank have changed. */
void disk_order_set(struct disk *d, uint32_t id);
void disk_order_all(struct disk *d); /* the same for all */
/* Bytes have been written to the cache; without mu. */
void disk_wrote(struct disk *d, uint64_t bytes);
void disk_count_end(struct disk *d); /* what it wrote goes to MODEL/written; at the end */
/* With mu: reserve `size` bytes of budget and volume for an object, evicting for it. */
int disk_room(struct disk *d, uint32_t id, uint64_t size, bool second, struct err *e);
/* With mu: presence, or what is on record; noted for disk_changes. */
void disk_note(struct disk *d, uint32_t id);
void disk_set_digest(struct disk *d, uint32_t id, struct digest *dg);
void disk_set_own(struct disk *d, uint32_t id, bool own);
void disk_refresh(struct disk *d, uint32_t id); /* present, from the rest */
void disk_drop_kept(struct disk *d, uint32_t id);
const struct digest *disk_digest_of(struct disk *d, uint32_t id);
/* A new digest against what others say of the object (disk_words.c): what it rests on is raised
 * where they agree; ERR_DIGEST where something as strong or stronger denies it. */
int disk_judge(struct disk *d, uint32_t id, struct digest *dg, struct err *e);
/* An unfinished file is of no use any more; the second with mu. */
void disk_unfinished(struct disk *d, uint32_t id);
void disk_unfinished_locked(struct disk *d, uint32_t id);
/* The cache's own file is gone, or bad and set aside (quarantine.c): no longer there. */
void disk_forget(struct disk *d, uint32_t id, const char *path);
/* ---- disk_form.c: plain or packed ---- */
/* With mu: the path of the cache's own file, in its form, malloc'ed; its bytes. */
char *disk_own_path(struct disk *d, uint32_t id);
uint64_t disk_own_bytes(struct disk *d, uint32_t id);
/* With mu: its own file is packed now and has so many bytes; 0: it is plain. */
void disk_set_form(struct disk *d, uint32_t id, uint64_t packed);
/* Without mu, where a file was not there: it has the other form now (another process has changed
 * it). */
bool disk_form_switched(struct disk *d, uint32_t id);
/* A plain file has been published: a packed one beside it is out of date. */
void disk_form_published(struct disk *d, uint32_t id);
/* At open: of an object in both forms (a change was cut off) the packed one stays. */
void disk_form_settle(struct disk *d);
/* With mu: unlinks the own file in either form. True: none is left. */
bool disk_unlink_own(struct disk *d, uint32_t id);
/* An image that is damaged is not used any more; what is there, is read from its file. */
void disk_image_bad(struct disk *d, uint32_t id, const struct packed *image);
void disk_form_close(struct disk *d);

void disk_remove(struct disk *d, uint32_t id); /* the file goes, though nothing is wrong with it */
/* Without mu: digests to journal and catalog, in this order; rows[i].result says where another
 * digest, not beaten by this one, was on record. */
int disk_record(struct disk *d, struct catalog_row *rows, size_t n, struct err *e);
/* Without mu: a new digest against the one on record, which gives way to one that rests on more.
 * ERR_DIGEST: it does not. */
int disk_compare(struct disk *d, uint32_t id, struct digest *dg, struct err *e);

#endif
