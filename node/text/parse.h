/* SPDX-License-Identifier: MIT
 * parse.h: what K3 answers, read back token by token: reasoning, content, tool calls.
 *
 * Only the ids of <|open|>, <|close|> and <|sep|> are structure; the same characters made by
 * ordinary tokens are text. Which ids went into one call of parse_feed never matters. Text comes
 * out as whole UTF-8 characters (invalid bytes as U+FFFD). Other special tokens leave no trace.
 *
 * Malformed structure never fails and never shows up as text. What happens instead:
 * - An opening or closing without its <|sep|> is dropped together with its name.
 * - A closing that fits nothing open, an unknown opening and a stray <|sep|> have no effect; so
 *   have echoes of what the prompt ended with (`message`, `think`, `response`).
 * - An opening of think, response, tools or call ends whatever text was running; one of think after
 *   the answer began goes back to reasoning. The end of the message ends everything.
 * - Text directly in the message, outside every element, is content (blanks at its begin are not).
 * - Inside tools and outside arguments, text is dropped. A call without a tool name, with structure
 *   inside a value, with an argument left open, over a maximum, or whose own closing has not come
 *   when something else begins or the stream ends, is dropped as a whole (PARSE_CALL_DROP follows
 *   where PARSE_CALL_BEGIN went out).
 *
 * A parser belongs to one stream and one thread. */
#ifndef SHOAL_TEXT_PARSE_H
#define SHOAL_TEXT_PARSE_H

#include "node/text/tok.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARSE_MAX_TAG ((size_t)64 << 10)  /* bytes of one opening or closing */
#define PARSE_MAX_CALL ((size_t)16 << 20) /* bytes of one call's arguments */
#define PARSE_MAX_ARGS 4096               /* arguments in one call */
#define PARSE_MAX_CALLS 1024              /* calls in one answer */

enum parse_event_type {
    PARSE_REASONING,  /* text: a piece, to be appended */
    PARSE_CONTENT,    /* text: a piece, to be appended */
    PARSE_CALL_BEGIN, /* call, name: a call has begun; it counts only once PARSE_CALL_END came */
    PARSE_CALL_ARG,   /* call, name: the argument's key, text: its value as JSON */
    PARSE_CALL_END,   /* call, name, text: all arguments as one JSON object */
    PARSE_CALL_DROP,  /* call: what began is void; the number will be given out again */
    PARSE_FINISH      /* reason; nothing follows */
};

enum parse_reason {
    PARSE_RUNNING, /* not yet */
    PARSE_MESSAGE, /* <|end_of_msg|> */
    PARSE_EOS,     /* [EOS] */
    PARSE_LENGTH   /* cut by parse_finish */
};

struct parse_event {
    enum parse_event_type type;
    const char *text, *name; /* valid UTF-8, valid during the call; a NUL follows name and JSON */
    size_t text_n, name_n;
    size_t call; /* from 0: the number of calls ended before it */
    enum parse_reason reason;
};

/* Must not call back into the parser. Nonzero ends parse_feed, which returns it. */
typedef int (*parse_sink)(void *ctx, const struct parse_event *ev);

struct parse;

/* A parser for an answer whose prompt ended inside `think` (thinking) or `response`. ERR_FORMAT
 * when the tokenizer lacks one of K3's structure tokens. t must outlive it. */
int parse_open(const struct tok *t, bool thinking, parse_sink sink, void *ctx, struct parse **out,
               struct err *e);
void parse_close(struct parse *p); /* NULL is fine */

/* Read n ids. Those behind the end of the message are ignored. 0, ERR_NOMEM, ERR_ARG (an id outside
 * the vocabulary), or what the sink returned; after a failure only parse_close is allowed. */
int parse_feed(struct parse *p, const uint32_t *ids, size_t n, struct err *e);
/* The stream ends here although no end token came. No effect when it has ended already. */
int parse_finish(struct parse *p, struct err *e);
enum parse_reason parse_ended(const struct parse *p);
size_t parse_calls(const struct parse *p);    /* complete calls so far */
bool parse_in_content(const struct parse *p); /* text that comes now is content */

/* An answer as a whole: the ctx of parse_collect. Zero bytes make an empty one. */
struct parse_call {
    char *name, *arguments; /* each with a NUL behind it */
    size_t name_n, arguments_n;
};
struct parse_answer {
    char *reasoning, *content; /* NULL when empty; else a NUL follows */
    size_t reasoning_n, content_n;
    struct parse_call *calls;
    size_t ncalls;
    enum parse_reason reason;
    size_t caps[3]; /* private */
};
int parse_collect(void *ctx, const struct parse_event *ev); /* a parse_sink: 0 or ERR_NOMEM */
void parse_answer_free(struct parse_answer *a);             /* empty again */

#endif
