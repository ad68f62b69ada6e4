/* SPDX-License-Identifier: MIT
 * cmd_bench.c: `shoal bench kernels`: how near the matrix products come to the memory's read rate;
 * `shoal bench peer` (bench_peer.c): how near two nodes come to plain TLS; `shoal bench cache`
 * (bench_cache.c): what a cache would have saved on recorded routes; `shoal bench read`
 * (bench_read.c): how near cold reads of experts come to fio; `shoal bench decode` and `prefill`
 * (bench_model.c): how near tokens come to the longer of reading and computing. */
#include "kernels/bench.h"
#include "node/cli/bench_cache.h"
#include "node/cli/bench_model.h"
#include "node/cli/bench_peer.h"
#include "node/cli/bench_read.h"
#include "node/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_opts {
    struct common_opts common;
    struct opt_choice isa;
    struct opt_count threads, memory;
    struct opt_real seconds;
    const char *only;
    struct opt_count flat, disk;
    const char *model, *home, *cache;
    struct opt_count ram, spine_ram, chunk, tokens, rounds;
    struct opt_choice prefetch;
    const char *receipt, *plot;
};

static const char *const isa_names[] = {"auto", "scalar", "avx2", "neon", NULL};
#define AT(f) offsetof(struct bench_opts, f)
static const struct opt own_opts[] = {
    {"isa", "SET", "instruction set: auto, scalar, avx2 or neon", OPT_CHOICE, AT(isa), 0, 0,
     isa_names},
    {"threads", "N", "workers; default: one for each performance core", OPT_COUNT, AT(threads), 1,
     1024, NULL},
    {"seconds", "X", "about how long in all; default 20", OPT_REAL, AT(seconds), 0, 3600, NULL},
    {"memory", "SIZE", "weights in memory at most; default 512 MiB", OPT_BYTES, AT(memory), 1 << 20,
     1e15, NULL},
    {"only", "NAME", "only the products whose name begins like this", OPT_TEXT, AT(only), 0, 0,
     NULL},
};
static const struct opt cache_opts[] = {
    {"flat", "TOKENS",
     "in place of a file: made-up routes at Kimi K3's shape, of routers that prefer nothing",
     OPT_COUNT, AT(flat), 1, 2000, NULL},
    {"disk", "SIZE", "bytes a second that are read in place of a miss; default 6G", OPT_BYTES,
     AT(disk), 1, 1e15, NULL},
};
static const struct opt read_opts[] = {
    {"model", "M", "the model whose experts are read: a folder or an http(s) URL", OPT_TEXT,
     AT(model), 0, 0, NULL},
    {"home", "DIR", "the home with the cache; default: the platform's place", OPT_TEXT, AT(home), 0,
     0, NULL},
    {"cache", "DIR", "the cache, in place of a home's", OPT_TEXT, AT(cache), 0, 0, NULL},
};
static const char *const prefetch_names[] = {"auto", "off", "on", NULL};
static const struct opt model_opts[] = {
    {"ram-budget", "SIZE", "memory for experts; default: as of shoal run", OPT_BYTES, AT(ram), 0,
     1e18, NULL},
    {"spine-ram", "SIZE", "memory for the spine; default: as of shoal run", OPT_BYTES,
     AT(spine_ram), 0, 1e18, NULL},
    {"prefill-chunk", "N", "tokens a call of prefill; default: as of shoal run", OPT_COUNT,
     AT(chunk), 1, 65536, NULL},
    {"prefetch", "WHEN", "guess the next layer's experts: auto, off or on (the default here)",
     OPT_CHOICE, AT(prefetch), 0, 0, prefetch_names},
    {"tokens", "N", "tokens a round; default 12, of prefill 128", OPT_COUNT, AT(tokens), 1,
     BENCH_TOKENS_MAX, NULL},
    {"rounds", "N", "rounds; default 5", OPT_COUNT, AT(rounds), 1, BENCH_ROUNDS_MAX, NULL},
    {"receipt", "HEX", "refuse to report any run that has another receipt", OPT_TEXT, AT(receipt),
     0, 0, NULL},
    {"plot", "FILE", "draw the rounds into an SVG file", OPT_TEXT, AT(plot), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Benchmark", own_opts, sizeof own_opts / sizeof *own_opts, 0},
    {"Of cache", cache_opts, sizeof cache_opts / sizeof *cache_opts, 0},
    {"Of read, decode and prefill", read_opts, sizeof read_opts / sizeof *read_opts, 0},
    {"Of decode and prefill", model_opts, sizeof model_opts / sizeof *model_opts, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

static int run_cache(struct cli *c, const struct bench_opts *o, int argc, char **argv)
{
    if (o->isa.set || o->threads.set || o->memory.set || o->only || o->seconds.set) {
        return cli_usage(c, "bench cache: --isa, --threads, --memory, --only and --seconds are of "
                            "kernels and peer");
    }
    if ((argc > 1) == o->flat.set) {
        return cli_usage(c, "bench cache: give a file that shoal run --record-routes wrote, or "
                            "--flat TOKENS");
    }
    return cli_bench_cache(c, argc > 1 ? argv[1] : NULL, (uint32_t)o->flat.v,
                           o->disk.set ? o->disk.v : 6000000000u);
}

static int run_peer(struct cli *c, const struct bench_opts *o)
{
    if (o->isa.set || o->threads.set || o->memory.set || o->only) {
        return cli_usage(c, "bench peer: --isa, --threads, --memory and --only are of kernels");
    }
    return cli_bench_peer(c, o->seconds.set ? o->seconds.v : 20);
}

static int run_read(struct cli *c, const struct bench_opts *o)
{
    if (o->isa.set || o->threads.set || o->memory.set || o->only) {
        return cli_usage(c, "bench read: --isa, --threads, --memory and --only are of kernels");
    }
    if (!o->model || (o->home && o->cache)) {
        return cli_usage(c, "bench read: give --model M, and at most one of --home and --cache");
    }
    return cli_bench_read(c, o->model, o->home, o->cache, o->seconds.set ? o->seconds.v : 20);
}

static bool of_model(const struct bench_opts *o)
{
    return o->ram.set || o->spine_ram.set || o->chunk.set || o->tokens.set || o->rounds.set ||
           o->prefetch.set || o->receipt || o->plot;
}

static int run_model(struct cli *c, const struct bench_opts *o, int argc, bool prefill)
{
    if (argc > 1 || o->memory.set || o->only || o->seconds.set || o->flat.set || o->disk.set) {
        return cli_usage(c, "bench decode and prefill take no file and none of --memory, --only, "
                            "--seconds, --flat and --disk");
    }
    if (o->home && o->cache) {
        return cli_usage(c, "give only one of --home, which has a cache, and --cache");
    }
    if (o->receipt && (strlen(o->receipt) != 2 * SHA256_SIZE ||
                       strspn(o->receipt, "0123456789abcdef") != 2 * SHA256_SIZE)) {
        return cli_usage(c, "--receipt: \"%.80s\" is not 64 hexadecimal digits", o->receipt);
    }
    struct bench_model_opts b = {.model = o->model,
                                 .home = o->home,
                                 .cache = o->cache,
                                 .compute = {.threads = o->threads,
                                             .ram = o->ram,
                                             .spine_ram = o->spine_ram,
                                             .chunk = o->chunk,
                                             .isa = o->isa,
                                             .prefetch = o->prefetch},
                                 .prefill = prefill,
                                 .tokens = (uint32_t)o->tokens.v,
                                 .rounds = (uint32_t)o->rounds.v,
                                 .receipt = o->receipt,
                                 .plot = o->plot};
    return cli_bench_model(c, &b);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct bench_opts *o = opts;
    bool prefill = strcmp(argv[0], "prefill") == 0;
    if (prefill || strcmp(argv[0], "decode") == 0) {
        return run_model(c, o, argc, prefill);
    }
    if (of_model(o)) {
        return cli_usage(c,
                         "bench %.20s: --ram-budget, --spine-ram, --prefill-chunk, --prefetch, "
                         "--tokens, --rounds, --receipt and --plot are of decode and prefill",
                         argv[0]);
    }
    bool read = strcmp(argv[0], "read") == 0;
    if (!read && (o->model || o->home || o->cache)) {
        return cli_usage(c,
                         "bench %.20s: --model, --home and --cache are of read, "
                         "decode and prefill",
                         argv[0]);
    }
    if (strcmp(argv[0], "cache") == 0) {
        return run_cache(c, o, argc, argv);
    }
    if (argc > 1 || o->flat.set || o->disk.set) {
        return cli_usage(c, "bench %.20s: a file, --flat and --disk are of cache", argv[0]);
    }
    if (read) {
        return run_read(c, o);
    }
    if (strcmp(argv[0], "peer") == 0) {
        return run_peer(c, o);
    }
    if (strcmp(argv[0], "kernels") != 0) {
        return cli_usage(
            c,
            "bench: there is no benchmark \"%.100s\"; there are: kernels, peer, cache, "
            "read, decode and prefill",
            argv[0]);
    }
    struct kern_bench_opts b = {.isa = o->isa.set ? (enum kern_isa)o->isa.v : KERN_ISA_AUTO,
                                .threads = (unsigned)o->threads.v,
                                .seconds = o->seconds.set ? o->seconds.v : 20,
                                .memory = (size_t)o->memory.v,
                                .only = o->only};
    char took[CLI_NUM];
    if (!c->json) {
        cli_note(c, "this takes about %s", cli_duration(b.seconds, took));
    }
    /* JSON is held back until it is known to be whole. */
    char *text = NULL;
    size_t n = 0;
    FILE *f = c->json ? open_memstream(&text, &n) : stdout;
    int r = f ? kern_bench(f, c->json, &b) : KERN_ENOMEM;
    if (f && c->json && fclose(f)) {
        r = KERN_ENOMEM;
    }
    int status = r ? CLI_FAILED : cli_write(c, text, n);
    free(text);
    if (!r) {
        return status;
    }
    if (r == KERN_EINVAL) {
        return cli_usage(c, "--only %.100s: no product has a name that begins like this", o->only);
    }
    struct err e = {0};
    if (r == KERN_ENOTSUP) {
        err_set(&e, ERR_UNSUPPORTED, "--isa %s: this processor does not have it", isa_names[b.isa]);
    } else {
        err_set(&e, ERR_NOMEM, "not enough memory for the weights: give a smaller --memory");
    }
    return cli_fail(c, &e);
}

const struct command cmd_bench = {
    .name = "bench",
    .args = "kernels|peer|cache|read|decode|prefill [FILE]",
    .summary = "measure this machine",
    .details =
        "kernels: packed weight bytes a second of each matrix product at Kimi K3's shapes, beside\n"
        "the rate at which the same threads read memory, measured in the same process. The\n"
        "share, their quotient, says how far from the limit a product is. T tokens are computed\n"
        "together: the weights are read once for all of them.\n"
        "\n"
        "peer: two nodes on 127.0.0.1 move objects of 17.5 MB and of 4 KiB from one to the other, "
        "in\n"
        "turn with one plain client and one plain server of the same TLS library and cipher suite\n"
        "that hash what they receive in the same way. The ratio of the rates says what a node "
        "adds.\n"
        "\n"
        "cache: experts that a model chose (shoal run --record-routes FILE) through caches of\n"
        "several sizes and policies: the share found, the bytes read for a token, the time they\n"
        "take. The optimum knows the future: no policy can do better.\n"
        "\n"
        "read: experts of the cache as a token reads them when none is in memory, beside the "
        "program\n"
        "fio (to be installed apart) with the same files, readers and sizes.\n"
        "\n"
        "decode, prefill: made-up tokens of a model, one by one or in chunks, read past the page\n"
        "cache as where memory cannot hold it; in turn with the same reads and nothing computed, "
        "and\n"
        "with all in memory. The ratio of the whole to the longer of the two says how much of one\n"
        "hides behind the other. Every run must have the same receipt, else nothing is reported.",
    .examples = "  shoal bench kernels\n  shoal bench kernels --only mxfp4 --seconds 5 --json\n"
                "  shoal bench peer --seconds 40\n"
                "  shoal bench cache chat.routes --disk 6G\n  shoal bench cache --flat 100\n"
                "  shoal bench read --model https://host/model\n"
                "  shoal bench decode --model M --cache DIR --ram-budget 256M --plot decode.svg\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .min_args = 1,
    .max_args = 2,
    .size = sizeof(struct bench_opts),
    .run = run,
};
