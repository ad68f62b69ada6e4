/* SPDX-License-Identifier: MIT
 * drafts.c: drafts in shared steps (node/infer/speculate.h).
 *
 * A step has drafts only if all of its requests decode: one that reads its prompt has better use
 * for the rows, and what a step costs could not be compared. A draft may make a step fail that
 * would have gone well (it may need an expert that nobody has), so in a step with drafts every
 * request's state is marked: on an error all of them go back, and the step is done again without.
 */
#include "node/engine/engine_int.h"

#include "proto/base/clock.h"

/* Is there memory for marks of all that run, beside their states? */
static bool has_room(const struct engine *g)
{
    uint64_t all = 0;
    for (size_t i = 0; i < g->n_run; i++) {
        const struct engine_job *j = g->run[i];
        all += infer_state_bytes(g->o.f, (uint32_t)(j->a.n_prompt + j->a.max_new - 1)) +
               infer_mark_bytes(g->o.f, 1 + spec_most(&g->spec));
    }
    return !g->o.ram_states || all <= g->o.ram_states;
}

void engine_draft(struct engine *g, uint32_t decode, uint32_t room)
{
    struct spec_cand c[ENGINE_BATCH_MAX];
    bool on = spec_most(&g->spec) && decode == g->n_run && decode < room;
    for (size_t i = 0; i < g->n_run; i++) {
        struct engine_job *j = g->run[i];
        j->drafted = 0;
        j->guessed = false;
    }
    if (spec_most(&g->spec) && !has_room(g)) {
        g->spec.s.why = "the memory for states has no room for drafts";
        on = false;
        for (size_t i = 0; i < g->n_run; i++) {
            infer_state_unmark(g->run[i]->st);
        }
    }
    for (size_t i = 0; on && i < g->n_run; i++) {
        struct engine_job *j = g->run[i];
        size_t n = j->n_ids - j->a.n_prompt;
        c[i] = (struct spec_cand){.luck = &j->luck};
        /* the first token comes of the prompt, whose states are kept as they are */
        if (!j->no_draft && n && n + 1 < j->a.max_new) {
            c[i].have = spec_propose(&g->spec, j->ids, j->n_ids, g->vocab, j->a.stop, j->a.n_stop,
                                     j->a.max_new - n - 1, j->draft);
        }
    }
    g->drafted = 0;
    if (!on) {
        return;
    }
    spec_choose(&g->spec, decode, c, g->n_run, room - decode);
    for (size_t i = 0; i < g->n_run; i++) {
        struct engine_job *j = g->run[i];
        j->drafted = c[i].use;
        j->guessed = c[i].have && !c[i].use;
        j->guess = j->draft[0];
        g->drafted += c[i].use;
    }
}

bool engine_mark(struct engine *g)
{
    struct err e = {0};
    uint64_t t = clock_ns();
    int r = 0;
    for (size_t i = 0; i < g->n_run && !r; i++) {
        struct engine_job *j = g->run[i];
        r = infer_state_mark(j->st, j->drafted ? 1 + spec_most(&g->spec) : 1, &e);
    }
    spec_rest(&g->spec, clock_ns() - t);
    if (r) {
        g->spec.o.mode = SPEC_OFF;
        g->spec.s.why = "there is no memory for drafts";
        engine_log(g, "drafts are off from here on: %s", e.msg);
        for (size_t i = 0; i < g->n_run; i++) {
            g->run[i]->drafted = 0;
            infer_state_unmark(g->run[i]->st);
        }
        g->drafted = 0;
    }
    return !r;
}

int engine_rewind(struct engine *g, struct engine_job *j, uint32_t keep, struct err *e)
{
    uint64_t t = clock_ns();
    int r = infer_state_rewind(j->st, keep, e);
    spec_rest(&g->spec, clock_ns() - t);
    return r;
}

bool engine_undo(struct engine *g)
{
    struct err e = {0};
    int r = 0;
    if (!g->drafted) {
        return false;
    }
    for (size_t i = 0; i < g->n_run && !r; i++) {
        struct engine_job *j = g->run[i];
        if (!infer_dropped(j->st)) {
            r = infer_state_rewind(j->st, 0, &e);
            j->no_draft = j->no_draft || j->drafted;
        }
    }
    g->spec.s.failed++;
    return !r;
}
