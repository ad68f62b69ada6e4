/* SPDX-License-Identifier: MIT
 * fetch_sim_check.c: see fetch_sim.h. The engine's invariants (peer/fetch_int.h), counted anew. */
#include "tests/peer/fetch_sim_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_source(struct sim *s, struct source *x)
{
    uint64_t in[FETCH_PRIOS] = {0};
    uint32_t n = 0;
    for (struct link *l = x->gets.next; l != &x->gets; l = l->next) {
        struct get *g = get_of_source(l);
        assert_ptr_equal(g->s, x);
        assert_true(g->open != 0);
        for (uint32_t i = 0; i < g->n; i++) {
            in[g->prio] += g->open >> i & 1 ? storage_chunk_len(g->fl->size, g->first + i) : 0;
        }
        n++;
    }
    assert_int_equal(n, x->n_gets);
    for (int p = 0; p < FETCH_PRIOS; p++) {
        assert_int_equal(in[p], x->in_flight[p]);
    }
}

void sim_check(struct sim *s)
{
    struct fetch *f = s->f;
    uint64_t begun_bytes = 0, owed[FETCH_PRIOS] = {0};
    uint32_t begun = 0, waiting = 0, wants = 0, puts = 0;
    assert_int_equal(f->depth, 0);
    if (fetch_deadline(f) > s->now) { /* else they are called by the tick that is due */
        assert_ptr_equal(f->ended.next, &f->ended);
        assert_ptr_equal(f->expired.next, &f->expired);
    }
    for (int p = 0; p < FETCH_PRIOS; p++) {
        for (struct link *l = f->waiting[p].next; l != &f->waiting[p]; l = l->next) {
            struct flight *fl = flight_of(l);
            assert_false(fl->begun);
            assert_int_equal(fl->prio, p);
            for (struct link *w = fl->wants.next; w != &fl->wants; w = w->next) {
                wants++;
            }
            owed[p] += fl->size;
            waiting++;
        }
        for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
            struct flight *fl = flight_of(l);
            uint32_t asks[64] = {0}, orig[64] = {0}, unasked = 0, left_chunks = 0, gets = 0;
            uint64_t left = 0, by[FETCH_MEMBERS_MAX] = {0};
            assert_true(fl->begun && !fl->ended && fl->n <= 64);
            assert_int_equal(fl->prio, p);
            assert_ptr_equal(fetch_find(f, fl->key), fl);
            for (struct link *g = fl->gets.next; g != &fl->gets; g = g->next) {
                struct get *q = get_of_flight(g);
                bool o = source_is_origin(q->s);
                assert_ptr_equal(q->fl, fl);
                gets += !o;
                for (uint32_t i = 0; i < q->n; i++) {
                    if (q->open >> i & 1) {
                        (o ? orig : asks)[q->first + i]++;
                    }
                }
            }
            assert_int_equal(gets, fl->n_gets);
            for (uint32_t i = 0; i < fl->n; i++) {
                struct fchunk *c = &fl->c[i];
                assert_int_equal(c->asks, asks[i]);
                assert_int_equal(c->origin, orig[i]);
                assert_true(c->asks <= 2);
                unasked += !c->done && !c->asks;
                left_chunks += !c->done;
                left += c->done ? 0 : storage_chunk_len(fl->size, i);
                if (c->done) {
                    assert_true(c->basis != BASIS_NONE);
                    if (c->by != FETCH_NOBODY) {
                        by[c->by] += storage_chunk_len(fl->size, i);
                    }
                }
            }
            for (uint32_t i = 0; i < fl->n_members; i++) {
                assert_int_equal(by[i], fl->m[i].bytes);
            }
            assert_int_equal(unasked, fl->unasked);
            assert_int_equal(left_chunks, fl->left_chunks);
            assert_int_equal(left, fl->left);
            assert_int_equal(left_chunks == 0, fl->held);
            for (struct link *w = fl->wants.next; w != &fl->wants; w = w->next) {
                wants++;
            }
            begun++;
            owed[p] += left;
            begun_bytes += fl->size;
            puts += fl->put != NULL;
            /* Nothing goes ten seconds without bytes and without a line. */
            uint64_t sign = u64_max(fl->last_byte, s->line_at[sim_index(fl->key)]);
            if (!s->quiet_ok && s->now - u64_max(sign, fl->begun_at) > 10 * FETCH_S) {
                fail_msg("object %u: silent for %g s", sim_index(fl->key),
                         (double)(s->now - sign) / 1e9);
            }
        }
    }
    assert_int_equal(begun, f->n_begun);
    assert_int_equal(waiting, f->n_waiting);
    assert_int_equal(wants, f->n_wants);
    assert_int_equal(begun_bytes, f->begun_bytes);
    for (int p = 0; p < FETCH_PRIOS; p++) {
        assert_int_equal(owed[p], f->owed[p]);
    }
    assert_int_equal(puts, s->live_puts);
    assert_true(f->begun_bytes <= 2 * f->o.max_bytes + s->size);
    for (uint32_t i = 0; i < FETCH_PEERS_MAX; i++) {
        if (f->peer[i]) {
            assert_true(i < f->slots);
            check_source(s, f->peer[i]);
            /* Bounded: twice the window and what hedges add. */
            assert_true(source_queued(f->peer[i], 0) <=
                        3 * (uint64_t)FETCH_WINDOW_MAX * STORAGE_CHUNK);
            if (f->peer[i]->rec->banned_until > s->now) {
                assert_int_equal(f->peer[i]->n_gets, 0);
            }
        }
    }
    check_source(s, &f->origin);
}
