/* SPDX-License-Identifier: MIT
 * golden_kit.c: see golden_kit.h. */
#include "tests/peer/golden_kit.h"

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

void golden_hello(Shoal__Frame *f)
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
    m->name = "Anna's Mac \xe2\x82\xac";
}

void golden_goodbye(Shoal__Frame *f)
{
    BEGIN(Goodbye, GOODBYE, goodbye, GOODBYE);
    m->reason = SHOAL__GOODBYE_REASON__GOODBYE_SLEEP;
    m->text = "this Mac goes to sleep";
    m->back_in_ms = 28800000;
}

void golden_ping(Shoal__Frame *f)
{
    BEGIN(Ping, PING, ping, PING);
    m->id = UINT64_MAX;
}

void golden_pong(Shoal__Frame *f)
{
    BEGIN(Pong, PONG, pong, PONG);
    m->id = 1;
    m->queued_bytes = UINT32_MAX;
}

void golden_roster(Shoal__Frame *f)
{
    BEGIN(Roster, ROSTER, roster, ROSTER);
    m->version = 12;
    m->blob = ramp(200, 40);
}

void golden_join(Shoal__Frame *f)
{
    BEGIN(Join, JOIN, join, JOIN);
    m->invite_id = ramp(1, 16);
    m->proof = ramp(2, 32);
}

void golden_join_reply(Shoal__Frame *f)
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

void golden_have(Shoal__Frame *f)
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

void golden_have_delta(Shoal__Frame *f)
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

void golden_have_ask(Shoal__Frame *f)
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

void golden_get(Shoal__Frame *f)
{
    BEGIN(Get, GET, get, GET);
    m->id = 77;
    m->object = object();
    m->first_chunk = 4;
    m->chunk_count = 13;
    m->priority = SHOAL__PRIORITY__PRIORITY_DEMAND;
    m->deadline_ms = 1500;
    m->want_digests = true;
    m->relay = true;
}

void golden_origin_state(Shoal__Frame *f)
{
    BEGIN(OriginState, ORIGIN_STATE, origin_state, ORIGIN_STATE);
    m->works = true;
    m->busy_ms = 30000;
    m->bytes_s = 12500000;
}

void golden_lease_take(Shoal__Frame *f)
{
    BEGIN(LeaseTake, LEASE_TAKE, lease_take, LEASE_TAKE);
    static Shoal__ObjectId o[2], *p[2] = {&o[0], &o[1]};
    for (int i = 0; i < 2; i++) {
        shoal__object_id__init(&o[i]);
        o[i].kind = (uint32_t)i;
        o[i].index = 4095;
    }
    o[1].layer = 7;
    m->n_objects = 2;
    m->objects = p;
}

void golden_place(Shoal__Frame *f)
{
    BEGIN(Place, PLACE, place, PLACE);
    m->budget = 1000000000000;
    m->used = 17547264;
    m->may_background = true;
    m->seq = 300;
}

void golden_warm(Shoal__Frame *f)
{
    BEGIN(Warm, WARM, warm, WARM);
    m->on = true;
}

void golden_offer(Shoal__Frame *f)
{
    BEGIN(Offer, OFFER, offer, OFFER);
    static Shoal__ObjectId o[2], *p[2] = {&o[0], &o[1]};
    for (int i = 0; i < 2; i++) {
        shoal__object_id__init(&o[i]);
        o[i].layer = 91;
        o[i].index = (uint32_t)(894 + i);
    }
    m->n_objects = 2;
    m->objects = p;
}

void golden_kept(Shoal__Frame *f)
{
    BEGIN(Kept, KEPT, kept, KEPT);
    static Shoal__ObjectId o, *p[1] = {&o};
    shoal__object_id__init(&o);
    o.layer = 91;
    o.index = 895;
    m->n_objects = 1;
    m->objects = p;
}

void golden_data(Shoal__Frame *f)
{
    BEGIN(Data, DATA, data, DATA);
    m->id = 77;
    m->chunk = 16;
    m->last = true;
    m->source = SHOAL__SOURCE__SOURCE_ORIGIN;
}

void golden_digests(Shoal__Frame *f)
{
    BEGIN(Digests, DIGESTS, digests, DIGESTS);
    m->id = 77;
    m->object_size = 17547264;
    m->first_chunk = 15;
    m->sha256 = ramp(0, 64);
    m->source = SHOAL__SOURCE__SOURCE_MANIFEST;
    m->object_digest = ramp(100, 32);
}

void golden_credit(Shoal__Frame *f)
{
    BEGIN(Credit, CREDIT, credit, CREDIT);
    m->bytes = 8388608;
}

void golden_cancel(Shoal__Frame *f)
{
    BEGIN(Cancel, CANCEL, cancel, CANCEL);
    m->id = 77;
}

void golden_refuse(Shoal__Frame *f)
{
    BEGIN(Refuse, REFUSE, refuse, REFUSE);
    m->id = 78;
    m->reason = SHOAL__REFUSE_REASON__REFUSE_NOT_HELD;
    m->text = "evicted";
    m->retry_ms = 250;
}

void golden_bad_chunk(Shoal__Frame *f)
{
    BEGIN(BadChunk, BAD_CHUNK, bad_chunk, BAD_CHUNK);
    m->object = object();
    m->chunk = 3;
    m->got = ramp(11, 32);
    m->want = ramp(12, 32);
    m->source = SHOAL__SOURCE__SOURCE_TWO_MEMBERS;
}

void golden_file_get(Shoal__Frame *f)
{
    BEGIN(FileGet, FILE_GET, file_get, FILE_GET);
    m->id = 5;
    m->scope = ramp(40, 32);
    m->name = "sub/tokenizer \xc3\xa9.json";
    m->offset = 1048576;
    m->length = 65536;
}

void golden_file_data(Shoal__Frame *f)
{
    BEGIN(FileData, FILE_DATA, file_data, FILE_DATA);
    m->id = 5;
    m->result = SHOAL__FILE_RESULT__FILE_OK;
    m->total = 1048577;
}

void golden_key_ask(Shoal__Frame *f)
{
    BEGIN(KeyAsk, KEY_ASK, key_ask, KEY_ASK);
    (void)m;
}

void golden_key_reply(Shoal__Frame *f)
{
    BEGIN(KeyReply, KEY_REPLY, key_reply, KEY_REPLY);
    m->sealed = ramp(3, 125);
    m->text = "not a keeper";
}

void golden_verify(Shoal__Frame *f)
{
    BEGIN(Verify, VERIFY, verify, VERIFY);
    static uint8_t prompt[] = "Say\n\xc3\xa9";
    m->id = 4294967296;
    m->prompt.data = prompt;
    m->prompt.len = sizeof prompt - 1;
    m->max_new = 64;
}

void golden_verify_reply(Shoal__Frame *f)
{
    BEGIN(VerifyReply, VERIFY_REPLY, verify_reply, VERIFY_REPLY);
    static uint32_t ids[] = {0, 7, 163839};
    m->id = 4294967296;
    m->result = SHOAL__VERIFY_RESULT__VERIFY_OK;
    m->text = "done";
    m->receipt = ramp(17, 32);
    m->model_root = ramp(18, 32);
    m->numerics_version = 2;
    m->n_ids = 3;
    m->ids = ids;
}

void golden_statements(Shoal__Frame *f)
{
    BEGIN(Statements, STATEMENTS, statements, STATEMENTS);
    m->blob = ramp(19, 40);
    m->more = 1;
}

void golden_statements_ask(Shoal__Frame *f)
{
    BEGIN(StatementsAsk, STATEMENTS_ASK, statements_ask, STATEMENTS_ASK);
    static Shoal__StatementsSeen one, two, *seen[] = {&one, &two};
    shoal__statements_seen__init(&one);
    shoal__statements_seen__init(&two);
    one.signer = ramp(20, 32);
    one.seq = 7;
    two.signer = ramp(21, 32);
    two.seq = 18446744073709551615u;
    m->n_seen = 2;
    m->seen = seen;
}

const struct golden golden_all[] = {
    {"hello", golden_hello},
    {"goodbye", golden_goodbye},
    {"ping", golden_ping},
    {"pong", golden_pong},
    {"roster", golden_roster},
    {"join", golden_join},
    {"join_reply", golden_join_reply},
    {"have", golden_have},
    {"have_delta", golden_have_delta},
    {"have_ask", golden_have_ask},
    {"get", golden_get},
    {"data", golden_data},
    {"digests", golden_digests},
    {"credit", golden_credit},
    {"cancel", golden_cancel},
    {"refuse", golden_refuse},
    {"bad_chunk", golden_bad_chunk},
    {"file_get", golden_file_get},
    {"file_data", golden_file_data},
    {"key_ask", golden_key_ask},
    {"key_reply", golden_key_reply},
    {"verify", golden_verify},
    {"verify_reply", golden_verify_reply},
    {"origin_state", golden_origin_state},
    {"lease_take", golden_lease_take},
    {"place", golden_place},
    {"warm", golden_warm},
    {"offer", golden_offer},
    {"kept", golden_kept},
    {"statements", golden_statements},
    {"statements_ask", golden_statements_ask},
};
const int golden_n = sizeof golden_all / sizeof *golden_all;

Shoal__Frame golden_made(void (*make)(Shoal__Frame *))
{
    Shoal__Frame f = SHOAL__FRAME__INIT;
    mem_n = 0;
    make(&f);
    return f;
}

uint32_t golden_raw(const Shoal__Frame *f)
{
    return f->kind_case == SHOAL__FRAME__KIND_DATA || f->kind_case == SHOAL__FRAME__KIND_FILE_DATA;
}
