/* SPDX-License-Identifier: MIT
 * fuzz_roster.c: any bytes as a roster. What the parser takes is in its one form: signed again (by
 * a key put in place of the group's) it gives the same bytes, and merging it with itself changes
 * nothing. Nothing is taken as signed by the group. */
#include "peer/roster.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t number[CRYPTO_SECRET] = {[CRYPTO_SECRET - 1] = 7};
    struct roster r, both, opened;
    struct err e = {0};
    int x = roster_parse(data, size, &r, &e);
    if (x) {
        check(e.code == x && e.msg[0]);
        return 0;
    }
    check(r.members_n <= ROSTER_MEMBERS_MAX && r.removed_n <= ROSTER_REMOVED_MAX);
    for (size_t i = 0; i < r.members_n; i++) {
        check(roster_find(&r, &r.members[i].id) == &r.members[i]);
        check(roster_standing(&r, NULL, &r.members[i].id) == STANDING_MEMBER);
    }
    for (size_t i = 0; i < r.removed_n; i++) {
        check(roster_standing(&r, NULL, &r.removed[i].id) == STANDING_REMOVED);
    }
    bool changed;
    check(!roster_merge(&r, &r, &both, &changed, NULL) && !changed);
    check(roster_compare(&r, &both) == ROSTER_EQUAL);
    roster_free(&both);

    struct crypto_key *k;
    struct buf b;
    check(!crypto_key_from_secret(number, &k, NULL));
    memcpy(r.group_pub, crypto_key_public(k), CRYPTO_PUBLIC);
    crypto_key_id(r.group_pub, &r.group);
    buf_init(&b, ROSTER_BLOB_MAX);
    check(!roster_sign(&r, k, &b, NULL));
    size_t body = ROSTER_HEAD + r.members_n * 74 + r.removed_n * 40;
    check(b.n > body && !memcmp(b.p + 73, data + 73, body - 73));
    if (!roster_open(b.p, b.n, &r.group, &opened, &e)) {
        roster_free(&opened);
    } else { /* a member whose key is no point */
        check(e.code == ERR_FORMAT);
    }
    b.p[body - 1] ^= 1;
    check(roster_open(b.p, b.n, &r.group, &opened, NULL) != 0);
    buf_free(&b);
    crypto_key_free(k);
    roster_free(&r);
    return 0;
}
