/* SPDX-License-Identifier: MIT
 * cmd_text.c: `shoal tokenize` and `shoal render`: text and chat requests to token ids. */
#include "node/cli/plat.h"
#include "node/cli/session.h"
#include "node/text/chat.h"
#include "proto/base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct text_opts {
    struct common_opts common;
    struct model_opts model;
    const char *file;
    bool special;
};

#define AT(f) offsetof(struct text_opts, f)
static const struct opt tokenize_opts[] = {
    {"file", "F", "take the text from this file, byte for byte; - is standard input", OPT_TEXT,
     AT(file), 0, 0, NULL},
    {"special", NULL, "read <|open|> and the like as special tokens", OPT_FLAG, AT(special), 0, 0,
     NULL},
};
static const struct opt render_opts[] = {
    {"file", "F", "the request, as JSON; - (default) is standard input", OPT_TEXT, AT(file), 0, 0,
     NULL},
};
static const struct opt_group tokenize_groups[] = {
    {"Text", tokenize_opts, sizeof tokenize_opts / sizeof *tokenize_opts, 0},
    {"Model", model_opts_table, MODEL_OPTS_COUNT, AT(model)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
static const struct opt_group render_groups[] = {
    {"Request", render_opts, sizeof render_opts / sizeof *render_opts, 0},
    {"Model", model_opts_table, MODEL_OPTS_COUNT, AT(model)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

static int read_input(const struct cli *c, const char *file, struct buf *out, struct err *e)
{
    if (strcmp(file, "-") != 0) {
        return file_read_all(file, out, e);
    }
    if (isatty(STDIN_FILENO)) {
        cli_note(c, "reading from the terminal; end with Ctrl-D at the start of a line");
    }
    return plat_read_stdin(out, e);
}

/* An array of ids as JSON, or one line of numbers. */
static int print_ids(struct cli *c, const struct tok_ids *l)
{
    if (c->json) {
        json_t *a = json_array();
        for (size_t i = 0; i < l->n; i++) {
            json_array_append_new(a, json_integer(l->v[i]));
        }
        return cli_json(c, a);
    }
    struct buf b;
    buf_init(&b, (size_t)4 << 30);
    int r = 0;
    for (size_t i = 0; i < l->n && !r; i++) {
        r = buf_addf(&b, "%s%u", i ? " " : "", l->v[i]);
    }
    r = r ? r : buf_adds(&b, "\n");
    r = r ? CLI_FAILED : cli_write(c, b.p, b.n);
    buf_free(&b);
    return r;
}

/* ---- tokenize ---- */

static int run_tokenize(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct text_opts *o = opts;
    struct err e = {0};
    struct cli_session s;
    struct tok_ids ids = {0};
    struct buf text;
    if (model_opts_check(&o->model, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    if (argc && o->file) {
        return cli_usage(c, "give the text as an argument or by --file, not both");
    }
    buf_init(&text, TOK_MAX_TEXT);
    int r = 0;
    if (argc) {
        r = buf_adds(&text, argv[0]) ? err_set(&e, ERR_NOMEM, "no memory for the text") : 0;
    } else {
        r = read_input(c, o->file ? o->file : "-", &text, &e);
    }
    if (!r) {
        r = cli_session_open(&s, c, &o->model, NULL, SESSION_TEXT, &e);
        if (!r) {
            r = tok_encode(s.tok, text.p, text.n, o->special, &ids, &e);
            cli_session_close(&s);
        }
    }
    buf_free(&text);
    int status = r ? cli_fail(c, &e) : print_ids(c, &ids);
    tok_ids_free(&ids);
    return status;
}

const struct command cmd_tokenize = {
    .name = "tokenize",
    .args = "[TEXT]",
    .summary = "show the token ids of a text",
    .details =
        "The text is the argument, the bytes of --file, or standard input. The ids come on one\n"
        "line, with --json as an array. Nothing is added in front or behind.",
    .examples = "  shoal tokenize 'Define whale.'\n"
                "  shoal tokenize --model K3 --file prompt.txt --json\n",
    .groups = tokenize_groups,
    .n_groups = sizeof tokenize_groups / sizeof *tokenize_groups,
    .max_args = 1,
    .size = sizeof(struct text_opts),
    .run = run_tokenize,
};

/* ---- render ---- */

static int render_ids(struct cli *c, const struct text_opts *o, const struct chat_prompt *p,
                      struct tok_ids *ids, struct err *e)
{
    struct cli_session s;
    int r = cli_session_open(&s, c, &o->model, NULL, SESSION_TEXT, e);
    if (!r) {
        r = chat_prompt_ids(p, s.tok, ids, e);
        cli_session_close(&s);
    }
    return r;
}

static int run_render(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct text_opts *o = opts;
    struct err e = {0};
    struct tok_ids ids = {0};
    struct chat_prompt p;
    struct buf text;
    if (model_opts_check(&o->model, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    if (argc && o->file) {
        return cli_usage(c, "give the request's file as an argument or by --file, not both");
    }
    const char *file = argc ? argv[0] : o->file ? o->file : "-";
    buf_init(&text, CHAT_MAX_REQUEST);
    int r = read_input(c, file, &text, &e);
    if (!r) {
        r = chat_render(text.p ? text.p : "", text.n, CHAT_THINK_DEFAULT, &p, &e);
        if (r) {
            err_prefix(&e, "%.200s", file);
        }
    }
    buf_free(&text);
    if (r) {
        return cli_fail(c, &e);
    }
    int status;
    if (c->json) {
        r = render_ids(c, o, &p, &ids, &e);
        status = r ? cli_fail(c, &e) : print_ids(c, &ids);
    } else {
        status = cli_write(c, p.text, p.text_n);
        if (status == CLI_OK && isatty(STDOUT_FILENO)) {
            status = cli_write(c, "\n", 1);
        }
    }
    chat_prompt_free(&p);
    tok_ids_free(&ids);
    return status;
}

const struct command cmd_render = {
    .name = "render",
    .args = "[FILE]",
    .summary = "show the prompt that a chat request becomes",
    .details =
        "Reads an OpenAI-form request (messages, tools, tool_choice, response_format,\n"
        "reasoning_effort) and writes the prompt exactly, without a newline behind it; with\n"
        "--json its token ids as an array.",
    .examples =
        "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | shoal render\n"
        "  shoal render --model K3 --file request.json --json\n",
    .groups = render_groups,
    .n_groups = sizeof render_groups / sizeof *render_groups,
    .max_args = 1,
    .size = sizeof(struct text_opts),
    .run = run_render,
};
