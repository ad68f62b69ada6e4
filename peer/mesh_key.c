/* SPDX-License-Identifier: MIT
 * mesh_key.c: the shoal's signing key on its way to a second keeper (keeper.h). See mesh_int.h.
 *
 * A node that the roster marks as keeper and that has not the key asks connected keepers for it,
 * each from time to time, until one gives it. Whom it is given to decides the giver's own roster.
 */
#include "peer/keeper.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#define ASK_MS 2000  /* between two wishes to one peer */
#define GIVE_MS 1000 /* between two answers to one peer: sealing is work */

void mesh_key_wish(struct plink *l, uint64_t now)
{
    struct mesh *m = l->m;
    if (!l->answers || l->key_open || !keeper_wanted(&m->member) ||
        (l->key_asked_at && now - l->key_asked_at < ASK_MS * MS_NS)) {
        return;
    }
    const struct roster_member *who = roster_find(&m->member.roster, &l->inst.id);
    if (!who || !(who->flags & ROSTER_KEEPER)) {
        return;
    }
    Shoal__KeyAsk k = SHOAL__KEY_ASK__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    f.kind_case = SHOAL__FRAME__KIND_KEY_ASK;
    f.key_ask = &k;
    l->key_asked_at = now;
    l->key_open = !link_send(l, &f, TLS_CONTROL);
}

void mesh_key_tick(struct mesh *m, uint64_t now)
{
    if (m->closing || !keeper_wanted(&m->member)) {
        return;
    }
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->state == LINK_UP) {
            mesh_key_wish(l, now);
        }
    }
}

static void answer(struct plink *l, const uint8_t *sealed, size_t n, const char *text)
{
    Shoal__KeyReply k = SHOAL__KEY_REPLY__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    char clean[WIRE_TEXT_MAX + 1];
    codec_clean(text, clean, WIRE_TEXT_MAX);
    k.sealed.data = (uint8_t *)(uintptr_t)sealed;
    k.sealed.len = n;
    k.text = clean;
    f.kind_case = SHOAL__FRAME__KIND_KEY_REPLY;
    f.key_reply = &k;
    link_send(l, &f, TLS_CONTROL);
}

void mesh_on_key_ask(struct plink *l)
{
    struct mesh *m = l->m;
    uint8_t sealed[KEEPER_SEALED];
    struct err e = {0};
    uint64_t now = clock_ns();
    if (l->key_given_at && now - l->key_given_at < GIVE_MS * MS_NS) {
        answer(l, NULL, 0, "asked too often: ask again in a second");
        return;
    }
    l->key_given_at = now;
    if (keeper_seal(&m->member, &l->inst.id, sealed, &e)) {
        mesh_log_once(m, "peer %s asked for the shoal's signing key and did not get it: %s", l->who,
                      e.msg);
        answer(l, NULL, 0, e.msg);
        return;
    }
    mesh_log(m, "peer %s, a keeper by the roster, was given the shoal's signing key", l->who);
    answer(l, sealed, sizeof sealed, "");
}

void mesh_on_key_reply(struct plink *l, const Shoal__KeyReply *k)
{
    struct mesh *m = l->m;
    struct err e = {0};
    if (!l->key_open) {
        link_broke(l, "KeyReply: not asked for");
        return;
    }
    l->key_open = false;
    if (!k->sealed.len) {
        mesh_log_once(m, "peer %s does not give the shoal's signing key: %s", l->who, k->text);
        return;
    }
    if (!keeper_wanted(&m->member)) {
        return; /* another keeper was quicker */
    }
    if (keeper_take(&m->member, k->sealed.data, k->sealed.len, &e)) {
        mesh_log_once(m, "the signing key from peer %s is not taken: %s", l->who, e.msg);
        return;
    }
    mesh_log(m, "this node is a keeper now: peer %s gave it the shoal's signing key", l->who);
    m->home_stamp = 0;
    mesh_look_now(m);
}
