/* SPDX-License-Identifier: MIT
 * disk_adopt.h: private to node/store: folders of others as a part of the disk tier, read only.
 *
 * A folder offers the objects whose shard, or expert file, lies in it. An offered object is looked
 * at once (disk_look.c): read whole, its digest computed, compared with whatever is known of it,
 * recorded. From then on it is on disk as the own files are, and read by the same checksums. What
 * was looked at stays so over restarts as long as the file is the same by size, time and inode; a
 * file that is not is looked at again. No descriptor is kept open; nothing is ever written there.
 *
 * An own file without a digest (catalog and journal are both lost) is looked at in the same way.
 *
 * Locks: disk.mu guards the states of objects and what a folder's arrays say; adopt.scan is held
 * over a whole look round the folders, before disk.mu. */
#ifndef SHOAL_STORE_DISK_ADOPT_H
#define SHOAL_STORE_DISK_ADOPT_H

#include "node/store/adopt_list.h"
#include "node/store/catalog_looked.h"
#include "node/store/disk.h"

#include <pthread.h>
#include <sys/stat.h>

enum adopt_pass {
    PASS_DUE,     /* there is a SHA-256 for the whole file, which was not compared yet */
    PASS_NONE,    /* there is none */
    PASS_WHOLE,   /* it is whole, by the name of its blob; whose it is nobody says */
    PASS_RIGHT,   /* it is the model's */
    PASS_REFUSED, /* it is another one */
};

struct adopt_folder {
    char *path;                 /* as long as the disk is open */
    int64_t key;                /* for the catalog */
    bool listed;                /* false: it was given up */
    bool here;                  /* something of it was there at the last look */
    bool refused;               /* its metadata are another model's */
    bool said_away;             /* that it is gone has been said */
    bool asked_meta, same_meta; /* its config and index were compared; are the model's */
    struct looked_file *shard;  /* [shards of the model] */
    uint8_t *pass;              /* [shards of the model], enum adopt_pass */
    struct looked_file *file;   /* [objects]: expert files as they were looked at; NULL: none */
    uint8_t *has_file;          /* bits by object: there is an expert file */
};

struct adopt {
    pthread_mutex_t scan;
    struct adopt_folder f[ADOPT_FOLDERS_MAX]; /* never moved, never taken out */
    uint32_t n;
    struct looked_file list; /* the file of the list at the last look */
    uint64_t scanned;        /* clock_ns of the last look round */
    bool hurry;              /* something was found gone or changed */
    uint32_t orphans;        /* own files without a digest */
};

/* Where an object's bytes are. */
struct adopt_place {
    char *path; /* owned */
    uint64_t at;
    struct looked_file want;     /* size 0: any */
    struct adopt_folder *folder; /* NULL: an own file */
    bool shard;
    bool packed; /* an own file that is packed */
};

/* With disk.mu, while the object is lent; false: no memory. */
bool adopt_where(struct disk *d, uint32_t id, struct adopt_place *out);
void adopt_file_of(const struct stat *st, struct looked_file *out);
bool adopt_same_file(const struct looked_file *a, const struct looked_file *b);

/* A lent object could not be read: its file or the whole folder is gone, changed, or damaged. Says
 * so, once. Without locks. Returns ERR_OFFLINE: it is to come from elsewhere. */
int adopt_trouble(struct disk *d, uint32_t id, const struct adopt_place *p, const struct err *e);
/* A digest computed from bytes that nobody here received, DIGEST_ORIGIN where the whole file is the
 * model's, else DIGEST_UNKNOWN, against what is known; it takes over what that rests on. Without
 * locks. ERR_DIGEST: they are other bytes. */
int adopt_judge(struct disk *d, uint32_t id, struct digest *dg, struct err *e);

/* ---- life; disk_open and disk_close ---- */
int adopt_open(struct disk *d, struct err *e);
void adopt_close(struct disk *d);

#endif
