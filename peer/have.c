/* SPDX-License-Identifier: MIT
 * have.c: see have.h. Rows are sorted by kind and layer; changes are a list of keys whose present
 * state is looked up when a delta is made. */
#include "peer/have.h"

#include <stdlib.h>
#include <string.h>

#define PENDING_MAX (1u << 20) /* keys; beyond it a snapshot is cheaper */
#define PART_BYTES (96 * 1024) /* bits of one Have */

struct row {
    uint32_t id;  /* kind << 16 | layer */
    uint32_t cap; /* bytes, a multiple of 8 */
    uint8_t *bits;
};

struct held {
    struct row *rows;
    size_t n, cap;
    uint64_t count, seq;
    struct object_key *pending;
    size_t n_pending, cap_pending;
    size_t at; /* of a run of deltas: pending is sorted and told up to here */
    bool sorted, lost;
};

struct held *held_new(void)
{
    return calloc(1, sizeof(struct held));
}

void held_free(struct held *h)
{
    if (!h) {
        return;
    }
    for (size_t i = 0; i < h->n; i++) {
        free(h->rows[i].bits);
    }
    free(h->rows);
    free(h->pending);
    free(h);
}

/* The first row whose id is not below `id`. */
static size_t lower(const struct held *h, uint32_t id)
{
    size_t a = 0, b = h->n;
    while (a < b) {
        size_t mid = (a + b) / 2;
        if (h->rows[mid].id < id) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    return a;
}

static uint32_t row_id(struct object_key k)
{
    return (uint32_t)k.kind << 16 | k.layer;
}

bool held_has(const struct held *h, struct object_key k)
{
    size_t i = lower(h, row_id(k));
    return i < h->n && h->rows[i].id == row_id(k) && k.index / 8 < h->rows[i].cap &&
           (h->rows[i].bits[k.index / 8] >> k.index % 8 & 1);
}

static struct row *need(struct held *h, struct object_key k)
{
    size_t i = lower(h, row_id(k));
    if (i == h->n || h->rows[i].id != row_id(k)) {
        if (h->n == h->cap) {
            size_t cap = h->cap ? h->cap * 2 : 32;
            struct row *r = realloc(h->rows, cap * sizeof *r);
            if (!r) {
                return NULL;
            }
            h->rows = r;
            h->cap = cap;
        }
        memmove(&h->rows[i + 1], &h->rows[i], (h->n - i) * sizeof *h->rows);
        h->rows[i] = (struct row){.id = row_id(k)};
        h->n++;
    }
    struct row *r = &h->rows[i];
    if (k.index / 8 >= r->cap) {
        uint32_t cap = r->cap ? r->cap : 16;
        while (cap <= k.index / 8) {
            cap *= 2;
        }
        uint8_t *b = realloc(r->bits, cap);
        if (!b) {
            return NULL;
        }
        memset(b + r->cap, 0, cap - r->cap);
        r->bits = b;
        r->cap = cap;
    }
    return r;
}

static int pend(struct held *h, struct object_key k)
{
    if (h->lost) {
        return 0;
    }
    if (h->n_pending == PENDING_MAX) {
        h->lost = true;
        h->n_pending = h->at = 0;
        return 0;
    }
    if (h->n_pending == h->cap_pending) {
        size_t cap = h->cap_pending ? h->cap_pending * 2 : 64;
        struct object_key *p = realloc(h->pending, cap * sizeof *p);
        if (!p) {
            return ERR_NOMEM;
        }
        h->pending = p;
        h->cap_pending = cap;
    }
    h->pending[h->n_pending++] = k;
    h->sorted = false;
    return 0;
}

int held_add(struct held *h, struct object_key k)
{
    if (k.index > WIRE_INDEX_MAX) {
        return ERR_ARG;
    }
    if (held_has(h, k)) {
        return 0;
    }
    struct row *r = need(h, k);
    if (!r || pend(h, k)) {
        return ERR_NOMEM;
    }
    r->bits[k.index / 8] |= (uint8_t)(1u << k.index % 8);
    h->count++;
    return 0;
}

int held_remove(struct held *h, struct object_key k)
{
    if (!held_has(h, k)) {
        return 0;
    }
    if (pend(h, k)) {
        return ERR_NOMEM;
    }
    struct row *r = &h->rows[lower(h, row_id(k))];
    r->bits[k.index / 8] &= (uint8_t) ~(1u << k.index % 8);
    h->count--;
    return 0;
}

uint64_t held_count(const struct held *h)
{
    return h->count;
}

uint64_t held_seq(const struct held *h)
{
    return h->seq;
}

bool held_dirty(const struct held *h)
{
    return h->lost || h->n_pending > 0;
}

/* ---- deltas ---- */

static int by_key(const void *pa, const void *pb)
{
    const struct object_key *a = pa, *b = pb;
    uint64_t x = (uint64_t)row_id(*a) << 32 | a->index, y = (uint64_t)row_id(*b) << 32 | b->index;
    return x < y ? -1 : x > y;
}

static void take(Shoal__HaveSpan *s, struct object_key k)
{
    shoal__have_span__init(s);
    s->kind = k.kind;
    s->layer = k.layer;
    s->first = k.index;
    s->count = 1;
}

/* Spans for the pending keys from h->at on, as many as one delta may have. */
static size_t spans(struct held *h, Shoal__HaveSpan *s, bool *on)
{
    size_t n = 0;
    for (; h->at < h->n_pending; h->at++) {
        struct object_key k = h->pending[h->at];
        if (h->at && object_key_equal(k, h->pending[h->at - 1])) {
            continue;
        }
        bool has = held_has(h, k);
        Shoal__HaveSpan *l = n ? &s[n - 1] : NULL;
        if (l && on[n - 1] == has && l->kind == k.kind && l->layer == k.layer &&
            l->first + l->count == k.index) {
            l->count++;
            continue;
        }
        if (n == WIRE_SPANS_MAX) {
            break;
        }
        take(&s[n], k);
        on[n++] = has;
    }
    return n;
}

static int encode_spans(struct held *h, Shoal__HaveSpan *s, const bool *on, size_t n,
                        Shoal__HaveSpan **list, struct buf *body, struct err *e)
{
    Shoal__HaveDelta d = SHOAL__HAVE_DELTA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    d.added = list;
    for (size_t i = 0; i < n; i++) {
        if (on[i]) {
            list[d.n_added++] = &s[i];
        }
    }
    d.removed = list + d.n_added;
    for (size_t i = 0; i < n; i++) {
        if (!on[i]) {
            d.removed[d.n_removed++] = &s[i];
        }
    }
    d.seq = h->seq + 1;
    f.kind_case = SHOAL__FRAME__KIND_HAVE_DELTA;
    f.have_delta = &d;
    int r = codec_encode(&f, 0, body, e);
    h->seq += !r;
    return r;
}

int held_delta(struct held *h, struct buf *body, bool *more, bool *snapshot, struct err *e)
{
    *more = *snapshot = false;
    if (h->lost) {
        h->lost = false;
        h->seq++;
        *snapshot = true;
        return 0;
    }
    if (!h->sorted) {
        qsort(h->pending, h->n_pending, sizeof *h->pending, by_key);
        h->sorted = true;
        h->at = 0;
    }
    Shoal__HaveSpan *s = malloc(WIRE_SPANS_MAX * (sizeof *s + sizeof s + sizeof(bool)));
    if (!s) {
        return err_set(e, ERR_NOMEM, "no memory to tell peers what is held");
    }
    Shoal__HaveSpan **list = (Shoal__HaveSpan **)(void *)(s + WIRE_SPANS_MAX);
    bool *on = (bool *)(list + WIRE_SPANS_MAX);
    size_t n = spans(h, s, on);
    int r = n ? encode_spans(h, s, on, n, list, body, e) : 0;
    free(s);
    if (r) {
        h->lost = true; /* a snapshot makes up for it */
    }
    *more = !r && h->at < h->n_pending;
    if (!*more) {
        h->n_pending = h->at = 0;
    }
    return r;
}

/* ---- snapshots ---- */

struct part {
    Shoal__Have have;
    Shoal__HaveRow row[WIRE_ROWS_MAX];
    Shoal__HaveRow *list[WIRE_ROWS_MAX];
    size_t bytes;
    int (*emit)(void *ctx, const void *body, size_t n);
    void *ctx;
};

static int flush(struct part *p, bool last, struct err *e)
{
    Shoal__Frame f = SHOAL__FRAME__INIT;
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    f.kind_case = SHOAL__FRAME__KIND_HAVE;
    f.have = &p->have;
    p->have.last = last;
    int r = codec_encode(&f, 0, &b, e);
    r = r ? r : p->emit(p->ctx, b.p, b.n);
    buf_free(&b);
    p->have.part++;
    p->have.n_rows = 0;
    p->bytes = 0;
    return r;
}

/* The bytes of `r` from `from` to `to` that are not zero at both ends. */
static int add_row(struct part *p, const struct row *r, uint32_t from, uint32_t to, struct err *e)
{
    while (from < to && !r->bits[from]) {
        from++;
    }
    while (to > from && !r->bits[to - 1]) {
        to--;
    }
    if (from == to) {
        return 0;
    }
    if (p->have.n_rows == WIRE_ROWS_MAX || p->bytes + (to - from) + 32 > PART_BYTES) {
        int rc = flush(p, false, e);
        if (rc) {
            return rc;
        }
    }
    Shoal__HaveRow *w = &p->row[p->have.n_rows];
    shoal__have_row__init(w);
    w->kind = r->id >> 16;
    w->layer = r->id & 0xffff;
    w->first = from * 8;
    w->bits.data = r->bits + from;
    w->bits.len = to - from;
    p->list[p->have.n_rows++] = w;
    p->bytes += to - from + 32;
    return 0;
}

int held_snapshot(const struct held *h, int (*emit)(void *ctx, const void *body, size_t n),
                  void *ctx, struct err *e)
{
    struct part *p = malloc(sizeof *p);
    if (!p) {
        return err_set(e, ERR_NOMEM, "no memory to tell peers what is held");
    }
    shoal__have__init(&p->have);
    p->have.rows = p->list;
    p->have.seq = h->seq;
    p->bytes = 0;
    p->emit = emit;
    p->ctx = ctx;
    int r = 0;
    for (size_t i = 0; i < h->n && !r; i++) {
        const struct row *w = &h->rows[i];
        for (uint32_t at = 0; at < w->cap && !r; at += WIRE_ROW_BYTES_MAX) {
            uint32_t to = w->cap - at < WIRE_ROW_BYTES_MAX ? w->cap : at + WIRE_ROW_BYTES_MAX;
            r = add_row(p, w, at, to, e);
        }
    }
    r = r ? r : flush(p, true, e);
    free(p);
    return r;
}

/* ---- the other end ---- */

static enum held_verdict ask(struct held_rx *rx)
{
    rx->synced = false;
    rx->part = 0;
    if (rx->asked) {
        return HELD_SKIP;
    }
    rx->asked = true;
    return HELD_ASK;
}

enum held_verdict held_rx_have(struct held_rx *rx, uint64_t seq, uint32_t part, bool last)
{
    if (part != 0 && (part != rx->part || seq != rx->seq || rx->synced)) {
        return ask(rx);
    }
    rx->seq = seq;
    rx->part = part + 1;
    rx->synced = last;
    rx->asked = rx->asked && !last;
    return part ? HELD_TAKE : HELD_RESET;
}

enum held_verdict held_rx_delta(struct held_rx *rx, uint64_t seq)
{
    if (!rx->synced || seq <= rx->seq) {
        return HELD_SKIP; /* a snapshot is on its way, or brought it already */
    }
    if (seq != rx->seq + 1) {
        return ask(rx);
    }
    rx->seq = seq;
    return HELD_TAKE;
}
