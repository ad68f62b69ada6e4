/* SPDX-License-Identifier: MIT
 * chat_calls.c: see chat_calls.h. */
#include "node/text/chat_calls.h"

#include "node/text/chat_str.h"

#include <stdlib.h>
#include <string.h>

static bool given(const struct pyjson *v)
{
    return v && v->type != PYJSON_NULL;
}

static int compare(const struct pyjson *a, const struct pyjson *b)
{
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

static int by_id(const void *a, const void *b)
{
    const struct chat_call_id *x = a, *y = b;
    int c = compare(x->id, y->id);
    return c ? c : x->call < y->call ? -1 : x->call > y->call;
}

static const char *type_name(const struct pyjson *v)
{
    switch (v->type) {
    case PYJSON_NULL:
        return "null";
    case PYJSON_FALSE:
    case PYJSON_TRUE:
        return "boolean";
    case PYJSON_NUMBER:
        return "number";
    case PYJSON_STRING:
        return "string";
    case PYJSON_OBJECT:
        return "object";
    default:
        return "array";
    }
}

static void argument(struct chat_out *o, const struct pyjson *v)
{
    chat_open(o, "argument");
    chat_attr(o, "key", v->key, v->key_n);
    chat_attrs(o, "type", type_name(v));
    chat_sep(o);
    if (v->type == PYJSON_STRING) {
        chat_text(o, v->s, v->n);
    } else {
        size_t mark = chat_mark(o);
        if (!o->rc) {
            chat_keep(o, pyjson_write(v, 0, &o->text));
        }
        chat_cut(o, mark);
    }
    chat_close(o, "argument");
}

static int arguments(struct chat_out *o, const struct pyjson *a, size_t at, size_t call,
                     struct err *e)
{
    struct pyjson_doc *doc = NULL;
    int rc = 0;
    if (!given(a)) {
        return 0;
    }
    if (a->type == PYJSON_STRING) {
        if (chat_blank(a->s, a->n)) {
            return 0;
        }
        rc = pyjson_parse(a->s, a->n, true, &doc, e);
        if (rc == ERR_FORMAT) { /* an earlier answer's broken JSON is shown to the model as it is */
            chat_open(o, "json");
            chat_attrs(o, "type", "object");
            chat_sep(o);
            chat_text(o, a->s, a->n);
            chat_close(o, "json");
            return 0;
        }
        if (rc) {
            return rc == ERR_NOMEM
                       ? rc
                       : err_prefix(e, "messages[%zu].tool_calls[%zu].function.arguments", at,
                                    call);
        }
        a = pyjson_root(doc);
    }
    if (a->type != PYJSON_OBJECT) {
        rc = err_set(e, ERR_FORMAT,
                     "messages[%zu].tool_calls[%zu].function.arguments: must be a JSON object", at,
                     call);
    }
    for (size_t i = 0; !rc && i < a->count; i++) {
        argument(o, a->items[i]);
    }
    pyjson_free(doc);
    return rc;
}

static int one_call(struct chat_calls *c, const struct pyjson *v, size_t at, struct chat_out *o,
                    struct err *e)
{
    const struct pyjson *f = pyjson_get(v, "function"), *id = pyjson_get(v, "id");
    size_t call = c->count;
    f = given(f) ? f : v;
    const struct pyjson *name = pyjson_get(f, "name");
    if (v->type != PYJSON_OBJECT) {
        return err_set(e, ERR_FORMAT, "messages[%zu].tool_calls[%zu]: must be an object", at, call);
    }
    if (!name || name->type != PYJSON_STRING) {
        return err_set(e, ERR_FORMAT,
                       "messages[%zu].tool_calls[%zu].function.name: must be a "
                       "string",
                       at, call);
    }
    if (given(id)) {
        if (id->type != PYJSON_STRING && id->type != PYJSON_NUMBER) {
            return err_set(e, ERR_FORMAT, "messages[%zu].tool_calls[%zu].id: must be a string", at,
                           call);
        }
        c->ids[c->nids++] = (struct chat_call_id){.id = id, .call = call};
    }
    c->names[c->count++] = name;
    chat_open(o, "call");
    chat_attr(o, "tool", name->s, name->n);
    chat_attr_index(o, c->count);
    chat_sep(o);
    int rc = arguments(o, pyjson_get(f, "arguments"), at, call, e);
    chat_close(o, "call");
    return rc;
}

int chat_calls_render(struct chat_calls *c, const struct pyjson *calls, size_t at,
                      struct chat_out *o, struct err *e)
{
    if (!given(calls)) {
        return 0;
    }
    if (calls->type != PYJSON_ARRAY) {
        return err_set(e, ERR_FORMAT, "messages[%zu].tool_calls: must be an array", at);
    }
    if (!calls->count) {
        return 0;
    }
    c->names = malloc(calls->count * sizeof *c->names);
    c->ids = malloc(calls->count * sizeof *c->ids);
    if (!c->names || !c->ids) {
        return err_set(e, ERR_NOMEM, "out of memory while rendering the prompt");
    }
    chat_element(o, "tools");
    for (size_t i = 0; i < calls->count; i++) {
        int rc = one_call(c, calls->items[i], at, o, e);
        if (rc) {
            return rc;
        }
    }
    chat_close(o, "tools");
    qsort(c->ids, c->nids, sizeof *c->ids, by_id);
    return 0;
}

bool chat_calls_find(const struct chat_calls *c, const struct pyjson *id, size_t *call)
{
    size_t lo = 0, hi = c->nids; /* the first entry that is not before id */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compare(c->ids[mid].id, id) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    if (lo == c->nids || compare(c->ids[lo].id, id) != 0) {
        return false;
    }
    *call = c->ids[lo].call;
    return true;
}

void chat_calls_free(struct chat_calls *c)
{
    free(c->names);
    free(c->ids);
    memset(c, 0, sizeof *c);
}
