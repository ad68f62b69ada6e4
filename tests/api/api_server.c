/* SPDX-License-Identifier: MIT
 * api_server.c: the API over a model folder, for tests by real clients: prints its URL, serves
 * until its standard input ends.
 *
 *   api_server MODEL [--script TEXT-FILE] [--key KEY] [--batch N] [--queue N] [--keep DIR]
 *
 * --script: every answer is made of the tokens of this text (special spellings are tokens), through
 * the ordinary path of sampler, grammar, parser and formats. */
#include "node/api/oai.h"
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
};

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
    struct rig_opts ro = {.model = model, .progress = engine_progress, .progress_ctx = &s->tap};
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

static void read_script(struct server *s, const char *path, struct err *e)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    if (file_read_all(path, &b, e) || tok_encode(s->tok, b.p, b.n, true, &s->script, e)) {
        die(e);
    }
    buf_free(&b);
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
    open_model(&s, argv[1], &e);
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *o = argv[i], *v = argv[i + 1];
        if (!strcmp(o, "--script")) {
            read_script(&s, v, &e);
        } else if (!strcmp(o, "--key")) {
            oo.http.key = v;
        } else if (!strcmp(o, "--batch")) {
            eo.batch = (uint32_t)strtoul(v, NULL, 10);
        } else if (!strcmp(o, "--queue")) {
            eo.queue = (uint32_t)strtoul(v, NULL, 10);
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
    char c;
    while (read(0, &c, 1) > 0) {
    }
    oai_quiet(s.a);
    engine_close(s.g);
    oai_close(s.a);
    tok_ids_free(&s.script);
    tok_close(s.tok);
    rig_close(&s.rig);
    return 0;
}
