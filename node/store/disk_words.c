/* SPDX-License-Identifier: MIT
 * disk_words.c: see disk.h: what the words of others (book.h) mean for objects on disk: how strong
 * a digest is, who lied, what is taken back. Nothing here holds d->mu while it calls the book or
 * the catalog. */
#include "node/store/disk_inner.h"

#include "node/store/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_MAX ((size_t)256 << 20)

static uint64_t bit(uint32_t no)
{
    return (uint64_t)1 << no;
}

static bool on_words(const struct digest *dg)
{
    return dg && (dg->source == DIGEST_ONE_MEMBER || dg->source == DIGEST_TWO_MEMBERS);
}

/* What an audit is for: words, and files of which nobody says whence they are. */
static bool doubtful(const struct digest *dg)
{
    return on_words(dg) || (dg && dg->source == DIGEST_UNKNOWN);
}

/* ---- changing what is on record ---- */

struct changes {
    struct disk *d;
    const char *why; /* something is taken back */
    struct catalog_row *rows;
    struct digest **made; /* beside rows */
    struct disk_back *back;
    size_t n, cap, n_back;
    struct buf journal;
};

static void changes_init(struct changes *c, struct disk *d, const char *why)
{
    memset(c, 0, sizeof *c);
    c->d = d;
    c->why = why;
    buf_init(&c->journal, JOURNAL_MAX);
}

/* The digest on record says from now on that it rests on these; source DIGEST_TAKEN_BACK: it does
 * not count any more. No memory: it stays as it is in this run, and is met again. */
static void change(struct changes *c, uint32_t id, const struct digest *old, uint32_t source,
                   uint64_t rests)
{
    struct digest *dg = digest_alloc(old->size, old->shas != NULL);
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 64;
        struct catalog_row *rows = realloc(c->rows, cap * sizeof *rows);
        c->rows = rows ? rows : c->rows;
        struct digest **made = rows ? realloc(c->made, cap * sizeof *made) : NULL;
        c->made = made ? made : c->made;
        struct disk_back *back = made ? realloc(c->back, cap * sizeof *back) : NULL;
        c->back = back ? back : c->back;
        c->cap = back ? cap : c->cap;
    }
    if (!dg || c->n == c->cap) {
        free(dg);
        return;
    }
    memcpy(dg->sha, old->sha, SHA256_SIZE);
    memcpy(dg->xxh, old->xxh, (size_t)old->n * sizeof old->xxh[0]);
    if (old->shas) {
        memcpy(dg->shas, old->shas, (size_t)old->n * SHA256_SIZE);
    }
    dg->source = source;
    dg->rests = rests;
    if (journal_record(&c->journal, id, dg)) {
        free(dg);
        return;
    }
    if (source == DIGEST_TAKEN_BACK) {
        c->back[c->n_back++] = (struct disk_back){id, on_words(old) ? old->rests : 0};
    }
    c->made[c->n] = dg;
    c->rows[c->n++] = (struct catalog_row){.id = id, .d = source == DIGEST_TAKEN_BACK ? NULL : dg};
}

static void changes_apply(struct changes *c)
{
    struct disk *d = c->d;
    struct err e = {0};
    int r = 0;
    if (c->n) {
        pthread_mutex_lock(&d->mu);
        for (size_t i = 0; i < c->n; i++) {
            c->rows[i].last_use = d->it[c->rows[i].id].last_use;
        }
        pthread_mutex_unlock(&d->mu);
        r = disk_closed(d, true, &e);
        r = r ? r : journal_append(d->journal, &c->journal, &e);
        r = r ? r : catalog_settle(d->cat, d->model_no, c->rows, c->n, &e);
    }
    if (r) {
        disk_log(d, "what the digests of %zu objects rest on could not be written: %s", c->n,
                 e.msg);
    }
    for (size_t i = 0; i < c->n; i++) { /* in this run it counts all the same */
        uint32_t id = c->rows[i].id;
        bool back = c->made[i]->source == DIGEST_TAKEN_BACK;
        if (back) {
            disk_remove(d, id);
        }
        pthread_mutex_lock(&d->mu);
        disk_set_digest(d, id, c->made[i]);
        pthread_mutex_unlock(&d->mu);
    }
    if (c->n_back && d->o.taken_back) {
        d->o.taken_back(d->o.words_ctx, c->back, c->n_back, c->why);
    }
    free(c->rows);
    free(c->made);
    free(c->back);
    buf_free(&c->journal);
}

struct book *disk_book(struct disk *d)
{
    return d->book;
}

/* ---- liars ---- */

static void settle_one(struct changes *c, uint32_t id, const struct digest *dg, uint64_t lost)
{
    struct disk *d = c->d;
    uint64_t against, good = book_agree(d->book, id, dg->sha, &against);
    if (dg->source == DIGEST_TWO_MEMBERS) {
        good |= dg->rests & ~lost & ~book_void_set(d->book);
    }
    int n = __builtin_popcountll(good);
    change(c, id, dg,
           n >= 2   ? DIGEST_TWO_MEMBERS
           : n == 1 ? DIGEST_ONE_MEMBER
                    : DIGEST_TAKEN_BACK,
           good);
}

/* Everything whose digest rests on somebody's word is looked at again: `lost` are those whose word
 * has just become void. */
static void settle(struct disk *d, uint64_t lost, const char *why)
{
    struct changes c;
    changes_init(&c, d, why);
    for (uint32_t id = 0; id < d->n; id++) {
        const struct digest *dg = disk_digest_of(d, id);
        if (on_words(dg) && (!dg->rests || dg->rests & lost)) {
            settle_one(&c, id, dg, lost);
        }
    }
    if (c.n_back) {
        disk_log(d,
                 "%zu objects rested on that member's word alone: they are fetched again before "
                 "they are used",
                 c.n_back);
    }
    changes_apply(&c);
    if (d->o.settled) {
        d->o.settled(d->o.words_ctx, lost, why);
    }
}

void disk_reconsider(struct disk *d, uint32_t id)
{
    const struct digest *dg = disk_digest_of(d, id);
    uint64_t lost = on_words(dg) ? dg->rests & book_void_set(d->book) & ~d->self : 0;
    struct changes c;
    if (lost) {
        changes_init(&c, d, "its word became void while this was written");
        settle_one(&c, id, dg, lost);
        changes_apply(&c);
    }
}

bool disk_on_void(struct disk *d, uint32_t source, uint64_t rests)
{
    return (source == DIGEST_ONE_MEMBER || source == DIGEST_TWO_MEMBERS) && rests &&
           !(rests & ~(book_void_set(d->book) & ~d->self));
}

bool disk_rests_on(struct disk *d, uint32_t id, uint32_t *source, uint64_t *rests)
{
    const struct digest *dg = disk_digest_of(d, id);
    bool there = dg && dg->source != DIGEST_TAKEN_BACK;
    *source = there ? dg->source : 0;
    *rests = there ? dg->rests : 0;
    return there;
}

void disk_self(struct disk *d, const uint8_t id[SHA256_SIZE])
{
    uint32_t no = book_member(d->book, id);
    d->self = no ? bit(no) : 0;
}

void disk_void(struct disk *d, uint64_t who, const char *why)
{
    uint64_t lost = 0;
    who &= ~d->self;
    for (uint32_t no = 1; no <= CATALOG_MEMBERS_MAX; no++) {
        struct catalog_member m;
        struct err e = {0};
        bool news = false;
        uint32_t said;
        if (!(who & bit(no)) || !book_member_get(d->book, no, &m, &said)) {
            continue;
        }
        if (book_void(d->book, no, why, &news, &e)) {
            disk_log(d, "that a member's word is void could not be written: %s", e.msg);
        }
        if (news) {
            lost |= bit(no);
            if (d->o.voided) {
                d->o.voided(d->o.words_ctx, m.id, why);
            }
        }
    }
    if (lost) {
        settle(d, lost, why);
    }
}

int disk_believe(struct disk *d, const uint8_t id[SHA256_SIZE], struct err *e)
{
    bool news = false;
    uint32_t no = book_member_known(d->book, id);
    int r = no ? book_void(d->book, no, NULL, &news, e) : 0;
    return r ? r : news ? 0 : err_set(e, ERR_NOTFOUND, "its word is not void");
}

void disk_lied(struct disk *d, const uint8_t id[SHA256_SIZE], const char *why)
{
    uint32_t no = book_member(d->book, id);
    if (no) {
        disk_void(d, bit(no), why);
    }
}

uint64_t disk_members(struct disk *d, const uint8_t (*ids)[SHA256_SIZE], size_t n)
{
    uint64_t set = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t no = book_member(d->book, ids[i]);
        if (!no) {
            return 0;
        }
        set |= bit(no);
    }
    return set;
}

/* ---- one digest against what is said ---- */

/* The digest that the manifest or our own download denies was somebody's word. */
static void denied(struct disk *d, uint32_t id, uint64_t who, const char *by)
{
    char name[128], why[300];
    snprintf(why, sizeof why, "it states a digest of %s that %s denies",
             model_object_name(d->o.m, id, name, sizeof name), by);
    disk_void(d, who, why);
}

static int against_manifest(struct disk *d, uint32_t id, struct digest *dg,
                            const struct book_says *s, struct err *e)
{
    char name[128];
    model_object_name(d->o.m, id, name, sizeof name);
    if (memcmp(s->digest, dg->sha, SHA256_SIZE) == 0) {
        dg->rests = dg->source == DIGEST_ORIGIN ? DIGEST_RESTS_OWN : dg->rests;
        dg->source = DIGEST_MANIFEST;
        return 0;
    }
    if (digest_basis(dg) >= BASIS_ORIGIN) {
        return err_set(e, ERR_DIGEST,
                       "%s: the origin gives other bytes than the imported manifest says: this "
                       "address holds another checkpoint (or changed files), and is not mixed in",
                       name);
    }
    if (dg->source == DIGEST_ONE_MEMBER) {
        denied(d, id, dg->rests, "the imported manifest");
    }
    return err_set(e, ERR_DIGEST, "%s: peers give other bytes than the imported manifest says",
                   name);
}

int disk_judge(struct disk *d, uint32_t id, struct digest *dg, struct err *e)
{
    struct book_says s;
    char name[128];
    book_says(d->book, id, &s);
    if (s.basis == BASIS_MANIFEST) {
        return against_manifest(d, id, dg, &s, e);
    }
    uint64_t against, agree = book_agree(d->book, id, dg->sha, &against);
    if (digest_basis(dg) >= BASIS_ORIGIN) {
        if (against) {
            denied(d, id, against, "this node's own download");
        }
        return 0;
    }
    uint64_t lost = book_void_set(d->book);
    bool own_word = !(dg->rests & lost); /* whoever brought it: its word counts */
    if (dg->source == DIGEST_TWO_MEMBERS && !own_word && dg->rests & ~lost) {
        dg->source = DIGEST_ONE_MEMBER;
        dg->rests &= ~lost;
        own_word = true;
    }
    int n = __builtin_popcountll(agree & ~dg->rests);
    if (own_word && !dg->rests && dg->source != DIGEST_TWO_MEMBERS) {
        n = n ? n : 1; /* whose word it is is not known: it may be that of one of those */
    } else if (own_word) {
        n += dg->source == DIGEST_TWO_MEMBERS ? 2 : 1;
    }
    enum basis mine = n >= 2 ? BASIS_TWO_MEMBERS : n ? BASIS_ONE_MEMBER : BASIS_NONE;
    if (!n) {
        return err_set(e, ERR_DIGEST,
                       "%s: its digest is the word of members whose word is void alone",
                       model_object_name(d->o.m, id, name, sizeof name));
    }
    bool strongest = s.basis && memcmp(s.digest, dg->sha, SHA256_SIZE) == 0;
    enum basis other = s.basis                             ? s.basis
                       : __builtin_popcountll(against) > 1 ? BASIS_TWO_MEMBERS
                                                           : BASIS_ONE_MEMBER;
    if (against && !strongest && other >= mine) {
        return err_set(e, ERR_DIGEST,
                       "%s: members contradict each other about its bytes, and neither side is "
                       "stronger: it is not used until the origin or a third member tells",
                       model_object_name(d->o.m, id, name, sizeof name));
    }
    if (agree) {
        dg->rests = (own_word && dg->rests ? dg->rests : 0) | agree;
    }
    dg->source = digest_source_of(mine);
    return 0;
}

enum disk_doubt disk_doubts(struct disk *d, uint32_t id, const struct chunk_sum *sums)
{
    struct digest *dg = digest_make(model_object(d->o.m, id)->size, sums, DIGEST_ORIGIN);
    const struct digest *old = disk_digest_of(d, id);
    struct book_says s;
    uint64_t against = 0;
    if (!dg) {
        return DISK_MEMBERS_DIFFER; /* no memory: the origin is asked */
    }
    book_says(d->book, id, &s);
    bool known = old && old->source != DIGEST_TAKEN_BACK && digest_basis(old) >= BASIS_ORIGIN;
    bool strong = (known && !digest_equal(old, dg)) ||
                  (s.basis == BASIS_MANIFEST && memcmp(s.digest, dg->sha, SHA256_SIZE) != 0);
    if (s.basis != BASIS_MANIFEST) {
        book_agree(d->book, id, dg->sha, &against);
    }
    bool other = old && old->source != DIGEST_TAKEN_BACK && !digest_equal(old, dg);
    free(dg);
    return strong ? DISK_CONTRADICTS : against || other ? DISK_MEMBERS_DIFFER : DISK_AGREES;
}

bool disk_chunk_differs(struct disk *d, uint32_t id, uint32_t chunk, const uint8_t sha[SHA256_SIZE])
{
    const struct digest *old = disk_digest_of(d, id);
    return old && old->source != DIGEST_TAKEN_BACK && digest_basis(old) >= BASIS_ORIGIN &&
           old->shas && chunk < old->n && memcmp(old->shas[chunk], sha, SHA256_SIZE) != 0;
}

enum disk_known disk_known(struct disk *d, uint32_t id)
{
    const struct digest *old = disk_digest_of(d, id);
    struct book_says s;
    bool there = old && old->source != DIGEST_TAKEN_BACK;
    if (there && digest_basis(old) >= BASIS_ORIGIN && old->shas) {
        return DISK_OWN;
    }
    book_says(d->book, id, &s);
    return s.basis == BASIS_MANIFEST        ? DISK_MANIFEST
           : there || s.disputed || s.basis ? DISK_MEMBERS
                                            : DISK_UNKNOWN;
}

/* ---- statements ---- */

/* What a new word means for the digest on record. True: its signer lied. */
static bool compare_word(struct changes *c, uint32_t id, const uint8_t digest[SHA256_SIZE],
                         uint64_t who)
{
    struct disk *d = c->d;
    const struct digest *dg = disk_digest_of(d, id);
    struct book_says s;
    if (dg && digest_basis(dg) >= BASIS_ORIGIN) {
        return memcmp(dg->sha, digest, SHA256_SIZE) != 0;
    }
    book_says(d->book, id, &s);
    if (s.basis == BASIS_MANIFEST) {
        return memcmp(s.digest, digest, SHA256_SIZE) != 0;
    }
    bool unknown = dg && dg->source == DIGEST_UNKNOWN;
    if (!on_words(dg) && !(unknown && s.basis >= BASIS_TWO_MEMBERS)) {
        return false;
    }
    if (memcmp(dg->sha, digest, SHA256_SIZE) == 0) {
        if (dg->source == DIGEST_ONE_MEMBER && dg->rests && !(dg->rests & who)) {
            change(c, id, dg, DIGEST_TWO_MEMBERS, dg->rests | who);
        } else if (dg->source == DIGEST_ONE_MEMBER && !dg->rests) {
            change(c, id, dg, DIGEST_ONE_MEMBER, who); /* it may be this one's word, handed on */
        }
        return false;
    }
    /* as strong as what is here, or stronger: neither is used until that is settled */
    enum basis b = s.basis ? s.basis : BASIS_ONE_MEMBER;
    if (b >= digest_basis(dg) && !(s.basis && memcmp(s.digest, dg->sha, SHA256_SIZE) == 0)) {
        char name[128];
        disk_log(d, "%s: a member's signed statement contradicts what it rests on here",
                 model_object_name(d->o.m, id, name, sizeof name));
        change(c, id, dg, DIGEST_TAKEN_BACK, 0);
    }
    return false;
}

int disk_statement(struct disk *d, const uint8_t signer[SHA256_SIZE], const void *blob, size_t n,
                   bool *taken, struct err *e)
{
    struct statement s;
    int r = book_take(d->book, signer, blob, n, taken, e);
    if (r || !*taken || statement_parse(blob, n, &s, e)) {
        return r;
    }
    struct changes c;
    uint64_t who = bit(book_member_known(d->book, signer));
    uint32_t lie = MODEL_NONE;
    changes_init(&c, d, "another member's signed statement contradicts it");
    for (uint32_t i = 0; i < s.n; i++) {
        struct statement_entry x;
        statement_get(&s, i, &x);
        uint32_t id = book_object(d->o.m, x.key);
        if (id != MODEL_NONE && compare_word(&c, id, x.digest, who) && lie == MODEL_NONE) {
            lie = id;
        }
    }
    changes_apply(&c);
    if (lie != MODEL_NONE) {
        denied(d, lie, who, "something stronger here (a manifest, or this node's own download)");
    }
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return statement_key_order(((const struct statement_entry *)a)->key,
                               ((const struct statement_entry *)b)->key);
}

int disk_due(struct disk *d, const uint8_t self[SHA256_SIZE], bool all,
             struct statement_entry **out, size_t *n, struct err *e)
{
    uint32_t no = book_member(d->book, self);
    *n = 0;
    *out = malloc((d->n ? d->n : 1) * sizeof **out);
    if (!*out || !no) {
        free(*out);
        *out = NULL;
        return err_set(e, no ? ERR_NOMEM : ERR_LIMIT, "no room for the own statements");
    }
    for (uint32_t id = 0; id < d->n; id++) {
        const struct digest *dg = disk_digest_of(d, id);
        uint8_t said[SHA256_SIZE];
        bool own = dg && (dg->source == DIGEST_ORIGIN ||
                          (dg->source == DIGEST_MANIFEST && dg->rests & DIGEST_RESTS_OWN));
        if (own &&
            (all || !book_word(d->book, no, id, said) || memcmp(said, dg->sha, SHA256_SIZE) != 0)) {
            (*out)[*n].key = book_key(d->o.m, id);
            memcpy((*out)[(*n)++].digest, dg->sha, SHA256_SIZE);
        }
    }
    qsort(*out, *n, sizeof **out, by_key);
    return 0;
}

bool disk_own_digest(struct disk *d, uint32_t id, uint8_t digest[SHA256_SIZE])
{
    const struct digest *dg = disk_digest_of(d, id);
    bool own = dg && digest_basis(dg) >= BASIS_ORIGIN;
    if (own) {
        memcpy(digest, dg->sha, SHA256_SIZE);
    }
    return own;
}

uint64_t disk_stamp(struct disk *d)
{
    pthread_mutex_lock(&d->mu);
    uint64_t n = d->digests_set;
    pthread_mutex_unlock(&d->mu);
    return n;
}

bool disk_expect(struct disk *d, uint32_t id, uint8_t object[SHA256_SIZE], enum basis *b)
{
    struct book_says s;
    book_says(d->book, id, &s);
    *b = s.basis;
    memcpy(object, s.digest, SHA256_SIZE);
    return s.basis != BASIS_NONE || s.disputed;
}

/* ---- the manifest ---- */

void disk_look_manifest(struct disk *d)
{
    if (!book_look_manifest(d->book)) {
        return;
    }
    struct changes c;
    uint64_t liars = 0, raised = 0, denied_n = 0;
    uint32_t first = MODEL_NONE;
    changes_init(&c, d, "the imported manifest denies it");
    for (uint32_t id = 0; id < d->n; id++) {
        const struct digest *dg = disk_digest_of(d, id);
        struct book_says s;
        uint64_t against;
        book_says(d->book, id, &s);
        if (s.basis != BASIS_MANIFEST) {
            if (dg && dg->source == DIGEST_MANIFEST) { /* the manifest is gone: as it was got */
                bool own = dg->rests & DIGEST_RESTS_OWN;
                change(&c, id, dg, own ? DIGEST_ORIGIN : DIGEST_ONE_MEMBER, own ? 0 : dg->rests);
            }
            continue;
        }
        book_agree(d->book, id, s.digest, &against);
        liars |= against;
        if (!dg || dg->source == DIGEST_TAKEN_BACK || dg->source == DIGEST_MANIFEST) {
            continue;
        }
        if (memcmp(s.digest, dg->sha, SHA256_SIZE) == 0) {
            change(&c, id, dg, DIGEST_MANIFEST,
                   dg->source == DIGEST_ORIGIN ? DIGEST_RESTS_OWN : dg->rests);
            raised++;
        } else {
            liars |= dg->source == DIGEST_ONE_MEMBER ? dg->rests : 0;
            change(&c, id, dg, DIGEST_TAKEN_BACK, 0);
            first = denied_n++ ? first : id;
        }
    }
    changes_apply(&c);
    if (raised || denied_n) {
        disk_log(d, "a manifest was imported: %llu objects here agree with it, %llu do not",
                 (unsigned long long)raised, (unsigned long long)denied_n);
    }
    if (liars) {
        disk_void(d, liars, "it states digests that the imported manifest denies");
    }
}

/* ---- audits and numbers ---- */

bool disk_audit_pick(struct disk *d, uint64_t random, uint32_t *id, uint32_t *chunk,
                     uint8_t sha[SHA256_SIZE])
{
    uint32_t at = d->n ? (uint32_t)(random % d->n) : 0;
    for (uint32_t i = 0; i < d->n; i++, at = at + 1 == d->n ? 0 : at + 1) {
        pthread_mutex_lock(&d->mu);
        const struct disk_item *it = &d->it[at];
        const struct digest *dg = it->present && doubtful(it->digest) ? it->digest : NULL;
        pthread_mutex_unlock(&d->mu);
        if (dg && dg->shas) {
            *id = at;
            *chunk = (uint32_t)((random >> 32) % dg->n);
            memcpy(sha, dg->shas[*chunk], SHA256_SIZE);
            return true;
        }
    }
    return false;
}

void disk_audit_failed(struct disk *d, uint32_t id, const uint8_t sha[SHA256_SIZE], uint32_t chunk)
{
    const struct digest *dg = disk_digest_of(d, id);
    if (!doubtful(dg) || !dg->shas || memcmp(dg->shas[chunk], sha, SHA256_SIZE) != 0) {
        return; /* it has been replaced meanwhile */
    }
    uint64_t against, agree = book_agree(d->book, id, dg->sha, &against);
    struct changes c;
    changes_init(&c, d, "the origin, asked again for a sample of it, denies it");
    change(&c, id, dg, DIGEST_TAKEN_BACK, 0);
    uint64_t who = dg->rests | agree;
    changes_apply(&c);
    denied(d, id, who, "the origin, asked again for a sample of it,");
}

void disk_rests(struct disk *d, uint64_t alone[CATALOG_MEMBERS_MAX + 1])
{
    memset(alone, 0, (CATALOG_MEMBERS_MAX + 1) * sizeof *alone);
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = 0; id < d->n; id++) {
        const struct disk_item *it = &d->it[id];
        if (!it->present || it->digest->source != DIGEST_ONE_MEMBER) {
            continue;
        }
        alone[0] += !it->digest->rests;
        for (uint64_t r = it->digest->rests & ~(uint64_t)1; r; r &= r - 1) {
            alone[__builtin_ctzll(r)]++;
        }
    }
    pthread_mutex_unlock(&d->mu);
}
