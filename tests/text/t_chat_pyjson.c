/* SPDX-License-Identifier: MIT
 * t_chat_pyjson.c: JSON as Python's json module reads and writes it: data/pyjson_cases.json holds
 * what Python itself made of each text (oracle/chat_oracle.py). */
#include "node/text/pyjson.h"
#include "text/tok_fixture.h"

#include <jansson.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void check_spelling(const char *text, size_t n, int how, const json_t *want)
{
    struct pyjson_doc *d;
    struct err e = {0};
    int rc = pyjson_parse(text, n, true, &d, &e);
    if (!json_is_string(want)) {
        if (rc != ERR_FORMAT || d || !strstr(e.msg, "not JSON: ")) {
            fail_msg("taken although Python refuses it: %s", text);
        }
        return;
    }
    if (rc) {
        fail_msg("%s: %s", text, e.msg);
    }
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(pyjson_write(pyjson_root(d), how, &b), 0);
    if (b.n != json_string_length(want) || memcmp(b.p, json_string_value(want), b.n) != 0) {
        fail_msg("%s: written %s, Python writes %s", text, b.p, json_string_value(want));
    }
    buf_free(&b);
    pyjson_free(d);
}

static void spelled_as_python_does(void **s)
{
    struct buf f = fixture_file("pyjson_cases.json");
    json_t *cases = json_loadb(f.p, f.n, JSON_ALLOW_NUL, NULL), *c;
    size_t i;
    assert_true(json_array_size(cases) > 2000);
    json_array_foreach(cases, i, c)
    {
        const json_t *t = json_object_get(c, "text");
        check_spelling(json_string_value(t), json_string_length(t), 0, json_object_get(c, "plain"));
        check_spelling(json_string_value(t), json_string_length(t), PYJSON_COMPACT | PYJSON_SORTED,
                       json_object_get(c, "sorted"));
    }
    json_decref(cases);
    buf_free(&f);
}

static void architecture_spellings(void **s)
{
    /* The spellings that the architecture note lists, by hand. */
    static const char *const pairs[][2] = {
        {"1.0", "1.0"},
        {"1e3", "1000.0"},
        {"1e-7", "1e-07"},
        {"1e22", "1e+22"},
        {"-0.0", "-0.0"},
        {"-0", "0"},
        {"12345678901234567890", "12345678901234567890"},
        {"\"\\b\\f\\n\\r\\t\\u001F\\/\\u007f\\u2028\"",
         "\"\\b\\f\\n\\r\\t\\u001f/\x7f\xE2\x80\xA8\""},
        {"{\"b\":1,\"a\":2,\"b\":3}", "{\"b\": 3, \"a\": 2}"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        json_t *want = json_string(pairs[i][1]);
        check_spelling(pairs[i][0], strlen(pairs[i][0]), 0, want);
        json_decref(want);
    }
    json_t *want = json_string("{\"B\":0,\"maxLength\":1,\"maximum\":2,\"\xEF\xBD\x9E\":3,"
                               "\"\xF0\x9F\x98\x80\":4}");
    const char *t = "{\"\\ud83d\\ude00\":4,\"\\uff5e\":3,\"maximum\":2,\"maxLength\":1,\"B\":0}";
    check_spelling(t, strlen(t), PYJSON_COMPACT | PYJSON_SORTED, want);
    json_decref(want);
}

static void without_python_additions(void **s)
{
    struct pyjson_doc *d;
    assert_int_equal(pyjson_parse("NaN", 3, false, &d, NULL), ERR_FORMAT);
    assert_int_equal(pyjson_parse("[-Infinity]", 11, false, &d, NULL), ERR_FORMAT);
    assert_int_equal(pyjson_parse("[1e999]", 7, false, &d, NULL), 0);
    assert_string_equal(pyjson_root(d)->items[0]->s, "1e999"); /* still JSON when written */
    pyjson_free(d);
}

static void limits_hold(void **s)
{
    struct pyjson_doc *d;
    struct err e = {0};
    char deep[2 * PYJSON_MAX_DEPTH + 2];
    memset(deep, '[', PYJSON_MAX_DEPTH);
    memset(deep + PYJSON_MAX_DEPTH, ']', PYJSON_MAX_DEPTH);
    assert_int_equal(pyjson_parse(deep, 2 * PYJSON_MAX_DEPTH, true, &d, &e), 0);
    pyjson_free(d);
    memset(deep, '[', PYJSON_MAX_DEPTH + 1);
    memset(deep + PYJSON_MAX_DEPTH + 1, ']', PYJSON_MAX_DEPTH + 1);
    assert_int_equal(pyjson_parse(deep, 2 * PYJSON_MAX_DEPTH + 2, true, &d, &e), ERR_LIMIT);
    assert_null(d);
    assert_int_equal(pyjson_parse("", PYJSON_MAX_TEXT + 1, true, &d, &e), ERR_LIMIT);

    size_t n = 2 * (size_t)PYJSON_MAX_VALUES + 2; /* [0,0,...]: one value too many with the array */
    char *many = malloc(n);
    for (size_t i = 0; i < n; i++) {
        many[i] = i % 2 ? '0' : ',';
    }
    many[0] = '[';
    many[n - 2] = ' ';
    many[n - 1] = ']';
    assert_int_equal(pyjson_parse(many, n, true, &d, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "more than"));
    many[n - 4] = ' '; /* without the last element it fits */
    many[n - 3] = ' ';
    assert_int_equal(pyjson_parse(many, n, true, &d, &e), 0);
    assert_int_equal(pyjson_root(d)->count, PYJSON_MAX_VALUES - 1);
    pyjson_free(d);
    free(many);
}

static void invalid_utf8_is_refused(void **s)
{
    static const char *const bad[] = {"\x80",
                                      "\xC0\xAF",
                                      "\xE0\x80\xAF",
                                      "\xED\xA0\x80",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\xE2\x82",
                                      "\xC3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char t[16];
        struct pyjson_doc *d;
        struct err e = {0};
        int n = snprintf(t, sizeof t, "\"%s\"", bad[i]);
        assert_int_equal(pyjson_parse(t, (size_t)n, true, &d, &e), ERR_FORMAT);
        assert_string_equal(e.msg, "not JSON: invalid UTF-8 at byte 1");
    }
}

static void many_keys_are_quick(void **s)
{
    struct buf b;
    struct pyjson_doc *d;
    buf_init(&b, 1 << 24);
    buf_adds(&b, "{");
    for (int i = 0; i < 200000; i++) { /* each key twice, last value wins */
        buf_addf(&b, "%s\"k%d\":%d", i ? "," : "", i % 100000, i);
    }
    buf_adds(&b, "}");
    assert_int_equal(pyjson_parse(b.p, b.n, true, &d, NULL), 0);
    const struct pyjson *v = pyjson_root(d);
    assert_int_equal(v->count, 100000);
    assert_string_equal(v->items[7]->key, "k7");
    assert_string_equal(v->items[7]->s, "100007");
    assert_string_equal(pyjson_get(v, "k99999")->s, "199999");
    assert_null(pyjson_get(v, "k100000"));
    pyjson_free(d);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spelled_as_python_does),   cmocka_unit_test(architecture_spellings),
        cmocka_unit_test(without_python_additions), cmocka_unit_test(limits_hold),
        cmocka_unit_test(invalid_utf8_is_refused),  cmocka_unit_test(many_keys_are_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
