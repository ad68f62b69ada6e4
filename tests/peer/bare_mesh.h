/* SPDX-License-Identifier: MIT
 * bare_mesh.h: a member that is no mesh: a bare connection with the key of a member, which says
 * what it likes and counts what it hears. Everything on the thread of the test, which runs its
 * loop. */
#ifndef SHOAL_TESTS_PEER_BARE_MESH_H
#define SHOAL_TESTS_PEER_BARE_MESH_H

#include "tests/peer/mesh_kit.h"
#include "tests/peer/wire_kit.h"

#include "peer/codec.h"
#include "peer/member.h"
#include "proto/base/clock.h"

struct bare {
    uv_loop_t loop;
    struct kit_node node;
    struct kit_log log;
    struct kit_id id;
    struct kit_trust trust;
    struct kit_mesh home; /* whose key it has */
    struct identity me;
    struct member member;
    int kinds[64]; /* frames that came, by kind */
    uint64_t asked_seq;
    int goodbye;
    char text[WIRE_TEXT_MAX + 1];
    bool answers; /* says at hello that it answers questions */
    void (*on_message)(struct bare *b, const Shoal__Frame *f,
                       const struct frame *raw); /* or NULL */
};

/* A home taken in by the keeper's, and a node with its key. */
void bare_open(struct bare *b, struct kit_mesh *keeper);
void bare_close(struct bare *b);
void bare_connect(struct bare *b, int port);
void bare_send(struct bare *b, const Shoal__Frame *f);
void bare_hello(struct bare *b);

/* Run the bare side's loop until x. */
#define bare_until(b, x)                                             \
    do {                                                             \
        uint64_t end_ = clock_ns() + 60ull * 1000000000u;            \
        while (!(x)) {                                               \
            kit_run_ms(&(b)->loop, 5);                               \
            if (clock_ns() > end_) {                                 \
                fail_msg("%s:%d never: %s", __FILE__, __LINE__, #x); \
            }                                                        \
        }                                                            \
    } while (0)

#endif
