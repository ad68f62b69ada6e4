/* SPDX-License-Identifier: MIT
 * tok_load.c: reads the rank file and the names of the special ids, and trusts neither. */
#include "node/text/tok_impl.h"

#include "proto/base/buf.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decode p[0..n), whole groups of four with padding, to dst (room for n / 4 * 3). Only the one
 * canonical form of each token is taken. Returns the length, or 0 when it is not base64. */
static size_t base64_decode(const char *p, size_t n, char *dst)
{
    if (!n || n % 4) {
        return 0;
    }
    size_t pad = p[n - 1] != '=' ? 0 : p[n - 2] != '=' ? 1 : 2, out = 0;
    uint32_t acc = 0;
    for (size_t i = 0; i < n - pad; i++) {
        int v = base64_value(p[i]);
        if (v < 0) {
            return 0;
        }
        acc = acc << 6 | (uint32_t)v;
        if (i % 4 == 3) {
            dst[out++] = (char)(acc >> 16);
            dst[out++] = (char)(acc >> 8);
            dst[out++] = (char)acc;
            acc = 0;
        }
    }
    if (pad == 1) { /* 18 bits hold 16 */
        dst[out++] = (char)(acc >> 10);
        dst[out++] = (char)(acc >> 2);
        return acc & 3 ? 0 : out;
    }
    if (pad == 2) { /* 12 bits hold 8 */
        dst[out++] = (char)(acc >> 4);
        return acc & 15 ? 0 : out;
    }
    return out;
}

/* A decimal number as a program writes it: digits only, no leading zero, below 2^31. */
static bool decimal(const char *p, size_t n, uint32_t *out)
{
    if (!n || n > 10 || (p[0] == '0' && n > 1)) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(p[i] - '0');
    }
    *out = (uint32_t)v;
    return v < UINT32_C(1) << 31;
}

static int rank_line(struct tok *t, const char *p, size_t n, size_t *used, struct err *e)
{
    unsigned line = t->ranks + 1;
    if (!n) {
        return err_set(e, ERR_FORMAT, "line %u is empty; want `base64 rank`", line);
    }
    if (p[n - 1] == '\r') {
        return err_set(e, ERR_FORMAT,
                       "line %u ends in CR LF; the file was changed in transfer, "
                       "fetch it again as binary",
                       line);
    }
    const char *sp = memchr(p, ' ', n);
    if (!sp) {
        return err_set(e, ERR_FORMAT, "line %u has no space; want `base64 rank`", line);
    }
    size_t b64 = (size_t)(sp - p);
    if (b64 / 4 > (TOK_MAX_TOKEN + 2) / 3) {
        return err_set(e, ERR_LIMIT, "line %u: the token has more than %d bytes", line,
                       TOK_MAX_TOKEN);
    }
    size_t len = base64_decode(p, b64, t->bytes + *used);
    if (!len) {
        return err_set(e, ERR_FORMAT, "line %u: the token is not valid base64", line);
    }
    if (len > TOK_MAX_TOKEN) {
        return err_set(e, ERR_LIMIT, "line %u: the token has more than %d bytes", line,
                       TOK_MAX_TOKEN);
    }
    uint32_t rank;
    if (!decimal(sp + 1, n - b64 - 1, &rank)) {
        return err_set(e, ERR_FORMAT, "line %u: the rank is not a decimal number", line);
    }
    if (rank != t->ranks) {
        return err_set(e, ERR_FORMAT,
                       "line %u has rank %u, want %u: ranks must go up by one from 0, "
                       "none %s",
                       line, rank, t->ranks, rank < t->ranks ? "twice" : "left out");
    }
    t->off[t->ranks++] = (uint32_t)*used;
    *used += len;
    t->longest = len > t->longest ? len : t->longest;
    return 0;
}

int tok_load_ranks(struct tok *t, const char *p, size_t n, struct err *e)
{
    if (n > TOK_MAX_FILE) {
        return err_set(e, ERR_LIMIT, "the rank file has %zu bytes, more than %u", n, TOK_MAX_FILE);
    }
    size_t lines = 0;
    for (size_t i = 0; i < n; i++) {
        lines += p[i] == '\n' || i == n - 1;
    }
    if (lines > TOK_MAX_RANKS) {
        return err_set(e, ERR_LIMIT, "the rank file has %zu lines, more than %u", lines,
                       TOK_MAX_RANKS);
    }
    /* Decoded tokens are shorter than their lines; the specials' spellings come behind them. */
    t->bytes = malloc(n + TOK_SPECIALS * TOK_MAX_SPECIAL);
    t->off = malloc((lines + TOK_SPECIALS + 1) * sizeof *t->off);
    if (!t->bytes || !t->off) {
        return err_set(e, ERR_NOMEM, "out of memory for %zu tokens", lines);
    }
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        const char *nl = memchr(p + i, '\n', n - i);
        size_t len = nl ? (size_t)(nl - (p + i)) : n - i;
        int r = rank_line(t, p + i, len, &used, e);
        if (r) {
            return r;
        }
        i += len + 1;
    }
    t->off[t->ranks] = (uint32_t)used;
    t->vocab = t->ranks + TOK_SPECIALS;
    return 0;
}

/* One entry of added_tokens_decoder: its spelling goes to names[id - ranks]. */
static int take_name(struct tok *t, const char *key, json_t *value, json_t **names, struct err *e)
{
    uint32_t id;
    if (!decimal(key, strlen(key), &id) || id < t->ranks || id >= t->vocab) {
        return err_set(e, ERR_FORMAT,
                       "tokenizer_config.json: added_tokens_decoder names id \"%.40s\", which is "
                       "not one of the special ids %u to %u",
                       key, t->ranks, t->vocab - 1);
    }
    json_t *content = json_object_get(value, "content");
    json_t *special = json_object_get(value, "special");
    if (!json_is_string(content) || (special && !json_is_boolean(special))) {
        return err_set(e, ERR_FORMAT,
                       "tokenizer_config.json: id %u wants a string `content` and a true or false "
                       "`special`",
                       id);
    }
    size_t n = json_string_length(content);
    if (!n || n > TOK_MAX_SPECIAL) {
        return err_set(e, ERR_LIMIT,
                       "tokenizer_config.json: the content of id %u has %zu bytes, want 1 to %d",
                       id, n, TOK_MAX_SPECIAL);
    }
    names[id - t->ranks] = content;
    t->skipped[id - t->ranks] = json_is_true(special);
    return 0;
}

static int take_names(struct tok *t, json_t *root, json_t **names, struct err *e)
{
    if (!json_is_object(root)) {
        return err_set(e, ERR_FORMAT, "tokenizer_config.json is not a JSON object");
    }
    json_t *added = json_object_get(root, "added_tokens_decoder");
    if (added && !json_is_object(added)) {
        return err_set(e, ERR_FORMAT,
                       "tokenizer_config.json: added_tokens_decoder is not an object");
    }
    const char *key;
    json_t *value;
    json_object_foreach(added, key, value)
    {
        int r = take_name(t, key, value, names, e);
        if (r) {
            return r;
        }
    }
    return 0;
}

/* Bytes of the i-th special's spelling compared with those of the j-th. */
static int compare_specials(const struct tok *t, unsigned i, unsigned j)
{
    size_t a, b;
    const char *p = tok_bytes(t, t->ranks + i, &a), *q = tok_bytes(t, t->ranks + j, &b);
    int c = memcmp(p, q, a < b ? a : b);
    return c ? c : a < b ? -1 : a > b;
}

/* Write the spellings behind the ordinary tokens, then put them in order. */
static int lay_out(struct tok *t, json_t **names, struct err *e)
{
    for (unsigned i = 0; i < TOK_SPECIALS; i++) {
        uint32_t id = t->ranks + i, at = t->off[id];
        if (names[i]) {
            size_t n = json_string_length(names[i]);
            memcpy(t->bytes + at, json_string_value(names[i]), n);
            t->off[id + 1] = at + (uint32_t)n;
        } else {
            int n = snprintf(t->bytes + at, TOK_MAX_SPECIAL, "<|reserved_token_%u|>", id);
            t->off[id + 1] = at + (uint32_t)n;
            t->skipped[i] = true;
        }
        t->first[(uint8_t)t->bytes[at]] = true;
    }
    for (unsigned i = 0; i < TOK_SPECIALS; i++) { /* by insertion: there are 256 */
        unsigned k = i;
        for (; k && compare_specials(t, i, t->sorted[k - 1]) < 0; k--) {
            t->sorted[k] = t->sorted[k - 1];
        }
        if (k && !compare_specials(t, i, t->sorted[k - 1])) {
            return err_set(e, ERR_FORMAT,
                           "tokenizer_config.json: special ids %u and %u have the same spelling",
                           t->ranks + t->sorted[k - 1], t->ranks + i);
        }
        t->sorted[k] = (uint16_t)i;
    }
    return 0;
}

int tok_load_specials(struct tok *t, const char *json, size_t n, struct err *e)
{
    json_t *names[TOK_SPECIALS] = {0};
    json_t *root = NULL;
    int r = 0;
    if (json) {
        if (n > TOK_MAX_CONFIG) {
            return err_set(e, ERR_LIMIT, "tokenizer_config.json has %zu bytes, more than %u", n,
                           TOK_MAX_CONFIG);
        }
        json_error_t je;
        /* As reals: the released file has model_max_length 10^30, which is no 64-bit integer. */
        root = json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &je);
        if (!root) {
            return err_set(e, ERR_FORMAT, "tokenizer_config.json is not valid JSON: line %d: %s",
                           je.line, je.text);
        }
        r = take_names(t, root, names, e);
    }
    r = r ? r : lay_out(t, names, e);
    json_decref(root);
    return r;
}
