/* SPDX-License-Identifier: MIT
 * demo_nodes.c: three nodes of one shoal in one process, each with a home and a cache of its own.
 * All that goes between them is TLS over 127.0.0.1, as between machines. See demo.h. */
#include "node/cli/demo.h"
#include "node/cli/home.h"
#include "node/daemon/node.h"

#include "proto/base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WAIT_S 60     /* for peers to connect and say what they hold; takes no time on loopback */
#define LOOK_MS 10    /* between two looks */
#define INVITE_S 600  /* the invite ends with the demo, or after this */
#define JOIN_MS 60000 /* for one to join */

/* What each gives in a second, as over a network of 200 Mbit/s. Without a limit, loopback is so
 * quick that chance alone, on a busy machine, says which of two peers gives most. */
#define GIVES_S 25000000

static int stopped(struct err *e)
{
    return cli_interrupted() ? err_set(e, ERR_CANCELLED, "interrupted") : 0;
}

static void on_log(void *ctx, const char *line)
{
    const struct demo_shoal *s = ctx;
    if (s->log) {
        cli_note(s->c, "    %s", line);
    }
}

void demo_shoal_init(struct demo_shoal *s, const char *dir)
{
    for (unsigned i = 0; i < DEMO_NODES; i++) {
        struct demo_node *d = &s->node[i];
        snprintf(d->home, sizeof d->home, "%s/node-%u", dir, i + 1);
        snprintf(d->cache, sizeof d->cache, "%s/cache", d->home);
    }
}

/* Without a backend for a node that only gives. */
static int open_node(struct demo_shoal *s, unsigned i, bool computes, struct err *e)
{
    struct demo_node *d = &s->node[i];
    const struct compute_opts *k = s->compute;
    const char *peers[DEMO_NODES];
    struct node_opts o = {.home = d->home,
                          .store = {.model = s->model,
                                    .disk_floor = s->disk_floor,
                                    .retries = 2,
                                    .retry_ms = 100,
                                    .log = on_log,
                                    .log_ctx = s},
                          .listen_host = "127.0.0.1",
                          .homes_after_ms = 3600000, /* it shows what a prompt fetches, no more */
                          .peers = peers,
                          .no_bonjour = true,
                          .serve_bytes_s = GIVES_S,
                          .must_own = true,
                          .meta_wait_ms = WAIT_S * 1000};
    for (unsigned p = 0; p < i; p++) {
        peers[o.n_peers++] = s->node[p].address;
    }
    if (computes) {
        int r = cli_compute_open(s->c, k, NULL, on_log, s, &d->compute, e);
        if (r) {
            return r;
        }
        o.store.mem = infer_store_mem(compute_backend(d->compute));
    }
    int r = node_open(&o, &d->node, e);
    if (!r) {
        d->id = *mesh_id(node_mesh(d->node));
        snprintf(d->address, sizeof d->address, "127.0.0.1:%d", node_port(d->node));
    }
    return r;
}

static int init(struct demo_shoal *s, struct err *e)
{
    struct home_opts o = {.home = s->node[0].home};
    struct cli_home h;
    int r = cli_home_open(&h, s->c, &o, HOME_MAKE, e);
    r = r ? r : member_init(&h.m, (uint64_t)time(NULL), e);
    cli_home_close(&h);
    return r;
}

static int join(struct demo_shoal *s, unsigned i, const char *token, struct err *e)
{
    struct home_opts o = {.home = s->node[i].home};
    struct cli_home h;
    int r = cli_home_open(&h, s->c, &o, HOME_MAKE, e);
    cli_home_close(&h);
    r = r ? r : stopped(e);
    return r ? r : mesh_join(s->node[i].home, token, JOIN_MS, on_log, s, e);
}

int demo_shoal_begin(struct demo_shoal *s, struct err *e)
{
    char token[TOKEN_TEXT_MAX];
    int r = init(s, e);
    r = r ? r : open_node(s, 0, false, e);
    r = r ? r : mesh_invite(node_mesh(s->node[0].node), DEMO_NODES - 1, INVITE_S, token, e);
    for (unsigned i = 1; !r && i < DEMO_NODES; i++) {
        r = join(s, i, token, e);
    }
    crypto_wipe(token, sizeof token);
    return r;
}

/* ---- reports ---- */

/* The row that a node's report has about another one, NULL: none. */
static const json_t *row_of(const json_t *status, const struct key_id *id)
{
    char text[ID_TEXT];
    size_t i;
    const json_t *p;
    id_text(id, text);
    json_array_foreach(json_object_get(status, "peers"), i, p)
    {
        const char *t = json_string_value(json_object_get(p, "id"));
        if (t && !strcmp(t, text)) {
            return p;
        }
    }
    return NULL;
}

static uint64_t number(const json_t *o, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(o, key));
    return v > 0 ? (uint64_t)v : 0;
}

/* Does node i know all that each node before it holds, and is that all that those were to keep? */
static int knows(struct demo_shoal *s, unsigned i, bool *yes, struct err *e)
{
    json_t *own = NULL;
    int r = node_status(s->node[i].node, &own, e);
    *yes = !r;
    for (unsigned p = 0; !r && p < i; p++) {
        json_t *st = NULL;
        r = node_status(s->node[p].node, &st, e);
        uint64_t held = number(st, "objects");
        *yes = *yes && held && held >= number(json_object_get(st, "gave"), "objects") &&
               number(row_of(own, &s->node[p].id), "objects") == held;
        json_decref(st);
    }
    json_decref(own);
    return r;
}

int demo_shoal_run(struct demo_shoal *s, unsigned i, struct err *e)
{
    int r = open_node(s, i, true, e);
    double end = clock_s() + WAIT_S;
    for (bool yes = false; !r && !yes;) {
        r = stopped(e);
        r = r ? r : knows(s, i, &yes, e);
        if (!r && !yes) {
            r = clock_s() < end ? 0
                                : err_set(e, ERR_TIMEOUT,
                                          "node %u does not hear from the nodes before it what "
                                          "they hold: shoal demo --log shows what they say",
                                          i + 1);
            poll(NULL, 0, LOOK_MS);
        }
    }
    return r;
}

int demo_shoal_account(struct demo_shoal *s, struct demo_row *r, struct err *e)
{
    json_t *own = NULL;
    int rc = node_status(s->node[r->node].node, &own, e);
    for (unsigned p = 0; !rc && p < DEMO_NODES; p++) {
        if (p == r->node || !s->node[p].node) {
            continue;
        }
        json_t *st = NULL;
        rc = node_status(s->node[p].node, &st, e);
        const json_t *gave = json_object_get(row_of(own, &s->node[p].id), "gave");
        const json_t *to = row_of(st, &s->node[r->node].id);
        /* Objects as the asker counts them, small files as the giver does. */
        uint64_t files = number(to, "file_bytes_served");
        r->from[p].bytes = number(gave, "bytes") + files;
        r->from[p].experts = number(gave, "experts");
        r->given[p] = number(json_object_get(to, "served"), "bytes") + files;
        json_decref(st);
    }
    json_decref(own);
    return rc;
}

void demo_shoal_end(struct demo_shoal *s)
{
    for (unsigned i = DEMO_NODES; i-- > 0;) {
        struct demo_node *d = &s->node[i];
        node_close(d->node);
        d->node = NULL;
        compute_close(d->compute);
        d->compute = NULL;
    }
}
