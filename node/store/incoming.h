/* SPDX-License-Identifier: MIT
 * incoming.h: private to node/store: what share.c, origin_ask.c, incoming.c and incoming_put.c have
 * in common. Order of locks: store.mu, then takers.mu. */
#ifndef SHOAL_STORE_INCOMING_H
#define SHOAL_STORE_INCOMING_H

#include "node/store/chunk.h"
#include "node/store/engine.h"

enum in_kind { IT_OPEN, IT_CALL, IT_CHUNK, IT_PUT_END, IT_DONE };

struct in_item {
    struct in_item *next;
    enum in_kind kind;
    struct incoming *in;
    struct storage_put *put;
    uint32_t chunk;
    size_t n;
    uint8_t *copy; /* NULL: the bytes are in the slot */
    uint8_t sha[SHA256_SIZE];
    void (*call)(void *ctx, struct storage_put *p); /* IT_CALL */
    void *ctx;
};

struct storage_put {
    struct incoming *in;
    uint64_t size;
    uint32_t n, have;      /* chunks; those that have come */
    struct ram_slot *slot; /* the entry's, or NULL */
    bool use_disk;
    bool resumes;         /* there is a file with some chunks already */
    uint8_t *came;        /* [n] */
    bool over, ended, ok; /* over: put_end has come; ended: and the writer has seen it */
    int code;             /* the writer cannot go on; with takers.mu */
    struct err err;
    enum basis b;
    uint8_t object[SHA256_SIZE];
    uint8_t words[STORAGE_WORDS_MAX][SHA256_SIZE]; /* whose word the digests are */
    size_t n_words;
    uint64_t rests; /* the same as digest.rests */
    /* the writer's */
    struct disk_file *f;
    struct chunk_sum *sums; /* [n] */
    bool begun;
    struct in_item open, end; /* so that they need no memory */
};

/* One request to the upstream; store.mu guards it. */
struct incoming {
    struct store *st;
    struct entry *en;
    uint32_t id;
    uint64_t up_no;
    struct storage_put *put;
    bool cancelled, again; /* the upstream was told so; and it is wanted all the same */
    bool done, late;       /* late: the writer waits for the end of the put */
    int code;
    struct err err;
    uint64_t peer_bytes, origin_bytes;
    struct in_item over;
    /* SHA-256s of chunks that our own origin gave for it: what is put with one of these is our own
     * download. NULL: none yet. */
    uint8_t (*own)[SHA256_SIZE];
    uint8_t *has_own; /* bits */
};

struct takers {
    pthread_t thread;
    bool started;
    pthread_mutex_t mu; /* what follows */
    pthread_cond_t work, room;
    struct in_item *head, *tail;
    uint64_t queued; /* bytes of copies */
    bool stop;
};

/* With takers.mu. */
void in_push(struct takers *t, struct in_item *it);
/* Of a file that is not complete the chunks of our own download are kept. */
void in_put_free(struct store *st, struct storage_put *p);

/* The functions below come on any thread, without locks held unless said. */

/* With mu: starts the writer. */
int in_open(struct store *st, struct err *e);

/* As storage_ops.put_*, on the upstream's thread; id is one of the model's. */
int in_put_begin(struct store *st, uint32_t id, uint64_t size, struct storage_put **out,
                 struct err *e);
int in_put_chunk(struct store *st, struct storage_put *p, uint32_t chunk, const uint8_t *bytes,
                 size_t n, const uint8_t sha[SHA256_SIZE], struct err *e);
void in_second(struct store *st, uint32_t id);
void in_put_words(struct store *st, struct storage_put *p, const uint8_t (*ids)[SHA256_SIZE],
                  size_t n);
int in_put_end(struct store *st, struct storage_put *p, int code, enum basis b,
               const uint8_t object[SHA256_SIZE], struct err *e);

/* When the object is being put (and, if `resumes`, some of its chunks are in an unfinished file):
 * have `call` run on the writer's thread with that put, behind the chunks that have come. False: it
 * is not so. */
bool in_call(struct store *st, uint32_t id, bool resumes,
             void (*call)(void *ctx, struct storage_put *p), void *ctx);
/* Our own origin has given this chunk. */
void in_own(struct store *st, uint32_t id, uint32_t chunk, const uint8_t sha[SHA256_SIZE]);

#endif
