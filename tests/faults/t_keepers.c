/* SPDX-License-Identifier: MIT
 * t_keepers.c: whole nodes of a shoal with two keepers that sign without seeing each other's
 * rosters: what either did counts everywhere, a removed member that comes back with its old data
 * folder is refused everywhere, nobody else is. */
#include "tests/daemon/node_kit.h"

#include "peer/keeper.h"

struct at_rest { /* a home whose node may run, for a moment */
    struct identity me;
    struct member m;
};

static void look(struct at_rest *x, const struct kit_node *k)
{
    struct err e = {0};
    ok(identity_open(k->home, NULL, &x->me, &e));
    ok(member_open(k->home, &x->me, &x->m, &e));
}

static void leave(struct at_rest *x)
{
    member_close(&x->m);
    identity_close(&x->me);
}

static struct key_id id_of(const struct kit_node *k)
{
    struct at_rest x;
    look(&x, k);
    struct key_id id = x.me.id;
    leave(&x);
    return id;
}

static void remove_by(const struct kit_node *keeper, const struct kit_node *who)
{
    struct at_rest x;
    struct key_id id = id_of(who), gone;
    struct err e = {0};
    char text[ID_TEXT];
    id_text(&id, text);
    look(&x, keeper);
    ok(member_remove(&x.m, text, false, 1764500000, &gone, &e));
    leave(&x);
}

static void add_by(const struct kit_node *keeper, const struct kit_node *who)
{
    struct at_rest x, y;
    struct err e = {0};
    look(&x, keeper);
    look(&y, who);
    ok(member_add(&x.m, crypto_key_public(y.me.key), 1764500000, &e));
    leave(&y);
    leave(&x);
}

/* What a node's roster on disk says of another. */
static enum roster_standing standing(const struct kit_node *of, const struct key_id *id)
{
    struct at_rest x;
    look(&x, of);
    enum roster_standing s = member_standing(&x.m, id, NULL, 0, NULL);
    leave(&x);
    return s;
}

static void second_keeper(const struct kit_node *a, const struct kit_node *b)
{
    struct at_rest x, y;
    struct err e = {0};
    struct key_id id = id_of(b), got;
    char text[ID_TEXT];
    uint8_t box[KEEPER_SEALED];
    enum member_taken taken;
    id_text(&id, text);
    look(&x, a);
    look(&y, b);
    ok(keeper_add(&x.m, text, &got, &e));
    ok(member_take_roster(&y.m, x.m.blob.p, x.m.blob.n, &taken, &e));
    ok(keeper_seal(&x.m, &id, box, &e));
    ok(keeper_take(&y.m, box, sizeof box, &e));
    leave(&y);
    leave(&x);
}

static struct kit_node a, b, c, x, y, z;

static void begin(void)
{
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_member(&c, &a);
    kit_member(&x, &a);
    kit_lonely(&y);
    kit_lonely(&z);
    second_keeper(&a, &b);
}

static void end(void)
{
    struct kit_node *all[] = {&z, &y, &x, &c, &b, &a};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        kit_end(all[i]);
    }
}

/* Equal on two nodes, and both say what both keepers did. */
static void joined(struct kit_node *p, struct kit_node *q)
{
    struct key_id idx = id_of(&x), idy = id_of(&y), idz = id_of(&z);
    until(kit_status(p, "rosters_beside") == 0 && kit_status(q, "rosters_beside") == 0 &&
          kit_status(p, "roster_version") == kit_status(q, "roster_version") &&
          standing(p, &idx) == STANDING_REMOVED && standing(q, &idx) == STANDING_REMOVED &&
          standing(p, &idy) == STANDING_MEMBER && standing(q, &idy) == STANDING_MEMBER);
    assert_int_equal(standing(p, &idz), STANDING_MEMBER);
    assert_int_equal(standing(q, &idz), STANDING_MEMBER);
    assert_int_equal(kit_status(p, "members"), 5); /* A, B, C, Y, Z */
    assert_int_equal(kit_status(q, "members"), 5);
}

static void refused_at(struct kit_node *by)
{
    kit_open(&x, NULL, by);
    until(util_log_has(&x.log, "has removed this node") > 0);
    assert_int_equal(mesh_peers(node_mesh(x.n)), 0);
    kit_close(&x);
}

/* A house cut in two: A removes X, and is never seen again; B takes in Y and Z. C hears of both. */
static void test_partition(void **state)
{
    struct key_id idx, ida;
    begin();
    idx = id_of(&x);
    ida = id_of(&a);
    remove_by(&a, &x);
    add_by(&b, &y);
    add_by(&b, &z); /* B has signed more often: its roster wins */
    kit_open(&a, NULL, NULL);
    kit_open(&c, NULL, &a);
    until(standing(&c, &idx) == STANDING_REMOVED);
    kit_close(&a);
    kit_open(&b, NULL, &c);
    joined(&b, &c);
    assert_int_equal(standing(&b, &ida), STANDING_MEMBER);
    refused_at(&b); /* it has its old roster, and B never saw A's */
    refused_at(&c);
    kit_connected(&b, 1); /* the others go on */
    kit_open(&a, NULL, &b);
    joined(&a, &b);
    end();
}

/* Both at once while everybody is connected. */
static void test_at_once(void **state)
{
    begin();
    kit_open(&a, NULL, NULL);
    kit_open(&b, NULL, &a);
    kit_open(&c, NULL, &a);
    kit_connected(&a, 2);
    remove_by(&a, &x);
    add_by(&b, &y);
    add_by(&b, &z);
    mesh_look(node_mesh(a.n));
    mesh_look(node_mesh(b.n));
    joined(&a, &b);
    joined(&a, &c);
    refused_at(&c);
    assert_int_equal(mesh_peers(node_mesh(a.n)), 2);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition),
        cmocka_unit_test(test_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
