/* SPDX-License-Identifier: MIT
 * bench_peer.c: see bench_peer.h. The measurement is peer/bench.h; here is its folder, its table
 * and its JSON. */
#include "node/cli/bench_peer.h"

#include "node/cli/plat.h"
#include "peer/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int stop(void *ctx)
{
    (void)ctx;
    return cli_interrupted();
}

static json_t *side_json(const struct peer_bench_side *s)
{
    return json_pack("{s:f,s:f,s:f,s:f}", "bytes_s", s->bytes_s, "cpu_s_gb", s->cpu_s_byte * 1e9,
                     "gets_s", s->one_s, "batch_gets_s", s->batch_s);
}

static int print_json(struct cli *c, const struct peer_bench *b)
{
    const struct peer_bench_side *q = &b->ratio;
    return cli_json(
        c, json_pack("{s:i,s:i,s:i,s:i,s:{s:s,s:s},s:{s:i,s:i},s:o*,s:o*,s:{s:f,s:f,s:f,s:f,s:f,s:"
                     "f},s:f,s:b,s:{s:f,s:f,s:f,s:f}}",
                     "object_bytes", (int)PEER_BENCH_OBJECT, "small_bytes", (int)PEER_BENCH_SMALL,
                     "batch", PEER_BENCH_BATCH, "rounds", (int)b->rounds, "tls", "version",
                     b->version, "suite", b->suite, "threads", "bare", (int)b->bare_threads, "mesh",
                     (int)b->mesh_threads, "bare", side_json(&b->bare), "mesh", side_json(&b->mesh),
                     "ratio", "bytes_s", q->bytes_s, "bytes_s_min", b->ratio_min, "bytes_s_max",
                     b->ratio_max, "cpu_s_gb", q->cpu_s_byte, "gets_s", q->one_s, "batch_gets_s",
                     q->batch_s, "goal", PEER_BENCH_GOAL, "met", q->bytes_s >= PEER_BENCH_GOAL,
                     "one_thread", "seal_bytes_s", b->seal_bytes_s, "hash_bytes_s", b->hash_bytes_s,
                     "connection_bytes_s", b->bound_bytes_s, "crypto_share", b->crypto_share));
}

static int print_text(struct cli *c, const struct peer_bench *b)
{
    struct buf t;
    buf_init(&t, 8192);
    int r = buf_addf(&t,
                     "Two nodes on 127.0.0.1 (mesh, %u threads), beside one plain client and one "
                     "plain server\nof the same TLS library (bare, %u threads): %s, %s.\n"
                     "Medians of %u rounds in turn; a ratio is the median of the rounds' ratios.\n"
                     "\n%-32s %12s %12s %8s\n",
                     b->mesh_threads, b->bare_threads, b->version, b->suite, b->rounds, "", "bare",
                     "mesh", "ratio");
    r |= buf_addf(&t, "%-32s %12.1f %12.1f %8.3f\n", "objects of 17.5 MB, MB/s",
                  b->bare.bytes_s / 1e6, b->mesh.bytes_s / 1e6, b->ratio.bytes_s);
    r |= buf_addf(&t, "%-32s %12.2f %12.2f %8.3f\n", "  processor, s/GB, both ends",
                  b->bare.cpu_s_byte * 1e9, b->mesh.cpu_s_byte * 1e9, b->ratio.cpu_s_byte);
    r |= buf_addf(&t, "%-32s %12.0f %12.0f %8.3f\n", "objects of 4 KiB, one by one, /s",
                  b->bare.one_s, b->mesh.one_s, b->ratio.one_s);
    char name[40];
    snprintf(name, sizeof name, "objects of 4 KiB, %d at once, /s", PEER_BENCH_BATCH);
    r |= buf_addf(&t, "%-32s %12.0f %12.0f %8.3f\n", name, b->bare.batch_s, b->mesh.batch_s,
                  b->ratio.batch_s);
    r |= buf_addf(&t,
                  "\nWhat bounds it: one thread seals %.0f MB/s of records with this suite and "
                  "hashes %.0f MB/s.\nThe receiver of a connection opens and hashes every byte on "
                  "one thread: %.0f MB/s at most.\nRecords and hashes are %.0f %% of the plain "
                  "program's processor time.\nThe goal is a ratio of %.1f for the large objects: "
                  "%s (rounds: %.2f to %.2f).\n",
                  b->seal_bytes_s / 1e6, b->hash_bytes_s / 1e6, b->bound_bytes_s / 1e6,
                  100 * b->crypto_share, PEER_BENCH_GOAL,
                  b->ratio.bytes_s >= PEER_BENCH_GOAL ? "met" : "not met", b->ratio_min,
                  b->ratio_max);
    struct err e = {0};
    if (r) {
        err_set(&e, ERR_NOMEM, "out of memory");
    }
    r = r ? cli_fail(c, &e) : cli_write(c, t.p, t.n);
    buf_free(&t);
    return r;
}

int cli_bench_peer(struct cli *c, double seconds)
{
    char dir[256], took[CLI_NUM];
    const char *tmp = getenv("TMPDIR");
    struct peer_bench b;
    struct err e = {0}, gone = {0};
    snprintf(dir, sizeof dir, "%s/shoal-bench.XXXXXX",
             tmp && *tmp && strlen(tmp) < 200 ? tmp : "/tmp");
    if (!mkdtemp(dir)) {
        err_set(&e, ERR_IO, "cannot make a temporary folder for the homes of two nodes");
        return cli_fail(c, &e);
    }
    if (!c->json) {
        cli_note(c, "this takes about %s", cli_duration(seconds, took));
    }
    cli_catch_interrupts();
    struct peer_bench_opts o = {
        .dir = dir, .seconds = seconds, .software = "shoal " SHOAL_VERSION, .stop = stop};
    int r = peer_bench(&o, &b, &e);
    if (plat_remove_tree(dir, &gone) && !r) {
        r = gone.code;
        e = gone;
    }
    if (r) {
        return cli_fail(c, &e);
    }
    return c->json ? print_json(c, &b) : print_text(c, &b);
}
