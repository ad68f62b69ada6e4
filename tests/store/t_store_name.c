/* SPDX-License-Identifier: MIT
 * t_store_name.c: a hub's names and addresses, and the record of which commit a branch is. */
#include "tests/store/util.h"

#include "node/store/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define C "0123456789abcdef0123456789abcdef01234567"

static void t_parse(void **s)
{
    static const struct {
        const char *model;
        bool short_form;
        const char *address; /* NULL: no hub's */
    } c[] = {
        {"org/name", true, "https://huggingface.co/org/name/resolve/main"},
        {"org/name", false, NULL},
        {"hf://org/name", false, "https://huggingface.co/org/name/resolve/main"},
        {"hf://org/name@v1.0", false, "https://huggingface.co/org/name/resolve/v1.0"},
        {"moonshotai/Kimi-K3@" C, true, "https://huggingface.co/moonshotai/Kimi-K3/resolve/" C},
        {"org/name@refs/pr/3", true, "https://huggingface.co/org/name/resolve/refs%2Fpr%2F3"},
        {"org/name@", true, NULL},
        {"org/name@../x", true, NULL},
        {"org/name@a b", true, NULL},
        {"org/name@/x", true, NULL},
        {"org", true, NULL},
        {"org/", true, NULL},
        {"/name", true, NULL},
        {"./name", true, NULL},
        {"../name", true, NULL},
        {"org/name/more", true, NULL},
        {"org/na me", true, NULL},
        {"org/-name", true, NULL},
        {"https://huggingface.co/org/name", false, "https://huggingface.co/org/name/resolve/main"},
        {"https://huggingface.co/org/name/", false, "https://huggingface.co/org/name/resolve/main"},
        {"https://huggingface.co/org/name/tree/v2", false,
         "https://huggingface.co/org/name/resolve/v2"},
        {"https://huggingface.co/org/name/resolve/main/", false,
         "https://huggingface.co/org/name/resolve/main"},
        {"HTTPS://HuggingFace.co/org/name", false, "https://huggingface.co/org/name/resolve/main"},
        {"https://huggingface.co/org/name/resolve/refs%2Fpr%2F1/sub/dir/", false,
         "https://huggingface.co/org/name/resolve/refs%2Fpr%2F1/sub/dir"},
        {"https://huggingface.co/org/name/resolve/a%20b", false, NULL},
        {"https://huggingface.co/org/name/blob/main/config.json", false, NULL},
        {"https://huggingface.co/org/name?x=1", false, NULL},
        {"https://huggingface.co/datasets/org/name", false, NULL},
        {"https://huggingface.co/org", false, NULL},
        {"https://huggingface.co", false, NULL},
        {"https://huggingface.com/org/name", false, NULL},
        {"https://huggingface.co.evil.example/org/name", false, NULL},
        {"http://huggingface.co/org/name", false, NULL},
        {"https://host/org/name/resolve/main", false, NULL},
        {"", true, NULL},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct hub_name n;
        struct buf b;
        buf_init(&b, 4096);
        bool is = hub_parse(c[i].model, HUB_SITE "/", c[i].short_form, &n);
        if (is) {
            assert_int_equal(hub_address(&n, n.revision, &b), 0);
        }
        if (is != (c[i].address != NULL) || (is && strcmp(b.p, c[i].address) != 0)) {
            fail_msg("%s: %s", c[i].model, is ? b.p : "is no hub's");
        }
        buf_free(&b);
    }
    assert_true(hub_is_commit(C));
    assert_false(hub_is_commit("main"));
    assert_false(hub_is_commit("0123456789abcdef0123456789abcdef0123456"));
    assert_false(hub_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
    assert_true(hub_same_site("https://huggingface.co/x/y", HUB_SITE));
    assert_true(hub_same_site("https://huggingface.co:443/x/y", HUB_SITE));
    assert_false(hub_same_site("http://huggingface.co/x/y", HUB_SITE));
    assert_false(hub_same_site("https://huggingface.co@evil/x/y", HUB_SITE));
    assert_false(hub_same_site("https://cdn.huggingface.co/x/y", HUB_SITE));
}

static void t_record(void **s)
{
    struct hub_name n, other;
    struct hub_pin p = {.commit = C, .since = 1700000000}, q;
    struct buf b;
    buf_init(&b, 4096);
    assert_true(hub_parse("org/name@dev", HUB_SITE, true, &n));
    assert_true(hub_parse("org/name@main", HUB_SITE, true, &other));
    assert_int_equal(hub_pin_text(&n, &p, &b), 0);
    assert_int_equal(hub_pin_parse(&n, b.p, b.n, &q), 0);
    assert_string_equal(q.commit, C);
    assert_int_equal(q.since, 1700000000);
    assert_int_equal(hub_pin_parse(&other, b.p, b.n, &q), ERR_FORMAT);
    for (size_t i = 0; i < b.n; i++) { /* cut off anywhere; any byte another */
        assert_int_equal(hub_pin_parse(&n, b.p, i, &q), ERR_FORMAT);
        char was = b.p[i];
        b.p[i] = was == 'z' ? 'y' : 'z';
        assert_int_equal(hub_pin_parse(&n, b.p, b.n, &q), ERR_FORMAT);
        b.p[i] = was;
    }
    /* from a record, and a commit without any, no question is needed */
    char *dir = util_tmpdir();
    struct hub_pin_opts o = {.cache_dir = dir, .offline = true};
    struct err e = {0};
    assert_int_equal(hub_pin(&o, &n, &q, &e), ERR_OFFLINE);
    assert_non_null(strstr(e.msg, "dev of org/name"));
    assert_true(hub_parse("org/name@" C, HUB_SITE, true, &n));
    assert_int_equal(hub_pin(&o, &n, &q, &e), 0);
    assert_string_equal(q.commit, C);
    util_rmtree(dir);
    free(dir);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_parse), cmocka_unit_test(t_record)};
    return cmocka_run_group_tests_name("store_name", t, NULL, NULL);
}
