/* SPDX-License-Identifier: MIT
 * sim.c: see sim.h. */
#include "sim/sim.h"

#include "peer/rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VICTIMS 12 /* copies of the least worth that are looked at for one eviction */

struct node {
    double up, down;       /* free for a decode's next object */
    double up_bg, down_bg; /* free for a background one */
    double up_busy, down_busy;
    float *ready; /* of each object: since when it is complete here; meaningless if not held */
    uint32_t *used;
    uint8_t *held;
    uint64_t bytes;
    uint32_t ranks[PLACE_LAST + 1]; /* copies here by what they are worth */
    double at;                      /* of its decode: the next layer begins */
    unsigned token, layer;
    struct rng prompt;
};

struct sim {
    struct sim_opts o;
    uint8_t root[SHA256_SIZE];
    struct place_member m[SIM_NODES_MAX];
    struct place_scores sc;
    struct node n[SIM_NODES_MAX];
    unsigned nodes;
    struct place_object *obj;
    uint32_t n_obj, clock, born;
    double now, line, line_bg; /* the internet: free for a decode, for background */
    double *cdf;
    uint32_t *perm; /* of each layer: which expert is how popular */
    struct rng rng;
    struct sim_totals t;
};

void sim_k3(struct sim_opts *o)
{
    *o = (struct sim_opts){.nodes = 4,
                           .layers = 92,
                           .experts = 896,
                           .top = 16,
                           .size = 17547264,
                           .link = 1.18e8,
                           .internet = 1.18e8,
                           .compute = 0.5,
                           .budget_min = 1e11,
                           .budget_max = 2e12,
                           .zipf = 0.6,
                           .seed = 1,
                           .copies = 2};
}

static double unit(struct rng *r)
{
    return (double)(rng_next(r) >> 11) / 9007199254740992.0;
}

static void rescore(struct sim *s)
{
    place_scores(&s->sc, s->root, s->m, s->nodes);
}

void sim_join(struct sim *s, uint64_t budget)
{
    assert(s->nodes < SIM_NODES_MAX);
    struct node *n = &s->n[s->nodes];
    struct place_member *m = &s->m[s->nodes];
    uint32_t born = ++s->born;
    memset(n, 0, sizeof *n);
    memset(m, 0, sizeof *m);
    sha256(&born, sizeof born, m->id);
    n->held = calloc(s->n_obj / 8 + 1, 1);
    n->ready = calloc(s->n_obj, sizeof *n->ready);
    n->used = calloc(s->n_obj, sizeof *n->used);
    n->up = n->down = n->up_bg = n->down_bg = s->now;
    m->held = n->held;
    m->budget = budget;
    m->present = true;
    s->nodes++;
    rescore(s);
    /* holds nothing: nobody's copies are worth more or less */
}

static void node_free(struct node *n)
{
    free(n->held);
    free(n->ready);
    free(n->used);
}

static void recount(struct sim *s);

void sim_leave(struct sim *s, unsigned i)
{
    node_free(&s->n[i]);
    s->nodes--;
    s->n[i] = s->n[s->nodes];
    s->m[i] = s->m[s->nodes];
    rescore(s);
    recount(s);
}

struct sim *sim_open(const struct sim_opts *o)
{
    struct sim *s = calloc(1, sizeof *s);
    s->o = *o;
    memset(s->root, 0x33, sizeof s->root);
    s->rng = (struct rng){o->seed};
    s->n_obj = o->layers * o->experts;
    s->obj = calloc(s->n_obj, sizeof *s->obj);
    s->perm = calloc(s->n_obj, sizeof *s->perm);
    s->cdf = calloc(o->experts, sizeof *s->cdf);
    double sum = 0;
    for (uint32_t e = 0; e < o->experts; e++) {
        sum += pow(e + 1, -o->zipf);
        s->cdf[e] = sum;
    }
    for (uint32_t i = 0; i < s->n_obj; i++) {
        uint32_t l = i / o->experts, e = i % o->experts;
        s->obj[i] = (struct place_object){{0, (uint16_t)l, e}, o->size};
        uint32_t j = rng_below(&s->rng, e + 1);
        s->perm[i] = s->perm[l * o->experts + j];
        s->perm[l * o->experts + j] = e;
    }
    for (unsigned i = 0; i < o->nodes; i++) {
        double f = o->nodes > 1 ? unit(&s->rng) : 0.5;
        sim_join(s, (uint64_t)(o->budget_min * pow(o->budget_max / o->budget_min, f)));
    }
    return s;
}

void sim_close(struct sim *s)
{
    for (unsigned i = 0; i < s->nodes; i++) {
        node_free(&s->n[i]);
    }
    free(s->obj);
    free(s->perm);
    free(s->cdf);
    free(s);
}

double sim_now(const struct sim *s)
{
    return s->now;
}

uint64_t sim_model(const struct sim *s)
{
    return (uint64_t)s->n_obj * s->o.size;
}

uint64_t sim_budgets(const struct sim *s)
{
    uint64_t b = 0;
    for (unsigned i = 0; i < s->nodes; i++) {
        b += s->m[i].budget / s->o.size * s->o.size;
    }
    return b;
}

uint64_t sim_held(const struct sim *s, unsigned copies)
{
    uint64_t n = 0;
    for (uint32_t o = 0; o < s->n_obj; o++) {
        unsigned c = 0;
        for (unsigned i = 0; i < s->nodes; i++) {
            c += place_holds(&s->m[i], o);
        }
        n += c >= copies ? s->o.size : 0;
    }
    return n;
}

/* ---- disks ---- */

static bool room_elsewhere(const struct sim *s, unsigned me)
{
    for (unsigned i = 0; i < s->nodes; i++) {
        if (i != me && s->n[i].bytes + s->o.size <= s->m[i].budget) {
            return true;
        }
    }
    return false;
}

static enum place_rank rank(const struct sim *s, unsigned i, uint32_t o)
{
    return place_rank_of(&s->sc, s->m, s->nodes, i, o, s->obj[o].key);
}

/* Before and after each change of who holds o. */
static void count(struct sim *s, uint32_t o, int by)
{
    for (unsigned i = 0; i < s->nodes; i++) {
        if (place_holds(&s->m[i], o)) {
            s->n[i].ranks[rank(s, i, o)] += (uint32_t)by;
        }
    }
}

static void recount(struct sim *s)
{
    for (unsigned i = 0; i < s->nodes; i++) {
        memset(s->n[i].ranks, 0, sizeof s->n[i].ranks);
    }
    for (uint32_t o = 0; o < s->n_obj; o++) {
        count(s, o, 1);
    }
}

static void hold(struct sim *s, unsigned i, uint32_t o, bool on)
{
    uint8_t bit = (uint8_t)(1u << (o & 7)), *at = &s->n[i].held[o >> 3];
    count(s, o, -1);
    *at = (uint8_t)(on ? *at | bit : *at & ~bit);
    count(s, o, 1);
    s->n[i].bytes += on ? s->o.size : 0 - s->o.size;
}

/* Of the least worth that is there, the longest unused of a sample. False: nothing of at most rank
 * `most`. */
static bool evict(struct sim *s, unsigned i, enum place_rank most)
{
    struct node *n = &s->n[i];
    uint32_t best = UINT32_MAX, seen = 0, at = rng_below(&s->rng, s->n_obj);
    int r = PLACE_SPARE;
    while (r <= (int)most && !n->ranks[r]) {
        r++;
    }
    if (r > (int)most) {
        return false;
    }
    for (uint32_t k = 0; k < s->n_obj && seen < VICTIMS && seen < n->ranks[r]; k++) {
        uint32_t o = at + k < s->n_obj ? at + k : at + k - s->n_obj;
        if (place_holds(&s->m[i], o) && (int)rank(s, i, o) == r) {
            seen++;
            best = best == UINT32_MAX || n->used[o] < n->used[best] ? o : best;
        }
    }
    assert(best != UINT32_MAX);
    if (r == PLACE_LAST && room_elsewhere(s, i)) {
        s->t.lost++;
    }
    hold(s, i, best, false);
    s->t.evicted++;
    return true;
}

/* An object has come at node i; it stays on disk if something that is worth no more can go. What
 * nobody else holds may not push out what nobody else holds while there is room elsewhere. */
static bool keep(struct sim *s, unsigned i, uint32_t o, double at)
{
    struct node *n = &s->n[i];
    enum place_rank most = rank(s, i, o);
    if (most == PLACE_LAST && room_elsewhere(s, i)) {
        most = PLACE_ABSENT;
    }
    while (n->bytes + s->o.size > s->m[i].budget) {
        if (!evict(s, i, most)) {
            return false;
        }
    }
    n->ready[o] = (float)at;
    n->used[o] = ++s->clock;
    hold(s, i, o, true);
    return true;
}

/* ---- links ---- */

static double max2(double a, double b)
{
    return a > b ? a : b;
}

/* One object from a to b, not before `from`, complete not before `ends` (it is itself coming). Each
 * direction of a link has a queue of its own and chunks pass through, so that the slower of the two
 * decides and none stands still for the other. */
static double carry(struct sim *s, unsigned a, unsigned b, double from, double ends, bool bg)
{
    struct node *x = &s->n[a], *y = &s->n[b];
    double t = (double)s->o.size / s->o.link;
    double *up = bg ? &x->up_bg : &x->up, *down = bg ? &y->down_bg : &y->down;
    *up = max2(from, *up) + t;
    *down = max2(from, *down) + t;
    if (!bg) { /* background waits */
        x->up_bg = max2(x->up_bg, x->up);
        y->down_bg = max2(y->down_bg, y->down);
    }
    x->up_busy += t;
    y->down_busy += t;
    s->t.lan_bytes += s->o.size;
    return max2(max2(*up, *down), ends);
}

static double from_origin(struct sim *s, unsigned i, double from, bool bg)
{
    double t = (double)s->o.size / s->o.internet;
    double end = max2(from, bg ? s->line_bg : s->line) + t;
    if (!bg) {
        s->line = end;
    }
    s->line_bg = max2(s->line_bg, end);
    double own = (double)s->o.size / s->o.link;
    s->n[i].down_busy += own < t ? own : t;
    s->t.origin_bytes += s->o.size;
    return end;
}

/* The holder from whom an object is there first; UINT_MAX: nobody holds it. */
static unsigned best_holder(const struct sim *s, unsigned me, uint32_t o, double now, bool bg)
{
    unsigned best = UINT32_MAX;
    double when = 0;
    for (unsigned i = 0; i < s->nodes; i++) {
        if (i != me && place_holds(&s->m[i], o)) {
            double t = max2(max2(now, s->n[i].ready[o]), bg ? s->n[i].up_bg : s->n[i].up);
            if (best == UINT32_MAX || t < when) {
                best = i;
                when = t;
            }
        }
    }
    return best;
}

/* ---- decoding ---- */

/* Who is first in order for an object that nobody has. */
static unsigned first_in_order(const struct sim *s, uint32_t o)
{
    unsigned best = 0;
    uint64_t top = 0;
    for (unsigned i = 0; i < s->nodes; i++) {
        uint64_t x = order_score_of(&s->sc.seed[i], s->obj[o].key);
        if (i == 0 || order_before(x, s->m[i].id, top, s->m[best].id)) {
            best = i;
            top = x;
        }
    }
    return best;
}

/* When node i has object o, which it wants at `now`. coming[o]: what is under way or was, and whose
 * copy was not kept. */
static double obtain(struct sim *s, unsigned i, uint32_t o, double now, bool leases)
{
    if (place_holds(&s->m[i], o)) {
        s->n[i].used[o] = ++s->clock;
        return max2(now, s->n[i].ready[o]);
    }
    unsigned h = best_holder(s, i, o, now, false);
    double end;
    if (h != UINT32_MAX && (leases || s->n[h].ready[o] <= (float)now)) {
        end = carry(s, h, i, now, s->n[h].ready[o], false);
    } else {
        unsigned f = leases ? first_in_order(s, o) : i;
        end = from_origin(s, f, now, false);
        if (f != i) {
            keep(s, f, o, end);
            end = carry(s, f, i, now, end, false);
        }
    }
    keep(s, i, o, end);
    return end;
}

static uint32_t pick(const struct sim *s, struct rng *r)
{
    double x = unit(r) * s->cdf[s->o.experts - 1];
    uint32_t lo = 0, hi = s->o.experts - 1;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (s->cdf[mid] < x) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void one_layer(struct sim *s, unsigned i, bool leases)
{
    struct node *n = &s->n[i];
    uint32_t chosen[64], k = 0;
    double end = n->at;
    while (k < s->o.top) {
        uint32_t e = s->perm[n->layer * s->o.experts + pick(s, &n->prompt)];
        bool twice = false;
        for (uint32_t j = 0; j < k; j++) {
            twice = twice || chosen[j] == e;
        }
        if (!twice) {
            chosen[k++] = e;
        }
    }
    for (uint32_t j = 0; j < k; j++) {
        end = max2(end, obtain(s, i, n->layer * s->o.experts + chosen[j], n->at, leases));
    }
    s->t.stall += end - n->at;
    n->at = end + s->o.compute / s->o.layers;
    if (++n->layer == s->o.layers) {
        n->layer = 0;
        n->token++;
        s->t.tokens++;
    }
}

static void begin(struct sim *s)
{
    memset(&s->t, 0, sizeof s->t);
    s->line = s->line_bg = s->now;
    for (unsigned i = 0; i < s->nodes; i++) {
        struct node *n = &s->n[i];
        n->up = n->down = n->up_bg = n->down_bg = s->now;
        n->up_busy = n->down_busy = 0;
    }
}

static double busiest(const struct sim *s, double began)
{
    double b = 0;
    for (unsigned i = 0; i < s->nodes; i++) {
        b = max2(b, max2(s->n[i].up_busy, s->n[i].down_busy));
    }
    return s->now > began ? b / (s->now - began) : 0;
}

void sim_decode(struct sim *s, unsigned tokens, bool same, bool leases, struct sim_totals *out)
{
    double began = s->now;
    uint64_t prompt = rng_next(&s->rng);
    begin(s);
    for (unsigned i = 0; i < s->nodes; i++) {
        s->n[i].at = s->now;
        s->n[i].token = s->n[i].layer = 0;
        s->n[i].prompt = (struct rng){same ? prompt : prompt + 77 * (i + 1)};
    }
    for (;;) { /* the node whose next layer begins first */
        unsigned next = UINT32_MAX;
        for (unsigned i = 0; i < s->nodes; i++) {
            if (s->n[i].token < tokens && (next == UINT32_MAX || s->n[i].at < s->n[next].at)) {
                next = i;
            }
        }
        if (next == UINT32_MAX) {
            break;
        }
        s->now = max2(s->now, s->n[next].at);
        one_layer(s, next, leases);
    }
    for (unsigned i = 0; i < s->nodes; i++) {
        s->now = max2(s->now, s->n[i].at);
    }
    *out = s->t;
    out->busiest = busiest(s, began);
}

/* ---- placement ---- */

static void point(struct sim_curve *c, double t, double y)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 256;
        c->t = realloc(c->t, c->cap * sizeof *c->t);
        c->y = realloc(c->y, c->cap * sizeof *c->y);
    }
    c->t[c->n] = t;
    c->y[c->n++] = y;
}

void sim_curve_free(struct sim_curve *c)
{
    free(c->t);
    free(c->y);
    memset(c, 0, sizeof *c);
}

static uint64_t gain(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Carries out what placement says, in its order. Returns how many copies were made. */
static size_t carry_out(struct sim *s, const struct place_out *p, bool warm, struct sim_curve *c,
                        uint64_t *held)
{
    size_t done = 0;
    uint64_t step = sim_model(s) / 200 + 1, told = *held;
    for (size_t i = 0; i < p->n_fresh; i++) {
        uint32_t o = p->fresh[i].object;
        unsigned to = p->fresh[i].member;
        unsigned h = best_holder(s, to, o, s->now, true);
        if (h == UINT32_MAX && !warm) {
            continue;
        }
        double end = h == UINT32_MAX ? from_origin(s, to, s->now, true)
                                     : carry(s, h, to, max2(s->now, s->n[h].ready[o]), 0, true);
        if (!keep(s, to, o, end)) {
            continue;
        }
        done++;
        if (h == UINT32_MAX) {
            *held += s->o.size;
            if (c && (*held - told >= step)) {
                point(c, end, (double)*held / (double)sim_model(s));
                told = *held;
            }
        }
    }
    return done;
}

void sim_settle(struct sim *s, bool warm, struct sim_curve *curve, struct sim_settled *out)
{
    double began = s->now;
    uint64_t once = sim_held(s, 1), twice = sim_held(s, 2), held = once;
    begin(s);
    if (curve) {
        point(curve, s->now, (double)held / (double)sim_model(s));
    }
    for (int round = 0; round < 6; round++) {
        struct place_out p;
        struct place_in in = {s->root, s->m, s->nodes, s->obj, s->n_obj, s->o.copies};
        if (place_compute(&in, &p, NULL)) {
            abort();
        }
        size_t done = carry_out(s, &p, warm, curve, &held);
        place_free(&p);
        for (unsigned i = 0; i < s->nodes; i++) {
            s->now = max2(s->now, max2(s->n[i].up_bg, s->n[i].down_bg));
        }
        s->now = max2(s->now, s->line_bg);
        if (!done) {
            break;
        }
    }
    if (curve) {
        point(curve, s->now, (double)held / (double)sim_model(s));
    }
    uint64_t b = sim_budgets(s), possible = b < sim_model(s) ? b : sim_model(s);
    *out = (struct sim_settled){
        .moved = s->t.lan_bytes + s->t.origin_bytes,
        .least = gain(sim_held(s, 1), once) + gain(sim_held(s, 2), twice),
        .origin_bytes = s->t.origin_bytes,
        .seconds = s->now - began,
        .covered = possible ? (double)sim_held(s, 1) / (double)possible : 1,
    };
}
