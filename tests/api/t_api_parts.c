/* SPDX-License-Identifier: MIT
 * t_api_parts.c: stop strings at every split; who may come in; requests of other forms told again
 * as chat completions; what /health and /metrics say of a GPU. */
#include "node/api/api.h"
#include "node/api/ids.h"
#include "node/api/messages.h"
#include "node/api/responses.h"
#include "node/api/stops.h"
#include "node/api/web_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- stop strings ---- */

static void run_stops(const char *const *stops, const char *text, size_t a, size_t b,
                      const char *want, int hit)
{
    struct stops f;
    struct buf out;
    size_t n = strlen(text);
    stops_init(&f);
    buf_init(&out, 10000);
    for (; *stops; stops++) {
        assert_int_equal(stops_add(&f, *stops, strlen(*stops)), 0);
    }
    const size_t cut[] = {0, a, b, n};
    bool over = false;
    for (int i = 0; i < 3 && !over; i++) {
        over = stops_feed(&f, text + cut[i], cut[i + 1] - cut[i], &out);
        /* what is out is always a beginning of what will be out in the end */
        assert_true(out.n <= strlen(want) && !memcmp(out.p ? out.p : "", want, out.n));
    }
    if (!over) {
        assert_true(stops_flush(&f, &out) == (f.hit != 0));
    }
    assert_int_equal(f.hit, hit);
    assert_int_equal(out.n, strlen(want));
    assert_memory_equal(out.p ? out.p : "", want, out.n);
    buf_free(&out);
    stops_free(&f);
}

static void test_stops(void **state)
{
    (void)state;
    static const struct {
        const char *stops[4], *text, *want;
        int hit;
    } list[] = {
        {{"END"}, "abcENDdef", "abc", 1},
        {{"END"}, "abcEN", "abcEN", 0},
        {{"END"}, "ENEND", "EN", 1},
        {{"aab"}, "aaaab", "aa", 1},
        {{"abab", "bab"}, "xababy", "x", 1},
        {{"bab", "abab"}, "xababy", "x", 2},
        {{"b", "bcd"}, "abcde", "a", 2},
        {{"\n\n", "###"}, "a\n##\n\nb", "a\n##", 1},
        {{"\xe2\x82\xac"}, "5 \xe2\x82\xac 6", "5 ", 1},
        {{"x"}, "", "", 0},
        {{"x"}, "x", "", 1},
        {{"abcd", "bc"}, "abc", "a", 2}, /* hidden behind the begin of another until the end */
        {{"abcdef", "cd"}, "xabcdey", "xab", 2},
        {{"abcd", "bcx"}, "abc", "abc", 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        size_t n = strlen(list[i].text);
        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                /* the longest of two that begin alike can only be chosen when both are in sight */
                if (list[i].stops[1] && !strcmp(list[i].stops[0], "b") &&
                    ((a && a < 4) || (b && b < 4))) {
                    continue;
                }
                run_stops(list[i].stops, list[i].text, a, b, list[i].want, list[i].hit);
            }
        }
    }
    struct stops f;
    stops_init(&f);
    assert_int_equal(stops_add(&f, "", 0), ERR_LIMIT);
    for (int i = 0; i < STOPS_MAX; i++) {
        assert_int_equal(stops_add(&f, "x", 1), 0);
    }
    assert_int_equal(stops_add(&f, "x", 1), ERR_LIMIT);
    stops_free(&f);
}

/* ---- who may come in ---- */

static void test_rules(void **state)
{
    (void)state;
    static const char *const good[] = {"localhost",    "localhost:8080", "LocalHost:1", "127.0.0.1",
                                       "127.1.2.3:99", "[::1]",          "[::1]:80"};
    static const char *const bad[] = {"example.com",
                                      "localhost.example.com",
                                      "127.0.0.1.example.com",
                                      "10.0.0.1",
                                      "[::2]",
                                      "[::1]x",
                                      "localhost:80x",
                                      "",
                                      "::1:80",
                                      "127.0.0.1:80:90",
                                      "localhost@evil",
                                      "0x7f.1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char o[100];
        assert_true(web_host_fine(good[i], false));
        snprintf(o, sizeof o, "http://%s", good[i]);
        assert_true(web_origin_fine(o, NULL));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char o[100];
        assert_false(web_host_fine(bad[i], false));
        assert_true(web_host_fine(bad[i], true));
        snprintf(o, sizeof o, "https://%s", bad[i]);
        assert_false(web_origin_fine(o, NULL));
        assert_true(web_origin_fine(o, "*"));
        assert_true(web_origin_fine(o, o));
    }
    assert_true(web_host_fine(NULL, false));
    assert_false(web_origin_fine("null", NULL));
    assert_false(web_origin_fine("http://localhost/x", NULL));
    const char *why = NULL;
    assert_true(web_key_fine(NULL, NULL, NULL, &why));
    assert_false(web_key_fine("k", NULL, NULL, &why));
    assert_non_null(strstr(why, "Bearer"));
    assert_true(web_key_fine("k", "Bearer k", NULL, &why));
    assert_true(web_key_fine("k", "bearer  k", NULL, &why));
    assert_true(web_key_fine("k", NULL, "k", &why));
    assert_false(web_key_fine("k", "Bearer kk", NULL, &why));
    assert_false(web_key_fine("kk", "Bearer k", NULL, &why));
    assert_false(web_key_fine("k", "Bearer ", NULL, &why));
    assert_false(web_key_fine("k", "Basic k", NULL, &why));
    assert_true(web_length_fine(NULL, 10) && web_length_fine("10", 10));
    assert_false(web_length_fine("11", 10) || web_length_fine("-1", 10) ||
                 web_length_fine("99999999999999999999", 10) || web_length_fine("1 1", 10));
    struct sockaddr_storage sa = {.ss_family = AF_INET};
    struct sockaddr_in in = {.sin_family = AF_INET};
    in.sin_addr.s_addr = htonl(0x7f000001);
    memcpy(&sa, &in, sizeof in);
    assert_true(web_loopback(&sa));
    in.sin_addr.s_addr = 0;
    memcpy(&sa, &in, sizeof in);
    assert_false(web_loopback(&sa));
}

static void test_ids(void **state)
{
    (void)state;
    char a[40], b[40], small[6];
    ids_make("call_", 24, a, sizeof a);
    ids_make("call_", 24, b, sizeof b);
    assert_int_equal(strlen(a), 29);
    assert_string_not_equal(a, b);
    ids_make("call_", 24, small, sizeof small);
    assert_string_equal(small, "call_");
}

/* ---- other forms ---- */

typedef int (*translate)(const struct pyjson *root, struct buf *b, struct err *e);

static void told(translate f, const char *request, const char *want)
{
    struct pyjson_doc *d;
    struct err e = {0};
    struct buf b;
    buf_init(&b, 100000);
    assert_int_equal(pyjson_parse(request, strlen(request), false, &d, &e), 0);
    int r = f(pyjson_root(d), &b, &e);
    if (want[0] == '{') {
        if (r) {
            fail_msg("%s: %s", request, e.msg);
        }
        assert_string_equal(b.p, want);
    } else {
        assert_int_not_equal(r, 0);
        if (strncmp(e.msg, want, strlen(want)) != 0) {
            fail_msg("%s: \"%s\" should begin \"%s\"", request, e.msg, want);
        }
    }
    pyjson_free(d);
    buf_free(&b);
}

static void test_messages(void **state)
{
    (void)state;
#define OFF ",\"reasoning_effort\":\"none\"}"
    static const char *const list[][2] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u00e9\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\xc3\xa9\"}]" OFF},
        {"{\"system\":[{\"type\":\"text\",\"text\":\"s\"},{\"type\":\"text\",\"text\":\"t\"}],"
         "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\","
         "\"cache_control\":{}}]}]}",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"s\\nt\"},{\"role\":\"user\","
         "\"content\":"
         "[{\"type\":\"text\",\"text\":\"a\"}]}]" OFF},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
         "[{"
         "\"type\":\"thinking\",\"thinking\":\"h\",\"signature\":\"\"},{\"type\":\"text\",\"text\":"
         "\"b\"},{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"x\":1.0}}]},{"
         "\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"},{\"type\":"
         "\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}]}]"
         "}]"
         ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
         "\"b\",\"reasoning_content\":\"h\",\"tool_calls\":[{\"id\":\"t1\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1.0}\"}}]},{\"role\":\"tool\","
         "\"tool_call_id\":\"t1\",\"content\":\"r\"},{\"role\":\"user\",\"content\":[{\"type\":"
         "\"text\",\"text\":\"c\"}]}],\"reasoning_effort\":\"low\"}"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"name\":\"f\","
         "\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}],\"tool_choice\":{\"type\":"
         "\"tool\",\"name\":\"f\"}}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\": "
         "\"object\"}}}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}"
         "}" OFF},
        /* of tools that are deferred, those that a result refers to */
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
         "\"t\",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"g\"}]}]}],\"tools\":[{"
         "\"name\":\"f\",\"defer_loading\":true},{\"name\":\"g\",\"defer_loading\":true},{\"name\":"
         "\"h\",\"defer_loading\":false}]}",
         "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":\"g\"}],\"tools\":[{"
         "\"type\":\"function\",\"function\":{\"name\":\"g\"}},{\"type\":\"function\",\"function\":"
         "{"
         "\"name\":\"h\"}}]" OFF},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"name\":\"f\","
         "\"defer_loading\":true}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]" OFF},
        {"{\"messages\":[]}", "messages: "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"name\":\"f\","
         "\"cache_control\":{\"type\":\"ephemeral\"}},{\"name\":\"g\",\"colour\":1}]}",
         "tools[1].colour: "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"name\":\"f\","
         "\"allowed_callers\":[\"direct\",\"code_execution_20250825\"]}]}",
         "tools[0].allowed_callers: "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
         "messages[0].content: "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
         "\"b\"}]}",
         "messages[1].role: "},
        {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content: "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":3}]}", "messages[0].content: "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":"
         "\"web_search_20250305\",\"name\":\"w\"}]}",
         "tools[0].type: "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"thinking\":{\"type\":\"x\"}}",
         "thinking: "},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        told(messages_as_chat, list[i][0], list[i][1]);
    }
}

static void test_responses(void **state)
{
    (void)state;
    static const char *const list[][2] = {
        {"{\"input\":\"a\"}", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"},
        {"{\"instructions\":\"s\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
         "\"input_text\",\"text\":\"a\"}]},{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[],"
         "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"h\"}]},{\"type\":\"message\","
         "\"role\":"
         "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\"}]},{\"type\":"
         "\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
         "\"function_call_output\",\"call_id\":\"c1\",\"output\":\"r\"}],\"reasoning\":{\"effort\":"
         "\"low\"}}",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{"
         "\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"assistant\",\"content\":\"b\","
         "\"reasoning_content\":\"h\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_"
         "id\":"
         "\"c1\",\"content\":\"r\"}],\"reasoning_effort\":\"low\"}"},
        {"{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{},"
         "\"strict\":true}],\"tool_choice\":\"required\",\"text\":{\"format\":{\"type\":"
         "\"json_object\"}}}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"parameters\":{},\"strict\":true}}],\"tool_choice\":"
         "\"required\",\"response_format\":{\"type\":\"json_object\"}}"},
        {"{}", "input: "},
        {"{\"input\":[]}", "input: "},
        {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", "input[0].type: "},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
         "input[0].content: "},
        {"{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}]}", "tools[0].type: "},
        {"{\"input\":\"a\",\"instructions\":3}", "instructions: "},
        {"{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"grammar\"}}}", "text.format: "},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        told(responses_as_chat, list[i][0], list[i][1]);
    }
}

/* ---- what computes ---- */

static void says(const struct buf *b, const char *part, bool there)
{
    if ((strstr(b->p, part) != NULL) != there) {
        fail_msg("%s \"%s\" in:\n%s", there ? "no" : "there is", part, b->p);
    }
}

static void test_compute(void **state)
{
    static const char compute[] =
        "{\"backend\":\"metal/Apple M2\",\"cpu\":\"cpu/neon\",\"gpu\":true,\"lost\":false,"
        "\"why_not\":\"\",\"kernels_on_cpu\":\"mix_sum, router\",\"gpu_limit\":1000,"
        "\"gpu_bytes\":700,\"gpu_batches\":12,\"cpu_commands\":5,\"words\":\"all of it\"}";
    json_t *c = json_loads(compute, 0, NULL), *report = json_pack("{s:O}", "compute", c);
    struct buf b;
    (void)state;
    assert_non_null(report);
    buf_init(&b, 1 << 16);
    assert_int_equal(api_health("ok", "k3", NULL, report, &b), 0);
    json_t *v = json_loadb(b.p, b.n, 0, NULL);
    assert_true(json_equal(json_object_get(v, "compute"), c));
    json_decref(v);
    b.n = 0;
    assert_int_equal(api_metrics(report, &b), 0);
    says(&b, "shoal_compute_info{backend=\"metal/Apple M2\"} 1\n", true);
    says(&b, "shoal_kernel_on_cpu{kernel=\"mix_sum\"} 1\n", true);
    says(&b, "shoal_kernel_on_cpu{kernel=\"router\"} 1\n", true);
    says(&b, "shoal_gpu_used 1\n", true);
    says(&b, "shoal_gpu_lost 0\n", true);
    says(&b, "shoal_gpu_bytes{what=\"limit\"} 1000\n", true);
    says(&b, "shoal_gpu_batches_total 12\n", true);
    says(&b, "shoal_gpu_left_total 5\n", true);
    /* the CPU alone */
    json_object_set_new(c, "backend", json_string("cpu/avx2"));
    json_object_set_new(c, "kernels_on_cpu", json_string(""));
    b.n = 0;
    assert_int_equal(api_metrics(report, &b), 0);
    says(&b, "shoal_compute_info{backend=\"cpu/avx2\"} 1\n", true);
    says(&b, "shoal_kernel_on_cpu", false);
    /* a node that computes nothing */
    json_object_set_new(report, "compute", json_null());
    b.n = 0;
    assert_int_equal(api_metrics(report, &b), 0);
    says(&b, "shoal_compute_info", false);
    b.n = 0;
    assert_int_equal(api_health("ok", "k3", NULL, NULL, &b), 0);
    says(&b, "\"compute\":null", true);
    buf_free(&b);
    json_decref(c);
    json_decref(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stops),     cmocka_unit_test(test_rules),
        cmocka_unit_test(test_ids),       cmocka_unit_test(test_messages),
        cmocka_unit_test(test_responses), cmocka_unit_test(test_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
