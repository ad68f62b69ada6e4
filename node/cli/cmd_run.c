/* SPDX-License-Identifier: MIT
 * cmd_run.c: `shoal run`: one prompt, one answer. */
#include "node/cli/answer.h"
#include "node/text/tok_utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_opts {
    struct common_opts common;
    struct model_opts model;
    struct compute_opts compute;
    const char *prompt, *chat, *ids, *system, *effort, *record_routes, *speculate;
    bool no_think, special, ignore_eos;
    struct opt_count max_new, top_k, seed, reload_after;
    struct opt_real temperature, top_p, min_p;
};

#define AT(f) offsetof(struct run_opts, f)
static const struct opt prompt_opts[] = {
    {"prompt", "TEXT", "raw text to continue", OPT_TEXT, AT(prompt), 0, 0, NULL},
    {"chat", "TEXT", "a message to answer, put through the chat template", OPT_TEXT, AT(chat), 0, 0,
     NULL},
    {"ids", "1,2,3", "token ids to continue", OPT_TEXT, AT(ids), 0, 0, NULL},
    {"special", NULL, "read <|open|> and the like in --prompt as special tokens", OPT_FLAG,
     AT(special), 0, 0, NULL},
    {"system", "TEXT", "a system message in front of --chat", OPT_TEXT, AT(system), 0, 0, NULL},
    {"effort", "LEVEL", "how long --chat thinks: none, minimal, low, medium, high or max (default)",
     OPT_TEXT, AT(effort), 0, 0, NULL},
    {"no-think", NULL, "answer --chat at once: the same as --effort none", OPT_FLAG, AT(no_think),
     0, 0, NULL},
};
static const struct opt answer_opts[] = {
    {"max-new", "N", "most new tokens; default 512", OPT_COUNT, AT(max_new), 1, 1e7, NULL},
    {"ignore-eos", NULL, "go on behind end tokens until --max-new", OPT_FLAG, AT(ignore_eos), 0, 0,
     NULL},
    {"temperature", "X", "0 (default) takes the likeliest token; 1 samples as trained", OPT_REAL,
     AT(temperature), 0, 100, NULL},
    {"top-p", "X", "sample from the likeliest tokens that make up this share; default 1", OPT_REAL,
     AT(top_p), 1e-6, 1, NULL},
    {"top-k", "N", "sample from the N likeliest tokens; default 0: all", OPT_COUNT, AT(top_k), 0,
     1e9, NULL},
    {"min-p", "X", "leave out tokens below this share of the likeliest; default 0", OPT_REAL,
     AT(min_p), 0, 1, NULL},
    {"seed", "N", "the same seed gives the same tokens on every machine; default 0", OPT_COUNT,
     AT(seed), 0, 2e19, NULL},
    {"speculate", "WHEN", CLI_SPECULATE_HELP, OPT_TEXT, AT(speculate), 0, 0, NULL},
    {"reload-after", "N",
     "after N new tokens save the state to a file, drop it and load it again: a proof that "
     "nothing is lost",
     OPT_COUNT, AT(reload_after), 1, 1e7, NULL},
    {"record-routes", "FILE",
     "write which experts each layer chose into this file, for shoal bench cache", OPT_TEXT,
     AT(record_routes), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Prompt (one of the first three)", prompt_opts, sizeof prompt_opts / sizeof *prompt_opts, 0},
    {"Answer", answer_opts, sizeof answer_opts / sizeof *answer_opts, 0},
    {"Model", model_opts_table, MODEL_OPTS_COUNT, AT(model)},
    {"Computation", compute_opts_table, COMPUTE_OPTS_COUNT, AT(compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

/* ---- the prompt ---- */

struct prompt {
    struct tok_ids ids;
    bool chat, thinking;
};

static int think_of(const struct run_opts *o, enum chat_think *out, struct err *e)
{
    *out = CHAT_THINK_DEFAULT;
    if (o->effort && !chat_think_by_name(o->effort, strlen(o->effort), out)) {
        return err_set(e, ERR_ARG,
                       "--effort %s: it must be none, minimal, low, medium, high or max",
                       o->effort);
    }
    if (o->no_think) {
        *out = CHAT_THINK_OFF;
    }
    return 0;
}

/* Only what can be told without a model; everything here is wrong usage. */
static int check_usage(const struct run_opts *o, struct tok_ids *ids, struct err *e)
{
    int given = (o->prompt != NULL) + (o->chat != NULL) + (o->ids != NULL);
    enum chat_think think;
    struct spec_opts spec;
    if (given != 1) {
        return err_set(e, ERR_ARG,
                       given ? "give only one of --prompt, --chat and --ids"
                             : "give --prompt, --chat or --ids");
    }
    if (!o->chat && (o->system || o->effort || o->no_think)) {
        return err_set(e, ERR_ARG, "--system, --effort and --no-think go with --chat");
    }
    if (o->effort && o->no_think) {
        return err_set(e, ERR_ARG, "give only one of --effort and --no-think");
    }
    if (o->special && !o->prompt) {
        return err_set(e, ERR_ARG, "--special goes with --prompt");
    }
    int r = model_opts_check(&o->model, e);
    r = r ? r : cli_speculate(o->speculate, &spec, e);
    r = r ? r : think_of(o, &think, e);
    return !r && o->ids ? cli_session_parse_ids(o->ids, ids, e) : r;
}

/* The chat form takes characters only; a shell hands over any bytes. */
static int check_utf8(const char *option, const char *s, struct err *e)
{
    size_t n = strlen(s);
    unsigned len;
    for (size_t at = 0; at < n; at += len) {
        if (utf8_next((const uint8_t *)s + at, n - at, &len) < 0) {
            return err_set(e, ERR_ARG, "%s: byte %zu of the text is not valid UTF-8", option,
                           at + 1);
        }
    }
    return 0;
}

static int make_prompt(struct cli_session *s, const struct run_opts *o, struct prompt *p,
                       struct err *e)
{
    int r = o->ids ? 0 : cli_session_need_tok(s, e);
    if (r) {
        return r;
    }
    if (o->prompt) {
        r = tok_encode(s->tok, o->prompt, strlen(o->prompt), o->special, &p->ids, e);
    } else if (o->chat) {
        enum chat_think think = CHAT_THINK_DEFAULT;
        struct chat_prompt cp;
        r = think_of(o, &think, e);
        r = r ? r : check_utf8("--chat", o->chat, e);
        r = r || !o->system ? r : check_utf8("--system", o->system, e);
        r = r ? r : chat_simple(o->chat, o->system, think, &cp, e);
        if (!r) {
            p->chat = true;
            p->thinking = cp.think != CHAT_THINK_OFF;
            r = chat_prompt_ids(&cp, s->tok, &p->ids, e);
            chat_prompt_free(&cp);
        }
    }
    if (!r && !p->ids.n) {
        r = err_set(e, ERR_ARG, "the prompt is empty: there is nothing to continue");
    }
    return r ? r : cli_session_check_ids(s, &p->ids, e);
}

/* ---- the result ---- */

static json_t *ids_json(const uint32_t *v, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < n; i++) {
        if (json_array_append_new(a, json_integer(v[i]))) {
            json_decref(a);
            a = NULL;
        }
    }
    return a;
}

static json_t *calls_json(const struct parse_answer *p)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < p->ncalls; i++) {
        (void)json_array_append_new(a, json_pack("{s:s%, s:s%}", "name", p->calls[i].name,
                                                 p->calls[i].name_n, "arguments",
                                                 p->calls[i].arguments, p->calls[i].arguments_n));
    }
    return a;
}

static int print_json(struct cli_session *s, const struct prompt *p, const struct answer *a)
{
    struct store_stats v;
    store_get_stats(s->st, &v);
    json_t *stats = cli_session_stats_json(s, &v);
    json_t *out = json_object();
    if (stats) {
        json_object_set_new(stats, "prefill_s", json_real(a->gen.prefill_s));
        json_object_set_new(
            stats, "prefill_tok_s",
            json_real(a->gen.prefill_s > 0 ? (double)p->ids.n / a->gen.prefill_s : 0));
        json_object_set_new(stats, "decode_s", json_real(a->gen.decode_s));
        json_object_set_new(stats, "decode_tok_s", json_real(a->decode_tok_s));
        json_object_set_new(stats, "speculate", cli_speculate_json(&a->gen.spec));
        const struct kern_backend *be = compute_backend(s->compute);
        json_object_set_new(stats, "backend", json_string(be->name));
        json_object_set_new(stats, "threads", json_integer(be->threads));
        json_object_set_new(stats, "compute", cli_compute_json(s->compute));
    }
    char root[2 * SHA256_SIZE + 1];
    sha256_hex(model_root(s->m), root);
    json_object_set_new(out, "model", json_string(s->source));
    json_object_set_new(out, "demo", json_boolean(s->demo));
    json_object_set_new(out, "model_root", json_string(root));
    json_object_set_new(out, "numerics", json_integer(SHOAL_NUMERICS_VERSION));
    json_object_set_new(out, "prompt_ids", ids_json(p->ids.v, p->ids.n));
    json_object_set_new(out, "ids", ids_json(a->gen.ids, a->gen.n));
    json_object_set_new(out, "text", json_stringn(a->text.p ? a->text.p : "", a->text.n));
    if (p->chat) {
        json_object_set_new(
            out, "reasoning",
            json_stringn(a->parsed.reasoning ? a->parsed.reasoning : "", a->parsed.reasoning_n));
        json_object_set_new(out, "tool_calls", calls_json(&a->parsed));
    }
    json_object_set_new(out, "finish", json_string(a->gen.stopped ? "stop" : "length"));
    json_object_set_new(out, "receipt", json_string(a->receipt));
    json_object_set_new(out, "again", json_integer(a->gen.again));
    json_object_set_new(out, "basis", cli_basis_json(s->st, &a->gen.since));
    json_object_set_new(out, "stats", stats);
    json_object_set_new(out, "plan", plan_json(&s->plan));
    return cli_json(s->c, out);
}

static void say_result(struct cli_session *s, const struct prompt *p, const struct answer *a)
{
    struct store_stats v;
    char b1[CLI_NUM], b2[CLI_NUM], b3[CLI_NUM], d1[CLI_NUM], d2[CLI_NUM];
    char experts[60] = "", bytes[60] = "";
    store_get_stats(s->st, &v);
    if (s->shared || v.peer_fetches) { /* who is in no shoal has no peers to read of */
        snprintf(experts, sizeof experts, "peers %llu, ", (unsigned long long)v.peer_fetches);
        snprintf(bytes, sizeof bytes, "%s from peers, ", cli_bytes(v.peer_bytes, b3));
    }
    cli_note(
        s->c,
        "%zu prompt tokens in %s; %zu new in %s (%.1f a second); experts: RAM %llu, disk %llu, "
        "%sorigin %llu; %s from the origin, %s%s from disk",
        p->ids.n, cli_duration(a->gen.prefill_s, d1), a->gen.n, cli_duration(a->gen.decode_s, d2),
        a->decode_tok_s, (unsigned long long)v.ram_hits, (unsigned long long)v.disk_hits, experts,
        (unsigned long long)v.origin_fetches, cli_bytes(v.origin_bytes, b1), bytes,
        cli_bytes(v.disk_bytes, b2));
    cli_session_say_times(s);
    cli_say_speculate(s->c, &a->gen.spec);
    cli_say_basis(s->c, s->st, &a->gen.since);
    cli_note(s->c, "receipt %s", a->receipt);
}

/* A private place for the saved state of --reload-after. */
static int reload_place(char dir[64], char path[80], struct err *e)
{
    snprintf(dir, 64, "/tmp/shoal-state.XXXXXX");
    if (!mkdtemp(dir)) {
        return err_set(e, ERR_IO, "cannot make a temporary folder in /tmp for --reload-after");
    }
    snprintf(path, 80, "%s/state", dir);
    return 0;
}

static int run_answer(struct cli_session *s, const struct run_opts *o, const struct prompt *p,
                      struct answer *a, struct err *e)
{
    char dir[64] = "", path[80];
    struct answer_opts ao = {.prompt = &p->ids,
                             .chat = p->chat,
                             .thinking = p->thinking,
                             .stream = !s->c->json,
                             .ignore_eos = o->ignore_eos};
    ao.gen.max_new = o->max_new.set ? (uint32_t)o->max_new.v : 512;
    ao.gen.prefill_chunk = s->chunk;
    ao.gen.sample.temperature = (float)o->temperature.v;
    ao.gen.sample.top_p = o->top_p.set ? (float)o->top_p.v : 1;
    ao.gen.sample.min_p = (float)o->min_p.v;
    ao.gen.sample.top_k = (uint32_t)o->top_k.v;
    ao.gen.sample.seed = o->seed.v;
    /* was checked; a record of routes is of the answer alone unless somebody wants it otherwise */
    (void)cli_speculate(o->record_routes && !o->speculate ? "off" : o->speculate, &ao.gen.spec, e);
    if (o->reload_after.set) {
        int r = reload_place(dir, path, e);
        if (r) {
            memset(a, 0, sizeof *a);
            return r;
        }
        ao.gen.reload_path = path;
        ao.gen.reload_after = (uint32_t)o->reload_after.v;
    }
    int r = answer_run(s, &ao, a, e);
    if (dir[0]) {
        unlink(path);
        rmdir(dir);
    }
    return r;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct run_opts *o = opts;
    struct err e = {0};
    struct prompt p = {.chat = false};
    struct cli_session s;
    struct answer a;
    if (check_usage(o, &p.ids, &e)) {
        tok_ids_free(&p.ids);
        return cli_usage(c, "%s", e.msg);
    }
    struct model_opts model = o->model;
    model.record_routes = o->record_routes;
    if (cli_session_open(&s, c, &model, &o->compute, SESSION_INFER, &e)) {
        tok_ids_free(&p.ids);
        return cli_fail(c, &e);
    }
    cli_catch_interrupts();
    int status = CLI_OK;
    int r = make_prompt(&s, o, &p, &e);
    if (!r) {
        r = run_answer(&s, o, &p, &a, &e);
        if (!r && c->json) {
            status = print_json(&s, &p, &a);
        } else if (!r) {
            say_result(&s, &p, &a);
        }
        answer_free(&a);
    }
    if (r) {
        status = cli_fail(c, &e);
    }
    tok_ids_free(&p.ids);
    cli_session_close(&s);
    return status;
}

const struct command cmd_run = {
    .name = "run",
    .args = "",
    .no_args = "give the text with --chat (a message) or --prompt (to continue)",
    .summary = "answer a prompt",
    .details =
        "Reads a prompt, writes the answer to standard output as it comes, and what happened to\n"
        "standard error. With --json one object is written at the end: prompt_ids, ids, text,\n"
        "receipt, basis, stats and plan. basis says what the objects that were used rest on: a\n"
        "published manifest, this node's own download (origin), two members' word, one member's,\n"
        "or nobody's (unverified); --trust refuses what rests on less. The receipt is a digest "
        "over all logits and tokens: two\n"
        "machines that computed the same print the same.\n"
        "A model of a hub, org/name[@revision], stays at the commit that its branch was at first\n"
        "use. Tokens and certificates for the origin: --token and --ca-file, or the environment\n"
        "variables that the hub's own tools obey (HF_TOKEN and so on).",
    .examples = "  shoal run --chat 'Define whale.' --no-think\n"
                "  shoal run --model https://host/model --cache ~/k3 --prompt 'music:' --json\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct run_opts),
    .run = run,
};
