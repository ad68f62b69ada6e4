/* SPDX-License-Identifier: MIT
 * t_speculate.c: drafts, right ones and wrong ones of every kind, change neither ids nor receipt
 * nor a byte of the state: greedy and sampled, at the ends of an answer and of the model's
 * positions, whatever computes, also when a draft's pass fails; how many passes a repetitive text
 * saves. */
#include "rig.h"

#include "node/text/chat.h"
#include "proto/base/file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char tiny[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
static const char demo[] = SHOAL_SOURCE_DIR "/node/demo/model";
#define NEW 20
#define PROMPT_MAX 400
#define PROMPTS 4
static bool brief; /* for slow machines: fewer ways and prompts */

/* ---- a source that knows the answer ---- */

enum kind {
    RIGHT,    /* what the model will choose */
    WRONG,    /* the same up to a place that moves with each draft, from 0 on */
    GARBAGE,  /* ids of which many are none */
    TOO_MANY, /* right, and says that it wrote more than there was room for */
    KINDS
};

struct oracle {
    enum kind kind;
    const uint32_t *ids; /* of the plain run */
    size_t n, n_prompt;
    uint32_t vocab, calls, seed;
};

static size_t propose(void *ctx, const uint32_t *tokens, size_t n, size_t max, uint32_t *out)
{
    struct oracle *o = ctx;
    size_t at = n - o->n_prompt, wrong = o->kind == WRONG ? o->calls % (max + 1) : SIZE_MAX;
    assert_true(n > o->n_prompt && max > 0);
    assert_memory_equal(tokens + o->n_prompt, o->ids, at * sizeof *tokens);
    o->calls++;
    for (size_t i = 0; i < max; i++) {
        /* behind the plain run's end, anything */
        uint32_t id = at + i < o->n ? o->ids[at + i] : (uint32_t)i;
        o->seed = o->seed * 1664525u + 1013904223u;
        out[i] = o->kind == GARBAGE ? o->seed >> (o->seed >> 30) * 8
                 : i < wrong        ? id
                                    : (id + 1) % o->vocab;
    }
    return o->kind == TOO_MANY ? max + 1000 : max;
}

/* ---- runs ---- */

struct run {
    uint32_t prompt[PROMPT_MAX];
    struct generate_opts o;
    struct generate_result r;
    char receipt[2 * SHA256_SIZE + 1];
};

static void run_set(struct run *x, uint32_t seed, size_t n, bool sampled, uint32_t vocab)
{
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x->prompt[i] = (seed >> 8) % vocab;
    }
    x->o.n_prompt = n;
    x->o.max_new = NEW;
    x->o.sample.top_p = 1;
    if (sampled) {
        x->o.sample = (struct sample_opts){0.9f, 0.95f, 0.02f, 50, seed};
    }
}

static void run(struct rig *r, struct run *x)
{
    struct err e = {0};
    x->o.prompt = x->prompt;
    if (generate(r->f, r->m, &x->o, &x->r, &e)) {
        fail_msg("%s", e.msg);
    }
    receipt_hex(&x->r.receipt, x->receipt);
}

static void open_or_fail(struct rig *r, const struct rig_opts *o)
{
    struct err e = {0};
    if (rig_open(r, o, &e)) {
        fail_msg("%s", e.msg);
    }
}

/* The same request with drafts. */
static void run_drafted(struct rig *r, const struct run *plain, enum kind kind, uint32_t most,
                        struct run *x)
{
    struct oracle o = {.kind = kind,
                       .ids = plain->r.ids,
                       .n = plain->r.n,
                       .n_prompt = plain->o.n_prompt,
                       .vocab = infer_config(r->f)->vocab,
                       .seed = most + (uint32_t)kind};
    struct draft_source source = {propose, &o};
    *x = *plain;
    x->o.spec = (struct spec_opts){SPEC_ALWAYS, most, &source};
    run(r, x);
    assert_int_equal(x->r.n, plain->r.n);
    assert_memory_equal(x->r.ids, plain->r.ids, plain->r.n * sizeof *plain->r.ids);
    assert_string_equal(x->receipt, plain->receipt);
    assert_int_equal(x->r.stopped, plain->r.stopped);
    assert_int_equal(x->r.decoded, plain->r.decoded);
    const struct spec_stats *s = &x->r.spec;
    assert_int_equal(s->passes + s->accepted, plain->r.n - 1); /* each pass gives one of its own */
    assert_true(s->accepted <= s->drafted && s->with_draft <= s->passes && !s->failed);
    if (kind == RIGHT || kind == TOO_MANY) {
        assert_int_equal(s->accepted, s->drafted);
        assert_int_equal(s->passes, (plain->r.n - 1 + most) / (most + 1));
    }
}

static void no_draft_changes_a_bit(void **state)
{
    (void)state;
    static const struct rig_opts ways[] = {
        {.isa = KERN_ISA_SCALAR, .threads = 1},
        {.threads = 3},
        {.threads = 2, .max_rows = 3, .no_spine = true, .ram = 1},
    };
    static const uint32_t most[] = {1, 4, SPEC_MOST};
    struct run plain[PROMPTS], x;
    uint32_t prompts = brief ? 2 : PROMPTS;
    struct rig r;
    struct rig_opts o = {.model = tiny};
    open_or_fail(&r, &o);
    uint32_t V = infer_config(r.f)->vocab;
    for (uint32_t i = 0; i < prompts; i++) {
        run_set(&plain[i], i, 1 + 9 * i, i % 2, V);
        run(&r, &plain[i]);
        assert_int_equal(plain[i].r.n, NEW);
        assert_int_equal(plain[i].r.spec.passes, NEW - 1);
    }
    rig_close(&r);
    for (size_t w = brief ? 2 : 0; w < sizeof ways / sizeof *ways; w++) {
        o = ways[w];
        o.model = tiny;
        open_or_fail(&r, &o);
        for (uint32_t i = 0; i < prompts; i++) {
            for (int k = 0; k < KINDS; k++) {
                run_drafted(&r, &plain[i], (enum kind)k, most[(i + (uint32_t)k + w) % 3], &x);
                generate_result_free(&x.r);
            }
        }
        rig_close(&r);
    }
    for (uint32_t i = 0; i < prompts; i++) {
        generate_result_free(&plain[i].r);
    }
}

/* Saved after each number of tokens, the state is the plain run's, byte for byte, and the run goes
 * on from it with the same receipt. */
static void states_are_the_plain_ones(void **state)
{
    (void)state;
    char dir[] = "/tmp/t_spec_XXXXXX", a[64], b[64];
    struct rig r;
    struct rig_opts o = {.model = tiny};
    struct run plain, x;
    assert_non_null(mkdtemp(dir));
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    open_or_fail(&r, &o);
    for (uint32_t n = 1; n < NEW; n += brief ? 9 : 4) {
        struct buf want, got;
        struct err e = {0};
        run_set(&plain, 3, 7, true, infer_config(r.f)->vocab);
        plain.o.reload_path = a;
        plain.o.reload_after = n;
        run(&r, &plain);
        plain.o.reload_path = b;
        run_drafted(&r, &plain, WRONG, 5, &x);
        buf_init(&want, 1 << 24);
        buf_init(&got, 1 << 24);
        assert_int_equal(file_read_all(a, &want, &e), 0);
        assert_int_equal(file_read_all(b, &got, &e), 0);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.p, want.p, want.n);
        buf_free(&want);
        buf_free(&got);
        generate_result_free(&x.r);
        generate_result_free(&plain.r);
    }
    rig_close(&r);
    rig_remove(dir);
}

/* A stop id, a hook that ends it, the last positions of a model: in the middle of a draft. */
static int stop_at_7(void *ctx, uint32_t id)
{
    (void)id;
    return ++*(int *)ctx == 7;
}

static void few_positions(const char *dir)
{
    char path[64];
    struct buf b;
    struct err e = {0};
    rig_copy_model(tiny, dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read_all(path, &b, &e), 0);
    assert_int_equal(buf_add(&b, "", 1), 0);
    char *at = strstr(b.p, "\"max_position_embeddings\": ");
    assert_non_null(at);
    at += strlen("\"max_position_embeddings\": ");
    char *end = at + strspn(at, "0123456789");
    assert_true(end - at >= 2);
    memcpy(at, "22", 2);
    memset(at + 2, ' ', (size_t)(end - at) - 2);
    assert_int_equal(file_write_atomic(path, b.p, strlen(b.p), 0600, &e), 0);
    buf_free(&b);
}

static void ends(void **state)
{
    (void)state;
    char dir[] = "/tmp/t_spec_XXXXXX";
    struct rig r;
    struct rig_opts o = {.model = tiny};
    struct run plain, x;
    assert_non_null(mkdtemp(dir));
    open_or_fail(&r, &o);
    uint32_t V = infer_config(r.f)->vocab;
    for (uint32_t k = 0; k < NEW; k += brief ? 10 : 5) { /* the stop id is the k-th new token */
        struct run first;
        run_set(&first, 8, 5, true, V);
        run(&r, &first);
        run_set(&plain, 8, 5, true, V);
        plain.o.stop = &first.r.ids[k];
        plain.o.n_stop = 1;
        run(&r, &plain);
        assert_true(plain.r.stopped && plain.r.n <= k + 1);
        for (int kind = 0; kind < KINDS; kind++) {
            struct oracle orc = {(enum kind)kind, first.r.ids, first.r.n, 5, V, 0, k};
            struct draft_source source = {propose, &orc};
            x = plain;
            x.o.spec = (struct spec_opts){SPEC_ALWAYS, 9, &source};
            run(&r, &x);
            assert_true(x.r.stopped);
            assert_int_equal(x.r.n, plain.r.n);
            assert_string_equal(x.receipt, plain.receipt);
            generate_result_free(&x.r);
        }
        generate_result_free(&plain.r);
        generate_result_free(&first.r);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        int n = 0, m = 0;
        run_set(&plain, 9, 4, false, V);
        run(&r, &plain);
        struct oracle orc = {(enum kind)kind, plain.r.ids, plain.r.n, 4, V, 0, 1};
        struct draft_source source = {propose, &orc};
        struct run cut = plain;
        cut.o.on_token = stop_at_7;
        cut.o.ctx = &n;
        run(&r, &cut);
        assert_int_equal(cut.r.n, 7);
        x = cut;
        x.o.ctx = &m;
        x.o.spec = (struct spec_opts){SPEC_ALWAYS, 9, &source};
        run(&r, &x);
        assert_int_equal(x.r.n, 7);
        assert_string_equal(x.receipt, cut.receipt);
        generate_result_free(&x.r);
        generate_result_free(&cut.r);
        generate_result_free(&plain.r);
    }
    rig_close(&r);
    few_positions(dir);
    o.model = dir;
    open_or_fail(&r, &o);
    assert_int_equal(infer_config(r.f)->max_positions, 22);
    for (size_t n = brief ? 14 : 5; n <= 22; n += n < 14 || brief ? 4 : 2) {
        run_set(&plain, (uint32_t)n, n, false, V);
        run(&r, &plain);
        assert_int_equal(plain.r.n, 22 - n + 1 < NEW ? 22 - n + 1 : NEW);
        for (int kind = 0; kind < KINDS; kind++) {
            run_drafted(&r, &plain, (enum kind)kind, 6, &x);
            generate_result_free(&x.r);
        }
        generate_result_free(&plain.r);
    }
    rig_close(&r);
    rig_remove(dir);
}

/* ---- a draft that needs what cannot be had ---- */

#define EXPERTS_MAX 4096
static void on_routed(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n)
{
    uint8_t *used = ctx;
    (void)rows;
    for (size_t i = 0; i < n; i++) {
        assert_true(layer * 64 + ids[i] < EXPERTS_MAX);
        used[layer * 64 + ids[i]] = 1;
    }
}

static void damage(const struct model *m, const char *dir, uint32_t id)
{
    const struct model_object *o = model_object(m, id);
    char path[512];
    const uint8_t bad = 255; /* a scale that is refused */
    snprintf(path, sizeof path, "%s/%s", dir, model_shard(m, o->shard)->file);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &bad, 1, (off_t)(o->offset + model_expert_layout(m)->scale[0])), 1);
    close(fd);
}

static void a_failing_draft_is_left_out(void **state)
{
    (void)state;
    char dir[] = "/tmp/t_spec_XXXXXX";
    uint8_t used[2][EXPERTS_MAX] = {{0}};
    struct rig r;
    struct rig_opts o = {.model = tiny, .routed = on_routed};
    struct run plain, x;
    assert_non_null(mkdtemp(dir));
    rig_copy_model(tiny, dir);
    for (int k = 0; k < 2; k++) {
        o.routed_ctx = used[k];
        open_or_fail(&r, &o);
        run_set(&plain, 21, 3, false, infer_config(r.f)->vocab);
        plain.o.max_new = 8;
        run(&r, &plain);
        if (k) {
            run_drafted(&r, &plain, WRONG, 6, &x);
            generate_result_free(&x.r);
        }
        generate_result_free(&plain.r);
        if (!k) {
            rig_close(&r);
        }
    }
    bool any = false;
    for (uint32_t i = 0; i < EXPERTS_MAX; i++) {
        if (used[1][i] && !used[0][i]) {
            damage(r.m, dir, model_expert_id(r.m, i / 64, i % 64));
            any = true;
        }
    }
    assert_true(any);
    rig_close(&r);
    o = (struct rig_opts){.model = dir};
    open_or_fail(&r, &o);
    run_set(&plain, 21, 3, false, infer_config(r.f)->vocab);
    plain.o.max_new = 8;
    run(&r, &plain);
    struct oracle orc = {WRONG, plain.r.ids, 8, 3, infer_config(r.f)->vocab, 0, 0};
    struct draft_source source = {propose, &orc};
    x = plain;
    x.o.spec = (struct spec_opts){SPEC_ALWAYS, 6, &source};
    run(&r, &x);
    assert_int_equal(x.r.n, 8);
    assert_string_equal(x.receipt, plain.receipt);
    assert_int_equal(x.r.spec.failed, 1);
    assert_non_null(x.r.spec.why);
    generate_result_free(&x.r);
    generate_result_free(&plain.r);
    rig_close(&r);
    rig_remove(dir);
}

/* ---- what lookup saves ---- */

/* A chat that asks again for what stands in it twice. */
static void repetitive_prompt(struct rig *r, struct run *x)
{
#define WHALE                                                                               \
    "{\"role\":\"user\",\"content\":\"Define "                                              \
    "whale.\"},{\"role\":\"assistant\",\"content\":\"whale: "                               \
    "any of the larger cetacean mammals having a streamlined body and breathing through a " \
    "blowhole on the head.\"},"
    static const char request[] =
        "{\"messages\":[" WHALE WHALE "{\"role\":\"user\",\"content\":\"Define whale.\"}]}";
    struct buf ranks, config;
    struct tok *t = NULL;
    struct chat_prompt p;
    struct tok_ids ids = {0};
    struct err e = {0};
    buf_init(&ranks, TOK_MAX_FILE);
    buf_init(&config, TOK_MAX_CONFIG);
    if (store_read_file(r->st, "tiktoken.model", &ranks, &e) ||
        store_read_file(r->st, "tokenizer_config.json", &config, &e) ||
        tok_open(ranks.p, ranks.n, config.p, config.n, &t, &e) ||
        chat_render(request, sizeof request - 1, CHAT_THINK_DEFAULT, &p, &e) ||
        chat_prompt_ids(&p, t, &ids, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_in_range(ids.n, 50, PROMPT_MAX);
    memcpy(x->prompt, ids.v, ids.n * sizeof *ids.v);
    x->o.n_prompt = ids.n;
    tok_ids_free(&ids);
    chat_prompt_free(&p);
    tok_close(t);
    buf_free(&ranks);
    buf_free(&config);
}

/* At least 1.8 times fewer passes on a repetitive prompt. */
static void repetitive_text(void **state)
{
    (void)state;
    struct rig r;
    struct rig_opts o = {.model = demo};
    struct run plain, x;
    open_or_fail(&r, &o);
    for (int sampled = 0; sampled < 2; sampled++) {
        run_set(&plain, 1, 1, sampled, infer_config(r.f)->vocab);
        repetitive_prompt(&r, &plain);
        plain.o.max_new = 56;
        run(&r, &plain);
        x = plain;
        x.o.spec = (struct spec_opts){.mode = SPEC_ALWAYS, .most = 8};
        run(&r, &x);
        assert_string_equal(x.receipt, plain.receipt);
        assert_memory_equal(x.r.ids, plain.r.ids, plain.r.n * sizeof *plain.r.ids);
        double ratio = (double)plain.r.spec.passes / (double)x.r.spec.passes;
        print_message("%s: %llu passes in place of %llu: %.2f times fewer; %llu of %llu drafted "
                      "tokens were right\n",
                      sampled ? "sampled" : "greedy", (unsigned long long)x.r.spec.passes,
                      (unsigned long long)plain.r.spec.passes, ratio,
                      (unsigned long long)x.r.spec.accepted, (unsigned long long)x.r.spec.drafted);
        assert_true(sampled || ratio >= 1.8);
        generate_result_free(&x.r);
        generate_result_free(&plain.r);
    }
    rig_close(&r);
}

int main(int argc, char **argv)
{
    brief = argc > 1 && !strcmp(argv[1], "brief");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_draft_changes_a_bit),
        cmocka_unit_test(states_are_the_plain_ones),
        cmocka_unit_test(ends),
        cmocka_unit_test(a_failing_draft_is_left_out),
        cmocka_unit_test(repetitive_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
