/* SPDX-License-Identifier: MIT
 * evil_say.c: messages with whatever content, for evil_vice.c. */
#include "tests/faults/evil_int.h"

#include "peer/statement.h"

#include <stdlib.h>

/* Data with any bytes. */
void evil_data(struct evil_conn *c, uint64_t id, uint32_t chunk, bool last, const void *p, size_t n)
{
    Shoal__Data d = SHOAL__DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    d.id = id;
    d.chunk = chunk;
    d.last = last;
    d.source = SHOAL__SOURCE__SOURCE_ORIGIN;
    f.kind_case = SHOAL__FRAME__KIND_DATA;
    f.data = &d;
    evil_send(c, &f, p, n);
}

void evil_refuse(struct evil_conn *c, uint64_t id, unsigned reason, uint32_t retry_ms)
{
    Shoal__Refuse r = SHOAL__REFUSE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    r.id = id;
    r.reason = (Shoal__RefuseReason)reason;
    r.text = "no";
    r.retry_ms = retry_ms;
    f.kind_case = SHOAL__FRAME__KIND_REFUSE;
    f.refuse = &r;
    evil_send(c, &f, NULL, 0);
}

void evil_state(struct evil_conn *c, uint64_t id, uint64_t size, uint32_t first, uint32_t n)
{
    Shoal__Digests d = SHOAL__DIGESTS__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    d.id = id;
    d.object_size = size;
    d.first_chunk = first;
    d.sha256.len = (size_t)n * SHA256_SIZE;
    d.sha256.data = calloc(1, d.sha256.len);
    d.source = SHOAL__SOURCE__SOURCE_MANIFEST;
    f.kind_case = SHOAL__FRAME__KIND_DIGESTS;
    f.digests = &d;
    if (d.sha256.data) {
        evil_send(c, &f, NULL, 0);
    }
    free(d.sha256.data);
}

void evil_small(struct evil_conn *c, Shoal__Frame__KindCase kind, void *message)
{
    Shoal__Frame f = SHOAL__FRAME__INIT;
    f.kind_case = kind;
    f.ping = message; /* all of the union are pointers */
    evil_send(c, &f, NULL, 0);
}

/* A well-formed message of any kind; for a Get that is open, its real answer. */
void evil_any_kind(struct evil_conn *c, int kind, const Shoal__Get *g)
{
    Shoal__Goodbye bye = SHOAL__GOODBYE__INIT;
    Shoal__Ping ping = SHOAL__PING__INIT;
    Shoal__Pong pong = SHOAL__PONG__INIT;
    Shoal__Join join = SHOAL__JOIN__INIT;
    Shoal__JoinReply reply = SHOAL__JOIN_REPLY__INIT;
    Shoal__HaveDelta delta = SHOAL__HAVE_DELTA__INIT;
    Shoal__HaveAsk ask = SHOAL__HAVE_ASK__INIT;
    Shoal__Get get = *g;
    Shoal__Credit credit = SHOAL__CREDIT__INIT;
    Shoal__Cancel cancel = SHOAL__CANCEL__INIT;
    Shoal__BadChunk bad = SHOAL__BAD_CHUNK__INIT;
    uint8_t zero[WIRE_ID] = {0};
    bye.reason = SHOAL__GOODBYE_REASON__GOODBYE_SHUTDOWN;
    join.invite_id.data = join.proof.data = zero;
    join.invite_id.len = WIRE_SESSION;
    join.proof.len = WIRE_ID;
    delta.seq = ++c->seq;
    credit.bytes = 1;
    cancel.id = bad.chunk = 0;
    bad.object = g->object;
    bad.got.data = bad.want.data = zero;
    bad.got.len = bad.want.len = WIRE_ID;
    switch (kind) {
    case SHOAL__FRAME__KIND_HELLO:
        evil_hello(c, WIRE_VERSION, WIRE_VERSION_MIN);
        break;
    case SHOAL__FRAME__KIND_GOODBYE:
        evil_small(c, SHOAL__FRAME__KIND_GOODBYE, &bye);
        break;
    case SHOAL__FRAME__KIND_PING:
        evil_small(c, SHOAL__FRAME__KIND_PING, &ping);
        break;
    case SHOAL__FRAME__KIND_PONG:
        evil_small(c, SHOAL__FRAME__KIND_PONG, &pong);
        break;
    case SHOAL__FRAME__KIND_ROSTER:
        evil_roster(c);
        break;
    case SHOAL__FRAME__KIND_JOIN:
        evil_small(c, SHOAL__FRAME__KIND_JOIN, &join);
        break;
    case SHOAL__FRAME__KIND_JOIN_REPLY:
        evil_small(c, SHOAL__FRAME__KIND_JOIN_REPLY, &reply);
        break;
    case SHOAL__FRAME__KIND_HAVE:
        evil_have(c, 0, true);
        break;
    case SHOAL__FRAME__KIND_HAVE_DELTA:
        evil_small(c, SHOAL__FRAME__KIND_HAVE_DELTA, &delta);
        break;
    case SHOAL__FRAME__KIND_HAVE_ASK:
        evil_small(c, SHOAL__FRAME__KIND_HAVE_ASK, &ask);
        break;
    case SHOAL__FRAME__KIND_GET:
        evil_small(c, SHOAL__FRAME__KIND_GET, &get);
        break;
    case SHOAL__FRAME__KIND_DATA:
        evil_send_data(c, g, g->first_chunk, false);
        break;
    case SHOAL__FRAME__KIND_DIGESTS:
        evil_send_digests(c, g, false);
        break;
    case SHOAL__FRAME__KIND_CREDIT:
        evil_small(c, SHOAL__FRAME__KIND_CREDIT, &credit);
        break;
    case SHOAL__FRAME__KIND_CANCEL:
        evil_small(c, SHOAL__FRAME__KIND_CANCEL, &cancel);
        break;
    case SHOAL__FRAME__KIND_REFUSE:
        evil_refuse(c, g->id, SHOAL__REFUSE_REASON__REFUSE_STOPPING, 0);
        break;
    default:
        evil_small(c, SHOAL__FRAME__KIND_BAD_CHUNK, &bad);
        break;
    }
}

static int by_key(const void *a, const void *b)
{
    return statement_key_order(((const struct statement_entry *)a)->key,
                               ((const struct statement_entry *)b)->key);
}

void evil_sign(struct evil_conn *c)
{
    struct evil *v = c->ev;
    const struct evil_source *s = v->o.source;
    struct statement_entry *x = calloc(s->n, sizeof *x);
    struct err e = {0};
    for (size_t i = 0; x && i < s->n; i++) {
        uint64_t size;
        x[i].key = s->keys[i];
        if (s->size(s->ctx, s->keys[i], &size)) {
            free(evil_digests(c, s->keys[i], size, v->o.signs == EVIL_SIGNS_FALSELY, x[i].digest));
        }
    }
    if (x) {
        qsort(x, s->n, sizeof *x, by_key);
    }
    for (size_t i = 0; x && i < s->n; i += STATEMENT_OBJECTS_MAX) {
        size_t n = s->n - i < STATEMENT_OBJECTS_MAX ? s->n - i : STATEMENT_OBJECTS_MAX;
        Shoal__Statements m = SHOAL__STATEMENTS__INIT;
        struct buf b;
        buf_init(&b, STATEMENT_BLOB_MAX);
        if (!statement_sign(v->me.key, s->root, 1 + i / STATEMENT_OBJECTS_MAX, x + i, n, &b, &e)) {
            b.p[b.n - 1] = (char)(b.p[b.n - 1] ^ (v->o.signs == EVIL_SIGNS_BADLY));
            m.blob.data = (uint8_t *)b.p;
            m.blob.len = b.n;
            evil_small(c, SHOAL__FRAME__KIND_STATEMENTS, &m);
        }
        buf_free(&b);
    }
    free(x);
}
