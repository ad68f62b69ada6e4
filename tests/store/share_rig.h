/* SPDX-License-Identifier: MIT
 * share_rig.h: an upstream for a store (share.h) that takes the bytes from a second store, on a
 * thread of its own, as the LAN does, well-behaved and not. */
#ifndef SHOAL_TESTS_STORE_SHARE_RIG_H
#define SHOAL_TESTS_STORE_SHARE_RIG_H

#include "tests/store/util.h"

#include "node/store/share.h"

#include <pthread.h>

enum up_mode {
    UP_REVERSE = 1,     /* chunks last to first */
    UP_REPEAT = 2,      /* each chunk with other bytes first */
    UP_FALSE = 4,       /* bytes that are not the object's, consistently */
    UP_THROW = 8,       /* the first put of each request is thrown away after a chunk */
    UP_ORIGIN = 16,     /* by store_origin_get of the receiver */
    UP_FAIL = 32,       /* end with `code` at once */
    UP_HOLD = 64,       /* keep requests until this is taken away */
    UP_ELSEWHERE = 128, /* code 0 without a put; `other` gets it before, if there is one */
    UP_SECOND = 256     /* another member holds it, and the store is told so */
};

struct up {
    struct store *to, *from, *other;
    struct store_upstream u;
    pthread_t thread;
    pthread_mutex_t mu; /* what follows */
    pthread_cond_t cv;
    unsigned mode;
    int code;
    enum basis basis;
    uint32_t *q; /* ids to fetch */
    uint8_t *cancelled;
    size_t n_q, cap_q;
    uint32_t fetches, raises, cancels, busy;
    bool stop;
    /* of `changed`, with a mutex of its own */
    pthread_mutex_t has_mu;
    uint8_t *has; /* [objects] */
    uint32_t changes, wrong_deltas;
    /* of the origin's answers */
    uint8_t *part[64];
    size_t part_n[64];
    uint8_t part_sha[64][SHA256_SIZE];
    uint32_t parts, fails;
    struct err fail;
};

void up_start(struct up *u, struct store *to, struct store *from, unsigned mode);
/* The upstream is taken away and its thread ended. */
void up_stop(struct up *u);
void up_mode(struct up *u, unsigned mode, int code);
/* One chunk by storage_ops.read, waited for; the code. *p is malloc'ed. */
int up_read(struct store *st, uint32_t id, uint32_t chunk, uint8_t prio, uint8_t **p, size_t *n);
/* Does what `changed` has said make exactly store_share_list? Waits until it does, 10 s. */
bool up_has_list(struct up *u);
/* Wait until *v is at least n (with u->mu), 10 s. */
bool up_wait(struct up *u, const uint32_t *v, uint32_t n);

#endif
