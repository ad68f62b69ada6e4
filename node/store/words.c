/* SPDX-License-Identifier: MIT
 * words.c: see words.h: the store's side of book.c and disk_words.c. */
#include "node/store/words.h"

#include "node/store/book.h"
#include "node/store/disk.h"
#include "node/store/engine.h"
#include "node/store/origin.h"

#include <stdlib.h>
#include <string.h>

#define BLOBS_FEW                                                                  \
    32 /* own statements beyond what their objects need, before they are made anew \
        */

void words_voided(void *store, const uint8_t member[SHA256_SIZE], const char *why)
{
    struct store *st = store;
    pthread_mutex_lock(&st->mu);
    struct store_words_listener l = st->listener;
    pthread_mutex_unlock(&st->mu);
    if (l.voided) {
        l.voided(l.ctx, member, why);
    }
}

void store_words_self(struct store *st, const uint8_t self[SHA256_SIZE])
{
    if (st->disk) {
        disk_self(st->disk, self);
    }
}

void store_words_listen(struct store *st, const struct store_words_listener *l)
{
    pthread_mutex_lock(&st->mu);
    st->listener = l ? *l : (struct store_words_listener){0};
    pthread_mutex_unlock(&st->mu);
}

static int no_disk(struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "without a cache folder no words are kept");
}

int store_words_take(struct store *st, const uint8_t signer[SHA256_SIZE], const void *blob,
                     size_t n, bool *taken, struct err *e)
{
    *taken = false;
    return st->disk ? disk_statement(st->disk, signer, blob, n, taken, e) : no_disk(e);
}

size_t store_words_seen(struct store *st, struct store_words_seen *out, size_t max)
{
    struct book_seen v[CATALOG_MEMBERS_MAX];
    size_t n = st->disk ? book_seen(disk_book(st->disk), v, CATALOG_MEMBERS_MAX) : 0;
    n = n < max ? n : max;
    for (size_t i = 0; i < n; i++) {
        memcpy(out[i].signer, v[i].signer, SHA256_SIZE);
        out[i].seq = v[i].seq;
    }
    return n;
}

bool store_words_known(struct store *st, const uint8_t signer[SHA256_SIZE], uint64_t seq)
{
    struct store_words_seen v[CATALOG_MEMBERS_MAX];
    size_t n = store_words_seen(st, v, CATALOG_MEMBERS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(v[i].signer, signer, SHA256_SIZE) == 0) {
            return seq <= v[i].seq;
        }
    }
    return !st->disk;
}

bool store_words_next(struct store *st, const uint8_t signer[SHA256_SIZE], uint64_t seq,
                      struct buf *out, uint64_t *got, bool *more)
{
    *more = false;
    return st->disk && book_next(disk_book(st->disk), signer, seq, out, got, more);
}

int store_words_due(struct store *st, const uint8_t self[SHA256_SIZE], struct statement_entry **v,
                    size_t *n, uint64_t *seq, struct err *e)
{
    struct book_seen s[CATALOG_MEMBERS_MAX];
    uint32_t blobs = 0, objects = 0;
    *v = NULL;
    *n = 0;
    *seq = 1;
    if (!st->disk) {
        return 0;
    }
    struct book *b = disk_book(st->disk);
    book_count(b, book_member(b, self), &blobs, &objects);
    bool all = blobs > BLOBS_FEW + objects / STATEMENT_OBJECTS_MAX;
    int r = disk_due(st->disk, self, all, v, n, e);
    size_t k = book_seen(b, s, CATALOG_MEMBERS_MAX);
    for (size_t i = 0; i < k; i++) {
        if (memcmp(s[i].signer, self, SHA256_SIZE) == 0 && s[i].seq != UINT64_MAX) {
            *seq = s[i].seq + 1;
        }
    }
    return r;
}

uint64_t store_words_stamp(struct store *st)
{
    return st->disk ? disk_stamp(st->disk) : 0;
}

void store_words_lied(struct store *st, const uint8_t member[SHA256_SIZE], const char *why)
{
    if (st->disk) {
        disk_lied(st->disk, member, why);
    }
}

int store_words_believe(struct store *st, const uint8_t member[SHA256_SIZE], struct err *e)
{
    return st->disk ? disk_believe(st->disk, member, e) : no_disk(e);
}

void store_words_forget(struct store *st, const uint8_t member[SHA256_SIZE])
{
    struct err e = {0};
    struct book *b = st->disk ? disk_book(st->disk) : NULL;
    uint32_t no = b ? book_member_known(b, member) : 0;
    if (no && book_forget(b, no, &e)) {
        eng_log(st, "the statements of a member that left could not be forgotten: %s", e.msg);
    }
}

void store_words_look(struct store *st)
{
    if (st->disk) {
        disk_look_manifest(st->disk);
    }
}

int store_words_audit(struct store *st, uint64_t random, uint64_t *bytes, struct err *e)
{
    uint32_t id, chunk;
    uint8_t sha[SHA256_SIZE], got[SHA256_SIZE];
    *bytes = 0;
    if (!st->disk || !st->origin || !disk_audit_pick(st->disk, random, &id, &chunk, sha)) {
        return 0;
    }
    const struct model_object *o = eng_object(st, id);
    size_t n = chunk_len(o->size, chunk);
    uint8_t *p = malloc(n);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = origin_get_range(st->origin, model_shard(st->m, o->shard)->file,
                             o->offset + (uint64_t)chunk * CHUNK_SIZE, p, n, e);
    if (!r) {
        *bytes = n;
        sha256(p, n, got);
        if (memcmp(got, sha, SHA256_SIZE) != 0) {
            char name[128];
            r = err_set(e, ERR_DIGEST,
                        "chunk %u of %s from peers, or from a folder, is not what the origin has",
                        chunk, model_object_name(st->m, id, name, sizeof name));
            disk_audit_failed(st->disk, id, sha, chunk);
        }
    }
    free(p);
    return r;
}

size_t store_words_members(struct store *st, struct store_words_member *out, size_t max)
{
    uint64_t alone[CATALOG_MEMBERS_MAX + 1];
    size_t n = 0;
    if (!st->disk) {
        return 0;
    }
    struct book *b = disk_book(st->disk);
    disk_rests(st->disk, alone);
    for (uint32_t no = 1; no <= CATALOG_MEMBERS_MAX && n < max; no++) {
        struct catalog_member m;
        uint32_t objects, blobs;
        if (!book_member_get(b, no, &m, &objects)) {
            continue;
        }
        book_count(b, no, &blobs, &objects);
        struct store_words_member *x = &out[n++];
        memset(x, 0, sizeof *x);
        memcpy(x->id, m.id, SHA256_SIZE);
        memcpy(x->why, m.why, sizeof x->why);
        x->void_at = m.void_at;
        x->statements = blobs;
        x->objects = objects;
        x->alone = alone[no];
    }
    return n;
}

void store_words_manifest(struct store *st, uint32_t *objects, uint8_t sha[SHA256_SIZE])
{
    *objects = 0;
    if (st->disk) {
        book_manifest_info(disk_book(st->disk), objects, sha);
    }
}
