/* SPDX-License-Identifier: MIT
 * pool.c: see pool.h. */
#include "node/daemon/pool.h"

#include <pthread.h>
#include <stdlib.h>

struct pool {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    struct pool_job *head, **tail;
    size_t waiting, max, n;
    bool stop;
    pthread_t threads[];
};

static void *thread_main(void *ctx)
{
    struct pool *p = ctx;
    pthread_mutex_lock(&p->mu);
    for (;;) {
        struct pool_job *j = p->head;
        if (j) {
            p->head = j->next;
            if (!p->head) {
                p->tail = &p->head;
            }
            p->waiting--;
            pthread_mutex_unlock(&p->mu);
            j->run(j);
            pthread_mutex_lock(&p->mu);
        } else if (p->stop) {
            break;
        } else {
            pthread_cond_wait(&p->cond, &p->mu);
        }
    }
    pthread_mutex_unlock(&p->mu);
    return NULL;
}

int pool_open(size_t threads, size_t jobs_max, struct pool **out, struct err *e)
{
    struct pool *p = calloc(1, sizeof *p + threads * sizeof p->threads[0]);
    *out = NULL;
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    p->tail = &p->head;
    p->max = jobs_max;
    if (pthread_mutex_init(&p->mu, NULL)) {
        free(p);
        return err_set(e, ERR_NOMEM, "cannot make a lock");
    }
    if (pthread_cond_init(&p->cond, NULL)) {
        pthread_mutex_destroy(&p->mu);
        free(p);
        return err_set(e, ERR_NOMEM, "cannot make a lock");
    }
    for (size_t i = 0; i < threads; i++) {
        if (pthread_create(&p->threads[i], NULL, thread_main, p)) {
            pool_stop(p);
            pool_free(p);
            return err_set(e, ERR_NOMEM, "cannot start a thread");
        }
        p->n++;
    }
    *out = p;
    return 0;
}

bool pool_add(struct pool *p, struct pool_job *j)
{
    pthread_mutex_lock(&p->mu);
    bool take = !p->stop && p->waiting < p->max;
    if (take) {
        j->next = NULL;
        *p->tail = j;
        p->tail = &j->next;
        p->waiting++;
        pthread_cond_signal(&p->cond);
    }
    pthread_mutex_unlock(&p->mu);
    return take;
}

void pool_stop(struct pool *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->mu);
    p->stop = true;
    pthread_cond_broadcast(&p->cond);
    pthread_mutex_unlock(&p->mu);
    for (size_t i = 0; i < p->n; i++) {
        pthread_join(p->threads[i], NULL);
    }
    p->n = 0;
}

void pool_free(struct pool *p)
{
    if (p) {
        pthread_mutex_destroy(&p->mu);
        pthread_cond_destroy(&p->cond);
        free(p);
    }
}
