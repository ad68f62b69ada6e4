/* SPDX-License-Identifier: MIT
 * t_demo_server.c: the loopback server against libcurl as an independent client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/demo/server.h"
#include "proto/base/buf.h"
#include "proto/base/file.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define FILE_SIZE 300001u

struct reply {
    long status;
    struct buf body;
    char range[96], etag[96], accept[32], allow[32];
    curl_off_t length;
    long connects;
};

static char dir[] = "/tmp/t_demo_server.XXXXXX";
static uint8_t content[FILE_SIZE];
static struct demo_server *server;

static void header_value(const char *p, size_t n, const char *name, char *out, size_t cap)
{
    size_t k = strlen(name);
    if (n > k + 1 && !strncasecmp(p, name, k) && p[k] == ':') {
        p += k + 1;
        n -= k + 1;
        while (n && (*p == ' ')) {
            p++, n--;
        }
        while (n && (p[n - 1] == '\r' || p[n - 1] == '\n')) {
            n--;
        }
        assert_true(n < cap);
        memcpy(out, p, n);
        out[n] = 0;
    }
}

static size_t on_header(char *p, size_t one, size_t n, void *ctx)
{
    struct reply *r = ctx;
    header_value(p, n, "Content-Range", r->range, sizeof r->range);
    header_value(p, n, "ETag", r->etag, sizeof r->etag);
    header_value(p, n, "Accept-Ranges", r->accept, sizeof r->accept);
    header_value(p, n, "Allow", r->allow, sizeof r->allow);
    return n;
}

static size_t on_body(char *p, size_t one, size_t n, void *ctx)
{
    struct reply *r = ctx;
    return buf_add(&r->body, p, n) ? 0 : n;
}

/* One request on a handle that may have a connection already. */
static void ask(CURL *c, const char *path, const char *method, const char *range, const char *extra,
                struct reply *r)
{
    char url[256];
    memset(r, 0, sizeof *r);
    buf_init(&r->body, 1 << 20);
    snprintf(url, sizeof url, "%s%s", demo_server_url(server), path);
    struct curl_slist *h = extra ? curl_slist_append(NULL, extra) : NULL;
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(c, CURLOPT_RANGE, range);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    if (!strcmp(method, "HEAD")) {
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    } else if (strcmp(method, "GET") != 0) {
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
    }
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, r);
    assert_int_equal(curl_easy_perform(c), CURLE_OK);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &r->status);
    curl_easy_getinfo(c, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &r->length);
    curl_easy_getinfo(c, CURLINFO_NUM_CONNECTS, &r->connects);
    curl_slist_free_all(h);
}

static void expect_bytes(const struct reply *r, size_t off, size_t n)
{
    assert_int_equal(r->body.n, n);
    assert_memory_equal(r->body.p, content + off, n);
}

static void t_whole_and_head(void **state)
{
    CURL *c = curl_easy_init();
    struct reply r;
    ask(c, "/f.bin", "GET", NULL, NULL, &r);
    assert_int_equal(r.status, 200);
    expect_bytes(&r, 0, FILE_SIZE);
    assert_string_equal(r.accept, "bytes");
    assert_true(strlen(r.etag) > 4);
    buf_free(&r.body);
    ask(c, "/f.bin", "HEAD", NULL, NULL, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body.n, 0);
    assert_int_equal(r.length, FILE_SIZE);
    assert_int_equal(r.connects, 0); /* the connection was kept */
    buf_free(&r.body);
    ask(c, "/empty", "GET", NULL, NULL, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.length, 0);
    buf_free(&r.body);
    ask(c, "/empty", "GET", "0-", NULL, &r);
    assert_int_equal(r.status, 416);
    buf_free(&r.body);
    curl_easy_cleanup(c);
}

static void t_ranges(void **state)
{
    static const struct {
        const char *range;
        long status;
        size_t off, n;
        const char *content_range;
    } cases[] = {
        {"0-0", 206, 0, 1, "bytes 0-0/300001"},
        {"5-131072", 206, 5, 131068, "bytes 5-131072/300001"},
        {"299999-", 206, 299999, 2, "bytes 299999-300000/300001"},
        {"299999-999999999", 206, 299999, 2, "bytes 299999-300000/300001"},
        {"-7", 206, 299994, 7, "bytes 299994-300000/300001"},
        {"-999999", 206, 0, 300001, "bytes 0-300000/300001"},
        {"300001-", 416, 0, 0, "bytes */300001"},
        {"300001-300010", 416, 0, 0, "bytes */300001"},
        {"-0", 416, 0, 0, "bytes */300001"},
        {"0-1,5-6", 200, 0, 300001, ""},
        {"7-3", 200, 0, 300001, ""},
        {"x-3", 200, 0, 300001, ""},
        {"99999999999999999999999-", 200, 0, 300001, ""},
    };
    CURL *c = curl_easy_init();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply r;
        char h[96];
        snprintf(h, sizeof h, "Range: bytes=%s", cases[i].range);
        ask(c, "/f.bin", "GET", NULL, h, &r);
        assert_int_equal(r.status, cases[i].status);
        assert_string_equal(r.range, cases[i].content_range);
        expect_bytes(&r, cases[i].off, cases[i].n);
        buf_free(&r.body);
    }
    curl_easy_cleanup(c);
}

static void t_conditions(void **state)
{
    CURL *c = curl_easy_init();
    struct reply r;
    char h[160], etag[96];
    ask(c, "/f.bin", "HEAD", NULL, NULL, &r);
    memcpy(etag, r.etag, sizeof etag);
    buf_free(&r.body);
    snprintf(h, sizeof h, "If-Range: %s", etag);
    ask(c, "/f.bin", "GET", "10-19", h, &r);
    assert_int_equal(r.status, 206);
    expect_bytes(&r, 10, 10);
    buf_free(&r.body);
    ask(c, "/f.bin", "GET", "10-19", "If-Range: \"other\"", &r);
    assert_int_equal(r.status, 200);
    expect_bytes(&r, 0, FILE_SIZE);
    buf_free(&r.body);
    snprintf(h, sizeof h, "If-None-Match: %s", etag);
    ask(c, "/f.bin", "GET", NULL, h, &r);
    assert_int_equal(r.status, 304);
    buf_free(&r.body);
    curl_easy_cleanup(c);
}

static void t_refusals(void **state)
{
    static const char *const missing[] = {"/",       "/none",          "/sub",    "/../f.bin",
                                          "/.hid",   "/sub/../f.bin",  "//f.bin", "/%2e%2e/f.bin",
                                          "/f.bin/", "/sub/%2e./x.bin"};
    CURL *c = curl_easy_init();
    struct reply r;
    struct demo_server_stats before, after;
    demo_server_get_stats(server, &before);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        ask(c, missing[i], "GET", NULL, NULL, &r);
        assert_int_equal(r.status, 404);
        buf_free(&r.body);
    }
    ask(c, "/f.bin", "POST", NULL, NULL, &r);
    assert_int_equal(r.status, 405);
    assert_string_equal(r.allow, "GET, HEAD");
    buf_free(&r.body);
    ask(c, "/sub/x.bin", "GET", NULL, NULL, &r);
    assert_int_equal(r.status, 200);
    buf_free(&r.body);
    demo_server_get_stats(server, &after);
    assert_int_equal(after.requests - before.requests, sizeof missing / sizeof *missing + 2);
    assert_int_equal(after.errors - before.errors, sizeof missing / sizeof *missing + 1);
    curl_easy_cleanup(c);
}

static void t_counts(void **state)
{
    CURL *c = curl_easy_init();
    struct reply r;
    struct demo_server_stats before, after;
    demo_server_get_stats(server, &before);
    ask(c, "/f.bin", "GET", "100-70099", NULL, &r);
    expect_bytes(&r, 100, 70000);
    buf_free(&r.body);
    ask(c, "/f.bin", "HEAD", NULL, NULL, &r);
    buf_free(&r.body);
    demo_server_get_stats(server, &after);
    assert_int_equal(after.bytes - before.bytes, 70000);
    assert_int_equal(after.ranges - before.ranges, 1);
    assert_int_equal(after.requests - before.requests, 2);
    curl_easy_cleanup(c);
}

static void t_no_folder(void **state)
{
    struct demo_server *s = NULL;
    struct err e = {0};
    assert_int_not_equal(demo_server_start("/nonexistent/folder", 0, &s, &e), 0);
    assert_non_null(strstr(e.msg, "/nonexistent/folder"));
    assert_null(s);
    char path[64];
    snprintf(path, sizeof path, "%s/f.bin", dir);
    assert_int_not_equal(demo_server_start(path, 0, &s, &e), 0);
    assert_non_null(strstr(e.msg, "not a folder"));
}

static void put(const char *name, const void *p, size_t n)
{
    char path[96];
    struct err e;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_write_atomic(path, p, n, 0600, &e), 0);
}

static int setup(void **state)
{
    char sub[64];
    struct err e;
    uint32_t x = 1;
    for (size_t i = 0; i < FILE_SIZE; i++) {
        x = x * 1664525u + 1013904223u;
        content[i] = (uint8_t)(x >> 24);
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(sub, sizeof sub, "%s/sub", dir);
    if (file_mkdirs(sub, &e)) {
        return -1;
    }
    put("f.bin", content, FILE_SIZE);
    put("empty", "", 0);
    put(".hid", "x", 1);
    put("sub/x.bin", "x", 1);
    return demo_server_start(dir, 0, &server, &e);
}

static int teardown(void **state)
{
    static const char *const names[] = {"f.bin", "empty", ".hid", "sub/x.bin"};
    char path[96];
    demo_server_stop(server);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/sub", dir);
    rmdir(path);
    curl_global_cleanup();
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_whole_and_head), cmocka_unit_test(t_ranges),
        cmocka_unit_test(t_conditions),     cmocka_unit_test(t_refusals),
        cmocka_unit_test(t_counts),         cmocka_unit_test(t_no_folder),
    };
    return cmocka_run_group_tests_name("demo_server", tests, setup, teardown);
}
