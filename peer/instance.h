/* SPDX-License-Identifier: MIT
 * instance.h: noticing that one node id lives twice, because its data folder was copied. Each hello
 * carries the node id, the machine mark and the run number of struct identity; whoever takes a
 * hello compares it with itself and with the connections it has. Pure functions. */
#ifndef SHOAL_PEER_INSTANCE_H
#define SHOAL_PEER_INSTANCE_H

#include "peer/identity.h"

struct instance {
    struct key_id id;
    uint8_t machine[MACHINE_MARK]; /* all zero: unknown */
    uint8_t run[16];
};

enum instance_verdict {
    INSTANCE_NEW,       /* nobody of that id is known: go on */
    INSTANCE_SAME,      /* one more connection of the run we know: keep the better one */
    INSTANCE_RESTARTED, /* the one we knew is gone, this is its successor: drop the old connection
                         */
    INSTANCE_MOVED,     /* as RESTARTED, on another machine: drop the old one, log one line */
    INSTANCE_PROBE,     /* ask the old connection for a pong, then decide again with what came */
    INSTANCE_TWICE,     /* two live copies: refuse the newer, tell both (instance_text) */
    INSTANCE_SELF,      /* we dialled ourselves: close in silence, forget the address */
};

/* What is known of the connection that carried the earlier hello of the same node id. */
enum instance_old {
    OLD_GONE,    /* closed, or it did not answer the ping sent because of the new hello */
    OLD_UNKNOWN, /* still open; not asked since the new hello came */
    OLD_ANSWERS, /* it answered after the new hello came */
};

/* `known` is the earlier hello of that id, NULL for none; `self` is this process. */
enum instance_verdict instance_decide(const struct instance *self, const struct instance *known,
                                      enum instance_old old, const struct instance *hello);
void instance_of(const struct identity *me, struct instance *out);

/* The sentence of a TWICE, for each who hears it. */
enum instance_ear {
    EAR_OWN,   /* this node itself met its double */
    EAR_OLD,   /* told by a third node to the copy that was connected first */
    EAR_NEW,   /* told by a third node to the copy that came second */
    EAR_THIRD, /* the log of the third node */
};
void instance_text(const struct key_id *id, enum instance_ear ear, char *out, size_t cap);

#endif
