/* SPDX-License-Identifier: MIT
 * t_grammar.c: what a schema lets through and what not; what is refused; texts drawn at random. */
#include "tests/grammar/gram_kit.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct gram_kit kit;

struct fit {
    const char *schema, *text;
    bool fits;
};

static void check_all(const struct fit *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        struct grammar *g;
        if (gram_kit_schema(f[i].schema, &g, &e)) {
            fail_msg("%s: %s", f[i].schema, e.msg);
        }
        if (gram_kit_fits(&kit, g, f[i].text, strlen(f[i].text)) != f[i].fits) {
            fail_msg("%s: `%s` should%s fit", f[i].schema, f[i].text, f[i].fits ? "" : " not");
        }
        grammar_free(g);
    }
}
#define CHECK(list) check_all(list, sizeof(list) / sizeof *(list))

static void test_any(void **state)
{
    (void)state;
    static const struct fit list[] = {
        {NULL, "{}", true},
        {NULL, "{\"a\": [1, -2.5e10, true, false, null, \"x\"]}", true},
        {NULL, "{\"a\":{\"b\":{\"c\":[[[]]]}}}", true},
        {NULL, "{\n  \"a\": 1,\n  \"b\": 2\n}\n", true},
        {NULL, "{\"\\u00e9\\ud83d\\ude00\\n\\\"\": \"\xc3\xa9\xf0\x9f\x98\x80\"}", true},
        {NULL, "[]", false},
        {NULL, "{\"a\": 1,}", false},
        {NULL, "{\"a\" 1}", false},
        {NULL, "{a: 1}", false},
        {NULL, "{\"a\": 01}", false},
        {NULL, "{\"a\": .5}", false},
        {NULL, "{\"a\": 1.}", false},
        {NULL, "{\"a\": +1}", false},
        {NULL, "{\"a\": NaN}", false},
        {NULL, "{\"a\": \"\\ud83d\"}", false},
        {NULL, "{\"a\": \"\\x41\"}", false},
        {NULL, "{\"a\": \"tab\t\"}", false},
        {NULL, "{} {}", false},
        {NULL, "{\"a\": \"<|open|>\"}", false}, /* structure is no text */
        {"{}", "[1, \"x\"]", true},
        {"true", "null", true},
    };
    CHECK(list);
}

static void test_types(void **state)
{
    (void)state;
    static const struct fit list[] = {
        {"{\"type\":\"string\"}", "\"a b\"", true},
        {"{\"type\":\"string\"}", "1", false},
        {"{\"type\":\"integer\"}", "-12", true},
        {"{\"type\":\"integer\"}", "1.0", false},
        {"{\"type\":\"number\"}", "1.5e-3", true},
        {"{\"type\":\"boolean\"}", "true", true},
        {"{\"type\":\"boolean\"}", "null", false},
        {"{\"type\":[\"string\",\"null\"]}", "null", true},
        {"{\"type\":[\"string\",\"null\"]}", "\"null\"", true},
        {"{\"type\":[\"string\",\"null\"]}", "0", false},
        {"{\"enum\":[\"red\",2,null,{\"a\":[1]}]}", "\"red\"", true},
        {"{\"enum\":[\"red\",2,null,{\"a\":[1]}]}", "2", true},
        {"{\"enum\":[\"red\",2,null,{\"a\":[1]}]}", "{\"a\":[1]}", true},
        {"{\"enum\":[\"red\",2,null,{\"a\":[1]}]}", "\"blue\"", false},
        {"{\"const\":\"a\\\"b\"}", "\"a\\\"b\"", true},
        {"{\"type\":\"string\",\"enum\":[\"a\",1]}", "1", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\xc3\xa9\xe2\x82\xac\"", true},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"abcd\"", false},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"2026-02-28\"", true},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"2026-02-31\"", false},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"10.255.0.7\"", true},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"10.256.0.7\"", false},
        {"{\"type\":\"string\",\"format\":\"my-own\"}", "\"anything\"", true},
    };
    CHECK(list);
}

static void test_numbers(void **state)
{
    (void)state;
    static const int bounds[][2] = {{0, 0}, {0, 9}, {7, 13}, {-5, 5}, {-120, -7}, {99, 1001}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        char schema[200];
        struct grammar *g, *n;
        struct err e = {0};
        int lo = bounds[i][0], hi = bounds[i][1];
        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", lo,
                 hi);
        assert_int_equal(gram_kit_schema(schema, &g, &e), 0);
        snprintf(schema, sizeof schema,
                 "{\"type\":\"number\",\"exclusiveMinimum\":%d,\"maximum\":%d}", lo - 1, hi);
        assert_int_equal(gram_kit_schema(schema, &n, &e), 0);
        for (int v = -1200; v <= 1200; v++) {
            char text[32];
            int k = snprintf(text, sizeof text, "%d", v);
            assert_int_equal(gram_kit_fits(&kit, g, text, (size_t)k), v >= lo && v <= hi);
            if (v % 7 == 0 || (v > lo - 3 && v < hi + 3)) {
                assert_int_equal(gram_kit_fits(&kit, n, text, (size_t)k), v > lo - 1 && v <= hi);
                for (int f = 0; f < 3; f++) {
                    static const char *const part[] = {"0", "5", "001"};
                    k = snprintf(text, sizeof text, "%d.%s", v, part[f]);
                    double x = strtod(text, NULL);
                    bool zero = x == 0 && text[0] == '-';
                    if (!zero &&
                        gram_kit_fits(&kit, n, text, (size_t)k) != (x > lo - 1 && x <= hi)) {
                        fail_msg("%s: %s", schema, text);
                    }
                }
            }
        }
        grammar_free(g);
        grammar_free(n);
    }
    static const struct fit list[] = {
        {"{\"type\":\"integer\",\"exclusiveMinimum\":2.5,\"exclusiveMaximum\":5}", "2", false},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":2.5,\"exclusiveMaximum\":5}", "3", true},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":2.5,\"exclusiveMaximum\":5}", "4", true},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":2.5,\"exclusiveMaximum\":5}", "5", false},
        {"{\"type\":\"integer\",\"minimum\":-2.5}", "-2", true},
        {"{\"type\":\"integer\",\"minimum\":-2.5}", "-3", false},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "0.75", true},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "1.01", false},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "-0.1", false},
        {"{\"type\":\"number\",\"exclusiveMaximum\":0}", "-0.001", true},
        {"{\"type\":\"number\",\"exclusiveMaximum\":0}", "0", false},
        {"{\"type\":\"number\",\"exclusiveMaximum\":9007199254740992}", "597E49", false},
        {"{\"type\":\"number\",\"minimum\":-1e300}", "-5.5", true},
        {"{\"type\":\"number\",\"minimum\":-1e16}", "-5E99", false},
    };
    CHECK(list);
}

static void test_objects(void **state)
{
    (void)state;
#define AB                                                                               \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":" \
    "\"string\"}}"
    static const struct fit list[] = {
        {AB ",\"required\":[\"a\",\"b\"],\"additionalProperties\":false}",
         "{\"a\": 1, \"b\": \"x\"}", true},
        {AB ",\"required\":[\"a\",\"b\"]}", "{\"a\":1}", false},
        {AB ",\"required\":[\"a\",\"b\"]}", "{\"b\":\"x\",\"a\":1}",
         false}, /* the schema's order */
        {AB ",\"required\":[\"b\"]}", "{\"b\":\"x\"}", true},
        {AB ",\"required\":[\"b\"]}", "{\"a\":1,\"b\":\"x\"}", true},
        {AB ",\"required\":[\"b\"]}", "{}", false},
        {AB "}", "{}", true},
        {AB "}", "{\"a\":1,}", false},
        {AB "}", "{,\"a\":1}", false},
        {AB "}", "{\"c\":1}", false},
        {AB ",\"additionalProperties\":{\"type\":\"null\"}}", "{\"c\":null,\"d\":null}", true},
        {AB ",\"additionalProperties\":{\"type\":\"null\"}}", "{\"a\":1,\"ab\":null}", true},
        {AB ",\"additionalProperties\":{\"type\":\"null\"}}", "{\"a\":null}", false},
        {AB ",\"additionalProperties\":{\"type\":\"null\"}}", "{\"\\u0061\":null}", false},
        {AB ",\"minProperties\":1}", "{}", false},
        {AB ",\"minProperties\":1}", "{\"a\":2}", true},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
         "{\"x\":1,\"y\":2}", true},
        {"{\"type\":\"object\"}", "{\"x\":[]}", true},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", "[1, 2,3]", true},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", "[]", true},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", "[1,\"2\"]", false},
        {"{\"type\":\"array\",\"minItems\":2,\"maxItems\":3}", "[1]", false},
        {"{\"type\":\"array\",\"minItems\":2,\"maxItems\":3}", "[1,2]", true},
        {"{\"type\":\"array\",\"minItems\":2,\"maxItems\":3}", "[1,2,3]", true},
        {"{\"type\":\"array\",\"minItems\":2,\"maxItems\":3}", "[1,2,3,4]", false},
        {"{\"type\":\"array\",\"maxItems\":0}", "[]", true},
        {"{\"type\":\"array\",\"maxItems\":0}", "[1]", false},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
         "\"items\":false}",
         "[1,\"x\"]", true},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
         "\"items\":{\"type\":\"null\"}}",
         "[1,\"x\",null]", true},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
         "[1,[2,[]]]", true},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
         "[1,[2,[\"x\"]]]", false},
        {"{\"$defs\":{\"n/d\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":"
         "\"#/$defs/n~1d\"},{\"type\":\"null\"}]}},\"required\":[\"next\"]}},\"$ref\":"
         "\"#/$defs/n~1d\"}",
         "{\"next\":{\"next\":null}}", true},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":"
         "\"integer\"}},\"required\":[\"k\",\"x\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
         "\"const\":\"b\"}},\"required\":[\"k\"]}]}",
         "{\"k\":\"a\",\"x\":3}", true},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":"
         "\"integer\"}},\"required\":[\"k\",\"x\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
         "\"const\":\"b\"}},\"required\":[\"k\"]}]}",
         "{\"k\":\"b\",\"x\":3}", false},
    };
#undef AB
    CHECK(list);
}

static void test_patterns(void **state)
{
    (void)state;
#define P(p) "{\"type\":\"string\",\"pattern\":\"" p "\"}"
    static const struct fit list[] = {
        {P("^[a-c]+$"), "\"abcabc\"", true},
        {P("^[a-c]+$"), "\"abd\"", false},
        {P("^[a-c]+$"), "\"\"", false},
        {P("b"), "\"abc\"", true},
        {P("b"), "\"ac\"", false},
        {P("^(ab|cd){2,3}$"), "\"abcd\"", true},
        {P("^(ab|cd){2,3}$"), "\"ab\"", false},
        {P("^(ab|cd){2,3}$"), "\"abcdabcd\"", false},
        {P("^a|b$"), "\"axx\"", true},
        {P("^a|b$"), "\"xxb\"", true},
        {P("^a|b$"), "\"xbx\"", false},
        {P("^\\\\d{3}-\\\\w+$"), "\"123-a_Z9\"", true},
        {P("^\\\\d{3}-\\\\w+$"), "\"12-a\"", false},
        {P("^[^a]$"), "\"\\\"\"", true}, /* a quote, escaped */
        {P("^[^a]$"), "\"\xe2\x82\xac\"", true},
        {P("^[^a]$"), "\"a\"", false},
        {P("^.$"), "\"\\\\\"", true},
        {P("^.$"), "\"\\n\"", false},
        {P("^(a*)*b$"), "\"aaab\"", true},
        {P("^(?:a?){0,3}$"), "\"aa\"", true},
        {P("^\xc3\xa9[\xce\xb1-\xcf\x89]$"), "\"\xc3\xa9\xce\xb2\"", true},
        {P("^\xc3\xa9[\xce\xb1-\xcf\x89]$"), "\"\xc3\xa9z\"", false},
        {P("^\\\\.\\\\*$"), "\".*\"", true},
        {P("^(?!ab)[a-c]{2}$"), "\"ac\"", true},
        {P("^(?!ab)[a-c]{2}$"), "\"ab\"", false},
        {P("^(?=.*[0-9])(?=.*[A-Z])\\\\w{4,6}$"), "\"ab1C\"", true},
        {P("^(?=.*[0-9])(?=.*[A-Z])\\\\w{4,6}$"), "\"abcC\"", false},
        {P("^(?:a$|b)"), "\"bx\"", true},
        {P("^(?:a$|b)"), "\"ax\"", false},
        {"{\"type\":\"string\",\"pattern\":\"^a\",\"minLength\":2,\"maxLength\":3}", "\"ab\"",
         true},
        {"{\"type\":\"string\",\"pattern\":\"^a\",\"minLength\":2,\"maxLength\":3}", "\"abcd\"",
         false},
        {"{\"type\":\"string\",\"pattern\":\"^a\",\"minLength\":2,\"maxLength\":3}", "\"a\"",
         false},
        {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
         "[1, \"a\"]", true},
        {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", "[1, 2]",
         false},
        {"{\"type\":\"string\",\"pattern\":\"^20\",\"format\":\"date\"}", "\"2026-02-28\"", true},
        {"{\"type\":\"string\",\"pattern\":\"^20\",\"format\":\"date\"}", "\"1999-02-28\"", false},
        {"{\"type\":\"string\",\"pattern\":\"^20\",\"format\":\"date\"}", "\"20 years\"", false},
    };
#undef P
    CHECK(list);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const list[][2] = {
        {"{\"type\":\"object\",\"patternProperties\":{}}", "schema.patternProperties: "},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}", "schema.a.not: "},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "schema.uniqueItems: "},
        {"{\"type\":\"number\",\"multipleOf\":0.5}", "schema.multipleOf: "},
        {"{\"type\":\"number\",\"minimum\":0.5}", "schema.minimum: "},
        {"{\"type\":\"text\"}", "schema.type: "},
        {"{\"type\":\"string\",\"pattern\":\"(?<=a)b\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"(?:(?!a)b)*\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"^(?!a)a\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"a$b\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"a(\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"a)\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"[z-a]\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"\\\\1\"}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"^a{3}$\",\"minLength\":4}", "schema.pattern: "},
        {"{\"type\":\"string\",\"pattern\":\"(?=.{0,4000}a.{0,4000}$)\",\"maxLength\":4000}",
         "schema.pattern: "},
        {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":9}", "schema.format: "},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "schema.maxLength: "},
        {"{\"type\":\"string\",\"maxLength\":1000000}", "schema.maxLength: "},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "schema: "},
        {"{\"$ref\":\"#/$defs/a\"}", "schema.$ref: "},
        {"{\"$ref\":\"other.json\"}", "schema.$ref: "},
        {"{\"$ref\":\"#\"}", "schema.$ref: "},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "schema: "},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "schema: "},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "schema.oneOf: "},
        {"{\"allOf\":[{},{}]}", "schema.allOf: "},
        {"{\"type\":\"object\",\"properties\":{},\"required\":[\"a\"]}", "schema.required[0]: "},
        {"{\"enum\":[]}", "schema.enum: "},
        {"false", "schema: "},
        {"3", "schema: "},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct err e = {0};
        struct grammar *g;
        if (!gram_kit_schema(list[i][0], &g, &e)) {
            fail_msg("%s is taken", list[i][0]);
        }
        if (strncmp(e.msg, list[i][1], strlen(list[i][1])) != 0) {
            fail_msg("%s: \"%s\" should begin \"%s\"", list[i][0], e.msg, list[i][1]);
        }
    }
}

/* A chain of a thousand definitions, and a value nested to the limit and beyond. */
static void test_sizes(void **state)
{
    (void)state;
    struct buf b;
    struct err e = {0};
    struct grammar *g;
    buf_init(&b, 1 << 20);
    assert_int_equal(buf_adds(&b, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{"), 0);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(buf_addf(&b,
                                  "\"d%d\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
                                  "d%d\"}},",
                                  i, i + 1),
                         0);
    }
    assert_int_equal(buf_adds(&b, "\"d60\":{\"type\":\"null\"}}}"), 0);
    assert_int_equal(gram_kit_schema(b.p, &g, &e), 0);
    char text[200];
    memset(text, '[', 60);
    memcpy(text + 60, "null", 4);
    memset(text + 64, ']', 60);
    assert_true(gram_kit_fits(&kit, g, text, 124));
    assert_false(gram_kit_fits(&kit, g, text + 1, 122));
    grammar_free(g);
    buf_free(&b);
    assert_int_equal(gram_kit_schema("{}", &g, &e), 0);
    char *deep = malloc(4000);
    assert_non_null(deep);
    memset(deep, '[', 2000);
    memset(deep + 2000, ']', 2000);
    assert_true(gram_kit_fits(&kit, g, deep + 1600, 800));
    assert_false(gram_kit_fits(&kit, g, deep, 4000)); /* deeper than any reader is sure to take */
    free(deep);
    grammar_free(g);
}

/* Whatever is drawn is JSON of the asked type. */
static void test_draw(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        NULL,
        "{\"type\":\"array\",\"items\":{\"type\":\"number\"}}",
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},"
        "\"kind\":{\"enum\":[\"a\",\"b\"]},\"size\":{\"type\":\"integer\",\"minimum\":-3,"
        "\"maximum\":300},\"at\":{\"type\":\"string\",\"format\":\"date-time\"}},"
        "\"required\":[\"name\",\"size\",\"at\"],\"additionalProperties\":false}",
        "{\"type\":\"string\",\"pattern\":\"^[^x]{1,9}$\"}",
    };
    uint64_t seed = 7;
    int ended = 0;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct err e = {0};
        struct grammar *g;
        assert_int_equal(gram_kit_schema(schemas[i], &g, &e), 0);
        for (int k = 0; k < 25; k++) {
            struct tok_ids ids = {0};
            struct buf text;
            buf_init(&text, 1 << 20);
            if (gram_kit_draw(&kit, g, &seed, 150, &ids)) {
                gram_kit_text(&kit, &ids, &text);
                json_error_t je;
                json_t *v =
                    json_loadb(text.p ? text.p : "", text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
                if (!v) {
                    fail_msg("no JSON: %s: %s", text.p, je.text);
                }
                assert_true(i == 0   ? json_is_object(v)
                            : i == 1 ? json_is_array(v)
                            : i == 2 ? json_is_object(v) && json_is_string(json_object_get(v, "at"))
                                     : json_is_string(v));
                if (i == 2) {
                    json_int_t n = json_integer_value(json_object_get(v, "size"));
                    assert_true(n >= -3 && n <= 300);
                }
                json_decref(v);
                ended++;
            }
            buf_free(&text);
            tok_ids_free(&ids);
        }
        grammar_free(g);
    }
    assert_true(ended > 40);
}

/* ---- answers ---- */

static void answer_fits(const struct grammar_answer *a, const char *text, bool fits)
{
    struct err e = {0};
    struct grammar *g;
    if (grammar_answer(a, kit.t, &g, &e)) {
        fail_msg("%s", e.msg);
    }
    if (gram_kit_fits(&kit, g, text, strlen(text)) != fits) {
        fail_msg("`%s` should%s fit", text, fits ? "" : " not");
    }
    grammar_free(g);
}

#define RESPONSE_END "<|close|>response<|sep|>"
#define END "<|close|>message<|sep|><|end_of_msg|>"
#define CALL(n, i, args) \
    "<|open|>call tool=\"" n "\" index=\"" i "\"<|sep|>" args "<|close|>call<|sep|>"
#define ARG(k, t, v) \
    "<|open|>argument key=\"" k "\" type=\"" t "\"<|sep|>" v "<|close|>argument<|sep|>"
#define TOOLS(c) "<|open|>tools<|sep|>" c "<|close|>tools<|sep|>"

static void test_answer(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"lines\":{\"type\":"
        "\"integer\",\"minimum\":1},\"mode\":{\"enum\":[\"r\",\"w\"]}},\"required\":[\"path\"]}";
    struct pyjson_doc *d;
    struct err e = {0};
    assert_int_equal(pyjson_parse(schema, strlen(schema), false, &d, &e), 0);
    struct grammar_tool tools[] = {{"read", pyjson_root(d), true}, {"a&\"b", NULL, false}};
    struct grammar_answer a = {.json = true};
    answer_fits(&a, "{\"x\": 1}" RESPONSE_END END, true);
    answer_fits(&a, "hello" RESPONSE_END END, false);
    answer_fits(&a, "{\"x\": 1}", false);
    a.thinking = true;
    answer_fits(&a, "hm { \xc3\xa9<|close|>think<|sep|><|open|>response<|sep|>{}" RESPONSE_END END,
                true);
    answer_fits(&a, "{}" RESPONSE_END END, false);
    a = (struct grammar_answer){.calls = GRAMMAR_MUST_CALL, .tools = tools, .n_tools = 2};
    answer_fits(
        &a, "I look." RESPONSE_END TOOLS(CALL("read", "1", ARG("path", "string", "/a \"b\""))) END,
        true);
    answer_fits(&a,
                RESPONSE_END TOOLS(CALL("read", "1",
                                        ARG("path", "string", "x") ARG("lines", "number", "12")
                                            ARG("mode", "string", "w"))) END,
                true);
    answer_fits(&a,
                RESPONSE_END TOOLS(
                    CALL("read", "1", ARG("path", "string", "x") ARG("lines", "number", "0"))) END,
                false);
    answer_fits(&a, RESPONSE_END TOOLS(CALL("read", "1", ARG("lines", "number", "1"))) END, false);
    answer_fits(&a,
                RESPONSE_END TOOLS(CALL("read", "1", ARG("path", "string", "x"))
                                       CALL("a&amp;&quot;b", "2", "")) END,
                true);
    answer_fits(&a, RESPONSE_END TOOLS(CALL("write", "1", "")) END, false);
    answer_fits(&a, "no call" RESPONSE_END END, false);
    a.one_call = true;
    answer_fits(&a, RESPONSE_END TOOLS(CALL("a&amp;&quot;b", "1", "")) END, true);
    answer_fits(
        &a, RESPONSE_END TOOLS(CALL("a&amp;&quot;b", "1", "") CALL("a&amp;&quot;b", "2", "")) END,
        false);
    a.calls = GRAMMAR_MAY_CALL;
    answer_fits(&a, "no call" RESPONSE_END END, true);
    tools[0].strict = false;
    a.one_call = false;
    answer_fits(
        &a, RESPONSE_END TOOLS(CALL("read", "1", ARG("other", "object", "{\"a\":[1]}"))) END, true);
    answer_fits(&a, RESPONSE_END TOOLS(CALL("read", "1", ARG("other", "object", "[1]"))) END,
                false);
    pyjson_free(d);
}

/* As an agent with a long list of tools has it: sixteen calls of any of 300. */
static void test_many_tools(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"list\":{\"type\":"
        "\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":20}},\"required\":[\"path\"]}";
    struct pyjson_doc *d;
    struct err e = {0};
    static struct grammar_tool tools[300];
    static char names[300][8];
    assert_int_equal(pyjson_parse(schema, strlen(schema), false, &d, &e), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(names[i], sizeof names[i], "t%03d", i);
        tools[i] = (struct grammar_tool){names[i], pyjson_root(d), i % 3 != 0};
    }
    struct grammar_answer a = {.calls = GRAMMAR_MAY_CALL, .tools = tools, .n_tools = 300};
    answer_fits(&a,
                RESPONSE_END TOOLS(CALL("t299", "1", ARG("path", "string", "x"))
                                       CALL("t150", "2", ARG("any", "null", "null"))) END,
                true);
    answer_fits(&a, RESPONSE_END TOOLS(CALL("t299", "1", ARG("any", "null", "null"))) END, false);
    pyjson_free(d);
    /* each of these is taken alone; the work of all together is bounded as well */
    struct buf b;
    struct grammar *g;
    buf_init(&b, 1 << 20);
    buf_adds(&b, "{\"type\":\"object\",\"properties\":{\"v\":{\"oneOf\":[");
    for (int i = 0; i < 700; i++) {
        buf_addf(
            &b,
            "%s{\"type\":\"object\",\"properties\":{\"k\":{\"const\":%d}},\"required\":[\"k\"]}",
            i ? "," : "", i);
    }
    buf_adds(&b, "]}}}");
    assert_int_equal(pyjson_parse(b.p, b.n, false, &d, &e), 0);
    for (int i = 0; i < 300; i++) {
        tools[i] = (struct grammar_tool){names[i], pyjson_root(d), true};
    }
    a.n_tools = 1;
    assert_int_equal(grammar_answer(&a, kit.t, &g, &e), 0);
    grammar_free(g);
    a.n_tools = 300;
    assert_int_equal(grammar_answer(&a, kit.t, &g, &e), ERR_LIMIT);
    pyjson_free(d);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any),      cmocka_unit_test(test_types),
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_objects),
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_draw),
        cmocka_unit_test(test_answer),   cmocka_unit_test(test_many_tools),
    };
    gram_kit_open(&kit);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    gram_kit_close(&kit);
    return r;
}
