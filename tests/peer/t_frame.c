/* SPDX-License-Identifier: MIT
 * t_frame.c: frames in a byte stream, cut into pieces of every size, ended at every byte, with
 * lengths that are not allowed. */
#include "peer/frame.h"

#include "proto/base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Feed `n` bytes in pieces of at most `piece`. Frames go to got[]; returns the error. */
static int feed(struct frame_reader *r, const uint8_t *p, size_t n, size_t piece,
                struct frame **got, int *n_got, struct err *e)
{
    while (n) {
        size_t want = 0;
        uint8_t *to = frame_reader_want(r, &want, e);
        if (!to) {
            return e->code;
        }
        assert_true(want > 0);
        size_t k = want < n ? want : n;
        k = k < piece ? k : piece;
        memcpy(to, p, k);
        struct frame *f = frame_reader_got(r, k);
        if (f) {
            got[(*n_got)++] = f;
        }
        p += k;
        n -= k;
    }
    return 0;
}

/* Three frames: body only, body and raw, one byte. Returns the length. */
static size_t stream(uint8_t *out)
{
    static const size_t sizes[3][2] = {{40, 0}, {3, 57}, {1, 0}};
    size_t n = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(frame_head(out + n, sizes[i][0], sizes[i][1]), 0);
        n += WIRE_HEAD;
        for (size_t k = 0; k < sizes[i][0] + sizes[i][1]; k++) {
            out[n++] = (uint8_t)(i * 70 + (int)k);
        }
    }
    return n;
}

static void t_pieces(void **state)
{
    uint8_t s[256], sha[SHA256_SIZE];
    size_t n = stream(s);
    for (size_t piece = 1; piece <= n; piece++) {
        struct frame_reader r;
        struct frame *got[3];
        int n_got = 0;
        struct err e = {0};
        frame_reader_init(&r, WIRE_BODY_MAX, WIRE_RAW_MAX);
        assert_int_equal(feed(&r, s, n, piece, got, &n_got, &e), 0);
        assert_int_equal(n_got, 3);
        assert_true(frame_reader_idle(&r));
        assert_int_equal(got[0]->body_n, 40);
        assert_memory_equal(got[0]->body, s + 8, 40);
        assert_null(got[0]->raw);
        assert_int_equal(got[1]->body_n, 3);
        assert_int_equal(got[1]->raw_n, 57);
        assert_memory_equal(got[1]->body, s + 56, 3);
        assert_memory_equal(got[1]->raw, s + 59, 57);
        sha256(s + 59, 57, sha);
        assert_memory_equal(got[1]->raw_sha256, sha, SHA256_SIZE);
        assert_int_equal(got[2]->body_n, 1);
        for (int i = 0; i < 3; i++) {
            frame_free(got[i]);
        }
        frame_reader_free(&r);
    }
}

/* The stream ends after each possible number of bytes: whole frames came, the rest is no loss of
 * memory, and it is known whether a frame was cut. */
static void t_every_end(void **state)
{
    uint8_t s[256];
    size_t n = stream(s);
    const size_t ends[] = {48, 116, 125};
    assert_int_equal(n, ends[2]);
    for (size_t cut = 0; cut <= n; cut++) {
        struct frame_reader r;
        struct frame *got[3];
        int n_got = 0;
        struct err e = {0};
        frame_reader_init(&r, WIRE_BODY_MAX, WIRE_RAW_MAX);
        assert_int_equal(feed(&r, s, cut, 1000, got, &n_got, &e), 0);
        int whole = (cut >= ends[0]) + (cut >= ends[1]) + (cut >= ends[2]);
        assert_int_equal(n_got, whole);
        bool at_end = cut == 0 || cut == ends[0] || cut == ends[1] || cut == ends[2];
        assert_int_equal(frame_reader_idle(&r), at_end);
        for (int i = 0; i < n_got; i++) {
            frame_free(got[i]);
        }
        frame_reader_free(&r);
    }
}

static void t_lengths(void **state)
{
    static const struct {
        uint32_t body, raw;
        bool ok;
    } cases[] = {
        {0, 0, false},
        {0, 1, false},
        {1, 0, true},
        {WIRE_BODY_MAX, 0, true},
        {WIRE_BODY_MAX + 1, 0, false},
        {UINT32_MAX, 0, false},
        {UINT32_MAX, UINT32_MAX, false},
        {1, WIRE_RAW_MAX, true},
        {1, WIRE_RAW_MAX + 1, false},
        {1, UINT32_MAX, false},
        {0x20544547, 0x54482f20, false}, /* "GET / HT" */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct frame_reader r;
        struct frame *got[1];
        int n_got = 0;
        struct err e = {0};
        uint8_t head[WIRE_HEAD + 1] = {0};
        num_put_le32(head, cases[i].body);
        num_put_le32(head + 4, cases[i].raw);
        frame_reader_init(&r, WIRE_BODY_MAX, WIRE_RAW_MAX);
        int code = feed(&r, head, WIRE_HEAD, 1000, got, &n_got, &e);
        size_t want = 0;
        uint8_t *to = code ? NULL : frame_reader_want(&r, &want, &e);
        assert_int_equal(to != NULL, cases[i].ok);
        if (!to) {
            assert_int_equal(e.code, ERR_FORMAT);
            assert_non_null(strstr(e.msg, "the peer "));
            struct err again = {0}; /* a broken stream stays broken */
            assert_null(frame_reader_want(&r, &want, &again));
        } else {
            assert_int_equal(want, cases[i].body);
        }
        frame_reader_free(&r);
        uint8_t out[WIRE_HEAD];
        assert_int_equal(frame_head(out, cases[i].body, cases[i].raw) == 0, cases[i].ok);
    }
}

static void t_own_limits(void **state)
{
    struct frame_reader r;
    struct frame *got[2];
    int n_got = 0;
    struct err e = {0};
    uint8_t s[WIRE_HEAD + 9];
    memset(s, 7, sizeof s);
    frame_reader_init(&r, 8, 0);
    frame_head(s, 8, 0);
    assert_int_equal(feed(&r, s, WIRE_HEAD + 8, 1000, got, &n_got, &e), 0);
    assert_int_equal(n_got, 1);
    frame_free(got[0]);
    frame_head(s, 9, 0);
    assert_int_equal(feed(&r, s, sizeof s, 1000, got, &n_got, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "at most 8"));
    frame_reader_init(&r, 8, 0);
    frame_head(s, 8, 1);
    assert_int_equal(feed(&r, s, sizeof s, 1000, got, &n_got, &e), ERR_FORMAT);
    /* A raised limit counts from the next frame on. */
    frame_reader_init(&r, 8, 0);
    r.body_max = 9;
    frame_head(s, 9, 0);
    assert_int_equal(feed(&r, s, sizeof s, 1, got, &n_got, &e), 0);
    assert_int_equal(n_got, 2);
    frame_free(got[1]);
    frame_reader_free(&r);
}

static void t_raw_can_be_taken(void **state)
{
    uint8_t s[256];
    struct frame_reader r;
    struct frame *got[3];
    int n_got = 0;
    struct err e = {0};
    frame_reader_init(&r, WIRE_BODY_MAX, WIRE_RAW_MAX);
    assert_int_equal(feed(&r, s, stream(s), 1000, got, &n_got, &e), 0);
    uint8_t *raw = got[1]->raw;
    got[1]->raw = NULL;
    for (int i = 0; i < 3; i++) {
        frame_free(got[i]);
    }
    assert_int_equal(raw[0], 73);
    free(raw);
    frame_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_pieces),           cmocka_unit_test(t_every_end),
        cmocka_unit_test(t_lengths),          cmocka_unit_test(t_own_limits),
        cmocka_unit_test(t_raw_can_be_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
