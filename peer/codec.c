/* SPDX-License-Identifier: MIT
 * codec.c: see codec.h. */
#include "peer/codec.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- bounded memory for protobuf-c: blocks that are freed together ---- */

struct codec_block {
    struct codec_block *next;
    size_t used, cap;
    alignas(max_align_t) uint8_t p[];
};

static void *arena_alloc(void *ctx, size_t n)
{
    struct codec_msg *m = ctx;
    if (n > m->max || m->used > m->max - n) {
        m->used = m->max + 1; /* tells a limit from a lack of memory */
        return NULL;
    }
    n = (n + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    struct codec_block *b = m->blocks;
    if (!b || b->cap - b->used < n) {
        size_t cap = n > 4096 ? n : 4096;
        b = malloc(sizeof *b + cap);
        if (!b) {
            return NULL;
        }
        b->cap = cap;
        b->used = 0;
        b->next = m->blocks;
        m->blocks = b;
    }
    void *p = b->p + b->used;
    b->used += n;
    m->used += n;
    return p;
}

static void arena_free(void *ctx, void *p)
{
    (void)ctx;
    (void)p; /* codec_free frees all of it */
}

void codec_free(struct codec_msg *m)
{
    while (m->blocks) {
        struct codec_block *b = m->blocks;
        m->blocks = b->next;
        free(b);
    }
    m->f = NULL;
}

/* ---- checks ---- */

static int bad(struct err *e, const char *message, const char *field)
{
    return err_set(e, ERR_FORMAT, "%s: %s is out of range", message, field);
}

static bool id_ok(ProtobufCBinaryData b, bool may_be_empty)
{
    return b.len == WIRE_ID || (b.len == 0 && may_be_empty);
}

static bool object_ok(const Shoal__ObjectId *o)
{
    return o && o->kind <= WIRE_KIND_MAX && o->layer <= WIRE_LAYER_MAX &&
           o->index <= WIRE_INDEX_MAX;
}

static bool chunks_ok(uint32_t first, uint64_t count)
{
    return count <= WIRE_GET_CHUNKS_MAX && (uint64_t)first + count <= WIRE_CHUNKS_MAX;
}

static int check_hello(const Shoal__Hello *h, struct err *e)
{
    static const char m[] = "Hello";
    if (h->version < 1 || h->version_min > h->version) {
        return bad(e, m, "version");
    }
    if (h->n_required > WIRE_FEATURES_MAX || h->n_optional > WIRE_FEATURES_MAX) {
        return bad(e, m, "the number of features");
    }
    if (!id_ok(h->node_id, false)) {
        return bad(e, m, "node_id");
    }
    if (!id_ok(h->group_id, true) || !id_ok(h->model_root, true)) {
        return bad(e, m, "group_id or model_root");
    }
    if (h->listen_port > 65535) {
        return bad(e, m, "listen_port");
    }
    if (h->session.len != WIRE_SESSION || h->machine.len != WIRE_SESSION) {
        return bad(e, m, "session or machine");
    }
    if (!codec_text_ok(h->software, WIRE_NAME_MAX) || !codec_text_ok(h->name, WIRE_NAME_MAX)) {
        return bad(e, m, "software or name");
    }
    return 0;
}

static int check_roster(const Shoal__Roster *r, struct err *e)
{
    if (r->blob.len < 1 || r->blob.len > WIRE_ROSTER_MAX) {
        return bad(e, "Roster", "the length of blob");
    }
    return 0;
}

static int check_join(const Shoal__Join *j, struct err *e)
{
    if (j->invite_id.len != WIRE_SESSION || !id_ok(j->proof, false)) {
        return bad(e, "Join", "invite_id or proof");
    }
    return 0;
}

static int check_join_reply(const Shoal__JoinReply *j, struct err *e)
{
    if (!codec_text_ok(j->text, WIRE_TEXT_MAX)) {
        return bad(e, "JoinReply", "text");
    }
    if (!id_ok(j->proof, j->result != SHOAL__JOIN_RESULT__JOIN_OK)) {
        return bad(e, "JoinReply", "proof");
    }
    if (j->result == SHOAL__JOIN_RESULT__JOIN_OK && !j->roster) {
        return bad(e, "JoinReply", "roster");
    }
    return j->roster ? check_roster(j->roster, e) : 0;
}

static int check_have(const Shoal__Have *h, struct err *e)
{
    if (h->part >= WIRE_PARTS_MAX || h->n_rows > WIRE_ROWS_MAX) {
        return bad(e, "Have", "part or the number of rows");
    }
    for (size_t i = 0; i < h->n_rows; i++) {
        const Shoal__HaveRow *r = h->rows[i];
        if (r->kind > WIRE_KIND_MAX || r->layer > WIRE_LAYER_MAX || r->bits.len < 1 ||
            r->bits.len > WIRE_ROW_BYTES_MAX ||
            (uint64_t)r->first + 8 * (uint64_t)r->bits.len > (uint64_t)WIRE_INDEX_MAX + 1) {
            return bad(e, "Have", "a row");
        }
    }
    return 0;
}

static int check_spans(Shoal__HaveSpan *const *s, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i]->kind > WIRE_KIND_MAX || s[i]->layer > WIRE_LAYER_MAX || s[i]->count < 1 ||
            (uint64_t)s[i]->first + s[i]->count > (uint64_t)WIRE_INDEX_MAX + 1) {
            return bad(e, "HaveDelta", "a span");
        }
    }
    return 0;
}

static int check_delta(const Shoal__HaveDelta *d, struct err *e)
{
    if (d->seq < 1) {
        return bad(e, "HaveDelta", "seq");
    }
    if (d->n_added > WIRE_SPANS_MAX || d->n_removed > WIRE_SPANS_MAX - d->n_added) {
        return bad(e, "HaveDelta", "the number of spans");
    }
    int r = check_spans(d->added, d->n_added, e);
    return r ? r : check_spans(d->removed, d->n_removed, e);
}

static int check_get(const Shoal__Get *g, struct err *e)
{
    if (!object_ok(g->object)) {
        return bad(e, "Get", "object");
    }
    if (g->chunk_count < 1 || !chunks_ok(g->first_chunk, g->chunk_count)) {
        return bad(e, "Get", "the range of chunks");
    }
    return 0;
}

static int check_digests(const Shoal__Digests *d, struct err *e)
{
    if (d->sha256.len < 1 || d->sha256.len % WIRE_ID ||
        !chunks_ok(d->first_chunk, d->sha256.len / WIRE_ID)) {
        return bad(e, "Digests", "the range of chunks");
    }
    uint64_t chunks = d->object_size / WIRE_CHUNK + (d->object_size % WIRE_CHUNK != 0);
    if (chunks > WIRE_CHUNKS_MAX || d->first_chunk + d->sha256.len / WIRE_ID > chunks) {
        return bad(e, "Digests", "object_size");
    }
    return id_ok(d->object_digest, true) ? 0 : bad(e, "Digests", "object_digest");
}

static int check_bad_chunk(const Shoal__BadChunk *b, struct err *e)
{
    if (!object_ok(b->object) || b->chunk >= WIRE_CHUNKS_MAX) {
        return bad(e, "BadChunk", "object or chunk");
    }
    return id_ok(b->got, false) && id_ok(b->want, false) ? 0 : bad(e, "BadChunk", "a digest");
}

/* Objects of LeaseTake, Offer and Kept. */
static int check_objects(const char *what, Shoal__ObjectId *const *o, size_t n, size_t max,
                         struct err *e)
{
    if (n < 1 || n > max) {
        return bad(e, what, "the number of objects");
    }
    for (size_t i = 0; i < n; i++) {
        if (!object_ok(o[i])) {
            return bad(e, what, "an object");
        }
    }
    return 0;
}

/* One part of a name after the other: none is empty, "." or "..", so that no name leaves its folder
 * whatever a node does with it. */
static bool file_name_ok(const char *s)
{
    if (!s[0] || !codec_text_ok(s, WIRE_FILE_NAME) || strchr(s, '\\')) {
        return false;
    }
    for (;;) {
        size_t n = strcspn(s, "/");
        if (n == 0 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.')) {
            return false;
        }
        if (!s[n]) {
            return true;
        }
        s += n + 1;
    }
}

static int check_file_get(const Shoal__FileGet *g, struct err *e)
{
    if (!id_ok(g->scope, false) || !file_name_ok(g->name)) {
        return bad(e, "FileGet", "scope or name");
    }
    if (g->length < 1 || g->length > WIRE_RAW_MAX || g->offset > WIRE_FILE_MAX) {
        return bad(e, "FileGet", "offset or length");
    }
    return 0;
}

static int check_file_data(const Shoal__FileData *d, uint32_t raw_n, struct err *e)
{
    if (raw_n && d->result != SHOAL__FILE_RESULT__FILE_OK) {
        return bad(e, "FileData", "the length of raw bytes");
    }
    return d->total <= WIRE_FILE_MAX && raw_n <= d->total
               ? 0
               : bad(e, "FileData", "the length of the file");
}

static int check_verify(const Shoal__Verify *v, struct err *e)
{
    if (v->prompt.len > WIRE_PROMPT_MAX ||
        (v->prompt.len && memchr(v->prompt.data, 0, v->prompt.len))) {
        return bad(e, "Verify", "prompt");
    }
    return v->max_new >= 1 && v->max_new <= WIRE_VERIFY_NEW ? 0 : bad(e, "Verify", "max_new");
}

static int check_verify_reply(const Shoal__VerifyReply *v, struct err *e)
{
    bool none = v->result != SHOAL__VERIFY_RESULT__VERIFY_OK;
    if (!codec_text_ok(v->text, WIRE_TEXT_MAX)) {
        return bad(e, "VerifyReply", "text");
    }
    if (!id_ok(v->receipt, none) || !id_ok(v->model_root, none)) {
        return bad(e, "VerifyReply", "receipt or model_root");
    }
    return v->n_ids <= WIRE_VERIFY_NEW ? 0 : bad(e, "VerifyReply", "the number of ids");
}

static int check_statements(const Shoal__Statements *x, struct err *e)
{
    return x->blob.len <= WIRE_STATEMENT_MAX ? 0
                                             : bad(e, "Statements", "the length of the statement");
}

static int check_statements_ask(const Shoal__StatementsAsk *a, struct err *e)
{
    bool ok = a->n_seen <= WIRE_SIGNERS_MAX;
    for (size_t i = 0; ok && i < a->n_seen; i++) {
        ok = id_ok(a->seen[i]->signer, false);
    }
    return ok ? 0 : bad(e, "StatementsAsk", "a signer, or the number of signers");
}

/* Which messages have raw bytes. A message of an unknown kind may. */
static bool may_carry_raw(Shoal__Frame__KindCase k)
{
    return k == SHOAL__FRAME__KIND_DATA || k == SHOAL__FRAME__KIND_FILE_DATA ||
           k == SHOAL__FRAME__KIND__NOT_SET;
}

int codec_check(const Shoal__Frame *f, uint32_t raw_n, struct err *e)
{
    if (raw_n > WIRE_RAW_MAX) {
        return bad(e, codec_kind_name(f->kind_case), "the length of raw bytes");
    }
    if (raw_n && !may_carry_raw(f->kind_case)) {
        return err_set(e, ERR_FORMAT, "%s came with raw bytes, which only Data and FileData have",
                       codec_kind_name(f->kind_case));
    }
    switch (f->kind_case) {
    case SHOAL__FRAME__KIND_HELLO:
        return check_hello(f->hello, e);
    case SHOAL__FRAME__KIND_GOODBYE:
        return codec_text_ok(f->goodbye->text, WIRE_TEXT_MAX) ? 0 : bad(e, "Goodbye", "text");
    case SHOAL__FRAME__KIND_ROSTER:
        return check_roster(f->roster, e);
    case SHOAL__FRAME__KIND_JOIN:
        return check_join(f->join, e);
    case SHOAL__FRAME__KIND_JOIN_REPLY:
        return check_join_reply(f->join_reply, e);
    case SHOAL__FRAME__KIND_HAVE:
        return check_have(f->have, e);
    case SHOAL__FRAME__KIND_HAVE_DELTA:
        return check_delta(f->have_delta, e);
    case SHOAL__FRAME__KIND_GET:
        return check_get(f->get, e);
    case SHOAL__FRAME__KIND_DATA:
        if (!raw_n) {
            return bad(e, "Data", "the length of raw bytes");
        }
        return f->data->chunk < WIRE_CHUNKS_MAX ? 0 : bad(e, "Data", "chunk");
    case SHOAL__FRAME__KIND_DIGESTS:
        return check_digests(f->digests, e);
    case SHOAL__FRAME__KIND_CREDIT:
        return f->credit->bytes >= 1 && f->credit->bytes <= WIRE_CREDIT_MAX
                   ? 0
                   : bad(e, "Credit", "bytes");
    case SHOAL__FRAME__KIND_REFUSE:
        return codec_text_ok(f->refuse->text, WIRE_TEXT_MAX) ? 0 : bad(e, "Refuse", "text");
    case SHOAL__FRAME__KIND_BAD_CHUNK:
        return check_bad_chunk(f->bad_chunk, e);
    case SHOAL__FRAME__KIND_ORIGIN_STATE:
        return f->origin_state->busy_ms <= WIRE_BUSY_MS_MAX ? 0 : bad(e, "OriginState", "busy_ms");
    case SHOAL__FRAME__KIND_LEASE_TAKE:
        return f->lease_take->n_chunks && f->lease_take->n_chunks != f->lease_take->n_objects
                   ? bad(e, "LeaseTake", "the number of chunk counts")
                   : check_objects("LeaseTake", f->lease_take->objects, f->lease_take->n_objects,
                                   WIRE_TAKE_MAX, e);
    case SHOAL__FRAME__KIND_PLACE:
        return f->place->budget <= WIRE_BUDGET_MAX && f->place->used <= WIRE_BUDGET_MAX
                   ? 0
                   : bad(e, "Place", "budget or used");
    case SHOAL__FRAME__KIND_OFFER:
        return check_objects("Offer", f->offer->objects, f->offer->n_objects, WIRE_OFFER_MAX, e);
    case SHOAL__FRAME__KIND_KEPT:
        return check_objects("Kept", f->kept->objects, f->kept->n_objects, WIRE_OFFER_MAX, e);
    case SHOAL__FRAME__KIND_FILE_GET:
        return check_file_get(f->file_get, e);
    case SHOAL__FRAME__KIND_FILE_DATA:
        return check_file_data(f->file_data, raw_n, e);
    case SHOAL__FRAME__KIND_KEY_REPLY:
        return codec_text_ok(f->key_reply->text, WIRE_TEXT_MAX) &&
                       f->key_reply->sealed.len <= WIRE_SEALED_MAX
                   ? 0
                   : bad(e, "KeyReply", "sealed or text");
    case SHOAL__FRAME__KIND_VERIFY:
        return check_verify(f->verify, e);
    case SHOAL__FRAME__KIND_VERIFY_REPLY:
        return check_verify_reply(f->verify_reply, e);
    case SHOAL__FRAME__KIND_STATEMENTS:
        return check_statements(f->statements, e);
    case SHOAL__FRAME__KIND_STATEMENTS_ASK:
        return check_statements_ask(f->statements_ask, e);
    default:
        return 0; /* Ping, Pong, HaveAsk, Cancel, KeyAsk, Warm: any number will do; unknown kinds
                     are ignored */
    }
}

/* ---- both directions ---- */

/* The library keeps unknown fields to write them again. Ignored means ignored: they go, here and in
 * the messages within (the schema nests three deep, so this recursion is short). */
static void forget_unknown(ProtobufCMessage *m)
{
    m->n_unknown_fields = 0;
    m->unknown_fields = NULL;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *d = &m->descriptor->fields[i];
        uint8_t *at = (uint8_t *)m + d->offset, *q = (uint8_t *)m + d->quantifier_offset;
        if (d->type != PROTOBUF_C_TYPE_MESSAGE) {
            continue;
        }
        if (d->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t n = *(size_t *)(void *)q;
            ProtobufCMessage **list = *(ProtobufCMessage ***)(void *)at;
            for (size_t k = 0; k < n; k++) {
                forget_unknown(list[k]);
            }
        } else if (!(d->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) || *(uint32_t *)(void *)q == d->id) {
            ProtobufCMessage *one = *(ProtobufCMessage **)(void *)at;
            if (one) {
                forget_unknown(one);
            }
        }
    }
}

int codec_decode(const uint8_t *body, size_t n, uint32_t raw_n, struct codec_msg *m, struct err *e)
{
    memset(m, 0, sizeof *m);
    if (n < 1 || n > WIRE_BODY_MAX) {
        return err_set(e, ERR_FORMAT, "a message of %zu bytes is out of range", n);
    }
    m->max = WIRE_DECODE_BASE + WIRE_DECODE_FACTOR * n;
    ProtobufCAllocator a = {.alloc = arena_alloc, .free = arena_free, .allocator_data = m};
    Shoal__Frame *f = shoal__frame__unpack(&a, n, body);
    int r;
    if (!f) {
        r = m->used > m->max
                ? err_set(e, ERR_LIMIT, "a message of %zu bytes unpacks to more than is allowed", n)
                : err_set(e, ERR_FORMAT, "a message of %zu bytes cannot be read", n);
    } else {
        forget_unknown(&f->base);
        r = codec_check(f, raw_n, e);
    }
    if (r) {
        codec_free(m);
        return r;
    }
    m->f = f;
    return 0;
}

int codec_encode(const Shoal__Frame *f, uint32_t raw_n, struct buf *out, struct err *e)
{
    if (f->kind_case == SHOAL__FRAME__KIND__NOT_SET) {
        return err_set(e, ERR_ARG, "a frame without a message cannot be sent");
    }
    if (codec_check(f, raw_n, e)) {
        err_prefix(e, "cannot be sent");
        return e ? (e->code = ERR_ARG) : ERR_ARG;
    }
    size_t n = shoal__frame__get_packed_size(f);
    if (n > WIRE_BODY_MAX) {
        return err_set(e, ERR_ARG, "%s of %zu bytes is too long to be sent",
                       codec_kind_name(f->kind_case), n);
    }
    int r = buf_reserve(out, n);
    if (r) {
        return err_set(e, r, "%s: %s", codec_kind_name(f->kind_case), err_text(r));
    }
    shoal__frame__pack(f, (uint8_t *)out->p + out->n);
    out->n += n;
    return 0;
}

int codec_agree(const Shoal__Hello *h, const uint32_t *known, size_t n, uint32_t *version,
                struct err *e)
{
    uint32_t low = h->version_min ? h->version_min : 1;
    if (h->version < WIRE_VERSION_MIN) {
        return err_set(e, ERR_UNSUPPORTED,
                       "one side speaks protocol version %u, the other needs at least %u: update "
                       "the older one",
                       h->version, WIRE_VERSION_MIN);
    }
    if (low > WIRE_VERSION) {
        return err_set(e, ERR_UNSUPPORTED,
                       "one side speaks protocol version %u, the other needs at least %u: update "
                       "the older one",
                       WIRE_VERSION, low);
    }
    for (size_t i = 0; i < h->n_required; i++) {
        size_t k = 0;
        while (k < n && known[k] != h->required[i]) {
            k++;
        }
        if (k == n) {
            return err_set(
                e, ERR_UNSUPPORTED,
                "one side requires feature %u, which the other does not know: update the "
                "older one",
                h->required[i]);
        }
    }
    if (h->chunk_size != WIRE_CHUNK) {
        return err_set(e, ERR_UNSUPPORTED, "one side has chunks of %u bytes, the other of %u",
                       h->chunk_size, WIRE_CHUNK);
    }
    *version = h->version < WIRE_VERSION ? h->version : WIRE_VERSION;
    return 0;
}
