/* SPDX-License-Identifier: MIT
 * t_privacy.c: macOS's Local Network setting: when it is the reason, and whom it is about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "discovery/privacy.h"

#include <errno.h>
#include <string.h>

static void privacy_only_when(void **state)
{
    struct privacy p = {0};
    for (int i = 0; i < PRIVACY_TRIES; i++) {
        privacy_lan(&p, false, EHOSTUNREACH, 2);
    }
    assert_false(
        privacy_report(&p)); /* nothing beyond the LAN answers either: the network is down */
    privacy_outside(&p, true);
    assert_true(privacy_report(&p));
    assert_false(privacy_report(&p)); /* once */
    privacy_lan(&p, true, 0, 1);
    assert_false(privacy_report(&p));
    for (int i = 0; i < PRIVACY_TRIES; i++) {
        privacy_lan(&p, false, EHOSTUNREACH, PRIVACY_FAST_MS + 1); /* hosts that are off */
        privacy_outside(&p, true);
    }
    assert_false(privacy_report(&p));
    privacy_lan(&p, false, EHOSTUNREACH, 2);
    privacy_lan(&p, false, EHOSTUNREACH, 2);
    privacy_lan(&p, false, ETIMEDOUT, 2); /* packets leave */
    privacy_lan(&p, false, EHOSTUNREACH, 2);
    privacy_lan(&p, false, EHOSTUNREACH, 2);
    privacy_outside(&p, true);
    assert_false(privacy_report(&p));
    struct privacy q = {.outside = true}; /* an answer of before proves nothing */
    for (int i = 0; i < PRIVACY_TRIES; i++) {
        privacy_lan(&q, false, EHOSTUNREACH, 2);
    }
    assert_false(privacy_report(&q));
    struct privacy r = {0};
    privacy_bonjour(&r, PRIVACY_POLICY_DENIED);
    assert_true(privacy_report(&r));
    privacy_bonjour(&r, 0);
    privacy_bonjour(&r, PRIVACY_POLICY_DENIED);
    assert_true(privacy_report(&r)); /* a new spell */
}

/* Who is to be allowed, by how the program was started: what the sentence must and must not say. */
static void privacy_by_start(void **state)
{
    static const struct {
        struct privacy_start s;
        enum privacy_how how;
        const char *says, *not ;
    } cases[] = {
        {{0}, PRIVACY_NO_SETTING, "", "macOS"},
        {{.macos = 14, .by_launchd = true, .graphic = true}, PRIVACY_NO_SETTING, "", "macOS"},
        {{.macos = 15, .by_launchd = true, .graphic = true},
         PRIVACY_AGENT,
         "allow shoal in System Settings, Privacy & Security, Local Network",
         "daemons"},
        {{.macos = 15, .by_launchd = true}, PRIVACY_DAEMON, "does not hold for daemons", "allow"},
        {{.macos = 26, .root = true, .terminal = "iTerm.app"},
         PRIVACY_DAEMON,
         "does not hold for daemons and root",
         "allow"},
        {{.macos = 15, .graphic = true, .terminal = "Apple_Terminal"},
         PRIVACY_TERMINAL,
         "as long as Terminal is open",
         "allow"},
        {{.macos = 15, .by_launchd = true, .graphic = true, .terminal = "Apple_Terminal"},
         PRIVACY_TERMINAL, /* its window was closed: who is left is launchd's child */
         "start shoal anew",
         "allow"},
        {{.macos = 15, .ssh = true}, PRIVACY_SSH, "as long as the session is open", "allow"},
        {{.macos = 15, .graphic = true, .terminal = "iTerm.app"},
         PRIVACY_OTHER_TERMINAL,
         "programs that iTerm starts",
         "iTerm.app"},
        {{.macos = 15, .graphic = true, .terminal = "vscode"},
         PRIVACY_OTHER_TERMINAL,
         "programs that Visual Studio Code starts",
         "daemons"},
        {{.macos = 15, .graphic = true, .terminal = "SomethingNew"},
         PRIVACY_OTHER_TERMINAL,
         "programs that SomethingNew starts",
         "daemons"},
        {{.macos = 15, .graphic = true},
         PRIVACY_OTHER_TERMINAL,
         "the app in which it was started",
         "daemons"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[PRIVACY_TEXT];
        assert_int_equal(privacy_how(&cases[i].s), cases[i].how);
        privacy_text(cases[i].how, cases[i].s.terminal, text);
        assert_non_null(strstr(text, cases[i].says));
        assert_null(strstr(text, cases[i].not ));
        assert_true(strlen(text) < PRIVACY_TEXT - 1); /* nothing is cut */
        assert_int_equal(strlen(text) > 0, cases[i].how != PRIVACY_NO_SETTING);
        assert_int_equal(privacy_free(cases[i].how),
                         cases[i].how != PRIVACY_AGENT && cases[i].how != PRIVACY_OTHER_TERMINAL);
    }
    char longest[64], text[PRIVACY_TEXT];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    privacy_text(PRIVACY_OTHER_TERMINAL, longest, text);
    assert_non_null(strstr(text, "by shoal service install"));
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(privacy_only_when),
                                   cmocka_unit_test(privacy_by_start)};
    return cmocka_run_group_tests_name("privacy", t, NULL, NULL);
}
