/* SPDX-License-Identifier: MIT
 * t_habits.c: what `shoal doctor` makes of readings, a Mac's among them, which are put in here by
 * hand; and the readings of a folder that need no Mac. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "node/cli/habits.h"

struct lines {
    struct {
        enum verdict v;
        char name[20], text[HABITS_TEXT];
    } l[20];
    size_t n;
};

static void take(void *ctx, enum verdict v, const char *name, const char *text)
{
    struct lines *s = ctx;
    assert_true(s->n < 20);
    s->l[s->n].v = v;
    snprintf(s->l[s->n].name, sizeof s->l[s->n].name, "%s", name);
    snprintf(s->l[s->n++].text, HABITS_TEXT, "%s", text);
    assert_true(strlen(name) <= 10); /* doctor's column */
    assert_true(strlen(text) < HABITS_TEXT - 1);
}

/* A Mac as it should be. */
static struct habits good(void)
{
    return (struct habits){
        .mac = true,
        .start = {.macos = 15, .graphic = true, .terminal = "Apple_Terminal"},
        .bonjour_denied = NO,
        .plist = YES,
        .power = {.battery = POWER_YES,
                  .outside = POWER_YES,
                  .expensive = POWER_NO,
                  .constrained = POWER_NO},
        .holds_sleep = YES,
        .tells_sleep = YES,
        .lowered = NO,
        .files = 10240,
        .files_before = 256,
        .cache = "/Volumes/Shoal/cache",
        .cache_there = true,
        .case_told = NO,
        .past_cache = YES,
        .full_sync = YES,
        .local = YES,
        .marks = {true, true, true},
        .service = YES,
        .service_loaded = YES,
    };
}

static const char *text_of(const struct lines *s, const char *name, enum verdict v)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!strcmp(s->l[i].name, name)) {
            assert_int_equal(s->l[i].v, v);
            return s->l[i].text;
        }
    }
    fail_msg("no line %s", name);
    return "";
}

static void t_all_is_well(void **state)
{
    static const char *const names[] = {"files",     "localnet", "plist",    "power",
                                        "network",   "sleep",    "priority", "volume",
                                        "spotlight", "backup",   "service"};
    struct habits h = good();
    struct lines s = {.n = 0};
    (void)state;
    habits_judge(&h, take, &s);
    assert_int_equal(s.n, sizeof names / sizeof *names);
    for (size_t i = 0; i < s.n; i++) {
        assert_string_equal(s.l[i].name, names[i]);
        assert_int_equal(s.l[i].v, GOOD);
    }
    assert_non_null(strstr(text_of(&s, "volume", GOOD), "upper and lower case for the same"));
}

/* Each thing that can be wrong, alone: its line says what to do, and no other line changes. */
static struct habits one_wrong(int i, const char **name, enum verdict *v, const char **says)
{
    struct habits h = good();
    *v = WARN;
    switch (i) {
    case 0:
        h.start = (struct privacy_start){.macos = 15, .by_launchd = true, .graphic = true};
        h.bonjour_denied = YES;
        *name = "localnet";
        *says = "allow shoal in System Settings";
        break;
    case 1:
        h.start = (struct privacy_start){.macos = 15, .graphic = true, .terminal = "iTerm.app"};
        h.bonjour_denied = YES;
        *name = "localnet";
        *says = "programs that iTerm starts";
        break;
    case 2:
        snprintf(h.notice, sizeof h.notice, "no route to host");
        *name = "localnet";
        *says = "the running node says";
        break;
    case 3:
        h.plist = NO;
        *v = BAD;
        *name = "plist";
        *says = "./bootstrap build";
        break;
    case 4:
        h.holds_sleep = NO;
        *name = "sleep";
        *says = "caffeinate";
        break;
    case 5:
        h.tells_sleep = NO;
        *name = "sleep";
        *says = "session of the user";
        break;
    case 6:
        h.lowered = YES;
        *name = "priority";
        *says = "taskpolicy";
        break;
    case 7:
        h.files = 256;
        *name = "files";
        *says = "launchctl limit maxfiles";
        break;
    case 8:
        h.local = NO;
        *name = "volume";
        *says = "shoal cache move";
        break;
    case 9:
        h.full_sync = NO;
        *name = "volume";
        *says = "power cut";
        break;
    case 10:
        h.past_cache = NO;
        *name = "volume";
        *says = "page cache";
        break;
    case 11:
        h.marks.never_index = false;
        *name = "spotlight";
        *says = "sets it again";
        break;
    case 12:
        h.marks.excluded = false;
        *name = "backup";
        *says = "tmutil addexclusion";
        break;
    case 13:
        h.service_loaded = NO;
        *name = "service";
        *says = "shoal service install again";
        break;
    default:
        h.program_moves = true;
        *name = "program";
        *says = "install the service again";
        break;
    }
    return h;
}

static void t_one_wrong(void **state)
{
    (void)state;
    for (int i = 0; i < 15; i++) {
        const char *name = NULL, *says = NULL;
        enum verdict v = GOOD;
        struct habits h = one_wrong(i, &name, &v, &says);
        struct lines s = {.n = 0};
        habits_judge(&h, take, &s);
        assert_non_null(strstr(text_of(&s, name, v), says));
        for (size_t k = 0; k < s.n; k++) {
            assert_true(s.l[k].v == GOOD || !strcmp(s.l[k].name, name));
        }
    }
}

/* What is no fault, but is said: battery, networks that cost, how the program was started. */
static void t_said(void **state)
{
    struct habits h = good();
    struct lines s = {.n = 0};
    (void)state;
    h.power = (struct power_reading){POWER_YES, POWER_NO, POWER_YES, POWER_NO};
    h.start = (struct privacy_start){.macos = 15, .by_launchd = true};
    h.service = NO;
    habits_judge(&h, take, &s);
    assert_non_null(strstr(text_of(&s, "power", GOOD), "on battery"));
    assert_non_null(strstr(text_of(&s, "network", GOOD), "--metered no"));
    assert_non_null(strstr(text_of(&s, "localnet", GOOD), "as a daemon"));
    assert_non_null(strstr(text_of(&s, "service", GOOD), "shoal service install"));
    h.power.constrained = POWER_YES;
    h.start.graphic = true;
    s.n = 0;
    habits_judge(&h, take, &s);
    assert_non_null(strstr(text_of(&s, "network", GOOD), "Low Data Mode"));
    assert_non_null(strstr(text_of(&s, "localnet", GOOD), "macOS asks once whether shoal may"));
    h.start.macos = 14;
    s.n = 0;
    habits_judge(&h, take, &s);
    assert_non_null(strstr(text_of(&s, "localnet", GOOD), "asks nobody"));
    struct habits linux_box = {.lowered = NO, .files = 65536}; /* no cache yet, nothing is said */
    s.n = 0;
    habits_judge(&linux_box, take, &s);
    for (size_t k = 0; k < s.n; k++) {
        assert_int_equal(s.l[k].v, GOOD);
        assert_null(strstr(s.l[k].text, "macOS"));
    }
    assert_non_null(strstr(text_of(&s, "network", GOOD), "--metered yes"));
    assert_non_null(strstr(text_of(&s, "sleep", GOOD), "finds the others again"));
}

/* ---- readings of a real folder ---- */

void habits_system(struct habits *h)
{
    (void)h; /* the system's own part is not of this test */
}

static void t_folder(void **state)
{
    char dir[] = "/tmp/t_habits.XXXXXX", p[80];
    (void)state;
    assert_non_null(mkdtemp(dir));
    struct habits h = {.mac = false};
    habits_read(&h, dir, "/usr/local/bin/shoal");
    assert_true(h.cache_there);
    assert_false(h.marks.tag || h.marks.never_index);
    assert_int_equal(h.case_told, NOT_KNOWN);
    nobackup_mark(dir);
    h = (struct habits){.mac = false};
    habits_read(&h, dir, "/tmp/shoal");
    assert_true(h.program_moves);
    assert_true(h.marks.tag && h.marks.never_index);
    assert_int_not_equal(h.past_cache, NOT_KNOWN);
    /* a volume that takes both for the same shows our mark under the other name, too */
    snprintf(p, sizeof p, "%s/CACHEDIR.TAG", dir);
    char q[80];
    snprintf(q, sizeof q, "%s/cachedir.tag", dir);
    if (h.case_told == YES) {
        assert_int_equal(link(p, q), 0);
        habits_read(&h, dir, "/usr/local/bin/shoal");
        assert_int_equal(h.case_told, NO);
        assert_false(h.program_moves);
        unlink(q);
    }
    unlink(p); /* a mark that somebody took away is set again */
    nobackup_look(dir, &h.marks);
    assert_false(h.marks.tag);
    nobackup_mark(dir);
    nobackup_look(dir, &h.marks);
    assert_true(h.marks.tag);
    unlink(p);
    snprintf(p, sizeof p, "%s/.metadata_never_index", dir);
    unlink(p);
    assert_int_equal(rmdir(dir), 0);
    habits_read(&h, dir, "/usr/local/bin/shoal");
    assert_false(h.cache_there);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_all_is_well), cmocka_unit_test(t_one_wrong),
                                   cmocka_unit_test(t_said), cmocka_unit_test(t_folder)};
    return cmocka_run_group_tests_name("habits", t, NULL, NULL);
}
