/* SPDX-License-Identifier: MIT */
#include "peer/place.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY UINT16_MAX

struct turn { /* with its object's own fields: turns are gone through in order, objects are not */
    uint64_t size, hash;
    struct object_key key;
    uint32_t o;
};

struct work {
    const struct place_in *in;
    struct place_scores s;
    struct order_bound bound[PLACE_MEMBERS_MAX];
    struct turn *turns;
    uint16_t *home;  /* of each object; NOBODY */
    uint8_t *copies; /* kept and planned, at most 255 */
    /* Per member: room that nobody uses; room that is not used by home copies. Never below 0. */
    uint64_t free[PLACE_MEMBERS_MAX], above[PLACE_MEMBERS_MAX];
    uint64_t
        *has; /* members as bits, `words` of 64 for each object: who holds it or is to get it */
    size_t words, n_present;
    uint16_t present[PLACE_MEMBERS_MAX];
    uint64_t dry; /* no present member has room for so many bytes; UINT64_MAX: not known */
    size_t cap;
};

void place_scores(struct place_scores *s, const uint8_t root[SHA256_SIZE],
                  const struct place_member *members, size_t n)
{
    for (size_t i = 0; i < n && i < PLACE_MEMBERS_MAX; i++) {
        order_seed(&s->seed[i], root, members[i].id);
        uint64_t b = members[i].budget;
        s->weight[i] = b ? b / PLACE_WEIGHT_UNIT + 1 : 0;
    }
}

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

enum place_rank place_rank_of(const struct place_scores *s, const struct place_member *members,
                              size_t n, size_t me, uint32_t o, struct object_key key)
{
    bool present = false, absent = false, home = true;
    uint64_t mine = 0;
    for (size_t m = 0; m < n; m++) {
        if (m == me || !place_holds(&members[m], o)) {
            continue;
        }
        if (!members[m].present) {
            absent = true;
            continue;
        }
        if (!present) {
            mine = cost_of(s, me, key);
        }
        present = true;
        if (home && before(members, m, cost_of(s, m, key), me, mine)) {
            home = false;
        }
    }
    if (present) {
        return home ? PLACE_HOME : PLACE_SPARE;
    }
    return absent ? PLACE_ABSENT : PLACE_LAST;
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

/* Objects of one size (as K3's experts) by their hashes: dealt out by the upper bits, then each
 * hand put in order. False: they are of many sizes, or there is no memory. */
static bool sort_by_hash(struct work *w)
{
    size_t n = w->in->n_objects, n_hands = 1;
    unsigned shift = 64;
    for (size_t i = 1; i < n; i++) {
        if (w->turns[i].size != w->turns[0].size) {
            return false;
        }
    }
    while (n_hands < n / 4) {
        n_hands *= 2;
        shift--;
    }
    uint32_t *end = calloc(n_hands + 1, sizeof *end);
    struct turn *out = malloc((n ? n : 1) * sizeof *out);
    for (size_t i = 0; end && out && i < n; i++) {
        end[1 + (shift < 64 ? w->turns[i].hash >> shift : 0)]++;
    }
    for (size_t i = 1; end && out && i <= n_hands; i++) {
        end[i] += end[i - 1]; /* where hand i - 1 ends, so where hand i begins */
    }
    for (size_t i = 0; end && out && i < n; i++) {
        out[end[shift < 64 ? w->turns[i].hash >> shift : 0]++] = w->turns[i];
    }
    for (size_t i = 1; end && out && i < n; i++) {
        struct turn t = out[i];
        size_t at = i;
        for (; at && by_turn(&out[at - 1], &t) > 0; at--) {
            out[at] = out[at - 1];
        }
        out[at] = t;
    }
    bool ok = end && out;
    free(end);
    if (ok) {
        free(w->turns);
        w->turns = out;
    } else {
        free(out);
    }
    return ok;
}

/* Who keeps the home copy: the first of those who hold it and have room for one more. */
static size_t keeper_of(const struct work *w, uint32_t o)
{
    const struct place_in *in = w->in;
    uint64_t best_cost = 0, size = in->objects[o].size;
    size_t best = NOBODY;
    for (size_t word = 0; word < w->words; word++) {
        for (uint64_t bits = w->has[o * w->words + word]; bits; bits &= bits - 1) {
            size_t m = word * 64 + (size_t)__builtin_ctzll(bits);
            bool p = in->members[m].present;
            if (w->above[m] < size || (best != NOBODY && !p && in->members[best].present)) {
                continue;
            }
            uint64_t c = cost_of(&w->s, m, in->objects[o].key);
            if (best == NOBODY || p != in->members[best].present ||
                before(in->members, m, c, best, best_cost)) {
                best = m;
                best_cost = c;
            }
        }
    }
    return best;
}

/* What each holds, by object; and the room that it leaves. */
static void look(struct work *w)
{
    const struct place_in *in = w->in;
    for (size_t m = 0; m < in->n_members; m++) {
        const uint8_t *held = in->members[m].held;
        uint64_t used = 0, bit = (uint64_t)1 << m % 64;
        for (size_t at = 0; held && at < (in->n_objects + 7) / 8; at++) {
            for (unsigned bits = held[at]; bits; bits &= bits - 1) {
                size_t o = at * 8 + (size_t)__builtin_ctz(bits);
                if (o < in->n_objects) {
                    w->has[o * w->words + m / 64] |= bit;
                    w->copies[o] = (uint8_t)(w->copies[o] < 255 ? w->copies[o] + 1 : 255);
                    used += in->objects[o].size;
                }
            }
        }
        uint64_t b = in->members[m].budget;
        w->above[m] = b;
        w->free[m] = b > used ? b - used : 0;
        if (in->members[m].present) {
            w->present[w->n_present++] = (uint16_t)m;
        }
    }
}

/* Home copies among what is held, and what room that leaves. What one member alone holds comes
 * first: the others' copies can stand in for each other where a budget has shrunk. */
static void keep_held(struct work *w, struct place_out *out)
{
    const struct place_in *in = w->in;
    for (int more = 0; more < 2; more++) {
        for (size_t t = 0; t < in->n_objects; t++) {
            uint32_t o = w->turns[t].o;
            size_t n = w->copies[o];
            if (!more) {
                w->home[o] = NOBODY;
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
}

/* The best-scored present member without a copy of the object that has room for it. All bounds
 * first, without a branch that depends on them; then hardly more than one cost has to be computed.
 */
static size_t choose(struct work *w, const struct turn *t, const uint64_t *room)
{
    const struct place_in *in = w->in;
    uint64_t score[PLACE_MEMBERS_MAX], low[PLACE_MEMBERS_MAX], size = t->size;
    uint64_t least = UINT64_MAX;
    uint16_t who[PLACE_MEMBERS_MAX];
    size_t n = 0, at = 0;
    if (size >= w->dry) {
        return NOBODY;
    }
    for (size_t i = 0; i < w->n_present; i++) {
        size_t m = w->present[i];
        if (room[m] < size) {
            continue;
        }
        score[n] = order_score_of(&w->s.seed[m], t->key);
        uint64_t bound = order_at_least(&w->bound[m], score[n]);
        uint64_t has = w->has[t->o * w->words + m / 64] >> m % 64 & 1;
        low[n] = bound | (0 - has); /* UINT64_MAX for who has it; a bound is below 2^62 */
        at = low[n] < least ? n : at;
        least = low[n] < least ? low[n] : least;
        who[n++] = (uint16_t)m;
    }
    w->dry = n ? w->dry : size;
    if (least == UINT64_MAX) {
        return NOBODY;
    }
    size_t best = who[at];
    uint64_t best_cost = order_cost(score[at], w->s.weight[best]);
    for (size_t i = 0; i < n; i++) {
        if (low[i] > best_cost || i == at || low[i] == UINT64_MAX) {
            continue;
        }
        uint64_t c = order_cost(score[i], w->s.weight[who[i]]);
        if (before(in->members, who[i], c, best, best_cost)) {
            best = who[i];
            best_cost = c;
        }
    }
    return best;
}

static int give(struct work *w, struct place_out *out, uint32_t o, size_t m, unsigned level)
{
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
    w->has[o * w->words + m / 64] |= (uint64_t)1 << m % 64;
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
        w->dry = UINT64_MAX;
        for (size_t t = 0; t < in->n_objects; t++) {
            uint32_t o = w->turns[t].o;
            if (w->home[o] != NOBODY) {
                continue;
            }
            size_t m = choose(w, &w->turns[t], room);
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

static int more_copies(struct work *w, struct place_out *out)
{
    const struct place_in *in = w->in;
    w->dry = UINT64_MAX; /* room does not grow */
    for (unsigned level = 2; level <= in->copies && level <= in->n_members; level++) {
        for (size_t t = 0; t < in->n_objects; t++) {
            uint32_t o = w->turns[t].o;
            if (w->copies[o] != level - 1) {
                continue;
            }
            size_t m = choose(w, &w->turns[t], w->free);
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
                                    .key = in->objects[o].key,
                                    .o = (uint32_t)o};
        out->model += in->objects[o].size;
    }
    if (!sort_by_hash(w)) {
        qsort(w->turns, in->n_objects, sizeof *w->turns, by_turn);
    }
    for (size_t m = 0; m < in->n_members; m++) {
        uint64_t b = in->members[m].budget;
        out->budgets = out->budgets + b < b ? UINT64_MAX : out->budgets + b;
    }
    out->possible = out->budgets < out->model ? out->budgets : out->model;
    place_scores(&w->s, in->root, in->members, in->n_members);
    for (size_t m = 0; m < in->n_members; m++) {
        order_bound(&w->bound[m], w->s.weight[m]);
    }
    look(w);
    keep_held(w, out);
    int r = first_copies(w, out);
    return r ? r : more_copies(w, out);
}

int place_compute(const struct place_in *in, struct place_out *out, struct err *e)
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
        w->words = (in->n_members + 63) / 64;
        w->has = calloc(n * (w->words ? w->words : 1), sizeof *w->has);
        w->turns = malloc(n * sizeof *w->turns);
        w->home = malloc(n * sizeof *w->home);
        w->copies = calloc(n, 1);
        if (w->has && w->turns && w->home && w->copies) {
            r = compute(w, out);
        }
        free(w->has);
        free(w->turns);
        free(w->home);
        free(w->copies);
    }
    free(w);
    return r ? err_set(e, r, "out of memory") : 0;
}

void place_free(struct place_out *out)
{
    free(out->fresh);
    memset(out, 0, sizeof *out);
}
