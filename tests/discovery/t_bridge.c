/* SPDX-License-Identifier: MIT
 * t_bridge.c: a backend on a thread of its own: what is said there and here, a call that hangs, an
 * end while it does. The backend is one whose calls wait until the test lets them go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "discovery/bridge.h"
#include "proto/base/clock.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the inner backend ---- */

static struct {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool hold; /* calls wait */
    int flood; /* events of a refresh */
    bool refuse;
    atomic_int starts, stops, updates, refreshes, closes, waiting, gone;
    char last[DISCO_NAME_MAX + 1];
} w = {.mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

struct inner {
    struct backend be;
    struct be_events ev;
    void *ctx;
    uv_timer_t timer;
    uint32_t ifindex;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

static void wait_here(void)
{
    pthread_mutex_lock(&w.mu);
    atomic_fetch_add(&w.waiting, 1);
    while (w.hold) {
        pthread_cond_wait(&w.cond, &w.mu);
    }
    atomic_fetch_sub(&w.waiting, 1);
    pthread_mutex_unlock(&w.mu);
}

static void hold(bool on)
{
    pthread_mutex_lock(&w.mu);
    w.hold = on;
    pthread_cond_broadcast(&w.cond);
    pthread_mutex_unlock(&w.mu);
}

static void later(uv_timer_t *t)
{
    struct inner *in = t->data;
    struct sockaddr_storage a[2];
    struct be_found f = {.instance = "one",
                         .port = 4433,
                         .txt = (const uint8_t *)"abc",
                         .n_txt = 3,
                         .addrs = a,
                         .n_addrs = 2};
    memset(a, 0, sizeof a);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in *s = (struct sockaddr_in *)(void *)&a[i];
        s->sin_family = AF_INET;
        s->sin_port = htons(4433);
        s->sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)i);
    }
    in->ev.registered(in->ctx, in->ifindex, "me");
    in->ev.found(in->ctx, in->ifindex, &f);
    in->ev.lost(in->ctx, in->ifindex, "one");
    in->ev.unresolved(in->ctx, in->ifindex, "two", "no answer");
}

static int in_start(struct backend *be, uint32_t ifindex, const struct be_announce *a, int *code,
                    struct err *e)
{
    struct inner *in = (struct inner *)be;
    wait_here();
    atomic_fetch_add(&w.starts, 1);
    if (w.refuse) {
        *code = 77;
        return err_set(e, ERR_NET, "refused here");
    }
    snprintf(w.last, sizeof w.last, "%s", a->name);
    in->ifindex = ifindex;
    uv_timer_start(&in->timer, later, 1, 0);
    return 0;
}

static void in_stop(struct backend *be, uint32_t ifindex)
{
    struct inner *in = (struct inner *)be;
    (void)ifindex;
    wait_here();
    uv_timer_stop(&in->timer);
    atomic_fetch_add(&w.stops, 1);
}

static int in_update(struct backend *be, uint32_t ifindex, const struct be_announce *a,
                     struct err *e)
{
    (void)be;
    (void)ifindex;
    wait_here();
    atomic_fetch_add(&w.updates, 1);
    return a->n_txt == 2 ? 0 : err_set(e, ERR_NET, "no such record");
}

static void in_refresh(struct backend *be, uint32_t ifindex, const char *instance)
{
    struct inner *in = (struct inner *)be;
    wait_here();
    for (int i = 0; i < w.flood; i++) {
        in->ev.lost(in->ctx, ifindex, instance);
    }
    atomic_fetch_add(&w.refreshes, 1);
}

static size_t in_interfaces(struct backend *be, struct disco_if *out, size_t max)
{
    (void)be;
    (void)out;
    (void)max;
    return 0;
}

static void timer_closed(uv_handle_t *h)
{
    struct inner *in = h->data;
    in->closed(in->closed_ctx);
    free(in);
    atomic_fetch_add(&w.gone, 1);
}

static void in_close(struct backend *be, void (*closed)(void *ctx), void *ctx)
{
    struct inner *in = (struct inner *)be;
    wait_here();
    atomic_fetch_add(&w.closes, 1);
    in->closed = closed;
    in->closed_ctx = ctx;
    uv_close((uv_handle_t *)&in->timer, timer_closed);
}

static int open_inner(uv_loop_t *loop, const struct be_events *ev, void *ctx, struct backend **out,
                      struct err *e)
{
    struct inner *in = calloc(1, sizeof *in);
    if (w.refuse) {
        free(in);
        return err_set(e, ERR_UNSUPPORTED, "not here");
    }
    in->be =
        (struct backend){in_interfaces, in_start, in_stop, in_update, in_refresh, in_close, false};
    in->ev = *ev;
    in->ctx = ctx;
    uv_timer_init(loop, &in->timer);
    in->timer.data = in;
    *out = &in->be;
    return 0;
}

/* ---- the core's side ---- */

struct core {
    uv_loop_t loop;
    struct backend *be;
    uv_thread_t self;
    int started, registered, failed, found, unresolved, lost, code;
    char text[DISCO_TEXT];
    bool good, closed;
};

static void here(struct core *c)
{
    uv_thread_t me = uv_thread_self();
    c->good &= uv_thread_equal(&me, &c->self) != 0;
}

static void on_registered(void *ctx, uint32_t ifindex, const char *name)
{
    struct core *c = ctx;
    here(c);
    c->registered++;
    c->good &= ifindex == 3 && strcmp(name, "me") == 0;
}

static void on_failed(void *ctx, uint32_t ifindex, int code, const char *text)
{
    struct core *c = ctx;
    here(c);
    c->failed++;
    c->code = code;
    c->good &= ifindex == 3;
    snprintf(c->text, sizeof c->text, "%s", text);
}

static void on_found(void *ctx, uint32_t ifindex, const struct be_found *f)
{
    struct core *c = ctx;
    here(c);
    c->found++;
    const struct sockaddr_in *a = (const struct sockaddr_in *)(const void *)&f->addrs[1];
    c->good &= ifindex == 3 && strcmp(f->instance, "one") == 0 && f->port == 4433 &&
               f->n_txt == 3 && memcmp(f->txt, "abc", 3) == 0 && f->n_addrs == 2 &&
               a->sin_addr.s_addr == htonl(0x0a000002);
}

static void on_unresolved(void *ctx, uint32_t ifindex, const char *instance, const char *text)
{
    struct core *c = ctx;
    c->unresolved++;
    c->good &= ifindex == 3 && strcmp(instance, "two") == 0 && strcmp(text, "no answer") == 0;
}

static void on_lost(void *ctx, uint32_t ifindex, const char *instance)
{
    struct core *c = ctx;
    (void)ifindex;
    (void)instance;
    c->lost++;
}

static void on_started(void *ctx, uint32_t ifindex)
{
    struct core *c = ctx;
    here(c);
    c->started++;
    c->good &= ifindex == 3;
}

static const struct be_events events = {on_registered, on_failed, on_found,
                                        on_unresolved, on_lost,   on_started};

static void on_closed(void *ctx)
{
    ((struct core *)ctx)->closed = true;
}

#define UNTIL(c, x)                                                  \
    do {                                                             \
        uint64_t end_ = clock_ns() + 60000000000u;                   \
        while (!(x)) {                                               \
            if (clock_ns() > end_) {                                 \
                fail_msg("%s:%d never: %s", __FILE__, __LINE__, #x); \
            }                                                        \
            uv_run(&(c)->loop, UV_RUN_NOWAIT);                       \
            usleep(500);                                             \
        }                                                            \
    } while (0)

static void spin(struct core *c, unsigned ms)
{
    uint64_t end = clock_ns() + ms * UINT64_C(1000000);
    while (clock_ns() < end) {
        uv_run(&c->loop, UV_RUN_NOWAIT);
        usleep(500);
    }
}

static int set_up(void **state)
{
    struct core *c = calloc(1, sizeof *c);
    hold(false);
    w.refuse = false;
    w.flood = 0;
    w.starts = w.stops = w.updates = w.refreshes = w.closes = w.gone = 0;
    c->good = true;
    c->self = uv_thread_self();
    uv_loop_init(&c->loop);
    *state = c;
    return bridge_open(&c->loop, open_inner, &events, c, &c->be, NULL);
}

static int tear_down(void **state)
{
    struct core *c = *state;
    if (!c->closed) {
        c->be->close(c->be, on_closed, c);
        UNTIL(c, c->closed);
    }
    hold(false);
    UNTIL(c, w.gone == 1);
    while (uv_loop_alive(&c->loop)) {
        uv_run(&c->loop, UV_RUN_ONCE);
    }
    int r = uv_loop_close(&c->loop) || !c->good;
    free(c);
    return r;
}

static void start(struct core *c, const char *name)
{
    struct be_announce a = {.name = name, .port = 1, .txt = (const uint8_t *)"xy", .n_txt = 2};
    int code;
    assert_int_equal(c->be->start(c->be, 3, &a, &code, NULL), 0);
}

static void there_and_back(void **state)
{
    struct core *c = *state;
    assert_true(c->be->later);
    start(c, "me");
    assert_int_equal(c->started, 0); /* nothing from inside a call */
    UNTIL(c, c->unresolved == 1);
    assert_int_equal(c->started, 1);
    assert_int_equal(c->registered, 1);
    assert_int_equal(c->found, 1);
    assert_int_equal(c->lost, 1);
    assert_int_equal(c->failed, 0);
    struct be_announce a = {.name = "me", .port = 1, .txt = (const uint8_t *)"xyz", .n_txt = 3};
    assert_int_equal(c->be->update(c->be, 3, &a, NULL), 0);
    UNTIL(c, c->failed == 1);
    assert_string_equal(c->text, "no such record");
    c->be->refresh(c->be, 3, "one");
    UNTIL(c, w.refreshes == 1);
    c->be->stop(c->be, 3);
    c->be->stop(c->be, 3);           /* once is enough */
    c->be->refresh(c->be, 3, "one"); /* of a session that is none */
    UNTIL(c, w.stops == 1);
    w.refuse = true;
    start(c, "me");
    UNTIL(c, c->failed == 2);
    assert_int_equal(c->code, 77);
    assert_string_equal(c->text, "refused here");
    assert_int_equal(w.refreshes, 1);
}

static void a_call_that_hangs(void **state)
{
    struct core *c = *state;
    hold(true);
    uint64_t t = clock_ns();
    start(c, "old");
    UNTIL(c, w.waiting == 1);
    for (int i = 0; i < 100; i++) { /* what the core does meanwhile is kept short */
        char name[16];
        snprintf(name, sizeof name, "new %d", i);
        c->be->stop(c->be, 3);
        start(c, name);
        c->be->refresh(c->be, 3, "one");
        c->be->refresh(c->be, 3, "one");
    }
    UNTIL(c, c->failed >= 1);
    assert_true((double)(clock_ns() - t) / 1e9 >
                3.5); /* not before its time, by UNTIL soon after */
    assert_int_equal(c->code, BE_NO_RESPONDER);
    assert_non_null(strstr(c->text, "hangs"));
    assert_int_equal(w.starts, 0);
    hold(false);
    UNTIL(c, c->unresolved == 1);
    spin(c, 50);
    assert_int_equal(w.starts, 2); /* the old one and the last one */
    assert_int_equal(w.stops, 1);
    assert_int_equal(w.refreshes, 1);
    assert_string_equal(w.last, "new 99");
    assert_int_equal(c->started, 1); /* the old one's answer is nobody's */
    assert_int_equal(c->registered, 1);
}

static void ended_while_it_hangs(void **state)
{
    struct core *c = *state;
    start(c, "me");
    UNTIL(c, c->unresolved == 1);
    hold(true);
    c->be->refresh(c->be, 3, "one");
    UNTIL(c, w.waiting == 1);
    uint64_t t = clock_ns();
    c->be->close(c->be, on_closed, c);
    UNTIL(c, c->closed);
    assert_true((double)(clock_ns() - t) / 1e9 > 1.0);
    assert_int_equal(w.closes, 0);
    /* tear_down lets the call go: the thread ends by itself */
}

static void too_much_at_once(void **state)
{
    struct core *c = *state;
    start(c, "me");
    UNTIL(c, c->unresolved == 1);
    w.flood = 3 * BRIDGE_EVENTS_MAX;
    c->be->refresh(c->be, 3, "one");
    while (w.refreshes == 0) {
        usleep(1000); /* the core does not look while all of them come */
    }
    UNTIL(c, c->failed == 1);
    assert_non_null(strstr(c->text, "more announcements"));
    assert_true(c->lost <= BRIDGE_EVENTS_MAX + 1 && c->lost > BRIDGE_EVENTS_MAX / 2);
}

static void nothing_to_run_there(void **state)
{
    uv_loop_t loop;
    struct backend *be;
    struct err e = {0};
    (void)state;
    uv_loop_init(&loop);
    w.refuse = true;
    assert_int_equal(bridge_open(&loop, open_inner, &events, NULL, &be, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.msg, "not here");
    while (uv_loop_alive(&loop)) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
    w.refuse = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(there_and_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_call_that_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ended_while_it_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_much_at_once, set_up, tear_down),
        cmocka_unit_test(nothing_to_run_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
