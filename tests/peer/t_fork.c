/* SPDX-License-Identifier: MIT
 * t_fork.c: keepers that sign without having seen each other's rosters: what each says counts on
 * every node that has heard of it, in whatever order it came, also when that keeper is never seen
 * again; a removed node stays removed; all become one again. */
#include "peer/trust_kit.h"

#include "peer/rng.h"

#include <stdlib.h>

/* What `from` shows at hello, as `to` takes it. */
static enum member_taken tell(struct node *from, struct node *to)
{
    struct err e = {0};
    enum member_taken taken, any = TAKEN_EQUAL;
    for (size_t i = 0; i <= from->m.also_n; i++) {
        const struct buf *b = i ? &from->m.also[i - 1] : &from->m.blob;
        ok(member_take_roster(&to->m, b->p, b->n, &taken, &e));
        any = taken > any ? taken : any;
    }
    return any;
}

/* As the mesh does it: who has news for the other tells it, until neither has. */
static void meet(struct node *x, struct node *y)
{
    for (int rounds = 0;; rounds++) {
        assert_in_range(rounds, 0, 4); /* it ends */
        enum member_taken a = tell(x, y), b = tell(y, x);
        if (a == TAKEN_EQUAL && b == TAKEN_EQUAL) {
            return;
        }
    }
}

static bool same(const struct node *x, const struct node *y)
{
    return !roster_differs(&x->m.roster, &y->m.roster) &&
           x->m.roster.version == y->m.roster.version && x->m.blob.n == y->m.blob.n &&
           memcmp(x->m.blob.p, y->m.blob.p, x->m.blob.n) == 0;
}

static void make_keeper(struct node *a, struct node *b)
{
    struct err e = {0};
    struct key_id id;
    uint8_t box[KEEPER_SEALED];
    ok(keeper_add(&a->m, short_of(b), &id, &e));
    tell(a, b);
    ok(keeper_seal(&a->m, &b->me.id, box, &e));
    ok(keeper_take(&b->m, box, sizeof box, &e));
}

static void remove_key(struct node *k, int i)
{
    struct err e = {0};
    struct key_id id;
    char brief[ID_SHORT];
    id_short(&ids[i], brief);
    ok(member_remove(&k->m, brief, false, 9, &id, &e));
}

enum { N = 6, KEEPERS = 3 };

static struct node n[N];

static char *begin(void)
{
    static const char *const names[N] = {"a", "b", "c", "d", "e", "f"};
    struct err e = {0};
    char *home = temp_home();
    for (int i = 0; i < N; i++) {
        node_open(&n[i], at(home, names[i]));
    }
    ok(member_init(&n[0].m, 900, &e));
    for (int i = 1; i < N; i++) {
        enlist(&n[0], &n[i]);
    }
    for (int i = 1; i < KEEPERS; i++) {
        make_keeper(&n[0], &n[i]);
    }
    ok(member_add(&n[0].m, pubs[1], 5, &e));
    for (int i = 1; i < N; i++) {
        tell(&n[0], &n[i]);
    }
    return home;
}

static void end(char *home)
{
    for (int i = 0; i < N; i++) {
        node_close(&n[i]);
    }
    drop_home(home);
}

/* A removes somebody and is never seen again; B has signed more often. */
static void a_removal_outlives_its_keeper(void **s)
{
    struct err e = {0};
    char *home = begin();
    struct node *a = &n[0], *b = &n[1], *c = &n[3], *d = &n[4], *f = &n[5];
    remove_key(a, 1);
    ok(member_add(&b->m, pubs[2], 6, &e));
    ok(member_add(&b->m, pubs[3], 6, &e));
    assert_int_equal(tell(a, c), TAKEN_NEWER);
    assert_int_equal(tell(b, c), TAKEN_MERGED);
    assert_true(roster_has_removed(&c->m.roster, &ids[1]) && roster_find(&c->m.roster, &ids[3]));
    assert_int_equal(member_standing(&c->m, &ids[1], b->m.blob.p, b->m.blob.n, NULL),
                     STANDING_REMOVED);
    assert_int_equal(c->m.also_n, 1);
    assert_int_equal(c->m.roster.version, b->m.roster.version);
    assert_true(member_listed(&c->m, &c->m.blob));
    /* in the other order, and at second hand */
    assert_int_equal(tell(b, d), TAKEN_NEWER);
    assert_int_equal(tell(a, d), TAKEN_MERGED);
    assert_int_equal(tell(a, d), TAKEN_EQUAL);
    assert_int_equal(tell(c, f), TAKEN_MERGED);
    assert_true(same(c, d) && same(c, f));
    /* also after a restart */
    node_close(c);
    node_open(c, c->home);
    assert_true(same(c, d) && c->m.also_n == 1);
    /* the roster's file is lost: the other one stands in, and the winner comes back */
    assert_int_equal(unlink(at(c->home, "shoal/roster")), 0);
    node_close(c);
    node_open(c, c->home);
    assert_true(roster_has_removed(&c->m.roster, &ids[1]) && !roster_find(&c->m.roster, &ids[3]));
    meet(c, d);
    assert_true(same(c, d));
    /* damaged, it is an error that says what to do */
    put(at(c->home, "shoal/roster.also"), "123456789", 9, 0600);
    node_close(c);
    struct member m;
    ok(identity_open(c->home, NULL, &c->me, &e));
    fails(member_open(c->home, &c->me, &m, &e), ERR_FORMAT, "delete it");
    member_close(&m);
    assert_int_equal(unlink(at(c->home, "shoal/roster.also")), 0);
    identity_close(&c->me);
    node_open(c, c->home);
    assert_false(roster_has_removed(&c->m.roster, &ids[1]));
    meet(c, f);
    assert_true(roster_has_removed(&c->m.roster, &ids[1]));
    /* B meets one of them and signs all of it */
    assert_int_equal(tell(d, b), TAKEN_MERGED);
    assert_int_equal(b->m.also_n, 0);
    meet(b, f);
    assert_int_equal(tell(f, d), TAKEN_NEWER);
    assert_true(same(b, d) && same(b, f) && d->m.also_n == 0);
    end(home);
}

/* Who becomes a keeper while it keeps two signs them together. */
static void a_new_keeper_joins_them(void **s)
{
    struct err e = {0};
    char *home = begin();
    struct node *a = &n[0], *b = &n[1], *c = &n[3];
    uint8_t box[KEEPER_SEALED];
    struct key_id id;
    remove_key(a, 1);
    ok(member_add(&b->m, pubs[2], 6, &e));
    ok(keeper_add(&b->m, short_of(c), &id, &e));
    tell(a, c);
    tell(b, c);
    assert_int_equal(c->m.also_n, 1);
    ok(keeper_seal(&b->m, &c->me.id, box, &e));
    ok(keeper_take(&c->m, box, sizeof box, &e));
    assert_int_equal(c->m.also_n, 0);
    assert_true(c->m.roster.version > b->m.roster.version);
    assert_int_equal(tell(c, a), TAKEN_NEWER);
    assert_int_equal(tell(c, b), TAKEN_NEWER);
    assert_true(same(a, b) && roster_has_removed(&a->m.roster, &ids[1]) &&
                roster_find(&a->m.roster, &ids[2]));
    end(home);
}

/* Three keepers and three others, any steps in any order. Whatever a node has been told of a
 * removal it never forgets; when all have met, all say the same: everything that was done. */
static void any_order(void **s)
{
    const char *seeds = getenv("FORK_SEEDS");
    unsigned long last = seeds ? strtoul(seeds, NULL, 10) : 2;
    for (unsigned long seed = 1; seed <= last; seed++) {
        struct rng r = {seed};
        struct err e = {0};
        char *home = begin();
        bool added[KEYS] = {false, true}, gone[KEYS] = {false}, knows[N][KEYS] = {{false}};
        for (int step = 0; step < 30; step++) {
            unsigned k = rng_below(&r, KEEPERS), i = rng_below(&r, KEYS - 1) + 1;
            unsigned x = rng_below(&r, N), y = rng_below(&r, N);
            switch (rng_below(&r, 4)) {
            case 0:
                if (!roster_has_removed(&n[k].m.roster, &ids[i])) {
                    ok(member_add(&n[k].m, pubs[i], 5, &e));
                    added[i] = true;
                }
                break;
            case 1:
                if (roster_find(&n[k].m.roster, &ids[i]) && rng_below(&r, 3) == 0) {
                    remove_key(&n[k], (int)i);
                    gone[i] = knows[k][i] = true;
                }
                break;
            default:
                if (x != y) {
                    tell(&n[x], &n[y]); /* one way: connections break */
                    for (int j = 0; j < KEYS; j++) {
                        knows[y][j] |= knows[x][j];
                    }
                }
                break;
            }
            for (int j = 0; j < N * KEYS; j++) {
                int who = j / KEYS, key = j % KEYS;
                assert_true(!knows[who][key] || roster_has_removed(&n[who].m.roster, &ids[key]));
            }
        }
        for (int round = 0; round < 2; round++) {
            for (int x = 0; x < N; x++) {
                for (int y = x + 1; y < N; y++) {
                    meet(&n[x], &n[y]);
                }
            }
        }
        for (int x = 0; x < N; x++) {
            assert_true(same(&n[0], &n[x]));
            assert_int_equal(n[x].m.also_n, 0);
            for (int i = 1; i < KEYS; i++) {
                assert_int_equal(roster_has_removed(&n[x].m.roster, &ids[i]), gone[i]);
                assert_int_equal(roster_find(&n[x].m.roster, &ids[i]) != NULL,
                                 added[i] && !gone[i]);
            }
        }
        end(home);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_removal_outlives_its_keeper),
        cmocka_unit_test(a_new_keeper_joins_them),
        cmocka_unit_test(any_order),
    };
    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
