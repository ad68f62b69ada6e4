/* SPDX-License-Identifier: MIT
 * store.c: opening and closing; numbers; small files. See store.h. */
#include "node/store/engine.h"

#include "node/store/address.h"
#include "node/store/disk.h"
#include "node/store/meta.h"
#include "node/store/mirrors.h"
#include "node/store/origin.h"
#include "node/store/place.h"
#include "node/store/sync.h"
#include "node/store/vouch.h"
#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BLOB_MAX ((size_t)256 << 20)
#define MERGE_MS 2 /* much less than a round trip to a hub, more than between two requests */

static bool is_url(const char *s)
{
    return strncasecmp(s, "http://", 7) == 0 || strncasecmp(s, "https://", 8) == 0;
}

/* The address without slashes at its end. */
static char *trimmed(const char *s)
{
    size_t n = strlen(s);
    while (n > 1 && s[n - 1] == '/') {
        n--;
    }
    char *c = malloc(n + 1);
    if (c) {
        memcpy(c, s, n);
        c[n] = 0;
    }
    return c;
}

static void learned(void *ctx, const char *name, uint64_t size, const char *etag)
{
    struct store *st = ctx;
    if (st->meta) {
        meta_learned(st->meta, name, size, etag);
    }
}

static int open_origin(struct store *st, struct err *e)
{
    struct origin_opts oo = {
        .url = st->model_path,
        .folder = !is_url(st->model_path),
        .token = st->token,
        .ca_file = st->o.ca_file,
        .rate_limit = st->o.rate_limit,
        .rate_conn = st->o.rate_conn,
        .mirror_rate = st->o.mirror_rate,
        .merge_ms = is_url(st->model_path) ? MERGE_MS : 0,
        .retries = st->o.retries,
        .retry_ms = st->o.retry_ms,
        .stall_ms = st->o.stall_ms,
        .log = st->o.log,
        .log_ctx = st->o.log_ctx,
        .learned = learned,
        .learned_ctx = st,
        .asked = ask_busy,
        .trouble = ask_trouble,
        .asked_ctx = st,
    };
    int r = origin_open(&oo, &st->origin, e);
    return r ? r : mirrors_open(st->origin, &oo, st->o.mirrors, st->o.n_mirrors, &st->mirrors, e);
}

/* The inventory from the blob of last time, or from config, index and headers. */
static int open_cached_model(struct store *st, struct err *e)
{
    struct buf blob;
    buf_init(&blob, BLOB_MAX);
    struct err e1 = {0};
    int r = meta_get_blob(st->meta, &blob, &e1);
    if (!r) {
        r = model_load(blob.p, blob.n, &st->m, &e1);
    }
    if (r) { /* none, or of another version of the program */
        struct model_source src;
        meta_source(st->meta, &src);
        r = model_open(&src, &st->m, e);
        struct err e2 = {0};
        if (!r) {
            blob.n = 0;
            int w = model_save(st->m, &blob, &e2);
            if (!w) {
                w = meta_put_blob(st->meta, blob.p, blob.n, &e2);
            }
            if (w) {
                eng_log(st, "the inventory cannot be kept for the next start: %s", e2.msg);
            }
        }
        if (meta_save(st->meta, &e2)) {
            eng_log(st, "the list of metadata cannot be written: %s", e2.msg);
        }
    }
    buf_free(&blob);
    return r;
}

/* Tell the origin what each shard must be like. */
static int expect_shards(struct store *st, struct err *e)
{
    uint32_t n = model_shard_count(st->m);
    st->shard_file = calloc(n ? n : 1, sizeof *st->shard_file);
    if (!st->shard_file) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (uint32_t i = 0; st->origin && i < n; i++) {
        const struct model_shard *sh = model_shard(st->m, i);
        int r = origin_file(st->origin, sh->file, &st->shard_file[i], e);
        if (r) {
            return r;
        }
        char etag[ORIGIN_ETAG_MAX] = "";
        uint64_t size;
        meta_shard(st->meta, sh->file, &size, etag);
        origin_expect(st->origin, st->shard_file[i], sh->size, etag);
    }
    return 0;
}

/* disk_opts.known_sha; a hub's entity tag of a shard is its SHA-256. */
static bool known_sha(void *ctx, const char *file, uint8_t sha[SHA256_SIZE])
{
    return meta_known_sha(ctx, file, sha);
}

static int open_tiers(struct store *st, struct err *e)
{
    int r = 0;
    if (st->o.n_mirrors && !is_url(st->model_path)) {
        return err_set(e, ERR_ARG,
                       "mirrors go with a model at an http(s) URL, and \"%.200s\" is a folder",
                       st->model_path);
    }
    if (st->in_place) {
        r = model_folder_open(st->model_path, &st->folder, e);
        return r ? r : model_open(&st->folder, &st->m, e);
    }
    if (!st->o.offline || !is_url(st->model_path)) { /* a folder is no network */
        r = open_origin(st, e);
    }
    if (!r) {
        r = meta_open(st->cache_dir, st->model_path, st->origin, st->o.meta, st->o.log,
                      st->o.log_ctx, &st->meta, e);
    }
    if (!r) {
        r = open_cached_model(st, e);
    }
    if (!r) {
        r = expect_shards(st, e);
    }
    if (!r && st->cache_dir) {
        struct disk_opts d = {
            .cache_dir = st->cache_dir,
            .m = st->m,
            .past_cache = st->o.past_cache,
            .log = st->o.log,
            .log_ctx = st->o.log_ctx,
            .changed = share_disk_changed,
            .changed_ctx = st,
            .taken_back = words_taken_back,
            .voided = words_voided,
            .settled = words_settled,
            .words_ctx = st,
            .known_sha = known_sha,
            .known_ctx = st->meta,
        }; /* its limits come from trim_open */
        r = disk_open(&d, &st->disk, e);
        struct err why = {0};
        if (!r && disk_closed(st->disk, false, &why)) {
            eng_disk_trouble(st, &why);
        }
        r = r ? r : trim_open(st, e);
    }
    if (!r && st->disk) {
        struct vouch v = {.cache_dir = st->cache_dir,
                          .address = st->model_path,
                          .folder = !is_url(st->model_path),
                          .m = st->m,
                          .disk = st->disk,
                          .origin = st->origin,
                          .log = st->o.log,
                          .log_ctx = st->o.log_ctx};
        r = vouch_address(&v, e);
    }
    return r;
}

/* The cache folder may have been moved. */
static int find_place(struct store *st, struct err *e)
{
    struct buf at;
    buf_init(&at, PLACE_PATH_MAX);
    int r = place_find(st->cache_dir, &at, e);
    char *s = r ? NULL : strdup(at.p);
    if (s) {
        free(st->cache_dir);
        st->cache_dir = s;
    }
    buf_free(&at);
    return r || s ? r : err_set(e, ERR_NOMEM, "out of memory");
}

int store_open(const struct store_opts *o, struct store **out, struct err *e)
{
    *out = NULL;
    if (!o->model || !*o->model || (o->cache_dir && !*o->cache_dir)) {
        return err_set(e, ERR_ARG, "no model is named: give a folder or an http(s) URL");
    }
    int bad = address_check(o->model, e);
    for (size_t i = 0; i < o->n_mirrors && !bad; i++) {
        bad = address_check(o->mirrors[i], e);
    }
    if (bad) {
        return bad;
    }
    if ((o->rate_limit || o->rate_conn) && !is_url(o->model) && !o->cache_dir) {
        return err_set(e, ERR_ARG,
                       "the folder %s is read in place, so there is no origin whose rate could be "
                       "limited: name a cache folder, or leave the limit out",
                       o->model);
    }
    struct store *st = calloc(1, sizeof *st);
    if (!st) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    st->o = *o;
    st->model_path = trimmed(o->model);
    st->cache_dir = o->cache_dir ? trimmed(o->cache_dir) : NULL;
    st->token = o->token && *o->token ? strdup(o->token) : NULL;
    st->in_place = !is_url(o->model) && !o->cache_dir;
    ram_init(&st->ram, &o->mem, o->ram_budget);
    int r = 0;
    if (!st->model_path || (o->cache_dir && !st->cache_dir) ||
        (o->token && *o->token && !st->token)) {
        r = ERR_NOMEM;
    }
    if (!r && (pthread_mutex_init(&st->mu, NULL) || sync_cond_init(&st->work) ||
               sync_cond_init(&st->pub))) {
        r = ERR_NOMEM;
    }
    if (r) {
        free(st->model_path);
        free(st->cache_dir);
        free(st->token);
        free(st);
        return err_set(e, r, "out of memory");
    }
    r = st->cache_dir ? find_place(st, e) : 0;
    r = r ? r : open_tiers(st, e);
    if (!r) {
        st->n_ent = model_object_count(st->m);
        st->ent = calloc(st->n_ent ? st->n_ent : 1, sizeof *st->ent);
        r = st->ent ? worker_start(st, e) : err_set(e, ERR_NOMEM, "out of memory");
        r = r ? r : trim_start(st, e);
        r = r || !st->disk ? r : upkeep_start(st, e);
    }
    if (r) {
        store_close(st);
        return r;
    }
    *out = st;
    return 0;
}

void store_interrupt(struct store *st)
{
    pthread_mutex_lock(&st->mu);
    st->interrupted = true;
    pthread_mutex_unlock(&st->mu);
}

void store_close(struct store *st)
{
    if (!st) {
        return;
    }
    pthread_mutex_lock(&st->mu);
    st->closing = true;
    pthread_mutex_unlock(&st->mu);
    upkeep_stop(st);
    mirrors_stop(st->mirrors);
    origin_stop(st->origin); /* ends its parts; what is complete goes on to the publisher */
    in_stop(st);             /* likewise */
    worker_stop(st);
    share_stop(st);
    origin_free(st->origin);
    mirrors_free(st->mirrors);
    ask_free(st);
    trim_stop(st);
    disk_close(st->disk);
    if (st->meta) {
        struct err e = {0};
        if (meta_save(st->meta, &e)) {
            eng_log(st, "the list of metadata cannot be written: %s", e.msg);
        }
        meta_close(st->meta);
    }
    for (uint32_t i = 0; st->ent && i < st->n_ent; i++) {
        if (st->ent[i].slot) {
            st->ent[i].in_lru = false; /* the list goes as a whole */
            ram_put(&st->ram, st->ent[i].slot);
        }
    }
    ram_close(&st->ram);
    model_close(st->m);
    if (st->in_place && st->folder.ctx) {
        model_folder_close(&st->folder);
    }
    free(st->ent);
    free(st->shard_file);
    free(st->model_path);
    free(st->cache_dir);
    free(st->token);
    pthread_cond_destroy(&st->work);
    pthread_cond_destroy(&st->pub);
    pthread_mutex_destroy(&st->mu);
    free(st);
}

const struct model *store_model(const struct store *st)
{
    return st->m;
}

void store_set_admit(struct store *st,
                     int (*admit)(void *ctx, uint32_t id, uint8_t *p, size_t n, struct err *e),
                     void *ctx)
{
    pthread_mutex_lock(&st->mu);
    st->o.admit = admit;
    st->o.admit_ctx = ctx;
    pthread_mutex_unlock(&st->mu);
}

void store_set_ram_budget(struct store *st, uint64_t bytes)
{
    pthread_mutex_lock(&st->mu);
    st->ram.budget = bytes;
    pthread_mutex_unlock(&st->mu);
}

int store_read_file(struct store *st, const char *name, struct buf *out, struct err *e)
{
    if (st->in_place) {
        return st->folder.read_file(st->folder.ctx, name, out, e);
    }
    int r = meta_read(st->meta, name, out, e);
    struct err e1;
    meta_save(st->meta, &e1); /* at worst it is fetched again next time */
    return r;
}

void store_meta_scope(const char *address, uint8_t scope[SHA256_SIZE])
{
    size_t n = strlen(address);
    while (n > 1 && address[n - 1] == '/') {
        n--;
    }
    sha256(address, n, scope);
}

int store_meta_serve(struct store *st, const uint8_t scope[SHA256_SIZE], const char *name,
                     uint64_t off, size_t n, struct buf *out, uint64_t *total, struct err *e)
{
    uint8_t own[SHA256_SIZE];
    store_meta_scope(st->model_path, own);
    return !st->meta || memcmp(own, scope, SHA256_SIZE) != 0
               ? err_set(e, ERR_NOTFOUND, "this node works on another address")
               : meta_serve(st->meta, name, off, n, out, total, e);
}

void store_get_stats(struct store *st, struct store_stats *out)
{
    pthread_mutex_lock(&st->mu);
    *out = st->s;
    out->ram_used = st->ram.expert_used + st->ram.spine_used;
    out->ram_experts = st->ram.expert_used;
    out->ram_peak = st->ram.peak;
    out->ram_budget = st->ram.budget;
    /* the mean over the last whole seconds with their beginning on record */
    uint64_t now = clock_ns() / 1000000000u, bytes = 0;
    for (int i = 0; i < 16; i++) {
        if (st->rate_t[i] < now && st->rate_t[i] + 4 >= now) {
            bytes += st->rate_b[i];
        }
    }
    out->origin_rate = (double)bytes / 4.0;
    pthread_mutex_unlock(&st->mu);
    trim_numbers(st, &out->disk_written, &out->disk_written_today);
    if (st->meta) {
        out->peer_bytes += meta_peer_bytes(st->meta);
    }
    if (st->origin) {
        uint64_t b, unused;
        origin_numbers(st->origin, &b, &out->retries, &unused);
        out->origin_unused += unused;
    }
}

size_t store_mirrors(struct store *st, struct store_mirror *out, size_t max)
{
    return mirrors_get(st->mirrors, out, max);
}

bool store_mirrors_up(struct store *st)
{
    return mirrors_up(st->mirrors);
}

enum store_tier store_where(struct store *st, uint32_t id)
{
    if (id >= st->n_ent) {
        return STORE_NOWHERE;
    }
    pthread_mutex_lock(&st->mu);
    bool ram = st->ent[id].state == ENT_READY;
    pthread_mutex_unlock(&st->mu);
    if (ram) {
        return STORE_RAM;
    }
    if (st->in_place || (st->disk && disk_has(st->disk, id))) {
        return STORE_DISK;
    }
    pthread_mutex_lock(&st->mu);
    bool peers = st->has_up;
    pthread_mutex_unlock(&st->mu);
    return st->origin ? STORE_ORIGIN : peers ? STORE_PEERS : STORE_NOWHERE;
}

char *store_file(struct store *st, uint32_t id, bool *past, size_t *step)
{
    if (!st->disk || id >= st->n_ent) {
        return NULL;
    }
    *past = disk_past_cache(st->disk, model_object(st->m, id)->size, step);
    return disk_file_path(st->disk, id);
}
