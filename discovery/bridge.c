/* SPDX-License-Identifier: MIT
 * bridge.c: see bridge.h. Two sides share a struct bridge: the core's loop and the inner thread.
 * `mu` guards what both touch. Every start gets a number; what comes from there bears the number of
 * its session, so that the last words of a session that was stopped are not taken for those of the
 * next one. Whoever is last frees it: a thread that hangs in a call outlives the core. */
#include "discovery/bridge.h"

#include "discovery/ifs.h"
#include "discovery/txt.h"

#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS_NS UINT64_C(1000000)
#define WATCH_MS 1000

enum cmd_kind { CMD_START, CMD_STOP, CMD_UPDATE, CMD_REFRESH, CMD_CLOSE };

struct cmd {
    struct cmd *next;
    enum cmd_kind kind;
    uint32_t ifindex;
    uint64_t number, at;
    char name[DISCO_NAME_MAX + 1];
    uint16_t port;
    uint8_t txt[TXT_MAX];
    size_t n_txt;
};

enum event_kind { EV_STARTED, EV_REGISTERED, EV_FAILED, EV_FOUND, EV_UNRESOLVED, EV_LOST };

struct event {
    struct event *next;
    enum event_kind kind;
    uint32_t ifindex;
    uint64_t number;
    int code;
    char name[DISCO_NAME_MAX + 1];
    char text[DISCO_TEXT];
    uint16_t port;
    uint8_t txt[TXT_MAX];
    size_t n_txt;
    struct sockaddr_storage addrs[DISCO_ADDRS_MAX];
    size_t n_addrs;
};

struct slot {
    uint32_t ifindex; /* 0: free */
    uint64_t number;
};

struct bridge {
    struct backend be; /* first */

    /* the core's side */
    uv_loop_t *loop;
    struct be_events ev;
    void *ctx;
    uv_async_t async;
    uv_timer_t watch;
    struct slot here[DISCO_IFS_MAX];
    uint64_t numbers;
    pthread_t thread;
    bool closing;
    int open;
    void (*closed)(void *ctx);
    void *closed_ctx;

    /* both */
    pthread_mutex_t mu;
    struct cmd *cmds;
    struct event *events, **events_tail;
    size_t n_events;
    bool overflow;
    bool deaf; /* the core has gone or is going */
    bool ended;
    int refs;
    uint64_t busy_since; /* a command is being done */

    /* the inner side */
    uv_loop_t inner;
    uv_async_t wake;
    struct backend *raw;
    struct slot there[DISCO_IFS_MAX];
};

static void unref(struct bridge *b)
{
    pthread_mutex_lock(&b->mu);
    bool last = --b->refs == 0;
    pthread_mutex_unlock(&b->mu);
    if (!last) {
        return;
    }
    while (b->cmds) {
        struct cmd *c = b->cmds;
        b->cmds = c->next;
        free(c);
    }
    while (b->events) {
        struct event *v = b->events;
        b->events = v->next;
        free(v);
    }
    pthread_mutex_destroy(&b->mu);
    free(b);
}

static struct slot *slot_of(struct slot *s, uint32_t ifindex)
{
    for (size_t i = 0; i < DISCO_IFS_MAX; i++) {
        if (s[i].ifindex == ifindex) {
            return &s[i];
        }
    }
    return NULL;
}

/* ---- the inner side: events ---- */

static void tell(struct bridge *b, struct event *v)
{
    pthread_mutex_lock(&b->mu);
    bool full = b->n_events >= BRIDGE_EVENTS_MAX;
    if (b->deaf || full) {
        b->overflow |= full;
        free(v);
    } else {
        v->next = NULL;
        *b->events_tail = v;
        b->events_tail = &v->next;
        b->n_events++;
        uv_async_send(&b->async);
    }
    pthread_mutex_unlock(&b->mu);
}

static struct event *event_of(struct bridge *b, enum event_kind kind, uint32_t ifindex,
                              const char *name)
{
    struct slot *s = slot_of(b->there, ifindex);
    struct event *v = s ? calloc(1, sizeof *v) : NULL;
    if (!v) {
        pthread_mutex_lock(&b->mu);
        b->overflow |= s != NULL;
        pthread_mutex_unlock(&b->mu);
        return NULL;
    }
    v->kind = kind;
    v->ifindex = ifindex;
    v->number = s->number;
    snprintf(v->name, sizeof v->name, "%s", name);
    return v;
}

static void say(struct bridge *b, enum event_kind kind, uint32_t ifindex, const char *name,
                int code, const char *text)
{
    struct event *v = event_of(b, kind, ifindex, name);
    if (v) {
        v->code = code;
        snprintf(v->text, sizeof v->text, "%s", text);
        tell(b, v);
    }
}

static void in_registered(void *ctx, uint32_t ifindex, const char *name)
{
    say(ctx, EV_REGISTERED, ifindex, name, 0, "");
}

static void in_failed(void *ctx, uint32_t ifindex, int code, const char *text)
{
    say(ctx, EV_FAILED, ifindex, "", code, text);
}

static void in_found(void *ctx, uint32_t ifindex, const struct be_found *f)
{
    struct bridge *b = ctx;
    struct event *v = event_of(b, EV_FOUND, ifindex, f->instance);
    if (!v) {
        return;
    }
    v->port = f->port;
    v->n_txt = f->n_txt < sizeof v->txt ? f->n_txt : sizeof v->txt;
    v->n_addrs = f->n_addrs < DISCO_ADDRS_MAX ? f->n_addrs : DISCO_ADDRS_MAX;
    if (v->n_txt) {
        memcpy(v->txt, f->txt, v->n_txt);
    }
    memcpy(v->addrs, f->addrs, v->n_addrs * sizeof *v->addrs);
    tell(b, v);
}

static void in_unresolved(void *ctx, uint32_t ifindex, const char *instance, const char *text)
{
    say(ctx, EV_UNRESOLVED, ifindex, instance, 0, text);
}

static void in_lost(void *ctx, uint32_t ifindex, const char *instance)
{
    say(ctx, EV_LOST, ifindex, instance, 0, "");
}

static const struct be_events inner_events = {in_registered, in_failed, in_found,
                                              in_unresolved, in_lost,   NULL};

/* ---- the inner side: commands ---- */

static void inner_closed(void *ctx)
{
    struct bridge *b = ctx;
    uv_close((uv_handle_t *)&b->wake, NULL);
}

static void do_start(struct bridge *b, const struct cmd *c, const struct be_announce *a)
{
    struct err e = {0};
    int code = -1;
    struct slot *s = slot_of(b->there, c->ifindex);
    if (s) { /* its stop was dropped in the queue together with an unborn start */
        b->raw->stop(b->raw, c->ifindex);
    } else {
        s = slot_of(b->there, 0);
    }
    if (!s) {
        return; /* the core has no more interfaces than slots */
    }
    *s = (struct slot){c->ifindex, c->number};
    if (b->raw->start(b->raw, c->ifindex, a, &code, &e)) {
        say(b, EV_FAILED, c->ifindex, "", code, e.msg);
        s->ifindex = 0;
    } else {
        say(b, EV_STARTED, c->ifindex, "", 0, "");
    }
}

static void do_cmd(struct bridge *b, const struct cmd *c)
{
    struct be_announce a = {.name = c->name, .port = c->port, .txt = c->txt, .n_txt = c->n_txt};
    struct slot *s = c->ifindex ? slot_of(b->there, c->ifindex) : NULL;
    struct err e = {0};
    switch (c->kind) {
    case CMD_START:
        do_start(b, c, &a);
        break;
    case CMD_STOP:
        if (s) {
            b->raw->stop(b->raw, c->ifindex);
            s->ifindex = 0;
        }
        break;
    case CMD_UPDATE:
        if (s && b->raw->update(b->raw, c->ifindex, &a, &e)) {
            say(b, EV_FAILED, c->ifindex, "", -1, e.msg);
        }
        break;
    case CMD_REFRESH:
        if (s) {
            b->raw->refresh(b->raw, c->ifindex, c->name);
        }
        break;
    case CMD_CLOSE:
        b->raw->close(b->raw, inner_closed, b);
        break;
    }
}

static void on_wake(uv_async_t *h)
{
    struct bridge *b = h->data;
    for (;;) {
        pthread_mutex_lock(&b->mu);
        struct cmd *c = b->cmds;
        if (c) {
            b->cmds = c->next;
        }
        b->busy_since = c ? clock_ns() : 0;
        pthread_mutex_unlock(&b->mu);
        if (!c) {
            return;
        }
        do_cmd(b, c);
        bool last = c->kind == CMD_CLOSE;
        free(c);
        if (last) {
            return;
        }
    }
}

static void *inner_main(void *arg)
{
    struct bridge *b = arg;
    qos_self(QOS_SERVE);
    uv_run(&b->inner, UV_RUN_DEFAULT);
    uv_loop_close(&b->inner);
    pthread_mutex_lock(&b->mu);
    b->ended = true;
    if (!b->deaf) {
        uv_async_send(&b->async);
    }
    pthread_mutex_unlock(&b->mu);
    unref(b);
    return NULL;
}

/* ---- the core's side ---- */

static void on_watch(uv_timer_t *t);

/* The command's place at the end; those before it that it makes pointless are dropped. */
static void send_cmd(struct bridge *b, struct cmd *c)
{
    c->at = clock_ns();
    c->next = NULL;
    pthread_mutex_lock(&b->mu);
    struct cmd **p = &b->cmds;
    while (*p) {
        struct cmd *o = *p;
        bool same = o->ifindex == c->ifindex && o->kind != CMD_CLOSE;
        bool moot =
            same &&
            (c->kind == CMD_STOP || (c->kind == CMD_UPDATE && o->kind == CMD_UPDATE) ||
             (c->kind == CMD_REFRESH && o->kind == CMD_REFRESH && strcmp(o->name, c->name) == 0));
        if (moot || c->kind == CMD_CLOSE) {
            *p = o->next;
            free(o);
        } else {
            p = &o->next;
        }
    }
    *p = c;
    uv_async_send(&b->wake);
    pthread_mutex_unlock(&b->mu);
    if (!b->closing && !uv_is_active((uv_handle_t *)&b->watch)) {
        uv_timer_start(&b->watch, on_watch, WATCH_MS, WATCH_MS);
    }
}

static struct cmd *cmd_make(enum cmd_kind kind, uint32_t ifindex)
{
    struct cmd *c = calloc(1, sizeof *c);
    if (c) {
        c->kind = kind;
        c->ifindex = ifindex;
    }
    return c;
}

static void put_announce(struct cmd *c, const struct be_announce *a)
{
    snprintf(c->name, sizeof c->name, "%s", a->name);
    c->port = a->port;
    c->n_txt = a->n_txt < sizeof c->txt ? a->n_txt : sizeof c->txt;
    memcpy(c->txt, a->txt, c->n_txt);
}

static int out_start(struct backend *be, uint32_t ifindex, const struct be_announce *a, int *code,
                     struct err *e)
{
    struct bridge *b = (struct bridge *)be;
    struct slot *s = slot_of(b->here, ifindex);
    s = s ? s : slot_of(b->here, 0);
    struct cmd *c = s ? cmd_make(CMD_START, ifindex) : NULL;
    if (!c) {
        *code = -1;
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    *s = (struct slot){ifindex, ++b->numbers};
    c->number = s->number;
    put_announce(c, a);
    send_cmd(b, c);
    return 0;
}

static void out_stop(struct backend *be, uint32_t ifindex)
{
    struct bridge *b = (struct bridge *)be;
    struct slot *s = slot_of(b->here, ifindex);
    struct cmd *c = s ? cmd_make(CMD_STOP, ifindex) : NULL;
    if (s) {
        s->ifindex = 0; /* without memory for the command, the next start there stops it */
    }
    if (c) {
        send_cmd(b, c);
    }
}

static int out_update(struct backend *be, uint32_t ifindex, const struct be_announce *a,
                      struct err *e)
{
    struct cmd *c = cmd_make(CMD_UPDATE, ifindex);
    if (!c) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    put_announce(c, a);
    send_cmd((struct bridge *)be, c);
    return 0;
}

static void out_refresh(struct backend *be, uint32_t ifindex, const char *instance)
{
    struct cmd *c = cmd_make(CMD_REFRESH, ifindex);
    if (c) {
        snprintf(c->name, sizeof c->name, "%s", instance);
        send_cmd((struct bridge *)be, c);
    }
}

static size_t out_interfaces(struct backend *be, struct disco_if *out, size_t max)
{
    (void)be;
    return ifs_read(out, max);
}

static void deliver(struct bridge *b, const struct event *v)
{
    struct be_found f = {.instance = v->name,
                         .port = v->port,
                         .txt = v->txt,
                         .n_txt = v->n_txt,
                         .addrs = v->addrs,
                         .n_addrs = v->n_addrs};
    switch (v->kind) {
    case EV_STARTED:
        b->ev.started(b->ctx, v->ifindex);
        break;
    case EV_REGISTERED:
        b->ev.registered(b->ctx, v->ifindex, v->name);
        break;
    case EV_FAILED:
        b->ev.failed(b->ctx, v->ifindex, v->code, v->text);
        break;
    case EV_FOUND:
        b->ev.found(b->ctx, v->ifindex, &f);
        break;
    case EV_UNRESOLVED:
        b->ev.unresolved(b->ctx, v->ifindex, v->name, v->text);
        break;
    case EV_LOST:
        b->ev.lost(b->ctx, v->ifindex, v->name);
        break;
    }
}

static void all_failed(struct bridge *b, int code, const char *text)
{
    for (size_t i = 0; i < DISCO_IFS_MAX; i++) {
        if (b->here[i].ifindex) {
            b->ev.failed(b->ctx, b->here[i].ifindex, code, text);
        }
    }
}

static void finish(struct bridge *b);

static void on_async(uv_async_t *h)
{
    struct bridge *b = h->data;
    pthread_mutex_lock(&b->mu);
    struct event *list = b->events, *next;
    bool overflow = b->overflow, ended = b->ended;
    b->events = NULL;
    b->events_tail = &b->events;
    b->n_events = 0;
    b->overflow = false;
    pthread_mutex_unlock(&b->mu);
    for (struct event *v = list; v; v = next) {
        next = v->next;
        struct slot *s = b->closing ? NULL : slot_of(b->here, v->ifindex);
        if (s && s->number == v->number) {
            deliver(b, v);
        }
        free(v);
    }
    if (overflow && !b->closing) {
        all_failed(b, -1, "more announcements at once than are looked at");
    }
    if (ended && b->closing) {
        finish(b);
    }
}

static void on_watch(uv_timer_t *t)
{
    struct bridge *b = t->data;
    uint64_t now = clock_ns(), since;
    pthread_mutex_lock(&b->mu);
    since = b->busy_since ? b->busy_since : b->cmds ? b->cmds->at : 0;
    pthread_mutex_unlock(&b->mu);
    if (!since) {
        uv_timer_stop(t);
    } else if (now - since > BRIDGE_HANG_MS * MS_NS) {
        all_failed(b, BE_NO_RESPONDER, "the daemon does not answer: it hangs");
    }
}

static void handle_closed(uv_handle_t *h)
{
    struct bridge *b = h->data;
    if (--b->open) {
        return;
    }
    void (*closed)(void *) = b->closed;
    void *ctx = b->closed_ctx;
    unref(b);
    closed(ctx);
}

static void finish(struct bridge *b)
{
    pthread_mutex_lock(&b->mu);
    bool again = b->deaf, ended = b->ended;
    b->deaf = true;
    pthread_mutex_unlock(&b->mu);
    if (again) {
        return;
    }
    if (ended) {
        pthread_join(b->thread, NULL);
    } else {
        pthread_detach(b->thread);
    }
    uv_close((uv_handle_t *)&b->async, handle_closed);
    uv_close((uv_handle_t *)&b->watch, handle_closed);
}

static void on_late(uv_timer_t *t)
{
    finish(t->data);
}

static void out_close(struct backend *be, void (*closed)(void *ctx), void *ctx)
{
    struct bridge *b = (struct bridge *)be;
    struct cmd *c = cmd_make(CMD_CLOSE, 0);
    b->closing = true;
    b->closed = closed;
    b->closed_ctx = ctx;
    if (c) {
        send_cmd(b, c);
    }
    uv_timer_start(&b->watch, on_late, BRIDGE_CLOSE_MS, 0);
}

/* Nothing runs there yet: ended on this thread. */
static void drop_inner(struct bridge *b)
{
    if (b->raw) {
        b->raw->close(b->raw, inner_closed, b);
    } else {
        inner_closed(b);
    }
    uv_run(&b->inner, UV_RUN_DEFAULT);
    uv_loop_close(&b->inner);
    b->refs = 1;
}

static void drop_all(uv_handle_t *h)
{
    unref(h->data);
}

int bridge_open(uv_loop_t *loop, bridge_inner_fn inner, const struct be_events *ev, void *ctx,
                struct backend **out, struct err *e)
{
    struct bridge *b = calloc(1, sizeof *b);
    if (!b || uv_loop_init(&b->inner)) {
        free(b);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    b->be = (struct backend){out_interfaces, out_start, out_stop, out_update,
                             out_refresh,    out_close, true};
    b->loop = loop;
    b->ev = *ev;
    b->ctx = ctx;
    b->events_tail = &b->events;
    b->refs = 2;
    b->wake.data = b->async.data = b->watch.data = b;
    pthread_mutex_init(&b->mu, NULL);
    if (uv_async_init(&b->inner, &b->wake, on_wake)) {
        uv_loop_close(&b->inner);
        b->refs = 1;
        unref(b);
        return err_set(e, ERR_IO, "the event loop takes no more handles");
    }
    int r = inner(&b->inner, &inner_events, b, &b->raw, e);
    if (!r && uv_async_init(loop, &b->async, on_async)) {
        r = err_set(e, ERR_IO, "the event loop takes no more handles");
    }
    if (r) {
        drop_inner(b);
        unref(b);
        return r;
    }
    if (pthread_create(&b->thread, NULL, inner_main, b)) {
        drop_inner(b);
        uv_close((uv_handle_t *)&b->async, drop_all);
        return err_set(e, ERR_IO, "cannot start a thread for Bonjour");
    }
    uv_timer_init(loop, &b->watch);
    b->open = 2;
    *out = &b->be;
    return 0;
}
