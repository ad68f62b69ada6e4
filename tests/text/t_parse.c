/* SPDX-License-Identifier: MIT
 * t_parse.c: the output parser: well-formed and malformed answers, each read in every split: fed in
 * two parts at every place, id by id, and with its text cut into single bytes and at random. */
#include "node/text/chat.h"
#include "node/text/parse.h"
#include "text/tok_fixture.h"

#include <jansson.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define O "<|open|>"
#define C "<|close|>"
#define S "<|sep|>"
#define E "<|end_of_msg|>"
#define ECHO(t) O t S
#define SHUT(t) C t S
#define RESP(t) ECHO("response") t SHUT("response")
#define DONE SHUT("message") E
#define CALL(name) O "call tool=\"" name "\" index=\"1\"" S
#define ARG(k, t, v) O "argument key=\"" k "\" type=\"" t "\"" S v SHUT("argument")
#define PLAIN "\x01" /* switches between structure and the same characters as ordinary text */

static struct tok *tok;
static uint32_t byte_id[256], long_id;

/* The events as one text, pieces of a channel joined: what must not depend on the split. */
struct log {
    struct buf b;
    char channel;
    bool ended;
};

static int record(void *ctx, const struct parse_event *ev)
{
    struct log *l = ctx;
    assert_false(l->ended);
    if (ev->type == PARSE_REASONING || ev->type == PARSE_CONTENT) {
        char channel = ev->type == PARSE_REASONING ? 'R' : 'C';
        assert_true(ev->text_n > 0);
        if (l->channel != channel) {
            buf_addf(&l->b, "|%c:", channel);
        }
        l->channel = channel;
        return buf_add(&l->b, ev->text, ev->text_n);
    }
    l->channel = 0;
    switch (ev->type) {
    case PARSE_CALL_BEGIN:
        return buf_addf(&l->b, "|B%zu %s", ev->call, ev->name);
    case PARSE_CALL_ARG:
        assert_int_equal(strlen(ev->text), ev->text_n);
        return buf_addf(&l->b, "|A%zu %s=%s", ev->call, ev->name, ev->text);
    case PARSE_CALL_END:
        assert_int_equal(strlen(ev->text), ev->text_n);
        return buf_addf(&l->b, "|E%zu %s%s", ev->call, ev->name, ev->text);
    case PARSE_CALL_DROP:
        return buf_addf(&l->b, "|X%zu", ev->call);
    default:
        l->ended = true;
        return buf_addf(&l->b, "|F%d", ev->reason);
    }
}

/* Feed ids[0..n), cut at `cut` (n: uncut; n + 1: id by id), then end the stream. */
static char *events(const uint32_t *ids, size_t n, size_t cut, bool thinking)
{
    struct log l = {0};
    struct parse *p;
    struct err e = {0};
    buf_init(&l.b, 1 << 24);
    assert_int_equal(parse_open(tok, thinking, record, &l, &p, &e), 0);
    if (cut > n) {
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(parse_feed(p, ids + i, 1, &e), 0);
        }
    } else {
        assert_int_equal(parse_feed(p, ids, cut, &e), 0);
        assert_int_equal(parse_feed(p, n ? ids + cut : NULL, n - cut, &e), 0);
    }
    assert_int_equal(parse_finish(p, &e), 0);
    assert_true(l.ended);
    assert_int_not_equal(parse_ended(p), PARSE_RUNNING);
    assert_int_equal(parse_finish(p, &e), 0);
    parse_close(p);
    return buf_take(&l.b, NULL);
}

static struct tok_ids ids_of(const char *markup)
{
    struct tok_ids ids = {0};
    bool trusted = true;
    while (*markup) {
        size_t n = strcspn(markup, PLAIN);
        assert_int_equal(tok_encode(tok, markup, n, trusted, &ids, NULL), 0);
        markup += n;
        if (*markup) {
            trusted = !trusted;
            markup++;
        }
    }
    return ids;
}

static uint32_t random_u32(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* The same stream with ordinary tokens replaced by their bytes: all of them, or by chance. */
static struct tok_ids shattered(const struct tok_ids *ids, uint64_t *chance)
{
    struct tok_ids out = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *s = tok_bytes(tok, ids->v[i], &n);
        if (tok_is_special(tok, ids->v[i]) || (chance && random_u32(chance) % 2)) {
            tok_ids_add(&out, ids->v[i]);
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            tok_ids_add(&out, byte_id[(unsigned char)s[k]]);
        }
    }
    return out;
}

static void same(const char *what, const char *how, char *have, const char *want)
{
    if (strcmp(have, want) != 0) {
        fail_msg("%s (%s)\n have %s\n want %s", what, how, have, want);
    }
    free(have);
}

static void in_every_split(const char *what, const struct tok_ids *ids, bool thinking,
                           const char *want)
{
    uint64_t seed = 7;
    for (size_t cut = 0; cut <= ids->n + 1; cut++) {
        same(what, "cut", events(ids->v, ids->n, cut, thinking), want);
    }
    struct tok_ids bytes = shattered(ids, NULL);
    for (size_t cut = 0; cut <= bytes.n + 1; cut++) {
        same(what, "bytes", events(bytes.v, bytes.n, cut, thinking), want);
    }
    tok_ids_free(&bytes);
    for (int k = 0; k < 20; k++) {
        struct tok_ids some = shattered(ids, &seed);
        same(what, "mixed", events(some.v, some.n, some.n + 1, thinking), want);
        tok_ids_free(&some);
    }
}

struct sample {
    const char *markup, *events;
};

static void check(const struct sample *samples, size_t n, bool thinking)
{
    for (size_t i = 0; i < n; i++) {
        struct tok_ids ids = ids_of(samples[i].markup);
        in_every_split(samples[i].markup, &ids, thinking, samples[i].events);
        tok_ids_free(&ids);
    }
}

#define CHECK(samples, thinking) check(samples, sizeof samples / sizeof *samples, thinking)

static void answers_as_trained(void **s)
{
    static const struct sample thinking[] = {
        {"91 = 7 x 13" SHUT("think") RESP("No, 91 = 7 x 13.") DONE,
         "|R:91 = 7 x 13|C:No, 91 = 7 x 13.|F1"},
        {SHUT("think") RESP("") DONE, "|F1"},
        {"a\n\n" SHUT("think") RESP("\n b \n") DONE, "|R:a\n\n|C:\n b \n|F1"},
        {"need the file" SHUT("think") RESP("") ECHO("tools") CALL("read") ARG("path", "string",
                                                                               "/etc/hosts")
             ARG("opts", "object", "{\"max\": 20, \"raw\": true}") SHUT("call") SHUT("tools") DONE,
         "|R:need the file|B0 read|A0 path=\"/etc/hosts\"|A0 opts={\"max\": 20, \"raw\": true}"
         "|E0 read{\"path\": \"/etc/hosts\", \"opts\": {\"max\": 20, \"raw\": true}}|F1"},
        /* A pure tool call, two of them, without a response. */
        {"t" SHUT("think") ECHO("tools") CALL("f") SHUT("call") CALL("g") ARG("n", "number", "1e3")
             SHUT("call") SHUT("tools") DONE,
         "|R:t|B0 f|E0 f{}|B1 g|A1 n=1000.0|E1 g{\"n\": 1000.0}|F1"},
        /* Echoes of the prompt's end. */
        {ECHO("think") "t" SHUT("think") RESP("a") DONE, "|R:t|C:a|F1"},
        {O "message role=\"assistant\"" S ECHO("think") "t" SHUT("think") RESP("a") DONE,
         "|R:t|C:a|F1"},
        {"t" SHUT("think") RESP("a") SHUT("message") "[EOS]", "|R:t|C:a|F2"},
        {"caf\xC3\xA9 \xE6\xB1\x89\xE5\xAD\x97" SHUT("think") RESP("\xF0\x9F\x98\x80\xE2\x80\xA8")
             DONE,
         "|R:caf\xC3\xA9 \xE6\xB1\x89\xE5\xAD\x97|C:\xF0\x9F\x98\x80\xE2\x80\xA8|F1"},
    };
    static const struct sample instruct[] = {
        {"Hi." SHUT("response") DONE, "|C:Hi.|F1"},
        {ECHO("response") "Hi." SHUT("response") DONE, "|C:Hi.|F1"},
        {SHUT("response") ECHO("tools") CALL("f") SHUT("call") SHUT("tools") DONE,
         "|B0 f|E0 f{}|F1"},
        {ECHO("tools") CALL("f") SHUT("call") SHUT("tools") DONE, "|B0 f|E0 f{}|F1"},
        {ECHO("think") "t" SHUT("think") RESP("a") DONE, "|R:t|C:a|F1"},
    };
    CHECK(thinking, true);
    CHECK(instruct, false);
}

static void cut_by_length(void **s)
{
    static const struct sample thinking[] = {
        {"", "|F3"},
        {"only reasoning so far", "|R:only reasoning so far|F3"},
        {"t" SHUT("think") ECHO("response") "half an ans", "|R:t|C:half an ans|F3"},
        {"t" C "thi", "|R:t|F3"},
        {"t" SHUT("think") O "resp", "|R:t|F3"},
        {"t" SHUT("think") ECHO("tools") CALL("f") SHUT("call") CALL("g") ARG("a", "string", "x"),
         "|R:t|B0 f|E0 f{}|B1 g|A1 a=\"x\"|X1|F3"},
        {"t" SHUT("think") ECHO("tools") CALL("g") O "argument key=\"a\" type=\"string\"" S "xx",
         "|R:t|B0 g|X0|F3"},
        {"t" SHUT("think") ECHO("tools") CALL("g") C "call", "|R:t|B0 g|X0|F3"},
    };
    CHECK(thinking, true);
}

static void look_alikes_are_text(void **s)
{
    static const struct sample thinking[] = {
        {PLAIN C "think" S O "response" S "x" E PLAIN SHUT("think")
             RESP(PLAIN C "response" S E "[EOS]" PLAIN) DONE,
         "|R:" C "think" S O "response" S "x" E "|C:" C "response" S E "[EOS]|F1"},
        {SHUT("think") ECHO("tools") CALL("f") ARG("a", "string", PLAIN C "argument" S PLAIN)
             SHUT("call") SHUT("tools") DONE,
         "|B0 f|A0 a=\"" C "argument" S "\"|E0 f{\"a\": \"" C "argument" S "\"}|F1"},
        {PLAIN "</think><tool_call> {\"x\": 1}" PLAIN SHUT("think") RESP("```json\n{}\n```") DONE,
         "|R:</think><tool_call> {\"x\": 1}|C:```json\n{}\n```|F1"},
    };
    CHECK(thinking, true);
}

static void values_by_type(void **s)
{
    static const struct sample thinking[] = {
        {CALL("f") ARG("s", "string", "12") ARG("n", "number", "-0") ARG("b", "boolean", "true")
             ARG("u", "null", "null") ARG("a", "array", "[1,2.50]")
                 ARG("o", "object", "{\"a\":\n{}}") SHUT("call") DONE,
         "|B0 f|A0 s=\"12\"|A0 n=0|A0 b=true|A0 u=null|A0 a=[1, 2.5]|A0 o={\"a\": {}}"
         "|E0 f{\"s\": \"12\", \"n\": 0, \"b\": true, \"u\": null, \"a\": [1, 2.5], \"o\": {\"a\": "
         "{}}}|F1"},
        /* What is not the JSON it claims to be is kept as a string. */
        {CALL("f") ARG("n", "number", "twelve") ARG("o", "object", "{\"a\":")
             ARG("i", "number", "NaN") ARG("e", "array", "") SHUT("call") DONE,
         "|B0 f|A0 n=\"twelve\"|A0 o=\"{\\\"a\\\":\"|A0 i=\"NaN\"|A0 e=\"\""
         "|E0 f{\"n\": \"twelve\", \"o\": \"{\\\"a\\\":\", \"i\": \"NaN\", \"e\": \"\"}|F1"},
        {CALL("f") ARG("n", "number", "1e999") ARG("m", "number", "123456789012345678901234567890")
             SHUT("call") DONE,
         "|B0 f|A0 n=1e999|A0 m=123456789012345678901234567890"
         "|E0 f{\"n\": 1e999, \"m\": 123456789012345678901234567890}|F1"},
        /* No type: a string. A repeated key: first place, last value. An empty key is one. */
        {CALL("f") O "argument key=\"a\"" S "1" SHUT("argument") ARG("b", "number", "2")
             ARG("a", "number", "3") ARG("", "string", "\t\"\\") SHUT("call") DONE,
         "|B0 f|A0 a=\"1\"|A0 b=2|A0 a=3|A0 =\"\\t\\\"\\\\\""
         "|E0 f{\"a\": 3, \"b\": 2, \"\": \"\\t\\\"\\\\\"}|F1"},
        /* Attributes: &quot; and then &amp;, any order, unknown ones ignored. */
        {O "call index=\"1\" x=\"\" tool=\"a&quot;b&amp;quot;&amp;amp;&lt;\"" S ARG(
             "k&amp;\xC3\xA9", "string", "&amp;") SHUT("call") DONE,
         "|B0 a\"b&quot;&amp;&lt;|A0 k&\xC3\xA9=\"&amp;\"|E0 a\"b&quot;&amp;&lt;{\"k&\xC3\xA9\": "
         "\"&amp;\"}|F1"},
        {CALL("f") O "json type=\"object\"" S "{\"a\":1,\"b\":[]}" SHUT("json") SHUT("call") DONE,
         "|B0 f|E0 f{\"a\": 1, \"b\": []}|F1"},
    };
    CHECK(thinking, true);
}

static void malformed_structure(void **s)
{
    static const struct sample thinking[] = {
        /* Missing closings, missing openings. */
        {"t" ECHO("response") "a" DONE, "|R:t|C:a|F1"},
        {"t" SHUT("think") " \n a" DONE, "|R:t|C:a|F1"},
        {"t" SHUT("think") RESP("a") "\n more" DONE, "|R:t|C:amore|F1"},
        {"t" SHUT("message") E, "|R:t|F1"},
        {"t" E "after", "|R:t|F1"},
        {"t" SHUT("think") SHUT("message") "lost" ECHO("response") "lost" ECHO("tools") CALL("f") E,
         "|R:t|F1"},
        {"t" SHUT("think") ECHO("response") "a" ECHO("tools") CALL("f") SHUT("call") DONE,
         "|R:t|C:a|B0 f|E0 f{}|F1"},
        {"t" CALL("f") SHUT("call") "x" ECHO("response") "a" DONE, "|R:t|B0 f|E0 f{}|C:a|F1"},
        {"t" SHUT("think") RESP("a") ECHO("think") "u" SHUT("think") RESP("b") DONE,
         "|R:t|C:a|R:u|C:b|F1"},
        /* Tags that fit nothing. */
        {"a" S "b" SHUT("response") "c" ECHO("foo") "d" SHUT("foo") "e" SHUT("think") RESP("x")
             DONE,
         "|R:abcde|C:x|F1"},
        {"a" O S "b" C S "c" O O "think" C "x" S "d" SHUT("think") DONE, "|R:abcd|F1"},
        {"a" O "argument key=\"k\" type=\"string\"" S "b" SHUT("argument") SHUT("call")
             SHUT("tools") "c" E,
         "|R:abc|F1"},
        {"a" C " think" S RESP("x") DONE, "|R:a|C:x|F1"},
        {"a" C "Think" S "b" C "thinks" S "c" E, "|R:abc|F1"},
        {"a" O "think never closed and long, then " C "think" S RESP("x") DONE, "|R:a|C:x|F1"},
        /* Calls that are dropped. */
        {ECHO("tools") O "call index=\"1\"" S ARG("a", "string", "x") SHUT("call") CALL("g")
             SHUT("call") SHUT("tools") DONE,
         "|B0 g|E0 g{}|F1"},
        {ECHO("tools") O "call tool=\"\" index=\"1\"" S SHUT("call") O "call tool=\"f" S SHUT(
             "call") O "call tool=f" S SHUT("call") O "call tool" S SHUT("call") DONE,
         "|F1"},
        {CALL("f") CALL("g") SHUT("call") DONE, "|B0 f|X0|B0 g|E0 g{}|F1"},
        {CALL("f") SHUT("tools") RESP("a") DONE, "|B0 f|X0|C:a|F1"},
        {CALL("f") DONE, "|B0 f|X0|F1"},
        {CALL("f") ECHO("response") "a" DONE, "|B0 f|X0|C:a|F1"},
        {CALL("f") O "argument key=\"a\" type=\"string\"" S "x" SHUT("call") CALL("g") SHUT("call")
             DONE,
         "|B0 f|X0|B0 g|E0 g{}|F1"},
        {CALL("f") O "argument key=\"a\" type=\"string\"" S "x" S
                     "y" SHUT("argument") "z" SHUT("call") DONE,
         "|B0 f|X0|F1"},
        {CALL("f") O "argument key=\"a\" type=\"string\"" S "x" ECHO("b") "y" SHUT("b")
             SHUT("argument") SHUT("call") DONE,
         "|B0 f|X0|F1"},
        {CALL("f") O "argument key=\"a\" type=\"string\"" S "x" O C "argument" S SHUT("call") DONE,
         "|B0 f|X0|F1"},
        {CALL("f") O "argument key=\"a\" type=\"string\"" S "x" ECHO("b") "y" SHUT("argument")
             SHUT("call") DONE,
         "|B0 f|X0|F1"},
        {CALL("f") O "argument type=\"string\"" S "x" SHUT("argument") SHUT("call") DONE,
         "|B0 f|X0|F1"},
        {CALL("f") O "json type=\"object\"" S "[1]" SHUT("json") SHUT("call") DONE, "|B0 f|X0|F1"},
        /* Text between the parts of a call, and closings that fit nothing in it, have no effect. */
        {ECHO("tools") " \n" CALL("f") "{\"x\": 1}" SHUT("argument")
             ARG("a", "string", "x") "\n" ECHO("b") SHUT("response")
                 SHUT("call") "junk" SHUT("call") SHUT("tools") DONE,
         "|B0 f|A0 a=\"x\"|E0 f{\"a\": \"x\"}|F1"},
        /* Other special tokens leave no trace. */
        {"a<|media_pad|>b[BOS]" SHUT("think") RESP("c[PAD][EOT]") DONE, "|R:ab|C:c|F1"},
    };
    CHECK(thinking, true);
}

static void broken_utf8(void **s)
{
    struct tok_ids ids = {0};
    uint32_t sep;
    assert_true(tok_special_id(tok, S, &sep));
    static const unsigned char bytes[] = {'a', 0xE6, 0xB1, 'b', 0xFF, 0xC3};
    for (size_t i = 0; i < sizeof bytes; i++) {
        tok_ids_add(&ids, byte_id[bytes[i]]);
    }
    tok_ids_add(&ids, sep);
    tok_ids_add(&ids, byte_id[0xA9]); /* no character reaches over structure */
#define BAD "\xEF\xBF\xBD"
    in_every_split("broken UTF-8", &ids, true, "|R:a" BAD "b" BAD BAD BAD "|F3");
    tok_ids_free(&ids);
}

/* What is rendered into history reads back as what went in. */
static void reads_what_is_rendered(void **s)
{
    const char *q =
        "{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":\"why "
        "<|close|>\",\"content\":"
        "\"so\\n\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f \\\"&quot;\","
        "\"arguments\":{\"k\\\"\":\"v<|sep|>\",\"n\":[1.5,{\"z\":null}],\"k\":1e22}}},{\"id\":"
        "\"b\","
        "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}],\"add_generation_prompt\":false}";
    struct chat_prompt p;
    struct tok_ids ids = {0};
    struct parse_answer a = {0};
    struct parse *r;
    struct err e = {0};
    assert_int_equal(chat_render(q, strlen(q), CHAT_THINK_NO_EFFORT, &p, &e), 0);
    assert_int_equal(chat_prompt_ids(&p, tok, &ids, &e), 0);
    assert_int_equal(parse_open(tok, true, parse_collect, &a, &r, &e), 0);
    assert_int_equal(parse_feed(r, ids.v, ids.n, &e), 0);
    assert_int_equal(a.reason, PARSE_MESSAGE);
    assert_string_equal(a.reasoning, "why <|close|>");
    assert_string_equal(a.content, "so\n");
    assert_int_equal(a.ncalls, 2);
    assert_int_equal(parse_calls(r), 2);
    assert_string_equal(a.calls[0].name, "f \"&quot;");
    assert_string_equal(a.calls[0].arguments,
                        "{\"k\\\"\": \"v<|sep|>\", \"n\": [1.5, {\"z\": null}], \"k\": 1e+22}");
    assert_string_equal(a.calls[1].name, "g");
    assert_string_equal(a.calls[1].arguments, "{}");
    parse_close(r);
    parse_answer_free(&a);
    tok_ids_free(&ids);
    chat_prompt_free(&p);
}

/* An answer of the demo model itself. */
static void demo_model_answers(void **s)
{
    struct buf f = fixture_file("chat_demo.json");
    json_t *cases = json_loadb(f.p, f.n, 0, NULL), *c;
    size_t i;
    static const char *const want[] = {
        "|C:whale: any of the larger cetacean mammals having a streamlined body and breathing "
        "through a blowhole on|F3",
        "|R:adjective; sense 1 of 2|C:nimble: moving quickly and lightly.|F1",
        "|C:Synonym of quick: speedy.|F1",
        "|R:noun; sense 1|C:house: a dwelling that serves as living quarters for one or more "
        "families|F3",
    };
    json_array_foreach(cases, i, c)
    {
        const json_t *greedy = json_object_get(c, "greedy_ids");
        struct tok_ids ids = {0};
        for (size_t k = 0; k < json_array_size(greedy); k++) {
            tok_ids_add(&ids, (uint32_t)json_integer_value(json_array_get(greedy, k)));
        }
        in_every_split("demo", &ids, i == 1 || i == 3, want[i]);
        tok_ids_free(&ids);
    }
    assert_int_equal(i, 4);
    json_decref(cases);
    buf_free(&f);
}

static void feed(struct parse *p, const char *markup)
{
    struct tok_ids ids = ids_of(markup);
    assert_int_equal(parse_feed(p, ids.v, ids.n, NULL), 0);
    tok_ids_free(&ids);
}

/* At least so many bytes of ordinary text. */
static void feed_filler(struct parse *p, size_t bytes)
{
    size_t n;
    tok_bytes(tok, long_id, &n);
    for (size_t sent = 0; sent < bytes; sent += n) {
        assert_int_equal(parse_feed(p, &long_id, 1, NULL), 0);
    }
}

static void maxima_cost_the_call_only(void **s)
{
    struct log l = {0};
    struct parse *p;
    buf_init(&l.b, 1 << 20);
    assert_int_equal(parse_open(tok, true, record, &l, &p, NULL), 0);
    feed(p, CALL("f") O "argument key=\"a\" type=\"string\"" S);
    feed_filler(p, PARSE_MAX_CALL + 1);
    feed(p, SHUT("argument") SHUT("call"));
    assert_string_equal(l.b.p, "|B0 f|X0");
    /* A tag over its maximum is dropped, whatever it began with. */
    feed(p, O "response ");
    feed_filler(p, PARSE_MAX_TAG);
    feed(p, S "x");
    assert_string_equal(l.b.p, "|B0 f|X0");
    /* Arguments and calls by number. */
    feed(p, CALL("g"));
    for (int i = 0; i <= PARSE_MAX_ARGS; i++) {
        char arg[200];
        snprintf(arg, sizeof arg, ARG("k%d", "number", "%d"), i, i);
        feed(p, arg);
    }
    feed(p, SHUT("call"));
    assert_non_null(strstr(l.b.p, "|A0 k4095=4095|X0"));
    assert_int_equal(parse_calls(p), 0);
    for (int i = 0; i < PARSE_MAX_CALLS + 2; i++) {
        feed(p, CALL("h") SHUT("call"));
    }
    assert_int_equal(parse_calls(p), PARSE_MAX_CALLS);
    feed(p, RESP("still here") DONE);
    assert_non_null(strstr(l.b.p, "|B1023 h|E1023 h{}|C:still here|F1"));
    parse_close(p);
    buf_free(&l.b);
}

static int stop_at_content(void *ctx, const struct parse_event *ev)
{
    return ev->type == PARSE_CONTENT ? ERR_CANCELLED : 0;
}

static void errors_come_out(void **s)
{
    struct tok_ids ids = ids_of("t" SHUT("think") RESP("a") DONE);
    struct parse *p;
    struct err e = {0};
    uint32_t outside = tok_vocab(tok);
    assert_int_equal(parse_open(tok, true, stop_at_content, NULL, &p, &e), 0);
    assert_int_equal(parse_feed(p, &outside, 1, &e), ERR_ARG);
    assert_int_equal(parse_feed(p, ids.v, ids.n, &e), ERR_CANCELLED);
    assert_int_equal(parse_ended(p), PARSE_RUNNING);
    parse_close(p);
    parse_close(NULL);
    tok_ids_free(&ids);
    /* A tokenizer without the names of the structure cannot be used. */
    struct buf ranks = fixture_file("demo.tiktoken.model");
    struct tok *bare;
    assert_int_equal(tok_open(ranks.p, ranks.n, NULL, 0, &bare, &e), 0);
    assert_int_equal(parse_open(bare, true, stop_at_content, NULL, &p, &e), ERR_FORMAT);
    assert_null(p);
    tok_close(bare);
    buf_free(&ranks);
}

static int open_tok(void **s)
{
    tok = fixture_tok();
    int found = 0;
    for (uint32_t id = 0; id < tok_ranks(tok); id++) {
        size_t n;
        const char *t = tok_bytes(tok, id, &n);
        size_t longest;
        tok_bytes(tok, long_id, &longest);
        long_id = n > longest ? id : long_id;
        if (n == 1) {
            byte_id[(unsigned char)*t] = id;
            found++;
        }
    }
    return found == 256 ? 0 : -1;
}

static int close_tok(void **s)
{
    tok_close(tok);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_as_trained),        cmocka_unit_test(cut_by_length),
        cmocka_unit_test(look_alikes_are_text),      cmocka_unit_test(values_by_type),
        cmocka_unit_test(malformed_structure),       cmocka_unit_test(broken_utf8),
        cmocka_unit_test(reads_what_is_rendered),    cmocka_unit_test(demo_model_answers),
        cmocka_unit_test(maxima_cost_the_call_only), cmocka_unit_test(errors_come_out),
    };
    return cmocka_run_group_tests(tests, open_tok, close_tok);
}
