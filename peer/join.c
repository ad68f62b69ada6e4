/* SPDX-License-Identifier: MIT
 * join.c: see join.h. */
#include "peer/join.h"
#include "peer/home.h"

#include <string.h>

/* `blob` is NULL in a request. */
static int proof(const uint8_t key[SHA256_SIZE], const uint8_t invite[INVITE_ID],
                 const struct key_id *inviter, const struct key_id *joiner, const struct buf *blob,
                 uint8_t out[SHA256_SIZE], struct err *e)
{
    static const char ask[] = "shoal join 1", answer[] = "shoal joined 1";
    uint8_t m[sizeof answer + INVITE_ID + 3 * SHA256_SIZE];
    size_t n = blob ? sizeof answer - 1 : sizeof ask - 1;
    memcpy(m, blob ? answer : ask, n);
    memcpy(m + n, invite, INVITE_ID);
    n += INVITE_ID;
    memcpy(m + n, inviter->b, SHA256_SIZE);
    memcpy(m + n + SHA256_SIZE, joiner->b, SHA256_SIZE);
    n += 2 * SHA256_SIZE;
    if (blob) {
        sha256(blob->p, blob->n, m + n);
        n += SHA256_SIZE;
    }
    return crypto_hmac(key, SHA256_SIZE, m, n, out) ? err_set(e, ERR_NOMEM, "out of memory") : 0;
}

int join_ask(const struct token *t, const struct key_id *inviter, const struct key_id *joiner,
             struct join_request *out, struct err *e)
{
    uint8_t key[SHA256_SIZE];
    int r = invite_keys(t, out->invite, key, e);
    r = r ? r : proof(key, out->invite, inviter, joiner, NULL, out->proof, e);
    crypto_wipe(key, sizeof key);
    return r;
}

static void say(struct join_answer *a, enum join_result result, const char *text)
{
    a->result = result;
    size_t n = strlen(text);
    n = n < sizeof a->text ? n : sizeof a->text - 1;
    memcpy(a->text, text, n);
    a->text[n] = 0;
}

static const char unknown[] = "this node has no such invite: ask for a new one (shoal invite)";

/* The lock is held, *m is fresh and has the key, the proof is good. */
static int admit(struct member *m, struct invite *v, const struct key_id *joiner,
                 const uint8_t *pub, uint64_t now, struct join_answer *out, struct err *e)
{
    enum invite_burn burn;
    char s[ID_SHORT];
    id_short(joiner, s);
    if (roster_has_removed(&m->roster, joiner)) {
        say(out, JOIN_NODE_REMOVED,
            "this node was removed from the shoal and stays removed: to come back, move the "
            "folder `identity` of its data folder away and ask for a new invite");
        return err_set(e, ERR_REFUSED, "the removed node %s came with an invite", s);
    }
    if (roster_find(&m->roster, joiner)) {
        return 0;
    }
    int r = invite_burn(m->home, v, joiner, now, &burn, e);
    if (r) {
        return r;
    }
    if (burn == INVITE_EXPIRED) {
        say(out, JOIN_INVITE_EXPIRED, "this invite is over: ask for a new one (shoal invite)");
        return err_set(e, ERR_REFUSED, "node %s came with an invite that is over", s);
    }
    if (burn == INVITE_USED_UP) {
        say(out, JOIN_INVITE_USED_UP,
            "this invite was used before: ask for a new one (shoal invite)");
        return err_set(e, ERR_REFUSED, "node %s came with an invite that is used up", s);
    }
    r = roster_add(&m->roster, pub, now, 0, e);
    r = r ? r : member_commit(m, e);
    out->added = !r;
    return r;
}

int join_admit(struct member *m, const struct join_request *q,
               const uint8_t joiner_pub[CRYPTO_PUBLIC], uint64_t now, struct join_answer *out,
               struct err *e)
{
    struct invite v = {.uses = 0};
    struct key_id joiner;
    struct err own = {0};
    uint8_t want[SHA256_SIZE];
    bool changed;
    int lock;
    e = e ? e : &own;
    memset(out, 0, sizeof *out);
    buf_init(&out->blob, ROSTER_BLOB_MAX);
    crypto_key_id(joiner_pub, &joiner);
    int r = member_lock(m, &lock, e);
    if (r) {
        say(out, JOIN_FAILED_HERE, "the keeper is busy: try again");
        return r;
    }
    r = invite_load(m->home, q->invite, &v, e);
    if (r == ERR_NOTFOUND) {
        err_set(e, r, "a node came with an invite that this keeper did not make");
    }
    r = r ? r : proof(v.key, v.id, &m->me->id, &joiner, NULL, want, e);
    if (!r && !crypto_equal(want, q->proof, sizeof want)) {
        r = err_set(e, ERR_REFUSED, "a node came with the name of an invite but not its secret");
    }
    if (r) {
        say(out, JOIN_NO_SUCH_INVITE, unknown);
    } else {
        r = member_refresh(m, &changed, e);
        r = r ? r : member_need_key(m, e);
        r = r ? r : admit(m, &v, &joiner, joiner_pub, now, out, e);
        r = r ? r : buf_add(&out->blob, m->blob.p, m->blob.n);
        r = r ? r : proof(v.key, v.id, &m->me->id, &joiner, &out->blob, out->proof, e);
        if (!r) {
            say(out, JOINED, "");
        } else if (!out->result) {
            say(out, JOIN_FAILED_HERE, "the keeper could not take the node in: see its log");
        }
    }
    home_unlock(lock);
    crypto_wipe(&v, sizeof v);
    return r;
}

void join_answer_free(struct join_answer *a)
{
    buf_free(&a->blob);
}

/* The roster of an answer: of the token's shoal, with the inviter as keeper and us in it. */
static int check_roster(const struct member *m, const struct token *t, const struct key_id *inviter,
                        const struct buf *blob, struct key_id *group, struct err *e)
{
    struct roster x;
    int r = roster_parse(blob->p ? blob->p : "", blob->n, &x, e);
    if (r) {
        return r;
    }
    *group = x.group;
    roster_free(&x);
    if (!crypto_equal(group->b, t->group, sizeof t->group)) {
        return err_set(e, ERR_REFUSED,
                       "the node that answered belongs to another shoal than the invite");
    }
    r = roster_open(blob->p, blob->n, group, &x, e);
    if (r) {
        return r;
    }
    const struct roster_member *keeper = roster_find(&x, inviter);
    if (!keeper || !(keeper->flags & ROSTER_KEEPER)) {
        r = err_set(e, ERR_REFUSED, "the node that answered is not a keeper of the shoal");
    } else if (!roster_find(&x, &m->me->id)) {
        r = err_set(e, ERR_REFUSED, "the roster that came does not list this node");
    }
    roster_free(&x);
    return r;
}

int join_finish(struct member *m, const struct token *t, const struct key_id *inviter,
                const struct join_answer *a, struct err *e)
{
    uint8_t id[INVITE_ID], key[SHA256_SIZE], want[SHA256_SIZE];
    struct key_id group;
    bool changed;
    int lock;
    if (a->result != JOINED) {
        return err_set(e, ERR_REFUSED, "the other node answers: %.299s", a->text);
    }
    int r = invite_keys(t, id, key, e);
    r = r ? r : proof(key, id, inviter, &m->me->id, &a->blob, want, e);
    crypto_wipe(key, sizeof key);
    if (!r && !crypto_equal(want, a->proof, sizeof want)) {
        r = err_set(e, ERR_REFUSED,
                    "the node that answered does not know the invite: somebody else may have that "
                    "address now; ask for a new invite");
    }
    r = r ? r : check_roster(m, t, inviter, &a->blob, &group, e);
    r = r ? r : member_lock(m, &lock, e);
    if (r) {
        return r;
    }
    r = member_refresh(m, &changed, e);
    if (!r && m->in_group && !id_equal(&m->group, &group)) {
        r = err_set(e, ERR_BUSY,
                    "this node already belongs to another shoal: to change, move the folder "
                    "%s/shoal away first",
                    m->home);
    }
    bool again = !r && m->in_group; /* a member already: only a newer roster counts */
    if (!r && !again) {
        r = member_adopt(m, &group, a->blob.p, a->blob.n, e);
    }
    home_unlock(lock);
    enum member_taken taken;
    return again ? member_take_roster(m, a->blob.p, a->blob.n, &taken, e) : r;
}
