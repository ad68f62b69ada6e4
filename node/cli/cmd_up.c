/* SPDX-License-Identifier: MIT
 * cmd_up.c: `shoal up`: a node that serves and fetches until it is told to stop. */
#include "node/api/api.h"
#include "node/cli/home.h"
#include "node/cli/verify.h"
#include "node/daemon/node.h"

#include "kernels/cpu.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 200                      /* between two looks at the flags that end it */
#define VERIFY_RAM ((uint64_t)256 << 20) /* experts kept in RAM for a verifying run */

struct up_opts {
    struct common_opts common;
    struct home_opts home;
    const char *model, *api, *listen;
    struct opt_texts peers;
    bool no_bonjour, offline;
    struct opt_count rate_limit, disk_budget, upload, upload_peer;
};

#define AT(f) offsetof(struct up_opts, f)
static const struct opt node_table[] = {
    {"model", "M", "folder or http(s) URL of a K3 model; without it the demo model is used",
     OPT_TEXT, AT(model), 0, 0, NULL},
    {"api", "HOST:PORT",
     "answer GET /health and GET /metrics there; only on this machine (127.0.0.1, [::1])", OPT_TEXT,
     AT(api), 0, 0, NULL},
    {"offline", NULL, "never contact the origin: what no peer has is an error", OPT_FLAG,
     AT(offline), 0, 0, NULL},
};
static const struct opt peer_table[] = {
    {"peer-listen", "HOST:PORT",
     "where peers connect: a numeric address, [::] (default) for all; port 0 is the one used last, "
     "if it is free, else any",
     OPT_TEXT, AT(listen), 0, 0, NULL},
    {"peer", "HOST:PORT",
     "a peer that Bonjour does not find; may be given several times, and is remembered", OPT_TEXTS,
     AT(peers), 0, 0, NULL},
    {"no-bonjour", NULL, "announce nothing and look for nobody: only known addresses", OPT_FLAG,
     AT(no_bonjour), 0, 0, NULL},
};
static const struct opt limit_table[] = {
    {"upload-limit", "SIZE", "most bytes a second to all peers together", OPT_BYTES, AT(upload), 1,
     1e18, NULL},
    {"upload-limit-per-peer", "SIZE", "most bytes a second to each peer", OPT_BYTES,
     AT(upload_peer), 1, 1e18, NULL},
    {"rate-limit", "SIZE", "most bytes a second from the origin", OPT_BYTES, AT(rate_limit), 1,
     1e18, NULL},
    {"disk-budget", "SIZE", "most bytes of experts kept on disk", OPT_BYTES, AT(disk_budget), 1,
     1e18, NULL},
};
static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Model and API", node_table, sizeof node_table / sizeof *node_table, 0},
    {"Peers", peer_table, sizeof peer_table / sizeof *peer_table, 0},
    {"Limits", limit_table, sizeof limit_table / sizeof *limit_table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

struct up {
    struct cli *c;
    struct cli_home home;
    struct buf source;
    struct kern_backend *be;
    struct node *node;
    struct api *api;
    pthread_mutex_t lock; /* held until the node is open, and by a verifying run */
    _Atomic(bool) stop;
};

/* ---- what the node asks of this process ---- */

static void on_log(void *ctx, const char *line)
{
    struct up *u = ctx;
    cli_note(u->c, "%s", line);
}

static void on_stop(void *ctx)
{
    struct up *u = ctx;
    atomic_store(&u->stop, true);
}

/* A member wants to know what this node computes. The weights are brought into memory for it and
 * let go again: a node that only serves needs none. */
static void on_verify(void *ctx, const struct mesh_verify_ask *ask, struct mesh_verify_answer *out)
{
    struct up *u = ctx;
    struct cli quiet = *u->c;
    struct cli_session s;
    struct err e = {0};
    pthread_mutex_lock(&u->lock);
    struct session_over over = {u->node, u->be};
    struct model_opts mo = {.model = u->source.p, .over = &over};
    struct compute_opts co = {.ram = {VERIFY_RAM, true}};
    quiet.quiet = true;
    int r = cli_session_open(&s, &quiet, &mo, &co, SESSION_INFER, &e);
    if (!r) {
        r = verify_run(&s, ask, out, &e);
        cli_session_close(&s);
    }
    pthread_mutex_unlock(&u->lock);
    if (r) {
        memset(out, 0, sizeof *out);
        out->code = r;
        snprintf(out->text, sizeof out->text, "%.400s", e.msg);
    }
}

/* ---- opening ---- */

static int open_node(struct up *u, const struct up_opts *o, struct err *e)
{
    char host[64] = "::";
    uint16_t port = 0;
    struct kern_cpu_opts ko = {.isa = KERN_ISA_AUTO};
    struct node_opts no = {.home = u->home.path,
                           .store = {.model = u->source.p,
                                     .offline = o->offline,
                                     .disk_budget = o->disk_budget.v,
                                     .token = cli_origin_token(u->source.p),
                                     .rate_limit = o->rate_limit.v,
                                     .log = on_log,
                                     .log_ctx = u},
                           .listen_host = host,
                           .peers = o->peers.v,
                           .n_peers = o->peers.n,
                           .no_bonjour = o->no_bonjour,
                           .serve_bytes_s = o->upload.v,
                           .serve_peer_bytes_s = o->upload_peer.v,
                           .must_own = true,
                           .verify = on_verify,
                           .verify_ctx = u,
                           .stop = on_stop,
                           .stop_ctx = u};
    if (o->listen) {
        (void)opt_host_port(o->listen, host, sizeof host, &port, true); /* was checked */
    }
    no.listen_port = port;
    if (kern_cpu_open(&ko, &u->be)) {
        return err_set(e, ERR_NOMEM, "cannot start the workers of the CPU backend");
    }
    no.store.mem = infer_store_mem(u->be);
    pthread_mutex_lock(&u->lock);
    int r = node_open(&no, &u->node, e);
    pthread_mutex_unlock(&u->lock);
    return r;
}

/* ---- what is said ---- */

static int say_ready(struct up *u, const json_t *st)
{
    int port = node_port(u->node);
    const json_t *group = json_object_get(st, "group");
    char brief[ID_SHORT];
    const struct key_id *id = mesh_id(node_mesh(u->node));
    id_short(id, brief);
    if (!json_is_string(group)) {
        cli_note(
            u->c,
            "this node is in no shoal, so it shares with nobody: make one with `shoal init%s`, "
            "or join one with `shoal join%s TOKEN`; both may be done while this runs",
            cli_home_flag(&u->home), cli_home_flag(&u->home));
    } else if (json_is_true(json_object_get(st, "removed"))) {
        cli_note(u->c,
                 "this node was removed from the shoal by a keeper: to come back it needs a new "
                 "identity (move %s/identity and %s/shoal away) and a new invite",
                 u->home.path, u->home.path);
    }
    cli_note(u->c, "ready: node %s, model %s; peers connect to port %d%s%s; Control-C ends it",
             brief, u->source.p, port, u->api ? ", the API is at " : "",
             u->api ? api_url(u->api) : "");
    if (!u->c->json) {
        return CLI_OK;
    }
    json_t *v = json_pack("{s:s, s:i}", "event", "ready", "port", port);
    cli_id_json(v, id);
    json_object_set_new(v, "group",
                        json_is_string(group) ? json_copy((json_t *)group) : json_null());
    json_object_set_new(v, "home", json_string(u->home.path));
    json_object_set_new(v, "model", json_string(u->source.p));
    json_object_set_new(v, "api", u->api ? json_string(api_url(u->api)) : json_null());
    json_object_set_new(v, "pid", json_integer((json_int_t)getpid()));
    return cli_json(u->c, v);
}

static int check_usage(struct cli *c, const struct up_opts *o)
{
    char host[DISCO_HOST_MAX + 1];
    uint16_t port;
    struct err e = {0};
    if (o->api && api_check(o->api, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    if (o->listen && !opt_host_port(o->listen, host, 64, &port, true)) {
        return cli_usage(c, "--peer-listen %.100s: it must be ADDRESS:PORT, such as [::]:4433",
                         o->listen);
    }
    for (size_t i = 0; i < o->peers.n; i++) {
        if (!opt_host_port(o->peers.v[i], host, sizeof host, &port, false)) {
            return cli_usage(c, "--peer %.100s: it must be HOST:PORT, such as 10.0.0.7:4433",
                             o->peers.v[i]);
        }
    }
    return CLI_OK;
}

/* ---- life ---- */

static int serve(struct up *u, const struct up_opts *o, struct err *e)
{
    json_t *st = NULL;
    int r = open_node(u, o, e);
    r = r || !o->api ? r : api_open(o->api, u->node, &u->api, e);
    r = r ? r : node_status(u->node, &st, e);
    if (r) {
        return r;
    }
    cli_catch_interrupts();
    int status = say_ready(u, st);
    json_decref(st);
    if (status) {
        return err_set(e, ERR_IO, "cannot write to standard output");
    }
    while (!cli_interrupted() && !atomic_load(&u->stop)) {
        poll(NULL, 0, LOOK_MS);
    }
    cli_note(u->c, "stopping");
    return 0;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct up_opts *o = opts;
    struct up u = {.c = c};
    struct err e = {0};
    int r = check_usage(c, o);
    if (r) {
        return r;
    }
    if (pthread_mutex_init(&u.lock, NULL)) {
        err_set(&e, ERR_NOMEM, "cannot make a lock");
        return cli_fail(c, &e);
    }
    buf_init(&u.source, 4096);
    r = cli_home_open(&u.home, c, &o->home, HOME_PATH, &e);
    r = r ? r : cli_model_source(c->exe, o->model, &u.source, &e);
    r = r ? r : serve(&u, o, &e);
    api_close(u.api);
    node_close(u.node);
    if (u.be) {
        u.be->close(u.be);
    }
    buf_free(&u.source);
    cli_home_close(&u.home);
    pthread_mutex_destroy(&u.lock);
    return r ? cli_fail(c, &e) : CLI_OK;
}

const struct command cmd_up = {
    .name = "up",
    .args = "",
    .summary = "run this machine's node: share experts with the others of the shoal",
    .details =
        "Keeps the node of the home folder running until SIGINT or SIGTERM: it finds the other\n"
        "members, gives them experts that it has, and fetches from them, before the origin, what\n"
        "`shoal run --home` beside it needs. One line on standard error for each change: who came\n"
        "and went, what failed. With --json the first line on standard output is\n"
        "{\"event\": \"ready\", \"port\", \"node\", \"api\", ...}. Alone, without a shoal, it says "
        "how to\n"
        "make or join one.",
    .examples = "  shoal up\n"
                "  shoal up --model https://host/model --peer 10.0.0.7:4433 --api 127.0.0.1:8080\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct up_opts),
    .run = run,
};
