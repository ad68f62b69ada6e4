/* SPDX-License-Identifier: MIT
 * lan_meta.c: the model's small files from members and for them. Of several nodes that open one
 * address at once the first in the order (peer/order.h, by the address) gets them from the origin;
 * the others hear from it that it is at it, and wait. Who sees nobody begins at once. See
 * node_int.h. */
#include "node/daemon/node_int.h"

#include "peer/order.h"
#include "proto/base/clock.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LIST_NAME "origin.txt" /* on the wire: the list of files, "" to the store */

/* This node reads them from the origin: it waits for nobody any more. */
static bool begun(struct node *n)
{
    return n->meta_origin && !node_store_now(n);
}

/* Members that are not there are not waited for: from the first look on there must be a sign of
 * one. Where nobody else can be asked, and by request, all of the time is waited. */
static void wait_first(struct node *n)
{
    unsigned ms = n->o.meta_wait_ms ? n->o.meta_wait_ms : META_WAIT_MS;
    bool all = n->o.meta_wait_ms || n->o.store.offline;
    uint64_t began = clock_ns(), end = began + ms * MS_NS, least = began + META_LOOK_MS * MS_NS;
    int need = 1 + n->meta_bad;
    for (uint64_t now = began; now < end; now = clock_ns()) {
        uint64_t left = (end - now) / MS_NS + 1;
        unsigned step = all || left < META_STEP_MS ? (unsigned)left : META_STEP_MS;
        int up = mesh_wait_peers(n->mesh, need, step);
        bool waited = clock_ns() - now >= (uint64_t)step * MS_NS; /* no: there are no others */
        if (up >= need || !waited || (now >= least && !mesh_in_sight(n->mesh))) {
            return;
        }
    }
}

static int ask(struct node *n, const char *name, uint64_t max, struct buf *out, struct err *e)
{
    uint8_t scope[SHA256_SIZE];
    uint64_t began = clock_ns();
    size_t had = out->n;
    int r;
    store_meta_scope(n->model, scope);
    do { /* somebody who comes before us in the order is fetching it; not for ever, in all */
        out->n = had; /* nothing by halves */
        r = mesh_file(n->mesh, scope, *name ? name : LIST_NAME, max, META_FILE_MS, out,
                      n->meta_from, e);
    } while (r == ERR_BUSY && !begun(n) &&
             n->meta_waited_ns + (clock_ns() - began) < META_BUSY_MS * MS_NS);
    n->meta_waited_ns += r == ERR_BUSY ? clock_ns() - began : 0;
    out->n = r ? had : out->n;
    return r;
}

int lan_meta_get(void *node, const char *name, uint64_t max, struct buf *out, struct err *e)
{
    struct node *n = node;
    struct err e1 = {0};
    uint64_t since = clock_ns() - n->meta_asked;
    n->meta_asked = clock_ns();
    if (begun(n) && since < META_AGAIN_MS * MS_NS) {
        return err_set(e, ERR_NOTFOUND, "this node is reading from the origin");
    }
    if (!n->meta_waited) { /* once: whoever is not there by now is asked for objects later */
        n->meta_waited = true;
        wait_first(n);
    }
    int peers = mesh_peers(n->mesh);
    if (peers < 1) {
        n->meta_origin = true;
        return err_set(e, ERR_NOTFOUND, "no peer is connected");
    }
    int r = ask(n, name, max, out, &e1);
    if (r == ERR_NOTFOUND && !n->meta_all) {
        n->meta_all = true; /* before one goes to the origin, all have their say */
        if (mesh_wait_peers(n->mesh, INT_MAX, META_ALL_MS) > peers) {
            r = ask(n, name, max, out, &e1);
        }
    }
    if (r) {
        n->meta_origin = true;
        return err_set(e, ERR_NOTFOUND, "no peer gave it: %s", e1.msg);
    }
    n->meta_origin = false; /* it is not needed */
    if (!*name && !n->o.brief) {
        char who[ID_SHORT];
        node_log(n, "the list of the model's files comes from peer %s",
                 id_short_of(n->meta_from, who) ? who : n->meta_from);
    }
    return 0;
}

void lan_meta_bad(void *node)
{
    struct node *n = node;
    mesh_file_bad(n->mesh, n->meta_from);
    n->meta_bad++;
    n->meta_waited = false; /* another one may be about to connect */
}

struct file_job {
    struct pool_job j;
    struct node *n;
    struct mesh_file_read *r;
};

static void file_run(struct pool_job *j)
{
    struct file_job *x = (struct file_job *)j;
    struct mesh_file_read *r = x->r;
    struct store *st = node_store_now(x->n);
    struct buf b;
    struct err e = {0};
    const char *name = strcmp(r->name, LIST_NAME) ? r->name : "";
    buf_init(&b, WIRE_RAW_MAX);
    int code = !st ? ERR_NOTFOUND
               : r->n > WIRE_RAW_MAX
                   ? ERR_LIMIT
                   : store_meta_serve(st, r->scope, name, r->off, r->n, &b, &r->total, &e);
    if (!code) {
        r->p = (uint8_t *)buf_take(&b, &r->got);
    }
    buf_free(&b);
    free(x);
    r->done(r, code);
}

/* This node gets it from the origin, for the asker too, or is about to: which of the two does is a
 * matter of the order, unless one has begun. Who has begun waits for nobody, so nobody waits in a
 * circle. */
static bool at_it(struct node *n, const struct mesh_file_read *r)
{
    static const struct object_key none = {0, 0, 0};
    const uint8_t *me = mesh_id(n->mesh)->b;
    uint8_t scope[SHA256_SIZE];
    if (node_store_now(n) || !n->model || n->o.store.offline) {
        return false;
    }
    store_meta_scope(n->model, scope);
    return memcmp(scope, r->scope, SHA256_SIZE) == 0 &&
           (begun(n) || order_before(order_score(scope, none, me), me,
                                     order_score(scope, none, r->asker), r->asker));
}

void lan_file_read(void *node, struct mesh_file_read *r)
{
    struct node *n = node;
    if (at_it(n, r)) {
        r->done(r, ERR_BUSY);
        return;
    }
    struct file_job *x = calloc(1, sizeof *x);
    if (x) {
        *x = (struct file_job){.j.run = file_run, .n = n, .r = r};
    }
    if (!x || !pool_add(n->pool, &x->j)) {
        free(x);
        r->done(r, ERR_BUSY);
    }
}
