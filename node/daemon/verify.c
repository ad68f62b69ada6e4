/* SPDX-License-Identifier: MIT
 * verify.c: runs a prompt when a member asks, on a thread of its own, one at a time. See
 * node_int.h. */
#include "node/daemon/node_int.h"

#include <stdio.h>
#include <stdlib.h>

#define QUEUE_MAX 4 /* members that wait beside the one that is served */

struct verify {
    struct node *n;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    pthread_t thread;
    bool threaded, stop;
    struct {
        uint64_t id;
        struct mesh_verify_ask ask;
    } q[QUEUE_MAX];
    size_t n_q;
};

static void refuse(struct verify *v, uint64_t id, int code, const char *text)
{
    struct mesh_verify_answer a = {.code = code};
    snprintf(a.text, sizeof a.text, "%s", text);
    mesh_verify_reply(v->n->mesh, id, &a);
}

static void *thread_main(void *ctx)
{
    struct verify *v = ctx;
    pthread_mutex_lock(&v->mu);
    while (!v->stop) {
        if (!v->n_q) {
            pthread_cond_wait(&v->cond, &v->mu);
            continue;
        }
        uint64_t id = v->q[0].id;
        struct mesh_verify_ask ask = v->q[0].ask;
        v->n_q--;
        for (size_t i = 0; i < v->n_q; i++) {
            v->q[i] = v->q[i + 1];
        }
        pthread_mutex_unlock(&v->mu);
        struct mesh_verify_answer a = {0};
        v->n->o.verify(v->n->o.verify_ctx, &ask, &a);
        mesh_verify_reply(v->n->mesh, id, &a);
        pthread_mutex_lock(&v->mu);
    }
    pthread_mutex_unlock(&v->mu);
    return NULL;
}

int verify_open(struct node *n, struct verify **out, struct err *e)
{
    struct verify *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    v->n = n;
    pthread_mutex_init(&v->mu, NULL);
    pthread_cond_init(&v->cond, NULL);
    if (pthread_create(&v->thread, NULL, thread_main, v)) {
        verify_free(v);
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    v->threaded = true;
    *out = v;
    return 0;
}

void verify_ask(struct verify *v, uint64_t id, const struct mesh_verify_ask *ask)
{
    pthread_mutex_lock(&v->mu);
    bool room = !v->stop && v->n_q < QUEUE_MAX, stop = v->stop;
    if (room) {
        v->q[v->n_q].id = id;
        v->q[v->n_q++].ask = *ask;
        pthread_cond_signal(&v->cond);
    }
    pthread_mutex_unlock(&v->mu);
    if (!room) {
        refuse(v, id, stop ? ERR_CANCELLED : ERR_BUSY,
               stop ? "this node is stopping" : "this node runs prompts for others already");
    }
}

void verify_stop(struct verify *v)
{
    if (!v || !v->threaded) {
        return;
    }
    pthread_mutex_lock(&v->mu);
    v->stop = true;
    pthread_cond_signal(&v->cond);
    pthread_mutex_unlock(&v->mu);
    pthread_join(v->thread, NULL);
    v->threaded = false;
    while (v->n_q) {
        refuse(v, v->q[--v->n_q].id, ERR_CANCELLED, "this node is stopping");
    }
}

void verify_free(struct verify *v)
{
    if (v) {
        pthread_mutex_destroy(&v->mu);
        pthread_cond_destroy(&v->cond);
        free(v);
    }
}
