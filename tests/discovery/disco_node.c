/* SPDX-License-Identifier: MIT
 * disco_node NODE GROUP PORT [name=N] [peer=HOST:PORT] [interval=MS]: one disco over the real
 * Bonjour, for tests between machines. Prints a line for each event ("+ NODE ADDRESS...", "~",
 * "-"), for each line of the log ("log ...") and when it sleeps or wakes ("state ..."). Signals:
 * USR1 prints the why as JSON, USR2 sleeps or wakes, HUP says that the network changed, TERM
 * withdraws and ends. */
#include "discovery/disco.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    uv_loop_t loop;
    uv_signal_t sig[4];
    struct disco *d;
    bool asleep;
};

static void on_peer(void *ctx, const struct disco_peer *p, enum disco_event ev)
{
    printf("%c %s%s", "+~-"[ev], p -> node, p -> static_name[0] ? p -> static_name : "");
    for (size_t i = 0; i < p->n_addrs; i++) {
        printf(" %s", p->addrs[i].text);
    }
    printf("\n");
    fflush(stdout);
}

static void on_log(void *ctx, const char *line)
{
    printf("log %s\n", line);
    fflush(stdout);
}

static void closed(void *ctx)
{
    struct node *n = ctx;
    for (int i = 0; i < 4; i++) {
        uv_close((uv_handle_t *)&n->sig[i], NULL);
    }
    printf("closed\n");
}

static void why(struct disco *d)
{
    struct disco_why *w = disco_why(d);
    struct buf b;
    buf_init(&b, 1 << 22);
    if (w && !disco_why_json(w, &b, NULL)) {
        printf("why %s\n", b.p);
        fflush(stdout);
    }
    buf_free(&b);
    disco_why_free(w);
}

static void on_signal(uv_signal_t *s, int number)
{
    struct node *n = s->data;
    if (!n->d) {
        return; /* it ends; two signals sent at once come in any order where threads are several */
    }
    if (number == SIGUSR1) {
        why(n->d);
    } else if (number == SIGUSR2) {
        n->asleep = !n->asleep;
        (n->asleep ? disco_sleep : disco_wake)(n->d);
        printf("state %s\n", n->asleep ? "asleep" : "awake");
        fflush(stdout);
    } else if (number == SIGHUP) {
        disco_network_changed(n->d);
    } else {
        struct disco *d = n->d;
        n->d = NULL;
        disco_close(d, closed, n);
    }
}

int main(int argc, char **argv)
{
    static const int numbers[4] = {SIGUSR1, SIGUSR2, SIGHUP, SIGTERM};
    static struct node n;
    const char *peers[DISCO_STATIC_MAX];
    struct disco_options o = {
        .version = 1, .on_peer = on_peer, .log = on_log, .static_peers = peers};
    struct err e = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: disco_node NODE GROUP PORT [name=N] [peer=HOST:PORT]\n");
        return 2;
    }
    o.node = argv[1];
    o.group = argv[2];
    o.port = (uint16_t)strtoul(argv[3], NULL, 10);
    for (int i = 4; i < argc; i++) {
        if (!strncmp(argv[i], "name=", 5)) {
            o.name = argv[i] + 5;
        } else if (!strncmp(argv[i], "interval=", 9)) {
            o.interval_ms = (unsigned)strtoul(argv[i] + 9, NULL, 10);
        } else if (!strncmp(argv[i], "peer=", 5) && o.n_static < DISCO_STATIC_MAX) {
            peers[o.n_static++] = argv[i] + 5;
        }
    }
    uv_loop_init(&n.loop);
    for (int i = 0; i < 4; i++) {
        uv_signal_init(&n.loop, &n.sig[i]);
        n.sig[i].data = &n;
        uv_signal_start(&n.sig[i], on_signal, numbers[i]);
    }
    o.ctx = &n;
    if (disco_open(&n.loop, &o, &n.d, &e)) {
        fprintf(stderr, "disco_node: %s\n", e.msg);
        return 1;
    }
    uv_run(&n.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&n.loop) ? 3 : 0;
}
