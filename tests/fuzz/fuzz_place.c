/* SPDX-License-Identifier: MIT
 * fuzz_place.c: what members say that they keep and hold (Place, Have), with any numbers: placement
 * gives what its straightforward form gives, keeps within every budget, and ranks every copy.
 * Byte 0: members, 1: objects, 2: copies; then for each object a byte of its size, for each member
 * eight of its budget, one that says present or not, and its bits. */
#include "peer/place_plain.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS 12
#define OBJECTS 48

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine) {
        abort();
    }
}

struct input {
    const uint8_t *p;
    size_t n;
};

static uint64_t number(struct input *in, unsigned bytes)
{
    uint64_t v = 0;
    while (bytes-- && in->n) {
        v = v << 8 | *in->p++;
        in->n--;
    }
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t root[SHA256_SIZE] = {7};
    struct input in = {data, size};
    struct place_member m[MEMBERS];
    struct place_object o[OBJECTS];
    uint8_t bits[MEMBERS][OBJECTS / 8 + 1];
    size_t n = number(&in, 1) % (MEMBERS + 1), k = number(&in, 1) % (OBJECTS + 1);
    struct place_in x = {.root = root,
                         .members = m,
                         .n_members = n,
                         .objects = o,
                         .n_objects = k,
                         .copies = 1 + (unsigned)(number(&in, 1) % 4)};
    memset(m, 0, sizeof m);
    for (size_t i = 0; i < k; i++) {
        o[i].key = (struct object_key){0, (uint16_t)(i / 7), (uint32_t)(i % 7)};
        o[i].size = 1 + (number(&in, 1) << (i % 3 * 12));
    }
    for (size_t i = 0; i < n; i++) {
        m[i].id[0] = (uint8_t)(i + 1);
        m[i].budget = number(&in, 8) % (WIRE_BUDGET_MAX + 1);
        m[i].present = number(&in, 1) & 1;
        for (size_t b = 0; b < sizeof bits[i]; b++) {
            bits[i][b] = (uint8_t)number(&in, 1);
        }
        m[i].held = bits[i];
    }
    struct place_out out, plain;
    struct err e = {0};
    int r = place_compute(&x, &out, &e), r2 = place_plain(&x, &plain, &e);
    check(r == r2);
    if (!r) {
        check(out.n_fresh == plain.n_fresh && out.budgets == plain.budgets &&
              out.covered == plain.covered && out.planned == plain.planned &&
              out.possible == plain.possible && out.model == plain.model);
        uint64_t got[MEMBERS] = {0};
        for (size_t i = 0; i < out.n_fresh; i++) {
            const struct place_new *f = &out.fresh[i], *g = &plain.fresh[i];
            check(f->object == g->object && f->member == g->member && f->level == g->level);
            check(f->object < k && f->member < n && m[f->member].present && f->level >= 1 &&
                  f->level <= x.copies && !place_holds(&m[f->member], f->object));
            got[f->member] += o[f->object].size;
            check(got[f->member] <= m[f->member].budget);
        }
        check(out.covered <= out.model && out.planned <= out.model);
    }
    struct place_scores *s = malloc(sizeof *s);
    check(s != NULL);
    place_scores(s, root, m, n);
    for (size_t me = 0; me < n; me++) {
        for (size_t i = 0; i < k; i++) {
            enum place_rank rank = place_rank_of(s, m, n, me, (uint32_t)i, o[i].key);
            bool others = false, here = false;
            for (size_t w = 0; w < n; w++) {
                bool has = w != me && place_holds(&m[w], (uint32_t)i);
                others |= has;
                here |= has && m[w].present;
            }
            check(rank <= PLACE_LAST && (rank == PLACE_LAST) == !others &&
                  (rank == PLACE_ABSENT) == (others && !here));
        }
    }
    free(s);
    place_free(&out);
    place_free(&plain);
    return 0;
}
