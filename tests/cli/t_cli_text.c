/* SPDX-License-Identifier: MIT
 * t_cli_text.c: the program from outside: help, wrong usage, errors, tokenize, render, doctor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/base/file.h"
#include "spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL SHOAL_SOURCE_DIR "/node/demo/model"

static void has(const struct buf *b, const char *part)
{
    if (!strstr(b->p, part)) {
        fail_msg("\"%s\" is not in: %s", part, b->p);
    }
}

static void t_help(void **state)
{
    static const char *const commands[] = {
        "run",     "logits", "tokenize", "render", "demo",   "doctor",  "bench",
        "version", "help",   "up",       "status", "init",   "invite",  "join",
        "peers",   "verify", "remove",   "keeper", "backup", "restore", "networks"};
    struct spawn_result all, one;
    SPAWN(&all, NULL, "help");
    assert_int_equal(all.status, 0);
    assert_int_equal(all.err.n, 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char row[40];
        snprintf(row, sizeof row, "\n  %-10s  ", commands[i]);
        has(&all.out, row);
        SPAWN(&one, NULL, commands[i], "--help");
        assert_int_equal(one.status, 0);
        has(&one.out, "Usage: shoal ");
        has(&one.out, "--json");
        spawn_free(&one);
    }
    static const char *const words[] = {"expert", "spine", "origin", "receipt", "shoal"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char row[40];
        snprintf(row, sizeof row, "\n  %-7s  ", words[i]);
        has(&all.out, row);
    }
    SPAWN(&one, NULL, "help", "run");
    has(&one.out, "--max-new N");
    has(&one.out, "SIZE has a unit");
    spawn_free(&one);
    /* a command of a command */
    SPAWN(&one, NULL, "cache", "--help");
    assert_int_equal(one.status, 0);
    has(&one.out, "\n  warm      fill the disks");
    spawn_free(&one);
    SPAWN(&one, NULL, "help", "cache", "warm");
    assert_int_equal(one.status, 0);
    has(&one.out, "Usage: shoal cache warm [options]");
    has(&one.out, "--no-wait");
    spawn_free(&one);
    spawn(&one, NULL, (const char *const[]){NULL}); /* no arguments: the same as help */
    assert_int_equal(one.status, 0);
    assert_string_equal(one.out.p, all.out.p);
    spawn_free(&one);
    spawn_free(&all);
}

static void t_version(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "--version");
    assert_int_equal(r.status, 0);
    has(&r.out, "shoal 0.");
    spawn_free(&r);
    SPAWN(&r, NULL, "version", "--json");
    assert_int_equal(r.status, 0);
    assert_true(json_is_string(json_object_get(r.json, "version")));
    assert_true(json_integer_value(json_object_get(r.json, "numerics")) > 0);
    spawn_free(&r);
}

static void t_usage(void **state)
{
    static const struct {
        const char *args[8];
        const char *says;
    } cases[] = {
        {{"rnu"}, "unknown command \"rnu\"; did you mean run?"},
        {{"run", "--modle", "x"}, "unknown option --modle; did you mean --model?"},
        {{"run"}, "give --prompt, --chat or --ids"},
        {{"run", "--prompt", "a", "--chat", "b"}, "only one of"},
        {{"run", "--prompt", "a", "--system", "b"}, "go with --chat"},
        {{"run", "--prompt", "a", "extra"}, "unexpected argument \"extra\""},
        {{"run", "--ids", "1,x"}, "\"x\" is not a token id"},
        {{"run", "--ids", "1,,2"}, "is not a token id"},
        {{"run", "--ids", "4294967296"}, "is not a token id"},
        {{"run", "--ids", "1", "--isa", "mmx"}, "one of auto, scalar, avx2, neon"},
        {{"run", "--ids", "1", "--threads", "0"}, "from 1 to 1024"},
        {{"run", "--ids", "1", "--temperature", "-1"}, "must be a number"},
        {{"run", "--ids", "1", "--top-p", "2"}, "--top-p 2"},
        {{"run", "--ids", "1", "--ram", "much"}, "a size such as"},
        {{"run", "--chat", "a", "--effort", "huge"}, "--effort huge"},
        {{"logits", "--ids", "1"}, "--out is missing"},
        {{"logits", "--out", "x"}, "give --ids or --prompt"},
        {{"tokenize", "a", "--file", "b"}, "not both"},
        {{"bench"}, "an argument is missing: kernels"},
        {{"bench", "kernels", "--only", "nosuch"}, "no product has a name"},
        {{"bench", "disks"}, "there is no benchmark \"disks\""},
        {{"help", "me"}, "there is no command \"me\""},
        {{"help", "cache", "me"}, "there is no command \"cache me\""},
        {{"help", "run", "me"}, "there is no command \"run me\""},
        {{"cache"}, "cache: say which of its commands comes first"},
        {{"cache", "wram"}, "unknown command \"cache wram\"; did you mean cache warm?"},
        {{"cache", "warm"}, "say --shoal"},
        {{"cache", "warm", "--shoal", "x"}, "cache warm: unexpected argument \"x\""},
        {{"run", "--ids", "1", "--ram", "12"}, "--ram 12 is 12 bytes: did you mean 12G?"},
        {{"run", "--ids", "1", "--disk-budget=500"}, "500 bytes: did you mean 500G?"},
        {{"up", "--upload-limit", "40"}, "40 bytes: did you mean 40M? (40B is meant as it is)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spawn_result r;
        spawn(&r, "", cases[i].args);
        assert_int_equal(r.status, 2);
        assert_int_equal(r.out.n, 0);
        assert_int_equal(strncmp(r.err.p, "shoal: ", 7), 0);
        has(&r.err, cases[i].says);
        has(&r.err, "--help");
        spawn_free(&r);
    }
    struct spawn_result r;
    SPAWN(&r, NULL, "run", "--json", "--oops");
    assert_int_equal(r.status, 2);
    const json_t *e = json_object_get(r.json, "error");
    assert_string_equal(json_string_value(json_object_get(e, "code")), "usage");
    assert_non_null(strstr(json_string_value(json_object_get(e, "message")), "--oops"));
    spawn_free(&r);
}

/* Exit status 1 and a sentence that names file and reason; with --json also as JSON. */
static void fails(const char *model, const char *a, const char *b)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "run", "--ids", "1", "--model", model, "--json", "-q");
    assert_int_equal(r.status, 1);
    has(&r.err, a);
    has(&r.err, b);
    const char *m = json_string_value(json_object_get(json_object_get(r.json, "error"), "message"));
    assert_non_null(m);
    assert_non_null(strstr(m, a));
    spawn_free(&r);
}

static void t_errors(void **state)
{
    char dir[] = "/tmp/t_cli_text.XXXXXX", path[64];
    struct err e;
    assert_non_null(mkdtemp(dir));
    fails("/nonexistent/model", "/nonexistent/model", "No such file");
    fails("/nonexistent/model", "http(s) URL", "config.json");
    fails(MODEL "/config.json", "config.json", "is a file");
    fails("ftp://host/model", "ftp://host/model", "http");
    fails(dir, "there is no config.json in this folder", dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(file_write_atomic(path, "{\"a\": [", 7, 0600, &e), 0);
    fails(dir, "config.json", "");
    unlink(path);
    rmdir(dir);
    struct spawn_result r;
    SPAWN(&r, NULL, "run", "--ids", "1", "--model", "/none\033[31m", "-q");
    assert_int_equal(r.status, 1);
    has(&r.err, "/none[31m"); /* a quoted name commands no terminal */
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--chat", "whale\xff", "-q");
    assert_int_equal(r.status, 1);
    has(&r.err, "--chat: byte 6 of the text is not valid UTF-8");
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--chat", "whale", "--system", "\xc3", "-q");
    assert_int_equal(r.status, 1);
    has(&r.err, "--system: byte 1 of the text is not valid UTF-8");
    spawn_free(&r);
}

static void t_tokenize(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "tokenize", "music: the");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, "76 2803 66 25 276\n");
    spawn_free(&r);
    json_t *want = json_pack("[i,i,i,i,i]", 76, 2803, 66, 25, 276);
    SPAWN(&r, "music: the", "tokenize", "--model", MODEL, "--json"); /* from standard input */
    assert_int_equal(r.status, 0);
    spawn_expect_ids(r.json, want);
    spawn_free(&r);
    json_decref(want);
    SPAWN(&r, NULL, "tokenize", "--special", "[EOS]");
    assert_string_equal(r.out.p, "2817\n");
    spawn_free(&r);
    SPAWN(&r, NULL, "tokenize", "[EOS]", "--json"); /* untrusted: ordinary characters */
    assert_true(json_array_size(r.json) > 1);
    spawn_free(&r);
    SPAWN(&r, "", "tokenize", "--json");
    assert_int_equal(json_array_size(r.json), 0);
    assert_true(json_is_array(r.json));
    spawn_free(&r);
    SPAWN(&r, NULL, "tokenize", "--file", "/nonexistent/text");
    assert_int_equal(r.status, 1);
    has(&r.err, "/nonexistent/text");
    spawn_free(&r);
}

/* A folder with nothing but the tokenizer's files is enough. */
static void t_tokenizer_alone(void **state)
{
    char dir[] = "/tmp/t_cli_tok.XXXXXX", path[2][64];
    static const char *const names[] = {"tiktoken.model", "tokenizer_config.json"};
    struct spawn_result r;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        char target[600];
        snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
        snprintf(target, sizeof target, MODEL "/%s", names[i]);
        assert_int_equal(symlink(target, path[i]), 0);
    }
    SPAWN(&r, NULL, "tokenize", "--model", dir, "music: the");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, "76 2803 66 25 276\n");
    spawn_free(&r);
    unlink(path[0]);
    struct err e;
    assert_int_equal(file_write_atomic(path[0], "IQ== 0\n!!!! 1\n", 14, 0600, &e), 0);
    SPAWN(&r, NULL, "tokenize", "--model", dir, "music: the");
    assert_int_equal(r.status, 1);
    has(&r.err, "tiktoken.model");
    has(&r.err, "2"); /* the line */
    spawn_free(&r);
    unlink(path[0]);
    unlink(path[1]);
    rmdir(dir);
}

static void t_render(void **state)
{
    static const char request[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Define whale.\"}],"
        " \"reasoning_effort\": \"none\"}";
    struct spawn_result r;
    json_t *doc = json_load_file(SHOAL_TEST_DIR "/fixtures/demo/expected.json", 0, NULL);
    assert_non_null(doc);
    const json_t *c = json_array_get(json_object_get(doc, "cases"), 1);
    assert_string_equal(json_string_value(json_object_get(c, "name")), "chat-none");
    SPAWN(&r, request, "render");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, json_string_value(json_object_get(c, "prompt_text")));
    spawn_free(&r);
    SPAWN(&r, request, "render", "--file", "-", "--model", MODEL, "--json");
    assert_int_equal(r.status, 0);
    spawn_expect_ids(r.json, json_object_get(c, "prompt_ids"));
    spawn_free(&r);
    SPAWN(&r, "{\"messages\": [{\"role\": \"wizard\", \"content\": \"x\"}]}", "render", "--json");
    assert_int_equal(r.status, 1);
    has(&r.err, "messages[0].role");
    assert_non_null(json_object_get(r.json, "error"));
    spawn_free(&r);
    SPAWN(&r, "{", "render");
    assert_int_equal(r.status, 1);
    spawn_free(&r);
    json_decref(doc);
}

static void t_doctor(void **state)
{
    char dir[] = "/tmp/t_cli_doc.XXXXXX";
    struct spawn_result r;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("SHOAL_HOME", dir, 1), 0); /* not this user's own node */
    SPAWN(&r, NULL, "doctor", "--cache", dir, "--model", MODEL, "--json");
    assert_int_equal(r.status, 0);
    const json_t *checks = json_object_get(r.json, "checks");
    static const char *const names[] = {"processor", "memory",    "files",   "cache", "disk",
                                        "demo",      "libraries", "model",   "node",  "bonjour",
                                        "localnet",  "power",     "network", "sleep", "priority"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t k, seen = 0;
        json_t *v;
        json_array_foreach(checks, k, v)
        {
            seen += !strcmp(json_string_value(json_object_get(v, "name")), names[i]);
        }
        assert_int_equal(seen, 1);
    }
    spawn_free(&r);
    /* the model was opened with that folder, so it has its marks now */
    SPAWN(&r, NULL, "doctor", "--cache", dir);
    assert_int_equal(r.status, 0);
    has(&r.out, "    volume ");
    has(&r.out, "ok    backup     the cache is marked");
    spawn_free(&r);
    SPAWN(&r, NULL, "doctor", "--cache", MODEL "/config.json");
    assert_int_equal(r.status, 1);
    has(&r.out, "fail  cache");
    spawn_free(&r);
    SPAWN(&r, NULL, "doctor", "--cache", dir, "--model", "/nonexistent/model");
    assert_int_equal(r.status, 1);
    has(&r.out, "fail  model");
    has(&r.out, "/nonexistent/model");
    spawn_free(&r);
    unsetenv("SHOAL_HOME");
    char rm[80];
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    assert_int_equal(system(rm), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_help),     cmocka_unit_test(t_version),
        cmocka_unit_test(t_usage),    cmocka_unit_test(t_errors),
        cmocka_unit_test(t_tokenize), cmocka_unit_test(t_tokenizer_alone),
        cmocka_unit_test(t_render),   cmocka_unit_test(t_doctor),
    };
    return cmocka_run_group_tests_name("cli_text", tests, NULL, NULL);
}
