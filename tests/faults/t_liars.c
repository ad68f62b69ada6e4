/* SPDX-License-Identifier: MIT
 * t_liars.c: members that sign, against whole nodes: who signs falsely, who signs truly and gives
 * something else, who lies to one member alone, a rotten disk, a removed member. Whatever they do,
 * an object that a node uses is the model's own; the right one is named; honest ones are never
 * banned and their word counts. */
#include "tests/faults/liar.h"

#include "node/store/share.h"
#include "node/store/words.h"
#include "peer/member.h"

static char url[128];
static struct demo_server *origin;

static void honest_still(struct kit_node *k, const struct kit_node *who)
{
    const struct key_id *id = mesh_id(node_mesh(who->n));
    assert_true(word(k, id, "void") <= 0);
    assert_int_equal(peer(k, id, "bans"), 0);
    assert_int_equal(peer(k, id, "strikes"), 0);
}

/* All objects, each right or not had; how many were not. */
static uint32_t try_all(struct kit_node *k)
{
    uint32_t failed = 0;
    for (uint32_t id = 0; id < kit_count(k); id += 3) {
        failed += kit_try(k, id) != 0; /* wrong bytes fail the test */
    }
    return failed;
}

/* ---- a household: A has all from the origin, B is about to fetch, E is evil ---- */

static struct kit_node a, b;
static struct bad ev;

static void begin(const struct evil_opts *o, bool with_origin)
{
    origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    until(word(&a, mesh_id(node_mesh(a.n)), "objects") == kit_count(&a));
    bad_start(&ev, &a, &a, o, NULL);
    kit_open(&b, url, &a); /* its metadata */
    kit_connected(&b, 1);
    if (!with_origin) {
        demo_server_stop(origin);
        origin = NULL;
    }
}

static void end(void)
{
    kit_end(&b);
    bad_stop(&ev);
    kit_end(&a);
    demo_server_stop(origin);
    origin = NULL;
}

/* Signs everything falsely, gives the right bytes. A, who has it all by its own download, sees it
 * at once; so does B when it has something of its own. */
static void test_perjurer(void **state)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_FALSELY};
    char line[100];
    begin(&o, true);
    meet(&a, evil_port(ev.e));
    until(word(&a, &ev.id, "void") == 1);
    snprintf(line, sizeof line, "the word of member %s is void", ev.who);
    until(util_log_has(&a.log, line));
    meet(&b, evil_port(ev.e));
    until(word(&b, &ev.id, "objects") > 0 || word(&b, &ev.id, "void") == 1);
    assert_int_equal(try_all(&b), 0);
    assert_int_equal(word(&b, &ev.id, "alone") <= 0, 1);
    honest_still(&b, &a);
    honest_still(&a, &b);
    end();
}

/* The same without an origin: A's word against E's. Nothing false is used, A is not blamed. */
static void test_perjurer_offline(void **state)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_FALSELY};
    begin(&o, false);
    meet(&b, evil_port(ev.e));
    until(word(&b, &ev.id, "objects") == kit_count(&b));
    until(word(&b, mesh_id(node_mesh(a.n)), "objects") == kit_count(&b));
    try_all(&b);
    honest_still(&b, &a);
    end();
}

/* Signs falsely and gives the bytes that it signed: the first signer that B hears. */
static void test_first_signer(void **state)
{
    struct evil_opts o = {.vice = EVIL_LIES, .signs = EVIL_SIGNS_FALSELY};
    begin(&o, true);
    meet(&b, evil_port(ev.e));
    /* found out at once where something comes without being asked for (a full disk's offers) */
    until(word(&b, &ev.id, "objects") == kit_count(&b) || word(&b, &ev.id, "void") == 1);
    assert_int_equal(try_all(&b), 0); /* two that contradict each other: the origin decides */
    honest_still(&b, &a);
    end();
}

/* The same liar, and B has nothing of its own and meets nobody else: a sample of the origin tells,
 * or what comes from the origin first, before anything of it is used. */
static void test_first_signer_alone(void **state)
{
    struct evil_opts o = {.vice = EVIL_LIES, .signs = EVIL_SIGNS_FALSELY};
    char line[100];
    origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    bad_start(&ev, &a, &a, &o, NULL);
    kit_open(&b, url, NULL);
    meet(&b, evil_port(ev.e));
    /* found out at once where something comes without being asked for */
    until(word(&b, &ev.id, "void") == 1 ||
          (word(&b, &ev.id, "objects") == kit_count(&b) && peer(&b, &ev.id, "objects") > 0));
    assert_int_equal(try_all(&b), 0);
    snprintf(line, sizeof line, "the word of member %s is void", ev.who);
    until(util_log_has(&b.log, line));
    assert_int_equal(word(&b, &ev.id, "alone"), 0);
    assert_true(kit_status(&b, "fetch.samples.uncompared") == 0);
    end();
}

/* Without an origin its word is all there is: it is used, and the node says so. */
static void test_first_signer_offline(void **state)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_TRULY};
    origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    bad_start(&ev, &a, &a, &o, NULL);
    kit_open(&b, url, NULL);
    demo_server_stop(origin);
    origin = NULL;
    meet(&b, evil_port(ev.e));
    until(word(&b, &ev.id, "objects") == kit_count(&b) && peer(&b, &ev.id, "objects") > 0);
    kit_get(&b, model_expert_id(b.m, 2, 3));
    kit_get(&b, model_expert_id(b.m, 2, 4));
    until(util_log_has(&b.log, "on its word alone"));
    assert_true(kit_status(&b, "fetch.samples.uncompared") == 2);
    until(word(&b, &ev.id, "alone") == 2);
    end();
}

/* Signs truly, gives something else: its bytes are thrown away, its word stays. */
static void test_two_faced(void **state)
{
    struct evil_opts o = {.vice = EVIL_FLIP, .signs = EVIL_SIGNS_TRULY};
    begin(&o, false);
    meet(&b, evil_port(ev.e));
    until(word(&b, &ev.id, "objects") == kit_count(&b));
    until(peer(&b, &ev.id, "objects") > 0);
    assert_int_equal(try_all(&b), 0);
    assert_int_equal(word(&b, &ev.id, "void"), 0);
    assert_true(kit_status(&b, "basis.two_members.objects") > 0); /* A's word and E's agree */
    honest_still(&b, &a);
    /* what came of it may all have been late, and overtaken: now there is nobody else to ask */
    ev.m = b.m;
    ev.src.root = model_root(b.m);
    kit_close(&a);
    for (uint32_t id = 1; peer(&b, &ev.id, "bad_chunks") == 0; id += 3) {
        assert_true(id < kit_count(&b));
        assert_int_not_equal(kit_try(&b, id), 0);
    }
    end();
}

/* Lets its bytes drip, for ever: found out, passed by, no liar. */
static void test_drips(void **state)
{
    struct evil_opts o = {.vice = EVIL_SLOW, .signs = EVIL_SIGNS_TRULY};
    struct evil_stats s;
    begin(&o, false);
    meet(&b, evil_port(ev.e));
    until(peer(&b, &ev.id, "objects") > 0);
    assert_int_equal(try_all(&b), 0);
    evil_get_stats(ev.e, &s);
    if (s.vices) {
        until(util_log_has(&b.log, "did not give what it was asked for in time") ||
              util_log_has(&b.log, "gave nothing, or hardly a byte a while"));
    }
    assert_int_equal(peer(&b, &ev.id, "bans"), 0);
    assert_int_equal(word(&b, &ev.id, "void"), 0);
    honest_still(&b, &a);
    end();
}

/* Gives false bytes to B alone: B finds out, C goes on using it, nobody takes B's or C's word for
 * the other's. */
static void test_only_one(void **state)
{
    struct kit_node c;
    struct evil_opts o = {.vice = EVIL_FLIP, .signs = EVIL_SIGNS_TRULY};
    origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_member(&c, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    until(word(&a, mesh_id(node_mesh(a.n)), "objects") == kit_count(&a));
    kit_open(&b, url, &a);
    kit_open(&c, url, &a);
    kit_connected(&b, 1);
    demo_server_stop(origin);
    origin = NULL;
    o.only = node_port(b.n);
    bad_start(&ev, &a, &a, &o, NULL);
    meet(&b, evil_port(ev.e));
    meet(&c, evil_port(ev.e));
    until(peer(&b, &ev.id, "objects") > 0 && peer(&c, &ev.id, "objects") > 0);
    assert_int_equal(try_all(&b), 0);
    assert_int_equal(try_all(&c), 0);
    assert_int_equal(peer(&c, &ev.id, "bad_chunks"), 0);
    honest_still(&b, &a);
    honest_still(&c, &a);
    assert_int_equal(word(&c, &ev.id, "void") <= 0, 1);
    kit_end(&c);
    end();
}

/* A's disk rots under it: what it gives is compared before it goes out, and gone over with its own
 * checksums; it is nobody's liar. */
static void test_rotten_disk(void **state)
{
    struct kit_node c;
    origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_member(&c, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    kit_open(&c, url, &a);
    kit_get_all(&c, 0, 1);
    until(kit_status(&c, "objects") == kit_count(&c));
    kit_open(&b, url, &a);
    kit_connected(&b, 1);
    until(kit_status(&b, "peers.0.objects") > 0 || kit_status(&b, "peers.1.objects") > 0);
    demo_server_stop(origin);
    origin = NULL;
    assert_int_equal(
        shell("find '%s/cache/models' -name '*.mxfp4' | while read f; do "
              "printf 'rot' | dd of=\"$f\" bs=1 seek=100 conv=notrunc 2>/dev/null; done",
              a.home),
        0);
    uint32_t id = model_expert_id(b.m, 2, 3);
    store_share_check(a.st, id, 0); /* what a member's complaint brings about */
    until(util_log_has(&a.log, "damaged") > 0);
    meet(&b, node_port(c.n));
    kit_connected(&b, 2);
    kit_get(&b, id);
    assert_int_equal(try_all(&b), 0);
    honest_still(&b, &a);
    honest_still(&b, &c);
    kit_end(&b);
    kit_end(&c);
    kit_end(&a);
}

/* ---- a few lies ---- */

#define LIES 3

/* Three experts are others. */
static uint32_t three(const struct model *m, uint32_t id)
{
    for (uint32_t i = 0; i < LIES; i++) {
        if (id == model_expert_id(m, 2 + i, 5)) {
            return model_expert_id(m, 2 + i, 9);
        }
    }
    return id;
}

/* Has its metadata; without_origin: and no origin from now on. */
static void open_c(struct kit_node *c, bool without_origin)
{
    kit_open(c, url, NULL);
    if (without_origin) {
        kit_close(c);
        c->o.store.offline = true;
        kit_open(c, url, NULL);
    }
}

/* What a member has, in the background, where the origin is not asked for it by itself. */
static void take(struct kit_node *k, uint32_t id)
{
    struct err e = {0};
    struct store_view v;
    ok(store_get(k->st, id, STORE_BACKGROUND, 0, &v, &e));
    uint8_t *truth = util_truth(k->m, DEMO_MODEL, id);
    assert_memory_equal(v.p, truth, v.n);
    free(truth);
    store_release(k->st, &v);
}

/* Lies about three experts alone, and gives the bytes that it signed; B has nobody else. What it
 * gave first was right, so samples find nothing: a piece of each object does, before it is used. */
static void test_few_lies(void **state)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_TRULY}; /* what it holds */
    char line[100];
    origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    bad_start(&ev, &a, &a, &o, three);
    kit_open(&b, url, NULL);
    meet(&b, evil_port(ev.e));
    until(word(&b, &ev.id, "objects") == kit_count(&b) && peer(&b, &ev.id, "objects") > 0);
    take(&b, model_spine_id(b.m, MODEL_NONE, MODEL_FINAL_NORM));
    take(&b, model_expert_id(b.m, 1, 0));
    for (uint32_t i = 0; i < 8; i++) {
        take(&b, model_expert_id(b.m, 3, 8 + i));
    }
    assert_int_equal(kit_status(&b, "fetch.samples.compared"), 2);
    assert_int_equal(kit_status(&b, "fetch.samples.false"), 0);
    assert_int_equal(word(&b, &ev.id, "void"), 0);
    assert_true(kit_status(&b, "fetch.samples.pieces") > 0);
    for (uint32_t i = 0; i < LIES; i++) {
        take(&b, model_expert_id(b.m, 2 + i, 5));
    }
    snprintf(line, sizeof line, "the word of member %s is void", ev.who);
    until(util_log_has(&b.log, line));
    assert_int_equal(kit_status(&b, "fetch.samples.pieces_false"), 1);
    assert_int_equal(kit_status(&b, "fetch.samples.uncompared"), 0);
    until(word(&b, &ev.id, "alone") == 0);
    assert_int_equal(try_all(&b), 0);
    end();
}

/* C believed the liar, for it had no origin, and hands on what it was given: that is still the word
 * of one member, also beside the liar's statement. B, who has an origin, finds it out; C is not to
 * blame, the liar is. */
static void test_handed_on(void **state)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_TRULY};
    struct kit_node c, d;
    struct store_view v;
    struct err e = {0};
    origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_member(&c, &a);
    kit_member(&d, &a);
    kit_open(&a, url, NULL);
    bad_start(&ev, &a, &a, &o, three);
    open_c(&c, true);
    open_c(&d, true);
    uint32_t first = model_expert_id(a.m, 1, 0), lie = model_expert_id(a.m, 2, 5);
    meet(&c, evil_port(ev.e));
    until(word(&c, &ev.id, "objects") == kit_count(&c) && peer(&c, &ev.id, "objects") > 0);
    take(&c, first);
    ok(store_get(c.st, lie, STORE_BACKGROUND, 0, &v, &e));
    store_release(c.st, &v);
    until(word(&c, &ev.id, "alone") == 2);
    evil_stop(ev.e); /* from here on C alone has it */
    ev.e = NULL;
    const struct key_id *id = mesh_id(node_mesh(c.n));

    meet(&d, node_port(c.n));
    until(peer(&d, id, "objects") == 2 && word(&d, &ev.id, "objects") == kit_count(&d));
    take(&d, first);
    ok(store_get(d.st, lie, STORE_BACKGROUND, 0, &v, &e));
    store_release(d.st, &v);
    until(kit_status(&d, "basis.one_member.objects") == 2);
    assert_int_equal(kit_status(&d, "basis.two_members.objects"), 0);
    assert_true(word(&d, id, "alone") <= 0);
    kit_end(&d);

    kit_open(&b, url, NULL);
    meet(&b, node_port(c.n));
    until(peer(&b, id, "objects") == 2);
    take(&b, first);
    take(&b, lie);
    assert_int_equal(
        kit_status(&b, "fetch.samples.pieces_false") + kit_status(&b, "fetch.samples.false"), 1);
    until(word(&b, &ev.id, "void") == 1); /* its statement came by way of C */
    honest_still(&b, &c);
    kit_end(&c);
    end();
}

/* Signatures that are wrong: it broke the protocol, nothing of it is kept. */
static void test_bad_signature(void **state)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_BADLY};
    begin(&o, true);
    meet(&a, evil_port(ev.e));
    until(util_log_has(&a.log, "a statement whose signature is wrong"));
    assert_true(word(&a, &ev.id, "objects") <= 0);
    honest_still(&a, &b);
    end();
}

/* Removed from the shoal, it says no more: its statements are forgotten and not taken again, also
 * when it comes back. */
static void test_removed(void **state)
{
    struct evil_opts o = {.vice = EVIL_HONEST, .signs = EVIL_SIGNS_TRULY};
    struct identity me;
    struct member m;
    struct key_id gone;
    struct err e = {0};
    begin(&o, true);
    meet(&a, evil_port(ev.e));
    until(word(&a, &ev.id, "objects") == kit_count(&a));
    ok(identity_open(a.home, NULL, &me, &e));
    ok(member_open(a.home, &me, &m, &e));
    ok(member_remove(&m, ev.who, false, 1764500000, &gone, &e));
    assert_true(id_equal(&gone, &ev.id));
    member_close(&m);
    identity_close(&me);
    mesh_look(node_mesh(a.n));
    until(word(&a, &ev.id, "objects") == 0);
    meet(&a, evil_port(ev.e));
    meet(&b, evil_port(ev.e));
    assert_int_equal(try_all(&b), 0);
    assert_int_equal(word(&a, &ev.id, "objects"), 0);
    assert_true(word(&b, &ev.id, "objects") <= 0);
    honest_still(&b, &a);
    honest_still(&a, &b);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_perjurer),
        cmocka_unit_test(test_perjurer_offline),
        cmocka_unit_test(test_first_signer),
        cmocka_unit_test(test_first_signer_alone),
        cmocka_unit_test(test_first_signer_offline),
        cmocka_unit_test(test_two_faced),
        cmocka_unit_test(test_only_one),
        cmocka_unit_test(test_rotten_disk),
        cmocka_unit_test(test_few_lies),
        cmocka_unit_test(test_handed_on),
        cmocka_unit_test(test_bad_signature),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_drips),
    };
    cmocka_set_test_filter(getenv("LIARS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
