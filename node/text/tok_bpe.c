/* SPDX-License-Identifier: MIT
 * tok_bpe.c: byte-pair merging of one piece. The pair with the lowest rank is merged first, the
 * leftmost of equals; a heap keyed by (rank, position) finds it in O(log n), so that the longest
 * piece the guards let through (a megabyte and more) costs no more per byte than a short one. */
#include "node/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

/* Long pieces are mostly repetition: few different pairs, asked again and again. Direct-mapped. */
#define JOINS 1024
struct tok_join {
    uint64_t pair; /* left id << 32 | right id; two ids are never both TOK_NONE: that is free */
    uint32_t rank;
};

static void free_arrays(struct tok_merge *m)
{
    free(m->next);
    free(m->prev);
    free(m->id);
    free(m->rank);
    free(m->heap);
    m->next = m->prev = m->id = m->rank = NULL;
    m->heap = NULL;
    m->cap = 0;
}

void tok_merge_free(struct tok_merge *m)
{
    free_arrays(m);
    free(m->joined);
    m->joined = NULL;
}

static int make_room(struct tok_merge *m, size_t n)
{
    if (!m->joined) {
        m->joined = malloc(JOINS * sizeof *m->joined);
        if (!m->joined) {
            return ERR_NOMEM;
        }
        memset(m->joined, 0xff, JOINS * sizeof *m->joined);
    }
    if (n <= m->cap) {
        return 0;
    }
    size_t cap = n < 256 ? 256 : n + n / 2; /* n is at most the bytes of one slice: no overflow */
    free_arrays(m);
    m->next = malloc(cap * sizeof *m->next);
    m->prev = malloc(cap * sizeof *m->prev);
    m->id = malloc(cap * sizeof *m->id);
    m->rank = malloc(cap * sizeof *m->rank);
    m->heap = malloc(3 * cap * sizeof *m->heap); /* n pairs at first, each merge adds two */
    if (!m->next || !m->prev || !m->id || !m->rank || !m->heap) {
        free_arrays(m);
        return ERR_NOMEM;
    }
    m->cap = cap;
    return 0;
}

/* Let heap[i] sink to its place among n entries. */
static void sink(uint64_t *heap, size_t n, size_t i)
{
    uint64_t v = heap[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && heap[c + 1] < heap[c]) {
            c++;
        }
        if (heap[c] >= v) {
            break;
        }
        heap[i] = heap[c];
    }
    heap[i] = v;
}

static void push(uint64_t *heap, size_t *n, uint64_t v)
{
    size_t i = (*n)++;
    for (; i && heap[(i - 1) / 2] > v; i = (i - 1) / 2) {
        heap[i] = heap[(i - 1) / 2];
    }
    heap[i] = v;
}

/* The rank of the part at a joined with the one that follows it and ends at `end`. */
static uint32_t join(const struct tok *t, struct tok_merge *m, const uint8_t *p, size_t a,
                     size_t end)
{
    uint64_t pair = (uint64_t)m->id[a] << 32 | m->id[m->next[a]];
    struct tok_join *j = &m->joined[(pair ^ pair >> 27) * 0x9e3779b97f4a7c15u >> 54]; /* 10 bits */
    if (j->pair != pair) {
        j->pair = pair;
        j->rank = tok_rank_of(t, p + a, end - a);
    }
    return j->rank;
}

static void push_pair(const struct tok *t, struct tok_merge *m, const uint8_t *p, size_t a,
                      size_t end, size_t *heap_n)
{
    m->rank[a] = join(t, m, p, a, end);
    if (m->rank[a] != TOK_NONE) {
        push(m->heap, heap_n, (uint64_t)m->rank[a] << 32 | a);
    }
}

/* Every byte a part of its own, every pair that is a token in the heap. Returns the heap's size. */
static size_t begin(const struct tok *t, struct tok_merge *m, const uint8_t *p, size_t n)
{
    size_t heap_n = 0;
    for (size_t i = 0; i < n; i++) {
        m->next[i] = (uint32_t)(i + 1);
        m->prev[i] = i ? (uint32_t)(i - 1) : TOK_NONE;
        m->id[i] = t->byte_id[p[i]];
        m->rank[i] = TOK_NONE;
    }
    for (size_t i = 0; i + 1 < n; i++) {
        m->rank[i] = join(t, m, p, i, i + 2);
        if (m->rank[i] != TOK_NONE) {
            m->heap[heap_n++] = (uint64_t)m->rank[i] << 32 | i;
        }
    }
    for (size_t i = heap_n / 2; i-- > 0;) {
        sink(m->heap, heap_n, i);
    }
    return heap_n;
}

int tok_merge_piece(const struct tok *t, struct tok_merge *m, const uint8_t *p, size_t n,
                    struct tok_ids *out)
{
    uint32_t whole = n == 1 ? t->byte_id[*p] : tok_rank_of(t, p, n);
    if (whole != TOK_NONE) {
        return tok_ids_add(out, whole);
    }
    int r = make_room(m, n);
    if (r) {
        return r;
    }
    size_t heap_n = begin(t, m, p, n);
    while (heap_n) {
        uint32_t rank = (uint32_t)(m->heap[0] >> 32), a = (uint32_t)m->heap[0];
        m->heap[0] = m->heap[--heap_n];
        if (heap_n) {
            sink(m->heap, heap_n, 0);
        }
        /* An entry is out of date when its part has since been merged into another or has grown:
         * a position's pair never has the same rank again, as its bytes only get more. */
        if (m->rank[a] != rank) {
            continue;
        }
        uint32_t b = m->next[a], c = m->next[b];
        m->rank[b] = TOK_NONE;
        m->id[a] = rank;
        m->next[a] = c;
        if (c < n) {
            m->prev[c] = a;
            push_pair(t, m, p, a, m->next[c], &heap_n);
        } else {
            m->rank[a] = TOK_NONE;
        }
        if (m->prev[a] != TOK_NONE) {
            push_pair(t, m, p, m->prev[a], c, &heap_n);
        }
    }
    for (size_t i = 0; i < n && !r; i = m->next[i]) {
        r = tok_ids_add(out, m->id[i]);
    }
    return r;
}
