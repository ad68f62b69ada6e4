/* SPDX-License-Identifier: MIT
 * machine.c: grammar.h: following an answer.
 *
 * A configuration is a node and the rules that wait behind it, a chain of frames that are kept once
 * each. What can be read next is a set of configurations at nodes that take a byte or a special
 * token. Such sets are numbered (states) and their moves remembered, so that a state's mask costs
 * one look-up a byte of the vocabulary, and a state that comes back (inside a string it does after
 * each character) costs nothing. When the memory is full it begins anew from the present set. */
#include "node/grammar/rules.h"
#include "node/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#define DEAD 0u
#define UNKNOWN UINT32_MAX
#define MASKS 32
#define DONE UINT32_MAX /* the node of a configuration that has read a whole sentence */

struct frame {
    uint32_t node, up; /* where it goes on, and the frame behind; up GRAM_NONE: none */
    uint32_t depth;
};

struct state {
    uint64_t *cfg; /* node << 32 | frame, ascending */
    uint32_t n;
    uint32_t hash;
    uint32_t *next; /* [256], made when first asked */
    uint32_t mask;  /* slot + 1 */
    bool complete;
};

struct grammar_run {
    const struct grammar *g;
    const struct grammar_vocab *v;
    struct frame *frame;
    uint32_t n_frame, cap_frame;
    uint32_t *frame_hash; /* power of two; index + 1 */
    uint32_t frame_mask;
    struct state *state; /* 0: dead */
    uint32_t n_state;
    uint32_t state_hash[2 * GRAMMAR_STATES_MAX];
    uint32_t now;
    uint64_t *set, *list, *seen; /* scratch of closure; seen: the list as a table */
    uint32_t seen_mask;
    uint32_t n_set, n_list, cap_set, cap_list;
    uint32_t *masks[MASKS];
    uint32_t mask_of[MASKS], mask_next;
    uint32_t depth_state[TOK_MAX_TOKEN + 1]; /* scratch of a mask */
    struct err err;
};

static uint32_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return (uint32_t)(x ^ x >> 33);
}

static int no_memory(struct grammar_run *r)
{
    return err_set(&r->err, ERR_NOMEM, "out of memory for a grammar's states");
}

static int too_many(struct grammar_run *r)
{
    return err_set(&r->err, ERR_LIMIT,
                   "the schema can be read in too many ways at once (more than %u)",
                   GRAMMAR_CONFIGS_MAX);
}

/* ---- frames ---- */

static int frame_rehash(struct grammar_run *r, uint32_t size)
{
    uint32_t *h = calloc(size, sizeof *h);
    if (!h) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < r->n_frame; i++) {
        uint32_t at = mix((uint64_t)r->frame[i].node << 32 | r->frame[i].up) & (size - 1);
        while (h[at]) {
            at = (at + 1) & (size - 1);
        }
        h[at] = i + 1;
    }
    free(r->frame_hash);
    r->frame_hash = h;
    r->frame_mask = size - 1;
    return 0;
}

/* GRAM_NONE with r->err set on failure; *deep: over the maximum of nesting, so no way at all. */
static uint32_t frame_of(struct grammar_run *r, uint32_t node, uint32_t up, bool *deep)
{
    uint32_t depth = up == GRAM_NONE ? 1 : r->frame[up].depth + 1;
    *deep = depth > GRAMMAR_DEPTH_MAX;
    if (*deep) {
        return 0;
    }
    uint32_t at = mix((uint64_t)node << 32 | up) & r->frame_mask;
    for (; r->frame_hash[at]; at = (at + 1) & r->frame_mask) {
        const struct frame *f = &r->frame[r->frame_hash[at] - 1];
        if (f->node == node && f->up == up) {
            return r->frame_hash[at] - 1;
        }
    }
    if (r->n_frame == r->cap_frame) {
        uint32_t cap = r->cap_frame * 2;
        struct frame *f = cap <= (1u << 22) ? realloc(r->frame, cap * sizeof *f) : NULL;
        if (!f) {
            no_memory(r);
            return GRAM_NONE;
        }
        r->frame = f;
        r->cap_frame = cap;
    }
    r->frame[r->n_frame] = (struct frame){node, up, depth};
    r->frame_hash[at] = ++r->n_frame;
    if (r->n_frame * 2 > r->frame_mask && frame_rehash(r, (r->frame_mask + 1) * 2)) {
        return GRAM_NONE;
    }
    return r->n_frame - 1;
}

/* ---- sets of configurations ---- */

static int push(struct grammar_run *r, uint64_t **p, uint32_t *n, uint32_t *cap, uint64_t v)
{
    if (*n == *cap) {
        uint32_t c = *cap ? *cap * 2 : 256;
        if (c > 4 * GRAMMAR_CONFIGS_MAX) {
            return too_many(r);
        }
        uint64_t *q = realloc(*p, c * sizeof *q);
        if (!q) {
            return no_memory(r);
        }
        *p = q;
        *cap = c;
    }
    (*p)[(*n)++] = v;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void unique(uint64_t *v, uint32_t *n)
{
    uint32_t k = 0;
    qsort(v, *n, sizeof *v, by_value);
    for (uint32_t i = 0; i < *n; i++) {
        if (!k || v[k - 1] != v[i]) {
            v[k++] = v[i];
        }
    }
    *n = k;
}

static int seen_grow(struct grammar_run *r)
{
    uint32_t size = r->seen_mask ? (r->seen_mask + 1) * 2 : 1024;
    uint64_t *t = malloc(size * sizeof *t);
    if (!t) {
        return no_memory(r);
    }
    memset(t, 0xff, size * sizeof *t);
    for (uint32_t i = 0; i < r->n_list; i++) {
        uint32_t at = mix(r->list[i]) & (size - 1);
        while (t[at] != UINT64_MAX) {
            at = (at + 1) & (size - 1);
        }
        t[at] = r->list[i];
    }
    free(r->seen);
    r->seen = t;
    r->seen_mask = size - 1;
    return 0;
}

/* Add to the list what is not in it: so loops of empty moves end. */
static int visit(struct grammar_run *r, uint32_t node, uint32_t frame)
{
    uint64_t c = (uint64_t)node << 32 | frame;
    uint32_t at = mix(c) & r->seen_mask;
    for (; r->seen[at] != UINT64_MAX; at = (at + 1) & r->seen_mask) {
        if (r->seen[at] == c) {
            return 0;
        }
    }
    r->seen[at] = c;
    int rc = push(r, &r->list, &r->n_list, &r->cap_list, c);
    return !rc && r->n_list * 2 > r->seen_mask ? seen_grow(r) : rc;
}

static void begin_closure(struct grammar_run *r)
{
    for (uint32_t i = 0; i < r->n_list; i++) {
        uint32_t at = mix(r->list[i]) & r->seen_mask;
        while (r->seen[at] != UINT64_MAX) { /* what came behind it in its chain goes, too */
            r->seen[at] = UINT64_MAX;
            at = (at + 1) & r->seen_mask;
        }
    }
    r->n_list = r->n_set = 0;
}

/* Expand the configurations in the list to those that take something, into set (sorted, once each).
 */
static int closure(struct grammar_run *r)
{
    const struct grammar *g = r->g;
    for (uint32_t done = 0; done < r->n_list; done++) {
        uint64_t c = r->list[done];
        uint32_t node = (uint32_t)(c >> 32), frame = (uint32_t)c;
        const struct gram_node *x = &g->node[node];
        int rc = 0;
        bool deep = false;
        if (x->kind == G_SET || x->kind == G_SPECIAL) {
            rc = push(r, &r->set, &r->n_set, &r->cap_set, c);
        } else if (x->kind == G_EPS) {
            rc = x->a != GRAM_NONE ? visit(r, x->a, frame) : 0;
            rc = !rc && x->b != GRAM_NONE ? visit(r, x->b, frame) : rc;
        } else if (x->kind == G_CALL) {
            /* a call in the last place needs no frame of its own */
            uint32_t f = g->node[x->a].kind == G_RET ? frame : frame_of(r, x->a, frame, &deep);
            rc = r->err.code ? r->err.code : deep ? 0 : visit(r, g->rule[x->x], f);
        } else if (frame == GRAM_NONE) {
            rc = push(r, &r->set, &r->n_set, &r->cap_set, (uint64_t)DONE << 32 | GRAM_NONE);
        } else {
            rc = visit(r, r->frame[frame].node, r->frame[frame].up);
        }
        if (rc) {
            return rc;
        }
    }
    unique(r->set, &r->n_set);
    return r->n_set > GRAMMAR_CONFIGS_MAX ? too_many(r) : 0;
}

/* ---- states ---- */

static void forget_states(struct grammar_run *r)
{
    for (uint32_t i = 0; i < r->n_state; i++) {
        free(r->state[i].cfg);
        free(r->state[i].next);
    }
    r->n_state = 0;
    memset(r->state_hash, 0, sizeof r->state_hash);
    memset(r->mask_of, 0, sizeof r->mask_of);
}

/* The number of the state with the configurations in set; UNKNOWN on failure or (err.code 0) when
 * the memory of states is full. */
static uint32_t state_of(struct grammar_run *r)
{
    uint32_t h = 0;
    for (uint32_t i = 0; i < r->n_set; i++) {
        h = mix(r->set[i] ^ (uint64_t)h << 17);
    }
    uint32_t size = sizeof r->state_hash / sizeof *r->state_hash, at = h % size;
    for (; r->state_hash[at]; at = (at + 1) % size) {
        const struct state *s = &r->state[r->state_hash[at] - 1];
        if (s->hash == h && s->n == r->n_set &&
            (!s->n || !memcmp(s->cfg, r->set, s->n * sizeof *s->cfg))) {
            return r->state_hash[at] - 1;
        }
    }
    if (r->n_state == GRAMMAR_STATES_MAX) {
        return UNKNOWN;
    }
    struct state *s = &r->state[r->n_state];
    memset(s, 0, sizeof *s);
    s->cfg = malloc((r->n_set ? r->n_set : 1) * sizeof *s->cfg);
    if (!s->cfg) {
        no_memory(r);
        return UNKNOWN;
    }
    s->n = r->n_set;
    s->hash = h;
    if (s->n) {
        memcpy(s->cfg, r->set, s->n * sizeof *s->cfg);
        s->complete = s->cfg[s->n - 1] >> 32 == DONE;
    }
    r->state_hash[at] = ++r->n_state;
    return r->n_state - 1;
}

static int state_dead(struct grammar_run *r)
{
    begin_closure(r);
    return state_of(r) == DEAD ? 0 : no_memory(r);
}

/* Begin anew, keeping the present state only. */
static int restart(struct grammar_run *r)
{
    struct state old = r->state[r->now];
    uint64_t *cfg = old.cfg;
    r->state[r->now].cfg = NULL;
    forget_states(r);
    int rc = state_dead(r);
    begin_closure(r);
    for (uint32_t i = 0; !rc && i < old.n; i++) {
        rc = push(r, &r->set, &r->n_set, &r->cap_set, cfg[i]);
    }
    free(cfg);
    r->now = rc ? DEAD : state_of(r);
    if (!rc && r->now == UNKNOWN) {
        r->now = DEAD;
        rc = r->err.code;
    }
    return rc;
}

/* One byte on (or, with a special token, `special`). UNKNOWN as state_of. */
static uint32_t step(struct grammar_run *r, uint32_t from, unsigned byte, uint32_t special)
{
    struct state *s = &r->state[from];
    if (special == GRAM_NONE && s->next && s->next[byte] != UNKNOWN) {
        return s->next[byte];
    }
    begin_closure(r);
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t node = (uint32_t)(s->cfg[i] >> 32);
        if (node == DONE) {
            continue;
        }
        const struct gram_node *x = &r->g->node[node];
        bool takes = special == GRAM_NONE ? x->kind == G_SET && gram_set_has(&r->g->set[x->x], byte)
                                          : x->kind == G_SPECIAL && x->x == special;
        if (takes && visit(r, x->a, (uint32_t)s->cfg[i])) {
            return UNKNOWN;
        }
    }
    uint32_t to = closure(r) ? UNKNOWN : state_of(r);
    s = &r->state[from];
    if (to != UNKNOWN && special == GRAM_NONE) {
        if (!s->next) {
            s->next = malloc(256 * sizeof *s->next);
            if (!s->next) {
                no_memory(r);
                return UNKNOWN;
            }
            memset(s->next, 0xff, 256 * sizeof *s->next);
        }
        s->next[byte] = to;
    }
    return to;
}

/* ---- the contract ---- */

int grammar_run_open(const struct grammar *g, const struct grammar_vocab *v,
                     struct grammar_run **out, struct err *e)
{
    *out = NULL;
    struct grammar_run *r = calloc(1, sizeof *r);
    if (!r) {
        return err_set(e, ERR_NOMEM, "out of memory for a grammar's run");
    }
    r->g = g;
    r->v = v;
    r->cap_frame = 64;
    r->frame = malloc(r->cap_frame * sizeof *r->frame);
    r->state = malloc(GRAMMAR_STATES_MAX * sizeof *r->state);
    int rc = r->frame && r->state ? frame_rehash(r, 256) : no_memory(r);
    rc = rc ? rc : seen_grow(r);
    rc = rc ? rc : state_dead(r);
    if (!rc) {
        begin_closure(r);
        rc = visit(r, g->rule[g->start], GRAM_NONE);
        rc = rc ? rc : closure(r);
        r->now = rc ? DEAD : state_of(r);
    }
    if (rc) {
        if (e) {
            *e = r->err;
        }
        grammar_run_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void grammar_run_close(struct grammar_run *r)
{
    if (r) {
        if (r->state) {
            forget_states(r);
        }
        free(r->state);
        free(r->frame);
        free(r->frame_hash);
        free(r->set);
        free(r->list);
        free(r->seen);
        for (int i = 0; i < MASKS; i++) {
            free(r->masks[i]);
        }
        free(r);
    }
}

/* Mark all tokens that lead somewhere from the present state. UNKNOWN states stop it: *full. */
static void mark(struct grammar_run *r, uint32_t *mask, bool *full)
{
    const struct grammar_vocab *v = r->v;
    uint32_t dead_at = UINT32_MAX; /* bytes of the present token's beginning that lead nowhere */
    r->depth_state[0] = r->now;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tok[i];
        if (t->same >= dead_at) {
            continue;
        }
        dead_at = UINT32_MAX;
        uint32_t s = r->depth_state[t->same];
        for (uint32_t k = t->same; k < t->len; k++) {
            s = step(r, s, v->text[t->off + k], GRAM_NONE);
            if (s == UNKNOWN) {
                *full = true;
                return;
            }
            if (s == DEAD) {
                dead_at = k + 1;
                break;
            }
            r->depth_state[k + 1] = s;
        }
        if (dead_at == UINT32_MAX) {
            mask[t->id / 32] |= 1u << t->id % 32;
        }
    }
    const struct state *s = &r->state[r->now];
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t node = (uint32_t)(s->cfg[i] >> 32);
        if (node != DONE && r->g->node[node].kind == G_SPECIAL) {
            uint32_t id = v->ranks + r->g->node[node].x;
            mask[id / 32] |= 1u << id % 32;
        }
    }
}

const uint32_t *grammar_run_mask(struct grammar_run *r, struct err *e)
{
    size_t words = (r->v->ranks + TOK_SPECIALS + 31) / 32;
    for (int attempt = 0; attempt < 2 && !r->err.code; attempt++) {
        struct state *s = &r->state[r->now];
        if (s->mask && r->mask_of[s->mask - 1] == r->now + 1) {
            return r->masks[s->mask - 1];
        }
        uint32_t slot = r->mask_next++ % MASKS;
        r->mask_of[slot] = 0;
        uint32_t *m = r->masks[slot] ? r->masks[slot] : malloc(words * sizeof *m);
        if (!m) {
            no_memory(r);
            break;
        }
        r->masks[slot] = m;
        memset(m, 0, words * sizeof *m);
        bool full = false;
        mark(r, m, &full);
        if (!full) {
            r->mask_of[slot] = r->now + 1;
            r->state[r->now].mask = slot + 1;
            return m;
        }
        if (!r->err.code && (attempt || restart(r))) {
            too_many(r);
        }
    }
    if (e) {
        *e = r->err;
    }
    return NULL;
}

int grammar_run_accept(struct grammar_run *r, uint32_t id, struct err *e)
{
    const struct grammar_vocab *v = r->v;
    for (int attempt = 0; attempt < 2 && !r->err.code; attempt++) {
        uint32_t s = r->now;
        size_t n;
        const char *p = tok_bytes(v->t, id, &n);
        if (!p || (n == 0 && id < v->ranks)) {
            return err_set(e, ERR_ARG, "token %u is not in the vocabulary", id);
        }
        if (id >= v->ranks) {
            s = step(r, s, 0, id - v->ranks);
        } else {
            for (size_t k = 0; k < n && s != DEAD && s != UNKNOWN; k++) {
                s = step(r, s, (uint8_t)p[k], GRAM_NONE);
            }
        }
        if (s == DEAD) {
            return err_set(e, ERR_ARG, "token %u may not come here by the grammar", id);
        }
        if (s != UNKNOWN) {
            r->now = s;
            return 0;
        }
        if (!r->err.code && (attempt || restart(r))) {
            too_many(r);
        }
    }
    if (e) {
        *e = r->err;
    }
    return r->err.code;
}

bool grammar_run_complete(const struct grammar_run *r)
{
    return r->state[r->now].complete;
}
