/* SPDX-License-Identifier: MIT
 * homes_view.c: see homes_int.h: who is there, what they hold, what this node may keep; ranks. */
#include "node/daemon/homes_int.h"

#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct homes_member *homes_member(struct homes *h, const struct key_id *id)
{
    for (size_t i = 1; i < h->n_m; i++) {
        if (memcmp(h->m[i].id.b, id->b, SHA256_SIZE) == 0) {
            return &h->m[i];
        }
    }
    return NULL;
}

static uint64_t bytes_of(const struct homes *h, const uint8_t *held)
{
    uint64_t n = 0;
    for (uint32_t o = 0; o < h->n_experts; o++) {
        n += homes_bit(held, o) ? h->obj[o].size : 0;
    }
    return n;
}

/* What of the disk is for experts: all that the spine leaves, which every token needs whole. A disk
 * that can hold it does so sooner or later; on a smaller one counts what of it is there. */
static void look_at_self(struct homes *h, const struct store_space *s)
{
    const struct model *m = store_model(h->st);
    struct homes_member *me = &h->m[0];
    uint64_t spine = model_spine_bytes(m);
    h->spine_too = s->budget >= spine;
    spine = h->spine_too ? spine : s->used - s->experts;
    me->budget = s->budget > spine ? s->budget - spine : 0;
    if (me->budget > model_expert_bytes(m)) {
        me->budget = model_expert_bytes(m);
    }
    me->used = bytes_of(h, me->held);
    me->may_background = h->may_background;
}

static int look_at_disk(struct homes *h, struct err *e)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    struct store_space s;
    int r = store_share_list(h->st, &ids, &n, e);
    if (r) {
        return r;
    }
    memset(h->m[0].held, 0, h->n_all / 8 + 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t o = ids[i] < h->n_ids ? h->number[ids[i]] : UINT32_MAX;
        if (o != UINT32_MAX) {
            homes_set(h->m[0].held, o, true);
        }
    }
    free(ids);
    store_get_space(h->st, &s);
    look_at_self(h, &s);
    return 0;
}

static bool empty(const uint8_t *bits, uint32_t n)
{
    for (uint32_t i = 0; i < n / 8 + 1; i++) {
        if (bits[i]) {
            return false;
        }
    }
    return true;
}

/* What it said Kept for does not count any more: it may have forgotten. */
static void forget_word(struct homes *h, const struct key_id *id)
{
    uint64_t who = num_get_le64(id->b);
    for (uint32_t o = 0; o < h->n_all; o++) {
        h->released_until[o] = h->offered_to[o] == who ? 0 : h->released_until[o];
    }
}

/* News of one that is connected. */
static void take_peer(struct homes *h, struct homes_member *x, struct mesh_place_peer *p,
                      int64_t now)
{
    if (!x->connected || x->since != p->since) { /* perhaps it went and came between two looks */
        forget_word(h, &x->id);
        x->said = false;
    }
    if (!x->connected || x->since != p->since || (!x->said && p->complete)) {
        h->others_at = clock_ns();
    }
    x->since = p->since;
    x->said = (x->connected && x->said) || p->complete;
    x->connected = true;
    x->speaks = p->has_place;
    x->seen = now;
    memcpy(x->name, p->name, sizeof x->name);
    x->may_background = p->has_place && p->place.may_background;
    if (p->has_place) {
        x->budget = p->place.budget;
    }
    /* until it has said what it holds, what it held last counts */
    if (p->held && (x->said || !empty(p->held, h->n_all) ||
                    clock_ns() - h->others_at > HOMES_SETTLE_MS * MS_NS)) {
        free(x->held);
        x->held = p->held;
        p->held = NULL;
    }
    x->used = bytes_of(h, x->held);
    if (!p->has_place && x->budget < x->used) {
        x->budget = x->used; /* an older program: what it has, it can keep */
    }
}

static struct homes_member *add(struct homes *h, const struct key_id *id)
{
    uint8_t *held = h->n_m < PLACE_MEMBERS_MAX ? calloc(h->n_all / 8 + 1, 1) : NULL;
    if (!held) {
        return NULL;
    }
    struct homes_member *x = &h->m[h->n_m++];
    memset(x, 0, sizeof *x);
    x->id = *id;
    x->held = held;
    return x;
}

static void drop(struct homes *h, size_t i)
{
    free(h->m[i].held);
    h->m[i] = h->m[--h->n_m];
    memset(&h->m[h->n_m], 0, sizeof h->m[0]);
    h->others_at = clock_ns();
}

static void take_list(struct homes *h, struct mesh_place_peer *l, size_t n)
{
    int64_t now = (int64_t)time(NULL);
    for (size_t i = 1; i < h->n_m;) { /* who is no member any more, or unseen for too long */
        bool listed = false;
        for (size_t k = 0; k < n && !listed; k++) {
            listed = memcmp(l[k].id.b, h->m[i].id.b, SHA256_SIZE) == 0;
        }
        if (!listed || (!h->m[i].connected && now - h->m[i].seen > HOMES_FORGET_S)) {
            drop(h, i);
            h->save = true;
        } else {
            i++;
        }
    }
    for (size_t k = 0; k < n; k++) {
        struct homes_member *x = homes_member(h, &l[k].id);
        if (l[k].connected) {
            x = x ? x : add(h, &l[k].id);
            if (x) {
                take_peer(h, x, &l[k], now);
                h->save = true;
            }
        } else if (x && x->connected) {
            x->connected = x->speaks = false;
            h->others_at = clock_ns();
        }
    }
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Tells the others when it makes a difference. */
static void tell(struct homes *h)
{
    const struct homes_member *me = &h->m[0];
    uint64_t slack = homes_warming(h) ? 0 : h->told_budget / 64; /* then all are to plan alike */
    if (h->told && h->told_background == h->may_background &&
        apart(me->budget, h->told_budget) <= slack &&
        apart(me->used, h->told_used) <= h->told_budget / 64) {
        return;
    }
    struct mesh_place p = {me->budget, me->used, h->may_background};
    mesh_place_tell(h->mesh, &p);
    h->told = true;
    h->told_background = h->may_background;
    h->told_budget = me->budget;
    h->told_used = me->used;
}

/* By which budgets the copies of an object are ordered: what every member knows. This node's own,
 * too, counts as it was told: else two could each take the other's copy for the home copy. */
static void order_by(struct homes *h)
{
    const uint8_t *root = model_root(store_model(h->st));
    struct place_member now[PLACE_MEMBERS_MAX];
    uint64_t t = clock_ns();
    h->was_until = 0;
    memcpy(now, h->pm, h->n_m * sizeof *now);
    for (size_t i = 0; i < h->n_m; i++) {
        struct homes_member *x = &h->m[i];
        uint64_t told = i ? x->budget : h->told_budget;
        if (told != x->told) {
            x->was = x->was_until > t ? x->was : x->told;
            x->was_until = x->was ? t + HOMES_WAS_MS * MS_NS : 0; /* 0: nobody went by it */
            x->told = told;
        }
        now[i].budget = told;
    }
    place_scores(&h->scores, root, now, h->n_m);
    for (size_t i = 0; i < h->n_m; i++) {
        const struct homes_member *x = &h->m[i];
        bool was = x->was_until > t;
        now[i].budget = was ? x->was : x->told;
        h->was_until = was && x->was_until > h->was_until ? x->was_until : h->was_until;
    }
    if (h->was_until) {
        place_scores(&h->scores_were, root, now, h->n_m);
    }
}

int homes_look(struct homes *h, struct err *e)
{
    struct mesh_place_peer *l = NULL;
    size_t n = 0;
    int in = mesh_place_list(h->mesh, &l, &n);
    bool alone = in == ERR_OFFLINE || (!in && !n); /* in no shoal, or in one of its own */
    pthread_mutex_lock(&h->mu);
    bool look = !alone || h->warm;
    pthread_mutex_unlock(&h->mu);
    int r = in == ERR_NOMEM ? err_set(e, in, "out of memory") : look ? look_at_disk(h, e) : 0;
    if (!r) {
        take_list(h, l, n);
        h->shoal = h->n_m > 1;
        tell(h);
    }
    mesh_place_list_free(l, n);
    for (size_t i = 0; i < h->n_m; i++) {
        const struct homes_member *x = &h->m[i];
        memcpy(h->pm[i].id, x->id.b, SHA256_SIZE);
        h->pm[i].budget = x->budget;
        h->pm[i].present = x->connected && (i == 0 || x->speaks);
        h->pm[i].held = x->held;
    }
    order_by(h);
    return r;
}

bool homes_room_elsewhere(const struct homes *h)
{
    for (size_t i = 1; i < h->n_m; i++) {
        const struct homes_member *x = &h->m[i];
        if (x->speaks && x->may_background && x->used + h->expert <= x->budget) {
            return true;
        }
    }
    return false;
}

struct homes_member *homes_holder(struct homes *h, uint32_t o)
{
    struct homes_member *best = NULL;
    uint64_t cost = 0;
    for (size_t i = 1; i < h->n_m; i++) {
        struct homes_member *x = &h->m[i];
        if (!x->connected || !homes_bit(x->held, o)) {
            continue;
        }
        uint64_t c =
            order_cost(order_score_of(&h->scores.seed[i], h->obj[o].key), h->scores.weight[i]);
        if (!best || (x->speaks && !best->speaks) || (x->speaks == best->speaks && c < cost)) {
            best = x;
            cost = c;
        }
    }
    return best;
}

/* Would this node be the one to download it for all by lease? Then the others get it of this node,
 * and it is here that it stays. What it warms or takes over comes into room that is there, by plan:
 * if that has gone meanwhile, no last copy goes for it. */
static bool downloads(const struct homes *h, uint32_t o)
{
    uint64_t mine = order_score_of(&h->scores.seed[0], h->obj[o].key);
    if (h->flying[o] == HOMES_WARM || h->flying[o] == HOMES_ACCEPTED) {
        return false;
    }
    for (size_t i = 1; i < h->n_m; i++) {
        if (h->m[i].speaks && order_before(order_score_of(&h->scores.seed[i], h->obj[o].key),
                                           h->m[i].id.b, mine, h->m[0].id.b)) {
            return false;
        }
    }
    return true;
}

/* Another has said Kept for this node's copy of o: does that still count? Not when this copy has
 * gone meanwhile (another may come), nor when that member is not there any more or has not what it
 * said: it has forgotten its word with a restart, or given it up to somebody else. */
static bool released(struct homes *h, uint32_t o, uint64_t now)
{
    if (h->released_until[o] <= now) {
        return false;
    }
    bool just = h->released_until[o] - now > (HOMES_RELEASE_MS - HOMES_SETTLE_MS) * MS_NS;
    bool there = false;
    for (size_t i = 1; i < h->n_m && homes_bit(h->m[0].held, o); i++) {
        const struct homes_member *x = &h->m[i];
        there = there || (num_get_le64(x->id.b) == h->offered_to[o] && x->connected &&
                          (homes_bit(x->held, o) || (just && x->said)));
    }
    h->released_until[o] = there ? h->released_until[o] : 0;
    return there;
}

/* A budget that has changed changes whose copy is the home copy; until all know of it some go by
 * the old one. So a copy is spare only if it is by both. */
static enum place_rank rank_of(const struct homes *h, uint32_t o, uint64_t now)
{
    enum place_rank r = place_rank_of(&h->scores, h->pm, h->n_m, 0, o, h->obj[o].key);
    if (r == PLACE_SPARE && h->was_until > now) {
        r = place_rank_of(&h->scores_were, h->pm, h->n_m, 0, o, h->obj[o].key);
    }
    return r;
}

void homes_rank(struct homes *h)
{
    uint64_t now = clock_ns();
    if (!h->shoal) { /* alone: as without a shoal */
        store_ranks(h->st, NULL, 0);
        return;
    }
    memset(h->ranks, UINT8_MAX, h->n_ids);
    pthread_mutex_lock(&h->mu); /* flying */
    for (uint32_t o = 0; o < h->n_experts; o++) {
        enum place_rank r = rank_of(h, o, now);
        bool free = released(h, o, now);
        if (!homes_bit(h->m[0].held, o)) { /* what may go for it when it comes */
            r = r >= PLACE_ABSENT && downloads(h, o) ? r : PLACE_SPARE; /* or others have it, too */
        } else if (h->kept_until[o] > now) {
            r = PLACE_LAST; /* who asked for that may have none any more */
        } else if (r == PLACE_HOME && free) {
            r = PLACE_SPARE;
        }
        h->ranks[h->ids[o]] = (uint8_t)r;
    }
    pthread_mutex_unlock(&h->mu);
    /* While there is room elsewhere, or may be, nothing goes that another has not taken over. */
    bool room = homes_room_elsewhere(h) || !homes_settled(h, now);
    store_ranks(h->st, h->ranks, room ? PLACE_SPARE : PLACE_LAST);
}
