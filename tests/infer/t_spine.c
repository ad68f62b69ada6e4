/* SPDX-License-Identifier: MIT
 * t_spine.c: where the spine is and in which form changes no bit: the same receipt with all of it
 * in memory, streamed, packed on disk and streamed, packed in memory, and with some of each. */
#include "rig.h"

#include "node/store/forms.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char model_dir[] = SHOAL_SOURCE_DIR "/node/demo/model";

#define PROMPT 20u
#define NEW 8u

struct outcome {
    char receipt[65];
    struct infer_spine spine;
    uint64_t read[2]; /* bytes of the disk: the first time; the second, with all experts in RAM */
};

static void go(const char *cache, uint64_t budget, struct outcome *out)
{
    struct rig_opts o = {.model = model_dir,
                         .cache = cache,
                         .spine_budget = budget,
                         .no_spine = budget == 0,
                         .prefetch = INFER_PREFETCH_OFF};
    struct rig r;
    struct err e = {0};
    struct store_stats v;
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
    infer_get_spine(r.f, &out->spine);
    store_get_stats(r.st, &v);
    char again[65];
    uint32_t prompt[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++) {
        prompt[i] = i * 131 % 2816;
    }
    struct generate_opts g = {.prompt = prompt,
                              .n_prompt = PROMPT,
                              .max_new = NEW,
                              .sample = {.temperature = 1, .top_p = 1, .seed = 3}};
    for (int i = 0; i < 2; i++) {
        struct generate_result res;
        uint64_t before = v.disk_bytes;
        if (generate(r.f, r.m, &g, &res, &e)) {
            fail_msg("%s", e.msg);
        }
        receipt_hex(&res.receipt, i ? again : out->receipt);
        generate_result_free(&res);
        store_get_stats(r.st, &v);
        out->read[i] = v.disk_bytes - before;
    }
    assert_string_equal(again, out->receipt);
    rig_close(&r);
}

/* The spine into the cache, then packed. */
static void fill(const char *cache, bool packed)
{
    struct store_opts so = {.model = model_dir, .cache_dir = cache, .ram_budget = 1 << 20};
    struct store *st;
    struct store_converting *c;
    struct store_view v;
    struct err e = {0};
    assert_int_equal(store_open(&so, &st, &e), 0);
    uint32_t n = model_object_count(store_model(st));
    for (uint32_t id = 0; id < n && model_object(store_model(st), id)->kind == MODEL_SPINE; id++) {
        assert_int_equal(store_get(st, id, STORE_DEMAND, 0, &v, &e), 0);
        store_release(st, &v);
    }
    store_close(st); /* all is published */
    assert_int_equal(store_open(&so, &st, &e), 0);
    assert_int_equal(store_convert_begin(st, &c, &e), 0);
    for (uint32_t id = 0; id < n; id++) {
        int r = store_has_forms(st, id) ? store_convert(c, id, packed, &e) : 0;
        assert_int_equal(r, 0);
    }
    store_convert_end(c);
    store_close(st);
}

static void same_receipts(void **s)
{
    char cache[] = "/tmp/t_spine_XXXXXX";
    struct outcome ref, x;
    assert_non_null(mkdtemp(cache));
    go(NULL, UINT64_MAX, &ref);
    uint64_t all = ref.spine.resident;
    assert_true(all > 1000000 && !ref.spine.kept && !ref.spine.streamed);

    fill(cache, false);
    go(cache, 0, &x);
    assert_string_equal(x.receipt, ref.receipt);
    assert_int_equal(x.spine.streamed, all);
    assert_int_equal(x.spine.disk, all);
    uint64_t plain_reads = x.read[1];
    assert_true(plain_reads > all);

    fill(cache, true);
    go(cache, UINT64_MAX, &x); /* unpacked once, for good */
    assert_string_equal(x.receipt, ref.receipt);
    assert_int_equal(x.spine.resident, all);

    go(cache, 0, &x);
    assert_string_equal(x.receipt, ref.receipt);
    assert_int_equal(x.spine.streamed, all);
    uint64_t packed = x.spine.disk;
    assert_true(packed * 100 < all * 75);
    assert_true(x.read[1] * 100 < plain_reads * 75);

    unsigned kinds = 0;
    uint64_t rows = (PROMPT + NEW - 1) * 512;
    static const unsigned parts[] = {2, 6, 8, 9}; /* of 10 */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint64_t budget = all / 10 * parts[i];
        go(cache, budget, &x);
        assert_string_equal(x.receipt, ref.receipt);
        assert_int_equal(x.spine.resident + x.spine.kept_from + x.spine.streamed, all);
        assert_true(x.spine.resident + x.spine.kept <= budget);
        kinds |= x.spine.kept && x.spine.streamed ? 1 : 0;
        kinds |= x.spine.kept && x.spine.resident ? 2 : 0;
        if (!x.spine.streamed) { /* it costs no read any more */
            kinds |= 4;
            assert_int_equal(x.read[1], rows); /* but those of the embedding */
        }
    }
    assert_int_equal(kinds, 7);
    rig_remove(cache);
}

/* Every value there is, as a weight: what is below 2^-62 becomes +0, others stay, and one that is
 * not finite is refused, wherever it stands. */
static void every_value(void **s)
{
    struct rig_opts o = {.model = model_dir};
    struct rig r;
    struct err e = {0};
    assert_int_equal(rig_open(&r, &o, &e), 0);
    uint32_t id = 0;
    while (model_object(r.m, id)->dtype != MODEL_BF16 || model_object(r.m, id)->size != 131072) {
        id++;
    }
    static uint16_t v[65536], want[65536];
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t x = i * 40503u & 0xffff; /* each once, neighbours unlike */
        bool finite = (x & 0x7f80) != 0x7f80;
        v[i] = finite ? (uint16_t)x : 0x3f80;
        want[i] = (v[i] & 0x7fff) < 65 << 7 ? 0 : v[i];
    }
    assert_int_equal(infer_admit((void *)(uintptr_t)r.m, id, (uint8_t *)v, sizeof v, &e), 0);
    assert_memory_equal(v, want, sizeof v);
    for (uint32_t i = 0; i < 65536; i += 4111) {
        v[i] = i & 1 ? 0x7f80 : 0xffc1;
        assert_int_equal(infer_admit((void *)(uintptr_t)r.m, id, (uint8_t *)v, sizeof v, &e),
                         ERR_FORMAT);
        v[i] = want[i];
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_value),
                                       cmocka_unit_test(same_receipts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
