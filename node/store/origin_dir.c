/* SPDX-License-Identifier: MIT
 * origin_dir.c: a local folder as an origin, and the blocking forms of origin.h that both kinds
 * share. */
#include "node/store/origin_inner.h"

#include "node/store/layout.h"
#include "node/store/sync.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *dir_main(void *origin);

#define PIECE (1u << 20)

/* With rates for a folder both caps are of the same one reader. False: it is to stop. */
static bool cap_pause(struct origin *o, struct cap *conn)
{
    pthread_mutex_lock(&o->mu);
    for (;;) {
        uint64_t now = clock_ns(), a = cap_wait(&o->cap, now), b = cap_wait(conn, now);
        if (o->stop || (!a && !b)) {
            break;
        }
        sync_wait(&o->cv, &o->mu, now + (a > b ? a : b));
    }
    bool on = !o->stop;
    pthread_mutex_unlock(&o->mu);
    return on;
}

static enum http_verdict copy_run(struct origin *o, struct run *r, uint8_t *piece, struct cap *conn,
                                  struct err *e)
{
    pthread_mutex_lock(&o->mu);
    char *path = layout_path("%s/%s", o->url, o->files[r->file].name);
    uint64_t expect = o->files[r->file].size;
    pthread_mutex_unlock(&o->mu);
    int fd = path ? file_open_read(path, O_NONBLOCK) : -1;
    struct stat st;
    enum http_verdict v = HTTP_FATAL;
    if (!path) {
        err_set(e, ERR_NOMEM, "out of memory");
    } else if (fd < 0 || fstat(fd, &st) != 0) {
        err_sys(e, errno, "cannot open %s", path);
    } else if (!S_ISREG(st.st_mode)) {
        err_set(e, ERR_NOTFOUND, "%s is no file", path);
    } else if (expect != ORIGIN_UNKNOWN && (uint64_t)st.st_size != expect) {
        err_set(e, ERR_FORMAT, "%s has %lld bytes instead of %llu", path, (long long)st.st_size,
                (unsigned long long)expect);
    } else if (!run_learn(o, r, (uint64_t)st.st_size, "", e)) {
        if (r->end == ORIGIN_UNKNOWN) {
            r->end = (uint64_t)st.st_size;
            r->head->size = r->end;
        }
        v = HTTP_BODY;
        if (r->end == 0) {
            r->head->size = ORIGIN_UNKNOWN; /* empty: run_end completes it */
        }
        while (r->pos < r->end && v == HTTP_BODY) {
            uint64_t most = cap_piece(conn, 1 << 14, cap_piece(&o->cap, 1 << 14, PIECE));
            size_t n = (size_t)(r->end - r->pos < most ? r->end - r->pos : most);
            if (!cap_pause(o, conn)) {
                v = HTTP_RETRY;
                break;
            }
            cap_take(&o->cap, n, clock_ns());
            cap_take(conn, n, clock_ns());
            if (file_pread(fd, path, piece, n, r->pos, e) || run_data(o, r, piece, n, e)) {
                v = HTTP_FATAL;
            }
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    free(path);
    return v;
}

void *dir_main(void *origin)
{
    struct origin *o = origin;
    uint8_t *piece = malloc(PIECE);
    struct cap conn;
    cap_init(&conn, o->o.rate_conn, clock_ns());
    pthread_mutex_lock(&o->mu);
    while (!o->stop) {
        uint64_t wake;
        struct run *r = piece ? run_take(o, clock_ns(), false, &wake) : NULL;
        if (!r) {
            sync_wait(&o->cv, &o->mu, piece && wake != UINT64_MAX ? wake : 0);
            continue;
        }
        pthread_mutex_unlock(&o->mu);
        struct err e = {0};
        enum http_verdict v = copy_run(o, r, piece, &conn, &e);
        run_end(o, r, v, false, 0, &e);
        pthread_mutex_lock(&o->mu);
    }
    pthread_mutex_unlock(&o->mu);
    free(piece);
    return NULL;
}

/* ---- blocking forms ---- */

struct await {
    pthread_mutex_t mu;
    pthread_cond_t cv;
    struct buf *out; /* whole file */
    uint8_t *p;      /* range */
    size_t n, got, had;
    bool done;
    int code;
    struct err err;
};

static int await_begin(struct origin_part *p, struct err *e)
{
    struct await *a = p->user;
    (void)e;
    a->got = 0;
    if (a->out && a->out->p) {
        a->out->n = a->had;
        a->out->p[a->had] = 0;
    }
    return 0;
}

static int await_data(struct origin_part *p, const void *b, size_t n, struct err *e)
{
    struct await *a = p->user;
    if (a->out) {
        int r = buf_add(a->out, b, n);
        return r ? err_set(e, r, "it is larger than the %zu bytes allowed", a->out->max) : 0;
    }
    if (n > a->n - a->got) {
        return err_set(e, ERR_NET, "too many bytes");
    }
    memcpy(a->p + a->got, b, n);
    a->got += n;
    return 0;
}

static void await_done(struct origin_part *p, int code, const struct err *e)
{
    struct await *a = p->user;
    pthread_mutex_lock(&a->mu);
    a->done = true;
    a->code = code;
    if (e) {
        a->err = *e;
    }
    pthread_cond_signal(&a->cv);
    pthread_mutex_unlock(&a->mu);
}

static int await_part(struct origin *o, const char *name, uint64_t off, uint64_t size,
                      struct await *a, struct err *e)
{
    struct origin_part p = {.user = a,
                            .name = name,
                            .off = off,
                            .size = size,
                            .prio = STORE_DEMAND,
                            .begin = await_begin,
                            .data = await_data,
                            .done = await_done};
    int r = origin_file(o, name, &p.file, e);
    if (r) {
        return r;
    }
    if (pthread_mutex_init(&a->mu, NULL)) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (sync_cond_init(&a->cv)) {
        pthread_mutex_destroy(&a->mu);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    origin_submit(o, &p);
    pthread_mutex_lock(&a->mu);
    while (!a->done) {
        pthread_cond_wait(&a->cv, &a->mu);
    }
    pthread_mutex_unlock(&a->mu);
    pthread_cond_destroy(&a->cv);
    pthread_mutex_destroy(&a->mu);
    if (a->code && e) {
        *e = a->err;
    }
    return a->code;
}

int origin_get_file(struct origin *o, const char *name, struct buf *out, struct err *e)
{
    struct await a = {.out = out, .had = out->n};
    size_t had = out->n;
    int r = await_part(o, name, 0, ORIGIN_UNKNOWN, &a, e);
    if (r) {
        out->n = had;
        if (out->p) {
            out->p[had] = 0;
        }
    }
    return r;
}

int origin_get_range(struct origin *o, const char *name, uint64_t off, void *p, size_t n,
                     struct err *e)
{
    struct await a = {.p = p, .n = n};
    return n ? await_part(o, name, off, n, &a, e) : 0;
}
