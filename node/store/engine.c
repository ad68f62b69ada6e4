/* SPDX-License-Identifier: MIT
 * engine.c: the state machine of objects: queues, pins, the LRU list, waiters, batches' flow
 * control. See engine.h. */
#include "node/store/engine.h"

#include "node/store/disk.h"
#include "node/store/layout.h"
#include "node/store/origin.h"
#include "proto/base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Spine bytes that hints alone may keep in RAM: a layer and the head of the largest model. */
#define HINT_SPINE_MAX (4ull << 30)

bool eng_is_expert(const struct store *st, uint32_t id)
{
    return eng_object(st, id)->kind == MODEL_EXPERT;
}

void eng_log(struct store *st, const char *fmt, ...)
{
    if (!st->o.log) {
        return;
    }
    char line[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    st->o.log(st->o.log_ctx, line);
}

void eng_sweep(struct store *st)
{
    ram_sweep(&st->ram, &st->mu);
}

#define TROUBLE_OVER_NS 5000000000u

void eng_disk_trouble(struct store *st, const struct err *e)
{
    pthread_mutex_lock(&st->mu);
    bool news = !st->disk_trouble;
    st->disk_trouble = true;
    st->disk_trouble_at = clock_ns();
    pthread_mutex_unlock(&st->mu);
    if (news) {
        struct err why = *e;
        enum layout_state s = st->cache_dir ? layout_state(st->cache_dir, &why) : LAYOUT_OPEN;
        if (e->code == ERR_REFUSED) {
            eng_log(st, "the cache %s: it is only read, what it lacks comes into memory alone",
                    e->msg);
        } else if (s == LAYOUT_FULL) {
            eng_log(st,
                    "%s: going on from memory, not everything is being cached; free some space "
                    "there, and it is used again by itself",
                    why.msg);
        } else { /* of its own limits, or something that is no lack of space */
            eng_log(st, "%s: going on from memory, not everything is being cached", e->msg);
        }
    }
}

void eng_disk_fine(struct store *st)
{
    pthread_mutex_lock(&st->mu);
    bool news = st->disk_trouble && clock_ns() - st->disk_trouble_at > TROUBLE_OVER_NS;
    st->disk_trouble = st->disk_trouble && !news;
    pthread_mutex_unlock(&st->mu);
    if (news) {
        eng_log(st, "the cache can be written again");
    }
}

/* ---- lists ---- */

static void list_push(struct queue *q, struct entry *en, bool front)
{
    en->next = en->prev = NULL;
    if (!q->head) {
        q->head = q->tail = en;
    } else if (front) {
        en->next = q->head;
        q->head->prev = en;
        q->head = en;
    } else {
        en->prev = q->tail;
        q->tail->next = en;
        q->tail = en;
    }
}

void eng_list_push(struct queue *q, struct entry *en)
{
    list_push(q, en, false);
}

void eng_list_cut(struct queue *q, struct entry *en)
{
    *(en->prev ? &en->prev->next : &q->head) = en->next;
    *(en->next ? &en->next->prev : &q->tail) = en->prev;
    en->next = en->prev = NULL;
}

static void lru_add(struct store *st, struct entry *en)
{
    en->in_lru = true;
    list_push(&st->lru, en, true);
    st->lru_bytes += en->slot->size;
}

static void lru_cut(struct store *st, struct entry *en)
{
    en->in_lru = false;
    eng_list_cut(&st->lru, en);
    st->lru_bytes -= en->slot->size;
}

static struct queue *queue_of(struct store *st, const struct entry *en)
{
    return en->large ? &st->large[en->prio] : &st->q[en->prio];
}

static void queue_cut(struct store *st, struct entry *en)
{
    eng_list_cut(queue_of(st, en), en);
    st->large_queued[en->prio] -= en->large;
}

static uint32_t large_at_once(const struct store *st, int prio)
{
    return st->closing ? UINT32_MAX : prio == STORE_DEMAND ? LARGE_READS : LARGE_GUESSES;
}

/* One that has to wait for others is taken by the worker that has read one of those. */
static void queue_push(struct store *st, struct entry *en)
{
    list_push(queue_of(st, en), en, false);
    uint32_t before = st->large_busy;
    for (int i = 0; i <= en->prio; i++) {
        before += st->large_queued[i];
    }
    st->large_queued[en->prio] += en->large;
    if (!en->large || before < large_at_once(st, en->prio)) {
        pthread_cond_signal(&st->work);
    }
}

void eng_enqueue(struct store *st, struct entry *en, enum ent_job job)
{
    uint32_t id = eng_id(st, en);
    en->state = ENT_QUEUED;
    en->job = (uint8_t)job;
    en->large = job == JOB_READ && eng_is_expert(st, id) && eng_object(st, id)->size >= LARGE_FROM;
    queue_push(st, en);
}

struct entry *eng_pop(struct store *st)
{
    for (int i = 0; i < 3; i++) {
        struct entry *en = st->q[i].head;
        if (!en && st->large_busy < large_at_once(st, i)) {
            en = st->large[i].head;
        }
        if (en) {
            queue_cut(st, en);
            st->large_busy += en->large;
            en->state = ENT_BUSY;
            return en;
        }
    }
    return NULL;
}

void eng_popped(struct store *st, bool large)
{
    st->large_busy -= large;
}

/* ---- RAM ---- */

static void unhint(struct store *st, struct entry *en)
{
    if (en->hinted) {
        en->hinted = false;
        const struct model_object *ob = eng_object(st, eng_id(st, en));
        if (ob->kind != MODEL_EXPERT) {
            st->hint_spine -= ob->size;
        }
    }
}

static void promise(struct store *st, struct entry *en, bool on)
{
    const struct model_object *ob = eng_object(st, eng_id(st, en));
    if (en->promised == on || ob->kind != MODEL_EXPERT) {
        return;
    }
    en->promised = on;
    st->promised += on ? ob->size : 0 - ob->size;
}

void eng_put_slot(struct store *st, struct entry *en)
{
    if (en->in_lru) {
        lru_cut(st, en);
    }
    if (en->slot) {
        ram_put(&st->ram, en->slot);
        en->slot = NULL;
    }
}

void eng_evict(struct store *st, struct entry *en)
{
    unhint(st, en);
    eng_put_slot(st, en);
    en->state = ENT_IDLE;
}

bool eng_has_room(const struct store *st, uint64_t size)
{
    uint64_t firm = st->ram.expert_used + st->promised - st->lru_bytes;
    return firm <= st->ram.budget && size <= st->ram.budget - firm;
}

struct ram_slot *eng_slot(struct store *st, struct entry *en)
{
    if (en->slot) {
        return en->slot;
    }
    uint32_t id = eng_id(st, en);
    const struct model_object *ob = eng_object(st, id);
    bool expert = ob->kind == MODEL_EXPERT;
    promise(st, en, false);
    bool mere_hint = !en->waiters;
    if (expert) {
        if (mere_hint && !eng_has_room(st, ob->size)) {
            return NULL;
        }
        /* the least recently used go; one that was hinted and not yet taken yields to a request
         * only, never to another hint */
        struct entry *v = st->lru.tail;
        while (v && st->ram.expert_used + ob->size > st->ram.budget) {
            struct entry *prev = v->prev;
            if (!(mere_hint && v->hinted)) {
                eng_evict(st, v);
            }
            v = prev;
        }
        if (mere_hint && st->ram.expert_used + ob->size > st->ram.budget) {
            return NULL;
        }
    }
    struct ram_slot *s = ram_take(&st->ram, (size_t)ob->size, expert);
    if (!s) {
        return NULL;
    }
    if (!eng_fill(st, s)) {
        ram_put(&st->ram, s);
        return NULL;
    }
    en->slot = s;
    return s;
}

void eng_pin(struct store *st, struct entry *en)
{
    if (en->in_lru) {
        lru_cut(st, en);
    }
    unhint(st, en);
    en->pins++;
}

void eng_take_back(struct store *st, struct entry *en)
{
    if (en->state == ENT_READY && en->pins) {
        en->taken_back = true;
    } else if (en->state == ENT_READY) {
        eng_evict(st, en);
    }
}

void eng_unpin(struct store *st, struct entry *en, bool drop)
{
    if (--en->pins) {
        return;
    }
    bool expert = eng_is_expert(st, eng_id(st, en));
    drop |= en->taken_back;
    en->taken_back = en->bad = false;
    if (drop || (!expert && !en->hinted)) {
        eng_evict(st, en);
    } else if (expert) {
        lru_add(st, en);
        while (st->lru.tail && st->ram.expert_used > st->ram.budget) {
            eng_evict(st, st->lru.tail);
        }
    }
    eng_pump(st);
}

/* ---- waiters ---- */

static void waiter_done(struct waiter *w, int code, const struct err *e)
{
    w->done = true;
    w->code = code;
    if (code && e) {
        w->err = malloc(sizeof *w->err);
        if (w->err) {
            *w->err = *e;
        }
    }
    w->next_done = NULL;
    *(w->g->head ? &w->g->tail->next_done : &w->g->head) = w;
    w->g->tail = w;
    pthread_cond_signal(&w->g->cv);
}

static void count_answer(struct store *st, struct entry *en, enum store_tier from)
{
    if (!eng_is_expert(st, eng_id(st, en))) {
        return;
    }
    *(from == STORE_RAM     ? &st->s.ram_hits
      : from == STORE_DISK  ? &st->s.disk_hits
      : from == STORE_PEERS ? &st->s.peer_fetches
                            : &st->s.origin_fetches) += 1;
}

void eng_add_waiter(struct store *st, struct waiter *w)
{
    struct entry *en = &st->ent[w->id];
    if (st->disk) {
        disk_pin(st->disk, w->id, 1);
    }
    if (en->state == ENT_READY) {
        if (w->want_ram) {
            eng_pin(st, en);
            count_answer(st, en, STORE_RAM);
            w->from = STORE_RAM;
        }
        if (st->disk) {
            disk_pin(st->disk, w->id, -1);
        }
        waiter_done(w, 0, NULL);
        return;
    }
    w->next = en->waiters;
    en->waiters = w;
}

void eng_drop_waiter(struct store *st, struct waiter *w)
{
    struct entry *en = &st->ent[w->id];
    for (struct waiter **at = &en->waiters; *at; at = &(*at)->next) {
        if (*at == w) {
            *at = w->next;
            if (st->disk) {
                disk_pin(st->disk, w->id, -1);
            }
            break;
        }
    }
}

void eng_lose_interest(struct store *st, uint32_t id)
{
    struct entry *en = &st->ent[id];
    if (en->waiters || en->hinted || en->state == ENT_READY) {
        return;
    }
    if (en->state == ENT_QUEUED && !en->slot && en->job != JOB_ADMIT) {
        queue_cut(st, en);
        en->state = ENT_IDLE;
    } else if (en->state == ENT_ORIGIN && sink_cancel(st, en)) {
        eng_put_slot(st, en);
        en->state = ENT_IDLE;
    } else if (en->state != ENT_IDLE) {
        return; /* it has begun; what arrives is kept */
    }
    promise(st, en, false);
    en->want_ram = false;
}

/* Wake all waiters (ready or failed), or only those content with the disk. */
static void wake(struct store *st, struct entry *en, bool disk_only, int code, const struct err *e)
{
    struct waiter *keep = NULL, *order = NULL, *w = en->waiters;
    while (w) { /* the list is last in, first out; wake in the order of asking */
        struct waiter *next = w->next;
        struct waiter **to = disk_only && w->want_ram ? &keep : &order;
        w->next = *to;
        *to = w;
        w = next;
    }
    en->waiters = NULL;
    while (keep) {
        w = keep;
        keep = w->next;
        w->next = en->waiters;
        en->waiters = w;
    }
    while (order) {
        w = order;
        order = w->next;
        if (st->disk) {
            disk_pin(st->disk, w->id, -1);
        }
        if (!code && w->want_ram) {
            eng_pin(st, en);
            count_answer(st, en, (enum store_tier)en->from);
            w->from = en->from;
            w->again = en->tries > 0;
        }
        waiter_done(w, code, e);
    }
}

void eng_ready(struct store *st, struct entry *en)
{
    promise(st, en, false);
    en->state = ENT_READY;
    en->want_ram = en->no_disk = en->past_peers = en->past_lent = false;
    wake(st, en, false, 0, NULL);
    en->tries = 0;
    en->from = STORE_NOWHERE;
    if (!en->pins) {
        en->pins = 1; /* the rules for what nobody holds are eng_unpin's */
        eng_unpin(st, en, false);
    }
}

void eng_fail(struct store *st, struct entry *en, int code, const struct err *e)
{
    promise(st, en, false);
    unhint(st, en);
    eng_put_slot(st, en);
    en->state = ENT_IDLE;
    en->want_ram = en->no_disk = en->past_peers = en->past_lent = false;
    en->tries = 0;
    en->from = STORE_NOWHERE;
    wake(st, en, false, code, e);
    eng_pump(st);
}

void eng_on_disk(struct store *st, struct entry *en)
{
    wake(st, en, true, 0, NULL);
}

/* ---- the walk through the tiers ---- */

void eng_want(struct store *st, uint32_t id, enum store_prio prio, bool ram)
{
    struct entry *en = &st->ent[id];
    if (en->state == ENT_READY) {
        return;
    }
    if (ram && !en->want_ram) {
        en->want_ram = true;
        if (!en->slot) {
            promise(st, en, true);
        }
    }
    bool raise = prio < en->prio;
    switch (en->state) {
    case ENT_QUEUED:
        if (raise) {
            queue_cut(st, en);
            en->prio = (uint8_t)prio;
            queue_push(st, en);
        }
        return;
    case ENT_ORIGIN:
        if (raise) {
            en->prio = (uint8_t)prio;
            sink_raise(st, en);
        }
        if (en->in) {
            in_again(en);
        }
        return;
    case ENT_BUSY:
    case ENT_PUBLISH:
        if (raise) {
            en->prio = (uint8_t)prio;
        }
        return;
    default:
        break;
    }
    en->prio = (uint8_t)prio;
    if (st->closing) {
        struct err e = {0};
        err_set(&e, ERR_CANCELLED, "the store is being closed");
        eng_fail(st, en, e.code, &e);
    } else if (st->in_place || (st->disk && disk_look(st->disk, id))) {
        if (en->want_ram) {
            eng_on_disk(st, en);
            eng_enqueue(st, en, JOB_READ);
        } else {
            eng_on_disk(st, en);
        }
    } else if (st->disk && !en->past_lent && disk_offers(st->disk, id)) {
        eng_enqueue(st, en, JOB_READ);
    } else if (en->publishing) {
        en->state = ENT_PUBLISH;
    } else if (st->disk && !en->no_disk && st->origin && (!st->has_up || en->past_peers) &&
               disk_has_partial(st->disk, id)) {
        eng_enqueue(st, en, JOB_FETCH);
    } else if (eng_can_fetch(st)) {
        sink_start(st, en);
    } else {
        struct err e = {0};
        char name[128];
        err_set(&e, ERR_OFFLINE,
                "%s is not in the cache %s and the origin may not be asked (offline): run once "
                "without --offline to fetch it",
                model_object_name(st->m, id, name, sizeof name),
                st->cache_dir ? st->cache_dir : "(none)");
        eng_fail(st, en, e.code, &e);
    }
}

/* Spine that was hinted, has come and was never taken (a run that ended early): it makes room. */
static void drop_stale_hints(struct store *st)
{
    for (uint32_t id = 0; id < st->n_ent; id++) {
        struct entry *en = &st->ent[id];
        if (en->state == ENT_READY && en->hinted && !en->pins && !en->in_lru) {
            eng_evict(st, en);
        }
    }
}

void eng_hint(struct store *st, uint32_t id)
{
    struct entry *en = &st->ent[id];
    const struct model_object *ob = eng_object(st, id);
    bool expert = ob->kind == MODEL_EXPERT;
    if (en->hinted || (expert && en->state == ENT_READY)) {
        return;
    }
    if (expert && !eng_has_room(st, ob->size)) {
        if (st->disk && eng_can_fetch(st)) { /* as far as the disk */
            eng_want(st, id, STORE_PREFETCH, false);
        }
        return;
    }
    if (!expert && ob->size > HINT_SPINE_MAX - st->hint_spine) {
        drop_stale_hints(st);
        if (ob->size > HINT_SPINE_MAX - st->hint_spine) {
            return;
        }
    }
    en->hinted = true;
    if (!expert) {
        st->hint_spine += ob->size;
    }
    if (en->state != ENT_READY) { /* else somebody holds it; it stays when he lets go */
        eng_want(st, id, STORE_PREFETCH, true);
    }
}

/* One pending item: true when it has been started or answered. */
static bool pump_item(struct store *st, struct store_batch *b, size_t i)
{
    struct waiter *w = &b->w[i];
    struct entry *en = &st->ent[w->id];
    const struct model_object *ob = eng_object(st, w->id);
    bool go = en->state == ENT_READY || ob->kind != MODEL_EXPERT || en->want_ram || en->slot ||
              b->active < BATCH_MIN_ACTIVE || eng_has_room(st, ob->size);
    if (!go) {
        /* no room in RAM yet: it can come as far as the disk meanwhile */
        if (b->phase[i] == PH_PENDING) {
            b->phase[i] = PH_DISK_ASKED;
            if (st->disk && eng_can_fetch(st) && !disk_has(st->disk, w->id)) {
                eng_want(st, w->id, (enum store_prio)b->prio, false);
            }
        }
        return false;
    }
    b->phase[i] = PH_ASKED;
    b->pending--;
    b->active++;
    eng_add_waiter(st, w);
    if (!w->done) {
        eng_want(st, w->id, (enum store_prio)b->prio, true);
    }
    return true;
}

static void pump_once(struct store *st)
{
    for (struct store_batch *b = st->batches; b; b = b->next) {
        for (size_t i = b->first_pending; i < b->n && b->pending; i++) {
            bool past = b->phase[i] > PH_DISK_ASKED || pump_item(st, b, i);
            if (past && i == b->first_pending) {
                b->first_pending++;
            } else if (!past && i - b->first_pending > 256) {
                break; /* enough looked ahead; the rest when these have moved */
            }
        }
    }
}

void eng_pump(struct store *st)
{
    if (st->pumping) { /* a failure or a release inside: go round once more, do not nest */
        st->pump_again = true;
        return;
    }
    st->pumping = true;
    do {
        st->pump_again = false;
        pump_once(st);
    } while (st->pump_again);
    st->pumping = false;
}
