/* SPDX-License-Identifier: MIT
 * member_fork.c: rosters that two keepers signed without having seen each other's. One of them
 * wins, the same on every node, but what the others say is not lost: a node keeps those that say
 * more than the winner (HOME/shoal/roster.also) and acts on all of them together, removals first,
 * and hands them on, until a keeper has signed them together. */
#include "peer/home.h"
#include "peer/member.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH 4 /* before each blob: its bytes, little-endian */
#define FILE_MAX (MEMBER_ALSO * (LENGTH + ROSTER_BLOB_MAX))

static const char file[] = "shoal/roster.also";

struct head { /* a signed roster, borrowed or owned by a struct member */
    const void *blob;
    size_t n;
    struct roster r;
};

void member_fork_forget(struct member *m)
{
    for (size_t i = 0; i < m->also_n; i++) {
        buf_free(&m->also[i]);
    }
    m->also_n = 0;
}

/* What both say, with a's version. False: they do not fit into one roster, or no memory. */
static bool join(struct roster *a, const struct roster *b)
{
    struct roster both;
    bool more;
    uint64_t version = a->version;
    if (roster_merge(a, b, &both, &more, NULL)) {
        return false;
    }
    bool differs = roster_differs(&both, a);
    roster_free(a);
    *a = both;
    a->version = version;
    return differs;
}

static int damaged(struct member *m, struct err *e)
{
    return err_set(
        e, ERR_FORMAT,
        "%s/%s cannot be used; delete it: the next keeper that is met sends what it said", m->home,
        file);
}

static int add(struct member *m, const void *p, size_t n, struct err *e)
{
    struct buf *b = &m->also[m->also_n];
    buf_init(b, ROSTER_BLOB_MAX);
    if (buf_add(b, p, n)) {
        buf_free(b);
        return err_set(e, ERR_NOMEM, "out of memory for a roster");
    }
    m->also_n++;
    return 0;
}

/* The blobs of the file, one after the other. */
static int split(struct member *m, const struct buf *b, struct err *e)
{
    const uint8_t *p = (const uint8_t *)b->p;
    size_t left = b->n;
    while (left) {
        size_t n = left > LENGTH ? num_get_le32(p) : 0;
        struct roster r;
        if (!n || n > left - LENGTH || m->also_n == MEMBER_ALSO ||
            roster_open(p + LENGTH, n, &m->group, &r, NULL)) {
            return damaged(m, e);
        }
        if (m->blob.n) {
            join(&m->roster, &r);
            roster_free(&r);
        } else { /* the roster itself was lost: the best of these takes its place */
            roster_free(&m->roster);
            m->roster = r;
            if (buf_add(&m->blob, p + LENGTH, n)) {
                return err_set(e, ERR_NOMEM, "out of memory for a roster");
            }
        }
        int x = add(m, p + LENGTH, n, e);
        if (x) {
            return x;
        }
        p += LENGTH + n;
        left -= LENGTH + n;
    }
    return 0;
}

int member_fork_load(struct member *m, struct err *e)
{
    struct buf b;
    if (!home_has(m->home, file)) {
        return 0;
    }
    buf_init(&b, FILE_MAX);
    int r = home_read(m->home, file, false, FILE_MAX, &b, e);
    r = r == ERR_LIMIT ? damaged(m, e) : r ? r : split(m, &b, e);
    buf_free(&b);
    return r;
}

static int save(const struct member *m, const struct head *keep, size_t n, struct err *e)
{
    struct buf b;
    uint8_t length[LENGTH];
    buf_init(&b, FILE_MAX);
    int r = 0;
    for (size_t i = 0; !r && i < n; i++) {
        num_put_le32(length, (uint32_t)keep[i].n);
        r = buf_add(&b, length, LENGTH);
        r = r ? r : buf_add(&b, keep[i].blob, keep[i].n);
    }
    r = r ? err_set(e, r, "out of memory for a roster")
          : home_write(m->home, file, b.p ? b.p : "", b.n, e);
    buf_free(&b);
    return r;
}

int member_fork_clear(struct member *m, struct err *e)
{
    member_fork_forget(m);
    return home_has(m->home, file) ? save(m, NULL, 0, e) : 0;
}

static int by_order(const void *a, const void *b)
{
    const struct head *x = a, *y = b;
    enum roster_order o = roster_compare(&x->r, &y->r);
    return o == ROSTER_NEWER ? 1 : o == ROSTER_OLDER ? -1 : 0;
}

/* Of v, the best first, keep those that say more than `best` and those kept before; the others are
 * freed. More than MEMBER_ALSO, or more than one roster can hold, is not kept: then the keepers'
 * own merge fails, too, and says so. */
static size_t choose(const struct roster *best, struct head *v, size_t n)
{
    struct roster all;
    size_t kept = 0;
    bool ok = !roster_copy(best, &all, NULL);
    qsort(v, n, sizeof *v, by_order);
    for (size_t i = 0; i < n; i++) {
        if (ok && kept < MEMBER_ALSO && join(&all, &v[i].r)) {
            v[kept++] = v[i];
        } else {
            roster_free(&v[i].r);
        }
    }
    if (ok) {
        roster_free(&all);
    }
    return kept;
}

/* Another roster wins or stays beside ours; nothing is signed. */
static int keep_both(struct member *m, const struct roster *top, const struct roster *theirs,
                     const void *blob, size_t n, enum member_taken *what, struct err *e)
{
    struct head v[MEMBER_ALSO + 1];
    size_t n_v = 0, at = MEMBER_ALSO + 1;
    enum roster_order order = roster_compare(top, theirs);
    bool known = order == ROSTER_EQUAL, wins = order == ROSTER_NEWER, changed;
    int r = 0;
    for (size_t i = 0; !r && i < m->also_n; i++) {
        v[n_v] = (struct head){m->also[i].p, m->also[i].n, {.version = 0}};
        r = roster_parse(v[n_v].blob, v[n_v].n, &v[n_v].r, e);
        known |= !r && roster_compare(&v[n_v].r, theirs) == ROSTER_EQUAL;
        n_v += !r;
    }
    if (!r && !known && (!wins || m->blob.n)) { /* who loses may still have something to say */
        v[n_v] = wins ? (struct head){m->blob.p, m->blob.n, {.version = 0}}
                      : (struct head){blob, n, {.version = 0}};
        r = roster_parse(v[n_v].blob, v[n_v].n, &v[n_v].r, e);
        n_v += !r;
    }
    if (r) {
        while (n_v) {
            roster_free(&v[--n_v].r);
        }
        return r;
    }
    n_v = choose(wins ? theirs : top, v, n_v);
    changed = n_v != m->also_n;
    for (size_t i = 0; i < n_v; i++) {
        at = v[i].blob == blob ? i : at;
        changed |= i < m->also_n && v[i].blob != m->also[i].p;
    }
    *what = known                  ? TAKEN_EQUAL
            : wins                 ? (n_v ? TAKEN_MERGED : TAKEN_NEWER)
            : at < MEMBER_ALSO + 1 ? TAKEN_MERGED
                                   : TAKEN_OLDER;
    r = changed ? save(m, v, n_v, e) : 0; /* first: what it says besides is harmless */
    r = r || !wins ? r : home_write(m->home, MEMBER_ROSTER, blob, n, e);
    while (n_v) {
        roster_free(&v[--n_v].r);
    }
    return r || (!wins && !changed) ? r : member_refresh(m, &changed, e);
}

/* A keeper signs together what both say. *signed_it: it had something to sign. */
static int sign_both(struct member *m, const struct roster *best, const struct roster *theirs,
                     bool *signed_it, struct err *e)
{
    struct roster both;
    bool more;
    uint64_t version = best->version;
    int r = roster_merge(&m->roster, theirs, &both, &more, e);
    if (r) {
        return r;
    }
    *signed_it = roster_differs(&both, best);
    if (!*signed_it) {
        roster_free(&both);
        return 0;
    }
    roster_free(&m->roster);
    m->roster = both;
    m->roster.version = version; /* member_commit raises it */
    return member_commit(m, e);
}

bool member_listed(const struct member *m, const struct buf *blob)
{
    struct roster r;
    if (!blob->n || roster_parse(blob->p, blob->n, &r, NULL)) {
        return false;
    }
    bool yes = roster_find(&r, &m->me->id) != NULL;
    roster_free(&r);
    return yes;
}

int member_fork_take(struct member *m, const struct roster *theirs, const void *blob, size_t n,
                     enum member_taken *what, struct err *e)
{
    struct roster top;
    bool done = false;
    int r =
        m->blob.n ? roster_parse(m->blob.p, m->blob.n, &top, e) : roster_copy(&m->roster, &top, e);
    if (r) {
        return r;
    }
    if (m->signing_key) {
        bool wins = roster_compare(&top, theirs) == ROSTER_NEWER;
        r = sign_both(m, wins ? theirs : &top, theirs, &done, e);
        *what = TAKEN_MERGED;
    }
    if (!r && !done) {
        r = keep_both(m, &top, theirs, blob, n, what, e);
    }
    roster_free(&top);
    return r;
}
