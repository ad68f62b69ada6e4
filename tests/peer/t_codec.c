/* SPDX-License-Identifier: MIT
 * t_codec.c: every message against bytes made by another encoder (golden/), every limit on both
 * sides of it, unknown and broken input. */
#include "peer/codec.h"

#include "proto/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the messages of golden/ in C ---- */

static uint8_t mem[4096];
static size_t mem_n;

static ProtobufCBinaryData ramp(int a, size_t n)
{
    assert_true(mem_n + n <= sizeof mem);
    ProtobufCBinaryData d = {n, mem + mem_n};
    for (size_t i = 0; i < n; i++) {
        mem[mem_n++] = (uint8_t)(a + (int)i);
    }
    return d;
}

#define BEGIN(Type, TYPE, member, KIND)       \
    static Shoal__##Type m_##member;          \
    shoal__##member##__init(&m_##member);     \
    f->kind_case = SHOAL__FRAME__KIND_##KIND; \
    f->member = &m_##member;                  \
    Shoal__##Type *m = &m_##member

static void hello(Shoal__Frame *f)
{
    BEGIN(Hello, HELLO, hello, HELLO);
    static uint32_t required[] = {7}, optional[] = {1, 300};
    m->version = 1;
    m->version_min = 1;
    m->n_required = 1;
    m->required = required;
    m->n_optional = 2;
    m->optional = optional;
    m->node_id = ramp(0, 32);
    m->group_id = ramp(32, 32);
    m->model_root = ramp(64, 32);
    m->numerics_version = 3;
    m->roster_version = 5000000000;
    m->listen_port = 4711;
    m->uptime_ms = 123456789;
    m->object_count = 82432;
    m->chunk_size = 1048576;
    m->session = ramp(96, 16);
    m->machine = ramp(112, 16);
    m->software = "shoal 0.1 \xc3\xa9";
    m->origin_works = true;
}

static void goodbye(Shoal__Frame *f)
{
    BEGIN(Goodbye, GOODBYE, goodbye, GOODBYE);
    m->reason = SHOAL__GOODBYE_REASON__GOODBYE_SLEEP;
    m->text = "this Mac goes to sleep";
    m->back_in_ms = 28800000;
}

static void ping(Shoal__Frame *f)
{
    BEGIN(Ping, PING, ping, PING);
    m->id = UINT64_MAX;
}

static void pong(Shoal__Frame *f)
{
    BEGIN(Pong, PONG, pong, PONG);
    m->id = 1;
    m->queued_bytes = UINT32_MAX;
}

static void roster(Shoal__Frame *f)
{
    BEGIN(Roster, ROSTER, roster, ROSTER);
    m->version = 12;
    m->blob = ramp(200, 40);
}

static void join(Shoal__Frame *f)
{
    BEGIN(Join, JOIN, join, JOIN);
    m->invite_id = ramp(1, 16);
    m->proof = ramp(2, 32);
}

static void join_reply(Shoal__Frame *f)
{
    BEGIN(JoinReply, JOIN_REPLY, join_reply, JOIN_REPLY);
    static Shoal__Roster r;
    shoal__roster__init(&r);
    r.version = 13;
    r.blob = ramp(9, 9);
    m->result = SHOAL__JOIN_RESULT__JOIN_OK;
    m->text = "welcome";
    m->roster = &r;
    m->proof = ramp(7, 32);
}

static void have(Shoal__Frame *f)
{
    BEGIN(Have, HAVE, have, HAVE);
    static Shoal__HaveRow r[2], *p[2] = {&r[0], &r[1]};
    shoal__have_row__init(&r[0]);
    shoal__have_row__init(&r[1]);
    r[0].kind = 1;
    r[0].layer = 92;
    r[0].bits = ramp(240, 112);
    r[1].kind = 2;
    r[1].first = 64;
    r[1].bits = ramp(1, 1);
    m->seq = 99;
    m->part = 1;
    m->last = true;
    m->n_rows = 2;
    m->rows = p;
}

static void have_delta(Shoal__Frame *f)
{
    BEGIN(HaveDelta, HAVE_DELTA, have_delta, HAVE_DELTA);
    static Shoal__HaveSpan s[3], *a[2] = {&s[0], &s[1]}, *r[1] = {&s[2]};
    static const uint32_t v[3][3] = {{3, 895, 1}, {4, 0, 896}, {5, 7, 2}};
    for (int i = 0; i < 3; i++) {
        shoal__have_span__init(&s[i]);
        s[i].kind = 1;
        s[i].layer = v[i][0];
        s[i].first = v[i][1];
        s[i].count = v[i][2];
    }
    m->seq = 100;
    m->n_added = 2;
    m->added = a;
    m->n_removed = 1;
    m->removed = r;
}

static void have_ask(Shoal__Frame *f)
{
    BEGIN(HaveAsk, HAVE_ASK, have_ask, HAVE_ASK);
    m->seq = 98;
}

static Shoal__ObjectId *object(void)
{
    static Shoal__ObjectId o;
    shoal__object_id__init(&o);
    o.kind = 1;
    o.layer = 60;
    o.index = 383;
    return &o;
}

static void get(Shoal__Frame *f)
{
    BEGIN(Get, GET, get, GET);
    m->id = 77;
    m->object = object();
    m->first_chunk = 4;
    m->chunk_count = 13;
    m->priority = SHOAL__PRIORITY__PRIORITY_DEMAND;
    m->deadline_ms = 1500;
    m->want_digests = true;
}

static void data(Shoal__Frame *f)
{
    BEGIN(Data, DATA, data, DATA);
    m->id = 77;
    m->chunk = 16;
    m->last = true;
    m->source = SHOAL__SOURCE__SOURCE_ORIGIN;
}

static void digests(Shoal__Frame *f)
{
    BEGIN(Digests, DIGESTS, digests, DIGESTS);
    m->id = 77;
    m->object_size = 17547264;
    m->first_chunk = 15;
    m->sha256 = ramp(0, 64);
    m->source = SHOAL__SOURCE__SOURCE_MANIFEST;
    m->object_digest = ramp(100, 32);
}

static void credit(Shoal__Frame *f)
{
    BEGIN(Credit, CREDIT, credit, CREDIT);
    m->bytes = 8388608;
}

static void cancel(Shoal__Frame *f)
{
    BEGIN(Cancel, CANCEL, cancel, CANCEL);
    m->id = 77;
}

static void refuse(Shoal__Frame *f)
{
    BEGIN(Refuse, REFUSE, refuse, REFUSE);
    m->id = 78;
    m->reason = SHOAL__REFUSE_REASON__REFUSE_NOT_HELD;
    m->text = "evicted";
    m->retry_ms = 250;
}

static void bad_chunk(Shoal__Frame *f)
{
    BEGIN(BadChunk, BAD_CHUNK, bad_chunk, BAD_CHUNK);
    m->object = object();
    m->chunk = 3;
    m->got = ramp(11, 32);
    m->want = ramp(12, 32);
    m->source = SHOAL__SOURCE__SOURCE_TWO_MEMBERS;
}

static const struct {
    const char *name;
    void (*make)(Shoal__Frame *f);
} all[] = {
    {"hello", hello},
    {"goodbye", goodbye},
    {"ping", ping},
    {"pong", pong},
    {"roster", roster},
    {"join", join},
    {"join_reply", join_reply},
    {"have", have},
    {"have_delta", have_delta},
    {"have_ask", have_ask},
    {"get", get},
    {"data", data},
    {"digests", digests},
    {"credit", credit},
    {"cancel", cancel},
    {"refuse", refuse},
    {"bad_chunk", bad_chunk},
};
enum { N_ALL = sizeof all / sizeof *all };

static Shoal__Frame made(void (*make)(Shoal__Frame *))
{
    Shoal__Frame f = SHOAL__FRAME__INIT;
    mem_n = 0;
    make(&f);
    return f;
}

static uint32_t raw_of(const Shoal__Frame *f)
{
    return f->kind_case == SHOAL__FRAME__KIND_DATA ? 1 : 0;
}

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
    for (int i = 0; i < N_ALL; i++) {
        struct buf want, got;
        struct err e = {0};
        golden(all[i].name, &want);
        Shoal__Frame f = made(all[i].make);
        buf_init(&got, WIRE_BODY_MAX);
        if (codec_encode(&f, raw_of(&f), &got, &e)) {
            fail_msg("%s: %s", all[i].name, e.msg);
        }
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.p, want.p, want.n);
        struct codec_msg m;
        if (codec_decode((uint8_t *)want.p, want.n, raw_of(&f), &m, &e)) {
            fail_msg("%s: %s", all[i].name, e.msg);
        }
        assert_int_equal(m.f->kind_case, f.kind_case);
        struct buf again;
        buf_init(&again, WIRE_BODY_MAX);
        assert_int_equal(codec_encode(m.f, raw_of(&f), &again, &e), 0);
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
        for (int k = 0; k < N_ALL; k++) {
            found |= strcmp(all[k].name, shoal__frame__descriptor.fields[i].name) == 0;
        }
        assert_true(found);
    }
    assert_int_equal(kinds, N_ALL);
    assert_string_equal(codec_kind_name(SHOAL__FRAME__KIND_BAD_CHUNK), "BadChunk");
    assert_string_equal(codec_kind_name(SHOAL__FRAME__KIND_HAVE_ASK), "HaveAsk");
    assert_string_equal(codec_kind_name((Shoal__Frame__KindCase)18),
                        "a message of an unknown kind");
}

/* Every truncation and every flipped bit decodes or fails, cleanly (the sanitizers look on). */
static void t_broken(void **state)
{
    int accepted = 0, refused = 0;
    for (int i = 0; i < N_ALL; i++) {
        struct buf b;
        golden(all[i].name, &b);
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
    /* Frame field 40, length-delimited, empty: a later message. Ignored. */
    static const uint8_t later[] = {0xc2, 0x02, 0x00};
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

/* ---- limits ---- */

/* Expect `f` to be refused (or taken) by the encoder and, packed past it, by the decoder too. */
static void expect(const Shoal__Frame *f, uint32_t raw_n, bool ok, const char *what)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, WIRE_BODY_MAX);
    int r = codec_encode(f, raw_n, &b, &e);
    if ((r == 0) != ok) {
        fail_msg("encoding %s: %s", what, r ? e.msg : "taken");
    }
    assert_true(ok || r == ERR_ARG);
    buf_free(&b);
    size_t n = shoal__frame__get_packed_size(f);
    uint8_t *p = malloc(n);
    shoal__frame__pack(f, p);
    struct codec_msg m;
    r = codec_decode(p, n, raw_n, &m, &e);
    if ((r == 0) != ok) {
        fail_msg("decoding %s: %s", what, r ? e.msg : "taken");
    }
    if (!r) {
        codec_free(&m);
    }
    free(p);
}

static uint8_t big[WIRE_BODY_MAX];

static ProtobufCBinaryData bytes(size_t n)
{
    ProtobufCBinaryData d = {n, big};
    return d;
}

static void t_limits(void **state)
{
    Shoal__Frame f;
    static const struct {
        size_t len;
        bool ok;
    } ids[] = {{0, false}, {31, false}, {32, true}, {33, false}};
    for (size_t i = 0; i < 4; i++) {
        f = made(hello);
        f.hello->node_id = bytes(ids[i].len);
        expect(&f, 0, ids[i].ok, "Hello.node_id");
        f = made(hello);
        f.hello->model_root = bytes(ids[i].len);
        expect(&f, 0, ids[i].ok || ids[i].len == 0, "Hello.model_root");
        f = made(bad_chunk);
        f.bad_chunk->got = bytes(ids[i].len);
        expect(&f, 0, ids[i].ok, "BadChunk.got");
    }
    f = made(hello);
    f.hello->version = 0;
    expect(&f, 0, false, "Hello.version 0");
    f = made(hello);
    f.hello->listen_port = 65536;
    expect(&f, 0, false, "Hello.listen_port");
    f = made(hello);
    f.hello->session = bytes(15);
    expect(&f, 0, false, "Hello.session");
    f = made(roster);
    f.roster->blob = bytes(WIRE_ROSTER_MAX);
    expect(&f, 0, true, "a roster of the maximum");
    f.roster->blob = bytes(WIRE_ROSTER_MAX + 1);
    expect(&f, 0, false, "a roster over the maximum");
    f = made(join_reply);
    f.join_reply->roster = NULL;
    expect(&f, 0, false, "JoinReply without a roster");
    f = made(have);
    f.have->rows[1]->first = WIRE_INDEX_MAX - 6;
    expect(&f, 0, false, "a row beyond the last index");
    f.have->rows[1]->first = WIRE_INDEX_MAX - 7;
    expect(&f, 0, true, "a row up to the last index");
    f = made(have);
    f.have->rows[0]->kind = 256;
    expect(&f, 0, false, "HaveRow.kind");
    f = made(have);
    f.have->rows[0]->bits = bytes(WIRE_ROW_BYTES_MAX + 1);
    expect(&f, 0, false, "HaveRow.bits");
    f = made(have_delta);
    f.have_delta->added[0]->count = 0;
    expect(&f, 0, false, "HaveSpan.count 0");
    f = made(have_delta);
    f.have_delta->removed[0]->first = UINT32_MAX;
    f.have_delta->removed[0]->count = UINT32_MAX;
    expect(&f, 0, false, "HaveSpan.first + count");
    f = made(have_delta);
    f.have_delta->seq = 0;
    expect(&f, 0, false, "HaveDelta.seq");
    f = made(get);
    f.get->object = NULL;
    expect(&f, 0, false, "Get without an object");
    f = made(get);
    f.get->chunk_count = 0;
    expect(&f, 0, false, "Get.chunk_count 0");
    f.get->chunk_count = WIRE_GET_CHUNKS_MAX;
    expect(&f, 0, true, "Get.chunk_count");
    f.get->chunk_count = WIRE_GET_CHUNKS_MAX + 1;
    expect(&f, 0, false, "Get.chunk_count over");
    f = made(get);
    f.get->first_chunk = UINT32_MAX;
    f.get->chunk_count = 2;
    expect(&f, 0, false, "Get.first_chunk + chunk_count");
    f = made(get);
    f.get->object->layer = WIRE_LAYER_MAX + 1;
    expect(&f, 0, false, "ObjectId.layer");
    f = made(data);
    expect(&f, 0, false, "Data without bytes");
    expect(&f, WIRE_RAW_MAX, true, "Data of a chunk");
    expect(&f, WIRE_RAW_MAX + 1, false, "Data of more than a chunk");
    f = made(ping);
    expect(&f, 1, false, "Ping with raw bytes");
    f = made(digests);
    f.digests->sha256 = bytes(33);
    expect(&f, 0, false, "Digests of 33 bytes");
    f.digests->sha256 = bytes(96);
    expect(&f, 0, false, "Digests beyond the object");
    f.digests->object_size = UINT64_MAX;
    expect(&f, 0, false, "Digests.object_size");
    f = made(credit);
    f.credit->bytes = 0;
    expect(&f, 0, false, "Credit 0");
    f.credit->bytes = (uint64_t)WIRE_CREDIT_MAX + 1;
    expect(&f, 0, false, "Credit over");
}

static void t_text(void **state)
{
    static const struct {
        const char *s;
        bool ok;
    } texts[] = {
        {"", true},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f", true},
        {"line\nline", false},
        {"\x1b[31m", false},
        {"\x7f", false},
        {"\xc2\x85", false},         /* a C1 control */
        {"\xc0\xaf", false},         /* overlong */
        {"\xe0\x80\xaf", false},     /* overlong */
        {"\xf0\x80\x80\x80", false}, /* overlong */
        {"\xed\xa0\x80", false},     /* a surrogate */
        {"\xf4\x90\x80\x80", false}, /* beyond Unicode */
        {"\xe2\x82", false},         /* cut */
        {"\xff", false},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Shoal__Frame f = made(goodbye);
        f.goodbye->text = (char *)(uintptr_t)texts[i].s;
        expect(&f, 0, texts[i].ok, texts[i].s);
    }
    char s[WIRE_TEXT_MAX + 2];
    memset(s, 'x', sizeof s);
    s[WIRE_TEXT_MAX + 1] = 0;
    Shoal__Frame f = made(refuse);
    f.refuse->text = s;
    expect(&f, 0, false, "a text over the maximum");
    s[WIRE_TEXT_MAX] = 0;
    expect(&f, 0, true, "a text of the maximum");
}

static void t_agree(void **state)
{
    Shoal__Frame f = made(hello);
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
        cmocka_unit_test(t_limits),        cmocka_unit_test(t_text),
        cmocka_unit_test(t_amplification), cmocka_unit_test(t_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
