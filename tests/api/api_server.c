/* SPDX-License-Identifier: MIT
 * api_server.c: the API over a model folder, for tests by real clients: prints its URL, serves
 * until its standard input ends.
 *
 *   api_server MODEL [--script TEXT-FILE] [--key KEY] [--batch N] [--queue N] [--keep DIR]
 *                    [--chunk N] [--script-bytes yes] [--say MS] [--slow MS]
 *
 * --script: every answer is made of the tokens of this text (special spellings are tokens), through
 * the ordinary path of sampler, grammar, parser and formats; --script-bytes (before it): each other
 * byte is a token of its own. While no request is under way, a line "script CUT TEXT-FILE" on
 * standard input takes another text, and answers "ok": CUT n makes tokens of n bytes at most, @i
 * cuts between two tokens at byte i, 0 leaves them as the tokenizer makes them.
 * --say: time between signs of life. --slow: so much longer takes each layer, as if it were read.
 */
#include "node/api/oai_int.h"
#include "node/text/tok_utf8.h"
#include "tests/infer/rig.h"

#include "proto/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct server {
    struct rig rig;
    struct tok *tok;
    struct engine_tap tap;
    struct engine *g;
    struct oai *a;
    struct tok_ids script;
    unsigned slow_ms, layer;
};

static int progress(void *ctx, const struct infer_progress *p)
{
    struct server *s = ctx;
    if (s->slow_ms && p->layer != s->layer) {
        s->layer = p->layer;
        usleep(s->slow_ms * 1000);
    }
    return engine_progress(&s->tap, p);
}

static void die(const struct err *e)
{
    fprintf(stderr, "api_server: %s\n", e->msg);
    _exit(1);
}

static void open_model(struct server *s, const char *model, struct err *e)
{
    struct buf ranks, config;
    buf_init(&ranks, TOK_MAX_FILE);
    buf_init(&config, TOK_MAX_CONFIG);
    struct rig_opts ro = {.model = model, .progress = progress, .progress_ctx = s};
    if (rig_open(&s->rig, &ro, e)) {
        die(e);
    }
    if (store_read_file(s->rig.st, "tiktoken.model", &ranks, e) ||
        store_read_file(s->rig.st, "tokenizer_config.json", &config, e) ||
        tok_open(ranks.p, ranks.n, config.p, config.n, &s->tok, e)) {
        die(e);
    }
    buf_free(&ranks);
    buf_free(&config);
}

/* ---- scripts ---- */

struct cut {
    size_t every, at; /* 0: none */
};

static void add_id(struct server *s, uint32_t id)
{
    struct err e = {0};
    if (tok_ids_add(&s->script, id)) {
        err_set(&e, ERR_NOMEM, "out of memory");
        die(&e);
    }
}

static uint32_t id_of_byte(const struct tok *t, char byte)
{
    for (uint32_t id = 0; id < tok_ranks(t); id++) {
        size_t n;
        const char *p = tok_bytes(t, id, &n);
        if (n == 1 && *p == byte) {
            return id;
        }
    }
    return 0; /* every byte is a token (tok_load.c) */
}

/* One piece by itself. Half characters have no text that could be tokenised: byte by byte. */
static void add_piece(struct server *s, const char *p, size_t n)
{
    struct err e = {0};
    bool whole = true;
    for (size_t i = 0; i < n && whole;) {
        unsigned len;
        whole = utf8_next((const uint8_t *)p + i, n - i, &len) >= 0;
        i += len;
    }
    if (whole && tok_encode(s->tok, p, n, false, &s->script, &e)) {
        die(&e);
    }
    for (size_t i = 0; i < n && !whole; i++) {
        add_id(s, id_of_byte(s->tok, p[i]));
    }
}

/* Text without specials that begins at byte `from` of the script. */
static void add_run(struct server *s, const char *p, size_t n, size_t from, const struct cut *c)
{
    for (size_t at = 0; at < n;) {
        size_t k = n - at;
        if (c->every && k > c->every) {
            k = c->every;
        } else if (c->at > from + at && c->at < from + n) {
            k = c->at - from - at;
        }
        add_piece(s, p + at, k);
        at += k;
    }
}

static void read_script(struct server *s, const char *path, const struct cut *c)
{
    struct buf b, run;
    struct tok_ids all = {0};
    struct err e = {0};
    size_t from = 0;
    buf_init(&b, 1 << 20);
    buf_init(&run, 1 << 20);
    if (file_read_all(path, &b, &e) || tok_encode(s->tok, b.p, b.n, true, &all, &e)) {
        die(&e);
    }
    s->script.n = 0;
    for (size_t i = 0; i <= all.n; i++) {
        bool special = i < all.n && tok_is_special(s->tok, all.v[i]);
        size_t n = 0;
        const char *p = i < all.n ? tok_bytes(s->tok, all.v[i], &n) : NULL;
        if (i == all.n || special) {
            add_run(s, run.p, run.n, from, c);
            from += run.n + n;
            run.n = 0;
        } else if (buf_add(&run, p, n)) {
            err_set(&e, ERR_LIMIT, "the script is too long");
            die(&e);
        }
        if (special) {
            add_id(s, all.v[i]);
        }
    }
    tok_ids_free(&all);
    buf_free(&run);
    buf_free(&b);
}

/* Lines on standard input until it ends. */
static void commands(struct server *s)
{
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        char cut[24], path[900];
        if (sscanf(line, "script %23s %899s", cut, path) != 2) {
            continue;
        }
        struct cut c = {cut[0] == '@' ? 0 : strtoul(cut, NULL, 10),
                        cut[0] == '@' ? strtoul(cut + 1, NULL, 10) : 0};
        read_script(s, path, &c);
        s->a->env.script = s->script.v; /* copied by each request when it begins */
        s->a->env.n_script = s->script.n;
        printf("ok\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct server s = {0};
    struct err e = {0};
    struct engine_opts eo = {.keep_ram = (uint64_t)256 << 20};
    struct oai_opts oo = {.http = {.host = "127.0.0.1"}};
    if (argc < 2) {
        fprintf(stderr, "usage: api_server MODEL [options]\n");
        return 2;
    }
    struct cut cut = {0, 0};
    open_model(&s, argv[1], &e);
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *o = argv[i], *v = argv[i + 1];
        if (!strcmp(o, "--script")) {
            read_script(&s, v, &cut);
        } else if (!strcmp(o, "--script-bytes")) {
            cut.every = 1;
        } else if (!strcmp(o, "--chunk")) {
            eo.chunk = (uint32_t)strtoul(v, NULL, 10);
        } else if (!strcmp(o, "--key")) {
            oo.http.key = v;
        } else if (!strcmp(o, "--batch")) {
            eo.batch = (uint32_t)strtoul(v, NULL, 10);
        } else if (!strcmp(o, "--queue")) {
            eo.queue = (uint32_t)strtoul(v, NULL, 10);
        } else if (!strcmp(o, "--say")) {
            eo.say_ms = (uint32_t)strtoul(v, NULL, 10);
        } else if (!strcmp(o, "--slow")) {
            s.slow_ms = (unsigned)strtoul(v, NULL, 10);
        } else if (!strcmp(o, "--keep")) {
            eo.keep_dir = v;
            eo.keep_disk = (uint64_t)1 << 30;
        }
    }
    eo.f = s.rig.f;
    eo.m = s.rig.m;
    eo.tok = s.tok;
    eo.tap = &s.tap;
    oo.script = s.script.v;
    oo.n_script = s.script.n;
    if (engine_open(&eo, &s.g, &e) || oai_open(&oo, &s.a, &e)) {
        die(&e);
    }
    struct oai_model m = {.engine = s.g,
                          .m = eo.m,
                          .tok = s.tok,
                          .id = "k3-demo",
                          .created = 1764460800,
                          .positions = infer_config(s.rig.f)->max_positions};
    static const char *const ends[] = {"<|end_of_msg|>", "[EOS]"};
    for (size_t i = 0; i < 2; i++) {
        m.n_stop_ids += tok_special_id(s.tok, ends[i], &m.stop_ids[m.n_stop_ids]);
    }
    oai_ready(s.a, &m);
    printf("%s\n", oai_url(s.a));
    fflush(stdout);
    commands(&s);
    oai_quiet(s.a);
    engine_close(s.g);
    oai_close(s.a);
    tok_ids_free(&s.script);
    tok_close(s.tok);
    rig_close(&s.rig);
    return 0;
}
