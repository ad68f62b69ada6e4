/* SPDX-License-Identifier: MIT
 * jscan.h: a pull scanner for JSON texts of many megabytes (the index and the shard headers): one
 * pass, no tree, no allocation; strings without escapes are handed out in place.
 *
 * Every function returns 0 or ERR_FORMAT / ERR_LIMIT; the first failure sticks and its sentence
 * ("byte 17: ...") is in s->e, for the caller to prefix with the file's name. Strict RFC 8259
 * grammar; bytes above 127 inside strings pass unchecked (compare or print them with care). */
#ifndef SHOAL_NODE_MODEL_JSCAN_H
#define SHOAL_NODE_MODEL_JSCAN_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSCAN_MAX_DEPTH 32    /* nested objects and arrays */
#define JSCAN_MAX_STRING 1024 /* bytes of a string that is handed out */

struct jstr {
    const char *p; /* not terminated; valid until the next key (keys) or value (values) is read */
    size_t n;
};

struct jscan {
    const char *begin, *p, *end;
    unsigned depth;
    uint64_t started; /* bit d: depth d has had a member, so a comma comes next */
    struct err e;
    char key[JSCAN_MAX_STRING], value[JSCAN_MAX_STRING];
};

void jscan_init(struct jscan *s, const char *p, size_t n); /* the bytes are borrowed */
int jscan_object(struct jscan *s);                         /* consume '{' */
/* The next member's key and its colon; *more = false when '}' was consumed instead. */
int jscan_key(struct jscan *s, struct jstr *key, bool *more);
int jscan_array(struct jscan *s);                  /* consume '[' */
int jscan_item(struct jscan *s, bool *more);       /* is there another item; false: ']' consumed */
int jscan_string(struct jscan *s, struct jstr *v); /* a string value */
int jscan_u64(struct jscan *s, uint64_t *v);       /* an integer from 0 to 2^64-1, no fraction */
int jscan_skip(struct jscan *s);                   /* any one value, checked and dropped */
int jscan_end(struct jscan *s);                    /* nothing but white space may follow */
bool jstr_eq(struct jstr s, const char *z);

#endif
