/* SPDX-License-Identifier: MIT
 * homes_rig.c: see homes_rig.h: members that come and go, and what is asked of them. */
#include "tests/daemon/homes_rig_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_S 1500 /* warming is over by then */

/* ---- members ---- */

/* Asked in a step of one member, which is the one. */
static void power_of_one(struct power *out)
{
    *out = (struct power){.on_battery = w.m[w.acting].battery};
}

static void changed(int i)
{
    if (w.m[i].listening) {
        w.m[i].cb.changed(w.m[i].cb.ctx);
    }
}

static void one_end(int i, int j, unsigned run)
{
    struct seen *s = &w.seen[i][j];
    memset(s, 0, sizeof *s);
    s->link = true;
    s->run = run;
    s->since = w.now;
}

static void hello(int i, int j)
{
    struct event e = {.kind = HAVE_ALL};
    memcpy(e.held, w.m[i].held, sizeof e.held);
    if (w.m[i].has_told) {
        rig_send_place(i, j);
    }
    rig_send_to(i, j, &e, false);
    changed(i);
}

static void join_up(int i, int j)
{
    if (i == j || !w.m[i].up || !w.m[j].up || (w.seen[i][j].link && w.seen[j][i].link)) {
        return;
    }
    unsigned run = ++w.runs;
    one_end(i, j, run);
    one_end(j, i, run);
    hello(i, j);
    hello(j, i);
    rig_note("link", i, j);
}

/* Member i notices that j is gone: at once, or when nothing has come for a while. */
static void notice(int i, int j, bool at_once)
{
    struct event e = {.t = w.now + (at_once ? rig_ms(0, 20) : rig_ms(3000, 12000)),
                      .kind = NOTICE,
                      .from = (uint8_t)j,
                      .to = (uint8_t)i,
                      .run = w.seen[i][j].run};
    if (w.seen[i][j].link) {
        event_push(&w.q, &e);
    }
}

static void down(int i, bool orderly)
{
    struct member *m = &w.m[i];
    if (orderly) {
        m->h->saved_at = 0;
        m->h->save = true;
        homes_save(m->h);
    }
    homes_stop(m->h);
    homes_close(m->h);
    m->h = NULL;
    m->up = m->has_told = false;
    m->run++;
    memset(m->pinned, 0, sizeof m->pinned);
    for (int j = 0; j < (int)w.n; j++) {
        notice(j, i, orderly || rng_below(&w.r, 2));
        memset(&w.seen[i][j], 0, sizeof w.seen[i][j]);
    }
}

static void up(int i)
{
    struct member *m = &w.m[i];
    struct err e = {0};
    m->up = true;
    m->node->opened_at = w.now;
    int r = homes_make(m->node, power_of_one, &m->h, &e);
    assert(!r);
    (void)r;
    struct event t = {.t = w.now + rig_ms(1, 50), .kind = TICK, .to = (uint8_t)i, .run = m->run};
    event_push(&w.q, &t);
    for (int j = 0; j < (int)w.n; j++) {
        struct event c = {.t = w.now + rig_ms(5, 1500),
                          .kind = JOINED,
                          .from = (uint8_t)i,
                          .to = (uint8_t)j,
                          .run = m->run};
        event_push(&w.q, &c);
    }
}

static void found(uint64_t budget)
{
    int i = (int)w.n++;
    struct member *m = &w.m[i];
    sha256(&i, sizeof i, m->id.b);
    m->id.b[0] = (uint8_t)i;
    m->in = true;
    m->budget = budget;
    m->st.i = m->mesh.i = m->wants.i = i;
    buf_init(&m->file, 1 << 20);
    m->node = calloc(1, sizeof *m->node);
    m->node->home = calloc(2, 1);
    m->node->home[0] = (char)('a' + i);
    m->node->st = &m->st;
    m->node->mesh = &m->mesh;
    m->node->o.homes_after_ms = 1;
    m->node->o.homes_settle_ms = HOMES_SETTLE_MS;
    rig_look_at_room(i);
    up(i);
}

/* Out of the roster, with its disk. */
static void leave(int i)
{
    if (w.m[i].up) {
        down(i, true);
    }
    w.m[i].in = false;
    for (int o = 0; o < OBJECTS; o++) {
        bool other = false;
        for (int j = 0; j < (int)w.n; j++) {
            other = other || (w.m[j].in && w.m[j].held[o]);
        }
        w.res.removed += w.m[i].held[o] && !other;
        w.left_at[o] = w.m[i].held[o] ? w.now : w.left_at[o];
    }
    for (int j = 0; j < (int)w.n; j++) {
        changed(j);
    }
}

/* ---- what happens ---- */

static void run_event(const struct event *e)
{
    struct member *m = &w.m[e->to];
    struct seen *s = &w.seen[e->to][e->from];
    switch ((enum kind)e->kind) {
    case TICK:
        if (m->up && m->run == e->run) {
            w.acting = e->to;
            pthread_mutex_lock(&m->h->mu);
            homes_step(m->h);
            pthread_mutex_unlock(&m->h->mu);
            struct event t = *e;
            t.t = w.now + rig_ms(50, w.tick_ms);
            event_push(&w.q, &t);
        }
        return;
    case ARRIVE:
        if (m->up && m->run == e->run) {
            m->pinned[e->o] = e->want ? false : m->pinned[e->o];
            int code = rig_arrive(e->to, e->o, !e->want);
            if (e->want) {
                w.res.copied += !code;
                homes_ended(m->h, e->o, code);
            }
        }
        return;
    case JOINED:
        if (w.m[e->from].run == e->run) {
            join_up(e->from, e->to);
        }
        return;
    case BACK:
        if (m->in && !m->up) {
            up(e->to);
        }
        return;
    default:
        break;
    }
    if (!m->up || !s->link || s->run != e->run) {
        return; /* of a connection that has ended */
    }
    struct object_key k = store_key(NULL, e->o);
    switch ((enum kind)e->kind) {
    case HAVE_ALL:
        memcpy(s->held, e->held, sizeof s->held);
        s->complete = true;
        break;
    case HAVE:
        s->held[e->o] = e->on;
        break;
    case PLACE:
        s->has_place = true;
        s->place = e->place;
        break;
    case WARM:
        m->cb.warm(m->cb.ctx, &w.m[e->from].id, e->on);
        return;
    case OFFER:
        m->cb.offer(m->cb.ctx, &w.m[e->from].id, &k, 1);
        return;
    case KEPT:
        m->cb.kept(m->cb.ctx, &w.m[e->from].id, &k, 1);
        return;
    case NOTICE:
        memset(s, 0, sizeof *s);
        break;
    default:
        return;
    }
    changed(e->to);
}

static int any(bool is_up, bool in)
{
    int from = (int)rng_below(&w.r, w.n);
    for (int k = 0; k < (int)w.n; k++) {
        int i = (from + k) % (int)w.n;
        if (w.m[i].in == in && w.m[i].up == is_up) {
            return i;
        }
    }
    return -1;
}

static unsigned count(bool is_up)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w.n; i++) {
        n += w.m[i].in && (!is_up || w.m[i].up);
    }
    return n;
}

/* Somebody computes: a few objects, some of which everybody likes. */
static void demand(int i)
{
    struct member *m = &w.m[i];
    unsigned n = 1 + rng_below(&w.r, 6);
    while (n--) {
        unsigned a = rng_below(&w.r, OBJECTS), b = rng_below(&w.r, OBJECTS);
        uint32_t o = a < b ? a : b;
        if (m->held[o]) {
            m->used_at[o] = ++w.tick;
            continue;
        }
        struct event e = {
            .t = w.now + rig_ms(2, 200), .kind = ARRIVE, .to = (uint8_t)i, .run = m->run, .o = o};
        event_push(&w.q, &e);
    }
}

static void come_back(int i, uint64_t after)
{
    struct event e = {.t = w.now + after, .kind = BACK, .to = (uint8_t)i};
    event_push(&w.q, &e);
}

static uint64_t a_budget(void)
{
    return (2 + rng_below(&w.r, OBJECTS * 3 / 5)) * ONE + rng_below(&w.r, (unsigned)ONE);
}

static void act(void)
{
    int i = any(true, true), j = any(true, true);
    if (i < 0) {
        return;
    }
    if (rng_below(&w.r, 100) >= w.storm) {
        demand(i);
        return;
    }
    unsigned what = 70 + rng_below(&w.r, 28);
    w.res.events++;
    if (what < 78) { /* restarts */
        rig_note("restart", i, 0);
        down(i, rng_below(&w.r, 2));
        come_back(i, rig_ms(50, 4000));
    } else if (what < 84 && count(true) > 2) { /* switched off for a while */
        rig_note("off", i, 0);
        down(i, rng_below(&w.r, 2));
        come_back(i, rig_ms(5000, 200000));
    } else if (what < 90 && i != j) { /* cut off from each other */
        rig_note("cut", i, j);
        notice(i, j, rng_below(&w.r, 2));
        notice(j, i, rng_below(&w.r, 2));
        struct event e = {.t = w.now + rig_ms(13000, 60000),
                          .kind = JOINED,
                          .from = (uint8_t)i,
                          .to = (uint8_t)j,
                          .run = w.m[i].run};
        event_push(&w.q, &e);
    } else if (what < 93) {
        rig_note("battery", i, 0);
        w.m[i].battery = !w.m[i].battery;
        w.m[i].room_since = 0; /* what counts is room that can be used */
        rig_look_at_room(i);
    } else if (what < 96 && w.n < MEMBERS && count(false) < UP_MAX) {
        rig_note("join", (int)w.n, 0);
        found(a_budget());
    } else if (what < 98 && count(true) > 2) {
        rig_note("leave", i, 0);
        leave(i);
    }
}

static void until(uint64_t t)
{
    while (event_next(&w.q) <= t) {
        struct event e;
        event_pop(&w.q, &e);
        w.now = e.t;
        run_event(&e);
    }
    w.now = t;
}

/* Everybody is there, on mains, connected; nobody asks for anything. */
static void rest(void)
{
    w.calm = true;
    for (unsigned i = 0; i < w.n; i++) {
        w.m[i].battery = false;
        if (w.m[i].in && !w.m[i].up) {
            up((int)i);
        }
    }
    until(w.now + 20 * S_NS);
    for (unsigned i = 0; i < w.n; i++) {
        for (unsigned j = 0; j < i; j++) {
            join_up((int)i, (int)j);
        }
    }
    until(w.now + 120 * S_NS);
}

static void begin(uint64_t seed, bool say)
{
    memset(&w, 0, sizeof w);
    w.q.size = sizeof(struct event);
    w.r = (struct rng){seed};
    w.now = S_NS;
    w.say = say;
    w.late_ms = 900;
    w.tick_ms = 50;
    w.model.c.n_layers = LAYERS;
    w.model.c.n_experts = EXPERTS;
    w.model.o.size = ONE;
    w.model.o.kind = MODEL_EXPERT;
    memset(w.model.root, 0x11, sizeof w.model.root);
}

/* How many objects the members have, each counted once. */
static uint64_t held_once(void)
{
    uint64_t n = 0;
    for (uint32_t o = 0; o < OBJECTS; o++) {
        bool there = false;
        for (unsigned i = 0; i < w.n; i++) {
            there = there || (w.m[i].in && w.m[i].held[o]);
        }
        n += there;
    }
    return n;
}

static void finish(struct rig_result *out)
{
    for (unsigned i = 0; i < w.n; i++) {
        if (w.m[i].h) {
            down((int)i, false);
        }
        buf_free(&w.m[i].file);
        free(w.m[i].node->home);
        free(w.m[i].node);
    }
    event_free(&w.q);
    *out = w.res;
}

void rig_run(uint64_t seed, unsigned seconds, bool say, struct rig_result *out)
{
    begin(seed, say);
    w.origin = rng_below(&w.r, 4) > 0;
    w.storm = 1 + rng_below(&w.r, 1 + rng_below(&w.r, 30));
    unsigned n = 2 + rng_below(&w.r, 4);
    for (unsigned i = 0; i < n; i++) {
        found(a_budget());
    }
    if (!w.origin) { /* then somebody has brought the model */
        for (uint32_t o = 0; o < OBJECTS; o++) {
            int i = (int)rng_below(&w.r, n);
            w.m[i].held[o] = rig_used(i) + ONE <= w.m[i].budget;
            rig_look_at_room(i);
        }
    }
    uint64_t end = w.now + seconds * S_NS;
    unsigned busy = 200 + rng_below(&w.r, 4000);
    while (w.now < end) {
        until(w.now + rig_ms(10, busy));
        act();
    }
    rest();
    uint64_t held = held_once() * ONE, possible = 0;
    for (unsigned i = 0; i < w.n; i++) {
        possible += w.m[i].in ? w.m[i].budget / ONE * ONE : 0;
    }
    possible = possible < OBJECTS * ONE ? possible : OBJECTS * ONE;
    w.res.covered = (double)held / (double)possible;
    finish(out);
}

/* ---- no byte to spare ---- */

static void use(unsigned seconds, unsigned busy)
{
    for (uint64_t end = w.now + seconds * S_NS; w.now < end;) {
        until(w.now + rig_ms(5, busy));
        demand(any(true, true));
    }
}

static bool warms(void)
{
    bool on = false;
    for (unsigned i = 0; i < w.n; i++) {
        on = on || homes_warming(w.m[i].h);
    }
    return on;
}

static uint64_t went(void) /* last copies, whyever */
{
    return w.res.gone + w.res.unknown + w.res.lost;
}

void rig_exact(uint64_t seed, bool say, struct rig_result *out)
{
    begin(seed, say);
    w.origin = true;
    w.late_ms = 1000 + rng_below(&w.r, 4000);
    unsigned n = 2 + rng_below(&w.r, 4), left = OBJECTS, busy = 20 + rng_below(&w.r, 500);
    for (unsigned i = 0; i < n; i++) {
        unsigned most = left - (n - 1 - i), mine = i + 1 < n ? 1 + rng_below(&w.r, most) : left;
        found(mine * ONE + (i ? 0 : rng_below(&w.r, (unsigned)ONE)));
        left -= mine;
    }
    until(w.now + 20 * S_NS);
    w.tick_ms = 50 + rng_below(&w.r, 3000); /* from here on machines are busy */
    use(rng_below(&w.r, 30), busy);
    homes_warm(w.m[rng_below(&w.r, n)].h, true);
    uint64_t began = w.now, gone = 0;
    bool all = false;
    do {
        if (rng_below(&w.r, 20) == 0) {
            demand(any(true, true));
        }
        until(w.now + 20 * MS_NS);
        if (!all && held_once() == OBJECTS) {
            all = true;
            gone = went();
        }
    } while ((warms() || w.now < began + 10 * S_NS) && w.now < began + EXACT_S * S_NS);
    w.res.warmed_s = (double)(w.now - began) * 1e-9;
    w.res.warm = warms();
    w.res.covered = (double)held_once() / OBJECTS;
    use(120, busy);
    w.res.lost = all ? went() - gone : 1;
    finish(out);
}
