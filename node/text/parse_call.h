/* SPDX-License-Identifier: MIT
 * parse_call.h: private to the parser: one opening tag taken apart, and one tool call's arguments
 * collected into a JSON object. */
#ifndef SHOAL_TEXT_PARSE_CALL_H
#define SHOAL_TEXT_PARSE_CALL_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Is the first word of a tag's text `name`? */
bool parse_tag_is(const struct buf *tag, const char *name);
/* The value of attribute `key` with &quot; and then &amp; undone, appended to *out. *found says
 * whether there is one. 0, ERR_LIMIT or ERR_NOMEM. */
int parse_tag_attr(const struct buf *tag, const char *key, struct buf *out, bool *found);

struct parse_arg {
    size_t key, key_n, json, json_n; /* places in `store` */
};

struct parse_args {
    struct buf store;
    struct parse_arg *v;
    size_t n, cap;
};

void parse_args_init(struct parse_args *a);
void parse_args_reset(struct parse_args *a);
void parse_args_free(struct parse_args *a);
/* Add an argument: `type` as its attribute said (empty: string), `value` its text. A value that is
 * not the JSON it claims to be becomes a string. A key that was there keeps its place. Then
 * *arg describes it. 0, ERR_LIMIT or ERR_NOMEM. */
int parse_args_add(struct parse_args *a, const struct buf *key, const struct buf *type,
                   const struct buf *value, struct parse_arg *arg);
/* Add the members of a JSON object given as text; ERR_FORMAT when it is none. */
int parse_args_add_object(struct parse_args *a, const struct buf *text);
/* Append all of them to *out as one JSON object. */
int parse_args_write(const struct parse_args *a, struct buf *out);

#endif
