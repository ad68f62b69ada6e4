/* SPDX-License-Identifier: MIT
 * cmd_logits.c: `shoal logits`: the logits of every position of a prompt, into a file. */
#include "node/cli/session.h"
#include "node/infer/logits.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct logits_cmd {
    struct common_opts common;
    struct model_opts model;
    struct compute_opts compute;
    const char *ids, *prompt, *out;
    bool special;
};

#define AT(f) offsetof(struct logits_cmd, f)
static const struct opt own_opts[] = {
    {"ids", "1,2,3", "token ids", OPT_TEXT, AT(ids), 0, 0, NULL},
    {"prompt", "TEXT", "raw text in place of --ids", OPT_TEXT, AT(prompt), 0, 0, NULL},
    {"special", NULL, "read <|open|> and the like in --prompt as special tokens", OPT_FLAG,
     AT(special), 0, 0, NULL},
    {"out", "FILE", "where the logits go; it appears only when it is complete", OPT_TEXT, AT(out),
     0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Input and output (--out, and --ids or --prompt)", own_opts,
     sizeof own_opts / sizeof *own_opts, 0},
    {"Model", model_opts_table, MODEL_OPTS_COUNT, AT(model)},
    {"Computation", compute_opts_table, COMPUTE_OPTS_COUNT, AT(compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

#define CHUNK_BYTES ((size_t)64 << 20) /* logits held in memory at a time */

struct writer {
    struct cli_session *s;
    int fd;
    const char *name;
    uint8_t *bytes;
    size_t vocab, all;
};

/* Rows to the file, little-endian. */
static int on_rows(void *ctx, size_t at, size_t n, const float *logits, struct err *e)
{
    struct writer *w = ctx;
    for (size_t i = 0; i < n * w->vocab; i++) {
        uint32_t u;
        memcpy(&u, &logits[i], 4);
        num_put_le32(w->bytes + 4 * i, u);
    }
    cli_session_phase(w->s, PHASE_PREFILL, at + n, w->all);
    return file_pwrite(w->fd, w->name, w->bytes, n * w->vocab * 4, (uint64_t)at * w->vocab * 4, e);
}

static void on_again(void *ctx, const char *why)
{
    struct writer *w = ctx;
    cli_note(w->s->c, "all of it is computed anew: %s", why);
    cli_session_phase(w->s, PHASE_PREFILL, 0, w->all);
}

static int write_rows(struct cli_session *s, const struct tok_ids *ids, int fd, const char *name,
                      struct logits_result *out, struct err *e)
{
    size_t vocab = model_config(s->m)->vocab, chunk = CHUNK_BYTES / (vocab * 4);
    chunk = chunk < 1 ? 1 : chunk > s->chunk ? s->chunk : chunk;
    struct writer w = {s, fd, name, malloc(chunk * vocab * 4), vocab, ids->n};
    struct logits_opts o = {
        .ids = ids->v, .n = ids->n, .chunk = chunk, .rows = on_rows, .again = on_again, .ctx = &w};
    cli_session_phase(s, PHASE_PREFILL, 0, ids->n);
    int r = w.bytes ? logits_all(s->f, s->m, &o, out, e)
                    : err_set(e, ERR_NOMEM, "no memory for the logits");
    cli_session_phase(s, PHASE_QUIET, 0, 0);
    free(w.bytes);
    return r;
}

static int write_file(struct cli_session *s, const struct tok_ids *ids, const char *out,
                      struct logits_result *res, struct err *e)
{
    char tmp[4096];
    int k = snprintf(tmp, sizeof tmp, "%s.partial", out);
    if (k < 0 || (size_t)k >= sizeof tmp) {
        return err_set(e, ERR_ARG, "the path of --out is too long");
    }
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return err_sys(e, errno, "cannot write %s", tmp);
    }
    int r = write_rows(s, ids, fd, tmp, res, e);
    if (close(fd) && !r) {
        r = err_sys(e, errno, "cannot write %s", tmp);
    }
    if (!r && rename(tmp, out)) {
        r = err_sys(e, errno, "cannot rename %s to %s", tmp, out);
    }
    if (r) {
        unlink(tmp);
    }
    return r;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct logits_cmd *o = opts;
    struct err e = {0};
    struct tok_ids ids = {0};
    struct cli_session s;
    if (!o->out) {
        return cli_usage(c, "--out is missing: name the file for the logits");
    }
    if (!o->ids == !o->prompt) {
        return cli_usage(c,
                         o->ids ? "give only one of --ids and --prompt" : "give --ids or --prompt");
    }
    if (model_opts_check(&o->model, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    if (o->ids && cli_session_parse_ids(o->ids, &ids, &e)) {
        tok_ids_free(&ids);
        return cli_usage(c, "%s", e.msg);
    }
    if (cli_session_open(&s, c, &o->model, &o->compute, SESSION_INFER, &e)) {
        tok_ids_free(&ids);
        return cli_fail(c, &e);
    }
    cli_catch_interrupts();
    double t = clock_s();
    int r = o->prompt ? cli_session_need_tok(&s, &e) : 0;
    if (!r && o->prompt) {
        r = tok_encode(s.tok, o->prompt, strlen(o->prompt), o->special, &ids, &e);
        if (!r && !ids.n) {
            r = err_set(&e, ERR_ARG, "the prompt is empty");
        }
    }
    r = r ? r : cli_session_check_ids(&s, &ids, &e);
    if (!r && ids.n > model_config(s.m)->max_positions) {
        r = err_set(&e, ERR_LIMIT, "the prompt has %zu tokens; this model takes at most %u", ids.n,
                    model_config(s.m)->max_positions);
    }
    cli_session_computing(&s, 1);
    struct logits_result res = {0};
    r = r ? r : write_file(&s, &ids, o->out, &res, &e);
    cli_session_computing(&s, -1);
    int status;
    uint32_t vocab = model_config(s.m)->vocab;
    if (r) {
        status = cli_fail(c, &e);
    } else if (c->json) {
        struct store_stats v;
        store_get_stats(s.st, &v);
        status = cli_json(c, json_pack("{s:s, s:I, s:I, s:I, s:f, s:i, s:o, s:o}", "file", o->out,
                                       "positions", (json_int_t)ids.n, "vocab", (json_int_t)vocab,
                                       "bytes", (json_int_t)((uint64_t)ids.n * vocab * 4),
                                       "compute_s", clock_s() - t, "again", (int)res.again, "basis",
                                       cli_basis_json(s.st, &res.since), "stats",
                                       cli_session_stats_json(&s, &v)));
    } else {
        cli_note(c, "%zu rows of %u numbers in %s", ids.n, vocab, o->out);
        cli_say_basis(c, s.st, &res.since);
        status = CLI_OK;
    }
    tok_ids_free(&ids);
    cli_session_close(&s);
    return status;
}

const struct command cmd_logits = {
    .name = "logits",
    .args = "",
    .summary = "write the logits of every position of a prompt",
    .details =
        "The file holds one row for each position: vocab-size binary32 numbers, little-endian.",
    .examples = "  shoal logits --model K3 --ids 1,2,3 --out logits.f32\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct logits_cmd),
    .run = run,
};
