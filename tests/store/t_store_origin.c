/* SPDX-License-Identifier: MIT
 * t_store_origin.c: the pieces of the origin that need no network, in virtual time: rates, how long
 * signed addresses last, which waiting parts become one request. */
#include "tests/store/util.h"

#include "node/store/http_head.h"
#include "node/store/origin_inner.h"
#include "node/store/cap.h"
#include "node/store/signed_url.h"
#include "node/store/sync.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define S 1000000000ull

/* A sender that looks at the cap every `look` ns and then sends pieces while it may: bytes in `len`
 * ns. */
static uint64_t sent_in(struct cap *r, uint64_t piece, uint64_t look, uint64_t from, uint64_t len)
{
    uint64_t sum = 0;
    for (uint64_t t = from; t < from + len; t += look) {
        while (cap_wait(r, t) == 0) {
            cap_take(r, piece, t);
            sum += piece;
        }
    }
    return sum;
}

static void t_rate(void **s)
{
    static const uint64_t rates[] = {1000, 65536, 999983, 8000000, 125000000, 1250000000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        static const uint64_t looks[] = {1 * MS, 10 * MS, 37 * MS};
        for (size_t k = 0; k < 3; k++) {
            struct cap r;
            cap_init(&r, rates[i], 5 * S);
            uint64_t piece = cap_piece(&r, 16, 1 << 18);
            uint64_t n = sent_in(&r, piece, looks[k], 5 * S, 10 * S), want = rates[i] * 10;
            assert_in_range(n, want - want / 50, want + want / 50 + piece); /* 2 % */
            /* a quiet hour is worth a tenth of a second */
            n = sent_in(&r, piece, looks[k], 4000 * S, 2 * S);
            want = rates[i] * 2 + rates[i] / 10;
            assert_in_range(n, want - want / 25, want + want / 50 + piece);
        }
    }
    /* exact: no fraction of a nanosecond is lost in a million steps */
    struct cap r;
    cap_init(&r, 3000000, 0);
    for (int i = 0; i < 1000000; i++) {
        cap_take(&r, 1, 0);
    }
    assert_int_equal(cap_wait(&r, 0), 333333333);
    cap_init(&r, 0, 7);
    cap_take(&r, UINT64_MAX, 7);
    assert_int_equal(cap_wait(&r, 7), 0); /* no cap */
    assert_int_equal(cap_piece(&r, 10, 1000), 1000);
    cap_init(&r, 1, 7);
    cap_take(&r, UINT64_MAX, 7);
    assert_int_equal(cap_wait(&r, 7), 3600 * S); /* whatever came: at most an hour */
    /* one piece that is too large is paid for in full afterwards */
    cap_init(&r, 1000, 7);
    cap_take(&r, 3000, 7);
    assert_int_equal(cap_wait(&r, 7), 3 * S);
    assert_int_equal(cap_wait(&r, 7 + 3 * S), 0);
}

static void t_signed(void **s)
{
    static const struct {
        const char *url;
        long long at;
    } c[] = {
        {"https://h/f", 0},
        {"https://h/f?x=1", 0},
        {"https://h/f?X-Amz-Algorithm=A&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&"
         "X-Amz-Signature=aa",
         1369353600 + 86400},
        {"https://h/f?x-goog-expires=10&x-goog-date=20010909T014640Z", 1000000010},
        {"https://h/f?X-Amz-Expires=86400", 0}, /* since when? */
        {"https://h/f?X-Amz-Date=20130524T000000Z", 0},
        {"https://h/f?X-Amz-Date=20131324T000000Z&X-Amz-Expires=5", 0},
        {"https://h/f?X-Amz-Date=20130524T000000Z&X-Amz-Expires=99999999999999", 0},
        {"https://h/f?X-Amz-Date=20130524T000000Z&X-Amz-Expires=-5", 0},
        {"https://h/f?Expires=1700000000&Signature=b%2Fc%3D&Key-Pair-Id=K", 1700000000},
        {"https://h/f?Signature=ab==&Expires=1700000000", 1700000000},
        {"https://h/f?Expires=3600", 0},               /* a length, no time */
        {"https://h/f?exp=1700000000123", 1700000000}, /* milliseconds */
        {"https://h/f?e=1700000001&exp=1700000000#exp=1600000000", 1700000000},
        {"https://h/f?sv=2020&se=2023-11-14T22%3A13%3A20Z&sig=x", 1700000000},
        {"https://h/f?se=2023-11-14&sig=x", 1699920000},
        {"https://h/f?hdnts=st=1600000000~exp=1700000000~acl=/*~hmac=aa", 1700000000},
        {"https://h/f?exp=99999999999999999999999", 0},
        {"https://h/f?exp=", 0},
        {"https://h/f?=exp", 0},
        {"https://h/f?exp=17%300000000", 1700000000},
        {"https://h/f?exp=1700000000%00", 0},
        {"https://h/exp=1700000000", 0}, /* no query */
        {"https://h/f?se=2024-02-29T00:00:00Z", 1709164800},
        {"https://h/f?se=1969-02-29T00:00:00Z", 0},
        {"https://h/f?se=7688-11-14T22:13:20Z", 0}, /* no life that anybody signs */
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        long long at = signed_url_expires(c[i].url);
        if (at != c[i].at) {
            fail_msg("%s: %lld instead of %lld", c[i].url, at, c[i].at);
        }
    }
}

/* An origin without a thread: only its queue and what it remembers. */
static void origin_init(struct origin *o, uint32_t merge_ms)
{
    memset(o, 0, sizeof *o);
    o->o.merge_ms = merge_ms;
    o->host = (char *)"h";
    pthread_mutex_init(&o->mu, NULL);
    sync_cond_init(&o->cv);
    uint32_t f;
    struct err e = {0};
    assert_int_equal(origin_file(o, "a.safetensors", &f, &e), 0);
    assert_int_equal(origin_file(o, "b.safetensors", &f, &e), 0);
    assert_int_equal(f, 1);
}

static void origin_clear(struct origin *o)
{
    for (uint32_t i = 0; i < o->n_files; i++) {
        free(o->files[i].name);
        free(o->files[i].resolved);
    }
    free(o->files);
    pthread_cond_destroy(&o->cv);
    pthread_mutex_destroy(&o->mu);
}

static void add(struct origin *o, struct origin_part *p, uint32_t file, uint64_t off, uint64_t n,
                enum store_prio prio)
{
    *p = (struct origin_part){.name = "x", .file = file, .off = off, .size = n, .prio = prio};
    origin_submit(o, p);
}

static void t_merge(void **s)
{
    struct origin o;
    struct origin_part p[6];
    uint64_t wake;
    origin_init(&o, 50);
    add(&o, &p[0], 0, 1000, 100, STORE_DEMAND);
    add(&o, &p[1], 0, 1100, 50, STORE_DEMAND);
    add(&o, &p[2], 0, 900, 100, STORE_DEMAND);
    add(&o, &p[3], 0, 1151, 10, STORE_DEMAND);  /* one byte is between */
    add(&o, &p[4], 1, 1150, 10, STORE_DEMAND);  /* another file */
    add(&o, &p[5], 0, 890, 10, STORE_PREFETCH); /* before it and less urgent */
    for (int i = 0; i < 6; i++) {               /* as if they had come a millisecond apart */
        p[i].ripe = (uint64_t)(50 + i) * MS;
    }
    assert_null(run_take(&o, 50 * MS - 1, false, &wake)); /* others may still come */
    assert_int_equal(wake, 50 * MS);
    struct run *r = run_take(&o, 50 * MS, false, &wake);
    assert_non_null(r);
    assert_int_equal(r->pos, 900); /* both neighbours, though they are younger */
    assert_int_equal(r->end, 1150);
    assert_ptr_equal(r->head, &p[2]);
    free(r);
    assert_null(run_take(&o, 50 * MS, false, &wake));
    assert_int_equal(wake, 53 * MS);
    r = run_take(&o, 60 * MS, false, &wake);
    assert_int_equal(r->pos, 1151);
    assert_int_equal(r->end, 1161);
    free(r);
    r = run_take(&o, 60 * MS, false, &wake);
    assert_int_equal(r->file, 1);
    free(r);
    assert_null(run_take(&o, 60 * MS, true, &wake)); /* the connection that is kept for demand */
    r = run_take(&o, 60 * MS, false, &wake);
    assert_int_equal(r->pos, 890);
    free(r);
    /* without a window at once */
    o.o.merge_ms = 0;
    add(&o, &p[0], 0, 1000, 100, STORE_DEMAND);
    r = run_take(&o, clock_ns(), false, &wake);
    assert_non_null(r);
    free(r);
    /* and a whole file has no neighbours to wait for */
    o.o.merge_ms = 50000;
    add(&o, &p[0], 0, 0, ORIGIN_UNKNOWN, STORE_DEMAND);
    r = run_take(&o, clock_ns(), false, &wake);
    assert_non_null(r);
    free(r);
    origin_clear(&o);
}

static char *take(struct origin *o, uint32_t file, uint64_t now)
{
    static char kept[512];
    char linked[ORIGIN_ETAG_MAX] = "";
    char *u = far_take(o, file, linked, now);
    snprintf(kept, sizeof kept, "%s %s", u ? u : "-", linked);
    free(u);
    return kept;
}

static void t_far(void **s)
{
    struct origin o;
    origin_init(&o, 0);
    assert_string_equal(take(&o, 0, 1), "- ");
    /* 100 s by the clock of the server, whatever ours says: renewed 10 s before */
    const char *u = "https://cdn/a?Expires=1700000100&Signature=x";
    far_learn(&o, 0, u, 1700000000, "\"sha\"", "\"cdn\"", 1000 * S);
    assert_string_equal(take(&o, 0, 1001 * S),
                        "https://cdn/a?Expires=1700000100&Signature=x \"sha\"");
    assert_string_equal(take(&o, 1, 1001 * S), "- ");
    assert_true(far_same(&o, 0, "\"cdn\""));
    assert_true(far_same(&o, 0, ""));
    assert_false(far_same(&o, 0, "\"other\""));
    assert_string_not_equal(take(&o, 0, 1090 * S - 1), "- ");
    assert_string_equal(take(&o, 0, 1090 * S), "- ");
    assert_int_equal(o.renewed, 1);
    /* an hour: a minute before */
    far_learn(&o, 0, "https://cdn/a?exp=1700003600", 1700000000, "", "", 1000 * S);
    assert_string_not_equal(take(&o, 0, (4600 - 61) * S), "- ");
    assert_string_equal(take(&o, 0, (4600 - 60) * S), "- ");
    /* one that is over, and works, is not kept */
    far_learn(&o, 0, "https://cdn/a?exp=1700003600", 1700003600, "", "", 1000 * S);
    assert_string_equal(take(&o, 0, 1000 * S), "- ");
    /* one that says nothing is kept for good, until one was refused: then for less than its age */
    far_learn(&o, 0, "https://cdn/a", 1700000000, "", "", 1000 * S);
    far_learn(&o, 1, "https://cdn/b", 1700000000, "", "", 1000 * S);
    assert_string_not_equal(take(&o, 0, 90000 * S), "- ");
    far_refused(&o, 0, 1300 * S);
    assert_string_equal(take(&o, 0, 1300 * S), "- ");
    assert_string_not_equal(take(&o, 1, 1300 * S), "- ");
    far_learn(&o, 0, "https://cdn/a", 1700000000, "", "", 2000 * S);
    assert_string_not_equal(take(&o, 0, 2269 * S), "- ");
    assert_string_equal(take(&o, 0, 2270 * S), "- ");
    far_learn(&o, 0, "https://cdn/a?exp=1700003600", 1700000000, "", "", 2000 * S);
    assert_string_equal(take(&o, 0, 2270 * S), "- "); /* also where it claims more */
    /* refused in the moment it was made: that is no life, but a fault */
    far_learn(&o, 0, "https://cdn/a", 1700000000, "", "", 3000 * S);
    far_refused(&o, 0, 3000 * S + 1);
    assert_int_equal(o.far_life, 300 * S);
    origin_clear(&o);
}

static void line(struct http_head *h, const char *text)
{
    http_head_line(h, text, strlen(text), 1000000000);
}

static void t_head(void **s)
{
    struct http_head h = {0};
    /* a date is of the server's clock: its own Date counts, before or behind */
    line(&h, "HTTP/1.1 503 x");
    line(&h, "Retry-After: Sun, 09 Sep 2001 02:00:10 GMT");
    line(&h, "Date: Sun, 09 Sep 2001 02:00:00 GMT");
    assert_int_equal(h.retry_after_ms, 10000);
    line(&h, "HTTP/1.1 503 x");
    line(&h, "Date: Sun, 09 Sep 2001 02:00:00 GMT");
    line(&h, "Retry-After: Sun, 09 Sep 2001 02:00:07 GMT");
    assert_int_equal(h.retry_after_ms, 7000);
    /* a hub's own header, if there is no other */
    line(&h, "HTTP/1.1 429 x");
    line(&h, "RateLimit: \"api\";r=0;t=55");
    assert_int_equal(h.retry_after_ms, 55000);
    line(&h, "Retry-After: 3");
    assert_int_equal(h.retry_after_ms, 3000);
    line(&h, "RateLimit: \"api\";r=0;t=55");
    assert_int_equal(h.retry_after_ms, 3000);
    line(&h, "HTTP/1.1 200 x");
    line(&h, "RateLimit: \"api\";r=9;t=55");
    assert_int_equal(h.retry_after_ms, 0);
    /* the same bytes by another name */
    line(&h, "ETag: \"abc-gzip\"");
    assert_string_equal(h.etag, "\"abc\"");
    line(&h, "ETag: \"-gzip\"");
    assert_string_equal(h.etag, "\"-gzip\"");
    line(&h, "X-Repo-Commit: 0123456789abcdef0123456789abcdef01234567");
    assert_string_equal(h.commit, "0123456789abcdef0123456789abcdef01234567");
    line(&h, "HTTP/1.1 200 x");
    line(&h, "X-Repo-Commit: 0123456789abcdef0123456789abcdef0123456/");
    assert_string_equal(h.commit, "");
    struct err e = {0};
    line(&h, "HTTP/1.1 407 x");
    assert_int_equal(http_judge(&h, 0, 1, 1, &e), HTTP_FATAL);
    assert_non_null(strstr(e.msg, "proxy"));
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_rate), cmocka_unit_test(t_signed), cmocka_unit_test(t_merge),
        cmocka_unit_test(t_far),  cmocka_unit_test(t_head),
    };
    return cmocka_run_group_tests_name("store_origin", t, NULL, NULL);
}
