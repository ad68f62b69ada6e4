/* SPDX-License-Identifier: MIT
 * t_store_parts.c: the store's small pieces by themselves: digests, journal, lists, records of
 * unfinished files, heads of HTTP answers, the catalog's rules. */
#include "tests/store/util.h"

#include "node/store/catalog.h"
#include "node/store/uncached.h"
#include "proto/base/file.h"
#include "node/store/chunk.h"
#include "node/store/http_head.h"
#include "node/store/journal.h"
#include "node/store/meta_list.h"
#include "node/store/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void t_digest(void **s)
{
    assert_int_equal(chunk_xxh("", 0), 0xef46db3751d8e999u); /* xxHash's published value */
    assert_int_equal(chunk_xxh("abc", 3), 0x44bc2cf5ad770999u);
    assert_int_equal(chunk_count(1), 1);
    assert_int_equal(chunk_count(CHUNK_SIZE), 1);
    assert_int_equal(chunk_count(CHUNK_SIZE + 1), 2);
    assert_int_equal(chunk_count(17547264), 17);
    assert_int_equal(chunk_len(17547264, 16), 17547264 - 16 * CHUNK_SIZE);
    /* SHA-256 over the chunks' SHA-256s, done by hand */
    size_t n = CHUNK_SIZE + 5;
    uint8_t *b = calloc(1, n), both[64], want[32];
    b[3] = 7;
    struct chunk_sum c[2];
    chunk_sum(b, CHUNK_SIZE, &c[0]);
    chunk_sum(b + CHUNK_SIZE, 5, &c[1]);
    struct digest *d = digest_make(n, c, DIGEST_ORIGIN);
    sha256(b, CHUNK_SIZE, both);
    sha256(b + CHUNK_SIZE, 5, both + 32);
    sha256(both, 64, want);
    assert_memory_equal(d->sha, want, 32);
    assert_int_equal(d->n, 2);
    assert_int_equal(d->xxh[1], chunk_xxh(b + CHUNK_SIZE, 5));
    free(d);
    free(b);
}

static struct digest *some(uint32_t i)
{
    struct digest *d = digest_alloc((uint64_t)(i % 5) * CHUNK_SIZE + i + 1, i % 2);
    for (int k = 0; k < 32; k++) {
        d->sha[k] = (uint8_t)(i * 31 + (uint32_t)k);
    }
    d->source = DIGEST_ORIGIN;
    for (uint32_t k = 0; k < d->n; k++) {
        d->xxh[k] = i * 1000003u + k;
        if (d->shas) {
            memset(d->shas[k], (int)(i + k), SHA256_SIZE);
        }
    }
    return d;
}

struct seen {
    uint8_t ok[64];
    uint32_t n, wrong;
};

static int each(void *ctx, uint32_t id, struct digest *d)
{
    struct seen *s = ctx;
    struct digest *w = some(id);
    if (id < 64 && digest_equal(d, w) && !d->shas == !w->shas &&
        (!d->shas || memcmp(d->shas, w->shas, (size_t)d->n * SHA256_SIZE) == 0)) {
        s->ok[id] = 1;
    } else {
        s->wrong++;
    }
    s->n++;
    free(w);
    free(d);
    return 0;
}

static void t_journal(void **s)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    size_t at[65];
    for (uint32_t i = 0; i < 64; i++) {
        struct digest *d = some(i);
        at[i] = b.n;
        assert_int_equal(journal_record(&b, i, d), 0);
        free(d);
    }
    at[64] = b.n;
    struct seen x = {.n = 0};
    uint64_t skipped;
    assert_int_equal(journal_scan(b.p, b.n, each, &x, &skipped, NULL), 0);
    assert_int_equal(x.n, 64);
    assert_int_equal(x.wrong + skipped, 0);
    /* every single damaged byte costs exactly one record, and never invents one */
    for (size_t i = 0; i < b.n; i += 3) {
        b.p[i] ^= 0x10;
        struct seen y = {.n = 0};
        assert_int_equal(journal_scan(b.p, b.n, each, &y, &skipped, NULL), 0);
        b.p[i] ^= 0x10;
        uint32_t hit = 0;
        while (at[hit + 1] <= i) {
            hit++;
        }
        assert_int_equal(y.wrong, 0);
        assert_int_equal(y.n, 63);
        assert_int_equal(y.ok[hit], 0);
        assert_int_equal(skipped, at[hit + 1] - at[hit]);
    }
    /* torn at every length */
    for (size_t n = 0; n < b.n; n += 7) {
        struct seen y = {.n = 0};
        assert_int_equal(journal_scan(b.p, n, each, &y, &skipped, NULL), 0);
        uint32_t whole = 0;
        while (whole < 64 && at[whole + 1] <= n) {
            whole++;
        }
        assert_int_equal(y.n, whole);
        assert_int_equal(y.wrong, 0);
    }
    buf_free(&b);
}

static void t_record(void **s)
{
    struct chunk_sum c, d;
    chunk_sum("hello", 5, &c);
    uint8_t r[SESSION_RECORD];
    session_put_record(r, 9, &c);
    assert_true(session_get_record(r, 9, &d));
    assert_memory_equal(c.sha, d.sha, 32);
    assert_int_equal(c.xxh, d.xxh);
    assert_false(session_get_record(r, 8, &d));
    for (size_t i = 0; i < sizeof r; i++) {
        r[i] ^= 1;
        assert_false(session_get_record(r, 9, &d));
        r[i] ^= 1;
    }
}

static void t_list(void **s)
{
    struct meta_list l = {0}, k = {0};
    struct meta_item a = {.kind = META_FILE, .size = 123}, b = {.kind = META_ABSENT},
                     c = {.kind = META_SHARD, .size = 1ull << 40, .etag = "\"x-1\""},
                     d = {.kind = META_SHARD, .size = 5};
    a.sha[0] = 0xab;
    assert_int_equal(meta_list_set(&l, "config.json", &a), 0);
    assert_int_equal(meta_list_set(&l, "gone file.json", &b), 0);
    assert_int_equal(meta_list_set(&l, "m.safetensors", &c), 0);
    assert_int_equal(meta_list_set(&l, "n.safetensors", &d), 0);
    assert_int_equal(meta_list_set(&l, "../x", &a), ERR_FORMAT);
    assert_int_equal(meta_list_set(&l, "x/y", &a), ERR_FORMAT);
    assert_int_equal(meta_list_set(&l, "", &a), ERR_FORMAT);
    assert_int_equal(meta_list_set(&l, "a\nb", &a), ERR_FORMAT);
    struct buf t;
    buf_init(&t, 1 << 16);
    assert_int_equal(meta_list_write(&l, "http://h/x", &t), 0);
    struct err e = {0};
    assert_int_equal(meta_list_parse(&k, t.p, t.n, "http://h/x", &e), 0);
    assert_int_equal(k.n, 4);
    assert_int_equal(meta_list_find(&k, META_FILE, "config.json")->size, 123);
    assert_int_equal(meta_list_find(&k, META_FILE, "config.json")->sha[0], 0xab);
    assert_non_null(meta_list_find(&k, META_ABSENT, "gone file.json"));
    assert_int_equal(meta_list_find(&k, META_SHARD, "m.safetensors")->size, 1ull << 40);
    assert_string_equal(meta_list_find(&k, META_SHARD, "m.safetensors")->etag, "\"x-1\"");
    assert_string_equal(meta_list_find(&k, META_SHARD, "n.safetensors")->etag, "");
    meta_list_free(&k);
    assert_int_equal(meta_list_parse(&k, t.p, t.n, "http://h/y", &e), ERR_FORMAT);
    for (size_t i = 0; i < t.n; i++) { /* no damage passes */
        t.p[i] ^= 1;
        assert_int_equal(meta_list_parse(&k, t.p, t.n, "http://h/x", &e), ERR_FORMAT);
        t.p[i] ^= 1;
        assert_int_equal(meta_list_parse(&k, t.p, i, "http://h/x", &e), ERR_FORMAT);
    }
    /* what was absent has appeared */
    assert_int_equal(meta_list_set(&l, "gone file.json", &a), 0);
    assert_null(meta_list_find(&l, META_ABSENT, "gone file.json"));
    meta_list_free(&l);
    buf_free(&t);
}

static enum http_verdict judge(const char *head, uint64_t off, uint64_t n, uint64_t total,
                               struct http_head *h)
{
    char *copy = strdup(head), *line = copy;
    memset(h, 0, sizeof *h);
    for (char *nl; (nl = strchr(line, '|')); line = nl + 1) {
        *nl = 0;
        http_head_line(h, line, strlen(line), 1000000000);
    }
    free(copy);
    struct err e = {0};
    enum http_verdict v = http_judge(h, off, n, total, &e);
    assert_true(v == HTTP_BODY || (e.code && *e.msg));
    return v;
}

static void t_head(void **s)
{
    static const struct {
        const char *head;
        uint64_t off, n, total;
        enum http_verdict v;
    } c[] = {
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100|", 5, 5, 100, HTTP_BODY},
        {"HTTP/2 206|content-range: BYTES 5-9/100|content-length: 5|", 5, 5, 100, HTTP_BODY},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100|", 5, 5, HTTP_UNKNOWN, HTTP_BODY},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/*|", 5, 5, 100, HTTP_BODY},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/101|", 5, 5, 100, HTTP_FATAL},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-8/100|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 4-8/100|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-10/100|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 9-5/100|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/9|", 5, 5, 9, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100 |", 5, 5, 100, HTTP_BODY},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100x|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-99999999999999999999/100|", 5, 5, 100,
         HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes */100|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes -5-9/100|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range:|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Type: multipart/byteranges|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100|Content-Range: bytes 5-9/100|", 5, 5, 100,
         HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100|Content-Length: 6|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100|Content-Encoding: br|", 5, 5, 100,
         HTTP_REFUSED},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100|Content-Encoding: identity|", 5, 5, 100,
         HTTP_BODY},
        {"HTTP/1.1 200 x|Content-Length: 100|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1 200 x|Content-Length: 100|", 0, 100, 100, HTTP_BODY},
        {"HTTP/1.1 200 x|Content-Length: 100|", 0, 100, HTTP_UNKNOWN, HTTP_REFUSED},
        {"HTTP/1.1 200 x|", 0, 100, 100, HTTP_REFUSED},
        {"HTTP/1.1 200 x|", 0, HTTP_UNKNOWN, HTTP_UNKNOWN, HTTP_BODY},
        {"HTTP/1.1 200 x|Content-Length: 7|", 0, HTTP_UNKNOWN, 8, HTTP_FATAL},
        {"HTTP/1.1 206 x|Content-Range: bytes 0-9/10|", 0, HTTP_UNKNOWN, HTTP_UNKNOWN,
         HTTP_REFUSED},
        {"HTTP/1.1 404 x|", 5, 5, 100, HTTP_FATAL},
        {"HTTP/1.1 416 x|", 5, 5, 100, HTTP_FATAL},
        {"HTTP/1.1 429 x|Retry-After: 3|", 5, 5, 100, HTTP_RETRY},
        {"HTTP/1.1 502 x|", 5, 5, 100, HTTP_RETRY},
        {"HTTP/1.1 204 x|", 5, 5, 100, HTTP_REFUSED},
        {"HTTP/1.1|", 5, 5, 100, HTTP_REFUSED},
        /* only the last head counts */
        {"HTTP/1.1 100 Continue|HTTP/1.1 206 x|Content-Range: bytes 5-9/100|", 5, 5, 100,
         HTTP_BODY},
        {"HTTP/1.1 206 x|Content-Range: bytes 5-9/100|HTTP/1.1 206 y|", 5, 5, 100, HTTP_REFUSED},
    };
    struct http_head h;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        enum http_verdict v = judge(c[i].head, c[i].off, c[i].n, c[i].total, &h);
        if (v != c[i].v) {
            fail_msg("%s: %d instead of %d", c[i].head, v, c[i].v);
        }
    }
    judge("HTTP/1.1 503 x|Retry-After: 12|", 0, 1, 1, &h);
    assert_int_equal(h.retry_after_ms, 12000);
    judge("HTTP/1.1 503 x|Retry-After: 99999999999|", 0, 1, 1, &h);
    assert_int_equal(h.retry_after_ms, 86400000); /* a day at most */
    judge("HTTP/1.1 429 x|Retry-After: 3600|", 0, 1, 1, &h);
    assert_int_equal(h.retry_after_ms, 3600000); /* as it was asked */
    judge("HTTP/1.1 503 x|Retry-After: Sun, 09 Sep 2001 01:46:45 GMT|", 0, 1, 1, &h); /* 10^9 + 5 */
    assert_int_equal(h.retry_after_ms, 5000);
    judge("HTTP/1.1 503 x|Retry-After: Sun, 09 Sep 2001 01:46:35 GMT|", 0, 1, 1, &h);
    assert_int_equal(h.retry_after_ms, 0);
    judge("HTTP/1.1 200 x|ETag: \"abc\"|", 0, 1, 1, &h);
    assert_string_equal(h.etag, "\"abc\"");
    judge("HTTP/1.1 200 x|ETag: W/\"abc\"|", 0, 1, 1, &h);
    assert_string_equal(h.etag, "");
    judge("HTTP/1.1 302 x|X-Linked-ETag: \"sha\"|ETag: \"abc\"|", 0, 1, 1, &h);
    assert_string_equal(h.etag, "\"sha\"");
}

static void t_catalog(void **s)
{
    char *tmp = util_tmpdir();
    struct catalog *c;
    struct err e = {0};
    assert_int_equal(catalog_open(tmp, NULL, NULL, &c, &e), 0);
    int64_t m, m2, again;
    assert_int_equal(catalog_model(c, "aa", &m, &e), 0);
    assert_int_equal(catalog_model(c, "bb", &m2, &e), 0);
    assert_int_equal(catalog_model(c, "aa", &again, &e), 0);
    assert_int_equal(m, again);
    assert_int_not_equal(m, m2);
    struct digest *d[4], *got;
    struct catalog_row rows[4];
    for (uint32_t i = 0; i < 4; i++) {
        d[i] = some(i);
        rows[i] = (struct catalog_row){.id = i, .d = d[i], .last_use = i};
    }
    assert_int_equal(catalog_add(c, m, rows, 4, &e), 0);
    assert_int_equal(catalog_get(c, m, 3, &got, &e), 0);
    assert_true(digest_equal(got, d[3]));
    free(got);
    assert_int_equal(catalog_get(c, m2, 3, &got, &e), ERR_NOTFOUND);
    /* the first digest on record stays; another one is a conflict, row by row */
    d[2]->sha[5] ^= 1;
    assert_int_equal(catalog_add(c, m, rows, 4, &e), 0);
    assert_int_equal(rows[1].result, 0);
    assert_int_equal(rows[2].result, ERR_DIGEST);
    assert_int_equal(catalog_get(c, m, 2, &got, &e), 0);
    assert_false(digest_equal(got, d[2]));
    free(got);
    /* what rests on more takes the place of what rests on less, and not the other way round */
    static const uint32_t rising[] = {DIGEST_ONE_MEMBER, DIGEST_TWO_MEMBERS, DIGEST_ORIGIN,
                                      DIGEST_MANIFEST};
    struct catalog_row one = {.id = 9, .d = d[3]};
    for (uint32_t i = 0; i < 4; i++) {
        d[3]->sha[1] = (uint8_t)i;
        d[3]->source = rising[i];
        assert_int_equal(catalog_add(c, m, &one, 1, &e), 0);
        assert_int_equal(one.result, 0);
        assert_int_equal(catalog_get(c, m, 9, &got, &e), 0);
        assert_int_equal(got->source, rising[i]);
        assert_true(digest_equal(got, d[3]));
        free(got);
        for (uint32_t k = 0; k <= i; k++) {
            d[3]->sha[1] = 99;
            d[3]->source = rising[k];
            assert_int_equal(catalog_add(c, m, &one, 1, &e), 0);
            assert_int_equal(one.result, ERR_DIGEST);
        }
    }
    /* the same with the chunks' SHA-256s is more than without them */
    struct digest *full = digest_alloc(5, true), *bare = digest_alloc(5, false);
    full->source = bare->source = DIGEST_ORIGIN;
    full->shas[0][3] = 8;
    struct catalog_row two[3] = {
        {.id = 10, .d = bare}, {.id = 10, .d = full}, {.id = 10, .d = bare}};
    assert_true(digest_beats(full, bare) && !digest_beats(bare, full));
    assert_int_equal(catalog_add(c, m, two, 3, &e), 0);
    assert_int_equal(two[0].result + two[1].result + two[2].result, 0);
    assert_int_equal(catalog_get(c, m, 10, &got, &e), 0);
    assert_non_null(got->shas);
    assert_int_equal(got->shas[0][3], 8);
    free(got);
    free(full);
    free(bare);
    for (int i = 0; i < 4; i++) {
        free(d[i]);
    }
    catalog_close(c);
    util_rmtree(tmp);
    free(tmp);
}

static void t_basis(void **s)
{
    static const struct {
        uint32_t disk;
        enum basis b;
    } c[] = {{DIGEST_ORIGIN, BASIS_ORIGIN},
             {DIGEST_ONE_MEMBER, BASIS_ONE_MEMBER},
             {DIGEST_TWO_MEMBERS, BASIS_TWO_MEMBERS},
             {DIGEST_MANIFEST, BASIS_MANIFEST}};
    assert_int_equal(DIGEST_ORIGIN, 1); /* as on the disks of before */
    struct digest *d = some(3);
    for (int i = 0; i < 4; i++) {
        d->source = c[i].disk;
        assert_int_equal(digest_basis(d), c[i].b);
        assert_int_equal(digest_source_of(c[i].b), c[i].disk);
    }
    d->source = 77;
    assert_int_equal(digest_basis(d), BASIS_NONE);
    assert_int_equal(digest_source_of(BASIS_NONE), DIGEST_ONE_MEMBER);
    free(d);
}

/* On the volume of the working folder, which may know of reads past the cache, and in memory. */
static void t_uncached(void **s)
{
    (void)s;
    enum { SIZE = (5 << 20) + 1000 };
    char *mem = util_tmpdir(), here[] = "./uncached-XXXXXX";
    assert_non_null(mkdtemp(here));
    const char *dirs[] = {mem, here};
    uint8_t *want = malloc(SIZE), *room = malloc(SIZE + 3 * 4096);
    uint8_t *have = (uint8_t *)(((uintptr_t)room + 4095) & ~(uintptr_t)4095);
    for (int i = 0; i < SIZE; i++) {
        want[i] = (uint8_t)(i * 31 + i / 255);
    }
    for (int k = 0; k < 2; k++) {
        char *p = util_path("%s/f", dirs[k]);
        struct err e = {0};
        assert_int_equal(file_write_atomic(p, want, SIZE, 0600, &e), 0);
        static const struct {
            size_t at, off, n; /* in memory, in the file */
        } reads[] = {{0, 0, SIZE},     {0, 16, 5 << 20}, {3, 4097, (4 << 20) + 5000},
                     {0, 3, SIZE - 3}, {0, 0, 8192},     {0, 4096, SIZE - 4096},
                     {1, 0, 4096},     {0, 5, SIZE - 5}, {0, 8192, 1},
                     {0, SIZE - 1, 1}, {0, 0, 0},        {0, 4096, 2 * 4096},
                     {7, 9, 100}};
        for (int past = 0; past < 2; past++) {
            for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
                struct uncached f;
                assert_true(uncached_open(&f, p, 0, past) >= 0);
                uncached_forget(f.fd);
                for (int twice = 0; twice < 2; twice++) {
                    memset(have, 0, SIZE + 7);
                    assert_int_equal(
                        uncached_read(&f, p, have + reads[i].at, reads[i].n, reads[i].off, &e), 0);
                    assert_memory_equal(have + reads[i].at, want + reads[i].off, reads[i].n);
                    assert_int_equal(have[reads[i].at + reads[i].n], 0);
                }
                close(f.fd);
            }
            struct uncached f; /* a file that is too short */
            assert_true(uncached_open(&f, p, 0, past) >= 0);
            assert_int_equal(uncached_read(&f, p, have, SIZE + 1, 0, &e), ERR_FORMAT);
            close(f.fd);
            assert_true(uncached_open(&f, "no/such/file", 0, past) < 0);
        }
        free(p);
    }
    assert_false(uncached_wins(1 << 20));
    assert_true(uncached_wins((uint64_t)1 << 50));
    util_rmtree(mem);
    util_rmtree(here);
    free(mem);
    free(want);
    free(room);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_digest),  cmocka_unit_test(t_journal),
                                   cmocka_unit_test(t_record),  cmocka_unit_test(t_list),
                                   cmocka_unit_test(t_head),    cmocka_unit_test(t_basis),
                                   cmocka_unit_test(t_catalog), cmocka_unit_test(t_uncached)};
    return cmocka_run_group_tests_name("store_parts", t, NULL, NULL);
}
