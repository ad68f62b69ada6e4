/* SPDX-License-Identifier: MIT
 * t_crypto.c: keys, certificates, signatures and sealing against published vectors and the
 * openssl command line; base 32 that survives people. */
#include "peer/home_util.h"
#include "peer/rng.h"

#include "peer/b32.h"
#include "peer/identity.h"

static const char machine_a[] = "0123456789abcdef0123456789abcdef";

static void unhex(const char *h, uint8_t *out)
{
    for (size_t i = 0; h[2 * i]; i++) {
        char two[3] = {h[2 * i], h[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(two, NULL, 16);
    }
}

static void primitives_match_published_vectors(void **s)
{
    struct err e = {0};
    uint8_t got[64], want[64], key[32], nonce[12], in[64];
    /* RFC 4231 case 2 */
    assert_int_equal(crypto_hmac("Jefe", 4, "what do ya want for nothing?", 28, got), 0);
    unhex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", want);
    assert_memory_equal(got, want, 32);
    /* RFC 5869 case 3: no salt, no info */
    memset(in, 0x0b, 22);
    assert_int_equal(crypto_hkdf(NULL, 0, in, 22, "", got, 42), 0);
    unhex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
          want);
    assert_memory_equal(got, want, 42);
    /* RFC 7914 section 11 */
    assert_int_equal(crypto_pbkdf2("passwd", 6, "salt", 4, 1, got, 64), 0);
    unhex("55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
          "49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783",
          want);
    assert_memory_equal(got, want, 64);
    /* GCM specification, test case 14: zero key, nonce and block */
    memset(key, 0, 32);
    memset(nonce, 0, 12);
    memset(in, 0, 16);
    ok(crypto_seal(key, nonce, NULL, 0, in, 16, got, &e));
    unhex("cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919", want);
    assert_memory_equal(got, want, 32);
    uint8_t back[16];
    ok(crypto_open(key, nonce, NULL, 0, got, 32, back, &e));
    assert_memory_equal(back, in, 16);
    for (int i = 0; i < 32 * 8; i++) { /* any flipped bit is noticed */
        got[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(crypto_open(key, nonce, NULL, 0, got, 32, back, NULL), ERR_DIGEST);
        got[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    assert_int_equal(crypto_open(key, nonce, "x", 1, got, 32, back, NULL), ERR_DIGEST);
    assert_int_equal(crypto_open(key, nonce, NULL, 0, got, 15, back, NULL), ERR_FORMAT);
    assert_true(crypto_equal("abc", "abc", 3) && !crypto_equal("abc", "abd", 3));
}

/* RFC 6979 A.2.5: the key, its point, the deterministic signature of "sample" with SHA-256. */
static void a_known_key_has_its_known_point_and_signature(void **s)
{
    struct err e = {0};
    struct crypto_key *k;
    uint8_t d[32], want[65], back[32], sig[CRYPTO_SIG_MAX];
    size_t n;
    unhex("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721", d);
    ok(crypto_key_from_secret(d, &k, &e));
    unhex("0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
          "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
          want);
    assert_memory_equal(crypto_key_public(k), want, 65);
    ok(crypto_key_secret(k, back, &e));
    assert_memory_equal(back, d, 32);
    ok(crypto_verify(want, "sample", 6,
                     (const uint8_t *)"\x30\x46\x02\x21\x00\xef\xd4\x8b\x2a\xac\xb6\xa8\xfd\x11\x40"
                                      "\xdd\x9c\xd4\x5e\x81\xd6\x9d\x2c\x87\x7b\x56\xaa\xf9\x91\xc3"
                                      "\x4d\x0e\xa8\x4e\xaf\x37\x16\x02\x21\x00\xf7\xcb\x1c\x94\x2d"
                                      "\x65\x7c\x41\xd4\x36\xc7\xa1\xb6\xe2\x9f\x65\xf3\xe9\x00\xdb"
                                      "\xb9\xaf\xf4\x06\x4d\xc4\xab\x2f\x84\x3a\xcd\xa8",
                     72, &e));
    ok(crypto_sign(k, "sample", 6, sig, &n, &e));
    ok(crypto_verify(want, "sample", 6, sig, n, &e));
    assert_int_equal(crypto_verify(want, "samplf", 6, sig, n, NULL), ERR_DIGEST);
    sig[n - 1] ^= 1;
    assert_int_equal(crypto_verify(want, "sample", 6, sig, n, NULL), ERR_DIGEST);
    want[64] ^= 1; /* off the curve */
    fails(crypto_public_check(want, &e), ERR_FORMAT, "P-256");
    memset(want, 0, 65);
    fails(crypto_public_check(want, &e), ERR_FORMAT, "P-256");
    memset(d, 0, 32);
    struct crypto_key *none;
    assert_int_equal(crypto_key_from_secret(d, &none, NULL), ERR_FORMAT);
    memset(d, 0xff, 32); /* above the group order */
    assert_int_equal(crypto_key_from_secret(d, &none, NULL), ERR_FORMAT);
    assert_null(none);
    crypto_key_free(k);
}

static void openssl_agrees_on_key_id_certificate_and_signature(void **s)
{
    struct err e = {0};
    if (!have_openssl()) {
        skip();
    }
    char *home = temp_home();
    struct identity me;
    ok(identity_open(home, machine_a, &me, &e));
    char *key = at(home, "identity/node.key"), *cert = at(home, "cert.der");
    assert_int_equal(shell("openssl ec -in '%s' -noout -check >/dev/null 2>&1", key), 0);
    char *hex = output("openssl pkey -in '%s' -pubout -outform DER 2>/dev/null | openssl dgst "
                       "-sha256 -r | cut -c1-64",
                       key);
    char mine[65];
    sha256_hex(me.id.b, mine);
    assert_string_equal(hex, mine);
    free(hex);

    uint8_t der[CRYPTO_CERT_MAX], pub[CRYPTO_PUBLIC], sig[CRYPTO_SIG_MAX];
    size_t n;
    ok(crypto_certificate(me.key, der, &n, &e));
    put(cert, der, n, 0600);
    char *text = output("openssl x509 -inform DER -in '%s' -noout -text 2>&1", cert);
    assert_non_null(text);
    assert_non_null(strstr(text, "Version: 3"));
    assert_non_null(strstr(text, "ecdsa-with-SHA256"));
    assert_non_null(strstr(text, "prime256v1"));
    assert_non_null(strstr(text, "Subject: CN = shoal\n"));
    assert_non_null(strstr(text, "Issuer: CN = shoal\n"));
    assert_non_null(strstr(text, "Not After : Dec 31 23:59:59 9999 GMT"));
    free(text);
    assert_int_equal(shell("openssl x509 -inform DER -in '%s' -out '%s/c.pem' && openssl verify "
                           "-check_ss_sig -CAfile '%s/c.pem' '%s/c.pem' >/dev/null 2>&1",
                           cert, home, home, home),
                     0);
    ok(crypto_certificate_key(der, n, pub, &e));
    assert_memory_equal(pub, crypto_key_public(me.key), sizeof pub);
    assert_int_not_equal(crypto_certificate_key(der, n - 1, pub, NULL), 0);
    der[n] = 0;
    assert_int_not_equal(crypto_certificate_key(der, n + 1, pub, NULL), 0);

    put(at(home, "msg"), "a message", 9, 0600);
    ok(crypto_sign(me.key, "a message", 9, sig, &n, &e));
    put(at(home, "sig"), sig, n, 0600);
    const char *verify =
        "openssl pkey -in '%s/identity/node.key' -pubout -out '%s/pub' 2>/dev/null "
        "&& openssl dgst -sha256 -verify '%s/pub' -signature '%s/sig' '%s/msg' "
        ">/dev/null";
    assert_int_equal(shell(verify, home, home, home, home, home), 0);
    put(at(home, "msg"), "a massage", 9, 0600);
    assert_int_not_equal(shell(verify, home, home, home, home, home), 0);

    /* keys of other kinds are refused, in key files and in certificates */
    static const char *const kinds[] = {"RSA -pkeyopt rsa_keygen_bits:1024", "ED25519",
                                        "EC -pkeyopt ec_paramgen_curve:P-384"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            shell("openssl genpkey -algorithm %s -out '%s/k' 2>/dev/null && openssl "
                  "req -x509 -new -key '%s/k' -subj /CN=x -outform DER -out '%s/k.der' "
                  "2>/dev/null",
                  kinds[i], home, home, home),
            0);
        struct buf b = slurp(at(home, "k.der"));
        assert_int_equal(crypto_certificate_key(b.p, b.n, pub, NULL), ERR_FORMAT);
        buf_free(&b);
    }
    assert_int_equal(
        shell("openssl ecparam -name secp384r1 -genkey -noout -out '%s' 2>/dev/null", key), 0);
    chmod(key, 0600);
    identity_close(&me);
    fails(identity_open(home, machine_a, &me, &e), ERR_FORMAT, "P-256");
    /* another P-256 key in its place is noticed, too */
    assert_int_equal(
        shell("openssl ecparam -name prime256v1 -genkey -noout -out '%s' 2>/dev/null", key), 0);
    fails(identity_open(home, machine_a, &me, &e), ERR_FORMAT, "this folder belongs to node");
    drop_home(home);
}

static void sealed_for_one_key(void **s)
{
    struct err e = {0};
    struct crypto_key *a, *b;
    uint8_t box[40 + CRYPTO_SEAL_EXTRA], box2[sizeof box], out[40];
    const char *p = "forty bytes that only one key may read.";
    ok(crypto_key_make(&a, &e));
    ok(crypto_key_make(&b, &e));
    ok(crypto_seal_for(crypto_key_public(a), "ctx", p, 40, box, &e));
    ok(crypto_seal_for(crypto_key_public(a), "ctx", p, 40, box2, &e));
    assert_memory_not_equal(box, box2, sizeof box);
    ok(crypto_open_own(a, "ctx", box, sizeof box, out, &e));
    assert_memory_equal(out, p, 40);
    assert_int_equal(crypto_open_own(b, "ctx", box, sizeof box, out, NULL), ERR_DIGEST);
    assert_int_equal(crypto_open_own(a, "ctx2", box, sizeof box, out, NULL), ERR_DIGEST);
    assert_int_equal(crypto_open_own(a, "ctx", box, CRYPTO_SEAL_EXTRA - 1, out, NULL), ERR_FORMAT);
    for (size_t i = 0; i < sizeof box; i += 7) {
        box[i] ^= 0x10;
        assert_int_not_equal(crypto_open_own(a, "ctx", box, sizeof box, out, NULL), 0);
        box[i] ^= 0x10;
    }
    crypto_key_free(a);
    crypto_key_free(b);
}

static void base32_round_trips_and_is_strict(void **s)
{
    struct err e = {0};
    uint8_t in[20], out[20];
    char text[64];
    size_t n;
    b32_encode("\x00\x44\x32\x14\xc7\x42\x54\xb6\x35\xcf\x84\x65\x3a\x56\xd7\xc6\x75\xbe\x77\xdf",
               20, text);
    assert_string_equal(text, "0123456789abcdefghjkmnpqrstvwxyz");
    struct rng rng = rng_start(7);
    for (int i = 0; i < 2000; i++) {
        size_t len = rng_below(&rng, 20);
        for (size_t j = 0; j < len; j++) {
            in[j] = (uint8_t)rng_below(&rng, 256);
        }
        b32_encode(in, len, text);
        assert_int_equal(strlen(text), B32_CHARS(len));
        assert_int_equal(b32_decode(text, strlen(text), out, len, &n), 0);
        assert_int_equal(n, len);
        assert_memory_equal(in, out, len);
        if (len) { /* leftover bits and a full buffer */
            assert_int_equal(b32_decode(text, strlen(text), out, len - 1, &n), ERR_LIMIT);
            if (len % 5) {
                char *last = &text[strlen(text) - 1];
                *last = "0123456789abcdefghjkmnpqrstvwxyz"[b32_value(*last) | 1];
                assert_int_equal(b32_decode(text, strlen(text), out, len, &n), ERR_FORMAT);
            }
        }
    }
    assert_int_equal(b32_decode("0", 1, out, 20, &n), ERR_FORMAT);
    assert_int_equal(b32_decode("0u", 2, out, 20, &n), ERR_FORMAT);
    struct buf b;
    buf_init(&b, 64);
    const char *pasted = "\xef\xbb\xbf> \xe2\x80\x9c"
                         "AbO\r\n> iL-1\xe2\x80\x8b\xc2\xa0"
                         "z\xe2\x80\x9d\t";
    ok(b32_clean("a thing", pasted, strlen(pasted), &b, &e));
    assert_string_equal(b.p, "ab0111z");
    buf_free(&b);
    fails(b32_clean("a thing", "ab!", 3, &b, &e), ERR_FORMAT,
          "character 3 ('!') does not belong in a thing");
    fails(b32_clean("a thing", "a\xc3\xa4", 3, &b, &e), ERR_FORMAT, "character 2 (U+00E4)");
    fails(b32_clean("a thing", "a\xff", 2, &b, &e), ERR_FORMAT, "U+FFFD");
    fails(b32_clean("a thing", "a\0", 2, &b, &e), ERR_FORMAT, "U+0000");
    fails(b32_clean("a thing", "\xf0\x9f", 2, &b, &e), ERR_FORMAT, "U+FFFD");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(primitives_match_published_vectors),
        cmocka_unit_test(a_known_key_has_its_known_point_and_signature),
        cmocka_unit_test(openssl_agrees_on_key_id_certificate_and_signature),
        cmocka_unit_test(sealed_for_one_key),
        cmocka_unit_test(base32_round_trips_and_is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
