/* SPDX-License-Identifier: MIT
 * parse_answer.c: the answer as a whole, gathered from the parser's events; see parse.h. */
#include "node/text/parse.h"

#include <stdlib.h>
#include <string.h>

static int append(char **s, size_t *n, size_t *cap, const char *more, size_t more_n)
{
    if (*cap - *n <= more_n) {
        size_t want = (*n + more_n + 64) * 2;
        char *t = realloc(*s, want);
        if (!t) {
            return ERR_NOMEM;
        }
        *s = t;
        *cap = want;
    }
    memcpy(*s + *n, more, more_n);
    *n += more_n;
    (*s)[*n] = 0;
    return 0;
}

static int add_call(struct parse_answer *a, const struct parse_event *ev)
{
    if (a->ncalls == a->caps[2]) {
        size_t cap = a->caps[2] ? a->caps[2] * 2 : 4;
        struct parse_call *v = realloc(a->calls, cap * sizeof *v);
        if (!v) {
            return ERR_NOMEM;
        }
        a->calls = v;
        a->caps[2] = cap;
    }
    struct parse_call c = {0};
    size_t cap = 0, cap2 = 0;
    if (append(&c.name, &c.name_n, &cap, ev->name, ev->name_n) ||
        append(&c.arguments, &c.arguments_n, &cap2, ev->text, ev->text_n)) {
        free(c.name);
        return ERR_NOMEM;
    }
    a->calls[a->ncalls++] = c;
    return 0;
}

int parse_collect(void *ctx, const struct parse_event *ev)
{
    struct parse_answer *a = ctx;
    switch (ev->type) {
    case PARSE_REASONING:
        return append(&a->reasoning, &a->reasoning_n, &a->caps[0], ev->text, ev->text_n);
    case PARSE_CONTENT:
        return append(&a->content, &a->content_n, &a->caps[1], ev->text, ev->text_n);
    case PARSE_CALL_END:
        return add_call(a, ev);
    case PARSE_FINISH:
        a->reason = ev->reason;
        return 0;
    default:
        return 0;
    }
}

void parse_answer_free(struct parse_answer *a)
{
    free(a->reasoning);
    free(a->content);
    for (size_t i = 0; i < a->ncalls; i++) {
        free(a->calls[i].name);
        free(a->calls[i].arguments);
    }
    free(a->calls);
    memset(a, 0, sizeof *a);
}
