/* SPDX-License-Identifier: MIT
 * cmd_demo.c: `shoal demo`: the whole machine in a few seconds, and a claim that it checks.
 *
 * A loopback HTTP server plays the origin, the cache is an empty temporary folder. The question is
 * asked, everything is closed, and it is asked again: the second answer must have the same receipt,
 * and neither the store nor the server may have seen a byte move. */
#include "node/cli/answer.h"
#include "node/cli/plat.h"
#include "node/demo/server.h"
#include "node/demo/where.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUESTION "Define whale."
/* What the demo model was trained to say; a wrong answer is a broken build. */
#define ANSWER "whale: any of the larger cetacean mammals"

/* The cache takes 20 MB: a disk without the store's usual free space is no reason to fail. */
#define DISK_FLOOR (32u << 20)

struct demo_opts {
    struct common_opts common;
    struct compute_opts compute;
};

static const struct opt_group groups[] = {
    {"Computation", compute_opts_table, COMPUTE_OPTS_COUNT, offsetof(struct demo_opts, compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

/* One asking of the question. */
struct round {
    struct answer answer;
    struct store_stats store;
    json_t *stats;
    uint64_t experts; /* of the model */
    uint64_t served;  /* bytes that the server says it sent */
};

struct demo {
    struct cli *c;
    const struct demo_opts *o;
    struct buf model, cache;
    char dir[64];
    struct demo_server *server;
    struct round rounds[2];
};

static int ask(struct demo *d, struct round *r, struct err *e)
{
    struct model_opts mo = {
        .model = demo_server_url(d->server), .cache = d->cache.p, .disk_floor = DISK_FLOOR};
    struct demo_server_stats before, after;
    struct cli_session s;
    struct tok_ids ids = {0};
    struct chat_prompt p;
    demo_server_get_stats(d->server, &before);
    int rc = cli_session_open(&s, d->c, &mo, &d->o->compute, SESSION_INFER, e);
    if (rc) {
        return rc;
    }
    rc = chat_simple(QUESTION, NULL, CHAT_THINK_OFF, &p, e);
    if (!rc) {
        rc = chat_prompt_ids(&p, s.tok, &ids, e);
        chat_prompt_free(&p);
    }
    if (!rc) {
        struct answer_opts ao = {.prompt = &ids, .chat = true, .stream = !d->c->json};
        ao.gen.max_new = 100;
        ao.gen.prefill_chunk = s.chunk;
        ao.gen.sample.top_p = 1;
        rc = answer_run(&s, &ao, &r->answer, e);
    }
    if (!rc) {
        store_get_stats(s.st, &r->store);
        r->stats = cli_session_stats_json(&s, &r->store);
        r->experts = s.plan.expert_bytes / s.plan.expert_size;
    }
    tok_ids_free(&ids);
    cli_session_close(&s);
    demo_server_get_stats(d->server, &after);
    r->served = after.bytes - before.bytes;
    return rc;
}

static void say_round(struct demo *d, const struct round *r)
{
    char a[CLI_NUM], b[CLI_NUM], t[CLI_NUM];
    cli_note(
        d->c,
        "  answered in %s, %.0f tokens a second; experts from RAM %llu, disk %llu, origin %llu; "
        "%s read from disk, %s from the origin",
        cli_duration(r->answer.gen.prefill_s + r->answer.gen.decode_s, t), r->answer.decode_tok_s,
        (unsigned long long)r->store.ram_hits, (unsigned long long)r->store.disk_hits,
        (unsigned long long)r->store.origin_fetches, cli_bytes(r->store.disk_bytes, a),
        cli_bytes(r->store.origin_bytes, b));
    cli_note(d->c, "  receipt %s", r->answer.receipt);
}

/* The claim. A sentence in *e says what does not hold. */
static int check(const struct demo *d, struct err *e)
{
    const struct round *a = &d->rounds[0], *b = &d->rounds[1];
    const struct buf *text = &a->answer.text;
    if (text->n < strlen(ANSWER) || memcmp(text->p, ANSWER, strlen(ANSWER)) != 0) {
        return err_set(e, ERR_NUMERIC, "the answer is \"%.200s\" and should begin \"%s\"",
                       text->p ? text->p : "", ANSWER);
    }
    if (strcmp(a->answer.receipt, b->answer.receipt) != 0) {
        return err_set(e, ERR_NUMERIC, "the two answers have different receipts: %s and %s",
                       a->answer.receipt, b->answer.receipt);
    }
    if (a->served == 0 || a->store.origin_bytes == 0) {
        return err_set(e, ERR_NET, "the first answer took nothing from the origin");
    }
    if (b->served || b->store.origin_bytes) {
        return err_set(e, ERR_NET,
                       "the second answer took %llu bytes from the origin (the origin counted "
                       "%llu); it should take none. A disk with less than 60 MB free does this: "
                       "set TMPDIR to a folder with more",
                       (unsigned long long)b->store.origin_bytes, (unsigned long long)b->served);
    }
    return 0;
}

static int play(struct demo *d, struct err *e)
{
    int r = demo_model_find(d->c->exe, &d->model, e);
    if (r) {
        return r;
    }
    const char *tmp = getenv("TMPDIR");
    snprintf(d->dir, sizeof d->dir, "%s/shoal-demo.XXXXXX",
             tmp && *tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    if (!mkdtemp(d->dir)) {
        d->dir[0] = 0;
        return err_set(e, ERR_IO, "cannot make a temporary folder for the demo's cache");
    }
    if (buf_addf(&d->cache, "%s/cache", d->dir)) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    r = demo_server_start(d->model.p, 0, &d->server, e);
    if (r) {
        return r;
    }
    cli_note(d->c,
             "the demo model (19 million parameters, Kimi K3's architecture and formats) is "
             "served at %s (the origin),",
             demo_server_url(d->server));
    cli_note(d->c, "the cache in %s is empty. Question: %s", d->cache.p, QUESTION);
    r = ask(d, &d->rounds[0], e);
    if (r) {
        return r;
    }
    say_round(d, &d->rounds[0]);
    cli_note(d->c, "now everything is closed and opened again, as after a restart. Question: %s",
             QUESTION);
    r = ask(d, &d->rounds[1], e);
    if (r) {
        return r;
    }
    say_round(d, &d->rounds[1]);
    return check(d, e);
}

static json_t *round_json(struct round *r)
{
    json_t *stats = r->stats;
    r->stats = NULL;
    return json_pack("{s:s%, s:s, s:I, s:f, s:f, s:f, s:o}", "text",
                     r->answer.text.p ? r->answer.text.p : "", r->answer.text.n, "receipt",
                     r->answer.receipt, "served_bytes", (json_int_t)r->served, "prefill_s",
                     r->answer.gen.prefill_s, "decode_s", r->answer.gen.decode_s, "decode_tok_s",
                     r->answer.decode_tok_s, "stats", stats);
}

static int result(struct demo *d)
{
    struct demo_server_stats v;
    char a[CLI_NUM];
    demo_server_get_stats(d->server, &v);
    if (d->c->json) {
        return cli_json(d->c, json_pack("{s:b, s:s, s:o, s:o, s:{s:I, s:I, s:I}}", "ok", 1,
                                        "question", QUESTION, "first", round_json(&d->rounds[0]),
                                        "second", round_json(&d->rounds[1]), "origin", "requests",
                                        (json_int_t)v.requests, "ranges", (json_int_t)v.ranges,
                                        "bytes", (json_int_t)v.bytes));
    }
    cli_note(
        d->c,
        "what happened: the origin sent %s in %llu requests: metadata, the spine (what every token "
        "needs), and %llu of %llu experts, those that the answer used.",
        cli_bytes(v.bytes, a), (unsigned long long)v.requests,
        (unsigned long long)d->rounds[0].store.experts_fetched,
        (unsigned long long)d->rounds[0].experts);
    cli_note(d->c,
             "They were checked, kept on disk, and the second answer came from there: nothing "
             "from the origin, the same receipt, so the same bits.");
    char cwd[4096];
    const char *exe = d->c->exe[0] ? d->c->exe : "shoal";
    size_t n = getcwd(cwd, sizeof cwd) ? strlen(cwd) : 0;
    if (n && !strncmp(exe, cwd, n) && exe[n] == '/' && strchr(exe + n + 1, '/')) {
        exe += n + 1; /* as it would be typed here: build/shoal */
    }
    cli_note(d->c, "Try next: %s run --chat 'What is a guitar?'", exe);
    cli_note(d->c, "          %s run --chat 'Define whale.' --effort high --json", exe);
    cli_note(d->c, "          %s doctor", exe);
    cli_note(d->c, "          %s run --help (any K3 model: --model FOLDER or URL)", exe);
    return CLI_OK;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    struct cli brief = *c;
    struct demo d = {.c = &brief, .o = opts};
    struct err e = {0};
    brief.brief = true;
    cli_catch_interrupts(); /* from the start, so that the temporary cache is always removed */
    buf_init(&d.model, 4096);
    buf_init(&d.cache, 4096);
    int status = play(&d, &e) ? cli_fail(c, &e) : result(&d);
    for (int i = 0; i < 2; i++) {
        answer_free(&d.rounds[i].answer);
        json_decref(d.rounds[i].stats);
    }
    demo_server_stop(d.server);
    if (d.dir[0] && plat_remove_tree(d.dir, &e)) {
        cli_note(c, "%s", e.msg);
    }
    buf_free(&d.model);
    buf_free(&d.cache);
    return status;
}

const struct command cmd_demo = {
    .name = "demo",
    .args = "",
    .summary = "see it work: stream a small model over HTTP, answer twice",
    .details =
        "Serves the demo model on this machine by HTTP, with an empty temporary cache, asks it\n"
        "\"" QUESTION "\", closes everything and asks again. The exit status is 1 unless the\n"
        "second answer is the same bit for bit and took nothing from the origin. Nothing is left\n"
        "behind.",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct demo_opts),
    .run = run,
};
