/* SPDX-License-Identifier: MIT
 * messages.h: private to node/api: Anthropic's form of requests. */
#ifndef SHOAL_API_MESSAGES_H
#define SHOAL_API_MESSAGES_H

#include "node/api/oai_int.h"

/* Append the chat completion that means the same: messages, tools, tool_choice, effort. Errors
 * begin with the field. */
int messages_as_chat(const struct pyjson *root, struct buf *b, struct err *e);

#endif
