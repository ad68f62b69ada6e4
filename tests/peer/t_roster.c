/* SPDX-License-Identifier: MIT
 * t_roster.c: the signed roster: its bytes, its signature by openssl, every flipped byte, its
 * limits, the algebra of merging. */
#include "peer/trust_kit.h"
#include "peer/rng.h"

#include "proto/base/num.h"

static void the_bytes_are_as_written_down(void **s)
{
    struct err e = {0};
    struct roster r = sample(), back;
    struct buf b = signed_blob(&r);
    const uint8_t *p = (const uint8_t *)b.p;
    assert_memory_equal(p, "shoalro1", 8);
    assert_memory_equal(p + 8, pubs[0], 65);
    assert_int_equal(num_get_le64(p + 73), 7);
    assert_int_equal(p[81], 4);
    assert_int_equal(p[83], 1);
    struct key_id last = {{0}};
    for (int i = 0; i < 4; i++) {
        const uint8_t *m = p + 89 + 74 * i;
        struct key_id id;
        crypto_key_id(m, &id);
        assert_true(memcmp(last.b, id.b, 32) < 0);
        last = id;
        int which = 1;
        while (which < 5 && memcmp(pubs[which], m, 65) != 0) {
            which++;
        }
        assert_true(which < 5);
        assert_int_equal(num_get_le64(m + 65), 1764480000 + which);
        assert_int_equal(m[73], which == 1);
    }
    assert_memory_equal(p + 89 + 74 * 4, ids[5].b, 32);
    assert_int_equal(num_get_le64(p + 89 + 74 * 4 + 32), 1764480100);
    size_t body = 89 + 74 * 4 + 40;
    assert_int_equal(b.n, body + 1 + p[body]);
    ok(roster_open(b.p, b.n, &ids[0], &back, &e));
    struct buf again = signed_blob(&back);
    assert_int_equal(again.n,
                     b.n); /* signatures are deterministic: the same content, the same bytes */
    assert_memory_equal(again.p, b.p, b.n);
    assert_true(roster_find(&back, &ids[1])->flags == ROSTER_KEEPER);
    assert_null(roster_find(&back, &ids[5]));
    assert_true(roster_has_removed(&back, &ids[5]));

    if (have_openssl()) {
        char *dir = temp_home();
        char pem[CRYPTO_PEM_MAX];
        size_t n;
        ok(crypto_key_pem(keys[0], pem, &n, &e));
        put(at(dir, "k"), pem, n, 0600);
        put(at(dir, "m"), b.p, body, 0600);
        put(at(dir, "s"), b.p + body + 1, p[body], 0600);
        const char *check =
            "openssl pkey -in '%s/k' -pubout -out '%s/p' 2>/dev/null && openssl dgst "
            "-sha256 -verify '%s/p' -signature '%s/s' '%s/m' >/dev/null";
        assert_int_equal(shell(check, dir, dir, dir, dir, dir), 0);
        put(at(dir, "m"), b.p, body - 1, 0600);
        assert_int_not_equal(shell(check, dir, dir, dir, dir, dir), 0);
        drop_home(dir);
    }
    roster_free(&r);
    roster_free(&back);
    buf_free(&b);
    buf_free(&again);
}

static void every_changed_byte_and_length_is_refused(void **s)
{
    struct err e = {0};
    struct roster r = sample(), back;
    struct buf b = signed_blob(&r);
    for (size_t i = 0; i < b.n; i++) {
        b.p[i] ^= (char)(1 << i % 8);
        e.msg[0] = 0;
        assert_int_not_equal(roster_open(b.p, b.n, &ids[0], &back, &e), 0);
        assert_true(e.msg[0]);
        b.p[i] ^= (char)(1 << i % 8);
    }
    for (size_t n = 0; n < b.n; n++) {
        assert_int_not_equal(roster_open(b.p, n, &ids[0], &back, NULL), 0);
    }
    ok(buf_add(&b, "", 1));
    fails(roster_open(b.p, b.n, &ids[0], &back, &e), ERR_FORMAT, "length");
    fails(roster_open(b.p, b.n - 1, &ids[1], &back, &e), ERR_REFUSED, "another shoal");
    char *big = calloc(1, ROSTER_BLOB_MAX + 1);
    fails(roster_open(big, ROSTER_BLOB_MAX + 1, &ids[0], &back, &e), ERR_LIMIT, "more than");
    free(big);
    buf_free(&b);
    /* not our key: cannot sign, and what another key signed in our name is refused */
    buf_init(&b, ROSTER_BLOB_MAX);
    fails(roster_sign(&r, keys[1], &b, &e), ERR_ARG, "does not sign");
    r.version = 0;
    fails(roster_sign(&r, keys[0], &b, &e), ERR_ARG, "does not sign");
    r.version = 7;
    b = signed_blob(&r);
    size_t body = b.n - 1 - ((uint8_t *)b.p)[89 + 74 * 4 + 40], n;
    uint8_t sig[CRYPTO_SIG_MAX];
    ok(crypto_sign(keys[1], b.p, body, sig, &n, &e));
    b.n = body;
    uint8_t len = (uint8_t)n;
    ok(buf_add(&b, &len, 1));
    ok(buf_add(&b, sig, n));
    fails(roster_open(b.p, b.n, &ids[0], &back, &e), ERR_DIGEST, "not signed");
    buf_free(&b);
    roster_free(&r);
}

/* Content that is signed well but is not in its one form (a keeper gone wrong). */
static void signed_nonsense_is_refused(void **s)
{
    struct err e = {0};
    struct roster back;
    for (int kind = 0; kind < 7; kind++) {
        struct roster r = sample();
        struct roster_member t = r.members[0];
        switch (kind) {
        case 0: /* out of order */
            r.members[0] = r.members[1];
            r.members[1] = t;
            break;
        case 1: /* twice */
            r.members[1] = r.members[0];
            break;
        case 2: /* unknown flag */
            r.members[2].flags = 2;
            break;
        case 3: /* member and removed */
            r.removed[0].id = r.members[3].id;
            break;
        case 4: /* no point of the curve; the order still fits */
            memset(r.members[0].pub + 1, 0xff, 64);
            crypto_key_id(r.members[0].pub, &r.members[0].id);
            r.members_n = 1;
            break;
        case 5:
            r.members[0].pub[0] = 2;
            r.members_n = 1;
            break;
        case 6: /* two removed out of order */
            free(r.removed);
            r.removed = calloc(2, sizeof *r.removed);
            memset(r.removed[0].id.b, 9, 32);
            memset(r.removed[1].id.b, 8, 32);
            r.removed_n = 2;
            break;
        }
        struct buf b = signed_blob(&r);
        memset(&e, 0, sizeof e);
        if (roster_open(b.p, b.n, &ids[0], &back, &e) != ERR_FORMAT) {
            fail_msg("kind %d is taken: %s", kind, e.msg);
        }
        assert_non_null(strstr(e.msg, "malformed"));
        buf_free(&b);
        roster_free(&r);
    }
}

static void limits_hold(void **s)
{
    struct err e = {0};
    struct roster r, back;
    roster_init(&r, pubs[0]);
    r.version = 1;
    struct crypto_key *k[3];
    for (int i = 0; i < ROSTER_REMOVED_MAX; i++) { /* filled by hand: adding checks the curve */
        struct roster_removed x = {.when = (uint64_t)i};
        x.id.b[0] = (uint8_t)(i >> 8);
        x.id.b[1] = (uint8_t)i;
        r.removed = realloc(r.removed, (r.removed_n + 1) * sizeof *r.removed);
        r.removed[r.removed_n++] = x;
    }
    while (r.members_n < ROSTER_MEMBERS_MAX) {
        ok(crypto_key_make(&k[0], &e));
        ok(roster_add(&r, crypto_key_public(k[0]), 1, 0, &e));
        crypto_key_free(k[0]);
    }
    fails(roster_add(&r, pubs[1], 1, 0, &e), ERR_LIMIT, "at most 256");
    struct key_id someone = r.members[5].id;
    fails(roster_remove(&r, &someone, 1, &e), ERR_LIMIT, "1024");
    struct buf b = signed_blob(&r);
    assert_true(b.n <= ROSTER_BLOB_MAX && b.n > ROSTER_BLOB_MAX - 8);
    ok(roster_open(b.p, b.n, &ids[0], &back, &e));
    assert_int_equal(back.members_n, ROSTER_MEMBERS_MAX);
    roster_free(&back);
    buf_free(&b);
    roster_free(&r);
}

/* A random roster of some of the keys. */
static struct roster some(struct rng *rng)
{
    struct roster r;
    roster_init(&r, pubs[0]);
    for (int i = 1; i < KEYS; i++) {
        unsigned what = rng_below(rng, 4);
        uint64_t when = 1 + rng_below(rng, 3);
        uint8_t flags = rng_below(rng, 4) == 0;
        if (what) {
            assert_int_equal(roster_add(&r, pubs[i], when, flags, NULL), 0);
        }
        when = 1 + rng_below(rng, 3);
        if (what == 3) {
            assert_int_equal(roster_remove(&r, &ids[i], when, NULL), 0);
        }
    }
    r.version = 1 + rng_below(rng, 3);
    return r;
}

static bool same_content(const struct roster *a, const struct roster *b)
{
    bool same = a->members_n == b->members_n && a->removed_n == b->removed_n;
    for (size_t i = 0; same && i < a->members_n; i++) {
        const struct roster_member *x = &a->members[i], *y = &b->members[i];
        same = id_equal(&x->id, &y->id) && x->joined == y->joined && x->flags == y->flags;
    }
    for (size_t i = 0; same && i < a->removed_n; i++) {
        same = id_equal(&a->removed[i].id, &b->removed[i].id) &&
               a->removed[i].when == b->removed[i].when;
    }
    return same;
}

static void merging_is_the_same_in_any_order(void **s)
{
    struct err e = {0};
    struct rng rng = rng_start(11);
    for (int round = 0; round < 150; round++) {
        struct roster a = some(&rng), b = some(&rng), c = some(&rng);
        struct roster ab, ba, abc, bc, bca, aa, ab_a;
        bool x, y;
        ok(roster_merge(&a, &b, &ab, &x, &e));
        ok(roster_merge(&b, &a, &ba, &y, &e));
        assert_true(x == y && ab.version == ba.version && same_content(&ab, &ba));
        ok(roster_merge(&ab, &c, &abc, &x, &e));
        ok(roster_merge(&b, &c, &bc, &x, &e));
        ok(roster_merge(&bc, &a, &bca, &x, &e));
        assert_true(same_content(&abc, &bca));
        ok(roster_merge(&a, &a, &aa, &x, &e));
        assert_true(!x && aa.version == a.version && same_content(&a, &aa));
        /* nothing is lost, removal wins, nobody is invented */
        for (int i = 1; i < KEYS; i++) {
            bool gone = roster_has_removed(&a, &ids[i]) || roster_has_removed(&b, &ids[i]);
            bool in = roster_find(&a, &ids[i]) || roster_find(&b, &ids[i]);
            assert_int_equal(roster_has_removed(&ab, &ids[i]), gone);
            assert_int_equal(roster_find(&ab, &ids[i]) != NULL, in && !gone);
        }
        /* what came out is final: merging with a source again changes nothing */
        ok(roster_merge(&ab, &a, &ab_a, &x, &e));
        assert_true(same_content(&ab, &ab_a));
        assert_true(ab.version > a.version ? !x : true);
        /* the order is total and antisymmetric */
        enum roster_order p = roster_compare(&a, &b), q = roster_compare(&b, &a);
        assert_true((p == ROSTER_NEWER && q == ROSTER_OLDER) ||
                    (p == ROSTER_OLDER && q == ROSTER_NEWER) ||
                    (p == ROSTER_EQUAL && q == ROSTER_EQUAL && same_content(&a, &b)));
        struct roster *all[] = {&a, &b, &c, &ab, &ba, &abc, &bc, &bca, &aa, &ab_a};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            roster_free(all[i]);
        }
    }
}

static void a_removed_node_stays_removed(void **s)
{
    struct err e = {0};
    struct roster r = sample(), old;
    fails(roster_add(&r, pubs[5], 1, 0, &e), ERR_REFUSED, "new identity");
    fails(roster_remove(&r, &ids[9], 1, &e), ERR_NOTFOUND, "not a member");
    roster_init(&old, pubs[0]);
    ok(roster_add(&old, pubs[5], 1, 0, &e));
    ok(roster_add(&old, pubs[6], 1, 0, &e));
    assert_int_equal(roster_standing(&r, NULL, &ids[1]), STANDING_MEMBER);
    assert_int_equal(roster_standing(&r, NULL, &ids[6]), STANDING_STRANGER);
    assert_int_equal(roster_standing(&r, &old, &ids[6]), STANDING_MEMBER);
    assert_int_equal(roster_standing(&r, &old, &ids[5]), STANDING_REMOVED);
    assert_int_equal(roster_standing(&old, &r, &ids[5]), STANDING_REMOVED);
    roster_free(&r);
    roster_free(&old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_as_written_down),
        cmocka_unit_test(every_changed_byte_and_length_is_refused),
        cmocka_unit_test(signed_nonsense_is_refused),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(merging_is_the_same_in_any_order),
        cmocka_unit_test(a_removed_node_stays_removed),
    };
    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
