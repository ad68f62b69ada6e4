/* SPDX-License-Identifier: MIT
 * mesh_model.c: a model that comes while the mesh runs (mesh_set_model). See mesh_int.h.
 *
 * Open connections are told by a further Hello, which goes before everything that presumes it (the
 * same queue), and each end shares objects as soon as it has said and heard the same model, in
 * whatever order that comes. A peer that does not take a further Hello (an older program) is let
 * go with the goodbye of a replaced connection: both sides dial anew at once, and the first Hello
 * of the fresh connection has the model. */
#include "peer/mesh_int.h"

#include <stdlib.h>

int mesh_model_start(struct mesh *m, struct err *e)
{
    struct serve_opts s = {.storage = m->o.storage,
                           .storage_ctx = m->o.storage_ctx,
                           .bytes_s = m->o.out_bytes_s,
                           .peer_bytes_s = m->o.out_peer_bytes_s,
                           .yield_ms = m->o.yield_ms,
                           .ctx = m->o.ctx};
    s.lease = m->o.no_features ? NULL : mesh_lease_asked;
    s.lease_ctx = m;
    int r = mesh_fetch_open(m, e);
    if (r) {
        return r;
    }
    r = serve_open(m->loop, &s, &m->serve, e);
    if (r) {
        fetch_close(m->fetch);
        m->fetch = NULL;
        return r;
    }
    mesh_ref(m);
    mesh_fetch_origin(m);
    mesh_bans_look(m, false); /* before a peer that is banned is asked for anything */
    atomic_store(&m->may_fetch, true);
    return 0;
}

struct model_note {
    struct note n;
    const struct mesh_model *model;
    struct mesh_extent *extents; /* a copy; NULL again when it was taken */
    int code;
    struct err *e;
};

static void announce(struct mesh *m)
{
    struct key_id root;
    struct err e = {0};
    char text[MESH_SHORT];
    memcpy(root.b, m->o.model_root, SHA256_SIZE);
    mesh_short(&root, text);
    if (m->disco && disco_set_model(m->disco, text, &e)) {
        mesh_log(m, "the model is not announced: %s", e.msg);
    }
}

static void note_model(struct mesh *m, struct note *n)
{
    struct model_note *x = (struct model_note *)n;
    const struct mesh_model *a = x->model;
    if (m->closing) {
        x->code = err_set(x->e, ERR_CANCELLED, "the node is stopping");
        return;
    }
    if (m->o.has_model) {
        x->code = err_set(x->e, ERR_BUSY, "this node shares a model already");
        return;
    }
    m->o.storage = a->storage;
    m->o.storage_ctx = a->storage_ctx;
    m->o.numerics_version = a->numerics_version;
    m->o.name_of = a->name_of;
    m->name_ctx = a->ctx;
    m->wanted = a->wanted;
    m->want_small = a->want_small;
    memcpy(m->o.model_root, a->root, SHA256_SIZE);
    m->o.origin = NULL;
    m->o.samples = a->samples;
    m->o.sample_bytes = a->sample_bytes;
    if (a->origin) {
        m->origin = *a->origin;
        m->o.origin = &m->origin;
    }
    m->has_words = a->words != NULL;
    if (a->words) {
        m->words = *a->words;
    }
    x->code = mesh_model_start(m, x->e);
    if (x->code) {
        return; /* has_model is still false: nothing of it is looked at */
    }
    free(m->extents);
    m->o.extents = m->extents = x->extents;
    m->o.n_extents = a->n_extents;
    x->extents = NULL;
    m->cover_at = 0;
    m->o.has_model = true;
    announce(m);
    for (struct plink *l = m->links, *next; l; l = next) {
        next = l->next;
        link_renew(l);
    }
}

int mesh_set_model(struct mesh *m, const struct mesh_model *a, struct err *e)
{
    struct model_note x = {.n = {.run = note_model, .sync = true}, .model = a, .e = e};
    if (!a->storage || (a->origin && (!a->origin->get || !a->origin->cancel)) ||
        (a->n_extents && !a->extents)) {
        return err_set(e, ERR_ARG, "what is said of the model is not complete");
    }
    x.extents = calloc(a->n_extents + 1, sizeof *x.extents);
    if (!x.extents) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (a->n_extents) {
        memcpy(x.extents, a->extents, a->n_extents * sizeof *x.extents);
    }
    mesh_post(m, &x.n);
    free(x.extents);
    return x.code;
}
