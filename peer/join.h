/* SPDX-License-Identifier: MIT
 * join.h: how a node that holds an invite becomes a member, as functions over two messages; the
 * wire carries them in Join and JoinReply.
 *
 * Both proofs are HMAC-SHA256 under a key that only holders of the invite's secret can derive
 * (invite_keys), over the node ids of both ends as each saw them in the certificate that TLS
 * authenticated. Somebody in the middle shows each end a key of his own, so the ids differ and the
 * proof is worth nothing; nothing in it helps to find the secret (128 random bits).
 *   request: "shoal join 1"   | invite id | inviter | joiner
 *   answer:  "shoal joined 1" | invite id | inviter | joiner | SHA-256(roster blob)
 * A stranger, an unknown invite and a wrong proof get one and the same answer; only who proves the
 * secret hears that an invite is spent or over. No answer but JOINED holds a roster. */
#ifndef SHOAL_PEER_JOIN_H
#define SHOAL_PEER_JOIN_H

#include "peer/invite.h"
#include "peer/member.h"

struct join_request {
    uint8_t invite[INVITE_ID];
    uint8_t proof[SHA256_SIZE];
};

/* The numbers of JoinResult in proto/shoal.proto. */
enum join_result {
    JOINED = 1,
    JOIN_NO_SUCH_INVITE = 2, /* also for a wrong proof */
    JOIN_INVITE_EXPIRED = 3,
    JOIN_INVITE_USED_UP = 4,
    JOIN_NODE_REMOVED = 7,
    JOIN_FAILED_HERE = 8, /* the keeper could not: text says what */
};

struct join_answer {
    enum join_result result;
    char text[300];  /* a sentence for the joiner when not JOINED */
    struct buf blob; /* the roster, with JOINED; join_answer_free */
    uint8_t proof[SHA256_SIZE];
    bool added; /* the roster changed: tell the peers */
};

/* Joiner: what to send to the node that TLS showed as `inviter`. */
int join_ask(const struct token *t, const struct key_id *inviter, const struct key_id *joiner,
             struct join_request *out, struct err *e);
/* Keeper: check, burn a use on disk, take the node in, answer. `joiner_pub` is the key of the
 * certificate that TLS authenticated, never one from the message. An answer always comes; e has
 * the sentence for this node's own log when the result is not JOINED. Safe to repeat: a joiner that
 * lost the answer asks again with the same key and gets it without spending another use. */
int join_admit(struct member *m, const struct join_request *q,
               const uint8_t joiner_pub[CRYPTO_PUBLIC], uint64_t now, struct join_answer *out,
               struct err *e);
void join_answer_free(struct join_answer *a);
/* Joiner: check the answer against the token and become a member on disk. Refuses an answer by
 * anybody but a keeper of the shoal that the token names. */
int join_finish(struct member *m, const struct token *t, const struct key_id *inviter,
                const struct join_answer *a, struct err *e);

#endif
