/* SPDX-License-Identifier: MIT
 * chat_out.c: see chat_out.h. The pieces in which an attribute is tokenised (` key`, `="`, value,
 * `"`) are those of the reference encoder. */
#include "node/text/chat_out.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void chat_out_init(struct chat_out *o)
{
    memset(o, 0, sizeof *o);
    buf_init(&o->text, CHAT_MAX_TEXT);
}

void chat_out_free(struct chat_out *o)
{
    buf_free(&o->text);
    free(o->segs);
    memset(o, 0, sizeof *o);
}

int chat_out_end(struct chat_out *o, struct chat_prompt *p, struct err *e)
{
    int rc = o->rc ? o->rc : buf_reserve(&o->text, 0);
    if (rc == ERR_LIMIT) {
        err_set(e, rc, "request: the prompt is over %zu MiB or %zu segments; send less",
                CHAT_MAX_TEXT >> 20, CHAT_MAX_SEGS);
    } else if (rc) {
        err_set(e, rc, "out of memory while rendering the prompt");
    }
    if (!rc) {
        p->text = buf_take(&o->text, &p->text_n);
        p->segs = o->segs;
        p->nsegs = o->nsegs;
        o->segs = NULL;
    }
    chat_out_free(o);
    return rc;
}

static void segment(struct chat_out *o, size_t from, bool trusted)
{
    if (o->rc || o->text.n == from) {
        return;
    }
    if (o->nsegs == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 64;
        struct chat_seg *s = NULL;
        if (cap > CHAT_MAX_SEGS) {
            o->rc = ERR_LIMIT;
            return;
        }
        s = realloc(o->segs, cap * sizeof *s);
        if (!s) {
            o->rc = ERR_NOMEM;
            return;
        }
        o->segs = s;
        o->cap = cap;
    }
    o->segs[o->nsegs++] = (struct chat_seg){.off = from, .n = o->text.n - from, .trusted = trusted};
}

size_t chat_mark(const struct chat_out *o)
{
    return o->text.n;
}

void chat_keep(struct chat_out *o, int rc)
{
    if (!o->rc) {
        o->rc = rc;
    }
}

void chat_cut(struct chat_out *o, size_t mark)
{
    segment(o, mark, false);
}

static void add(struct chat_out *o, const char *s, size_t n, bool trusted)
{
    size_t from = o->text.n;
    if (!o->rc) {
        o->rc = buf_add(&o->text, s, n);
        segment(o, from, trusted);
    }
}

void chat_text(struct chat_out *o, const char *s, size_t n)
{
    add(o, s, n, false);
}

void chat_texts(struct chat_out *o, const char *s)
{
    add(o, s, strlen(s), false);
}

static void control(struct chat_out *o, const char *s)
{
    add(o, s, strlen(s), true);
}

void chat_open(struct chat_out *o, const char *tag)
{
    control(o, "<|open|>");
    chat_texts(o, tag);
}

void chat_attr(struct chat_out *o, const char *key, const char *value, size_t n)
{
    size_t mark = chat_mark(o);
    if (!o->rc) {
        chat_keep(o, buf_addf(&o->text, " %s", key));
    }
    chat_cut(o, mark);
    chat_texts(o, "=\"");
    mark = chat_mark(o);
    for (size_t i = 0, from = 0; !o->rc && i <= n; i++) {
        if (i == n || value[i] == '&' || value[i] == '"') {
            chat_keep(o, buf_add(&o->text, value + from, i - from));
            if (i < n && !o->rc) {
                chat_keep(o, buf_adds(&o->text, value[i] == '&' ? "&amp;" : "&quot;"));
            }
            from = i + 1;
        }
    }
    chat_cut(o, mark);
    chat_texts(o, "\"");
}

void chat_attrs(struct chat_out *o, const char *key, const char *value)
{
    chat_attr(o, key, value, strlen(value));
}

void chat_attr_index(struct chat_out *o, size_t index)
{
    char t[24];
    snprintf(t, sizeof t, "%zu", index);
    chat_attrs(o, "index", t);
}

void chat_sep(struct chat_out *o)
{
    control(o, "<|sep|>");
}

void chat_element(struct chat_out *o, const char *tag)
{
    chat_open(o, tag);
    chat_sep(o);
}

void chat_close(struct chat_out *o, const char *tag)
{
    control(o, "<|close|>");
    chat_texts(o, tag);
    chat_sep(o);
}

void chat_close_message(struct chat_out *o)
{
    chat_close(o, "message");
    control(o, "<|end_of_msg|>");
}
