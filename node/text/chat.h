/* SPDX-License-Identifier: MIT
 * chat.h: an OpenAI-form chat request becomes K3's prompt.
 *
 * The request is taken as raw JSON text, since key order, repeated keys and number spellings reach
 * the prompt. Out comes a list of segments: the text in order, cut where the reference cuts it.
 * Each segment is tokenised alone (chat_prompt_ids), and only structure the renderer wrote itself
 * is trusted, so nothing a user, tool or earlier answer contains can become structure.
 *
 * Read from the request: messages, tools, tool_choice, response_format, and what says how to think:
 * reasoning_effort, thinking_effort, reasoning {effort, enabled}, thinking (boolean, or {type:
 * enabled|disabled, effort}), enable_thinking, also inside chat_template_kwargs; and
 * add_generation_prompt. Fields that would change the prompt and are not known are refused (legacy
 * functions, continue_final_message, unknown chat_template_kwargs, unknown roles, content that is
 * no text, ...); null counts as absent; fields that concern sampling or transport are the caller's.
 *
 * Errors that the request causes are ERR_FORMAT, ERR_UNSUPPORTED or ERR_LIMIT, and their sentence
 * begins with the field at fault and ": ", e.g. "messages[2].role: unknown role `narrator`...".
 * "request: " stands for the text as a whole. Threads: no shared state. */
#ifndef SHOAL_TEXT_CHAT_H
#define SHOAL_TEXT_CHAT_H

#include "node/text/tok.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CHAT_MAX_REQUEST ((size_t)64 << 20) /* bytes of a request (see also pyjson.h) */
#define CHAT_MAX_TEXT ((size_t)256 << 20)   /* bytes of a rendered prompt */
#define CHAT_MAX_SEGS ((size_t)8 << 20)     /* segments of a rendered prompt */

enum chat_think {
    CHAT_THINK_DEFAULT,   /* as CHAT_THINK_MAX */
    CHAT_THINK_OFF,       /* no reasoning: the answer begins at once */
    CHAT_THINK_NO_EFFORT, /* reasoning, without a message about effort */
    CHAT_THINK_LOW,
    CHAT_THINK_HIGH,
    CHAT_THINK_MAX
};

struct chat_seg {
    size_t off, n; /* bytes of the prompt's text; n > 0 */
    bool trusted;  /* special spellings in it are structure (tok_encode) */
};

struct chat_prompt {
    char *text; /* the whole prompt; a NUL follows */
    size_t text_n;
    struct chat_seg *segs; /* in order, without gaps, covering the text */
    size_t nsegs;
    enum chat_think think; /* what was chosen; never CHAT_THINK_DEFAULT */
    bool open;             /* ends with the begin of an assistant message: inside `think` unless
                              think is CHAT_THINK_OFF, then inside `response` */
};

/* Render a request of n bytes. `fallback` holds where the request says nothing about thinking.
 * On success *out is filled and must be freed; on failure it is empty. */
int chat_render(const char *request, size_t n, enum chat_think fallback, struct chat_prompt *out,
                struct err *e);
/* One user message, after one system message unless `system` is NULL. The texts are UTF-8, ended by
 * NUL. ERR_FORMAT when one is not UTF-8. */
int chat_simple(const char *user, const char *system, enum chat_think think,
                struct chat_prompt *out, struct err *e);
void chat_prompt_free(struct chat_prompt *p); /* empty again */

/* Append the prompt's ids to *out, segment by segment. On an error *out holds what it held. */
int chat_prompt_ids(const struct chat_prompt *p, const struct tok *t, struct tok_ids *out,
                    struct err *e);

/* The spelling of an effort as a request may give it: none; minimal, low; medium, high; xhigh, max.
 * False when it is none of them. */
bool chat_think_by_name(const char *s, size_t n, enum chat_think *out);

#endif
