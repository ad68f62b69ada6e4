/* SPDX-License-Identifier: MIT
 * parse_call.c: see parse_call.h. */
#include "node/text/parse_call.h"

#include "node/text/parse.h"
#include "node/text/pyjson.h"

#include <stdlib.h>
#include <string.h>

static size_t word_at(const struct buf *tag, size_t *from)
{
    size_t i = 0;
    while (i < tag->n && tag->p[i] == ' ') {
        i++;
    }
    *from = i;
    while (i < tag->n && tag->p[i] != ' ') {
        i++;
    }
    return i - *from;
}

bool parse_tag_is(const struct buf *tag, const char *name)
{
    size_t from, n = word_at(tag, &from);
    return n == strlen(name) && memcmp(tag->p + from, name, n) == 0;
}

static int unescape(const char *s, size_t n, struct buf *out)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        /* One pass does the same as &quot; first and &amp; after it: what &amp; leaves is not read
         * again, and &amp;quot; is no &quot; in either order. */
        if (n - i >= 6 && !memcmp(s + i, "&quot;", 6)) {
            rc = buf_add(out, "\"", 1);
            i += 6;
        } else if (n - i >= 5 && !memcmp(s + i, "&amp;", 5)) {
            rc = buf_add(out, "&", 1);
            i += 5;
        } else {
            rc = buf_add(out, s + i, 1);
            i++;
        }
    }
    return rc;
}

int parse_tag_attr(const struct buf *tag, const char *key, struct buf *out, bool *found)
{
    size_t from, i = word_at(tag, &from) + from, want = strlen(key);
    *found = false;
    for (;;) {
        while (i < tag->n && tag->p[i] == ' ') {
            i++;
        }
        size_t name = i;
        while (i < tag->n && tag->p[i] != '=') {
            i++;
        }
        size_t name_n = i - name;
        if (tag->n - i < 2 || tag->p[i + 1] != '"') {
            return 0; /* the end, or no attribute: what came before it counts */
        }
        i += 2;
        const char *end = memchr(tag->p + i, '"', tag->n - i);
        if (!end) {
            return 0;
        }
        size_t n = (size_t)(end - (tag->p + i));
        if (name_n == want && !memcmp(tag->p + name, key, want)) {
            *found = true;
            return unescape(tag->p + i, n, out);
        }
        i += n + 1;
    }
}

void parse_args_init(struct parse_args *a)
{
    memset(a, 0, sizeof *a);
    buf_init(&a->store, PARSE_MAX_CALL);
}

void parse_args_reset(struct parse_args *a)
{
    a->n = 0;
    buf_free(&a->store);
}

void parse_args_free(struct parse_args *a)
{
    buf_free(&a->store);
    free(a->v);
    memset(a, 0, sizeof *a);
}

static struct parse_arg *slot(struct parse_args *a, const char *key, size_t n, int *rc)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].key_n == n && (!n || !memcmp(a->store.p + a->v[i].key, key, n))) {
            return &a->v[i];
        }
    }
    if (a->n == PARSE_MAX_ARGS) {
        *rc = ERR_LIMIT;
        return NULL;
    }
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 8;
        struct parse_arg *v = realloc(a->v, cap * sizeof *v);
        if (!v) {
            *rc = ERR_NOMEM;
            return NULL;
        }
        a->v = v;
        a->cap = cap;
    }
    size_t at = a->store.n;
    if ((*rc = buf_add(&a->store, key, n))) {
        return NULL;
    }
    a->v[a->n] = (struct parse_arg){.key = at, .key_n = n};
    return &a->v[a->n++];
}

/* Put v, or else text as a string, under key. */
static int put(struct parse_args *a, const char *key, size_t key_n, const struct pyjson *v,
               const struct buf *text, struct parse_arg *out)
{
    int rc = 0;
    struct parse_arg *arg = slot(a, key, key_n, &rc);
    if (!arg) {
        return rc;
    }
    size_t at = a->store.n;
    rc = v ? pyjson_write(v, 0, &a->store) : pyjson_write_string(text->p, text->n, &a->store);
    /* A NUL behind it, for readers of the event. */
    rc = rc ? rc : buf_add(&a->store, "", 1);
    if (!rc) {
        arg->json = at;
        arg->json_n = a->store.n - 1 - at;
        *out = *arg;
    }
    return rc;
}

static bool is(const struct buf *b, const char *s)
{
    return b->n == strlen(s) && !memcmp(b->p, s, b->n);
}

int parse_args_add(struct parse_args *a, const struct buf *key, const struct buf *type,
                   const struct buf *value, struct parse_arg *arg)
{
    struct pyjson_doc *doc = NULL;
    if (type->n && !is(type, "string")) {
        int rc = pyjson_parse(value->p, value->n, false, &doc, NULL);
        if (rc == ERR_NOMEM) {
            return rc;
        }
    }
    int rc = put(a, key->p, key->n, doc ? pyjson_root(doc) : NULL, value, arg);
    pyjson_free(doc);
    return rc;
}

int parse_args_add_object(struct parse_args *a, const struct buf *text)
{
    struct pyjson_doc *doc;
    struct parse_arg arg;
    int rc = pyjson_parse(text->p, text->n, false, &doc, NULL);
    if (rc) {
        return rc;
    }
    const struct pyjson *v = pyjson_root(doc);
    rc = v->type == PYJSON_OBJECT ? 0 : ERR_FORMAT;
    for (size_t i = 0; i < v->count && !rc; i++) {
        rc = put(a, v->items[i]->key, v->items[i]->key_n, v->items[i], NULL, &arg);
    }
    pyjson_free(doc);
    return rc;
}

int parse_args_write(const struct parse_args *a, struct buf *out)
{
    int rc = buf_adds(out, "{");
    for (size_t i = 0; i < a->n && !rc; i++) {
        const struct parse_arg *v = &a->v[i];
        rc = i ? buf_adds(out, ", ") : 0;
        rc = rc ? rc : pyjson_write_string(a->store.p + v->key, v->key_n, out);
        rc = rc ? rc : buf_adds(out, ": ");
        rc = rc ? rc : buf_add(out, a->store.p + v->json, v->json_n);
    }
    return rc ? rc : buf_adds(out, "}");
}
