/* SPDX-License-Identifier: MIT
 * forms.c: see forms.h. The files are disk_form.c's. */
#include "node/store/forms.h"

#include "node/store/disk.h"
#include "node/store/engine.h"
#include "node/store/layout.h"
#include "node/store/packed.h"
#include "node/store/uncached.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READERS 4
#define STEP ((size_t)4 << 20)

struct store_converting {
    struct store *st;
    int lock;
};

bool store_has_forms(struct store *st, uint32_t id)
{
    if (!st->disk || !packed_may(eng_object(st, id))) {
        return false;
    }
    char *own = disk_file_path(st->disk, id);
    free(own);
    return own != NULL;
}

uint64_t store_packed(struct store *st, uint32_t id)
{
    return st->disk ? disk_packed(st->disk, id) : 0;
}

void store_get_forms(struct store *st, struct store_forms *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t id = 0; st->disk && id < st->n_ent; id++) {
        const struct model_object *o = eng_object(st, id);
        if (!packed_may(o) || !store_has_forms(st, id)) {
            continue;
        }
        uint64_t packed = disk_packed(st->disk, id);
        out->objects++;
        out->bytes += o->size;
        out->packed += packed != 0;
        out->packed_bytes += packed;
        out->packed_from += packed ? o->size : 0;
    }
    out->kept = st->disk ? disk_kept_bytes(st->disk) : 0;
}

struct keeping {
    struct store *st;
    const uint32_t *ids;
    size_t n;
    atomic_size_t next;
    pthread_mutex_t mu;
    int result;
    struct err err;
};

static void *keeper(void *arg)
{
    struct keeping *k = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&k->next, 1);
        struct err e = {0};
        int r = i < k->n ? disk_keep(k->st->disk, k->ids[i], &e) : 0;
        if (r) {
            pthread_mutex_lock(&k->mu);
            k->result = r;
            k->err = e;
            pthread_mutex_unlock(&k->mu);
        }
        if (r || i >= k->n) {
            return NULL;
        }
    }
}

int store_keep_packed(struct store *st, const uint32_t *ids, size_t n, struct err *e)
{
    struct keeping k = {.st = st, .ids = ids, .n = n};
    pthread_t t[READERS];
    unsigned threads = 0;
    if (!st->disk) {
        return n ? err_set(e, ERR_NOTFOUND, "without a cache nothing is packed") : 0;
    }
    pthread_mutex_init(&k.mu, NULL);
    while (threads + 1 < READERS && threads + 1 < n &&
           !pthread_create(&t[threads], NULL, keeper, &k)) {
        threads++;
    }
    keeper(&k);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(t[i], NULL);
    }
    pthread_mutex_destroy(&k.mu);
    if (k.result && e) {
        *e = k.err;
    }
    return k.result;
}

/* ---- changing ---- */

int store_convert_begin(struct store *st, struct store_converting **out, struct err *e)
{
    *out = NULL;
    if (!st->disk) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is read in place, so its form cannot be changed: give a cache folder",
                       st->model_path);
    }
    struct store_converting *c = calloc(1, sizeof *c);
    if (!c) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    c->st = st;
    int r = disk_form_lock(st->disk, &c->lock, e);
    if (r) {
        free(c);
        return r;
    }
    *out = c;
    return 0;
}

int store_convert(struct store_converting *c, uint32_t id, bool packed, struct err *e)
{
    return disk_convert(c->st->disk, id, packed, e);
}

void store_convert_end(struct store_converting *c)
{
    if (c) {
        disk_form_unlock(c->lock);
        free(c);
    }
}

/* ---- the note ---- */

void store_forms_note(struct store *st, char out[STORE_FORMS_NOTE])
{
    struct buf b;
    struct err e;
    char *p = st->disk ? layout_path("%s/forms", disk_path(st->disk)) : NULL;
    out[0] = 0;
    buf_init(&b, STORE_FORMS_NOTE - 1);
    if (p && !file_read_all(p, &b, &e)) {
        size_t n = 0; /* whoever wrote it, it is shown to people: letters alone */
        while (n < b.n && (unsigned char)b.p[n] >= ' ' && (unsigned char)b.p[n] < 0x7f) {
            out[n] = b.p[n];
            n++;
        }
        out[n] = 0;
    }
    buf_free(&b);
    free(p);
}

int store_forms_say(struct store *st, const char *note, struct err *e)
{
    char *p = st->disk ? layout_path("%s/forms", disk_path(st->disk)) : NULL;
    int r = p ? file_write_atomic(p, note, strlen(note), 0600, e)
              : err_set(e, ERR_UNSUPPORTED, "there is no cache to keep it in");
    free(p);
    return r;
}

/* ---- measuring ---- */

struct measuring {
    struct store *st;
    atomic_uint next;
    atomic_ullong bytes;
    uint64_t until;
};

static void read_file(struct measuring *m, const char *path, uint8_t *b)
{
    struct uncached u;
    uncached_open(&u, path, 0, true);
    off_t size = u.fd >= 0 ? lseek(u.fd, 0, SEEK_END) : 0;
    for (off_t at = 0; at < size && clock_ns() < m->until;) {
        size_t n = (uint64_t)(size - at) < STEP ? (size_t)(size - at) : STEP;
        struct err e;
        if (uncached_read(&u, path, b, n, (uint64_t)at, &e)) {
            break;
        }
        atomic_fetch_add(&m->bytes, n);
        at += (off_t)n;
    }
    if (u.fd >= 0) {
        close(u.fd);
    }
}

static void *reader(void *arg)
{
    struct measuring *m = arg;
    uint8_t *b = aligned_alloc(UNCACHED_BLOCK, STEP);
    while (b && clock_ns() < m->until) {
        uint32_t id = atomic_fetch_add(&m->next, 1);
        if (id >= m->st->n_ent) {
            break;
        }
        char *p = packed_may(eng_object(m->st, id)) ? disk_file_path(m->st->disk, id) : NULL;
        if (p) {
            read_file(m, p, b);
        }
        free(p);
    }
    free(b);
    return NULL;
}

int store_measure_disk(struct store *st, double seconds, double *rate, struct err *e)
{
    struct measuring m = {.st = st};
    pthread_t t[READERS];
    unsigned n = 0;
    uint64_t from = clock_ns();
    m.until = from + (uint64_t)(seconds * 1e9);
    while (st->disk && n < READERS && !pthread_create(&t[n], NULL, reader, &m)) {
        n++;
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
    }
    double took = 1e-9 * (double)(clock_ns() - from);
    double bytes = (double)atomic_load(&m.bytes);
    *rate = took > 0 ? bytes / took : 0;
    return bytes > 0 ? 0 : err_set(e, ERR_NOTFOUND, "there is nothing of the spine to read");
}
