/* SPDX-License-Identifier: MIT
 * t_token.c: the text of an invite against what copying and people do to it. */
#include "peer/home_util.h"
#include "peer/rng.h"

#include "peer/b32.h"
#include "peer/token.h"

static bool same_token(const struct token *a, const struct token *b)
{
    bool same = memcmp(a->group, b->group, TOKEN_GROUP) == 0 &&
                memcmp(a->secret, b->secret, TOKEN_SECRET) == 0 && a->addrs_n == b->addrs_n;
    for (size_t i = 0; same && i < a->addrs_n; i++) {
        same =
            strcmp(a->addrs[i].host, b->addrs[i].host) == 0 && a->addrs[i].port == b->addrs[i].port;
    }
    return same;
}

static void fixed_token(struct token *t)
{
    struct err e = {0};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < 16; i++) {
        t->group[i] = (uint8_t)(i * 16 + i);
        t->secret[i] = (uint8_t)(255 - i);
    }
    ok(token_add_address(t, "192.168.1.20", 7117, &e));
    ok(token_add_address(t, "FD00:0:0::7", 65535, &e));
    ok(token_add_address(t, "Annas-Mac.local", 1, &e));
}

static void the_text_is_as_written_down(void **s)
{
    struct err e = {0};
    struct token t, back;
    char text[TOKEN_TEXT_MAX];
    fixed_token(&t);
    assert_string_equal(t.addrs[1].host, "fd00::7");
    assert_string_equal(t.addrs[2].host, "annas-mac.local");
    token_text(&t, text);
    assert_memory_equal(text, "shoal1", 6);
    uint8_t raw[256], want[256], digest[32];
    size_t n, k = 0;
    ok(b32_decode(text + 6, strlen(text) - 6, raw, sizeof raw, &n));
    memcpy(want, t.group, 16);
    memcpy(want + 16, t.secret, 16);
    k = 32;
    want[k++] = 3;
    memcpy(want + k, "\x04\xc0\xa8\x01\x14\xcd\x1b", 7);
    k += 7;
    memcpy(want + k, "\x06\xfd\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\xff\xff", 19);
    k += 19;
    memcpy(want + k,
           "\x8f"
           "annas-mac.local\x01\x00",
           18);
    k += 18;
    assert_int_equal(n, k + 4);
    assert_memory_equal(raw, want, k);
    char all[300] = "shoal invite";
    memcpy(all + 12, want, k);
    sha256(all, 12 + k, digest);
    assert_memory_equal(raw + k, digest, 4);
    ok(token_parse(text, strlen(text), &back, &e));
    assert_true(same_token(&t, &back));
    /* a token of this version keeps its form for ever */
    assert_string_equal(text,
                        "shoal1008j4ct4ank7f24snaxwsqfezzzzxzfwzfxfky7qyvtz9wzjy7r06160n00h9k8v0"
                        "vyg00000000000000000000003zzzwfc5q6wrbk5npp2rsedhqp6rbc04016sprn0");
}

static void addresses_that_mean_something(void **s)
{
    struct err e = {0};
    struct token t = {0};
    static const char *const bad[] = {"",      "fe80::1",     "fe80::1%en0",   "10.0.0.256",
                                      "1.2.3", "a b",         "a_b",           "-a",
                                      ".a",    "10.0.0.1:80", "\xc3\xa4.local"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (token_add_address(&t, bad[i], 80, &e) != ERR_ARG) {
            fail_msg("taken: %s", bad[i]);
        }
    }
    fails(token_add_address(&t, "10.0.0.1", 0, &e), ERR_ARG, "port 0");
    char longer[70];
    memset(longer, 'a', 64);
    longer[64] = 0;
    fails(token_add_address(&t, longer, 80, &e), ERR_ARG, "no address");
    for (int i = 0; i < TOKEN_ADDRS_MAX; i++) {
        longer[63] = 0;
        longer[0] = (char)('b' + i);
        ok(token_add_address(&t, longer, 80, &e));
        ok(token_add_address(&t, longer, 80, &e)); /* twice is once */
    }
    fails(token_add_address(&t, "10.0.0.1", 80, &e), ERR_LIMIT, "at most 8");
    char text[TOKEN_TEXT_MAX];
    struct token back;
    token_text(&t, text); /* the longest there is */
    assert_true(strlen(text) < TOKEN_TEXT_MAX);
    ok(token_parse(text, strlen(text), &back, &e));
    assert_true(same_token(&t, &back));
}

/* What terminals, mail, chat and people do to a line of text. */
static void it_survives_copy_and_paste(void **s)
{
    struct err e = {0};
    static const char *const noise[] = {" ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "-",
                                        "\xe2\x80\x8b",
                                        "> ",
                                        "\xc2\xa0",
                                        "\xef\xbb\xbf",
                                        "\xe2\x80\x8d",
                                        "\xc2\xad",
                                        "\"",
                                        "\xe2\x80\x91",
                                        "\xe2\x80\xa8",
                                        "\xe2\x81\xa0",
                                        "`"};
    struct rng rng = rng_start(5);
    struct token t, back;
    char text[TOKEN_TEXT_MAX];
    for (int round = 0; round < 300; round++) {
        struct key_id group;
        for (size_t i = 0; i < sizeof group.b; i++) {
            group.b[i] = (uint8_t)rng_below(&rng, 256);
        }
        ok(token_make(&group, &t, &e));
        for (unsigned i = rng_below(&rng, 4); i > 0; i--) {
            char host[32];
            unsigned net = rng_below(&rng, 65536);
            snprintf(host, sizeof host, "10.%u.%u.%u", net / 256, net % 256, i);
            ok(token_add_address(&t, host, (uint16_t)(1 + rng_below(&rng, 65535)), &e));
        }
        token_text(&t, text);
        struct buf b;
        buf_init(&b, TOKEN_INPUT_MAX);
        for (const char *c = text; *c; c++) {
            while (rng_below(&rng, 8) == 0) {
                ok(buf_adds(&b, noise[rng_below(&rng, sizeof noise / sizeof *noise)]));
            }
            char x = *c;
            if (rng_below(&rng, 2) && x >= 'a') {
                x = (char)(x - 32);
            }
            x = x == '0' && rng_below(&rng, 2) ? 'o' : x == '1' && rng_below(&rng, 2) ? 'I' : x;
            ok(buf_add(&b, &x, 1));
        }
        ok(token_parse(b.p, b.n, &back, &e));
        assert_true(same_token(&t, &back));
        buf_free(&b);
    }
}

static void damage_is_told_from_nonsense(void **s)
{
    struct err e = {0};
    struct token t, back;
    char text[TOKEN_TEXT_MAX], bad[TOKEN_TEXT_MAX + 1];
    fixed_token(&t);
    token_text(&t, text);
    size_t n = strlen(text);
    for (size_t i = 6; i < n; i++) {
        for (const char *c = "0123456789abcdefghjkmnpqrstvwxyz"; *c; c++) {
            memcpy(bad, text, n + 1);
            if (bad[i] == *c) {
                continue;
            }
            bad[i] = *c; /* every single wrong character, */
            assert_int_equal(token_parse(bad, n, &back, &e), ERR_DIGEST);
        }
        if (i + 1 < n && text[i] != text[i + 1]) { /* every two swapped, */
            memcpy(bad, text, n + 1);
            bad[i] = text[i + 1];
            bad[i + 1] = text[i];
            assert_int_equal(token_parse(bad, n, &back, &e), ERR_DIGEST);
        }
        memcpy(bad, text, i); /* each one lost, */
        memcpy(bad + i, text + i + 1, n - i);
        assert_int_equal(token_parse(bad, n - 1, &back, &e), ERR_DIGEST);
        memcpy(bad, text, i + 1); /* each one doubled, */
        memcpy(bad + i + 1, text + i, n - i + 1);
        assert_int_equal(token_parse(bad, n + 1, &back, &e), ERR_DIGEST);
        /* and the end cut off anywhere */
        assert_int_equal(token_parse(text, i, &back, &e), ERR_DIGEST);
        assert_non_null(strstr(e.msg, "copy all of it"));
    }
    fails(token_parse("", 0, &back, &e), ERR_FORMAT, "begins with shoal1");
    fails(token_parse("shoal", 5, &back, &e), ERR_FORMAT, "begins with shoal1");
    fails(token_parse("hello", 5, &back, &e), ERR_FORMAT, "begins with shoal1");
    fails(token_parse("shoal2abcdef", 12, &back, &e), ERR_UNSUPPORTED, "another version");
    fails(token_parse("shoal1+abc", 10, &back, &e), ERR_FORMAT, "character 7 ('+')");
    char *big = malloc(TOKEN_INPUT_MAX + 1);
    memset(big, ' ', TOKEN_INPUT_MAX + 1);
    fails(token_parse(big, TOKEN_INPUT_MAX + 1, &back, &e), ERR_LIMIT, "too long");
    memset(big, 'a', TOKEN_INPUT_MAX);
    fails(token_parse(big, TOKEN_INPUT_MAX, &back, &e), ERR_LIMIT, "shorter than that");
    free(big);
    /* a good check over bytes in no valid form */
    static const char *const forms[] = {
        "\x01",                         /* an address announced, none there */
        "\x00\x04\x7f\0\0\x01\x50\x00", /* bytes after the last address */
        "\x01\x04\x7f\0\0\x01\x00\x00", /* port 0 */
        "\x01\x05\x7f\0\0\x01\x50\x00", /* no such kind */
        "\x01\x84"
        "A.b.\x50\x00", /* a capital: not its one form */
        "\x01\x87"
        "1.2.3.4\x50\x00", /* a number as a name */
        "\x02\x81"
        "a\x50\x00\x81"
        "a\x50\x00", /* twice the same */
        "\x01\x06\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x50\x00",
    };
    static const size_t lens[] = {1, 8, 8, 8, 8, 11, 9, 20};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint8_t raw[128] = {0}, d[32];
        char all[160] = "shoal invite";
        memcpy(raw + 32, forms[i], lens[i]);
        memcpy(all + 12, raw, 32 + lens[i]);
        sha256(all, 44 + lens[i], d);
        memcpy(raw + 32 + lens[i], d, 4);
        memcpy(bad, "shoal1", 6);
        b32_encode(raw, 36 + lens[i], bad + 6);
        if (token_parse(bad, strlen(bad), &back, &e) != ERR_FORMAT) {
            fail_msg("form %zu is taken", i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_as_written_down),
        cmocka_unit_test(addresses_that_mean_something),
        cmocka_unit_test(it_survives_copy_and_paste),
        cmocka_unit_test(damage_is_told_from_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
