/* SPDX-License-Identifier: MIT
 * answer.c: see answer.h. */
#include "node/cli/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)256 << 20)

struct stream {
    struct cli_session *s;
    const struct answer_opts *o;
    struct answer *a;
    struct parse *parse;
    struct tok_stream utf8;
    uint64_t tokens;
    bool tty;
    enum { WROTE_NONE, WROTE_REASONING, WROTE_CONTENT } wrote;
    char last; /* last byte written to stdout */
    int code;  /* first failure inside a hook */
    struct err err;
};

static int put(struct stream *t, const char *p, size_t n)
{
    if (!n || !t->o->stream) {
        return 0;
    }
    t->last = p[n - 1];
    if (live_text(t->s->live, p, n)) {
        return t->code = err_set(&t->err, ERR_IO, "cannot write the answer to standard output");
    }
    return 0;
}

/* What the model says; a terminal shows it and does not obey it. */
static int put_text(struct stream *t, const char *p, size_t n)
{
    char *plain = t->tty && n ? malloc(n) : NULL;
    if (t->tty && n && !plain) {
        return t->code = err_set(&t->err, ERR_NOMEM, "out of memory for the answer");
    }
    int r = plain ? put(t, plain, live_plain(p, n, plain)) : put(t, p, n);
    free(plain);
    return r;
}

static int puts_mark(struct stream *t, const char *tty, const char *plain)
{
    const char *m = t->tty ? tty : plain;
    return put(t, m, strlen(m));
}

/* Reasoning is set off from the answer: dim on a terminal, marked elsewhere. */
static int put_reasoning(struct stream *t, const char *p, size_t n)
{
    if (t->wrote != WROTE_REASONING) {
        t->wrote = WROTE_REASONING;
        if (puts_mark(t, "\033[2m", "[thinking] ")) {
            return t->code;
        }
    }
    return put_text(t, p, n);
}

static int put_content(struct stream *t, const char *p, size_t n)
{
    if (t->wrote == WROTE_REASONING && puts_mark(t, "\033[0m\n\n", "\n[answer] ")) {
        return t->code;
    }
    t->wrote = WROTE_CONTENT;
    return put_text(t, p, n);
}

static int on_event(void *ctx, const struct parse_event *ev)
{
    struct stream *t = ctx;
    int r = parse_collect(&t->a->parsed, ev);
    if (r) {
        return t->code = err_set(&t->err, r, "out of memory for the answer");
    }
    switch (ev->type) {
    case PARSE_REASONING:
        return put_reasoning(t, ev->text, ev->text_n);
    case PARSE_CONTENT:
        return put_content(t, ev->text, ev->text_n);
    case PARSE_CALL_END:
        if (put_content(t, "\n[call] ", 8) || put_text(t, ev->name, ev->name_n) || put(t, " ", 1)) {
            return t->code;
        }
        return put_text(t, ev->text, ev->text_n);
    default:
        return 0;
    }
}

static int raw_token(struct stream *t, uint32_t id)
{
    size_t n;
    const char *p = t->s->tok ? tok_bytes(t->s->tok, id, &n) : NULL;
    if (!p || tok_is_skipped(t->s->tok, id)) {
        return 0;
    }
    char room[TOK_STREAM_ROOM(TOK_MAX_TOKEN)];
    size_t k = tok_stream_push(&t->utf8, p, n, room);
    int r = buf_add(&t->a->text, room, k);
    if (r) {
        return t->code = err_set(&t->err, r, "the answer is too long: %s", err_text(r));
    }
    return put_text(t, room, k);
}

static int on_token(void *ctx, uint32_t id)
{
    struct stream *t = ctx;
    cli_session_phase(t->s, PHASE_DECODE, ++t->tokens, t->o->gen.max_new);
    int r = t->parse ? parse_feed(t->parse, &id, 1, &t->err) : raw_token(t, id);
    if (r && !t->code) {
        t->code = r;
    }
    return r || cli_interrupted();
}

/* Bytes that the answer rests on were taken back. What is on the screen is compared. */
static bool on_again(void *ctx, const char *why)
{
    struct stream *t = ctx;
    struct parse *parse = NULL;
    struct err e;
    char line[800];
    snprintf(line, sizeof line, "the answer begins anew: %s", why);
    live_log(t->s->live, line);
    if (t->o->stream ||
        (t->parse && parse_open(t->s->tok, t->o->thinking, on_event, t, &parse, &e))) {
        return false;
    }
    parse_close(t->parse);
    t->parse = parse;
    parse_answer_free(&t->a->parsed);
    memset(&t->utf8, 0, sizeof t->utf8);
    t->a->text.n = 0;
    t->tokens = 0;
    t->wrote = WROTE_NONE;
    return true;
}

static void on_prefill(void *ctx, size_t done, size_t total)
{
    struct stream *t = ctx;
    cli_session_phase(t->s, PHASE_PREFILL, done, total);
}

/* What is held back, marks and the last line end. */
static int finish(struct stream *t, struct err *e)
{
    if (t->parse) {
        int r = parse_finish(t->parse, e);
        if (r) {
            return r;
        }
        if (t->a->parsed.content_n &&
            buf_add(&t->a->text, t->a->parsed.content, t->a->parsed.content_n)) {
            return err_set(e, ERR_NOMEM, "out of memory for the answer");
        }
        if (t->wrote == WROTE_REASONING) {
            puts_mark(t, "\033[0m", "");
        }
    } else {
        char room[4];
        size_t k = tok_stream_flush(&t->utf8, room);
        if (buf_add(&t->a->text, room, k)) {
            return err_set(e, ERR_NOMEM, "out of memory for the answer");
        }
        put(t, room, k);
    }
    if (t->last && t->last != '\n') {
        put(t, "\n", 1);
    }
    if (t->code) {
        *e = t->err;
    }
    return t->code;
}

int answer_run(struct cli_session *s, const struct answer_opts *o, struct answer *a, struct err *e)
{
    struct stream t = {.s = s, .o = o, .a = a, .tty = isatty(STDOUT_FILENO)};
    memset(a, 0, sizeof *a);
    buf_init(&a->text, TEXT_MAX);
    if (o->chat) {
        int r = parse_open(s->tok, o->thinking, on_event, &t, &t.parse, e);
        if (r) {
            return r;
        }
    }
    uint32_t stops[SESSION_STOPS];
    struct generate_opts g = o->gen;
    g.prompt = o->prompt->v;
    g.n_prompt = o->prompt->n;
    if (!o->ignore_eos) {
        g.n_stop = cli_session_stops(s, stops);
        g.stop = stops;
    }
    g.on_token = on_token;
    g.on_again = on_again;
    g.on_prefill = on_prefill;
    g.ctx = &t;
    cli_session_computing(s, 1);
    int r = generate(s->f, s->m, &g, &a->gen, e);
    cli_session_computing(s, -1);
    cli_session_phase(s, PHASE_QUIET, 0, 0);
    struct err fe = {0};
    int rf = finish(&t, &fe);
    parse_close(t.parse);
    if (cli_interrupted()) {
        return err_set(e, ERR_CANCELLED, "interrupted after %llu new tokens",
                       (unsigned long long)t.tokens);
    }
    if (r) {
        return r;
    }
    if (rf) {
        *e = fe;
        return rf;
    }
    receipt_hex(&a->gen.receipt, a->receipt);
    a->decode_tok_s =
        a->gen.decoded && a->gen.decode_s > 0 ? (double)a->gen.decoded / a->gen.decode_s : 0;
    return 0;
}

void answer_free(struct answer *a)
{
    generate_result_free(&a->gen);
    parse_answer_free(&a->parsed);
    buf_free(&a->text);
}
