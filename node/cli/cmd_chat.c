/* SPDX-License-Identifier: MIT
 * cmd_chat.c: `shoal chat`: a conversation on the terminal. It always talks to an API by HTTP: to
 * a running node's (--url), or to one of its own, which listens on this machine's loopback with a
 * key that nobody else has. So an answer here is what any client would get. */
#include "node/api/ids.h"
#include "node/cli/service.h"
#include "node/cli/talk.h"
#include "node/text/chat.h"
#include "proto/base/file.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 100
#define INPUT_MAX ((size_t)8 << 20)

struct chat_opts {
    struct common_opts common;
    struct model_opts model;
    struct compute_opts compute;
    const char *url, *name, *system, *effort;
    bool no_think, show;
    struct opt_count max_new, top_k, seed;
    struct opt_real temperature, top_p, min_p;
};

#define AT(f) offsetof(struct chat_opts, f)
static const struct opt chat_table[] = {
    {"url", "URL",
     "talk to the API that runs there, such as http://127.0.0.1:8080; its key is taken from the "
     "environment: SHOAL_API_KEY",
     OPT_TEXT, AT(url), 0, 0, NULL},
    {"model-name", "ID", "with --url: the model to ask for; default: the first it has", OPT_TEXT,
     AT(name), 0, 0, NULL},
    {"system", "TEXT", "a system message in front of the conversation", OPT_TEXT, AT(system), 0, 0,
     NULL},
    {"effort", "LEVEL", "how long it thinks: none, minimal, low, medium, high or max (default)",
     OPT_TEXT, AT(effort), 0, 0, NULL},
    {"no-think", NULL, "answer at once: the same as --effort none", OPT_FLAG, AT(no_think), 0, 0,
     NULL},
    {"show-thinking", NULL, "write what it thinks, too", OPT_FLAG, AT(show), 0, 0, NULL},
    {"max-new", "N", "most new tokens of an answer; default: no limit", OPT_COUNT, AT(max_new), 1,
     1e6, NULL},
    {"temperature", "X", "0 (default) takes the likeliest token; 1 samples as trained", OPT_REAL,
     AT(temperature), 0, 100, NULL},
    {"top-p", "X", "sample from the likeliest tokens that make up this share; default 1", OPT_REAL,
     AT(top_p), 1e-6, 1, NULL},
    {"top-k", "N", "sample from the N likeliest tokens; default 0: all", OPT_COUNT, AT(top_k), 0,
     1e9, NULL},
    {"min-p", "X", "leave out tokens below this share of the likeliest; default 0", OPT_REAL,
     AT(min_p), 0, 1, NULL},
    {"seed", "N", "the same seed gives the same tokens on every machine; default 0", OPT_COUNT,
     AT(seed), 0, 9e15, NULL},
};
static const struct opt_group groups[] = {
    {"Conversation", chat_table, sizeof chat_table / sizeof *chat_table, 0},
    {"Model, without --url", model_opts_table, MODEL_OPTS_COUNT, AT(model)},
    {"Computation, without --url", compute_opts_table, COMPUTE_OPTS_COUNT, AT(compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

/* ---- signals: what a handler may touch ---- */

static volatile sig_atomic_t interrupts, ended;

static void on_signal(int sig)
{
    if (sig == SIGTERM) {
        ended = 1;
    } else {
        interrupts = interrupts + 1;
    }
}

static void catch_signals(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    a.sa_flags = SA_RESETHAND; /* a second one kills */
    sigaction(SIGTERM, &a, NULL);
}

/* ---- the conversation ---- */

struct chat {
    struct cli *c;
    const struct chat_opts *o;
    struct talk_server server;
    char model[SERVICE_NAME];
    json_t *messages;
    struct buf in; /* read and not yet used */
    bool eof;
    bool prompt;       /* a person types */
    bool tty;          /* standard output is a terminal */
    bool line;         /* the line of waiting stands on standard error */
    sig_atomic_t seen; /* interrupts that were acted on */
    size_t thought;    /* pieces of reasoning */
    enum { WROTE_NONE, WROTE_REASONING, WROTE_CONTENT } wrote;
    char last;
    bool broken; /* standard output is gone */
};

static json_t *message(const char *role, const char *text, size_t n)
{
    json_t *t = json_stringn(text, n);
    return t ? json_pack("{s:s, s:o}", "role", role, "content", t) : NULL;
}

static void reset(struct chat *h)
{
    json_array_clear(h->messages);
    if (h->o->system) {
        (void)json_array_append_new(h->messages,
                                    message("system", h->o->system, strlen(h->o->system)));
    }
}

/* ---- output ---- */

static void clear_line(struct chat *h)
{
    if (h->line) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        h->line = false;
    }
}

static void put_line(struct chat *h, const char *words)
{
    if (h->prompt && h->tty && !h->c->quiet) {
        fprintf(stderr, "\r\033[2m%.70s\033[0m\033[K", words);
        fflush(stderr);
        h->line = true;
    }
}

static void put(struct chat *h, const char *p, size_t n)
{
    if (n && !h->c->json) {
        clear_line(h);
        h->last = p[n - 1];
        h->broken = h->broken || fwrite(p, 1, n, stdout) != n || fflush(stdout);
    }
}

/* What the model says; a terminal shows it and does not obey it. */
static void put_text(struct chat *h, const char *p, size_t n)
{
    char *plain = h->tty && n ? malloc(n) : NULL;
    if (plain) {
        put(h, plain, live_plain(p, n, plain));
    } else if (!h->tty) {
        put(h, p, n);
    }
    free(plain);
}

static void puts_mark(struct chat *h, const char *tty, const char *plain)
{
    const char *s = h->tty ? tty : plain;
    put(h, s, strlen(s));
}

static void on_waiting(void *ctx, const char *words)
{
    static const char prefill[] = "prefill: ";
    char line[256] = "reading: ";
    size_t skip = strncmp(words, prefill, sizeof prefill - 1) ? 0 : sizeof prefill - 1;
    size_t at = skip ? strlen(line) : 0, n = strlen(words + skip);
    n = live_plain(words + skip, n < sizeof line - at ? n : sizeof line - at - 1, line + at);
    line[at + n] = 0;
    put_line(ctx, line);
}

static void on_reasoning(void *ctx, const char *text, size_t n)
{
    struct chat *h = ctx;
    char words[60];
    h->thought++;
    if (!h->o->show) {
        snprintf(words, sizeof words, "thinking: %zu", h->thought);
        put_line(h, words);
        return;
    }
    if (h->wrote != WROTE_REASONING) {
        h->wrote = WROTE_REASONING;
        puts_mark(h, "\033[2m", "[thinking] ");
    }
    put_text(h, text, n);
}

static void on_content(void *ctx, const char *text, size_t n)
{
    struct chat *h = ctx;
    if (h->wrote == WROTE_REASONING) {
        puts_mark(h, "\033[0m\n\n", "\n[answer] ");
    }
    h->wrote = WROTE_CONTENT;
    put_text(h, text, n);
}

static bool on_stop(void *ctx)
{
    struct chat *h = ctx;
    return ended || interrupts != h->seen || h->broken;
}

/* ---- a turn ---- */

static json_t *request_of(const struct chat *h)
{
    const struct chat_opts *o = h->o;
    const char *effort = o->no_think ? "none" : o->effort;
    json_t *v = json_pack("{s:s, s:O, s:f}", "model", h->model, "messages", h->messages,
                          "temperature", o->temperature.v);
    if (effort) {
        json_object_set_new(v, "reasoning_effort", json_string(effort));
    }
    if (o->max_new.set) {
        json_object_set_new(v, "max_tokens", json_integer((json_int_t)o->max_new.v));
    }
    if (o->top_p.set) {
        json_object_set_new(v, "top_p", json_real(o->top_p.v));
    }
    if (o->min_p.set) {
        json_object_set_new(v, "min_p", json_real(o->min_p.v));
    }
    if (o->top_k.set) {
        json_object_set_new(v, "top_k", json_integer((json_int_t)o->top_k.v));
    }
    if (o->seed.set) {
        json_object_set_new(v, "seed", json_integer((json_int_t)o->seed.v));
    }
    return v;
}

/* What was said stays in the history as far as it came; without an answer the question goes. */
static void remember(struct chat *h, const struct talk_answer *a)
{
    size_t n = json_array_size(h->messages);
    json_t *m = a->content.n ? message("assistant", a->content.p, a->content.n) : NULL;
    if (!m) {
        json_array_remove(h->messages, n - 1);
        return;
    }
    if (a->reasoning.n) {
        json_object_set_new(m, "reasoning_content", json_stringn(a->reasoning.p, a->reasoning.n));
    }
    (void)json_array_append_new(h->messages, m);
}

static json_t *turn_json(const struct talk_answer *a, bool stopped)
{
    return json_pack("{s:o, s:o, s:s, s:O?}", "content",
                     json_stringn(a->content.p ? a->content.p : "", a->content.n), "reasoning",
                     json_stringn(a->reasoning.p ? a->reasoning.p : "", a->reasoning.n), "finish",
                     stopped ? "interrupted" : a->finish, "usage", a->usage);
}

static int turn(struct chat *h, const char *text, size_t n, struct err *e)
{
    struct talk_hooks k = {h, on_waiting, on_reasoning, on_content, on_stop};
    struct talk_answer a;
    json_t *m = message("user", text, n);
    if (!m) {
        return err_set(e, ERR_FORMAT, "what was typed is not valid UTF-8");
    }
    (void)json_array_append_new(h->messages, m);
    h->wrote = WROTE_NONE;
    h->thought = 0;
    h->last = 0;
    json_t *q = request_of(h);
    int r = q ? talk_ask(&h->server, q, &k, &a, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!q) {
        json_array_remove(h->messages, json_array_size(h->messages) - 1);
        return r;
    }
    bool stopped = r == ERR_CANCELLED;
    remember(h, &a);
    if (h->wrote == WROTE_REASONING) {
        puts_mark(h, "\033[0m", "");
    }
    if (h->last && h->last != '\n') {
        put(h, "\n", 1);
    }
    clear_line(h);
    if (h->c->json && (!r || stopped)) {
        h->broken = cli_json(h->c, turn_json(&a, stopped)) != CLI_OK;
    } else if (stopped) {
        cli_note(h->c, a.content.n ? "stopped; what was said so far stays in the conversation"
                                   : "stopped; the question was taken back");
    } else if (!r && !strcmp(a.finish, "length")) {
        cli_note(h->c, "the answer was cut at its longest length");
    }
    h->seen = interrupts;
    json_decref(q);
    talk_free(&a);
    return stopped ? 0 : r;
}

/* ---- commands ---- */

static int save(struct chat *h, const char *path, struct err *e)
{
    json_t *v = json_pack("{s:s, s:O}", "model", h->model, "messages", h->messages);
    char *s = v ? json_dumps(v, JSON_INDENT(2)) : NULL;
    int r =
        s ? file_write_atomic(path, s, strlen(s), 0600, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!r) {
        cli_note(h->c, "saved in %s, as a request that shoal render --file reads", path);
    }
    json_decref(v);
    free(s);
    return r;
}

/* True: the line was one. */
static bool command(struct chat *h, const char *line, bool *quit)
{
    struct err e = {0};
    if (line[0] != '/' || line[1] == '/') {
        return false;
    }
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) {
        *quit = true;
    } else if (!strcmp(line, "/reset")) {
        reset(h);
        cli_note(h->c, "a new conversation");
    } else if (!strncmp(line, "/save ", 6) && line[6 + strspn(line + 6, " ")]) {
        if (save(h, line + 6 + strspn(line + 6, " "), &e)) {
            cli_note(h->c, "%s", e.msg);
        }
    } else {
        cli_note(h->c, "there are /reset (a new conversation), /save FILE and /quit; // begins a "
                       "message with a slash");
    }
    return true;
}

/* ---- input ---- */

/* The next line without its end into *line; false: there is none. */
static bool next_line(struct chat *h, struct buf *line)
{
    char room[65536];
    for (;;) {
        char *nl = h->in.n ? memchr(h->in.p, '\n', h->in.n) : NULL;
        if (nl || (h->eof && h->in.n)) {
            size_t n = nl ? (size_t)(nl - h->in.p) : h->in.n, skip = n + (nl != NULL);
            line->n = 0;
            if (buf_add(line, h->in.p, n - (n && h->in.p[n - 1] == '\r')) || buf_add(line, "", 1)) {
                return false;
            }
            memmove(h->in.p, h->in.p + skip, h->in.n - skip);
            h->in.n -= skip;
            return true;
        }
        if (h->eof || ended || h->broken) {
            return false;
        }
        if (interrupts != h->seen) {
            bool first = interrupts == h->seen + 1;
            if (!first) {
                return false;
            }
            if (h->prompt) {
                put(h, "\n", 1);
            }
            cli_note(h->c, "Control-C once more, or Control-D, ends it");
            if (h->prompt) {
                put(h, "> ", 2);
            }
            sig_atomic_t now = interrupts;
            while (interrupts == now && !ended) {
                struct pollfd p = {STDIN_FILENO, POLLIN, 0};
                if (poll(&p, 1, LOOK_MS) > 0) {
                    h->seen = now;
                    break;
                }
            }
            continue;
        }
        struct pollfd p = {STDIN_FILENO, POLLIN, 0};
        if (poll(&p, 1, LOOK_MS) <= 0) {
            continue;
        }
        ssize_t k = read(STDIN_FILENO, room, sizeof room);
        if (k == 0 || (k < 0 && errno != EINTR && errno != EAGAIN)) {
            h->eof = true;
        } else if (k > 0 && buf_add(&h->in, room, (size_t)k)) {
            cli_note(h->c, "a line is longer than 8 MB");
            return false;
        }
    }
}

static int converse(struct chat *h, struct err *e)
{
    struct buf line;
    bool quit = false;
    int r = 0;
    buf_init(&line, INPUT_MAX + 1);
    if (h->prompt) {
        cli_note(h->c, "this is %s; Control-C stops an answer, Control-D ends, /help says more",
                 h->model);
    }
    while (!quit && !r) {
        if (h->prompt) {
            put(h, "> ", 2);
        }
        if (!next_line(h, &line)) {
            break;
        }
        const char *text = line.p + (line.n > 2 && line.p[0] == '/' && line.p[1] == '/');
        size_t n = line.n - 1 - (size_t)(text - line.p);
        if (!n || command(h, line.p, &quit)) {
            continue;
        }
        r = turn(h, text, n, e);
        if (r && h->prompt) { /* a person reads it and goes on */
            cli_note(h->c, "%s", e->msg);
            r = 0;
        }
    }
    if (h->prompt) {
        put(h, "\n", 1);
    }
    buf_free(&line);
    return r;
}

/* ---- life ---- */

/* Until the model is there, or a signal. */
static int await_model(struct service *v, struct err *e)
{
    int r;
    while ((r = service_wait(v, LOOK_MS, e)) == ERR_TIMEOUT) {
        if (ended || interrupts) {
            return err_set(e, ERR_CANCELLED, "interrupted while the model was loaded");
        }
    }
    return r;
}

/* With an API of its own, for this process. */
static int with_own(struct chat *h, struct err *e)
{
    struct cli brief = *h->c;
    struct cli_session s;
    char key[40];
    struct service_opts so = {.api = "127.0.0.1:0"};
    struct service_setup u = {.o = &so,
                              .c = &brief,
                              .states = h->o->model.home,
                              .key = key,
                              .demo = !h->o->model.model,
                              .brief = true};
    struct model_opts mo = h->o->model;
    struct service *v = service_new();
    ids_make("", 32, key, sizeof key);
    if (!v || strlen(key) != 32) {
        service_free(v);
        return err_set(e, ERR_NOMEM, "cannot make a key for the conversation");
    }
    brief.brief = true;
    mo.progress = service_progress;
    mo.progress_ctx = v;
    int r = cli_session_open(&s, &brief, &mo, &h->o->compute, SESSION_PLAN, e);
    if (!r) {
        catch_signals();
        r = service_open(v, &u, &s, e);
        r = r ? r : await_model(v, e);
        if (!r) {
            r = talk_server_set(&h->server, service_url(v), e);
            h->server.key = key;
            h->server.direct = true;
            snprintf(h->model, sizeof h->model, "%s", service_model(v));
        }
        r = r ? r : converse(h, e);
        service_stop(v);
        cli_session_close(&s);
    }
    service_free(v);
    return r;
}

static int with_url(struct chat *h, struct err *e)
{
    const char *key = getenv("SHOAL_API_KEY");
    h->server.key = key && *key ? key : NULL;
    catch_signals();
    int r = talk_server_set(&h->server, h->o->url, e);
    if (!r && h->o->name) {
        snprintf(h->model, sizeof h->model, "%s", h->o->name);
    } else if (!r) {
        r = talk_model(&h->server, h->model, sizeof h->model, e);
    }
    return r ? r : converse(h, e);
}

static int check_usage(const struct chat_opts *o, struct err *e)
{
    enum chat_think think;
    struct talk_server s;
    const struct model_opts *m = &o->model;
    if (o->url && (m->model || m->home || m->cache || m->offline)) {
        return err_set(e, ERR_ARG,
                       "--url names a model that runs: it does not go with --model, "
                       "--home, --cache and --offline");
    }
    if (o->name && !o->url) {
        return err_set(e, ERR_ARG, "--model-name goes with --url");
    }
    if (o->name && strlen(o->name) >= SERVICE_NAME) {
        return err_set(e, ERR_ARG, "--model-name is longer than %d bytes", SERVICE_NAME - 1);
    }
    if (o->effort && o->no_think) {
        return err_set(e, ERR_ARG, "give only one of --effort and --no-think");
    }
    if (o->effort && !chat_think_by_name(o->effort, strlen(o->effort), &think)) {
        return err_set(e, ERR_ARG,
                       "--effort %.50s: it must be none, minimal, low, medium, high or max",
                       o->effort);
    }
    json_t *text = o->system ? json_string(o->system) : NULL;
    bool bad = o->system && !text;
    json_decref(text);
    if (bad) {
        return err_set(e, ERR_ARG, "--system: it is not valid UTF-8");
    }
    int r = model_opts_check(m, e);
    return r || !o->url ? r : talk_server_set(&s, o->url, e);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct chat_opts *o = opts;
    struct chat h = {.c = c, .o = o};
    struct err e = {0};
    if (check_usage(o, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    buf_init(&h.in, INPUT_MAX);
    h.tty = isatty(STDOUT_FILENO) && !c->json;
    h.prompt = isatty(STDIN_FILENO) && h.tty;
    h.messages = json_array();
    int r = curl_global_init(CURL_GLOBAL_DEFAULT) || !h.messages
                ? err_set(&e, ERR_NOMEM, "out of memory")
                : 0;
    if (!r) {
        reset(&h);
        r = o->url ? with_url(&h, &e) : with_own(&h, &e);
    }
    json_decref(h.messages);
    buf_free(&h.in);
    curl_global_cleanup();
    return r ? cli_fail(c, &e) : CLI_OK;
}

const struct command cmd_chat = {
    .name = "chat",
    .args = "",
    .no_args = "type the message at its prompt; shoal run --chat TEXT answers a single one",
    .summary = "talk with the model on the terminal",
    .details =
        "Each line is a message; the answer streams, and the conversation is remembered.\n"
        "Control-C stops an answer and not the program; at the prompt, twice Control-C or\n"
        "Control-D ends it. /reset begins anew, /save FILE writes the conversation, /quit ends.\n"
        "When standard input is no terminal, each line of it is a turn. With --json each turn is\n"
        "one line: content, reasoning, finish (\"stop\", \"length\", \"interrupted\"), usage.\n"
        "Without --url the model is loaded for this conversation, as `shoal run` does.",
    .examples = "  shoal chat --no-think\n"
                "  shoal chat --url http://127.0.0.1:8080 --system 'Answer briefly.'\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct chat_opts),
    .run = run,
};
