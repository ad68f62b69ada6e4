/* SPDX-License-Identifier: MIT
 * t_opt.c: the option parser alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/cli/opt.h"

#include <string.h>

struct vals {
    bool flag;
    const char *text;
    struct opt_count n, size;
    struct opt_real x;
    struct opt_choice pick;
    struct opt_texts list;
    struct opt_count time;
};

static const char *const picks[] = {"red", "green", NULL};
#define AT(f) offsetof(struct vals, f)
static const struct opt table[] = {
    {"flag", NULL, "a flag", OPT_FLAG, AT(flag), 0, 0, NULL},
    {"text", "T", "a text that needs more words than one line of a help text can hold, so it wraps",
     OPT_TEXT, AT(text), 0, 0, NULL},
    {"count", "N", "a count", OPT_COUNT, AT(n), 1, 100, NULL},
};
static const struct opt more[] = {
    {"size", "SIZE", "a size", OPT_BYTES, AT(size), 0, 1e18, NULL},
    {"real", "X", "a number", OPT_REAL, AT(x), 0, 1, NULL},
    {"pick-one", "P", "a choice", OPT_CHOICE, AT(pick), 0, 0, picks},
    {"list", "X", "texts", OPT_TEXTS, AT(list), 0, 0, NULL},
    {"time", "TIME", "a time", OPT_TIME, AT(time), 1, 86400, NULL},
};
static const struct opt_group groups[] = {{"First", table, 3, 0}, {"Second", more, 5, 0}};

static int parse(struct vals *v, int *n, struct err *e, int argc, const char **argv)
{
    memset(v, 0, sizeof *v);
    memset(e, 0, sizeof *e);
    return opt_parse(groups, 2, v, argc, (char **)argv, n, e);
}
#define PARSE(...)                                                            \
    parse(&v, &n, &e, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), \
          (const char *[]){__VA_ARGS__})

static void t_values(void **state)
{
    struct vals v;
    struct err e;
    int n;
    assert_int_equal(PARSE("--flag", "--text", "--flag", "--count=100", "--size", "1.5G", "--real",
                           "0.25", "--pick-one", "green"),
                     0);
    assert_int_equal(n, 0);
    assert_true(v.flag);
    assert_string_equal(v.text, "--flag");
    assert_true(v.n.set && v.n.v == 100);
    assert_true(v.size.set && v.size.v == 1500000000);
    assert_true(v.x.set && v.x.v == 0.25);
    assert_true(v.pick.set && v.pick.v == 1);
    assert_int_equal(PARSE("--text="), 0);
    assert_string_equal(v.text, "");
    assert_false(v.n.set || v.size.set || v.x.set || v.pick.set || v.flag);
    assert_int_equal(PARSE("--count", "1", "--count", "2"), 0); /* the last one counts */
    assert_int_equal(v.n.v, 2);
}

static void t_lists_and_times(void **state)
{
    struct vals v;
    struct err e;
    int n;
    const char *many[2 * (OPT_TEXTS_MAX + 1)];
    assert_int_equal(PARSE("--list", "a", "x", "--list=", "--list", "b"), 0);
    assert_int_equal(n, 1);
    assert_int_equal(v.list.n, 3);
    assert_string_equal(v.list.v[0], "a");
    assert_string_equal(v.list.v[1], "");
    assert_string_equal(v.list.v[2], "b");
    for (size_t i = 0; i < sizeof many / sizeof *many; i += 2) {
        many[i] = "--list";
        many[i + 1] = "y";
    }
    assert_int_equal(parse(&v, &n, &e, 2 * OPT_TEXTS_MAX, many), 0);
    assert_int_equal(v.list.n, OPT_TEXTS_MAX);
    assert_int_equal(parse(&v, &n, &e, 2 * OPT_TEXTS_MAX + 2, many), ERR_ARG);
    static const struct {
        const char *text;
        uint64_t seconds;
    } good[] = {{"1s", 1}, {"90s", 90}, {"30m", 1800}, {"24h", 86400}, {"1d", 86400}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(PARSE("--time", good[i].text), 0);
        assert_true(v.time.set);
        assert_int_equal(v.time.v, good[i].seconds);
    }
    static const char *const bad[] = {"",
                                      "s",
                                      "5",
                                      "1.5h",
                                      "-1s",
                                      "1w",
                                      "1h ",
                                      "0s",
                                      "25h",
                                      "2d",
                                      "1hs",
                                      "0x1s",
                                      "99999999999999999999d"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(PARSE("--time", bad[i]), ERR_ARG);
    }
}

static void t_host_port(void **state)
{
    static const struct {
        const char *text, *host;
        int port; /* -1: none; with port 0 only where any is allowed */
    } v[] = {{"1.2.3.4:80", "1.2.3.4", 80},
             {"[::1]:65535", "::1", 65535},
             {"[fe80::1%en0]:1", "fe80::1%en0", 1},
             {"mac.local:4433", "mac.local", 4433},
             {"a:0", "a", 0},
             {"::1:80", NULL, -1},
             {"[::1]", NULL, -1},
             {"[::1]80", NULL, -1},
             {"[]:80", NULL, -1},
             {":80", NULL, -1},
             {"host", NULL, -1},
             {"host:", NULL, -1},
             {"host:65536", NULL, -1},
             {"host:8x", NULL, -1},
             {"host:-1", NULL, -1},
             {"", NULL, -1},
             {"0123456789abcdef:1", NULL, -1}}; /* longer than its place */
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char host[16];
        uint16_t port = 0;
        bool ok = opt_host_port(v[i].text, host, sizeof host, &port, true);
        assert_int_equal(ok, v[i].port >= 0);
        if (ok) {
            assert_string_equal(host, v[i].host);
            assert_int_equal(port, v[i].port);
        }
        assert_int_equal(opt_host_port(v[i].text, host, sizeof host, &port, false), v[i].port > 0);
    }
}

static void t_arguments(void **state)
{
    struct vals v;
    struct err e;
    int n;
    const char *argv[] = {"one", "--flag", "-", "--", "--text", "-x"};
    assert_int_equal(parse(&v, &n, &e, 6, argv), 0);
    assert_int_equal(n, 4);
    assert_string_equal(argv[0], "one");
    assert_string_equal(argv[1], "-");
    assert_string_equal(argv[2], "--text");
    assert_string_equal(argv[3], "-x");
    assert_true(v.flag);
    assert_null(v.text);
}

static void t_sizes(void **state)
{
    static const struct {
        const char *s;
        uint64_t v;
        bool ok;
    } cases[] = {
        {"0", 0, true},           {"17", 17, true},
        {"1k", 1000, true},       {"2K", 2000, true},
        {"1Ki", 1024, true},      {"1KiB", 1024, true},
        {"3MB", 3000000, true},   {"1.5Mi", 1572864, true},
        {"8G", 8000000000, true}, {"1T", 1000000000000, true},
        {"12B", 12, true},        {"", 0, false},
        {"-1", 0, false},         {"G", 0, false},
        {"1GG", 0, false},        {"1 G", 0, false},
        {"0x10", 0, false},       {"inf", 0, false},
        {"nan", 0, false},        {"1e30", 0, false},
        {"99999999T", 0, false},  {"1i", 0, false},
        {"1P", 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t v = 7;
        assert_int_equal(opt_bytes(cases[i].s, &v), cases[i].ok);
        assert_true(v == (cases[i].ok ? cases[i].v : 7));
    }
}

static void expect(int r, const struct err *e, const char *part)
{
    assert_int_equal(r, ERR_ARG);
    if (!strstr(e->msg, part)) {
        fail_msg("\"%s\" lacks \"%s\"", e->msg, part);
    }
}

static void t_errors(void **state)
{
    struct vals v;
    struct err e;
    int n;
    expect(PARSE("--flga"), &e, "unknown option --flga; did you mean --flag?");
    expect(PARSE("--pick-on=red"), &e, "unknown option --pick-on; did you mean --pick-one?");
    expect(PARSE("--zzzzzzzz"), &e, "unknown option --zzzzzzzz");
    assert_null(strstr(e.msg, "did you mean"));
    expect(PARSE("-x"), &e, "unknown option -x");
    expect(PARSE("--tex"), &e, "did you mean --text?"); /* no silent abbreviations */
    expect(PARSE("--flag=1"), &e, "--flag takes no value");
    expect(PARSE("--text"), &e, "--text needs a value: --text T");
    expect(PARSE("--count", "0"), &e, "--count 0: it must be from 1 to 100");
    expect(PARSE("--count", "101"), &e, "from 1 to 100");
    expect(PARSE("--count", "-1"), &e, "whole number");
    expect(PARSE("--count", "1.0"), &e, "whole number");
    expect(PARSE("--count", "99999999999999999999999"), &e, "whole number");
    expect(PARSE("--size", "lots"), &e, "--size lots: it must be a size such as 512M");
    expect(PARSE("--real", "1.5"), &e, "--real 1.5: it must be from 0 to 1");
    expect(PARSE("--real", "nan"), &e, "must be a number");
    expect(PARSE("--real", "0.5x"), &e, "must be a number");
    expect(PARSE("--pick-one", "blue"), &e, "--pick-one blue: it must be one of red, green");
}

static void t_help(void **state)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    assert_int_equal(opt_help(groups, 2, &b), 0);
    static const char *const parts[] = {"\nFirst:\n", "  --flag  ", "  --text T  ", "\nSecond:\n",
                                        "--pick-one P"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_non_null(strstr(b.p, parts[i]));
    }
    for (const char *p = b.p; *p;) {
        size_t k = strcspn(p, "\n");
        assert_true(k <= 80);
        p += k + (p[k] == '\n');
    }
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_values),    cmocka_unit_test(t_lists_and_times),
        cmocka_unit_test(t_host_port), cmocka_unit_test(t_arguments),
        cmocka_unit_test(t_sizes),     cmocka_unit_test(t_errors),
        cmocka_unit_test(t_help),
    };
    return cmocka_run_group_tests_name("opt", tests, NULL, NULL);
}
