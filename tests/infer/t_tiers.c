/* SPDX-License-Identifier: MIT
 * t_tiers.c: the tiers seen from the forward pass. The same receipt whether experts and spine come
 * from the origin, the disk or RAM; nothing from the origin the second time; and memory that
 * follows the budget and does not grow with the tokens. */
#include "rig.h"

#include "node/demo/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

/* gcc says it by a macro, clang by a feature. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

static uint32_t tokens = 3000; /* fewer where a word on the command line says so: emulators */

static const char model_dir[] = SHOAL_SOURCE_DIR "/node/demo/model";

struct outcome {
    char receipt[65];
    struct store_stats stats;
};

static int count_token(void *ctx, uint32_t id)
{
    ++*(unsigned *)ctx;
    return 0;
}

static void go(const struct rig_opts *o, uint32_t max_new, int twice, struct outcome *out)
{
    struct rig r;
    struct err e = {0};
    if (rig_open(&r, o, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t prompt[20];
    for (uint32_t i = 0; i < 20; i++) {
        prompt[i] = i * 131 % 2816;
    }
    for (int k = 0; k <= twice; k++) {
        unsigned seen = 0;
        struct generate_opts g = {.prompt = prompt,
                                  .n_prompt = 20,
                                  .max_new = max_new,
                                  .sample = {.temperature = 1, .top_p = 1, .seed = 3},
                                  .on_token = count_token,
                                  .ctx = &seen};
        struct generate_result res;
        if (generate(r.f, r.m, &g, &res, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_int_equal(seen, max_new);
        receipt_hex(&res.receipt, out[k].receipt);
        store_get_stats(r.st, &out[k].stats);
        generate_result_free(&res);
    }
    rig_close(&r);
}

static void origin_disk_ram(void **s)
{
    struct err e = {0};
    struct demo_server *srv;
    char cache[] = "/tmp/t_tiers_XXXXXX";
    assert_non_null(mkdtemp(cache));
    if (demo_server_start(model_dir, 0, &srv, &e)) {
        fail_msg("%s", e.msg);
    }
    char url[128];
    snprintf(url, sizeof url, "%s", demo_server_url(srv));
    struct outcome folder[1], cold[2], warm[1], offline[1], small[1];
    struct rig_opts o = {.model = model_dir};
    go(&o, 60, 0, folder);
    o = (struct rig_opts){.model = url, .cache = cache};
    go(&o, 60, 1, cold);
    assert_string_equal(cold[0].receipt, folder[0].receipt);
    assert_string_equal(cold[1].receipt, folder[0].receipt);
    assert_true(cold[0].stats.experts_fetched > 0);
    assert_true(cold[0].stats.origin_bytes > 0);
    /* the same process again: from RAM, nothing from origin or disk */
    assert_int_equal(cold[1].stats.origin_bytes, cold[0].stats.origin_bytes);
    assert_int_equal(cold[1].stats.experts_fetched, cold[0].stats.experts_fetched);
    assert_true(cold[1].stats.ram_hits > cold[0].stats.ram_hits);

    go(&o, 60, 0, warm); /* another process: from disk */
    assert_string_equal(warm[0].receipt, folder[0].receipt);
    assert_int_equal(warm[0].stats.origin_bytes, 0);
    assert_int_equal(warm[0].stats.experts_fetched, 0);
    assert_true(warm[0].stats.disk_bytes > 0);

    o.ram = 1; /* no expert is kept: each use reads the disk */
    go(&o, 60, 0, small);
    assert_string_equal(small[0].receipt, folder[0].receipt);
    assert_int_equal(small[0].stats.origin_bytes, 0);
    assert_true(small[0].stats.disk_bytes > warm[0].stats.disk_bytes);

    demo_server_stop(srv); /* the origin is gone */
    o = (struct rig_opts){.model = url, .cache = cache, .offline = true};
    go(&o, 60, 0, offline);
    assert_string_equal(offline[0].receipt, folder[0].receipt);
    assert_int_equal(offline[0].stats.origin_bytes, 0);
    rig_remove(cache);
}

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
#ifdef __APPLE__
    return u.ru_maxrss / 1024; /* bytes there, KiB elsewhere */
#else
    return u.ru_maxrss;
#endif
}

static void memory_follows_the_budget(void **s)
{
    struct rig r;
    struct err e = {0};
    /* about 20 of the 336 experts */
    struct rig_opts o = {.model = model_dir, .ram = 20 * 19584};
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t V = infer_config(r.f)->vocab;
    float *l = malloc(V * sizeof *l);
    struct infer_state *st;
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    long early = 0;
    for (uint32_t i = 0; i < tokens; i++) {
        struct infer_row row = {st, i * 2654435761u % 2816, true};
        if (infer_forward(r.f, &row, 1, l, &e)) {
            fail_msg("%s", e.msg);
        }
        if (i == tokens / 10) {
            early = peak_kib();
        }
    }
    struct store_stats stats;
    store_get_stats(r.st, &stats);
    long grown = peak_kib() - early;
    /* a growing cache is copied once: old and new stand side by side for a moment */
    long state = (long)(infer_state_bytes(r.f, tokens * 3 / 2) * 2 / 1024);
    print_message(
        "  RAM peak %llu bytes: spine %llu, experts' budget %llu; process grew by %ld KiB "
        "in the last nine tenths of %u tokens (state: %ld KiB)\n",
        (unsigned long long)stats.ram_peak, (unsigned long long)stats.spine_bytes_read,
        (unsigned long long)stats.ram_budget, grown, tokens,
        (long)(infer_state_bytes(r.f, tokens) / 1024));
    /* the spine was read once and is resident: what is over it are experts */
    assert_true(stats.ram_peak <= stats.spine_bytes_read + stats.ram_budget);
    assert_true(stats.disk_hits + stats.origin_fetches > tokens * 3); /* the budget did bind */
#ifdef SANITIZED
    state = 1 << 20; /* their allocators keep what was freed for a while */
#endif
    assert_true(grown <= state + 4096);
    infer_state_free(st);
    free(l);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "brief")) {
        tokens = 200;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_follows_the_budget), /* first: a peak is the process's for good */
        cmocka_unit_test(origin_disk_ram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
