/* SPDX-License-Identifier: MIT
 * words.c: what members say about digests, between store (node/store/words.h) and mesh: statements
 * that come, statements that this node makes, liars, audits. See node_int.h.
 *
 * The LAN thread only looks things up and leaves notes; one thread of this module does what may
 * wait for the disk, the origin or a signature. */
#include "node/daemon/node_int.h"

#include "node/store/words.h"
#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE_MAX 256             /* notes of the LAN thread; what is more comes again */
#define LOOK_NS (2000 * MS_NS)    /* is there something to state */
#define STATE_NS (10000 * MS_NS)  /* between two statements that are not full */
#define MEMBERS_NS (5000 * MS_NS) /* who left the shoal, another manifest */
#define AUDIT_NS (60000 * MS_NS)  /* one chunk of the origin each, unless node_opts says else */
#define AUDIT_DAY ((uint64_t)256 << 20)
#define DAY_NS ((uint64_t)86400 * 1000 * MS_NS)

struct item { /* a statement (blob, from a peer), or a member that lied (why) */
    struct item *next;
    uint8_t member[SHA256_SIZE]; /* the liar, or the peer */
    char why[200];
    size_t n;
    uint8_t blob[];
};

struct words {
    struct node *n;
    struct mesh_words ops;
    pthread_t thread;
    bool started;
    pthread_mutex_t mu; /* what follows */
    pthread_cond_t work;
    struct item *head, **tail;
    size_t queued;
    bool stop;
    struct words_stats s;
    /* the thread's own */
    uint64_t stated; /* store_words_stamp when all was stated */
    uint64_t look_at, state_at, members_at, audit_at, day_at, day_bytes, random;
};

/* ---- the LAN thread ---- */

static size_t on_seen(void *ctx, struct mesh_seen *out, size_t max)
{
    struct words *w = ctx;
    struct store_words_seen v[STORE_WORDS_MEMBERS];
    size_t n = store_words_seen(w->n->st, v, max < STORE_WORDS_MEMBERS ? max : STORE_WORDS_MEMBERS);
    for (size_t i = 0; i < n; i++) {
        memcpy(out[i].signer.b, v[i].signer, SHA256_SIZE);
        out[i].seq = v[i].seq;
    }
    return n;
}

static bool on_known(void *ctx, const uint8_t signer[SHA256_SIZE], uint64_t seq)
{
    return store_words_known(((struct words *)ctx)->n->st, signer, seq);
}

static bool on_next(void *ctx, const uint8_t signer[SHA256_SIZE], uint64_t seq, struct buf *out,
                    uint64_t *got, bool *more)
{
    return store_words_next(((struct words *)ctx)->n->st, signer, seq, out, got, more);
}

static void note(struct words *w, const uint8_t member[SHA256_SIZE], const char *why,
                 const void *blob, size_t n)
{
    struct item *x = malloc(sizeof *x + n);
    if (!x) {
        return;
    }
    x->next = NULL;
    memcpy(x->member, member, SHA256_SIZE);
    snprintf(x->why, sizeof x->why, "%s", why ? why : "");
    x->n = n;
    if (n) {
        memcpy(x->blob, blob, n);
    }
    pthread_mutex_lock(&w->mu);
    bool room = !w->stop && w->queued < QUEUE_MAX;
    if (room) {
        *w->tail = x;
        w->tail = &x->next;
        w->queued++;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->mu);
    if (!room) {
        free(x);
    }
}

static void on_take(void *ctx, const uint8_t from[SHA256_SIZE], const void *blob, size_t n)
{
    note(ctx, from, NULL, blob, n);
}

static void on_lied(void *ctx, const uint8_t member[SHA256_SIZE], struct object_key k,
                    const char *why)
{
    struct words *w = ctx;
    char name[128], text[200];
    uint32_t id = store_key_id(w->n->st, k);
    snprintf(text, sizeof text, "it %s (%s)", why,
             id == MODEL_NONE ? "?"
                              : model_object_name(store_model(w->n->st), id, name, sizeof name));
    note(w, member, text, NULL, 0);
}

/* ---- our thread ---- */

/* The store's; any thread. */
static void on_voided(void *ctx, const uint8_t member[SHA256_SIZE], const char *why)
{
    struct words *w = ctx;
    struct key_id id;
    char text[ID_SHORT];
    memcpy(id.b, member, SHA256_SIZE);
    id_short(&id, text);
    node_log(w->n,
             "the word of member %s is void from now on: %s (\"shoal peers unban\" believes it "
             "again)",
             text, why);
    mesh_words_void(w->n->mesh, member, true);
}

static void name_of(void *ctx, const uint8_t member[SHA256_SIZE], char *out, size_t cap)
{
    struct key_id id;
    char text[ID_SHORT];
    (void)ctx;
    memcpy(id.b, member, SHA256_SIZE);
    id_short(&id, text);
    snprintf(out, cap, "%s", text);
}

static void on_taken_back(void *ctx, const uint32_t *ids, size_t n, const char *why)
{
    struct words *w = ctx;
    node_log(w->n, "%s", why);
    struct guests *g = node_guests_now(w->n);
    if (g) {
        guests_taken_back(g, ids, n, why);
    }
}

static void take(struct words *w, const struct item *x)
{
    struct err e = {0};
    bool taken = false;
    if (!x->n) {
        store_words_lied(w->n->st, x->member, x->why);
        return;
    }
    struct statement s;
    struct key_id signer;
    int r = statement_open(x->blob, x->n, &s, &signer, &e);
    if (r) {
        mesh_words_bad(w->n->mesh, x->member);
    }
    r = r ? r : store_words_take(w->n->st, signer.b, x->blob, x->n, &taken, &e);
    pthread_mutex_lock(&w->mu);
    w->s.taken += taken;
    w->s.refused += r != 0;
    pthread_mutex_unlock(&w->mu);
    if (!r) {
        mesh_words_taken(w->n->mesh);
    }
}

/* One statement of what is due. True: there is more of it at once. */
static bool state_own(struct words *w, uint64_t now)
{
    struct statement_entry *v = NULL;
    size_t n = 0;
    uint64_t seq, clock = (uint64_t)time(NULL);
    struct err e = {0};
    struct buf b;
    bool full = false, taken = false;
    const uint8_t *self = mesh_id(w->n->mesh)->b;
    uint64_t stamp = store_words_stamp(w->n->st);
    if (stamp == w->stated || store_words_due(w->n->st, self, &v, &n, &seq, &e)) {
        return false;
    }
    full = n > STATEMENT_OBJECTS_MAX;
    if (n && (full || now >= w->state_at)) {
        /* by the clock, so that numbers rise also where the earlier ones are lost */
        seq = seq > clock ? seq : clock;
        buf_init(&b, STATEMENT_BLOB_MAX);
        int r = mesh_words_sign(w->n->mesh, seq, v, full ? STATEMENT_OBJECTS_MAX : n, &b, &e);
        r = r ? r : store_words_take(w->n->st, self, b.p, b.n, &taken, &e);
        if (taken) {
            mesh_words_tell(w->n->mesh, b.p, b.n);
            pthread_mutex_lock(&w->mu);
            w->s.made++;
            w->s.made_objects += full ? STATEMENT_OBJECTS_MAX : n;
            pthread_mutex_unlock(&w->mu);
        }
        w->stated = taken && !full ? stamp : w->stated;
        full &= taken;
        buf_free(&b);
        w->state_at = now + STATE_NS;
    } else if (!n) {
        w->stated = stamp;
    }
    free(v);
    return full;
}

static void look_members(struct words *w)
{
    struct store_words_member v[STORE_WORDS_MEMBERS];
    store_words_look(w->n->st);
    size_t n = store_words_members(w->n->st, v, STORE_WORDS_MEMBERS);
    for (size_t i = 0; i < n; i++) {
        struct key_id id;
        memcpy(id.b, v[i].id, SHA256_SIZE);
        if (v[i].statements && !mesh_is_member(w->n->mesh, &id)) {
            store_words_forget(w->n->st, v[i].id);
        }
    }
}

static void audit(struct words *w, uint64_t now)
{
    uint64_t bytes = 0, x = w->random;
    struct err e = {0};
    w->audit_at = now + (w->n->o.audit_ms ? w->n->o.audit_ms * MS_NS : AUDIT_NS);
    if (now - w->day_at >= DAY_NS) {
        w->day_at = now;
        w->day_bytes = 0;
    }
    x ^= x << 13; /* xorshift64 */
    x ^= x >> 7;
    x ^= x << 17;
    w->random = x;
    if (w->day_bytes >= AUDIT_DAY) {
        return;
    }
    int r = store_words_audit(w->n->st, x, &bytes, &e);
    w->day_bytes += bytes;
    pthread_mutex_lock(&w->mu);
    w->s.audits += bytes != 0;
    w->s.audit_bytes += bytes;
    w->s.audits_failed += r == ERR_DIGEST;
    pthread_mutex_unlock(&w->mu);
    if (r == ERR_DIGEST) {
        node_log(w->n, "an audit found a false object: %s", e.msg);
    }
}

static void *words_main(void *arg)
{
    struct words *w = arg;
    qos_self(QOS_SERVE);
    pthread_mutex_lock(&w->mu);
    while (!w->stop) {
        struct item *x = w->head;
        if (x) {
            w->head = x->next;
            w->tail = w->head ? w->tail : &w->head;
            w->queued--;
            pthread_mutex_unlock(&w->mu);
            take(w, x);
            free(x);
            pthread_mutex_lock(&w->mu);
            continue;
        }
        uint64_t now = clock_ns();
        if (now < w->look_at) {
            struct timespec t;
            clock_gettime(CLOCK_REALTIME, &t); /* a changed clock makes one look early or late */
            uint64_t wait = w->look_at - now, most = LOOK_NS;
            wait = wait < most ? wait : most;
            t.tv_sec += (time_t)(wait / (1000 * MS_NS));
            t.tv_nsec += (long)(wait % (1000 * MS_NS));
            t.tv_sec += t.tv_nsec / 1000000000;
            t.tv_nsec %= 1000000000;
            pthread_cond_timedwait(&w->work, &w->mu, &t);
            continue;
        }
        pthread_mutex_unlock(&w->mu);
        bool more = state_own(w, now);
        if (now >= w->members_at) {
            look_members(w);
            w->members_at = now + MEMBERS_NS;
        }
        if (now >= w->audit_at) {
            audit(w, now);
        }
        pthread_mutex_lock(&w->mu);
        uint64_t every = w->n->o.audit_ms && w->n->o.audit_ms * MS_NS < LOOK_NS
                             ? w->n->o.audit_ms * MS_NS
                             : LOOK_NS;
        w->look_at = more ? now : now + every;
    }
    pthread_mutex_unlock(&w->mu);
    return NULL;
}

/* ---- the rest of node_int.h ---- */

const struct mesh_words *words_mesh(struct words *w)
{
    return w ? &w->ops : NULL;
}

void words_get_stats(struct words *w, struct words_stats *out)
{
    pthread_mutex_lock(&w->mu);
    *out = w->s;
    pthread_mutex_unlock(&w->mu);
}

int words_open(struct node *n, struct words **out, struct err *e)
{
    struct words *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    w->n = n;
    w->tail = &w->head;
    w->stated = UINT64_MAX;
    w->ops = (struct mesh_words){w, on_seen, on_known, on_next, on_take, on_lied};
    w->random = clock_ns() | 1;
    w->day_at = clock_ns();
    w->state_at = clock_ns() + LOOK_NS;
    w->look_at = w->day_at + LOOK_NS;
    w->audit_at = w->day_at + (n->o.audit_ms ? n->o.audit_ms * MS_NS : AUDIT_NS);
    pthread_mutex_init(&w->mu, NULL);
    pthread_cond_init(&w->work, NULL);
    struct store_words_listener l = {w, on_voided, name_of, on_taken_back};
    store_words_self(n->st, mesh_id(n->mesh)->b);
    store_words_listen(n->st, &l);
    *out = w;
    return 0;
}

int words_start(struct words *w, struct err *e)
{
    struct store_words_member v[STORE_WORDS_MEMBERS];
    size_t n = store_words_members(w->n->st, v, STORE_WORDS_MEMBERS);
    for (size_t i = 0; i < n; i++) {
        if (v[i].void_at) {
            struct key_id id;
            char text[ID_SHORT];
            memcpy(id.b, v[i].id, SHA256_SIZE);
            id_short(&id, text);
            node_log(w->n, "the word of member %s is void: %s", text, v[i].why);
            mesh_words_void(w->n->mesh, v[i].id, true);
        }
    }
    if (pthread_create(&w->thread, NULL, words_main, w)) {
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    w->started = true;
    return 0;
}

void words_stop(struct words *w)
{
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->mu);
    w->stop = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->mu);
    if (w->started) {
        pthread_join(w->thread, NULL);
        w->started = false;
    }
}

void words_free(struct words *w)
{
    if (w) {
        store_words_listen(w->n->st, NULL);
        while (w->head) {
            struct item *x = w->head;
            w->head = x->next;
            free(x);
        }
        pthread_cond_destroy(&w->work);
        pthread_mutex_destroy(&w->mu);
        free(w);
    }
}

int words_believe(struct node *n, const struct key_id *id, struct err *e)
{
    struct store *st = node_store_now(n);
    int r = st ? store_words_believe(st, id->b, e) : ERR_NOTFOUND;
    if (!r) {
        mesh_words_void(n->mesh, id->b, false);
    }
    return r;
}
