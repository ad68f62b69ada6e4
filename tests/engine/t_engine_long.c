/* SPDX-License-Identifier: MIT
 * t_engine_long.c: same request, same receipt, whatever else happens: 20 prompts (10 chats, 10 of
 * random ids), greedy and sampled, alone by generate(), eight at once, in steps of 1, 7 and 64
 * rows, cold, from kept states in RAM and on disk, with others cancelled beside them, with drafts
 * and without, with the scalar instruction set.
 * usage: t_engine_long [TOKENS [PROMPTS]] (default: 500 20) */
#include "tests/engine/eng_kit.h"

#include "node/text/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char demo[] = SHOAL_SOURCE_DIR "/node/demo/model";
#define HEX (2 * SHA256_SIZE + 1)
#define PROMPTS 20
#define AT_ONCE 8

static uint32_t tokens = 500, prompts = PROMPTS;
static struct {
    uint32_t ids[600];
    size_t n;
} prompt[PROMPTS];
static char want[2][PROMPTS][HEX]; /* greedy, sampled */
static char dir[64];

/* ---- prompts ---- */

static struct tok *open_tok(struct store *st)
{
    struct buf ranks, config;
    struct tok *t = NULL;
    struct err e = {0};
    buf_init(&ranks, TOK_MAX_FILE);
    buf_init(&config, TOK_MAX_CONFIG);
    if (store_read_file(st, "tiktoken.model", &ranks, &e) ||
        store_read_file(st, "tokenizer_config.json", &config, &e) ||
        tok_open(ranks.p, ranks.n, config.p, config.n, &t, &e)) {
        fail_msg("%s", e.msg);
    }
    buf_free(&ranks);
    buf_free(&config);
    return t;
}

static void make_prompts(struct eng *x)
{
    static const char *const chats[PROMPTS / 2] = {
        "[{\"role\":\"user\",\"content\":\"Define whale.\"}]",
        "[{\"role\":\"user\",\"content\":\"Define guitar, then say it again.\"}]",
        "[{\"role\":\"system\",\"content\":\"You are "
        "brief.\"},{\"role\":\"user\",\"content\":\"Hi\"}]",
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{"
        "\"role\":"
        "\"user\",\"content\":\"c\"}]",
        "[{\"role\":\"user\",\"content\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \\n\\n\\t{}[]\"}]",
        "[{\"role\":\"user\",\"content\":\"What is 2 + 2? Answer in words, please.\"}]",
        "[{\"role\":\"user\",\"content\":\"\"}]",
        "[{\"role\":\"user\",\"content\":\"Define whale. Define whale. Define whale. Define "
        "whale.\"}]",
        "[{\"role\":\"user\",\"content\":\"The harbour, the sea, the boats and the gulls.\"}]",
        "[{\"role\":\"user\",\"content\":\"int main(void) { return 0; }\"}]",
    };
    struct tok *t = open_tok(x->rig.st);
    uint32_t V = infer_config(x->rig.f)->vocab, seed = 1;
    for (size_t i = 0; i < PROMPTS; i++) {
        if (i % 2 == 0) {
            char request[600];
            struct chat_prompt p;
            struct tok_ids ids = {0};
            struct err e = {0};
            int n = snprintf(request, sizeof request, "{\"messages\":%s}", chats[i / 2]);
            if (chat_render(request, (size_t)n, i % 4 ? CHAT_THINK_OFF : CHAT_THINK_DEFAULT, &p,
                            &e) ||
                chat_prompt_ids(&p, t, &ids, &e)) {
                fail_msg("%s", e.msg);
            }
            assert_in_range(ids.n, 4, sizeof prompt[i].ids / sizeof *prompt[i].ids);
            memcpy(prompt[i].ids, ids.v, ids.n * sizeof *ids.v);
            prompt[i].n = ids.n;
            tok_ids_free(&ids);
            chat_prompt_free(&p);
        } else {
            prompt[i].n = 2 + i * 3;
            for (size_t k = 0; k < prompt[i].n; k++) {
                seed = seed * 1664525u + 1013904223u;
                prompt[i].ids[k] = (seed >> 8) % V;
            }
        }
    }
    tok_close(t);
}

static void make_job(struct eng_job *j, size_t i, bool sampled, uint32_t V)
{
    eng_job(j, 0, 1, tokens, V);
    memcpy(j->prompt, prompt[i].ids, prompt[i].n * sizeof(uint32_t));
    j->ask.n_prompt = prompt[i].n;
    if (sampled) {
        j->ask.sampling.base = (struct sample_opts){0.9f, 0.95f, 0.02f, 50, 1000 + i};
    }
}

static int set_up(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {0};
    struct eng_job *j = malloc(sizeof *j);
    snprintf(dir, sizeof dir, "/tmp/t_long_XXXXXX");
    if (!j || !mkdtemp(dir)) {
        return -1;
    }
    eng_open(&x, demo, &o);
    make_prompts(&x);
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < prompts; i++) {
            make_job(j, i, s, infer_config(x.rig.f)->vocab);
            eng_alone(&x, j, want[s][i]);
            eng_free(j);
        }
    }
    free(j);
    eng_close(&x);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_remove(dir);
    return 0;
}

/* ---- all prompts through one engine ---- */

enum from { COLD, RAM, DISK };

/* Submit all at once; one more beside every third, cancelled when its neighbour has a few tokens.
 * bound: keep and look up states, just before the last token of the prompt. */
static void run_all(struct eng *x, bool sampled, bool cancel, bool bound, enum from from)
{
    uint32_t V = infer_config(x->rig.f)->vocab, *bounds = calloc(prompts, sizeof *bounds);
    struct eng_job *j = calloc(prompts, sizeof *j), *gone = calloc(prompts, sizeof *gone);
    assert_true(j && gone && bounds);
    for (size_t i = 0; i < prompts; i++) {
        make_job(&j[i], i, sampled, V);
        bounds[i] = (uint32_t)prompt[i].n - 1;
        j[i].ask.bounds = &bounds[i];
        j[i].ask.n_bounds = bound ? 1 : 0;
        j[i].ask.no_keep = !bound;
        if (cancel && i % 3 == 0) {
            eng_job(&gone[i], (uint32_t)i, 3 + 40 * (i % 2), 500, V);
            gone[i].ask.no_keep = true;
            assert_int_equal(eng_submit(x, &gone[i]), 0);
        }
        assert_int_equal(eng_submit(x, &j[i]), 0);
    }
    for (size_t i = 0; cancel && i < prompts; i += 3) {
        if (i % 2) {
            eng_wait_tokens(&gone[i], 1 + i / 2);
        }
        engine_cancel(gone[i].job);
    }
    for (size_t i = 0; i < prompts; i++) {
        char got[HEX];
        eng_wait(&j[i]);
        if (j[i].end.reason != ENGINE_LENGTH) {
            fail_msg("prompt %zu: %s", i, j[i].end.err.msg);
        }
        assert_int_equal(j[i].n, tokens);
        eng_receipt(&j[i], got);
        if (strcmp(got, want[sampled][i]) != 0) {
            fail_msg("prompt %zu (%s): receipt %s, alone %s", i, sampled ? "sampled" : "greedy",
                     got, want[sampled][i]);
        }
        if (from != COLD && bounds[i] >= 16) { /* shorter ones are not looked up */
            assert_int_equal(j[i].end.reused, bounds[i]);
        }
        eng_free(&j[i]);
    }
    for (size_t i = 0; cancel && i < prompts; i += 3) {
        eng_wait(&gone[i]);
        eng_free(&gone[i]);
    }
    free(bounds);
    free(gone);
    free(j);
}

static void test_together(void **state)
{
    (void)state;
    static const uint32_t chunk[] = {64, 7, 1};
    for (size_t k = 0; k < 3; k++) {
        struct eng x;
        struct engine_opts o = {.batch = AT_ONCE, .chunk = chunk[k]};
        if (chunk[k] == 1) {
            o.batch = 3; /* more than a step has rows: they take turns */
        } else {
            o.spec = (struct spec_opts){k ? SPEC_ALWAYS : SPEC_MEASURED, k ? 4 : 0, NULL};
        }
        eng_open(&x, demo, &o);
        run_all(&x, k == 1, true, false, COLD);
        if (k == 0) {
            run_all(&x, true, false, false, COLD);
        }
        eng_close(&x);
    }
}

static void test_warm(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.batch = AT_ONCE,
                            .spec = {SPEC_ALWAYS, 8, NULL},
                            .keep_ram = (uint64_t)1 << 30,
                            .keep_disk = (uint64_t)1 << 30,
                            .keep_dir = dir};
    eng_open(&x, demo, &o);
    run_all(&x, false, false, true, COLD);
    run_all(&x, true, true, true, RAM);
    eng_close(&x); /* writes what is kept */
    o.keep_ram = 1;
    eng_open(&x, demo, &o);
    run_all(&x, false, true, true, DISK);
    eng_close(&x);
}

static void test_scalar(void **state)
{
    (void)state;
    struct eng x;
    struct rig_opts ro = {.model = demo, .isa = KERN_ISA_SCALAR};
    struct engine_opts o = {.batch = AT_ONCE};
    eng_open_rig(&x, &ro, &o);
    run_all(&x, true, false, false, COLD);
    eng_close(&x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_warm),
        cmocka_unit_test(test_scalar),
    };
    if (argc > 1) {
        tokens = (uint32_t)strtoul(argv[1], NULL, 10);
    }
    if (argc > 2) {
        prompts = (uint32_t)strtoul(argv[2], NULL, 10);
    }
    if (tokens < 1 || tokens > 500 || prompts < 1 || prompts > PROMPTS) {
        fprintf(stderr, "usage: t_engine_long [TOKENS up to 500 [PROMPTS up to 20]]\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
