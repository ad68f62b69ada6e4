/* SPDX-License-Identifier: MIT
 * trust_kit.c: see trust_kit.h. */
#include "peer/trust_kit.h"

void node_open(struct node *n, char *home)
{
    struct err e = {0};
    n->home = home;
    ok(identity_open(home, "a machine of this test", &n->me, &e));
    ok(member_open(home, &n->me, &n->m, &e));
}

void node_close(struct node *n)
{
    member_close(&n->m);
    identity_close(&n->me);
}

void enlist(struct node *keeper, struct node *n)
{
    struct err e = {0};
    int lock;
    ok(member_add(&keeper->m, crypto_key_public(n->me.key), 1000, &e));
    ok(home_lock(n->home, &lock, &e));
    ok(member_adopt(&n->m, &keeper->m.group, keeper->m.blob.p, keeper->m.blob.n, &e));
    home_unlock(lock);
}

const char *short_of(const struct node *n)
{
    static char s[ID_SHORT];
    id_short(&n->me.id, s);
    return s;
}

enum join_result attempt(struct node *k, struct node *j, const struct token *t, uint64_t now)
{
    struct err e = {0};
    struct join_request q;
    struct join_answer a;
    ok(join_ask(t, &k->me.id, &j->me.id, &q, &e));
    join_admit(&k->m, &q, crypto_key_public(j->me.key), now, &a, &e);
    enum join_result result = a.result;
    if (result == JOINED) {
        ok(join_finish(&j->m, t, &k->me.id, &a, &e));
    } else {
        assert_true(a.text[0] && a.blob.n == 0 && e.msg[0]);
        fails(join_finish(&j->m, t, &k->me.id, &a, &e), ERR_REFUSED, a.text);
    }
    join_answer_free(&a);
    return result;
}

struct crypto_key *keys[KEYS];
uint8_t pubs[KEYS][CRYPTO_PUBLIC];
struct key_id ids[KEYS];

int make_keys(void **s)
{
    for (int i = 0; i < KEYS; i++) {
        if (crypto_key_make(&keys[i], NULL)) {
            return -1;
        }
        memcpy(pubs[i], crypto_key_public(keys[i]), CRYPTO_PUBLIC);
        crypto_key_id(pubs[i], &ids[i]);
    }
    return 0;
}

int free_keys(void **s)
{
    for (int i = 0; i < KEYS; i++) {
        crypto_key_free(keys[i]);
    }
    return 0;
}

struct roster sample(void)
{
    struct err e = {0};
    struct roster r;
    roster_init(&r, pubs[0]);
    r.version = 7;
    for (int i = 1; i <= 5; i++) {
        ok(roster_add(&r, pubs[i], (uint64_t)(1764480000 + i), i == 1 ? ROSTER_KEEPER : 0, &e));
    }
    ok(roster_remove(&r, &ids[5], 1764480100, &e));
    return r;
}

struct buf signed_blob(const struct roster *r)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, ROSTER_BLOB_MAX);
    ok(roster_sign(r, keys[0], &b, &e));
    return b;
}
