/* SPDX-License-Identifier: MIT
 * homes_offer.c: see homes_int.h: giving up and taking over.
 *
 * Two that hold the same object could both take their copy for the one that may go, when each
 * believes the other. So a home copy goes only after another has said Kept for it, and a last copy
 * only after another has fetched it. Who said so treats its own as a last copy for ten minutes, and
 * whoever heard it may let its copy go for five.
 *
 * While the coverage is completed the plan counts with the room of what is not the home copy; who
 * keeps such a one because it has said Kept gives it back to the one with the home copy. */
#include "node/daemon/homes_int.h"

#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_AT 64     /* of the longest unused */
#define LAST_AT_ONCE 8 /* last copies offered in one round */

/* We have asked the same of the same member at the same time: of two the lower id keeps it. Else
 * both would, and a full shoal have one place less for ten minutes. */
static bool crossed(const struct homes *h, const struct homes_note *x)
{
    return h->offered_at[x->o] && h->offered_to[x->o] == num_get_le64(x->from.b) &&
           !h->released_until[x->o] && /* else it has said Kept, and gives it back now */
           clock_ns() - h->offered_at[x->o] < HOMES_BACK_MS * MS_NS &&
           memcmp(x->from.b, h->m[0].id.b, sizeof x->from.b) < 0;
}

/* We hold it and keep it from now on: say so. */
static void keep(struct homes *h, uint32_t o, const struct key_id *to)
{
    h->kept_until[o] = clock_ns() + HOMES_KEEP_MS * MS_NS;
    h->released_until[o] = h->offered_at[o] = 0;
    if (store_rank(h->st, h->ids[o], PLACE_LAST) &&
        !mesh_place_kept(h->mesh, to, &h->obj[o].key, 1)) {
        pthread_mutex_lock(&h->mu);
        h->c.kept++;
        pthread_mutex_unlock(&h->mu);
    }
}

static void on_offer(struct homes *h, const struct homes_note *x)
{
    const struct homes_member *me = &h->m[0];
    uint64_t coming = homes_warming(h) ? h->coming[0] : 0;
    if (homes_bit(me->held, x->o)) {
        if (!crossed(h, x)) {
            keep(h, x->o, &x->from);
        }
    } else if (h->may_background && homes_member(h, &x->from) &&
               me->used + coming + (uint64_t)(h->n_flying + 1) * h->expert <= me->budget) {
        homes_want(h, x->o, HOMES_ACCEPTED, &x->from);
    }
}

static void on_kept(struct homes *h, const struct homes_note *x)
{
    const struct homes_member *by = homes_member(h, &x->from);
    if (!by || !by->connected || !h->offered_at[x->o] ||
        h->offered_to[x->o] != num_get_le64(x->from.b)) {
        return; /* it was asked of somebody else, or of nobody */
    }
    h->released_until[x->o] = clock_ns() + HOMES_RELEASE_MS * MS_NS;
    h->kept_until[x->o] = 0;
    store_rank(h->st, h->ids[x->o], PLACE_SPARE);
    pthread_mutex_lock(&h->mu);
    h->c.released++;
    pthread_mutex_unlock(&h->mu);
}

/* Until the next look at the disk. */
static void arrived(struct homes *h, uint32_t o)
{
    struct homes_member *me = &h->m[0];
    if (!homes_bit(me->held, o)) {
        homes_set(me->held, o, true);
        me->used += o < h->n_experts ? h->obj[o].size : 0;
    }
}

void homes_take_notes(struct homes *h)
{
    pthread_mutex_lock(&h->mu);
    size_t n = h->n_notes;
    struct homes_note *v = n ? malloc(n * sizeof *v) : NULL;
    if (v) {
        memcpy(v, h->notes, n * sizeof *v);
        h->n_notes = 0;
    }
    pthread_mutex_unlock(&h->mu);
    for (size_t i = 0; v && i < n; i++) {
        switch (v[i].kind) {
        case HOMES_OFFERED:
            on_offer(h, &v[i]);
            break;
        case HOMES_KEPT:
            on_kept(h, &v[i]);
            break;
        case HOMES_TAKEN_OVER:
            keep(h, v[i].o, &v[i].from);
            arrived(h, v[i].o);
            break;
        case HOMES_ARRIVED:
            arrived(h, v[i].o);
            break;
        default:
            h->not_before[v[i].o] =
                clock_ns() + (v[i].kind == HOMES_NO_ROOM ? HOMES_FULL_MS : HOMES_FAIL_MS) * MS_NS;
            break;
        }
        pthread_mutex_lock(&h->mu);
        if (h->flying[v[i].o] == HOMES_LANDED) {
            h->flying[v[i].o] = 0;
        }
        pthread_mutex_unlock(&h->mu);
    }
    free(v);
}

/* ---- offering ---- */

static bool offer(struct homes *h, uint32_t o, const struct homes_member *to, uint64_t now)
{
    if (mesh_place_offer(h->mesh, &to->id, &h->obj[o].key, 1)) {
        return false;
    }
    h->offered_at[o] = now;
    h->offered_to[o] = num_get_le64(to->id.b);
    pthread_mutex_lock(&h->mu);
    h->c.offered++;
    pthread_mutex_unlock(&h->mu);
    return true;
}

/* The best-scored one that makes copies and has room for one more than it was offered, beside what
 * warming brings to it: else whose disk is full first would move to others what they have to push
 * out, or cannot keep, a moment later. */
static size_t taker(struct homes *h, uint32_t o, const uint64_t *promised)
{
    bool warm = homes_warming(h);
    size_t best = 0;
    uint64_t cost = 0;
    for (size_t i = 1; i < h->n_m; i++) {
        const struct homes_member *x = &h->m[i];
        if (!x->speaks || !x->may_background ||
            x->used + (warm ? h->coming[i] : 0) + promised[i] + h->obj[o].size > x->budget) {
            continue;
        }
        uint64_t c =
            order_cost(order_score_of(&h->scores.seed[i], h->obj[o].key), h->scores.weight[i]);
        if (!best || c < cost) {
            best = i;
            cost = c;
        }
    }
    return best;
}

static uint64_t offer_rank(struct homes *h, enum place_rank rank, uint64_t need, uint64_t now)
{
    uint32_t ids[LOOK_AT];
    uint64_t promised[PLACE_MEMBERS_MAX] = {0};
    size_t n = store_oldest(h->st, (uint8_t)rank, ids, LOOK_AT);
    unsigned made = 0;
    for (size_t i = 0; i < n && need; i++) {
        uint32_t o = h->number[ids[i]];
        if (o >= h->n_experts || (h->kept_until[o] > now && homes_holder(h, o))) {
            continue; /* the second: somebody lets its copy go because we said Kept */
        }
        if (h->offered_at[o] && now - h->offered_at[o] < HOMES_OFFER_MS * MS_NS) {
            need--; /* an answer may come */
            continue;
        }
        if (rank == PLACE_HOME) {
            const struct homes_member *x = homes_holder(h, o);
            need -= x && x->speaks && offer(h, o, x, now);
            continue;
        }
        size_t t = made < LAST_AT_ONCE ? taker(h, o, promised) : 0;
        if (t && offer(h, o, &h->m[t], now)) {
            promised[t] += h->obj[o].size;
            made++;
            need--;
        }
    }
    return need;
}

/* What is kept here for one that has the home copy: that one is to keep it again. */
static void give_back(struct homes *h, uint64_t need, uint64_t now)
{
    for (uint32_t o = 0; o < h->n_experts && need; o++) {
        if (h->kept_until[o] <= now || !homes_bit(h->m[0].held, o) ||
            place_rank_of(&h->scores, h->pm, h->n_m, 0, o, h->obj[o].key) != PLACE_SPARE) {
            continue;
        }
        if (h->offered_at[o] && now - h->offered_at[o] < HOMES_BACK_MS * MS_NS) {
            need--;
            continue;
        }
        const struct homes_member *x = homes_holder(h, o);
        need -= x && x->speaks && offer(h, o, x, now);
    }
}

void homes_offer(struct homes *h)
{
    const struct homes_member *me = &h->m[0];
    uint64_t now = clock_ns(), stock = h->expert ? me->budget / h->expert / 16 : 0;
    uint32_t ids[HOMES_STOCK];
    if (me->budget >= h->sums.model) {
        return; /* there is room for all experts: nothing will have to go, though no room is left */
    }
    stock = stock > HOMES_STOCK ? HOMES_STOCK : stock ? stock : 1;
    uint64_t room = me->budget > me->used && h->expert ? (me->budget - me->used) / h->expert : 0;
    if (me->used > me->budget && h->expert) { /* its budget has shrunk: all that is over */
        stock += (me->used - me->budget + h->expert - 1) / h->expert;
    }
    if (room >= stock) {
        return;
    }
    room += store_oldest(h->st, PLACE_SPARE, ids, HOMES_STOCK);
    if (room >= stock) {
        return;
    }
    bool warm = homes_warming(h) && h->n_open && me->used <= me->budget;
    if (warm) {
        give_back(h, stock - room, now);
    }
    uint64_t need = warm ? stock - room : offer_rank(h, PLACE_HOME, stock - room, now);
    need = need ? offer_rank(h, PLACE_ABSENT, need, now) : 0;
    if (need) {
        offer_rank(h, PLACE_LAST, need, now);
    }
}
