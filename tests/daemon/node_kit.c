/* SPDX-License-Identifier: MIT
 * node_kit.c: see node_kit.h. */
#include "tests/daemon/node_kit.h"

#include "peer/home.h"
#include "peer/member.h"

#include <time.h>

/* gcc says by a macro that the thread sanitizer is in, clang by a feature. */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER
#endif
#endif

#ifdef THREAD_SANITIZER
/* libuv closes descriptors by the bare system call, which the thread sanitizer does not see: a
 * number that another thread's open gets next then looks as if it were used by two threads. These
 * are the library calls on descriptors; races in memory have none of them on top. */
const char *__tsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
#define CALL(f) "race:^" f "$\nrace:^__interceptor_" f "$\n"
    return CALL("open") CALL("open64") CALL("opendir") CALL("closedir") CALL("fopen")
        CALL("fopen64") CALL("fclose") CALL("close") CALL("socket") CALL("pipe") CALL("accept");
#undef CALL
}
#endif

static void begin(struct kit_node *k)
{
    memset(k, 0, sizeof *k);
    util_log_init(&k->log);
}

void kit_lonely(struct kit_node *k)
{
    begin(k);
    k->home = util_tmpdir(); /* in memory where there is plenty: a node syncs much */
}

static void take_in(struct kit_node *k, const struct kit_node *keeper)
{
    struct err e = {0};
    struct identity me;
    struct member m;
    ok(identity_open(k->home, NULL, &me, &e));
    ok(member_open(k->home, &me, &m, &e));
    if (!keeper) {
        ok(member_init(&m, (uint64_t)time(NULL), &e));
    } else {
        struct identity km;
        struct member kk;
        int lock;
        ok(identity_open(keeper->home, NULL, &km, &e));
        ok(member_open(keeper->home, &km, &kk, &e));
        ok(member_add(&kk, crypto_key_public(me.key), (uint64_t)time(NULL), &e));
        ok(home_lock(k->home, &lock, &e));
        ok(member_adopt(&m, &kk.group, kk.blob.p, kk.blob.n, &e));
        home_unlock(lock);
        member_close(&kk);
        identity_close(&km);
    }
    member_close(&m);
    identity_close(&me);
}

void kit_keeper(struct kit_node *k)
{
    kit_lonely(k);
    take_in(k, NULL);
}

void kit_member(struct kit_node *k, const struct kit_node *keeper)
{
    kit_lonely(k);
    take_in(k, keeper);
}

void kit_second(struct kit_node *k, const struct kit_node *first)
{
    begin(k);
    k->home = strdup(first->home);
    k->second = true;
}

void kit_open(struct kit_node *k, const char *model, const struct kit_node *to)
{
    struct err e = {0};
    struct node_opts had = k->o;
    k->o = (struct node_opts){
        .home = k->home,
        .store = {.model = model,
                  .ram_budget = had.store.ram_budget ? had.store.ram_budget : 64 << 20,
                  .mem = had.store.mem,
                  .mirrors = had.store.mirrors,
                  .n_mirrors = had.store.n_mirrors,
                  .disk_floor = had.store.disk_floor ? had.store.disk_floor : 1 << 20,
                  .disk_budget = had.store.disk_budget,
                  .offline = had.store.offline,
                  .rate_limit = had.store.rate_limit,
                  .cache_dir = had.store.cache_dir,
                  .retries = 2,
                  .retry_ms = 50,
                  .log = util_log_line,
                  .log_ctx = &k->log},
        .listen_host = "127.0.0.1",
        .no_bonjour = true,
        .meta_wait_ms = to ? 20000 : 20,
        .must_own = had.must_own,
        .verify = had.verify,
        .verify_ctx = had.verify_ctx,
        .audit_ms = had.audit_ms,
        /* copies in the background would change what tests count */
        .homes_after_ms = had.homes_after_ms ? had.homes_after_ms : 3600000,
        .homes_settle_ms = had.homes_settle_ms,
        .power = had.power,
        .metered = had.metered,
        .stop = had.stop,
        .stop_ctx = had.stop_ctx,
        .serve_bytes_s = had.serve_bytes_s,
        .serve_peer_bytes_s = had.serve_peer_bytes_s,
    };
    if (to) {
        snprintf(k->peer, sizeof k->peer, "127.0.0.1:%d", node_port(to->n));
        k->peers[0] = k->peer;
        k->o.peers = k->peers;
        k->o.n_peers = 1;
    }
    ok(node_open(&k->o, &k->n, &e));
    k->st = node_store(k->n);
    k->m = k->st ? store_model(k->st) : NULL;
}

void kit_close(struct kit_node *k)
{
    node_close(k->n);
    k->n = NULL;
    k->st = NULL;
    k->m = NULL;
}

void kit_end(struct kit_node *k)
{
    kit_close(k);
    util_log_free(&k->log);
    if (k->second) {
        free(k->home);
    } else {
        drop_home(k->home);
    }
}

/* ---- objects ---- */

uint32_t kit_count(const struct kit_node *k)
{
    return model_object_count(k->m);
}

int kit_try(struct kit_node *k, uint32_t id)
{
    struct store_view v;
    struct err e = {0};
    int r = store_get(k->st, id, STORE_DEMAND, 0, &v, &e);
    if (!r) {
        if (!util_right(k->m, DEMO_MODEL, &v)) {
            fail_msg("object %u has wrong bytes", id);
        }
        store_release(k->st, &v);
    } else {
        print_message("object %u: %s\n", id, e.msg);
    }
    return r;
}

void kit_get(struct kit_node *k, uint32_t id)
{
    assert_int_equal(kit_try(k, id), 0);
}

void kit_get_all(struct kit_node *k, uint32_t from, uint32_t step)
{
    struct err e = {0};
    uint32_t n = kit_count(k);
    uint32_t *ids = malloc(n * sizeof *ids), many = 0;
    assert_non_null(ids);
    for (uint32_t i = from; i < n; i += step) {
        ids[many++] = i;
    }
    struct store_batch *b;
    ok(store_batch_begin(k->st, ids, many, STORE_DEMAND, &b, &e));
    for (uint32_t i = 0; i < many; i++) {
        struct store_view v;
        size_t which;
        ok(store_batch_next(b, &which, &v, &e));
        assert_true(util_right(k->m, DEMO_MODEL, &v));
        store_release(k->st, &v);
    }
    store_batch_end(b);
    free(ids);
}

uint64_t kit_bytes(struct kit_node *k, uint32_t from, uint32_t step)
{
    uint64_t sum = 0;
    for (uint32_t i = from; i < kit_count(k); i += step) {
        sum += model_object(k->m, i)->size;
    }
    return sum;
}

struct store_stats kit_stats(struct kit_node *k)
{
    struct store_stats s;
    store_get_stats(k->st, &s);
    return s;
}

/* ---- status ---- */

static json_t *look(json_t *j, const char *path)
{
    char part[64];
    while (*path && j) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, strtoul(part, NULL, 10))
                             : json_object_get(j, part);
        path += n + (path[n] == '.');
    }
    return j;
}

double kit_status(struct kit_node *k, const char *path)
{
    struct err e = {0};
    json_t *root;
    ok(node_status(k->n, &root, &e));
    const json_t *j = look(root, path);
    double v = json_is_number(j) ? json_number_value(j) : json_is_boolean(j) ? json_is_true(j) : -1;
    json_decref(root);
    return v;
}

char *kit_status_text(struct kit_node *k, const char *path)
{
    struct err e = {0};
    json_t *root;
    ok(node_status(k->n, &root, &e));
    const char *s = json_string_value(look(root, path));
    char *c = strdup(s ? s : "");
    json_decref(root);
    return c;
}

void kit_connected(struct kit_node *k, int peers)
{
    until(mesh_peers(node_mesh(k->n)) == peers);
}

/* ---- the origin ---- */

struct demo_server *kit_origin(char url[128])
{
    struct demo_server *s;
    struct err e = {0};
    ok(demo_server_start(DEMO_MODEL, 0, &s, &e));
    snprintf(url, 128, "%s", demo_server_url(s));
    return s;
}

uint64_t kit_origin_bytes(struct demo_server *s)
{
    struct demo_server_stats v;
    demo_server_get_stats(s, &v);
    return v.bytes;
}
