/* SPDX-License-Identifier: MIT
 * t_codec.c: every message against bytes made by another encoder (golden/), unknown and broken
 * input. Limits are in t_codec_limits.c. */
#include "tests/peer/golden_kit.h"

#include "proto/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void golden(const char *name, struct buf *b)
{
    char path[300];
    struct err e = {0};
    snprintf(path, sizeof path, SHOAL_TEST_DIR "/peer/golden/%s.bin", name);
    buf_init(b, WIRE_BODY_MAX);
    if (file_read_all(path, b, &e)) {
        fail_msg("%s", e.msg);
    }
}

static void t_golden(void **state)
{
    for (int i = 0; i < golden_n; i++) {
        struct buf want, got;
        struct err e = {0};
        golden(golden_all[i].name, &want);
        Shoal__Frame f = golden_made(golden_all[i].make);
        buf_init(&got, WIRE_BODY_MAX);
        if (codec_encode(&f, golden_raw(&f), &got, &e)) {
            fail_msg("%s: %s", golden_all[i].name, e.msg);
        }
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.p, want.p, want.n);
        struct codec_msg m;
        if (codec_decode((uint8_t *)want.p, want.n, golden_raw(&f), &m, &e)) {
            fail_msg("%s: %s", golden_all[i].name, e.msg);
        }
        assert_int_equal(m.f->kind_case, f.kind_case);
        struct buf again;
        buf_init(&again, WIRE_BODY_MAX);
        assert_int_equal(codec_encode(m.f, golden_raw(&f), &again, &e), 0);
        assert_int_equal(again.n, want.n);
        assert_memory_equal(again.p, want.p, want.n);
        codec_free(&m);
        buf_free(&want);
        buf_free(&got);
        buf_free(&again);
    }
}

/* Every kind of the schema has its golden file. */
static void t_all_kinds(void **state)
{
    size_t kinds = 0;
    for (unsigned i = 0; i < shoal__frame__descriptor.n_fields; i++) {
        kinds += shoal__frame__descriptor.fields[i].type == PROTOBUF_C_TYPE_MESSAGE;
        bool found = false;
        for (int k = 0; k < golden_n; k++) {
            found |= strcmp(golden_all[k].name, shoal__frame__descriptor.fields[i].name) == 0;
        }
        assert_true(found);
    }
    assert_int_equal(kinds, golden_n);
    assert_string_equal(codec_kind_name(SHOAL__FRAME__KIND_BAD_CHUNK), "BadChunk");
    assert_string_equal(codec_kind_name(SHOAL__FRAME__KIND_HAVE_ASK), "HaveAsk");
    assert_string_equal(codec_kind_name(SHOAL__FRAME__KIND_KEY_REPLY), "KeyReply");
    assert_string_equal(codec_kind_name(SHOAL__FRAME__KIND_VERIFY), "Verify");
    assert_string_equal(codec_kind_name(SHOAL__FRAME__KIND_VERIFY_REPLY), "VerifyReply");
    for (int i = 22; i < 100; i++) {
        const char *name = codec_kind_name((Shoal__Frame__KindCase)i);
        bool known =
            protobuf_c_message_descriptor_get_field(&shoal__frame__descriptor, (unsigned)i) != NULL;
        assert_int_equal(known, strcmp(name, "a message of an unknown kind") != 0);
    }
}

/* Every truncation and every flipped bit decodes or fails, cleanly (the sanitizers look on). */
static void t_broken(void **state)
{
    int accepted = 0, refused = 0;
    for (int i = 0; i < golden_n; i++) {
        struct buf b;
        golden(golden_all[i].name, &b);
        for (size_t n = 0; n < b.n; n++) {
            struct codec_msg m;
            uint8_t *part = malloc(n ? n : 1);
            memcpy(part, b.p, n);
            int r = codec_decode(part, n, 0, &m, NULL);
            assert_true(r == 0 || r == ERR_FORMAT);
            assert_true(n || r);
            if (!r) {
                codec_free(&m);
            }
            free(part);
        }
        for (size_t bit = 0; bit < 8 * b.n; bit++) {
            struct codec_msg m;
            b.p[bit / 8] = (char)(b.p[bit / 8] ^ 1 << bit % 8);
            int r = codec_decode((uint8_t *)b.p, b.n, 0, &m, NULL);
            b.p[bit / 8] = (char)(b.p[bit / 8] ^ 1 << bit % 8);
            if (r) {
                refused++;
            } else {
                accepted++;
                codec_free(&m);
            }
        }
        buf_free(&b);
    }
    assert_true(accepted > 100 && refused > 100);
}

static int decode_bytes(const void *p, size_t n, struct err *e)
{
    struct codec_msg m;
    int r = codec_decode(p, n, 0, &m, e);
    if (!r) {
        codec_free(&m);
    }
    return r;
}

static void t_unknown(void **state)
{
    /* Frame field 63, length-delimited, empty: a later message. Ignored. */
    static const uint8_t later[] = {0xfa, 0x03, 0x00};
    struct codec_msg m;
    assert_int_equal(codec_decode(later, sizeof later, 5, &m, NULL), 0);
    assert_int_equal(m.f->kind_case, SHOAL__FRAME__KIND__NOT_SET);
    codec_free(&m);
    /* A Ping with an unknown field 9 (varint) is a Ping. */
    static const uint8_t ping9[] = {0x1a, 0x04, 0x08, 0x05, 0x48, 0x07};
    assert_int_equal(codec_decode(ping9, sizeof ping9, 0, &m, NULL), 0);
    assert_int_equal(m.f->kind_case, SHOAL__FRAME__KIND_PING);
    assert_int_equal(m.f->ping->id, 5);
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(codec_encode(m.f, 0, &b, NULL), 0);
    assert_int_equal(b.n, 4); /* it was ignored, not kept */
    assert_memory_equal(b.p, "\x1a\x02\x08\x05", 4);
    buf_free(&b);
    codec_free(&m);
    /* An unknown reason has a sentence. */
    assert_non_null(strstr(codec_goodbye_text(999), "without a known reason"));
    assert_non_null(strstr(codec_goodbye_text(-1), "without a known reason"));
    assert_non_null(strstr(codec_goodbye_text(8), "removed"));
    assert_non_null(strstr(codec_refuse_text(1), "does not have"));
    assert_non_null(strstr(codec_join_text(3), "expired"));
}

/* A body of 128 Ki empty parts would need megabytes: refused by its memory, before the count. */
static void t_amplification(void **state)
{
    size_t rows = 100000, n = 2 * rows + 6;
    uint8_t *b = malloc(n), *p = b;
    size_t inner = 2 * rows;
    *p++ = 0x42; /* Frame.have */
    for (size_t v = inner; v || p == b + 1; v >>= 7) {
        *p++ = (uint8_t)((v & 0x7f) | (v >> 7 ? 0x80 : 0));
    }
    for (size_t i = 0; i < rows; i++) {
        *p++ = 0x22; /* Have.rows, empty */
        *p++ = 0;
    }
    struct err e = {0};
    assert_int_equal(decode_bytes(b, (size_t)(p - b), &e), ERR_LIMIT);
    free(b);
    assert_int_equal(decode_bytes("", 0, &e), ERR_FORMAT);
}

static void t_agree(void **state)
{
    Shoal__Frame f = golden_made(golden_hello);
    Shoal__Hello *h = f.hello;
    struct err e = {0};
    uint32_t v = 0, known[] = {9, 7};
    assert_int_equal(codec_agree(h, known, 2, &v, &e), 0);
    assert_int_equal(v, 1);
    assert_int_equal(codec_agree(h, known, 1, &v, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "feature 7"));
    h->n_required = 0;
    h->version = 40; /* newer, but still speaks 1 */
    assert_int_equal(codec_agree(h, NULL, 0, &v, &e), 0);
    assert_int_equal(v, WIRE_VERSION);
    h->version_min = 2;
    assert_int_equal(codec_agree(h, NULL, 0, &v, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "update the older one"));
    h->version_min = 1;
    h->chunk_size = 65536;
    assert_int_equal(codec_agree(h, NULL, 0, &v, &e), ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_golden),        cmocka_unit_test(t_all_kinds),
        cmocka_unit_test(t_broken),        cmocka_unit_test(t_unknown),

        cmocka_unit_test(t_amplification), cmocka_unit_test(t_agree),

    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
