/* SPDX-License-Identifier: MIT
 * evil_vice.c: the vices of evil.h. */
#include "tests/faults/evil_int.h"

#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct object_key key_of(const Shoal__Get *g)
{
    return (struct object_key){(uint8_t)g->object->kind, (uint16_t)g->object->layer,
                               g->object->index};
}

static void honest(struct evil_conn *c, const Shoal__Get *g)
{
    if (g->want_digests) {
        evil_send_digests(c, g, false);
    }
    for (uint32_t i = 0; i < g->chunk_count; i++) {
        evil_send_data(c, g, g->first_chunk + i, i + 1 == g->chunk_count);
    }
}

/* ---- one at a time ---- */

static void wrong_bytes(struct evil_conn *c, const Shoal__Get *g, uint64_t size)
{
    enum evil_vice v = c->ev->o.vice;
    if (g->want_digests || v == EVIL_LIES) {
        evil_send_digests(c, g, v == EVIL_LIES);
    }
    for (uint32_t i = 0; i < g->chunk_count; i++) {
        size_t n = storage_chunk_len(size, g->first_chunk + i);
        uint8_t *p = evil_bytes(c, key_of(g), g->first_chunk + i, n);
        if (v == EVIL_ZEROS) {
            memset(p, 0, n);
        } else {
            p[n / 2] ^= 1;
        }
        evil_data(c, g->id, g->first_chunk + i, i + 1 == g->chunk_count, p, n);
        free(p);
    }
}

/* The frame of a chunk, byte by byte; `n` of its raw bytes, `step` every `ms`. */
static void trickle(struct evil_conn *c, const Shoal__Get *g, uint64_t size, size_t n, size_t step,
                    unsigned ms)
{
    size_t all = storage_chunk_len(size, g->first_chunk);
    uint8_t *p = evil_bytes(c, key_of(g), g->first_chunk, all);
    Shoal__Data d = SHOAL__DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    uint8_t body[64];
    d.id = g->id;
    d.chunk = g->first_chunk;
    d.last = g->chunk_count == 1;
    d.source = SHOAL__SOURCE__SOURCE_ORIGIN;
    f.kind_case = SHOAL__FRAME__KIND_DATA;
    f.data = &d;
    evil_head(c, (uint32_t)shoal__frame__pack(&f, body), (uint32_t)all);
    evil_write(c, body, shoal__frame__get_packed_size(&f));
    n = n < all ? n : all;
    for (size_t i = 0; i < n && !c->dead && !atomic_load(&c->ev->stop); i += step) {
        evil_write(c, p + i, n - i < step ? n - i : step);
        evil_wait_ms(c->ev, ms);
    }
    free(p);
}

static void slow(struct evil_conn *c, const Shoal__Get *g, uint64_t size)
{
    Shoal__Get one = *g;
    if (g->want_digests) {
        evil_send_digests(c, g, false);
    }
    for (uint32_t i = 0; i < g->chunk_count; i++) {
        one.first_chunk = g->first_chunk + i;
        one.chunk_count = g->chunk_count - i;
        trickle(c, &one, size, SIZE_MAX, 100, 100);
    }
}

/* Nothing more on this connection until the other side gives it up. */
static void fall_silent(struct evil_conn *c)
{
    uint8_t waste[4096];
    while (!c->dead && !atomic_load(&c->ev->stop)) {
        ssize_t n = recv(c->fd, waste, sizeof waste, MSG_DONTWAIT);
        c->dead = n == 0;
        if (n <= 0) {
            evil_wait_ms(c->ev, 10);
        }
    }
}

static void wrong_sizes(struct evil_conn *c, const Shoal__Get *g, uint64_t size)
{
    size_t n = storage_chunk_len(size, g->first_chunk);
    uint8_t *p = evil_bytes(c, key_of(g), g->first_chunk, n);
    switch (c->turn++ % 6) {
    case 0:
        evil_state(c, g->id, size + 1, g->first_chunk, g->chunk_count);
        break;
    case 1:
        evil_data(c, g->id, g->first_chunk, true, p, n - 1);
        break;
    case 2:
        evil_data(c, g->id, g->first_chunk, true, NULL, 0);
        break;
    case 3:
        evil_state(c, g->id, 0, 0, 0);
        break;
    case 4:
        evil_state(c, g->id, UINT64_MAX, g->first_chunk, g->chunk_count);
        break;
    default:
        evil_state(c, g->id, size, 65000, 4000);
        break;
    }
    free(p);
    honest(c, g);
}

static void unasked(struct evil_conn *c, const Shoal__Get *g)
{
    uint8_t junk[300] = {1, 2, 3};
    evil_data(c, g->id + 1000000, 0, false, junk, sizeof junk);
    evil_data(c, 0, 0, true, junk, sizeof junk);
    evil_data(c, g->id, 60000, false, junk, sizeof junk);
    evil_state(c, g->id + 1, 300, 0, 1);
    evil_state(c, g->id + 1000000, 1ull << 32, 0, 4096);
    evil_state(c, g->id, 1ull << 33, 4000, 100);
    evil_refuse(c, g->id + 1000000, 1, 0);
    evil_refuse(c, UINT64_MAX, 7, UINT32_MAX);
    honest(c, g);
    evil_data(c, g->id, g->first_chunk, true, junk, sizeof junk); /* it is answered already */
}

static void gaps(struct evil_conn *c, const Shoal__Get *g)
{
    Shoal__HaveSpan span = SHOAL__HAVE_SPAN__INIT, *spans[1] = {&span};
    Shoal__HaveDelta d = SHOAL__HAVE_DELTA__INIT;
    span.kind = g->object->kind;
    span.layer = g->object->layer;
    span.count = 1 << 20;
    d.seq = c->seq += 1 + c->turn % 3; /* now and then there is no gap */
    if (c->turn++ % 2) {
        d.n_added = 1;
        d.added = spans;
    } else {
        d.n_removed = 1;
        d.removed = spans;
    }
    evil_small(c, SHOAL__FRAME__KIND_HAVE_DELTA, &d);
    d.seq = 1;
    evil_small(c, SHOAL__FRAME__KIND_HAVE_DELTA, &d);
    evil_have(c, c->seq - 1, false);
    honest(c, g);
}

static void huge(struct evil_conn *c)
{
    enum { ROWS = 30, PARTS = 20 };
    uint8_t *ones = malloc(WIRE_ROW_BYTES_MAX);
    Shoal__HaveRow row[ROWS], *rows[ROWS];
    Shoal__Have h = SHOAL__HAVE__INIT;
    if (!ones) {
        return;
    }
    memset(ones, 0xff, WIRE_ROW_BYTES_MAX);
    for (uint32_t part = 0; part < PARTS && !c->dead; part++) {
        for (uint32_t i = 0; i < ROWS; i++) {
            shoal__have_row__init(&row[i]);
            row[i].kind = part % 3 ? 0 : i;
            row[i].layer = part * ROWS + i;
            row[i].first = part % 2 ? 0 : i * 65536;
            row[i].bits.data = ones;
            row[i].bits.len = WIRE_ROW_BYTES_MAX;
            rows[i] = &row[i];
        }
        h.seq = 0;
        h.part = part;
        h.last = part + 1 == PARTS;
        h.n_rows = ROWS;
        h.rows = rows;
        evil_small(c, SHOAL__FRAME__KIND_HAVE, &h);
    }
    free(ones);
}

static void pings(struct evil_conn *c)
{
    Shoal__Ping p = SHOAL__PING__INIT;
    for (p.id = 1; p.id <= 500 && !c->dead; p.id++) {
        evil_small(c, SHOAL__FRAME__KIND_PING, &p);
    }
}

static void order(struct evil_conn *c, const Shoal__Get *g)
{
    for (uint32_t i = g->chunk_count; i-- > 0;) {
        evil_send_data(c, g, g->first_chunk + i, i + 1 == g->chunk_count);
    }
    evil_send_digests(c, g, false);
}

static void accuse(struct evil_conn *c)
{
    const struct evil_source *s = c->ev->o.source;
    uint8_t sha[WIRE_ID] = {5};
    for (size_t i = 0; i < s->n && i < 200; i++) {
        Shoal__BadChunk b = SHOAL__BAD_CHUNK__INIT;
        Shoal__ObjectId o = SHOAL__OBJECT_ID__INIT;
        size_t at = (i + c->turn * 200u) % s->n;
        o.kind = s->keys[at].kind;
        o.layer = s->keys[at].layer;
        o.index = s->keys[at].index;
        b.object = &o;
        b.chunk = (uint32_t)i % 3;
        b.got.data = b.want.data = sha;
        b.got.len = b.want.len = WIRE_ID;
        b.source = SHOAL__SOURCE__SOURCE_MANIFEST;
        evil_small(c, SHOAL__FRAME__KIND_BAD_CHUNK, &b);
    }
    c->turn++;
}

static void noise(uint8_t *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (uint8_t)(seed >> 24);
    }
}

static void rosters(struct evil_conn *c)
{
    uint8_t blob[3000];
    Shoal__Roster r = SHOAL__ROSTER__INIT;
    noise(blob, sizeof blob, c->turn++);
    r.version = UINT64_MAX;
    r.blob.data = blob;
    r.blob.len = sizeof blob;
    evil_small(c, SHOAL__FRAME__KIND_ROSTER, &r);
    struct buf *b = &c->ev->member.blob; /* the real one with one bit changed */
    if (b->n && b->n <= sizeof blob) {
        memcpy(blob, b->p, b->n);
        blob[c->turn * 37u % b->n] ^= 4;
        r.blob.len = b->n;
        evil_small(c, SHOAL__FRAME__KIND_ROSTER, &r);
    }
}

static void credits(struct evil_conn *c, const Shoal__Get *g)
{
    const struct evil_source *s = c->ev->o.source;
    Shoal__Credit x = SHOAL__CREDIT__INIT;
    for (int i = 0; i < 64; i++) {
        x.bytes = WIRE_CREDIT_MAX;
        evil_small(c, SHOAL__FRAME__KIND_CREDIT, &x);
    }
    for (size_t i = 0; i < 300; i++) {
        Shoal__ObjectId o = SHOAL__OBJECT_ID__INIT;
        Shoal__Get get = SHOAL__GET__INIT;
        o.kind = s->keys[i % s->n].kind;
        o.layer = s->keys[i % s->n].layer;
        o.index = s->keys[i % s->n].index;
        get.id = ((uint64_t)c->turn << 32) + i + 1;
        get.object = &o;
        get.chunk_count = i % 2 ? 1 : WIRE_GET_CHUNKS_MAX;
        get.priority = SHOAL__PRIORITY__PRIORITY_DEMAND;
        get.want_digests = true;
        evil_small(c, SHOAL__FRAME__KIND_GET, &get);
    }
    c->turn++;
    honest(c, g);
}

static void unknown(struct evil_conn *c)
{
    static const uint8_t body[] = {0xa2, 0x06, 3, 'a', 'b', 'c'}; /* field 100: three bytes */
    evil_head(c, sizeof body, 0);
    evil_write(c, body, sizeof body);
}

static void bad_frame(struct evil_conn *c, enum evil_vice v)
{
    uint8_t junk[4096];
    noise(junk, sizeof junk, c->turn++ + 7);
    switch (v) {
    case EVIL_FRAME0:
        evil_head(c, 0, 0);
        break;
    case EVIL_FRAME1:
        evil_head(c, 1, 0);
        evil_write(c, junk, 1);
        break;
    case EVIL_FRAMEMAX:
        evil_head(c, c->turn % 2 ? UINT32_MAX : 12, UINT32_MAX);
        evil_write(c, junk, sizeof junk);
        break;
    case EVIL_NOISE:
        evil_write(c, junk, sizeof junk);
        break;
    default: /* PLAIN */
        c->dead |= write(c->fd, junk, sizeof junk) < 0;
        break;
    }
}

static void kill_now(struct evil_conn *c, const Shoal__Get *g, uint64_t size)
{
    trickle(c, g, size, storage_chunk_len(size, g->first_chunk) / 2, 1 << 19, 0);
    if (c->ev->o.die) {
        kill(getpid(), SIGKILL);
    }
    atomic_store(&c->ev->deaf, true);
    c->dead = true;
}

void evil_answer(struct evil_conn *c, const Shoal__Get *g, uint64_t size)
{
    struct evil *v = c->ev;
    enum evil_vice vice = v->o.vice;
    bool elsewhere =
        (vice == EVIL_CLOSE && v->o.arg < 0) || vice == EVIL_FILES || evil_at_hello(vice);
    if (elsewhere || (v->o.only && c->port != v->o.only) || !evil_late(v)) {
        honest(c, g);
        return;
    }
    switch (vice) {
    case EVIL_KILL:
        kill_now(c, g, size);
        break;
    case EVIL_CUT:
        atomic_store(&v->deaf, true);
        break;
    case EVIL_SLOW:
        slow(c, g, size);
        break;
    case EVIL_FLIP:
    case EVIL_ZEROS:
    case EVIL_LIES:
        wrong_bytes(c, g, size);
        break;
    case EVIL_SILENT:
        break;
    case EVIL_PULL:
        evil_refuse(c, g->id, SHOAL__REFUSE_REASON__REFUSE_NOT_HELD, 0);
        break;
    case EVIL_REFUSE:
        evil_refuse(c, g->id, c->turn % 10, c->turn / 10 % 2 ? 30 : 0);
        c->turn++;
        break;
    case EVIL_CLOSE:
        evil_any_kind(c, v->o.arg, g);
        c->dead = true;
        break;
    case EVIL_FRAME0:
    case EVIL_FRAME1:
    case EVIL_FRAMEMAX:
    case EVIL_NOISE:
    case EVIL_PLAIN:
        bad_frame(c, vice);
        break;
    case EVIL_BOTH:
        unknown(c);
        honest(c, g);
        break;
    case EVIL_DIGEST:
        evil_send_digests(c, g, true);
        for (uint32_t i = 0; i < g->chunk_count; i++) {
            evil_send_data(c, g, g->first_chunk + i, i + 1 == g->chunk_count);
        }
        break;
    case EVIL_SIZE:
        wrong_sizes(c, g, size);
        break;
    case EVIL_UNASKED:
        unasked(c, g);
        break;
    case EVIL_TWICE:
        honest(c, g);
        honest(c, g);
        break;
    case EVIL_GAPS:
        gaps(c, g);
        break;
    case EVIL_HUGE:
        huge(c);
        honest(c, g);
        break;
    case EVIL_PINGS:
        pings(c);
        honest(c, g);
        break;
    case EVIL_HALF:
        if (g->want_digests) {
            evil_send_digests(c, g, false);
        }
        trickle(c, g, size, storage_chunk_len(size, g->first_chunk) / 2, 1 << 19, 0);
        fall_silent(c);
        break;
    case EVIL_ORDER:
        order(c, g);
        break;
    case EVIL_ACCUSE:
        accuse(c);
        honest(c, g);
        break;
    case EVIL_ROSTER:
        rosters(c);
        honest(c, g);
        break;
    case EVIL_CREDIT:
        credits(c, g);
        break;
    default:
        honest(c, g);
        break;
    }
}

void evil_saw(struct evil_conn *c, const Shoal__Frame *f)
{
    struct evil *v = c->ev;
    if (v->o.vice == EVIL_CLOSE && (int)f->kind_case == -v->o.arg && evil_late(v)) {
        c->dead = true;
    } else if (v->o.vice == EVIL_LOOP && f->kind_case == SHOAL__FRAME__KIND_HELLO && evil_late(v)) {
        c->dead = true;
        evil_wait_ms(v, 10);
        if ((!c->server || !atomic_exchange(&v->looping, true)) && f->hello->listen_port &&
            !atomic_load(&v->stop)) {
            evil_dial(v, (int)f->hello->listen_port);
        }
    }
}

bool evil_at_hello(enum evil_vice v)
{
    return v == EVIL_OLDER || v == EVIL_NEWER || v == EVIL_FEATURE || v == EVIL_ROOT ||
           v == EVIL_LOOP || v == EVIL_EARLY;
}

bool evil_greet(struct evil_conn *c)
{
    struct evil *v = c->ev;
    Shoal__Credit x = SHOAL__CREDIT__INIT;
    uint8_t junk[10] = {0};
    if (v->o.vice == EVIL_BOTH) { /* from the beginning: it is good */
        evil_hello(c, WIRE_VERSION + 8, 1);
        return true;
    }
    if (!evil_time(v)) {
        return false;
    }
    switch (v->o.vice) {
    case EVIL_OLDER:
        evil_hello(c, 0, 0);
        break;
    case EVIL_NEWER:
        evil_hello(c, WIRE_VERSION + 8, WIRE_VERSION + 8);
        break;
    case EVIL_EARLY:
        x.bytes = 1000;
        switch (c->server ? atomic_load(&v->n_conns) % 4 : 3) {
        case 0:
            evil_small(c, SHOAL__FRAME__KIND_CREDIT, &x);
            break;
        case 1:
            evil_data(c, 1, 0, false, junk, sizeof junk);
            break;
        case 2:
            evil_have(c, 0, true);
            break;
        default:
            evil_roster(c);
            break;
        }
        evil_hello(c, WIRE_VERSION, WIRE_VERSION_MIN);
        break;
    default:
        return false;
    }
    evil_late(v);
    return true;
}

void evil_file(struct evil_conn *c, const Shoal__FileGet *g)
{
    Shoal__FileData d = SHOAL__FILE_DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    unsigned way = c->ev->o.arg ? (unsigned)c->ev->o.arg : c->turn++ % 4 + 1;
    if (c->ev->o.vice != EVIL_FILES || !evil_late(c->ev) || way == 4) {
        return; /* nothing at all */
    }
    uint32_t n = way == 3 ? 0 : g->length;
    uint8_t *p = malloc((size_t)n + 1);
    if (!p) {
        return;
    }
    noise(p, n, c->turn);
    d.id = g->id;
    d.result = way == 3 ? SHOAL__FILE_RESULT__FILE_NOT_HELD : SHOAL__FILE_RESULT__FILE_OK;
    d.total = way == 3 ? 0 : way == 2 ? WIRE_FILE_MAX : g->offset + n;
    f.kind_case = SHOAL__FRAME__KIND_FILE_DATA;
    f.file_data = &d;
    evil_send(c, &f, p, n);
    free(p);
}

void evil_pull(struct evil_conn *c)
{
    struct evil *v = c->ev;
    const struct evil_source *s = v->o.source;
    uint64_t now = clock_ns(), size;
    if (v->o.vice != EVIL_PULL || !c->up) {
        return;
    }
    c->began = c->began ? c->began : now;
    /* what has been asked for is at most what the rate gives, and 2 MB ahead of what has come */
    while (!c->dead && c->pull_bytes < (now - c->began) / 1000u * (uint64_t)v->o.arg / 1000u &&
           c->pull_bytes < atomic_load(&v->pulled) + (2u << 20) && evil_late(v)) {
        const struct object_key *k = &s->keys[c->pull_id++ % s->n];
        Shoal__ObjectId o = SHOAL__OBJECT_ID__INIT;
        Shoal__Get get = SHOAL__GET__INIT;
        o.kind = k->kind;
        o.layer = k->layer;
        o.index = k->index;
        s->size(s->ctx, *k, &size);
        get.id = c->pull_id;
        get.object = &o;
        get.chunk_count = storage_chunks(size);
        get.priority = SHOAL__PRIORITY__PRIORITY_DEMAND;
        evil_small(c, SHOAL__FRAME__KIND_GET, &get);
        c->pull_bytes += size; /* the first credit is 1 GiB: enough */
    }
}

void evil_idle(struct evil_conn *c)
{
    if (c->up && c->ev->o.vice == EVIL_HUGE && c->turn < 3 && evil_late(c->ev)) {
        c->turn++;
        huge(c);
    }
}
