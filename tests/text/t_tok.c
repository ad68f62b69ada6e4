/* SPDX-License-Identifier: MIT
 * t_tok.c: the tokenizer's contract: what it refuses, special tokens, invalid UTF-8, round trips,
 * merges against the plain definition, threads. */
#include "node/text/unicode_class.h"
#include "text/tok_fixture.h"

#include <pthread.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct tok *demo;

static uint32_t draw(uint32_t *x, uint32_t n)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x % n;
}

static void add_base64(struct buf *b, const uint8_t *p, size_t n)
{
    static const char abc[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v =
            (uint32_t)p[i] << 16 | (i + 1 < n ? p[i + 1] : 0) << 8 | (i + 2 < n ? p[i + 2] : 0);
        char s[4] = {abc[v >> 18], abc[v >> 12 & 63], i + 1 < n ? abc[v >> 6 & 63] : '=',
                     i + 2 < n ? abc[v & 63] : '='};
        assert_int_equal(buf_add(b, s, 4), 0);
    }
}

static void add_line(struct buf *b, const void *p, size_t n, unsigned rank)
{
    add_base64(b, p, n);
    assert_int_equal(buf_addf(b, " %u\n", rank), 0);
}

/* A rank file of the 256 bytes in order. */
static struct buf byte_ranks(void)
{
    struct buf b;
    buf_init(&b, 1 << 22);
    for (unsigned i = 0; i < 256; i++) {
        uint8_t c = (uint8_t)i;
        add_line(&b, &c, 1, i);
    }
    return b;
}

static void refuses(const char *ranks, size_t n, const char *config, int code, const char *part)
{
    struct tok *t = (struct tok *)1;
    struct err e = {0};
    int r = tok_open(ranks, n, config, config ? strlen(config) : 0, &t, &e);
    if (r != code || t || !strstr(e.msg, part)) {
        fail_msg("want %d and \"%s\", have %d and \"%s\"", code, part, r, e.msg);
    }
    assert_int_equal(tok_open(ranks, n, config, config ? strlen(config) : 0, &t, NULL), code);
}

/* The good file with `line` (1-based) replaced by `text`. */
static void refuses_line(unsigned line, const char *text, int code, const char *part)
{
    struct buf good = byte_ranks(), bad;
    buf_init(&bad, 1 << 22);
    const char *p = good.p;
    for (unsigned i = 1; i < line; i++) {
        p = strchr(p, '\n') + 1;
    }
    assert_int_equal(buf_add(&bad, good.p, (size_t)(p - good.p)), 0);
    assert_int_equal(buf_adds(&bad, text), 0);
    assert_int_equal(buf_adds(&bad, strchr(p, '\n') + 1), 0);
    refuses(bad.p, bad.n, NULL, code, part);
    buf_free(&good);
    buf_free(&bad);
}

static void malformed_rank_files(void **state)
{
    refuses("", 0, NULL, ERR_FORMAT, "no line for the single byte 0x00");
    refuses("AA== 0", 6, NULL, ERR_FORMAT, "no line for the single byte 0x01");
    refuses_line(4, "A*== 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "Aw= 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "Aw 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "Ax== 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "AwA= 3\nAwA= 4\n", ERR_FORMAT, "line 6 has rank 4, want 5");
    refuses_line(4, "AwB= 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "A=== 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "==== 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "Aw==Aw== 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, " 3\n", ERR_FORMAT, "line 4: the token is not valid base64");
    refuses_line(4, "Aw==\n", ERR_FORMAT, "line 4 has no space");
    refuses_line(4, "\n", ERR_FORMAT, "line 4 is empty");
    refuses_line(4, "Aw== 3\r\n", ERR_FORMAT, "line 4 ends in CR LF");
    refuses_line(4, "Aw== 2\n", ERR_FORMAT, "line 4 has rank 2, want 3");
    refuses_line(4, "Aw== 4\n", ERR_FORMAT, "line 4 has rank 4, want 3");
    refuses_line(4, "Aw== 03\n", ERR_FORMAT, "line 4: the rank is not a decimal number");
    refuses_line(4, "Aw== 3 \n", ERR_FORMAT, "line 4: the rank is not a decimal number");
    refuses_line(4, "Aw== -3\n", ERR_FORMAT, "line 4: the rank is not a decimal number");
    refuses_line(4, "Aw== \n", ERR_FORMAT, "line 4: the rank is not a decimal number");
    refuses_line(4, "Aw== 4294967299\n", ERR_FORMAT, "line 4: the rank is not a decimal number");
    refuses_line(4, "", ERR_FORMAT, "line 4 has rank 4, want 3");
    refuses_line(9, "Aw== 8\n", ERR_FORMAT, "line 9: the same token as on line 4");
    refuses_line(256, "AAE= 255\n", ERR_FORMAT, "no line for the single byte 0xff");
    refuses_line(256, "/w== 255\n\n", ERR_FORMAT, "line 257 is empty");
}

static void maxima_of_rank_files(void **state)
{
    static const uint8_t zeros[TOK_MAX_TOKEN + 100];
    struct buf b = byte_ranks();
    size_t n = b.n;
    struct tok *t;
    add_line(&b, zeros, TOK_MAX_TOKEN, 256);
    assert_int_equal(tok_open(b.p, b.n, NULL, 0, &t, NULL), 0);
    size_t len;
    assert_non_null(tok_bytes(t, 256, &len));
    assert_int_equal(len, TOK_MAX_TOKEN);
    tok_close(t);
    for (size_t over = 1; over < 100; over++) {
        b.n = n;
        add_line(&b, zeros, TOK_MAX_TOKEN + over, 256);
        refuses(b.p, b.n, NULL, ERR_LIMIT, "line 257: the token has more than 1024 bytes");
    }
    buf_free(&b);

    char *lines = malloc(TOK_MAX_FILE + 1);
    memset(lines, '\n', TOK_MAX_FILE + 1);
    refuses(lines, TOK_MAX_FILE + 1, NULL, ERR_LIMIT, "more than 67108864");
    refuses(lines, TOK_MAX_RANKS + 1, NULL, ERR_LIMIT, "more than 1048576");
    refuses(lines, TOK_MAX_RANKS, NULL, ERR_FORMAT, "line 1 is empty");
    free(lines);
}

static void malformed_configs(void **state)
{
    struct buf b = byte_ranks();
    static const struct {
        const char *config, *part;
        int code;
    } bad[] = {
        {"", "is not valid JSON", ERR_FORMAT},
        {"{", "is not valid JSON", ERR_FORMAT},
        {"[]", "is not a JSON object", ERR_FORMAT},
        {"{\"added_tokens_decoder\": []}", "is not an object", ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"255\": {\"content\": \"x\"}}}", "names id \"255\"",
         ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"512\": {\"content\": \"x\"}}}", "names id \"512\"",
         ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"-1\": {\"content\": \"x\"}}}", "names id \"-1\"",
         ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"0256\": {\"content\": \"x\"}}}", "names id \"0256\"",
         ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"4294967552\": {\"content\": \"x\"}}}", "names id",
         ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"256\": \"x\"}}", "id 256 wants a string", ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"256\": {}}}", "id 256 wants a string", ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": 1}}}", "id 256 wants a string",
         ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"x\", \"special\": 1}}}",
         "id 256 wants a string", ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"\"}}}", "has 0 bytes", ERR_LIMIT},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"a\\u0000\"}}}", "not valid JSON",
         ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"x\"}, \"256\": {\"content\": "
         "\"y\"}}}",
         "not valid JSON", ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"300\": {\"content\": \"x\"}, \"256\": {\"content\": "
         "\"x\"}}}",
         "256 and 300 have the same spelling", ERR_FORMAT},
        {"{\"added_tokens_decoder\": {\"256\": {\"content\": \"<|reserved_token_257|>\"}}}",
         "256 and 257 have the same spelling", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refuses(b.p, b.n, bad[i].config, bad[i].code, bad[i].part);
        refuses(b.p, b.n, bad[i].config, bad[i].code, "tokenizer_config.json");
    }
    struct buf c;
    buf_init(&c, 1 << 22);
    assert_int_equal(buf_adds(&c, "{\"added_tokens_decoder\": {\"256\": {\"content\": \""), 0);
    for (int i = 0; i < TOK_MAX_SPECIAL + 1; i++) {
        assert_int_equal(buf_adds(&c, "x"), 0);
    }
    assert_int_equal(buf_adds(&c, "\"}}}"), 0);
    refuses(b.p, b.n, c.p, ERR_LIMIT, "has 257 bytes");
    while (c.n <= TOK_MAX_CONFIG) {
        assert_int_equal(buf_adds(&c, "                "), 0);
    }
    refuses(b.p, b.n, c.p, ERR_LIMIT, "tokenizer_config.json has");
    buf_free(&c);
    /* An empty config and names swapped with the reserved ones are fine. */
    struct tok *t;
    assert_int_equal(tok_open(b.p, b.n, "{}", 2, &t, NULL), 0);
    tok_close(t);
    static const char swap[] =
        "{\"added_tokens_decoder\": {\"256\": {\"content\": \"<|reserved_token_257|>\"},"
        " \"257\": {\"content\": \"<|reserved_token_256|>\"}}}";
    assert_int_equal(tok_open(b.p, b.n, swap, sizeof swap - 1, &t, NULL), 0);
    uint32_t id;
    assert_true(tok_special_id(t, "<|reserved_token_256|>", &id));
    assert_int_equal(id, 257);
    tok_close(t);
    buf_free(&b);
}

static void special_ids(void **state)
{
    static const struct {
        const char *name;
        uint32_t id;
        bool skipped;
    } want[] = {
        {"[BOS]", 0, true},
        {"[EOS]", 1, true},
        {"<|end_of_msg|>", 2, true},
        {"<|open|>", 3, false},
        {"<|close|>", 4, false},
        {"<|sep|>", 5, false},
        {"[start_header_id]", 6, true},
        {"[end_header_id]", 7, true},
        {"<|reserved_token_2824|>", 8, true},
        {"[EOT]", 9, true},
        {"<|media_begin|>", 18, true},
        {"<|media_content|>", 19, true},
        {"<|media_end|>", 20, true},
        {"<|media_pad|>", 21, true},
        {"<osagent_mode>", 65, true},
        {"<|reserved_token_3069|>", 253, true},
        {"[UNK]", 254, true},
        {"[PAD]", 255, true},
    };
    assert_int_equal(tok_ranks(demo), 2816);
    assert_int_equal(tok_vocab(demo), 3072);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        uint32_t id;
        assert_true(tok_special_id(demo, want[i].name, &id));
        assert_int_equal(id, 2816 + want[i].id);
        assert_true(tok_is_special(demo, id));
        assert_int_equal(tok_is_skipped(demo, id), want[i].skipped);
        size_t n;
        const char *p = tok_bytes(demo, id, &n);
        assert_int_equal(n, strlen(want[i].name));
        assert_memory_equal(p, want[i].name, n);
    }
    uint32_t id = 7;
    static const char *const not [] = {
        "", "<|open|", "<|open|>x", "<|reserved_token_2816|>", "<|reserved_token_3072|>", "the"};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
        assert_false(tok_special_id(demo, not [i], &id));
    }
    assert_int_equal(id, 7);
    assert_false(tok_is_special(demo, 2815));
    assert_false(tok_is_special(demo, 3072));
    assert_false(tok_is_skipped(demo, 0));
    size_t n = 1;
    assert_null(tok_bytes(demo, 3072, &n));
    assert_int_equal(n, 0);
    /* Each special spelling is one id in trusted text, and never a special one in ordinary text. */
    for (id = 2816; id < 3072; id++) {
        const char *p = tok_bytes(demo, id, &n);
        struct tok_ids ids = {0};
        assert_int_equal(tok_encode(demo, p, n, true, &ids, NULL), 0);
        assert_int_equal(ids.n, 1);
        assert_int_equal(ids.v[0], id);
        ids.n = 0;
        assert_int_equal(tok_encode(demo, p, n, false, &ids, NULL), 0);
        for (size_t k = 0; k < ids.n; k++) {
            assert_true(ids.v[k] < 2816);
        }
        tok_ids_free(&ids);
    }
}

static void longest_special_wins(void **state)
{
    static const char config[] =
        "{\"added_tokens_decoder\": {\"256\": {\"content\": \"ab\"}, \"257\": {\"content\": "
        "\"abcd\"}, \"258\": {\"content\": \"\xc3\xa9\"}, \"259\": {\"content\": \"a\"}}}";
    struct buf b = byte_ranks();
    struct tok *t;
    assert_int_equal(tok_open(b.p, b.n, config, sizeof config - 1, &t, NULL), 0);
    static const char text[] = "aabababcabcd\xc3\xa9\xc3\xaa";
    static const uint32_t want[] = {259, 256, 256, 256, 'c', 257, 258, 0xc3, 0xaa};
    struct tok_ids ids = {0};
    assert_int_equal(tok_encode(t, text, sizeof text - 1, true, &ids, NULL), 0);
    assert_int_equal(ids.n, sizeof want / sizeof *want);
    assert_memory_equal(ids.v, want, sizeof want);
    tok_ids_free(&ids);
    tok_close(t);
    buf_free(&b);
}

static void ids_are_appended(void **state)
{
    struct tok_ids ids;
    tok_ids_init(&ids);
    assert_int_equal(tok_ids_add(&ids, 42), 0);
    assert_int_equal(tok_encode(demo, NULL, 0, true, &ids, NULL), 0);
    assert_int_equal(ids.n, 1);
    assert_int_equal(tok_encode(demo, "a", 1, false, &ids, NULL), 0);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.v[0], 42);
    struct err e = {0};
    assert_int_equal(tok_encode(demo, "a", (size_t)TOK_MAX_TEXT + 1, false, &ids, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "1073741825 bytes"));
    assert_int_equal(ids.n, 2);
    tok_ids_free(&ids);
    assert_int_equal(ids.n, 0);
}

/* Feed p[0..n) in pieces of `cut` bytes (0: at random); returns the whole output. */
static struct buf streamed(const uint8_t *p, size_t n, size_t cut, uint32_t *x)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    struct tok_stream s = {0};
    for (size_t i = 0; i < n;) {
        size_t len = cut ? cut : draw(x, 6);
        len = len < n - i ? len : n - i;
        assert_int_equal(buf_reserve(&out, TOK_STREAM_ROOM(len)), 0);
        out.n += tok_stream_push(&s, p + i, len, out.p + out.n);
        assert_true(s.n <= 3);
        i += len;
    }
    assert_int_equal(buf_reserve(&out, 3), 0);
    out.n += tok_stream_flush(&s, out.p + out.n);
    assert_int_equal(s.n, 0);
    assert_int_equal(tok_stream_flush(&s, out.p + out.n), 0);
    return out;
}

#define R "\xef\xbf\xbd" /* U+FFFD */

static void no_more_than_a_maximum(void **state)
{
    (void)state;
    struct tok_ids ids = {.max = 10};
    struct err e = {0};
    char digits[64];
    memset(digits, '7', sizeof digits);
    assert_int_equal(tok_encode(demo, "ab", 2, false, &ids, &e), 0);
    size_t had = ids.n;
    assert_int_equal(tok_encode(demo, digits, sizeof digits, false, &ids, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "more than 10 tokens"));
    assert_int_equal(ids.n, had);
    ids.max = 0;
    assert_int_equal(tok_encode(demo, digits, sizeof digits, false, &ids, &e), 0);
    assert_true(ids.n > 10);
    tok_ids_free(&ids);
}

static void stream_of_known_sequences(void **state)
{
    /* Tables 3-8 to 3-11 of the Unicode standard, chapter 3.9, and the bounds of each row. */
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", R R R R R R R R "A"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A"},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A"},
        {"\xc2\x80\xdf\xbf", "\xc2\x80\xdf\xbf"},
        {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80", "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80"},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\xf0\x8f\xbf\xbf", R R R R},
        {"\xf5\x80\xc1\xbf", R R R R},
        {"\xe4\xb8", R},
        {"\xf0\x9f\x98", R},
        {"\xf0\x9f\x98\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80"},
        {"a\xc3", "a" R},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t cut = 1; cut < 12; cut++) {
            struct buf b = streamed((const uint8_t *)rows[i].in, strlen(rows[i].in), cut, NULL);
            assert_int_equal(b.n, strlen(rows[i].out));
            assert_memory_equal(b.p, rows[i].out, b.n);
            buf_free(&b);
        }
    }
    /* Nothing is held back longer than needed. */
    struct tok_stream s = {0};
    char dst[TOK_STREAM_ROOM(4)];
    assert_int_equal(tok_stream_push(&s, "\xf0\x9f\x98", 3, dst), 0);
    assert_int_equal(tok_stream_push(&s, "\x80", 1, dst), 4);
    assert_int_equal(tok_stream_push(&s, "\xe4", 1, dst), 0);
    assert_int_equal(tok_stream_push(&s, "z", 1, dst), 4); /* U+FFFD and z */
}

static void add_some_bytes(struct buf *b, uint32_t *x)
{
    static const char *const parts[] = {
        "hello ",   "\xc3\xa9",     "\xe4\xb8\xad", "\xf0\x9f\x98\x80",
        " ",        "\n",           "<|open|>",     "\xe4",
        "\xe4\xb8", "\xf0\x9f\x98", "\xed\xa0",     "\x80",
        "\xff",     "12345",        "\xcc\x81",     "'s",
        "ABC",      "[EOS]",        "\xf4\x90",     "\xe0\x9f",
    };
    for (uint32_t n = draw(x, 30); n; n--) {
        if (draw(x, 3)) {
            assert_int_equal(buf_adds(b, parts[draw(x, sizeof parts / sizeof *parts)]), 0);
        } else {
            char c = (char)draw(x, 256);
            assert_int_equal(buf_add(b, &c, 1), 0);
        }
    }
    assert_int_equal(buf_reserve(b, 0), 0);
}

/* Any bytes: every way of cutting the stream gives one text; encoding gives the ids of that text,
 * and they decode to it. */
static void random_bytes_round_trip(void **state)
{
    uint32_t x = 12345;
    for (int round = 0; round < 3000; round++) {
        struct buf in;
        buf_init(&in, 1 << 16);
        add_some_bytes(&in, &x);
        const uint8_t *p = (const uint8_t *)in.p;
        struct buf text = streamed(p, in.n, in.n + 1, &x);
        for (size_t cut = 0; cut < 4; cut++) {
            struct buf other = streamed(p, in.n, cut, &x);
            assert_int_equal(other.n, text.n);
            assert_memory_equal(other.p, text.p, text.n);
            buf_free(&other);
        }
        for (int trusted = 0; trusted < 2; trusted++) {
            struct tok_ids a = {0}, b = {0};
            assert_int_equal(tok_encode(demo, in.p, in.n, trusted, &a, NULL), 0);
            assert_int_equal(tok_encode(demo, text.p, text.n, trusted, &b, NULL), 0);
            assert_int_equal(a.n, b.n);
            struct buf back;
            buf_init(&back, 1 << 16);
            for (size_t i = 0; i < a.n; i++) {
                assert_int_equal(a.v[i], b.v[i]);
                size_t len;
                const char *s = tok_bytes(demo, a.v[i], &len);
                assert_int_equal(buf_add(&back, s, len), 0);
            }
            assert_int_equal(back.n, text.n);
            if (text.n) {
                assert_memory_equal(back.p, text.p, text.n);
            }
            buf_free(&back);
            tok_ids_free(&a);
            tok_ids_free(&b);
        }
        buf_free(&text);
        buf_free(&in);
    }
}

/* The definition, step by step: of all adjacent parts whose join is a token, the lowest rank, the
 * leftmost of equals. */
static size_t plain_merge(char tokens[][8], size_t tokens_n, const char *p, size_t n, uint32_t *out)
{
    size_t cut[65], parts = n;
    for (size_t i = 0; i <= n; i++) {
        cut[i] = i;
    }
    for (;;) {
        size_t best = tokens_n, at = 0;
        for (size_t i = 0; i + 2 <= parts; i++) {
            size_t len = cut[i + 2] - cut[i];
            for (size_t k = 0; k < best; k++) {
                if (strlen(tokens[k]) == len && !memcmp(tokens[k], p + cut[i], len)) {
                    best = k;
                    at = i;
                }
            }
        }
        if (best == tokens_n) {
            break;
        }
        memmove(cut + at + 1, cut + at + 2, (parts - at - 1) * sizeof *cut);
        parts--;
    }
    for (size_t i = 0; i < parts; i++) {
        size_t len = cut[i + 1] - cut[i];
        out[i] = (uint8_t)p[cut[i]];
        for (size_t k = 0; len > 1 && k < tokens_n; k++) {
            if (strlen(tokens[k]) == len && !memcmp(tokens[k], p + cut[i], len)) {
                out[i] = (uint32_t)(256 + k);
            }
        }
    }
    return parts;
}

/* Vocabularies of random strings, many of which no merge can reach, in random order. */
static void merges_follow_the_definition(void **state)
{
    uint32_t x = 99;
    for (int round = 0; round < 60; round++) {
        char tokens[40][8];
        size_t n = 0;
        struct buf b = byte_ranks();
        while (n < 40) {
            char s[8] = {0};
            for (uint32_t len = 2 + draw(&x, 5), i = 0; i < len; i++) {
                s[i] = (char)('a' + draw(&x, 2 + (uint32_t)round % 3));
            }
            size_t k = 0;
            while (k < n && strcmp(tokens[k], s)) {
                k++;
            }
            if (k == n) {
                memcpy(tokens[n++], s, 8);
                add_line(&b, s, strlen(s), (unsigned)(255 + n));
            }
        }
        struct tok *t;
        assert_int_equal(tok_open(b.p, b.n, NULL, 0, &t, NULL), 0);
        for (int k = 0; k < 60; k++) {
            char text[64];
            uint32_t want[64];
            size_t len = 1 + draw(&x, 64);
            for (size_t i = 0; i < len; i++) {
                text[i] = (char)('a' + draw(&x, 2 + (uint32_t)round % 3));
            }
            size_t ids_n = 1;
            want[0] = TOK_MAX_RANKS;
            for (size_t i = 0; i < n; i++) { /* a whole piece that is a token is that token */
                if (strlen(tokens[i]) == len && !memcmp(tokens[i], text, len)) {
                    want[0] = (uint32_t)(256 + i);
                }
            }
            if (want[0] == TOK_MAX_RANKS) {
                ids_n = plain_merge(tokens, n, text, len, want);
            }
            struct tok_ids ids = {0};
            assert_int_equal(tok_encode(t, text, len, false, &ids, NULL), 0);
            assert_int_equal(ids.n, ids_n);
            assert_memory_equal(ids.v, want, ids_n * sizeof *want);
            tok_ids_free(&ids);
        }
        tok_close(t);
        buf_free(&b);
    }
}

static void unicode_classes(void **state)
{
    size_t python = 0, space = 0, han = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        uint8_t f = unicode_class(c);
        python += unicode_python_space(c);
        space += !!(f & UC_SPACE);
        han += !!(f & UC_HAN);
        assert_false(f & UC_HAN && f & (UC_UPPER | UC_LOWER));
        /* A letter that is not Han is in one of the two sets: every text is cut somewhere. */
        assert_false(f & UC_LETTER && !(f & (UC_UPPER | UC_LOWER | UC_HAN)));
    }
    assert_int_equal(python, 29);
    assert_int_equal(space, 25);
    assert_int_equal(han, 99030);
    static const struct {
        uint32_t c;
        uint8_t flags;
    } some[] = {
        {'A', UC_UPPER | UC_LETTER},
        {'z', UC_LOWER | UC_LETTER},
        {'5', UC_NUMBER},
        {' ', UC_SPACE},
        {'\n', UC_SPACE | UC_CRLF},
        {'!', 0},
        {0x1c, 0},
        {0x01c5, UC_UPPER | UC_LETTER},            /* Lt */
        {0x0301, UC_UPPER | UC_LOWER},             /* Mn */
        {0x02b0, UC_UPPER | UC_LOWER | UC_LETTER}, /* Lm */
        {0x4e2d, UC_HAN | UC_LETTER},
        {0x3007, UC_HAN | UC_NUMBER},
        {0x2e80, UC_HAN}, /* So */
        {0x30fc, UC_UPPER | UC_LOWER | UC_LETTER},
        {0x1c89, UC_UPPER | UC_LETTER}, /* new in Unicode 16 */
        {0x088f, 0},                    /* a letter from Unicode 17 on */
        {0x10ffff, 0},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        assert_int_equal(unicode_class(some[i].c), some[i].flags);
    }
}

static void *encode_often(void *arg)
{
    static const char text[] =
        "One <|open|>tokenizer<|close|> for all threads: \xe4\xb8\xad 123!\n";
    for (int i = 0; i < 300; i++) {
        struct tok_ids *ids = arg;
        ids->n = 0;
        if (tok_encode(demo, text, sizeof text - 1, true, ids, NULL)) {
            return arg;
        }
    }
    return NULL;
}

static void threads_share_one(void **state)
{
    pthread_t th[4];
    struct tok_ids ids[4] = {{0}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&th[i], NULL, encode_often, &ids[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *r;
        assert_int_equal(pthread_join(th[i], &r), 0);
        assert_null(r);
        assert_int_equal(ids[i].n, ids[0].n);
        assert_memory_equal(ids[i].v, ids[0].v, ids[0].n * sizeof *ids[0].v);
    }
    for (int i = 0; i < 4; i++) {
        tok_ids_free(&ids[i]);
    }
}

int main(void)
{
    demo = fixture_tok();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_rank_files),    cmocka_unit_test(maxima_of_rank_files),
        cmocka_unit_test(malformed_configs),       cmocka_unit_test(special_ids),
        cmocka_unit_test(longest_special_wins),    cmocka_unit_test(ids_are_appended),
        cmocka_unit_test(no_more_than_a_maximum),  cmocka_unit_test(stream_of_known_sequences),
        cmocka_unit_test(random_bytes_round_trip), cmocka_unit_test(merges_follow_the_definition),
        cmocka_unit_test(unicode_classes),         cmocka_unit_test(threads_share_one),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tok_close(demo);
    return r;
}
