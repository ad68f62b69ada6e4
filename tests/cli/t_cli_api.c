/* SPDX-License-Identifier: MIT
 * t_cli_api.c: the API of the real program: what a client gets is what `shoal run` computes, on
 * every node, streamed or not, alone or beside others; who may ask; loading, stopping, and states
 * that survive a restart. */
#include "ask.h"

#include "node/demo/server.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <curl/curl.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#define CHAT "/v1/chat/completions"
#define END_S \
    40.0 /* far less than the answers that are cut off take, and more than a busy machine does */
#define LONG_ANSWER ", \"temperature\": 0, \"ignore_eos\": true, \"max_tokens\": 3000"

static char *dir, *a, *b, *c;
static bool brief; /* where each step is slow */

static int setup(void **state)
{
    (void)state;
    dir = homes_new();
    a = homes_at(dir, "a");
    b = homes_at(dir, "b");
    c = homes_at(dir, "c");
    return curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int teardown(void **state)
{
    (void)state;
    curl_global_cleanup();
    free(a);
    free(b);
    free(c);
    homes_drop(dir);
    return 0;
}

/* The time it takes to end, with 0. */
static void ends_soon(struct spawn_child *u)
{
    double t = clock_s();
    assert_int_equal(spawn_end(u, SIGTERM), 0);
    t = clock_s() - t;
    if (t > END_S * (brief ? 6 : 1)) {
        fail_msg("it took %.1f s to end", t);
    }
}

static char *api_of(json_t *ready)
{
    char *s = strdup(str_of(ready, "api"));
    assert_non_null(s);
    json_decref(ready);
    return s;
}

static char *serve(struct spawn_child *u, const char *const *more)
{
    const char *args[20] = {"serve", "--api", "127.0.0.1:0", "--json"};
    for (size_t n = 4; *more; more++) {
        assert_true(n < 19);
        args[n++] = *more;
    }
    spawn_start(u, args);
    return api_of(spawn_ready(u));
}
#define SERVE(u, ...) serve(u, (const char *const[]){__VA_ARGS__, NULL})

/* The content that a client gets. */
static char *content(const char *api, const char *text, bool stream, const char *more, char *fp)
{
    char *body = ask_chat(text, stream, more);
    struct ask q = {.base = api, .path = CHAT, .body = body};
    ask_run(&q);
    if (q.status != 200) {
        fail_msg("status %ld: %s", q.status, q.out.p);
    }
    char *s = ask_content(q.out.p, stream, fp);
    buf_free(&q.out);
    free(body);
    return s;
}

/* ---- one node ---- */

static void t_as_run(void **state)
{
    struct spawn_child u;
    char fp[64], fp2[64];
    (void)state;
    json_t *run = MUST("run", "--chat", "Define whale.", "--no-think");
    char *api = api_of(UP(&u, a, "--api", "127.0.0.1:0"));
    ask_await(api);
    char *whole = content(api, "Define whale.", false, NULL, fp);
    char *parts = content(api, "Define whale.", true, NULL, fp2);
    assert_string_equal(whole, str_of(run, "text"));
    assert_string_equal(parts, whole);
    assert_string_equal(fp, fp2);
    assert_int_equal(strncmp(fp + 3, str_of(run, "model_root"), 16), 0);

    char *body = ask_chat("Define whale.", false, NULL);
    json_t *v = ask_json(api, CHAT, body, 200), *t = ask_json(api, "/tokenize", body, 200);
    spawn_expect_ids(json_object_get(t, "tokens"), json_object_get(run, "prompt_ids"));
    assert_int_equal(num_of(v, "usage.prompt_tokens"),
                     json_array_size(json_object_get(run, "prompt_ids")));
    assert_int_equal(num_of(v, "usage.completion_tokens"),
                     json_array_size(json_object_get(run, "ids")));
    assert_string_equal(str_of(v, "model"), "k3-demo");
    json_decref(v);
    json_decref(t);

    v = ask_json(api, "/v1/models", NULL, 200);
    assert_string_equal(str_of(json_array_get(json_object_get(v, "data"), 0), "id"), "k3-demo");
    json_decref(v);
    v = ask_json(api, "/health", NULL, 200);
    assert_string_equal(str_of(v, "model"), "k3-demo");
    assert_int_equal(num_of(v, "peers"), 0);
    assert_string_equal(str_of(json_object_get(v, "compute"), "backend"),
                        str_of(json_object_get(run, "stats"), "backend"));
    json_decref(v);
    assert_int_equal(ask_metric(api, "shoal_gpu_used"), 0);
    assert_int_equal(ask_metric(api, "shoal_requests_total"), 3);
    assert_true(ask_metric(api, "shoal_ram_bytes") > 0); /* of the node */

    /* What it rests on: by a header, or in a comment of a stream, and counted. */
    struct ask told = {.base = api, .path = CHAT, .body = body};
    ask_run(&told);
    assert_string_equal(told.basis, "origin");
    assert_null(strstr(told.out.p, "basis"));
    buf_free(&told.out);
    char *streamed = ask_chat("Define whale.", true, NULL);
    told = (struct ask){.base = api, .path = CHAT, .body = streamed};
    ask_run(&told);
    assert_non_null(strstr(told.out.p, "\n: basis origin\n"));
    buf_free(&told.out);
    free(streamed);
    assert_int_equal(ask_metric(api, "shoal_basis_answers_total{on=\"origin\"}"), 5);
    assert_int_equal(ask_metric(api, "shoal_basis_answers_total{on=\"one_member\"}"), 0);

    /* A client in the middle of its answer does not hold the node up. */
    char *longer = ask_chat("Define whale.", true, LONG_ANSWER);
    struct ask q = {.base = api, .path = CHAT, .body = longer};
    pthread_t th;
    assert_int_equal(pthread_create(&th, NULL, ask_main, &q), 0);
    while (atomic_load(&q.bytes) < 2000) {
        usleep(10000);
    }
    ends_soon(&u);
    pthread_join(th, NULL);
    assert_null(strstr(q.out.p, "[DONE]"));
    buf_free(&q.out);
    free(longer);
    free(body);
    free(whole);
    free(parts);
    free(api);
    json_decref(run);
}

/* ---- who may ask ---- */

static void t_key(void **state)
{
    struct spawn_child u;
    struct spawn_result r;
    struct err e;
    (void)state;
    char *file = homes_at(dir, "key"), *bad = homes_at(dir, "bad");
    assert_int_equal(file_write_atomic(file, "sesame-7\n", 9, 0644, &e), 0);
    assert_int_equal(file_write_atomic(bad, "two words\n", 10, 0600, &e), 0);
    SPAWN(&r, NULL, "serve", "--api", "0.0.0.0:0", "--json");
    assert_int_equal(r.status, 2); /* not without a key */
    assert_non_null(strstr(r.err.p, "--api-key-file"));
    spawn_free(&r);
    SPAWN(&r, NULL, "serve", "--api", "127.0.0.1:0", "--api-key-file", bad);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "without blanks"));
    spawn_free(&r);
    /* What is wrong with the key or the port is said before anything of the model is looked at. */
    const char *const without[] = {"serve", "up"};
    for (int i = 0; i < 2; i++) {
        SPAWN(&r, NULL, without[i], "--api", "127.0.0.1:0", "--api-key-file", bad, "--model",
              "/no/such/model");
        assert_int_equal(r.status, 1);
        assert_non_null(strstr(r.err.p, "without blanks"));
        spawn_free(&r);
    }
    SPAWN(&r, NULL, "up", "--home", b, "--cors", "*");
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err.p, "--cors goes with --api"));
    spawn_free(&r);
    SPAWN(&r, NULL, "serve", "--api", "here");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    const char *const origins[] = {"app.example.net", "https://app.example.net/", "https://"};
    for (int i = 0; i < 3; i++) { /* no browser sends such a one */
        SPAWN(&r, NULL, "serve", "--api", "127.0.0.1:0", "--cors", origins[i]);
        assert_int_equal(r.status, 2);
        assert_non_null(strstr(r.err.p, "a page's origin"));
        spawn_free(&r);
    }

    char *api = SERVE(&u, "--api-key-file", file, "--model-name", "mine");
    spawn_await(&u, "can be read by other users");
    spawn_await(&u, "requests for mine are answered");
    json_decref(ask_json(api, "/v1/models", NULL, 401));
    json_decref(ask_json(api, "/health", NULL, 401));
    const char *const heads[] = {"Authorization: Bearer sesame-7", "x-api-key: sesame-7",
                                 "Authorization: Bearer sesame-8"};
    for (int i = 0; i < 3; i++) {
        struct ask q = {.base = api, .path = "/v1/models", .header = heads[i]};
        ask_run(&q);
        assert_int_equal(q.status, i < 2 ? 200 : 401);
        assert_true(i == 2 || strstr(q.out.p, "\"mine\""));
        buf_free(&q.out);
    }
    /* The port is taken, and the key is asked for by the name that this program reads it from. */
    SPAWN(&r, NULL, "serve", "--api", strstr(api, "://") + 3);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "another program has this port; --api HOST:PORT names"));
    spawn_free(&r);
    for (int i = 0; i < 2; i++) {
        SPAWN(&r, NULL, without[i], "--api", strstr(api, "://") + 3, "--model", "/no/such/model");
        assert_int_equal(r.status, 1);
        assert_non_null(strstr(r.err.p, "another program has this port; --api HOST:PORT names"));
        spawn_free(&r);
    }
    SPAWN(&r, "Hi\n", "chat", "--url", api);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "takes it from the environment variable SHOAL_API_KEY"));
    spawn_free(&r);
    struct ask lost = {.base = api, .path = "/chat/completions", .header = heads[0]};
    ask_run(&lost);
    assert_int_equal(lost.status, 404);
    assert_non_null(strstr(lost.out.p, "is /v1 missing in the client's base URL"));
    buf_free(&lost.out);
    ends_soon(&u);
    free(file);
    free(bad);
    free(api);
}

/* All addresses of the machine: the URL that is said is one of them, and can be opened. */
static void t_all_addresses(void **state)
{
    struct spawn_child u;
    struct err e;
    (void)state;
    char *file = homes_at(dir, "open_key");
    assert_int_equal(file_write_atomic(file, "sesame-7\n", 9, 0600, &e), 0);
    const char *args[] = {"serve", "--api", "0.0.0.0:0", "--api-key-file", file, "--json", NULL};
    spawn_start(&u, args);
    char *api = api_of(spawn_ready(&u));
    assert_int_equal(strncmp(api, "http://127.0.0.1:", 17), 0);
    struct ask q = {.base = api, .path = "/health", .header = "x-api-key: sesame-7"};
    ask_run(&q);
    assert_true(q.status == 200 || q.status == 503); /* it may be loading still */
    buf_free(&q.out);
    ends_soon(&u);
    free(file);
    free(api);
}

/* ---- a model that takes long to load ---- */

static void t_loading(void **state)
{
    struct spawn_child u;
    struct demo_server *origin;
    struct err e;
    (void)state;
    assert_int_equal(demo_server_start(MODEL, 0, &origin, &e), 0);
    const char *url = demo_server_url(origin);
    for (int node = 0; node < 2; node++) {
        char *api =
            node ? api_of(UP(&u, b, "--api", "127.0.0.1:0", "--model", url, "--rate-limit", "800K"))
                 : SERVE(&u, "--model", url, "--cache", c, "--rate-limit", "800K");
        json_t *v = ask_json(api, "/health", NULL, 503);
        assert_string_equal(str_of(v, "status"), "loading");
        json_decref(v);
        char *body = ask_chat("Define whale.", false, NULL);
        v = ask_json(api, CHAT, body, 503);
        assert_string_equal(str_of(json_object_get(v, "error"), "code"), "loading");
        json_decref(v);
        ends_soon(&u);
        free(body);
        free(api);
    }
    demo_server_stop(origin);
}

/* ---- states ---- */

static char *long_text(void)
{
    struct buf t;
    buf_init(&t, 1 << 16);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(buf_adds(&t, "whale music ocean number "), 0);
    }
    assert_int_equal(buf_add(&t, "", 1), 0);
    return buf_take(&t, NULL);
}

/* Ask it; how many tokens of its prompt were kept, the text in *out. */
static double cached(const char *api, const char *text, char **out)
{
    char *body = ask_chat(text, false, NULL);
    json_t *v = ask_json(api, CHAT, body, 200);
    double n = num_of(v, "usage.prompt_tokens_details.cached_tokens");
    const json_t *m = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message");
    *out = strdup(str_of(m, "content"));
    json_decref(v);
    free(body);
    return n;
}

/* How many states lie in the only folder below home/states; all must be this user's alone. */
static size_t state_files(const char *home)
{
    size_t n = 0;
    char base[300], path[700];
    struct stat sb;
    json_t *l = MUST("states", "ls", "--home", home);
    const json_t *m = json_array_get(json_object_get(l, "models"), 0);
    assert_true(json_array_size(json_object_get(l, "models")) <= 1);
    if (m) {
        snprintf(base, sizeof base, "%s/states/%s", home, str_of(m, "model"));
        assert_int_equal(stat(base, &sb), 0);
        assert_int_equal(sb.st_mode & 0777, 0700);
        DIR *d = opendir(base);
        assert_non_null(d);
        for (struct dirent *f; (f = readdir(d));) {
            snprintf(path, sizeof path, "%s/%s", base, f->d_name);
            assert_int_equal(stat(path, &sb), 0);
            if (S_ISREG(sb.st_mode)) {
                assert_int_equal(sb.st_mode & 0777, 0600);
                n += strstr(f->d_name, ".state") != NULL;
            }
        }
        closedir(d);
        assert_int_equal(num_of(m, "states"), n);
    }
    json_decref(l);
    return n;
}

static void t_states(void **state)
{
    struct spawn_child u;
    char *text = long_text(), *first, *again;
    (void)state;
    char *api = api_of(UP(&u, b, "--api", "127.0.0.1:0"));
    ask_await(api);
    assert_int_equal(cached(api, text, &first), 0);
    assert_true(cached(api, text, &again) > 60);
    assert_string_equal(again, first);
    free(again);
    ends_soon(&u);
    assert_true(state_files(b) > 0);
    free(api);

    api = api_of(UP(&u, b, "--api", "127.0.0.1:0"));
    ask_await(api);
    assert_true(cached(api, text, &again) > 60);
    assert_string_equal(again, first);
    free(again);
    json_t *v = MUST("states", "clear", "--home", b); /* by the node that runs */
    assert_true(num_of(v, "states") > 0);
    json_decref(v);
    assert_int_equal(state_files(b), 0);
    assert_int_equal(cached(api, text, &again), 0);
    assert_string_equal(again, first);
    free(again);
    ends_soon(&u);
    free(api);
    assert_true(state_files(b) > 0);
    v = MUST("states", "clear", "--home", b); /* nothing runs: the files */
    assert_true(num_of(v, "bytes") > 0);
    json_decref(v);
    assert_int_equal(state_files(b), 0);
    json_t *list = MUST("states", "--home", b); /* the same as ls */
    assert_int_equal(json_array_size(json_object_get(list, "models")), 1);
    json_decref(list);

    /* Not wanted: nothing is written. And a process that is no node keeps others out. */
    api = api_of(UP(&u, b, "--api", "127.0.0.1:0", "--no-save-states"));
    ask_await(api);
    assert_int_equal(cached(api, text, &again), 0);
    free(again);
    assert_true(cached(api, text, &again) > 60);
    free(again);
    ends_soon(&u);
    assert_int_equal(state_files(b), 0);
    free(api);
    api = SERVE(&u, "--home", b);
    ask_await(api);
    FAILS("end it first", "states", "clear", "--home", b);
    ends_soon(&u);
    free(api);
    free(first);
    free(text);
}

/* ---- the same everywhere ---- */

#define AT_ONCE 4
#define BRIEFLY ", \"reasoning_effort\": \"none\""
#define GREEDY ", \"temperature\": 0, \"ignore_eos\": true, \"max_tokens\": 30" BRIEFLY
#define SAMPLED ", \"temperature\": 1, \"top_p\": 0.9, \"seed\": 7, \"max_tokens\": 30" BRIEFLY

/* 20 prompts, and 30 tokens to most of them. */
static void t_same(void **state)
{
    static const char *const texts[] = {
        "Define whale.", "Define music.", "What is an ocean?", "number", "Gr\xc3\xbc\xc3\x9f Gott",
        "Define tree.",  "Define iron.",  "Define king.",      "1 + 1",  "Define \xe6\xb0\xb4.",
        "Define sand.",  "Define rain.",  "What is a noun?",   "table",  "<|open|>message<|sep|>",
        "Define salt.",  "Define bird.",  "Who are you?",      "  ",     "Define word."};
    struct spawn_child ua, ub;
    char fp[64], other[64];
    size_t said = 0, n = brief ? 2 : sizeof texts / sizeof *texts;
    (void)state;
    char *one = api_of(UP(&ua, a, "--api", "127.0.0.1:0", "--parallel", "4"));
    char *two = SERVE(&ub, "--prefill-chunk", "5", "--threads", "1");
    ask_await(one);
    ask_await(two);
    for (size_t i = 0; i < n; i++) {
        const char *more = i % 2 ? SAMPLED : GREEDY;
        char *want = content(one, texts[i], false, more, fp);
        char *bodies[2] = {ask_chat(texts[i], false, more), ask_chat(texts[i], true, more)};
        struct ask q[AT_ONCE];
        pthread_t th[AT_ONCE];
        assert_int_equal(strncmp(fp, "fp_", 3), 0);
        said += strlen(want);
        for (int k = 0; k < AT_ONCE; k++) {
            q[k] = (struct ask){.base = k < 3 ? two : one, .path = CHAT, .body = bodies[k % 2]};
            assert_int_equal(pthread_create(&th[k], NULL, ask_main, &q[k]), 0);
        }
        for (int k = 0; k < AT_ONCE; k++) {
            pthread_join(th[k], NULL);
            assert_int_equal(q[k].status, 200);
            char *got = ask_content(q[k].out.p, k % 2, other);
            assert_string_equal(got, want);
            assert_string_equal(other, fp);
            free(got);
            buf_free(&q[k].out);
        }
        free(bodies[0]);
        free(bodies[1]);
        free(want);
    }
    assert_true(said > 20 * n);
    ends_soon(&ub);
    ends_soon(&ua);
    free(one);
    free(two);
}

int main(int argc, char **argv)
{
    brief = argc > 1;
    if (argc > 2) { /* one alone */
        cmocka_set_test_filter(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_as_run),  cmocka_unit_test(t_key),    cmocka_unit_test(t_all_addresses),
        cmocka_unit_test(t_loading), cmocka_unit_test(t_states), cmocka_unit_test(t_same),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
