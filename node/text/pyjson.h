/* SPDX-License-Identifier: MIT
 * pyjson.h: JSON read and written the way Python's json module does it, which is how K3 saw JSON in
 * training: key order, repeated keys and the spelling of numbers reach the prompt byte for byte.
 *
 * Reading follows RFC 8259, plus what Python adds when `python` is set: NaN, Infinity, -Infinity,
 * and a float too large for binary64 read as an infinity. A repeated key keeps its first place and
 * its last value. Integers are kept whole at any length (`-0` becomes `0`); floats become the
 * shortest decimal that reads back as the same binary64, in Python's repr form (`1.0`, `1e-07`,
 * `1e+22`). Without `python`, a float out of range keeps the spelling it had. An escaped lone
 * surrogate becomes U+FFFD, as the reference tokenizer makes of it. Raw text must be valid UTF-8.
 *
 * A document owns all its values and strings; it is immutable and may be read by many threads. */
#ifndef SHOAL_TEXT_PYJSON_H
#define SHOAL_TEXT_PYJSON_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define PYJSON_MAX_TEXT ((size_t)64 << 20) /* bytes of one document */
#define PYJSON_MAX_DEPTH 200               /* arrays and objects inside one another */
#define PYJSON_MAX_VALUES 2000000          /* values in one document */

enum pyjson_type {
    PYJSON_NULL,
    PYJSON_FALSE,
    PYJSON_TRUE,
    PYJSON_NUMBER,
    PYJSON_STRING,
    PYJSON_ARRAY,
    PYJSON_OBJECT
};

struct pyjson {
    enum pyjson_type type;
    const char *s;   /* string: its text as UTF-8 (may hold NUL; a NUL follows it). Number: Python's
                        spelling of it. Else NULL */
    size_t n;        /* bytes at s */
    const char *key; /* of an object's member, as s; else NULL */
    size_t key_n;
    const struct pyjson *const *items; /* elements, or members in order of first place */
    size_t count;
};

struct pyjson_doc;

/* Read one document and nothing behind it but blanks. ERR_FORMAT: not JSON (byte offset and reason
 * in the sentence); ERR_LIMIT: over one of the maxima; ERR_NOMEM. `text` is not kept. */
int pyjson_parse(const char *text, size_t n, bool python, struct pyjson_doc **out, struct err *e);
const struct pyjson *pyjson_root(const struct pyjson_doc *d);
void pyjson_free(struct pyjson_doc *d); /* NULL is fine */

/* The member of an object, NULL when there is none or v is NULL or no object. */
const struct pyjson *pyjson_get(const struct pyjson *v, const char *key);
/* v is a string equal to the NUL-terminated s. False for NULL. */
bool pyjson_is(const struct pyjson *v, const char *s);

/* How to write: json.dumps(v, ensure_ascii=False) by default. */
#define PYJSON_COMPACT 1 /* separators=(",", ":") in place of ", " and ": " */
#define PYJSON_SORTED 2  /* keys of all objects in code-point order */
/* Append v to *out; 0, ERR_LIMIT (out's maximum) or ERR_NOMEM. */
int pyjson_write(const struct pyjson *v, int how, struct buf *out);
/* Append n bytes of UTF-8 as a JSON string with its quotes, as Python escapes it. */
int pyjson_write_string(const char *s, size_t n, struct buf *out);

/* Python's repr of a double: at most 32 bytes with the NUL. Independent of the locale. */
void pyjson_repr(double x, char out[32]);
/* The double nearest to a JSON number's text; infinite when out of range. */
int pyjson_double(const char *s, size_t n, double *out);

#endif
