/* SPDX-License-Identifier: MIT
 * bare_mesh.c: see bare_mesh.h. */
#include "tests/peer/bare_mesh.h"

static int all_members(void *ctx, const uint8_t id[WIRE_ID])
{
    (void)ctx;
    (void)id;
    return TLS_MEMBER;
}

static void bare_frame(struct kit_log *l, struct frame *f)
{
    struct bare *b = l->user;
    struct codec_msg m;
    struct err e = {0};
    ok(codec_decode(f->body, f->body_n, f->raw_n, &m, &e));
    b->kinds[m.f->kind_case & 63]++;
    if (m.f->kind_case == SHOAL__FRAME__KIND_HAVE_ASK) {
        b->asked_seq = m.f->have_ask->seq;
    } else if (m.f->kind_case == SHOAL__FRAME__KIND_GOODBYE) {
        b->goodbye = (int)m.f->goodbye->reason;
        snprintf(b->text, sizeof b->text, "%s", m.f->goodbye->text);
    }
    if (b->on_message) {
        b->on_message(b, m.f, f);
    }
    codec_free(&m);
    frame_free(f);
}

void bare_send(struct bare *b, const Shoal__Frame *f)
{
    struct buf x;
    struct err e = {0};
    buf_init(&x, WIRE_BODY_MAX);
    ok(codec_encode(f, 0, &x, &e));
    if (b->log.c) {
        tls_conn_send(b->log.c, x.p, x.n, NULL, TLS_CONTROL);
    }
    buf_free(&x);
}

void bare_hello(struct bare *b)
{
    static uint32_t questions = SHOAL__FEATURE__FEATURE_QUESTIONS;
    Shoal__Hello h = SHOAL__HELLO__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    h.version = h.version_min = 1;
    h.node_id.data = b->me.id.b;
    h.group_id.data = b->member.group.b;
    h.model_root.data = b->home.o.model_root;
    h.node_id.len = h.group_id.len = h.model_root.len = WIRE_ID;
    h.session.data = b->me.run;
    h.machine.data = b->me.machine;
    h.session.len = h.machine.len = WIRE_SESSION;
    h.chunk_size = WIRE_CHUNK;
    h.optional = &questions;
    h.n_optional = b->answers;
    f.kind_case = SHOAL__FRAME__KIND_HELLO;
    f.hello = &h;
    bare_send(b, &f);
}

void bare_connect(struct bare *b, int port)
{
    memset(b->kinds, 0, sizeof b->kinds);
    b->goodbye = 0;
    b->text[0] = 0;
    b->log = (struct kit_log){.on_frame = bare_frame, .user = b};
    kit_connect(&b->node, &b->log, "127.0.0.1", port, NULL);
    assert_true(kit_until(&b->loop, &b->log.opens, 1, 20000));
}

void bare_open(struct bare *b, struct kit_mesh *keeper)
{
    struct err e = {0};
    struct tls_opts o;
    memset(b, 0, sizeof *b);
    kit_home(&b->home, keeper);
    ok(identity_open(b->home.home, NULL, &b->me, &e));
    ok(member_open(b->home.home, &b->me, &b->member, &e));
    ok(crypto_key_pem(b->me.key, b->id.pem, &b->id.pem_n, &e));
    b->id.pem_n++;
    ok(crypto_certificate(b->me.key, b->id.cert, &b->id.cert_n, &e));
    kit_opts(&o, &b->id, &b->trust);
    o.trusted = all_members;
    assert_int_equal(uv_loop_init(&b->loop), 0);
    kit_node_open(&b->node, &b->loop, &o, NULL, 0);
}

void bare_close(struct bare *b)
{
    kit_node_close(&b->node);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    uv_loop_close(&b->loop);
    member_close(&b->member);
    identity_close(&b->me);
    kit_free(&b->home);
}
