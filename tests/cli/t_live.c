/* SPDX-License-Identifier: MIT
 * t_live.c: what of a model's text reaches a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/cli/live.h"

#include <string.h>

static void shows(const char *text, const char *want)
{
    char out[200];
    size_t n = live_plain(text, strlen(text), out);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(out, want, n);
}

static void t_plain(void **state)
{
    char out[2];
    (void)state;
    shows("", "");
    shows("a line\n\ttwo, 30 \xc2\xb0"
          "C, \xe9\xb2\xb8",
          "a line\n\ttwo, 30 \xc2\xb0"
          "C, \xe9\xb2\xb8");
    shows("\033[2J\033]0;title\007x", "[2J]0;titlex"); /* nothing is cleared or renamed */
    shows("back\b\b\rover", "backover");
    shows("\177del\v\f", "del");
    shows("csi \xc2\x9b"
          "31m",
          "csi 31m");              /* the 8-bit form */
    shows("\xc2\xa0", "\xc2\xa0"); /* the first that is a character */
    assert_int_equal(live_plain("\0a", 2, out), 1);
    assert_int_equal(live_plain("\xc2", 1, out), 1); /* reads nothing behind the end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(t_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
