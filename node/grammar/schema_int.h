/* SPDX-License-Identifier: MIT
 * schema_int.h: private to node/grammar/schema*.c: the types of a schema. */
#ifndef SHOAL_GRAMMAR_SCHEMA_INT_H
#define SHOAL_GRAMMAR_SCHEMA_INT_H

#include "node/grammar/rules.h"

#define GRAM_PLACE 240

const struct pyjson *gram_get(const struct pyjson *v, const char *key);
void gram_place(char out[GRAM_PLACE], const char *at, const char *key, size_t n);
/* Does the value of `type` (NULL: none given) name this type? */
bool gram_type_is(const struct pyjson *t, const char *name);

/* allOf, beside type string, is a list of more conditions on it (patterns, formats, lengths)? */
bool gram_string_all(const struct pyjson *v, const struct pyjson *all);
/* A string with the conditions of v and of its allOf. */
uint32_t gram_schema_string(struct gram_schema *s, const struct pyjson *v, bool raw, const char *at,
                            uint32_t next);
uint32_t gram_schema_number(struct gram_schema *s, const struct pyjson *v, bool integer,
                            const char *at, uint32_t next);
uint32_t gram_schema_array(struct gram_schema *s, const struct pyjson *v, const char *at,
                           uint32_t next);
uint32_t gram_schema_object(struct gram_schema *s, const struct pyjson *v, const char *at,
                            uint32_t next);
/* The pattern of a `format`; NULL: an annotation. */
const char *gram_format(const struct pyjson *f);
/* Is a constant of one of the types (NULL: of all)? */
bool gram_literal_is(const struct pyjson *t, const struct pyjson *v);
/* Does a constant of `what` (const or enum) fit the keywords beside it? Fails for those that are
 * not looked into. */
bool gram_literal_fits(struct gram_schema *s, const struct pyjson *v, const struct pyjson *x,
                       const char *what, const char *at);
/* Do the keywords beside `what` (anyOf, oneOf, allOf: list) add nothing? Else fails. */
bool gram_beside(struct gram_schema *s, const struct pyjson *v, const struct pyjson *list,
                 const char *what, const char *at);
/* Equal, as JSON Schema has it: numbers by value, members in any order. */
bool gram_same(const struct pyjson *a, const struct pyjson *b);
/* The keywords of a schema are known, and its properties and required are right; else fails. */
bool gram_schema_check(struct gram_schema *s, const struct pyjson *v, const char *at);
bool gram_object_check(struct gram_schema *s, const struct pyjson *v, const char *at);
/* Are no two of these schemas fit by one value, as far as is easily seen? Else fails. */
bool gram_apart(struct gram_schema *s, const struct pyjson *list, const char *at);

#endif
