/* SPDX-License-Identifier: MIT
 * ask.c: see ask.h. */
#include "ask.h"

#include <curl/curl.h>
#include <strings.h>

static size_t keep(char *p, size_t size, size_t n, void *ctx)
{
    struct ask *a = ctx;
    if (buf_add(&a->out, p, size * n)) {
        return 0;
    }
    atomic_fetch_add(&a->bytes, size * n);
    return size * n;
}

static size_t head(char *p, size_t size, size_t n, void *ctx)
{
    struct ask *a = ctx;
    char line[80], *end;
    size_t k = size * n < sizeof line - 1 ? size * n : sizeof line - 1;
    memcpy(line, p, k);
    line[k] = 0;
    if (!strncasecmp(line, "X-Shoal-Basis: ", 15)) {
        end = strpbrk(line, "\r\n");
        *(end ? end : line + k) = 0;
        snprintf(a->basis, sizeof a->basis, "%.31s", line + 15);
    }
    return size * n;
}

void ask_run(struct ask *a)
{
    char url[300];
    CURL *h = curl_easy_init();
    struct curl_slist *l = curl_slist_append(NULL, "Content-Type: application/json");
    a->status = 0;
    buf_init(&a->out, (size_t)16 << 20);
    if (h) {
        snprintf(url, sizeof url, "%s%s", a->base, a->path);
        l = a->header ? curl_slist_append(l, a->header) : l;
        curl_easy_setopt(h, CURLOPT_URL, url);
        curl_easy_setopt(h, CURLOPT_PROXY, "");
        curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(h, CURLOPT_HTTPHEADER, l);
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, keep);
        curl_easy_setopt(h, CURLOPT_WRITEDATA, a);
        curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, head);
        curl_easy_setopt(h, CURLOPT_HEADERDATA, a);
        curl_easy_setopt(h, CURLOPT_TIMEOUT, 3L * SPAWN_WAIT_S);
        if (a->body) {
            curl_easy_setopt(h, CURLOPT_POSTFIELDS, a->body);
        }
        if (curl_easy_perform(h) == CURLE_OK) {
            curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &a->status);
        }
    }
    if (buf_add(&a->out, "", 1) == 0) {
        a->out.n--;
    }
    curl_slist_free_all(l);
    curl_easy_cleanup(h);
}

void *ask_main(void *ask)
{
    ask_run(ask);
    return NULL;
}

json_t *ask_json(const char *base, const char *path, const char *body, long want_status)
{
    struct ask a = {.base = base, .path = path, .body = body};
    ask_run(&a);
    if (a.status != want_status) {
        fail_msg("%s: status %ld, not %ld: %s", path, a.status, want_status, a.out.p);
    }
    json_t *v = json_loadb(a.out.p, a.out.n, 0, NULL);
    if (!v) {
        fail_msg("%s: no JSON: %s", path, a.out.p);
    }
    buf_free(&a.out);
    return v;
}

char *ask_chat(const char *text, bool stream, const char *more)
{
    json_t *m = json_pack("[{s:s, s:s}]", "role", "user", "content", text);
    char *list = json_dumps(m, 0);
    size_t n = strlen(list) + (more ? strlen(more) : 0) + 200;
    char *s = malloc(n);
    assert_non_null(s);
    snprintf(s, n, "{\"messages\": %s, \"stream\": %s%s}", list, stream ? "true" : "false",
             more ? more : ", \"temperature\": 0, \"reasoning_effort\": \"none\"");
    free(list);
    json_decref(m);
    return s;
}

static void note_fp(const json_t *v, char *fp)
{
    const char *s = json_string_value(json_object_get(v, "system_fingerprint"));
    if (s && fp) {
        assert_true(strlen(s) < 64);
        assert_true(!*fp || !strcmp(fp, s)); /* one for all of an answer */
        snprintf(fp, 64, "%s", s);
    }
}

static const char *piece(const json_t *v, const char *where)
{
    const json_t *c = json_array_get(json_object_get(v, "choices"), 0);
    return json_string_value(json_object_get(json_object_get(c, where), "content"));
}

char *ask_content(const char *answer, bool stream, char *fp)
{
    struct buf b;
    bool done = false;
    buf_init(&b, 1 << 20);
    if (fp) {
        *fp = 0;
    }
    if (!stream) {
        json_t *v = json_loads(answer, 0, NULL);
        if (!piece(v, "message")) {
            fail_msg("no content: %s", answer);
        }
        assert_int_equal(buf_adds(&b, piece(v, "message")), 0);
        note_fp(v, fp);
        json_decref(v);
    }
    for (const char *p = answer; stream && (p = strstr(p, "data: ")); p++) {
        const char *end = strstr(p, "\n\n");
        assert_non_null(end);
        if (!strncmp(p + 6, "[DONE]", 6)) {
            done = true;
            continue;
        }
        json_t *v = json_loadb(p + 6, (size_t)(end - p - 6), 0, NULL);
        assert_non_null(v);
        note_fp(v, fp);
        assert_int_equal(buf_adds(&b, piece(v, "delta") ? piece(v, "delta") : ""), 0);
        json_decref(v);
        p = end;
    }
    assert_true(!stream || done);
    assert_int_equal(buf_add(&b, "", 1), 0);
    return buf_take(&b, NULL);
}

void ask_await(const char *base)
{
    for (int i = 0; i < SPAWN_WAIT_S * 20; i++) {
        struct ask a = {.base = base, .path = "/health"};
        ask_run(&a);
        json_t *v = json_loads(a.out.p, 0, NULL);
        if (a.status == 503) {
            assert_string_equal(str_of(v, "status"), "loading");
        } else {
            assert_int_equal(a.status, 200);
            assert_string_equal(str_of(v, "status"), "ok");
        }
        long status = a.status;
        json_decref(v);
        buf_free(&a.out);
        if (status == 200) {
            return;
        }
        usleep(50000);
    }
    fail_msg("the model was never ready");
}

double ask_metric(const char *base, const char *name)
{
    struct ask a = {.base = base, .path = "/metrics"};
    size_t n = strlen(name);
    double v = -1;
    ask_run(&a);
    assert_int_equal(a.status, 200);
    for (const char *l = a.out.p; l; l = strchr(l, '\n'), l = l ? l + 1 : NULL) {
        if (!strncmp(l, name, n) && l[n] == ' ') {
            v = strtod(l + n + 1, NULL);
        }
    }
    buf_free(&a.out);
    return v;
}

void ask_await_metric(const char *base, const char *name, double value)
{
    double v = -1;
    for (int i = 0; i < SPAWN_WAIT_S * 50; i++) {
        v = ask_metric(base, name);
        if (v == value) {
            return;
        }
        usleep(20000);
    }
    fail_msg("%s is %g, never %g", name, v, value);
}
