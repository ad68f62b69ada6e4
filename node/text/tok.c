/* SPDX-License-Identifier: MIT
 * tok.c: opening a tokenizer, and looking tokens up by id, by bytes and by spelling. */
#include "node/text/tok.h"

#include "node/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

int tok_open(const void *ranks, size_t ranks_len, const char *config_json, size_t config_len,
             struct tok **out, struct err *e)
{
    *out = NULL;
    struct tok *t = calloc(1, sizeof *t);
    if (!t) {
        return err_set(e, ERR_NOMEM, "out of memory for the tokenizer");
    }
    int r = tok_load_ranks(t, ranks, ranks_len, e);
    r = r ? r : tok_index(t, e);
    r = r ? r : tok_load_specials(t, config_json, config_len, e);
    if (r) {
        tok_close(t);
        return r;
    }
    *out = t;
    return 0;
}

void tok_close(struct tok *t)
{
    if (t) {
        free(t->bytes);
        free(t->off);
        free(t->slots);
        free(t);
    }
}

uint32_t tok_vocab(const struct tok *t)
{
    return t->vocab;
}

uint32_t tok_ranks(const struct tok *t)
{
    return t->ranks;
}

const char *tok_bytes(const struct tok *t, uint32_t id, size_t *n)
{
    if (id >= t->vocab) {
        *n = 0;
        return NULL;
    }
    *n = t->off[id + 1] - t->off[id];
    return t->bytes + t->off[id];
}

bool tok_is_special(const struct tok *t, uint32_t id)
{
    return id >= t->ranks && id < t->vocab;
}

bool tok_is_skipped(const struct tok *t, uint32_t id)
{
    return tok_is_special(t, id) && t->skipped[id - t->ranks];
}

/* Any good mixing serves: the value never leaves the process. */
static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    return h ^ h >> 32;
}

static uint64_t hash(const uint8_t *p, size_t n)
{
    uint64_t h = n, v;
    for (; n > 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        h = mix(h ^ v);
    }
    v = 0;
    memcpy(&v, p, n);
    return mix(mix(h) ^ v);
}

uint32_t tok_rank_of(const struct tok *t, const uint8_t *p, size_t n)
{
    if (n > t->longest) {
        return TOK_NONE;
    }
    uint64_t h = hash(p, n);
    for (size_t i = h & t->mask; t->slots[i] != TOK_EMPTY; i = (i + 1) & t->mask) {
        if (t->slots[i] >> 32 == h >> 32) {
            uint32_t id = (uint32_t)t->slots[i];
            if (t->off[id + 1] - t->off[id] == n && !memcmp(t->bytes + t->off[id], p, n)) {
                return id;
            }
        }
    }
    return TOK_NONE;
}

int tok_index(struct tok *t, struct err *e)
{
    size_t slots = 1024;
    while (slots < 2 * (size_t)t->ranks) {
        slots *= 2;
    }
    t->slots = malloc(slots * sizeof *t->slots);
    if (!t->slots) {
        return err_set(e, ERR_NOMEM, "out of memory for the index of %u tokens", t->ranks);
    }
    memset(t->slots, 0xff, slots * sizeof *t->slots);
    t->mask = slots - 1;
    for (uint32_t id = 0; id < t->ranks; id++) {
        const uint8_t *p = (const uint8_t *)t->bytes + t->off[id];
        size_t n = t->off[id + 1] - t->off[id];
        uint32_t other = tok_rank_of(t, p, n);
        if (other != TOK_NONE) {
            return err_set(e, ERR_FORMAT, "line %u: the same token as on line %u", id + 1,
                           other + 1);
        }
        uint64_t h = hash(p, n);
        size_t i = h & t->mask;
        while (t->slots[i] != TOK_EMPTY) {
            i = (i + 1) & t->mask;
        }
        t->slots[i] = h >> 32 << 32 | id;
    }
    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        t->byte_id[b] = tok_rank_of(t, &byte, 1);
        if (t->byte_id[b] == TOK_NONE) {
            return err_set(e, ERR_FORMAT,
                           "no line for the single byte 0x%02x, without which not "
                           "every text can be encoded",
                           b);
        }
    }
    return 0;
}

/* The k-th byte of the i-th spelling in byte order, or -1 at its end. */
static int sorted_byte(const struct tok *t, size_t i, size_t k)
{
    size_t n;
    const char *s = tok_bytes(t, t->ranks + t->sorted[i], &n);
    return k < n ? (uint8_t)s[k] : -1;
}

/* The first place in [lo, hi) of the sorted spellings, which share k bytes, whose k-th is >= b. */
static size_t lower_bound(const struct tok *t, size_t lo, size_t hi, size_t k, int b)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (sorted_byte(t, mid, k) < b) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

bool tok_special_at(const struct tok *t, const uint8_t *p, size_t n, uint32_t *id, size_t *len)
{
    bool found = false;
    size_t lo = 0, hi = TOK_SPECIALS;
    for (size_t k = 0; k < n; k++) {
        lo = lower_bound(t, lo, hi, k, p[k]);
        hi = lower_bound(t, lo, hi, k, p[k] + 1);
        if (lo == hi) {
            break;
        }
        if (sorted_byte(t, lo, k + 1) < 0) { /* the shortest of the range comes first */
            *id = t->ranks + t->sorted[lo];
            *len = k + 1;
            found = true;
        }
    }
    return found;
}

bool tok_special_id(const struct tok *t, const char *name, uint32_t *id)
{
    size_t n = strlen(name), len;
    uint32_t at;
    if (!tok_special_at(t, (const uint8_t *)name, n, &at, &len) || len != n) {
        return false;
    }
    *id = at;
    return true;
}
