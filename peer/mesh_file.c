/* SPDX-License-Identifier: MIT
 * mesh_file.c: a small file from the members (mesh_file). See mesh_int.h.
 *
 * One peer at a time is asked, the nearest first, for the first part, whose answer says how long
 * the file is, then for as many parts at once as a connection may have open. A peer that fails, has
 * it not, or gives nothing for a while is left for the next one, which is asked for what is still
 * missing. Parts of two peers are mixed only if both say the same length; the caller compares
 * digests. A part that nobody wants any more keeps its place on the connection until its answer
 * came, so no peer can ever send more than was asked of it.
 *
 * A request lies on the stack of the thread that waits for it. */
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 30000 /* when the caller says nothing */
#define FIRST_MS 2000   /* for the first part of a peer: it need only be read */
#define STALL_MS 5000   /* without a byte on a connection that owes parts */
#define AGAIN_MS 100    /* until a busy peer, or one that was lost, is asked again */
#define AGAINS_MAX 30   /* of one peer: busy or lost */
#define PARTS_MAX ((WIRE_FILE_MAX + WIRE_RAW_MAX - 1) / WIRE_RAW_MAX)

struct part {
    uint8_t *p; /* malloc'ed */
    uint32_t n;
    bool asked, have;
};

struct tried {
    struct key_id id;
    uint64_t again; /* when it may be asked again; UINT64_MAX: never */
    unsigned agains;
};

struct file_ask {
    struct note n;
    struct file_ask *next; /* of the mesh */
    const uint8_t *scope;
    const char *name;
    uint64_t max;
    struct plink *l; /* being asked */
    bool known, listed, over;
    uint64_t total, since, bytes_in; /* of l: last progress, bytes received then */
    struct part *parts;
    size_t n_parts, n_have, n_asked;
    unsigned restarts;
    struct tried *tried;
    size_t n_tried;
    char from[MESH_SHORT];
    bool all_lack; /* whoever answered has it not */
    bool broken;   /* no memory: it ends */
    struct err e;  /* of the last peer that failed */
};

static void drop_parts(struct file_ask *a)
{
    for (size_t i = 0; i < a->n_parts; i++) {
        free(a->parts[i].p);
    }
    free(a->parts);
    a->parts = NULL;
    a->n_parts = a->n_have = 0;
    a->known = false;
}

/* What is still on its way from the present peer is nobody's from now on. */
static void leave(struct file_ask *a)
{
    for (size_t i = 0; a->l && i < WIRE_FILE_OPEN; i++) {
        struct link_part *p = &a->l->parts[i];
        if (p->used && p->of == a) {
            p->of = NULL;
        }
    }
    for (size_t i = 0; i < a->n_parts; i++) {
        a->parts[i].asked = false;
    }
    a->n_asked = 0;
    a->l = NULL;
}

static void end(struct mesh *m, struct file_ask *a)
{
    leave(a);
    if (a->listed) {
        struct file_ask **at = &m->files;
        while (*at != a) {
            at = &(*at)->next;
        }
        *at = a->next;
        a->listed = false;
    }
    free(a->tried);
    a->tried = NULL;
    uv_mutex_lock(&m->mu);
    a->over = true;
    uv_cond_broadcast(&m->cond);
    uv_mutex_unlock(&m->mu);
}

/* ---- whom to ask ---- */

static struct tried *tried_of(struct file_ask *a, const struct key_id *id, bool make)
{
    for (size_t i = 0; i < a->n_tried; i++) {
        if (id_equal(&a->tried[i].id, id)) {
            return &a->tried[i];
        }
    }
    struct tried *t = make ? realloc(a->tried, (a->n_tried + 1) * sizeof *t) : NULL;
    if (t) {
        a->tried = t;
        t += a->n_tried++;
        memset(t, 0, sizeof *t);
        t->id = *id;
    }
    return t;
}

static bool has_room(const struct plink *l)
{
    for (size_t i = 0; i < WIRE_FILE_OPEN; i++) {
        if (!l->parts[i].used) {
            return true;
        }
    }
    return false;
}

/* The nearest connection that may be asked; *wait: there is one that may be later. */
static struct plink *choose(struct mesh *m, struct file_ask *a, uint64_t now, bool *wait)
{
    struct plink *best = NULL;
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->state != LINK_UP || !l->answers || l->bad_files) {
            continue;
        }
        const struct tried *t = tried_of(a, &l->inst.id, false);
        if (t && t->again == UINT64_MAX) {
            continue;
        }
        if ((t && t->again > now) || !has_room(l)) {
            *wait = true;
            continue;
        }
        if (!best || (l->rtt && (!best->rtt || l->rtt < best->rtt))) {
            best = l;
        }
    }
    for (size_t i = 0; i < a->n_tried; i++) { /* lost a moment ago: it may be back at once */
        *wait |= a->tried[i].again > now && a->tried[i].again != UINT64_MAX;
    }
    return best;
}

/* The present peer is of no use (again: never, or when). */
static void next_peer(struct file_ask *a, uint64_t again)
{
    struct tried *t = tried_of(a, &a->l->inst.id, true);
    leave(a);
    if (t) {
        t->again = ++t->agains < AGAINS_MAX ? again : UINT64_MAX;
    } else {
        err_set(&a->e, ERR_NOMEM, "out of memory");
        a->all_lack = false;
        a->broken = true;
    }
}

/* ---- asking ---- */

static int ask_part(struct file_ask *a, size_t i)
{
    struct plink *l = a->l;
    Shoal__FileGet g = SHOAL__FILE_GET__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    struct link_part *p = l->parts;
    while (p < l->parts + WIRE_FILE_OPEN && p->used) {
        p++;
    }
    if (p == l->parts + WIRE_FILE_OPEN) {
        return ERR_BUSY;
    }
    g.id = ++l->next_part;
    g.scope.data = (uint8_t *)(uintptr_t)a->scope;
    g.scope.len = SHA256_SIZE;
    g.name = (char *)(uintptr_t)a->name;
    g.offset = (uint64_t)i * WIRE_RAW_MAX;
    g.length = WIRE_RAW_MAX;
    f.kind_case = SHOAL__FRAME__KIND_FILE_GET;
    f.file_get = &g;
    int r = link_send(l, &f, TLS_CONTROL);
    if (!r) {
        *p = (struct link_part){true, a, g.id, g.offset, g.length};
        a->n_asked++;
        if (a->known) {
            a->parts[i].asked = true;
        }
    }
    return r;
}

static void ask_more(struct file_ask *a)
{
    if (!a->known) {
        if (!a->n_asked) {
            ask_part(a, 0);
        }
        return;
    }
    for (size_t i = 0; i < a->n_parts; i++) {
        if (!a->parts[i].have && !a->parts[i].asked && ask_part(a, i)) {
            return;
        }
    }
}

static void on_again(uv_timer_t *t)
{
    mesh_files_go(t->data);
}

static void go(struct mesh *m, struct file_ask *a, uint64_t now)
{
    while (!a->n_asked) {
        bool wait = false;
        if (!a->l && !a->broken) {
            a->l = choose(m, a, now, &wait);
        }
        if (!a->l && wait) { /* the tick of the mesh is too slow for nodes that start together */
            if (!m->closing && !uv_is_active((uv_handle_t *)&m->file_timer)) {
                uv_timer_start(&m->file_timer, on_again, AGAIN_MS, 0);
            }
            return;
        }
        if (!a->l) {
            if (a->all_lack) {
                err_set(&a->e, ERR_NOTFOUND, "no connected peer has the file %s", a->name);
            } else if (!a->broken) {
                struct err why = a->e;
                err_set(&a->e,
                        why.code == ERR_LIMIT || why.code == ERR_BUSY ? why.code : ERR_NOTFOUND,
                        "no connected peer gave the file %s: %s", a->name, why.msg);
            }
            end(m, a);
            return;
        }
        uint64_t out;
        a->since = now;
        tls_conn_bytes(a->l->c, &a->bytes_in, &out);
        ask_more(a);
        if (!a->n_asked) { /* its queue is full */
            next_peer(a, now + AGAIN_MS * MS_NS);
        }
    }
    ask_more(a);
}

void mesh_files_go(struct mesh *m)
{
    uint64_t now = clock_ns();
    for (struct file_ask *a = m->files, *next; a; a = next) {
        next = a->next;
        go(m, a, now);
    }
}

/* ---- answers ---- */

static int take_length(struct file_ask *a, uint64_t total)
{
    if (total > a->max) {
        return err_set(&a->e, ERR_LIMIT,
                       "peer %s says that it has %llu bytes, at most %llu are "
                       "allowed",
                       a->l->who, (unsigned long long)total, (unsigned long long)a->max);
    }
    if (a->known && a->total == total) {
        return 0;
    }
    if (a->known && ++a->restarts > 4) {
        return err_set(&a->e, ERR_FORMAT, "peer %s says another length than before", a->l->who);
    }
    drop_parts(a); /* another file than the one begun: all of it from this peer */
    a->n_parts = total ? (size_t)((total - 1) / WIRE_RAW_MAX + 1) : 1;
    a->parts = a->n_parts <= PARTS_MAX ? calloc(a->n_parts, sizeof *a->parts) : NULL;
    if (!a->parts) {
        a->n_parts = 0;
        return err_set(&a->e, ERR_NOMEM, "out of memory");
    }
    a->known = true;
    a->total = total;
    for (size_t i = 0; i < WIRE_FILE_OPEN; i++) { /* parts of it that are on their way */
        const struct link_part *p = &a->l->parts[i];
        if (p->used && p->of == a && p->off / WIRE_RAW_MAX < a->n_parts) {
            a->parts[p->off / WIRE_RAW_MAX].asked = true;
        }
    }
    return 0;
}

static int take_part(struct file_ask *a, const struct link_part *p, const Shoal__FileData *d,
                     struct frame *raw)
{
    switch (d->result) {
    case SHOAL__FILE_RESULT__FILE_OK:
        break;
    case SHOAL__FILE_RESULT__FILE_NOT_HELD:
        return ERR_NOTFOUND;
    case SHOAL__FILE_RESULT__FILE_BUSY:
        return err_set(&a->e, ERR_BUSY, "peer %s is busy", a->l->who);
    default:
        return err_set(&a->e, ERR_REFUSED, "peer %s gives no files", a->l->who);
    }
    int r = take_length(a, d->total);
    if (r) {
        return r;
    }
    uint64_t left = a->total > p->off ? a->total - p->off : 0;
    size_t i = (size_t)(p->off / WIRE_RAW_MAX);
    if (i >= a->n_parts) {
        return 0; /* the file is shorter now */
    }
    if (raw->raw_n != (left < p->n ? left : p->n)) {
        return err_set(&a->e, ERR_FORMAT, "peer %s gave a part of the wrong length", a->l->who);
    }
    struct part *x = &a->parts[i];
    x->asked = false;
    if (!x->have) {
        x->have = true;
        x->p = raw->raw;
        x->n = raw->raw_n;
        raw->raw = NULL;
        a->n_have++;
    }
    return 0;
}

void mesh_on_file_data(struct plink *l, const Shoal__FileData *d, struct frame *raw)
{
    struct mesh *m = l->m;
    struct link_part *p = l->parts;
    while (p < l->parts + WIRE_FILE_OPEN && !(p->used && p->id == d->id)) {
        p++;
    }
    if (p == l->parts + WIRE_FILE_OPEN || raw->raw_n > p->n) {
        link_broke(l, p == l->parts + WIRE_FILE_OPEN ? "FileData: not asked for"
                                                     : "FileData: more bytes than asked for");
        return;
    }
    struct link_part was = *p;
    struct file_ask *a = p->of;
    uint64_t now = clock_ns();
    p->used = false;
    if (a) {
        a->n_asked--;
        a->since = now;
        int r = take_part(a, &was, d, raw);
        a->all_lack &= r == ERR_NOTFOUND;
        if (r) {
            next_peer(a, r == ERR_BUSY ? now + AGAIN_MS * MS_NS : UINT64_MAX);
        } else if (a->n_have == a->n_parts) {
            memcpy(a->from, l->node, sizeof a->from);
            a->e.code = 0;
            end(m, a);
        }
    }
    mesh_files_go(m);
}

void mesh_files_down(struct plink *l)
{
    struct mesh *m = l->m;
    uint64_t now = clock_ns();
    for (struct file_ask *a = m->files; a; a = a->next) {
        if (a->l != l) {
            continue;
        }
        err_set(&a->e, ERR_NET, "the connection with peer %s ended", l->who);
        a->all_lack = false;
        next_peer(a, now + AGAIN_MS * MS_NS);
    }
    memset(l->parts, 0, sizeof l->parts);
    if (!m->closing) {
        mesh_files_go(m);
    }
}

void mesh_files_tick(struct mesh *m, uint64_t now)
{
    for (struct file_ask *a = m->files; a; a = a->next) {
        uint64_t in, out;
        if (!a->l) {
            continue;
        }
        tls_conn_bytes(a->l->c, &in, &out);
        if (in - a->bytes_in >= WIRE_RAW_MAX / 16) { /* more than heartbeats */
            a->bytes_in = in;
            a->since = now;
        }
        if (now - a->since > (a->known ? STALL_MS : FIRST_MS) * MS_NS) {
            err_set(&a->e, ERR_TIMEOUT, "peer %s gave nothing for a while", a->l->who);
            a->all_lack = false;
            next_peer(a, UINT64_MAX);
        }
    }
    mesh_files_go(m);
}

void mesh_files_close(struct mesh *m)
{
    while (m->files) {
        struct file_ask *a = m->files;
        err_set(&a->e, ERR_CANCELLED, "the node is stopping");
        end(m, a);
    }
}

/* ---- the caller's side ---- */

static void note_ask(struct mesh *m, struct note *n)
{
    struct file_ask *a = (struct file_ask *)n;
    if (m->closing) {
        err_set(&a->e, ERR_CANCELLED, "the node is stopping");
        end(m, a);
        return;
    }
    a->all_lack = true;
    a->listed = true;
    a->next = m->files;
    m->files = a;
    go(m, a, clock_ns());
}

static void note_give_up(struct mesh *m, struct note *n)
{
    struct file_ask *a = (struct file_ask *)n;
    if (!a->over) {
        struct err why = a->e;
        err_set(&a->e, ERR_TIMEOUT, "the file %s did not come in time%s%s", a->name,
                why.code ? ": " : "", why.code ? why.msg : "");
        end(m, a);
    }
}

static int check(const uint8_t *scope, const char *name, struct err *e)
{
    Shoal__FileGet g = SHOAL__FILE_GET__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    g.scope.data = (uint8_t *)(uintptr_t)scope;
    g.scope.len = SHA256_SIZE;
    g.name = (char *)(uintptr_t)name;
    g.length = 1;
    f.kind_case = SHOAL__FRAME__KIND_FILE_GET;
    f.file_get = &g;
    return codec_check(&f, 0, NULL) ? err_set(e, ERR_ARG,
                                              "peers cannot be asked for a file of "
                                              "that name")
                                    : 0;
}

struct bad_note {
    struct note n;
    const char *from;
};

static void note_bad(struct mesh *m, struct note *n)
{
    const struct bad_note *x = (const struct bad_note *)n;
    for (struct plink *l = m->links; l; l = l->next) {
        l->bad_files |= strcmp(l->node, x->from) == 0;
    }
}

void mesh_file_bad(struct mesh *m, const char *from)
{
    struct bad_note x = {.n = {.run = note_bad, .sync = true}, .from = from};
    mesh_post(m, &x.n);
}

int mesh_file(struct mesh *m, const uint8_t scope[SHA256_SIZE], const char *name, uint64_t max,
              unsigned timeout_ms, struct buf *out, char from[MESH_SHORT], struct err *e)
{
    struct file_ask a = {.n = {.run = note_ask, .sync = true},
                         .scope = scope,
                         .name = name,
                         .max = max < WIRE_FILE_MAX ? max : WIRE_FILE_MAX};
    uint64_t limit = (timeout_ms ? timeout_ms : ANSWER_MS) * MS_NS, start = clock_ns(), used;
    if (check(scope, name, e)) {
        return ERR_ARG;
    }
    mesh_post(m, &a.n);
    mesh_wait_begin(m);
    while (!a.over && (used = clock_ns() - start) < limit) {
        uv_cond_timedwait(&m->cond, &m->mu, limit - used);
    }
    bool over = a.over;
    mesh_wait_end(m);
    if (!over) {
        a.n.run = note_give_up;
        mesh_post(m, &a.n);
    }
    int r = a.e.code;
    if (r) {
        err_set(e, r, "%s", a.e.msg);
    } else if ((r = buf_reserve(out, (size_t)a.total)) != 0) {
        err_set(e, r, "the file %s of %llu bytes: %s", name, (unsigned long long)a.total,
                err_text(r));
    }
    for (size_t i = 0; !r && i < a.n_parts; i++) {
        r = buf_add(out, a.parts[i].p, a.parts[i].n);
    }
    if (!r && from) {
        memcpy(from, a.from, sizeof a.from);
    }
    drop_parts(&a);
    return r;
}
