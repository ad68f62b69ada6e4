/* SPDX-License-Identifier: MIT
 * homes_rig_around.c: see homes_rig_int.h. What homes*.c calls of store, mesh and model is defined
 * here, and stands in for them in this program. */
#include "tests/daemon/homes_rig_int.h"

#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world w;

void rig_note(const char *what, int a, int b)
{
    w.res.trace = (w.res.trace ^ (w.now + (uint64_t)a * 31 + (uint64_t)b + (uint8_t)what[0])) *
                  0x100000001b3ull;
    if (w.say) {
        printf("%9.3f %s %d %d\n", (double)w.now * 1e-9, what, a, b);
    }
}

uint64_t rig_ms(unsigned from, unsigned to)
{
    return (from + rng_below(&w.r, to - from + 1)) * MS_NS;
}

/* ---- clock, files, model ---- */

uint64_t clock_thread_ns(void)
{
    return 0; /* rounds cost nothing */
}

uint64_t clock_ns(void)
{
    return w.now;
}

static int of_home(const char *path)
{
    return path[0] - 'a'; /* a home is a letter */
}

int file_read_all(const char *path, struct buf *out, struct err *e)
{
    const struct buf *f = &w.m[of_home(path)].file;
    return f->n ? buf_add(out, f->p, f->n) : err_set(e, ERR_NOTFOUND, "%s", path);
}

int file_write_atomic(const char *path, const void *p, size_t n, mode_t mode, struct err *e)
{
    struct buf *f = &w.m[of_home(path)].file;
    (void)mode;
    (void)e;
    f->n = 0;
    return buf_add(f, p, n);
}

bool id_equal(const struct key_id *a, const struct key_id *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

void id_text(const struct key_id *id, char out[ID_TEXT])
{
    snprintf(out, ID_TEXT, "%u", id->b[0]);
}

void id_short(const struct key_id *id, char out[ID_SHORT])
{
    snprintf(out, ID_SHORT, "%u", id->b[0]);
}

void node_log(struct node *n, const char *fmt, ...)
{
    (void)n;
    (void)fmt;
}

void power_now(struct power *out)
{
    memset(out, 0, sizeof *out);
}

const struct model *store_model(const struct store *st)
{
    (void)st;
    return &w.model;
}

const struct model_config *model_config(const struct model *m)
{
    return &m->c;
}

const uint8_t *model_root(const struct model *m)
{
    return m->root;
}

uint32_t model_object_count(const struct model *m)
{
    (void)m;
    return OBJECTS;
}

const struct model_object *model_object(const struct model *m, uint32_t id)
{
    (void)id;
    return &m->o;
}

uint32_t model_expert_id(const struct model *m, uint32_t layer, uint32_t e)
{
    (void)m;
    return layer < LAYERS && e < EXPERTS ? layer * EXPERTS + e : MODEL_NONE;
}

uint64_t model_spine_bytes(const struct model *m)
{
    (void)m;
    return 0;
}

uint64_t model_expert_bytes(const struct model *m)
{
    (void)m;
    return OBJECTS * ONE;
}

struct object_key store_key(const struct store *st, uint32_t id)
{
    (void)st;
    return (struct object_key){0, (uint16_t)(id / EXPERTS), id % EXPERTS};
}

uint32_t store_key_id(const struct store *st, struct object_key k)
{
    (void)st;
    return model_expert_id(&w.model, k.layer, k.index);
}

/* ---- disks ---- */

uint64_t rig_used(int i)
{
    uint64_t n = 0;
    for (int o = 0; o < OBJECTS; o++) {
        n += w.m[i].held[o] ? ONE : 0;
    }
    return n;
}

void rig_look_at_room(int i)
{
    bool room = rig_used(i) + ONE <= w.m[i].budget;
    w.m[i].room_since = !room ? 0 : w.m[i].room_since ? w.m[i].room_since : w.now + 1;
}

void rig_send_to(int from, int to, struct event *e, bool may_be_lost)
{
    struct seen *s = &w.seen[to][from];
    if (!w.seen[from][to].link || (may_be_lost && !w.calm && rng_below(&w.r, 8) == 0)) {
        return;
    }
    uint64_t at = w.now + rig_ms(0, rng_below(&w.r, 20) ? 30 : w.late_ms);
    s->last_at = at > s->last_at ? at : s->last_at; /* in order */
    e->t = s->last_at;
    e->from = (uint8_t)from;
    e->to = (uint8_t)to;
    e->run = w.seen[from][to].run;
    event_push(&w.q, e);
}

static void tell_have(int i, uint32_t o, bool on)
{
    for (int j = 0; j < (int)w.n; j++) {
        struct event e = {.kind = HAVE, .o = o, .on = on};
        rig_send_to(i, j, &e, false);
    }
    if (w.m[i].listening) {
        w.m[i].cb.changed(w.m[i].cb.ctx);
    }
}

static bool connected(int i, int j)
{
    return w.m[j].up && w.seen[i][j].link && w.seen[j][i].link &&
           w.now - w.seen[i][j].since > GRACE_S * S_NS &&
           w.now - w.seen[j][i].since > GRACE_S * S_NS;
}

/* Object o is leaving member i's disk. */
static void judge(int i, uint32_t o)
{
    w.res.evicted++;
    for (int j = 0; j < (int)w.n; j++) {
        if (j != i && w.m[j].in && w.m[j].held[o]) {
            return;
        }
    }
    bool room = false;
    if (w.left_at[o] && w.now - w.left_at[o] < GRACE_S * S_NS) {
        w.res.unknown++; /* it was not known yet that the other copy is gone */
        return;
    }
    for (int j = 0; j < (int)w.n; j++) {
        const struct member *x = &w.m[j];
        room = room || (j != i && x->in && x->up && x->room_since);
        if (j != i && x->in && !x->battery && x->room_since && connected(i, j) &&
            w.now - x->room_since > GRACE_S * S_NS) {
            w.res.lost++;
            rig_note("LOST", i, (int)o);
            if (w.say) {
                printf("          rank %u of at most %u; member %d has %llu of %llu, for %.1f s\n",
                       w.m[i].ranked ? w.m[i].rank[o] : 99, w.m[i].most, j,
                       (unsigned long long)rig_used(j), (unsigned long long)x->budget,
                       (double)(w.now - x->room_since) * 1e-9);
            }
            return;
        }
    }
    *(room ? &w.res.unknown : &w.res.gone) += 1;
}

/* As disk_room: the lowest rank of at most the object's own and the limit, longest unused; for a
 * second copy nothing but spare ones. */
static bool make_room(int i, uint32_t o, bool second)
{
    struct member *m = &w.m[i];
    while (rig_used(i) + ONE > m->budget) {
        int v = -1;
        unsigned most = !m->ranked ? UINT8_MAX : m->rank[o] < m->most ? m->rank[o] : m->most;
        most = m->ranked && second ? PLACE_SPARE : most;
        for (int k = 0; k < OBJECTS; k++) {
            if (!m->held[k] || m->pinned[k] || (m->ranked && m->rank[k] > most)) {
                continue;
            }
            unsigned rk = m->ranked ? m->rank[k] : 0, rv = v >= 0 && m->ranked ? m->rank[v] : 0;
            if (v < 0 || rk < rv || (rk == rv && m->used_at[k] < m->used_at[v])) {
                v = k;
            }
        }
        if (v < 0) {
            return false;
        }
        judge(i, (uint32_t)v);
        m->held[v] = false;
        rig_note("evict", i, v);
        if (w.say) {
            printf("          of rank %u\n", m->ranked ? m->rank[v] : 99);
        }
        tell_have(i, (uint32_t)v, false);
    }
    return true;
}

static bool peer_holds(int i, uint32_t o)
{
    bool from = false;
    for (int j = 0; j < (int)w.n && !from; j++) {
        from = w.seen[i][j].link && w.m[j].up && w.m[j].held[o];
    }
    return from;
}

/* Who downloads it for all: the first in the order of those that i sees. */
static int first_for(int i, uint32_t o)
{
    int best = i;
    struct object_key k = store_key(NULL, o);
    uint64_t top = order_score(w.model.root, k, w.m[i].id.b);
    for (int j = 0; j < (int)w.n; j++) {
        uint64_t x = order_score(w.model.root, k, w.m[j].id.b);
        if (w.seen[i][j].link && w.m[j].up && order_before(x, w.m[j].id.b, top, w.m[best].id.b)) {
            best = j;
            top = x;
        }
    }
    return best;
}

int rig_arrive(int i, uint32_t o, bool lease)
{
    struct member *m = &w.m[i];
    if (m->held[o]) {
        return 0;
    }
    int first = lease && !peer_holds(i, o) ? first_for(i, o) : i;
    if (!w.origin && !peer_holds(i, o)) {
        return ERR_OFFLINE;
    }
    if (first != i) {
        rig_arrive(first, o, false);
    }
    bool ok = make_room(i, o, peer_holds(i, o)); /* as fetch_flight.c says it to the store */
    if (ok) {
        m->held[o] = true;
        m->rank[o] = UINT8_MAX; /* as disk_set_own: until it is ranked anew */
        m->used_at[o] = ++w.tick;
        rig_note("came", i, (int)o);
        tell_have(i, o, true);
    }
    rig_look_at_room(i);
    return ok ? 0 : ERR_FULL;
}

/* ---- the store, as homes*.c sees it ---- */

int store_wants_open(struct store *st, struct store_wants **out, struct err *e)
{
    (void)e;
    *out = &w.m[st->i].wants;
    return 0;
}

int store_wants_add(struct store_wants *x, uint64_t tag, uint32_t id, enum store_prio prio,
                    struct err *err)
{
    (void)prio;
    (void)err;
    struct event e = {.t = w.now + rig_ms(5, 400),
                      .kind = ARRIVE,
                      .to = (uint8_t)x->i,
                      .want = true,
                      .run = w.m[x->i].run,
                      .o = id};
    assert(tag == id);
    w.m[x->i].pinned[id] = true;
    event_push(&w.q, &e);
    return 0;
}

int store_wants_next(struct store_wants *x, uint64_t *tag, uint32_t *id, int *code, struct err *why)
{
    (void)x;
    (void)tag;
    (void)id;
    (void)code;
    (void)why;
    return ERR_CANCELLED; /* homes_ended is called instead */
}

void store_wants_stop(struct store_wants *x)
{
    (void)x;
}

void store_wants_close(struct store_wants *x)
{
    (void)x;
}

bool store_has_origin(const struct store *st)
{
    (void)st;
    return w.origin;
}

int store_share_list(struct store *st, uint32_t **ids, size_t *n, struct err *e)
{
    (void)e;
    *ids = malloc(OBJECTS * sizeof **ids);
    *n = 0;
    for (uint32_t o = 0; *ids && o < OBJECTS; o++) {
        if (w.m[st->i].held[o]) {
            (*ids)[(*n)++] = o;
        }
    }
    return *ids ? 0 : ERR_NOMEM;
}

void store_get_space(struct store *st, struct store_space *out)
{
    out->budget = w.m[st->i].budget;
    out->used = out->experts = rig_used(st->i);
}

int store_ranks(struct store *st, const uint8_t *rank, uint8_t most)
{
    struct member *m = &w.m[st->i];
    m->ranked = rank != NULL;
    m->most = most;
    if (rank) {
        memcpy(m->rank, rank, OBJECTS);
    }
    return 0;
}

bool store_rank(struct store *st, uint32_t id, uint8_t rank)
{
    w.m[st->i].rank[id] = rank;
    return w.m[st->i].held[id];
}

void store_rank_coming(struct store *st, uint32_t id, uint8_t rank)
{
    if (!w.m[st->i].held[id]) {
        w.m[st->i].rank[id] = rank;
    }
}

size_t store_oldest(struct store *st, uint8_t rank, uint32_t *ids, size_t max)
{
    const struct member *m = &w.m[st->i];
    size_t n = 0;
    for (uint32_t o = 0; m->ranked && o < OBJECTS; o++) {
        if (!m->held[o] || m->pinned[o] || m->rank[o] != rank ||
            (n == max && m->used_at[o] >= m->used_at[ids[n - 1]])) {
            continue;
        }
        size_t at = n < max ? n++ : n - 1;
        for (; at > 0 && m->used_at[ids[at - 1]] > m->used_at[o]; at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = o;
    }
    return n;
}

/* ---- the mesh, as homes*.c sees it ---- */

const struct key_id *mesh_id(const struct mesh *x)
{
    return &w.m[x->i].id;
}

void mesh_place_listen(struct mesh *x, const struct mesh_place_cb *cb)
{
    w.m[x->i].listening = cb != NULL;
    if (cb) {
        w.m[x->i].cb = *cb;
    }
}

void rig_send_place(int i, int j)
{
    struct event e = {.kind = PLACE, .place = w.m[i].told};
    rig_send_to(i, j, &e, false);
}

void mesh_place_tell(struct mesh *x, const struct mesh_place *p)
{
    w.m[x->i].told = *p;
    w.m[x->i].has_told = true;
    for (int j = 0; j < (int)w.n; j++) {
        rig_send_place(x->i, j);
    }
}

void mesh_place_warm(struct mesh *x, bool on)
{
    for (int j = 0; j < (int)w.n; j++) {
        struct event e = {.kind = WARM, .on = on};
        rig_send_to(x->i, j, &e, false);
    }
}

static int of_id(const struct key_id *id)
{
    return id->b[0];
}

static int send_objects(int i, const struct key_id *to, uint8_t kind, const struct object_key *k,
                        size_t n)
{
    int j = of_id(to);
    if (!w.seen[i][j].link) {
        return ERR_OFFLINE;
    }
    for (size_t x = 0; x < n; x++) {
        struct event e = {.kind = kind, .o = store_key_id(NULL, k[x])};
        rig_send_to(i, j, &e, true);
    }
    w.res.offered += kind == OFFER;
    w.res.kept += kind == KEPT;
    return 0;
}

int mesh_place_offer(struct mesh *x, const struct key_id *to, const struct object_key *k, size_t n)
{
    return send_objects(x->i, to, OFFER, k, n);
}

int mesh_place_kept(struct mesh *x, const struct key_id *to, const struct object_key *k, size_t n)
{
    return send_objects(x->i, to, KEPT, k, n);
}

int mesh_place_list(struct mesh *x, struct mesh_place_peer **out, size_t *n)
{
    *out = calloc(MEMBERS, sizeof **out);
    *n = 0;
    for (int j = 0; *out && j < (int)w.n; j++) {
        const struct seen *s = &w.seen[x->i][j];
        if (j == x->i || !w.m[j].in) {
            continue;
        }
        struct mesh_place_peer *p = &(*out)[(*n)++];
        p->id = w.m[j].id;
        p->connected = s->link;
        if (s->link) {
            p->has_place = s->has_place;
            p->complete = s->complete;
            p->since = s->since;
            p->place = s->place;
            p->held = calloc(OBJECTS / 8 + 1, 1);
            for (uint32_t o = 0; p->held && o < OBJECTS; o++) {
                homes_set(p->held, o, s->held[o]);
            }
        }
    }
    return *out ? 0 : ERR_NOMEM;
}

void mesh_place_list_free(struct mesh_place_peer *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(p[i].held);
    }
    free(p);
}
