/* SPDX-License-Identifier: MIT
 * mesh_give.c: small files for members (FileGet). See mesh_int.h.
 *
 * The node reads on threads of its own. A read that is out keeps the mesh's loop alive, so its
 * answer always finds it; the connection may be gone by then. Files do not count against the limits
 * on what is served: they are small, and WIRE_FILE_OPEN bounds what is on its way. */
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>

#define GIVES_MAX 32 /* reads for all peers together; beyond it a peer hears that we are busy */

struct file_give {
    struct mesh_file_read r;
    struct note n;
    struct mesh *m;
    struct plink *l; /* NULL: gone */
    struct file_give *next, *prev;
    uint64_t id;
    int code;
};

static int answer(struct plink *l, uint64_t id, int result, uint64_t total,
                  const struct tls_raw *raw)
{
    Shoal__FileData d = SHOAL__FILE_DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    struct buf b;
    d.id = id;
    d.result = (Shoal__FileResult)result;
    d.total = total;
    f.kind_case = SHOAL__FRAME__KIND_FILE_DATA;
    f.file_data = &d;
    buf_init(&b, WIRE_BODY_MAX);
    int r = codec_encode(&f, raw ? (uint32_t)raw->n : 0, &b, NULL);
    r = r ? r : tls_conn_send(l->c, b.p, b.n, raw, raw ? TLS_PREFETCH : TLS_CONTROL);
    buf_free(&b);
    return r;
}

static void release(void *ctx, const uint8_t *p)
{
    (void)p;
    free(ctx);
}

/* Takes g->r.p when it says so. */
static bool give(struct plink *l, struct file_give *g)
{
    struct mesh_file_read *r = &g->r;
    uint64_t left = r->total > r->off ? r->total - r->off : 0;
    int result = SHOAL__FILE_RESULT__FILE_OK;
    if (g->code) {
        result = g->code == ERR_REFUSED                        ? SHOAL__FILE_RESULT__FILE_REFUSED
                 : g->code == ERR_BUSY || g->code == ERR_NOMEM ? SHOAL__FILE_RESULT__FILE_BUSY
                                                               : SHOAL__FILE_RESULT__FILE_NOT_HELD;
    } else if (r->total > WIRE_FILE_MAX) {
        result = SHOAL__FILE_RESULT__FILE_REFUSED;
    } else if (r->got != (left < r->n ? left : r->n)) { /* it changed under the reader */
        result = SHOAL__FILE_RESULT__FILE_BUSY;
    }
    if (result != SHOAL__FILE_RESULT__FILE_OK) {
        answer(l, g->id, result, 0, NULL);
        return false;
    }
    struct tls_raw raw = {r->p, r->got, release, r->p};
    if (answer(l, g->id, result, r->total, r->got ? &raw : NULL)) {
        answer(l, g->id, SHOAL__FILE_RESULT__FILE_BUSY, 0, NULL);
        return false;
    }
    struct mesh_known *k = mesh_known_of(l->m, &l->inst.id, true);
    if (k) {
        k->files++;
        k->file_bytes += r->got;
    }
    return r->got > 0;
}

static void note_given(struct mesh *m, struct note *n)
{
    struct file_give *g = (struct file_give *)((char *)n - offsetof(struct file_give, n));
    struct plink *l = g->l;
    m->n_gives--;
    if (l) {
        if (g->prev) {
            g->prev->next = g->next;
        } else {
            l->gives = g->next;
        }
        if (g->next) {
            g->next->prev = g->prev;
        }
        l->n_gives--;
    }
    if (!l || l->state != LINK_UP || !give(l, g)) {
        free(g->r.p);
    }
    free(g);
    mesh_maybe_over(m);
}

static void read_done(struct mesh_file_read *r, int code)
{
    struct file_give *g = r->user;
    g->code = code;
    mesh_post(g->m, &g->n);
}

void mesh_on_file_get(struct plink *l, const Shoal__FileGet *x)
{
    struct mesh *m = l->m;
    if (!m->o.file_read) {
        answer(l, x->id, SHOAL__FILE_RESULT__FILE_REFUSED, 0, NULL);
        return;
    }
    if (l->n_gives >= WIRE_FILE_OPEN) {
        link_broke(l, "FileGet: too many are open");
        return;
    }
    struct file_give *g = m->n_gives < GIVES_MAX ? calloc(1, sizeof *g) : NULL;
    if (!g) {
        m->gives_refused++;
        answer(l, x->id, SHOAL__FILE_RESULT__FILE_BUSY, 0, NULL);
        return;
    }
    memcpy(g->r.scope, x->scope.data, SHA256_SIZE);
    memcpy(g->r.asker, l->inst.id.b, SHA256_SIZE);
    memcpy(g->r.name, x->name, strlen(x->name) + 1); /* WIRE_FILE_NAME at most */
    g->r.off = x->offset;
    g->r.n = x->length;
    g->r.done = read_done;
    g->r.user = g;
    g->n.run = note_given;
    g->m = m;
    g->l = l;
    g->id = x->id;
    g->next = l->gives;
    if (g->next) {
        g->next->prev = g;
    }
    l->gives = g;
    l->n_gives++;
    m->n_gives++;
    m->o.file_read(m->o.ctx, &g->r);
}

void mesh_gives_down(struct plink *l)
{
    for (struct file_give *g = l->gives; g; g = g->next) {
        g->l = NULL;
    }
    l->gives = NULL;
    l->n_gives = 0;
}
