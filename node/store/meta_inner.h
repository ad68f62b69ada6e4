/* SPDX-License-Identifier: MIT
 * meta_inner.h: what meta.c and meta_peer.c share. */
#ifndef SHOAL_STORE_META_INNER_H
#define SHOAL_STORE_META_INNER_H

#include "node/store/meta.h"
#include "node/store/meta_list.h"

#include <pthread.h>

#define META_FILE_MAX ((size_t)1 << 30)
#define META_LIST_MAX ((size_t)16 << 20)

struct meta {
    char *cache_dir, *dir; /* NULL: nothing is kept */
    char *address;
    struct origin *o;
    const struct store_meta_peers *peers; /* NULL: none */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    pthread_mutex_t mu; /* what follows; not held while the origin or peers are asked */
    struct meta_list list;
    struct meta_list given; /* the list of a peer */
    uint64_t given_asked;   /* clock_ns when peers were asked for it, 0: not yet */
    uint64_t peer_bytes;
    bool dirty, trouble;
    bool closed;     /* the cache could not be written when it was opened; whose disk says so */
    uint64_t saved;  /* clock_ns */
    char *head_of;   /* the file whose first bytes these are, NULL: none */
    uint8_t head[8]; /* a shard begins with the length of its header */

    pthread_mutex_t serve_mu; /* what follows: the file that was served last */
    char *served_name;
    struct buf served;
};

void meta_say(struct meta *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Append a kept file. ERR_NOTFOUND: it is not kept, or not good any more (said in the log). */
int meta_kept(struct meta *m, const char *name, struct buf *out, struct err *e);

/* ---- meta_peer.c ---- */

/* Peers' list, if it is not here yet. */
void meta_ask_list(struct meta *m);
/* Append a file or a piece from a peer, compared with what is on record of it here or in the peers'
 * list. ERR_NOTFOUND: it is not to be had from them (also when their list says that the model has
 * no such file: that is then in the list here). */
int meta_from_peers(struct meta *m, const char *name, struct buf *out, struct err *e);

#endif
