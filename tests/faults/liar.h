/* SPDX-License-Identifier: MIT
 * liar.h: an evil member (evil.h) that holds the demo model, for tests of whole nodes
 * (../daemon/node_kit.h); what a node says of a member. */
#ifndef SHOAL_TESTS_FAULTS_LIAR_H
#define SHOAL_TESTS_FAULTS_LIAR_H

#include "tests/daemon/node_kit.h"
#include "tests/faults/evil.h"

struct bad {
    struct kit_node k; /* its home alone */
    const struct model *m;
    uint8_t **truth;
    struct object_key *keys;
    struct evil_source src;
    struct evil *e;
    struct key_id id;
    char who[ID_SHORT];
    /* NULL: it has the model's own bytes. Else: it has those of object lies(id) in the place of
     * `id`'s, and states their digests. */
    uint32_t (*lies)(const struct model *m, uint32_t id);
};

/* As a member taken in by keeper; `with` has the model open. */
void bad_start(struct bad *b, const struct kit_node *keeper, const struct kit_node *with,
               const struct evil_opts *o, uint32_t (*lies)(const struct model *m, uint32_t id));
void bad_stop(struct bad *b);
void meet(struct kit_node *k, int port); /* k dials it */

/* A number of a member's row in a node's status; -1: it has none. `word`: of what it signed and
 * what rests on it, `peer`: of how it is as a peer. */
double word(struct kit_node *k, const struct key_id *id, const char *field);
double peer(struct kit_node *k, const struct key_id *id, const char *field);

#endif
