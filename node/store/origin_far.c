/* SPDX-License-Identifier: MIT
 * origin_far.c: where the redirects of a file led: remembered, so that a hub is asked once per
 * shard and not once per range; given up a little before the address there says that it expires, or
 * before the age at which an earlier one was refused. Nothing of it is written anywhere. */
#include "node/store/origin_inner.h"

#include "node/store/signed_url.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND 1000000000ull
#define MARGIN_NS (60 * SECOND) /* at most; a tenth of the life where that is less */
#define LIFE_MAX_S (7 * 86400)

static void drop(struct origin_file *f)
{
    free(f->resolved);
    f->resolved = NULL;
    f->linked[0] = f->far_etag[0] = 0;
}

char *far_take(struct origin *o, uint32_t file, char *linked, uint64_t now)
{
    char *url = NULL;
    pthread_mutex_lock(&o->mu);
    struct origin_file *f = &o->files[file];
    if (f->resolved && f->good_until && now >= f->good_until) {
        drop(f);
        o->renewed++;
    }
    if (f->resolved) {
        url = strdup(f->resolved);
        snprintf(linked, ORIGIN_ETAG_MAX, "%s", f->linked);
    }
    pthread_mutex_unlock(&o->mu);
    return url;
}

bool far_same(struct origin *o, uint32_t file, const char *etag)
{
    pthread_mutex_lock(&o->mu);
    const char *was = o->files[file].far_etag;
    bool same = !*was || !*etag || strcmp(was, etag) == 0;
    pthread_mutex_unlock(&o->mu);
    return same;
}

void far_learn(struct origin *o, uint32_t file, const char *url, int64_t asked_wall,
               const char *linked, const char *etag, uint64_t now)
{
    int64_t until = signed_url_expires(url);
    uint64_t life = 0; /* 0: unknown */
    if (until) {
        /* by the clock of the server that has signed it; one that says nothing has ours */
        int64_t s = until - asked_wall;
        if (s <= 0) {
            return; /* over already, though it works: not worth remembering */
        }
        life = (uint64_t)(s > LIFE_MAX_S ? LIFE_MAX_S : s) * SECOND;
    }
    pthread_mutex_lock(&o->mu);
    struct origin_file *f = &o->files[file];
    if (!life || (o->far_life && o->far_life < life)) {
        life = o->far_life;
    }
    drop(f);
    f->resolved = strdup(url);
    f->resolved_at = now;
    f->good_until = life ? now + life - (life / 10 < MARGIN_NS ? life / 10 : MARGIN_NS) : 0;
    snprintf(f->linked, sizeof f->linked, "%s", linked);
    snprintf(f->far_etag, sizeof f->far_etag, "%s", etag);
    pthread_mutex_unlock(&o->mu);
}

void far_forget(struct origin *o, uint32_t file)
{
    pthread_mutex_lock(&o->mu);
    drop(&o->files[file]);
    pthread_mutex_unlock(&o->mu);
}

void far_refused(struct origin *o, uint32_t file, uint64_t now)
{
    pthread_mutex_lock(&o->mu);
    struct origin_file *f = &o->files[file];
    if (f->resolved && now - f->resolved_at >= SECOND &&
        (!o->far_life || now - f->resolved_at < o->far_life)) {
        o->far_life = now - f->resolved_at;
    }
    drop(f);
    pthread_mutex_unlock(&o->mu);
}
