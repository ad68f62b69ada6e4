/* SPDX-License-Identifier: MIT
 * fetch_flight.c: the life of one object under way: begin, chunks, end. */
#include "peer/fetch_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_AGAIN_MS 200 /* nobody wants it here just now; whoever waits may ask anew */

static void say_second(struct fetch *f, const struct flight *fl)
{
    if (f->o.storage->put_second) {
        f->o.storage->put_second(f->o.storage_ctx, fl->key);
    }
}

static bool is_elsewhere(const struct fetch *f, const struct flight *fl)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        const struct source *s = f->peer[i];
        if (s && s->rec->banned_until <= f->now && have_test(&s->have, fl->key)) {
            return true;
        }
    }
    return false;
}

int flight_begin(struct fetch *f, struct flight *fl)
{
    struct err e = {0};
    uint8_t(*sha)[SHA256_SIZE] = malloc((size_t)fl->n * SHA256_SIZE);
    fl->c = calloc(fl->n, sizeof *fl->c);
    fl->m = calloc(FETCH_MEMBERS_MAX, sizeof *fl->m);
    fl->r = calloc(1, sizeof *fl->r);
    int code = fl->c && sha && fl->m && fl->r
                   ? 0
                   : err_set(&e, ERR_BUSY, "no memory for its list of chunks");
    if (!code) {
        if (is_elsewhere(f, fl)) {
            say_second(f, fl);
        }
        code = f->o.storage->put_begin(f->o.storage_ctx, fl->key, fl->size, &fl->put, &e);
    }
    if (code) {
        free(sha);
        free(fl->c);
        free(fl->m);
        free(fl->r);
        fl->c = NULL;
        fl->m = NULL;
        fl->r = NULL;
        fl->put = NULL;
        if (code != ERR_BUSY) {
            flight_end(f, fl, code, "%s", e.msg);
        }
        return code;
    }
    enum basis b = BASIS_NONE;
    bool known = f->o.storage->digests(f->o.storage_ctx, fl->key, 0, fl->n, sha, &b, NULL);
    for (uint32_t i = 0; i < fl->n; i++) {
        fl->c[i].member = fl->c[i].by = FETCH_NOBODY;
        if (known && b != BASIS_NONE) {
            memcpy(fl->c[i].sha, sha[i], SHA256_SIZE);
            fl->c[i].basis = (uint8_t)b;
        }
    }
    free(sha);
    fl->begun = true;
    fl->unasked = fl->left_chunks = fl->n;
    fl->left = fl->size;
    fl->begun_at = fl->patient_from = fl->last_byte = f->now;
    fl->say_at = f->now + FETCH_SAY_NS;
    f->look_at = u64_min(f->look_at, fl->say_at);
    link_cut(&fl->all);
    link_add(&f->begun[fl->prio], &fl->all);
    f->n_waiting--;
    f->n_begun++;
    f->begun_bytes += fl->size;
    room_take(f, fl, fl->others ? ROOM_OTHERS : ROOM_OWN);
    word_begin(f, fl, known && b >= BASIS_TWO_MEMBERS);
    return 0;
}

static void close_gets(struct fetch *f, struct flight *fl)
{
    while (fl->gets.next != &fl->gets) {
        get_close(f, get_of_flight(fl->gets.next), true);
    }
}

static void fill_result(struct flight *fl, uint64_t now)
{
    struct fetch_result *r = fl->r;
    r->key = fl->key;
    r->size = fl->size;
    r->code = r->err.code;
    r->took_ns = now - fl->asked_at;
    for (uint32_t i = 0; i < fl->n_members; i++) {
        struct fmember *m = &fl->m[i];
        if (m->chunks) {
            struct fetch_from *o = &r->from[r->n_from++];
            memcpy(o->id, m->rec->id, SHA256_SIZE);
            memcpy(o->name, m->rec->name, FETCH_NAME);
            o->chunks = m->chunks;
            o->bytes = m->bytes;
        }
    }
}

/* Out of everything but f->ended. */
static void retire(struct fetch *f, struct flight *fl)
{
    close_gets(f, fl);
    sample_drop(f, fl);
    relay_leave(f, fl);
    if (fl->r) {
        fill_result(fl, f->now);
    }
    f->owed[fl->prio] -= fl->begun ? fl->left : fl->size;
    for (uint32_t i = 0; i < fl->n_members; i++) {
        fl->m[i].rec->users--;
    }
    fl->n_members = 0;
    if (fl->begun) {
        f->n_begun--;
        f->begun_bytes -= fl->size;
        room_leave(f, fl);
    } else {
        f->n_waiting--;
    }
    fetch_hash_out(f, fl);
    free(fl->c);
    free(fl->m);
    fl->c = NULL;
    fl->m = NULL;
    fl->ended = true;
    link_cut(&fl->all);
    link_add(&f->ended, &fl->all);
    f->dirty = true;
}

static void give_back(struct fetch *f, struct flight *fl, int code, enum basis b,
                      const uint8_t *object, struct err *e)
{
    struct storage_put *put = fl->put;
    fl->put = NULL;
    if (put) {
        int r = f->o.storage->put_end(f->o.storage_ctx, put, code, b, object, e);
        if (!code && r) {
            e->code = r;
        }
    }
}

void flight_end(struct fetch *f, struct flight *fl, int code, const char *fmt, ...)
{
    char text[400], name[FETCH_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    static const uint8_t none[SHA256_SIZE];
    struct err ignored = {0};
    give_back(f, fl, code, BASIS_NONE, none, &ignored);
    if (f->o.leases) {
        f->o.ops.lease_end(f->o.ops.ctx, fl->key, code == ERR_CANCELLED ? LEASE_AGAIN_MS : 0);
    }
    if (!fl->r) {
        fl->r = calloc(1, sizeof *fl->r);
    }
    if (fl->r) {
        err_set(&fl->r->err, code, "%s: %s", flight_name(f, fl, name, sizeof name), text);
    }
    if (code == ERR_CANCELLED) {
        f->s.cancelled++;
    } else {
        f->s.failed++;
        fetch_log_failed(f, flight_name(f, fl, name, sizeof name), text);
    }
    retire(f, fl);
}

void flight_undo(struct fetch *f, struct flight *fl, uint32_t i)
{
    struct fchunk *c = &fl->c[i];
    if (!c->done) {
        return;
    }
    size_t n = storage_chunk_len(fl->size, i);
    if (c->by == FETCH_NOBODY) {
        fl->r->origin_chunks--;
        fl->r->origin_bytes -= n;
    } else {
        fl->m[c->by].chunks--;
        fl->m[c->by].bytes -= n;
    }
    c->done = fl->spot_done = false;
    fl->spot_id = 0;
    c->by = FETCH_NOBODY;
    fl->left += n;
    f->owed[fl->prio] += n;
    fl->left_chunks++;
    fl->unasked += c->asks == 0;
    f->dirty = true;
}

void flight_void(struct fetch *f, struct flight *fl, uint32_t m)
{
    for (uint32_t i = 0; i < fl->n; i++) {
        struct fchunk *c = &fl->c[i];
        if (c->basis == BASIS_ONE_MEMBER && c->member == m) {
            flight_undo(f, fl, i);
            c->basis = BASIS_NONE;
            c->member = FETCH_NOBODY;
        }
    }
}

/* All chunks are there: what they rest on, and whether those who stated a digest of the whole agree
 * with what came. */
void flight_complete(struct fetch *f, struct flight *fl)
{
    struct sha256 s;
    struct fetch_result *r = fl->r;
    enum basis least = BASIS_MANIFEST;
    sha256_init(&s);
    for (uint32_t i = 0; i < fl->n; i++) {
        sha256_add(&s, fl->c[i].sha, SHA256_SIZE);
        least = fl->c[i].basis < least ? (enum basis)fl->c[i].basis : least;
    }
    sha256_done(&s, r->object);
    if (least == BASIS_ONE_MEMBER) {
        uint32_t own = 0;
        bool differs = false;
        for (uint32_t i = 0; i < fl->n_members; i++) {
            struct fmember *m = &fl->m[i];
            if (!m->has_object || m->disputed) {
                continue;
            }
            bool same = memcmp(m->object, r->object, SHA256_SIZE) == 0;
            differs |= !same;
            own += same && m->claimed >= BASIS_ORIGIN;
        }
        if (differs || (fl->disputed && own < 2)) {
            plan_conflict(f, fl, "its chunks do not make up the object that members state");
            return;
        }
        if (own >= 2) {
            least = BASIS_TWO_MEMBERS;
        }
    }
    if (!word_complete(f, fl, &least) || (least == BASIS_ONE_MEMBER && sample_holds(f, fl))) {
        return;
    }
    r->basis = least;
    if (least >= BASIS_TWO_MEMBERS) {
        for (uint32_t i = 0; i < fl->n_members; i++) {
            if (fl->m[i].has_object && memcmp(fl->m[i].object, r->object, SHA256_SIZE) != 0) {
                member_lied(f, fl, i, "stated a digest of an object that proved false");
                if (least >= BASIS_ORIGIN) {
                    word_denied(f, fl, i, "stated a digest of an object that proved false");
                }
            }
        }
    }
    struct err e = {0};
    word_put(f, fl, least);
    give_back(f, fl, 0, least, r->object, &e);
    if (e.code) {
        flight_end(f, fl, e.code, "%s", e.msg);
        return;
    }
    f->s.objects++;
    f->s.origin_objects += r->origin_chunks > 0;
    retire(f, fl);
}

void flight_chunk(struct fetch *f, struct flight *fl, uint32_t i, const uint8_t *p, size_t n,
                  uint32_t m)
{
    struct fchunk *c = &fl->c[i];
    struct err e = {0};
    if (fl->left_chunks == fl->n && (m != FETCH_NOBODY || is_elsewhere(f, fl))) {
        say_second(f, fl); /* the room for it is made with its first chunk */
    }
    int code = f->o.storage->put_chunk(f->o.storage_ctx, fl->put, i, p, n, c->sha, &e);
    if (code) {
        flight_end(f, fl, code, "%s", e.msg);
        return;
    }
    if (f->o.leases && (m == FETCH_NOBODY || c->basis >= BASIS_TWO_MEMBERS)) {
        f->o.ops.chunk(f->o.ops.ctx, fl->key, fl->size, i, p, n, c->sha, (enum basis)c->basis);
    }
    c->done = true;
    c->by = (uint8_t)m;
    fl->left -= n;
    f->owed[fl->prio] -= n;
    fl->left_chunks--;
    fl->unasked -= c->asks == 0;
    if (m == FETCH_NOBODY) {
        fl->r->origin_chunks++;
        fl->r->origin_bytes += n;
        f->s.origin_bytes += n;
    } else {
        fl->m[m].chunks++;
        fl->m[m].bytes += n;
        fl->m[m].rec->chunks++;
        fl->m[m].rec->bytes += n;
        f->s.peer_bytes += n;
    }
    if (!fl->left_chunks) {
        flight_complete(f, fl);
    } else {
        get_forget_chunk(f, fl, i);
    }
}
