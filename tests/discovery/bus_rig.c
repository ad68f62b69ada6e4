/* SPDX-License-Identifier: MIT
 * bus_rig.c: see bus_rig.h. */
#include "bus_rig.h"

#include "discovery/addr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const rig_ids[N] = {"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"};
const char *const rig_hosts[N] = {"a", "b", "c", "d"};

static void on_peer(void *ctx, const struct disco_peer *p, enum disco_event ev)
{
    struct node *n = ctx;
    n->added += ev == DISCO_ADDED;
    n->changed += ev == DISCO_CHANGED;
    n->removed += ev == DISCO_REMOVED;
    assert_true(p->node[0] || p->static_name[0]);
}

static void on_log(void *ctx, const char *line)
{
    struct node *n = ctx;
    size_t k = strlen(n->log);
    snprintf(n->log + k, sizeof n->log - k, "%s\n", line);
    if (getenv("DISCO_LOG")) {
        fprintf(stderr, "%s: %s\n", rig_hosts[n - n->net->n], line);
    }
}

static bool allow(void *ctx, const struct disco_if *net)
{
    return ((struct node *)ctx)->allowed && !net->virtual_if;
}

unsigned rig_lines_with(const struct node *n, const char *what)
{
    unsigned k = 0;
    for (const char *p = n->log; (p = strstr(p, what)); p++) {
        k++;
    }
    return k;
}

void rig_timed(uv_timer_t *t)
{
    ((struct net *)t->data)->timed_out = true;
}

void rig_spin(struct net *x, unsigned ms)
{
    x->timed_out = false;
    uv_timer_start(&x->timer, rig_timed, ms, 0);
    while (!x->timed_out) {
        uv_run(&x->loop, UV_RUN_ONCE);
    }
}

void rig_options(struct net *x, int i, struct disco_options *o)
{
    *o = (struct disco_options){.node = rig_ids[i],
                                .group = "gggggggg",
                                .model = "mmmmmmmm",
                                .version = 1,
                                .port = (uint16_t)(4000 + i),
                                .interval_ms = INTERVAL,
                                .poll_ms = 20,
                                .bus = x->bus,
                                .bus_host = rig_hosts[i],
                                .ctx = &x->n[i],
                                .allow = allow,
                                .on_peer = on_peer,
                                .log = on_log};
}

void rig_start_with(struct net *x, int i, const struct disco_options *o)
{
    struct err e = {0};
    if (disco_open(&x->loop, o, &x->n[i].d, &e)) {
        fail_msg("%s", e.msg);
    }
    x->open++;
}

void rig_start(struct net *x, int i)
{
    struct disco_options o;
    rig_options(x, i, &o);
    rig_start_with(x, i, &o);
}

static void closed(void *ctx)
{
    ((struct net *)ctx)->open--;
}

void rig_stop(struct net *x, int i)
{
    unsigned want = x->open - 1;
    disco_close(x->n[i].d, closed, x);
    x->n[i].d = NULL;
    UNTIL(x, x->open == want);
}

int rig_set_up(void **state)
{
    struct net *x = calloc(1, sizeof *x);
    assert_non_null(x);
    uv_loop_init(&x->loop);
    uv_timer_init(&x->loop, &x->timer);
    x->timer.data = x;
    x->bus = disco_bus_new();
    snprintf(x->dir, sizeof x->dir, "/tmp/t_disco_bus.XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    for (int i = 0; i < N; i++) {
        char a[32];
        x->n[i].net = x;
        x->n[i].allowed = true;
        snprintf(a, sizeof a, "10.0.0.%d", i + 1);
        assert_int_equal(disco_bus_addr(x->bus, rig_hosts[i], 2, "eth0", 1, a, 24, NULL), 0);
        snprintf(a, sizeof a, "fe80::%d", i + 1);
        assert_int_equal(disco_bus_addr(x->bus, rig_hosts[i], 2, "eth0", 1, a, 64, NULL), 0);
    }
    *state = x;
    return 0;
}

int rig_tear_down(void **state)
{
    struct net *x = *state;
    for (int i = 0; i < N; i++) {
        if (x->n[i].d) {
            rig_stop(x, i);
        }
    }
    uv_close((uv_handle_t *)&x->timer, NULL);
    uv_run(&x->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x->loop), 0); /* no handle is left */
    disco_bus_free(x->bus);
    char path[96];
    snprintf(path, sizeof path, "%s/peers", x->dir);
    unlink(path);
    assert_int_equal(rmdir(x->dir), 0);
    free(x);
    return 0;
}

static void match(void *ctx, const struct disco_peer *p)
{
    struct search *s = ctx;
    if (!strcmp(p->node[0] ? p->node : p->static_name, s->node)) {
        s->p = *p;
        s->found = true;
    }
}

struct search rig_look(struct net *x, int i, const char *node)
{
    struct search s = {.node = node};
    disco_each(x->n[i].d, match, &s);
    return s;
}

bool rig_knows(struct net *x, int i, int j)
{
    return rig_look(x, i, rig_ids[j]).found;
}

bool rig_announced(struct net *x, int i, int j)
{
    struct search s = rig_look(x, i, rig_ids[j]);
    return s.found && s.p.announced;
}

void rig_tell(struct net *x, int i, int j, const char *addr, enum disco_outcome o, int sys)
{
    struct sockaddr_storage a;
    assert_int_equal(addr_parse(addr, &a), 0);
    struct disco_report r = {.node = rig_ids[j],
                             .addr = (struct sockaddr *)&a,
                             .outcome = o,
                             .as = o == DISCO_AUTHENTICATED ? rig_ids[j] : NULL,
                             .sys = sys,
                             .text = "told by the test"};
    disco_report(x->n[i].d, &r);
}
