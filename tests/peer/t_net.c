/* SPDX-License-Identifier: MIT
 * t_net.c: gateways, the networks of this machine, and a mesh that announces itself only on known
 * ones. Runs in a network namespace of its own with links made by `ip`; skipped where that is not
 * permitted or not Linux. */
#include "tests/peer/mesh_kit.h"

#include "discovery/bus.h"
#include "peer/home.h"
#include "peer/networks_here.h"

#include <jansson.h>
#include <net/if.h>
#include <sched.h>

static bool have_ns;

#ifdef __linux__
static void make_ns(void)
{
    have_ns = (unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) &&
              shell("ip link set lo up && ip link add e0 type veth peer name e1 &&"
                    "ip link set e0 up && ip link set e1 up &&"
                    "ip link add docker0 type veth peer name docker1 && ip link set docker0 up &&"
                    "ip link set docker1 up") == 0;
}
#else
static void make_ns(void)
{
}
#endif

static void need_ns(void)
{
    if (!have_ns) {
        skip();
    }
    shell("ip addr flush dev e0; ip addr flush dev e1; ip addr flush dev docker0;"
          "ip addr flush dev docker1;"
          "ip route flush all; ip -6 route flush dev e0; ip neigh flush all nud all"
          " >/dev/null 2>&1");
    assert_int_equal(shell("ip addr add 10.9.0.2/24 dev e0 &&"
                           "ip -6 addr add fd09::2/64 dev e0 nodad"),
                     0);
}

/* ---- gateways ---- */

static struct gateway now(const char *name)
{
    struct gateway g;
    gateway_of(if_nametoindex(name), &g);
    return g;
}

static void is_v4(const struct gateway *g, uint8_t last)
{
    const uint8_t a[4] = {10, 9, 0, last};
    assert_true(g->has_addr && !g->v6);
    assert_memory_equal(g->addr, a, 4);
}

static void the_gateway_of_an_interface(void **state)
{
    need_ns();
    const uint8_t one[6] = {2, 0, 0, 0, 0, 0x11}, six[6] = {2, 0, 0, 0, 0, 0x66};
    struct gateway g = now("e0");
    assert_int_equal(g.state, GATEWAY_NONE);
    assert_int_equal(now("lo").state, GATEWAY_NONE);
    gateway_of(9999, &g);
    assert_int_equal(g.state, GATEWAY_NONE);
    /* a route, and nobody has asked yet who that is */
    assert_int_equal(shell("ip route add default via 10.9.0.7 dev e0 metric 200"), 0);
    g = now("e0");
    assert_int_equal(g.state, GATEWAY_UNKNOWN);
    is_v4(&g, 7);
    assert_int_equal(now("e1").state, GATEWAY_NONE); /* it is e0's */
    assert_int_equal(shell("ip neigh show 10.9.0.7 | grep -q e0"), 1);
    gateway_ask(if_nametoindex("e0"), &g);
    assert_int_equal(shell("ip neigh show 10.9.0.7 | grep -q e0"), 0);
    assert_int_equal(now("e0").state, GATEWAY_UNKNOWN); /* asked, no answer */
    assert_int_equal(shell("ip neigh replace 10.9.0.7 lladdr 02:00:00:00:00:11 dev e0 nud stale"),
                     0);
    g = now("e0");
    assert_int_equal(g.state, GATEWAY_KNOWN);
    assert_memory_equal(g.mac, one, 6);
    /* the lower metric counts; one that has been found dead is not known */
    assert_int_equal(shell("ip route add default via 10.9.0.8 dev e0 metric 100 &&"
                           "ip neigh replace 10.9.0.8 dev e0 nud failed"),
                     0);
    g = now("e0");
    assert_int_equal(g.state, GATEWAY_UNKNOWN);
    is_v4(&g, 8);
    /* several at once, a route that is no default, another table */
    assert_int_equal(shell("ip route del default metric 100; ip route del default metric 200;"
                           "ip route add 10.50.0.0/16 via 10.9.0.7 dev e0 &&"
                           "ip route add default via 10.9.0.7 dev e0 table 77"),
                     0);
    assert_int_equal(now("e0").state, GATEWAY_NONE);
    assert_int_equal(shell("ip addr add 10.8.0.2/24 dev e1 && ip route add default"
                           " nexthop via 10.8.0.1 dev e1 nexthop via 10.9.0.7 dev e0"),
                     0);
    g = now("e0");
    assert_int_equal(g.state, GATEWAY_KNOWN);
    is_v4(&g, 7);
    assert_int_equal(now("e1").state, GATEWAY_UNKNOWN);
    /* IPv6 counts where IPv4 has none */
    assert_int_equal(shell("ip route del default; ip -6 route add default via fe80::66 dev e0 &&"
                           "ip neigh replace fe80::66 lladdr 02:00:00:00:00:66 dev e0 nud stale"),
                     0);
    g = now("e0");
    assert_int_equal(g.state, GATEWAY_KNOWN);
    assert_true(g.v6);
    assert_memory_equal(g.mac, six, 6);
    /* many neighbours: the answer comes in several pieces */
    assert_int_equal(shell("for i in $(seq 1 250); do echo \"neigh replace 10.9.0.$i lladdr "
                           "02:00:00:00:01:$(printf %%02x $i) dev e0 nud stale\"; done |"
                           "ip -batch - && ip route add default via 10.9.0.200 dev e0"),
                     0);
    g = now("e0");
    assert_int_equal(g.state, GATEWAY_KNOWN);
    assert_int_equal(g.mac[5], 200);
}

/* ---- the networks of this machine ---- */

static const struct network_here *find(const struct network_here *v, size_t n, const char *subnet)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(v[i].subnet, subnet) == 0) {
            return &v[i];
        }
    }
    return NULL;
}

static enum network_state state_here(const char *home, const char *subnet)
{
    static struct network_here v[NETWORKS_HERE_MAX];
    struct err e = {0};
    size_t n;
    ok(networks_here(home, v, NETWORKS_HERE_MAX, &n, &e));
    const struct network_here *h = find(v, n, subnet);
    if (!h) {
        fail_msg("no network %s here", subnet);
    }
    return h ? h->state : NETWORK_HERE_NEW;
}

static void networks_of_this_machine(void **state)
{
    need_ns();
    static struct network_here v[NETWORKS_HERE_MAX];
    struct err e = {0};
    char *home = temp_home();
    size_t n, k;
    assert_int_equal(shell("ip route add default via 10.9.0.7 dev e0 &&"
                           "ip neigh replace 10.9.0.7 lladdr 02:00:00:00:00:11 dev e0 nud stale &&"
                           "ip addr add 10.9.0.3/24 dev e0 && ip addr add 169.254.9.9/16 dev e1 &&"
                           "ip addr add 172.17.0.1/16 dev docker0"),
                     0);
    ok(networks_here(home, v, NETWORKS_HERE_MAX, &n, &e));
    assert_int_equal(n, 4); /* two addresses of one subnet are one network; loopback is none */
    const struct network_here *h = find(v, n, "10.9.0.0/24");
    assert_string_equal(h->interface, "e0");
    assert_true(h->net.has_gateway && h->net.gateway[5] == 0x11);
    assert_string_equal(h[1].subnet, "fd09::/64"); /* IPv4 first */
    assert_true(h[1].net.has_gateway);
    assert_true(find(v, n, "169.254.0.0/16")->alike);
    assert_true(find(v, n, "172.17.0.0/16")->virtual_if);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(v[i].state, NETWORK_HERE_NEW);
    }
    /* all that can be told from others */
    ok(networks_allow_here(home, NULL, &k, &e));
    assert_int_equal(k, 2);
    assert_int_equal(state_here(home, "10.9.0.0/24"), NETWORK_HERE_ALLOWED);
    assert_int_equal(state_here(home, "fd09::/64"), NETWORK_HERE_ALLOWED);
    assert_int_equal(state_here(home, "169.254.0.0/16"), NETWORK_HERE_NEW);
    assert_int_equal(state_here(home, "172.17.0.0/16"), NETWORK_HERE_NEW);
    ok(networks_allow_here(home, NULL, &k, &e));
    assert_int_equal(k, 0);
    /* by name */
    ok(networks_allow_here(home, "169.254.0.0/16", &k, &e));
    ok(networks_allow_here(home, "docker0", &k, &e));
    assert_int_equal(k, 1);
    assert_int_equal(state_here(home, "169.254.0.0/16"), NETWORK_HERE_ALLOWED);
    assert_int_equal(state_here(home, "172.17.0.0/16"), NETWORK_HERE_ALLOWED);
    fails(networks_allow_here(home, "10.1.0.0/16", &k, &e), ERR_NOTFOUND, "e0 10.9.0.0/24");
    ok(networks_allow_here(home, "10.1.0.0/16 02:00:00:00:00:01", &k, &e)); /* from elsewhere */
    assert_int_equal(k, 1);
    fails(networks_allow_here(home, "10.1.0.0/16 aunt", &k, &e), ERR_FORMAT, "not a network");
    /* the same subnet behind another router is another network */
    assert_int_equal(shell("ip neigh replace 10.9.0.7 lladdr 02:00:00:00:00:12 dev e0 nud stale"),
                     0);
    assert_int_equal(state_here(home, "10.9.0.0/24"), NETWORK_HERE_NEW);
    assert_int_equal(shell("ip neigh replace 10.9.0.7 lladdr 02:00:00:00:00:11 dev e0 nud stale"),
                     0);
    assert_int_equal(state_here(home, "10.9.0.0/24"), NETWORK_HERE_ALLOWED);
    ok(networks_forget_named(home, "10.9.0.0/24", &k, &e));
    assert_int_equal(k, 1);
    assert_int_equal(state_here(home, "10.9.0.0/24"), NETWORK_HERE_NEW);
    fails(networks_forget_named(home, "10.9.0.0/2", &k, &e), ERR_NOTFOUND, "10.9.0.0/2");
    ok(networks_forget_named(home, "10.1.0.0/16 02:00:00:00:00:01", &k, &e));
    /* a gateway that does not answer */
    assert_int_equal(shell("ip neigh del 10.9.0.7 dev e0"), 0);
    assert_int_equal(state_here(home, "10.9.0.0/24"), NETWORK_HERE_WAITING);
    fails(networks_allow_here(home, "10.9.0.0/24", &k, &e), ERR_BUSY, "does not answer");
    put(at(home, "networks"), "nonsense\n", 9, 0600);
    fails(networks_here(home, v, NETWORKS_HERE_MAX, &n, &e), ERR_FORMAT, "line 1");
    fails(networks_allow_here(home, "169.254.0.0/16", &k, &e), ERR_FORMAT, "line 1");
    drop_home(home);
}

/* ---- a mesh ---- */

static struct gateway told; /* what stands at the end of the cable of both */

static void tell(void *ctx, uint32_t ifindex, struct gateway *out)
{
    (void)ctx;
    (void)ifindex;
    *out = told;
}

struct rig {
    uv_loop_t loop;
    struct disco_bus *bus;
    struct kit_mesh a, b;
};

static void open_on(struct rig *r, struct kit_mesh *k, const char *host, const char *ip)
{
    struct err e = {0};
    ok(disco_bus_addr(r->bus, host, 1, "en0", 1, ip, 24, &e));
    k->o.loop = &r->loop;
    k->o.bus = r->bus;
    k->o.bus_host = host;
    k->o.no_bonjour = false;
    k->o.listen_host = ip;
    k->o.known_networks = true;
    k->o.gateway = tell;
    kit_open(k);
}

#define loop_until(r, x)                                             \
    do {                                                             \
        uint64_t end_ = uv_hrtime() + 60000000000u;                  \
        while (!(x)) {                                               \
            if (uv_hrtime() > end_) {                                \
                fail_msg("%s:%d never: %s", __FILE__, __LINE__, #x); \
            }                                                        \
            uv_run(&(r)->loop, UV_RUN_NOWAIT);                       \
            usleep(1000);                                            \
        }                                                            \
    } while (0)

static void run_ms(struct rig *r, unsigned ms)
{
    uint64_t end = uv_hrtime() + ms * 1000000ull;
    while (uv_hrtime() < end) {
        uv_run(&r->loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
}

/* What peers --why says about its interface. */
static bool says(struct kit_mesh *k, const char *words)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 8u << 20);
    ok(mesh_why(k->m, &b, &e));
    json_t *root = json_loadb(b.p, b.n, 0, NULL);
    const char *s = json_string_value(
        json_object_get(json_array_get(json_object_get(root, "interfaces"), 0), "says"));
    bool r = s && strstr(s, words);
    if (!r && getenv("KIT_VERBOSE")) {
        fprintf(stderr, "says: %s\n", s ? s : "nothing");
    }
    json_decref(root);
    buf_free(&b);
    return r;
}

static bool in_file(struct kit_mesh *k, const char *text)
{
    if (!home_has(k->home, "networks")) {
        return false;
    }
    struct buf b = slurp(at(k->home, "networks"));
    bool r = strstr(b.p, text) != NULL;
    buf_free(&b);
    return r;
}

static void announced_only_where_known(void **state)
{
    need_ns();
    struct rig r;
    struct err e = {0};
    char text[64];
    memset(&told, 0, sizeof told);
    told.state = GATEWAY_UNKNOWN;
    memset(told.mac, 2, 6);
    assert_int_equal(shell("ip addr add 10.9.0.1/24 dev e0"), 0);
    assert_int_equal(uv_loop_init(&r.loop), 0);
    r.bus = disco_bus_new();
    kit_home(&r.a, NULL);
    kit_home(&r.b, &r.a);
    open_on(&r, &r.a, "a", "10.9.0.1");
    open_on(&r, &r.b, "b", "10.9.0.2");
    /* the gateway is not known yet, then the network is not */
    loop_until(&r, says(&r.a, "not announced on this network yet"));
    told.state = GATEWAY_KNOWN;
    loop_until(&r, says(&r.a, "not announced on this network: no member was met here and it is not "
                              "allowed; shoal networks allow 10.9.0.0/24"));
    run_ms(&r, 300);
    assert_int_equal(disco_bus_announcements(r.bus, "a"), 0);
    assert_int_equal(disco_bus_announcements(r.bus, "b"), 0);
    /* the user allows it for one of them, in another process */
    struct networks list;
    struct network net;
    bool changed;
    ok(network_parse("10.9.0.0/24 02:02:02:02:02:02", &net, &e));
    ok(networks_load(r.a.home, &list, &e));
    ok(networks_add(&list, &net, NETWORK_ALLOW, 5, &changed, &e));
    ok(networks_save(r.a.home, &list, &e));
    loop_until(&r, says(&r.a, "announced as"));
    run_ms(&r, 300);
    assert_int_equal(disco_bus_announcements(r.bus, "b"), 0);
    /* B meets A by its address: that is a network where members are */
    snprintf(text, sizeof text, "10.9.0.1:%d", mesh_port(r.a.m));
    ok(mesh_add_static(r.b.m, text, &e));
    loop_until(&r, mesh_peers(r.b.m) == 1);
    loop_until(&r, in_file(&r.b, "met 10.9.0.0/24 02:02:02:02:02:02"));
    loop_until(&r, says(&r.b, "announced as"));
    assert_true(kit_said(&r.b, "was met on the network 10.9.0.0/24"));
    /* carried to another place with the same numbers: withdrawn, and not announced again */
    kit_close(&r.b);
    loop_until(&r, mesh_peers(r.a.m) == 0);
    told.mac[5] = 9;
    loop_until(&r, says(&r.a, "shoal networks allow"));
    uint64_t before = disco_bus_announcements(r.bus, "a");
    run_ms(&r, 200);
    assert_int_equal(disco_bus_announcements(r.bus, "a"), before);
    /* a moment without routes is no network without a gateway */
    ok(network_parse("10.9.0.0/24 -", &net, &e));
    ok(networks_add(&list, &net, NETWORK_ALLOW, 5, &changed, &e));
    ok(networks_save(r.a.home, &list, &e));
    told.state = GATEWAY_NONE;
    loop_until(&r, says(&r.a, "announced as"));
    told.mac[5] = 2;
    told.state = GATEWAY_KNOWN;
    loop_until(&r, says(&r.a, "announced as"));
    /* a file that cannot be read: nowhere, said, and kept */
    put(at(r.a.home, "networks"), "nonsense\n", 9, 0600);
    loop_until(&r, kit_said(&r.a, "announced on no network"));
    loop_until(&r, says(&r.a, "cannot be used"));
    kit_open(&r.b); /* remembered */
    loop_until(&r, says(&r.b, "announced as"));
    assert_true(in_file(&r.a, "nonsense"));
    kit_free(&r.b);
    kit_free(&r.a);
    while (uv_loop_alive(&r.loop)) {
        uv_run(&r.loop, UV_RUN_ONCE);
    }
    disco_bus_free(r.bus);
    assert_int_equal(uv_loop_close(&r.loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gateway_of_an_interface),
        cmocka_unit_test(networks_of_this_machine),
        cmocka_unit_test(announced_only_where_known),
    };
    make_ns();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
