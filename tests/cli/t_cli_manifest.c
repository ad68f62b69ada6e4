/* SPDX-License-Identifier: MIT
 * t_cli_manifest.c: `shoal manifest` from outside: built from whole shards, compared with what the
 * hub said of them, signed, pinned, taken in, given on. */
#include "proto/base/file.h"
#include "spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL SHOAL_SOURCE_DIR "/node/demo/model"

static char dir[] = "/tmp/shoal-manifest-XXXXXX";

static int setup(void **state)
{
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char s[200];
    snprintf(s, sizeof s, "rm -rf '%s'", dir);
    return system(s);
}

static const char *in(const char *name)
{
    static char p[8][200];
    static int k;
    k = (k + 1) % 8;
    snprintf(p[k], sizeof p[k], "%s/%s", dir, name);
    return p[k];
}

static const char *str(const struct spawn_result *r, const char *key)
{
    const char *s = json_string_value(json_object_get(r->json, key));
    return s ? s : "";
}

static json_int_t num(const struct spawn_result *r, const char *key)
{
    return json_integer_value(json_object_get(r->json, key));
}

static void fails(const char *part, const char *const *args)
{
    struct spawn_result r;
    spawn(&r, NULL, args);
    assert_int_equal(r.status, 1);
    if (!strstr(r.err.p, part)) {
        fail_msg("\"%s\" is not in: %s", part, r.err.p);
    }
    spawn_free(&r);
}
#define FAILS(part, ...) fails(part, (const char *const[]){__VA_ARGS__, NULL})

static void test_build(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "manifest", "build", MODEL, "--out", in("m"), "--json", "--quiet");
    assert_int_equal(r.status, 0);
    json_int_t n = num(&r, "objects");
    assert_true(n > 100);
    assert_int_equal(num(&r, "known"), n);
    assert_int_equal(json_array_size(json_object_get(r.json, "shards")), 9);
    assert_int_equal(num(&r, "compared"), 0);
    assert_true(json_is_null(json_object_get(r.json, "signed_by")));
    char sha[80], root[80];
    snprintf(sha, sizeof sha, "%s", str(&r, "sha256"));
    snprintf(root, sizeof root, "%s", str(&r, "root"));
    spawn_free(&r);

    FAILS("not the one that was given", "manifest", "import", in("m"), "--cache", in("c"),
          "--sha256", "0000");
    SPAWN(&r, NULL, "manifest", "import", in("m"), "--cache", in("c"), "--sha256", sha, "--json");
    assert_int_equal(r.status, 0);
    spawn_free(&r);
    SPAWN(&r, NULL, "manifest", "export", root, "--cache", in("c"), "--out", in("again"), "--json");
    assert_int_equal(r.status, 0);
    assert_string_equal(str(&r, "sha256"), sha);
    spawn_free(&r);
    FAILS("no manifest was imported", "manifest", "export", "0123456789abcdef", "--cache", in("c"),
          "--out", in("none"));
    /* with it in the cache, a run of the same model is as ever, and says what it rests on */
    SPAWN(&r, NULL, "run", "--model", MODEL, "--cache", in("c"), "--ids", "1,2", "--max-new", "2",
          "--json");
    assert_int_equal(r.status, 0);
    spawn_free(&r);
    SPAWN(&r, NULL, "manifest", "build", "--model", MODEL, "--cache", in("c"), "--out",
          in("cached"), "--json");
    assert_int_equal(r.status, 0);
    assert_true(num(&r, "known") > 20 && num(&r, "known") <= n);
    spawn_free(&r);

    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 24);
    assert_int_equal(file_read_all(in("m"), &b, &e), 0);
    b.p[b.n / 2] ^= 1;
    assert_int_equal(file_write_atomic(in("bad"), b.p, b.n, 0600, &e), 0);
    buf_free(&b);
    FAILS("checksum is wrong", "manifest", "show", in("bad"));
    FAILS("checksum is wrong", "manifest", "import", in("bad"), "--cache", in("c"));
    FAILS("cannot open", "manifest", "show", in("nothing"));
}

/* The hub's SHA-256, where its own program left it. */
static void test_hub(void **state)
{
    char s[600];
    struct spawn_result r;
    snprintf(s, sizeof s,
             "cp -r '%s' '%s' && cd '%s' && mkdir -p .cache/huggingface/download && for f in "
             "*.safetensors; do (echo 0; sha256sum $f | cut -c1-64; echo 1) "
             ">.cache/huggingface/download/$f.metadata; done",
             MODEL, in("model"), in("model"));
    assert_int_equal(system(s), 0);
    SPAWN(&r, NULL, "manifest", "build", in("model"), "--out", in("h"), "--json", "--quiet");
    assert_int_equal(r.status, 0);
    assert_int_equal(num(&r, "compared"), 9);
    spawn_free(&r);
    snprintf(s, sizeof s,
             "cd '%s' && chmod u+w *.safetensors && printf x | dd of=$(ls *.safetensors | head -1) "
             "bs=1 seek=200000 conv=notrunc 2>/dev/null",
             in("model"));
    assert_int_equal(system(s), 0);
    FAILS("the hub has", "manifest", "build", in("model"), "--out", in("h2"), "--quiet");
    assert_int_equal(access(in("h2"), F_OK), -1);
}

static void test_signed(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "init", "--home", in("home"), "--json");
    assert_int_equal(r.status, 0);
    char node[80];
    snprintf(node, sizeof node, "%s", str(&r, "node"));
    spawn_free(&r);
    SPAWN(&r, NULL, "manifest", "build", MODEL, "--out", in("s"), "--sign", "--home", in("home"),
          "--json", "--quiet");
    assert_int_equal(r.status, 0);
    assert_string_equal(str(&r, "signed_by"), node);
    spawn_free(&r);
    SPAWN(&r, NULL, "manifest", "import", in("s"), "--cache", in("cs"), "--key", node, "--json");
    assert_int_equal(r.status, 0);
    spawn_free(&r);
    SPAWN(&r, NULL, "manifest", "build", MODEL, "--out", in("u"), "--quiet");
    spawn_free(&r);
    FAILS("not signed, not by the node", "manifest", "import", in("u"), "--cache", in("cs"),
          "--key", node);
}

static void test_usage(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "manifest", "bake", "x");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    SPAWN(&r, NULL, "manifest", "build", MODEL);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    SPAWN(&r, NULL, "manifest", "import");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_hub),
        cmocka_unit_test(test_signed),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
