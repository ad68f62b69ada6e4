/* SPDX-License-Identifier: MIT
 * homes.c: see homes.h and homes_int.h: life, the round of the thread, what is fetched. */
#include "node/daemon/homes_int.h"

#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- notes of other threads ---- */

static void wake(struct homes *h)
{
    h->dirty = true;
    pthread_cond_signal(&h->cond);
}

/* With mu. False: it is lost. */
static bool add_note(struct homes *h, uint8_t kind, uint32_t o, const struct key_id *from)
{
    if (h->n_notes == HOMES_NOTES_MAX) {
        return false;
    }
    h->notes[h->n_notes++] = (struct homes_note){kind, o, *from};
    wake(h);
    return true;
}

static void on_changed(void *ctx)
{
    struct homes *h = ctx;
    pthread_mutex_lock(&h->mu);
    wake(h);
    pthread_mutex_unlock(&h->mu);
}

static void on_warm(void *ctx, const struct key_id *from, bool on)
{
    struct homes *h = ctx;
    char s[ID_SHORT];
    id_short(from, s);
    pthread_mutex_lock(&h->mu);
    bool news = h->warm != on;
    h->warm = on;
    wake(h);
    pthread_mutex_unlock(&h->mu);
    if (news) {
        node_log(h->n,
                 on ? "peer %s asks this node to complete the shoal's coverage"
                    : "peer %s asks this node to leave the shoal's coverage as it is",
                 s);
    }
}

static void on_objects(struct homes *h, uint8_t kind, const struct key_id *from,
                       const struct object_key *k, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t id = store_key_id(h->st, k[i]);
        uint32_t o = id != MODEL_NONE && id < h->n_ids ? h->number[id] : UINT32_MAX;
        if (o < h->n_experts) {
            pthread_mutex_lock(&h->mu);
            add_note(h, kind, o, from); /* an offer that is lost is made again */
            pthread_mutex_unlock(&h->mu);
        }
    }
}

static void on_offer(void *ctx, const struct key_id *from, const struct object_key *k, size_t n)
{
    on_objects(ctx, HOMES_OFFERED, from, k, n);
}

static void on_kept(void *ctx, const struct key_id *from, const struct object_key *k, size_t n)
{
    on_objects(ctx, HOMES_KEPT, from, k, n);
}

void homes_warm(struct homes *h, bool on)
{
    pthread_mutex_lock(&h->mu);
    h->warm = on;
    h->warm_tell = true;
    wake(h);
    pthread_mutex_unlock(&h->mu);
}

bool homes_own(struct homes *h, uint32_t id)
{
    bool own = false;
    if (!h) {
        return false;
    }
    pthread_mutex_lock(&h->mu);
    if (id < h->n_ids && h->number[id] != UINT32_MAX) {
        own = h->flying[h->number[id]] == HOMES_WARM;
    }
    pthread_mutex_unlock(&h->mu);
    return own;
}

/* ---- what is fetched ---- */

bool homes_want(struct homes *h, uint32_t o, int how, const struct key_id *of)
{
    struct err e;
    pthread_mutex_lock(&h->mu);
    unsigned most = how == HOMES_ACCEPTED ? 2 * HOMES_AT_ONCE : HOMES_AT_ONCE;
    bool ok = !h->stop && h->n_flying < most && !h->flying[o];
    if (ok) {
        h->flying[o] = (uint8_t)how;
        h->n_flying++;
        if (of) {
            h->accepted_of[o] = *of;
        }
    }
    pthread_mutex_unlock(&h->mu);
    if (ok) { /* it comes into room that is there; if that has gone, no last copy goes for it */
        store_rank_coming(h->st, h->ids[o], PLACE_SPARE);
    }
    if (ok && store_wants_add(h->wants, o, h->ids[o], STORE_BACKGROUND, &e)) {
        pthread_mutex_lock(&h->mu);
        h->flying[o] = 0;
        h->n_flying--;
        pthread_mutex_unlock(&h->mu);
        ok = false;
    }
    return ok;
}

static void count(struct homes *h, int how, uint64_t bytes, int code)
{
    if (code) {
        *(code == ERR_FULL ? &h->c.no_room : &h->c.failed) += 1;
    } else if (how == HOMES_WARM) {
        h->c.warmed++;
        h->c.warmed_bytes += bytes;
    } else {
        h->c.copied++;
        h->c.copied_bytes += bytes;
        h->c.accepted += how == HOMES_ACCEPTED;
    }
}

void homes_ended(struct homes *h, uint32_t o, int code)
{
    pthread_mutex_lock(&h->mu);
    int how = h->flying[o];
    int kind = how == HOMES_ACCEPTED ? HOMES_TAKEN_OVER : HOMES_ARRIVED;
    kind = code == ERR_FULL ? HOMES_NO_ROOM : code ? HOMES_FAILED : kind;
    h->n_flying--;
    count(h, how, h->obj[o].size, code);
    h->arrived = true;
    /* the thread may be between its look at the disk and its choice of what to fetch: until it
     * knows of this one, it is not to be fetched again */
    h->flying[o] = add_note(h, (uint8_t)kind, o, &h->accepted_of[o]) ? HOMES_LANDED : 0;
    pthread_mutex_unlock(&h->mu);
}

static void *collect_main(void *arg)
{
    struct homes *h = arg;
    uint64_t tag;
    uint32_t id;
    int code;
    struct err why;
    qos_self(QOS_SERVE);
    while (store_wants_next(h->wants, &tag, &id, &code, &why) != ERR_CANCELLED) {
        homes_ended(h, (uint32_t)tag, code);
    }
    return NULL;
}

bool homes_warming(struct homes *h)
{
    pthread_mutex_lock(&h->mu);
    bool on = h->warm;
    pthread_mutex_unlock(&h->mu);
    return on;
}

/* Where everything belongs, as far as it concerns this node. */
static void plan(struct homes *h)
{
    uint64_t now = clock_ns(), began = clock_thread_ns();
    uint64_t pause = h->plan_cost * HOMES_SHARE;
    pause = pause > HOMES_PLAN_MS * MS_NS ? pause : HOMES_PLAN_MS * MS_NS;
    if (h->planned_at && now - h->planned_at < pause) {
        return;
    }
    struct place_out p;
    struct place_in in = {
        model_root(store_model(h->st)), h->pm, h->n_m, h->obj, h->n_experts, HOMES_COPIES};
    if (!place_compute(&in, &p, NULL)) {
        h->n_due = 0;
        h->n_open = 0;
        memset(h->coming, 0, sizeof h->coming);
        for (size_t i = 0; i < p.n_fresh; i++) {
            if (p.fresh[i].level == 1) {
                h->n_open++;
                h->coming[p.fresh[i].member] += h->obj[p.fresh[i].object].size;
            }
            if (p.fresh[i].member == 0) {
                p.fresh[h->n_due++] = p.fresh[i];
            }
        }
        free(h->due);
        h->due = p.fresh;
        p.fresh = NULL;
        h->sums = p;
    }
    place_free(&p);
    h->planned_at = clock_ns();
    h->plan_cost = clock_thread_ns() - began;
}

/* Who fetches a spine object for all when nobody has it: the first in order. */
static bool first_for(const struct homes *h, uint32_t o)
{
    const uint8_t *root = model_root(store_model(h->st));
    uint64_t mine = order_score(root, h->obj[o].key, h->m[0].id.b);
    for (size_t i = 1; i < h->n_m; i++) {
        if (h->m[i].speaks && h->m[i].may_background &&
            order_before(order_score(root, h->obj[o].key, h->m[i].id.b), h->m[i].id.b, mine,
                         h->m[0].id.b)) {
            return false;
        }
    }
    return true;
}

/* Is there room for one expert more than are under way, without a copy that no other member has
 * going for it? Else it would be fetched for nothing. */
static bool room_for_one(const struct homes *h)
{
    const struct homes_member *me = &h->m[0];
    uint32_t ids[2 * HOMES_AT_ONCE + 1];
    unsigned n = h->n_flying + 1;
    if (me->used + n * h->expert <= me->budget) {
        return true;
    }
    uint64_t room = me->budget > me->used ? (me->budget - me->used) / h->expert : 0;
    n = n < 2 * HOMES_AT_ONCE + 1 ? n : 2 * HOMES_AT_ONCE + 1;
    return room + store_oldest(h->st, PLACE_SPARE, ids, n) >= n;
}

static void try_one(struct homes *h, uint32_t o, unsigned level, bool warm, uint64_t now)
{
    const struct homes_member *me = &h->m[0];
    if (homes_bit(me->held, o) || h->not_before[o] > now) {
        return;
    }
    if (level > 1 && homes_copies(h, o) >= level) {
        return; /* by a plan of another time somebody else was to get it, and has it */
    }
    bool spine = o >= h->n_experts;
    if (homes_holder(h, o)) {
        uint64_t coming = (uint64_t)(h->n_flying + 1) * h->expert; /* about: it is checked again */
        if (spine || (level == 1 ? room_for_one(h) : me->used + coming <= me->budget)) {
            homes_want(h, o, HOMES_COPY, NULL);
        }
    } else if (warm && level == 1 && (spine ? first_for(h, o) : room_for_one(h))) {
        homes_want(h, o, HOMES_WARM, NULL);
    }
}

bool homes_settled(const struct homes *h, uint64_t at)
{
    unsigned ms = h->n->o.homes_settle_ms ? h->n->o.homes_settle_ms : HOMES_SETTLE_MS;
    for (size_t i = 1; i < h->n_m; i++) {
        if (h->m[i].connected && !h->m[i].said) {
            ms = HOMES_SETTLE_MS;
        }
    }
    return at > h->others_at + ms * MS_NS;
}

static void work(struct homes *h)
{
    uint64_t now = clock_ns();
    pthread_mutex_lock(&h->mu);
    bool warm = h->warm && store_has_origin(h->st);
    pthread_mutex_unlock(&h->mu);
    unsigned after = h->n->o.homes_after_ms ? h->n->o.homes_after_ms : HOMES_AFTER_MS;
    if (!h->may_background || !homes_settled(h, h->planned_at) ||
        (!warm && now - h->n->opened_at < after * MS_NS)) {
        return;
    }
    for (uint32_t o = h->n_experts; h->spine_too && o < h->n_all; o++) {
        try_one(h, o, 1, warm, now);
    }
    /* Coverage first: second copies in between would move the room that others count with, and
     * two would fetch the same from the origin. */
    bool first = warm && h->n_open;
    for (size_t i = 0; i < h->n_due; i++) {
        if (h->due[i].level == 1 || !first) {
            try_one(h, h->due[i].object, h->due[i].level, warm, now);
        }
    }
}

static void warm_over(struct homes *h)
{
    uint32_t missing = 0;
    for (uint32_t o = h->n_experts; h->spine_too && o < h->n_all; o++) {
        missing += !homes_bit(h->m[0].held, o);
    }
    pthread_mutex_lock(&h->mu);
    bool tell = h->warm_tell, warm = h->warm;
    h->warm_tell = false;
    bool over = warm && !tell && !h->n_flying && !missing && h->planned_at > h->looked_at &&
                !h->n_open && homes_settled(h, clock_ns());
    pthread_mutex_unlock(&h->mu);
    if (over) { /* who sees that it is over sees what it came to */
        h->reported_at = 0;
        homes_report(h);
        pthread_mutex_lock(&h->mu);
        over = !h->warm_tell;
        h->warm = !over;
        pthread_mutex_unlock(&h->mu);
    }
    if (tell) {
        mesh_place_warm(h->mesh, warm);
        h->looked_at = clock_ns(); /* a placement from now on decides whether it is over */
    }
    if (over) {
        node_log(h->n, "the coverage of the shoal is complete as far as its disks allow");
    }
}

static void ask_power(struct homes *h)
{
    uint64_t now = clock_ns();
    if (h->power_at && h->power == power_now && now - h->power_at < HOMES_POWER_MS * MS_NS) {
        return;
    }
    struct power p;
    h->power(&p);
    if (h->n->o.metered != NODE_METERED_AUTO) {
        p.costly_network = h->n->o.metered == NODE_METERED_YES;
        p.little_data = false;
    }
    h->metered = p.costly_network;
    h->power_at = now;
    h->may_background = !p.on_battery && !p.costly_network;
    snprintf(h->why, sizeof h->why, "%s", power_words(&p, h->n->o.metered == NODE_METERED_YES));
}

static void one_round(struct homes *h)
{
    struct err e = {0};
    ask_power(h);
    if (homes_look(h, &e)) {
        return; /* without memory: again in a while */
    }
    homes_rank(h);
    homes_take_notes(h);
    if (h->shoal || homes_warming(h)) {
        plan(h);
        work(h);
        homes_offer(h);
    }
    warm_over(h);
    homes_save(h);
    homes_report(h);
}

/* Something has come: the next one, without a look at everything. */
static void next_ones(struct homes *h)
{
    homes_take_notes(h);
    if (h->shoal || homes_warming(h)) {
        work(h);
    }
}

/* With mu: until then, or until `stop`, or until one of the two reasons that count. */
static void wait_until(struct homes *h, uint64_t end, bool dirty_counts)
{
    while (!h->stop && !h->arrived && !(dirty_counts && h->dirty)) {
        uint64_t now = clock_ns();
        if (now >= end) {
            return;
        }
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t); /* a changed clock makes one round early or late */
        uint64_t ns = (uint64_t)t.tv_nsec + (end - now);
        t.tv_sec += (time_t)(ns / 1000000000u);
        t.tv_nsec = (long)(ns % 1000000000u);
        if (pthread_cond_timedwait(&h->cond, &h->mu, &t) != 0) {
            return;
        }
    }
}

/* With mu: from one round to the next. */
static uint64_t pause_ns(const struct homes *h)
{
    bool soon = h->dirty || (h->shoal && !homes_settled(h, h->planned_at));
    uint64_t pause = (soon ? HOMES_ROUND_MS : HOMES_IDLE_MS) * MS_NS;
    return pause > h->round_cost * HOMES_SHARE ? pause : h->round_cost * HOMES_SHARE;
}

bool homes_step(struct homes *h)
{
    uint64_t now = clock_ns(), began = clock_thread_ns();
    bool due = !h->round_at || now - h->round_at >= pause_ns(h);
    if (!due && !h->arrived) {
        return false;
    }
    h->arrived = false;
    h->dirty = h->dirty && !due;
    pthread_mutex_unlock(&h->mu);
    if (due) {
        one_round(h);
        h->round_at = clock_ns();
        h->round_cost = clock_thread_ns() - began;
    } else {
        next_ones(h);
    }
    pthread_mutex_lock(&h->mu);
    return true;
}

static void *thread_main(void *arg)
{
    struct homes *h = arg;
    qos_self(QOS_SERVE);
    pthread_mutex_lock(&h->mu);
    while (!h->stop) {
        if (!homes_step(h)) {
            wait_until(h, h->round_at + pause_ns(h), !h->dirty);
        }
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

/* ---- life ---- */

/* The experts in the order of the mesh's extents (lan.c), then the spine. */
static int number(struct homes *h)
{
    const struct model *m = store_model(h->st);
    const struct model_config *c = model_config(m);
    h->n_ids = model_object_count(m);
    size_t n = h->n_ids ? h->n_ids : 1;
    h->ids = calloc(n, sizeof *h->ids);
    h->obj = calloc(n, sizeof *h->obj);
    h->number = malloc(n * sizeof *h->number);
    if (!h->ids || !h->obj || !h->number) {
        return ERR_NOMEM;
    }
    memset(h->number, 0xff, n * sizeof *h->number);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        for (uint32_t e = 0; e < c->n_experts && model_expert_id(m, l, e) != MODEL_NONE; e++) {
            h->ids[h->n_experts++] = model_expert_id(m, l, e);
        }
    }
    h->n_all = h->n_experts;
    for (uint32_t id = 0; id < h->n_ids && model_object(m, id)->kind == MODEL_SPINE; id++) {
        h->ids[h->n_all++] = id;
    }
    for (uint32_t o = 0; o < h->n_all; o++) {
        h->number[h->ids[o]] = o;
        h->obj[o].key = store_key(h->st, h->ids[o]);
        h->obj[o].size = model_object(m, h->ids[o])->size;
        if (o < h->n_experts && h->obj[o].size > h->expert) {
            h->expert = h->obj[o].size;
        }
    }
    return 0;
}

static int tables(struct homes *h)
{
    size_t n = h->n_all + 1;
    h->m = calloc(PLACE_MEMBERS_MAX, sizeof *h->m);
    h->ranks = calloc(h->n_ids + 1, 1);
    h->flying = calloc(n, 1);
    h->accepted_of = calloc(n, sizeof *h->accepted_of);
    h->notes = calloc(HOMES_NOTES_MAX, sizeof *h->notes);
    h->kept_until = calloc(n, sizeof *h->kept_until);
    h->released_until = calloc(n, sizeof *h->released_until);
    h->offered_at = calloc(n, sizeof *h->offered_at);
    h->offered_to = calloc(n, sizeof *h->offered_to);
    h->not_before = calloc(n, sizeof *h->not_before);
    if (!h->m || !h->ranks || !h->flying || !h->accepted_of || !h->notes || !h->kept_until ||
        !h->released_until || !h->offered_at || !h->offered_to || !h->not_before) {
        return ERR_NOMEM;
    }
    h->n_m = 1;
    h->m[0].id = *mesh_id(h->mesh);
    h->m[0].connected = h->m[0].speaks = true;
    h->m[0].held = calloc(n / 8 + 1, 1);
    return h->m[0].held ? 0 : ERR_NOMEM;
}

int homes_make(struct node *n, void (*power)(struct power *out), struct homes **out, struct err *e)
{
    struct homes *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    h->n = n;
    h->st = n->st;
    h->mesh = n->mesh;
    h->power = power ? power : power_now;
    pthread_mutex_init(&h->mu, NULL);
    pthread_cond_init(&h->cond, NULL);
    int r = number(h);
    r = r ? r : tables(h);
    if (r) {
        homes_close(h);
        return err_set(e, r, "out of memory");
    }
    homes_load(h);
    r = store_wants_open(h->st, &h->wants, e);
    if (r) {
        homes_close(h);
        return r;
    }
    struct mesh_place_cb cb = {h, on_changed, on_warm, on_offer, on_kept};
    mesh_place_listen(h->mesh, &cb);
    *out = h;
    return 0;
}

int homes_open(struct node *n, void (*power)(struct power *out), struct homes **out, struct err *e)
{
    struct homes *h;
    int r = homes_make(n, power, &h, e);
    *out = NULL;
    if (r) {
        return r;
    }
    h->has_collector = !pthread_create(&h->collector, NULL, collect_main, h);
    h->has_thread = h->has_collector && !pthread_create(&h->thread, NULL, thread_main, h);
    if (!h->has_thread) {
        homes_stop(h);
        homes_close(h);
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    *out = h;
    return 0;
}

void homes_stop(struct homes *h)
{
    if (!h) {
        return;
    }
    pthread_mutex_lock(&h->mu);
    h->stop = true;
    pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->mu);
    if (h->has_thread) {
        pthread_join(h->thread, NULL);
        h->has_thread = false;
        h->saved_at = 0;
        h->save = true;
        homes_save(h);
    }
    mesh_place_listen(h->mesh, NULL);
    if (h->wants) {
        store_wants_stop(h->wants);
    }
    if (h->has_collector) {
        pthread_join(h->collector, NULL);
        h->has_collector = false;
    }
}

void homes_close(struct homes *h)
{
    if (!h) {
        return;
    }
    store_wants_close(h->wants);
    store_ranks(h->st, NULL, 0);
    for (size_t i = 0; h->m && i < PLACE_MEMBERS_MAX; i++) {
        free(h->m[i].held);
    }
    free(h->m);
    free(h->ids);
    free(h->obj);
    free(h->number);
    free(h->ranks);
    free(h->flying);
    free(h->accepted_of);
    free(h->notes);
    free(h->kept_until);
    free(h->released_until);
    free(h->offered_at);
    free(h->offered_to);
    free(h->not_before);
    free(h->due);
    json_decref(h->report);
    pthread_cond_destroy(&h->cond);
    pthread_mutex_destroy(&h->mu);
    free(h);
}
