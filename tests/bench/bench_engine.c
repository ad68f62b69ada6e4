/* SPDX-License-Identifier: MIT
 * bench_engine.c: what sharing and keeping are worth.
 * usage: bench_engine [MODEL] (default: the demo model)
 *
 * Sharing: steps of one row and of eight; eight answers at once against one after the other, rounds
 * interleaved, medians, with everything in memory; and with nothing in memory, where sharing is
 * for: bytes read for a token. Keeping: a chat of about 2,000 tokens grown by ten turns with kept
 * states, against the prefill of its new tokens alone (each turn from a copied state, without
 * engine); what a kept state takes at K3's shape. Exit 1 when the turns cost more than 2 % above,
 * in processor time, since other programs may be running. Every receipt is compared with its
 * pair's. */
#include "tests/engine/eng_kit.h"

#include "node/model/config.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define AT_ONCE 8
#define NEW 48
#define ROUNDS 3
#define STEPS 60
#define NEW_STREAMED 12
#define TURNS 10
#define GROW 40 /* tokens of a turn's message */
#define FIRST 2000

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Seconds of a clock and of processor time. */
struct cost {
    double wall, cpu;
};

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static struct cost now(void)
{
    return (struct cost){clock_s(), cpu_s()};
}

static struct cost since(struct cost t)
{
    return (struct cost){clock_s() - t.wall, cpu_s() - t.cpu};
}

/* Eight requests, all at once or each after the last. */
static struct cost eight(struct eng *x, bool at_once, uint32_t new,
                         char receipts[AT_ONCE][2 * SHA256_SIZE + 1])
{
    struct eng_job *j = calloc(AT_ONCE, sizeof *j);
    uint32_t V = infer_config(x->rig.f)->vocab;
    assert_non_null(j);
    struct cost t = now();
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        eng_job(&j[i], i, 32, new, V);
        j[i].ask.no_keep = true;
        assert_int_equal(eng_submit(x, &j[i]), 0);
        if (!at_once) {
            eng_wait(&j[i]);
        }
    }
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        eng_wait(&j[i]);
        eng_receipt(&j[i], receipts[i]);
    }
    t = since(t);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        eng_free(&j[i]);
    }
    free(j);
    return t;
}

/* Everything in memory: the same arithmetic either way, so only what is done once a step is
 * shared. */
static void sharing(const char *model, unsigned threads)
{
    struct eng x;
    struct rig_opts ro = {.model = model, .threads = threads};
    struct engine_opts o = {.batch = AT_ONCE};
    char a[AT_ONCE][2 * SHA256_SIZE + 1], b[AT_ONCE][2 * SHA256_SIZE + 1];
    double once[ROUNDS], one[ROUNDS], once_cpu[ROUNDS], one_cpu[ROUNDS];
    eng_open_rig(&x, &ro, &o);
    eight(&x, true, NEW, a);
    for (int i = 0; i < ROUNDS; i++) {
        struct cost c = eight(&x, true, NEW, a), d = eight(&x, false, NEW, b);
        once[i] = c.wall;
        one[i] = d.wall;
        once_cpu[i] = c.cpu;
        one_cpu[i] = d.cpu;
        assert_memory_equal(a, b, sizeof a);
    }
    double t1 = median(once, ROUNDS), t2 = median(one, ROUNDS), c1 = median(once_cpu, ROUNDS),
           c2 = median(one_cpu, ROUNDS);
    printf("sharing, all in memory, %u threads: %d answers of %d tokens: %.2f s (%.2f s of "
           "processor) at once, %.2f s (%.2f s) one after the other: %.2f (%.2f) times\n",
           threads, AT_ONCE, NEW, t1, c1, t2, c2, t2 / t1, c2 / c1);
    eng_close(&x);
}

/* Nothing stays in memory, as with a model far larger than RAM: bytes read for each new token. */
static void streaming(const char *model)
{
    struct eng x;
    struct rig_opts ro = {.model = model, .no_spine = true, .ram = 1};
    struct engine_opts o = {.batch = AT_ONCE};
    char a[AT_ONCE][2 * SHA256_SIZE + 1], b[AT_ONCE][2 * SHA256_SIZE + 1];
    double per[2];
    eng_open_rig(&x, &ro, &o);
    for (int at_once = 0; at_once < 2; at_once++) {
        struct store_stats s, t;
        store_get_stats(x.rig.st, &s);
        struct cost c = eight(&x, at_once, NEW_STREAMED, at_once ? a : b);
        store_get_stats(x.rig.st, &t);
        double bytes = (double)(t.origin_bytes + t.peer_bytes + t.disk_bytes - s.origin_bytes -
                                s.peer_bytes - s.disk_bytes);
        per[at_once] = bytes / (AT_ONCE * NEW_STREAMED);
        printf(
            "streaming, %s: %.2f MB read for each of %d tokens (%.2f MB of them spine), %.2f s\n",
            at_once ? "8 at once" : "one after the other", per[at_once] / 1e6,
            AT_ONCE * NEW_STREAMED,
            (double)(t.spine_bytes_read - s.spine_bytes_read) / 1e6 / (AT_ONCE * NEW_STREAMED),
            c.wall);
    }
    assert_memory_equal(a, b, sizeof a);
    printf("streaming: sharing reads %.2f times less\n", per[0] / per[1]);
    eng_close(&x);
}

/* A step of one row and a step of eight, of as many sequences, without engine. */
static void step_costs(const char *model, unsigned threads)
{
    struct rig r;
    struct rig_opts ro = {.model = model, .threads = threads};
    struct err e = {0};
    if (rig_open(&r, &ro, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t V = infer_config(r.f)->vocab, seed = 9;
    float *logits = malloc((size_t)AT_ONCE * V * sizeof *logits);
    struct infer_state *st[AT_ONCE];
    struct infer_row rows[AT_ONCE];
    assert_non_null(logits);
    for (int i = 0; i < AT_ONCE; i++) {
        assert_int_equal(infer_state_new(r.f, &st[i], &e), 0);
    }
    double wall[2][STEPS], cpu[2][STEPS];
    for (int k = 0; k < STEPS + 8; k++) { /* the first ones warm up */
        for (int wide = 0; wide < 2; wide++) {
            size_t n = wide ? AT_ONCE : 1;
            for (size_t i = 0; i < n; i++) {
                seed = seed * 1664525u + 1013904223u;
                rows[i] = (struct infer_row){st[i], (seed >> 8) % V, true};
            }
            struct cost t = now();
            assert_int_equal(infer_forward(r.f, rows, n, logits, &e), 0);
            t = since(t);
            if (k >= 8) {
                wall[wide][k - 8] = t.wall;
                cpu[wide][k - 8] = t.cpu;
            }
        }
    }
    double w1 = median(wall[0], STEPS), w8 = median(wall[1], STEPS), c1 = median(cpu[0], STEPS),
           c8 = median(cpu[1], STEPS);
    printf("a step, %u threads: 1 row %.2f ms (%.2f ms of processor), %d rows %.2f ms (%.2f ms): "
           "%.2f (%.2f) times one row\n",
           threads, w1 * 1e3, c1 * 1e3, AT_ONCE, w8 * 1e3, c8 * 1e3, w8 / w1, c8 / c1);
    for (int i = 0; i < AT_ONCE; i++) {
        infer_state_free(st[i]);
    }
    free(logits);
    rig_close(&r);
}

/* The prompt of a turn: the one before and GROW tokens more. */
static void make_prompt(uint32_t *ids, size_t n, uint32_t V)
{
    uint32_t seed = 5;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (seed >> 8) % V;
    }
}

struct turn {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool over;
    struct engine_end end;
};

static void on_end(void *ctx, const struct engine_end *end)
{
    struct turn *t = ctx;
    pthread_mutex_lock(&t->mu);
    t->end = *end;
    t->over = true;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->mu);
}

/* One turn through the engine: its cost; *reused: tokens that were not computed again. */
static struct cost one_turn(struct eng *x, const uint32_t *ids, size_t n, size_t *reused,
                            char hex[65])
{
    struct turn t = {.over = false};
    struct engine_job *job;
    struct err e = {0};
    uint32_t bound = (uint32_t)n - 4; /* before the generation prefix, as a chat has it */
    struct engine_ask a = {.prompt = ids,
                           .n_prompt = n,
                           .bounds = &bound,
                           .n_bounds = 1,
                           .max_new = 1,
                           .sampling = {.base = {.top_p = 1}},
                           .hooks = {.ctx = &t, .end = on_end}};
    pthread_mutex_init(&t.mu, NULL);
    pthread_cond_init(&t.cond, NULL);
    struct cost s = now();
    assert_int_equal(engine_submit(x->g, &a, &job, NULL, &e), 0);
    pthread_mutex_lock(&t.mu);
    while (!t.over) {
        pthread_cond_wait(&t.cond, &t.mu);
    }
    pthread_mutex_unlock(&t.mu);
    s = since(s);
    *reused = t.end.reused;
    receipt_hex(&t.end.receipt, hex);
    engine_release(job);
    return s;
}

static struct cost bare_turn(struct infer *f, struct infer_state **st, const uint32_t *ids,
                             size_t from, size_t n, float *logits)
{
    struct infer_row rows[512];
    struct infer_state *next;
    struct err e = {0};
    struct cost s = now();
    assert_int_equal(infer_state_copy(*st, &next, &e), 0);
    size_t k = 0;
    for (size_t i = from; i < n; i++) {
        rows[k++] = (struct infer_row){next, ids[i], i + 1 == n};
    }
    assert_int_equal(infer_forward(f, rows, k, logits, &e), 0);
    s = since(s);
    infer_state_free(*st);
    *st = next;
    return s;
}

static void add(struct cost *sum, struct cost c)
{
    sum->wall += c.wall;
    sum->cpu += c.cpu;
}

static int keeping(const char *model)
{
    struct eng x;
    struct engine_opts o = {.keep_ram = (uint64_t)2 << 30, .chunk = 512};
    struct rig_opts ro = {.model = model, .threads = 1}; /* no waiting in processor time */
    eng_open_rig(&x, &ro, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    size_t most = FIRST + TURNS * GROW;
    uint32_t *ids = malloc(most * sizeof *ids);
    float *logits = malloc(V * sizeof *logits);
    char hex[65];
    assert_true(ids && logits);
    make_prompt(ids, most, V);
    size_t reused;
    struct cost first = one_turn(&x, ids, FIRST, &reused, hex), kept = {0, 0}, bare = {0, 0};
    struct rig alone; /* the engine's infer is its own thread's */
    struct infer_state *st;
    struct err e = {0};
    assert_int_equal(rig_open(&alone, &ro, &e), 0);
    assert_int_equal(infer_state_new(alone.f, &st, &e), 0);
    for (size_t at = 0; at < FIRST - 4; at += 256) {
        struct infer_row rows[256];
        size_t k = FIRST - 4 - at < 256 ? FIRST - 4 - at : 256;
        for (size_t i = 0; i < k; i++) {
            rows[i] = (struct infer_row){st, ids[at + i], false};
        }
        assert_int_equal(infer_forward(alone.f, rows, k, NULL, &e), 0);
    }
    size_t from = FIRST - 4;
    for (int i = 1; i <= TURNS; i++) { /* interleaved, the order changing */
        size_t n = FIRST + (size_t)i * GROW;
        if (i % 2) {
            add(&kept, one_turn(&x, ids, n, &reused, hex));
        }
        /* the bare run ends where the next turn's kept state lies, and one token later */
        add(&bare, bare_turn(alone.f, &st, ids, from, n - 4, logits));
        struct infer_state *tail = NULL;
        assert_int_equal(infer_state_copy(st, &tail, &e), 0);
        add(&bare, bare_turn(alone.f, &tail, ids, n - 4, n, logits));
        infer_state_free(tail);
        if (!(i % 2)) {
            add(&kept, one_turn(&x, ids, n, &reused, hex));
        }
        assert_int_equal(reused, from);
        from = n - 4;
    }
    double more = kept.cpu / bare.cpu - 1;
    printf("keeping: a chat of %d tokens (%.2f s) grown by %d turns of %d: %.3f s (%.3f s of "
           "processor), new tokens alone %.3f s (%.3f s): %+.1f %% (%+.1f %%)\n",
           FIRST, first.wall, TURNS, GROW, kept.wall, kept.cpu, bare.wall, bare.cpu,
           (kept.wall / bare.wall - 1) * 100, more * 100);
    infer_state_free(st);
    free(ids);
    free(logits);
    rig_close(&alone);
    eng_close(&x);
    return more > 0.02;
}

/* What a kept state takes at the size of the released model, whose configuration is all it needs.
 */
static void kept_bytes(void)
{
    static const uint32_t at[] = {0, 2000, 100000};
    struct buf text;
    struct model_config c;
    struct err e = {0};
    buf_init(&text, 1 << 20);
    if (file_read_all(SHOAL_TEST_DIR "/model/data/k3/config.json", &text, &e) ||
        model_config_parse(text.p, text.n, &c, &e)) {
        fail_msg("%s", e.msg);
    }
    printf("a kept state at K3's shape:");
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        printf("%s %u tokens %llu bytes (464 MB + 55 KB a token: %.0f MB)", i ? "," : "", at[i],
               (unsigned long long)infer_shape_bytes(&c, at[i]), 464 + 0.055 * at[i]);
    }
    printf("\n");
    model_config_free(&c);
    buf_free(&text);
}

int main(int argc, char **argv)
{
    kept_bytes();
    const char *model = argc > 1 ? argv[1] : SHOAL_SOURCE_DIR "/node/demo/model";
    for (unsigned threads = 1; threads <= 2; threads++) {
        step_costs(model, threads);
        sharing(model, threads);
    }
    streaming(model);
    return keeping(model);
}
