/* SPDX-License-Identifier: MIT
 * fuzz_parse.c: any stream of ids as an answer, read whole and id by id: the same events, valid
 * UTF-8, calls numbered without holes, one end. Byte 0 chooses the mode; of the others, 0..7 are
 * special ids, 8..31 whole words of the form, the rest ordinary tokens. */
#include "chat_tok.h"
#include "node/text/parse.h"
#include "node/text/pyjson.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const words[24] = {"think",
                                      "response",
                                      "tools",
                                      "message",
                                      "call",
                                      " tool=\"f\"",
                                      " index=\"1\"",
                                      "argument",
                                      " key=\"k\"",
                                      " key=\"&quot;&amp;\"",
                                      " type=\"string\"",
                                      " type=\"number\"",
                                      " type=\"object\"",
                                      "json",
                                      "{\"a\":1e3}",
                                      "[1,\"x\"]",
                                      "-0",
                                      "true",
                                      "null",
                                      "\xE6\xB1\x89",
                                      "\xF0\x9F",
                                      "\x98\x80",
                                      " \n",
                                      "<|close|>"};

static void require(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

struct log {
    struct buf b;
    char channel;
    bool open, ended;
    size_t calls;
};

static int record(void *ctx, const struct parse_event *ev)
{
    struct log *l = ctx;
    struct pyjson_doc *d;
    struct buf quoted;
    require(!l->ended);
    if (ev->type == PARSE_REASONING || ev->type == PARSE_CONTENT) {
        char channel = ev->type == PARSE_REASONING ? 'R' : 'C';
        require(ev->text_n > 0 && !l->open);
        buf_init(&quoted, 1 << 20); /* valid UTF-8: the reader takes it */
        require(!pyjson_write_string(ev->text, ev->text_n, &quoted));
        require(!pyjson_parse(quoted.p, quoted.n, false, &d, NULL));
        pyjson_free(d);
        buf_free(&quoted);
        if (l->channel != channel) {
            buf_add(&l->b, &channel, 1);
        }
        l->channel = channel;
        return buf_add(&l->b, ev->text, ev->text_n);
    }
    l->channel = 0;
    l->ended = ev->type == PARSE_FINISH;
    if (ev->type == PARSE_CALL_BEGIN) {
        require(!l->open && ev->call == l->calls && ev->name_n);
        l->open = true;
    } else if (ev->type == PARSE_FINISH) {
        require(!l->open && ev->reason != PARSE_RUNNING);
    } else {
        require(l->open && ev->call == l->calls);
        l->open = ev->type == PARSE_CALL_ARG;
    }
    if (ev->type == PARSE_CALL_ARG || ev->type == PARSE_CALL_END) {
        require(!pyjson_parse(ev->text, ev->text_n, false, &d, NULL));
        require(ev->type == PARSE_CALL_ARG || pyjson_root(d)->type == PYJSON_OBJECT);
        pyjson_free(d);
    }
    l->calls += ev->type == PARSE_CALL_END;
    buf_addf(&l->b, "\n%d %zu %d ", ev->type, ev->call, ev->reason);
    buf_add(&l->b, ev->name, ev->name_n);
    buf_add(&l->b, "=", 1);
    return buf_add(&l->b, ev->text, ev->text_n);
}

static struct buf read_back(const struct tok *t, const struct tok_ids *ids, bool thinking,
                            bool single)
{
    struct log l = {0};
    struct parse *p;
    buf_init(&l.b, (size_t)1 << 28);
    require(!parse_open(t, thinking, record, &l, &p, NULL));
    for (size_t i = 0; single && i < ids->n; i++) {
        require(!parse_feed(p, ids->v + i, 1, NULL));
    }
    require(single || !parse_feed(p, ids->v, ids->n, NULL));
    require(!parse_finish(p, NULL));
    require(l.ended && parse_calls(p) == l.calls);
    parse_close(p);
    return l.b;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tok *tok;
    struct tok_ids ids = {0};
    tok = tok ? tok : chat_tok();
    for (size_t i = 1; i < size; i++) {
        if (data[i] < 8) {
            tok_ids_add(&ids, 256 + data[i]);
        } else if (data[i] < 32) {
            for (const char *w = words[data[i] - 8]; *w; w++) {
                tok_ids_add(&ids, (unsigned char)*w);
            }
        } else {
            tok_ids_add(&ids, data[i]);
        }
    }
    bool thinking = size && data[0] & 1;
    struct buf a = read_back(tok, &ids, thinking, false), b = read_back(tok, &ids, thinking, true);
    require(a.n == b.n && !memcmp(a.p, b.p, a.n));
    buf_free(&a);
    buf_free(&b);
    tok_ids_free(&ids);
    return 0;
}
