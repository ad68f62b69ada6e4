/* SPDX-License-Identifier: MIT
 * mesh_known.c: what is remembered of members in this run, for reports. See mesh_int.h. */
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <time.h>

#define KNOWN_MAX 512 /* a roster has 256 members; removed ones may be in here for a while */

struct mesh_known *mesh_known_of(struct mesh *m, const struct key_id *id, bool make)
{
    struct mesh_known *k = NULL, *oldest = NULL;
    for (size_t i = 0; i < m->n_known; i++) {
        if (id_equal(&m->known[i].id, id)) {
            return &m->known[i];
        }
        oldest = !oldest || m->known[i].at < oldest->at ? &m->known[i] : oldest;
    }
    if (!make) {
        return NULL;
    }
    if (m->n_known < KNOWN_MAX) {
        k = realloc(m->known, (m->n_known + 1) * sizeof *k);
        if (k) {
            m->known = k;
            k += m->n_known++;
        }
    } else {
        k = oldest;
    }
    if (k) {
        memset(k, 0, sizeof *k);
        k->id = *id;
        k->at = clock_ns();
    }
    return k;
}

static void note_seen(struct plink *l)
{
    struct mesh_known *k = mesh_known_of(l->m, &l->inst.id, true);
    if (k) {
        k->at = clock_ns();
        k->seen = (int64_t)time(NULL) - (int64_t)((k->at - l->alive_at) / 1000 / MS_NS);
        memcpy(k->name, l->name, sizeof k->name);
    }
}

void mesh_known_up(struct plink *l)
{
    note_seen(l);
}

void mesh_known_down(struct plink *l)
{
    note_seen(l);
}
