/* SPDX-License-Identifier: MIT
 * mesh_join.c: the joining side, in a loop of its own. Every address of the token is tried, a
 * quarter of a second apart; each that answers is asked (asking twice costs nothing, see join.h);
 * the first answer that makes a member ends it. What is reported of a failure is the attempt that
 * came furthest. */
#include "discovery/addr.h"
#include "peer/home.h"
#include "peer/join.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIES_MAX 24
#define JOIN_MS 20000

enum step { STEP_CONNECT, STEP_TLS, STEP_HELLO, STEP_ANSWER, STEP_STORE, STEPS };
static const char *const step_text[STEPS] = {"no connection", "no trusted connection", "no hello",
                                             "not taken in", "membership not stored"};

struct join;

struct attempt {
    struct join *j;
    struct sockaddr_storage addr;
    struct tls_conn *c; /* NULL: not begun, or closed */
    bool begun, over;
    enum step step;
    struct key_id inviter;
    struct err err;
};

struct join {
    uv_loop_t loop;
    uv_timer_t stagger, end;
    struct tls_pool *pool;
    struct identity me;
    struct member member;
    struct token token;
    struct attempt a[TRIES_MAX];
    size_t n;
    bool done, closing;
    uint8_t run[16];
    void (*log)(void *ctx, const char *line);
    void *ctx;
};

static void say(struct join *j, const struct attempt *a, const char *what)
{
    char line[800], s[DISCO_ADDR_TEXT] = "";
    if (!j->log) {
        return;
    }
    if (a) {
        addr_text(&a->addr, true, s);
    }
    snprintf(line, sizeof line, "%s%s%s", s, a ? ": " : "", what);
    j->log(j->ctx, line);
}

/* Everybody may answer; whether it is the inviter, the proof in the answer shows. */
static int anybody(void *ctx, const uint8_t id[WIRE_ID])
{
    (void)ctx;
    (void)id;
    return TLS_MEMBER;
}

static int send_frame(struct attempt *a, const Shoal__Frame *f)
{
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    int r = codec_encode(f, 0, &b, &a->err);
    r = r ? r : tls_conn_send(a->c, b.p, b.n, NULL, TLS_CONTROL);
    buf_free(&b);
    return r;
}

static void close_all(struct join *j);

static void give_up(struct attempt *a)
{
    a->over = true;
    if (a->c) {
        tls_conn_close(a->c);
    }
}

/* ---- one attempt ---- */

static void on_open(void *ctx, struct tls_conn *c, const struct tls_peer *p)
{
    struct attempt *a = ctx;
    static uint8_t none[WIRE_SESSION];
    Shoal__Hello h = SHOAL__HELLO__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    a->c = c;
    a->step = STEP_HELLO;
    memcpy(a->inviter.b, p->id, WIRE_ID);
    h.version = WIRE_VERSION;
    h.version_min = WIRE_VERSION_MIN;
    h.node_id.data = a->j->me.id.b;
    h.node_id.len = WIRE_ID;
    h.session.data = a->j->run;
    h.session.len = WIRE_SESSION;
    h.machine.data = none;
    h.machine.len = WIRE_SESSION;
    h.chunk_size = WIRE_CHUNK;
    f.kind_case = SHOAL__FRAME__KIND_HELLO;
    f.hello = &h;
    say(a->j, a, "a node answers; asking to be taken in");
    send_frame(a, &f);
}

static void on_hello(struct attempt *a, const Shoal__Hello *h)
{
    struct join_request q;
    Shoal__Join j = SHOAL__JOIN__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    uint32_t version;
    if (codec_agree(h, NULL, 0, &version, &a->err) ||
        join_ask(&a->j->token, &a->inviter, &a->j->me.id, &q, &a->err)) {
        give_up(a);
        return;
    }
    a->step = STEP_ANSWER;
    j.invite_id.data = q.invite;
    j.invite_id.len = sizeof q.invite;
    j.proof.data = q.proof;
    j.proof.len = sizeof q.proof;
    f.kind_case = SHOAL__FRAME__KIND_JOIN;
    f.join = &j;
    send_frame(a, &f);
}

static void on_reply(struct attempt *a, const Shoal__JoinReply *r)
{
    struct join_answer x;
    memset(&x, 0, sizeof x);
    buf_init(&x.blob, ROSTER_BLOB_MAX);
    x.result = (enum join_result)r->result;
    snprintf(x.text, sizeof x.text, "%.299s",
             r->text && r->text[0] ? r->text : codec_join_text((int)r->result));
    if (x.result == JOINED) {
        a->step = STEP_STORE;
        memcpy(x.proof, r->proof.data, SHA256_SIZE);
        if (buf_add(&x.blob, r->roster->blob.data, r->roster->blob.len)) {
            err_set(&a->err, ERR_NOMEM, "out of memory");
        }
    }
    if (!a->err.code && !join_finish(&a->j->member, &a->j->token, &a->inviter, &x, &a->err)) {
        a->j->done = true;
        say(a->j, a, "joined");
        close_all(a->j);
    }
    join_answer_free(&x);
    give_up(a);
    /* Only the inviter knows more of the invite than that it is none of its own: its other
     * addresses would say the same. */
    if (x.result != JOINED && x.result != JOIN_NO_SUCH_INVITE) {
        close_all(a->j);
    }
}

static void on_frame(void *ctx, struct tls_conn *c, struct frame *f)
{
    struct attempt *a = ctx;
    struct codec_msg m;
    (void)c;
    if (!a->over && !a->j->closing) {
        if (codec_decode(f->body, f->body_n, f->raw_n, &m, &a->err)) {
            give_up(a);
        } else {
            if (m.f->kind_case == SHOAL__FRAME__KIND_HELLO && a->step == STEP_HELLO) {
                on_hello(a, m.f->hello);
            } else if (m.f->kind_case == SHOAL__FRAME__KIND_JOIN_REPLY && a->step == STEP_ANSWER) {
                on_reply(a, m.f->join_reply);
            } else if (m.f->kind_case == SHOAL__FRAME__KIND_GOODBYE) {
                err_set(&a->err, ERR_REFUSED, "the other node says: %s",
                        m.f->goodbye->text[0] ? m.f->goodbye->text
                                              : codec_goodbye_text((int)m.f->goodbye->reason));
                give_up(a);
            }
            codec_free(&m);
        }
    }
    frame_free(f);
}

static void next_attempt(struct join *j);

static void on_close(void *ctx, struct tls_conn *c, const struct tls_close *why)
{
    struct attempt *a = ctx;
    (void)c;
    a->c = NULL;
    a->over = true;
    if (!a->err.code && !a->j->closing) {
        if (a->step == STEP_CONNECT && why->end != TLS_END_CONNECT) {
            a->step = STEP_TLS;
        }
        bool unknown = why->end == TLS_END_REFUSED && why->alert != 44;
        char s[DISCO_ADDR_TEXT];
        const char *text = why->err.msg[0] ? why->err.msg : tls_end_text(why->end);
        addr_text(&a->addr, true, s);
        size_t n = strlen(s); /* both lines that say it begin with the address */
        err_set(&a->err, why->err.code ? why->err.code : ERR_NET, "%s%s",
                text + (!strncmp(text, s, n) && text[n] == ' ' ? n + 1 : 0),
                unknown ? "; it takes nobody in at the moment: has the invite been used or is it "
                          "over, or was it made on another node?"
                        : "");
    }
    if (a->err.code) {
        say(a->j, a, a->err.msg);
    }
    next_attempt(a->j);
}

static const struct tls_conn_cb join_cb = {on_open, on_frame, NULL, NULL, on_close};

/* ---- all of them ---- */

static void on_stagger(uv_timer_t *t)
{
    next_attempt(t->data);
}

static void next_attempt(struct join *j)
{
    size_t open = 0;
    if (j->closing) {
        return;
    }
    for (size_t i = 0; i < j->n; i++) {
        struct attempt *a = &j->a[i];
        if (!a->begun) {
            a->begun = true;
            say(j, a, "connecting");
            if (tls_conn_connect(j->pool, (struct sockaddr *)&a->addr, NULL, &join_cb, a, &a->c,
                                 &a->err)) {
                a->over = true;
                continue;
            }
            uv_timer_start(&j->stagger, on_stagger, MESH_STAGGER_MS, 0);
            return;
        }
        open += !a->over;
    }
    if (!open) {
        close_all(j);
    }
}

static void on_end(uv_timer_t *t)
{
    struct join *j = t->data;
    for (size_t i = 0; i < j->n; i++) {
        if (!j->a[i].over && !j->a[i].err.code) {
            err_set(&j->a[i].err, ERR_TIMEOUT, "no answer in time");
        }
    }
    close_all(j);
}

static void close_all(struct join *j)
{
    if (j->closing) {
        return;
    }
    j->closing = true;
    for (size_t i = 0; i < j->n; i++) {
        if (j->a[i].c) {
            tls_conn_close(j->a[i].c);
        }
    }
    uv_close((uv_handle_t *)&j->stagger, NULL);
    uv_close((uv_handle_t *)&j->end, NULL);
}

static void add_address(struct join *j, const struct addrinfo *ai)
{
    struct sockaddr_storage a;
    if (j->n == TRIES_MAX || !addr_copy(&a, ai->ai_addr)) {
        return;
    }
    for (size_t i = 0; i < j->n; i++) {
        if (addr_same(&j->a[i].addr, &a, true)) {
            return;
        }
    }
    j->a[j->n].j = j;
    j->a[j->n++].addr = a;
}

static int resolve(struct join *j, struct err *e)
{
    struct err last = {0};
    for (size_t i = 0; i < j->token.addrs_n; i++) {
        const struct token_addr *t = &j->token.addrs[i];
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
        char port[8];
        snprintf(port, sizeof port, "%u", t->port);
        int r = getaddrinfo(t->host, port, &hints, &list);
        if (r) {
            err_set(&last, ERR_NOTFOUND, "the name %s is not known here: %s", t->host,
                    gai_strerror(r));
            say(j, NULL, last.msg);
            continue;
        }
        for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
            add_address(j, ai);
        }
        freeaddrinfo(list);
    }
    if (j->n) {
        return 0;
    }
    return err_set(e, ERR_NOTFOUND, "%s",
                   last.code ? last.msg : "the invite names no address: ask for a new one");
}

static int failure(const struct join *j, struct err *e)
{
    const struct attempt *best = NULL;
    for (size_t i = 0; i < j->n; i++) {
        const struct attempt *a = &j->a[i];
        if (a->err.code && (!best || a->step > best->step)) {
            best = a;
        }
    }
    if (!best) {
        return err_set(e, ERR_NET, "none of the invite's addresses answered");
    }
    char s[DISCO_ADDR_TEXT];
    addr_text(&best->addr, true, s);
    if (best->step == STEP_CONNECT) {
        return err_set(e, best->err.code,
                       "not joined: %s: %s%s; does the node that invited run (shoal up), and is "
                       "this machine on its network?",
                       s, best->err.msg, j->n > 1 ? ", nor can the invite's other addresses" : "");
    }
    return err_set(e, best->err.code, "not joined: %s, %s: %s", s, step_text[best->step],
                   best->err.msg);
}

static int run(struct join *j, unsigned timeout_ms, struct err *e)
{
    struct tls_opts t = {0};
    char pem[CRYPTO_PEM_MAX];
    uint8_t cert[CRYPTO_CERT_MAX];
    size_t pem_n;
    int r = crypto_key_pem(j->me.key, pem, &pem_n, e);
    r = r ? r : crypto_certificate(j->me.key, cert, &t.cert_n, e);
    if (r) {
        return r;
    }
    t.key = pem;
    t.key_n = pem_n + 1;
    t.cert = cert;
    t.trusted = anybody;
    t.workers = 1;
    if (uv_loop_init(&j->loop)) {
        return err_set(e, ERR_IO, "cannot make an event loop");
    }
    r = tls_pool_open(&j->loop, &t, &j->pool, e);
    crypto_wipe(pem, sizeof pem);
    if (!r) {
        uv_timer_init(&j->loop, &j->stagger);
        uv_timer_init(&j->loop, &j->end);
        j->stagger.data = j->end.data = j;
        uv_timer_start(&j->end, on_end, timeout_ms ? timeout_ms : JOIN_MS, 0);
        next_attempt(j);
        bool open = true;
        while (open) {
            uv_run(&j->loop, UV_RUN_ONCE);
            open = !j->closing;
            for (size_t i = 0; i < j->n; i++) {
                open |= j->a[i].c != NULL;
            }
        }
        tls_pool_close(j->pool, NULL, NULL);
        uv_run(&j->loop, UV_RUN_DEFAULT);
    }
    uv_loop_close(&j->loop);
    return r || j->done ? r : failure(j, e);
}

int mesh_join(const char *home, const char *text, unsigned timeout_ms,
              void (*log)(void *ctx, const char *line), void *ctx, struct err *e)
{
    struct join *j = calloc(1, sizeof *j);
    if (!j) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    j->log = log;
    j->ctx = ctx;
    int r = token_parse(text, strlen(text), &j->token, e);
    r = r ? r : home_folder(home, "", e);
    r = r ? r : identity_open(home, NULL, &j->me, e);
    r = r ? r : member_open(home, &j->me, &j->member, e);
    r = r ? r : crypto_random(j->run, sizeof j->run, e);
    if (!r && j->member.in_group && memcmp(j->member.group.b, j->token.group, TOKEN_GROUP) != 0) {
        r = err_set(e, ERR_BUSY,
                    "this node already belongs to another shoal: to change, move the folder "
                    "%s/shoal away first",
                    home);
    }
    r = r ? r : resolve(j, e);
    r = r ? r : run(j, timeout_ms, e);
    member_close(&j->member);
    identity_close(&j->me);
    crypto_wipe(&j->token, sizeof j->token);
    free(j);
    return r;
}

/* ---- addresses for a token ---- */

int mesh_token_addresses(struct token *t, const char *host, int port, struct err *e)
{
    uv_interface_address_t *list;
    int n;
    bool any = strcmp(host, "::") == 0, any4 = strcmp(host, "0.0.0.0") == 0;
    if (!any && !any4) {
        return token_add_address(t, host, (uint16_t)port, e);
    }
    if (uv_interface_addresses(&list, &n)) {
        return err_set(e, ERR_IO, "the addresses of this machine cannot be listed");
    }
    int r = 0;
    for (int v6 = 0; v6 < (any ? 2 : 1); v6++) { /* IPv4 first: shorter, and mostly enough */
        for (int i = 0; i < n && !r; i++) {
            char s[TOKEN_HOST_MAX + 1];
            bool is6 = list[i].address.address4.sin_family == AF_INET6;
            if (list[i].is_internal || is6 != (v6 == 1)) {
                continue;
            }
            if (is6 ? IN6_IS_ADDR_LINKLOCAL(&list[i].address.address6.sin6_addr) ||
                          uv_ip6_name(&list[i].address.address6, s, sizeof s)
                    : uv_ip4_name(&list[i].address.address4, s, sizeof s)) {
                continue;
            }
            r = token_add_address(t, s, (uint16_t)port, e);
        }
    }
    uv_free_interface_addresses(list, n);
    r = r == ERR_LIMIT ? 0 : r; /* enough */
    if (!r && !t->addrs_n) {
        r = err_set(e, ERR_OFFLINE,
                    "this machine is on no network, so the invite has no address to name: connect "
                    "it, or name one with --address; to try it on this machine alone, "
                    "--address 127.0.0.1:%d",
                    port);
    }
    return r;
}
