/* SPDX-License-Identifier: MIT
 * t_have.c: the order of have messages: snapshots, deltas, gaps. */
#include "tests/peer/home_util.h"

#include "peer/codec.h"
#include "peer/have.h"

struct seen {
    int frames;
    uint64_t seq;
    uint64_t objects;
    bool last;
};

static int see(void *ctx, const void *body, size_t n)
{
    struct seen *s = ctx;
    struct codec_msg m;
    struct err e = {0};
    ok(codec_decode(body, (uint32_t)n, 0, &m, &e));
    assert_int_equal(m.f->kind_case, SHOAL__FRAME__KIND_HAVE);
    assert_int_equal(m.f->have->part, s->frames);
    assert_false(s->last);
    s->frames++;
    s->seq = m.f->have->seq;
    s->last = m.f->have->last;
    for (size_t i = 0; i < m.f->have->n_rows; i++) {
        const Shoal__HaveRow *r = m.f->have->rows[i];
        for (size_t k = 0; k < r->bits.len; k++) {
            s->objects += (uint64_t)__builtin_popcount(r->bits.data[k]);
        }
    }
    codec_free(&m);
    return 0;
}

static void test_have_messages(void **state)
{
    struct held *h = held_new();
    struct err e = {0};
    struct buf b;
    bool more, snapshot;
    struct seen s = {0};
    assert_non_null(h);
    ok(held_snapshot(h, see, &s, &e)); /* nothing held: one empty, complete frame */
    assert_int_equal(s.frames, 1);
    assert_true(s.last);
    for (uint32_t i = 0; i < 9000; i++) { /* every second one: no spans to save */
        ok(held_add(h, (struct object_key){2, 3, 2 * i}));
    }
    ok(held_add(h, (struct object_key){2, 4, WIRE_INDEX_MAX}));
    assert_int_equal(held_add(h, (struct object_key){2, 4, WIRE_INDEX_MAX + 1}), ERR_ARG);
    uint64_t spans = 0, seq = 0;
    do {
        struct codec_msg m;
        buf_init(&b, WIRE_BODY_MAX);
        ok(held_delta(h, &b, &more, &snapshot, &e));
        assert_false(snapshot);
        ok(codec_decode((uint8_t *)b.p, (uint32_t)b.n, 0, &m, &e));
        assert_int_equal(m.f->have_delta->seq, ++seq);
        spans += m.f->have_delta->n_added;
        codec_free(&m);
        buf_free(&b);
    } while (more);
    assert_int_equal(spans, 9001);
    assert_int_equal(seq, 3);
    assert_false(held_dirty(h));
    memset(&s, 0, sizeof s);
    ok(held_snapshot(h, see, &s, &e));
    assert_int_equal(s.objects, 9001);
    assert_int_equal(s.seq, 3);
    assert_true(s.last);
    /* there and gone within one delta */
    ok(held_add(h, (struct object_key){2, 3, 1}));
    ok(held_remove(h, (struct object_key){2, 3, 1}));
    ok(held_remove(h, (struct object_key){2, 3, 0}));
    struct codec_msg m;
    buf_init(&b, WIRE_BODY_MAX);
    ok(held_delta(h, &b, &more, &snapshot, &e));
    ok(codec_decode((uint8_t *)b.p, (uint32_t)b.n, 0, &m, &e));
    assert_int_equal(m.f->have_delta->n_added, 0);
    assert_int_equal(m.f->have_delta->n_removed, 1);
    assert_int_equal(m.f->have_delta->removed[0]->count, 2);
    codec_free(&m);
    buf_free(&b);
    assert_int_equal(held_count(h), 9000);
    held_free(h);
    struct held_rx rx = {0};
    assert_int_equal(held_rx_delta(&rx, 1), HELD_SKIP); /* the snapshot comes first */
    assert_int_equal(held_rx_have(&rx, 4, 0, false), HELD_RESET);
    assert_int_equal(held_rx_have(&rx, 4, 1, true), HELD_TAKE);
    assert_int_equal(held_rx_delta(&rx, 4), HELD_SKIP);
    assert_int_equal(held_rx_delta(&rx, 5), HELD_TAKE);
    assert_int_equal(held_rx_delta(&rx, 7), HELD_ASK);
    assert_int_equal(held_rx_delta(&rx, 8), HELD_SKIP);
    assert_int_equal(held_rx_have(&rx, 8, 0, false), HELD_RESET);
    assert_int_equal(held_rx_have(&rx, 8, 2, true), HELD_SKIP); /* asked already: not again */
    assert_int_equal(held_rx_have(&rx, 9, 0, true), HELD_RESET);
    assert_int_equal(held_rx_delta(&rx, 10), HELD_TAKE);
    assert_int_equal(held_rx_have(&rx, 10, 3, true), HELD_ASK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_have_messages),
    };
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
