/* SPDX-License-Identifier: MIT
 * tls_engine.c: one connection on its worker: handshake, records, frames. It sees no socket: bytes
 * come from and go to lists of blocks. See tls_internal.h for who owns what. */
#include "peer/tls_internal.h"

#include "proto/base/clock.h"

#include <mbedtls/error.h>
#include <mbedtls/ssl_ciphersuites.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MBEDTLS_VERSION_MAJOR >= 3
#define SSL_IN_MSG(s) ((s)->MBEDTLS_PRIVATE(in_msg))
#else
#define SSL_IN_MSG(s) ((s)->in_msg)
#endif

/* ---- bytes in and out ---- */

static int bio_recv(void *ctx, unsigned char *p, size_t n)
{
    struct tls_engine *en = &((struct tls_conn *)ctx)->en;
    struct tls_block *b = en->in.head;
    if (!b) {
        return en->eof ? 0 : MBEDTLS_ERR_SSL_WANT_READ;
    }
    size_t k = b->n - b->off < n ? b->n - b->off : n;
    memcpy(p, b->p + b->off, k);
    for (size_t i = 0; i < k && en->first_n < sizeof en->first; i++) {
        en->first[en->first_n++] = p[i];
    }
    for (size_t i = 0; i < k && !en->open; i++) {
        memmove(en->last, en->last + 1, sizeof en->last - 1);
        en->last[sizeof en->last - 1] = p[i];
    }
    b->off += k;
    if (b->off == b->n) {
        en->in_used += b->cap;
        en->in.head = b->next;
        if (!b->next) {
            en->in.tail = NULL;
        }
        free(b);
    }
    return (int)k;
}

/* Takes everything: the callers look at the room before they make a record. */
static int bio_send(void *ctx, const unsigned char *p, size_t n)
{
    struct tls_engine *en = &((struct tls_conn *)ctx)->en;
    size_t done = 0;
    while (done < n) {
        struct tls_block *b = en->out.tail;
        if (!b || b->n == b->cap) {
            b = tls_block_new(n - done <= 2048 ? 4096 : TLS_BLOCK);
            if (!b) {
                return MBEDTLS_ERR_SSL_ALLOC_FAILED;
            }
            tls_blocks_add(&en->out, b);
            en->out_new += b->cap;
        }
        size_t k = b->cap - b->n < n - done ? b->cap - b->n : n - done;
        memcpy(b->p + b->n, p + done, k);
        b->n += k;
        done += k;
    }
    return (int)n;
}

/* ---- who is it ---- */

static bool welcome(const struct tls_engine *en)
{
    return !en->wrong_id && (en->trust == TLS_MEMBER || en->trust == TLS_GUEST);
}

/* A TLS 1.3 server of the library sends its refusal under keys that the client has left behind: the
 * client sees damage instead of a reason. So there the handshake is finished and refused right
 * after, in shake(), before the connection counts as open: then the alert can be read. */
static bool deferred(const struct tls_conn *c)
{
#if MBEDTLS_VERSION_MAJOR >= 3
    return c->server && mbedtls_ssl_get_version_number(&c->en.ssl) > MBEDTLS_SSL_VERSION_TLS1_2;
#else
    return false;
#endif
}

/* The library calls this for each certificate of the chain, the peer's own (depth 0) last. Only
 * the key decides; what the library found wrong with names, dates and issuers is not looked at. */
static int verify(void *ctx, mbedtls_x509_crt *crt, int depth, uint32_t *flags)
{
    struct tls_conn *c = ctx;
    struct tls_engine *en = &c->en;
    if (depth > 0) {
        *flags = MBEDTLS_X509_BADCERT_NOT_TRUSTED;
        return 0;
    }
    sha256(crt->pk_raw.p, crt->pk_raw.len, en->peer.id);
    memcpy(en->why.id, en->peer.id, WIRE_ID);
    en->why.has_id = true;
    if (crt->pk_raw.len > sizeof en->peer.key) { /* the point is the end of a P-256 key's DER */
        memcpy(en->peer.key, crt->pk_raw.p + crt->pk_raw.len - sizeof en->peer.key,
               sizeof en->peer.key);
    }
    en->trust = TLS_STRANGER;
    if (mbedtls_pk_can_do(&crt->pk, MBEDTLS_PK_ECDSA) && mbedtls_pk_get_bitlen(&crt->pk) == 256) {
        en->trust = c->trusted(c->trusted_ctx, en->peer.id);
    }
    en->wrong_id = c->has_expect && memcmp(c->expect, en->peer.id, WIRE_ID) != 0;
    if (welcome(en) || deferred(c)) {
        *flags = 0;
    } else {
        *flags = en->trust == TLS_REMOVED && !en->wrong_id ? MBEDTLS_X509_BADCERT_REVOKED
                                                           : MBEDTLS_X509_BADCERT_NOT_TRUSTED;
    }
    return 0;
}

static void short_id(const uint8_t id[WIRE_ID], char out[17])
{
    for (int i = 0; i < 8; i++) {
        snprintf(out + 2 * i, 3, "%02x", id[i]);
    }
}

/* ---- the end ---- */

static void end(struct tls_engine *en, enum tls_end why, int code, const char *text)
{
    if (!en->ended) {
        en->ended = true;
        en->why.end = why;
        err_set(&en->why.err, code, "%s", text);
    }
}

static bool looks_like_tls(const struct tls_engine *en)
{
    return en->first_n == 0 ||
           ((en->first[0] >= 20 && en->first[0] <= 23) && (en->first_n < 2 || en->first[1] == 3));
}

static void end_refused_here(struct tls_engine *en)
{
    char id[17], text[200];
    short_id(en->peer.id, id);
    if (en->wrong_id) {
        snprintf(text, sizeof text, "another node (%s...) answers than the one expected here", id);
        end(en, TLS_END_OTHER_ID, ERR_NET, text);
    } else if (en->trust == TLS_REMOVED) {
        snprintf(text, sizeof text, "node %s... was removed from this shoal and was refused", id);
        end(en, TLS_END_REMOVED, ERR_NET, text);
    } else {
        snprintf(text, sizeof text, "node %s... is not a member of this shoal and was refused", id);
        end(en, TLS_END_STRANGER, ERR_NET, text);
    }
}

static void end_not_tls(struct tls_engine *en)
{
    size_t letters = 0;
    while (letters < en->first_n && isupper(en->first[letters])) {
        letters++;
    }
    end(en, TLS_END_NOT_TLS, ERR_NET,
        letters >= 3 && letters < en->first_n && en->first[letters] == ' '
            ? "the other side speaks plain HTTP, not TLS, and was refused"
            : "the other side does not speak TLS and was refused");
}

/* A TLS 1.3 client of the library that refuses the server says so in the clear, where the server's
 * library expects an encrypted record and sees damage. Nobody vouches for these bytes: they serve
 * to explain an end that is certain anyway. Returns the alert or -1. */
static int plain_alert(const struct tls_engine *en)
{
    static const uint8_t head[] = {21, 3, 3, 0, 2, MBEDTLS_SSL_ALERT_LEVEL_FATAL};
    return memcmp(en->last, head, sizeof head) == 0 ? en->last[sizeof head] : -1;
}

/* The library gave up with `r`. */
static void end_by(struct tls_conn *c, int r)
{
    struct tls_engine *en = &c->en;
    char text[300], lib[128];
    int plain = en->open || en->why.has_id ? -1 : plain_alert(en);
    if (r == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE || plain >= 0) {
        int alert = r == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE ? SSL_IN_MSG(&en->ssl)[1] : plain;
        en->why.alert = alert;
        end(en, alert == 70 || alert == 40 || alert == 71 ? TLS_END_NO_COMMON : TLS_END_REFUSED,
            ERR_NET, tls_alert_text(alert));
        return;
    }
    if (r == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY || r == MBEDTLS_ERR_SSL_CONN_EOF || r == 0) {
        if (!en->open) {
            end(en, TLS_END_LOST, ERR_NET, "the peer closed the connection during the handshake");
        } else if (!frame_reader_idle(&en->reader)) {
            end(en, TLS_END_LOST, ERR_NET, "the connection ended in the middle of a frame");
        } else if (r == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY) {
            end(en, TLS_END_PEER, ERR_OK, "the peer closed the connection");
        } else {
            end(en, TLS_END_LOST, ERR_NET, "the connection ended without a goodbye");
        }
        return;
    }
    if (r == MBEDTLS_ERR_SSL_ALLOC_FAILED) {
        end(en, TLS_END_INTERNAL, ERR_NOMEM, "no memory for the connection");
        return;
    }
    if (!en->open && !looks_like_tls(en)) {
        end_not_tls(en);
        return;
    }
    if (!en->open && r == MBEDTLS_ERR_X509_CERT_VERIFY_FAILED) {
        end_refused_here(en);
        return;
    }
    mbedtls_strerror(r, lib, sizeof lib);
    switch (en->open ? 0 : r) {
#if MBEDTLS_VERSION_MAJOR >= 3
    case MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE:
#else
    case MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE:
    case MBEDTLS_ERR_SSL_BAD_HS_CERTIFICATE:
#endif
        end(en, TLS_END_NO_CERT, ERR_NET, "the peer showed no usable key and was refused");
        return;
#if MBEDTLS_VERSION_MAJOR >= 3
    case MBEDTLS_ERR_SSL_HANDSHAKE_FAILURE:
    case MBEDTLS_ERR_SSL_BAD_PROTOCOL_VERSION:
#else
    case MBEDTLS_ERR_SSL_NO_CIPHER_CHOSEN:
    case MBEDTLS_ERR_SSL_NO_USABLE_CIPHERSUITE:
    case MBEDTLS_ERR_SSL_BAD_HS_PROTOCOL_VERSION:
#endif
        snprintf(text, sizeof text,
                 "no TLS version or cipher suite in common: TLS 1.2 or 1.3 with ECDHE-ECDSA and "
                 "AES-GCM or ChaCha20-Poly1305 is needed (%s)",
                 lib);
        end(en, TLS_END_NO_COMMON, ERR_NET, text);
        return;
    default:
        snprintf(text, sizeof text, "%s: %s (-0x%04x)",
                 en->open ? "the peer sent a damaged record" : "the handshake failed", lib,
                 (unsigned)-r);
        end(en, TLS_END_PROTOCOL, ERR_NET, text);
    }
}

/* ---- steps ---- */

static int set_up(struct tls_conn *c)
{
    struct tls_engine *en = &c->en;
    struct tls_worker *w = c->worker;
    mbedtls_ssl_init(&en->ssl);
    en->set_up = true;
    en->why.alert = -1;
    en->began_ns = clock_ns();
    frame_reader_init(&en->reader, WIRE_BODY_GUEST, 0);
    en->stage = malloc(TLS_RECORD);
    int r = mbedtls_ssl_setup(&en->ssl, c->server ? &w->server : &w->client);
    if (!en->stage || r) {
        end(en, TLS_END_INTERNAL, ERR_NOMEM, "no memory for the connection");
        return -1;
    }
    mbedtls_ssl_set_bio(&en->ssl, c, bio_send, bio_recv, NULL);
    mbedtls_ssl_set_verify(&en->ssl, verify, c);
    if (!c->server) {
        /* No name to check and none to show: late 3.6 releases want that said. */
        r = mbedtls_ssl_set_hostname(&en->ssl, NULL);
    }
    if (r) {
        end_by(c, r);
    }
    return r;
}

static void shake(struct tls_conn *c)
{
    struct tls_engine *en = &c->en;
    int r = mbedtls_ssl_handshake(&en->ssl);
    if (r == MBEDTLS_ERR_SSL_WANT_READ || r == MBEDTLS_ERR_SSL_WANT_WRITE) {
        return;
    }
    if (r) {
        end_by(c, r);
        return;
    }
    if (!en->why.has_id || mbedtls_ssl_get_verify_result(&en->ssl)) {
        end(en, TLS_END_NO_CERT, ERR_NET, "the peer showed no key and was refused");
        return;
    }
    if (!welcome(en)) {
        mbedtls_ssl_send_alert_message(&en->ssl, MBEDTLS_SSL_ALERT_LEVEL_FATAL,
                                       en->trust == TLS_REMOVED ? MBEDTLS_SSL_ALERT_MSG_CERT_REVOKED
                                                                : MBEDTLS_SSL_ALERT_MSG_UNKNOWN_CA);
        end_refused_here(en);
        return;
    }
    en->open = true;
    en->peer.trust = (enum tls_trust)en->trust;
    en->peer.handshake_ms = (unsigned)((clock_ns() - en->began_ns) / 1000000);
    snprintf(en->peer.version, sizeof en->peer.version, "%s", mbedtls_ssl_get_version(&en->ssl));
    snprintf(en->peer.suite, sizeof en->peer.suite, "%s", mbedtls_ssl_get_ciphersuite(&en->ssl));
    if (en->trust == TLS_MEMBER) {
        en->reader.body_max = WIRE_BODY_MAX;
        en->reader.raw_max = WIRE_RAW_MAX;
    }
}

/* Returns true when it stopped for fairness, not for lack of bytes or room. */
static bool receive(struct tls_conn *c, size_t room, size_t frames_room)
{
    struct tls_engine *en = &c->en;
    size_t got = 0;
    while (got < TLS_QUANTUM) {
        if (en->frames_bytes >= room || en->frames_n >= frames_room) {
            en->rx_stalled = true; /* the loop wakes us after delivering */
            return false;
        }
        size_t n = 0;
        uint8_t *p = frame_reader_want(&en->reader, &n, &en->why.err);
        if (!p) {
            if (!en->ended) {
                en->ended = true;
                en->why.end = en->why.err.code == ERR_NOMEM ? TLS_END_INTERNAL : TLS_END_PROTOCOL;
                mbedtls_ssl_send_alert_message(&en->ssl, MBEDTLS_SSL_ALERT_LEVEL_FATAL,
                                               MBEDTLS_SSL_ALERT_MSG_DECODE_ERROR);
            }
            return false;
        }
        int r = mbedtls_ssl_read(&en->ssl, p, n);
#ifdef MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET
        if (r == MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET) {
            continue;
        }
#endif
        if (r == MBEDTLS_ERR_SSL_WANT_READ || r == MBEDTLS_ERR_SSL_WANT_WRITE) {
            return false;
        }
        if (r <= 0) {
            end_by(c, r);
            return false;
        }
        got += (size_t)r;
        en->plain_in += (uint64_t)r;
        struct frame *f = frame_reader_got(&en->reader, (size_t)r);
        if (f) {
            f->next = NULL;
            if (en->frames.tail) {
                en->frames.tail->next = f;
            } else {
                en->frames.head = f;
            }
            en->frames.tail = f;
            en->frames_n++;
            en->frames_bytes += f->body_n + f->raw_n + sizeof *f;
        }
    }
    return true;
}

/* The next frame by priority; the loop may be adding some. */
static struct tls_out *next_out(struct tls_conn *c)
{
    struct tls_out *o = NULL;
    uv_mutex_lock(&c->worker->mu);
    for (int i = 0; i < TLS_PRIORITIES && !o; i++) {
        struct tls_outs *l = &c->sh.tx[i];
        o = l->head;
        if (o) {
            l->head = o->next;
            if (!l->head) {
                l->tail = NULL;
            }
            o->next = NULL;
        }
    }
    uv_mutex_unlock(&c->worker->mu);
    return o;
}

/* One record of the present frame. Its first one takes head, body and what fits of raw together;
 * the others are encrypted straight from the owner's bytes. */
static int send_record(struct tls_engine *en)
{
    struct tls_out *o = en->cur;
    const uint8_t *p = NULL;
    size_t n, total = o->head_n + o->raw.n;
    if (o->sent < o->head_n) {
        size_t h = o->head_n - o->sent < TLS_RECORD ? o->head_n - o->sent : TLS_RECORD;
        size_t raw = o->raw.n < TLS_RECORD - h ? o->raw.n : TLS_RECORD - h;
        if (raw) {
            memcpy(en->stage, o->head + o->sent, h);
            memcpy(en->stage + h, o->raw.p, raw);
            p = en->stage;
        } else {
            p = o->head + o->sent;
        }
        n = h + raw;
    } else {
        p = o->raw.p + (o->sent - o->head_n);
        n = total - o->sent < TLS_RECORD ? total - o->sent : TLS_RECORD;
    }
    int r = mbedtls_ssl_write(&en->ssl, p, n);
    if (r > 0) {
        o->sent += (size_t)r;
        en->plain_out += (uint64_t)r;
    }
    return r;
}

static bool transmit(struct tls_conn *c, size_t room)
{
    struct tls_engine *en = &c->en;
    size_t put = 0;
    while (put < TLS_QUANTUM) {
        if (en->out_new >= room) {
            en->tx_stalled = true; /* the loop wakes us after writing */
            return false;
        }
        if (!en->cur && !(en->cur = next_out(c))) {
            if (en->closing && !en->said_close) {
                en->said_close = true;
                mbedtls_ssl_close_notify(&en->ssl);
                end(en, TLS_END_LOCAL, ERR_OK, "closed here");
            }
            return false;
        }
        int r = send_record(en);
        if (r < 0) {
            end_by(c, r);
            return false;
        }
        put += (size_t)r;
        struct tls_out *o = en->cur;
        if (o->sent == o->head_n + o->raw.n) {
            en->done_bytes += o->sent;
            if (en->done.tail) {
                en->done.tail->next = o;
            } else {
                en->done.head = o;
            }
            en->done.tail = o;
            en->cur = NULL;
        }
    }
    return true;
}

bool tls_engine_step(struct tls_conn *c, size_t out_room, size_t rx_room, size_t rx_frames_room)
{
    struct tls_engine *en = &c->en;
    bool more = false;
    en->rx_stalled = en->tx_stalled = false;
    if (en->ended || (!en->set_up && set_up(c))) {
        return false;
    }
    if (!en->open) {
        if (en->closing) {
            end(en, TLS_END_LOCAL, ERR_OK, "closed here");
            return false;
        }
        shake(c);
    }
    if (en->open && !en->ended) {
        more = transmit(c, out_room);
    }
    if (en->open && !en->ended) {
        more |= receive(c, rx_room, rx_frames_room);
    }
    if (en->ended && en->open && !en->said_close && en->why.end == TLS_END_PEER) {
        en->said_close = true;
        mbedtls_ssl_close_notify(&en->ssl);
    }
    return more && !en->ended;
}

void tls_engine_free(struct tls_engine *en)
{
    if (en->set_up) {
        mbedtls_ssl_free(&en->ssl);
        frame_reader_free(&en->reader);
        free(en->stage);
        en->stage = NULL;
        en->set_up = false;
    }
    tls_blocks_free(&en->in);
    tls_blocks_free(&en->out);
    tls_frames_free(&en->frames);
    en->ended = true;
}
