/* SPDX-License-Identifier: MIT
 * disk_form.c: see disk.h: the cache's own file of a spine object is the object's bytes, or packed
 * (packed.h). Its name says which, so there is nothing to keep in step with it: a packed file gets
 * its name only when what comes out of it has the object's digest. */
#include "node/store/disk_inner.h"

#include "node/store/layout.h"
#include "node/store/uncached.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char *path_as(struct disk *d, uint32_t id, bool packed)
{
    return packed ? packed_path(d->dir, d->o.m, id) : layout_object(d->dir, d->o.m, id);
}

/* ---- which form ---- */

char *disk_own_path(struct disk *d, uint32_t id)
{
    return path_as(d, id, d->it[id].packed != 0);
}

uint64_t disk_own_bytes(struct disk *d, uint32_t id)
{
    return d->it[id].packed ? d->it[id].packed : model_object(d->o.m, id)->size;
}

void disk_set_form(struct disk *d, uint32_t id, uint64_t packed)
{
    struct disk_item *it = &d->it[id];
    bool counts = it->own || it->orphan;
    d->used -= counts ? disk_own_bytes(d, id) : 0;
    it->packed = packed;
    d->used += counts ? disk_own_bytes(d, id) : 0;
}

bool disk_form_switched(struct disk *d, uint32_t id)
{
    if (!packed_may(model_object(d->o.m, id))) {
        return false;
    }
    pthread_mutex_lock(&d->mu);
    bool was = d->it[id].packed != 0;
    char *p = path_as(d, id, !was);
    struct stat st;
    bool r = d->it[id].own && p && stat(p, &st) == 0 && st.st_size;
    if (r) {
        disk_set_form(d, id, was ? 0 : (uint64_t)st.st_size);
    }
    pthread_mutex_unlock(&d->mu);
    free(p);
    return r;
}

void disk_form_published(struct disk *d, uint32_t id)
{
    if (!packed_may(model_object(d->o.m, id))) {
        return;
    }
    char *p = path_as(d, id, true);
    pthread_mutex_lock(&d->mu);
    disk_set_form(d, id, 0);
    if (p) {
        unlink(p);
    }
    pthread_mutex_unlock(&d->mu);
    free(p);
}

bool disk_unlink_own(struct disk *d, uint32_t id)
{
    bool all = true;
    for (int packed = 0; packed <= packed_may(model_object(d->o.m, id)); packed++) {
        char *p = path_as(d, id, packed == 1);
        all &= p && (unlink(p) == 0 || errno == ENOENT);
        free(p);
    }
    return all;
}

void disk_form_settle(struct disk *d)
{
    int fd = -1;
    for (uint32_t id = 0; id < d->n; id++) {
        struct disk_item *it = &d->it[id];
        struct stat st;
        char *p = it->own && it->packed ? path_as(d, id, false) : NULL;
        if (p && stat(p, &st) == 0 && (fd >= 0 || !disk_form_lock(d, &fd, NULL))) {
            unlink(p); /* nobody is changing forms now */
        }
        free(p);
    }
    disk_form_unlock(fd);
}

uint64_t disk_cost(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    const struct disk_item *it = &d->it[id];
    bool image = it->own && it->packed && d->image && d->image[id];
    uint64_t n = image ? 0 : it->own ? disk_own_bytes(d, id) : model_object(d->o.m, id)->size;
    pthread_mutex_unlock(&d->mu);
    return n;
}

uint64_t disk_packed(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    uint64_t n = d->it[id].own ? d->it[id].packed : 0;
    pthread_mutex_unlock(&d->mu);
    return n;
}

/* ---- changing it ---- */

int disk_form_lock(struct disk *d, int *fd, struct err *e)
{
    *fd = -1;
    if (disk_closed(d, true, e)) {
        return e->code;
    }
    char *p = layout_path("%s/forms.lock", d->dir);
    *fd = p ? open(p, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    int r = !p        ? err_set(e, ERR_NOMEM, "out of memory")
            : *fd < 0 ? err_sys(e, errno, "cannot open %s", p)
                      : 0;
    if (!r && flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        close(*fd);
        *fd = -1;
        r = err_set(e, ERR_BUSY,
                    "another process is changing how the spine lies in %s: wait until it has ended",
                    d->dir);
    }
    free(p);
    return r;
}

void disk_form_unlock(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* The new file's bytes, from the old one's. */
static int write_new(struct disk *d, uint32_t id, bool packed, int fd, const char *path,
                     struct err *e)
{
    uint64_t size = model_object(d->o.m, id)->size;
    struct packed_writer w = {.head = NULL};
    uint8_t *p = malloc(CHUNK_SIZE);
    int r = p ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    r = r || !packed ? r : packed_write_begin(&w, fd, path, size, e);
    for (uint32_t i = 0; i < chunk_count(size) && !r; i++) {
        size_t n;
        r = disk_read_chunk(d, id, i, p, &n, e);
        r = r        ? r
            : packed ? packed_write_chunk(&w, p, n, e)
                     : file_pwrite(fd, path, p, n, (uint64_t)i * CHUNK_SIZE, e);
    }
    r = r || !packed ? r : packed_write_end(&w, e);
    packed_write_free(&w);
    free(p);
    return r ? r : file_sync(fd, path, e);
}

/* Read back, it has the digest on record. */
static int verify_new(struct disk *d, uint32_t id, bool packed, const char *path,
                      const struct digest *dg, uint64_t *bytes, struct err *e)
{
    struct uncached u;
    struct packed pk = {.at = NULL};
    struct stat st;
    uint8_t *p = malloc(CHUNK_SIZE), (*shas)[SHA256_SIZE] = calloc(dg->n + 1u, SHA256_SIZE);
    uint8_t sum[SHA256_SIZE];
    int r = p && shas ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    uncached_open(&u, path, 0, d->uncached);
    if (!r && (u.fd < 0 || fstat(u.fd, &st) != 0)) {
        r = err_sys(e, errno, "cannot read %s back", path);
    }
    *bytes = r ? 0 : (uint64_t)st.st_size;
    r = r || !packed ? r : packed_open(&pk, &u, path, dg->size, *bytes, e);
    for (uint32_t i = 0; i < dg->n && !r; i++) {
        size_t n = chunk_len(dg->size, i);
        uint64_t off = (uint64_t)i * CHUNK_SIZE;
        r = packed ? packed_read(&pk, &u, path, off, p, n, e)
                   : uncached_read(&u, path, p, n, off, e);
        if (!r && chunk_xxh(p, n) != dg->xxh[i]) {
            r = err_set(e, ERR_DIGEST, "%s: what was written is not what is read (its MiB %u)",
                        path, i);
        }
        if (!r) {
            sha256(p, n, shas[i]);
        }
    }
    if (!r) {
        sha256(shas, (size_t)dg->n * SHA256_SIZE, sum);
        r = memcmp(sum, dg->sha, SHA256_SIZE) == 0
                ? 0
                : err_set(e, ERR_DIGEST, "%s has another digest than the object", path);
    }
    if (u.fd >= 0) {
        close(u.fd);
    }
    packed_close(&pk);
    free(shas);
    free(p);
    return r;
}

/* The new file takes its name, the old one goes. */
static int put_new(struct disk *d, uint32_t id, bool packed, const char *part, uint64_t bytes,
                   const struct digest *dg, struct err *e)
{
    char *to = path_as(d, id, packed), *old = path_as(d, id, !packed);
    int r = to && old ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    pthread_mutex_lock(&d->mu);
    if (!r && (!d->it[id].own || d->it[id].digest != dg)) {
        r = err_set(e, ERR_BUSY, "it has changed meanwhile");
    }
    if (!r && rename(part, to) != 0) {
        r = err_sys(e, errno, "cannot rename %s to %s", part, to);
    }
    if (!r) {
        disk_set_form(d, id, packed ? bytes : 0);
    }
    pthread_mutex_unlock(&d->mu);
    r = r ? r : file_sync_dir_of(to, e);
    if (!r && unlink(old) != 0 && errno != ENOENT) {
        r = err_sys(e, errno, "cannot remove %s", old);
    }
    free(to);
    free(old);
    return r;
}

static int convert(struct disk *d, uint32_t id, bool packed, const struct digest *dg, struct err *e)
{
    char *s = session_part(d->session, id), *part = s ? layout_path("%s.form", s) : NULL;
    int fd = part ? open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    uint64_t bytes = 0;
    int r = !part    ? err_set(e, ERR_NOMEM, "out of memory")
            : fd < 0 ? err_sys(e, errno, "cannot write %s", part)
                     : write_new(d, id, packed, fd, part, e);
    if (fd >= 0) {
        if (d->uncached) {
            uncached_forget(fd); /* it is read back from the disk, not from memory */
        }
        close(fd);
    }
    r = r ? r : verify_new(d, id, packed, part, dg, &bytes, e);
    disk_wrote(d, bytes);
    r = r ? r : put_new(d, id, packed, part, bytes, dg, e);
    if (part && r) {
        unlink(part);
    }
    free(part);
    free(s);
    return r;
}

int disk_convert(struct disk *d, uint32_t id, bool packed, struct err *e)
{
    const struct model_object *o = model_object(d->o.m, id);
    char name[128];
    model_object_name(d->o.m, id, name, sizeof name);
    uint64_t most = o->size + o->size / 256 + CHUNK_SIZE; /* of either form */
    pthread_mutex_lock(&d->mu);
    const struct digest *dg = d->it[id].digest;
    bool own = d->it[id].own && packed_may(o), same = (d->it[id].packed != 0) == packed;
    int r = own && !same ? disk_room(d, id, most, false, e) : 0;
    pthread_mutex_unlock(&d->mu);
    if (!own || same) {
        return own ? 0 : err_set(e, ERR_NOTFOUND, "%s has one form only here", name);
    }
    if (!r) {
        r = convert(d, id, packed, dg, e);
        pthread_mutex_lock(&d->mu);
        d->reserved -= most;
        pthread_mutex_unlock(&d->mu);
    }
    if (r) {
        err_prefix(e, "%s stays as it was", name);
    }
    return r;
}

/* ---- in memory ---- */

static int read_image(struct disk *d, uint32_t id, const char *path, struct disk_image *im,
                      struct err *e)
{
    struct uncached u;
    struct stat st;
    uncached_open(&u, path, 0, d->uncached);
    int r = u.fd < 0 || fstat(u.fd, &st) != 0 ? err_sys(e, errno, "cannot open %s", path) : 0;
    size_t n = r ? 0 : (size_t)st.st_size;
    if (!r && posix_memalign((void **)&im->ram, UNCACHED_BLOCK, n ? n : 1)) {
        im->ram = NULL;
        r = err_set(e, ERR_NOMEM, "no memory for the %zu bytes of %s", n, path);
    }
    r = r ? r : uncached_read(&u, path, im->ram, n, 0, e);
    r = r ? r : packed_open_ram(&im->at, im->ram, n, model_object(d->o.m, id)->size, e);
    if (u.fd >= 0) {
        close(u.fd);
    }
    return r;
}

static void free_image(struct disk_image *im)
{
    if (im) {
        packed_close(&im->at);
        free(im->ram);
        free(im);
    }
}

int disk_keep(struct disk *d, uint32_t id, struct err *e)
{
    pthread_mutex_lock(&d->mu);
    if (!d->image) {
        d->image = calloc(d->n ? d->n : 1, sizeof *d->image);
    }
    bool ok = d->image != NULL, have = ok && d->image[id];
    char *path = d->it[id].own && d->it[id].packed ? disk_own_path(d, id) : NULL;
    pthread_mutex_unlock(&d->mu);
    struct disk_image *im = ok && path && !have ? calloc(1, sizeof *im) : NULL;
    int r = have                ? 0
            : ok && path && !im ? err_set(e, ERR_NOMEM, "out of memory")
            : !ok               ? err_set(e, ERR_NOMEM, "out of memory")
            : !path             ? err_set(e, ERR_NOTFOUND, "it is not packed")
                                : read_image(d, id, path, im, e);
    pthread_mutex_lock(&d->mu);
    if (!r && !have && !d->image[id]) {
        d->image[id] = im;
        d->image_bytes += im->at.file;
        im = NULL;
    }
    pthread_mutex_unlock(&d->mu);
    free_image(im);
    free(path);
    return r;
}

uint64_t disk_kept_bytes(struct disk *d)
{
    pthread_mutex_lock(&d->mu);
    uint64_t n = d->image_bytes;
    pthread_mutex_unlock(&d->mu);
    return n;
}

void disk_image_bad(struct disk *d, uint32_t id, const struct packed *image)
{
    char name[128];
    pthread_mutex_lock(&d->mu);
    struct disk_image *im = d->image[id];
    bool now = im && &im->at == image;
    if (now) { /* somebody may be reading it: it stays, unused, until the disk is closed */
        d->image[id] = NULL;
        d->image_bytes -= im->at.file;
        im->next = d->image_dead;
        d->image_dead = im;
    }
    pthread_mutex_unlock(&d->mu);
    if (now) {
        disk_log(d, "%s was changed in this machine's memory: it is read from the disk from now on",
                 model_object_name(d->o.m, id, name, sizeof name));
    }
}

void disk_form_close(struct disk *d)
{
    for (uint32_t id = 0; d->image && id < d->n; id++) {
        free_image(d->image[id]);
    }
    while (d->image_dead) {
        struct disk_image *im = d->image_dead;
        d->image_dead = im->next;
        free_image(im);
    }
    free(d->image);
    d->image = NULL;
}
