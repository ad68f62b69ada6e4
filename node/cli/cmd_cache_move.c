/* SPDX-License-Identifier: MIT
 * cmd_cache_move.c: `shoal cache move`: the cache goes to another folder or volume. */
#include "node/cli/cache.h"
#include "node/store/at_rest.h"
#include "node/store/place.h"
#include "node/store/rest_move.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <unistd.h>

#define SAY_NS 1000000000u

struct move_opts {
    struct common_opts common;
    struct cache_where where;
};

static const struct opt_group groups[] = {
    {"Where", cache_where_table, CACHE_WHERE_COUNT, offsetof(struct move_opts, where)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

struct report {
    struct cli *c;
    uint64_t started, said;
};

static void on_note(void *ctx, const char *line)
{
    struct report *r = ctx;
    cli_note(r->c, "%s", line);
}

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct report *r = ctx;
    uint64_t now = clock_ns();
    if (done && done < total && now - r->said > SAY_NS && isatty(STDERR_FILENO)) {
        char a[CLI_NUM], b[CLI_NUM], s[CLI_NUM], t[CLI_NUM];
        double took = (double)(now - r->started) / 1e9, rate = (double)done / took;
        cli_note(r->c, "%s of %s copied, %s/s, %s left", cli_bytes(done, a), cli_bytes(total, b),
                 cli_bytes((uint64_t)rate, s), cli_duration((double)(total - done) / rate, t));
        r->said = now;
    }
    return cli_interrupted();
}

static int done(struct cli *c, const struct rest_moved *m, double seconds)
{
    char a[CLI_NUM], b[CLI_NUM], t[CLI_NUM];
    if (c->json) {
        return cli_json(
            c, json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:b,s:f}", "from", m->from, "to", m->to, "files",
                         (json_int_t)m->files, "bytes", (json_int_t)m->bytes, "copied_bytes",
                         (json_int_t)m->copied_bytes, "left_out", (json_int_t)m->left_out,
                         "resumed", (int)m->resumed, "seconds", seconds));
    }
    cli_note(c, "the cache lies in %s now: %llu files, %s; %s were copied, in %s", m->to,
             (unsigned long long)m->files, cli_bytes(m->bytes, a), cli_bytes(m->copied_bytes, b),
             cli_duration(seconds, t));
    if (m->left_out) {
        cli_note(c, "%llu damaged objects stayed behind: they are fetched again when wanted",
                 (unsigned long long)m->left_out);
    }
    cli_note(c, "%s leads there: everything that used it goes on as it was", m->from);
    return CLI_OK;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct move_opts *o = opts;
    struct report rep = {.c = c, .started = clock_ns()};
    struct rest_moved m;
    struct cli_home h;
    struct buf named;
    struct err e = {0};
    (void)argc;
    buf_init(&named, PLACE_PATH_MAX);
    int r = cache_where_named(c, &o->where, &h, &named, &e);
    int status = r == ERR_ARG ? cli_usage(c, "%s", e.msg) : r ? cli_fail(c, &e) : CLI_OK;
    if (!r) {
        struct rest_move mv = {
            .cache = named.p, .to = argv[0], .note = on_note, .progress = on_progress, .ctx = &rep};
        cli_catch_interrupts();
        struct buf at;
        buf_init(&at, PLACE_PATH_MAX);
        r = !place_find(named.p, &at, NULL) ? rest_writable(at.p, "moving it", &e) : 0;
        buf_free(&at);
        r = r ? r : rest_move(&mv, &m, &e);
        status = r ? cli_fail(c, &e) : done(c, &m, (double)(clock_ns() - rep.started) * 1e-9);
    }
    buf_free(&named);
    cli_home_close(&h);
    return status;
}

const struct command cmd_cache_move = {
    .name = "cache move",
    .args = "DIR",
    .summary = "bring the whole cache to another folder or volume",
    .details =
        "DIR is a new or an empty folder. While nothing uses the cache (end shoal up before), its\n"
        "files are copied there, compared and written down to the disk; then, in one step, DIR\n"
        "is the cache, and the old files are removed. In the old folder a small file remains\n"
        "that leads to DIR: home and options stay as they were. Ended at any time, by a signal\n"
        "or a power cut, one of the two folders is whole and used, and the same command goes on.\n"
        "On the same volume nothing is copied. Damaged files stay behind; adopted folders stay\n"
        "where they are. A cache comes back by being moved to where it was.",
    .examples = "  shoal cache move /Volumes/Big/shoal-cache\n"
                "  shoal cache move /mnt/disk2/k3 --home ~/shoal\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(struct move_opts),
    .run = run,
};
