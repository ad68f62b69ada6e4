/* SPDX-License-Identifier: MIT
 * meta_peer.c: metadata from peers that work on the same address, and for them. See share.h. */
#include "node/store/meta_inner.h"

#include "node/store/share.h"
#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define LINES_MAX 20000u          /* of a peer's list */
#define BAD_MAX 16                /* peers whose answer is no good, then the origin is asked */
#define ASK_AGAIN_NS 10000000000u /* when nobody had it */

/* Sizes and entity tags of shards are what we expect from now on, as if the origin had said so. */
static void adopt_shards(struct meta *m)
{
    for (size_t i = 0; i < m->given.n; i++) {
        const struct meta_item *it = &m->given.it[i];
        if (it->kind == META_SHARD && !meta_list_find(&m->list, META_SHARD, it->name)) {
            m->dirty = !meta_list_set(&m->list, it->name, it) || m->dirty;
        }
    }
}

static int parse(struct meta *m, const struct buf *b, struct meta_list *l, struct err *e)
{
    size_t lines = 0;
    for (size_t i = 0; i < b->n; i++) {
        lines += b->p[i] == '\n';
    }
    return lines > LINES_MAX ? err_set(e, ERR_LIMIT, "it has %zu lines", lines)
                             : meta_list_parse(l, b->p, b->n, m->address, e);
}

/* Not from this one again; false: nobody can be told that. */
static bool another(struct meta *m)
{
    if (m->peers->bad) {
        m->peers->bad(m->peers->ctx);
    }
    return m->peers->bad != NULL;
}

void meta_ask_list(struct meta *m)
{
    uint64_t now = clock_ns();
    pthread_mutex_lock(&m->mu);
    bool ask = m->peers && !m->given.n && (!m->given_asked || now - m->given_asked > ASK_AGAIN_NS);
    m->given_asked = ask ? now : m->given_asked;
    pthread_mutex_unlock(&m->mu);
    if (!ask) {
        return;
    }
    struct buf b;
    buf_init(&b, META_LIST_MAX);
    struct meta_list l = {0};
    struct err e = {0};
    for (int i = 0; i < BAD_MAX && !m->peers->get(m->peers->ctx, "", META_LIST_MAX, &b, &e); i++) {
        if (!parse(m, &b, &l, &e)) {
            break;
        }
        meta_say(m, "the list of the model's files that a peer gives is no good: %s", e.msg);
        b.n = 0;
        if (!another(m)) {
            break;
        }
    }
    pthread_mutex_lock(&m->mu);
    if (l.n && !m->given.n) {
        m->given = l;
        memset(&l, 0, sizeof l);
        m->peer_bytes += b.n;
        adopt_shards(m);
    }
    m->given_asked = clock_ns();
    pthread_mutex_unlock(&m->mu);
    meta_list_free(&l);
    buf_free(&b);
}

/* What the bytes under this name must be. What is on record here counts first. */
static bool expected(struct meta *m, const char *name, uint8_t sha[SHA256_SIZE], uint64_t *size)
{
    pthread_mutex_lock(&m->mu);
    const struct meta_item *it = meta_list_find(&m->list, META_FILE, name);
    if (!it) {
        it = meta_list_find(&m->given, META_FILE, name);
    }
    if (it) {
        memcpy(sha, it->sha, SHA256_SIZE);
        *size = it->size;
    } else if (meta_list_find(&m->given, META_ABSENT, name)) {
        struct meta_item none = {.kind = META_ABSENT};
        m->dirty = !meta_list_set(&m->list, name, &none) || m->dirty;
    }
    pthread_mutex_unlock(&m->mu);
    return it != NULL;
}

int meta_from_peers(struct meta *m, const char *name, struct buf *out, struct err *e)
{
    uint8_t want[SHA256_SIZE], have[SHA256_SIZE];
    uint64_t size = 0;
    if (!m->peers) {
        return ERR_NOTFOUND;
    }
    if (!expected(m, name, want, &size)) {
        meta_ask_list(m);
        if (!expected(m, name, want, &size)) {
            return ERR_NOTFOUND;
        }
    }
    if (size > META_FILE_MAX) {
        return ERR_NOTFOUND;
    }
    struct buf b;
    buf_init(&b, (size_t)size);
    struct err e1 = {0};
    int r;
    for (int i = 0; !(r = m->peers->get(m->peers->ctx, name, size, &b, &e1)); i++) {
        sha256(b.p, b.n, have);
        if (b.n == size && memcmp(have, want, SHA256_SIZE) == 0) {
            break;
        }
        meta_say(m, "%s as a peer gives it is not what the list of the model's files says", name);
        b.n = 0;
        r = ERR_DIGEST;
        if (i + 1 == BAD_MAX || !another(m)) {
            break;
        }
    }
    if (!r) {
        pthread_mutex_lock(&m->mu);
        m->peer_bytes += b.n;
        pthread_mutex_unlock(&m->mu);
        r = buf_add(out, b.p, b.n);
        if (r) {
            err_set(e, r, "%s has %zu bytes: %s", name, b.n, err_text(r));
        }
    }
    buf_free(&b);
    return r ? ERR_NOTFOUND : 0;
}

uint64_t meta_peer_bytes(struct meta *m)
{
    pthread_mutex_lock(&m->mu);
    uint64_t n = m->peer_bytes;
    pthread_mutex_unlock(&m->mu);
    return n;
}

/* ---- for peers ---- */

/* With serve_mu: the bytes under this name, verified. */
static int load(struct meta *m, const char *name, uint64_t off, struct err *e)
{
    /* the list changes: a new reading of it begins with a new one */
    if ((*name || off) && m->served_name && strcmp(m->served_name, name) == 0) {
        return 0;
    }
    free(m->served_name);
    m->served_name = NULL;
    buf_free(&m->served);
    buf_init(&m->served, META_FILE_MAX);
    int r;
    if (*name) {
        r = meta_kept(m, name, &m->served, e);
    } else {
        pthread_mutex_lock(&m->mu);
        r = m->list.n ? meta_list_write(&m->list, m->address, &m->served) : ERR_NOTFOUND;
        pthread_mutex_unlock(&m->mu);
    }
    if (r) {
        return err_set(e, r, "%s: not kept here", *name ? name : "the list of the model's files");
    }
    m->served_name = strdup(name); /* without it: loaded again next time */
    return 0;
}

int meta_serve(struct meta *m, const char *name, uint64_t off, size_t n, struct buf *out,
               uint64_t *total, struct err *e)
{
    pthread_mutex_lock(&m->serve_mu);
    int r = load(m, name, off, e);
    if (!r) {
        size_t have = m->served.n, at = off < have ? (size_t)off : have;
        *total = have;
        n = n < have - at ? n : have - at;
        r = n ? buf_add(out, m->served.p + at, n) : 0;
        if (r) {
            err_set(e, r, "%zu bytes: %s", n, err_text(r));
        }
    }
    pthread_mutex_unlock(&m->serve_mu);
    return r;
}
