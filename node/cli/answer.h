/* SPDX-License-Identifier: MIT
 * answer.h: one prompt through a session: tokens stream out as text, the result as a struct.
 * Shared by `run` and `demo`. */
#ifndef SHOAL_NODE_CLI_ANSWER_H
#define SHOAL_NODE_CLI_ANSWER_H

#include "node/cli/session.h"
#include "node/infer/generate.h"
#include "node/text/chat.h"
#include "node/text/parse.h"

/* Marks around reasoning when it is streamed: dim on a terminal, else "[thinking] ... [answer] ".
 */
struct answer_opts {
    const struct tok_ids *prompt;
    bool chat;                /* the answer has channels: parse it */
    bool thinking;            /* it begins inside `think` */
    bool stream;              /* write text to stdout as it comes */
    struct generate_opts gen; /* all but prompt, hooks and stop ids that cli_session_stops gives */
    bool ignore_eos;
};

struct answer {
    struct generate_result gen;
    struct parse_answer parsed; /* chat */
    struct buf text;            /* without chat: all text; with it: the content */
    char receipt[2 * SHA256_SIZE + 1];
    double decode_tok_s; /* 0 when nothing was decoded */
};

/* Fill *a (free with answer_free, also after an error). ERR_CANCELLED after a signal. */
int answer_run(struct cli_session *s, const struct answer_opts *o, struct answer *a, struct err *e);
void answer_free(struct answer *a);

#endif
