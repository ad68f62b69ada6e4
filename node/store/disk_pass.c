/* SPDX-License-Identifier: MIT
 * disk_pass.c: see disk_pass_next in disk.h: one reading of a whole adopted shard, for which the
 * origin, or the name that huggingface_hub gave to its blob, says a SHA-256. Where it is right the
 * objects in it count as an own download does; where it is not, none of them is used. */
#include "node/store/disk_inner.h"
#include "node/store/layout.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Objects of a shard by their place in it. */
struct part {
    uint32_t id;
    uint64_t at, size;
    struct chunk_sum *sums; /* in one array of all */
    struct digest *dg;
};

struct pass {
    struct disk *d;
    struct adopt_folder *f;
    uint32_t shard;
    char *path;
    struct looked_file file;
    uint8_t want[SHA256_SIZE];
    bool from_origin; /* else it is the blob's name alone that says it */
    uint32_t source;  /* of the digests, where it is right */
    struct part *v;
    struct chunk_sum *sums;
    size_t n;
};

/* A snapshot's file is a link to ../../blobs/<SHA-256>. */
static bool blob_sha(const char *path, uint8_t out[SHA256_SIZE])
{
    char to[4200];
    ssize_t n = readlink(path, to, sizeof to - 1);
    if (n <= 0) {
        return false;
    }
    to[n] = 0;
    const char *slash = strrchr(to, '/');
    return adopt_hex_sha(slash ? slash + 1 : to, out);
}

/* ---- which one ---- */

/* With mu: a shard whose pass is due and of which the folder lends something. */
static bool pick(struct disk *d, struct pass *p)
{
    for (uint32_t i = 0; i < d->adopt.n; i++) {
        struct adopt_folder *f = &d->adopt.f[i];
        for (uint32_t s = 0; f->listed && f->here && !f->refused && s < model_shard_count(d->o.m);
             s++) {
            if (f->shard[s].size && f->pass[s] == PASS_DUE) {
                p->f = f;
                p->shard = s;
                p->file = f->shard[s];
                return true;
            }
        }
    }
    return false;
}

static int by_place(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int parts(struct pass *p, struct err *e)
{
    const struct model *m = p->d->o.m;
    size_t n = 0, chunks = 0;
    for (uint32_t id = 0; id < p->d->n; id++) {
        const struct model_object *o = model_object(m, id);
        n += o->shard == p->shard;
        chunks += o->shard == p->shard ? chunk_count(o->size) : 0;
    }
    p->v = calloc(n ? n : 1, sizeof *p->v);
    p->sums = calloc(chunks ? chunks : 1, sizeof *p->sums);
    if (!p->v || !p->sums) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (uint32_t id = 0; id < p->d->n; id++) {
        const struct model_object *o = model_object(m, id);
        if (o->shard == p->shard) {
            p->v[p->n++] = (struct part){.id = id, .at = o->offset, .size = o->size};
        }
    }
    qsort(p->v, p->n, sizeof *p->v, by_place);
    chunks = 0;
    for (size_t i = 0; i < p->n; i++) {
        p->v[i].sums = p->sums + chunks;
        chunks += chunk_count(p->v[i].size);
    }
    return 0;
}

/* ---- reading ---- */

static int read_all(struct pass *p, bool (*stop)(void *ctx), void *ctx, uint8_t got[SHA256_SIZE],
                    struct err *e)
{
    struct stat st;
    struct looked_file now = {0};
    struct sha256 h;
    uint8_t *b = malloc(CHUNK_SIZE);
    int fd = file_open_read(p->path, O_NONBLOCK);
    int r = !b       ? err_set(e, ERR_NOMEM, "out of memory")
            : fd < 0 ? err_sys(e, errno, "cannot open %s", p->path)
                     : 0;
    sha256_init(&h);
    size_t k = 0;
    for (uint64_t at = 0; !r && at < p->file.size;) {
        const struct part *v = k < p->n ? &p->v[k] : NULL;
        uint64_t left = v && at < v->at ? v->at - at : p->file.size - at;
        size_t n = left < CHUNK_SIZE ? (size_t)left : CHUNK_SIZE;
        uint32_t i = 0;
        bool in = v && at >= v->at;
        if (in) {
            i = (uint32_t)((at - v->at) / CHUNK_SIZE);
            n = chunk_len(v->size, i);
        }
        r = stop && stop(ctx) ? err_set(e, ERR_CANCELLED, "it is to stop")
                              : file_pread(fd, p->path, b, n, at, e);
        if (!r) {
            sha256_add(&h, b, n);
            if (in) {
                chunk_sum(b, n, &v->sums[i]);
                k += at + n == v->at + v->size;
            }
            at += n;
        }
    }
    sha256_done(&h, got);
    if (!r && fstat(fd, &st) == 0) {
        adopt_file_of(&st, &now);
    }
    if (!r && !adopt_same_file(&now, &p->file)) {
        r = err_set(e, ERR_NOTFOUND, "%s has changed while it was read", p->path);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(b);
    return r;
}

/* ---- what follows ---- */

/* The digests of all that agrees with what is on record; the others are refused one by one, when
 * they are looked at. */
static int record_all(struct pass *p, struct err *e)
{
    struct disk *d = p->d;
    struct catalog_row *rows = calloc(p->n ? p->n : 1, sizeof *rows);
    struct looked *l = calloc(p->n ? p->n : 1, sizeof *l);
    struct part **of = calloc(p->n ? p->n : 1, sizeof *of);
    size_t n = 0, k = 0;
    int r = rows && l && of ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < p->n && !r; i++) {
        struct part *v = &p->v[i];
        struct err e1 = {0};
        v->dg = digest_make(v->size, v->sums, p->source);
        if (!v->dg || adopt_judge(d, v->id, v->dg, &e1)) {
            if (v->dg) {
                disk_log(d, "%s", e1.msg);
            }
            free(v->dg);
            v->dg = NULL;
            continue;
        }
        l[k++] = (struct looked){v->id, p->file, num_get_le64(v->dg->sha)};
        const struct digest *old = disk_digest_of(d, v->id);
        if (!old || old->source == DIGEST_TAKEN_BACK || digest_beats(v->dg, old)) {
            of[n] = v;
            rows[n++] = (struct catalog_row){.id = v->id, .d = v->dg};
        }
    }
    r = r ? r : n ? disk_record(d, rows, n, e) : 0;
    r = r ? r : catalog_looked_add(d->cat, d->model_no, p->f->key, l, k, e);
    for (size_t i = 0; i < n && !r; i++) {
        if (rows[i].result) {
            free(of[i]->dg);
            of[i]->dg = NULL;
        }
    }
    free(rows);
    free(l);
    free(of);
    return r;
}

/* With mu. */
static void settle(struct pass *p, enum adopt_pass how)
{
    struct disk *d = p->d;
    uint32_t by = (uint32_t)(p->f - d->adopt.f) + 1;
    if (!adopt_same_file(&p->f->shard[p->shard], &p->file)) {
        return; /* another file meanwhile */
    }
    p->f->pass[p->shard] = (uint8_t)how;
    for (size_t i = 0; i < p->n && how != PASS_NONE; i++) {
        struct part *v = &p->v[i];
        struct disk_item *it = &d->it[v->id];
        if (v->dg && (!it->digest || it->digest->source == DIGEST_TAKEN_BACK ||
                      digest_beats(v->dg, it->digest))) {
            disk_set_digest(d, v->id, v->dg);
            v->dg = NULL;
        } else if (how != PASS_REFUSED && !v->dg) {
            continue;
        }
        if (it->lent == by) {
            it->seen = how != PASS_REFUSED;
            it->refused = how == PASS_REFUSED;
            disk_refresh(d, v->id);
        }
    }
}

int disk_pass_next(struct disk *d, bool (*stop)(void *ctx), void *ctx, struct err *e)
{
    struct pass p = {.d = d};
    uint8_t got[SHA256_SIZE], blob[SHA256_SIZE];
    pthread_mutex_lock(&d->mu);
    bool any = pick(d, &p);
    pthread_mutex_unlock(&d->mu);
    if (!any) {
        return err_set(e, ERR_NOTFOUND, "there is nothing to compare");
    }
    const char *file = model_shard(d->o.m, p.shard)->file;
    p.path = layout_path("%s/%s", p.f->path, file);
    if (!p.path) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    p.from_origin = d->o.known_sha && d->o.known_sha(d->o.known_ctx, file, p.want);
    bool named = blob_sha(p.path, blob);
    enum adopt_pass how = PASS_NONE;
    int r = 0;
    if (p.from_origin && named && memcmp(p.want, blob, SHA256_SIZE) != 0) {
        how = PASS_REFUSED;
        disk_log(d, "%s is not used: the origin has another file of this name", p.path);
        r = parts(&p, e);
    } else if (p.from_origin || named) {
        if (!p.from_origin) {
            memcpy(p.want, blob, SHA256_SIZE);
        }
        r = parts(&p, e);
        r = r ? r : read_all(&p, stop, ctx, got, e);
        if (!r && memcmp(got, p.want, SHA256_SIZE) != 0) {
            how = PASS_REFUSED;
            disk_log(d, "%s is not used: its SHA-256 is not the one %s; download it again", p.path,
                     p.from_origin ? "that the origin states" : "in the name of its blob");
        } else if (!r) {
            bool ours = p.from_origin || p.f->same_meta;
            p.source = ours ? DIGEST_ORIGIN : DIGEST_UNKNOWN;
            how = ours ? PASS_RIGHT : PASS_WHOLE;
            r = record_all(&p, e);
        }
    }
    if (r != ERR_CANCELLED) {
        pthread_mutex_lock(&d->mu);
        settle(&p, r ? PASS_NONE : how); /* it cannot be read now: object by object, then */
        pthread_mutex_unlock(&d->mu);
    }
    for (size_t i = 0; i < p.n; i++) {
        free(p.v[i].dg);
    }
    free(p.v);
    free(p.sums);
    free(p.path);
    return r;
}
