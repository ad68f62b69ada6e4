/* SPDX-License-Identifier: MIT
 * t_networks.c: the list of networks where a node may announce itself, and its file. */
#include "peer/home_util.h"

#include "peer/networks.h"

static void the_list_of_networks(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    struct networks list, back;
    struct network n, o;
    bool changed;
    char text[NETWORK_TEXT];
    const uint8_t ip[4] = {192, 168, 77, 201}, mac[6] = {0xaa, 0, 0xcc, 1, 0xee, 0xff};
    ok(networks_load(home, &list, &e));
    assert_int_equal(list.n, 0);
    ok(network_make(ip, false, 22, mac, &n, &e));
    network_text(&n, text);
    assert_string_equal(text, "192.168.76.0/22 aa:00:cc:01:ee:ff");
    ok(network_parse(text, &o, &e));
    ok(networks_add(&list, &n, NETWORK_MET, 1764480000, &changed, &e));
    assert_true(changed && networks_has(&list, &o));
    o.gateway[5] ^= 1; /* the same subnet behind another router is another network */
    assert_false(networks_has(&list, &o));
    ok(networks_add(&list, &n, NETWORK_MET, 1764480001, &changed, &e));
    assert_false(changed);
    ok(networks_add(&list, &n, NETWORK_ALLOW, 1764480001, &changed, &e));
    assert_true(changed);
    ok(network_parse("fd00:1:2:3::/64 -", &o, &e));
    ok(networks_add(&list, &o, NETWORK_MET, 5, &changed, &e));
    ok(networks_save(home, &list, &e));
    struct buf b = slurp(at(home, "networks"));
    assert_string_equal(b.p,
                        "shoal networks 1\nallow 192.168.76.0/22 aa:00:cc:01:ee:ff 1764480001\n"
                        "met fd00:1:2:3::/64 - 5\n");
    buf_free(&b);
    ok(networks_load(home, &back, &e));
    assert_int_equal(back.n, 2);
    assert_true(networks_has(&back, &n) && networks_has(&back, &o));
    assert_int_equal(back.v[0].why, NETWORK_ALLOW);
    assert_true(networks_forget(&back, &n) && !networks_forget(&back, &n));
    ok(network_parse("169.254.0.0/16 -", &o, &e));
    fails(networks_add(&list, &o, NETWORK_MET, 5, &changed, &e), ERR_REFUSED,
          "nothing to tell it by");
    ok(networks_add(&list, &o, NETWORK_ALLOW, 5, &changed, &e));
    /* full: the oldest that was only met goes, what the user allowed stays */
    for (uint32_t i = 0; list.n < NETWORKS_MAX || i < 300; i++) {
        uint8_t ten[4] = {10, (uint8_t)(i >> 8), (uint8_t)i, 0};
        ok(network_make(ten, false, 24, mac, &o, &e));
        ok(networks_add(&list, &o, NETWORK_MET, 100 + i, &changed, &e));
    }
    assert_int_equal(list.n, NETWORKS_MAX);
    assert_true(networks_has(&list, &n) && networks_has(&list, &o));
    ok(networks_save(home, &list, &e));
    ok(networks_load(home, &back, &e));
    assert_int_equal(back.n, NETWORKS_MAX);

    static const char *const bad[] = {
        "",
        "shoal networks 2\n",
        "shoal networks 1",
        "shoal networks 1\n\n",
        "shoal networks 1\nallow 10.0.0.0/8 - 5",
        "shoal networks 1\nallow 10.0.0.0/33 - 5\n",
        "shoal networks 1\nallow 10.0.0.1/8 - 5\n",
        "shoal networks 1\nallow 10.0.0.0/08 - 5\n",
        "shoal networks 1\nallow 10.0.0.0/8  - 5\n",
        "shoal networks 1\nallow 10.0.0.0/8 aa:bb:cc:dd:ee 5\n",
        "shoal networks 1\nallow 10.0.0.0/8 aa:bb:cc:dd:ee:fg 5\n",
        "shoal networks 1\nallow 10.0.0.0/8 - 5 \n",
        "shoal networks 1\nallow 10.0.0.0/8 - -5\n",
        "shoal networks 1\nallow 10.0.0.0/8 - 1234567890123\n",
        "shoal networks 1\nmeet 10.0.0.0/8 - 5\n",
        "shoal networks 1\nallow fe80::1%en0/64 - 5\n",
        "shoal networks 1\nallow 10.0.0.0/8 -\n",
        "shoal networks 1\nallow\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(at(home, "networks"), bad[i], strlen(bad[i]), 0600);
        memset(&e, 0, sizeof e);
        if (networks_load(home, &back, &e) != ERR_FORMAT || back.n) {
            fail_msg("taken: %s", bad[i]);
        }
        assert_non_null(strstr(e.msg, "line"));
    }
    drop_home(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_of_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
