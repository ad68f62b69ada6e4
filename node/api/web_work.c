/* SPDX-License-Identifier: MIT
 * web_work.c: who handles a request. One with a long body has much to be read, rendered and made
 * tokens of: a thread of its own does that, so that the library's thread goes on with the others.
 */
#include "node/api/web_int.h"

#include <string.h>

void web_dispatch(struct web_req *r, unsigned own)
{
    struct web *h = r->h;
    pthread_mutex_lock(&h->mu);
    bool quiet = atomic_load(&h->quiet);
    h->handling += !quiet;
    pthread_mutex_unlock(&h->mu);
    if (quiet && !r->refuse) { /* what it would be handed to may be gone */
        r->refuse = 503;
        r->refuse_code = "stopping";
        r->refuse_text = "the node is stopping";
    }
    if (r->refuse) {
        atomic_fetch_add(&h->refused, 1);
        h->o.refuse(h->o.ctx, r, r->refuse, r->refuse_code, r->refuse_text);
    } else if (!strcmp(r->method, "OPTIONS")) {
        web_answer(r, 204, "text/plain", "", 0);
    } else {
        h->o.handle(h->o.ctx, r);
    }
    if (atomic_load(&r->refs) <= own) { /* nobody keeps it */
        web_answer(r, 500, "text/plain", "no answer\n", 10);
    }
    pthread_mutex_lock(&h->mu);
    h->handling -= !quiet;
    if (!h->handling) {
        pthread_cond_broadcast(&h->done);
    }
    pthread_mutex_unlock(&h->mu);
}

static void *work_main(void *arg)
{
    struct web *h = arg;
    pthread_mutex_lock(&h->mu);
    while (h->work || !h->stop) {
        struct web_req *r = h->work;
        if (!r) {
            pthread_cond_wait(&h->work_cond, &h->mu);
            continue;
        }
        h->work = r->work_next;
        if (!h->work) {
            h->work_end = &h->work;
        }
        pthread_mutex_unlock(&h->mu);
        web_dispatch(r, 2); /* the library's hold, and ours */
        web_release(r);
        pthread_mutex_lock(&h->mu);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

int web_work_start(struct web *h, struct err *e)
{
    h->work_end = &h->work;
    pthread_cond_init(&h->work_cond, NULL);
    int t = pthread_create(&h->worker, NULL, work_main, h);
    h->working = !t;
    if (t) {
        pthread_cond_destroy(&h->work_cond);
    }
    return t ? err_sys(e, t, "cannot start a thread for the API") : 0;
}

bool web_work_take(struct web_req *r)
{
    struct web *h = r->h;
    if (r->refuse || r->body.n <= WEB_INLINE) {
        return false;
    }
    pthread_mutex_lock(&h->mu);
    bool take = h->working && !h->stop;
    if (take) {
        web_hold(r);
        pthread_mutex_lock(&r->mu);
        r->suspended = true; /* before anybody can answer */
        MHD_suspend_connection(r->c);
        pthread_mutex_unlock(&r->mu);
        r->work_next = NULL;
        *h->work_end = r;
        h->work_end = &r->work_next;
        pthread_cond_signal(&h->work_cond);
    }
    pthread_mutex_unlock(&h->mu);
    return take;
}

void web_work_stop(struct web *h)
{
    if (!h->working) {
        return;
    }
    pthread_mutex_lock(&h->mu);
    pthread_cond_signal(&h->work_cond); /* h->stop is set */
    pthread_mutex_unlock(&h->mu);
    pthread_join(h->worker, NULL);
    h->working = false;
    pthread_cond_destroy(&h->work_cond);
}
