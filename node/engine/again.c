/* SPDX-License-Identifier: MIT
 * again.c: requests whose state rests on bytes that the store has taken back meanwhile (a member
 * that lied, found out while its bytes were in use): they begin anew inside of the same request.
 * Who has been given tokens already is given the rest of the right answer if these were right, too;
 * else an error that names the member. */
#include "node/engine/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int engine_told(struct engine_job *j, uint32_t id, struct err *e)
{
    size_t at = j->n_ids - j->a.n_prompt;
    bool last = at + 1 == j->n_told && j->a.sampling.logprobs;
    if (j->told[at] != id ||
        (last && memcmp(j->receipt.h, j->told_receipt.h, sizeof j->receipt.h) != 0)) {
        return err_set(e, ERR_DIGEST,
                       "%s of the answer, which has been given out already, is wrong: %s. Ask "
                       "again: the right bytes are here now",
                       j->told[at] != id ? "a token" : "a probability", j->why);
    }
    return 0;
}

/* What has been told stays told. */
static int remember(struct engine_job *j, struct err *e)
{
    size_t n = j->n_ids - j->a.n_prompt;
    if (n <= j->n_told) {
        return 0;
    }
    uint32_t *p = realloc(j->told, n * sizeof *p);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory for a request");
    }
    memcpy(p, j->ids + j->a.n_prompt, n * sizeof *p);
    j->told = p;
    j->n_told = n;
    j->told_receipt = j->receipt;
    return 0;
}

bool engine_again(struct engine *g, struct engine_job *j)
{
    struct err e = {0};
    if (!infer_state_spoilt(j->st, &e)) {
        return false;
    }
    snprintf(j->why, sizeof j->why, "%.399s", e.msg);
    if (j->again++ == ENGINE_AGAIN_MAX) {
        engine_finish(g, j, ENGINE_ERROR, &e);
        return true;
    }
    engine_log(g, "a request begins anew: %s", e.msg);
    if (j->a.hooks.again && j->a.hooks.again(j->a.hooks.ctx, e.msg)) {
        j->n_told = 0;
    } else if (remember(j, &e)) {
        engine_finish(g, j, ENGINE_ERROR, &e);
        return true;
    }
    pthread_mutex_lock(&g->mu);
    g->s.again++;
    pthread_mutex_unlock(&g->mu);
    infer_state_free(j->st);
    j->st = NULL; /* begin() does the rest */
    grammar_run_close(j->run);
    j->run = NULL;
    sampling_close(&j->sampling);
    memset(&j->sampling, 0, sizeof j->sampling);
    j->next_bound = 0;
    j->drafted = 0;
    j->guessed = false;
    return true;
}
