/* SPDX-License-Identifier: MIT
 * mesh_place.c: see mesh_place.h. */
#include "peer/mesh_place.h"

#include "peer/mesh_int.h"

#include <stdlib.h>
#include <string.h>

/* Of a mesh; LAN thread. */
struct mesh_places {
    struct mesh_place_cb cb;
    bool listening, told, warm;
    struct mesh_place mine;
    uint64_t seq;
};

static struct mesh_places *places(struct mesh *m)
{
    if (!m->places) {
        m->places = calloc(1, sizeof *m->places);
    }
    return m->places;
}

void mesh_place_close(struct mesh *m)
{
    free(m->places);
    m->places = NULL;
}

static bool speaks(const struct plink *l)
{
    return l->state == LINK_UP && l->model_same && l->places;
}

static void changed(struct mesh *m)
{
    if (m->places && m->places->listening) {
        m->places->cb.changed(m->places->cb.ctx);
    }
}

/* ---- sending ---- */

static void send_place(struct plink *l)
{
    struct mesh_places *p = l->m->places;
    Shoal__Place x = SHOAL__PLACE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.budget = p->mine.budget < WIRE_BUDGET_MAX ? p->mine.budget : WIRE_BUDGET_MAX;
    x.used = p->mine.used < WIRE_BUDGET_MAX ? p->mine.used : WIRE_BUDGET_MAX;
    x.may_background = p->mine.may_background;
    x.seq = p->seq;
    f.kind_case = SHOAL__FRAME__KIND_PLACE;
    f.place = &x;
    link_send(l, &f, TLS_CONTROL);
}

static void send_warm(struct plink *l, bool on)
{
    Shoal__Warm x = SHOAL__WARM__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.on = on;
    f.kind_case = SHOAL__FRAME__KIND_WARM;
    f.warm = &x;
    link_send(l, &f, TLS_CONTROL);
}

static int send_objects(struct plink *l, bool offer, const struct object_key *k, size_t n)
{
    Shoal__ObjectId o[WIRE_OFFER_MAX], *at[WIRE_OFFER_MAX];
    Shoal__Offer x = SHOAL__OFFER__INIT;
    Shoal__Kept y = SHOAL__KEPT__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    if (n < 1 || n > WIRE_OFFER_MAX) {
        return ERR_ARG;
    }
    for (size_t i = 0; i < n; i++) {
        shoal__object_id__init(&o[i]);
        o[i].kind = k[i].kind;
        o[i].layer = k[i].layer;
        o[i].index = k[i].index;
        at[i] = &o[i];
    }
    if (offer) {
        f.kind_case = SHOAL__FRAME__KIND_OFFER;
        x.n_objects = n;
        x.objects = at;
        f.offer = &x;
    } else {
        f.kind_case = SHOAL__FRAME__KIND_KEPT;
        y.n_objects = n;
        y.objects = at;
        f.kept = &y;
    }
    return link_send(l, &f, TLS_CONTROL);
}

/* ---- what comes ---- */

void mesh_place_up(struct plink *l)
{
    struct mesh_places *p = l->m->places;
    if (p && speaks(l)) {
        if (p->told) {
            send_place(l);
        }
        if (p->warm) {
            send_warm(l, true);
        }
    }
    changed(l->m);
}

void mesh_place_news(struct mesh *m)
{
    changed(m);
}

static void on_objects(struct plink *l, bool offer, Shoal__ObjectId *const *o, size_t n)
{
    struct mesh_places *p = l->m->places;
    struct object_key k[WIRE_OFFER_MAX];
    if (!p || !p->listening || n > WIRE_OFFER_MAX) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        k[i] = (struct object_key){(uint8_t)o[i]->kind, (uint16_t)o[i]->layer, o[i]->index};
    }
    (offer ? p->cb.offer : p->cb.kept)(p->cb.ctx, &l->inst.id, k, n);
}

void mesh_on_place(struct plink *l, const Shoal__Frame *f)
{
    struct mesh_places *p = l->m->places;
    if (l->m->o.no_features) {
        return;
    }
    switch (f->kind_case) {
    case SHOAL__FRAME__KIND_PLACE:
        if (!l->has_place || f->place->seq >= l->place_seq) {
            l->has_place = true;
            l->place_seq = f->place->seq;
            l->place =
                (struct mesh_place){f->place->budget, f->place->used, f->place->may_background};
            changed(l->m);
        }
        break;
    case SHOAL__FRAME__KIND_WARM:
        if (p && p->listening) {
            p->cb.warm(p->cb.ctx, &l->inst.id, f->warm->on);
        }
        break;
    case SHOAL__FRAME__KIND_OFFER:
        on_objects(l, true, f->offer->objects, f->offer->n_objects);
        break;
    case SHOAL__FRAME__KIND_KEPT:
        on_objects(l, false, f->kept->objects, f->kept->n_objects);
        break;
    default:
        break;
    }
}

/* ---- from other threads ---- */

struct place_note {
    struct note n;
    const struct mesh_place_cb *cb;
    struct mesh_place place;
    bool on, offer;
    struct key_id to;
    const struct object_key *k;
    size_t n_k;
    struct mesh_place_peer *out;
    size_t n_out;
    int r;
};

static void note_listen(struct mesh *m, struct note *n)
{
    struct place_note *x = (struct place_note *)n;
    struct mesh_places *p = places(m);
    if (p) {
        p->listening = x->cb != NULL;
        if (x->cb) {
            p->cb = *x->cb;
        }
    }
}

void mesh_place_listen(struct mesh *m, const struct mesh_place_cb *cb)
{
    struct place_note x = {.n = {.run = note_listen, .sync = true}, .cb = cb};
    mesh_post(m, &x.n);
}

static void note_tell(struct mesh *m, struct note *n)
{
    struct place_note *x = (struct place_note *)n;
    struct mesh_places *p = places(m);
    if (!p) {
        return;
    }
    p->mine = x->place;
    p->told = true;
    p->seq++;
    for (struct plink *l = m->links; l; l = l->next) {
        if (speaks(l)) {
            send_place(l);
        }
    }
}

void mesh_place_tell(struct mesh *m, const struct mesh_place *place)
{
    struct place_note x = {.n = {.run = note_tell, .sync = true}, .place = *place};
    mesh_post(m, &x.n);
}

static void note_warm(struct mesh *m, struct note *n)
{
    struct place_note *x = (struct place_note *)n;
    struct mesh_places *p = places(m);
    if (!p) {
        return;
    }
    p->warm = x->on;
    for (struct plink *l = m->links; l; l = l->next) {
        if (speaks(l)) {
            send_warm(l, x->on);
        }
    }
}

void mesh_place_warm(struct mesh *m, bool on)
{
    struct place_note x = {.n = {.run = note_warm, .sync = true}, .on = on};
    mesh_post(m, &x.n);
}

static void note_objects(struct mesh *m, struct note *n)
{
    struct place_note *x = (struct place_note *)n;
    struct plink *l = mesh_find_up(m, &x->to);
    x->r = l && speaks(l) ? send_objects(l, x->offer, x->k, x->n_k) : ERR_OFFLINE;
}

static int objects(struct mesh *m, const struct key_id *to, bool offer, const struct object_key *k,
                   size_t n)
{
    struct place_note x = {.n = {.run = note_objects, .sync = true},
                           .to = *to,
                           .offer = offer,
                           .k = k,
                           .n_k = n,
                           .r = ERR_CANCELLED};
    mesh_post(m, &x.n);
    return x.r;
}

int mesh_place_offer(struct mesh *m, const struct key_id *to, const struct object_key *k, size_t n)
{
    return objects(m, to, true, k, n);
}

int mesh_place_kept(struct mesh *m, const struct key_id *to, const struct object_key *k, size_t n)
{
    return objects(m, to, false, k, n);
}

/* ---- the list ---- */

static uint8_t *no_bits(const struct mesh *m)
{
    uint64_t n = 0;
    for (size_t i = 0; i < m->o.n_extents; i++) {
        n += m->extents[i].count;
    }
    return calloc(n / 8 + 1, 1);
}

static uint8_t *held_bits(const struct mesh *m, const struct plink *l)
{
    uint64_t at = 0;
    uint8_t *bits = no_bits(m);
    for (size_t i = 0; bits && i < m->o.n_extents; i++) {
        const struct mesh_extent *x = &m->extents[i];
        if (l->slot != LINK_NO_SLOT) {
            fetch_peer_row(m->fetch, l->slot, x->kind, x->layer, x->count, bits, at);
        }
        at += x->count;
    }
    return bits;
}

static void fill(struct mesh *m, struct mesh_place_peer *p, const struct key_id *id)
{
    const struct plink *l = mesh_find_up(m, id);
    const struct mesh_known *k = mesh_known_of(m, id, false);
    p->id = *id;
    memcpy(p->name, l ? l->name : k ? k->name : "", l || k ? sizeof p->name : 1);
    enum fetch_trust trust =
        l && l->slot != LINK_NO_SLOT ? fetch_peer_trust(m->fetch, l->slot) : FETCH_TRUSTED;
    p->connected = l && l->model_same && trust != FETCH_DOUBTED;
    if (p->connected && trust == FETCH_BANNED) { /* what it has is worth nothing */
        p->has_place = true;
        p->held = no_bits(m);
    } else if (p->connected) {
        p->has_place = l->has_place;
        p->complete = l->rx.synced;
        p->since = l->up_at;
        p->place = l->place;
        p->held = held_bits(m, l);
    }
}

static void note_list(struct mesh *m, struct note *n)
{
    struct place_note *x = (struct place_note *)n;
    const struct roster *r = &m->member.roster;
    x->r = ERR_OFFLINE;
    if (!m->o.has_model || !m->member.in_group) {
        return;
    }
    x->r = ERR_NOMEM;
    x->out = calloc(r->members_n ? r->members_n : 1, sizeof *x->out);
    for (size_t i = 0; x->out && i < r->members_n; i++) {
        if (memcmp(r->members[i].id.b, m->me.id.b, WIRE_ID) != 0) {
            fill(m, &x->out[x->n_out++], &r->members[i].id);
        }
    }
    x->r = x->out ? 0 : ERR_NOMEM;
}

int mesh_place_list(struct mesh *m, struct mesh_place_peer **out, size_t *n)
{
    struct place_note x = {.n = {.run = note_list, .sync = true}, .r = ERR_CANCELLED};
    mesh_post(m, &x.n);
    *out = x.out;
    *n = x.n_out;
    return x.r;
}

void mesh_place_list_free(struct mesh_place_peer *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(p[i].held);
    }
    free(p);
}
