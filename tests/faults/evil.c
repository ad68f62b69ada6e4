/* SPDX-License-Identifier: MIT
 * evil.c: see evil.h. */
#include "tests/faults/evil_int.h"

#include "peer/have.h"
#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static void must(bool ok, const char *what, const struct err *e)
{
    if (!ok) {
        fprintf(stderr, "evil peer: %s %s\n", what, e ? e->msg : strerror(errno));
        abort();
    }
}

const char *evil_word(enum evil_vice v)
{
    static const char *const words[] = {
#define EVIL_WORD(n, w, t) w,
        EVIL_VICES(EVIL_WORD)
#undef EVIL_WORD
    };
    return v < EVIL_COUNT ? words[v] : "?";
}

enum evil_vice evil_by_word(const char *word)
{
    enum evil_vice v = EVIL_HONEST;
    while (v < EVIL_COUNT && strcmp(evil_word(v), word) != 0) {
        v++;
    }
    return v;
}

bool evil_time(const struct evil *v)
{
    return v->o.vice != EVIL_HONEST && (!v->o.armed || atomic_load(&v->armed)) &&
           atomic_load(&v->chunks) >= v->o.after;
}

bool evil_late(struct evil *v)
{
    bool late = evil_time(v);
    atomic_fetch_add(&v->vices, late);
    return late;
}

void evil_wait_ms(struct evil *v, unsigned ms)
{
    for (unsigned i = 0; i < ms && !atomic_load(&v->stop); i += 10) {
        usleep(10000);
    }
}

/* ---- sending ---- */

void evil_write(struct evil_conn *c, const void *p, size_t n)
{
    if (!c->dead && bare_write(c->tls, p, n)) {
        c->dead = true;
    }
}

void evil_head(struct evil_conn *c, uint32_t body_n, uint32_t raw_n)
{
    uint8_t h[WIRE_HEAD];
    num_put_le32(h, body_n);
    num_put_le32(h + 4, raw_n);
    evil_write(c, h, sizeof h);
}

void evil_send(struct evil_conn *c, const Shoal__Frame *f, const void *raw, size_t raw_n)
{
    size_t n = shoal__frame__get_packed_size(f);
    uint8_t *p = malloc(WIRE_HEAD + n);
    must(p != NULL, "memory", NULL);
    num_put_le32(p, (uint32_t)n);
    num_put_le32(p + 4, (uint32_t)raw_n);
    shoal__frame__pack(f, p + WIRE_HEAD);
    evil_write(c, p, WIRE_HEAD + n);
    if (raw_n) {
        evil_write(c, raw, raw_n);
    }
    free(p);
}

void evil_hello(struct evil_conn *c, uint32_t version, uint32_t version_min)
{
    struct evil *v = c->ev;
    Shoal__Hello h = SHOAL__HELLO__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    uint8_t root[WIRE_ID];
    uint32_t feature = 4711;
    uint32_t optional[] = {SHOAL__FEATURE__FEATURE_RENEW, SHOAL__FEATURE__FEATURE_QUESTIONS};
    memcpy(root, v->o.source->root, WIRE_ID);
    if (v->o.vice == EVIL_ROOT && evil_late(v)) {
        root[3] ^= 1;
    }
    if (v->o.vice == EVIL_FEATURE && evil_late(v)) {
        h.n_required = 1;
        h.required = &feature;
    }
    uint32_t signs[] = {SHOAL__FEATURE__FEATURE_RENEW, SHOAL__FEATURE__FEATURE_STATEMENTS};
    h.n_optional = v->o.vice == EVIL_FILES || v->o.signs ? 2 : 1;
    h.optional = v->o.signs ? signs : optional;
    h.version = version;
    h.version_min = version_min;
    h.node_id.data = v->me.id.b;
    h.group_id.data = v->member.group.b;
    h.model_root.data = root;
    h.node_id.len = h.group_id.len = h.model_root.len = WIRE_ID;
    h.session.data = v->me.run;
    h.machine.data = v->me.machine;
    h.session.len = h.machine.len = WIRE_SESSION;
    h.chunk_size = WIRE_CHUNK;
    h.numerics_version = 1;
    h.roster_version = v->member.roster.version;
    h.listen_port = (uint32_t)v->port;
    h.object_count = v->o.source->n;
    h.origin_works = true;
    f.kind_case = SHOAL__FRAME__KIND_HELLO;
    f.hello = &h;
    evil_send(c, &f, NULL, 0);
}

void evil_roster(struct evil_conn *c)
{
    Shoal__Roster r = SHOAL__ROSTER__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    r.version = c->ev->member.roster.version;
    r.blob.data = (uint8_t *)c->ev->member.blob.p;
    r.blob.len = c->ev->member.blob.n;
    f.kind_case = SHOAL__FRAME__KIND_ROSTER;
    f.roster = &r;
    evil_send(c, &f, NULL, 0);
}

static int emit(void *ctx, const void *body, size_t n)
{
    struct evil_conn *c = ctx;
    evil_head(c, (uint32_t)n, 0);
    evil_write(c, body, n);
    return 0;
}

static void credit(struct evil_conn *c)
{
    Shoal__Credit x = SHOAL__CREDIT__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.bytes = WIRE_CREDIT_MAX;
    f.kind_case = SHOAL__FRAME__KIND_CREDIT;
    f.credit = &x;
    evil_send(c, &f, NULL, 0);
}

/* All that the source has. */
void evil_have(struct evil_conn *c, uint64_t seq, bool last)
{
    const struct evil_source *s = c->ev->o.source;
    struct held *h = held_new();
    struct err e = {0};
    must(h != NULL, "memory", NULL);
    for (size_t i = 0; i < s->n; i++) {
        must(held_add(h, s->keys[i]) == 0, "held_add", NULL);
    }
    if (last) {
        must(held_snapshot(h, emit, c, &e) == 0, "snapshot", &e);
    } else {
        Shoal__Have x = SHOAL__HAVE__INIT;
        Shoal__Frame f = SHOAL__FRAME__INIT;
        x.seq = seq;
        f.kind_case = SHOAL__FRAME__KIND_HAVE;
        f.have = &x;
        evil_send(c, &f, NULL, 0);
    }
    c->seq = held_seq(h);
    held_free(h);
}

/* ---- objects ---- */

uint8_t *evil_bytes(struct evil_conn *c, struct object_key k, uint32_t chunk, size_t n)
{
    uint8_t *p = malloc(n);
    must(p != NULL, "memory", NULL);
    c->ev->o.source->read(c->ev->o.source->ctx, k, chunk, p, n);
    return p;
}

uint8_t *evil_digests(struct evil_conn *c, struct object_key k, uint64_t size, bool lie,
                      uint8_t object[SHA256_SIZE])
{
    uint32_t n = storage_chunks(size);
    uint8_t *sha = malloc((size_t)n * SHA256_SIZE);
    must(sha != NULL, "memory", NULL);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = storage_chunk_len(size, i);
        uint8_t *p = evil_bytes(c, k, i, len);
        p[len / 2] ^= lie ? 1 : 0;
        sha256(p, len, sha + (size_t)i * SHA256_SIZE);
        free(p);
    }
    sha256(sha, (size_t)n * SHA256_SIZE, object);
    return sha;
}

static struct object_key key_of(const Shoal__ObjectId *o)
{
    return (struct object_key){(uint8_t)o->kind, (uint16_t)o->layer, o->index};
}

void evil_send_digests(struct evil_conn *c, const Shoal__Get *g, bool lie)
{
    const struct evil_source *s = c->ev->o.source;
    Shoal__Digests d = SHOAL__DIGESTS__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    uint8_t object[SHA256_SIZE];
    uint64_t size;
    must(s->size(s->ctx, key_of(g->object), &size), "size", NULL);
    uint8_t *sha = evil_digests(c, key_of(g->object), size, lie, object);
    d.id = g->id;
    d.object_size = size;
    d.first_chunk = g->first_chunk;
    d.sha256.data = sha + (size_t)g->first_chunk * SHA256_SIZE;
    d.sha256.len = (size_t)g->chunk_count * SHA256_SIZE;
    d.source = SHOAL__SOURCE__SOURCE_ORIGIN;
    d.object_digest.data = object;
    d.object_digest.len = SHA256_SIZE;
    f.kind_case = SHOAL__FRAME__KIND_DIGESTS;
    f.digests = &d;
    evil_send(c, &f, NULL, 0);
    free(sha);
}

void evil_send_data(struct evil_conn *c, const Shoal__Get *g, uint32_t chunk, bool last)
{
    const struct evil_source *s = c->ev->o.source;
    Shoal__Data d = SHOAL__DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    uint64_t size;
    must(s->size(s->ctx, key_of(g->object), &size), "size", NULL);
    size_t n = storage_chunk_len(size, chunk);
    uint8_t *p = evil_bytes(c, key_of(g->object), chunk, n);
    d.id = g->id;
    d.chunk = chunk;
    d.last = last;
    d.source = SHOAL__SOURCE__SOURCE_ORIGIN;
    f.kind_case = SHOAL__FRAME__KIND_DATA;
    f.data = &d;
    evil_send(c, &f, p, n);
    atomic_fetch_add(&c->ev->chunks, 1);
    free(p);
}

static void on_get(struct evil_conn *c, const Shoal__Get *g)
{
    const struct evil_source *s = c->ev->o.source;
    uint64_t size;
    atomic_fetch_add(&c->ev->gets, 1);
    if (s->size(s->ctx, key_of(g->object), &size) &&
        (uint64_t)g->first_chunk + g->chunk_count <= storage_chunks(size)) {
        evil_answer(c, g, size);
        return;
    }
    Shoal__Refuse r = SHOAL__REFUSE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    r.id = g->id;
    r.reason = SHOAL__REFUSE_REASON__REFUSE_RANGE;
    f.kind_case = SHOAL__FRAME__KIND_REFUSE;
    f.refuse = &r;
    evil_send(c, &f, NULL, 0);
}

/* ---- connections ---- */

static void take(struct evil_conn *c, const Shoal__Frame *in)
{
    Shoal__Pong pong = SHOAL__PONG__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    switch (in->kind_case) {
    case SHOAL__FRAME__KIND_HELLO:
        atomic_store(&c->ev->peer_port, (int)in->hello->listen_port);
        c->port = (int)in->hello->listen_port;
        c->up = true;
        if (in->hello->roster_version <= c->ev->member.roster.version) {
            evil_roster(c);
        }
        credit(c);
        evil_have(c, 0, true);
        if (c->ev->o.signs) {
            evil_sign(c);
        }
        break;
    case SHOAL__FRAME__KIND_PING:
        pong.id = in->ping->id;
        f.kind_case = SHOAL__FRAME__KIND_PONG;
        f.pong = &pong;
        evil_send(c, &f, NULL, 0);
        break;
    case SHOAL__FRAME__KIND_HAVE_ASK:
        evil_have(c, 99, c->ev->o.vice != EVIL_GAPS || !evil_time(c->ev));
        break;
    case SHOAL__FRAME__KIND_GET:
        on_get(c, in->get);
        break;
    case SHOAL__FRAME__KIND_FILE_GET:
        evil_file(c, in->file_get);
        break;
    case SHOAL__FRAME__KIND_BAD_CHUNK:
        atomic_fetch_add(&c->ev->told, 1);
        break;
    case SHOAL__FRAME__KIND_GOODBYE:
        atomic_fetch_add(&c->ev->told, 1);
        if (getenv("EVIL_LOG")) {
            fprintf(stderr, "evil %s: goodbye %d: %s\n", evil_word(c->ev->o.vice),
                    (int)in->goodbye->reason, in->goodbye->text);
        }
        break;
    default:
        break;
    }
}

/* One frame; the body is a copy that the codec has checked. */
static void read_frame(struct evil_conn *c)
{
    uint8_t head[WIRE_HEAD];
    struct codec_msg m;
    struct err e = {0};
    if (bare_read(c->tls, head, sizeof head)) {
        c->dead = true;
        return;
    }
    uint32_t body_n = num_get_le32(head), raw_n = num_get_le32(head + 4);
    must(body_n >= 1 && body_n <= WIRE_BODY_MAX && raw_n <= WIRE_RAW_MAX, "lengths", NULL);
    uint8_t *p = malloc((size_t)body_n + raw_n);
    must(p != NULL, "memory", NULL);
    if (bare_read(c->tls, p, (size_t)body_n + raw_n)) {
        c->dead = true;
    } else if (codec_decode(p, body_n, raw_n, &m, &e)) {
        must(false, "an honest node sent", &e);
    } else {
        atomic_fetch_add(&c->ev->pulled, raw_n);
        evil_saw(c, m.f);
        if (!c->dead) {
            take(c, m.f);
        }
        codec_free(&m);
    }
    free(p);
}

static void *conn_main(void *arg)
{
    struct evil_conn *c = arg;
    struct evil *v = c->ev;
    struct timeval tv = {.tv_sec = 20};
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    if (bare_handshake(c->tls) == 0) {
        atomic_fetch_add(&v->n_conns, 1);
        if (!evil_greet(c)) {
            evil_hello(c, WIRE_VERSION, WIRE_VERSION_MIN);
        }
        while (!c->dead && !atomic_load(&v->stop)) {
            int r = atomic_load(&v->deaf) ? 0 : bare_wait(c->tls, 20);
            evil_pull(c);
            if (r > 0) {
                read_frame(c);
            } else if (atomic_load(&v->deaf)) {
                c->dead = v->o.vice == EVIL_KILL;
                evil_wait_ms(v, 20);
            } else {
                evil_idle(c);
            }
        }
    }
    /* its memory goes with the connection's: by evil_stop, or by the next one that comes */
    shutdown(c->fd, SHUT_RDWR);
    atomic_store(&c->over, true);
    return NULL;
}

/* Connections that are over, or all of them. */
static void sweep(struct evil *v, bool all)
{
    pthread_mutex_lock(&v->mu);
    struct evil_conn *c = v->conns, *keep = NULL;
    v->conns = NULL;
    pthread_mutex_unlock(&v->mu);
    while (c) {
        struct evil_conn *next = c->next;
        if (all || atomic_load(&c->over)) {
            shutdown(c->fd, SHUT_RDWR);
            pthread_join(c->thread, NULL);
            bare_free(c->tls, false);
            free(c);
        } else {
            c->next = keep;
            keep = c;
        }
        c = next;
    }
    pthread_mutex_lock(&v->mu);
    while (keep) {
        c = keep;
        keep = c->next;
        c->next = v->conns;
        v->conns = c;
    }
    pthread_mutex_unlock(&v->mu);
}

static void begin(struct evil *v, int fd, bool server)
{
    struct evil_conn *c = calloc(1, sizeof *c);
    must(c != NULL, "memory", NULL);
    c->ev = v;
    c->fd = fd;
    c->server = server;
    c->tls = bare_new(fd, server, &v->id, TLS_FASTEST);
    must(pthread_create(&c->thread, NULL, conn_main, c) == 0, "thread", NULL);
    pthread_mutex_lock(&v->mu);
    c->next = v->conns;
    v->conns = c;
    pthread_mutex_unlock(&v->mu);
}

void evil_dial(struct evil *v, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
        begin(v, fd, false);
    } else if (fd >= 0) {
        close(fd);
    }
}

static void *listen_main(void *arg)
{
    struct evil *v = arg;
    while (!atomic_load(&v->stop)) {
        struct pollfd p = {.fd = v->listen, .events = POLLIN};
        if (atomic_load(&v->deaf)) {
            if (v->o.vice == EVIL_KILL && v->listen >= 0) {
                close(v->listen);
                v->listen = -1;
            }
            usleep(10000);
        } else if (poll(&p, 1, 20) > 0) {
            int fd = accept(v->listen, NULL, NULL);
            if (fd >= 0) {
                begin(v, fd, true);
            }
        }
        sweep(v, false);
    }
    return NULL;
}

struct evil *evil_start(const struct evil_opts *o)
{
    struct evil *v = calloc(1, sizeof *v);
    struct err e = {0};
    must(v != NULL, "memory", NULL);
    signal(SIGPIPE, SIG_IGN);
    v->o = *o;
    pthread_mutex_init(&v->mu, NULL);
    must(identity_open(o->home, NULL, &v->me, &e) == 0, o->home, &e);
    must(member_open(o->home, &v->me, &v->member, &e) == 0, o->home, &e);
    must(crypto_key_pem(v->me.key, v->id.pem, &v->id.pem_n, &e) == 0, "key", &e);
    v->id.pem_n++;
    must(crypto_certificate(v->me.key, v->id.cert, &v->id.cert_n, &e) == 0, "certificate", &e);
    v->listen = bare_listen(&v->port);
    must(pthread_create(&v->thread, NULL, listen_main, v) == 0, "thread", NULL);
    return v;
}

int evil_port(const struct evil *v)
{
    return v->port;
}

void evil_get_stats(struct evil *v, struct evil_stats *out)
{
    out->conns = atomic_load(&v->n_conns);
    out->gets = atomic_load(&v->gets);
    out->chunks = atomic_load(&v->chunks);
    out->vices = atomic_load(&v->vices);
    out->told = atomic_load(&v->told);
    out->pulled = atomic_load(&v->pulled);
}

void evil_arm(struct evil *v)
{
    atomic_store(&v->armed, true);
    if (!evil_at_hello(v->o.vice)) {
        return;
    }
    pthread_mutex_lock(&v->mu);
    for (struct evil_conn *c = v->conns; c; c = c->next) {
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&v->mu);
    if (atomic_load(&v->peer_port)) {
        evil_dial(v, atomic_load(&v->peer_port));
    }
}

void evil_stop(struct evil *v)
{
    atomic_store(&v->stop, true);
    pthread_join(v->thread, NULL);
    sweep(v, true);
    if (v->listen >= 0) {
        close(v->listen);
    }
    member_close(&v->member);
    identity_close(&v->me);
    pthread_mutex_destroy(&v->mu);
    free(v);
}
