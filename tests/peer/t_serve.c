/* SPDX-License-Identifier: MIT
 * t_serve.c: what serving promises: order, limits, yielding. */
#include "tests/peer/mesh_kit.h"

#include "proto/base/clock.h"

#include <stdatomic.h>

static void pair(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_home(a, NULL);
    kit_home(b, a);
}

static void join_pair(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_open(a);
    kit_static(b, mesh_port(a->m));
    kit_open(b);
    mesh_until(mesh_peers(a->m) == 1 && mesh_peers(b->m) == 1);
}

static void test_rate_limits(void **state)
{
    struct kit_mesh a, b, c;
    pair(&a, &b);
    kit_home(&c, &a);
    kit_give(&a, 0, 0, 64);
    a.o.out_bytes_s = 12u << 20;
    a.o.out_peer_bytes_s = 8u << 20;
    join_pair(&a, &b);
    kit_static(&c, mesh_port(a.m));
    kit_open(&c);
    mesh_until(mesh_peers(a.m) == 2);
    mesh_until(kit_holders(&b, kit_key(0, 63)) == 1 && kit_holders(&c, kit_key(0, 63)) == 1);
    assert_true(kit_status(&a, "limits.out_peer_bytes_s") == 8u << 20);
    /* one peer: its own limit */
    struct kit_fetch f[64], g[32];
    double t = clock_s();
    for (unsigned i = 0; i < 32; i++) {
        kit_fetch(&b, &f[i], kit_key(0, i), FETCH_PREFETCH);
    }
    for (unsigned i = 0; i < 32; i++) {
        kit_wait(&f[i]);
        assert_int_equal(f[i].r.code, 0);
    }
    double took = clock_s() - t, bytes = kit_status(&a, "serve.bytes");
    assert_true(bytes >= 32 * (1 << 19));
    assert_true((bytes - (1 << 19)) / took <= 8.1 * (1 << 20)); /* what came first is owed */
    /* two peers: the limit of all; and both get their share */
    t = clock_s();
    double before = bytes;
    for (unsigned i = 32; i < 64; i++) {
        kit_fetch(&b, &f[i], kit_key(0, i), FETCH_PREFETCH);
        kit_fetch(&c, &g[i - 32], kit_key(0, i - 32), FETCH_PREFETCH);
    }
    for (unsigned i = 32; i < 64; i++) {
        kit_wait(&f[i]);
        kit_wait(&g[i - 32]);
        assert_int_equal(f[i].r.code | g[i - 32].r.code, 0);
    }
    took = clock_s() - t;
    bytes = kit_status(&a, "serve.bytes") - before;
    assert_true((bytes - (1 << 20)) / took <= 12.2 * (1 << 20));
    assert_true(kit_status(&a, "serve.limited") > 0);
    /* no limit any more */
    mesh_limits(a.m, 0, 0);
    kit_give(&a, 1, 0, 4);
    t = clock_s();
    for (unsigned i = 0; i < 4; i++) {
        kit_fetch(&c, &g[i], kit_key(1, i), FETCH_DEMAND);
    }
    for (unsigned i = 0; i < 4; i++) {
        kit_wait(&g[i]);
        assert_int_equal(g[i].r.code, 0);
    }
    kit_free(&c);
    kit_free(&b);
    kit_free(&a);
}

/* A demand overtakes a long queue of background copies: no more of them end before it than had
 * begun. */
static void test_priorities(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    kit_give(&a, 0, 0, 40);
    a.o.out_bytes_s = 5u << 20; /* ten objects a second */
    join_pair(&a, &b);
    mesh_until(kit_holders(&b, kit_key(0, 39)) == 1);
    struct kit_fetch f[30], d;
    for (unsigned i = 0; i < 30; i++) {
        kit_fetch(&b, &f[i], kit_key(0, i), FETCH_BACKGROUND);
    }
    kit_wait(&f[2]);
    kit_fetch(&b, &d, kit_key(0, 39), FETCH_DEMAND);
    kit_wait(&d);
    assert_int_equal(d.r.code, 0);
    for (unsigned i = 0; i < 30; i++) {
        kit_wait(&f[i]);
        assert_int_equal(f[i].r.code, 0);
    }
    int between = 0;
    for (unsigned i = 3; i < 30; i++) {
        between += f[i].order < d.order;
    }
    if (between > 3) {
        fail_msg("%d background copies ended before the demand", between);
    }
    kit_free(&b);
    kit_free(&a);
}

static _Atomic(int) busy, asked;

static unsigned yield_ms(void *ctx, unsigned prio)
{
    (void)ctx;
    atomic_fetch_add(&asked, 1);
    return prio < 2 && atomic_load(&busy) ? 20 : 0;
}

static void test_yield(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    kit_give(&a, 0, 0, 10);
    a.o.yield_ms = yield_ms;
    join_pair(&a, &b);
    mesh_until(kit_holders(&b, kit_key(0, 9)) == 1);
    struct kit_fetch f, d;
    atomic_store(&busy, 1);
    kit_fetch(&b, &f, kit_key(0, 0), FETCH_BACKGROUND);
    mesh_until(kit_status(&a, "serve.yields") > 3);
    kit_fetch(&b, &d, kit_key(0, 1), FETCH_DEMAND);
    kit_wait(&d);
    assert_int_equal(d.r.code, 0);
    assert_int_equal(atomic_load(&f.done), 0);
    atomic_store(&busy, 0);
    kit_wait(&f);
    assert_int_equal(f.r.code, 0);
    kit_free(&b);
    kit_free(&a);
}

static void test_cancel_and_deadline(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    kit_give(&a, 1, 0, 10);
    a.o.out_bytes_s = 1u << 20;
    join_pair(&a, &b);
    mesh_until(kit_holders(&b, kit_key(1, 9)) == 1);
    struct kit_fetch f[3];
    kit_fetch(&b, &f[0], kit_key(1, 0), FETCH_PREFETCH);
    kit_fetch_with(&b, &f[1], kit_key(1, 1),
                   (struct mesh_want){.prio = FETCH_DEMAND, .deadline_ms = 300});
    kit_wait(&f[1]);
    assert_int_equal(f[1].r.code, ERR_TIMEOUT);
    mesh_cancel(b.m, f[0].id);
    kit_wait(&f[0]);
    assert_int_equal(f[0].r.code, ERR_CANCELLED);
    kit_fetch(&b, &f[2], kit_key(1, 2), FETCH_BACKGROUND);
    mesh_raise(b.m, f[2].id, FETCH_DEMAND);
    kit_close(&b); /* ends what is left */
    assert_int_equal(f[2].done, 1);
    assert_int_equal(f[2].r.code, ERR_CANCELLED);
    kit_free(&b);
    kit_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_limits),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_yield),
        cmocka_unit_test(test_cancel_and_deadline),
    };
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
