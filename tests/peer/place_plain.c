/* SPDX-License-Identifier: MIT
 * place_plain.c: placement in its straightforward form, as place.h states the rules: every member
 * is asked for every object. place.c is compared with it. */
#include "tests/peer/place_plain.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY UINT16_MAX

struct turn {
    uint64_t size, hash;
    uint32_t o;
};

struct work {
    const struct place_in *in;
    struct place_scores s;
    struct turn *turns;
    uint16_t *home;  /* of each object; NOBODY */
    uint8_t *copies; /* kept and planned, at most 255 */
    /* Per member: room that nobody uses; room that is not used by home copies. Never below 0. */
    uint64_t free[PLACE_MEMBERS_MAX], above[PLACE_MEMBERS_MAX];
    uint8_t *planned[PLACE_MEMBERS_MAX]; /* bits of what it is to get, NULL: nothing yet */
    size_t cap;
};

static uint64_t cost_of(const struct place_scores *s, size_t m, struct object_key k)
{
    return order_cost(order_score_of(&s->seed[m], k), s->weight[m]);
}

/* Is member a's copy before member b's, with these costs? */
static bool before(const struct place_member *members, size_t a, uint64_t cost_a, size_t b,
                   uint64_t cost_b)
{
    return cost_a != cost_b ? cost_a < cost_b
                            : memcmp(members[a].id, members[b].id, SHA256_SIZE) < 0;
}

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->size != y->size) {
        return x->size > y->size ? -1 : 1;
    }
    if (x->hash != y->hash) {
        return x->hash < y->hash ? -1 : 1;
    }
    return x->o < y->o ? -1 : x->o > y->o;
}

static size_t holders(const struct place_in *in, uint32_t o)
{
    size_t n = 0;
    for (size_t m = 0; m < in->n_members; m++) {
        n += place_holds(&in->members[m], o);
    }
    return n;
}

/* Who keeps the home copy: the first of those who hold it and have room for one more. */
static size_t keeper_of(const struct work *w, uint32_t o)
{
    const struct place_in *in = w->in;
    uint64_t best_cost = 0;
    size_t best = NOBODY;
    for (size_t m = 0; m < in->n_members; m++) {
        if (!place_holds(&in->members[m], o) || w->above[m] < in->objects[o].size) {
            continue;
        }
        uint64_t c = cost_of(&w->s, m, in->objects[o].key);
        bool p = in->members[m].present;
        if (best == NOBODY || (p && !in->members[best].present) ||
            (p == in->members[best].present && before(in->members, m, c, best, best_cost))) {
            best = m;
            best_cost = c;
        }
    }
    return best;
}

/* Home copies among what is held, and what room that leaves. What one member alone holds comes
 * first: the others' copies can stand in for each other where a budget has shrunk. */
static void keep_held(struct work *w, struct place_out *out)
{
    const struct place_in *in = w->in;
    for (int more = 0; more < 2; more++) {
        for (size_t t = 0; t < in->n_objects; t++) {
            uint32_t o = w->turns[t].o;
            size_t n = more ? w->copies[o] : holders(in, o);
            if (!more) {
                w->home[o] = NOBODY;
                w->copies[o] = (uint8_t)(n < 255 ? n : 255);
                out->covered += n ? in->objects[o].size : 0;
            }
            if (n == 0 || (n > 1) != more) {
                continue;
            }
            size_t m = keeper_of(w, o);
            w->home[o] = (uint16_t)m;
            if (m == NOBODY) {
                w->copies[o] = 0;
                continue;
            }
            w->above[m] -= in->objects[o].size;
            out->planned += in->objects[o].size;
        }
    }
    for (size_t m = 0; m < in->n_members; m++) {
        uint64_t used = 0;
        for (uint32_t o = 0; in->members[m].held && o < in->n_objects; o++) {
            used += place_holds(&in->members[m], o) ? in->objects[o].size : 0;
        }
        uint64_t b = in->members[m].budget;
        w->free[m] = b > used ? b - used : 0;
    }
}

static bool has(const struct work *w, size_t m, uint32_t o)
{
    return place_holds(&w->in->members[m], o) ||
           (w->planned[m] && (w->planned[m][o >> 3] >> (o & 7) & 1));
}

/* The best-scored present member without a copy of `o` that has room for it. */
static size_t choose(const struct work *w, uint32_t o, const uint64_t *room)
{
    const struct place_in *in = w->in;
    size_t best = NOBODY;
    uint64_t best_cost = 0;
    for (size_t m = 0; m < in->n_members; m++) {
        if (!in->members[m].present || room[m] < in->objects[o].size || has(w, m, o)) {
            continue;
        }
        uint64_t c = cost_of(&w->s, m, in->objects[o].key);
        if (best == NOBODY || before(in->members, m, c, best, best_cost)) {
            best = m;
            best_cost = c;
        }
    }
    return best;
}

static int give(struct work *w, struct place_out *out, uint32_t o, size_t m, unsigned level)
{
    if (!w->planned[m] && !(w->planned[m] = calloc((w->in->n_objects + 7) / 8, 1))) {
        return ERR_NOMEM;
    }
    if (out->n_fresh == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 1024;
        struct place_new *t = realloc(out->fresh, cap * sizeof *t);
        if (!t) {
            return ERR_NOMEM;
        }
        out->fresh = t;
        w->cap = cap;
    }
    uint64_t size = w->in->objects[o].size;
    w->planned[m][o >> 3] |= (uint8_t)(1u << (o & 7));
    w->free[m] -= w->free[m] < size ? w->free[m] : size;
    w->above[m] -= w->above[m] < size ? w->above[m] : size;
    w->copies[o] = (uint8_t)(w->copies[o] < 255 ? w->copies[o] + 1 : 255);
    out->fresh[out->n_fresh++] =
        (struct place_new){.object = o, .member = (uint16_t)m, .level = (uint8_t)level};
    return 0;
}

/* Homes for what has none. Free room first for all of them, so that nothing gives way to an object
 * for which there is room elsewhere. */
static int first_copies(struct work *w, struct place_out *out)
{
    const struct place_in *in = w->in;
    for (int giving_way = 0; giving_way < 2; giving_way++) {
        const uint64_t *room = giving_way ? w->above : w->free;
        for (size_t t = 0; t < in->n_objects; t++) {
            uint32_t o = w->turns[t].o;
            if (w->home[o] != NOBODY) {
                continue;
            }
            size_t m = choose(w, o, room);
            if (m == NOBODY) {
                continue;
            }
            w->home[o] = (uint16_t)m;
            out->planned += in->objects[o].size;
            if (give(w, out, o, m, 1)) {
                return ERR_NOMEM;
            }
        }
    }
    return 0;
}

static bool any_room(const struct work *w, uint64_t size)
{
    for (size_t m = 0; m < w->in->n_members; m++) {
        if (w->in->members[m].present && w->free[m] >= size) {
            return true;
        }
    }
    return false;
}

static int more_copies(struct work *w, struct place_out *out)
{
    const struct place_in *in = w->in;
    for (unsigned level = 2; level <= in->copies && level <= in->n_members; level++) {
        for (size_t t = 0; t < in->n_objects; t++) {
            uint32_t o = w->turns[t].o;
            if (w->copies[o] != level - 1 || !any_room(w, in->objects[o].size)) {
                continue;
            }
            size_t m = choose(w, o, w->free);
            if (m != NOBODY && give(w, out, o, m, level)) {
                return ERR_NOMEM;
            }
        }
    }
    return 0;
}

static int compute(struct work *w, struct place_out *out)
{
    const struct place_in *in = w->in;
    static const uint8_t nobody[SHA256_SIZE];
    struct order_seed turn;
    order_seed(&turn, in->root, nobody);
    for (size_t o = 0; o < in->n_objects; o++) {
        w->turns[o] = (struct turn){.size = in->objects[o].size,
                                    .hash = order_score_of(&turn, in->objects[o].key),
                                    .o = (uint32_t)o};
        out->model += in->objects[o].size;
    }
    if (in->n_objects) { /* qsort wants an array even for none */
        qsort(w->turns, in->n_objects, sizeof *w->turns, by_turn);
    }
    for (size_t m = 0; m < in->n_members; m++) {
        uint64_t b = in->members[m].budget;
        w->above[m] = b;
        out->budgets = out->budgets + b < b ? UINT64_MAX : out->budgets + b;
    }
    out->possible = out->budgets < out->model ? out->budgets : out->model;
    place_scores(&w->s, in->root, in->members, in->n_members);
    keep_held(w, out);
    int r = first_copies(w, out);
    return r ? r : more_copies(w, out);
}

int place_plain(const struct place_in *in, struct place_out *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    if (in->n_members > PLACE_MEMBERS_MAX || in->n_objects > PLACE_OBJECTS_MAX || !in->copies) {
        return err_set(e, ERR_ARG, "%zu members with %zu objects cannot be placed", in->n_members,
                       in->n_objects);
    }
    struct work *w = calloc(1, sizeof *w);
    size_t n = in->n_objects ? in->n_objects : 1;
    int r = ERR_NOMEM;
    if (w) {
        w->in = in;
        w->turns = malloc(n * sizeof *w->turns);
        w->home = malloc(n * sizeof *w->home);
        w->copies = calloc(n, 1);
        if (w->turns && w->home && w->copies) {
            r = compute(w, out);
        }
        for (size_t m = 0; m < in->n_members; m++) {
            free(w->planned[m]);
        }
        free(w->turns);
        free(w->home);
        free(w->copies);
    }
    free(w);
    return r ? err_set(e, r, "out of memory") : 0;
}
