/* SPDX-License-Identifier: MIT
 * lang.c: see lang.h. */
#include "node/grammar/lang.h"

#include <stdlib.h>
#include <string.h>

#define TERMS_MAX (1u << 18)
#define RANGES_MAX (1u << 20)
#define DEPTH_MAX 4000u /* of calls in one another: threads have small stacks */
#define POINT_MAX 0x10FFFFu

enum kind { NOTHING, EMPTY, CHARS, CAT, OR, AND, NOT, REPEAT };

/* CHARS: ranges x..x+y of the table. OR and AND: lists, a the head, whose numbers ascend. */
struct term {
    uint8_t kind;
    bool empty; /* the empty text is one of them */
    uint32_t a, b, x, y;
};

/* What is left of a term behind a character, as it was found last in this place. */
#define MEMO (1u << 14)
struct memo {
    uint32_t a, c, to;
};

struct lang {
    struct memo *memo;
    struct term *t;
    struct lang_range *r;
    uint32_t n, cap, n_r, cap_r;
    uint32_t *hash; /* term + 1; 0: free */
    uint32_t cap_hash;
    uint32_t depth;
    uint64_t *steps; /* of the whole grammar */
    int err;
};

struct lang *lang_new(struct gram_builder *b)
{
    struct lang *l = calloc(1, sizeof *l);
    if (!l) {
        return NULL;
    }
    l->steps = &b->steps;
    l->cap = 256;
    l->cap_hash = 1024;
    l->t = calloc(l->cap, sizeof *l->t);
    l->hash = calloc(l->cap_hash, sizeof *l->hash);
    l->memo = calloc(MEMO, sizeof *l->memo);
    if (!l->t || !l->hash || !l->memo) {
        lang_free(l);
        return NULL;
    }
    l->n = 3; /* the fixed ones; LANG_ALL is a repetition that lang_repeat knows */
    l->t[LANG_EMPTY] = (struct term){.kind = EMPTY, .empty = true};
    l->t[LANG_ALL] = (struct term){.kind = REPEAT, .empty = true, .y = GRAM_NONE};
    l->t[LANG_ALL].a = lang_chars(l, &(struct lang_range){0, POINT_MAX}, 1);
    return l;
}

void lang_free(struct lang *l)
{
    if (l) {
        free(l->t);
        free(l->r);
        free(l->hash);
        free(l->memo);
        free(l);
    }
}

static uint32_t fail(struct lang *l, int code)
{
    l->err = l->err ? l->err : code;
    return LANG_NOTHING;
}

static bool step(struct lang *l)
{
    if (++*l->steps > LANG_STEPS_MAX) {
        fail(l, ERR_LIMIT);
    }
    return !l->err;
}

/* ---- terms, each once ---- */

static uint32_t mix(const struct lang *l, const struct term *t)
{
    uint64_t h = t->kind * 0x9E3779B97F4A7C15u;
    uint32_t w[4] = {t->a, t->b, t->kind == CHARS ? 0 : t->x, t->y};
    for (size_t i = 0; i < 4; i++) {
        h = (h ^ w[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    for (uint32_t i = 0; t->kind == CHARS && i < t->y; i++) {
        h = (h ^ l->r[t->x + i].lo ^ (uint64_t)l->r[t->x + i].hi << 24) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

static bool same(const struct lang *l, const struct term *a, const struct term *b)
{
    if (a->kind != b->kind || a->a != b->a || a->b != b->b || a->y != b->y) {
        return false;
    }
    return a->kind == CHARS ? !memcmp(&l->r[a->x], &l->r[b->x], a->y * sizeof *l->r) : a->x == b->x;
}

static bool grow_hash(struct lang *l)
{
    uint32_t cap = l->cap_hash * 2, *h = calloc(cap, sizeof *h);
    if (!h) {
        return false;
    }
    for (uint32_t i = 0; i < l->cap_hash; i++) {
        if (l->hash[i]) {
            uint32_t k = mix(l, &l->t[l->hash[i] - 1]) & (cap - 1);
            while (h[k]) {
                k = (k + 1) & (cap - 1);
            }
            h[k] = l->hash[i];
        }
    }
    free(l->hash);
    l->hash = h;
    l->cap_hash = cap;
    return true;
}

static uint32_t intern(struct lang *l, struct term t)
{
    if (!step(l)) {
        return LANG_NOTHING;
    }
    if (l->n * 2 >= l->cap_hash && !grow_hash(l)) {
        return fail(l, ERR_NOMEM);
    }
    uint32_t k = mix(l, &t) & (l->cap_hash - 1);
    for (; l->hash[k]; k = (k + 1) & (l->cap_hash - 1)) {
        if (same(l, &l->t[l->hash[k] - 1], &t)) {
            return l->hash[k] - 1;
        }
    }
    if (l->n == l->cap) {
        struct term *p = l->n < TERMS_MAX ? realloc(l->t, 2 * (size_t)l->cap * sizeof *p) : NULL;
        if (!p) {
            return fail(l, l->n < TERMS_MAX ? ERR_NOMEM : ERR_LIMIT);
        }
        l->t = p;
        l->cap *= 2;
    }
    l->t[l->n] = t;
    l->hash[k] = l->n + 1;
    return l->n++;
}

uint32_t lang_chars(struct lang *l, const struct lang_range *r, size_t n)
{
    if (n > RANGES_MAX - l->n_r) {
        return fail(l, ERR_LIMIT);
    }
    if (l->n_r + n > l->cap_r) {
        uint32_t cap = (l->n_r + (uint32_t)n) * 2;
        struct lang_range *p = realloc(l->r, cap * sizeof *p);
        if (!p) {
            return fail(l, ERR_NOMEM);
        }
        l->r = p;
        l->cap_r = cap;
    }
    memcpy(l->r + l->n_r, r, n * sizeof *r);
    uint32_t before = l->n;
    uint32_t v = intern(l, (struct term){.kind = CHARS, .x = l->n_r, .y = (uint32_t)n});
    l->n_r += l->n > before ? (uint32_t)n : 0;
    return v;
}

uint32_t lang_cat(struct lang *l, uint32_t a, uint32_t b)
{
    if (a == LANG_NOTHING || b == LANG_NOTHING || a == LANG_EMPTY) {
        return a == LANG_EMPTY ? b : LANG_NOTHING;
    }
    if (b == LANG_EMPTY) {
        return a;
    }
    if (a == LANG_ALL && (b == LANG_ALL || (l->t[b].kind == CAT && l->t[b].a == LANG_ALL))) {
        return b;
    }
    if (l->t[a].kind == CAT) { /* always to the right, so that equals look equal */
        uint32_t head = l->t[a].a, rest = l->t[a].b;
        if (!step(l) || ++l->depth > DEPTH_MAX) {
            return fail(l, ERR_LIMIT);
        }
        rest = lang_cat(l, rest, b);
        l->depth--;
        return lang_cat(l, head, rest);
    }
    return intern(
        l, (struct term){.kind = CAT, .a = a, .b = b, .empty = l->t[a].empty && l->t[b].empty});
}

/* Join two ascending lists of one kind. */
static uint32_t join(struct lang *l, enum kind kind, uint32_t a, uint32_t b)
{
    uint32_t none = kind == OR ? LANG_NOTHING : LANG_ALL,
             all = kind == OR ? LANG_ALL : LANG_NOTHING;
    if (a == b || b == none || a == all) {
        return a;
    }
    if (a == none || b == all) {
        return b;
    }
    bool la = l->t[a].kind == kind, lb = l->t[b].kind == kind;
    uint32_t ha = la ? l->t[a].a : a, hb = lb ? l->t[b].a : b;
    uint32_t ra = la ? l->t[a].b : none, rb = lb ? l->t[b].b : none;
    uint32_t head = ha < hb ? ha : hb;
    if (++l->depth > DEPTH_MAX) {
        fail(l, ERR_LIMIT);
    }
    uint32_t rest = !step(l) ? none : join(l, kind, ha <= hb ? ra : a, hb <= ha ? rb : b);
    l->depth--;
    if (rest == none || rest == all) {
        return rest == none ? head : rest;
    }
    bool e =
        kind == OR ? l->t[head].empty || l->t[rest].empty : l->t[head].empty && l->t[rest].empty;
    return intern(l, (struct term){.kind = (uint8_t)kind, .a = head, .b = rest, .empty = e});
}

uint32_t lang_or(struct lang *l, uint32_t a, uint32_t b)
{
    return join(l, OR, a, b);
}

uint32_t lang_and(struct lang *l, uint32_t a, uint32_t b)
{
    return join(l, AND, a, b);
}

uint32_t lang_not(struct lang *l, uint32_t a)
{
    if (a == LANG_NOTHING || a == LANG_ALL) {
        return a == LANG_ALL ? LANG_NOTHING : LANG_ALL;
    }
    return l->t[a].kind == NOT
               ? l->t[a].a
               : intern(l, (struct term){.kind = NOT, .a = a, .empty = !l->t[a].empty});
}

uint32_t lang_repeat(struct lang *l, uint32_t a, uint32_t min, uint32_t max)
{
    if (max == 0 || a == LANG_EMPTY || (a == LANG_NOTHING && min == 0)) {
        return LANG_EMPTY;
    }
    if (a == LANG_NOTHING || (min == 1 && max == 1)) {
        return a;
    }
    min = l->t[a].empty ? 0 : min;
    bool star = min == 0 && max == GRAM_NONE;
    if (star && (a == l->t[LANG_ALL].a || a == LANG_ALL)) {
        return LANG_ALL;
    }
    if (star && l->t[a].kind == REPEAT && l->t[a].x == 0 && l->t[a].y == GRAM_NONE) {
        return a;
    }
    return intern(l, (struct term){.kind = REPEAT, .a = a, .x = min, .y = max, .empty = min == 0});
}

/* ---- what is left behind a character ---- */

static uint32_t behind(struct lang *l, uint32_t a, uint32_t c)
{
    struct term t = l->t[a];
    if (!step(l) || ++l->depth > DEPTH_MAX) {
        return fail(l, ERR_LIMIT);
    }
    uint32_t r = LANG_NOTHING;
    struct memo *m = &l->memo[(a * 0x9E3779B1u ^ c * 0x85EBCA6Bu) >> 18];
    if (m->a == a && m->c == c && a != 0) {
        l->depth--;
        return m->to;
    }
    switch (t.kind) {
    case CHARS:
        for (uint32_t i = 0; i < t.y && r == LANG_NOTHING; i++) {
            r = l->r[t.x + i].lo <= c && c <= l->r[t.x + i].hi ? LANG_EMPTY : LANG_NOTHING;
        }
        break;
    case CAT:
        r = lang_cat(l, behind(l, t.a, c), t.b);
        r = l->t[t.a].empty ? lang_or(l, r, behind(l, t.b, c)) : r;
        break;
    case OR:
        r = lang_or(l, behind(l, t.a, c), behind(l, t.b, c));
        break;
    case AND:
        r = behind(l, t.a, c);
        r = r == LANG_NOTHING ? r : lang_and(l, r, behind(l, t.b, c));
        break;
    case NOT:
        r = lang_not(l, behind(l, t.a, c));
        break;
    case REPEAT:
        r = behind(l, t.a, c);
        if (r != LANG_NOTHING) {
            r = lang_cat(
                l, r,
                lang_repeat(l, t.a, t.x ? t.x - 1 : 0, t.y == GRAM_NONE ? GRAM_NONE : t.y - 1));
        }
        break;
    default:
        break;
    }
    l->depth--;
    if (!l->err) {
        *m = (struct memo){a, c, r};
    }
    return r;
}

/* Where the ranges begin and end that a set's first character is looked up in. */
struct cuts {
    uint32_t *v;
    size_t n, cap;
};

static bool cut(struct lang *l, struct cuts *s, uint32_t at)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        uint32_t *p = realloc(s->v, cap * sizeof *p);
        if (!p) {
            fail(l, ERR_NOMEM);
            return false;
        }
        s->v = p;
        s->cap = cap;
    }
    s->v[s->n++] = at;
    return step(l);
}

static void cuts_of(struct lang *l, uint32_t a, struct cuts *s)
{
    const struct term *t = &l->t[a];
    if (!step(l) || ++l->depth > DEPTH_MAX) {
        fail(l, ERR_LIMIT);
        return;
    }
    if (t->kind == CHARS) {
        for (uint32_t i = 0; i < t->y; i++) {
            cut(l, s, l->r[t->x + i].lo);
            cut(l, s, l->r[t->x + i].hi + 1);
        }
    } else if (t->kind >= CAT) {
        cuts_of(l, t->a, s);
        if (t->kind == OR || t->kind == AND || (t->kind == CAT && l->t[t->a].empty)) {
            cuts_of(l, t->b, s);
        }
    }
    l->depth--;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- states and rules ---- */

struct edge {
    uint32_t lo, hi, to; /* to: a state */
};

struct states {
    uint32_t *term, n;    /* of each state, in the order in which they were met */
    uint32_t *of, cap_of; /* the state of a term + 1; 0: none */
    struct edge *edge;    /* all, by state */
    size_t n_edge, cap_edge, *first;
    bool some; /* a text ends somewhere */
};

static uint32_t state_of(struct lang *l, struct states *s, uint32_t term)
{
    if (term >= s->cap_of) {
        uint32_t *p = realloc(s->of, (size_t)l->cap * sizeof *p);
        if (!p) {
            return fail(l, ERR_NOMEM);
        }
        memset(p + s->cap_of, 0, (l->cap - s->cap_of) * sizeof *p);
        s->of = p;
        s->cap_of = l->cap;
    }
    if (!s->of[term]) {
        if (s->n == LANG_STATES_MAX) {
            return fail(l, ERR_LIMIT);
        }
        s->term[s->n] = term;
        s->of[term] = ++s->n;
        s->some = s->some || l->t[term].empty;
    }
    return s->of[term] - 1;
}

static void add_edge(struct lang *l, struct states *s, uint32_t lo, uint32_t hi, uint32_t to)
{
    if (s->n_edge == s->cap_edge) {
        size_t cap = s->cap_edge ? 2 * s->cap_edge : 256;
        struct edge *p = realloc(s->edge, cap * sizeof *p);
        if (!p) {
            fail(l, ERR_NOMEM);
            return;
        }
        s->edge = p;
        s->cap_edge = cap;
    }
    s->edge[s->n_edge++] = (struct edge){lo, hi, to};
}

static void explore(struct lang *l, struct states *s, uint32_t start)
{
    struct cuts c = {NULL, 0, 0};
    state_of(l, s, start);
    for (uint32_t i = 0; i < s->n && !l->err; i++) {
        s->first[i] = s->n_edge;
        c.n = 0;
        cut(l, &c, 0);
        cuts_of(l, s->term[i], &c);
        if (!l->err) {
            qsort(c.v, c.n, sizeof *c.v, by_value);
            *l->steps += 4 * c.n;
        }
        for (size_t k = 0; k < c.n && !l->err; k++) {
            uint32_t lo = c.v[k], hi = k + 1 < c.n ? c.v[k + 1] - 1 : POINT_MAX;
            if (lo > POINT_MAX || (k + 1 < c.n && c.v[k + 1] == lo)) {
                continue;
            }
            uint32_t to = behind(l, s->term[i], lo);
            if (to != LANG_NOTHING && !l->err) {
                add_edge(l, s, lo, hi, state_of(l, s, to));
            }
        }
        s->first[i + 1] = s->n_edge;
    }
    free(c.v);
}

/* From the last state to the first, so that most nodes stand behind those that they lead to. */
static uint32_t rules(struct lang *l, struct states *s, struct gram_builder *b,
                      lang_chars_fn *chars, void *ctx, uint32_t next)
{
    uint32_t *node = malloc(s->n * sizeof *node);
    struct lang_range *r = malloc((s->n_edge + 1) * sizeof *r);
    uint32_t start = 0;
    if (!node || !r) {
        fail(l, ERR_NOMEM);
    } else {
        memset(node, 0xFF, s->n * sizeof *node);
    }
    for (uint32_t i = s->n; i-- > 0 && !l->err && !b->err.code;) {
        uint32_t here = l->t[s->term[i]].empty ? next : GRAM_NONE;
        struct edge *e = s->edge + s->first[i], *end = s->edge + s->first[i + 1];
        for (struct edge *x = e; x < end; x++) {
            uint32_t to = x->to;
            size_t n = 0;
            for (struct edge *y = x; y < end && to != GRAM_NONE; y++) {
                if (y->to == to) {
                    bool touch = n && r[n - 1].hi + 1 == y->lo;
                    n += !touch;
                    r[n - 1] = (struct lang_range){touch ? r[n - 1].lo : y->lo, y->hi};
                    y->to = GRAM_NONE;
                }
            }
            if (!n) {
                continue;
            }
            if (node[to] == GRAM_NONE) {
                node[to] = gram_hole(b);
            }
            uint32_t one = chars(ctx, r, n, node[to]);
            here = here == GRAM_NONE ? one : gram_alt(b, here, one);
        }
        if (node[i] != GRAM_NONE) {
            gram_fill(b, node[i], here, GRAM_NONE);
        } else {
            node[i] = here == GRAM_NONE ? gram_hole(b) : here;
        }
        start = node[i];
    }
    free(node);
    free(r);
    return start;
}

int lang_rules(struct lang *l, uint32_t a, struct gram_builder *b, lang_chars_fn *chars, void *ctx,
               uint32_t next, uint32_t *node)
{
    struct states s = {.term = malloc(LANG_STATES_MAX * sizeof *s.term),
                       .first = calloc(LANG_STATES_MAX + 1, sizeof *s.first)};
    if (!s.term || !s.first) {
        fail(l, ERR_NOMEM);
    } else if (!l->err) {
        explore(l, &s, a);
    }
    int rc = l->err ? l->err : s.some ? 0 : ERR_NOTFOUND;
    *node = rc ? 0 : rules(l, &s, b, chars, ctx, next);
    free(s.term);
    free(s.of);
    free(s.edge);
    free(s.first);
    return l->err ? l->err : rc;
}
