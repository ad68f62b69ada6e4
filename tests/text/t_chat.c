/* SPDX-License-Identifier: MIT
 * t_chat.c: rendering of chat requests: worked examples byte for byte, each rule of the chat form,
 * the demo model's published prompts and ids, an independent rendition in Python on random requests
 * (oracle/chat_oracle.py), and what is refused. */
#include "node/text/chat.h"
#include "text/tok_fixture.h"

#include <jansson.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define EFFORT(level)                                                                             \
    "<|open|>message role=\"system\" type=\"thinking-effort\"<|sep|>`thinking_effort` guides on " \
    "how much to think in your thinking channel (not including the response channel), supported " \
    "values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with "         \
    "`thinking_effort=" level "`.<|close|>message<|sep|><|end_of_msg|>"
#define OPENED(role) "<|open|>message role=\"" role "\"<|sep|>"
#define DONE "<|close|>message<|sep|><|end_of_msg|>"
#define USER(text) OPENED("user") text DONE
#define ANSWER OPENED("assistant") "<|open|>response<|sep|>"
#define THINK OPENED("assistant") "<|open|>think<|sep|>"
#define HI "{\"role\":\"user\",\"content\":\"Hi\"}"

static struct tok *tok;

/* Segments cover the text in order, and no trusted one holds anything but one structure token. */
static void check_segments(const struct chat_prompt *p)
{
    size_t at = 0;
    for (size_t i = 0; i < p->nsegs; i++) {
        const struct chat_seg *s = &p->segs[i];
        assert_int_equal(s->off, at);
        assert_true(s->n > 0);
        at += s->n;
        if (s->trusted) {
            static const char *const structure[] = {"<|open|>", "<|close|>", "<|sep|>",
                                                    "<|end_of_msg|>"};
            bool known = false;
            for (size_t k = 0; k < 4; k++) {
                known |=
                    s->n == strlen(structure[k]) && !memcmp(p->text + s->off, structure[k], s->n);
            }
            assert_true(known);
        }
    }
    assert_int_equal(at, p->text_n);
    assert_int_equal(p->text[p->text_n], 0);
}

static struct chat_prompt rendered(const char *request, enum chat_think fallback)
{
    struct chat_prompt p;
    struct err e = {0};
    if (chat_render(request, strlen(request), fallback, &p, &e)) {
        fail_msg("%s: %s", request, e.msg);
    }
    check_segments(&p);
    return p;
}

static void gives(const char *request, enum chat_think fallback, const char *want)
{
    struct chat_prompt p = rendered(request, fallback);
    assert_string_equal(p.text, want);
    chat_prompt_free(&p);
}

/* With the conversation only: what surrounds `messages` is the instruct form's. */
static void off(const char *messages, const char *want)
{
    char request[4096], all[8192];
    snprintf(request, sizeof request, "{\"messages\":[%s]}", messages);
    snprintf(all, sizeof all, "%s" ANSWER, want);
    gives(request, CHAT_THINK_OFF, all);
}

static void refused(const char *request, int code, const char *field)
{
    struct chat_prompt p;
    struct err e = {0};
    char start[200];
    int rc = chat_render(request, strlen(request), CHAT_THINK_DEFAULT, &p, &e);
    snprintf(start, sizeof start, "%s: ", field);
    if (rc != code || e.code != code || strncmp(e.msg, start, strlen(start)) != 0) {
        fail_msg("%s: %d %s, wanted %d and %s", request, rc, e.msg, code, start);
    }
    assert_null(p.text);
    assert_null(p.segs);
    assert_int_equal(chat_render(request, strlen(request), CHAT_THINK_DEFAULT, &p, NULL), code);
}

static void worked_examples(void **s)
{
    gives("{\"messages\":[{\"role\":\"system\",\"content\":\"Answer in Italian.\"},"
          "{\"role\":\"user\",\"content\":\"Is 91 prime?\"}],\"reasoning_effort\":\"low\"}",
          CHAT_THINK_DEFAULT,
          EFFORT("low") OPENED("system") "Answer in Italian." DONE USER("Is 91 prime?") THINK);
    gives(
        "{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":\"need the file\","
        "\"content\":\"\",\"tool_calls\":[{\"id\":\"r1\",\"type\":\"function\",\"function\":{"
        "\"name\":\"read\",\"arguments\":\"{\\\"path\\\":\\\"/etc/hosts\\\",\\\"opts\\\":{"
        "\\\"max\\\":20,\\\"raw\\\":true}}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"r1\","
        "\"content\":\"127.0.0.1 localhost\"}]}",
        CHAT_THINK_NO_EFFORT,
        OPENED("assistant") "<|open|>think<|sep|>need the file<|close|>think<|sep|>"
                            "<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>"
                            "<|open|>call tool=\"read\" index=\"1\"<|sep|>"
                            "<|open|>argument key=\"path\" "
                            "type=\"string\"<|sep|>/etc/hosts<|close|>argument<|sep|>"
                            "<|open|>argument key=\"opts\" type=\"object\"<|sep|>{\"max\": 20, "
                            "\"raw\": true}"
                            "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>" DONE
                            "<|open|>message role=\"tool\" tool=\"read\" "
                            "index=\"1\"<|sep|>127.0.0.1 localhost" DONE THINK);
    gives("{\"messages\":[" HI "]}", CHAT_THINK_OFF, USER("Hi") ANSWER);
}

static void hostile_text_stays_text(void **s)
{
    struct chat_prompt p =
        rendered("{\"messages\":[{\"role\":\"user\",\"content\":\"Hello <|open|> & goodbye\"}]}",
                 CHAT_THINK_DEFAULT);
    struct tok_ids ids = {0};
    uint32_t open;
    size_t opens = 0;
    assert_int_equal(p.nsegs, 38); /* as an independent implementation counted */
    assert_int_equal(chat_prompt_ids(&p, tok, &ids, NULL), 0);
    assert_true(tok_special_id(tok, "<|open|>", &open));
    for (size_t i = 0; i < ids.n; i++) {
        opens += ids.v[i] == open;
    }
    assert_int_equal(opens, 4);
    tok_ids_free(&ids);
    chat_prompt_free(&p);
}

static void attributes_are_four_pieces(void **s)
{
    struct chat_prompt p = rendered(
        "{\"messages\":[{\"role\":\"user\",\"name\":\"a \\\"b\\\" & <|sep|>\",\"content\":\"x\"}]}",
        CHAT_THINK_OFF);
    static const char *const want[] = {"<|open|>", "message", " role",
                                       "=\"",      "user",    "\"",
                                       " name",    "=\"",     "a &quot;b&quot; &amp; <|sep|>",
                                       "\"",       "<|sep|>", "x"};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(p.segs[i].n, strlen(want[i]));
        assert_memory_equal(p.text + p.segs[i].off, want[i], p.segs[i].n);
        assert_int_equal(p.segs[i].trusted, i == 0 || i == 10);
    }
    chat_prompt_free(&p);
}

static void parts_are_pieces_of_their_own(void **s)
{
    struct chat_prompt p = rendered(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"wha\"},"
        "{\"type\":\"text\",\"text\":\"\"},{\"type\":\"text\",\"text\":\"le\"}]}]}",
        CHAT_THINK_OFF);
    assert_string_equal(p.text, USER("whale") ANSWER);
    assert_int_equal(p.segs[7].n, 3);
    assert_int_equal(p.segs[8].n, 2);
    struct tok_ids ids = {0}, whole = {0};
    assert_int_equal(chat_prompt_ids(&p, tok, &ids, NULL), 0);
    chat_prompt_free(&p);
    p = rendered("{\"messages\":[{\"role\":\"user\",\"content\":\"whale\"}]}", CHAT_THINK_OFF);
    assert_int_equal(chat_prompt_ids(&p, tok, &whole, NULL), 0);
    assert_true(ids.n != whole.n || memcmp(ids.v, whole.v, ids.n * 4) != 0);
    chat_prompt_free(&p);
    tok_ids_free(&ids);
    tok_ids_free(&whole);
}

static void roles_and_contents(void **s)
{
    off("{\"role\":\"developer\",\"content\":\"Be brief.\"}", OPENED("system") "Be brief." DONE);
    off("{\"role\":\"system\",\"name\":\"\",\"content\":null}", OPENED("system") DONE);
    off("{\"role\":\"user\",\"name\":\"bob\",\"content\":[]}",
        "<|open|>message role=\"user\" name=\"bob\"<|sep|>" DONE);
    off("{\"role\":\"assistant\",\"name\":\"k\",\"content\":\"  a\\n\",\"reasoning_content\":\"r\","
        "\"refusal\":null,\"annotations\":[],\"audio\":null,\"function_call\":null}",
        "<|open|>message role=\"assistant\" name=\"k\"<|sep|><|open|>response<|sep|>  a\n"
        "<|close|>response<|sep|>" DONE);
    off("{\"role\":\"system\",\"tools\":[],\"content\":\"c\"}", OPENED("system") "c" DONE);
    off("{\"role\":\"system\",\"content\":\"gone\",\"tools\":[{\"b\":1,\"a\":[1.0]}]}",
        "<|open|>message role=\"system\" type=\"tool-declare\"<|sep|>## New Tools Available\n"
        "The system dynamically extends the toolset via lazy-loading.\n"
        "You have access to all existing and extended tools.\n"
        "Here are the specs for the extended tools.\n\n"
        "```json\n[{\"a\":[1.0],\"b\":1}]\n```" DONE);
}

static void reasoning_of_earlier_turns(void **s)
{
#define PAST(why)                                                                               \
    OPENED("assistant")                                                                         \
    "<|open|>think<|sep|>" why "<|close|>think<|sep|><|open|>response<|sep|>a<|close|>response" \
    "<|sep|>" DONE THINK
#define MSG(fields) "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"" fields "}]}"
    const enum chat_think t = CHAT_THINK_NO_EFFORT;
    gives(MSG(""), t, PAST(""));
    gives(MSG(",\"reasoning_content\":\" x\\n\""), t, PAST(" x\n"));
    gives(MSG(",\"reasoning\":\"r\""), t, PAST("r"));
    gives(MSG(",\"reasoning_content\":\"c\",\"reasoning\":\"r\""), t, PAST("c"));
    gives(MSG(",\"reasoning_content\":\"\",\"reasoning\":\"r\""), t, PAST("r"));
    gives(MSG(",\"reasoning_content\":null,\"reasoning\":\"r\""), t, PAST("r"));
    gives(MSG(",\"reasoning_content\":\" \\n\",\"reasoning\":\"r\""), t, PAST(""));
    gives(MSG(",\"reasoning_content\":\" \\u0085\\u00a0\\u1680\\u2000\\u200a\\u2028\\u202f\\u205f"
              "\\u3000\\u001c\\t\""),
          t, PAST(""));
    gives(MSG(",\"reasoning_content\":\"\\u200b\""), t, PAST("\xE2\x80\x8B")); /* not a blank */
}

#define CALL(id, name, args)                                                  \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name \
    "\",\"arguments\":" args "}}"
#define CALLER(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define CALLING "<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>"
#define ONE_CALL(body)                                        \
    OPENED("assistant")                                       \
    CALLING "<|open|>call tool=\"f\" index=\"1\"<|sep|>" body \
            "<|close|>call<|sep|><|close|>tools<|sep|>" DONE
#define ARG(key, type, value) \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"

static void arguments_of_calls(void **s)
{
    off(CALLER(CALL("x", "f", "{}")), ONE_CALL(""));
    off(CALLER(CALL("x", "f", "null")), ONE_CALL(""));
    off(CALLER("{\"id\":\"x\",\"function\":{\"name\":\"f\"}}"), ONE_CALL(""));
    off(CALLER("{\"id\":\"x\",\"name\":\"f\",\"arguments\":{\"a\":1}}"),
        ONE_CALL(ARG("a", "number", "1")));
    off(CALLER(CALL("x", "f", "\" \\n\"")), ONE_CALL(""));
    off(CALLER(CALL("x", "f",
                    "{\"z\":\"<|sep|>\",\"n\":1e3,\"b\":false,\"u\":null,\"o\":{\"y\":1,"
                    "\"x\":[1,\"\\u00e9\"]},\"\\\"&\":[],\"z\":\"w\"}")),
        ONE_CALL(ARG("z", "string", "w") ARG("n", "number", "1000.0") ARG("b", "boolean", "false")
                     ARG("u", "null", "null")
                         ARG("o", "object", "{\"y\": 1, \"x\": [1, \"\xC3\xA9\"]}")
                             ARG("&quot;&amp;", "array", "[]")));
    /* As a string: the same, and what is no JSON is shown as it is. */
    off(CALLER(CALL("x", "f", "\"{\\\"a\\\":-0,\\\"b\\\":12345678901234567890}\"")),
        ONE_CALL(ARG("a", "number", "0") ARG("b", "number", "12345678901234567890")));
    off(CALLER(CALL("x", "f", "\"{\\\"a\\\": \"")),
        ONE_CALL("<|open|>json type=\"object\"<|sep|>{\"a\": <|close|>json<|sep|>"));
    off(CALLER(""), OPENED("assistant") "<|open|>response<|sep|><|close|>response<|sep|>" DONE);
    refused("{\"messages\":[" CALLER(CALL("x", "f", "\"[1]\"")) "]}", ERR_FORMAT,
            "messages[0].tool_calls[0].function.arguments");
    refused("{\"messages\":[" HI "," CALLER(CALL("x", "f", "{}") "," CALL("y", "f", "3")) "]}",
            ERR_FORMAT, "messages[1].tool_calls[1].function.arguments");
}

#define TWO CALLER(CALL("x", "f", "{}") "," CALL("y", "g", "{}"))
#define TWO_CALLS                                                    \
    OPENED("assistant")                                              \
    CALLING                                                          \
    "<|open|>call tool=\"f\" index=\"1\"<|sep|><|close|>call<|sep|>" \
    "<|open|>call tool=\"g\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>" DONE
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define SHOWN(name, index, text) \
    "<|open|>message role=\"tool\" tool=\"" name "\" index=\"" index "\"<|sep|>" text DONE

static void results_follow_their_calls(void **s)
{
    off(TWO "," RESULT("y", "2") "," RESULT("x", "1"),
        TWO_CALLS SHOWN("f", "1", "1") SHOWN("g", "2", "2"));
    /* One without a known id: order and names as given, else by place. */
    off(TWO "," RESULT("y", "2") "," RESULT("?", "1"),
        TWO_CALLS SHOWN("f", "1", "2") SHOWN("g", "2", "1"));
    off(TWO ",{\"role\":\"tool\",\"name\":\"n\",\"content\":\"2\"}," RESULT("x", "1"),
        TWO_CALLS SHOWN("n", "1", "2") SHOWN("g", "2", "1"));
    off(TWO ",{\"role\":\"tool\",\"tool\":\"t\",\"name\":\"n\",\"content\":\"\"}",
        TWO_CALLS SHOWN("t", "1", ""));
    /* A matching id has the last word over a stale name. */
    off(TWO ",{\"role\":\"tool\",\"name\":\"n\",\"tool_call_id\":\"y\",\"content\":\"2\"}",
        TWO_CALLS SHOWN("g", "1", "2"));
    /* The index goes on over a user message, two results of one call stay, a new answer resets. */
    off(TWO "," RESULT("x", "1") "," HI
                                 "," RESULT("x", "2") "," RESULT("x", "3") "," TWO
                                                                           "," RESULT("y", "4"),
        TWO_CALLS SHOWN("f", "1", "1") USER("Hi") SHOWN("f", "2", "2") SHOWN("f", "3", "3")
            TWO_CALLS SHOWN("g", "1", "4"));
    refused("{\"messages\":[" RESULT("x", "1") "]}", ERR_FORMAT, "messages[0].tool_call_id");
    refused("{\"messages\":[" TWO
            "," RESULT("x", "1") "," RESULT("y", "1") "," RESULT("z", "1") "]}",
            ERR_FORMAT, "messages[3].tool_call_id");
    /* An answer without calls leaves none to answer. */
    refused("{\"messages\":[" TWO
            ",{\"role\":\"assistant\",\"content\":\"\"}," RESULT("x", "1") "]}",
            ERR_FORMAT, "messages[2].tool_call_id");
}

static void what_surrounds_the_conversation(void **s)
{
#define NOTE(type, body) "<|open|>message role=\"system\" type=\"" type "\"<|sep|>" body DONE
#define RAW                                                                              \
    "Your response must be raw JSON data without markdown code blocks (```json) or any " \
    "additional formatting."
    gives(
        "{\"messages\":[" HI "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"parameters\":{\"maximum\":1e3,\"maxLength\":2}}}],\"tool_choice\":\"required\","
        "\"response_format\":{\"type\":\"json_object\"},\"reasoning_effort\":\"high\"}",
        CHAT_THINK_OFF,
        NOTE("tool-declare",
             "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n"
             "[{\"function\":{\"name\":\"f\",\"parameters\":{\"maxLength\":2,\"maximum\":1000.0}},"
             "\"type\":\"function\"}]\n```") EFFORT("high") USER("Hi")
            NOTE("tool-choice", "The system is invoked with `tool_choice=required`.\n"
                                "You MUST call tools in the next message.")
                NOTE("response-format",
                     "The system is invoked with `response_format=json_object`.\n" RAW) THINK);
    gives("{\"messages\":[" HI "],\"tool_choice\":\"none\",\"response_format\":{\"type\":"
          "\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,\"description\":\"d\","
          "\"schema\":{\"type\":\"object\",\"a\":-0.0}}}}",
          CHAT_THINK_OFF,
          USER("Hi") NOTE("tool-choice", "The system is invoked with `tool_choice=none`.\n"
                                         "You MUST NOT call any tools in the next message.")
              NOTE("response-format",
                   "The system is invoked with `response_format=json_schema`.\n" RAW
                   "\nThe JSON data must match the following schema:\n```json\n"
                   "{\"a\":-0.0,\"type\":\"object\"}\n```") ANSWER);
    gives("{\"messages\":[" HI "],\"tools\":[],\"tool_choice\":{\"type\":\"function\",\"function\":"
          "{\"name\":\"f\"}},\"response_format\":{\"type\":\"text\"}}",
          CHAT_THINK_OFF, USER("Hi") ANSWER);
    gives("{\"messages\":[" HI "],\"tools\":null,\"tool_choice\":\"auto\",\"response_format\":null,"
          "\"temperature\":1,\"stream\":true,\"add_generation_prompt\":false}",
          CHAT_THINK_OFF, USER("Hi"));
}

static void how_to_think(void **s)
{
    static const struct {
        const char *fields;
        enum chat_think fallback, want;
    } ways[] = {
        {"", CHAT_THINK_DEFAULT, CHAT_THINK_MAX},
        {"", CHAT_THINK_LOW, CHAT_THINK_LOW},
        {"", CHAT_THINK_NO_EFFORT, CHAT_THINK_NO_EFFORT},
        {",\"reasoning_effort\":null", CHAT_THINK_DEFAULT, CHAT_THINK_MAX},
        {",\"reasoning_effort\":\"none\"", CHAT_THINK_DEFAULT, CHAT_THINK_OFF},
        {",\"reasoning_effort\":\"minimal\"", CHAT_THINK_DEFAULT, CHAT_THINK_LOW},
        {",\"reasoning_effort\":\"low\"", CHAT_THINK_OFF, CHAT_THINK_LOW},
        {",\"reasoning_effort\":\"medium\"", CHAT_THINK_DEFAULT, CHAT_THINK_HIGH},
        {",\"reasoning_effort\":\"high\"", CHAT_THINK_DEFAULT, CHAT_THINK_HIGH},
        {",\"reasoning_effort\":\"xhigh\"", CHAT_THINK_LOW, CHAT_THINK_MAX},
        {",\"reasoning_effort\":\"max\"", CHAT_THINK_LOW, CHAT_THINK_MAX},
        {",\"thinking_effort\":\"low\"", CHAT_THINK_DEFAULT, CHAT_THINK_LOW},
        {",\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"}", CHAT_THINK_OFF,
         CHAT_THINK_LOW},
        {",\"reasoning\":{\"enabled\":false}", CHAT_THINK_DEFAULT, CHAT_THINK_OFF},
        {",\"thinking\":false", CHAT_THINK_DEFAULT, CHAT_THINK_OFF},
        {",\"thinking\":true", CHAT_THINK_OFF, CHAT_THINK_MAX},
        {",\"thinking\":true", CHAT_THINK_LOW, CHAT_THINK_LOW},
        {",\"thinking\":{\"type\":\"disabled\"}", CHAT_THINK_DEFAULT, CHAT_THINK_OFF},
        {",\"thinking\":{\"type\":\"enabled\",\"keep\":\"all\"}", CHAT_THINK_OFF, CHAT_THINK_MAX},
        {",\"thinking\":{\"type\":\"enabled\",\"effort\":\"low\"}", CHAT_THINK_OFF, CHAT_THINK_LOW},
        {",\"thinking\":{\"type\":\"disabled\"},\"reasoning_effort\":\"high\"", CHAT_THINK_DEFAULT,
         CHAT_THINK_OFF},
        {",\"enable_thinking\":false", CHAT_THINK_DEFAULT, CHAT_THINK_OFF},
        {",\"chat_template_kwargs\":{\"thinking\":false}", CHAT_THINK_DEFAULT, CHAT_THINK_OFF},
        {",\"chat_template_kwargs\":{\"enable_thinking\":true}", CHAT_THINK_OFF, CHAT_THINK_MAX},
        {",\"chat_template_kwargs\":{\"thinking_effort\":\"high\",\"preserve_thinking\":true}",
         CHAT_THINK_DEFAULT, CHAT_THINK_HIGH},
        {",\"chat_template_kwargs\":{\"reasoning_effort\":\"low\"},\"reasoning_effort\":"
         "\"minimal\"",
         CHAT_THINK_DEFAULT, CHAT_THINK_LOW},
        {",\"chat_template_kwargs\":{\"thinking_effort\":null}", CHAT_THINK_DEFAULT,
         CHAT_THINK_NO_EFFORT},
        {",\"chat_template_kwargs\":{\"thinking\":true,\"thinking_effort\":null}", CHAT_THINK_OFF,
         CHAT_THINK_NO_EFFORT},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char request[512];
        snprintf(request, sizeof request, "{\"messages\":[" HI "]%s}", ways[i].fields);
        struct chat_prompt p = rendered(request, ways[i].fallback);
        if (p.think != ways[i].want) {
            fail_msg("%s: %d, wanted %d", ways[i].fields, p.think, ways[i].want);
        }
        static const char *const heads[] = {
            [CHAT_THINK_OFF] = USER("Hi") ANSWER,
            [CHAT_THINK_NO_EFFORT] = USER("Hi") THINK,
            [CHAT_THINK_LOW] = EFFORT("low") USER("Hi") THINK,
            [CHAT_THINK_HIGH] = EFFORT("high") USER("Hi") THINK,
            [CHAT_THINK_MAX] = EFFORT("max") USER("Hi") THINK,
        };
        assert_string_equal(p.text, heads[p.think]);
        assert_true(p.open);
        chat_prompt_free(&p);
    }
}

static void refusals_name_the_field(void **s)
{
#define WITH(fields) "{\"messages\":[" HI "]," fields "}"
#define MESSAGE(fields) "{\"messages\":[" HI ",{" fields "}]}"
    static const struct {
        const char *request;
        int code;
        const char *field;
    } bad[] = {
        {"", ERR_FORMAT, "request"},
        {"[]", ERR_FORMAT, "request"},
        {"{\"messages\":[" HI "]", ERR_FORMAT, "request"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}", ERR_FORMAT, "request"},
        {"{}", ERR_FORMAT, "messages"},
        {"{\"messages\":[]}", ERR_FORMAT, "messages"},
        {"{\"messages\":\"Hi\"}", ERR_FORMAT, "messages"},
        {"{\"messages\":[\"Hi\"]}", ERR_FORMAT, "messages[0]"},
        {MESSAGE("\"content\":\"x\""), ERR_FORMAT, "messages[1].role"},
        {MESSAGE("\"role\":7"), ERR_FORMAT, "messages[1].role"},
        {MESSAGE("\"role\":\"narrator\""), ERR_UNSUPPORTED, "messages[1].role"},
        {MESSAGE("\"role\":\"function\",\"name\":\"f\""), ERR_UNSUPPORTED, "messages[1].role"},
        {MESSAGE("\"role\":\"user\",\"content\":5"), ERR_FORMAT, "messages[1].content"},
        {MESSAGE("\"role\":\"user\",\"content\":{}"), ERR_FORMAT, "messages[1].content"},
        {MESSAGE("\"role\":\"user\",\"content\":[\"x\"]"), ERR_FORMAT,
         "messages[1].content[0].type"},
        {MESSAGE("\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"},"
                 "{\"type\":\"image_url\"}]"),
         ERR_UNSUPPORTED, "messages[1].content[1].type"},
        {MESSAGE("\"role\":\"user\",\"content\":[{\"type\":\"text\"}]"), ERR_FORMAT,
         "messages[1].content[0].text"},
        {MESSAGE("\"role\":\"user\",\"name\":3"), ERR_FORMAT, "messages[1].name"},
        {MESSAGE("\"role\":\"user\",\"tools\":[]"), ERR_FORMAT, "messages[1].tools"},
        {MESSAGE("\"role\":\"user\",\"tool_calls\":[]"), ERR_FORMAT, "messages[1].tool_calls"},
        {MESSAGE("\"role\":\"system\",\"tools\":{}"), ERR_FORMAT, "messages[1].tools"},
        {MESSAGE("\"role\":\"system\",\"tools\":[1]"), ERR_FORMAT, "messages[1].tools[0]"},
        {MESSAGE("\"role\":\"assistant\",\"reasoning_content\":[]"), ERR_FORMAT,
         "messages[1].reasoning_content"},
        {MESSAGE("\"role\":\"assistant\",\"reasoning\":{}"), ERR_FORMAT, "messages[1].reasoning"},
        {MESSAGE("\"role\":\"assistant\",\"function_call\":{}"), ERR_UNSUPPORTED,
         "messages[1].function_call"},
        {MESSAGE("\"role\":\"assistant\",\"partial\":true"), ERR_UNSUPPORTED,
         "messages[1].partial"},
        {MESSAGE("\"role\":\"assistant\",\"tool_calls\":{}"), ERR_FORMAT, "messages[1].tool_calls"},
        {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[3]"), ERR_FORMAT,
         "messages[1].tool_calls[0]"},
        {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\"}]"), ERR_FORMAT,
         "messages[1].tool_calls[0].function.name"},
        {MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"id\":[],\"name\":\"f\"}]"), ERR_FORMAT,
         "messages[1].tool_calls[0].id"},
        {MESSAGE("\"role\":\"tool\",\"tool_call_id\":[]"), ERR_FORMAT, "messages[1].tool_call_id"},
        {MESSAGE("\"role\":\"tool\",\"name\":[]"), ERR_FORMAT, "messages[1].name"},
        {WITH("\"tools\":{}"), ERR_FORMAT, "tools"},
        {WITH("\"tools\":[\"f\"]"), ERR_FORMAT, "tools[0]"},
        {WITH("\"tool_choice\":\"maybe\""), ERR_FORMAT, "tool_choice"},
        {WITH("\"tool_choice\":{\"type\":\"allowed_tools\"}"), ERR_UNSUPPORTED, "tool_choice"},
        {WITH("\"response_format\":\"json_object\""), ERR_FORMAT, "response_format"},
        {WITH("\"response_format\":{\"type\":\"xml\"}"), ERR_UNSUPPORTED, "response_format.type"},
        {WITH("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}"),
         ERR_FORMAT, "response_format.json_schema.schema"},
        {WITH("\"reasoning_effort\":\"extreme\""), ERR_FORMAT, "reasoning_effort"},
        {WITH("\"reasoning_effort\":3"), ERR_FORMAT, "reasoning_effort"},
        {WITH("\"reasoning_effort\":\"low\",\"thinking_effort\":\"max\""), ERR_FORMAT,
         "thinking_effort"},
        {WITH("\"reasoning_effort\":\"none\",\"thinking\":true"), ERR_FORMAT, "reasoning_effort"},
        {WITH("\"thinking\":true,\"enable_thinking\":false"), ERR_FORMAT, "enable_thinking"},
        {WITH("\"thinking\":\"yes\""), ERR_FORMAT, "thinking"},
        {WITH("\"thinking\":{\"type\":\"some\"}"), ERR_FORMAT, "thinking.type"},
        {WITH("\"thinking\":{\"budget_tokens\":100}"), ERR_UNSUPPORTED, "thinking.budget_tokens"},
        {WITH("\"chat_template_kwargs\":[]"), ERR_FORMAT, "chat_template_kwargs"},
        {WITH("\"chat_template_kwargs\":{\"date\":\"today\"}"), ERR_UNSUPPORTED,
         "chat_template_kwargs.date"},
        {WITH("\"chat_template_kwargs\":{\"preserve_thinking\":false}"), ERR_UNSUPPORTED,
         "chat_template_kwargs.preserve_thinking"},
        {WITH("\"functions\":[]"), ERR_UNSUPPORTED, "functions"},
        {WITH("\"continue_final_message\":true"), ERR_UNSUPPORTED, "continue_final_message"},
        {WITH("\"add_generation_prompt\":1"), ERR_FORMAT, "add_generation_prompt"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refused(bad[i].request, bad[i].code, bad[i].field);
    }
    /* What the sentence repeats of a request is whole characters, without control characters. */
    struct chat_prompt p;
    struct err e = {0};
    const char *q = "{\"messages\":[{\"role\":\"\\n`aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\xC3\xA9"
                    "b\",\"content\":\"\"}]}";
    chat_render(q, strlen(q), CHAT_THINK_DEFAULT, &p, &e);
    assert_non_null(strstr(e.msg, "unknown role `?\?aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...`;"));
}

static json_t *fixture(const char *name)
{
    struct buf f = fixture_file(name);
    json_t *j = json_loadb(f.p, f.n, JSON_ALLOW_NUL, NULL);
    assert_non_null(j);
    buf_free(&f);
    return j;
}

static void as_the_independent_rendition(void **s)
{
    json_t *cases = fixture("chat_cases.json"), *c;
    size_t i, k;
    assert_true(json_array_size(cases) > 100);
    json_array_foreach(cases, i, c)
    {
        const json_t *q = json_object_get(c, "request"), *segs = json_object_get(c, "segments"), *g;
        struct chat_prompt p = rendered(json_string_value(q), CHAT_THINK_DEFAULT);
        json_array_foreach((json_t *)segs, k, g)
        {
            const json_t *t = json_array_get(g, 1);
            if (k >= p.nsegs || p.segs[k].n != json_string_length(t) ||
                memcmp(p.text + p.segs[k].off, json_string_value(t), p.segs[k].n) != 0 ||
                p.segs[k].trusted != json_is_true(json_array_get(g, 0))) {
                fail_msg("%s, segment %zu: have %.200s, wanted %.200s\n%s",
                         json_string_value(json_object_get(c, "name")), k,
                         k < p.nsegs ? p.text + p.segs[k].off : "none", json_string_value(t),
                         json_string_value(q));
            }
        }
        assert_int_equal(k, p.nsegs);
        chat_prompt_free(&p);
    }
    json_decref(cases);
}

/* The prompts published with the demo model: text and ids equal. */
static void demo_model_prompts(void **s)
{
    json_t *cases = fixture("chat_demo.json"), *c;
    size_t i;
    static const struct {
        const char *name, *user, *system;
        enum chat_think think;
    } ask[] = {
        {"chat-none", "Define whale.", NULL, CHAT_THINK_OFF},
        {"chat-noeffort", "What does 'nimble' mean?", NULL, CHAT_THINK_NO_EFFORT},
        {"chat-system", "Give a synonym of quick.", "Answer briefly.", CHAT_THINK_OFF},
        {"chat-low", "What is a house?", NULL, CHAT_THINK_LOW},
    };
    assert_int_equal(json_array_size(cases), 4);
    json_array_foreach(cases, i, c)
    {
        struct chat_prompt p;
        struct tok_ids ids = {0};
        struct err e = {0};
        const json_t *want = json_object_get(c, "prompt_ids");
        assert_string_equal(json_string_value(json_object_get(c, "name")), ask[i].name);
        assert_int_equal(chat_simple(ask[i].user, ask[i].system, ask[i].think, &p, &e), 0);
        check_segments(&p);
        assert_string_equal(p.text, json_string_value(json_object_get(c, "prompt_text")));
        assert_int_equal(p.think, ask[i].think);
        assert_int_equal(chat_prompt_ids(&p, tok, &ids, &e), 0);
        assert_int_equal(ids.n, json_array_size(want));
        for (size_t k = 0; k < ids.n; k++) {
            assert_int_equal(ids.v[k], json_integer_value(json_array_get(want, k)));
        }
        tok_ids_free(&ids);
        chat_prompt_free(&p);
    }
    json_decref(cases);
}

static void simple_prompts(void **s)
{
    struct chat_prompt p;
    struct err e = {0};
    assert_int_equal(chat_simple("a\"\\\n\x01<|sep|>", "", CHAT_THINK_DEFAULT, &p, &e), 0);
    assert_string_equal(p.text,
                        EFFORT("max") OPENED("system") DONE USER("a\"\\\n\x01<|sep|>") THINK);
    chat_prompt_free(&p);
    assert_int_equal(chat_simple("\xFF", NULL, CHAT_THINK_DEFAULT, &p, &e), ERR_FORMAT);
    assert_null(p.text);
}

static void limits_hold(void **s)
{
    struct chat_prompt p;
    struct err e = {0};
    struct buf q;
    assert_int_equal(chat_render("", CHAT_MAX_REQUEST + 1, CHAT_THINK_OFF, &p, &e), ERR_LIMIT);
    assert_true(!strncmp(e.msg, "request: ", 9));
    /* Deep arguments are over a limit of ours: an error, not a broken call. */
    buf_init(&q, 1 << 20);
    buf_adds(&q, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\","
                 "\"arguments\":\"");
    for (int i = 0; i < 300; i++) {
        buf_adds(&q, "[");
    }
    buf_adds(&q, "\"}]}]}");
    refused(q.p, ERR_LIMIT, "messages[0].tool_calls[0].function.arguments");
    buf_free(&q);
}

static int open_tok(void **s)
{
    tok = fixture_tok();
    return 0;
}

static int close_tok(void **s)
{
    tok_close(tok);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_examples),
        cmocka_unit_test(hostile_text_stays_text),
        cmocka_unit_test(attributes_are_four_pieces),
        cmocka_unit_test(parts_are_pieces_of_their_own),
        cmocka_unit_test(roles_and_contents),
        cmocka_unit_test(reasoning_of_earlier_turns),
        cmocka_unit_test(arguments_of_calls),
        cmocka_unit_test(results_follow_their_calls),
        cmocka_unit_test(what_surrounds_the_conversation),
        cmocka_unit_test(how_to_think),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(as_the_independent_rendition),
        cmocka_unit_test(demo_model_prompts),
        cmocka_unit_test(simple_prompts),
        cmocka_unit_test(limits_hold),
    };
    return cmocka_run_group_tests(tests, open_tok, close_tok);
}
