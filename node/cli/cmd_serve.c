/* SPDX-License-Identifier: MIT
 * cmd_serve.c: `shoal serve`: the API on one machine, without a node and without peers. */
#include "node/cli/budget.h"
#include "node/cli/home.h"
#include "node/cli/plat.h"
#include "node/cli/service.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 200 /* between two looks at the flags that end it */
#define API_DEFAULT "127.0.0.1:8080"

struct serve_opts {
    struct common_opts common;
    struct service_opts service;
    struct compute_opts compute;
    struct model_opts model;
};

#define AT(f) offsetof(struct serve_opts, f)
static const struct opt model_table[] = {
    {"model", "M",
     "folder or http(s) URL of a K3 model, or a hub's org/name[@revision]; without it the demo "
     "model is used",
     OPT_TEXT, AT(model.model), 0, 0, NULL},
    {"home", "DIR", "use the cache of this folder, and keep states of conversations in it",
     OPT_TEXT, AT(model.home), 0, 0, NULL},
    {"cache", "DIR",
     "keep what comes from the origin (what --model names) in this folder, and states of "
     "conversations; default: the data folder for a URL, none for a folder, which is read in place",
     OPT_TEXT, AT(model.cache), 0, 0, NULL},
    {"offline", NULL, "never contact the origin: what is not cached is an error", OPT_FLAG,
     AT(model.offline), 0, 0, NULL},
    {"trust", "BASIS", CLI_TRUST_HELP, OPT_CHOICE, AT(model.trust), 0, 0, cli_trust_names},
    {"mirror", "URL", CLI_MIRROR_HELP, OPT_TEXTS, AT(model.mirrors), 0, 0, NULL},
    {"rate-limit", "SIZE", "most bytes a second from the origin", OPT_BYTES, AT(model.rate_limit),
     1, 1e18, NULL},
    {"mirror-rate-limit", "SIZE", CLI_MIRROR_RATE_HELP, OPT_BYTES, AT(model.mirror_rate), 1, 1e18,
     NULL},
    {"disk-budget", "SIZE", CLI_DISK_BUDGET_HELP, OPT_BYTES, AT(model.disk_budget), 1, 1e18, NULL},
    {"disk-floor", "SIZE", CLI_DISK_FLOOR_HELP, OPT_BYTES, AT(model.disk_floor), 1, 1e18, NULL},
    NET_OPTS(struct serve_opts, model.net),
};
static const struct opt_group groups[] = {
    {"API", service_opts_table, SERVICE_OPTS_COUNT, AT(service)},
    {"Model", model_table, sizeof model_table / sizeof *model_table, 0},
    {"Computation", compute_opts_table, COMPUTE_OPTS_COUNT, AT(compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

static int say_ready(struct cli *c, const struct service *v, const struct cli_session *s)
{
    cli_note(c, "the API listens at %s, and answers once the model is loaded; Control-C ends it",
             service_url(v));
    return !c->json ? CLI_OK
                    : cli_json(c, json_pack("{s:s, s:s, s:s, s:s, s:i}", "event", "ready", "api",
                                            service_url(v), "model", s->source, "id",
                                            service_model(v), "pid", (int)getpid()));
}

static int serve(struct cli *c, const struct service_setup *u, struct service *v,
                 struct cli_session *s, struct err *e)
{
    int r = service_open(v, u, s, e);
    if (r) {
        return r;
    }
    cli_catch_interrupts();
    if (say_ready(c, v, s)) {
        return err_set(e, ERR_IO, "cannot write to standard output");
    }
    while (!cli_interrupted()) {
        if (service_failed(v, e)) {
            return e->code;
        }
        poll(NULL, 0, LOOK_MS);
    }
    cli_note(c, "stopping");
    return 0;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct serve_opts *o = opts;
    struct service_opts so = o->service;
    struct model_opts mo = o->model;
    struct cli_session s;
    struct err e = {0};
    struct buf cache, base;
    so.api = so.api ? so.api : API_DEFAULT;
    if (service_opts_check(&so, &e) || model_opts_check(&mo, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    buf_init(&cache, 4096);
    buf_init(&base, 4096);
    struct service_setup u = {.o = &so, .c = c, .demo = !mo.model};
    int r = service_may_open(&so, &e);
    r = !r && (mo.home || mo.cache) ? cli_cache_find(mo.cache, mo.home, NULL, &cache, &e) : r;
    if (mo.home || mo.cache) {
        u.states = mo.home ? mo.home : cache.p;
        mo.cache = cache.p;
        mo.home = NULL;
    }
    struct service *v = r ? NULL : service_new();
    if (!r && !v) {
        r = err_set(&e, ERR_NOMEM, "out of memory");
    }
    mo.progress = service_progress;
    mo.progress_ctx = v;
    r = r ? r : cli_session_open(&s, c, &mo, &o->compute, SESSION_PLAN, &e);
    if (!r) {
        if (!u.states && s.cache && !plat_home(&base, &e)) {
            u.states = base.p; /* a URL's cache is in the data folder: there `states` looks, too */
        }
        r = serve(c, &u, v, &s, &e);
        service_stop(v);
        cli_session_close(&s);
    }
    service_free(v);
    buf_free(&cache);
    buf_free(&base);
    return r ? cli_fail(c, &e) : CLI_OK;
}

const struct command cmd_serve = {
    .name = "serve",
    .args = "",
    .summary = "answer other programs' requests by the OpenAI API, on this machine alone",
    .details =
        "Loads the model and serves /v1/chat/completions, /v1/responses, /v1/completions,\n"
        "/v1/models, Anthropic's /v1/messages, /tokenize, /health and /metrics until SIGINT or\n"
        "SIGTERM; at 127.0.0.1:8080 unless --api says otherwise. Needs no home, no shoal and no\n"
        "peers; a node with peers does the same by `shoal up --api`. With --json the first line "
        "on\n"
        "standard output is {\"event\": \"ready\", \"api\", \"id\", ...}.",
    .examples = "  shoal serve\n"
                "  shoal serve --model https://host/model --cache ~/k3 --api 127.0.0.1:9000\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct serve_opts),
    .run = run,
};
