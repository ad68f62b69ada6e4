/* SPDX-License-Identifier: MIT
 * disk_adopt.c: see disk_adopt.h: what folders offer, and what becomes of it when they go and come.
 */
#include "node/store/disk_adopt.h"

#include "node/store/disk_inner.h"
#include "node/store/layout.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define META_MAX ((size_t)256 << 20)

/* ---- files ---- */

void adopt_file_of(const struct stat *st, struct looked_file *out)
{
#ifdef __APPLE__
    const struct timespec *t = &st->st_mtimespec;
#else
    const struct timespec *t = &st->st_mtim;
#endif
    *out = (struct looked_file){(uint64_t)st->st_size,
                                (int64_t)t->tv_sec * 1000000000 + (int64_t)t->tv_nsec,
                                (uint64_t)st->st_ino};
}

bool adopt_same_file(const struct looked_file *a, const struct looked_file *b)
{
    return a->size == b->size && a->mtime == b->mtime && a->ino == b->ino;
}

/* A plain file of that size (0: of any); else all zero. */
static bool look_file(const char *path, uint64_t size, struct looked_file *out)
{
    struct stat st;
    memset(out, 0, sizeof *out);
    if (!path || stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
        (size && (uint64_t)st.st_size != size)) {
        return false;
    }
    adopt_file_of(&st, out);
    return true;
}

static char *shard_path(struct disk *d, const struct adopt_folder *f, uint32_t shard)
{
    return layout_path("%s/%s", f->path, model_shard(d->o.m, shard)->file);
}

static char *expert_path(struct disk *d, const struct adopt_folder *f, uint32_t id)
{
    const struct model_object *o = model_object(d->o.m, id);
    return layout_path("%s/L%u-E%u.bin", f->path, o->layer, o->index);
}

static bool bit(const uint8_t *bits, uint32_t i)
{
    return bits && bits[i / 8] >> i % 8 & 1;
}

/* ---- what a folder offers ---- */

/* With mu. */
static bool offers(struct disk *d, const struct adopt_folder *f, uint32_t id)
{
    uint32_t shard = model_object(d->o.m, id)->shard;
    return f->listed && f->here && !f->refused &&
           (bit(f->has_file, id) || (f->shard[shard].size && f->pass[shard] != PASS_REFUSED));
}

bool adopt_where(struct disk *d, uint32_t id, struct adopt_place *p)
{
    struct disk_item *it = &d->it[id];
    const struct model_object *o = model_object(d->o.m, id);
    memset(p, 0, sizeof *p);
    if (it->own || it->orphan || !it->lent) {
        p->path = disk_own_path(d, id);
        p->packed = it->packed != 0;
        return p->path != NULL;
    }
    p->folder = &d->adopt.f[it->lent - 1];
    p->shard = !bit(p->folder->has_file, id);
    if (p->shard) {
        p->path = shard_path(d, p->folder, o->shard);
        p->at = o->offset;
        p->want = p->folder->shard[o->shard];
    } else {
        p->path = expert_path(d, p->folder, id);
        if (it->seen) {
            p->want = p->folder->file[id];
        }
    }
    return p->path != NULL;
}

/* With mu: nobody lends it any more, or this one does. */
static void lend(struct disk *d, uint32_t id, uint32_t by)
{
    struct disk_item *it = &d->it[id];
    it->lent = (uint8_t)by;
    it->seen = it->refused = false;
    disk_refresh(d, id);
}

/* With mu: each object to the first folder that offers it, but to the one it has while that does.
 */
static void deal(struct disk *d)
{
    for (uint32_t id = 0; id < d->n; id++) {
        struct disk_item *it = &d->it[id];
        uint32_t by = it->lent && offers(d, &d->adopt.f[it->lent - 1], id) ? it->lent : 0;
        for (uint32_t i = 0; i < d->adopt.n && !by; i++) {
            by = offers(d, &d->adopt.f[i], id) ? i + 1 : 0;
        }
        if (by != it->lent) {
            lend(d, id, by);
        }
    }
}

struct known {
    struct disk *d;
    uint32_t by;
};

/* It was looked at in an earlier time: still the same file and the same digest on record? An expert
 * file is compared when it is opened. */
static void known_row(void *ctx, const struct looked *l)
{
    struct known *k = ctx;
    struct disk *d = k->d;
    struct adopt_folder *f = &d->adopt.f[k->by - 1];
    if (l->id >= d->n) {
        return;
    }
    pthread_mutex_lock(&d->mu);
    struct disk_item *it = &d->it[l->id];
    bool shard = !bit(f->has_file, l->id);
    const struct digest *dg = it->digest;
    if (it->lent == k->by && !it->seen && !it->refused && dg && dg->source != DIGEST_TAKEN_BACK &&
        num_get_le64(dg->sha) == l->digest &&
        (!shard || adopt_same_file(&f->shard[model_object(d->o.m, l->id)->shard], &l->file))) {
        if (!shard) {
            f->file[l->id] = l->file;
        }
        it->seen = true;
        disk_refresh(d, l->id);
    }
    pthread_mutex_unlock(&d->mu);
}

/* ---- looking at a folder ---- */

struct found {
    bool here;
    struct looked_file *shard;
    uint8_t *has_file;
    uint64_t n_files;
};

static int find(struct disk *d, const struct adopt_folder *f, struct found *x, struct err *e)
{
    uint32_t shards = model_shard_count(d->o.m);
    memset(x, 0, sizeof *x);
    x->shard = calloc(shards ? shards : 1, sizeof *x->shard);
    x->has_file = calloc(d->n / 8 + 1, 1);
    if (!x->shard || !x->has_file) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    DIR *dir = opendir(f->path);
    if (!dir) {
        return 0;
    }
    struct dirent *n;
    unsigned layer, expert;
    while ((n = readdir(dir))) {
        uint32_t id = adopt_expert_name(n->d_name, &layer, &expert)
                          ? model_expert_id(d->o.m, layer, expert)
                          : MODEL_NONE;
        if (id != MODEL_NONE) {
            x->has_file[id / 8] |= (uint8_t)(1u << id % 8);
            x->n_files++;
        }
    }
    closedir(dir);
    x->here = x->n_files > 0;
    for (uint32_t i = 0; i < shards; i++) {
        char *p = shard_path(d, f, i);
        x->here |= look_file(p, model_shard(d->o.m, i)->size, &x->shard[i]);
        free(p);
    }
    return 0;
}

/* config.json and the index, where the folder has them, are to be the model's. */
static bool other_model(struct disk *d, struct adopt_folder *f)
{
    unsigned same = 0;
    static const char *const names[] = {"config.json", "model.safetensors.index.json"};
    for (size_t i = 0; i < 2; i++) {
        uint8_t want[SHA256_SIZE], got[SHA256_SIZE];
        char *p = layout_path("%s/%s", f->path, names[i]);
        struct buf b;
        struct err e = {0};
        buf_init(&b, META_MAX);
        bool other = false;
        if (p && d->o.known_sha && d->o.known_sha(d->o.known_ctx, names[i], want) &&
            !file_read_all(p, &b, &e)) {
            sha256(b.p ? b.p : "", b.n, got);
            other = memcmp(want, got, SHA256_SIZE) != 0;
            same += !other;
            if (other) {
                disk_log(d, "the adopted folder %s is not used: its %s is not that of this model",
                         f->path, names[i]);
            }
        }
        buf_free(&b);
        free(p);
        if (other) {
            return true;
        }
    }
    f->same_meta = same == 2;
    return false;
}

/* With mu: what the folder is like now. */
static void take(struct disk *d, struct adopt_folder *f, struct found *x)
{
    uint32_t by = (uint32_t)(f - d->adopt.f) + 1;
    for (uint32_t i = 0; i < model_shard_count(d->o.m); i++) {
        if (!adopt_same_file(&f->shard[i], &x->shard[i])) {
            f->pass[i] = PASS_DUE;
            for (uint32_t id = 0; f->shard[i].size && id < d->n; id++) {
                const struct model_object *o = model_object(d->o.m, id);
                if (o->shard == i && d->it[id].lent == by && !bit(f->has_file, id)) {
                    d->it[id].seen = d->it[id].refused = false;
                    disk_refresh(d, id);
                }
            }
        }
    }
    struct looked_file *shard = f->shard;
    uint8_t *has = f->has_file;
    f->shard = x->shard;
    f->has_file = x->has_file;
    f->here = x->here;
    x->shard = shard;
    x->has_file = has;
}

static void look_at(struct disk *d, uint32_t i)
{
    struct adopt_folder *f = &d->adopt.f[i];
    struct found x;
    struct err e = {0};
    if (!f->file) {
        f->file = calloc(d->n ? d->n : 1, sizeof *f->file);
    }
    int r = f->file ? find(d, f, &x, &e) : err_set(&e, ERR_NOMEM, "out of memory");
    if (r) {
        disk_log(d, "the adopted folder %s: %s", f->path, e.msg);
        if (f->file) {
            free(x.shard);
            free(x.has_file);
        }
        return;
    }
    if (x.here && !f->asked_meta) {
        f->asked_meta = true;
        f->refused = other_model(d, f);
    }
    pthread_mutex_lock(&d->mu);
    bool was = f->here, back = x.here && f->said_away, gone = was && !x.here && !f->said_away;
    take(d, f, &x);
    f->said_away = !f->here && (was || f->said_away);
    pthread_mutex_unlock(&d->mu);
    free(x.shard);
    free(x.has_file);
    if (back) {
        disk_log(d, "the adopted folder %s is there again", f->path);
    } else if (gone) {
        disk_log(d,
                 "the adopted folder %s is gone (unplugged?): what it holds comes from elsewhere "
                 "until it is back",
                 f->path);
    }
}

/* The folders of the list get a place each; those that have left it are listed no longer. */
static void read_list(struct disk *d)
{
    struct adopt *a = &d->adopt;
    struct adopt_list l = {.n = 0};
    struct err e = {0};
    char *p = layout_path("%s/adopted", d->o.cache_dir);
    struct looked_file now;
    bool any = look_file(p, 0, &now);
    free(p);
    if (adopt_same_file(&now, &a->list)) {
        return;
    }
    bool bad = any && adopt_list_read(d->o.cache_dir, &l, &e);
    if (bad) { /* as it was, until somebody writes it again */
        disk_log(d, "%s", e.msg);
    }
    bool was[ADOPT_FOLDERS_MAX] = {false};
    pthread_mutex_lock(&d->mu);
    a->list = now;
    for (uint32_t i = 0; i < a->n && !bad; i++) {
        was[i] = a->f[i].listed;
        a->f[i].listed = false;
    }
    for (size_t k = 0; k < l.n && !bad; k++) {
        uint32_t i = 0;
        while (i < a->n && strcmp(a->f[i].path, l.path[k]) != 0) {
            i++;
        }
        if (i == a->n && a->n < ADOPT_FOLDERS_MAX) {
            uint32_t shards = model_shard_count(d->o.m);
            struct adopt_folder *f = &a->f[i];
            uint8_t sha[SHA256_SIZE];
            sha256(l.path[k], strlen(l.path[k]), sha);
            *f = (struct adopt_folder){.path = strdup(l.path[k]),
                                       .key = (int64_t)num_get_le64(sha),
                                       .shard = calloc(shards ? shards : 1, sizeof *f->shard),
                                       .pass = calloc(shards ? shards : 1, 1)};
            if (f->path && f->shard && f->pass) {
                a->n++;
            } else {
                free(f->path);
                free(f->shard);
                free(f->pass);
            }
        }
        if (i < a->n) {
            a->f[i].listed = true;
        }
    }
    pthread_mutex_unlock(&d->mu);
    for (uint32_t i = 0; i < a->n && !bad; i++) {
        if (was[i] && !a->f[i].listed && catalog_looked_drop(d->cat, a->f[i].key, &e)) {
            disk_log(d, "%s", e.msg);
        }
    }
    adopt_list_free(&l);
}

/* With mu: does a folder lend what was not looked at in this run? */
static bool unseen(const struct disk *d, uint32_t by)
{
    for (uint32_t id = 0; id < d->n; id++) {
        if (d->it[id].lent == by && !d->it[id].seen && !d->it[id].refused) {
            return true;
        }
    }
    return false;
}

void disk_adopt_scan(struct disk *d, bool all)
{
    struct adopt *a = &d->adopt;
    pthread_mutex_lock(&a->scan);
    pthread_mutex_lock(&d->mu);
    a->hurry = a->hurry && !all;
    pthread_mutex_unlock(&d->mu);
    read_list(d);
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->f[i].listed && (all || !a->f[i].here)) {
            look_at(d, i);
        }
    }
    bool rows[ADOPT_FOLDERS_MAX] = {false};
    pthread_mutex_lock(&d->mu);
    deal(d);
    a->scanned = all ? clock_ns() : a->scanned;
    for (uint32_t i = 0; i < a->n; i++) {
        rows[i] = a->f[i].listed && a->f[i].here && unseen(d, i + 1);
    }
    pthread_mutex_unlock(&d->mu);
    for (uint32_t i = 0; i < a->n; i++) {
        struct known k = {d, i + 1};
        struct err e = {0};
        if (rows[i] && catalog_looked(d->cat, d->model_no, a->f[i].key, known_row, &k, &e)) {
            disk_log(d, "%s", e.msg);
        }
    }
    pthread_mutex_unlock(&a->scan);
}

#define SCAN_NS 600000000000u

void disk_adopt_tick(struct disk *d)
{
    char *p = layout_path("%s/adopted", d->o.cache_dir);
    struct looked_file now;
    look_file(p, 0, &now);
    free(p);
    pthread_mutex_lock(&d->mu);
    const struct adopt *a = &d->adopt;
    bool all =
        a->hurry || !adopt_same_file(&now, &a->list) || (a->n && clock_ns() - a->scanned > SCAN_NS);
    bool away = false;
    for (uint32_t i = 0; i < a->n; i++) {
        away |= a->f[i].listed && !a->f[i].here;
    }
    pthread_mutex_unlock(&d->mu);
    if (all || away) {
        disk_adopt_scan(d, all);
    }
}

/* ---- trouble ---- */

/* Is anything of what the folder had still there? */
static bool folder_gone(struct disk *d, const struct adopt_folder *f)
{
    struct found x;
    struct err e;
    bool gone = !find(d, f, &x, &e) && !x.here;
    free(x.shard);
    free(x.has_file);
    return gone;
}

int adopt_trouble(struct disk *d, uint32_t id, const struct adopt_place *p, const struct err *e)
{
    struct adopt_folder *f = p->folder;
    struct looked_file now;
    bool there = look_file(p->path, 0, &now);
    bool changed = there && p->want.size && !adopt_same_file(&now, &p->want);
    bool gone = !there && folder_gone(d, f);
    bool say = false;
    pthread_mutex_lock(&d->mu);
    struct disk_item *it = &d->it[id];
    uint32_t by = (uint32_t)(f - d->adopt.f) + 1;
    d->adopt.hurry = true;
    if (gone) {
        say = !f->said_away;
        f->said_away = true;
        f->here = false;
        deal(d);
    } else if (it->lent == by) {                         /* this file alone */
        say = !it->refused && (it->present || !changed); /* two may meet it at once */
        it->seen = false;
        it->refused = !changed; /* of a file that is not there a look round takes the offer back */
        disk_refresh(d, id);
    }
    disk_drop_kept(d, id);
    pthread_mutex_unlock(&d->mu);
    if (gone && say) {
        disk_log(d,
                 "the adopted folder %s is gone (unplugged?): what it holds comes from elsewhere "
                 "until it is back",
                 f->path);
    } else if (say) {
        disk_log(d,
                 changed ? "%s; the file has changed and is looked at again"
                         : "%s; nothing is done to the file, its bytes come from elsewhere",
                 e->msg);
    }
    return ERR_OFFLINE;
}

/* ---- numbers ---- */

size_t disk_adopted(struct disk *d, struct disk_adopted *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&d->mu);
    for (uint32_t i = 0; i < d->adopt.n && n < max; i++) {
        const struct adopt_folder *f = &d->adopt.f[i];
        if (!f->listed) {
            continue;
        }
        struct disk_adopted *x = &out[n++];
        memset(x, 0, sizeof *x);
        x->path = f->path;
        x->here = f->here;
        x->other_model = f->refused;
        for (uint32_t id = 0; id < d->n; id++) {
            const struct disk_item *it = &d->it[id];
            const struct model_object *o = model_object(d->o.m, id);
            if (it->lent != i + 1) {
                continue;
            }
            x->objects++;
            x->bytes += o->size;
            x->experts += o->kind == MODEL_EXPERT;
            x->looked += it->seen;
            x->looked_bytes += it->seen ? o->size : 0;
            x->refused += it->refused;
        }
    }
    pthread_mutex_unlock(&d->mu);
    return n;
}

void disk_upkeep(struct disk *d, uint32_t *to_look, uint64_t *bytes, uint32_t *files,
                 const char **quarantine)
{
    *to_look = 0;
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = 0; id < d->n; id++) {
        const struct disk_item *it = &d->it[id];
        *to_look += !it->own && ((it->lent && !it->seen && !it->refused) || it->orphan);
    }
    *bytes = d->quarantine.bytes;
    *files = d->quarantine.files;
    *quarantine = d->quarantine_dir;
    pthread_mutex_unlock(&d->mu);
}

uint32_t disk_own_next(struct disk *d, uint32_t from, uint32_t *chunks)
{
    uint32_t found = MODEL_NONE;
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = from; id < d->n && found == MODEL_NONE; id++) {
        if (d->it[id].own) {
            found = id;
            *chunks = chunk_count(model_object(d->o.m, id)->size);
        }
    }
    pthread_mutex_unlock(&d->mu);
    return found;
}

uint64_t disk_own_chunks(struct disk *d)
{
    uint64_t n = 0;
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = 0; id < d->n; id++) {
        n += d->it[id].own ? chunk_count(model_object(d->o.m, id)->size) : 0;
    }
    pthread_mutex_unlock(&d->mu);
    return n;
}

/* ---- life ---- */

int adopt_open(struct disk *d, struct err *e)
{
    if (pthread_mutex_init(&d->adopt.scan, NULL)) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    d->adopt_open = true;
    disk_adopt_scan(d, true);
    return 0;
}

void adopt_close(struct disk *d)
{
    for (uint32_t i = 0; i < d->adopt.n; i++) {
        struct adopt_folder *f = &d->adopt.f[i];
        free(f->path);
        free(f->shard);
        free(f->pass);
        free(f->file);
        free(f->has_file);
    }
    if (d->adopt_open) {
        pthread_mutex_destroy(&d->adopt.scan);
    }
}
