/* SPDX-License-Identifier: MIT
 * t_cli_run.c: `shoal run` and `shoal logits` on the demo model, against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/base/file.h"
#include "proto/base/num.h"
#include "spawn.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL SHOAL_SOURCE_DIR "/node/demo/model"
#define FIXTURES SHOAL_TEST_DIR "/fixtures/demo"
#define VOCAB 3072
/* The reference's own spread between two machines is 2.5e-5, at logits up to 50. */
#define TOLERANCE 1e-3

static json_t *doc;
/* Set by main (a word on the command line) where the program is emulated or sanitized and so many
 * times slower: fewer cases; tests/infer goes through all ways there too. */
static bool brief;

static const json_t *case_at(size_t i)
{
    return json_array_get(json_object_get(doc, "cases"), i);
}

static void ids_text(const json_t *ids, char *out, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        at += (size_t)snprintf(out + at, n - at, "%s%lld", i ? "," : "",
                               (long long)json_integer_value(json_array_get(ids, i)));
        assert_true(at < n);
    }
}

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    assert_non_null(s);
    return s;
}

/* Every case of the reference: 32 greedy ids, all fields of the result. */
static void t_greedy(void **state)
{
    static const char *const numbers[] = {"origin_bytes", "peer_bytes",      "disk_bytes",
                                          "ram_hits",     "experts_fetched", "prefill_s",
                                          "decode_tok_s"};
    size_t n = json_array_size(json_object_get(doc, "cases"));
    assert_true(n >= 5);
    for (size_t i = 0; i < (brief ? 2 : n); i++) {
        struct spawn_result r;
        char ids[4096];
        ids_text(json_object_get(case_at(i), "prompt_ids"), ids, sizeof ids);
        SPAWN(&r, NULL, "run", "--model", MODEL, "--ids", ids, "--max-new", "32", "--ignore-eos",
              "--json");
        assert_int_equal(r.status, 0);
        spawn_expect_ids(json_object_get(r.json, "prompt_ids"),
                         json_object_get(case_at(i), "prompt_ids"));
        spawn_expect_ids(json_object_get(r.json, "ids"), json_object_get(case_at(i), "greedy_ids"));
        assert_int_equal(strlen(str(r.json, "receipt")), 64);
        assert_true(json_is_string(json_object_get(r.json, "text")));
        const json_t *stats = json_object_get(r.json, "stats");
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            assert_true(json_is_number(json_object_get(stats, numbers[k])));
        }
        assert_int_equal(json_integer_value(json_object_get(stats, "origin_bytes")), 0);
        assert_true(json_number_value(json_object_get(stats, "decode_tok_s")) > 0);
        assert_true(json_is_object(json_object_get(r.json, "plan")));
        assert_non_null(strstr(r.err.p, "state ")); /* the plan was said */
        spawn_free(&r);
    }
}

static void t_logits(void **state)
{
    char out[] = "/tmp/t_cli_logits.XXXXXX", ids[4096];
    int fd = mkstemp(out);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < (brief ? 2 : json_array_size(json_object_get(doc, "cases"))); i++) {
        struct spawn_result r;
        struct buf got, want;
        struct err e;
        char path[600];
        size_t n = json_array_size(json_object_get(case_at(i), "prompt_ids"));
        ids_text(json_object_get(case_at(i), "prompt_ids"), ids, sizeof ids);
        SPAWN(&r, NULL, "logits", "--model", MODEL, "--ids", ids, "--out", out, "--prefill-chunk",
              "7", "--json");
        assert_int_equal(r.status, 0);
        assert_int_equal(json_integer_value(json_object_get(r.json, "positions")), n);
        assert_int_equal(json_integer_value(json_object_get(r.json, "vocab")), VOCAB);
        spawn_free(&r);
        buf_init(&got, 1 << 26);
        buf_init(&want, 1 << 26);
        snprintf(path, sizeof path, FIXTURES "/%s", str(case_at(i), "logits_file"));
        assert_int_equal(file_read_all(out, &got, &e), 0);
        assert_int_equal(file_read_all(path, &want, &e), 0);
        assert_int_equal(got.n, n * VOCAB * 4);
        assert_int_equal(want.n, VOCAB * 4);
        for (size_t k = 0; k < VOCAB; k++) {
            uint32_t ga = num_get_le32(got.p + (n - 1) * VOCAB * 4 + k * 4);
            uint32_t wa = num_get_le32(want.p + k * 4);
            float g, w;
            memcpy(&g, &ga, 4);
            memcpy(&w, &wa, 4);
            assert_true(fabsf(g - w) < TOLERANCE);
        }
        buf_free(&got);
        buf_free(&want);
    }
    unlink(out);
}

/* The same receipt whatever the work is divided into, and after a saved and reloaded state. */
static void t_receipt(void **state)
{
    static const char *const ways[][2] = {
        {"--threads", "1"},       {"--threads", "3"},           {"--isa", "scalar"},
        {"--prefill-chunk", "1"}, {"--prefill-chunk", "7"},     {"--ram", "100k"},
        {"--spine-ram", "0"},     {"--reload-after", "3"},      {"--reload-after", "20"},
        {"--seed", "99"},         {"-q", "--flush-subnormals"},
    };
    const char *effort = brief ? "none" : "low";
    struct spawn_result a, b;
    SPAWN(&a, NULL, "run", "--model", MODEL, "--chat", "Define whale.", "--effort", effort,
          "--json");
    assert_int_equal(a.status, 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += brief ? 4 : 1) {
        SPAWN(&b, NULL, "run", "--model", MODEL, "--chat", "Define whale.", "--effort", effort,
              "--json", ways[i][0], ways[i][1]);
        assert_int_equal(b.status, 0);
        assert_string_equal(str(a.json, "receipt"), str(b.json, "receipt"));
        spawn_expect_ids(json_object_get(b.json, "ids"), json_object_get(a.json, "ids"));
        spawn_free(&b);
    }
    SPAWN(&b, NULL, "run", "--model", MODEL, "--chat", "Define whale.", "--no-think", "--system",
          "x", "--json");
    assert_string_not_equal(str(a.json, "receipt"), str(b.json, "receipt"));
    spawn_free(&b);
    /* what it rests on: the model's own folder; what asks for more is refused by name */
    assert_string_equal(str(json_object_get(a.json, "basis"), "weakest"), "origin");
    assert_int_equal(json_integer_value(json_object_get(a.json, "again")), 0);
    SPAWN(&b, NULL, "run", "--model", MODEL, "--ids", "1", "--max-new", "1", "--trust", "origin");
    assert_int_equal(b.status, 0);
    assert_non_null(strstr(b.err.p, "basis "));
    spawn_free(&b);
    SPAWN(&b, NULL, "run", "--model", MODEL, "--ids", "1", "--max-new", "1", "--trust", "manifest");
    assert_int_equal(b.status, 1);
    assert_non_null(strstr(b.err.p, "--trust asks for a published manifest"));
    spawn_free(&b);
    SPAWN(&b, NULL, "run", "--model", MODEL, "--ids", "1", "--trust", "much");
    assert_int_equal(b.status, 2);
    spawn_free(&b);
    spawn_free(&a);
}

/* Drafts change the number of passes, and nothing else; the report counts them. */
static void t_speculate(void **state)
{
    static const char *const ways[] = {"off", "8", "auto", NULL};
    static const char prompt[] = "whale: any of the larger cetacean mammals. whale: any of the "
                                 "larger cetacean mammals. whale: any of the larger";
    struct spawn_result a, b;
    SPAWN(&a, NULL, "run", "--prompt", prompt, "--max-new", "24", "--ignore-eos", "--json",
          "--speculate", ways[0]);
    assert_int_equal(a.status, 0);
    const json_t *s = json_object_get(json_object_get(a.json, "stats"), "speculate");
    assert_int_equal(json_integer_value(json_object_get(s, "passes")), 23);
    assert_int_equal(json_integer_value(json_object_get(s, "drafted")), 0);
    assert_string_equal(str(s, "why_not"), "it is off");
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        SPAWN(&b, NULL, "run", "--prompt", prompt, "--max-new", "24", "--ignore-eos", "--json",
              ways[i] ? "--speculate" : "--quiet", ways[i]);
        assert_int_equal(b.status, 0);
        assert_string_equal(str(a.json, "receipt"), str(b.json, "receipt"));
        spawn_expect_ids(json_object_get(b.json, "ids"), json_object_get(a.json, "ids"));
        s = json_object_get(json_object_get(b.json, "stats"), "speculate");
        json_int_t passes = json_integer_value(json_object_get(s, "passes"));
        json_int_t accepted = json_integer_value(json_object_get(s, "accepted"));
        assert_int_equal(passes + accepted, 23);
        if (i == 1) {
            assert_true(json_integer_value(json_object_get(s, "drafted")) > 0);
        }
        spawn_free(&b);
    }
    spawn_free(&a);
    SPAWN(&b, NULL, "run", "--prompt", "x", "--speculate", "64");
    assert_int_equal(b.status, 2);
    assert_non_null(strstr(b.err.p, "--speculate 64"));
    spawn_free(&b);
    SPAWN(&b, NULL, "serve", "--speculate", "always");
    assert_int_equal(b.status, 2);
    assert_non_null(strstr(b.err.p, "--speculate always"));
    spawn_free(&b);
}

static void t_chat(void **state)
{
    static const char answer[] =
        "whale: any of the larger cetacean mammals having a streamlined body "
        "and breathing through a blowhole on the head.";
    struct spawn_result r;
    SPAWN(&r, NULL, "run", "--chat", "Define whale.", "--no-think", "--json"); /* the demo model */
    assert_int_equal(r.status, 0);
    assert_string_equal(str(r.json, "text"), answer);
    assert_string_equal(str(r.json, "reasoning"), "");
    assert_string_equal(str(r.json, "finish"), "stop");
    assert_true(json_is_true(json_object_get(r.json, "demo")));
    spawn_expect_ids(json_object_get(r.json, "prompt_ids"),
                     json_object_get(case_at(1), "prompt_ids"));
    spawn_free(&r);

    SPAWN(&r, NULL, "run", "--chat", "Define whale.", "--effort", "low");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out.p, "[thinking] noun"));
    assert_non_null(strstr(r.out.p, "\n[answer] whale: any of the larger"));
    assert_null(strstr(r.out.p, "<|"));
    assert_non_null(strstr(r.err.p, "demo model"));
    assert_non_null(strstr(r.err.p, "receipt "));
    spawn_free(&r);

    SPAWN(&r, NULL, "run", "--chat", "Give a synonym of quick.", "--system", "Answer briefly.",
          "--no-think", "-q");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, "Synonym of quick: speedy.\n");
    assert_int_equal(r.err.n, 0);
    spawn_free(&r);
}

static void t_raw(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "run", "--prompt", "music: the", "-q");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, " sounds produced by singers or musical instruments (or "
                                 "reproductions of such sounds).\n");
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--prompt", "music: the", "--max-new", "3", "--json");
    assert_int_equal(json_array_size(json_object_get(r.json, "ids")), 3);
    assert_string_equal(str(r.json, "finish"), "length");
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--prompt", "", "--json");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "the prompt is empty"));
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--ids", "1,3072");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "token id 3072 at position 1"));
    spawn_free(&r);
}

static void t_sampling(void **state)
{
    struct spawn_result r[3];
    static const char *const seeds[] = {"7", "7", "8"};
    for (int i = 0; i < 3; i++) {
        SPAWN(&r[i], NULL, "run", "--prompt", "the", "--max-new", "24", "--ignore-eos",
              "--temperature", "1.5", "--top-k", "50", "--top-p", "0.95", "--seed", seeds[i],
              "--threads", i ? "1" : "2", "--json");
        assert_int_equal(r[i].status, 0);
    }
    assert_string_equal(str(r[0].json, "receipt"), str(r[1].json, "receipt"));
    assert_string_not_equal(str(r[0].json, "receipt"), str(r[2].json, "receipt"));
    for (int i = 0; i < 3; i++) {
        spawn_free(&r[i]);
    }
}

/* What the routers chose, recorded and replayed: the numbers belong to this run. */
static void t_routes(void **state)
{
    char out[] = "/tmp/t_cli_routes.XXXXXX";
    struct spawn_result r;
    int fd = mkstemp(out);
    assert_true(fd >= 0);
    close(fd);
    SPAWN(&r, NULL, "run", "--model", MODEL, "--ids", "1,2,3", "--max-new", "6", "--ignore-eos",
          "--record-routes", out, "--json");
    assert_int_equal(r.status, 0);
    char *receipt = strdup(str(r.json, "receipt"));
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--model", MODEL, "--ids", "1,2,3", "--max-new", "6", "--ignore-eos",
          "--json");
    assert_string_equal(str(r.json, "receipt"), receipt);
    spawn_free(&r);
    free(receipt);
    SPAWN(&r, NULL, "bench", "cache", out, "--disk", "1M", "--json");
    assert_int_equal(r.status, 0);
    assert_int_equal(json_integer_value(json_object_get(r.json, "steps")), 6);
    assert_int_equal(json_integer_value(json_object_get(r.json, "tokens")), 8);
    const json_t *list = json_object_get(r.json, "caches");
    assert_true(json_array_size(list) >= 16);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        json_int_t misses = json_integer_value(json_object_get(c, "misses"));
        assert_true(misses <= json_integer_value(json_object_get(c, "uses")));
        assert_true(misses >= json_integer_value(json_object_get(r.json, "experts_used")));
    }
    spawn_free(&r);
    assert_int_equal(unlink(out), 0);
    SPAWN(&r, NULL, "bench", "cache", out);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, out));
    spawn_free(&r);
    SPAWN(&r, NULL, "bench", "cache");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
}

/* What is read are the experts that a run has left in the cache. */
static void t_bench_read(void **state)
{
    char dir[] = "/tmp/t_cli_read.XXXXXX", cmd[64];
    struct spawn_result r;
    assert_non_null(mkdtemp(dir));
    SPAWN(&r, NULL, "bench", "read", "--model", MODEL, "--cache", dir, "--seconds", "0");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "fewer than 16 experts"));
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--model", MODEL, "--cache", dir, "--ids", "1,2,3", "--max-new", "2",
          "--ignore-eos", "--json");
    assert_int_equal(r.status, 0);
    spawn_free(&r);
    SPAWN(&r, NULL, "bench", "read", "--model", MODEL, "--cache", dir, "--seconds", "0", "--json");
    assert_int_equal(r.status, 0);
    json_int_t files = json_integer_value(json_object_get(r.json, "files"));
    assert_true(files >= 16 && files % 16 == 0);
    assert_int_equal(json_integer_value(json_object_get(r.json, "rounds")), 3);
    assert_false(json_is_true(json_object_get(r.json, "past_page_cache")));
    assert_true(json_real_value(json_object_get(r.json, "store_bytes_s")) > 0);
    const json_t *fio = json_object_get(r.json, "fio_bytes_s"), /* not everywhere */
        *ratio = json_object_get(r.json, "ratio");
    assert_true(json_is_null(fio) ? json_is_null(ratio) : json_real_value(ratio) > 0);
    spawn_free(&r);
    SPAWN(&r, NULL, "bench", "read");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    SPAWN(&r, NULL, "bench", "read", "--model", MODEL, "--threads", "2");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    SPAWN(&r, NULL, "bench", "kernels", "--cache", dir);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    assert_int_equal(system(cmd), 0);
}

/* A shard cut short: exit 1, file and reason; never an answer. */
static void t_cut_shard(void **state)
{
    char dir[] = "/tmp/t_cli_cut.XXXXXX", cmd[1400];
    struct spawn_result r;
    assert_non_null(mkdtemp(dir));
    snprintf(cmd, sizeof cmd,
             "ln -s '%s'/* %s/ && rm %s/model-00005-of-000009.safetensors && "
             "head -c 1000000 '%s'/model-00005-of-000009.safetensors "
             ">%s/model-00005-of-000009.safetensors",
             MODEL, dir, dir, MODEL, dir);
    assert_int_equal(system(cmd), 0);
    SPAWN(&r, NULL, "run", "--model", dir, "--chat", "Define whale.", "--json");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "model-00005-of-000009.safetensors"));
    assert_non_null(json_object_get(r.json, "error"));
    assert_null(json_object_get(r.json, "ids"));
    spawn_free(&r);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

/* A model of 12 positions: an answer ends there, and is not lost; a longer prompt is refused. */
static void t_positions(void **state)
{
    static const char ten[] = "1,2,3,4,5,6,7,8,9,10";
    char dir[] = "/tmp/t_cli_pos.XXXXXX", cmd[1400], out[64], ids[80];
    struct spawn_result r, all;
    assert_non_null(mkdtemp(dir));
    snprintf(cmd, sizeof cmd,
             "ln -s '%s'/* %s/ && rm %s/config.json && sed 's/\\(\"max_position_embeddings\"\\): "
             "*[0-9]*/\\1: 12/' '%s'/config.json >%s/config.json",
             MODEL, dir, dir, MODEL, dir);
    assert_int_equal(system(cmd), 0);
    SPAWN(&all, NULL, "run", "--ids", ten, "--max-new", "3", "--ignore-eos", "--json", "-q");
    assert_int_equal(all.status, 0);
    SPAWN(&r, NULL, "run", "--model", dir, "--ids", ten, "--max-new", "50", "--ignore-eos",
          "--json", "-q");
    assert_int_equal(r.status, 0);
    assert_string_equal(str(r.json, "finish"), "length");
    assert_true(json_equal(json_object_get(r.json, "ids"), json_object_get(all.json, "ids")));
    spawn_free(&r);
    spawn_free(&all);
    snprintf(ids, sizeof ids, "%s,11,12,13", ten);
    SPAWN(&r, NULL, "run", "--model", dir, "--ids", ids, "--json", "-q");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "the prompt has 13 tokens; this model takes at most 12"));
    spawn_free(&r);
    snprintf(out, sizeof out, "%s/logits", dir);
    SPAWN(&r, NULL, "logits", "--model", dir, "--ids", ids, "--out", out, "--json", "-q");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "the prompt has 13 tokens; this model takes at most 12"));
    spawn_free(&r);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

static int setup(void **state)
{
    doc = json_load_file(FIXTURES "/expected.json", 0, NULL);
    return doc ? 0 : -1;
}

static int teardown(void **state)
{
    json_decref(doc);
    return 0;
}

int main(int argc, char **argv)
{
    brief = argc > 1 && !strcmp(argv[1], "brief");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_greedy),    cmocka_unit_test(t_logits),
        cmocka_unit_test(t_receipt),   cmocka_unit_test(t_speculate),
        cmocka_unit_test(t_chat),      cmocka_unit_test(t_raw),
        cmocka_unit_test(t_sampling),  cmocka_unit_test(t_bench_read),
        cmocka_unit_test(t_cut_shard), cmocka_unit_test(t_positions),
        cmocka_unit_test(t_routes),
    };
    return cmocka_run_group_tests_name("cli_run", tests, setup, teardown);
}
