/* SPDX-License-Identifier: MIT
 * member.c: see member.h. */
#include "peer/member.h"
#include "peer/home.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char folder[] = "shoal";
static const char group_file[] = "shoal/group";
static const char roster_file[] = MEMBER_ROSTER;
static const char key_file[] = "shoal/group.key";

static void forget(struct member *m)
{
    roster_free(&m->roster);
    buf_free(&m->blob);
    member_fork_forget(m);
    crypto_key_free(m->signing_key);
    m->signing_key = NULL;
    m->in_group = false;
}

void member_close(struct member *m)
{
    forget(m);
    free((char *)(uintptr_t)m->home);
    memset(m, 0, sizeof *m);
}

static int load_group(struct member *m, struct err *e)
{
    struct buf b;
    buf_init(&b, 256);
    int r = home_read(m->home, group_file, false, 256, &b, e);
    if (!r && (memchr(b.p ? b.p : "", 0, b.n) || id_parse(b.p ? b.p : "", &m->group, NULL))) {
        r = err_set(e, ERR_FORMAT,
                    "%s/%s, which says to which shoal this node belongs, is damaged: move the "
                    "folder %s/%s away and join again",
                    m->home, group_file, m->home, folder);
    }
    buf_free(&b);
    return r;
}

static int load_roster(struct member *m, struct err *e)
{
    buf_init(&m->blob, ROSTER_BLOB_MAX);
    if (!home_has(m->home, roster_file)) {
        memset(&m->roster, 0, sizeof m->roster);
        m->roster.group = m->group;
        return 0;
    }
    int r = home_read(m->home, roster_file, false, ROSTER_BLOB_MAX, &m->blob, e);
    if (!r && roster_open(m->blob.p ? m->blob.p : "", m->blob.n, &m->group, &m->roster, e)) {
        r = e ? e->code : ERR_FORMAT;
        err_prefix(e,
                   "%s/%s cannot be used; delete it, and the next member that is met sends it "
                   "again",
                   m->home, roster_file);
    }
    return r;
}

static int load_key(struct member *m, struct err *e)
{
    if (!home_has(m->home, key_file)) {
        return 0;
    }
    struct buf b;
    struct key_id id;
    buf_init(&b, CRYPTO_PEM_MAX);
    int r = home_read(m->home, key_file, true, CRYPTO_PEM_MAX, &b, e);
    if (!r && crypto_key_from_pem(b.p ? b.p : "", b.n, &m->signing_key, e)) {
        r = e ? e->code : ERR_FORMAT;
        err_prefix(e,
                   "the signing key %s/%s is damaged; move it away and bring it back with the "
                   "backup, or go on without it if another keeper has it",
                   m->home, key_file);
    }
    if (!r) {
        crypto_key_id(crypto_key_public(m->signing_key), &id);
        if (m->in_group && !id_equal(&id, &m->group)) {
            r = err_set(e, ERR_FORMAT,
                        "%s/%s is the signing key of another shoal: move it away and bring the "
                        "right one back with the backup",
                        m->home, key_file);
        }
    }
    if (b.p) {
        crypto_wipe(b.p, b.n);
    }
    buf_free(&b);
    return r;
}

static int load(struct member *m, struct err *e)
{
    if (!home_has(m->home, group_file)) {
        return 0;
    }
    int r = load_group(m, e);
    m->in_group = !r;
    r = r ? r : load_roster(m, e);
    r = r ? r : member_fork_load(m, e);
    r = r ? r : load_key(m, e);
    if (!r && m->signing_key && !m->roster.version) {
        /* the roster was lost: go on from this keeper alone, to be merged with what others have */
        roster_init(&m->roster, crypto_key_public(m->signing_key));
        r = roster_add(&m->roster, crypto_key_public(m->me->key), 0, ROSTER_KEEPER, e);
    }
    return r;
}

int member_open(const char *home, const struct identity *me, struct member *out, struct err *e)
{
    int lock;
    memset(out, 0, sizeof *out);
    out->me = me;
    out->home = strdup(home);
    if (!out->home) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = home_lock(home, &lock, e);
    if (r) {
        return r;
    }
    home_sweep(home, folder);
    r = load(out, e);
    home_unlock(lock);
    if (r) {
        forget(out);
    }
    return r;
}

int member_lock(const struct member *m, int *lock, struct err *e)
{
    return home_lock_for(m->home, m->lock_ms ? m->lock_ms : HOME_LOCK_MS, lock, e);
}

static bool same_blob(const struct buf *a, const struct buf *b)
{
    return a->n == b->n && (!a->n || memcmp(a->p, b->p, a->n) == 0);
}

int member_refresh(struct member *m, bool *changed, struct err *e)
{
    struct member next = {.home = m->home, .me = m->me, .lock_ms = m->lock_ms};
    int r = load(&next, e);
    if (r) {
        forget(&next);
        return r;
    }
    *changed = next.in_group != m->in_group || !same_blob(&next.blob, &m->blob) ||
               !next.signing_key != !m->signing_key || next.also_n != m->also_n;
    for (size_t i = 0; i < m->also_n && !*changed; i++) {
        *changed = !same_blob(&next.also[i], &m->also[i]);
    }
    forget(m);
    *m = next;
    return 0;
}

int member_reload(struct member *m, bool *changed, struct err *e)
{
    int lock;
    *changed = false;
    int r = member_lock(m, &lock, e);
    if (r) {
        return r;
    }
    r = member_refresh(m, changed, e);
    home_unlock(lock);
    return r;
}

int member_need_key(const struct member *m, struct err *e)
{
    if (!m->in_group) {
        return err_set(e, ERR_REFUSED,
                       "this node belongs to no shoal: make one with shoal init, or join one with "
                       "shoal join");
    }
    if (m->signing_key) {
        return 0;
    }
    char text[400] = "no other member is known";
    size_t at = 0;
    for (size_t i = 0; i < m->roster.members_n && at < 100; i++) {
        if (m->roster.members[i].flags & ROSTER_KEEPER) {
            char s[ID_SHORT];
            id_short(&m->roster.members[i].id, s);
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? ", " : "ask ", s);
        }
    }
    return err_set(e, ERR_REFUSED,
                   "only a keeper, which has the signing key, can do this; %s, or bring the key "
                   "here with shoal restore",
                   text);
}

int member_commit(struct member *m, struct err *e)
{
    struct buf b;
    buf_init(&b, ROSTER_BLOB_MAX);
    int r = m->roster.version == UINT64_MAX
                ? err_set(e, ERR_LIMIT, "the roster's version cannot be raised any more")
                : 0;
    if (!r) {
        m->roster.version++;
        r = roster_sign(&m->roster, m->signing_key, &b, e);
    }
    r = r ? r : home_write(m->home, roster_file, b.p, b.n, e);
    r = r ? r : member_fork_clear(m, e); /* it says all of it */
    if (r) {
        /* memory must not say more than the disk */
        bool changed;
        buf_free(&b);
        member_refresh(m, &changed, NULL);
        return r;
    }
    buf_free(&m->blob);
    m->blob = b;
    return 0;
}

int member_set_aside_key(struct member *m, const struct key_id *group, struct err *e)
{
    struct member other = {.home = m->home, .me = m->me};
    struct key_id id;
    if (m->in_group || !home_has(m->home, key_file)) {
        return 0;
    }
    int r = load_key(&other, e);
    if (r) {
        return r;
    }
    crypto_key_id(crypto_key_public(other.signing_key), &id);
    crypto_key_free(other.signing_key);
    if (id_equal(&id, group)) {
        return 0;
    }
    char from[HOME_PATH_MAX], to[HOME_PATH_MAX], rel[sizeof key_file + 8 + ID_SHORT], s[ID_SHORT];
    id_short(&id, s);
    snprintf(rel, sizeof rel, "%s.old-%s", key_file, s);
    r = home_path(m->home, key_file, from, e);
    r = r ? r : home_path(m->home, rel, to, e);
    if (!r && rename(from, to) != 0) {
        r = err_sys(e, errno, "cannot rename %s", from);
    }
    return r;
}

int member_adopt(struct member *m, const struct key_id *group, const void *blob, size_t n,
                 struct err *e)
{
    char text[ID_TEXT], line[sizeof text + 1];
    bool changed;
    id_text(group, text);
    snprintf(line, sizeof line, "%s\n", text);
    int r = home_folder(m->home, folder, e);
    r = r ? r : member_set_aside_key(m, group, e);
    r = r ? r : home_write(m->home, roster_file, blob, n, e);
    r = r ? r : member_fork_clear(m, e);
    r = r ? r : home_write(m->home, group_file, line, strlen(line), e);
    return r ? r : member_refresh(m, &changed, e);
}

/* The signing key of a shoal to be made: a fresh one, or the one that an init that was killed left
 * (there is no pin yet, so nobody was ever told of it). */
static int new_signing_key(struct member *m, struct err *e)
{
    char pem[CRYPTO_PEM_MAX];
    size_t n;
    bool made;
    int r = 0;
    if (!home_has(m->home, key_file)) {
        struct crypto_key *k;
        r = crypto_key_make(&k, e);
        if (r) {
            return r;
        }
        r = crypto_key_pem(k, pem, &n, e);
        r = r ? r : home_write_once(m->home, key_file, pem, n, &made, e);
        crypto_wipe(pem, sizeof pem);
        crypto_key_free(k);
    }
    return r ? r : load_key(m, e);
}

static int in_one_already(const struct member *m, struct err *e)
{
    char s[ID_SHORT];
    id_short(&m->group, s);
    return err_set(e, ERR_BUSY,
                   "this node already belongs to the shoal %s: to leave it, move the folder %s/%s "
                   "away",
                   s, m->home, folder);
}

int member_init(struct member *m, uint64_t now, struct err *e)
{
    int lock;
    bool changed;
    struct buf b;
    struct roster first;
    int r = member_lock(m, &lock, e);
    if (r) {
        return r;
    }
    buf_init(&b, ROSTER_BLOB_MAX);
    r = member_refresh(m, &changed, e);
    if (!r && m->in_group) {
        r = in_one_already(m, e);
        home_unlock(lock);
        return r;
    }
    r = r ? r : home_folder(m->home, folder, e);
    r = r ? r : new_signing_key(m, e);
    if (!r) {
        roster_init(&first, crypto_key_public(m->signing_key));
        first.version = 1;
        r = roster_add(&first, crypto_key_public(m->me->key), now, ROSTER_KEEPER, e);
        r = r ? r : roster_sign(&first, m->signing_key, &b, e);
        struct key_id group = first.group;
        roster_free(&first);
        r = r ? r : member_adopt(m, &group, b.p, b.n, e);
    }
    if (r) {
        forget(m);
    }
    buf_free(&b);
    home_unlock(lock);
    return r;
}

/* Lock and bring *m up to date for a change that needs the key. */
static int begin(struct member *m, int *lock, struct err *e)
{
    bool changed;
    int r = member_lock(m, lock, e);
    if (r) {
        return r;
    }
    r = member_refresh(m, &changed, e);
    r = r ? r : member_need_key(m, e);
    if (r) {
        home_unlock(*lock);
    }
    return r;
}

int member_add(struct member *m, const uint8_t pub[CRYPTO_PUBLIC], uint64_t now, struct err *e)
{
    int lock;
    int r = begin(m, &lock, e);
    if (r) {
        return r;
    }
    r = roster_add(&m->roster, pub, now, 0, e);
    r = r ? r : member_commit(m, e);
    home_unlock(lock);
    return r;
}

static int find_member(const struct member *m, const char *which, size_t *at, struct err *e)
{
    struct key_id *ids = calloc(m->roster.members_n + 1, sizeof *ids);
    if (!ids) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < m->roster.members_n; i++) {
        ids[i] = m->roster.members[i].id;
    }
    int r = id_find(which, ids, m->roster.members_n, at, e);
    free(ids);
    return r;
}

int member_remove(struct member *m, const char *which, bool keeper_too, uint64_t now,
                  struct key_id *id, struct err *e)
{
    int lock;
    size_t at;
    int r = begin(m, &lock, e);
    if (r) {
        return r;
    }
    r = find_member(m, which, &at, e);
    if (!r) {
        *id = m->roster.members[at].id;
        char s[ID_SHORT];
        id_short(id, s);
        if (id_equal(id, &m->me->id)) {
            r = err_set(e, ERR_ARG,
                        "a node cannot remove itself: to leave, move the folder %s/%s away",
                        m->home, folder);
        } else if ((m->roster.members[at].flags & ROSTER_KEEPER) && !keeper_too) {
            r = err_set(e, ERR_REFUSED,
                        "%s is a keeper: it has the signing key and could sign itself in again. "
                        "To shut it out for good make a new shoal (shoal init) and invite the "
                        "others; to remove it all the same, say --keeper-too",
                        s);
        }
    }
    r = r ? r : roster_remove(&m->roster, id, now, e);
    r = r ? r : member_commit(m, e);
    home_unlock(lock);
    return r;
}

int member_take_roster(struct member *m, const void *blob, size_t n, enum member_taken *what,
                       struct err *e)
{
    struct roster theirs;
    int lock;
    bool changed;
    *what = TAKEN_EQUAL;
    if (!m->in_group) {
        return err_set(e, ERR_REFUSED, "this node belongs to no shoal");
    }
    int r = roster_open(blob, n, &m->group, &theirs, e);
    if (r) {
        return r;
    }
    r = member_lock(m, &lock, e);
    if (!r) {
        r = member_refresh(m, &changed, e);
        r = r ? r : member_fork_take(m, &theirs, blob, n, what, e);
        home_unlock(lock);
    }
    roster_free(&theirs);
    return r;
}

enum roster_standing member_standing(const struct member *m, const struct key_id *id,
                                     const void *their_blob, size_t n, struct err *why)
{
    struct roster theirs;
    bool shown = m->in_group && their_blob && !roster_open(their_blob, n, &m->group, &theirs, NULL);
    enum roster_standing s =
        m->in_group ? roster_standing(&m->roster, shown ? &theirs : NULL, id) : STANDING_STRANGER;
    if (shown) {
        roster_free(&theirs);
    }
    if (s == STANDING_REMOVED) {
        err_set(why, ERR_REFUSED,
                "this node was removed from the shoal by a keeper: to come back it needs a new "
                "identity and a new invite");
    } else if (s == STANDING_STRANGER) {
        err_set(why, ERR_REFUSED,
                "this node is not a member: on a keeper run shoal invite, and here shoal join with "
                "what it prints");
    }
    return s;
}
