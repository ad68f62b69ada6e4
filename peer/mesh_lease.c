/* SPDX-License-Identifier: MIT
 * mesh_lease.c: one download for all: the leases of the fetch engine (fetch_relay.c) and of the
 * server (serve_lease.c) put together, and what members tell each other of the origin. See
 * mesh_int.h. */
#include "peer/mesh_int.h"

#include <stdlib.h>

/* ---- what the engine asks for ---- */

static void op_chunk(void *ctx, struct object_key k, uint64_t size, uint32_t chunk,
                     const uint8_t *p, size_t n, const uint8_t sha[SHA256_SIZE], enum basis b)
{
    struct mesh *m = ctx;
    if (m->serve) {
        serve_lease_chunk(m->serve, k, size, chunk, p, n, sha, b);
    }
}

static void op_lease_end(void *ctx, struct object_key k, uint32_t retry_ms)
{
    struct mesh *m = ctx;
    if (m->serve) {
        serve_lease_end(m->serve, k, SHOAL__REFUSE_REASON__REFUSE_ORIGIN, retry_ms);
    }
}

static void op_take(void *ctx, uint32_t peer, const struct object_key *k, const uint32_t *chunks,
                    uint32_t n)
{
    struct mesh *m = ctx;
    Shoal__ObjectId o[WIRE_TAKE_MAX], *list[WIRE_TAKE_MAX];
    Shoal__LeaseTake x = SHOAL__LEASE_TAKE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    for (uint32_t i = 0; i < n; i++) {
        shoal__object_id__init(&o[i]);
        o[i].kind = k[i].kind;
        o[i].layer = k[i].layer;
        o[i].index = k[i].index;
        list[i] = &o[i];
    }
    x.n_objects = n;
    x.objects = list;
    x.n_chunks = n;
    x.chunks = (uint32_t *)(uintptr_t)chunks;
    f.kind_case = SHOAL__FRAME__KIND_LEASE_TAKE;
    f.lease_take = &x;
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->slot == peer && l->state == LINK_UP) {
            link_send(l, &f, TLS_CONTROL);
            return;
        }
    }
}

static void op_origin_busy(void *ctx, uint64_t ms)
{
    struct mesh *m = ctx;
    mesh_log_once(m, "the origin has asked a member to be left alone for %.0f s", (double)ms / 1e3);
    m->origin.busy(m->origin.ctx, ms);
}

void mesh_lease_ops(struct mesh *m, struct fetch_opts *f)
{
    f->leases = !m->o.no_features;
    memcpy(f->self, m->me.id.b, SHA256_SIZE);
    memcpy(f->root, m->o.model_root, SHA256_SIZE);
    f->ops.chunk = op_chunk;
    f->ops.lease_end = op_lease_end;
    f->ops.send_take = op_take;
    f->ops.origin_busy = m->o.origin && m->origin.busy ? op_origin_busy : NULL;
}

/* ---- what peers ask for ---- */

static void on_done(void *ctx, struct fetch_want *w, const struct fetch_result *r)
{
    (void)ctx;
    (void)w;
    (void)r; /* the storage has it, or whoever waits was refused by op_lease_end */
}

uint32_t mesh_lease_asked(void *ctx, void *peer, struct object_key k, unsigned prio,
                          uint32_t *retry_ms)
{
    struct mesh *m = ctx;
    const struct plink *l = peer;
    enum fetch_prio p = prio < FETCH_PRIOS ? (enum fetch_prio)prio : FETCH_BACKGROUND;
    struct fetch_want_opts o = {.prio = p, .others = true, .done = on_done};
    uint32_t no = fetch_on_ask(m->fetch, l->slot, k, retry_ms);
    if (no) {
        return no;
    }
    int r =
        m->wanted ? m->wanted(m->name_ctx, k, p) : fetch_get_object(m->fetch, k, &o, NULL, NULL);
    return r ? SHOAL__REFUSE_REASON__REFUSE_ORIGIN : 0;
}

void mesh_on_lease_take(struct plink *l, const Shoal__LeaseTake *t)
{
    struct object_key k[WIRE_TAKE_MAX];
    uint32_t n = 0;
    for (size_t i = 0; i < t->n_objects && n < WIRE_TAKE_MAX; i++) {
        const Shoal__ObjectId *o = t->objects[i];
        k[n++] = (struct object_key){(uint8_t)o->kind, (uint16_t)o->layer, o->index};
    }
    if (l->slot != LINK_NO_SLOT && l->leases) {
        fetch_on_take(l->m->fetch, l->slot, k, t->n_chunks == t->n_objects ? t->chunks : NULL, n);
    }
}

/* ---- what is known of the origin ---- */

static void send_state(struct plink *l, bool works, uint64_t busy_ms, uint64_t bytes_s)
{
    Shoal__OriginState x = SHOAL__ORIGIN_STATE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.works = works && l->m->o.origin;
    x.busy_ms = busy_ms < WIRE_BUSY_MS_MAX ? (uint32_t)busy_ms : WIRE_BUSY_MS_MAX;
    x.bytes_s = bytes_s;
    f.kind_case = SHOAL__FRAME__KIND_ORIGIN_STATE;
    f.origin_state = &x;
    link_send(l, &f, TLS_CONTROL);
}

void mesh_on_origin_state(struct plink *l, const Shoal__OriginState *s)
{
    l->origin_works = s->works;
    if (l->slot != LINK_NO_SLOT && l->leases) {
        fetch_on_origin_state(l->m->fetch, l->slot, s->works, s->busy_ms, s->bytes_s);
    }
}

void mesh_lease_up(struct plink *l)
{
    struct mesh *m = l->m;
    bool works;
    uint64_t busy_ms, bytes_s;
    if (!l->leases || l->slot == LINK_NO_SLOT) {
        return;
    }
    if (l->serve) {
        serve_peer_leases(l->serve, l);
    }
    fetch_origin_state(m->fetch, &works, &busy_ms, &bytes_s);
    send_state(l, works, busy_ms, bytes_s);
    fetch_on_origin_state(m->fetch, l->slot, l->origin_works, 0, 0);
}

void mesh_lease_tick(struct mesh *m)
{
    bool works;
    uint64_t busy_ms, bytes_s;
    if (!m->fetch || m->closing) {
        return;
    }
    fetch_origin_state(m->fetch, &works, &busy_ms, &bytes_s);
    bool news = works != m->said_works || (busy_ms > 0) != m->said_busy;
    m->said_works = works;
    m->said_busy = busy_ms > 0;
    for (struct plink *l = m->links, *next; l; l = next) {
        next = l->next;
        if (l->state == LINK_UP && l->model_same && l->leases &&
            (news || (l->serve && serve_peer_waits(l->serve)))) {
            send_state(l, works, busy_ms, bytes_s);
        }
    }
}

struct busy_note {
    struct note n;
    uint64_t ms;
};

static void note_busy(struct mesh *m, struct note *n)
{
    struct busy_note *x = (struct busy_note *)n;
    if (m->fetch) {
        fetch_origin_busy(m->fetch, x->ms);
        mesh_lease_tick(m);
    }
    free(x);
}

void mesh_origin_busy(struct mesh *m, uint64_t ms)
{
    struct busy_note *x = calloc(1, sizeof *x);
    if (x) {
        x->n.run = note_busy;
        x->ms = ms;
        mesh_post(m, &x->n);
    }
}
