/* SPDX-License-Identifier: MIT
 * fetch_word.c: what is known of an object's digest before it comes (storage_ops.expect: signed
 * statements, a manifest), and members whose word is void. A list of all chunks' digests that makes
 * the expected digest is as good as that one: then chunks are checked on receipt. */
#include "peer/fetch_int.h"

#include <string.h>

void word_begin(struct fetch *f, struct flight *fl, bool known)
{
    enum basis b = BASIS_NONE;
    bool (*expect)(void *, struct object_key, uint8_t *, enum basis *) = f->o.storage->expect;
    bool said = expect && expect(f->o.storage_ctx, fl->key, fl->expect, &b);
    fl->expects = b;
    fl->known = known || fl->expects >= BASIS_TWO_MEMBERS;
    if (said && !b && !known && plan_origin_usable(f, fl)) {
        fl->conflict = true;
        f->s.conflicts++;
        plan_want_origin(f, fl, "members' signed statements contradict each other");
    }
}

static void list_digest(const uint8_t *sha, uint32_t n, uint8_t out[SHA256_SIZE])
{
    sha256(sha, (size_t)n * SHA256_SIZE, out);
}

/* Member m's copy is not the object: not asked for it again, and a liar if it says that it has its
 * digest from the origin itself. */
static enum word_verdict bad_copy(struct fetch *f, struct flight *fl, uint32_t m, const char *why)
{
    struct source *s = fl->m[m].rec->up;
    if (s) {
        have_set(&s->have, fl->key.kind, fl->key.layer, fl->key.index, 1, false);
    }
    fl->r->bad_chunks++;
    f->s.bad_chunks++;
    member_lied(f, fl, m, why);
    return WORD_LEAVE;
}

enum word_verdict word_stated(struct fetch *f, struct flight *fl, uint32_t m, uint32_t first,
                              uint32_t n, const uint8_t *sha, const uint8_t *object)
{
    uint8_t made[SHA256_SIZE];
    bool whole = first == 0 && n == fl->n;
    if (whole) {
        list_digest(sha, n, made);
    }
    if (whole && object && memcmp(made, object, SHA256_SIZE) != 0) {
        return bad_copy(f, fl, m, "states digests of chunks that do not make its object's");
    }
    object = object ? object : whole ? made : NULL;
    if (!fl->expects || !object) {
        return WORD_GOES_ON;
    }
    if (memcmp(object, fl->expect, SHA256_SIZE) == 0) {
        for (uint32_t i = 0; whole && i < n; i++) {
            struct fchunk *c = &fl->c[i];
            if (c->basis < fl->expects &&
                !(c->done && memcmp(c->sha, sha + (size_t)i * SHA256_SIZE, SHA256_SIZE) != 0)) {
                memcpy(c->sha, sha + (size_t)i * SHA256_SIZE, SHA256_SIZE);
                c->basis = fl->expects;
                c->member = (uint8_t)(fl->expects == BASIS_ONE_MEMBER ? m : FETCH_NOBODY);
            }
        }
        return WORD_GOES_ON;
    }
    if (fl->expects >= BASIS_TWO_MEMBERS) {
        if (fl->expects >= BASIS_MANIFEST) {
            word_denied(f, fl, m, "stated a digest that the imported manifest denies");
        }
        return bad_copy(f, fl, m, "stated a digest that stronger words deny");
    }
    fl->expects = BASIS_NONE; /* one word against another */
    plan_conflict(f, fl, "a member states another digest than the signed statement of another");
    return WORD_LEAVE;
}

void word_denied(struct fetch *f, struct flight *fl, uint32_t m, const char *why)
{
    if (fl->m[m].claimed >= BASIS_ORIGIN && f->o.ops.lied) {
        f->o.ops.lied(f->o.ops.ctx, fl->m[m].rec->id, fl->key, why);
    }
}

bool word_complete(struct fetch *f, struct flight *fl, enum basis *least)
{
    const uint8_t *object = fl->r->object;
    if (!fl->expects) {
        return true;
    }
    if (memcmp(object, fl->expect, SHA256_SIZE) == 0) {
        *least = fl->expects > *least ? (enum basis)fl->expects : *least;
        return true;
    }
    if (*least >= BASIS_ORIGIN || *least > fl->expects) {
        return true; /* the storage says what follows for whoever said otherwise */
    }
    if (fl->expects == *least) {
        fl->expects = BASIS_NONE;
        plan_conflict(f, fl, "its chunks do not make up the object of another's signed statement");
        return false;
    }
    /* Whoever's word the chunks are, something stronger denies it. */
    for (uint32_t i = 0; i < fl->n; i++) {
        struct fchunk *c = &fl->c[i];
        if (c->basis < fl->expects && c->member != FETCH_NOBODY) {
            uint32_t m = c->member;
            if (fl->expects >= BASIS_MANIFEST) {
                word_denied(f, fl, m, "stated digests that the imported manifest denies");
            }
            bad_copy(f, fl, m, "stated digests of chunks that do not make the object");
        } else if (c->basis < fl->expects) {
            flight_undo(f, fl, i);
            c->basis = BASIS_NONE;
        }
    }
    return false;
}

void word_put(struct fetch *f, struct flight *fl, enum basis least)
{
    uint8_t ids[STORAGE_WORDS_MAX][SHA256_SIZE];
    size_t n = 0;
    bool too_many = false;
    if (!f->o.storage->put_words || least >= BASIS_ORIGIN) {
        return;
    }
    bool two = least == BASIS_TWO_MEMBERS;
    for (uint32_t i = 0; i < fl->n_members; i++) {
        const struct fmember *m = &fl->m[i];
        bool own = m->claimed >= BASIS_ORIGIN;
        bool said = two && m->stated && !m->excluded && own;
        for (uint32_t k = 0; k < fl->n && !two && !said; k++) {
            said = fl->c[k].basis == BASIS_ONE_MEMBER && fl->c[k].member == i;
        }
        /* Who hands on what it was given vouches for nothing: it may be the word of anybody, also
         * of one who has signed a statement; so it counts with nobody's, and nobody is to blame. */
        too_many |= said && (n == STORAGE_WORDS_MAX || !own);
        if (said && n < STORAGE_WORDS_MAX) {
            memcpy(ids[n++], m->rec->id, SHA256_SIZE);
        }
    }
    f->o.storage->put_words(f->o.storage_ctx, fl->put, ids, too_many && !two ? 0 : n);
}

void fetch_disbelieve(struct fetch *f, const uint8_t id[SHA256_SIZE], bool on)
{
    fetch_enter(f);
    struct record *r = record_get(f, id, on);
    if (r) {
        r->disbelieved = on;
        memset(r->agreed, 0, sizeof r->agreed); /* and if so, it proves itself anew */
    }
    f->dirty = true;
    fetch_leave(f);
}
