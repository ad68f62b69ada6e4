/* SPDX-License-Identifier: MIT
 * sendback.c: see sendback.h. */
#include "node/api/sendback.h"

#include "node/text/pyjson.h"

#include <string.h>

static int put_text(struct buf *b, const char *key, const char *s, size_t n)
{
    int r = buf_addf(b, ",\"%s\":", key);
    return r ? r : s ? pyjson_write_string(s, n, b) : buf_adds(b, "null");
}

static int put_message(struct buf *b, const struct parse_answer *a, const char *const *call_ids,
                       size_t n_calls)
{
    int r = buf_adds(b, "{\"role\":\"assistant\"");
    r = r ? r : put_text(b, "content", a->content ? a->content : "", a->content_n);
    if (!r && a->reasoning) {
        r = put_text(b, "reasoning_content", a->reasoning, a->reasoning_n);
    }
    for (size_t i = 0; i < n_calls && i < a->ncalls && !r; i++) {
        const struct parse_call *c = &a->calls[i];
        r = buf_addf(b, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
                     i ? "," : ",\"tool_calls\":[", call_ids[i]);
        r = r ? r : pyjson_write_string(c->name, c->name_n, b);
        r = r ? r : put_text(b, "arguments", c->arguments, c->arguments_n);
        r = r ? r : buf_adds(b, i + 1 == n_calls || i + 1 == a->ncalls ? "}}]" : "}}");
    }
    return r ? r : buf_adds(b, "}");
}

int sendback_ids(const struct tok *t, const char *request, size_t n, enum chat_think fallback,
                 const struct parse_answer *a, const char *const *call_ids, size_t n_calls,
                 struct tok_ids *ids)
{
    struct pyjson_doc *d = NULL;
    struct buf b;
    struct err e;
    struct chat_prompt p;
    buf_init(&b, CHAT_MAX_REQUEST);
    int r = pyjson_parse(request, n, false, &d, &e);
    const struct pyjson *root = r ? NULL : pyjson_root(d);
    if (!r) {
        r = buf_adds(&b, "{\"add_generation_prompt\":false");
    }
    for (size_t i = 0; !r && i < root->count; i++) {
        const struct pyjson *m = root->items[i];
        bool messages = m->key_n == 8 && !memcmp(m->key, "messages", 8);
        /* what was asked for this one answer only is not part of what follows */
        if ((m->key_n == 11 && !memcmp(m->key, "tool_choice", 11)) ||
            (m->key_n == 15 && !memcmp(m->key, "response_format", 15)) ||
            (m->key_n == 21 && !memcmp(m->key, "add_generation_prompt", 21))) {
            continue;
        }
        r = buf_adds(&b, ",");
        r = r ? r : pyjson_write_string(m->key, m->key_n, &b);
        r = r ? r : buf_adds(&b, ":");
        if (messages && m->type == PYJSON_ARRAY) {
            r = r ? r : buf_adds(&b, "[");
            for (size_t k = 0; k < m->count && !r; k++) {
                r = pyjson_write(m->items[k], PYJSON_COMPACT, &b);
                r = r ? r : buf_adds(&b, ",");
            }
            r = r ? r : put_message(&b, a, call_ids, n_calls);
            r = r ? r : buf_adds(&b, "]");
        } else {
            r = r ? r : pyjson_write(m, PYJSON_COMPACT, &b);
        }
    }
    r = r ? r : buf_adds(&b, "}");
    r = r ? r : chat_render(b.p, b.n, fallback, &p, &e);
    if (!r) {
        r = chat_prompt_ids(&p, t, ids, &e);
        chat_prompt_free(&p);
    }
    pyjson_free(d);
    buf_free(&b);
    return r;
}
