/* SPDX-License-Identifier: MIT
 * t_disco_parts.c: the parts of discovery that need no loop: addresses as text, TXT records, names
 * of interfaces, the table of peers, remembered addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "discovery/addr.h"
#include "discovery/ifs.h"
#include "discovery/peers.h"
#include "discovery/remember.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define A "aaaaaaaaaaaa"
#define B "bbbbbbbbbbbb"
#define C "cccccccccccc"
#define S UINT64_C(1000000000)

static struct sockaddr_storage at(const char *text)
{
    struct sockaddr_storage a;
    assert_int_equal(addr_parse(text, &a), 0);
    return a;
}

/* ---- addresses ---- */

static void addr_there_and_back(void **state)
{
    const char *texts[] = {"10.0.0.2:4433", "[fd77::2]:1", "[::1]:65535", "127.0.0.1:80"};
    for (size_t i = 0; i < 4; i++) {
        char out[DISCO_ADDR_TEXT];
        struct sockaddr_storage a = at(texts[i]);
        addr_text(&a, true, out);
        assert_string_equal(out, texts[i]);
    }
    char name[IF_NAMESIZE], text[DISCO_ADDR_TEXT], out[DISCO_ADDR_TEXT];
    uint32_t first = 0;
    for (uint32_t i = 1; i < 100 && !first; i++) {
        first = if_indextoname(i, name) ? i : 0;
    }
    assert_true(first != 0);
    snprintf(text, sizeof text, "[fe80::1%%%s]:4433", name);
    struct sockaddr_storage a = at(text);
    assert_int_equal(addr_scope(&a), first);
    addr_text(&a, true, out);
    assert_string_equal(out, text);
    struct sockaddr_storage none;
    assert_int_equal(addr_parse("[fe80::1%nosuchif0]:1", &none), ERR_NOTFOUND);
}

static void addr_refuses(void **state)
{
    const char *bad[] = {"",        ":",      "10.0.0.2", "10.0.0.2:", "10.0.0.2:0",
                         "a:65536", "[::1:1", "[]:1",     "fd77::2:1", "a b:1",
                         "a:1x",    "a:-1",   ":80",      "a/b:80",    "a\n:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char host[DISCO_HOST_MAX + 1];
        uint16_t port;
        struct err e = {0};
        assert_int_equal(addr_split(bad[i], host, &port, &e), ERR_FORMAT);
        assert_true(e.msg[0] != 0);
    }
    char big[400];
    memset(big, 'a', sizeof big);
    memcpy(big + 395, ":80", 4);
    char host[DISCO_HOST_MAX + 1];
    uint16_t port;
    assert_int_equal(addr_split(big, host, &port, NULL), ERR_FORMAT);
    assert_int_equal(addr_split("mac-mini.local:4433", host, &port, NULL), 0);
    assert_string_equal(host, "mac-mini.local");
    assert_int_equal(port, 4433);
}

static void addr_facts(void **state)
{
    struct sockaddr_storage a = at("10.1.2.3:5"), net = at("10.1.0.0:1"), m;
    assert_true(addr_in_net(&a, &net, 16));
    assert_false(addr_in_net(&a, &net, 24));
    assert_true(addr_in_net(&a, &net, 22));
    assert_false(addr_in_net(&a, &net, 23));
    struct sockaddr_storage unusable[] = {at("0.0.0.0:1"), at("224.0.0.251:1"),
                                          at("255.255.255.255:1"), at("[::]:1"), at("[ff02::1]:1")};
    for (size_t i = 0; i < 5; i++) {
        assert_false(addr_usable(&unusable[i]));
    }
    struct sockaddr_storage ll = at("[fe80::1%1]:1");
    assert_true(addr_usable(&ll));
    ((struct sockaddr_in6 *)(void *)&ll)->sin6_scope_id = 0;
    assert_false(addr_usable(&ll));
    struct sockaddr_storage mapped = at("[::ffff:10.1.2.3]:5");
    assert_true(addr_same(&mapped, &a, true));
    m = at("10.1.2.3:6");
    assert_true(addr_same(&m, &a, false));
    assert_false(addr_same(&m, &a, true));
}

/* ---- TXT ---- */

static int parse(const char *bytes, size_t n, struct txt *t)
{
    /* a copy of just that size, so that a read past it is seen */
    char *p = malloc(n ? n : 1);
    assert_non_null(p);
    memcpy(p, bytes, n);
    struct err e = {0};
    int r = txt_parse(p, n, t, &e);
    assert_true((r != 0) == (e.msg[0] != 0));
    free(p);
    return r;
}
#define PARSE(lit, t) parse(lit, sizeof(lit) - 1, t)

static void txt_round(void **state)
{
    struct txt in = {.version = 65535, .group = A, .node = B, .model = C}, out;
    uint8_t b[TXT_OWN_MAX];
    memset(in.model, 'z', DISCO_ID_MAX);
    memset(in.node, '0', DISCO_ID_MAX);
    memset(in.group, 'g', DISCO_ID_MAX);
    size_t n = txt_make(&in, b);
    assert_true(n <= TXT_OWN_MAX);
    assert_int_equal(txt_parse(b, n, &out, NULL), 0);
    assert_memory_equal(&in, &out, sizeof in);
    in.model[0] = 0;
    memset(in.model, 0, sizeof in.model);
    n = txt_make(&in, b);
    assert_int_equal(txt_parse(b, n, &out, NULL), 0);
    assert_string_equal(out.model, "");
    for (size_t cut = 0; cut < n; cut++) { /* cut short, it is never taken */
        assert_int_equal(txt_parse(b, cut, &out, NULL), ERR_FORMAT);
    }
}

static void txt_strict(void **state)
{
    struct txt t;
    assert_int_equal(PARSE("\x03v=1\x0an=aaaaaaaa\x0ag=bbbbbbbb", &t), 0);
    assert_int_equal(t.version, 1);
    assert_string_equal(t.node, "aaaaaaaa");
    assert_string_equal(t.group, "bbbbbbbb");
    /* any order, capital keys, unknown keys, keys without value, empty strings */
    assert_int_equal(
        PARSE("\x0aG=bbbbbbbb\x00\x04path\x05x=\x00\xff\n\x03V=2\x01v\x0aN=aaaaaaaa", &t), 0);
    assert_int_equal(t.version, 2);
    assert_int_equal(PARSE("", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=1\x0an=aaaaaaaa", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=0\x0an=aaaaaaaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x04v=01\x0an=aaaaaaaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x07v=65536\x0an=aaaaaaaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x02v=\x0an=aaaaaaaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x04v=-1\x0an=aaaaaaaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=1\x03v=1\x0an=aaaaaaaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=1\x09n=aaaaaaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=1\x0an=aaaaaaaA\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=1\x0an=aaaa\0aaa\x0ag=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=1\x0an=aaaaaaaa\x0bg=bbbbbbbb", &t), ERR_FORMAT);
    assert_int_equal(PARSE("\x03v=1\x23n=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x0ag=bbbbbbbb", &t),
                     ERR_FORMAT);
    char big[TXT_MAX + 1] = {0};
    assert_int_equal(parse(big, sizeof big, &t), ERR_FORMAT);
}

/* ---- interfaces ---- */

static void if_names(void **state)
{
    const char *real[] = {"en0",    "en12",   "eth0", "wlan0",  "bridge0",
                          "enp3s0", "wlp2s0", "lo",   "apple0", "bond0"};
    const char *not_real[] = {"docker0", "br-1234",   "veth12ab",   "utun3", "wg0",
                              "tun0",    "bridge100", "awdl0",      "llw0",  "ap1",
                              "vmnet8",  "virbr0",    "tailscale0", "anpi0"};
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        assert_false(ifs_virtual_name(real[i]));
    }
    for (size_t i = 0; i < sizeof not_real / sizeof *not_real; i++) {
        assert_true(ifs_virtual_name(not_real[i]));
    }
}

static struct disco_if lan[DISCO_IFS_MAX];
static size_t n_lan;

static void add_if(uint32_t index, const char *name, const char *addr, unsigned bits)
{
    char text[80];
    snprintf(text, sizeof text, strchr(addr, ':') ? "[%s]:1" : "%s:1", addr);
    struct sockaddr_storage a = at(text);
    addr_set_port(&a, 0);
    assert_true(ifs_add(lan, &n_lan, DISCO_IFS_MAX, index, name, false, &a, bits));
}

static void if_choice(void **state)
{
    n_lan = 0;
    add_if(2, "eth0", "10.0.0.1", 24);
    add_if(3, "docker0", "10.0.0.1", 8);
    add_if(2, "eth0", "fe80::1%2", 64);
    struct sockaddr_storage a = at("10.0.0.9:5"), b = at("10.9.0.9:5"), c = at("192.0.2.1:5"),
                            d = at("[fe80::9%2]:5");
    assert_string_equal(ifs_for(lan, n_lan, &a)->name, "eth0");
    assert_string_equal(ifs_for(lan, n_lan, &b)->name, "docker0");
    assert_null(ifs_for(lan, n_lan, &c));
    assert_string_equal(ifs_for(lan, n_lan, &d)->name, "eth0");
    assert_false(ifs_own(lan, n_lan, &a));
    struct sockaddr_storage own = at("10.0.0.1:77");
    assert_true(ifs_own(lan, n_lan, &own));
    /* the machine itself: loopback is there and is told apart */
    struct disco_if t[DISCO_IFS_MAX];
    size_t n = ifs_read(t, DISCO_IFS_MAX), loops = 0;
    for (size_t i = 0; i < n; i++) {
        loops += t[i].loopback;
        assert_true(i == 0 || t[i].index > t[i - 1].index);
        assert_true(ifs_same(&t[i], &t[i]));
    }
    assert_int_equal(loops, 1);
}

/* ---- the table ---- */

struct table {
    struct peers t;
    struct row *gone;
    uint64_t now;
    bool asleep; /* of the next goodbye */
};

static int set_up(void **state)
{
    struct table *x = calloc(1, sizeof *x);
    peers_init(&x->t);
    x->now = 1000 * S;
    n_lan = 0;
    add_if(2, "eth0", "10.0.0.1", 24);
    add_if(3, "docker0", "172.17.0.1", 16);
    peers_ifs(&x->t, lan, n_lan);
    *state = x;
    return 0;
}

static int tear_down(void **state)
{
    struct table *x = *state;
    peers_free(&x->t);
    free(x->gone);
    free(x);
    return 0;
}

static void drain(struct table *x, char *out)
{
    const struct disco_peer *p;
    enum disco_event ev;
    out[0] = 0;
    while ((p = peers_next_event(&x->t, &x->gone, &ev))) {
        size_t n = strlen(out);
        snprintf(out + n, 400 - n, "%c%.1s%.4s ", "+~-"[ev], p -> node,
                 p -> node[0] ? "" : p->static_name);
    }
}
#define EVENTS(x, want)                 \
    do {                                \
        char ev_[400];                  \
        drain(x, ev_);                  \
        assert_string_equal(ev_, want); \
    } while (0)

static void sight(struct table *x, uint32_t ifindex, const char *instance, const char *node,
                  const char *a1, const char *a2)
{
    struct sockaddr_storage a[2];
    size_t n = 0;
    struct txt t = {.version = 1, .group = "gggggggg"};
    snprintf(t.node, sizeof t.node, "%s", node);
    if (a1) {
        a[n++] = at(a1);
    }
    if (a2) {
        a[n++] = at(a2);
    }
    assert_non_null(peers_sight(&x->t, x->now, ifindex, instance, &t, a, n, true));
}

static void report(struct table *x, const char *node, const char *addr, enum disco_outcome o,
                   const char *as)
{
    struct sockaddr_storage a = at(addr);
    struct disco_report r = {
        .node = node, .addr = (struct sockaddr *)&a, .outcome = o, .as = as, .asleep = x->asleep};
    peers_report(&x->t, x->now, 5000, &r);
}

static struct disco_addr *addr_of(struct table *x, const char *node, const char *addr)
{
    struct sockaddr_storage a = at(addr);
    return peers_find_addr(peers_find(&x->t, node), &a);
}

static void one_row_per_node(void **state)
{
    struct table *x = *state;
    sight(x, 2, "one", A, "10.0.0.2:1", "[fd00::2]:1");
    sight(x, 3, "one", A, "10.0.0.2:1", NULL); /* the same over another interface */
    sight(x, 2, "one #2", A, "10.0.0.2:1", NULL);
    EVENTS(x, "+a ");
    assert_int_equal(x->t.n, 1);
    assert_int_equal(peers_find(&x->t, A)->p.n_addrs, 2);
    sight(x, 2, "one", A, "10.0.0.2:1", "[fd00::2]:1"); /* announced again: nothing new */
    EVENTS(x, "");
    peers_unsight(&x->t, 2, "one");
    EVENTS(x, "~a ");
    assert_int_equal(peers_find(&x->t, A)->p.n_addrs, 1);
    peers_unsight(&x->t, 2, "one #2");
    peers_unsight(&x->t, 3, "one");
    EVENTS(x, "-a ");
    assert_null(peers_find(&x->t, A));
    sight(x, 2, "two", B, "10.0.0.3:1", NULL); /* gone before anybody was told */
    peers_unsight(&x->t, 2, "two");
    EVENTS(x, "");
}

static void goodbye_keeps_the_living(void **state)
{
    struct table *x = *state;
    sight(x, 2, "one", A, "10.0.0.2:1", NULL);
    report(x, A, "10.0.0.2:1", DISCO_AUTHENTICATED, A);
    peers_unsight(&x->t, 2, "one"); /* the responder went, the connection stands */
    EVENTS(x, "+a ");
    const struct disco_peer *p = &peers_find(&x->t, A)->p;
    assert_int_equal(p->live, 1);
    assert_false(p->announced);
    assert_int_equal(p->addrs[0].sources, DISCO_REMEMBERED);
    report(x, A, "10.0.0.2:1", DISCO_CLOSED, NULL);
    assert_int_equal(peers_find(&x->t, A)->p.live, 0);
    peers_forget(&x->t, A);
    EVENTS(x, "-a ");
}

static void dead_is_not_announced(void **state)
{
    struct table *x = *state;
    sight(x, 2, "one", A, "10.0.0.2:1", "[fd00::2]:1");
    report(x, A, "10.0.0.2:1", DISCO_AUTHENTICATED, A);
    report(x, A, "[fd00::2]:1", DISCO_AUTHENTICATED, A);
    report(x, A, "10.0.0.2:1", DISCO_DEAD, NULL);
    assert_true(peers_find(&x->t, A)->p.announced); /* it lives on the other address */
    report(x, A, "[fd00::2]:1", DISCO_DEAD, NULL);
    assert_false(peers_find(&x->t, A)->p.announced);
    assert_int_equal(peers_find(&x->t, A)->p.live, 0);
    sight(x, 2, "one", A, "10.0.0.2:1", NULL); /* it announces itself anew */
    assert_true(peers_find(&x->t, A)->p.announced);
    assert_int_equal(addr_of(x, A, "10.0.0.2:1")->retry_ns, 0);
    /* one that was only a claim is no ghost afterwards */
    sight(x, 2, "two", B, "10.0.0.3:1", NULL);
    char ev[400];
    drain(x, ev);
    report(x, B, "10.0.0.3:1", DISCO_DEAD, NULL);
    EVENTS(x, "-b ");
}

static void static_becomes_a_node(void **state)
{
    struct table *x = *state;
    struct static_peer *s;
    assert_int_equal(peers_add_static(&x->t, "mac.example:4433", &s, NULL), 0);
    assert_int_equal(peers_add_static(&x->t, "mac.example:4433", &s, NULL), ERR_BUSY);
    assert_int_equal(peers_add_static(&x->t, "mac.example", &s, NULL), ERR_FORMAT);
    EVENTS(x, "+mac. ");
    struct sockaddr_storage a[2] = {at("10.0.0.2:4433"), at("[fd00::2]:4433")};
    peers_static_addrs(&x->t, x->now, s, a, 2);
    EVENTS(x, "~mac. ");
    sight(x, 2, "one", A, "10.0.0.2:4433", NULL); /* the same machine, also announced */
    report(x, "", "10.0.0.2:4433", DISCO_AUTHENTICATED, A);
    EVENTS(x, "-mac. +a ");
    const struct disco_peer *p = &peers_find(&x->t, A)->p;
    assert_int_equal(x->t.n, 1);
    assert_string_equal(p->static_name, "mac.example:4433");
    assert_int_equal(p->n_addrs, 2);
    assert_int_equal(addr_of(x, A, "10.0.0.2:4433")->sources,
                     DISCO_STATIC | DISCO_BONJOUR | DISCO_REMEMBERED);
    assert_int_equal(addr_of(x, A, "[fd00::2]:4433")->sources, DISCO_STATIC);
    /* its Bonjour goodbye leaves the name */
    peers_unsight(&x->t, 2, "one");
    report(x, A, "10.0.0.2:4433", DISCO_GOODBYE, NULL);
    EVENTS(x, "~a ");
    /* another machine answers there later */
    report(x, A, "10.0.0.2:4433", DISCO_AUTHENTICATED, B);
    assert_string_equal(peers_find(&x->t, B)->p.static_name, "mac.example:4433");
    assert_null(addr_of(x, A, "10.0.0.2:4433"));
    peers_forget(&x->t, A);
    EVENTS(x, "-a +b ");
}

static void a_lie_is_corrected(void **state)
{
    struct table *x = *state;
    sight(x, 2, "liar", A, "10.0.0.66:1", NULL); /* 66 claims to be A */
    sight(x, 2, "one", A, "10.0.0.2:1", NULL);
    report(x, A, "10.0.0.66:1", DISCO_AUTHENTICATED, C);
    assert_null(addr_of(x, A, "10.0.0.66:1"));
    assert_non_null(addr_of(x, C, "10.0.0.66:1"));
    assert_non_null(addr_of(x, A, "10.0.0.2:1"));
    assert_false(peers_find(&x->t, A)->p.authentic);
    assert_true(peers_find(&x->t, C)->p.authentic);
}

static void inbound_is_learnt(void **state)
{
    struct table *x = *state;
    struct sockaddr_storage a = at("10.0.0.7:4433");
    struct disco_report r = {
        .addr = (struct sockaddr *)&a, .outcome = DISCO_AUTHENTICATED, .as = B, .inbound = true};
    peers_report(&x->t, x->now, 5000, &r);
    EVENTS(x, "+b ");
    assert_int_equal(addr_of(x, B, "10.0.0.7:4433")->sources, DISCO_INBOUND | DISCO_REMEMBERED);
    assert_int_equal(addr_of(x, B, "10.0.0.7:4433")->tries, 0);
}

static void pauses(void **state)
{
    struct table *x = *state;
    sight(x, 2, "one", A, "10.0.0.2:1", NULL);
    uint64_t last = 0;
    for (int i = 0; i < 30; i++) {
        x->now += 400 * S;
        report(x, A, "10.0.0.2:1", DISCO_REFUSED, NULL);
        uint64_t wait = addr_of(x, A, "10.0.0.2:1")->retry_ns - x->now;
        uint64_t want = i < 6 ? S << i : (i < 10 ? 60 * S : 300 * S);
        assert_true(wait >= want && wait <= want + want / 4);
        assert_true(i >= 6 || wait > last);
        last = wait;
    }
    assert_int_equal(addr_of(x, A, "10.0.0.2:1")->fails, 30);
    assert_int_equal(addr_of(x, A, "10.0.0.2:1")->last[0].outcome, DISCO_REFUSED);
    /* "unreachable" may be this machine's own trouble: once in an announce interval of 30 s */
    sight(x, 2, "two", B, "10.0.0.9:1", NULL);
    for (int i = 0; i < 10; i++) {
        report(x, B, "10.0.0.9:1", DISCO_UNREACHABLE, NULL);
        uint64_t wait = addr_of(x, B, "10.0.0.9:1")->retry_ns - x->now;
        assert_true(wait <= 30 * S && wait >= (i < 5 ? S << i : 24 * S));
    }
    /* waking up allows one attempt, and not one for every wake; the count stays */
    peers_retry_all(&x->t, x->now, 5 * S);
    assert_int_equal(addr_of(x, A, "10.0.0.2:1")->retry_ns, x->now + 5 * S);
    x->now += 10 * S;
    peers_retry_all(&x->t, x->now, 5 * S);
    assert_true(addr_of(x, A, "10.0.0.2:1")->retry_ns <= x->now);
    report(x, A, "10.0.0.2:1", DISCO_TIMEOUT, NULL);
    assert_true(addr_of(x, A, "10.0.0.2:1")->retry_ns >= x->now + 300 * S);
    report(x, A, "10.0.0.2:1", DISCO_AUTHENTICATED, A);
    assert_int_equal(addr_of(x, A, "10.0.0.2:1")->fails, 0);
    report(x, A, "10.0.0.2:1", DISCO_GOODBYE, NULL); /* it stops: it may be started anew */
    assert_int_equal(addr_of(x, A, "10.0.0.2:1")->retry_ns, x->now + 10 * S);
    report(x, A, "10.0.0.2:1", DISCO_AUTHENTICATED, A);
    x->asleep = true;
    report(x, A, "10.0.0.2:1", DISCO_GOODBYE, NULL); /* it sleeps: leave it alone */
    assert_true(addr_of(x, A, "10.0.0.2:1")->retry_ns >= x->now + 300 * S);
    report(x, A, "10.0.0.2:1", DISCO_REJECTED, NULL); /* a stranger, until a roster says more */
    peers_retry(&x->t, B);
    assert_true(addr_of(x, A, "10.0.0.2:1")->retry_ns > x->now);
    peers_retry(&x->t, A);
    assert_int_equal(addr_of(x, A, "10.0.0.2:1")->retry_ns, 0);
}

static void order_by_measure(void **state)
{
    struct table *x = *state;
    struct disco_peer *p;
    sight(x, 2, "one", A, "10.0.0.2:1", "10.0.0.3:1");
    sight(x, 3, "one", A, "172.17.0.5:1", NULL);
    const char *all[] = {"10.0.0.2:1", "10.0.0.3:1", "172.17.0.5:1"};
    for (int i = 0; i < 3; i++) {
        report(x, A, all[i], DISCO_AUTHENTICATED, A);
        struct sockaddr_storage a = at(all[i]);
        peers_measured(&x->t, A, (struct sockaddr *)&a, (i + 1) * 1e8, 0.001);
    }
    char ev[400];
    drain(x, ev);
    p = &peers_find(&x->t, A)->p;
    assert_string_equal(p->addrs[0].text, "10.0.0.3:1"); /* the fastest real one */
    assert_string_equal(p->addrs[1].text, "10.0.0.2:1");
    assert_string_equal(p->addrs[2].text, "172.17.0.5:1"); /* docker0 was the fastest */
    assert_true(p->addrs[2].virtual_if);
    report(x, A, "10.0.0.3:1", DISCO_CLOSED, NULL);
    report(x, A, "10.0.0.3:1", DISCO_UNREACHABLE, NULL);
    peers_sort(p);
    assert_string_equal(p->addrs[2].text, "10.0.0.3:1"); /* what fails comes last */
    /* untried: remembered before announced */
    struct sockaddr_storage r = at("10.0.0.9:1");
    sight(x, 2, "two", B, "10.0.0.8:1", NULL);
    peers_remembered(&x->t, x->now, B, &r, 77);
    p = &peers_find(&x->t, B)->p;
    peers_sort(p);
    assert_string_equal(p->addrs[0].text, "10.0.0.9:1");
}

static void limits(void **state)
{
    struct table *x = *state;
    for (unsigned i = 0; i < 2 * PEERS_SIGHTS_MAX; i++) { /* a flood of claims */
        struct txt t = {.version = 1, .group = "gggggggg"};
        char inst[32], addr[32];
        snprintf(t.node, sizeof t.node, "node%08u", i);
        snprintf(inst, sizeof inst, "i%u", i);
        snprintf(addr, sizeof addr, "10.0.%u.%u:1", i / 250, i % 250 + 1);
        struct sockaddr_storage a = at(addr);
        peers_sight(&x->t, x->now, 2, inst, &t, &a, 1, true);
    }
    assert_int_equal(x->t.n, DISCO_PEERS_MAX - DISCO_STATIC_MAX);
    assert_true(x->t.over_limit > 0);
    report(x, "", "10.0.0.200:9", DISCO_AUTHENTICATED, A); /* a proved node still finds room */
    assert_non_null(peers_find(&x->t, A));
    for (unsigned i = 0; i < 3 * DISCO_ADDRS_MAX; i++) {
        char addr[32];
        snprintf(addr, sizeof addr, "10.1.0.%u:1", i + 1);
        sight(x, 2, "many", A, addr, NULL);
        report(x, A, addr, DISCO_REFUSED, NULL);
    }
    assert_true(peers_find(&x->t, A)->p.n_addrs <= DISCO_ADDRS_MAX);
    assert_non_null(addr_of(x, A, "10.0.0.200:9"));
    peers_unsight_if(&x->t, 0);
    char ev[400];
    drain(x, ev);
    assert_int_equal(x->t.n, 1);
}

static void remembered(void **state)
{
    struct table *x = *state, y = {.now = 1};
    struct buf b;
    for (int i = 0; i < 12; i++) {
        char addr[32];
        snprintf(addr, sizeof addr, "10.0.0.%d:1", i + 2);
        struct sockaddr_storage a = at(addr);
        struct disco_report r = {
            .addr = (struct sockaddr *)&a, .outcome = DISCO_AUTHENTICATED, .as = A};
        peers_report(&x->t, x->now, 100 + i, &r);
    }
    report(x, "", "[fd00::5]:7", DISCO_AUTHENTICATED, B);
    sight(x, 2, "claim", C, "10.0.0.66:1", NULL);
    buf_init(&b, REMEMBER_FILE_MAX);
    assert_int_equal(remember_text(&x->t, &b), 0);
    peers_init(&y.t);
    assert_int_equal(remember_parse(&y.t, 1, "zzzzzzzz", b.p, b.n), 0);
    assert_int_equal(y.t.n, 2); /* a claim is not remembered */
    assert_int_equal(peers_find(&y.t, A)->p.n_addrs, REMEMBER_PER_NODE);
    assert_null(addr_of(&y, A, "10.0.0.2:1")); /* the latest are kept */
    assert_int_equal(addr_of(&y, A, "10.0.0.13:1")->sources, DISCO_REMEMBERED);
    assert_int_equal(addr_of(&y, A, "10.0.0.13:1")->met_unix, 111);
    assert_int_equal(addr_of(&y, B, "[fd00::5]:7")->met_unix, 5000);
    peers_free(&y.t);
    /* cut anywhere: whole lines are used, the torn one is not */
    for (size_t n = 0; n < b.n; n++) {
        peers_init(&y.t);
        char *p = malloc(n ? n : 1);
        memcpy(p, b.p, n);
        assert_true(remember_parse(&y.t, 1, "zzzzzzzz", p, n) <= 1);
        free(p);
        peers_free(&y.t);
    }
    buf_free(&b);
    static const char bad[] =
        "shoal-addresses 1\n"
        "short 10.0.0.1:1 5\n" A " 10.0.0.1 5\n" A " 10.0.0.1:1\n" A " 10.0.0.1:1 x\n" A
        " 224.0.0.1:1 5\n" A " [fe80::1%nosuch0]:1 5\n" B " 10.0.0.1:1 5\n"
        "\n" A " 10.0.0.1:1 6\n";
    peers_init(&y.t);
    assert_int_equal(remember_parse(&y.t, 1, B, bad, sizeof bad - 1), 8); /* B is this node */
    assert_int_equal(y.t.n, 1);
    assert_int_equal(addr_of(&y, A, "10.0.0.1:1")->met_unix, 6);
    assert_int_equal(remember_parse(&y.t, 1, B, "other\n", 6), 1);
    peers_free(&y.t);
}

int main(void)
{
#define T(f) cmocka_unit_test(f)
#define TT(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(addr_there_and_back),
        T(addr_refuses),
        T(addr_facts),
        T(txt_round),
        T(txt_strict),
        T(if_names),
        T(if_choice),
        TT(one_row_per_node),
        TT(goodbye_keeps_the_living),
        TT(dead_is_not_announced),
        TT(static_becomes_a_node),
        TT(a_lie_is_corrected),
        TT(inbound_is_learnt),
        TT(pauses),
        TT(order_by_measure),
        TT(limits),
        TT(remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
