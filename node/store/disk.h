/* SPDX-License-Identifier: MIT
 * disk.h: private to node/store: the disk tier of one model. Files with exactly an object's bytes,
 * published by rename after their digest is in journal and catalog; partial files that survive the
 * death of the process; byte budget and free-space floor. Any thread; it has a mutex of its own and
 * calls nobody back but the log. */
#ifndef SHOAL_STORE_DISK_H
#define SHOAL_STORE_DISK_H

#include "node/model/model.h"
#include "node/store/chunk.h"
#include "proto/base/err.h"

#include <stdbool.h>

struct disk; /* opaque */

struct disk_back { /* an object whose bytes were taken back */
    uint32_t id;
    uint64_t who; /* on whose word they rested, as bits; 0: not on record */
};

struct disk_opts {
    const char *cache_dir;
    const struct model *m; /* outlives the disk */
    uint64_t budget;       /* bytes, 0 = none */
    uint64_t floor;        /* bytes left free on the volume */
    bool past_cache;       /* as store_opts */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    /* Something has been noted for disk_changes; called with the disk's mutex held. */
    void (*changed)(void *ctx);
    void *changed_ctx;
    /* disk_words.c; called without a lock. The bytes of objects do not count any more, in RAM
     * neither; a member's word does not any more, and, after what is on record here was settled,
     * those words (bits) do not. May be NULL. */
    void (*taken_back)(void *ctx, const struct disk_back *v, size_t n, const char *why);
    void (*voided)(void *ctx, const uint8_t member[SHA256_SIZE], const char *why);
    void (*settled)(void *ctx, uint64_t lost, const char *why);
    void *words_ctx;
    /* The SHA-256 of a whole file of the model, where it is known: metadata, and shards whose
     * entity tag at a hub is one. Any thread. May be NULL. */
    bool (*known_sha)(void *ctx, const char *file, uint8_t sha[SHA256_SIZE]);
    void *known_ctx;
};

/* Opens (makes, repairs) the model's part of the cache. */
int disk_open(const struct disk_opts *o, struct disk **out, struct err *e);
void disk_close(struct disk *d);

/* 0, or ERR_FULL (the volume) or ERR_REFUSED (it may only be read) and a sentence: nothing is
 * written now. `look`: it is first tried to go on writing. Without mu. */
int disk_closed(struct disk *d, bool look, struct err *e);

bool disk_has(struct disk *d, uint32_t id);
/* As disk_has, and looks whether another process has published it meanwhile. */
bool disk_look(struct disk *d, uint32_t id);
/* The last chunk of an object, by a digest that rests on our own download; false: there is none. */
bool disk_last_chunk(struct disk *d, uint32_t id, uint32_t *chunk, uint64_t *xxh);
/* Wanted by a present request (+1) or no longer (-1): such an object is not evicted. Counts as use.
 */
void disk_pin(struct disk *d, uint32_t id, int by);

/* The whole object into p, every chunk verified. On a missing, short, long or damaged file: the
 * file is removed and forgotten (its digest is not), and the sentence names it. */
int disk_read(struct disk *d, uint32_t id, uint8_t *p, struct err *e);
/* n bytes at off; the chunks that hold them are verified. */
int disk_read_part(struct disk *d, uint32_t id, uint64_t off, void *p, size_t n, struct err *e);

/* One chunk of at most CHUNK_SIZE bytes. ERR_BUSY: it cannot be opened now, nothing is wrong. */
int disk_read_chunk(struct disk *d, uint32_t id, uint32_t chunk, uint8_t *p, size_t *n,
                    struct err *e);

/* ---- the forms of the spine on disk (disk_form.c) ---- */

/* Bytes that reading the object whole takes from the disk: those of the file in the cache or a
 * folder, 0 when its packed form is kept in memory. */
uint64_t disk_cost(struct disk *d, uint32_t id);
/* Bytes of the packed file; 0: it is not packed. */
uint64_t disk_packed(struct disk *d, uint32_t id);
/* The right to change forms, for one process at a time; ERR_BUSY: another has it. *fd is to be
 * given to disk_form_unlock. */
int disk_form_lock(struct disk *d, int *fd, struct err *e);
void disk_form_unlock(int fd);
/* With that right: the cache's own file of the object becomes packed, or plain. The new file is
 * written beside it, synced, read back and compared with the object's digest, renamed; then the old
 * one goes. A kill at any time leaves at least one of them. ERR_NOTFOUND: there is no own file, or
 * it has only one form. Other objects may be changed at the same time by other threads. */
int disk_convert(struct disk *d, uint32_t id, bool packed, struct err *e);
/* The packed file comes into memory and stays until disk_close; reads are from there.
 * ERR_NOTFOUND: it is not packed. */
int disk_keep(struct disk *d, uint32_t id, struct err *e);
uint64_t disk_kept_bytes(struct disk *d);

/* ---- for sharing (disk_share.c) ---- */

/* On disk, with the SHA-256s of its chunks on record. */
bool disk_serves(struct disk *d, uint32_t id);
/* Chunks first .. first + n - 1, whether it is on disk or not; false: not on record. `object` may
 * be NULL. */
bool disk_digests(struct disk *d, uint32_t id, uint32_t first, uint32_t n,
                  uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t *object);
/* As disk_pin, but no use of the object. */
void disk_hold(struct disk *d, uint32_t id, int by);
/* From now on changes are noted; bit id of bits[] (n / 8 + 1 bytes, zero): what it serves at this
 * moment. bits NULL: no longer. */
int disk_watch(struct disk *d, uint8_t *bits, struct err *e);
/* Takes up to max noted ids; *serves[i]: does it now. */
size_t disk_changes(struct disk *d, uint32_t *ids, bool *serves, size_t max);
/* An object on disk at or behind `from` without SHA-256s of chunks; MODEL_NONE: there is none. */
uint32_t disk_without_shas(struct disk *d, uint32_t from);
/* Reads it, computes and records them. A damaged file is forgotten. */
int disk_make_shas(struct disk *d, uint32_t id, struct err *e);
/* ---- disk_words.c: what is known that an own download might contradict ---- */
enum disk_doubt { DISK_AGREES, DISK_MEMBERS_DIFFER, DISK_CONTRADICTS };
/* Of a whole object's chunks. CONTRADICTS: an own download on record, or the manifest. */
enum disk_doubt disk_doubts(struct disk *d, uint32_t id, const struct chunk_sum *sums);
/* Has an own download, or the manifest's object, another chunk on record? */
bool disk_chunk_differs(struct disk *d, uint32_t id, uint32_t chunk,
                        const uint8_t sha[SHA256_SIZE]);
/* The strongest of what is known of it. */
enum disk_known { DISK_UNKNOWN, DISK_MEMBERS, DISK_MANIFEST, DISK_OWN };
enum disk_known disk_known(struct disk *d, uint32_t id);

/* Is chunk i on disk what its SHA-256 on record says? A damaged file is forgotten. */
int disk_check_chunk(struct disk *d, uint32_t id, uint32_t chunk, struct err *e);
/* Objects on disk by enum basis. */
void disk_basis(struct disk *d, uint64_t objects[BASIS_MANIFEST + 1],
                uint64_t bytes[BASIS_MANIFEST + 1]);

/* What the digest on record rests on, as in struct digest. False: there is none that counts. */
bool disk_rests_on(struct disk *d, uint32_t id, uint32_t *source, uint64_t *rests);
/* Does that rest on void words alone? */
bool disk_on_void(struct disk *d, uint32_t source, uint64_t rests);
/* A file has been published: has a word that it rests on become void meanwhile? */
void disk_reconsider(struct disk *d, uint32_t id);
/* Another process of this cache has taken the object back: what is known of it here, and not in the
 * catalog any more, is forgotten. */
void disk_taken_back_elsewhere(struct disk *d, uint32_t id);

/* ---- the words of others (disk_words.c) ---- */

struct book;
struct statement_entry;
struct book *disk_book(struct disk *d);
/* Which of them this node is. */
void disk_self(struct disk *d, const uint8_t id[SHA256_SIZE]);
/* Numbers of members as bits, given now where they had none; 0: there are too many. */
uint64_t disk_members(struct disk *d, const uint8_t (*ids)[SHA256_SIZE], size_t n);
/* Their word is void from now on: their statements go, what rests on them alone is taken back. */
void disk_void(struct disk *d, uint64_t who, const char *why);
/* The same for one that something stronger has denied elsewhere. */
void disk_lied(struct disk *d, const uint8_t id[SHA256_SIZE], const char *why);
/* Its word counts again. ERR_NOTFOUND: it did. */
int disk_believe(struct disk *d, const uint8_t id[SHA256_SIZE], struct err *e);
/* A signed statement (book_take), and what follows from it. */
int disk_statement(struct disk *d, const uint8_t signer[SHA256_SIZE], const void *blob, size_t n,
                   bool *taken, struct err *e);
/* Own downloads that no statement of ours speaks of (all: all of them), ascending; freed by the
 * caller. */
int disk_due(struct disk *d, const uint8_t self[SHA256_SIZE], bool all,
             struct statement_entry **out, size_t *n, struct err *e);
/* The digest on record, if it rests on our own download or on the manifest. */
bool disk_own_digest(struct disk *d, uint32_t id, uint8_t digest[SHA256_SIZE]);
/* Changes when a digest has been recorded: is it worth to look at disk_due? */
uint64_t disk_stamp(struct disk *d);
/* What is said of an object's digest; false: nothing that counts. */
bool disk_expect(struct disk *d, uint32_t id, uint8_t object[SHA256_SIZE], enum basis *b);
/* Has another manifest been imported? Then all that is here is compared with it. */
void disk_look_manifest(struct disk *d);
/* A chunk on disk that rests on members' words, or of which nothing is known but that it was here,
 * chosen by a random number, and its SHA-256. */
bool disk_audit_pick(struct disk *d, uint64_t random, uint32_t *id, uint32_t *chunk,
                     uint8_t sha[SHA256_SIZE]);
/* The origin has other bytes for that chunk. */
void disk_audit_failed(struct disk *d, uint32_t id, const uint8_t sha[SHA256_SIZE], uint32_t chunk);
/* Objects on disk that rest on one member alone, by its number; [0]: it is not on record whose. */
void disk_rests(struct disk *d, uint64_t alone[64]);

/* ---- adopted folders (disk_adopt.c, disk_look.c) ---- */

/* Look round the folders of the list: at all, or at those alone that were not there. */
void disk_adopt_scan(struct disk *d, bool all);
/* Every few seconds: the same, when there is a reason. */
void disk_adopt_tick(struct disk *d);
/* Not on disk yet, but a folder offers it (or a file of the cache without a digest is there):
 * disk_read and disk_look_at try. */
bool disk_offers(struct disk *d, uint32_t id);
/* Read it (into p, unless NULL), compare it with what is known, record its digest: from then on it
 * is on disk. ERR_OFFLINE: it cannot be had there, which has been said; other codes: neither. */
int disk_look_at(struct disk *d, uint32_t id, uint8_t *p, struct err *e);
/* The first object at or behind `from` that is to be looked at; MODEL_NONE. */
uint32_t disk_look_next(struct disk *d, uint32_t from);
/* A shard that is to be compared as a whole with the SHA-256 that is known of it, from its first
 * byte to its last; each of its objects is looked at by the way. `stop` (may be NULL) is asked once
 * a MiB: true ends it with ERR_CANCELLED. ERR_NOTFOUND: there is none to compare. */
int disk_pass_next(struct disk *d, bool (*stop)(void *ctx), void *ctx, struct err *e);

struct disk_adopted {
    const char *path; /* as long as the disk is open */
    bool here, other_model;
    uint32_t objects, experts, looked, refused; /* that it is the one to give; of these: */
    uint64_t bytes, looked_bytes;
};
/* For the upkeep: objects to look at, and the quarantine. */
void disk_upkeep(struct disk *d, uint32_t *to_look, uint64_t *bytes, uint32_t *files,
                 const char **quarantine);
/* The first object with an own file at or behind `from` and its chunks, MODEL_NONE: there is none;
 * chunks of all of them. */
uint32_t disk_own_next(struct disk *d, uint32_t from, uint32_t *chunks);
uint64_t disk_own_chunks(struct disk *d);
size_t disk_adopted(struct disk *d, struct disk_adopted *out, size_t max);

/* ---- what leaves first (disk_room.c) ---- */

/* rank[] of all objects (copied), lowest first to leave, by last use among equals; an object may
 * push out only what has at most its own rank, and at most `most` (the spine: anything). One that
 * comes leaves for nothing but the spine until ranks are given again. NULL: all are alike.
 * ERR_NOMEM. */
int disk_ranks(struct disk *d, const uint8_t *rank, uint8_t most);
/* Of one object; is it on disk? */
bool disk_rank(struct disk *d, uint32_t id, uint8_t rank);
/* Of one that may come: what it may push out. Nothing when it is present. */
void disk_rank_coming(struct disk *d, uint32_t id, uint8_t rank);
/* Experts on disk of that rank that are not wanted now, longest unused first. */
size_t disk_oldest(struct disk *d, uint8_t rank, uint32_t *ids, size_t max);
/* The budget (0: none) and the floor from now on; what is over them leaves by disk_trim. */
void disk_limits(struct disk *d, uint64_t budget, uint64_t floor);
/* Bytes of other models in the same folder: they count for the budget, and stay. */
void disk_others(struct disk *d, uint64_t bytes);
/* One small step towards the limits: at most `max` experts not wanted now leave, lowest rank and
 * longest unused first. `floor`: also for the floor. Returns the bytes that left. */
uint64_t disk_trim(struct disk *d, size_t max, bool floor);
/* As store_drop and store_last_use. */
uint64_t disk_drop(struct disk *d, uint32_t id);
uint64_t disk_last_use(struct disk *d, uint32_t id);
/* Bytes written to the cache since the last call. */
uint64_t disk_written(struct disk *d);
/* Records when objects were used. */
void disk_save_use(struct disk *d);

struct disk_space {
    uint64_t budget;        /* what may lie here: by the budget and by what the volume has left */
    uint64_t used, experts; /* all objects; experts alone */
    uint64_t others;        /* disk_others */
    uint64_t unfinished;    /* of objects that are in nobody's hands */
    uint64_t volume, free;  /* bytes of the volume; 0: it does not say */
};
void disk_space(struct disk *d, struct disk_space *out);

/* ---- writing one object: begin, chunks, then publish or abandon ---- */

struct disk_file {
    struct disk_file *next; /* for the caller's queue */
    uint32_t id;
    uint32_t done;          /* chunks complete, from the beginning */
    struct chunk_sum *sums; /* [chunks of the object] */
    struct digest *digest;  /* set by disk_digest */
    int result;             /* of disk_publish */
    uint64_t rests;         /* the caller's, for disk_digest: as in struct digest */
    uint8_t *proven;        /* bits, disk_begin_loose: chunks with a record */
    /* private */
    int fd, rec_fd;
    uint64_t reserved;
};

bool disk_has_partial(struct disk *d, uint32_t id);
/* Makes the room (evicting), opens a temporary file. Takes up a partial one: f->done of its chunks
 * are good, verified, and copied to `ram` when that is not NULL. ERR_FULL: no room by budget, floor
 * or volume. */
int disk_begin(struct disk *d, uint32_t id, uint8_t *ram, struct disk_file **out, struct err *e);
/* The same where another may hold the object, too: with ranks, only what has rank 0 makes room. */
int disk_begin_second(struct disk *d, uint32_t id, struct disk_file **out, struct err *e);
/* Chunk f->done, whose sum the caller has computed. */
int disk_chunk(struct disk *d, struct disk_file *f, const void *p, size_t n,
               const struct chunk_sum *s, struct err *e);
/* For chunks that come in any order and from anybody. Those of our own download (`proven`) get a
 * record, and a later disk_begin or disk_begin_loose takes them up; others are of no use before all
 * are there. second: another member holds it or gets it, too, as in disk_begin_second. */
int disk_begin_loose(struct disk *d, uint32_t id, bool second, struct disk_file **out,
                     struct err *e);
int disk_chunk_at(struct disk *d, struct disk_file *f, uint32_t chunk, const void *p, size_t n,
                  const struct chunk_sum *s, bool proven, struct err *e);
/* n bytes from `off` of what has been written of it. */
int disk_part(const struct disk_file *f, uint64_t off, void *p, size_t n, struct err *e);
/* A proven chunk of an earlier time: verified, with its SHA-256. False: there is none (any more).
 */
bool disk_proven(struct disk *d, struct disk_file *f, uint32_t chunk, uint8_t *p,
                 uint8_t sha[SHA256_SIZE]);
/* All chunks are there: compute the digest (which rests on b) and compare it with the one on
 * record. One that rests on less gives way, and its file with it. ERR_DIGEST: the bytes differ from
 * what this object was when it was first fetched. */
int disk_digest(struct disk *d, struct disk_file *f, enum basis b, struct err *e);
/* As disk_digest for bytes that this node had in RAM: what they rest on is on record. ERR_DIGEST:
 * they are not those on record, or none are. */
int disk_digest_again(struct disk *d, struct disk_file *f, struct err *e);
/* As disk_digest for an object that was received into RAM only; *source (enum digest_source) and
 * *rests (of struct digest) become what it rests on. */
int disk_check(struct disk *d, uint32_t id, const struct chunk_sum *sums, enum basis b,
               uint32_t *source, uint64_t *rests, struct err *e);
/* Sync, record, rename a list (through `next`); each one's `result` says what became of it, the
 * first failure is returned. The files stay the caller's, to be given to disk_free. */
int disk_publish(struct disk *d, struct disk_file *list, struct err *e);
/* Give up: a partial file is kept for a later disk_begin, or removed. Frees f. */
void disk_abandon(struct disk *d, struct disk_file *f, bool keep);
void disk_free(struct disk *d, struct disk_file *f);

/* The file of an object in the cache itself, malloc'ed; NULL: there is none, or no memory. */
char *disk_file_path(struct disk *d, uint32_t id);
/* Is an object of this size read past the page cache, and how many bytes at a time? */
bool disk_past_cache(const struct disk *d, uint64_t size, size_t *step);
/* Root folder of this model in the cache, for sentences. */
const char *disk_path(const struct disk *d);
uint64_t disk_used(struct disk *d);

#endif
