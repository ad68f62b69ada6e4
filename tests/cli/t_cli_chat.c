/* SPDX-License-Identifier: MIT
 * t_cli_chat.c: `shoal chat` by the real program: what it says is what `run` and the API say, the
 * conversation is remembered, and Control-C ends an answer but not the conversation. */
#include "ask.h"

#include "node/demo/server.h"
#include "proto/base/file.h"

#include <curl/curl.h>
#include <signal.h>

#define FIRST "Define whale."
#define SECOND "And music?"

static char *dir;

static int setup(void **state)
{
    (void)state;
    dir = homes_new();
    return curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int teardown(void **state)
{
    (void)state;
    curl_global_cleanup();
    homes_drop(dir);
    return 0;
}

static char *serve(struct spawn_child *u, const char *const *more)
{
    const char *args[20] = {"serve", "--api", "127.0.0.1:0", "--json"};
    for (size_t n = 4; *more; more++) {
        assert_true(n < 19);
        args[n++] = *more;
    }
    spawn_start(u, args);
    json_t *ready = spawn_ready(u);
    char *api = strdup(str_of(ready, "api"));
    json_decref(ready);
    ask_await(api);
    return api;
}
#define SERVE(u, ...) serve(u, (const char *const[]){__VA_ARGS__, NULL})

/* What the API answers to the second message after the first and its answer. */
static char *second_of(const char *api, const char *first)
{
    json_t *q = json_pack("{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], s:i, s:s}", "messages", "role",
                          "user", "content", FIRST, "role", "assistant", "content", first, "role",
                          "user", "content", SECOND, "temperature", 0, "reasoning_effort", "none");
    char *body = json_dumps(q, 0);
    struct ask a = {.base = api, .path = "/v1/chat/completions", .body = body};
    ask_run(&a);
    assert_int_equal(a.status, 200);
    char *s = ask_content(a.out.p, false, NULL);
    buf_free(&a.out);
    free(body);
    json_decref(q);
    return s;
}

static void t_two_turns(void **state)
{
    struct spawn_child u;
    struct spawn_result r;
    char want[2000];
    (void)state;
    json_t *run = MUST("run", "--chat", FIRST, "--no-think");
    char *api = SERVE(&u, "-q");
    char *second = second_of(api, str_of(run, "text"));
    char *file = homes_at(dir, "saved");
    char input[400];
    snprintf(want, sizeof want, "%s\n%s\n", str_of(run, "text"), second);
    snprintf(input, sizeof input, FIRST "\n" SECOND "\r\n\n/save %s\n/nothing\n/quit\nnever\n",
             file);

    SPAWN(&r, input, "chat", "--no-think", "-q"); /* with a model of its own */
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, want);
    assert_string_equal(r.err.p, "");
    spawn_free(&r);
    SPAWN(&r, input, "chat", "--no-think", "--url", api);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out.p, want);
    assert_non_null(strstr(r.err.p, "there are /reset"));
    spawn_free(&r);

    /* What was saved is a request, whose prompt is that of the whole conversation. */
    struct buf b;
    struct err e;
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read_all(file, &b, &e), 0);
    json_t *v = json_loadb(b.p, b.n, 0, NULL), *l = json_object_get(v, "messages");
    assert_int_equal(json_array_size(l), 4);
    assert_string_equal(str_of(json_array_get(l, 3), "content"), second);
    json_decref(v);
    buf_free(&b);

    /* The last line without its end is a turn, too; /reset forgets. */
    SPAWN(&r, SECOND "\n/reset\n" FIRST, "chat", "--json", "--no-think", "--url", api);
    assert_int_equal(r.status, 0);
    const char *nl = strchr(r.out.p, '\n');
    assert_non_null(nl);
    v = json_loads(nl + 1, 0, NULL);
    assert_string_equal(str_of(v, "content"), str_of(run, "text"));
    assert_string_equal(str_of(v, "finish"), "stop");
    json_decref(v);
    spawn_free(&r);
    SPAWN(&r, FIRST "\n", "chat", "--show-thinking", "--url", api);
    assert_int_equal(strncmp(r.out.p, "[thinking] ", 11), 0);
    assert_non_null(strstr(r.out.p, "\n[answer] "));
    spawn_free(&r);
    char deep[200];
    snprintf(deep, sizeof deep, "%s/v1/chat/completions", api);
    SPAWN(&r, FIRST "\n", "chat", "--url", deep);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "--url takes the address alone"));
    spawn_free(&r);
    assert_int_equal(spawn_end(&u, SIGTERM), 0);
    SPAWN(&r, FIRST "\n", "chat", "--url", api, "--model-name", "x", "--json");
    assert_int_equal(r.status, 1); /* nobody is there any more */
    assert_non_null(strstr(r.err.p, "does shoal serve, or shoal up --api, run there?"));
    spawn_free(&r);
    SPAWN(&r, "", "chat", "--url", api, "--home", dir);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    free(file);
    free(second);
    free(api);
    json_decref(run);
}

static void type(int fd, const char *line)
{
    assert_int_equal(write(fd, line, strlen(line)), strlen(line));
}

static json_t *turn(struct spawn_child *u, size_t nth)
{
    char *s = spawn_line(u, nth);
    json_t *v = json_loads(s, 0, NULL);
    if (!v) {
        fail_msg("no JSON: %s", s);
    }
    free(s);
    return v;
}

/* The experts come slowly, so that an answer is surely under way when it is stopped. */
static void t_interrupt(void **state)
{
    struct spawn_child us, uc;
    struct demo_server *origin;
    struct err e;
    (void)state;
    assert_int_equal(demo_server_start(MODEL, 0, &origin, &e), 0);
    const char *url = demo_server_url(origin);
    char *cache = homes_at(dir, "cache");
    DO("run", "--model", url, "--cache", cache, "--ids", "1", "--max-new", "1"); /* the spine */
    json_t *run = MUST("run", "--chat", FIRST, "--no-think");
    char *api = SERVE(&us, "--model", url, "--cache", cache, "--rate-limit", "600K");

    int in = SPAWN_START_IN(&uc, "chat", "--json", "--no-think", "--url", api);
    type(in, SECOND "\n");
    ask_await_metric(api, "shoal_requests_running", 1);
    assert_int_equal(kill((pid_t)uc.pid, SIGINT), 0);
    json_t *v = turn(&uc, 0);
    assert_string_equal(str_of(v, "finish"), "interrupted");
    json_decref(v);
    ask_await_metric(api, "shoal_requests_running", 0);
    assert_int_equal(ask_metric(api, "shoal_requests_cancelled_total"), 1);

    type(in, FIRST "\n");
    v = turn(&uc, 1);
    assert_string_equal(str_of(v, "finish"), "stop");
    if (!strcmp(str_of(v, "content"), "")) {
        fail_msg("no answer");
    }
    /* Nothing had been said when it was stopped: the question was taken back. */
    assert_string_equal(str_of(v, "content"), str_of(run, "text"));
    assert_int_equal(num_of(v, "usage.prompt_tokens"),
                     json_array_size(json_object_get(run, "prompt_ids")));
    json_decref(v);

    /* At the prompt one Control-C is a question, and two are the end. */
    assert_int_equal(kill((pid_t)uc.pid, SIGINT), 0);
    spawn_await(&uc, "Control-C once more");
    assert_int_equal(spawn_end(&uc, SIGINT), 0);
    close(in);
    assert_int_equal(spawn_end(&us, SIGTERM), 0);
    demo_server_stop(origin);
    json_decref(run);
    free(cache);
    free(api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_two_turns),
        cmocka_unit_test(t_interrupt),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
