/* SPDX-License-Identifier: MIT
 * disk_share.c: see disk.h: what other machines may want to know of the disk tier. */
#include "node/store/disk_inner.h"
#include "node/store/layout.h"

#include <stdlib.h>
#include <string.h>

static bool serves(const struct disk_item *it)
{
    return it->present && it->digest->shas;
}

bool disk_serves(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    bool r = serves(&d->it[id]);
    pthread_mutex_unlock(&d->mu);
    return r;
}

bool disk_digests(struct disk *d, uint32_t id, uint32_t first, uint32_t n,
                  uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t *object)
{
    const struct digest *dg = disk_digest_of(d, id);
    if (!dg || !dg->shas || dg->source == DIGEST_TAKEN_BACK || first > dg->n || n > dg->n - first) {
        return false;
    }
    memcpy(sha, dg->shas + first, (size_t)n * SHA256_SIZE);
    *b = digest_basis(dg);
    if (object) {
        memcpy(object, dg->sha, SHA256_SIZE);
    }
    return true;
}

void disk_hold(struct disk *d, uint32_t id, int by)
{
    pthread_mutex_lock(&d->mu);
    struct disk_item *it = &d->it[id];
    it->pins = (uint32_t)((int64_t)it->pins + by);
    disk_order_set(d, id);
    pthread_mutex_unlock(&d->mu);
}

int disk_watch(struct disk *d, uint8_t *bits, struct err *e)
{
    uint32_t *noted = bits ? malloc((d->n ? d->n : 1) * sizeof *noted) : NULL;
    if (bits && !noted) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    pthread_mutex_lock(&d->mu);
    free(d->noted);
    d->noted = noted;
    d->n_noted = 0;
    for (uint32_t id = 0; id < d->n; id++) {
        d->it[id].noted = false;
        if (bits && serves(&d->it[id])) {
            bits[id / 8] |= (uint8_t)(1u << id % 8);
        }
    }
    pthread_mutex_unlock(&d->mu);
    return 0;
}

size_t disk_changes(struct disk *d, uint32_t *ids, bool *now, size_t max)
{
    pthread_mutex_lock(&d->mu);
    size_t n = 0;
    while (n < max && d->n_noted) {
        uint32_t id = d->noted[--d->n_noted];
        d->it[id].noted = false;
        ids[n] = id;
        now[n++] = serves(&d->it[id]);
    }
    pthread_mutex_unlock(&d->mu);
    return n;
}

uint32_t disk_without_shas(struct disk *d, uint32_t from)
{
    uint32_t found = MODEL_NONE;
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = from; id < d->n && found == MODEL_NONE; id++) {
        if (d->it[id].present && !d->it[id].digest->shas) {
            found = id;
        }
    }
    pthread_mutex_unlock(&d->mu);
    return found;
}

void disk_basis(struct disk *d, uint64_t objects[BASIS_MANIFEST + 1],
                uint64_t bytes[BASIS_MANIFEST + 1])
{
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = 0; id < d->n; id++) {
        if (d->it[id].present) {
            enum basis b = digest_basis(d->it[id].digest);
            objects[b]++;
            bytes[b] += d->it[id].digest->size;
        }
    }
    pthread_mutex_unlock(&d->mu);
}

static int record(struct disk *d, uint32_t id, struct digest *dg, struct err *e)
{
    struct catalog_row row = {.id = id, .d = dg};
    int r = disk_record(d, &row, 1, e);
    return r ? r : row.result;
}

int disk_make_shas(struct disk *d, uint32_t id, struct err *e)
{
    const struct digest *old = disk_digest_of(d, id);
    uint8_t *p = malloc(CHUNK_SIZE), sum[SHA256_SIZE];
    struct digest *dg = old && p ? digest_alloc(old->size, true) : NULL;
    int r = dg ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; !r && i < dg->n; i++) {
        size_t n;
        r = disk_read_chunk(d, id, i, p, &n, e);
        if (!r) {
            sha256(p, n, dg->shas[i]);
            dg->xxh[i] = old->xxh[i];
        }
    }
    if (!r) {
        sha256(dg->shas, (size_t)dg->n * SHA256_SIZE, sum);
        memcpy(dg->sha, old->sha, SHA256_SIZE);
        dg->source = old->source;
        dg->rests = old->rests;
        if (memcmp(sum, old->sha, SHA256_SIZE) != 0) {
            char name[128];
            r = err_set(e, ERR_DIGEST, "%s in the cache is not what its digest says; it is removed",
                        model_object_name(d->o.m, id, name, sizeof name));
            disk_remove(d, id);
        } else {
            r = record(d, id, dg, e);
        }
    }
    pthread_mutex_lock(&d->mu);
    if (!r && d->it[id].digest == old) {
        disk_set_digest(d, id, dg);
        dg = NULL;
    }
    pthread_mutex_unlock(&d->mu);
    free(dg);
    free(p);
    return r;
}

int disk_check_chunk(struct disk *d, uint32_t id, uint32_t chunk, struct err *e)
{
    const struct digest *dg = disk_digest_of(d, id);
    uint8_t *p = malloc(CHUNK_SIZE), sum[SHA256_SIZE];
    size_t n;
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = disk_read_chunk(d, id, chunk, p, &n, e);
    if (!r && dg && dg->shas && disk_digest_of(d, id) == dg) {
        sha256(p, n, sum);
        if (memcmp(sum, dg->shas[chunk], SHA256_SIZE) != 0) {
            char name[128];
            r = err_set(e, ERR_DIGEST, "%s in the cache is not what its digest says; it is removed",
                        model_object_name(d->o.m, id, name, sizeof name));
            char *path = disk_file_path(d, id);
            disk_forget(d, id, path);
            free(path);
        }
    }
    free(p);
    return r;
}
