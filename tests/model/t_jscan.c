/* SPDX-License-Identifier: MIT
 * t_jscan.c: the pull scanner: values handed out, and every kind of malformed text refused. */
#include "node/model/jscan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Scan the text as one value, from a heap copy without a NUL so that an over-read is seen. */
static int skip_text(const char *text, size_t n, struct err *e)
{
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    struct jscan s;
    jscan_init(&s, copy, n);
    int r = jscan_skip(&s);
    r = r ? r : jscan_end(&s);
    if (e) {
        *e = s.e;
    }
    assert_int_equal(r, s.e.code);
    free(copy);
    return r;
}

static void t_values(void **state)
{
    static const char text[] =
        " {\"a\\u0041\\n\\ud83d\\ude00\" : \"x\\/y\" , \"n\":[0, 18446744073709551615],"
        "\"skip\":{\"a\":[{},[],null,-1.5e+3]},\"e\":[]} ";
    struct jscan s;
    struct jstr k, v;
    bool more;
    uint64_t u;
    jscan_init(&s, text, sizeof text - 1);
    assert_int_equal(jscan_object(&s), 0);
    assert_int_equal(jscan_key(&s, &k, &more), 0);
    assert_true(more);
    assert_int_equal(jscan_string(&s, &v), 0);
    assert_true(jstr_eq(k, "aA\n\xf0\x9f\x98\x80")); /* still valid behind the value */
    assert_true(jstr_eq(v, "x/y"));
    assert_int_equal(jscan_key(&s, &k, &more), 0);
    assert_true(jstr_eq(k, "n"));
    assert_int_equal(jscan_array(&s), 0);
    assert_int_equal(jscan_item(&s, &more), 0);
    assert_int_equal(jscan_u64(&s, &u), 0);
    assert_int_equal(u, 0);
    assert_int_equal(jscan_item(&s, &more), 0);
    assert_int_equal(jscan_u64(&s, &u), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(jscan_item(&s, &more), 0);
    assert_false(more);
    assert_int_equal(jscan_key(&s, &k, &more), 0);
    assert_int_equal(jscan_skip(&s), 0);
    assert_int_equal(jscan_key(&s, &k, &more), 0);
    assert_true(jstr_eq(k, "e"));
    assert_int_equal(jscan_array(&s), 0);
    assert_int_equal(jscan_item(&s, &more), 0);
    assert_false(more);
    assert_int_equal(jscan_key(&s, &k, &more), 0);
    assert_false(more);
    assert_int_equal(jscan_end(&s), 0);
}

static void t_malformed(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[",
        "}",
        "]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "[1,]",
        "[,1]",
        "{,}",
        "[1 2]",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud800\\n\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\u0000\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "01",
        "-",
        "-01",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        ".5",
        "+1",
        "NaN",
        "Infinity",
        "-Infinity",
        "nul",
        "tru",
        "True",
        "1 1",
        "{} {}",
        "[1}",
        "{\"a\":1]",
        "/* */1",
        "[1]x",
        "\xef\xbb\xbf{}",
        "[\"a\":1]",
        "{1:2}",
        "{\"a\":1 \"b\":2}",
        "{null:1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e;
        if (skip_text(bad[i], strlen(bad[i]), &e) == 0) {
            fail_msg("accepted: %s", bad[i]);
        }
        assert_non_null(strstr(e.msg, "byte "));
    }
    static const char *const good[] = {"0",
                                       "-0",
                                       "1.5E-7",
                                       "[]",
                                       "{}",
                                       "[[],{}]",
                                       "\"\\u00e9\"",
                                       "true",
                                       " null ",
                                       "{\"\":\"\"}",
                                       "\"\\ud800\\udc00\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(skip_text(good[i], strlen(good[i]), NULL), 0);
    }
}

static void t_limits(void **state)
{
    char text[2 * JSCAN_MAX_DEPTH + 4];
    memset(text, '[', JSCAN_MAX_DEPTH);
    memset(text + JSCAN_MAX_DEPTH, ']', JSCAN_MAX_DEPTH);
    assert_int_equal(skip_text(text, 2 * JSCAN_MAX_DEPTH, NULL), 0);
    memset(text, '[', JSCAN_MAX_DEPTH + 1);
    memset(text + JSCAN_MAX_DEPTH + 1, ']', JSCAN_MAX_DEPTH + 1);
    assert_int_equal(skip_text(text, 2 * JSCAN_MAX_DEPTH + 2, NULL), ERR_LIMIT);

    static const char *const ints[] = {"18446744073709551616",
                                       "99999999999999999999",
                                       "-1",
                                       "1.0",
                                       "1e3",
                                       "007",
                                       "\"1\"",
                                       "true",
                                       ""};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        struct jscan s;
        uint64_t v;
        jscan_init(&s, ints[i], strlen(ints[i]));
        assert_int_not_equal(jscan_u64(&s, &v), 0);
        assert_int_not_equal(jscan_skip(&s), 0); /* the failure sticks */
    }

    char str[2 * JSCAN_MAX_STRING];
    for (int esc = 0; esc < 2; esc++) {
        for (size_t n = JSCAN_MAX_STRING; n <= JSCAN_MAX_STRING + 1; n++) {
            size_t at = 0;
            str[at++] = '"';
            for (size_t i = 0; i < n; i++) {
                if (esc && i == n / 2) {
                    str[at++] = '\\';
                    str[at++] = 'n';
                } else {
                    str[at++] = 'a';
                }
            }
            str[at++] = '"';
            struct jscan s;
            struct jstr v;
            jscan_init(&s, str, at);
            int r = jscan_string(&s, &v);
            assert_int_equal(r, n > JSCAN_MAX_STRING ? ERR_LIMIT : 0);
            assert_int_equal(skip_text(str, at, NULL),
                             0); /* dropped strings may be of any length */
            if (!r) {
                assert_int_equal(v.n, n);
            }
        }
    }
}

/* Every text that is cut or changed in one byte is judged as jansson judges it (ASCII, no
 * duplicates asked for, no huge numbers). */
static void t_against_jansson(void **state)
{
    static const char text[] =
        "{\"w\":{\"a\\u0041b\":\"m\\\"x\",\"c\":[1,-2.5e3,true,null,{}]},\"z\":\"\"}";
    static const char subst[] = "{}[]\":,\\0-e. tx\n1";
    char t[sizeof text];
    size_t n = sizeof text - 1;
    unsigned good = 0, bad = 0;
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = 0; k < sizeof subst; k++) { /* the NUL at the end: cut there */
            memcpy(t, text, n);
            size_t len = n;
            if (k == sizeof subst - 1) {
                len = i;
            } else if (i < n) {
                t[i] = subst[k];
            }
            json_t *j = json_loadb(t, len, JSON_DECODE_ANY, NULL);
            int r = skip_text(t, len, NULL);
            if ((j == NULL) != (r != 0)) {
                fail_msg("jansson says %s of %.*s", j ? "good" : "bad", (int)len, t);
            }
            *(j ? &good : &bad) += 1;
            json_decref(j);
        }
    }
    assert_true(good > 50 && bad > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_values),
        cmocka_unit_test(t_malformed),
        cmocka_unit_test(t_limits),
        cmocka_unit_test(t_against_jansson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
