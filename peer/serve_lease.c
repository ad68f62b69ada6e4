/* SPDX-License-Identifier: MIT
 * serve_lease.c: see serve.h. Gets by lease: chunks that are handed on while they come. */
#include "peer/serve_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

void serve_block_unref(struct serve_block *b)
{
    if (--b->refs == 0) {
        b->s->block_bytes -= b->n;
        free(b);
    }
}

static void forget_oldest(struct serve *s)
{
    struct serve_block *b = s->kept;
    s->kept = b->next;
    if (!s->kept) {
        s->kept_tail = &s->kept;
    }
    serve_block_unref(b);
}

static void forget_object(struct serve *s, struct object_key k)
{
    for (struct serve_block **l = &s->kept; *l;) {
        struct serve_block *b = *l;
        if (object_key_equal(b->key, k)) {
            *l = b->next;
            serve_block_unref(b);
        } else {
            l = &b->next;
        }
    }
    s->kept_tail = &s->kept;
    while (*s->kept_tail) {
        s->kept_tail = &(*s->kept_tail)->next;
    }
}

/* A copy that is kept, for later askers too; NULL: no room. */
static struct serve_block *keep(struct serve *s, struct object_key k, uint32_t chunk,
                                const uint8_t *p, size_t n, const uint8_t sha[SHA256_SIZE],
                                enum basis b)
{
    while (s->kept && s->block_bytes + n > SERVE_BLOCKS_MAX) {
        forget_oldest(s);
    }
    struct serve_block *x = s->block_bytes + n > SERVE_BLOCKS_MAX ? NULL : malloc(sizeof *x + n);
    if (x) {
        *x = (struct serve_block){.s = s, .refs = 1, .key = k, .chunk = chunk, .basis = b, .n = n};
        memcpy(x->sha, sha, SHA256_SIZE);
        memcpy(x->p, p, n);
        s->block_bytes += n;
        *s->kept_tail = x;
        s->kept_tail = &x->next;
    }
    return x;
}

/* ---- leases ---- */

bool serve_lease_open(const struct serve_peer *p, uint64_t id)
{
    for (const struct serve_lease *l = p->leases; l; l = l->next) {
        if (l->id == id) {
            return true;
        }
    }
    return false;
}

static void unlink_lease(struct serve_peer *p, struct serve_lease **at)
{
    struct serve_lease *l = *at;
    *at = l->next;
    p->n_leases--;
    free(l);
}

void serve_lease_drop(struct serve_peer *p, uint64_t id)
{
    for (struct serve_lease **at = &p->leases; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            unlink_lease(p, at);
            return;
        }
    }
}

void serve_lease_drop_all(struct serve_peer *p)
{
    while (p->leases) {
        unlink_lease(p, &p->leases);
    }
}

/* The chunk of the lease goes on its way. */
static void hand_on(struct serve_peer *p, struct serve_lease *l, struct serve_block *b)
{
    uint32_t i = b->chunk - l->first;
    struct serve_job x = {.id = l->id,
                          .size = l->size,
                          .deadline = l->deadline,
                          .key = l->key,
                          .at = b->chunk,
                          .end = b->chunk + 1,
                          .prio = l->prio,
                          .source = (uint32_t)b->basis,
                          .block = b,
                          .tell = l->digests};
    if (b->chunk < l->first || i >= l->n || (l->come[i / 8] >> i % 8 & 1) || b->n > l->size ||
        serve_job_add(p, &x)) {
        return; /* without memory it comes from the storage, later */
    }
    b->refs++;
    l->come[i / 8] |= (uint8_t)(1u << i % 8);
    l->left--;
}

int serve_lease_add(struct serve_peer *p, const struct serve_job *x, bool digests)
{
    uint32_t n = x->end - x->at;
    struct serve_lease *l = calloc(1, sizeof *l + n / 8 + 1);
    if (!l) {
        return ERR_NOMEM;
    }
    l->id = x->id;
    l->size = x->size;
    l->deadline = x->deadline;
    l->key = x->key;
    l->first = x->at;
    l->n = l->left = n;
    l->prio = x->prio;
    l->digests = digests;
    l->next = p->leases;
    p->leases = l;
    p->n_leases++;
    for (struct serve_block *b = p->s->kept; b; b = b->next) {
        if (object_key_equal(b->key, l->key)) {
            hand_on(p, l, b);
        }
    }
    if (!l->left) {
        serve_lease_drop(p, l->id);
    }
    serve_pump(p->s);
    return 0;
}

int serve_block_digest(struct serve_peer *p, const struct serve_job *j)
{
    Shoal__Digests d = SHOAL__DIGESTS__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    d.id = j->id;
    d.object_size = j->size;
    d.first_chunk = j->at;
    d.sha256.data = j->block->sha;
    d.sha256.len = SHA256_SIZE;
    d.source = (Shoal__Source)j->block->basis;
    f.kind_case = SHOAL__FRAME__KIND_DIGESTS;
    f.digests = &d;
    return serve_put(p->c, &f, NULL, serve_tls_prio(j->prio));
}

void serve_lease_chunk(struct serve *s, struct object_key k, uint64_t size, uint32_t chunk,
                       const uint8_t *p, size_t n, const uint8_t sha[SHA256_SIZE], enum basis b)
{
    (void)size;
    struct serve_block *x =
        s->n_lease_peers && !s->closing ? keep(s, k, chunk, p, n, sha, b) : NULL;
    if (!x) {
        return;
    }
    struct serve_peer *q = s->peers;
    do {
        for (struct serve_lease **at = &q->leases; *at;) {
            struct serve_lease *l = *at;
            if (object_key_equal(l->key, k)) {
                hand_on(q, l, x);
            }
            if (!l->left) {
                unlink_lease(q, at);
            } else {
                at = &l->next;
            }
        }
        q = q->next;
    } while (q != s->peers);
    serve_pump(s);
}

/* What is missing of it, from the storage, in runs. */
static int from_storage(struct serve_peer *p, const struct serve_lease *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t k = i;
        while (k < l->n && !(l->come[k / 8] >> k % 8 & 1)) {
            k++;
        }
        if (k == i) {
            continue;
        }
        struct serve_job x = {.id = l->id,
                              .size = l->size,
                              .deadline = l->deadline,
                              .key = l->key,
                              .at = l->first + i,
                              .end = l->first + k,
                              .prio = l->prio};
        if ((l->digests && serve_send_digests(p, &x)) || serve_job_add(p, &x)) {
            return ERR_BUSY;
        }
        i = k;
    }
    return 0;
}

static void refuse_lease(struct serve_peer *p, struct serve_lease *l, int reason, uint32_t retry_ms)
{
    uint64_t id = l->id;
    unsigned prio = l->prio;
    serve_drop_pieces(p, id);
    serve_drop(p, id);
    serve_refuse_get(p, id, reason, retry_ms, prio, true);
}

static void each(struct serve *s, struct object_key k, bool held, int reason, uint32_t retry_ms)
{
    struct serve_peer *p = s->peers;
    forget_object(s, k);
    if (!p) {
        return;
    }
    do {
        for (struct serve_lease *l = p->leases, *next; l; l = next) {
            next = l->next;
            if (!object_key_equal(l->key, k)) {
                continue;
            }
            if (!held || from_storage(p, l)) {
                refuse_lease(p, l, reason, retry_ms);
            } else {
                serve_lease_drop(p, l->id);
            }
        }
        p = p->next;
    } while (p != s->peers);
    serve_pump(s);
}

void serve_lease_held(struct serve *s, struct object_key k)
{
    if (s->n_lease_peers) {
        each(s, k, true, SHOAL__REFUSE_REASON__REFUSE_BUSY, 200);
    }
}

void serve_lease_end(struct serve *s, struct object_key k, int reason, uint32_t retry_ms)
{
    if (s->n_lease_peers) {
        each(s, k, false, reason, retry_ms);
    }
}

bool serve_peer_waits(const struct serve_peer *p)
{
    return p->leases != NULL;
}

bool serve_lease_waits(const struct serve *s, struct object_key k)
{
    const struct serve_peer *p = s->peers;
    if (!p || !s->n_lease_peers) {
        return false;
    }
    do {
        for (const struct serve_lease *l = p->leases; l; l = l->next) {
            if (object_key_equal(l->key, k)) {
                return true;
            }
        }
        p = p->next;
    } while (p != s->peers);
    return false;
}

void serve_peer_leases(struct serve_peer *p, void *user)
{
    p->user = user;
    p->s->n_lease_peers += !p->takes_leases;
    p->takes_leases = true;
}

void serve_lease_close(struct serve *s)
{
    while (s->kept) {
        forget_oldest(s);
    }
}
