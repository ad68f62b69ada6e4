/* SPDX-License-Identifier: MIT
 * ops.c: requests on the control socket. What takes longer than a look at memory runs on threads of
 * this module, so that one request does not hold up the others. See node_int.h and README.md. */
#include "node/daemon/node_int.h"
#include "node/store/upkeep.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPS_THREADS 4
#define OPS_WAITING 64
#define OPS_VERIFY_MAX 2 /* so that threads are left for the rest */
#define VERIFY_MS 120000
#define VERIFY_MS_MAX 600000
#define INVITE_SECONDS 86400
#define INVITE_SECONDS_MAX (30 * 86400)

struct ops {
    struct node *n;
    struct pool *pool;
    pthread_mutex_t mu;
    int verifying;
    bool stop;
};

struct job {
    struct pool_job j;
    struct ops *o;
    struct control_to to;
    json_t *req;
    int (*run)(struct ops *o, const json_t *req, json_t **out, struct err *e);
};

/* ---- reading requests ---- */

static const char *text(const json_t *req, const char *key)
{
    return json_string_value(json_object_get(req, key));
}

/* A whole number of lo..hi; `dflt` when it is not given. */
static int number(const json_t *req, const char *key, uint64_t lo, uint64_t hi, uint64_t dflt,
                  uint64_t *out, struct err *e)
{
    const json_t *j = json_object_get(req, key);
    json_int_t v = json_integer_value(j);
    *out = j && !json_is_null(j) ? (uint64_t)v : dflt;
    if (j && !json_is_null(j) &&
        (!json_is_integer(j) || v < 0 || (uint64_t)v < lo || (uint64_t)v > hi)) {
        return err_set(e, ERR_ARG, "\"%s\" must be a whole number from %llu to %llu", key,
                       (unsigned long long)lo, (unsigned long long)hi);
    }
    return 0;
}

/* ---- the requests ---- */

static int op_status(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    return status_make(o->n, out, e);
}

static int op_why(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    struct buf b;
    buf_init(&b, CONTROL_ANSWER_MAX);
    int r = mesh_why(o->n->mesh, &b, e);
    if (!r) {
        *out = json_loadb(b.p ? b.p : "", b.n, 0, NULL);
        r = *out ? 0 : err_set(e, ERR_FORMAT, "the report cannot be read");
    }
    buf_free(&b);
    return r;
}

/* The peer that `which` means: an id in any form, or a name that one peer has. */
static int find_peer(struct node *n, const char *which, struct key_id *id, struct err *e)
{
    struct buf b;
    buf_init(&b, CONTROL_ANSWER_MAX);
    int r = mesh_status(n->mesh, &b, e);
    json_t *s = r ? NULL : json_loadb(b.p ? b.p : "", b.n, 0, NULL);
    const json_t *list = json_object_get(s, "peers");
    size_t max = json_array_size(list), k = 0, named = 0;
    struct key_id *ids = calloc(max ? max : 1, sizeof *ids);
    for (size_t i = 0; ids && i < max; i++) {
        const json_t *p = json_array_get(list, i);
        const char *t = text(p, "id"), *name = text(p, "name");
        if (t && !id_parse(t, &ids[k], NULL)) {
            if (name && !strcmp(name, which)) {
                *id = ids[k];
                named++;
            }
            k++;
        }
    }
    size_t at = 0;
    if (!r && named != 1) {
        r = !ids ? err_set(e, ERR_NOMEM, "out of memory")
            : named
                ? err_set(e, ERR_ARG, "%.80s is the name of %zu peers: give an id", which, named)
                : id_find(which, ids, k, &at, e);
        if (!r) {
            *id = ids[at];
        }
    }
    free(ids);
    json_decref(s);
    buf_free(&b);
    return r;
}

static int op_unban(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    struct key_id id;
    const char *peer = text(req, "peer");
    if (!peer) {
        return err_set(e, ERR_ARG, "\"unban\" needs \"peer\"");
    }
    int r = find_peer(o->n, peer, &id, e);
    if (r) {
        return r;
    }
    bool believed = words_believe(o->n, &id, NULL) == 0;
    r = mesh_unban(o->n->mesh, &id, e);
    return r == ERR_NOTFOUND && believed ? 0 : r;
}

static int op_limits(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    struct node *n = o->n;
    uint64_t all, each;
    pthread_mutex_lock(&n->mu);
    uint64_t now_all = n->o.serve_bytes_s, now_each = n->o.serve_peer_bytes_s;
    pthread_mutex_unlock(&n->mu);
    int r = number(req, "out_bytes_s", 0, (uint64_t)1 << 53, now_all, &all, e);
    r = r ? r : number(req, "out_peer_bytes_s", 0, (uint64_t)1 << 53, now_each, &each, e);
    if (r) {
        return r;
    }
    pthread_mutex_lock(&n->mu);
    n->o.serve_bytes_s = all;
    n->o.serve_peer_bytes_s = each;
    pthread_mutex_unlock(&n->mu);
    mesh_limits(n->mesh, all, each);
    *out = json_pack("{s:I,s:I}", "out_bytes_s", (json_int_t)all, "out_peer_bytes_s",
                     (json_int_t)each);
    return 0;
}

static int op_invite(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    char token[TOKEN_TEXT_MAX];
    uint64_t uses, seconds;
    int r = number(req, "uses", 1, 1000, 1, &uses, e);
    r = r ? r : number(req, "seconds", 1, INVITE_SECONDS_MAX, INVITE_SECONDS, &seconds, e);
    r = r ? r : mesh_invite(o->n->mesh, (uint32_t)uses, (uint32_t)seconds, token, e);
    if (!r) {
        *out = json_pack("{s:s,s:I,s:I}", "token", token, "uses", (json_int_t)uses, "seconds",
                         (json_int_t)seconds);
    }
    return r;
}

static int op_add_peer(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    struct node *n = o->n;
    const char *peer = text(req, "peer");
    int r = peer ? files_check_peer(peer, e) : err_set(e, ERR_ARG, "it needs \"peer\"");
    if (r) {
        return r;
    }
    r = mesh_add_static(n->mesh, peer, e);
    bool later = r == ERR_REFUSED; /* in no shoal yet: node_tick names it when there is one */
    if (r && r != ERR_BUSY && !later) {
        return r;
    }
    pthread_mutex_lock(&n->mu);
    bool full = n->files.n_peers == DISCO_STATIC_MAX;
    bool news = files_add_peer(&n->files, peer);
    char *c = later && n->n_late < DISCO_STATIC_MAX ? strdup(peer) : NULL;
    if (c) {
        n->late[n->n_late++] = c;
    }
    r = news ? files_save_peers(n->home, &n->files, e)
        : full
            ? err_set(e, ERR_LIMIT, "there are %d static peers already: take some out of %s/peers",
                      DISCO_STATIC_MAX, n->home)
            : 0;
    pthread_mutex_unlock(&n->mu);
    if (!r) {
        *out = json_pack("{s:s,s:b,s:b}", "peer", peer, "new", news, "waits_for_shoal", later);
    }
    return r;
}

static int op_look(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    mesh_look(o->n->mesh);
    return 0;
}

static int op_verify(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    struct mesh_verify_ask ask = {0};
    struct mesh_verify_answer *a = NULL;
    const char *peer = text(req, "peer"), *prompt = text(req, "prompt");
    uint64_t max_new, ms;
    int r = number(req, "max_new", 1, MESH_VERIFY_NEW, 16, &max_new, e);
    r = r ? r : number(req, "timeout_ms", 1, VERIFY_MS_MAX, VERIFY_MS, &ms, e);
    if (!r && !peer) {
        r = err_set(e, ERR_ARG, "\"verify\" needs \"peer\"");
    }
    if (!r && prompt && strlen(prompt) > MESH_VERIFY_PROMPT) {
        r = err_set(e, ERR_LIMIT, "the prompt is longer than %d bytes", MESH_VERIFY_PROMPT);
    }
    if (r) {
        return r;
    }
    memcpy(ask.prompt, prompt ? prompt : "", prompt ? strlen(prompt) : 0);
    ask.max_new = (uint32_t)max_new;
    pthread_mutex_lock(&o->mu);
    bool room = o->verifying < OPS_VERIFY_MAX && !o->stop;
    o->verifying += room;
    pthread_mutex_unlock(&o->mu);
    if (!room) {
        return err_set(e, ERR_BUSY, "%d verifications are under way: wait for them",
                       OPS_VERIFY_MAX);
    }
    a = calloc(1, sizeof *a);
    r = a ? mesh_verify(o->n->mesh, peer, &ask, (unsigned)ms, a, e)
          : err_set(e, ERR_NOMEM, "out of memory");
    if (!r && a->code) {
        r = err_set(e, a->code, "%s", a->text);
    }
    if (!r) {
        char receipt[2 * SHA256_SIZE + 1], root[2 * SHA256_SIZE + 1];
        json_t *ids = json_array();
        sha256_hex(a->receipt, receipt);
        sha256_hex(a->model_root, root);
        for (uint32_t i = 0; i < a->n_ids && i < MESH_VERIFY_NEW; i++) {
            json_array_append_new(ids, json_integer(a->ids[i]));
        }
        *out = json_pack("{s:s,s:s,s:i,s:o}", "receipt", receipt, "root", root, "numerics",
                         (int)a->numerics_version, "ids", ids);
    }
    free(a);
    pthread_mutex_lock(&o->mu);
    o->verifying--;
    pthread_mutex_unlock(&o->mu);
    return r;
}

static int op_stop(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    if (!o->n->o.stop) {
        return err_set(e, ERR_REFUSED,
                       "the process that runs this node does something else, too: end that");
    }
    o->n->o.stop(o->n->o.stop_ctx);
    return 0;
}

static int op_forget(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    size_t states = 0;
    uint64_t bytes = 0;
    if (!o->n->o.forget) {
        return err_set(e, ERR_REFUSED, "the process that runs this node keeps no states");
    }
    int r = o->n->o.forget(o->n->o.forget_ctx, &states, &bytes, e);
    if (!r) {
        *out = json_pack("{s:I,s:I}", "states", (json_int_t)states, "bytes", (json_int_t)bytes);
    }
    return r;
}

static int op_warm(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    const json_t *on = json_object_get(req, "on");
    if (!o->n->homes) {
        return err_set(e, ERR_OFFLINE, "this node works on no model");
    }
    homes_warm(o->n->homes, !on || json_is_true(on));
    return 0;
}

static int op_drop(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    return drop_request(o->n, req, out, e);
}

static int op_budget(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    return budget_request(o->n, req, out, e);
}

/* The list of adopted folders was changed. */
static int op_adopted(struct ops *o, const json_t *req, json_t **out, struct err *e)
{
    struct store *st = node_store_now(o->n);
    if (!st) {
        return err_set(e, ERR_OFFLINE, "this node works on no model");
    }
    store_adopt_look(st);
    *out = json_pack("{s:o}", "adopted", adopted_json(st));
    return 0;
}

static const struct {
    const char *name;
    int (*run)(struct ops *o, const json_t *req, json_t **out, struct err *e);
} table[] = {
    {"warm", op_warm},         {"status", op_status}, {"why", op_why},
    {"unban", op_unban},       {"limits", op_limits}, {"invite", op_invite},
    {"add_peer", op_add_peer}, {"look", op_look},     {"adopted", op_adopted},
    {"verify", op_verify},     {"stop", op_stop},     {"forget", op_forget},
    {"budget", op_budget},     {"drop", op_drop},
};

/* ---- running them ---- */

static void job_run(struct pool_job *j)
{
    struct job *x = (struct job *)j;
    struct err e = {0};
    json_t *out = NULL;
    int r = x->run(x->o, x->req, &out, &e);
    if (r) {
        json_decref(out);
        control_fail(x->o->n->control, &x->to, r, &e);
    } else {
        control_answer(x->o->n->control, &x->to, out ? out : json_pack("{s:b}", "ok", 1));
    }
    json_decref(x->req);
    free(x);
}

/* To a thread of this module; false: it was answered here. */
static bool hand_on(struct ops *o, const struct control_to *to, json_t *req)
{
    const char *op = text(req, "op");
    struct err e = {0};
    int r = ERR_UNSUPPORTED;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(op, table[i].name)) {
            struct job *x = calloc(1, sizeof *x);
            if (x) {
                *x = (struct job){{.run = job_run}, o, *to, req, table[i].run};
            }
            if (x && pool_add(o->pool, &x->j)) {
                return true;
            }
            free(x);
            r = ERR_BUSY;
        }
    }
    if (r == ERR_BUSY) {
        err_set(&e, r, "too many requests wait for this node: try again later");
    } else {
        err_set(&e, r, "this node knows no request \"%.32s\"", op);
    }
    control_fail(o->n->control, to, r, &e);
    return false;
}

void ops_request(void *ctx, const struct control_to *to, json_t *req)
{
    struct ops *o = ctx;
    const char *op = text(req, "op");
    struct guests *g = node_guests_now(o->n);
    bool kept = false;
    if (!strcmp(op, "ping")) {
        control_answer(o->n->control, to,
                       json_pack("{s:b,s:i,s:b}", "ok", 1, "pid", (int)getpid(), "opening",
                                 o->n->model && !g));
    } else if (!g && !strcmp(op, "hello")) { /* no store, or not yet */
        bool none = !o->n->model;
        control_answer(o->n->control, to,
                       json_pack("{s:b,s:b,s:s}", "match", 0, "wait", !none, "why",
                                 none ? "it works on no model" : ""));
    } else if (!g || !guests_request(g, to, req)) {
        kept = hand_on(o, to, req);
    }
    if (!kept) {
        json_decref(req);
    }
}

void ops_gone(void *ctx, uint64_t client)
{
    struct ops *o = ctx;
    struct guests *g = node_guests_now(o->n);
    if (g) {
        guests_gone(g, client);
    }
}

/* ---- life ---- */

int ops_open(struct node *n, struct ops **out, struct err *e)
{
    struct ops *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    o->n = n;
    pthread_mutex_init(&o->mu, NULL);
    int r = pool_open(OPS_THREADS, OPS_WAITING, &o->pool, e);
    if (r) {
        ops_close(o);
        return r;
    }
    *out = o;
    return 0;
}

void ops_stop(struct ops *o)
{
    if (!o) {
        return;
    }
    pthread_mutex_lock(&o->mu);
    o->stop = true;
    bool wait = o->verifying > 0;
    pthread_mutex_unlock(&o->mu);
    if (wait) { /* an answer may take minutes; without connections it ends now */
        mesh_sleep(o->n->mesh);
    }
    pool_stop(o->pool);
}

void ops_close(struct ops *o)
{
    if (o) {
        pool_free(o->pool);
        pthread_mutex_destroy(&o->mu);
        free(o);
    }
}
