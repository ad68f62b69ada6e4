/* SPDX-License-Identifier: MIT
 * parse.c: the state machine; see parse.h.
 *
 * Two things are known at any time: where the text that comes belongs (`where`), and whether it is
 * the text of a tag instead (`tag_kind`). Structure tokens switch, tags act when their <|sep|>
 * comes. */
#include "node/text/parse.h"

#include "node/text/parse_call.h"

#include <stdlib.h>
#include <string.h>

enum where {
    IN_MESSAGE, /* between elements; blanks are skipped */
    IN_LOOSE,   /* text between elements, taken for content */
    IN_THINK,
    IN_RESPONSE,
    IN_TOOLS,
    IN_CALL,
    IN_DEAD,   /* in a call that was dropped */
    IN_VALUE,  /* in an argument */
    IN_JSON,   /* in a call's `json` element */
    IN_NOTHING /* the message was closed */
};

enum tag_kind { NO_TAG, OPENING, CLOSING };

struct parse {
    const struct tok *tok;
    uint32_t open_id, close_id, sep_id, end_id, eos_id;
    parse_sink sink;
    void *ctx;
    enum parse_reason reason;
    enum where where;
    enum tag_kind tag_kind;
    bool tag_over; /* the tag was too long: its text is void */
    struct buf tag;
    struct tok_stream stream;
    struct buf name;             /* of the call being read */
    struct buf key, type, value; /* of the argument being read */
    struct parse_args args;
    size_t calls;
};

static int emit(struct parse *p, struct parse_event *ev)
{
    ev->call = p->calls;
    ev->reason = p->reason;
    return p->sink(p->ctx, ev);
}

static int emit_text(struct parse *p, enum parse_event_type type, const char *s, size_t n)
{
    struct parse_event ev = {.type = type, .text = s, .text_n = n};
    return n ? emit(p, &ev) : 0;
}

/* The call being read is void. */
static int drop_call(struct parse *p)
{
    struct parse_event ev = {.type = PARSE_CALL_DROP};
    bool told = p->where == IN_CALL || p->where == IN_VALUE || p->where == IN_JSON;
    parse_args_reset(&p->args);
    buf_free(&p->value);
    return told ? emit(p, &ev) : 0;
}

static int kill_call(struct parse *p)
{
    int rc = drop_call(p);
    p->where = IN_DEAD;
    return rc;
}

/* A maximum met inside a call costs the call, not the answer. */
static int in_call(struct parse *p, int rc)
{
    return rc == ERR_LIMIT ? kill_call(p) : rc;
}

/* n bytes of whole characters that belong where the parser stands. */
static int text(struct parse *p, const char *s, size_t n)
{
    if (p->tag_kind != NO_TAG) {
        int rc = p->tag_over ? 0 : buf_add(&p->tag, s, n);
        p->tag_over |= rc == ERR_LIMIT;
        return rc == ERR_LIMIT ? 0 : rc;
    }
    switch (p->where) {
    case IN_THINK:
        return emit_text(p, PARSE_REASONING, s, n);
    case IN_MESSAGE:
        while (n && (*s == ' ' || *s == '\t' || *s == '\n' || *s == '\r')) {
            s++;
            n--;
        }
        if (!n) {
            return 0;
        }
        p->where = IN_LOOSE;
        return emit_text(p, PARSE_CONTENT, s, n);
    case IN_LOOSE:
    case IN_RESPONSE:
        return emit_text(p, PARSE_CONTENT, s, n);
    case IN_VALUE:
    case IN_JSON:
        return in_call(p, buf_add(&p->value, s, n));
    default:
        return 0;
    }
}

static int flush(struct parse *p)
{
    char last[8];
    size_t n = tok_stream_flush(&p->stream, last);
    return n ? text(p, last, n) : 0;
}

static int token_text(struct parse *p, uint32_t id)
{
    char dst[TOK_STREAM_ROOM(TOK_MAX_TOKEN)];
    size_t n;
    const char *s = tok_bytes(p->tok, id, &n);
    n = tok_stream_push(&p->stream, s, n, dst);
    return n ? text(p, dst, n) : 0;
}

static int begin_call(struct parse *p)
{
    bool named;
    buf_free(&p->name);
    parse_args_reset(&p->args);
    int rc = parse_tag_attr(&p->tag, "tool", &p->name, &named);
    if (rc == ERR_NOMEM) {
        return rc;
    }
    if (rc || !named || !p->name.n || p->calls == PARSE_MAX_CALLS) {
        p->where = IN_DEAD;
        return 0;
    }
    p->where = IN_CALL;
    struct parse_event ev = {.type = PARSE_CALL_BEGIN, .name = p->name.p, .name_n = p->name.n};
    return emit(p, &ev);
}

static int end_call(struct parse *p)
{
    struct buf all;
    buf_init(&all, 4 * PARSE_MAX_CALL);
    int rc = parse_args_write(&p->args, &all);
    if (rc) {
        buf_free(&all);
        return in_call(p, rc);
    }
    struct parse_event ev = {.type = PARSE_CALL_END,
                             .name = p->name.p,
                             .name_n = p->name.n,
                             .text = all.p,
                             .text_n = all.n};
    rc = emit(p, &ev);
    buf_free(&all);
    parse_args_reset(&p->args);
    p->calls++;
    p->where = IN_TOOLS;
    return rc;
}

static int begin_argument(struct parse *p)
{
    bool keyed, typed;
    buf_free(&p->key);
    buf_free(&p->type);
    buf_free(&p->value);
    int rc = parse_tag_attr(&p->tag, "key", &p->key, &keyed);
    rc = rc ? rc : parse_tag_attr(&p->tag, "type", &p->type, &typed);
    if (rc || !keyed) {
        return rc == ERR_NOMEM ? rc : kill_call(p);
    }
    p->where = IN_VALUE;
    return buf_reserve(&p->key, 0); /* so that an empty key is a string, too */
}

static int end_argument(struct parse *p)
{
    struct parse_arg arg;
    int rc = parse_args_add(&p->args, &p->key, &p->type, &p->value, &arg);
    buf_free(&p->value);
    if (rc) {
        return in_call(p, rc);
    }
    p->where = IN_CALL;
    struct parse_event ev = {.type = PARSE_CALL_ARG,
                             .name = p->key.p,
                             .name_n = p->key.n,
                             .text = p->args.store.p + arg.json,
                             .text_n = arg.json_n};
    return emit(p, &ev);
}

static int end_json(struct parse *p)
{
    int rc = parse_args_add_object(&p->args, &p->value);
    buf_free(&p->value);
    p->where = IN_CALL;
    return rc == ERR_FORMAT ? kill_call(p) : in_call(p, rc);
}

/* An opening that ends everything that was running. */
static int enter(struct parse *p, enum where where)
{
    int rc = drop_call(p);
    p->where = where;
    return rc;
}

static bool in_value(const struct parse *p)
{
    return p->where == IN_VALUE || p->where == IN_JSON;
}

static int opened(struct parse *p)
{
    const struct buf *t = &p->tag;
    if (parse_tag_is(t, "think")) {
        return enter(p, IN_THINK);
    }
    if (parse_tag_is(t, "response")) {
        return enter(p, IN_RESPONSE);
    }
    if (parse_tag_is(t, "tools")) {
        return enter(p, IN_TOOLS);
    }
    if (parse_tag_is(t, "call")) {
        int rc = drop_call(p);
        return rc ? rc : begin_call(p);
    }
    if (p->where == IN_CALL && parse_tag_is(t, "argument")) {
        return begin_argument(p);
    }
    if (p->where == IN_CALL && parse_tag_is(t, "json")) {
        buf_free(&p->value);
        p->where = IN_JSON;
        return 0;
    }
    return in_value(p) ? kill_call(p) : 0;
}

static int closed(struct parse *p)
{
    const struct buf *t = &p->tag;
    enum where w = p->where;
    bool calling = w == IN_TOOLS || w == IN_CALL || w == IN_DEAD || in_value(p);
    if (parse_tag_is(t, "message")) {
        return enter(p, IN_NOTHING);
    }
    if (calling && parse_tag_is(t, "tools")) {
        return enter(p, IN_MESSAGE);
    }
    if (parse_tag_is(t, "call") && w != IN_TOOLS && calling) {
        return w == IN_CALL ? end_call(p) : enter(p, IN_TOOLS);
    }
    if (w == IN_VALUE && parse_tag_is(t, "argument")) {
        return end_argument(p);
    }
    if (w == IN_JSON && parse_tag_is(t, "json")) {
        return end_json(p);
    }
    if ((w == IN_THINK && parse_tag_is(t, "think")) ||
        ((w == IN_RESPONSE || w == IN_LOOSE) && parse_tag_is(t, "response"))) {
        p->where = IN_MESSAGE;
        return 0;
    }
    return in_value(p) ? kill_call(p) : 0;
}

/* A structure token came while `tag` was still without its <|sep|>, or a <|sep|> without a tag. */
static int broken_tag(struct parse *p)
{
    p->tag_kind = NO_TAG;
    return in_value(p) ? kill_call(p) : 0;
}

static int begin_tag(struct parse *p, enum tag_kind kind)
{
    int rc = p->tag_kind != NO_TAG ? broken_tag(p) : 0;
    buf_free(&p->tag);
    p->tag_over = false;
    p->tag_kind = kind;
    return rc;
}

static int end_tag(struct parse *p)
{
    enum tag_kind kind = p->tag_kind;
    if (kind == NO_TAG || p->tag_over) {
        return broken_tag(p);
    }
    p->tag_kind = NO_TAG;
    if (p->where == IN_NOTHING) {
        return 0;
    }
    return kind == OPENING ? opened(p) : closed(p);
}

static int end(struct parse *p, enum parse_reason reason)
{
    struct parse_event ev = {.type = PARSE_FINISH};
    p->tag_kind = NO_TAG;
    int rc = enter(p, IN_NOTHING);
    p->reason = reason;
    return rc ? rc : emit(p, &ev);
}

static int one(struct parse *p, uint32_t id)
{
    if (!tok_is_special(p->tok, id)) {
        return token_text(p, id);
    }
    int rc = flush(p); /* no character reaches over a special token */
    if (rc) {
        return rc;
    }
    if (id == p->open_id || id == p->close_id) {
        return begin_tag(p, id == p->open_id ? OPENING : CLOSING);
    }
    if (id == p->sep_id) {
        return end_tag(p);
    }
    if (id == p->end_id || id == p->eos_id) {
        return end(p, id == p->end_id ? PARSE_MESSAGE : PARSE_EOS);
    }
    return 0;
}

int parse_open(const struct tok *t, bool thinking, parse_sink sink, void *ctx, struct parse **out,
               struct err *e)
{
    struct parse *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory for the output parser");
    }
    const struct {
        const char *name;
        uint32_t *id;
    } need[] = {{"<|open|>", &p->open_id},
                {"<|close|>", &p->close_id},
                {"<|sep|>", &p->sep_id},
                {"<|end_of_msg|>", &p->end_id}};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        if (!tok_special_id(t, need[i].name, need[i].id)) {
            free(p);
            return err_set(e, ERR_FORMAT,
                           "tokenizer_config.json names no token %s, which K3's chat form needs",
                           need[i].name);
        }
    }
    if (!tok_special_id(t, "[EOS]", &p->eos_id)) {
        p->eos_id = p->end_id;
    }
    p->tok = t;
    p->sink = sink;
    p->ctx = ctx;
    p->where = thinking ? IN_THINK : IN_RESPONSE;
    buf_init(&p->tag, PARSE_MAX_TAG);
    buf_init(&p->name, PARSE_MAX_TAG);
    buf_init(&p->key, PARSE_MAX_TAG);
    buf_init(&p->type, PARSE_MAX_TAG);
    buf_init(&p->value, PARSE_MAX_CALL);
    parse_args_init(&p->args);
    *out = p;
    return 0;
}

void parse_close(struct parse *p)
{
    if (!p) {
        return;
    }
    buf_free(&p->tag);
    buf_free(&p->name);
    buf_free(&p->key);
    buf_free(&p->type);
    buf_free(&p->value);
    parse_args_free(&p->args);
    free(p);
}

static int report(struct err *e, int rc)
{
    return rc ? err_set(e, rc, "the output parser stopped: %s", err_text(rc)) : 0;
}

int parse_feed(struct parse *p, const uint32_t *ids, size_t n, struct err *e)
{
    for (size_t i = 0; i < n && p->reason == PARSE_RUNNING; i++) {
        if (ids[i] >= tok_vocab(p->tok)) {
            return err_set(e, ERR_ARG, "token id %u is outside the vocabulary of %u", ids[i],
                           tok_vocab(p->tok));
        }
        int rc = one(p, ids[i]);
        if (rc) {
            return report(e, rc);
        }
    }
    return 0;
}

int parse_finish(struct parse *p, struct err *e)
{
    if (p->reason != PARSE_RUNNING) {
        return 0;
    }
    int rc = flush(p);
    return report(e, rc ? rc : end(p, PARSE_LENGTH));
}

enum parse_reason parse_ended(const struct parse *p)
{
    return p->reason;
}

size_t parse_calls(const struct parse *p)
{
    return p->calls;
}

bool parse_in_content(const struct parse *p)
{
    return p->tag_kind == NO_TAG &&
           (p->where == IN_RESPONSE || p->where == IN_LOOSE || p->where == IN_MESSAGE);
}
