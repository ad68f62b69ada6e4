/* SPDX-License-Identifier: MIT
 * sendback.h: private to node/api: the conversation as a client will send it back after an answer:
 * its ids, to know whether the state behind the answer will be of use. */
#ifndef SHOAL_API_SENDBACK_H
#define SHOAL_API_SENDBACK_H

#include "node/text/chat.h"
#include "node/text/parse.h"

/* Append to *ids: the chat request (raw JSON of a chat completion) with the answer as one more
 * message and no generation prefix. call_ids: of its calls. */
int sendback_ids(const struct tok *t, const char *request, size_t n, enum chat_think fallback,
                 const struct parse_answer *a, const char *const *call_ids, size_t n_calls,
                 struct tok_ids *ids);

#endif
