/* SPDX-License-Identifier: MIT
 * responses.h: private to node/api: OpenAI's responses form of requests. */
#ifndef SHOAL_API_RESPONSES_H
#define SHOAL_API_RESPONSES_H

#include "node/api/oai_int.h"

/* Append the chat completion that means the same: input and instructions as messages, tools,
 * tool_choice, text.format, reasoning.effort. Errors begin with the field. */
int responses_as_chat(const struct pyjson *root, struct buf *b, struct err *e);

#endif
