/* SPDX-License-Identifier: MIT
 * household.c: see household.h. */
#include "tests/faults/household.h"

#include "tests/store/util.h"

#include <signal.h>

#define RUN_MS 110000

void household_open(struct household *h)
{
    struct err e = {0};
    memset(h, 0, sizeof *h);
    ok(demo_server_start(DEMO_MODEL, 0, &h->origin, &e));
    h->url = util_path("%s", demo_server_url(h->origin));
    h->tmp = util_tmpdir();
    kit_home(&h->keeper, NULL);
}

void household_close(struct household *h)
{
    demo_server_stop(h->origin);
    kit_free(&h->keeper);
    util_rmtree(h->tmp);
    free(h->tmp);
    free(h->url);
}

void household_member(struct household *h, struct kit_mesh *k)
{
    kit_home(k, &h->keeper);
}

void household_fresh(const struct kit_mesh *k)
{
    assert_int_equal(
        shell("cd '%s' && find . -mindepth 1 -maxdepth 1 ! -name identity ! -name shoal "
              "-exec rm -rf {} +",
              k->home),
        0);
}

void household_peers(const struct kit_mesh *k, const int *ports, int n)
{
    char text[1024];
    size_t at_ = 0;
    for (int i = 0; i < n; i++) {
        at_ += (size_t)snprintf(text + at_, sizeof text - at_, "127.0.0.1:%d\n", ports[i]);
    }
    put(at(k->home, "peers"), text, at_, 0600);
}

/* ---- runs ---- */

void household_start(struct household *h, struct proc *p, const char *home, bool json,
                     const char *const *more)
{
    /* Without drafts: what a wrong one reads beside the rest depends on when it seemed to pay, and
     * these tests count objects and bytes. */
    const char *argv[PROC_ARGS] = {SHOAL_PROGRAM, "run", "--model", h->url,
                                   "--speculate", "off", "--home",  home};
    int n = home ? 8 : 6;
    if (json) {
        argv[n++] = "--json";
    }
    for (; more && *more; more++) {
        assert_true(n < PROC_ARGS - 1);
        argv[n++] = *more;
    }
    argv[n] = NULL;
    proc_start(p, argv);
}

static void well(const struct proc *p)
{
    if (p->pid || p->status) {
        fprintf(stderr, "%s%s\n", p->said.n ? p->said.p : "", p->grumbled.n ? p->grumbled.p : "");
        fail_msg("shoal run: exit status %d", p->status); /* cmocka cuts long messages short */
    }
}

json_t *household_run(struct household *h, const char *home, const char *const *more)
{
    struct proc p;
    household_start(h, &p, home, true, more);
    proc_wait(&p, RUN_MS);
    well(&p);
    json_t *j = json_loadb(p.said.p, p.said.n, 0, NULL);
    assert_non_null(j);
    proc_free(&p);
    return j;
}

const char *household_receipt(const struct proc *p, char out[65])
{
    well(p);
    const char *s = p->grumbled.n ? strstr(p->grumbled.p, "receipt ") : NULL;
    assert_non_null(s);
    s += strlen("receipt ");
    assert_int_equal(strspn(s, "0123456789abcdef"), 64);
    memcpy(out, s, 64);
    out[64] = 0;
    return out;
}

double household_stat(const json_t *run, const char *name)
{
    const json_t *j = json_object_get(json_object_get(run, "stats"), name);
    assert_true(json_is_number(j));
    return json_number_value(j);
}

void household_up(struct household *h, struct proc *p, const char *home, int *port)
{
    PROC(p, SHOAL_PROGRAM, "up", "--home", home, "--model", h->url, "--offline", "--peer-listen",
         "127.0.0.1:0", "--no-bonjour", "--json");
    if (!proc_listen(p, proc_has_line, 20000)) {
        fail_msg("shoal up: %s", p->grumbled.n ? p->grumbled.p : "");
    }
    json_t *j = json_loadb(p->said.p, strcspn(p->said.p, "\n"), 0, NULL);
    *port = (int)json_integer_value(json_object_get(j, "port"));
    assert_true(*port > 0);
    json_decref(j);
}

unsigned household_check(const char *url, const char *cache)
{
    struct store_opts o = {
        .model = url, .cache_dir = cache, .offline = true, .disk_floor = 1, .ram_budget = 64 << 20};
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        return 0; /* not even the model's own files are there */
    }
    const struct model *m = store_model(st);
    unsigned n = 0;
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        struct store_view v;
        if (store_where(st, id) == STORE_DISK) {
            ok(store_get(st, id, STORE_DEMAND, 0, &v, &e));
            assert_true(util_right(m, DEMO_MODEL, &v));
            store_release_drop(st, &v);
            n++;
        }
    }
    store_close(st);
    return n;
}

/* ---- evil peers ---- */

void evil_proc(struct proc *p, const char *home, const char *vice, const char *after, int arg,
               int *port)
{
    char number[16];
    snprintf(number, sizeof number, "%d", arg);
    PROC(p, EVIL_PROGRAM, home, DEMO_MODEL, vice, after, number);
    if (!proc_listen(p, proc_has_line, 20000)) {
        fail_msg("evil_peer: %s", p->grumbled.n ? p->grumbled.p : "");
    }
    *port = (int)strtol(p->said.p, NULL, 10);
    assert_true(*port > 0);
    p->said.n = 0;
}

static void tell(struct proc *p, char c)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGPIPE, &ignore, &before); /* it may be dead, that is what some are for */
    assert_true(write(p->in, &c, 1) == 1 || p->pid);
    sigaction(SIGPIPE, &before, NULL);
}

void evil_proc_arm(struct proc *p)
{
    tell(p, 'a');
}

bool evil_proc_numbers(struct proc *p, struct evil_numbers *out)
{
    p->said.n = 0;
    tell(p, 's');
    if (!proc_listen(p, proc_has_line, 20000)) {
        return false;
    }
    assert_int_equal(sscanf(p->said.p, "%llu %llu %llu %llu %llu %llu", &out->conns, &out->gets,
                            &out->chunks, &out->vices, &out->told, &out->pulled),
                     6);
    return true;
}
