/* SPDX-License-Identifier: MIT
 * chat_think.h: private to the renderer: what a request says about thinking, in all its spellings.
 *
 * An explicit switch decides whether to think; without one, an effort of `none` means no and any
 * other means yes; without either, `fallback` holds. An effort beside thinking switched off has no
 * effect. `thinking_effort: null` inside chat_template_kwargs asks for thinking without the message
 * about effort, as the reference does when none is given. Contradictions are refused. */
#ifndef SHOAL_TEXT_CHAT_THINK_H
#define SHOAL_TEXT_CHAT_THINK_H

#include "node/text/chat.h"
#include "node/text/pyjson.h"

/* *think is never CHAT_THINK_DEFAULT. Also checks that chat_template_kwargs holds nothing unknown.
 */
int chat_think_read(const struct pyjson *request, enum chat_think fallback, enum chat_think *think,
                    struct err *e);

#endif
