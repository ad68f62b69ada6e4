/* SPDX-License-Identifier: MIT
 * t_unit.c: the files for launchd and systemd, with words that would break them, and the commands
 * that go with them. What they mean to those programs was looked at by hand (tests/cli/README.md).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/cli/unit.h"

#include <stdio.h>
#include <string.h>

static char *text(enum unit_kind k, const struct unit *u, struct buf *b)
{
    struct err e = {0};
    buf_init(b, UNIT_TEXT);
    assert_int_equal(unit_text(k, u, b, &e), 0);
    return b->p;
}

static void t_launchd(void **s)
{
    const struct unit u = {
        .name = "org.shoal.node",
        .args = {"/opt/bin/shoal", "up", "--home", "/a & <b> \"c\"'", "\xc3\xa9"},
        .n = 5,
        .log = "/a & <b>/service.log"};
    struct buf b;
    const char *t = text(UNIT_LAUNCHD, &u, &b);
    assert_non_null(strstr(t, "<key>Label</key>\n\t<string>org.shoal.node</string>\n"));
    assert_non_null(strstr(t, "<key>ProgramArguments</key>\n\t<array>\n"
                              "\t\t<string>/opt/bin/shoal</string>\n\t\t<string>up</string>\n"
                              "\t\t<string>--home</string>\n"
                              "\t\t<string>/a &amp; &lt;b&gt; \"c\"'</string>\n"
                              "\t\t<string>\xc3\xa9</string>\n\t</array>\n"));
    assert_non_null(
        strstr(t, "<string>/a &amp; &lt;b&gt;/service.log</string>\n</dict>\n</plist>"));
    /* it comes back after a failure, not after it was told to end */
    assert_non_null(strstr(t, "<key>KeepAlive</key>\n\t<dict>\n\t\t<key>SuccessfulExit</key>\n"
                              "\t\t<false/>"));
    buf_free(&b);
}

static void t_systemd(void **s)
{
    const struct unit u = {
        .name = "shoal",
        .args = {"/opt/my bin/shoal", "up", "--model", "a \"b\" \\c %h $HOME", ""},
        .n = 5};
    struct buf b;
    const char *t = text(UNIT_SYSTEMD, &u, &b);
    assert_non_null(strstr(t, "\nExecStart=\"/opt/my bin/shoal\" \"up\" \"--model\" "
                              "\"a \\\"b\\\" \\\\c %%h $$HOME\" \"\"\nRestart=on-failure\n"));
    buf_free(&b);
}

static void t_words(void **s)
{
    static const char *const bad[] = {"a\nb",
                                      "\x7f",
                                      "\xff",
                                      "a\xc3",
                                      "\xc0\xaf",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xe0\x80\xaf",
                                      "\xf0\x80\x80\xaf",
                                      "\x1b[0m"};
    static const char *const good[] = {"\xc2\x80", "\xef\xbf\xbd", "\xf4\x8f\xbf\xbf", "~"};
    for (int k = 0; k < 2; k++) {
        struct unit u = {.name = "n", .args = {"/p", "up", NULL}, .n = 3, .log = "/l"};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct buf b;
            struct err e = {0};
            buf_init(&b, UNIT_TEXT);
            u.args[2] = bad[i];
            assert_int_equal(unit_text((enum unit_kind)k, &u, &b, &e), ERR_ARG);
            buf_free(&b);
        }
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
            struct buf b;
            u.args[2] = good[i];
            assert_non_null(strstr(text((enum unit_kind)k, &u, &b), good[i]));
            buf_free(&b);
        }
    }
    /* what only systemd cannot say */
    const struct unit two[] = {{.args = {"/p", ";"}, .n = 2, .log = "/l", .name = "n"},
                               {.args = {"/$p"}, .n = 1, .log = "/l", .name = "n"}};
    for (int i = 0; i < 2; i++) {
        struct buf b;
        struct err e = {0};
        buf_init(&b, UNIT_TEXT);
        assert_int_equal(unit_text(UNIT_SYSTEMD, &two[i], &b, &e), ERR_ARG);
        assert_int_equal(b.n, 0);
        assert_int_equal(unit_text(UNIT_LAUNCHD, &two[i], &b, &e), 0);
        buf_free(&b);
    }
}

static void t_names(void **s)
{
    struct buf a, b, c;
    buf_init(&a, 4096);
    buf_init(&b, 4096);
    buf_init(&c, 4096);
    assert_int_equal(unit_name(UNIT_LAUNCHD, "/h", true, &a), 0);
    assert_string_equal(a.p, "org.shoal.node");
    assert_int_equal(unit_name(UNIT_LAUNCHD, "/h", false, &b), 0);
    assert_int_equal(unit_name(UNIT_LAUNCHD, "/i", false, &c), 0);
    assert_int_equal(b.n, strlen("org.shoal.node.") + 8);
    assert_string_not_equal(b.p, c.p);
    a.n = b.n = c.n = 0;
    assert_int_equal(unit_path(UNIT_LAUNCHD, "/u/x", NULL, "org.shoal.node", &a), 0);
    assert_string_equal(a.p, "/u/x/Library/LaunchAgents/org.shoal.node.plist");
    assert_int_equal(unit_path(UNIT_SYSTEMD, "/u/x", "rel", "shoal", &b), 0);
    assert_string_equal(b.p, "/u/x/.config/systemd/user/shoal.service");
    assert_int_equal(unit_path(UNIT_SYSTEMD, "/u/x", "/cfg", "shoal", &c), 0);
    assert_string_equal(c.p, "/cfg/systemd/user/shoal.service");
    buf_free(&a);
    buf_free(&b);
    buf_free(&c);
}

/* "word word;word word;": with '?' behind what may fail. */
static const char *said(const struct unit_step *st, size_t n, struct buf *b)
{
    b->n = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < st[i].n; k++) {
            assert_int_equal(buf_addf(b, "%s%s", k ? " " : "", st[i].word[k]), 0);
        }
        assert_int_equal(buf_adds(b, st[i].may_fail ? "?;" : ";"), 0);
    }
    return n ? b->p : "";
}

static void t_steps(void **s)
{
    static struct unit_step st[UNIT_STEPS];
    struct buf b;
    buf_init(&b, 1000);
    size_t n = unit_begin(UNIT_LAUNCHD, "org.shoal.node", "/x/y.plist", 501, st);
    assert_string_equal(said(st, n, &b), "launchctl bootout gui/501/org.shoal.node?;"
                                         "launchctl bootstrap gui/501 /x/y.plist;");
    assert_int_equal(st[0].again, 0);
    assert_int_equal(st[1].again, 10);
    n = unit_end(UNIT_LAUNCHD, "org.shoal.node", 501, st);
    assert_string_equal(said(st, n, &b), "launchctl bootout gui/501/org.shoal.node?;");
    assert_int_equal(unit_forget(UNIT_LAUNCHD, st), 0);
    n = unit_begin(UNIT_SYSTEMD, "shoal", "/x", 501, st);
    assert_string_equal(said(st, n, &b), "systemctl --user daemon-reload;"
                                         "systemctl --user enable shoal.service;"
                                         "systemctl --user restart shoal.service;");
    n = unit_end(UNIT_SYSTEMD, "shoal", 501, st);
    assert_string_equal(said(st, n, &b), "systemctl --user disable --now shoal.service?;");
    n = unit_forget(UNIT_SYSTEMD, st);
    assert_string_equal(said(st, n, &b), "systemctl --user daemon-reload;");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_launchd), cmocka_unit_test(t_systemd),
                                   cmocka_unit_test(t_words), cmocka_unit_test(t_names),
                                   cmocka_unit_test(t_steps)};
    return cmocka_run_group_tests_name("unit", t, NULL, NULL);
}
