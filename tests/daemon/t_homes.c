/* SPDX-License-Identifier: MIT
 * Homes with whole nodes: coverage completed from the origin once for all, second copies while
 * there is room, budgets that are exactly the model's size, nothing lost while somebody has room, a
 * member that leaves for good and one that comes, a battery. */
#include "tests/daemon/node_kit.h"

#include "node/store/share.h"
#include "peer/member.h"
#include "peer/mesh.h"
#include "sim/sim.h"

#include <stdatomic.h>
#include <stdio.h>

/* Each object is given to one member to fetch, but a copy whose holder is slow is asked of the
 * origin, too, and who sees another one late places by what it knew before: on a machine at load 40
 * that was a fifth. The numbers are printed; where nobody takes heed of the others all of them come
 * to three and more. */
#define SLACK 2.2
#define ALL 3

struct shoal {
    struct kit_node k[ALL + 1];
    struct demo_server *origin;
    char url[128];
    uint64_t spine, experts, one; /* bytes; of one expert */
};

static _Atomic(bool) on_battery, costly;

static void power(struct power *out)
{
    *out = (struct power){.on_battery = on_battery, .costly_network = costly};
}

static void sizes(struct shoal *s)
{
    struct kit_node x;
    kit_lonely(&x);
    kit_open(&x, s->url, NULL);
    s->spine = model_spine_bytes(x.m);
    s->experts = model_expert_bytes(x.m);
    s->one = model_expert_layout(x.m)->size;
    kit_end(&x);
}

/* Opens member i with room for so many bytes of experts beside the spine. */
static void up_bytes(struct shoal *s, int i, uint64_t bytes)
{
    struct kit_node *k = &s->k[i];
    k->o.store.disk_budget = s->spine + bytes;
    k->o.homes_after_ms = 1;
    k->o.homes_settle_ms = 100;
    k->o.power = power;
    kit_open(k, s->url, i ? &s->k[0] : NULL);
    for (int j = 1; j < i; j++) {
        char at[64];
        struct err e;
        if (s->k[j].n) {
            snprintf(at, sizeof at, "127.0.0.1:%d", node_port(s->k[j].n));
            assert_int_equal(mesh_add_static(node_mesh(k->n), at, &e), 0);
        }
    }
}

/* The same, a share of all experts. */
static void up(struct shoal *s, int i, double share)
{
    up_bytes(s, i, (uint64_t)(share * (double)s->experts));
}

/* An origin, and homes of one shoal; nobody is up. */
static void found(struct shoal *s)
{
    on_battery = false;
    s->origin = kit_origin(s->url);
    sizes(s);
    kit_keeper(&s->k[0]);
    for (int i = 1; i <= ALL; i++) {
        kit_member(&s->k[i], &s->k[0]);
    }
}

static void begin(struct shoal *s, const double share[ALL])
{
    found(s);
    for (int i = 0; i < ALL; i++) {
        up(s, i, share[i]);
    }
    for (int i = 0; i < ALL; i++) {
        kit_connected(&s->k[i], ALL - 1);
    }
}

static void end(struct shoal *s)
{
    for (int i = ALL; i >= 0; i--) {
        kit_end(&s->k[i]);
    }
    demo_server_stop(s->origin);
}

/* Every open member knows what every other can keep: from here on all place alike. */
static bool all_known(struct shoal *s)
{
    double sum = 0;
    for (int i = 0; i < ALL; i++) {
        sum += kit_status(&s->k[i], "homes.budget");
    }
    for (int i = 0; i < ALL; i++) {
        double seen = 0;
        for (int j = 0; j < ALL; j++) {
            char path[64];
            snprintf(path, sizeof path, "homes.members.%d.budget", j);
            seen += kit_status(&s->k[i], path);
        }
        if (seen != sum) {
            return false;
        }
    }
    return true;
}

/* Objects that all members together were given to fetch from the origin. */
static double warmed(struct shoal *s)
{
    double n = 0;
    for (int i = 0; i < ALL; i++) {
        n += kit_status(&s->k[i], "homes.warmed");
    }
    return n;
}

/* Have the reports, which are a second old, come to so many objects brought? What was to be a copy
 * and had left its holder meanwhile comes from the origin and is no `warmed`. */
static bool reported(struct shoal *s, double objects)
{
    double n = warmed(s);
    for (int i = 0; i < ALL; i++) {
        n += kit_status(&s->k[i], "homes.copied");
    }
    return n >= objects;
}

static void warm(struct shoal *s, int i)
{
    struct err e = {0};
    until(all_known(s));
    json_t *q = json_pack("{s:s,s:b}", "op", "warm", "on", 1), *a = NULL;
    if (node_ask(s->k[i].home, q, 0, &a, &e)) {
        fail_msg("%s", e.msg);
    }
    json_decref(a);
    json_decref(q);
}

static bool on_disk(const struct kit_node *k, uint32_t id)
{
    return store_storage_ops.have(k->st, store_key(k->st, id));
}

/* Bytes of experts that at least so many open members have on disk, as their stores say. */
static uint64_t held(struct shoal *s, unsigned copies)
{
    uint64_t n = 0;
    const struct model *m = s->k[0].m;
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        unsigned c = 0;
        for (int i = 0; i <= ALL; i++) {
            c += s->k[i].n && on_disk(&s->k[i], id);
        }
        n += model_object(m, id)->kind == MODEL_EXPERT && c >= copies ? s->one : 0;
    }
    return n;
}

static uint64_t whole(const struct shoal *s, double share)
{
    return (uint64_t)(share * (double)s->experts) / s->one * s->one;
}

static void say(struct shoal *s, const char *what)
{
    print_message("%s: once %.1f %%, twice %.1f %% of the experts; origin gave %.3f of one copy\n",
                  what, 100. * (double)held(s, 1) / (double)s->experts,
                  100. * (double)held(s, 2) / (double)s->experts,
                  (double)kit_origin_bytes(s->origin) / (double)(s->spine + s->experts));
}

/* Less than the model: as much as there is room for, each object once, from the origin once. */
static void test_below(void **state)
{
    struct shoal s = {0};
    begin(&s, (const double[ALL]){0.2, 0.3, 0.25});
    uint64_t before = kit_origin_bytes(s.origin); /* metadata, more than once, by `sizes` too */
    uint64_t possible = whole(&s, 0.2) + whole(&s, 0.3) + whole(&s, 0.25);
    warm(&s, 1);
    until((double)held(&s, 1) >= 0.99 * (double)possible);
    until(kit_status(&s.k[0], "homes.warm") == 0 && kit_status(&s.k[2], "homes.warm") == 0);
    say(&s, "0.75 of the model");
    uint64_t gave = kit_origin_bytes(s.origin) - before;
    assert_true((double)gave <= SLACK * (double)(s.spine + held(&s, 1)));
    double objects = kit_count(&s.k[0]) - (double)((s.experts - held(&s, 1)) / s.one);
    until(reported(&s, objects));
    assert_true(warmed(&s) <= SLACK * objects);
    assert_true(held(&s, 1) <= possible);
    assert_int_equal(held(&s, 2), 0);
    /* used: everything lasts, one at the expense of none */
    uint64_t was = held(&s, 1);
    kit_get_all(&s.k[0], 0, 3);
    until(held(&s, 1) + s.one >= was);
    end(&s);
}

/* Budgets that are together the size of all experts, to the byte: every object has exactly one
 * place. `full`: each disk is first filled by demand, with what the others have, too. */
static void at_exactly(const uint64_t part[ALL], struct shoal *s, bool full)
{
    uint64_t sum = 0, possible = 0;
    for (int i = 0; i < ALL; i++) {
        up_bytes(s, i, part[i]);
        sum += part[i];
        possible += part[i] / s->one * s->one;
    }
    assert_int_equal(sum, s->experts);
    assert_true((double)possible >= 0.99 * (double)s->experts);
    for (int i = 0; i < ALL; i++) {
        kit_connected(&s->k[i], ALL - 1);
    }
    for (int i = 0; full && i < ALL; i++) {
        kit_get_all(&s->k[i], 0, 2);
    }
    warm(s, ALL - 1);
    until(held(s, 1) == possible);
    for (int i = 0; i < ALL; i++) {
        until(kit_status(&s->k[i], "homes.warm") == 0);
        until(kit_status(&s->k[i], "homes.under_way") == 0);
    }
    say(s, full ? "exactly the model, after demand" : "exactly the model");
    /* It is complete and stays so: where no byte is free, no last copy makes way for a second one,
     * whatever members know of each other just then. Nothing warms any more, so what went once
     * would be missing at the end. */
    assert_int_equal(held(s, 1), possible);
    kit_get_all(&s->k[0], 0, 3);
    kit_get_all(&s->k[1], 1, 2);
    say(s, "after use");
    assert_int_equal(held(s, 1), possible);
}

static void test_at(void **state)
{
    const char *all = getenv("HOMES_AT_ALL");
    for (int split = 0; split < (all ? 3 : 2); split++) {
        struct shoal s = {0};
        found(&s);
        uint64_t third = s.experts / s.one / 3 * s.one;
        uint64_t a[][2] = {
            {third, third},                                  /* whole objects */
            {s.experts / 3 + 1, s.experts / 2 - 777},        /* two remainders lie idle */
            {2 * s.one + 5, s.experts - 4 * s.one - 5 - 11}, /* one has nearly all */
        };
        uint64_t part[ALL] = {a[split][0], a[split][1]};
        part[ALL - 1] = s.experts - part[0] - part[1];
        at_exactly(part, &s, split == 0);
        end(&s);
    }
}

/* The simulation (tests/sim) of the same disks ends with as many copies, and has as much from the
 * origin. What went over the LAN more than once is counted apart: a fetch that failed, or two that
 * placed by what they knew at different times, makes it more and nothing wrong. */
static void as_simulated(struct shoal *s)
{
    const struct model_config *c = model_config(s->k[0].m);
    struct sim_opts o;
    struct sim_settled r;
    double moved = 0, origin = 0;
    sim_k3(&o);
    o.nodes = 0;
    o.experts = c->n_experts;
    o.layers = (uint32_t)(s->experts / s->one / c->n_experts);
    o.size = s->one;
    struct sim *sim = sim_open(&o);
    for (int i = 0; i < ALL; i++) {
        sim_join(sim, (uint64_t)kit_status(&s->k[i], "homes.budget"));
        moved +=
            kit_status(&s->k[i], "homes.copied_bytes") + kit_status(&s->k[i], "homes.warmed_bytes");
        origin += kit_status(&s->k[i], "tiers.origin.bytes");
    }
    sim_settle(sim, true, NULL, &r);
    assert_int_equal(held(s, 1), sim_held(sim, 1));
    assert_int_equal(held(s, 2), sim_held(sim, 2));
    assert_int_equal(held(s, 1) + held(s, 2), r.least);
    sim_close(sim);
    moved -= ALL * (double)s->spine; /* of experts alone */
    origin -= (double)s->spine;
    print_message("moved %.0f bytes, simulated %.0f; from the origin %.0f, simulated %.0f\n", moved,
                  (double)r.moved, origin, (double)r.origin_bytes);
    assert_true(moved <= SLACK * (double)r.moved);
    assert_true(origin >= (double)r.origin_bytes && origin <= SLACK * (double)r.origin_bytes);
    until(reported(s, kit_count(&s->k[0])));
    assert_true(warmed(s) <= SLACK * kit_count(&s->k[0]));
}

/* More than the model: second copies; then one leaves for good, and one comes. */
static void test_above(void **state)
{
    struct shoal s = {0};
    begin(&s, (const double[ALL]){0.8, 0.9, 0.8});
    uint64_t before = kit_origin_bytes(s.origin);
    warm(&s, 0);
    until(held(&s, 1) == s.experts);
    until(held(&s, 2) == s.experts); /* there is room for 2.5 */
    say(&s, "2.5 of the model");
    assert_true((double)(kit_origin_bytes(s.origin) - before) <=
                SLACK * (double)(s.spine + s.experts));
    for (int i = 0; i < ALL; i++) {
        until(kit_status(&s.k[i], "homes.waiting") == 0 &&
              kit_status(&s.k[i], "homes.under_way") == 0 &&
              kit_status(&s.k[i], "homes.once") == 0);
    }
    as_simulated(&s);
    for (int i = 0; i < ALL; i++) { /* each holds the spine, and knows how much there is twice */
        assert_true(kit_status(&s.k[i], "homes.layers.0.have") ==
                    kit_status(&s.k[i], "homes.layers.0.of"));
        assert_true(kit_status(&s.k[i], "homes.layers.0.mean") >= 2);
    }

    struct err e = {0};
    kit_get_all(&s.k[1], 0, 2); /* demand does not cost the last copies; nothing warms any more */
    until(held(&s, 1) == s.experts);

    const struct key_id gone = *mesh_id(node_mesh(s.k[2].n));
    kit_close(&s.k[2]);
    struct identity me;
    struct member m;
    struct key_id removed;
    char text[ID_TEXT];
    id_text(&gone, text);
    assert_int_equal(identity_open(s.k[0].home, NULL, &me, &e), 0);
    assert_int_equal(member_open(s.k[0].home, &me, &m, &e), 0);
    assert_int_equal(member_remove(&m, text, false, 1, &removed, &e), 0);
    member_close(&m);
    identity_close(&me);
    mesh_look(node_mesh(s.k[0].n));
    until(kit_status(&s.k[0], "members") == ALL); /* of four, one of which has not been up yet */
    until((double)held(&s, 1) >= 0.999 * (double)s.experts);
    say(&s, "one has left for good");

    uint64_t once = held(&s, 1), twice = held(&s, 2);
    up(&s, 3, 0.5);
    kit_connected(&s.k[3], 2);
    uint64_t room = whole(&s, 0.5), lack = s.experts - once + s.experts - twice;
    uint64_t more = room < lack ? room : lack;
    until((double)(held(&s, 1) + held(&s, 2)) >= (double)(once + twice) + 0.95 * (double)more);
    say(&s, "one has come");
    end(&s);
}

/* One is full of what nobody else has, and must take in more: what goes is taken over first. */
static void test_offer(void **state)
{
    struct shoal s = {0};
    begin(&s, (const double[ALL]){0.25, 0.9, 0.05});
    on_battery = true; /* nobody makes copies by itself ... */
    uint32_t first = 0, n = 0;
    const struct model *m = s.k[0].m;
    while (model_object(m, first)->kind != MODEL_EXPERT) {
        first++;
    }
    uint32_t count = (uint32_t)(s.experts / s.one), fits = (uint32_t)(whole(&s, 0.25) / s.one);
    for (; n < fits; n++) {
        kit_get(&s.k[0], first + n);
    }
    until(held(&s, 1) >= (uint64_t)(fits - 1) * s.one);
    on_battery = false; /* ... but offers are taken */
    for (; n < fits + fits / 2 && n < count; n++) {
        kit_get(&s.k[0], first + n);
        usleep(20000);
    }
    until(kit_status(&s.k[1], "homes.copied") > 0);
    until(held(&s, 1) >= (uint64_t)(fits - 1) * s.one);
    for (uint32_t i = 0; i < fits; i++) { /* what was there first is still there, somewhere */
        until(on_disk(&s.k[0], first + i) || on_disk(&s.k[1], first + i) ||
              on_disk(&s.k[2], first + i)); /* looked at one after the other, while it moves */
    }
    end(&s);
}

/* Whose disk holds all experts is full, but nothing more can come: it gives nothing to others. */
static void test_whole(void **state)
{
    struct shoal s = {0};
    on_battery = false;
    s.origin = kit_origin(s.url);
    sizes(&s);
    kit_keeper(&s.k[0]);
    kit_member(&s.k[1], &s.k[0]);
    up(&s, 0, 1.2);
    kit_get_all(&s.k[0], 0, 1);
    s.k[1].o.store.disk_budget = s.k[0].o.store.disk_budget;
    kit_open(&s.k[1], s.url, &s.k[0]); /* no copies by itself: an offer alone brings something */
    kit_connected(&s.k[0], 1);
    until(kit_status(&s.k[0], "homes.used") == (double)s.experts);
    until(kit_status(&s.k[0], "homes.members.1.budget") == (double)s.experts);
    until(kit_status(&s.k[1], "homes.covered") == (double)s.experts);
    usleep(500000); /* two rounds: enough to offer */
    assert_int_equal(kit_status(&s.k[0], "homes.offered"), 0);
    assert_int_equal(kit_status(&s.k[1], "homes.accepted"), 0);
    assert_int_equal(kit_status(&s.k[1], "homes.used"), 0);
    kit_end(&s.k[1]);
    kit_end(&s.k[0]);
    demo_server_stop(s.origin);
}

static void test_battery(void **state)
{
    struct shoal s = {0};
    on_battery = true;
    s.origin = kit_origin(s.url);
    sizes(&s);
    kit_keeper(&s.k[0]);
    kit_member(&s.k[1], &s.k[0]);
    on_battery = true;
    up(&s, 0, 1.2);
    kit_get_all(&s.k[0], 0, 4);
    up(&s, 1, 1.2);
    kit_connected(&s.k[1], 1);
    until(kit_status(&s.k[1], "homes.waiting") > 0);
    assert_int_equal(kit_status(&s.k[1], "homes.background"), 0);
    assert_int_equal(kit_status(&s.k[1], "homes.copied"), 0);
    on_battery = false;
    until(kit_status(&s.k[1], "homes.waiting") == 0 && held(&s, 2) > 0);
    until(held(&s, 2) == held(&s, 1));
    /* the user's word about the network stands above the system's; it is no battery */
    kit_close(&s.k[1]);
    s.k[1].o.metered = NODE_METERED_YES;
    up(&s, 1, 1.2);
    until(kit_status(&s.k[1], "homes.metered.now") == 1);
    char *why = kit_status_text(&s.k[1], "homes.why");
    assert_int_equal(kit_status(&s.k[1], "homes.background"), 0);
    assert_non_null(strstr(why, "--metered"));
    free(why);
    kit_close(&s.k[1]);
    costly = true;
    s.k[1].o.metered = NODE_METERED_NO;
    up(&s, 1, 1.2);
    until(kit_status(&s.k[1], "homes.background") == 1);
    kit_close(&s.k[1]);
    s.k[1].o.metered = NODE_METERED_AUTO;
    up(&s, 1, 1.2);
    until(kit_status(&s.k[1], "homes.metered.now") == 1);
    assert_int_equal(kit_status(&s.k[1], "homes.background"), 0);
    costly = false;
    kit_end(&s.k[1]);
    kit_end(&s.k[0]);
    demo_server_stop(s.origin);
}

/* What a member held counts while it is switched off, also after a restart; a damaged file of such
 * memories is as none. */
static void test_remembered(void **state)
{
    struct shoal s = {0};
    on_battery = true; /* nothing is copied */
    s.origin = kit_origin(s.url);
    sizes(&s);
    kit_keeper(&s.k[0]);
    kit_member(&s.k[1], &s.k[0]);
    up(&s, 0, 1.2);
    up(&s, 1, 1.2);
    kit_connected(&s.k[0], 1);
    kit_get_all(&s.k[1], 0, 4);
    until(held(&s, 1) > 0 && kit_status(&s.k[0], "homes.covered") == (double)held(&s, 1));
    double held_there = (double)held(&s, 1);
    kit_close(&s.k[1]);
    until(kit_status(&s.k[0], "connected") == 0);
    kit_close(&s.k[0]);
    up(&s, 0, 1.2);
    until(kit_status(&s.k[0], "homes.covered") == held_there);
    assert_int_equal(kit_status(&s.k[0], "homes.members.1.connected"), 0);
    assert_true(kit_status(&s.k[0], "homes.members.1.seen") > 1e9);
    kit_close(&s.k[0]);

    char *file = NULL;
    assert_int_equal(util_count_files(s.k[0].home, "/shoal/homes-", &file), 1);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 70, SEEK_SET), 0);
    assert_int_equal(fputc(0x5a, f), 0x5a);
    fclose(f);
    free(file);
    up(&s, 0, 1.2);
    until(util_log_has(&s.k[0].log, "what other members kept is not known any more") == 1);
    until(kit_status(&s.k[0], "homes.covered") == kit_status(&s.k[0], "homes.used"));
    assert_true(kit_status(&s.k[0], "homes.used") < held_there);
    kit_end(&s.k[1]);
    kit_end(&s.k[0]);
    demo_server_stop(s.origin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remembered), cmocka_unit_test(test_battery),
        cmocka_unit_test(test_below),      cmocka_unit_test(test_at),
        cmocka_unit_test(test_above),      cmocka_unit_test(test_offer),
        cmocka_unit_test(test_whole),
    };
    cmocka_set_test_filter(getenv("KIT_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
