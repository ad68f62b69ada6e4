/* SPDX-License-Identifier: MIT
 * cmd_demo.c: `shoal demo`: the whole machine in a few seconds, and claims that it checks.
 *
 * A loopback HTTP server plays the origin, the cache is an empty temporary folder. The question is
 * asked, everything is closed, and it is asked again: the second answer must have the same receipt,
 * and neither the store nor the server may have seen a byte move. Then that cache is the first of
 * three nodes (demo_nodes.c), the origin is stopped, and the others must give the same receipt from
 * what their peers have. */
#include "node/cli/demo.h"
#include "node/cli/plat.h"
#include "node/demo/server.h"
#include "node/demo/where.h"

#include "proto/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUESTION "Define whale."
/* What the demo model was trained to say; a wrong answer is a broken build. */
#define ANSWER "whale: any of the larger cetacean mammals"

/* The three caches take 60 MB: a disk without the store's usual free space is no reason to fail. */
#define DISK_FLOOR (32u << 20)

/* The rows: node 1, node 1 again, node 2, node 3. */
#define ROWS (DEMO_NODES + 1)

struct demo_opts {
    struct common_opts common;
    struct compute_opts compute;
    bool log;
};

#define AT(f) offsetof(struct demo_opts, f)
static const struct opt show_table[] = {
    {"log", NULL, "show what the nodes log", OPT_FLAG, AT(log), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Demo", show_table, sizeof show_table / sizeof *show_table, 0},
    {"Computation", compute_opts_table, COMPUTE_OPTS_COUNT, AT(compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

struct demo {
    struct cli *c;
    const struct demo_opts *o;
    struct buf model;
    char dir[64], url[64];
    struct demo_server *server;     /* NULL once it is stopped */
    struct demo_server_stats count; /* its numbers at its end */
    struct demo_shoal shoal;
    struct demo_row rows[ROWS];
};

/* ---- asking ---- */

static uint64_t served(const struct demo *d)
{
    struct demo_server_stats v = d->count;
    if (d->server) {
        demo_server_get_stats(d->server, &v);
    }
    return v.bytes;
}

static int answer(struct demo *d, struct cli_session *s, struct answer *a, struct err *e)
{
    struct tok_ids ids = {0};
    struct chat_prompt p;
    int r = chat_simple(QUESTION, NULL, CHAT_THINK_OFF, &p, e);
    if (!r) {
        r = chat_prompt_ids(&p, s->tok, &ids, e);
        chat_prompt_free(&p);
    }
    if (!r) {
        struct answer_opts ao = {.prompt = &ids, .chat = true, .stream = !d->c->json};
        ao.gen.max_new = 100;
        ao.gen.prefill_chunk = s->chunk;
        ao.gen.sample.top_p = 1;
        r = answer_run(s, &ao, a, e);
    }
    tok_ids_free(&ids);
    return r;
}

/* `began`: when what is timed began, by clock_s. */
static int ask(struct demo *d, const struct session_over *over, double began, struct demo_row *row,
               struct err *e)
{
    struct model_opts mo = {.model = d->url,
                            .cache = d->shoal.node[row->node].cache,
                            .disk_floor = {DISK_FLOOR, true},
                            .over = over};
    struct cli_session s;
    uint64_t before = served(d);
    if (cli_interrupted()) {
        return err_set(e, ERR_CANCELLED, "interrupted");
    }
    int r = cli_session_open(&s, d->c, &mo, &d->o->compute, SESSION_INFER, e);
    if (r) {
        return r;
    }
    r = answer(d, &s, &row->answer, e);
    row->seconds = clock_s() - began;
    if (!r) {
        store_get_stats(s.st, &row->store);
        row->stats = cli_session_stats_json(&s, &row->store);
        row->expert_size = s.plan.expert_size;
        row->experts = s.plan.expert_bytes / s.plan.expert_size;
    }
    cli_session_close(&s);
    row->served = served(d) - before;
    return r;
}

/* ---- one node, twice ---- */

static void say_row(struct demo *d, const struct demo_row *r)
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

/* The claims. A sentence in *e says what does not hold. */
static int check_alone(const struct demo *d, struct err *e)
{
    const struct demo_row *a = &d->rows[0], *b = &d->rows[1];
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
                       "%llu); it should take none",
                       (unsigned long long)b->store.origin_bytes, (unsigned long long)b->served);
    }
    return 0;
}

static int alone(struct demo *d, struct err *e)
{
    cli_note(d->c,
             "the demo model (19 million parameters, Kimi K3's architecture and formats) is "
             "served at %s (the origin),",
             d->url);
    cli_note(d->c, "the cache in %s is empty. Question: %s", d->shoal.node[0].cache, QUESTION);
    int r = ask(d, NULL, clock_s(), &d->rows[0], e);
    if (r) {
        return r;
    }
    say_row(d, &d->rows[0]);
    cli_note(d->c, "now everything is closed and opened again, as after a restart. Question: %s",
             QUESTION);
    d->rows[1].again = true;
    r = ask(d, NULL, clock_s(), &d->rows[1], e);
    if (r) {
        return r;
    }
    say_row(d, &d->rows[1]);
    return check_alone(d, e);
}

/* ---- three nodes ---- */

static int check_shared(const struct demo *d, const struct demo_row *r, struct err *e)
{
    const char *first = d->rows[0].answer.receipt;
    unsigned who = r->node + 1;
    uint64_t sum = 0;
    if (strcmp(first, r->answer.receipt) != 0) {
        return err_set(e, ERR_NUMERIC, "node %u has another receipt than node 1: %s and %s", who,
                       r->answer.receipt, first);
    }
    if (r->store.origin_bytes || r->served) {
        return err_set(e, ERR_NET, "node %u took %llu bytes from the origin, which was stopped",
                       who, (unsigned long long)r->store.origin_bytes);
    }
    for (unsigned p = 0; p < DEMO_NODES; p++) {
        sum += r->from[p].bytes;
        if (r->from[p].bytes > r->given[p]) {
            return err_set(
                e, ERR_NET, "node %u counts %llu bytes from node %u, which counts only %llu given",
                who, (unsigned long long)r->from[p].bytes, p + 1, (unsigned long long)r->given[p]);
        }
    }
    if (!sum || sum != r->store.peer_bytes) {
        return err_set(e, ERR_NET,
                       "node %u counts %llu bytes from its peers, and %llu peer by peer", who,
                       (unsigned long long)r->store.peer_bytes, (unsigned long long)sum);
    }
    return 0;
}

/* Which peer gives how much is the quicker one's luck, so it is said and not claimed. */
static void say_shared(struct demo *d, const struct demo_row *r)
{
    char from[200] = "", b[CLI_NUM];
    for (unsigned p = 0; p < r->node; p++) {
        size_t k = strlen(from);
        snprintf(from + k, sizeof from - k, "%s%s from node %u", p ? " and " : "",
                 r->from[p].bytes ? cli_bytes(r->from[p].bytes, b) : "nothing", p + 1);
    }
    cli_note(d->c, "  node %u has answered with %s; the origin was off; the receipt is the same",
             r->node + 1, from);
}

static int ask_node(struct demo *d, unsigned i, struct err *e)
{
    struct demo_row *row = &d->rows[i + 1];
    struct demo_node *n = &d->shoal.node[i];
    double began = clock_s();
    row->node = i;
    cli_note(d->c, "node %u, with an empty cache. Question: %s", i + 1, QUESTION);
    int r = demo_shoal_run(&d->shoal, i, e);
    struct session_over over = {n->node, n->compute};
    r = r ? r : ask(d, &over, began, row, e);
    r = r ? r : demo_shoal_account(&d->shoal, row, e);
    r = r ? r : check_shared(d, row, e);
    if (!r) {
        say_shared(d, row);
    }
    return r;
}

static int together(struct demo *d, struct err *e)
{
    cli_note(d->c,
             "now three nodes, as on three machines: node 1, with that cache, makes a shoal;");
    int r = demo_shoal_begin(&d->shoal, e);
    if (r) {
        return r;
    }
    demo_server_get_stats(d->server, &d->count);
    demo_server_stop(d->server);
    d->server = NULL;
    cli_note(d->c,
             "nodes 2 and 3 have joined it with an invite (all of it on 127.0.0.1, over TLS).");
    cli_note(d->c, "The origin is stopped: nobody answers there any more.");
    for (unsigned i = 1; !r && i < DEMO_NODES; i++) {
        r = ask_node(d, i, e);
    }
    return r;
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
        return err_set(e, ERR_IO, "cannot make a temporary folder for the demo's caches");
    }
    r = demo_server_start(d->model.p, 0, &d->server, e);
    if (r) {
        return r;
    }
    snprintf(d->url, sizeof d->url, "%s", demo_server_url(d->server));
    d->shoal.c = d->c;
    d->shoal.compute = &d->o->compute;
    d->shoal.model = d->url;
    d->shoal.disk_floor = DISK_FLOOR;
    d->shoal.log = d->o->log;
    demo_shoal_init(&d->shoal, d->dir);
    r = alone(d, e);
    return r ? r : together(d, e);
}

/* ---- the result ---- */

static json_t *row_json(struct demo_row *r)
{
    json_t *stats = r->stats;
    r->stats = NULL;
    return json_pack("{s:s%, s:s, s:I, s:f, s:f, s:f, s:o}", "text",
                     r->answer.text.p ? r->answer.text.p : "", r->answer.text.n, "receipt",
                     r->answer.receipt, "served_bytes", (json_int_t)r->served, "prefill_s",
                     r->answer.gen.prefill_s, "decode_s", r->answer.gen.decode_s, "decode_tok_s",
                     r->answer.decode_tok_s, "stats", stats);
}

static json_t *result_json(struct demo *d)
{
    const struct demo_server_stats *v = &d->count;
    json_t *origin = json_pack("{s:I, s:I, s:I}", "requests", (json_int_t)v->requests, "ranges",
                               (json_int_t)v->ranges, "bytes", (json_int_t)v->bytes);
    return json_pack("{s:b, s:s, s:o, s:o, s:o, s:o}", "ok", 1, "question", QUESTION, "first",
                     row_json(&d->rows[0]), "second", row_json(&d->rows[1]), "origin", origin,
                     "nodes", demo_table_json(d->rows, ROWS));
}

static void say_next(struct demo *d)
{
    char cwd[4096];
    const char *exe = d->c->exe[0] ? d->c->exe : "shoal";
    size_t n = getcwd(cwd, sizeof cwd) ? strlen(cwd) : 0;
    if (n && !strncmp(exe, cwd, n) && exe[n] == '/' && strchr(exe + n + 1, '/')) {
        exe += n + 1; /* as it would be typed here: build/shoal */
    }
    cli_note(d->c, "Try next: %s run --chat 'What is a guitar?'", exe);
    cli_note(d->c, "          %s run --help (any K3 model: --model FOLDER or URL)", exe);
    cli_note(d->c, "          %s doctor", exe);
    cli_note(d->c, "To share between your machines, on the first one:");
    cli_note(d->c, "          %s init, then %s up", exe, exe);
    cli_note(d->c, "          %s invite (in another terminal: what the others join with)", exe);
}

static int result(struct demo *d)
{
    const struct demo_server_stats *v = &d->count;
    char a[CLI_NUM];
    if (!d->c->quiet) {
        demo_table(d->rows, ROWS);
    }
    cli_note(d->c,
             "what happened: the origin sent %s in %llu requests, once: metadata, the spine (what "
             "every token needs),",
             cli_bytes(v->bytes, a), (unsigned long long)v->requests);
    cli_note(d->c,
             "and %llu of %llu experts, those that the answer used. Node 1 kept them on disk and "
             "answered again from there;",
             (unsigned long long)d->rows[0].store.experts_fetched,
             (unsigned long long)d->rows[0].experts);
    cli_note(d->c, "nodes 2 and 3 got them from their peers and checked them. The same receipt "
                   "means the same bits.");
    if (d->c->json) {
        return cli_json(d->c, result_json(d));
    }
    say_next(d);
    return CLI_OK;
}

/* A second signal does not kill, since it would leave the caches behind: after the first one the
 * demo ends within seconds. A terminal that is closed counts, too. */
static void catch_all_signals(void)
{
    struct sigaction a, hup;
    cli_catch_interrupts();
    if (sigaction(SIGINT, NULL, &a)) {
        return;
    }
    a.sa_flags &= ~SA_RESETHAND;
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    if (!sigaction(SIGHUP, NULL, &hup) && hup.sa_handler != SIG_IGN) { /* as nohup leaves it */
        sigaction(SIGHUP, &a, NULL);
    }
}

/* What a full disk breaks shows up in many ways. */
static void say_full(struct demo *d)
{
    uint64_t left;
    struct err e;
    char a[CLI_NUM];
    if (d->dir[0] && !plat_disk_free(d->dir, &left, &e) && left < 2 * DISK_FLOOR) {
        cli_note(d->c,
                 "%s has only %s left, and the demo needs 100 MB there: set TMPDIR to a folder "
                 "with more",
                 d->dir, cli_bytes(left, a));
    }
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    struct cli brief = *c;
    struct demo d = {.c = &brief, .o = opts};
    struct err e = {0};
    brief.brief = true;
    catch_all_signals(); /* from the start, so that the temporary caches are always removed */
    buf_init(&d.model, 4096);
    int status = play(&d, &e);
    if (status) {
        status = cli_fail(c, &e);
        say_full(&d);
    } else {
        status = result(&d);
    }
    for (int i = 0; i < ROWS; i++) {
        demo_row_free(&d.rows[i]);
    }
    demo_shoal_end(&d.shoal);
    demo_server_stop(d.server);
    if (d.dir[0] && plat_remove_tree(d.dir, &e)) {
        cli_note(c, "%s", e.msg);
    }
    buf_free(&d.model);
    return status;
}

const struct command cmd_demo = {
    .name = "demo",
    .args = "",
    .summary = "see it work: a small model over HTTP, then shared by three nodes",
    .details =
        "Serves the demo model on this machine by HTTP, with an empty temporary cache, asks it\n"
        "\"" QUESTION "\", closes everything and asks again. Then it makes a shoal of three nodes\n"
        "with a cache each, stops the server, and asks the second and the third node, which get\n"
        "what they need from the others. The exit status is 1 unless all four answers are the "
        "same\n"
        "bit for bit and only the first took anything from the server. A table shows who got what\n"
        "from whom. Everything stays on 127.0.0.1; nothing is left behind.",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct demo_opts),
    .run = run,
};
