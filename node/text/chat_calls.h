/* SPDX-License-Identifier: MIT
 * chat_calls.h: private to the renderer: the tool calls of one assistant message, written into the
 * prompt, and remembered for the tool results that follow. */
#ifndef SHOAL_TEXT_CHAT_CALLS_H
#define SHOAL_TEXT_CHAT_CALLS_H

#include "node/text/chat_out.h"
#include "node/text/pyjson.h"

struct chat_call_id {
    const struct pyjson *id;
    size_t call; /* counted from 0 */
};

struct chat_calls {
    const struct pyjson **names; /* per call, a string */
    size_t count;
    struct chat_call_id *ids; /* of the calls that have one, sorted by id, then call */
    size_t nids;
};

/* Write `tools` with its calls unless tool_calls is absent, null or empty, and fill *c (empty
 * before). `at` is the message's number for the error sentence. c refers to the document. */
int chat_calls_render(struct chat_calls *c, const struct pyjson *tool_calls, size_t at,
                      struct chat_out *o, struct err *e);
/* The first call with this id. */
bool chat_calls_find(const struct chat_calls *c, const struct pyjson *id, size_t *call);
void chat_calls_free(struct chat_calls *c);

#endif
