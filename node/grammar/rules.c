/* SPDX-License-Identifier: MIT
 * rules.c: see rules.h. */
#include "node/grammar/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gram_begin(struct gram_builder *b)
{
    memset(b, 0, sizeof *b);
    b->ws = b->string_char = b->any_value = b->raw_char = b->any_raw = GRAM_NONE;
    b->g = calloc(1, sizeof *b->g);
    return b->g ? 0 : err_set(&b->err, ERR_NOMEM, "out of memory for a grammar");
}

void grammar_free(struct grammar *g)
{
    if (g) {
        free(g->node);
        free(g->set);
        free(g->rule);
        free(g);
    }
}

void gram_fail(struct gram_builder *b, int code, const char *fmt, ...)
{
    if (!b->err.code) {
        char msg[sizeof b->err.msg];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        err_set(&b->err, code, "%s", msg);
    }
}

/* Room for one more element; false (and the builder has failed) when there is none. */
static bool grow(struct gram_builder *b, void *array, uint32_t n, uint32_t *cap, size_t size)
{
    void **p = array;
    if (b->err.code) {
        return false;
    }
    if (n < *cap) {
        return true;
    }
    if (n >= GRAMMAR_NODES_MAX) {
        gram_fail(b, ERR_LIMIT, "the schema is too large: its grammar has more than %u nodes",
                  GRAMMAR_NODES_MAX);
        return false;
    }
    uint32_t c = *cap ? *cap * 2 : 64;
    void *q = realloc(*p, c * size);
    if (!q) {
        gram_fail(b, ERR_NOMEM, "out of memory for a grammar");
        return false;
    }
    *p = q;
    *cap = c;
    return true;
}

static uint32_t node_new(struct gram_builder *b, enum gram_kind kind, uint32_t x, uint32_t a,
                         uint32_t c)
{
    struct grammar *g = b->g;
    if (!grow(b, &g->node, g->n_node, &g->cap_node, sizeof *g->node)) {
        return 0;
    }
    g->node[g->n_node] = (struct gram_node){(uint8_t)kind, x, a, c};
    return g->n_node++;
}

uint32_t gram_rule_new(struct gram_builder *b)
{
    struct grammar *g = b->g;
    if (!grow(b, &g->rule, g->n_rule, &g->cap_rule, sizeof *g->rule)) {
        return 0;
    }
    g->rule[g->n_rule] = GRAM_NONE;
    return g->n_rule++;
}

void gram_rule_set(struct gram_builder *b, uint32_t rule, uint32_t first)
{
    if (!b->err.code) {
        b->g->rule[rule] = first;
    }
}

uint32_t gram_ret(struct gram_builder *b)
{
    return node_new(b, G_RET, 0, GRAM_NONE, GRAM_NONE);
}

uint32_t gram_alt(struct gram_builder *b, uint32_t a, uint32_t c)
{
    return node_new(b, G_EPS, 0, a, c);
}

uint32_t gram_hole(struct gram_builder *b)
{
    return node_new(b, G_EPS, 0, GRAM_NONE, GRAM_NONE);
}

void gram_fill(struct gram_builder *b, uint32_t hole, uint32_t a, uint32_t c)
{
    if (!b->err.code) {
        b->g->node[hole].a = a;
        b->g->node[hole].b = c;
    }
}

uint32_t gram_bytes(struct gram_builder *b, const struct gram_set *s, uint32_t next)
{
    struct grammar *g = b->g;
    uint32_t i = 0;
    while (i < g->n_set && memcmp(&g->set[i], s, sizeof *s) != 0) {
        i++;
    }
    if (i == g->n_set) {
        if (!grow(b, &g->set, g->n_set, &g->cap_set, sizeof *g->set)) {
            return 0;
        }
        g->set[g->n_set++] = *s;
    }
    return node_new(b, G_SET, i, next, GRAM_NONE);
}

uint32_t gram_range(struct gram_builder *b, unsigned lo, unsigned hi, uint32_t next)
{
    struct gram_set s = {{0}};
    for (unsigned c = lo; c <= hi; c++) {
        gram_set_add(&s, c);
    }
    return gram_bytes(b, &s, next);
}

uint32_t gram_one_of(struct gram_builder *b, const char *chars, uint32_t next)
{
    struct gram_set s = {{0}};
    for (; *chars; chars++) {
        gram_set_add(&s, (unsigned char)*chars);
    }
    return gram_bytes(b, &s, next);
}

uint32_t gram_lit(struct gram_builder *b, const char *s, size_t n, uint32_t next)
{
    while (n--) {
        unsigned c = (unsigned char)s[n];
        next = gram_range(b, c, c, next);
    }
    return next;
}

uint32_t gram_str(struct gram_builder *b, const char *s, uint32_t next)
{
    return gram_lit(b, s, strlen(s), next);
}

uint32_t gram_special(struct gram_builder *b, uint32_t special, uint32_t next)
{
    return node_new(b, G_SPECIAL, special, next, GRAM_NONE);
}

uint32_t gram_call(struct gram_builder *b, uint32_t rule, uint32_t next)
{
    return node_new(b, G_CALL, rule, next, GRAM_NONE);
}

uint32_t gram_repeat(struct gram_builder *b, uint32_t rule, uint32_t min, uint32_t max,
                     const char *sep, uint32_t next)
{
    if (max == 0) {
        return next;
    }
    uint32_t more;
    if (max == GRAM_NONE) {
        uint32_t loop = gram_hole(b);
        more = gram_call(b, rule, loop);
        more = sep ? gram_ws(b, gram_str(b, sep, gram_ws(b, more))) : more;
        gram_fill(b, loop, more, next);
        more = loop;
        max = min > 1 ? min : 1;
    } else {
        more = next;
    }
    /* the last of them first: after `i` of them one more may come, and must while i < min */
    for (uint32_t i = max; i-- > 1 && !b->err.code;) {
        uint32_t one = gram_call(b, rule, more);
        one = sep ? gram_ws(b, gram_str(b, sep, gram_ws(b, one))) : one;
        more = i < min ? one : gram_alt(b, one, next);
    }
    uint32_t first = gram_call(b, rule, more);
    return min ? first : gram_alt(b, first, next);
}

/* ---- UTF-8 ---- */

/* All sequences of `len` bytes from a to b (both of that length), byte by byte. */
static uint32_t utf8_span(struct gram_builder *b, const uint8_t *lo, const uint8_t *hi, int len,
                          uint32_t next)
{
    if (len == 1) {
        return gram_range(b, lo[0], hi[0], next);
    }
    static const uint8_t min[3] = {0x80, 0x80, 0x80}, max[3] = {0xBF, 0xBF, 0xBF};
    if (lo[0] == hi[0]) {
        return gram_range(b, lo[0], lo[0], utf8_span(b, lo + 1, hi + 1, len - 1, next));
    }
    bool low = memcmp(lo + 1, min, (size_t)len - 1) != 0;
    bool high = memcmp(hi + 1, max, (size_t)len - 1) != 0;
    uint32_t r = GRAM_NONE;
    unsigned first = lo[0] + (low ? 1u : 0), last = hi[0] - (high ? 1u : 0);
    if (first <= last) {
        r = gram_range(b, first, last, utf8_span(b, min, max, len - 1, next));
    }
    if (low) {
        uint32_t x = gram_range(b, lo[0], lo[0], utf8_span(b, lo + 1, max, len - 1, next));
        r = r == GRAM_NONE ? x : gram_alt(b, r, x);
    }
    if (high) {
        uint32_t x = gram_range(b, hi[0], hi[0], utf8_span(b, min, hi + 1, len - 1, next));
        r = r == GRAM_NONE ? x : gram_alt(b, r, x);
    }
    return r;
}

static int utf8_put(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    int len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--) {
        out[i] = (uint8_t)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (uint8_t)((len == 2 ? 0xC0u : len == 3 ? 0xE0u : 0xF0u) | c);
    return len;
}

uint32_t gram_points(struct gram_builder *b, uint32_t lo, uint32_t hi, uint32_t next)
{
    /* where the length of the encoding changes, and around the surrogates */
    static const uint32_t part[][2] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
    uint32_t r = GRAM_NONE;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        uint32_t a = lo > part[i][0] ? lo : part[i][0], z = hi < part[i][1] ? hi : part[i][1];
        if (a <= z) {
            uint8_t x[4], y[4];
            int len = utf8_put(a, x);
            utf8_put(z, y);
            uint32_t s = utf8_span(b, x, y, len, next);
            r = r == GRAM_NONE ? s : gram_alt(b, r, s);
        }
    }
    if (r == GRAM_NONE) {
        gram_fail(b, ERR_UNSUPPORTED, "an empty set of characters");
        return 0;
    }
    return r;
}

/* ---- checks ---- */

/* The rules that rule r calls before it takes a byte: appended to edge[*n..], at most cap. */
static bool first_calls(const struct grammar *g, uint32_t r, uint32_t *stamp, uint32_t *stack,
                        uint32_t *edge, size_t *n, size_t cap)
{
    uint32_t top = 0;
    stack[top++] = g->rule[r];
    stamp[g->rule[r]] = r + 1;
    while (top) {
        const struct gram_node *x = &g->node[stack[--top]];
        uint32_t to[2] = {x->kind == G_EPS ? x->a : GRAM_NONE, x->kind == G_EPS ? x->b : GRAM_NONE};
        if (x->kind == G_CALL) {
            if (*n == cap) {
                return false;
            }
            edge[(*n)++] = x->x;
        }
        for (int k = 0; k < 2; k++) {
            if (to[k] != GRAM_NONE && stamp[to[k]] != r + 1) {
                stamp[to[k]] = r + 1;
                stack[top++] = to[k];
            }
        }
    }
    return true;
}

/* A rule that can begin with itself would never end to be expanded: a depth-first search for a
 * cycle, without recursion, since schemas nest as deep as their author likes. */
static int begins_with_itself(const struct grammar *g, bool *cycle)
{
    size_t cap = g->n_node, n = 0; /* each call node is the first of one rule at most */
    uint32_t *from = calloc((size_t)g->n_rule + 1, sizeof *from);
    uint32_t *edge = malloc((cap ? cap : 1) * sizeof *edge);
    uint32_t *stamp = calloc(g->n_node ? g->n_node : 1, sizeof *stamp);
    uint32_t *stack = malloc(((size_t)g->n_node + g->n_rule + 1) * sizeof *stack);
    uint32_t *at = malloc(((size_t)g->n_rule + 1) * sizeof *at);
    uint8_t *colour = calloc(g->n_rule ? g->n_rule : 1, 1); /* 1: on the way, 2: fine */
    int r = from && edge && stamp && stack && at && colour ? 0 : ERR_NOMEM;
    *cycle = false;
    for (uint32_t i = 0; !r && i < g->n_rule; i++) {
        from[i] = (uint32_t)n;
        if (g->rule[i] != GRAM_NONE && !first_calls(g, i, stamp, stack, edge, &n, cap)) {
            r = ERR_LIMIT;
        }
        from[i + 1] = (uint32_t)n;
    }
    for (uint32_t i = 0; !r && i < g->n_rule && !*cycle; i++) {
        uint32_t top = 0;
        if (colour[i]) {
            continue;
        }
        colour[i] = 1;
        at[i] = from[i];
        stack[top++] = i;
        while (top && !*cycle) {
            uint32_t x = stack[top - 1];
            if (at[x] == from[x + 1]) {
                colour[x] = 2;
                top--;
                continue;
            }
            uint32_t y = edge[at[x]++];
            *cycle = colour[y] == 1;
            if (colour[y] == 0) {
                colour[y] = 1;
                at[y] = from[y];
                stack[top++] = y;
            }
        }
    }
    free(from);
    free(edge);
    free(stamp);
    free(stack);
    free(at);
    free(colour);
    return r;
}

/* Rules that some text ends: found by going backwards from what is known to end. */
static bool can_end(const struct grammar *g, uint32_t rule, uint8_t *ends, uint8_t *node_ends)
{
    bool changed = true;
    memset(ends, 0, g->n_rule);
    memset(node_ends, 0, g->n_node);
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < g->n_node; i++) {
            const struct gram_node *x = &g->node[i];
            if (node_ends[i]) {
                continue;
            }
            bool a = x->a != GRAM_NONE && node_ends[x->a];
            bool c = x->b != GRAM_NONE && node_ends[x->b];
            bool now = x->kind == G_RET                           ? true
                       : x->kind == G_EPS                         ? a || c
                       : x->kind == G_SET || x->kind == G_SPECIAL ? a
                                                                  : a && ends[x->x]; /* G_CALL */
            if (now) {
                node_ends[i] = 1;
                changed = true;
            }
        }
        for (uint32_t i = 0; i < g->n_rule; i++) {
            if (!ends[i] && g->rule[i] != GRAM_NONE && node_ends[g->rule[i]]) {
                ends[i] = 1;
                changed = true;
            }
        }
    }
    return ends[rule];
}

/* Nodes from which the rule can never end are cut off, so that no mask leads into them. */
static void prune(struct grammar *g, const uint8_t *ends, const uint8_t *node_ends)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        struct gram_node *x = &g->node[i];
        if (x->kind == G_EPS) {
            x->a = x->a != GRAM_NONE && node_ends[x->a] ? x->a : GRAM_NONE;
            x->b = x->b != GRAM_NONE && node_ends[x->b] ? x->b : GRAM_NONE;
        } else if (x->kind == G_CALL && !ends[x->x]) {
            x->kind = G_EPS;
            x->a = x->b = GRAM_NONE;
        }
    }
}

static void check(struct gram_builder *b, uint32_t start_rule)
{
    struct grammar *g = b->g;
    uint8_t *ends = malloc((size_t)g->n_rule + g->n_node + 1);
    bool cycle = false;
    if (!ends) {
        gram_fail(b, ERR_NOMEM, "out of memory for a grammar");
        return;
    }
    uint8_t *node_ends = ends + g->n_rule;
    if (!can_end(g, start_rule, ends, node_ends)) {
        gram_fail(b, ERR_UNSUPPORTED,
                  "schema: no finite value fits it (it requires itself inside itself)");
    } else {
        prune(g, ends, node_ends);
        int r = begins_with_itself(g, &cycle);
        if (r) {
            gram_fail(b, r, "schema: %s", err_text(r));
        } else if (cycle) {
            gram_fail(b, ERR_UNSUPPORTED,
                      "schema: a $ref leads back to itself without anything between");
        }
    }
    free(ends);
}

int gram_end(struct gram_builder *b, uint32_t start_rule, struct grammar **out, struct err *e)
{
    struct grammar *g = b->g;
    *out = NULL;
    if (!b->err.code) {
        check(b, start_rule);
    }
    b->g = NULL;
    if (b->err.code) {
        if (e) {
            *e = b->err;
        }
        grammar_free(g);
        return b->err.code;
    }
    g->start = start_rule;
    *out = g;
    return 0;
}
