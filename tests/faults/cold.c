/* SPDX-License-Identifier: MIT
 * cold.c: see cold.h. */
#include "tests/faults/cold.h"

#include "tests/store/util.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#define ORIGIN "http://origin.test" /* no such host: whoever asks goes by its proxy */

static const char *const prompt[] = {"--ids", "2819", "--max-new", "24", "--ignore-eos", NULL};

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
    close(s);
    return ntohs(a.sin_port);
}

/* Who is started from now on goes to the origin as this member. */
static void as_member(const struct cold *c, int i)
{
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d", line_port(c->line, i));
    assert_int_equal(setenv("http_proxy", url, 1), 0);
}

void cold_open(struct cold *c)
{
    memset(c, 0, sizeof *c);
    household_open(&c->h);
    household_member(&c->h, &c->second);
    household_member(&c->h, &c->third);
    /* The second one was there before the third one: both are to know each other from the start. */
    assert_int_equal(
        shell("cp -p '%s/shoal/roster' '%s/shoal/roster'", c->third.home, c->second.home), 0);
    c->home[0] = &c->h.keeper;
    c->home[1] = &c->second;
    c->home[2] = &c->third;
    kit_home(&c->solo, NULL);
    demo_server_stop(c->h.origin);
    c->h.origin = NULL;
    free(c->h.url);
    c->h.url = util_path("%s", ORIGIN);
    c->line = line_start(DEMO_MODEL, COLD_NODES);
    unsetenv("no_proxy");
    unsetenv("NO_PROXY");
    struct store_opts o = {.model = DEMO_MODEL};
    struct err e = {0};
    ok(store_open(&o, &c->source, &e));
}

void cold_close(struct cold *c)
{
    line_stop(c->line);
    store_close(c->source);
    kit_free(&c->second);
    kit_free(&c->third);
    kit_free(&c->solo);
    household_close(&c->h);
}

void cold_alone(struct cold *c)
{
    household_fresh(&c->solo);
    line_reset(c->line);
    as_member(c, 1);
    json_t *j = household_run(&c->h, c->solo.home, prompt);
    snprintf(c->want, sizeof c->want, "%s", json_string_value(json_object_get(j, "receipt")));
    json_decref(j);
    c->copy = line_bytes(c->line);
    struct cold_twice t = cold_count(c, 0);
    assert_int_equal(t.bytes, 0);
    c->objects = t.once;
    print_message("alone: %.1f MB of the origin\n", (double)c->copy / 1e6);
}

void cold_solo(struct cold *c, bool solo)
{
    c->home[0] = solo ? &c->solo : &c->h.keeper;
}

void cold_fresh(struct cold *c)
{
    for (int i = 0; i < COLD_NODES; i++) {
        household_fresh(c->home[i]);
        c->port[i] = free_port();
    }
    c->cable = cable_possible() ? cable_start(c->port, COLD_NODES) : NULL;
    for (int i = 0; i < COLD_NODES; i++) {
        int others[COLD_NODES], n = 0;
        for (int k = 0; k < COLD_NODES; k++) {
            if (k != i) {
                others[n++] = c->cable ? cable_port(c->cable, i, k) : c->port[k];
            }
        }
        household_peers(c->home[i], others, n);
    }
    line_reset(c->line);
}

void cold_up(struct cold *c, int n)
{
    for (int i = 0; i < n; i++) {
        char listen[32];
        snprintf(listen, sizeof listen, "%s:%d", c->cable ? cable_host(i) : "127.0.0.1",
                 c->port[i]);
        const char *const argv[] = {
            SHOAL_PROGRAM, "up",           "--home",        c->home[i]->home, "--model",
            c->h.url,      "--no-bonjour", "--peer-listen", listen,           "--json",
            NULL};
        as_member(c, i);
        proc_start(&c->up[i], argv);
    }
    for (int i = 0; i < n; i++) { /* all of them read the metadata at once */
        if (!proc_listen(&c->up[i], proc_has_line, 60000)) {
            fail_msg("shoal up: %s", c->up[i].grumbled.n ? c->up[i].grumbled.p : "");
        }
    }
}

void cold_run(struct cold *c, int n, bool json, const char *const *more)
{
    for (int i = 0; i < n; i++) {
        as_member(c, i);
        household_start(&c->h, &c->run[i], c->home[i]->home, json, more ? more : prompt);
    }
}

void cold_wait(struct cold *c, int n, int but)
{
    char got[65];
    for (int i = 0; i < n; i++) {
        proc_wait(&c->run[i], i == but ? 20000 : 100000);
        if (getenv("COLD_LOG")) {
            fprintf(stderr, "---- %d\n%s%s\n", i, c->run[i].said.n ? c->run[i].said.p : "",
                    c->run[i].grumbled.n ? c->run[i].grumbled.p : "");
        }
        if (i != but) {
            assert_string_equal(household_receipt(&c->run[i], got), c->want);
        }
        proc_free(&c->run[i]);
    }
}

void cold_down(struct cold *c)
{
    for (int i = 0; i < COLD_NODES; i++) {
        if (c->up[i].pid) {
            proc_kill(&c->up[i], SIGTERM);
            proc_wait(&c->up[i], 30000);
        }
        if (getenv("COLD_LOG")) {
            fprintf(stderr, "---- up %d\n%s\n", i, c->up[i].grumbled.n ? c->up[i].grumbled.p : "");
        }
        if (c->up[i].said.p || c->up[i].out > 0) {
            proc_free(&c->up[i]);
        }
        memset(&c->up[i], 0, sizeof c->up[i]);
    }
    if (c->cable) {
        cable_stop(c->cable);
        c->cable = NULL;
    }
}

/* Linux's table of sockets: of both ends of its connections to the line. */
uint64_t cold_unread(const struct cold *c, int member)
{
    unsigned port = (unsigned)line_port(c->line, member);
    uint64_t sum = 0;
    char row[512];
    FILE *f = fopen("/proc/net/tcp", "r");
    while (f && fgets(row, sizeof row, f)) {
        unsigned local, remote, out, in;
        if (sscanf(row, " %*u: %*x:%x %*x:%x %*x %x:%x", &local, &remote, &out, &in) == 4) {
            sum += remote == port ? in : local == port ? out : 0;
        }
    }
    if (f) {
        fclose(f);
    }
    return sum;
}

struct cold_twice cold_count(struct cold *c, unsigned who)
{
    struct cold_twice t = {0};
    const struct model *m = store_model(c->source);
    uint64_t all = 0;
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        const struct model_object *o = model_object(m, id);
        for (uint64_t at = 0; at < o->size; at += STORAGE_CHUNK) {
            uint64_t n = o->size - at < STORAGE_CHUNK ? o->size - at : STORAGE_CHUNK, twice, both;
            unsigned times = line_given(c->line, model_shard(m, o->shard)->file, o->offset + at, n,
                                        who, &twice, &both);
            t.once += times ? n : 0;
            t.both += both;
            if (times > 1) {
                if (getenv("LINE_LOG")) {
                    char name[128];
                    fprintf(stderr, "twice: %s, %s from %llu, %llu of %llu\n",
                            model_object_name(m, id, name, sizeof name),
                            model_shard(m, o->shard)->file, (unsigned long long)(o->offset + at),
                            (unsigned long long)twice, (unsigned long long)n);
                }
                t.chunks++;
                t.bytes += twice;
                t.most = twice > t.most ? twice : t.most;
            }
        }
    }
    for (int i = 0; i < line_files(c->line); i++) {
        uint64_t twice, both, size;
        const char *name = line_file(c->line, i, &size);
        line_given(c->line, name, 0, size, 0, &twice, &both);
        all += twice;
    }
    t.small = all - t.bytes;
    return t;
}
