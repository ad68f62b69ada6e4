/* SPDX-License-Identifier: MIT
 * roster.c: see roster.h. */
#include "peer/roster.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define MEMBER_BYTES 74
#define REMOVED_BYTES 40

static const char magic[8] = {'s', 'h', 'o', 'a', 'l', 'r', 'o', '1'};

void roster_init(struct roster *r, const uint8_t group_pub[CRYPTO_PUBLIC])
{
    memset(r, 0, sizeof *r);
    memcpy(r->group_pub, group_pub, CRYPTO_PUBLIC);
    crypto_key_id(group_pub, &r->group);
}

void roster_free(struct roster *r)
{
    free(r->members);
    free(r->removed);
    memset(r, 0, sizeof *r);
}

/* Room for exactly these numbers of entries, at least one of each. */
static int allocate(struct roster *r, size_t members, size_t removed, struct err *e)
{
    r->members = calloc(members ? members : 1, sizeof *r->members);
    r->removed = calloc(removed ? removed : 1, sizeof *r->removed);
    if (!r->members || !r->removed) {
        roster_free(r);
        return err_set(e, ERR_NOMEM, "out of memory for a roster");
    }
    return 0;
}

int roster_copy(const struct roster *r, struct roster *out, struct err *e)
{
    roster_init(out, r->group_pub);
    int x = allocate(out, r->members_n, r->removed_n, e);
    if (x) {
        return x;
    }
    out->version = r->version;
    for (size_t i = 0; i < r->members_n; i++) {
        out->members[out->members_n++] = r->members[i];
    }
    for (size_t i = 0; i < r->removed_n; i++) {
        out->removed[out->removed_n++] = r->removed[i];
    }
    return 0;
}

static int by_id(const struct key_id *a, const struct key_id *b)
{
    return memcmp(a->b, b->b, sizeof a->b);
}

static int member_order(const void *a, const void *b)
{
    return by_id(&((const struct roster_member *)a)->id, &((const struct roster_member *)b)->id);
}

static int removed_order(const void *a, const void *b)
{
    return by_id(&((const struct roster_removed *)a)->id, &((const struct roster_removed *)b)->id);
}

const struct roster_member *roster_find(const struct roster *r, const struct key_id *id)
{
    struct roster_member want;
    want.id = *id;
    return r->members_n ? bsearch(&want, r->members, r->members_n, sizeof want, member_order)
                        : NULL;
}

static struct roster_removed *find_removed(const struct roster *r, const struct key_id *id)
{
    struct roster_removed want;
    want.id = *id;
    return r->removed_n ? bsearch(&want, r->removed, r->removed_n, sizeof want, removed_order)
                        : NULL;
}

bool roster_has_removed(const struct roster *r, const struct key_id *id)
{
    return find_removed(r, id) != NULL;
}

static int bad(struct err *e, const char *why)
{
    return err_set(e, ERR_FORMAT, "the roster is malformed: %s", why);
}

static int parse_entries(const uint8_t *p, size_t members, size_t removed, struct roster *r,
                         struct err *e)
{
    for (size_t i = 0; i < members; i++, p += MEMBER_BYTES) {
        struct roster_member *m = &r->members[r->members_n++];
        memcpy(m->pub, p, CRYPTO_PUBLIC);
        crypto_key_id(m->pub, &m->id);
        m->joined = num_get_le64(p + CRYPTO_PUBLIC);
        m->flags = p[CRYPTO_PUBLIC + 8];
        if (m->flags & ~ROSTER_KEEPER) {
            return bad(e, "unknown flags of a member");
        }
        if (i && by_id(&m[-1].id, &m->id) >= 0) {
            return bad(e, "members out of order");
        }
    }
    for (size_t i = 0; i < removed; i++, p += REMOVED_BYTES) {
        struct roster_removed *x = &r->removed[r->removed_n++];
        memcpy(x->id.b, p, sizeof x->id.b);
        x->when = num_get_le64(p + sizeof x->id.b);
        if (i && by_id(&x[-1].id, &x->id) >= 0) {
            return bad(e, "removed nodes out of order");
        }
        if (roster_find(r, &x->id)) {
            return bad(e, "a node is both a member and removed");
        }
    }
    return 0;
}

/* Where the signed part ends; checks every length. */
static int measure(const uint8_t *p, size_t n, size_t *members, size_t *removed, size_t *signed_n,
                   struct err *e)
{
    if (n > ROSTER_BLOB_MAX) {
        return err_set(e, ERR_LIMIT, "the roster has %zu bytes, more than the %d allowed", n,
                       ROSTER_BLOB_MAX);
    }
    if (n < ROSTER_HEAD || memcmp(p, magic, sizeof magic) != 0) {
        return bad(e, "it does not begin as one");
    }
    *members = (size_t)p[81] | (size_t)p[82] << 8;
    *removed = (size_t)p[83] | (size_t)p[84] << 8;
    if (*members > ROSTER_MEMBERS_MAX || *removed > ROSTER_REMOVED_MAX) {
        return bad(e, "too many entries");
    }
    if (num_get_le32(p + 85) || !num_get_le64(p + 73)) {
        return bad(e, "a bad header");
    }
    *signed_n = ROSTER_HEAD + *members * MEMBER_BYTES + *removed * REMOVED_BYTES;
    if (n <= *signed_n || p[*signed_n] < 8 || p[*signed_n] > CRYPTO_SIG_MAX ||
        n - *signed_n - 1 != p[*signed_n]) {
        return bad(e, "its length does not fit its entries");
    }
    return 0;
}

int roster_parse(const void *blob, size_t n, struct roster *out, struct err *e)
{
    const uint8_t *p = blob;
    size_t members, removed, signed_n;
    int x = measure(p, n, &members, &removed, &signed_n, e);
    if (x) {
        return x;
    }
    struct roster r;
    roster_init(&r, p + 8);
    x = allocate(&r, members, removed, e);
    if (x) {
        return x;
    }
    r.version = num_get_le64(p + 73);
    x = parse_entries(p + ROSTER_HEAD, members, removed, &r, e);
    if (x) {
        roster_free(&r);
        return x;
    }
    *out = r;
    return 0;
}

uint64_t roster_version_of(const void *blob, size_t n)
{
    return n >= ROSTER_HEAD ? num_get_le64((const uint8_t *)blob + 73) : 0;
}

int roster_open(const void *blob, size_t n, const struct key_id *group, struct roster *out,
                struct err *e)
{
    const uint8_t *p = blob;
    size_t members, removed, signed_n;
    struct key_id id;
    int x = measure(p, n, &members, &removed, &signed_n, e);
    if (x) {
        return x;
    }
    crypto_key_id(p + 8, &id);
    if (by_id(&id, group) != 0) {
        return err_set(e, ERR_REFUSED, "the roster is that of another shoal");
    }
    if (crypto_verify(p + 8, p, signed_n, p + signed_n + 1, n - signed_n - 1, NULL)) {
        return err_set(e, ERR_DIGEST, "the roster is not signed by the key of this shoal");
    }
    struct roster r;
    x = roster_parse(blob, n, &r, e);
    for (size_t i = 0; !x && i < r.members_n; i++) {
        x = crypto_public_check(r.members[i].pub, e);
        if (x) {
            roster_free(&r);
            return bad(e, "a member's key is none");
        }
    }
    if (!x) {
        *out = r;
    }
    return x;
}

static int content(const struct roster *r, struct buf *b)
{
    uint8_t head[ROSTER_HEAD] = {0}, m[MEMBER_BYTES], d[REMOVED_BYTES];
    memcpy(head, magic, sizeof magic);
    memcpy(head + 8, r->group_pub, CRYPTO_PUBLIC);
    num_put_le64(head + 73, r->version);
    head[81] = (uint8_t)r->members_n;
    head[82] = (uint8_t)(r->members_n >> 8);
    head[83] = (uint8_t)r->removed_n;
    head[84] = (uint8_t)(r->removed_n >> 8);
    int x = buf_add(b, head, sizeof head);
    for (size_t i = 0; !x && i < r->members_n; i++) {
        memcpy(m, r->members[i].pub, CRYPTO_PUBLIC);
        num_put_le64(m + CRYPTO_PUBLIC, r->members[i].joined);
        m[CRYPTO_PUBLIC + 8] = r->members[i].flags;
        x = buf_add(b, m, sizeof m);
    }
    for (size_t i = 0; !x && i < r->removed_n; i++) {
        memcpy(d, r->removed[i].id.b, sizeof r->removed[i].id.b);
        num_put_le64(d + sizeof r->removed[i].id.b, r->removed[i].when);
        x = buf_add(b, d, sizeof d);
    }
    return x;
}

int roster_sign(const struct roster *r, struct crypto_key *group_key, struct buf *out,
                struct err *e)
{
    if (memcmp(crypto_key_public(group_key), r->group_pub, CRYPTO_PUBLIC) != 0 || !r->version) {
        return err_set(e, ERR_ARG, "that key does not sign this roster");
    }
    struct buf b;
    uint8_t sig[1 + CRYPTO_SIG_MAX];
    size_t n;
    buf_init(&b, ROSTER_BLOB_MAX);
    int x = content(r, &b);
    x = x ? err_set(e, x, "cannot write the roster: %s", err_text(x))
          : crypto_sign(group_key, b.p, b.n, sig + 1, &n, e);
    if (!x) {
        sig[0] = (uint8_t)n;
        x = buf_add(&b, sig, n + 1);
        x = x ? x : buf_add(out, b.p, b.n);
        if (x) {
            err_set(e, x, "cannot write the roster: %s", err_text(x));
        }
    }
    buf_free(&b);
    return x;
}

/* As roster_add, with the id known and removals not looked at; keeps the earliest date. */
static int insert_member(struct roster *r, const struct roster_member *m, struct err *e)
{
    /* roster_find gives a const view of our own array */
    struct roster_member *there = (struct roster_member *)(uintptr_t)roster_find(r, &m->id);
    if (there) {
        there->flags |= m->flags;
        if (m->joined && (!there->joined || m->joined < there->joined)) {
            there->joined = m->joined;
        }
        return 0;
    }
    if (r->members_n >= ROSTER_MEMBERS_MAX) {
        return err_set(e, ERR_LIMIT, "a shoal has at most %d members: remove one first",
                       ROSTER_MEMBERS_MAX);
    }
    struct roster_member *grown = realloc(r->members, (r->members_n + 1) * sizeof *grown);
    if (!grown) {
        return err_set(e, ERR_NOMEM, "out of memory for a roster");
    }
    r->members = grown;
    size_t at = 0;
    while (at < r->members_n && by_id(&grown[at].id, &m->id) < 0) {
        at++;
    }
    memmove(grown + at + 1, grown + at, (r->members_n - at) * sizeof *grown);
    grown[at] = *m;
    r->members_n++;
    return 0;
}

static int insert_removed(struct roster *r, const struct roster_removed *x, struct err *e)
{
    struct roster_removed *there = find_removed(r, &x->id);
    if (there) {
        there->when = x->when < there->when ? x->when : there->when;
        return 0;
    }
    if (r->removed_n >= ROSTER_REMOVED_MAX) {
        return err_set(e, ERR_LIMIT,
                       "the roster remembers %d removed nodes and can hold no more: make a new "
                       "shoal with shoal init and invite the members again",
                       ROSTER_REMOVED_MAX);
    }
    struct roster_removed *grown = realloc(r->removed, (r->removed_n + 1) * sizeof *grown);
    if (!grown) {
        return err_set(e, ERR_NOMEM, "out of memory for a roster");
    }
    r->removed = grown;
    size_t at = 0;
    while (at < r->removed_n && by_id(&grown[at].id, &x->id) < 0) {
        at++;
    }
    memmove(grown + at + 1, grown + at, (r->removed_n - at) * sizeof *grown);
    grown[at] = *x;
    r->removed_n++;
    const struct roster_member *m = roster_find(r, &x->id);
    if (m) {
        size_t i = (size_t)(m - r->members);
        memmove(r->members + i, r->members + i + 1, (r->members_n - i - 1) * sizeof *r->members);
        r->members_n--;
    }
    return 0;
}

int roster_add(struct roster *r, const uint8_t pub[CRYPTO_PUBLIC], uint64_t joined, uint8_t flags,
               struct err *e)
{
    struct roster_member m = {.joined = joined, .flags = flags & ROSTER_KEEPER};
    int x = crypto_public_check(pub, e);
    if (x) {
        return x;
    }
    memcpy(m.pub, pub, CRYPTO_PUBLIC);
    crypto_key_id(pub, &m.id);
    if (roster_has_removed(r, &m.id)) {
        return err_set(e, ERR_REFUSED,
                       "this node was removed from the shoal and stays removed: to come back it "
                       "needs a new identity (move the folder `identity` of its data folder away) "
                       "and a new invite");
    }
    return insert_member(r, &m, e);
}

int roster_remove(struct roster *r, const struct key_id *id, uint64_t when, struct err *e)
{
    if (!roster_find(r, id) && !roster_has_removed(r, id)) {
        return err_set(e, ERR_NOTFOUND, "that node is not a member");
    }
    return insert_removed(r, &(struct roster_removed){*id, when}, e);
}

static int content_digest(const struct roster *r, uint8_t d[SHA256_SIZE])
{
    struct buf b;
    buf_init(&b, ROSTER_BLOB_MAX);
    int x = content(r, &b);
    if (!x) {
        sha256(b.p, b.n, d);
    }
    buf_free(&b);
    return x;
}

enum roster_order roster_compare(const struct roster *ours, const struct roster *theirs)
{
    if (ours->version != theirs->version) {
        return theirs->version > ours->version ? ROSTER_NEWER : ROSTER_OLDER;
    }
    uint8_t a[SHA256_SIZE], b[SHA256_SIZE];
    if (content_digest(ours, a) || content_digest(theirs, b)) {
        return ROSTER_EQUAL; /* out of memory: nothing changes this time */
    }
    int c = memcmp(b, a, sizeof a);
    return c > 0 ? ROSTER_NEWER : c < 0 ? ROSTER_OLDER : ROSTER_EQUAL;
}

bool roster_differs(const struct roster *r, const struct roster *than)
{
    if (r->members_n != than->members_n || r->removed_n != than->removed_n) {
        return true;
    }
    for (size_t i = 0; i < r->members_n; i++) {
        const struct roster_member *a = &r->members[i], *b = &than->members[i];
        if (by_id(&a->id, &b->id) != 0 || a->joined != b->joined || a->flags != b->flags) {
            return true;
        }
    }
    for (size_t i = 0; i < r->removed_n; i++) {
        const struct roster_removed *a = &r->removed[i], *b = &than->removed[i];
        if (by_id(&a->id, &b->id) != 0 || a->when != b->when) {
            return true;
        }
    }
    return false;
}

/* Everything of b goes into r; removal wins. */
static int take_in(struct roster *r, const struct roster *b, struct err *e)
{
    int x = 0;
    for (size_t i = 0; !x && i < b->removed_n; i++) {
        x = insert_removed(r, &b->removed[i], e);
    }
    for (size_t i = 0; !x && i < b->members_n; i++) {
        if (!roster_has_removed(r, &b->members[i].id)) {
            x = insert_member(r, &b->members[i], e);
        }
    }
    return x;
}

int roster_merge(const struct roster *a, const struct roster *b, struct roster *out, bool *changed,
                 struct err *e)
{
    const struct roster *winner = roster_compare(a, b) == ROSTER_NEWER ? b : a;
    const struct roster *other = winner == b ? a : b;
    int x = roster_copy(winner, out, e);
    if (x) {
        return x;
    }
    x = take_in(out, other, e);
    *changed = !x && roster_differs(out, winner);
    if (*changed && winner->version == UINT64_MAX) {
        x = err_set(e, ERR_LIMIT, "the roster's version cannot be raised any more");
    }
    if (x) {
        roster_free(out);
        return x;
    }
    out->version = *changed ? winner->version + 1 : winner->version;
    return 0;
}

enum roster_standing roster_standing(const struct roster *ours, const struct roster *theirs,
                                     const struct key_id *id)
{
    if (roster_has_removed(ours, id) || (theirs && roster_has_removed(theirs, id))) {
        return STANDING_REMOVED;
    }
    if (roster_find(ours, id) || (theirs && roster_find(theirs, id))) {
        return STANDING_MEMBER;
    }
    return STANDING_STRANGER;
}
