/* SPDX-License-Identifier: MIT
 * t_bans.c: bans that survive a restart of the program. */
#include "tests/peer/mesh_kit.h"

#include "peer/home.h"

#include <time.h>

static void pair(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_home(a, NULL);
    kit_home(b, a);
    kit_give(b, 0, 0, KIT_OBJECTS);
}

static void connect_pair(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_open(b);
    kit_static(a, mesh_port(b->m));
    kit_open(a);
    mesh_until(mesh_peers(a->m) == 1);
}

static char *file_of(struct kit_mesh *k)
{
    struct buf b;
    struct err e = {0};
    if (!home_has(k->home, "bans")) {
        return strdup("");
    }
    buf_init(&b, 1 << 20);
    ok(home_read(k->home, "bans", false, 1 << 20, &b, &e));
    char *s = strndup(b.p ? b.p : "", b.n);
    buf_free(&b);
    return s;
}

/* The seconds that the first ban in the file still has; 0: there is none. */
static long left(struct kit_mesh *k)
{
    char *s = file_of(k), *line = strchr(s, '\n');
    long r = 0;
    if (line && line[1]) {
        char *sp = strchr(line, ' ');
        assert_non_null(sp);
        r = (long)(strtoll(sp, NULL, 10) - (long long)time(NULL));
    }
    free(s);
    return r;
}

static void write_ban(struct kit_mesh *k, const struct key_id *id, long long end, int count)
{
    struct err e = {0};
    char hex[2 * SHA256_SIZE + 1], text[300];
    sha256_hex(id->b, hex);
    snprintf(text, sizeof text, "shoal bans 1\n%s %lld %d somebody\n", hex, end, count);
    ok(home_write(k->home, "bans", text, strlen(text), &e));
}

static void a_ban_survives(void **state)
{
    struct kit_mesh a, b;
    struct err e = {0};
    pair(&a, &b);
    b.store.lie = KIT_FLIP;
    connect_pair(&a, &b);
    mesh_until(kit_holders(&a, kit_key(0, 9)) == 1);
    for (unsigned i = 0; i < 3; i++) {
        struct kit_fetch f;
        kit_fetch(&a, &f, kit_key(0, i), FETCH_DEMAND);
        kit_wait(&f);
        assert_int_not_equal(f.r.code, 0);
    }
    mesh_until(kit_holders(&a, kit_key(0, 9)) == 0);
    mesh_until(left(&a) > 0);
    long first = left(&a);
    assert_true(first > 500 && first <= 600); /* ten minutes */
    b.store.lie = KIT_HONEST;
    kit_close(&a);
    kit_open(&a);
    mesh_until(mesh_peers(a.m) == 1);
    assert_true(kit_said(&a, "is still banned, for another"));
    assert_int_equal(kit_holders(&a, kit_key(0, 9)), 0);
    assert_true(left(&a) > 0 && left(&a) <= first);
    ok(mesh_unban(a.m, mesh_id(b.m), &e));
    assert_int_equal(left(&a), 0);
    fails(mesh_unban(a.m, mesh_id(b.m), &e), ERR_NOTFOUND, "not banned");
    mesh_until(kit_holders(&a, kit_key(0, 9)) == 1);
    kit_close(&a);
    kit_open(&a);
    mesh_until(kit_holders(&a, kit_key(0, 9)) == 1);
    kit_free(&a);
    kit_free(&b);
}

static void clocks_and_counts(void **state)
{
    struct kit_mesh a, b;
    struct key_id id;
    pair(&a, &b);
    connect_pair(&a, &b);
    id = *mesh_id(b.m);
    kit_close(&a);
    write_ban(&a, &id, (long long)time(NULL) + 864000, 2); /* a clock was set back ten days */
    kit_open(&a);
    mesh_until(left(&a) <= 86400);
    assert_true(left(&a) > 86000);
    kit_close(&a);
    char *s = file_of(&a);
    assert_non_null(strstr(s, " 2 somebody\n"));
    free(s);
    write_ban(&a, &id, (long long)time(NULL) - 1, 1); /* over */
    kit_open(&a);
    mesh_until(kit_holders(&a, kit_key(0, 9)) == 1);
    kit_close(&a);
    assert_int_equal(left(&a), 0);
    kit_free(&a);
    kit_free(&b);
}

/* No model, so no engine that knows of bans: the file does. */
static void lifted_without_a_model(void **state)
{
    struct kit_mesh a;
    struct err e = {0};
    struct key_id id;
    kit_home(&a, NULL);
    a.o.has_model = false;
    memset(id.b, 5, sizeof id.b);
    write_ban(&a, &id, (long long)time(NULL) + 500, 1);
    kit_open(&a);
    assert_true(left(&a) > 400);
    ok(mesh_unban(a.m, &id, &e));
    assert_int_equal(left(&a), 0);
    fails(mesh_unban(a.m, &id, &e), ERR_NOTFOUND, "not banned");
    kit_free(&a);
}

#define H "0505050505050505050505050505050505050505050505050505050505050505"
static void damaged_files_are_set_aside(void **state)
{
    static const char *const bad[] = {
        "",
        "shoal bans 2\n",
        "shoal bans 1",
        "shoal bans 1\n\n",
        "shoal bans 1\n" H " 5 1 x",
        "shoal bans 1\n" H " 5 0 x\n",
        "shoal bans 1\n" H " 5 4 x\n",
        "shoal bans 1\n" H " -5 1 x\n",
        "shoal bans 1\n" H " 1234567890123 1 x\n",
        "shoal bans 1\n" H "5 5 1 x\n",
        "shoal bans 1\n" H " 5 1\n",
        "shoal bans 1\n0" H " 5 1 x\n",
        "shoal bans 1\n" H
        " 5 1 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
        "shoal bans 1\nzz05050505050505050505050505050505050505050505050505050505050505 5 1 x\n",
    };
    struct kit_mesh a;
    struct err e = {0};
    kit_home(&a, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ok(home_write(a.home, "bans", bad[i], strlen(bad[i]), &e));
        kit_open(&a);
        if (home_has(a.home, "bans") || !home_has(a.home, "bans.damaged")) {
            fail_msg("taken: %s", bad[i]);
        }
        kit_close(&a);
        assert_int_equal(unlink(at(a.home, "bans.damaged")), 0);
    }
    assert_true(kit_said(&a, "kept as bans.damaged"));
    kit_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ban_survives),
        cmocka_unit_test(clocks_and_counts),
        cmocka_unit_test(lifted_without_a_model),
        cmocka_unit_test(damaged_files_are_set_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
