/* SPDX-License-Identifier: MIT
 * t_codec_limits.c: every limit of the messages, on both sides of it, encoding and decoding. */
#include "tests/peer/golden_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
        f = golden_made(golden_hello);
        f.hello->node_id = bytes(ids[i].len);
        expect(&f, 0, ids[i].ok, "Hello.node_id");
        f = golden_made(golden_hello);
        f.hello->model_root = bytes(ids[i].len);
        expect(&f, 0, ids[i].ok || ids[i].len == 0, "Hello.model_root");
        f = golden_made(golden_bad_chunk);
        f.bad_chunk->got = bytes(ids[i].len);
        expect(&f, 0, ids[i].ok, "BadChunk.got");
    }
    f = golden_made(golden_hello);
    f.hello->version = 0;
    expect(&f, 0, false, "Hello.version 0");
    f = golden_made(golden_hello);
    f.hello->listen_port = 65536;
    expect(&f, 0, false, "Hello.listen_port");
    f = golden_made(golden_hello);
    f.hello->session = bytes(15);
    expect(&f, 0, false, "Hello.session");
    f = golden_made(golden_roster);
    f.roster->blob = bytes(WIRE_ROSTER_MAX);
    expect(&f, 0, true, "a roster of the maximum");
    f.roster->blob = bytes(WIRE_ROSTER_MAX + 1);
    expect(&f, 0, false, "a roster over the maximum");
    f = golden_made(golden_join_reply);
    f.join_reply->roster = NULL;
    expect(&f, 0, false, "JoinReply without a roster");
    f = golden_made(golden_have);
    f.have->rows[1]->first = WIRE_INDEX_MAX - 6;
    expect(&f, 0, false, "a row beyond the last index");
    f.have->rows[1]->first = WIRE_INDEX_MAX - 7;
    expect(&f, 0, true, "a row up to the last index");
    f = golden_made(golden_have);
    f.have->rows[0]->kind = 256;
    expect(&f, 0, false, "HaveRow.kind");
    f = golden_made(golden_have);
    f.have->rows[0]->bits = bytes(WIRE_ROW_BYTES_MAX + 1);
    expect(&f, 0, false, "HaveRow.bits");
    f = golden_made(golden_have_delta);
    f.have_delta->added[0]->count = 0;
    expect(&f, 0, false, "HaveSpan.count 0");
    f = golden_made(golden_have_delta);
    f.have_delta->removed[0]->first = UINT32_MAX;
    f.have_delta->removed[0]->count = UINT32_MAX;
    expect(&f, 0, false, "HaveSpan.first + count");
    f = golden_made(golden_have_delta);
    f.have_delta->seq = 0;
    expect(&f, 0, false, "HaveDelta.seq");
    f = golden_made(golden_get);
    f.get->object = NULL;
    expect(&f, 0, false, "Get without an object");
    f = golden_made(golden_get);
    f.get->chunk_count = 0;
    expect(&f, 0, false, "Get.chunk_count 0");
    f.get->chunk_count = WIRE_GET_CHUNKS_MAX;
    expect(&f, 0, true, "Get.chunk_count");
    f.get->chunk_count = WIRE_GET_CHUNKS_MAX + 1;
    expect(&f, 0, false, "Get.chunk_count over");
    f = golden_made(golden_get);
    f.get->first_chunk = UINT32_MAX;
    f.get->chunk_count = 2;
    expect(&f, 0, false, "Get.first_chunk + chunk_count");
    f = golden_made(golden_get);
    f.get->object->layer = WIRE_LAYER_MAX + 1;
    expect(&f, 0, false, "ObjectId.layer");
    f = golden_made(golden_data);
    expect(&f, 0, false, "Data without bytes");
    expect(&f, WIRE_RAW_MAX, true, "Data of a chunk");
    expect(&f, WIRE_RAW_MAX + 1, false, "Data of more than a chunk");
    f = golden_made(golden_ping);
    expect(&f, 1, false, "Ping with raw bytes");
    f = golden_made(golden_digests);
    f.digests->sha256 = bytes(33);
    expect(&f, 0, false, "Digests of 33 bytes");
    f.digests->sha256 = bytes(96);
    expect(&f, 0, false, "Digests beyond the object");
    f.digests->object_size = UINT64_MAX;
    expect(&f, 0, false, "Digests.object_size");
    f = golden_made(golden_credit);
    f.credit->bytes = 0;
    expect(&f, 0, false, "Credit 0");
    f.credit->bytes = (uint64_t)WIRE_CREDIT_MAX + 1;
    expect(&f, 0, false, "Credit over");
}

static void t_limits_of_questions(void **state)
{
    static const struct {
        const char *name;
        bool ok;
    } names[] = {
        {"config.json", true}, {"a/b/c", true}, {"...", true},   {".hidden", true},
        {"", false},           {"/etc", false}, {"a/", false},   {"a//b", false},
        {"..", false},         {"a/..", false}, {"../a", false}, {"./a", false},
        {"a/./b", false},      {"a\\b", false}, {"a\nb", false}, {"a\xff", false},
    };
    Shoal__Frame f;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        f = golden_made(golden_file_get);
        f.file_get->name = (char *)(uintptr_t)names[i].name;
        expect(&f, 0, names[i].ok, names[i].name);
    }
    char s[WIRE_FILE_NAME + 2];
    memset(s, 'x', sizeof s);
    s[WIRE_FILE_NAME + 1] = 0;
    f.file_get->name = s;
    expect(&f, 0, false, "a name over the maximum");
    s[WIRE_FILE_NAME] = 0;
    expect(&f, 0, true, "a name of the maximum");
    f = golden_made(golden_file_get);
    f.file_get->scope = bytes(31);
    expect(&f, 0, false, "FileGet.scope");
    f = golden_made(golden_file_get);
    f.file_get->length = 0;
    expect(&f, 0, false, "FileGet.length 0");
    f.file_get->length = WIRE_RAW_MAX;
    expect(&f, 0, true, "FileGet.length");
    f.file_get->length = WIRE_RAW_MAX + 1;
    expect(&f, 0, false, "FileGet.length over");
    f = golden_made(golden_file_get);
    f.file_get->offset = WIRE_FILE_MAX + 1;
    expect(&f, 0, false, "FileGet.offset");
    expect(&f, 1, false, "FileGet with raw bytes");
    f = golden_made(golden_file_data);
    expect(&f, 0, true, "FileData beyond the end");
    expect(&f, WIRE_RAW_MAX, true, "FileData");
    expect(&f, WIRE_RAW_MAX + 1, false, "FileData of more than a part");
    f.file_data->total = 4;
    expect(&f, 5, false, "FileData of more than the file");
    f.file_data->total = WIRE_FILE_MAX + 1;
    expect(&f, 1, false, "FileData.total");
    f = golden_made(golden_file_data);
    f.file_data->result = SHOAL__FILE_RESULT__FILE_NOT_HELD;
    expect(&f, 0, true, "a refusal");
    expect(&f, 1, false, "a refusal with raw bytes");
    f = golden_made(golden_key_reply);
    f.key_reply->sealed = bytes(WIRE_SEALED_MAX + 1);
    expect(&f, 0, false, "KeyReply.sealed");
    f = golden_made(golden_verify);
    f.verify->max_new = 0;
    expect(&f, 0, false, "Verify.max_new 0");
    f.verify->max_new = WIRE_VERIFY_NEW + 1;
    expect(&f, 0, false, "Verify.max_new over");
    f = golden_made(golden_verify);
    f.verify->prompt.len++; /* its NUL */
    expect(&f, 0, false, "a NUL in Verify.prompt");
    memset(big, 'p', sizeof big);
    f.verify->prompt = bytes(WIRE_PROMPT_MAX);
    expect(&f, 0, true, "Verify.prompt");
    f.verify->prompt = bytes(WIRE_PROMPT_MAX + 1);
    expect(&f, 0, false, "Verify.prompt over");
    f.verify->prompt = bytes(0);
    expect(&f, 0, true, "the built-in prompt");
    f = golden_made(golden_verify_reply);
    f.verify_reply->receipt = bytes(0);
    expect(&f, 0, false, "a result without a receipt");
    f.verify_reply->result = SHOAL__VERIFY_RESULT__VERIFY_BUSY;
    f.verify_reply->model_root = bytes(0);
    expect(&f, 0, true, "busy");
    uint32_t ids[WIRE_VERIFY_NEW + 1] = {0};
    f = golden_made(golden_verify_reply);
    f.verify_reply->ids = ids;
    f.verify_reply->n_ids = WIRE_VERIFY_NEW;
    expect(&f, 0, true, "VerifyReply.ids");
    f.verify_reply->n_ids = WIRE_VERIFY_NEW + 1;
    expect(&f, 0, false, "VerifyReply.ids over");
}

static void t_homes(void **state)
{
    static Shoal__ObjectId o[WIRE_OFFER_MAX + 1];
    static Shoal__ObjectId *p[WIRE_OFFER_MAX + 1];
    for (size_t i = 0; i < WIRE_OFFER_MAX + 1; i++) {
        shoal__object_id__init(&o[i]);
        o[i].index = (uint32_t)i;
        p[i] = &o[i];
    }
    Shoal__Frame f = golden_made(golden_place);
    f.place->budget = f.place->used = WIRE_BUDGET_MAX;
    f.place->seq = UINT64_MAX;
    expect(&f, 0, true, "Place");
    f.place->budget++;
    expect(&f, 0, false, "Place.budget");
    f.place->budget--;
    f.place->used++;
    expect(&f, 0, false, "Place.used");
    for (int kept = 0; kept < 2; kept++) {
        f = golden_made(kept ? golden_kept : golden_offer);
        size_t *n = kept ? &f.kept->n_objects : &f.offer->n_objects;
        *(kept ? &f.kept->objects : &f.offer->objects) = p;
        *n = 0;
        expect(&f, 0, false, "Offer or Kept of nothing");
        *n = WIRE_OFFER_MAX;
        expect(&f, 0, true, "Offer.objects, Kept.objects");
        *n = WIRE_OFFER_MAX + 1;
        expect(&f, 0, false, "Offer.objects, Kept.objects over");
        *n = 2;
        o[1].layer = WIRE_LAYER_MAX + 1;
        expect(&f, 0, false, "an object of Offer, Kept");
        o[1].layer = 0;
    }
}

static void t_leases(void **state)
{
    static Shoal__ObjectId o[WIRE_TAKE_MAX + 1];
    static Shoal__ObjectId *p[WIRE_TAKE_MAX + 1];
    for (size_t i = 0; i < WIRE_TAKE_MAX + 1; i++) {
        shoal__object_id__init(&o[i]);
        o[i].layer = 1;
        o[i].index = (uint32_t)i;
        p[i] = &o[i];
    }
    Shoal__Frame f = golden_made(golden_lease_take);
    f.lease_take->n_objects = 0;
    expect(&f, 0, false, "LeaseTake of nothing");
    f.lease_take->objects = p;
    f.lease_take->n_objects = WIRE_TAKE_MAX;
    expect(&f, 0, true, "LeaseTake.objects");
    f.lease_take->n_objects = WIRE_TAKE_MAX + 1;
    expect(&f, 0, false, "LeaseTake.objects over");
    uint32_t chunks[2] = {0, UINT32_MAX};
    f.lease_take->n_objects = f.lease_take->n_chunks = 2;
    f.lease_take->chunks = chunks;
    expect(&f, 0, true, "LeaseTake.chunks");
    f.lease_take->n_objects = 1;
    expect(&f, 0, false, "more chunk counts than objects");
    f.lease_take->n_chunks = 0;
    f.lease_take->chunks = NULL;
    o[0].index = WIRE_INDEX_MAX + 1;
    expect(&f, 0, false, "an object of LeaseTake");
    f = golden_made(golden_origin_state);
    f.origin_state->bytes_s = UINT64_MAX;
    f.origin_state->busy_ms = WIRE_BUSY_MS_MAX;
    expect(&f, 0, true, "OriginState.busy_ms");
    f.origin_state->busy_ms = WIRE_BUSY_MS_MAX + 1;
    expect(&f, 0, false, "OriginState.busy_ms over");
}

static void t_name(void **state)
{
    static const char *const names[][2] = {
        {"Anna's Mac", "Anna's Mac"},
        {"", ""},
        {"a\tb\x1b[31mc\x7f", "ab[31mc"},
        {"caf\xc3\xa9 \xf0\x9f\x90\x9f", "caf\xc3\xa9 \xf0\x9f\x90\x9f"},
        {"x\xff\xc3y\xe2\x82", "xy"},
        {"a\xe2\x80\xae"
         "b\xe2\x80\x8b"
         "c\xef\xbb\xbf",
         "abc"}, /* turned, unseen */
    };
    char out[WIRE_NAME_MAX + 1], in[200] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        codec_clean(names[i][0], out, WIRE_NAME_MAX);
        assert_string_equal(out, names[i][1]);
    }
    codec_clean(NULL, out, WIRE_NAME_MAX);
    assert_string_equal(out, "");
    for (size_t i = 0; i < 66; i++) {
        memcpy(in + 3 * i, "\xe2\x82\xac", 4);
    }
    codec_clean(in, out, WIRE_NAME_MAX);
    assert_int_equal(strlen(out), 63); /* whole characters */
    Shoal__Frame f = golden_made(golden_hello);
    f.hello->name = out;
    expect(&f, 0, true, "Hello.name");
    in[WIRE_NAME_MAX + 1] = 0;
    f.hello->name = in;
    expect(&f, 0, false, "Hello.name over");
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
        Shoal__Frame f = golden_made(golden_goodbye);
        f.goodbye->text = (char *)(uintptr_t)texts[i].s;
        expect(&f, 0, texts[i].ok, texts[i].s);
    }
    char s[WIRE_TEXT_MAX + 2];
    memset(s, 'x', sizeof s);
    s[WIRE_TEXT_MAX + 1] = 0;
    Shoal__Frame f = golden_made(golden_refuse);
    f.refuse->text = s;
    expect(&f, 0, false, "a text over the maximum");
    s[WIRE_TEXT_MAX] = 0;
    expect(&f, 0, true, "a text of the maximum");
}

static void t_statements(void **state)
{
    Shoal__Frame f = golden_made(golden_statements);
    f.statements->blob = bytes(WIRE_STATEMENT_MAX);
    expect(&f, 0, true, "a statement of the maximum");
    f.statements->blob = bytes(WIRE_STATEMENT_MAX + 1);
    expect(&f, 0, false, "a statement over the maximum");
    f.statements->blob = bytes(0);
    expect(&f, 0, true, "no statement");
    static Shoal__StatementsSeen one, *seen[WIRE_SIGNERS_MAX + 1];
    f = golden_made(golden_statements_ask);
    one = *f.statements_ask->seen[0];
    for (size_t i = 0; i <= WIRE_SIGNERS_MAX; i++) {
        seen[i] = &one;
    }
    f.statements_ask->seen = seen;
    f.statements_ask->n_seen = WIRE_SIGNERS_MAX;
    expect(&f, 0, true, "signers of the maximum");
    f.statements_ask->n_seen++;
    expect(&f, 0, false, "signers over the maximum");
    f.statements_ask->n_seen = 1;
    one.signer = bytes(31);
    expect(&f, 0, false, "a signer of 31 bytes");
    f.statements_ask->n_seen = 0;
    expect(&f, 0, true, "no signer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_limits),     cmocka_unit_test(t_limits_of_questions),
        cmocka_unit_test(t_leases),     cmocka_unit_test(t_homes),
        cmocka_unit_test(t_statements), cmocka_unit_test(t_name),
        cmocka_unit_test(t_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
