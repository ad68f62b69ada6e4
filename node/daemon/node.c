/* SPDX-License-Identifier: MIT
 * node.c: opening and closing a node, in an order that nobody waits for in a circle. See node.h and
 * node_int.h.
 *
 * An owner opens: lock, threads, mesh, socket, store, what joins them. It closes: socket and
 * requests (they ask mesh and store), prompts for members (they read the store, which may wait for
 * the mesh), guests, threads, then the joint is cut (lan_stop), the mesh ends every fetch, the
 * store loses its upstream and closes. */
#include "node/daemon/node_int.h"

#include "node/store/place.h"
#include "node/store/upkeep.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POOL_THREADS 2
#define POOL_WAITING 1024
#define TICK_S 2
#define HEAR_MS 500
#define OWNER_MS 60000

void node_log(struct node *n, const char *fmt, ...)
{
    char line[800];
    va_list ap;
    if (!n->o.store.log) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    n->o.store.log(n->o.store.log_ctx, line);
}

struct store *node_store_now(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    struct store *st = n->st;
    pthread_mutex_unlock(&n->mu);
    return st;
}

struct guests *node_guests_now(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    struct guests *g = n->guests;
    pthread_mutex_unlock(&n->mu);
    return g;
}

/* ---- callbacks of the mesh ---- */

static unsigned on_yield(void *ctx, unsigned prio)
{
    return yield_ms(&((struct node *)ctx)->yield, prio);
}

static void on_verify(void *ctx, uint64_t id, const struct mesh_verify_ask *ask)
{
    verify_ask(((struct node *)ctx)->verify, id, ask);
}

static void on_log(void *ctx, const char *line)
{
    struct node *n = ctx;
    if (n->o.store.log) {
        n->o.store.log(n->o.store.log_ctx, line);
    }
}

/* ---- what is done from time to time ---- */

/* Static peers that were given before there was a shoal. */
static void name_late_peers(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    char *peer = n->n_late ? n->late[n->n_late - 1] : NULL;
    pthread_mutex_unlock(&n->mu);
    if (peer && mesh_add_static(n->mesh, peer, NULL) != ERR_REFUSED) {
        pthread_mutex_lock(&n->mu);
        for (size_t i = 0; i < n->n_late; i++) {
            if (n->late[i] == peer) {
                n->late[i] = n->late[--n->n_late];
                free(peer);
                break;
            }
        }
        pthread_mutex_unlock(&n->mu);
    }
}

static void *tick_main(void *ctx)
{
    struct node *n = ctx;
    struct timespec t;
    pthread_mutex_lock(&n->mu);
    while (!n->tick_stop) {
        clock_gettime(CLOCK_REALTIME, &t); /* a changed clock makes one tick early or late */
        t.tv_sec += TICK_S;
        if (pthread_cond_timedwait(&n->tick, &n->mu, &t) == ETIMEDOUT && !n->tick_stop) {
            struct lan *l = n->lan;
            pthread_mutex_unlock(&n->mu);
            if (l) {
                lan_tick(l);
            }
            name_late_peers(n);
            pthread_mutex_lock(&n->mu);
        }
    }
    pthread_mutex_unlock(&n->mu);
    return NULL;
}

static void stop_ticking(struct node *n)
{
    if (n->ticking) {
        pthread_mutex_lock(&n->mu);
        n->tick_stop = true;
        pthread_cond_signal(&n->tick);
        pthread_mutex_unlock(&n->mu);
        pthread_join(n->ticker, NULL);
        n->ticking = false;
    }
}

/* ---- opening ---- */

static char *copy(const char *s)
{
    return s ? strdup(s) : NULL;
}

/* HOME/cache, or what was given, or where that was moved to. */
static int find_cache(struct node *n, const struct node_opts *o, struct err *e)
{
    struct buf named, at;
    buf_init(&named, PLACE_PATH_MAX);
    buf_init(&at, PLACE_PATH_MAX);
    int r = o->store.cache_dir ? buf_adds(&named, o->store.cache_dir)
                               : buf_addf(&named, "%s/cache", o->home);
    r = r ? err_set(e, ERR_LIMIT, "the path of the cache folder is too long")
          : place_find(named.p, &at, e);
    n->cache = r ? NULL : strdup(at.p);
    buf_free(&named);
    buf_free(&at);
    return r || n->cache ? r : err_set(e, ERR_NOMEM, "out of memory");
}

static struct node *make(const struct node_opts *o, struct err *e)
{
    struct node *n = calloc(1, sizeof *n);
    if (!n) {
        err_set(e, ERR_NOMEM, "out of memory");
        return NULL;
    }
    n->lock = -1;
    n->opened_at = clock_ns();
    n->o = *o;
    n->home = copy(o->home);
    n->model = copy(o->store.model);
    int placed = o->home && *o->home ? find_cache(n, o, e) : 0;
    pthread_mutex_init(&n->mu, NULL);
    pthread_cond_init(&n->tick, NULL);
    yield_init(&n->yield);
    gave_init(&n->gave);
    files_host_name(n->name);
    if (placed) {
        node_close(n);
        return NULL;
    }
    if (!n->cache || !n->home || !*n->home || (o->store.model && !n->model)) {
        node_close(n);
        err_set(e, o->home && *o->home ? ERR_NOMEM : ERR_ARG,
                o->home && *o->home ? "out of memory" : "a node needs a home folder");
        return NULL;
    }
    n->o.home = n->home;
    n->o.store.model = n->model;
    n->o.store.cache_dir = n->cache;
    n->o.listen_host = NULL; /* the caller's strings are not looked at later */
    n->o.peers = NULL;
    n->o.store.token = NULL;
    return n;
}

static int open_mesh(struct node *n, const struct node_opts *o, struct err *e)
{
    files_load(n->home, &n->files, o->store.log, o->store.log_ctx);
    bool news = false;
    for (size_t i = 0; i < o->n_peers; i++) {
        int r = files_check_peer(o->peers[i], e);
        if (r) {
            return r;
        }
        news |= files_add_peer(&n->files, o->peers[i]);
    }
    struct mesh_opts m = {
        .home = n->home,
        .software = NODE_SOFTWARE,
        .listen_host = o->listen_host,
        .listen_port = o->listen_port ? o->listen_port : n->files.port,
        .static_peers = (const char *const *)n->files.peers,
        .n_static = n->files.n_peers,
        .no_bonjour = o->no_bonjour,
        .out_bytes_s = o->serve_bytes_s,
        .out_peer_bytes_s = o->serve_peer_bytes_s,
        .yield_ms = on_yield,
        .known_networks = true,
        .name = *n->name ? n->name : NULL,
        .file_read = lan_file_read,
        .verify = o->verify ? on_verify : NULL,
        .bad_copy = lan_bad_copy,
        .log = on_log,
        .brief = o->brief,
        .ctx = n,
    };
    int r = mesh_open(&m, &n->mesh, e);
    if (r == ERR_BUSY && !o->listen_port && m.listen_port) { /* somebody else has it now */
        m.listen_port = 0;
        r = mesh_open(&m, &n->mesh, e);
    }
    if (r) {
        return r;
    }
    struct err e1 = {0};
    int port = mesh_port(n->mesh);
    if (port != n->files.port && files_save_port(n->home, port, &e1)) {
        node_log(n, "the port is not remembered: %s", e1.msg);
    }
    if (news && files_save_peers(n->home, &n->files, &e1)) {
        node_log(n, "the static peers are not remembered: %s", e1.msg);
    }
    return 0;
}

static int open_store(struct node *n, const struct node_opts *o, struct err *e)
{
    struct store_opts so = o->store;
    struct store *st = NULL;
    so.cache_dir = n->cache;
    if (n->owner && !so.meta) {
        n->meta = (struct store_meta_peers){n, lan_meta_get, lan_meta_bad};
        so.meta = &n->meta;
    }
    int r = store_open(&so, &st, e);
    if (!r) {
        pthread_mutex_lock(&n->mu);
        n->st = st;
        pthread_mutex_unlock(&n->mu);
    }
    return r;
}

/* Does a peer work on the same model and has not said yet what it holds? */
static bool peers_silent(struct node *n)
{
    struct buf b;
    bool silent = false;
    buf_init(&b, CONTROL_ANSWER_MAX);
    json_t *root = mesh_status(n->mesh, &b, NULL) ? NULL : json_loadb(b.p, b.n, 0, NULL);
    const json_t *list = json_object_get(root, "peers");
    for (size_t i = 0; i < json_array_size(list) && !silent; i++) {
        const json_t *p = json_array_get(list, i);
        silent = json_is_true(json_object_get(p, "model_same")) &&
                 !json_integer_value(json_object_get(p, "objects"));
    }
    json_decref(root);
    buf_free(&b);
    return silent;
}

/* Peers that were met before there was a model are told of it and say what they hold: a moment is
 * waited for that, so that the first requests do not go past them. */
static void hear_peers(struct node *n)
{
    uint64_t end = clock_ns() + HEAR_MS * MS_NS;
    while (mesh_peers(n->mesh) > 0 && peers_silent(n) && clock_ns() < end) {
        usleep(10000);
    }
}

static int join_tiers(struct node *n, struct err *e)
{
    struct lan *l = NULL;
    struct guests *g = NULL;
    int r = words_open(n, &n->words, e);
    r = r ? r : lan_open(n, &l, e);
    pthread_mutex_lock(&n->mu);
    n->lan = l;
    pthread_mutex_unlock(&n->mu);
    r = r ? r : words_start(n->words, e);
    r = r ? r : guests_open(n, &g, e);
    struct homes *h = NULL;
    r = r ? r : homes_open(n, n->o.power, &h, e);
    n->homes = h;
    if (!r) {
        hear_peers(n);
    }
    pthread_mutex_lock(&n->mu);
    n->guests = g;
    pthread_mutex_unlock(&n->mu);
    return r;
}

static void on_sleep(void *ctx)
{
    struct node *n = ctx;
    node_log(n, "the machine goes to sleep: peers are told, nothing is announced");
    mesh_sleep(n->mesh);
}

static void on_wake(void *ctx)
{
    struct node *n = ctx;
    node_log(n, "the machine is awake again");
    mesh_wake(n->mesh);
}

static int open_owner(struct node *n, const struct node_opts *o, struct err *e)
{
    struct control_ops c = {.request = ops_request, .gone = ops_gone};
    int r = pool_open(POOL_THREADS, POOL_WAITING, &n->pool, e);
    if (!r && o->verify) {
        r = verify_open(n, &n->verify, e);
    }
    r = r ? r : open_mesh(n, o, e);
    r = r ? r : ops_open(n, &n->ops, e);
    c.ctx = n->ops;
    r = r ? r : control_open(n->home, &c, &n->control, e);
    if (!r && n->model) {
        r = open_store(n, o, e);
        if (!r) {
            upkeep_join(n, o->scrub_s ? o->scrub_s : STORE_SCRUB_PERIOD_S);
        }
        r = r ? r : join_tiers(n, e);
    }
    if (!r && pthread_create(&n->ticker, NULL, tick_main, n)) {
        r = err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    n->ticking = !r;
    if (!r) {
        sleeper_init(&n->sleeper, on_sleep, on_wake, n);
        n->sleep_watch = sleep_watch(sleeper_event, &n->sleeper);
    }
    return r;
}

/* An owner that is just reading the model's metadata does that for both: it is in the cache then.
 */
static void let_owner_open(struct node *n)
{
    json_t *q = json_pack("{s:s}", "op", "ping"), *a = NULL;
    uint64_t end = clock_ns() + OWNER_MS * MS_NS;
    bool opening = true;
    while (q && opening && clock_ns() < end) {
        opening =
            !node_ask(n->home, q, 1000, &a, NULL) && json_is_true(json_object_get(a, "opening"));
        json_decref(a);
        a = NULL;
        if (opening) {
            usleep(50000);
        }
    }
    json_decref(q);
}

int node_open(const struct node_opts *o, struct node **out, struct err *e)
{
    *out = NULL;
    struct node *n = make(o, e);
    if (!n) {
        return ERR_NOMEM;
    }
    int r = file_mkdirs(n->home, e);
    if (!r) {
        r = control_lock(n->home, &n->lock, e);
        n->owner = !r;
        r = r == ERR_BUSY && !o->must_own ? 0 : r;
    }
    if (!r && n->owner) {
        r = open_owner(n, o, e);
    } else if (!r && n->model) {
        let_owner_open(n);
        r = open_store(n, o, e);
        r = r ? r : guest_open(n, &n->guest, e);
    }
    if (r) {
        node_close(n);
        return r;
    }
    *out = n;
    return 0;
}

/* ---- closing ---- */

static void close_owner(struct node *n)
{
    if (n->ticking) { /* all was opened */
        sleep_unwatch(n->sleep_watch);
        sleeper_free(&n->sleeper);
    }
    control_stop(n->control);
    ops_stop(n->ops);
    verify_stop(n->verify);
    guests_stop(n->guests);
    words_stop(n->words);
    pool_stop(n->pool);
    homes_stop(n->homes);
    stop_ticking(n);
    if (n->lan) {
        lan_stop(n->lan);
    }
    mesh_close(n->mesh);
    lan_close(n->lan);
    words_free(n->words);
    guests_close(n->guests);
    homes_close(n->homes);
    verify_free(n->verify);
    ops_close(n->ops);
    control_free(n->control);
    pool_free(n->pool);
}

void node_close(struct node *n)
{
    if (!n) {
        return;
    }
    if (n->owner) {
        close_owner(n);
    }
    guest_close(n->guest);
    store_close(n->st);
    if (n->lock >= 0) {
        close(n->lock);
    }
    while (n->n_late) {
        free(n->late[--n->n_late]);
    }
    files_free(&n->files);
    gave_free(&n->gave);
    yield_free(&n->yield);
    pthread_cond_destroy(&n->tick);
    pthread_mutex_destroy(&n->mu);
    free(n->home);
    free(n->cache);
    free(n->model);
    free(n);
}

/* ---- the rest of node.h ---- */

struct store *node_store(struct node *n)
{
    return node_store_now(n);
}

bool node_owner(const struct node *n)
{
    return n->owner;
}

struct mesh *node_mesh(struct node *n)
{
    return n->mesh;
}

int node_port(const struct node *n)
{
    return n->mesh ? mesh_port(n->mesh) : 0;
}

void node_computing(struct node *n, int by)
{
    if (n->st) {
        store_computing(n->st, by);
    }
    if (n->owner) {
        yield_computing(&n->yield, by);
    } else if (n->guest) {
        guest_computing(n->guest, by);
    }
}

int node_status(struct node *n, json_t **out, struct err *e)
{
    *out = NULL;
    if (n->owner) {
        return status_make(n, out, e);
    }
    json_t *q = json_pack("{s:s}", "op", "status");
    int r = q ? node_ask(n->home, q, 0, out, e) : err_set(e, ERR_NOMEM, "out of memory");
    json_decref(q);
    return r;
}
