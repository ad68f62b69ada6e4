/* SPDX-License-Identifier: MIT
 * gave.c: who gave what: sums of the results of fetches by peer. See node_int.h. */
#include "node/daemon/node_int.h"

#include <stdlib.h>
#include <string.h>

#define GAVE_MAX 1024 /* peers of one run; further ones count in the totals alone */

void gave_init(struct gave *g)
{
    memset(g, 0, sizeof *g);
    pthread_mutex_init(&g->mu, NULL);
}

void gave_free(struct gave *g)
{
    free(g->v);
    pthread_mutex_destroy(&g->mu);
}

static struct gave_one *one(struct gave *g, const struct fetch_from *f)
{
    for (size_t i = 0; i < g->n; i++) {
        if (!memcmp(g->v[i].id.b, f->id, SHA256_SIZE)) {
            return &g->v[i];
        }
    }
    struct gave_one *v = g->n < GAVE_MAX ? realloc(g->v, (g->n + 1) * sizeof *v) : NULL;
    if (!v) {
        return NULL;
    }
    g->v = v;
    v = &v[g->n++];
    memset(v, 0, sizeof *v);
    memcpy(v->id.b, f->id, SHA256_SIZE);
    return v;
}

void gave_add(struct gave *g, const struct fetch_result *r)
{
    uint64_t peers = 0;
    pthread_mutex_lock(&g->mu);
    for (uint32_t i = 0; i < r->n_from && i < FETCH_MEMBERS_MAX; i++) {
        const struct fetch_from *f = &r->from[i];
        struct gave_one *o = f->bytes ? one(g, f) : NULL;
        peers += f->bytes;
        if (o) {
            memcpy(o->name, f->name, sizeof o->name);
            o->name[sizeof o->name - 1] = 0;
            o->bytes += f->bytes;
            o->chunks += f->chunks;
            o->objects++;
            o->experts += r->key.kind == STORE_KEY_EXPERT;
        }
    }
    g->peer_bytes += peers;
    g->origin_bytes += r->origin_bytes;
    g->failed += r->code && r->code != ERR_CANCELLED;
    if (!r->code) {
        g->objects++;
        g->mixed += peers && r->origin_bytes;
        g->from_peers += peers && !r->origin_bytes;
        g->from_origin += !peers && r->origin_bytes;
    }
    pthread_mutex_unlock(&g->mu);
}

json_t *gave_json(struct gave *g)
{
    json_t *list = json_array();
    pthread_mutex_lock(&g->mu);
    for (size_t i = 0; i < g->n; i++) {
        const struct gave_one *o = &g->v[i];
        char id[ID_TEXT];
        id_text(&o->id, id);
        json_t *name = json_string(o->name);
        json_array_append_new(list, json_pack("{s:s,s:o,s:I,s:I,s:I,s:I}", "id", id, "name",
                                              name ? name : json_string(""), "bytes",
                                              (json_int_t)o->bytes, "chunks", (json_int_t)o->chunks,
                                              "objects", (json_int_t)o->objects, "experts",
                                              (json_int_t)o->experts));
    }
    json_t *j = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "objects", (json_int_t)g->objects,
                          "failed", (json_int_t)g->failed, "from_peers", (json_int_t)g->from_peers,
                          "from_origin", (json_int_t)g->from_origin, "mixed", (json_int_t)g->mixed,
                          "peer_bytes", (json_int_t)g->peer_bytes, "origin_bytes",
                          (json_int_t)g->origin_bytes, "peers", list);
    pthread_mutex_unlock(&g->mu);
    return j;
}
