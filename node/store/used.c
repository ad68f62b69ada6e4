/* SPDX-License-Identifier: MIT
 * used.c: see used.h. Time is two counters: use_no, moved by whoever begins to compute, and
 * back_no, moved by what is taken back. An entry remembers when it was last handed out, and when it
 * was taken back, so nothing is kept for those who compute, however many. */
#include "node/store/used.h"

#include "node/store/book.h"
#include "node/store/disk.h"
#include "node/store/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EARLIER 1 /* use_no of all that earlier processes did */

void used_now(struct store *st, struct entry *en)
{
    en->used = st->use_no + EARLIER;
    if (en->bad) { /* somebody holds it still: whoever gets it now learns it at once */
        en->back = ++st->back_no;
        en->back_used = en->used;
    }
}

void store_since(struct store *st, struct store_since *out)
{
    pthread_mutex_lock(&st->mu);
    out->use = ++st->use_no + EARLIER;
    out->back = st->back_no;
    pthread_mutex_unlock(&st->mu);
}

void store_since_before(struct store *st, struct store_since *out)
{
    out->use = EARLIER;
    out->back = store_backs(st);
}

uint64_t store_backs(struct store *st)
{
    pthread_mutex_lock(&st->mu);
    uint64_t n = st->back_no;
    pthread_mutex_unlock(&st->mu);
    return n;
}

int store_spoilt(struct store *st, const struct store_since *s, struct err *e)
{
    int r = 0;
    pthread_mutex_lock(&st->mu);
    for (uint32_t id = 0; s->back != st->back_no && id < st->n_ent && !r; id++) {
        const struct entry *en = &st->ent[id];
        if (en->back > s->back && en->back_used >= s->use) {
            r = err_set(e, ERR_DIGEST, "%s", st->back_why);
        }
    }
    pthread_mutex_unlock(&st->mu);
    return r;
}

bool store_stale(struct store *st, const struct store_view *v)
{
    pthread_mutex_lock(&st->mu);
    bool bad = v->priv && st->ent[v->id].bad;
    pthread_mutex_unlock(&st->mu);
    return bad;
}

/* ---- what it rests on ---- */

/* With mu. */
static enum store_rests basis_of(struct store *st, uint32_t id)
{
    uint32_t source = st->ent[id].source, on_record;
    uint64_t rests;
    if (st->disk && disk_rests_on(st->disk, id, &on_record, &rests)) {
        source = on_record;
    } else if (!st->disk && !source) {
        source = DIGEST_ORIGIN; /* read in place */
    }
    return source == DIGEST_ONE_MEMBER    ? STORE_ONE_MEMBER
           : source == DIGEST_TWO_MEMBERS ? STORE_TWO_MEMBERS
           : source == DIGEST_ORIGIN      ? STORE_OWN
           : source == DIGEST_MANIFEST    ? STORE_MANIFEST
                                          : STORE_UNVERIFIED;
}

const char *store_rests_name(enum store_rests b)
{
    static const char *const names[STORE_BASES] = {"unverified", "one_member", "two_members",
                                                   "origin", "manifest"};
    return names[b < STORE_BASES ? b : 0];
}

void store_rest(struct store *st, const struct store_since *s, struct store_rest *out)
{
    memset(out, 0, sizeof *out);
    out->weakest = STORE_MANIFEST;
    pthread_mutex_lock(&st->mu);
    for (uint32_t id = 0; id < st->n_ent; id++) {
        const struct entry *en = &st->ent[id];
        bool held = en->state == ENT_READY && en->pins; /* since before: the resident spine */
        if (en->used && (en->used >= s->use || held)) {
            enum store_rests b = basis_of(st, id);
            out->objects[b]++;
            out->weakest = b < out->weakest ? b : out->weakest;
        }
    }
    pthread_mutex_unlock(&st->mu);
}

void store_set_trust(struct store *st, enum store_rests least)
{
    pthread_mutex_lock(&st->mu);
    st->trust = (uint8_t)least;
    pthread_mutex_unlock(&st->mu);
}

int used_may(struct store *st, uint32_t id, struct err *e)
{
    static const char *const words[STORE_BASES] = {
        "nobody's word", "the word of one member alone", "the word of two members",
        "this node's own download", "a published manifest"};
    enum store_rests b = st->trust ? basis_of(st, id) : STORE_BASES;
    char name[128];
    return b >= st->trust
               ? 0
               : err_set(e, ERR_REFUSED,
                         "%s rests on %s, and --trust asks for %s at least: import a manifest "
                         "(shoal manifest import), fetch the model from its origin into another "
                         "--cache, or trust less",
                         model_object_name(st->m, id, name, sizeof name), words[b],
                         words[st->trust]);
}

/* ---- what is taken back ---- */

/* With mu. */
static void take_back(struct store *st, uint32_t id)
{
    struct entry *en = &st->ent[id];
    bool held = en->state == ENT_READY && en->pins;
    uint64_t used = held ? st->use_no + EARLIER : en->used ? en->used : en->came ? 0 : EARLIER;
    en->back = ++st->back_no;
    en->back_used = used;
    en->bad = held;
    en->doomed = en->state == ENT_QUEUED || en->state == ENT_BUSY;
    en->came = false;
    en->source = 0;
    en->rests = 0;
    eng_take_back(st, en);
}

/* "member A", "members A and B" */
static void members(struct store *st, uint64_t who, char *out, size_t cap)
{
    size_t at = 0, n = (size_t)__builtin_popcountll(who), k = 0;
    out[0] = 0;
    pthread_mutex_lock(&st->mu);
    struct store_words_listener l = st->listener;
    pthread_mutex_unlock(&st->mu);
    for (uint32_t no = 1; no <= CATALOG_MEMBERS_MAX; no++) {
        struct catalog_member m;
        uint32_t objects;
        char name[64];
        if (!(who >> no & 1) || !book_member_get(disk_book(st->disk), no, &m, &objects)) {
            continue;
        }
        snprintf(name, sizeof name, "%02x%02x%02x%02x", m.id[0], m.id[1], m.id[2], m.id[3]);
        if (l.name) {
            l.name(l.ctx, m.id, name, sizeof name);
        }
        int w = snprintf(out + at, cap - at, "%s%s",
                         k == 0 ? (n > 1 ? "members " : "member ") : " and ", name);
        at = w < 0 || at + (size_t)w >= cap ? cap - 1 : at + (size_t)w;
        k++;
    }
}

void words_taken_back(void *store, const struct disk_back *v, size_t n, const char *why)
{
    struct store *st = store;
    char name[128], who[200];
    if (!st->ent) { /* while it is being opened nothing has been handed out */
        return;
    }
    struct err e = {0};
    uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    members(st, v[0].who, who, sizeof who);
    model_object_name(st->m, v[0].id, name, sizeof name);
    err_set(&e, ERR_DIGEST, "the bytes of %s%s%s count no longer: %s", name,
            *who ? ", which came on the word of " : "", who, why);
    pthread_mutex_lock(&st->mu);
    memcpy(st->back_why, e.msg, sizeof st->back_why);
    struct store_words_listener l = st->listener;
    for (size_t i = 0; i < n; i++) {
        if (v[i].id < st->n_ent) {
            take_back(st, v[i].id);
        }
        if (ids) {
            ids[i] = v[i].id;
        }
    }
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    if (l.taken_back && ids) {
        l.taken_back(l.ctx, ids, n, e.msg);
    }
    free(ids);
}

/* What is in RAM alone and rests on these words alone has no digest on record to be settled by. */
void words_settled(void *store, uint64_t lost, const char *why)
{
    struct store *st = store;
    struct disk_back *v = st->ent ? malloc(st->n_ent * sizeof *v) : NULL;
    size_t n = 0;
    for (uint32_t id = 0; v && id < st->n_ent; id++) {
        uint32_t source;
        uint64_t rests;
        pthread_mutex_lock(&st->mu);
        const struct entry *en = &st->ent[id];
        uint64_t mine = en->rests; /* 0: whose word it is is not known */
        bool words = en->state != ENT_IDLE &&
                     (en->source == DIGEST_ONE_MEMBER || en->source == DIGEST_TWO_MEMBERS);
        pthread_mutex_unlock(&st->mu);
        if (words && !(mine & ~lost) && !disk_rests_on(st->disk, id, &source, &rests)) {
            v[n++] = (struct disk_back){id, mine};
        }
    }
    if (n) {
        words_taken_back(st, v, n, why);
    }
    free(v);
}

void store_take_back(struct store *st, const uint32_t *ids, size_t n, const char *why)
{
    for (size_t i = 0; st->disk && i < n; i++) {
        if (ids[i] < st->n_ent) {
            disk_taken_back_elsewhere(st->disk, ids[i]);
        }
    }
    pthread_mutex_lock(&st->mu);
    snprintf(st->back_why, sizeof st->back_why, "%s", why);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < st->n_ent) {
            take_back(st, ids[i]);
        }
    }
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
}
