/* SPDX-License-Identifier: MIT
 * keeper.c: see keeper.h. */
#include "peer/keeper.h"
#include "peer/b32.h"
#include "peer/home.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define HEAD 65 /* version, iterations, group, salt, nonce */
#define CHECK 4
#define BYTES (HEAD + CRYPTO_SECRET + CRYPTO_TAG + CHECK)

static const char key_file[] = "shoal/group.key";
static const char title[] = "shoal backup 1";

static void seal_context(const struct key_id *group, char out[96])
{
    memcpy(out, "shoal keeper 1 ", 15);
    sha256_hex(group->b, out + 15);
}

int keeper_add(struct member *m, const char *which, struct key_id *id, struct err *e)
{
    int lock;
    bool changed;
    size_t at = 0;
    int r = home_lock(m->home, &lock, e);
    if (r) {
        return r;
    }
    r = member_refresh(m, &changed, e);
    r = r ? r : member_need_key(m, e);
    struct key_id *ids = r ? NULL : calloc(m->roster.members_n + 1, sizeof *ids);
    if (!r && !ids) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; !r && i < m->roster.members_n; i++) {
        ids[i] = m->roster.members[i].id;
    }
    r = r ? r : id_find(which, ids, m->roster.members_n, &at, e);
    free(ids);
    if (!r) {
        *id = m->roster.members[at].id;
        if (!(m->roster.members[at].flags & ROSTER_KEEPER)) {
            m->roster.members[at].flags |= ROSTER_KEEPER;
            r = member_commit(m, e);
        }
    }
    home_unlock(lock);
    return r;
}

bool keeper_wanted(const struct member *m)
{
    const struct roster_member *self =
        m->in_group && !m->signing_key ? roster_find(&m->roster, &m->me->id) : NULL;
    return self && (self->flags & ROSTER_KEEPER);
}

int keeper_seal(const struct member *m, const struct key_id *to, uint8_t out[KEEPER_SEALED],
                struct err *e)
{
    int r = member_need_key(m, e);
    const struct roster_member *who = r ? NULL : roster_find(&m->roster, to);
    if (!r && (!who || !(who->flags & ROSTER_KEEPER))) {
        r = err_set(e, ERR_REFUSED,
                    "this node is not a keeper of the shoal: run shoal keeper add on one that is");
    }
    uint8_t d[CRYPTO_SECRET];
    char context[96];
    r = r ? r : crypto_key_secret(m->signing_key, d, e);
    if (!r) {
        seal_context(&m->group, context);
        r = crypto_seal_for(who->pub, context, d, sizeof d, out, e);
    }
    crypto_wipe(d, sizeof d);
    return r;
}

/* Put the key on disk, where none may be; the caller holds the lock. */
static int store_key(struct member *m, struct crypto_key *k, struct err *e)
{
    char pem[CRYPTO_PEM_MAX];
    size_t n;
    bool made;
    int r = home_folder(m->home, "shoal", e);
    struct key_id id;
    crypto_key_id(crypto_key_public(k), &id);
    r = r ? r : member_set_aside_key(m, &id, e);
    r = r ? r : crypto_key_pem(k, pem, &n, e);
    r = r ? r : home_write_once(m->home, key_file, pem, n, &made, e);
    crypto_wipe(pem, sizeof pem);
    return r;
}

int keeper_take(struct member *m, const void *sealed, size_t n, struct err *e)
{
    uint8_t d[CRYPTO_SECRET];
    char context[96];
    struct crypto_key *k = NULL;
    struct key_id id;
    int lock;
    bool changed;
    if (!m->in_group || n != KEEPER_SEALED) {
        return err_set(e, ERR_FORMAT, "that is not a sealed signing key for this node");
    }
    seal_context(&m->group, context);
    int r = crypto_open_own(m->me->key, context, sealed, n, d, e);
    r = r ? r : crypto_key_from_secret(d, &k, e);
    crypto_wipe(d, sizeof d);
    if (r) {
        err_prefix(e, "the signing key that a keeper sent cannot be used");
        return r;
    }
    crypto_key_id(crypto_key_public(k), &id);
    if (!id_equal(&id, &m->group)) {
        r = err_set(e, ERR_REFUSED, "a peer sent a signing key that is not this shoal's");
    }
    r = r ? r : member_lock(m, &lock, e);
    if (!r) {
        r = store_key(m, k, e);
        r = r ? r : member_refresh(m, &changed, e);
        if (!r && m->also_n) { /* rosters that contradict each other: now they can be joined */
            r = member_commit(m, e);
        }
        home_unlock(lock);
    }
    crypto_key_free(k);
    return r;
}

static int check_pass(size_t n, struct err *e)
{
    if (n < BACKUP_PASS_MIN || n > BACKUP_PASS_MAX) {
        return err_set(e, ERR_ARG, "a passphrase has %d to %d bytes; several words are best",
                       BACKUP_PASS_MIN, BACKUP_PASS_MAX);
    }
    return 0;
}

/* The text: a title, then 6 lines of groups at most. */
static int print(const struct key_id *group, const uint8_t *b, struct buf *out)
{
    char chars[B32_CHARS(BYTES) + 1], s[ID_SHORT];
    id_short(group, s);
    b32_encode(b, BYTES, chars);
    int r = buf_addf(out, "%s: the signing key of the shoal %s, under a passphrase\n", title, s);
    for (size_t i = 0; !r && i < sizeof chars - 1; i += 4) {
        size_t n = sizeof chars - 1 - i < 4 ? sizeof chars - 1 - i : 4;
        bool last = i + n == sizeof chars - 1 || i % 40 == 36;
        r = buf_addf(out, "%.*s%s", (int)n, chars + i, last ? "\n" : " ");
    }
    return r;
}

int keeper_backup(const struct member *m, const char *pass, size_t pass_n, uint32_t iterations,
                  struct buf *out, struct err *e)
{
    uint8_t b[BYTES], key[32], d[CRYPTO_SECRET], digest[SHA256_SIZE];
    iterations = iterations ? iterations : BACKUP_ITERATIONS;
    int r = member_need_key(m, e);
    r = r ? r : check_pass(pass_n, e);
    if (!r && (iterations < BACKUP_ITERATIONS_MIN || iterations > BACKUP_ITERATIONS_MAX)) {
        r = err_set(e, ERR_ARG, "a backup takes %u to %u iterations", BACKUP_ITERATIONS_MIN,
                    BACKUP_ITERATIONS_MAX);
    }
    b[0] = 1;
    num_put_le32(b + 1, iterations);
    memcpy(b + 5, m->group.b, sizeof m->group.b);
    r = r ? r : crypto_random(b + 37, 28, e); /* salt and nonce */
    r = r ? r : crypto_key_secret(m->signing_key, d, e);
    if (!r && crypto_pbkdf2(pass, pass_n, b + 37, 16, iterations, key, sizeof key)) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    r = r ? r : crypto_seal(key, b + 53, b, HEAD, d, sizeof d, b + HEAD, e);
    if (!r) {
        sha256(b, BYTES - CHECK, digest);
        memcpy(b + BYTES - CHECK, digest, CHECK);
        r = print(&m->group, b, out);
        if (r) {
            err_set(e, r, "cannot write the backup: %s", err_text(r));
        }
    }
    crypto_wipe(key, sizeof key);
    crypto_wipe(d, sizeof d);
    return r;
}

/* The bytes of a backup, checked but for the passphrase. */
static int read_backup(const char *text, size_t n, uint8_t b[BYTES], struct err *e)
{
    const char *line = n <= BACKUP_TEXT_MAX * 4 ? memchr(text, '\n', n) : NULL;
    if (!line || strncmp(text, title, sizeof title - 1) != 0) {
        return err_set(e, ERR_FORMAT, "that is no backup: its first line begins with \"%s\"",
                       title);
    }
    struct buf c;
    uint8_t digest[SHA256_SIZE];
    size_t got = 0;
    buf_init(&c, BACKUP_TEXT_MAX);
    int r = b32_clean("a backup", line, n - (size_t)(line - text), &c, e);
    if (!r && (b32_decode(c.p ? c.p : "", c.n, b, BYTES, &got) || got != BYTES)) {
        r = ERR_FORMAT;
    } else if (!r) {
        sha256(b, BYTES - CHECK, digest);
        r = memcmp(digest, b + BYTES - CHECK, CHECK) != 0 ? ERR_FORMAT : 0;
    }
    if (r && !(e && e->code)) {
        err_set(e, r,
                "the backup is damaged: its check does not fit (a character is wrong or "
                "missing)");
    }
    buf_free(&c);
    if (!r && (b[0] != 1 || num_get_le32(b + 1) < BACKUP_ITERATIONS_MIN ||
               num_get_le32(b + 1) > BACKUP_ITERATIONS_MAX)) {
        r = err_set(e, ERR_UNSUPPORTED, "the backup was made by another version of Shoal");
    }
    return r;
}

/* With the lock held and *m fresh: the key becomes this home's, and this node a keeper. */
static int settle(struct member *m, struct crypto_key *k, uint64_t now, struct err *e)
{
    struct roster first;
    struct key_id group;
    struct buf b;
    bool changed;
    int r = store_key(m, k, e);
    if (!r && m->in_group) {
        r = member_refresh(m, &changed, e);
        r = r ? r : roster_add(&m->roster, crypto_key_public(m->me->key), now, ROSTER_KEEPER, e);
        return r ? r : member_commit(m, e);
    }
    if (r) {
        return r;
    }
    buf_init(&b, ROSTER_BLOB_MAX);
    roster_init(&first, crypto_key_public(k));
    group = first.group;
    first.version = 1;
    r = roster_add(&first, crypto_key_public(m->me->key), now, ROSTER_KEEPER, e);
    r = r ? r : roster_sign(&first, k, &b, e);
    r = r ? r : member_adopt(m, &group, b.p, b.n, e);
    roster_free(&first);
    buf_free(&b);
    return r;
}

int keeper_restore(struct member *m, const char *text, size_t n, const char *pass, size_t pass_n,
                   uint64_t now, struct err *e)
{
    uint8_t b[BYTES], key[32], d[CRYPTO_SECRET];
    struct crypto_key *k = NULL;
    struct key_id id, group;
    struct err own = {0};
    int lock;
    bool changed;
    e = e ? e : &own;
    e->code = 0;
    int r = read_backup(text, n, b, e);
    r = r ? r : check_pass(pass_n, e);
    if (!r && crypto_pbkdf2(pass, pass_n, b + 37, 16, num_get_le32(b + 1), key, sizeof key)) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!r && crypto_open(key, b + 53, b, HEAD, b + HEAD, CRYPTO_SECRET + CRYPTO_TAG, d, e)) {
        r = err_set(e, ERR_DIGEST, "the passphrase is not the one of this backup");
    }
    r = r ? r : crypto_key_from_secret(d, &k, e);
    crypto_wipe(key, sizeof key);
    crypto_wipe(d, sizeof d);
    if (r) {
        return r;
    }
    crypto_key_id(crypto_key_public(k), &id);
    memcpy(group.b, b + 5, sizeof group.b);
    if (!id_equal(&id, &group)) {
        r = err_set(e, ERR_FORMAT, "the backup does not hold the key it names");
    }
    r = r ? r : home_lock(m->home, &lock, e);
    if (!r) {
        r = member_refresh(m, &changed, e);
        if (!r && m->in_group && !id_equal(&m->group, &group)) {
            r = err_set(e, ERR_BUSY,
                        "this node belongs to another shoal than the backup: to change, move the "
                        "folder %s/shoal away first",
                        m->home);
        }
        r = r ? r : settle(m, k, now, e);
        home_unlock(lock);
    }
    crypto_key_free(k);
    return r;
}
