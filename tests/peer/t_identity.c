/* SPDX-License-Identifier: MIT
 * t_identity.c: keys, certificates and ids against the openssl command line and published vectors;
 * the key file: made once, by one of many processes, never replaced whatever happens to it; a
 * copied folder and a node id that lives twice. */
#include "peer/home_util.h"

#include "peer/b32.h"
#include "peer/home.h"
#include "peer/identity.h"
#include "peer/instance.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static const char machine_a[] = "0123456789abcdef0123456789abcdef";
static const char machine_b[] = "fedcba9876543210fedcba9876543210";

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
    srand(7);
    for (int i = 0; i < 2000; i++) {
        size_t len = (size_t)rand() % 20;
        for (size_t j = 0; j < len; j++) {
            in[j] = (uint8_t)rand();
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

static void ids_in_text(void **s)
{
    struct err e = {0};
    struct key_id ids[40], out;
    char full[ID_TEXT], brief[ID_SHORT], twin[ID_SHORT];
    size_t at;
    for (int i = 0; i < 40; i++) {
        sha256(&i, sizeof i, ids[i].b);
    }
    for (int i = 0; i < 40; i++) {
        id_text(&ids[i], full);
        id_short(&ids[i], brief);
        assert_int_equal(strlen(full), ID_TEXT - 1);
        assert_int_equal(strlen(brief), ID_SHORT - 1);
        assert_memory_equal(full, brief, 11);
        ok(id_parse(full, &out, &e));
        assert_true(id_equal(&out, &ids[i]));
        ok(id_find(full, ids, 40, &at, &e));
        assert_int_equal(at, i);
        ok(id_find(brief, ids, 40, &at, &e));
        assert_int_equal(at, i);
        brief[11] = 0; /* 10 characters, no check */
        ok(id_find(brief, ids, 40, &at, &e));
        assert_int_equal(at, i);
    }
    /* each single mistyped character of a short form is noticed (2 check characters: 1 in 1024
     * would slip through; these do not) */
    id_short(&ids[3], brief);
    int slipped = 0, tried = 0;
    for (size_t i = 0; i < strlen(brief); i++) {
        if (brief[i] == '-') {
            continue;
        }
        for (const char *c = "0123456789abcdefghjkmnpqrstvwxyz"; *c; c++) {
            memcpy(twin, brief, sizeof twin);
            if (twin[i] == *c) {
                continue;
            }
            twin[i] = *c;
            int r = id_find(twin, ids, 40, &at, NULL);
            tried++;
            slipped += r != ERR_FORMAT;
            assert_true(r == ERR_FORMAT || r == ERR_NOTFOUND);
        }
    }
    assert_int_equal(tried, 12 * 31);
    assert_true(slipped <= 3);
    id_text(&ids[0], full);
    for (char *c = full; *c; c++) { /* as a person might write it */
        *c = *c == '-' ? ' ' : *c == '0' ? 'O' : *c == '1' ? 'l' : (char)(*c >= 'a' ? *c - 32 : *c);
    }
    ok(id_parse(full, &out, &e));
    assert_true(id_equal(&out, &ids[0]));
    full[0] = full[0] == 'A' ? 'B' : 'A';
    fails(id_parse(full, &out, &e), ERR_FORMAT, "mistyped");
    fails(id_parse("abcd", &out, &e), ERR_FORMAT, "has 56 characters, this has 4");
    fails(id_find("abc", ids, 40, &at, &e), ERR_FORMAT, "first 4 to 10");
    fails(id_find("zzzzzz", ids, 40, &at, &e), ERR_NOTFOUND, "zzzzzz");
    struct key_id pair[2] = {ids[0], ids[0]};
    pair[1].b[31] ^= 1;
    id_short(&ids[0], brief);
    fails(id_find(brief, pair, 2, &at, &e), ERR_ARG, "fits 2 nodes");
}

static void the_key_is_made_once_and_kept(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    struct identity a, b;
    umask(0); /* the modes must not depend on it */
    char *deep = at(home, "new/home");
    ok(identity_open(deep, machine_a, &a, &e));
    assert_true(a.fresh && !a.moved);
    assert_int_equal(mode_of(at(deep, "identity/node.key")), 0600);
    assert_int_equal(mode_of(at(deep, "identity")), 0700);
    assert_int_equal(names_in(at(deep, "identity")), 3);
    struct buf one = slurp(at(deep, "identity/node.key"));
    struct buf id = slurp(at(deep, "identity/node.id"));
    char text[ID_TEXT];
    id_text(&a.id, text);
    assert_memory_equal(id.p, text, ID_TEXT - 1);
    ok(identity_open(deep, machine_a, &b, &e));
    assert_false(b.fresh);
    assert_true(id_equal(&a.id, &b.id));
    assert_memory_not_equal(a.run, b.run, sizeof a.run);
    assert_memory_equal(a.machine, b.machine, sizeof a.machine);
    struct buf two = slurp(at(deep, "identity/node.key"));
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.p, two.p, one.n);
    buf_free(&one);
    buf_free(&two);
    buf_free(&id);
    identity_close(&b);
    /* what a kill -9 in the middle leaves is swept, and a lost node.id comes back */
    put(at(deep, "identity/node.key.new0123456789abcdef"), "x", 1, 0600);
    put(at(deep, "identity/machine.tmp123"), "x", 1, 0600);
    put(at(deep, "identity/mine.txt"), "x", 1, 0600);
    unlink(at(deep, "identity/node.id"));
    ok(identity_open(deep, machine_a, &b, &e));
    assert_int_equal(names_in(at(deep, "identity")), 4);
    assert_true(id_equal(&a.id, &b.id));
    identity_close(&b);
    identity_close(&a);
    drop_home(home);
}

/* Every way in which the key file can be wrong: an error that names it, and the file stays. */
static void a_bad_key_is_an_error_and_never_replaced(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    struct identity me, other;
    ok(identity_open(home, machine_a, &me, &e));
    identity_close(&me);
    char *key = at(home, "identity/node.key");
    struct buf good = slurp(key);

    static const mode_t modes[] = {0640, 0604, 0620, 0660, 0644, 0666};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        chmod(key, modes[i]);
        fails(identity_open(home, machine_a, &other, &e), ERR_REFUSED, "chmod 600");
        assert_non_null(strstr(e.msg, key));
        assert_int_equal(mode_of(key), modes[i]);
    }
    /* cut anywhere, emptied, doubled, with bytes around it, with a wrong character anywhere */
    struct {
        const char *before, *after;
        size_t cut;
    } bad[] = {{"", "", 0},       {"", "", 1},        {"", "", good.n / 2}, {"", "", good.n - 1},
               {" ", "", good.n}, {"", "\n", good.n}, {"", good.p, good.n}, {"", "x", good.n}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[2048];
        int n = snprintf(text, sizeof text, "%s%.*s%s", bad[i].before, (int)bad[i].cut, good.p,
                         bad[i].after);
        put(key, text, (size_t)n, 0600);
        memset(&e, 0, sizeof e);
        int r = identity_open(home, machine_a, &other, &e);
        assert_true(r == ERR_FORMAT || r == ERR_LIMIT);
        assert_non_null(strstr(e.msg, key));
        struct buf now = slurp(key);
        assert_int_equal(now.n, n);
        assert_memory_equal(now.p ? now.p : "", text, (size_t)n);
        buf_free(&now);
    }
    for (size_t i = 0; i < good.n; i += 5) {
        char *text = malloc(good.n);
        memcpy(text, good.p, good.n);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        put(key, text, good.n, 0600);
        memset(&e, 0, sizeof e);
        int r = identity_open(home, machine_a, &other, &e);
        if (!r) { /* base 64 padding bits: the same key after all */
            assert_true(id_equal(&other.id, &me.id));
            identity_close(&other);
        } else {
            assert_non_null(strstr(e.msg, key));
        }
        free(text);
    }
    char big[8192];
    memset(big, 'A', sizeof big);
    put(key, big, sizeof big, 0600);
    fails(identity_open(home, machine_a, &other, &e), ERR_LIMIT, "larger than");

    unlink(key);
    fails(identity_open(home, machine_a, &other, &e), ERR_NOTFOUND, "is gone");
    assert_int_not_equal(access(key, F_OK), 0);
    put(at(home, "elsewhere"), good.p, good.n, 0600);
    assert_int_equal(symlink("../elsewhere", key), 0);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "link");
    unlink(key);
    assert_int_equal(mkfifo(key, 0600), 0);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "not a plain file");
    unlink(key);
    assert_int_equal(mkdir(key, 0700), 0);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "not a plain file");
    rmdir(key);
    put(key, good.p, good.n, 0600);
    if (geteuid() != 0) {
        chmod(key, 0);
        fails(identity_open(home, machine_a, &other, &e), ERR_REFUSED, "chown");
        chmod(key, 0600);
        chmod(at(home, "identity"), 0500); /* nothing to write: opens all the same */
    }
    ok(identity_open(home, machine_a, &other, &e));
    assert_true(id_equal(&other.id, &me.id));
    identity_close(&other);
    chmod(at(home, "identity"), 0700);
    put(at(home, "identity/node.id"), "hello\n", 6, 0600);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "does not hold an id");
    buf_free(&good);
    drop_home(home);
}

/* A full or read-only disk, by a limit on the size of files: nothing half-made is left. */
static void a_full_disk_leaves_nothing(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    struct identity me;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        /* writes beyond 64 bytes fail with EFBIG */
        signal(SIGXFSZ, SIG_IGN);
        struct err c = {0};
        struct rlimit small = {64, 64};
        int r = setrlimit(RLIMIT_FSIZE, &small) ? 0 : identity_open(home, machine_a, &me, &c);
        _exit(r == ERR_IO && strstr(c.msg, "cannot write") ? 0 : 1);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    assert_int_equal(names_in(at(home, "identity")), 0);
    ok(identity_open(home, machine_a, &me, &e));
    assert_true(me.fresh);
    identity_close(&me);
    drop_home(home);
}

static void many_processes_at_once_make_one_key(void **s)
{
    struct err e = {0};
    enum { KIDS = 8, ROUNDS = 5 };
    for (int round = 0; round < ROUNDS; round++) {
        char *home = temp_home();
        int go[2], back[2];
        assert_int_equal(pipe(go), 0);
        assert_int_equal(pipe(back), 0);
        pid_t kids[KIDS];
        for (int i = 0; i < KIDS; i++) {
            kids[i] = fork();
            assert_true(kids[i] >= 0);
            if (kids[i] == 0) {
                char c;
                struct identity me;
                uint8_t out[33] = {0};
                close(go[1]);
                if (read(go[0], &c, 1) == 0 && !identity_open(home, machine_a, &me, NULL)) {
                    memcpy(out, me.id.b, 32);
                    out[32] = (uint8_t)(1 + me.fresh);
                }
                _exit(write(back[1], out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
            }
        }
        close(go[0]);
        close(go[1]); /* all start */
        uint8_t first[32];
        int fresh = 0;
        for (int i = 0; i < KIDS; i++) {
            uint8_t got[33];
            assert_int_equal(read(back[0], got, sizeof got), sizeof got);
            assert_true(got[32] >= 1);
            fresh += got[32] - 1;
            if (i == 0) {
                memcpy(first, got, 32);
            }
            assert_memory_equal(first, got, 32);
        }
        for (int i = 0; i < KIDS; i++) {
            int st;
            waitpid(kids[i], &st, 0);
            assert_int_equal(st, 0);
        }
        assert_int_equal(fresh, 1);
        assert_int_equal(names_in(at(home, "identity")), 3);
        struct identity me;
        ok(identity_open(home, machine_a, &me, &e));
        assert_memory_equal(me.id.b, first, 32);
        identity_close(&me);
        close(back[0]);
        close(back[1]);
        drop_home(home);
    }
}

struct racer {
    const char *home;
    int i, made;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    char text[16];
    bool made;
    int n = snprintf(text, sizeof text, "writer %d", r->i);
    r->made = home_write_once(r->home, "once", text, (size_t)n, &made, NULL) ? -1 : made;
    return NULL;
}

/* The same without the lock: link alone decides, and no reader ever sees half a file. */
static void write_once_has_one_winner(void **s)
{
    for (int round = 0; round < 20; round++) {
        char *home = temp_home();
        pthread_t t[4];
        struct racer r[4];
        int winner = -1;
        for (int i = 0; i < 4; i++) {
            r[i] = (struct racer){home, i, 0};
            assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(t[i], NULL);
            assert_true(r[i].made >= 0);
            assert_true(!r[i].made || winner < 0);
            winner = r[i].made ? i : winner;
        }
        assert_true(winner >= 0);
        struct buf b = slurp(at(home, "once"));
        char want[32];
        snprintf(want, sizeof want, "writer %d", winner);
        assert_string_equal(b.p, want);
        buf_free(&b);
        assert_int_equal(names_in(home), 1);
        drop_home(home);
    }
}

static void the_lock_excludes_and_dies_with_its_holder(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    int up[2];
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int l;
        int r = home_lock(home, &l, NULL);
        r = r || write(up[1], "x", 1) != 1;
        pause();
        _exit(r);
    }
    char c;
    assert_int_equal(read(up[0], &c, 1), 1);
    int fd = open(at(home, "trust.lock"), O_RDWR);
    assert_true(fd >= 0);
    close(fd);
    struct identity me;
    kill(pid, SIGKILL);
    ok(identity_open(home, machine_a, &me, &e)); /* waits for the death, at most ten seconds */
    identity_close(&me);
    waitpid(pid, NULL, 0);
    close(up[0]);
    close(up[1]);
    drop_home(home);
}

static void a_copied_folder_is_noticed(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    char *one = at(home, "one"), *two = at(home, "two");
    struct identity a, b;
    char text[400], brief[ID_SHORT];
    ok(identity_open(one, machine_a, &a, &e));
    assert_int_equal(shell("cp -a '%s' '%s'", one, two), 0);
    ok(identity_open(two, machine_b, &b, &e));
    assert_true(id_equal(&a.id, &b.id));
    assert_true(b.moved);
    assert_memory_not_equal(a.machine, b.machine, MACHINE_MARK);
    identity_moved_text(&b, text, sizeof text);
    id_short(&a.id, brief);
    assert_non_null(strstr(text, brief));

    struct instance ia, ib, ic = {0};
    instance_of(&a, &ia);
    instance_of(&b, &ib);
    ic.id.b[0] = 1;
    /* they meet each other: both ends say so */
    assert_int_equal(instance_decide(&ia, NULL, OLD_GONE, &ib), INSTANCE_TWICE);
    assert_int_equal(instance_decide(&ib, NULL, OLD_GONE, &ia), INSTANCE_TWICE);
    assert_int_equal(instance_decide(&ia, NULL, OLD_GONE, &ia), INSTANCE_SELF);
    /* they meet a third */
    assert_int_equal(instance_decide(&ic, NULL, OLD_GONE, &ia), INSTANCE_NEW);
    assert_int_equal(instance_decide(&ic, &ia, OLD_UNKNOWN, &ia), INSTANCE_SAME);
    assert_int_equal(instance_decide(&ic, &ia, OLD_UNKNOWN, &ib), INSTANCE_PROBE);
    assert_int_equal(instance_decide(&ic, &ia, OLD_ANSWERS, &ib), INSTANCE_TWICE);
    assert_int_equal(instance_decide(&ic, &ia, OLD_GONE, &ib), INSTANCE_MOVED);
    struct instance again = ia;
    again.run[0] ^= 1; /* the same machine, a new run: a restart, unless the old one lives */
    assert_int_equal(instance_decide(&ic, &ia, OLD_GONE, &again), INSTANCE_RESTARTED);
    assert_int_equal(instance_decide(&ic, &ia, OLD_UNKNOWN, &again), INSTANCE_PROBE);
    assert_int_equal(instance_decide(&ic, &ia, OLD_ANSWERS, &again), INSTANCE_TWICE);
    memset(again.machine, 0, MACHINE_MARK); /* a system without an id */
    assert_int_equal(instance_decide(&ic, &ia, OLD_GONE, &again), INSTANCE_RESTARTED);
    for (int ear = EAR_OWN; ear <= EAR_THIRD; ear++) {
        instance_text(&a.id, (enum instance_ear)ear, text, sizeof text);
        assert_non_null(strstr(text, brief));
        assert_non_null(strstr(text, "join again"));
        assert_true(strlen(text) < sizeof text - 1);
    }

    identity_close(&b);
    ok(identity_open(two, machine_b, &b, &e)); /* still marked, until settled */
    assert_true(b.moved);
    ok(identity_settle(two, &b, &e));
    assert_false(b.moved);
    identity_close(&b);
    ok(identity_open(two, machine_b, &b, &e));
    assert_false(b.moved);
    identity_close(&b);
    ok(identity_open(one, machine_a, &b, &e)); /* the original never noticed anything */
    assert_false(b.moved);
    identity_close(&b);
    put(at(one, "identity/machine"), "garbage", 7, 0600); /* nothing hangs on it */
    ok(identity_open(one, machine_a, &b, &e));
    assert_false(b.moved);
    identity_close(&b);
    ok(identity_open(one, "", &b, &e)); /* no machine id: no statement */
    assert_false(b.moved);
    identity_close(&b);
    identity_close(&a);
    drop_home(home);
}

static void this_machine_has_an_id_or_says_no(void **s)
{
    char a[128], b[128];
    int r = machine_id(a, sizeof a);
    assert_int_equal(machine_id(b, sizeof b), r);
    assert_true(r == 0 || r == ERR_NOTFOUND);
    if (!r) {
        assert_string_equal(a, b);
        assert_true(strlen(a) >= 16);
        assert_int_equal(machine_id(a, 4), ERR_NOTFOUND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(primitives_match_published_vectors),
        cmocka_unit_test(a_known_key_has_its_known_point_and_signature),
        cmocka_unit_test(openssl_agrees_on_key_id_certificate_and_signature),
        cmocka_unit_test(sealed_for_one_key),
        cmocka_unit_test(base32_round_trips_and_is_strict),
        cmocka_unit_test(ids_in_text),
        cmocka_unit_test(the_key_is_made_once_and_kept),
        cmocka_unit_test(a_bad_key_is_an_error_and_never_replaced),
        cmocka_unit_test(a_full_disk_leaves_nothing),
        cmocka_unit_test(many_processes_at_once_make_one_key),
        cmocka_unit_test(write_once_has_one_winner),
        cmocka_unit_test(the_lock_excludes_and_dies_with_its_holder),
        cmocka_unit_test(a_copied_folder_is_noticed),
        cmocka_unit_test(this_machine_has_an_id_or_says_no),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
