/* SPDX-License-Identifier: MIT
 * wanted.c: see wanted.h. */
#include "node/daemon/wanted.h"

#include "node/store/want.h"

#include <pthread.h>
#include <stdlib.h>

struct wanted {
    struct store *st;
    struct store_wants *wants;
    pthread_mutex_t mu;
    uint32_t n;
    bool *on; /* [n]: under way; its tag is its number */
};

int wanted_open(struct store *st, struct wanted **out, struct err *e)
{
    *out = NULL;
    struct wanted *w = calloc(1, sizeof *w);
    if (!w) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    w->st = st;
    w->n = model_object_count(store_model(st));
    w->on = calloc(w->n ? w->n : 1, sizeof *w->on);
    int r = w->on ? store_wants_open(st, &w->wants, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!r && pthread_mutex_init(&w->mu, NULL)) {
        store_wants_close(w->wants);
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    if (r) {
        free(w->on);
        free(w);
        return r;
    }
    *out = w;
    return 0;
}

int wanted_ask(struct wanted *w, struct object_key k, enum store_prio prio)
{
    uint32_t id = w ? store_key_id(w->st, k) : MODEL_NONE;
    if (id == MODEL_NONE || id >= w->n) {
        return ERR_UNSUPPORTED;
    }
    int r = 0;
    pthread_mutex_lock(&w->mu);
    if (w->on[id]) {
        store_wants_raise(w->wants, id, prio);
    } else {
        r = store_wants_add(w->wants, id, id, prio, NULL);
        w->on[id] = !r;
    }
    pthread_mutex_unlock(&w->mu);
    return r;
}

void wanted_tick(struct wanted *w)
{
    uint64_t tag;
    uint32_t id;
    int code;
    struct err e = {0};
    while (w) {
        pthread_mutex_lock(&w->mu);
        int r = store_wants_poll(w->wants, &tag, &id, &code, &e);
        if (!r) {
            w->on[id] = false;
        }
        pthread_mutex_unlock(&w->mu);
        if (r) {
            return;
        }
    }
}

void wanted_close(struct wanted *w)
{
    if (w) {
        store_wants_stop(w->wants);
        store_wants_close(w->wants);
        pthread_mutex_destroy(&w->mu);
        free(w->on);
        free(w);
    }
}
