/* SPDX-License-Identifier: MIT
 * mesh_statement.c: signed statements about digests between members (mesh_words in mesh.h). See
 * mesh_int.h.
 *
 * Each end asks when objects may flow, and once a minute: "of whom do I have how much". One
 * question, one answer with one statement at most; the next question is due when what came has been
 * kept. A new own statement goes to all at once. Statements of others are handed on, so a member
 * that is away still has its say; whose they are says the signature, and only members are heard. */
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define ASK_NS (60000 * MS_NS)
#define OPEN_NS (20000 * MS_NS) /* an answer that has not come by then is not waited for */
#define CHECKS_S 5              /* statements taken of one peer in a second, on average ... */
#define CHECKS_BURST 100        /* ... and at once */

static int send_blob(struct plink *l, const struct buf *b, bool more)
{
    Shoal__Statements x = SHOAL__STATEMENTS__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.blob.data = (uint8_t *)b->p;
    x.blob.len = b->n;
    x.more = more;
    f.kind_case = SHOAL__FRAME__KIND_STATEMENTS;
    f.statements = &x;
    return link_send(l, &f, TLS_BACKGROUND);
}

static bool takes_part(const struct plink *l)
{
    return l->state == LINK_UP && l->words && l->model_same && l->m->has_words;
}

static void ask(struct plink *l, uint64_t now)
{
    struct mesh *m = l->m;
    struct mesh_seen v[WIRE_SIGNERS_MAX];
    Shoal__StatementsSeen s[WIRE_SIGNERS_MAX], *p[WIRE_SIGNERS_MAX];
    Shoal__StatementsAsk a = SHOAL__STATEMENTS_ASK__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    size_t n = m->words.seen(m->words.ctx, v, WIRE_SIGNERS_MAX - LINK_PASSED_MAX);
    for (size_t i = 0; i < l->n_passed; i++) {
        v[n++] = (struct mesh_seen){.signer = l->passed[i], .seq = UINT64_MAX};
    }
    for (size_t i = 0; i < n; i++) {
        shoal__statements_seen__init(&s[i]);
        s[i].signer.data = v[i].signer.b;
        s[i].signer.len = SHA256_SIZE;
        s[i].seq = v[i].seq;
        p[i] = &s[i];
    }
    a.n_seen = n;
    a.seen = p;
    f.kind_case = SHOAL__FRAME__KIND_STATEMENTS_ASK;
    f.statements_ask = &a;
    l->words_more = false;
    l->words_open = !link_send(l, &f, TLS_CONTROL);
    l->words_at = now;
}

void mesh_words_up(struct plink *l)
{
    l->words_open = l->words_more = false;
    l->n_passed = 0;
    if (takes_part(l)) {
        ask(l, clock_ns());
    }
}

void mesh_words_tick(struct mesh *m, uint64_t now)
{
    for (struct plink *l = m->links; l && m->has_words; l = l->next) {
        bool due = now - l->words_at >= ASK_NS;
        if (l->words_open && now - l->words_at >= OPEN_NS) {
            l->words_open = false;
        }
        if (takes_part(l) && !l->words_open && due) {
            l->n_passed = 0;
            ask(l, now);
        }
    }
}

void mesh_on_statements_ask(struct plink *l, const Shoal__StatementsAsk *a)
{
    struct mesh *m = l->m;
    struct mesh_seen v[WIRE_SIGNERS_MAX];
    struct buf b;
    if (!takes_part(l)) {
        return;
    }
    buf_init(&b, WIRE_STATEMENT_MAX);
    size_t n = m->words.seen(m->words.ctx, v, WIRE_SIGNERS_MAX);
    bool found = false, more = false;
    for (size_t i = 0; i < n && !more; i++) {
        uint64_t from = 0, got;
        for (size_t k = 0; k < a->n_seen; k++) {
            if (memcmp(a->seen[k]->signer.data, v[i].signer.b, SHA256_SIZE) == 0) {
                from = a->seen[k]->seq;
            }
        }
        /* who left the shoal is not spoken for */
        bool heard = v[i].seq != UINT64_MAX && v[i].seq > from &&
                     roster_find(&m->member.roster, &v[i].signer);
        if (heard && found) {
            more = true;
        } else if (heard) {
            found = m->words.next(m->words.ctx, v[i].signer.b, from, &b, &got, &more);
        }
    }
    if (send_blob(l, &b, more)) {
        mesh_log_once(m, "peer %s: a statement could not be sent to it", l->node);
    }
    buf_free(&b);
}

/* May one more statement be taken of this peer? Its signature is work for somebody. */
static bool budget(struct plink *l, uint64_t now)
{
    uint64_t add = (now - l->words_checked_at) * CHECKS_S / (1000 * MS_NS);
    if (!l->words_checked_at || add) {
        l->words_checks = !l->words_checked_at || l->words_checks + add > CHECKS_BURST
                              ? CHECKS_BURST
                              : l->words_checks + (unsigned)add;
        l->words_checked_at = now;
    }
    if (!l->words_checks) {
        return false;
    }
    l->words_checks--;
    return true;
}

void mesh_on_statements(struct plink *l, const Shoal__Statements *x)
{
    struct mesh *m = l->m;
    struct statement s;
    struct key_id signer;
    struct err e = {0};
    if (!takes_part(l)) {
        return;
    }
    l->words_more |= x->more;
    l->words_open = false;
    if (!x->blob.len) {
        return;
    }
    if (statement_parse(x->blob.data, x->blob.len, &s, &e) ||
        memcmp(s.root, m->o.model_root, SHA256_SIZE) != 0) {
        link_broke(l, e.code ? e.msg : "a statement about another model");
        return;
    }
    crypto_key_id(s.pub, &signer);
    bool member = roster_find(&m->member.roster, &signer) != NULL;
    if (!member && l->n_passed < LINK_PASSED_MAX) {
        l->passed[l->n_passed++] = signer;
    }
    if (!member || m->words.known(m->words.ctx, signer.b, s.seq)) {
        if (l->words_more) {
            ask(l, clock_ns());
        }
        return;
    }
    if (!budget(l, clock_ns())) {
        l->words_more = false; /* at the next minute's question */
        return;
    }
    m->words.take(m->words.ctx, l->inst.id.b, x->blob.data, x->blob.len);
}

/* ---- from other threads ---- */

struct words_note {
    struct note n;
    struct buf blob;
    uint8_t id[SHA256_SIZE];
    bool on;
};

static void note_taken(struct mesh *m, struct note *n)
{
    uint64_t now = clock_ns();
    for (struct plink *l = m->links; l; l = l->next) {
        if (takes_part(l) && l->words_more && !l->words_open) {
            ask(l, now);
        }
    }
    free(n);
}

void mesh_words_taken(struct mesh *m)
{
    struct words_note *x = calloc(1, sizeof *x);
    if (x) {
        x->n.run = note_taken;
        mesh_post(m, &x->n);
    }
}

static void note_tell(struct mesh *m, struct note *n)
{
    struct words_note *x = (struct words_note *)n;
    for (struct plink *l = m->links; l; l = l->next) {
        if (takes_part(l)) {
            send_blob(l, &x->blob, false); /* one that is full asks within a minute */
        }
    }
    buf_free(&x->blob);
    free(x);
}

static void note_bad(struct mesh *m, struct note *n)
{
    struct words_note *x = (struct words_note *)n;
    struct key_id id;
    memcpy(id.b, x->id, SHA256_SIZE);
    struct plink *l = m->closing ? NULL : mesh_find_up(m, &id);
    if (l) {
        link_broke(l, "a statement whose signature is wrong");
    }
    free(x);
}

void mesh_words_bad(struct mesh *m, const uint8_t from[SHA256_SIZE])
{
    struct words_note *x = calloc(1, sizeof *x);
    if (x) {
        x->n.run = note_bad;
        memcpy(x->id, from, SHA256_SIZE);
        mesh_post(m, &x->n);
    }
}

void mesh_words_tell(struct mesh *m, const void *blob, size_t n)
{
    struct words_note *x = calloc(1, sizeof *x);
    if (!x) {
        return;
    }
    x->n.run = note_tell;
    buf_init(&x->blob, WIRE_STATEMENT_MAX);
    if (buf_add(&x->blob, blob, n)) {
        free(x);
        return;
    }
    mesh_post(m, &x->n);
}

static void note_void(struct mesh *m, struct note *n)
{
    struct words_note *x = (struct words_note *)n;
    if (m->fetch) {
        fetch_disbelieve(m->fetch, x->id, x->on);
    }
    free(x);
}

void mesh_words_void(struct mesh *m, const uint8_t id[SHA256_SIZE], bool on)
{
    struct words_note *x = calloc(1, sizeof *x);
    if (x) {
        x->n.run = note_void;
        x->on = on;
        memcpy(x->id, id, SHA256_SIZE);
        mesh_post(m, &x->n);
    }
}

struct sign_note {
    struct note n;
    uint64_t seq;
    const struct statement_entry *v;
    size_t count;
    struct buf *out;
    struct err *e;
    int code;
};

static void note_sign(struct mesh *m, struct note *n)
{
    struct sign_note *x = (struct sign_note *)n;
    x->code = m->closing || !m->o.has_model ? err_set(x->e, ERR_CANCELLED, "the node is stopping")
                                            : statement_sign(m->me.key, m->o.model_root, x->seq,
                                                             x->v, x->count, x->out, x->e);
}

int mesh_words_sign(struct mesh *m, uint64_t seq, const struct statement_entry *v, size_t n,
                    struct buf *out, struct err *e)
{
    struct sign_note x = {
        .n = {.run = note_sign, .sync = true}, .seq = seq, .v = v, .count = n, .out = out, .e = e};
    mesh_post(m, &x.n);
    return x.code;
}

struct member_note {
    struct note n;
    const struct key_id *id;
    bool yes;
};

static void note_member(struct mesh *m, struct note *n)
{
    struct member_note *x = (struct member_note *)n;
    x->yes = m->member.in_group && roster_find(&m->member.roster, x->id);
}

bool mesh_is_member(struct mesh *m, const struct key_id *id)
{
    struct member_note x = {.n = {.run = note_member, .sync = true}, .id = id};
    mesh_post(m, &x.n);
    return x.yes;
}
