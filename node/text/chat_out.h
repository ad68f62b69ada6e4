/* SPDX-License-Identifier: MIT
 * chat_out.h: private to the renderer: a prompt under construction, element by element.
 *
 * Failure is sticky: after the first one nothing is added, and chat_out_end reports it. */
#ifndef SHOAL_TEXT_CHAT_OUT_H
#define SHOAL_TEXT_CHAT_OUT_H

#include "node/text/chat.h"
#include "proto/base/buf.h"

struct chat_out {
    struct buf text;
    struct chat_seg *segs;
    size_t nsegs, cap;
    int rc;
};

void chat_out_init(struct chat_out *o);
/* Move the result to *p, or free all and report. */
int chat_out_end(struct chat_out *o, struct chat_prompt *p, struct err *e);
void chat_out_free(struct chat_out *o);

/* One segment of ordinary text; an empty one leaves no trace. */
void chat_text(struct chat_out *o, const char *s, size_t n);
void chat_texts(struct chat_out *o, const char *s);
/* Several writes that make one segment: mark, write to o->text by way of chat_keep, then cut. */
size_t chat_mark(const struct chat_out *o);
void chat_keep(struct chat_out *o, int rc); /* takes over the result of a buf_... or pyjson_write */
void chat_cut(struct chat_out *o, size_t mark);

/* <|open|>TAG, then any number of chat_attr, then chat_sep. */
void chat_open(struct chat_out *o, const char *tag);
void chat_attr(struct chat_out *o, const char *key, const char *value, size_t n);
void chat_attrs(struct chat_out *o, const char *key, const char *value);
void chat_attr_index(struct chat_out *o, size_t index);
void chat_sep(struct chat_out *o);
/* chat_open and chat_sep at once. */
void chat_element(struct chat_out *o, const char *tag);
/* <|close|>TAG<|sep|>. */
void chat_close(struct chat_out *o, const char *tag);
/* <|close|>message<|sep|><|end_of_msg|>. */
void chat_close_message(struct chat_out *o);

#endif
