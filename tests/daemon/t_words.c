/* SPDX-License-Identifier: MIT
 * t_words.c: what members say about digests, between whole nodes: statements travel and raise what
 * objects rest on; a member whose word the origin denies is named and its word is void, in this run
 * and the next; an imported manifest decides; audits find what nobody asked for. */
#include "tests/daemon/node_kit.h"

#include "node/store/manifest.h"
#include "node/store/words.h"

#include <time.h>

/* A number of one member's row of "words". */
static double word_of(struct kit_node *k, const struct kit_node *who, const char *field)
{
    struct err e = {0};
    json_t *root;
    char text[ID_TEXT];
    double v = -1;
    id_text(mesh_id(node_mesh(who->n)), text);
    ok(node_status(k->n, &root, &e));
    const json_t *list = json_object_get(json_object_get(root, "words"), "members");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        if (!strcmp(json_string_value(json_object_get(m, "id")), text)) {
            const json_t *j = json_object_get(m, field);
            v = json_is_number(j) ? json_number_value(j) : json_is_true(j);
        }
    }
    json_decref(root);
    return v;
}

/* All objects, right or wrong. */
static void take_all(struct kit_node *k)
{
    struct err e = {0};
    for (uint32_t id = 0; id < kit_count(k); id++) {
        struct store_view v;
        ok(store_get(k->st, id, STORE_DEMAND, 0, &v, &e));
        store_release(k->st, &v);
    }
}

/* A copy of the model. */
static char *copied(void)
{
    char *dir = util_tmpdir();
    assert_int_equal(shell("cp -rp '%s'/. '%s'/ && chmod -R u+w '%s'", DEMO_MODEL, dir, dir), 0);
    return dir;
}

/* Changes one byte of an expert there, or changes it back: size, time and name stay. */
static uint32_t flip(const char *dir, const struct model *m)
{
    uint32_t id = model_expert_id(m, 1, 0);
    assert_true(id != MODEL_NONE);
    const struct model_object *o = model_object(m, id);
    const char *file = model_shard(m, o->shard)->file;
    char path[600], ref[600];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    snprintf(ref, sizeof ref, "%s/%s", DEMO_MODEL, file);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    long at = (long)(o->offset + o->size / 2);
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
    assert_int_equal(shell("touch -r '%s' '%s'", ref, path), 0);
    return id;
}

static uint16_t port_of(const char *url)
{
    return (uint16_t)strtoul(strrchr(url, ':') + 1, NULL, 10);
}

static struct demo_server *serve(const char *dir, uint16_t port, char url[128])
{
    struct demo_server *s;
    struct err e = {0};
    ok(demo_server_start(dir, port, &s, &e));
    if (url) {
        snprintf(url, 128, "%s", demo_server_url(s));
    }
    return s;
}

/* A and C each load all from the origin. B has only A, later C as well. */
static void test_statements(void **state)
{
    char url[128];
    struct kit_node a, b, c;
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_member(&c, &a);
    kit_open(&c, url, NULL);
    kit_get_all(&c, 0, 1);
    uint32_t n = kit_count(&c);
    until(word_of(&c, &c, "objects") == n);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    until(word_of(&a, &a, "objects") == n);
    demo_server_stop(origin);
    /* B: from A alone, so everything rests on A */
    kit_open(&b, url, &a);
    kit_connected(&b, 1);
    kit_get_all(&b, 0, 1);
    until(kit_status(&b, "basis.one_member.objects") == n);
    until(word_of(&b, &a, "objects") == n);
    assert_int_equal(word_of(&b, &a, "alone"), n);
    assert_int_equal(kit_status(&b, "basis.two_members.objects"), 0);
    /* A's word in B's catalog is still there in the next run; C's word comes, by way of A: B is not
     * connected with C */
    kit_close(&b);
    int cport = node_port(c.n);
    char peer[64];
    struct err e = {0};
    snprintf(peer, sizeof peer, "127.0.0.1:%d", cport);
    ok(mesh_add_static(node_mesh(a.n), peer, &e));
    until(word_of(&a, &c, "objects") == n);
    kit_close(&c);
    kit_open(&b, url, &a);
    until(kit_status(&b, "basis.two_members.objects") == n);
    assert_int_equal(kit_status(&b, "basis.one_member.objects"), 0);
    assert_int_equal(word_of(&b, &a, "alone"), 0);
    assert_true(util_log_has(&b.log, "void") == 0);
    kit_end(&b);
    kit_end(&a);
    kit_end(&c);
}

/* L loaded from a changed origin and signs what it got. */
static void test_liar(void **state)
{
    char url[128];
    uint32_t id, n;
    struct kit_node l, b;
    char *dir = copied();
    struct demo_server *origin = serve(dir, 0, url);
    uint16_t port = port_of(url);
    kit_keeper(&l);
    kit_member(&b, &l);
    kit_open(&b, url, NULL);
    n = kit_count(&b);
    id = flip(dir, b.m);
    kit_close(&b);
    kit_open(&l, url, NULL);
    take_all(&l);
    until(word_of(&l, &l, "objects") == n);
    flip(dir, l.m);
    demo_server_stop(origin);
    /* B, while the origin is away: it has only L's word, and says so */
    kit_open(&b, url, &l);
    until(kit_status(&b, "peers.0.objects") == n || kit_status(&b, "peers.1.objects") == n);
    take_all(&b);
    until(kit_status(&b, "basis.one_member.objects") == n);
    until(word_of(&b, &l, "objects") == n);
    assert_int_equal(word_of(&b, &l, "void"), 0);
    kit_close(&b);
    /* the right origin is back: an audit finds it, though nobody asks for anything */
    origin = serve(dir, port, NULL);
    b.o.audit_ms = 1;
    kit_open(&b, url, &l);
    until(word_of(&b, &l, "void") == 1);
    char who[ID_SHORT], line[80];
    id_short(mesh_id(node_mesh(l.n)), who);
    snprintf(line, sizeof line, "the word of member %s is void", who);
    until(util_log_has(&b.log, line));
    until(word_of(&b, &l, "alone") == 0);
    until(kit_status(&b, "basis.one_member.objects") == 0);
    kit_get(&b, id); /* right now, in spite of what was in RAM and on disk */
    kit_get_all(&b, 0, 1);
    assert_int_equal(kit_status(&b, "peers.0.fetch.bans"), 0);
    kit_close(&b);
    /* it stays so, and the liar's statements are not taken again, until it is believed */
    b.o.audit_ms = 0;
    kit_open(&b, url, &l);
    kit_connected(&b, 1);
    assert_int_equal(word_of(&b, &l, "void"), 1);
    assert_int_equal(word_of(&b, &l, "objects"), 0);
    struct err e = {0};
    json_t *q = json_pack("{s:s,s:s}", "op", "unban", "peer", who), *a = NULL;
    ok(node_ask(b.home, q, 0, &a, &e));
    json_decref(a);
    json_decref(q);
    assert_int_equal(word_of(&b, &l, "void"), 0);
    kit_end(&b);
    kit_end(&l);
    demo_server_stop(origin);
    shell("rm -rf '%s'", dir);
    free(dir);
}

/* A published manifest: what agrees rests on it, the liar is found without any origin. */
static void test_manifest(void **state)
{
    char url[128];
    uint32_t id, n, known;
    struct kit_node a, l, b;
    struct err e = {0};
    struct buf mf;
    char *dir = copied();
    struct demo_server *origin = serve(dir, 0, url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_member(&l, &a); /* it knows B and lets it in */
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    n = kit_count(&a);
    id = flip(dir, a.m);
    buf_init(&mf, MANIFEST_MAX);
    until(kit_status(&a, "basis.origin.objects") == n);
    ok(store_manifest_gather(a.st, &mf, &known, &e));
    assert_int_equal(known, n);
    ok(manifest_end(&mf, NULL, NULL, 0));
    kit_open(&l, url, NULL);
    take_all(&l);
    until(kit_status(&l, "basis.origin.objects") == n);
    until(word_of(&l, &l, "objects") == n);
    demo_server_stop(origin);
    /* in L's cache it is refused in words: that holds another checkpoint */
    assert_int_equal(store_manifest_import(at(l.home, "cache"), mf.p, mf.n, &e), ERR_DIGEST);
    assert_non_null(strstr(e.msg, "another checkpoint"));
    /* damaged, it is not taken */
    mf.p[100] ^= 1;
    assert_int_equal(store_manifest_import(at(b.home, "cache"), mf.p, mf.n, &e), ERR_FORMAT);
    mf.p[100] ^= 1;
    kit_open(&b, url, &l);
    until(kit_status(&b, "peers.0.objects") == n || kit_status(&b, "peers.1.objects") == n);
    take_all(&b);
    until(word_of(&b, &l, "objects") == n);
    kit_close(&b);
    ok(store_manifest_import(at(b.home, "cache"), mf.p, mf.n, &e));
    kit_open(&b, url, &a);
    until(kit_status(&b, "basis.manifest.objects") == n - 1); /* the false one is gone */
    assert_int_equal(word_of(&b, &l, "void"), 1);
    assert_int_equal(kit_status(&b, "words.manifest.objects"), n);
    kit_connected(&b, 2);
    kit_get(&b, id); /* A has the right one */
    until(kit_status(&b, "basis.manifest.objects") == n);
    kit_end(&b);
    kit_end(&l);
    kit_end(&a);
    buf_free(&mf);
    shell("rm -rf '%s'", dir);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_liar),
        cmocka_unit_test(test_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
