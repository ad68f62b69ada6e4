/* SPDX-License-Identifier: MIT
 * t_prefill.c: a chunk of a prompt reads each expert that it chooses, and each layer of the spine
 * that is not in memory, once; whatever the chunk, the bits are the same. */
#include "node/infer/receipt.h"
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 96

struct counts {
    uint64_t chosen, steps; /* distinct experts, summed over layers and steps; calls of layers */
};

static void chosen(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n)
{
    struct counts *c = ctx;
    (void)layer;
    (void)rows;
    (void)ids;
    c->chosen += n;
    c->steps++;
}

/* The layers' and the head's bytes: all of the spine but the embedding, and the first layer's mix
 * over an empty bank, which nothing reads. */
static uint64_t streamed(const struct infer *f)
{
    struct infer_spine s;
    infer_get_spine(f, &s);
    return s.streamed;
}

static void go(uint32_t chunk, struct counts *n, char receipt[2 * SHA256_SIZE + 1])
{
    struct rig r;
    struct err e = {0};
    struct rig_opts o = {.model = SHOAL_SOURCE_DIR "/node/demo/model",
                         .ram = 1, /* no expert stays: two layers never share one anyway */
                         .no_spine = true,
                         .max_rows = chunk,
                         .prefetch = INFER_PREFETCH_OFF,
                         .routed = chosen,
                         .routed_ctx = n};
    struct infer_row rows[TOKENS];
    struct infer_state *s;
    struct store_stats st;
    memset(n, 0, sizeof *n);
    if (rig_open(&r, &o, &e) || infer_state_new(r.f, &s, &e)) {
        fail_msg("%s", e.msg);
    }
    const struct model_config *c = infer_config(r.f);
    float *logits = malloc(c->vocab * sizeof *logits);
    assert_non_null(logits);
    for (uint32_t i = 0; i < TOKENS; i++) {
        rows[i] = (struct infer_row){s, (i * 37 + 11) % 256, i + 1 == TOKENS};
    }
    if (infer_forward(r.f, rows, TOKENS, logits, &e)) {
        fail_msg("%s", e.msg);
    }
    uint64_t chunks = (TOKENS + chunk - 1) / chunk, spine = streamed(r.f);
    store_get_stats(r.st, &st);
    assert_int_equal(n->steps, chunks * (c->n_layers - c->first_dense));
    assert_int_equal(st.disk_hits, n->chosen);
    assert_int_equal(st.ram_hits, 0);
    /* the layers once a chunk, the head once in all; behind the head the first layer is read
     * for the next token, perhaps by now */
    uint64_t head = 0, first = 0, all = 0;
    for (uint32_t id = 0; id < model_object_count(r.m); id++) {
        const struct model_object *ob = model_object(r.m, id);
        if (ob->kind != MODEL_SPINE || id == model_spine_id(r.m, MODEL_NONE, MODEL_EMBED)) {
            continue;
        }
        all += ob->size;
        head += ob->layer == MODEL_NONE ? ob->size : 0;
        first += ob->layer == 0 ? ob->size : 0;
    }
    assert_true(spine <= all && spine + first >= all);
    uint64_t least = chunks * (spine - head) + head;
    assert_true(st.spine_bytes_read >= least && st.spine_bytes_read <= least + first);
    struct receipt k;
    receipt_begin(&k, model_root(r.m), "bf16", NULL, 0);
    receipt_add(&k, logits, c->vocab, 0);
    receipt_hex(&k, receipt);
    free(logits);
    infer_state_free(s);
    rig_close(&r);
}

static void once_a_chunk(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {96, 64, 32, 5};
    char first[2 * SHA256_SIZE + 1], receipt[2 * SHA256_SIZE + 1];
    uint64_t before = 0;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct counts n;
        go(chunks[i], &n, i ? receipt : first);
        if (i) {
            assert_string_equal(receipt, first);
            assert_true(n.chosen >= before); /* the smaller the chunk, the more reads */
        }
        before = n.chosen;
        print_message("  %u tokens in chunks of %u: %llu experts read\n", TOKENS, chunks[i],
                      (unsigned long long)n.chosen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(once_a_chunk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
