/* SPDX-License-Identifier: MIT
 * t_statement.c: signed statements: their bytes, their signature by openssl, every flipped byte,
 * their limits. */
#include "peer/trust_kit.h"

#include "peer/statement.h"
#include "proto/base/num.h"

static uint8_t root[SHA256_SIZE];

static struct statement_entry entry(uint8_t kind, uint16_t layer, uint32_t index, int fill)
{
    struct statement_entry x = {.key = {kind, layer, index}};
    memset(x.digest, fill, sizeof x.digest);
    return x;
}

static struct buf three(struct crypto_key *k)
{
    struct statement_entry v[] = {entry(0, 1, 7, 0x11), entry(0, 300, 0, 0x22),
                                  entry(1, 0, 0xfffffe, 0x33)};
    struct buf b;
    struct err e = {0};
    buf_init(&b, STATEMENT_BLOB_MAX);
    ok(statement_sign(k, root, 5, v, 3, &b, &e));
    return b;
}

static void the_bytes_are_as_written_down(void **s)
{
    struct err e = {0};
    struct statement st;
    struct key_id signer;
    struct buf b = three(keys[1]);
    const uint8_t *p = (const uint8_t *)b.p;
    static const uint8_t head[] = {0, 1, 0, 7, 0, 0, 0}, mid[] = {0, 0x2c, 1, 0, 0, 0, 0},
                         tail[] = {1, 0, 0, 0xfe, 0xff, 0xff, 0};
    assert_memory_equal(p, "shoalst1", 8);
    assert_memory_equal(p + 8, pubs[1], 65);
    assert_memory_equal(p + 73, root, 32);
    assert_int_equal(num_get_le64(p + 105), 5);
    assert_int_equal(num_get_le32(p + 113), 3);
    assert_memory_equal(p + 117, head, 7);
    assert_int_equal(p[124], 0x11);
    assert_memory_equal(p + 156, mid, 7);
    assert_memory_equal(p + 195, tail, 7);
    assert_int_equal(p[202], 0x33);
    assert_int_equal(b.n, 117 + 3 * 39 + 1 + p[234]);
    ok(statement_open(b.p, b.n, &st, &signer, &e));
    assert_true(id_equal(&signer, &ids[1]));
    assert_int_equal(st.n, 3);
    assert_int_equal(st.signed_n, 234);
    struct statement_entry x;
    statement_get(&st, 1, &x);
    assert_int_equal(x.key.layer, 300);
    assert_int_equal(x.digest[31], 0x22);
    struct buf again = three(keys[1]);
    assert_int_equal(again.n, b.n); /* deterministic */
    assert_memory_equal(again.p, b.p, b.n);
    if (have_openssl()) {
        char *dir = temp_home();
        char pem[CRYPTO_PEM_MAX];
        size_t n;
        ok(crypto_key_pem(keys[1], pem, &n, &e));
        put(at(dir, "k"), pem, n, 0600);
        put(at(dir, "m"), b.p, st.signed_n, 0600);
        put(at(dir, "s"), st.sig, st.sig_n, 0600);
        const char *check =
            "openssl pkey -in '%s/k' -pubout -out '%s/p' 2>/dev/null && openssl dgst "
            "-sha256 -verify '%s/p' -signature '%s/s' '%s/m' >/dev/null";
        assert_int_equal(shell(check, dir, dir, dir, dir, dir), 0);
        put(at(dir, "m"), b.p, st.signed_n - 1, 0600);
        assert_int_not_equal(shell(check, dir, dir, dir, dir, dir), 0);
        drop_home(dir);
    }
    buf_free(&again);
    buf_free(&b);
}

static void every_changed_byte_is_noticed(void **s)
{
    struct statement st;
    struct key_id signer;
    struct buf b = three(keys[2]);
    for (size_t i = 0; i < b.n; i += i < 117 ? 1 : 7) {
        struct err e = {0};
        b.p[i] ^= 0x10;
        int r = statement_open(b.p, b.n, &st, &signer, &e);
        assert_true(r == ERR_FORMAT || r == ERR_DIGEST);
        assert_true(e.code == r && e.msg[0]);
        b.p[i] ^= 0x10;
    }
    for (size_t n = 0; n < b.n; n++) {
        assert_int_equal(statement_open(b.p, n, &st, &signer, NULL), ERR_FORMAT);
    }
    buf_free(&b);
    /* another's key in it: a good form, not its word */
    b = three(keys[2]);
    memcpy(b.p + 8, pubs[3], 65);
    assert_int_equal(statement_open(b.p, b.n, &st, &signer, NULL), ERR_DIGEST);
    buf_free(&b);
}

static void limits(void **s)
{
    struct statement_entry *v = calloc(STATEMENT_OBJECTS_MAX + 1, sizeof *v);
    struct buf b;
    struct err e = {0};
    struct statement st;
    struct key_id signer;
    assert_non_null(v);
    for (uint32_t i = 0; i <= STATEMENT_OBJECTS_MAX; i++) {
        v[i] = entry(0, (uint16_t)(i / 896), i % 896, (int)i);
    }
    buf_init(&b, STATEMENT_BLOB_MAX);
    ok(statement_sign(keys[1], root, 1, v, STATEMENT_OBJECTS_MAX, &b, &e));
    ok(statement_open(b.p, b.n, &st, &signer, &e));
    assert_int_equal(statement_sign(keys[1], root, 1, v, STATEMENT_OBJECTS_MAX + 1, &b, &e),
                     ERR_ARG);
    assert_int_equal(statement_sign(keys[1], root, 1, v, 0, &b, &e), ERR_ARG);
    assert_int_equal(statement_sign(keys[1], root, 0, v, 1, &b, &e), ERR_ARG);
    v[1] = v[0];
    assert_int_equal(statement_sign(keys[1], root, 1, v, 2, &b, &e), ERR_ARG);
    v[1].key.index = 0x1000000;
    assert_int_equal(statement_sign(keys[1], root, 1, v, 2, &b, &e), ERR_ARG);
    buf_free(&b);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_as_written_down),
        cmocka_unit_test(every_changed_byte_is_noticed),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
