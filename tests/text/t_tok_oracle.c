/* SPDX-License-Identifier: MIT
 * t_tok_oracle.c: ids equal to those of an independent tokenizer (npm tiktoken 1.0.22 with the demo
 * vocabulary), which oracle/fixture.mjs wrote to data/tok_oracle.json. */
#include "text/tok_fixture.h"

#include <jansson.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct tok *tok;
static json_t *fixture;

/* FNV-1a over lists of ids, as hashIds of oracle.mjs. */
static void hash_u32(uint64_t *h, uint32_t v)
{
    for (int k = 0; k < 4; k++) {
        *h = (*h ^ (v >> (8 * k) & 0xff)) * 0x100000001b3u;
    }
}

static void hash_ids(uint64_t *h, const struct tok_ids *ids)
{
    hash_u32(h, (uint32_t)ids->n);
    for (size_t i = 0; i < ids->n; i++) {
        hash_u32(h, ids->v[i]);
    }
}

static void assert_hash(const char *what, uint64_t h, const char *want)
{
    char have[17];
    snprintf(have, sizeof have, "%016llx", (unsigned long long)h);
    if (strcmp(have, want)) {
        fail_msg("%s: hash %s, the oracle has %s", what, have, want);
    }
}

/* Concatenated token bytes give the (valid) text back. */
static void assert_round_trip(const char *what, const struct tok_ids *ids, const char *text,
                              size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t len;
        const char *p = tok_bytes(tok, ids->v[i], &len);
        if (!p || len > n - at || memcmp(p, text + at, len)) {
            fail_msg("%s: token %zu does not continue the text at byte %zu", what, i, at);
        }
        at += len;
    }
    assert_int_equal(at, n);
}

static void same_ids_on_texts(void **state)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(fixture, "texts"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        json_t *text = json_object_get(row, "text"), *want = json_object_get(row, "ids");
        const char *s = json_string_value(text);
        size_t n = json_string_length(text);
        struct tok_ids ids = {0};
        assert_int_equal(
            tok_encode(tok, s, n, json_is_true(json_object_get(row, "trusted")), &ids, NULL), 0);
        for (size_t k = 0; k < ids.n && k < json_array_size(want); k++) {
            if (ids.v[k] != json_integer_value(json_array_get(want, k))) {
                fail_msg("%s: id %zu is %u, the oracle has %lld", name, k, ids.v[k],
                         (long long)json_integer_value(json_array_get(want, k)));
            }
        }
        assert_int_equal(ids.n, json_array_size(want));
        assert_round_trip(name, &ids, s, n);
        tok_ids_free(&ids);
    }
    assert_true(i >= 80);
}

static void same_ids_on_long_runs(void **state)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(fixture, "long"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        size_t k;
        json_t *part;
        struct buf text;
        buf_init(&text, 1 << 23);
        json_array_foreach(json_object_get(row, "parts"), k, part)
        {
            json_t *s = json_array_get(part, 0);
            for (json_int_t times = json_integer_value(json_array_get(part, 1)); times; times--) {
                assert_int_equal(buf_add(&text, json_string_value(s), json_string_length(s)), 0);
            }
        }
        struct tok_ids ids = {0};
        assert_int_equal(tok_encode(tok, text.p, text.n, true, &ids, NULL), 0);
        assert_int_equal(ids.n, json_integer_value(json_object_get(row, "count")));
        uint64_t h = 0xcbf29ce484222325u;
        hash_ids(&h, &ids);
        assert_hash(name, h, json_string_value(json_object_get(row, "hash")));
        assert_round_trip(name, &ids, text.p, text.n);
        tok_ids_free(&ids);
        buf_free(&text);
    }
    assert_true(i >= 25);
}

static uint32_t draw(uint32_t *x, size_t n)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x % (uint32_t)n;
}

/* U+0000..10FFFF without surrogates; by itself, so as not to lean on the code under test. */
static void add_code_point(struct buf *b, uint32_t c)
{
    char s[4];
    int n = 0;
    if (c < 0x80) {
        s[n++] = (char)c;
    } else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        s[n++] = (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | c >> 6 * more);
        while (more--) {
            s[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
        }
    }
    assert_int_equal(buf_add(b, s, (size_t)n), 0);
}

/* The text that randomText of oracle.mjs makes. */
static void random_text(json_t *pools, uint32_t seed, struct buf *b)
{
    uint32_t x = seed * UINT32_C(2654435761) ^ 0x9e3779b9;
    x = x ? x : 1;
    uint32_t items = 1 + draw(&x, 40);
    json_t *pool = json_array_get(pools, draw(&x, json_array_size(pools)));
    for (uint32_t i = 0; i < items; i++) {
        if (!draw(&x, 4)) {
            pool = json_array_get(pools, draw(&x, json_array_size(pools)));
        }
        struct buf item;
        buf_init(&item, 256);
        if (json_array_size(pool)) {
            json_t *s = json_array_get(pool, draw(&x, json_array_size(pool)));
            assert_int_equal(buf_add(&item, json_string_value(s), json_string_length(s)), 0);
        } else {
            uint32_t c = draw(&x, 0x110000 - 0x800);
            add_code_point(&item, c < 0xd800 ? c : c + 0x800);
        }
        for (uint32_t times = draw(&x, 8) ? 1 : 1 + draw(&x, 12); times; times--) {
            assert_int_equal(buf_add(b, item.p, item.n), 0);
        }
        buf_free(&item);
    }
}

static void same_ids_on_random_strings(void **state)
{
    json_t *pools = json_object_get(fixture, "pools"), *blocks = json_object_get(fixture, "random");
    assert_true(json_array_size(blocks) >= 80);
    for (size_t block = 0; block < json_array_size(blocks); block++) {
        uint64_t h = 0xcbf29ce484222325u;
        for (uint32_t k = 0; k < 250; k++) {
            struct buf text;
            buf_init(&text, 1 << 16);
            random_text(pools, (uint32_t)block * 250 + k, &text);
            for (int trusted = 0; trusted < 2; trusted++) {
                struct tok_ids ids = {0};
                assert_int_equal(tok_encode(tok, text.p, text.n, trusted, &ids, NULL), 0);
                hash_ids(&h, &ids);
                assert_round_trip("random", &ids, text.p, text.n);
                tok_ids_free(&ids);
            }
            buf_free(&text);
        }
        char what[40];
        snprintf(what, sizeof what, "seeds %zu to %zu", block * 250, block * 250 + 249);
        assert_hash(what, h, json_string_value(json_array_get(blocks, block)));
    }
}

int main(void)
{
    struct buf b = fixture_file("tok_oracle.json");
    fixture = json_loadb(b.p, b.n, JSON_ALLOW_NUL, NULL);
    buf_free(&b);
    if (!fixture) {
        fprintf(stderr, "data/tok_oracle.json is not JSON\n");
        return 2;
    }
    tok = fixture_tok();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids_on_texts),
        cmocka_unit_test(same_ids_on_long_runs),
        cmocka_unit_test(same_ids_on_random_strings),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tok_close(tok);
    json_decref(fixture);
    return r;
}
