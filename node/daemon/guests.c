/* SPDX-License-Identifier: MIT
 * guests.c: the owner's side of other processes that read the same cache: what they lack comes to
 * the disk by this process's store, so through peers or the origin, once for all. See node_int.h.
 *
 * Requests: {"op":"hello","root":HEX,"cache":MARK} before anything else; then {"op":"fetch","id":N,
 * "prio":0..2} (enum store_prio), answered when it is on disk or not to be had, with "peer_bytes"
 * and "origin_bytes"; {"op":"cancel","of":SEQ}, {"op":"raise","of":SEQ,"prio":N} for a fetch of
 * that "seq"; {"op":"computing","by":+1 or -1}. A guest is also told, without a
 * "seq", {"taken_back":[ids],"why":S}: bytes that it may be using count no longer. */
#include "node/daemon/node_int.h"

#include "node/store/want.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BUCKETS 1024
#define BACKS_AT_ONCE 4096 /* ids in a line */

struct gfetch {
    struct gfetch *next; /* in its bucket */
    uint64_t tag;
    struct control_to to;
};

struct gclient {
    uint64_t id; /* 0: free */
    int computing;
    bool matched;
    uint64_t fetches;
};

struct guests {
    struct node *n;
    struct store_wants *wants;
    pthread_t thread;
    bool threaded;
    pthread_mutex_t mu;
    struct gfetch *bucket[BUCKETS]; /* by client and seq */
    uint64_t next_tag;
    struct gclient c[CONTROL_CLIENTS_MAX];
    uint64_t fetches;
};

/* ---- who asks ---- */

json_t *guests_cache_mark(const char *cache)
{
    struct stat sb;
    if (!cache || stat(cache, &sb)) {
        return json_null();
    }
    return json_sprintf("%llx:%llx", (unsigned long long)sb.st_dev, (unsigned long long)sb.st_ino);
}

/* With mu; makes it when it is not there. NULL: no room, which CONTROL_CLIENTS_MAX rules out. */
static struct gclient *client(struct guests *g, uint64_t id, bool make)
{
    struct gclient *free_one = NULL;
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        if (g->c[i].id == id) {
            return &g->c[i];
        }
        free_one = free_one || g->c[i].id ? free_one : &g->c[i];
    }
    if (make && free_one) {
        *free_one = (struct gclient){.id = id};
        return free_one;
    }
    return NULL;
}

static void hello(struct guests *g, const struct control_to *to, const json_t *req)
{
    const char *root = json_string_value(json_object_get(req, "root"));
    json_t *mark = guests_cache_mark(g->n->cache);
    char mine[2 * SHA256_SIZE + 1];
    sha256_hex(model_root(store_model(g->n->st)), mine);
    bool same_root = root && !strcmp(root, mine);
    bool same_cache = json_is_string(mark) && json_equal(mark, json_object_get(req, "cache"));
    json_decref(mark);
    pthread_mutex_lock(&g->mu);
    struct gclient *c = client(g, to->client, true);
    bool match = c && same_root && same_cache;
    if (c) {
        c->matched = match;
    }
    pthread_mutex_unlock(&g->mu);
    const char *why = !same_root    ? "it works on another model"
                      : !same_cache ? "it uses another cache folder"
                                    : "";
    control_answer(g->n->control, to, json_pack("{s:b,s:s}", "match", match, "why", why));
}

/* ---- fetches ---- */

static struct gfetch **find(struct guests *g, uint64_t id, json_int_t seq)
{
    struct gfetch **at = &g->bucket[((uint64_t)seq ^ id << 7) % BUCKETS];
    while (*at && ((*at)->to.client != id || (*at)->to.seq != seq)) {
        at = &(*at)->next;
    }
    return at;
}

static bool prio_of(const json_t *req, enum store_prio *p)
{
    const json_t *j = json_object_get(req, "prio");
    json_int_t v = json_integer_value(j);
    *p = (enum store_prio)v;
    return json_is_integer(j) && v >= STORE_DEMAND && v <= STORE_BACKGROUND;
}

static int fetch(struct guests *g, const struct control_to *to, const json_t *req, struct err *e)
{
    const json_t *j = json_object_get(req, "id");
    json_int_t id = json_integer_value(j);
    enum store_prio prio;
    if (!json_is_integer(j) || id < 0 || id >= MODEL_NONE || !prio_of(req, &prio) || !to->has_seq) {
        return err_set(e, ERR_FORMAT, "\"fetch\" needs \"seq\", \"id\" and \"prio\" 0 to 2");
    }
    struct gfetch *f = calloc(1, sizeof *f);
    if (!f) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    f->to = *to;
    lan_forget(g->n->lan, (uint32_t)id);
    pthread_mutex_lock(&g->mu);
    struct gclient *c = client(g, to->client, false);
    struct gfetch **at = find(g, to->client, to->seq);
    int r = !c || !c->matched
                ? err_set(e, ERR_REFUSED, "say hello with the same model and cache first")
            : *at ? err_set(e, ERR_ARG, "that \"seq\" is under way already")
                  : 0;
    if (!r) {
        f->tag = ++g->next_tag;
        *at = f;
        c->fetches++;
        g->fetches++;
    }
    pthread_mutex_unlock(&g->mu);
    if (r) {
        free(f);
        return r;
    }
    r = store_wants_add(g->wants, f->tag, (uint32_t)id, prio, e);
    if (r) {
        pthread_mutex_lock(&g->mu);
        at = find(g, to->client, to->seq);
        *at = (*at)->next;
        pthread_mutex_unlock(&g->mu);
        free(f);
    }
    return r;
}

/* "cancel" and "raise". */
static int touch(struct guests *g, const struct control_to *to, const json_t *req, bool cancel,
                 struct err *e)
{
    const json_t *of = json_object_get(req, "of");
    enum store_prio prio = STORE_DEMAND;
    if (!json_is_integer(of) || (!cancel && !prio_of(req, &prio))) {
        return err_set(e, ERR_FORMAT, "it needs \"of\", the \"seq\" of a fetch%s",
                       cancel ? "" : ", and \"prio\"");
    }
    pthread_mutex_lock(&g->mu);
    struct gfetch *f = *find(g, to->client, json_integer_value(of));
    uint64_t tag = f ? f->tag : 0;
    struct control_to its = f ? f->to : *to;
    pthread_mutex_unlock(&g->mu);
    if (!f) {
        return 0; /* it has ended meanwhile */
    }
    if (!cancel) {
        store_wants_raise(g->wants, tag, prio);
    } else if (store_wants_drop(g->wants, tag)) {
        pthread_mutex_lock(&g->mu);
        struct gfetch **at = find(g, its.client, its.seq);
        f = *at;
        *at = f->next;
        pthread_mutex_unlock(&g->mu);
        free(f);
        control_fail(g->n->control, &its, ERR_CANCELLED, NULL);
    }
    return 0;
}

static void *thread_main(void *ctx)
{
    struct guests *g = ctx;
    uint64_t tag;
    uint32_t id;
    int code;
    struct err why = {0};
    while (!store_wants_next(g->wants, &tag, &id, &code, &why)) {
        struct gfetch *f = NULL;
        uint64_t peer = 0, origin = 0;
        pthread_mutex_lock(&g->mu);
        for (size_t i = 0; i < BUCKETS && !f; i++) {
            struct gfetch **at = &g->bucket[i];
            while (*at && (*at)->tag != tag) {
                at = &(*at)->next;
            }
            f = *at;
            if (f) {
                *at = f->next;
            }
        }
        pthread_mutex_unlock(&g->mu);
        if (!f) {
            continue;
        }
        lan_brought(g->n->lan, id, &peer, &origin);
        if (code) {
            control_fail(g->n->control, &f->to, code, &why);
        } else {
            control_answer(g->n->control, &f->to,
                           json_pack("{s:I,s:I}", "peer_bytes", (json_int_t)peer, "origin_bytes",
                                     (json_int_t)origin));
        }
        free(f);
    }
    return NULL;
}

/* ---- computing ---- */

static int computing(struct guests *g, const struct control_to *to, const json_t *req,
                     struct err *e)
{
    json_int_t by = json_integer_value(json_object_get(req, "by"));
    if (by != 1 && by != -1) {
        return err_set(e, ERR_FORMAT, "\"by\" is 1 or -1");
    }
    pthread_mutex_lock(&g->mu);
    struct gclient *c = client(g, to->client, true);
    bool fits = c && c->computing + by >= 0 && c->computing + by <= 1000;
    if (fits) {
        c->computing += (int)by;
    }
    pthread_mutex_unlock(&g->mu);
    if (fits) {
        yield_computing(&g->n->yield, (int)by);
    }
    return fits ? 0 : err_set(e, ERR_ARG, "there are not so many decodes");
}

/* ---- requests ---- */

bool guests_request(struct guests *g, const struct control_to *to, const json_t *req)
{
    const char *op = json_string_value(json_object_get(req, "op"));
    struct err e = {0};
    int r;
    if (!strcmp(op, "hello")) {
        hello(g, to, req);
        return true;
    }
    if (!strcmp(op, "fetch")) {
        r = fetch(g, to, req, &e);
        if (!r) {
            return true; /* answered when it has ended */
        }
    } else if (!strcmp(op, "cancel") || !strcmp(op, "raise")) {
        r = touch(g, to, req, *op == 'c', &e);
    } else if (!strcmp(op, "computing")) {
        r = computing(g, to, req, &e);
    } else {
        return false;
    }
    if (r) {
        control_fail(g->n->control, to, r, &e);
    } else {
        control_answer(g->n->control, to, json_pack("{s:b}", "ok", 1));
    }
    return true;
}

void guests_taken_back(struct guests *g, const uint32_t *ids, size_t n, const char *why)
{
    struct control_to to[CONTROL_CLIENTS_MAX];
    size_t n_to = 0;
    pthread_mutex_lock(&g->mu);
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        if (g->c[i].id && g->c[i].matched) {
            to[n_to++] = (struct control_to){.client = g->c[i].id};
        }
    }
    pthread_mutex_unlock(&g->mu);
    for (size_t i = 0; n_to && i < n; i += BACKS_AT_ONCE) {
        json_t *list = json_array();
        for (size_t k = i; k < n && k < i + BACKS_AT_ONCE; k++) {
            json_array_append_new(list, json_integer(ids[k]));
        }
        json_t *v = json_pack("{s:o,s:s}", "taken_back", list, "why", why);
        for (size_t k = 0; v && k < n_to; k++) {
            control_tell(g->n->control, to[k].client, v);
        }
        json_decref(v);
    }
}

void guests_gone(struct guests *g, uint64_t id)
{
    struct gfetch *mine = NULL;
    int n = 0;
    pthread_mutex_lock(&g->mu);
    struct gclient *c = client(g, id, false);
    if (c) {
        n = c->computing;
        *c = (struct gclient){0};
        for (size_t i = 0; i < BUCKETS; i++) {
            for (struct gfetch **at = &g->bucket[i]; *at;) {
                struct gfetch *f = *at;
                if (f->to.client == id) {
                    *at = f->next;
                    f->next = mine;
                    mine = f;
                } else {
                    at = &f->next;
                }
            }
        }
    }
    pthread_mutex_unlock(&g->mu);
    while (mine) {
        struct gfetch *f = mine;
        mine = f->next;
        store_wants_drop(g->wants, f->tag);
        free(f);
    }
    if (n) {
        yield_computing(&g->n->yield, -n);
    }
}

json_t *guests_json(struct guests *g)
{
    int n = 0, computes = 0;
    pthread_mutex_lock(&g->mu);
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        n += g->c[i].id && g->c[i].matched;
        computes += g->c[i].computing;
    }
    json_t *j = json_pack("{s:i,s:i,s:I}", "connected", n, "computing", computes, "fetches",
                          (json_int_t)g->fetches);
    pthread_mutex_unlock(&g->mu);
    return j;
}

/* ---- life ---- */

int guests_open(struct node *n, struct guests **out, struct err *e)
{
    struct guests *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    g->n = n;
    pthread_mutex_init(&g->mu, NULL);
    int r = store_wants_open(n->st, &g->wants, e);
    if (!r && pthread_create(&g->thread, NULL, thread_main, g)) {
        r = err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    g->threaded = !r;
    if (r) {
        guests_close(g);
        return r;
    }
    *out = g;
    return 0;
}

void guests_stop(struct guests *g)
{
    if (g && g->threaded) {
        store_wants_stop(g->wants);
        pthread_join(g->thread, NULL);
        g->threaded = false;
    }
}

void guests_close(struct guests *g)
{
    if (!g) {
        return;
    }
    guests_stop(g);
    store_wants_close(g->wants);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (g->bucket[i]) {
            struct gfetch *f = g->bucket[i];
            g->bucket[i] = f->next;
            free(f);
        }
    }
    pthread_mutex_destroy(&g->mu);
    free(g);
}
