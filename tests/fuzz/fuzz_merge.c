/* SPDX-License-Identifier: MIT
 * fuzz_merge.c: any three rosters of one shoal, joined in any order: the same content comes out,
 * joined again nothing changes, nothing that was removed is a member, nobody is lost; and their
 * order is one: of two, the same wins on both sides.
 *
 * The input is a list of steps of four bytes: which roster and what is done to it, a node, flags or
 * a version, a date. */
#include "peer/roster.h"

#include <stdlib.h>
#include <string.h>

enum { ROSTERS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

/* Keys are looked at by roster_open alone, so any bytes do here. */
static void pub_of(uint8_t i, uint8_t pub[CRYPTO_PUBLIC])
{
    memset(pub, i, CRYPTO_PUBLIC);
    pub[0] = 4;
}

static void step(struct roster *r, const uint8_t d[4])
{
    uint8_t pub[CRYPTO_PUBLIC];
    struct key_id id;
    pub_of(d[1], pub);
    crypto_key_id(pub, &id);
    switch (d[0] >> 4 & 3) {
    case 0:
    case 1:
        roster_add(r, pub, d[3], d[2] & ROSTER_KEEPER, NULL);
        break;
    case 2:
        roster_remove(r, &id, d[3], NULL);
        break;
    default:
        r->version += d[2] % 4;
        break;
    }
}

static void join(const struct roster *a, const struct roster *b, struct roster *out)
{
    bool changed;
    struct err e = {0};
    check(!roster_merge(a, b, out, &changed, &e));
    check(out->version >= a->version && out->version >= b->version);
    for (size_t i = 0; i < a->removed_n; i++) {
        check(roster_has_removed(out, &a->removed[i].id));
    }
    for (size_t i = 0; i < a->members_n; i++) {
        check(roster_find(out, &a->members[i].id) || roster_has_removed(out, &a->members[i].id));
    }
    for (size_t i = 0; i < out->members_n; i++) {
        check(!roster_has_removed(out, &out->members[i].id));
        check(roster_find(a, &out->members[i].id) || roster_find(b, &out->members[i].id));
    }
    for (size_t i = 0; i < out->removed_n; i++) {
        const struct key_id *id = &out->removed[i].id;
        check(roster_has_removed(a, id) || roster_has_removed(b, id));
    }
}

static void two(const struct roster *a, const struct roster *b)
{
    struct roster ab, ba, again;
    bool changed;
    enum roster_order x = roster_compare(a, b), y = roster_compare(b, a);
    check(x == ROSTER_EQUAL ? y == ROSTER_EQUAL
                            : y == (x == ROSTER_NEWER ? ROSTER_OLDER : ROSTER_NEWER));
    check(x != ROSTER_EQUAL || !roster_differs(a, b));
    check(roster_differs(a, b) == roster_differs(b, a));
    join(a, b, &ab);
    join(b, a, &ba);
    check(roster_compare(&ab, &ba) == ROSTER_EQUAL && !roster_differs(&ab, &ba));
    check(!roster_merge(&ab, b, &again, &changed, NULL) && !changed);
    check(!roster_differs(&again, &ab));
    roster_free(&again);
    check(!roster_merge(&ab, &ab, &again, &changed, NULL) && !changed);
    check(roster_compare(&again, &ab) == ROSTER_EQUAL);
    roster_free(&again);
    roster_free(&ab);
    roster_free(&ba);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct roster r[ROSTERS], a, b, c, d;
    uint8_t group[CRYPTO_PUBLIC];
    pub_of(0, group);
    for (int i = 0; i < ROSTERS; i++) {
        roster_init(&r[i], group);
        r[i].version = 1;
    }
    for (; size >= 4; data += 4, size -= 4) {
        step(&r[data[0] % ROSTERS], data);
        if (data[0] & 0x80) { /* all three begin with the same */
            step(&r[(data[0] + 1) % ROSTERS], data);
            step(&r[(data[0] + 2) % ROSTERS], data);
        }
    }
    two(&r[0], &r[1]);
    two(&r[0], &r[2]);
    two(&r[1], &r[2]);
    join(&r[0], &r[1], &a);
    join(&a, &r[2], &b);
    join(&r[1], &r[2], &c);
    join(&r[0], &c, &d);
    check(!roster_differs(&b, &d));
    roster_free(&a);
    roster_free(&b);
    roster_free(&c);
    roster_free(&d);
    for (int i = 0; i < ROSTERS; i++) {
        roster_free(&r[i]);
    }
    return 0;
}
