/* SPDX-License-Identifier: MIT
 * cmd_up.c: `shoal up`: a node that serves and fetches until it is told to stop. */
#include "node/cli/budget.h"
#include "node/cli/home.h"
#include "node/cli/service.h"
#include "node/cli/states.h"
#include "node/cli/verify.h"
#include "node/daemon/node.h"
#include "node/store/at_rest.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 200                      /* between two looks at the flags that end it */
#define VERIFY_RAM ((uint64_t)256 << 20) /* experts kept in RAM for a verifying run */

struct up_opts {
    struct common_opts common;
    struct home_opts home;
    struct service_opts service;
    struct compute_opts compute;
    const char *model, *listen;
    struct opt_texts peers, mirrors;
    struct opt_choice metered, trust;
    bool no_bonjour, offline;
    struct opt_count rate_limit, mirror_rate, disk_budget, disk_floor, upload, upload_peer, scrub;
    struct net_opts net;
};

#define AT(f) offsetof(struct up_opts, f)
static const struct opt node_table[] = {
    {"model", "M",
     "folder or http(s) URL of a K3 model, or a hub's org/name[@revision]; without it the demo "
     "model is used",
     OPT_TEXT, AT(model), 0, 0, NULL},
    {"offline", NULL, "never contact the origin: what no peer has is an error", OPT_FLAG,
     AT(offline), 0, 0, NULL},
    NET_OPTS(struct up_opts, net),
    {"mirror", "URL",
     "another address with the model's files, such as a server of the lab; asked before the "
     "origin, "
     "in the order given, and trusted like it; it never sees the token",
     OPT_TEXTS, AT(mirrors), 0, 0, NULL},
    {"trust", "BASIS", CLI_TRUST_HELP, OPT_CHOICE, AT(trust), 0, 0, cli_trust_names},
};
/* In the order of enum node_metered. */
static const char *const metered_words[] = {"auto", "yes", "no", NULL};
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
    {"mirror-rate-limit", "SIZE", CLI_MIRROR_RATE_HELP, OPT_BYTES, AT(mirror_rate), 1, 1e18, NULL},
    {"disk-budget", "SIZE", CLI_DISK_BUDGET_HELP, OPT_BYTES, AT(disk_budget), 1, 1e18, NULL},
    {"scrub", "TIME",
     "every file of the cache is read once in so long, evenly, on mains and beside no answer; "
     "default 30d, 0s: never",
     OPT_TIME, AT(scrub), 0, 1e9, NULL},
    {"disk-floor", "SIZE", CLI_DISK_FLOOR_HELP, OPT_BYTES, AT(disk_floor), 1, 1e18, NULL},
    {"metered", "WHEN",
     "does this machine's network cost by the byte: then nothing is copied in the background; yes, "
     "no, or auto (default): what the system says, which macOS does (hotspots, Low Data Mode) and "
     "Linux does not",
     OPT_CHOICE, AT(metered), 0, 0, metered_words},
};
static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Model", node_table, sizeof node_table / sizeof *node_table, 0},
    {"API", service_opts_table, SERVICE_OPTS_COUNT, AT(service)},
    {"Peers", peer_table, sizeof peer_table / sizeof *peer_table, 0},
    {"Limits", limit_table, sizeof limit_table / sizeof *limit_table, 0},
    {"Computation, with --api", compute_opts_table, COMPUTE_OPTS_COUNT, AT(compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

struct up {
    struct cli *c;
    struct cli_home home;
    struct buf source;
    struct cli_net net;
    struct compute *compute;
    struct node *node;
    bool with_api;
    struct cli quiet; /* of the sessions: they say no plan and show no progress */
    struct cli_session session;
    bool session_open;
    struct service *service; /* NULL without the API */
    atomic_bool serving;     /* `service` may be asked */
    pthread_mutex_t lock;    /* held until the node is open, and by a verifying run */
};

/* ---- what the node asks of this process ---- */

static void on_log(void *ctx, const char *line)
{
    struct up *u = ctx;
    cli_note(u->c, "%s", line);
}

/* As a signal does: what runs a prompt for a member looks at the same flag. */
static void on_stop(void *ctx)
{
    (void)ctx;
    if (!cli_interrupted()) {
        kill(getpid(), SIGTERM);
    }
}

/* A member wants to know what this node computes. The weights are brought into memory for it and
 * let go again: a node that only serves needs none. */
static void on_verify(void *ctx, const struct mesh_verify_ask *ask, struct mesh_verify_answer *out)
{
    struct up *u = ctx;
    struct cli_session s;
    struct err e = {0};
    int r;
    if (atomic_load(&u->serving)) { /* its engine has the weights already */
        r = service_verify(u->service, ask, out, &e);
    } else if (u->with_api) {
        r = err_set(&e, ERR_BUSY, "this node is starting");
    } else {
        pthread_mutex_lock(&u->lock);
        struct session_over over = {u->node, u->compute};
        struct model_opts mo = {.model = u->source.p, .over = &over};
        struct compute_opts co = {.ram = {VERIFY_RAM, true}};
        r = cli_session_open(&s, &u->quiet, &mo, &co, SESSION_INFER, &e);
        if (!r) {
            r = verify_run(&s, ask, out, &e);
            cli_session_close(&s);
        }
        pthread_mutex_unlock(&u->lock);
    }
    if (r) {
        memset(out, 0, sizeof *out);
        out->code = r;
        snprintf(out->text, sizeof out->text, "%.400s", e.msg);
    }
}

static int on_forget(void *ctx, size_t *n, uint64_t *bytes, struct err *e)
{
    struct up *u = ctx;
    if (atomic_load(&u->serving)) {
        return service_forget(u->service, n, bytes, e);
    }
    *n = 0;
    *bytes = 0;
    return states_clear(u->home.path, NULL, n, bytes, e);
}

static json_t *on_compute(void *ctx)
{
    return cli_compute_json(((struct up *)ctx)->compute);
}

/* ---- opening ---- */

static int open_node(struct up *u, const struct up_opts *o, struct err *e)
{
    char host[64] = "::";
    uint16_t port = 0;
    struct node_opts no = {.home = u->home.path,
                           .scrub_s = !o->scrub.set ? 0
                                      : o->scrub.v  ? o->scrub.v
                                                    : UINT64_MAX,
                           .store = {.model = u->source.p,
                                     .offline = u->net.offline,
                                     .disk_budget = o->disk_budget.v,
                                     .disk_floor = o->disk_floor.v,
                                     .token = cli_net_token(&u->net),
                                     .ca_file = cli_net_ca(&u->net),
                                     .rate_limit = o->rate_limit.v,
                                     .mirror_rate = o->mirror_rate.v,
                                     .rate_conn = o->net.rate_conn.v,
                                     .mirrors = o->mirrors.v,
                                     .n_mirrors = o->mirrors.n,
                                     .log = on_log,
                                     .log_ctx = u},
                           .listen_host = host,
                           .peers = o->peers.v,
                           .n_peers = o->peers.n,
                           .no_bonjour = o->no_bonjour,
                           .serve_bytes_s = o->upload.v,
                           .serve_peer_bytes_s = o->upload_peer.v,
                           .metered =
                               o->metered.set ? (enum node_metered)o->metered.v : NODE_METERED_AUTO,
                           .must_own = true,
                           .verify = on_verify,
                           .verify_ctx = u,
                           .stop = on_stop,
                           .stop_ctx = u,
                           .forget = on_forget,
                           .forget_ctx = u,
                           .compute = on_compute,
                           .compute_ctx = u};
    if (o->listen) {
        (void)opt_host_port(o->listen, host, sizeof host, &port, true); /* was checked */
    }
    no.listen_port = port;
    int r = cli_compute_open(u->c, &o->compute, u->home.path, on_log, u, &u->compute, e);
    if (r) {
        return r;
    }
    no.store.mem = infer_store_mem(compute_backend(u->compute));
    pthread_mutex_lock(&u->lock);
    r = node_open(&no, &u->node, e);
    pthread_mutex_unlock(&u->lock);
    if (r == ERR_BUSY && !strncmp(e->msg, "cannot listen", 13)) {
        char was[sizeof e->msg];
        memcpy(was, e->msg, sizeof was);
        err_set(e, r, "%.400s; --peer-listen HOST:PORT names another (port 0: any that is free)",
                was);
    }
    struct err why = {0};
    if (r && r != ERR_BUSY && r != ERR_ARG && rest_can_write(u->home.path, &why)) {
        return err_set(e, why.code,
                       "no node can run in %.200s, which it writes to: %.250s; %s, or give another "
                       "--home (shoal run reads the cache there all the same)",
                       u->home.path, why.msg,
                       why.code == ERR_FULL ? "free some space there" : "make it writable");
    }
    return r ? cli_model_hint(u->source.p, e) : 0;
}

static int open_service(struct up *u, const struct up_opts *o, struct err *e)
{
    struct session_over over = {u->node, u->compute};
    struct service_setup su = {
        .o = &o->service, .c = u->c, .states = u->home.path, .demo = !o->model, .retry = true};
    u->service = service_new();
    struct model_opts mo = {.model = u->source.p,
                            .over = &over,
                            .trust = o->trust,
                            .progress = service_progress,
                            .progress_ctx = u->service};
    if (!u->service) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = cli_session_open(&u->session, &u->quiet, &mo, &o->compute, SESSION_PLAN, e);
    u->session_open = !r;
    r = r ? r : service_open(u->service, &su, &u->session, e);
    if (!r) {
        atomic_store(&u->serving, true);
    }
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
    struct store_budget sb;
    char disk[CLI_BUDGET];
    if (!store_get_budget(node_store(u->node), &sb, NULL)) {
        cli_note(u->c, "disk    %s", cli_budget_words(&sb, disk));
    }
    const char *url = u->service ? service_url(u->service) : NULL;
    cli_note(u->c, "ready: node %s, model %s; peers connect to port %d%s%s%s; Control-C ends it",
             brief, u->source.p, port, url ? ", the API listens at " : "", url ? url : "",
             url ? ", and answers once the model is loaded" : "");
    if (!u->c->json) {
        return CLI_OK;
    }
    json_t *v = json_pack("{s:s, s:i}", "event", "ready", "port", port);
    cli_id_json(v, id);
    json_object_set_new(v, "group",
                        json_is_string(group) ? json_copy((json_t *)group) : json_null());
    json_object_set_new(v, "home", json_string(u->home.path));
    json_object_set_new(v, "model", json_string(u->source.p));
    json_object_set_new(v, "api", url ? json_string(url) : json_null());
    json_object_set_new(v, "pid", json_integer((json_int_t)getpid()));
    return cli_json(u->c, v);
}

static int check_usage(struct cli *c, const struct up_opts *o)
{
    char host[DISCO_HOST_MAX + 1];
    uint16_t port;
    struct err e = {0};
    if (service_opts_check(&o->service, &e)) {
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

static int find_net(struct up *u, const struct up_opts *o, struct err *e)
{
    struct buf cache;
    buf_init(&cache, 4096);
    int r = cli_cache_find(NULL, u->home.path, NULL, &cache, e);
    r = r ? r : cli_net_open(&u->net, &o->net, o->offline, cache.p, &u->source, e);
    if (!r && u->net.said[0]) {
        cli_note(u->c, "%s", u->net.said);
    }
    buf_free(&cache);
    return r;
}

static int serve(struct up *u, const struct up_opts *o, struct err *e)
{
    json_t *st = NULL;
    int r = open_node(u, o, e);
    if (!r && u->with_api) {
        r = open_service(u, o, e);
    }
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
    while (!cli_interrupted()) {
        poll(NULL, 0, LOOK_MS);
    }
    cli_note(u->c, "stopping");
    return 0;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct up_opts *o = opts;
    struct up u = {.c = c, .quiet = *c, .with_api = o->service.api != NULL};
    struct err e = {0};
    int r = check_usage(c, o);
    if (r) {
        return r;
    }
    if (pthread_mutex_init(&u.lock, NULL)) {
        err_set(&e, ERR_NOMEM, "cannot make a lock");
        return cli_fail(c, &e);
    }
    u.quiet.quiet = u.quiet.brief = true;
    buf_init(&u.source, 4096);
    r = service_may_open(&o->service, &e);
    r = r ? r : cli_home_open(&u.home, c, &o->home, HOME_PATH, &e);
    r = r ? r : cli_model_source(c->exe, o->model, &u.source, &e);
    r = r ? r : find_net(&u, o, &e);
    r = r ? r : serve(&u, o, &e);
    service_stop(u.service);
    if (u.session_open) {
        cli_session_close(&u.session);
    }
    node_close(u.node);
    service_free(u.service);
    compute_close(u.compute);
    buf_free(&u.source);
    cli_net_close(&u.net);
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
        "make or join one. With --api it also loads the model and answers requests of other\n"
        "programs, see README.md; `shoal serve` does that without a node.",
    .examples = "  shoal up\n"
                "  shoal up --model https://host/model --peer 10.0.0.7:4433 --api 127.0.0.1:8080\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct up_opts),
    .run = run,
};
