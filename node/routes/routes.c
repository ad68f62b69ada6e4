/* SPDX-License-Identifier: MIT
 * routes.c: see routes.h. */
#include "node/routes/routes.h"

#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS "shoal-routes 1\n"

/* ---- writing ---- */

struct routes_out {
    FILE *f;
    char *path;
    uint32_t last; /* layer, UINT32_MAX: none yet */
    uint32_t *ids; /* [experts], to sort */
    uint32_t experts;
    bool failed;
};

int routes_create(const char *path, const struct routes_head *h, struct routes_out **out,
                  struct err *e)
{
    struct routes_out *w = calloc(1, sizeof *w);
    char root[2 * SHA256_SIZE + 1];
    *out = NULL;
    if (!w || !(w->path = strdup(path)) || !(w->ids = malloc(h->experts * sizeof *w->ids))) {
        routes_finish(w, &(struct err){0});
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    w->experts = h->experts;
    w->last = UINT32_MAX;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    w->f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!w->f) {
        int r = err_set(e, ERR_IO, "%s cannot be written: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        routes_finish(w, &(struct err){0});
        return r;
    }
    sha256_hex(h->root, root);
    fprintf(w->f, WORDS "model %s layers %u experts %u topk %u bytes %" PRIu64 "\n", root,
            h->layers, h->experts, h->topk, h->expert_bytes);
    *out = w;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void routes_add(struct routes_out *w, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n)
{
    if (n > w->experts) {
        w->failed = true; /* not distinct: the caller's fault */
        return;
    }
    memcpy(w->ids, ids, n * sizeof *ids);
    qsort(w->ids, n, sizeof *ids, ascending);
    if (w->last == UINT32_MAX || layer <= w->last) {
        fprintf(w->f, "step %u\n", rows);
    }
    w->last = layer;
    fprintf(w->f, "%u", layer);
    for (size_t i = 0; i < n; i++) {
        fprintf(w->f, " %u", w->ids[i]);
    }
    putc('\n', w->f);
}

int routes_finish(struct routes_out *w, struct err *e)
{
    int r = 0;
    if (w && w->f) {
        bool bad = w->failed || ferror(w->f);
        errno = 0;
        if (fclose(w->f) || bad) {
            r = err_set(e, ERR_IO, "%s is incomplete: %s", w->path,
                        errno ? strerror(errno) : "a write failed");
        }
    }
    if (w) {
        free(w->path);
        free(w->ids);
    }
    free(w);
    return r;
}

/* ---- reading ---- */

struct reader {
    const char *p, *end;
    size_t line;
};

/* Decimal digits, at most 19; false when there are none. */
static bool number(struct reader *r, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    const char *begin = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9' && r->p - begin < 19) {
        v = v * 10 + (uint64_t)(*r->p++ - '0');
    }
    *out = v;
    return r->p > begin && v <= max;
}

static bool words(struct reader *r, const char *s)
{
    size_t n = strlen(s);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, s, n)) {
        return false;
    }
    r->p += n;
    return true;
}

static bool hex(struct reader *r, uint8_t root[SHA256_SIZE])
{
    if (r->end - r->p < 2 * SHA256_SIZE) {
        return false;
    }
    for (size_t i = 0; i < 2 * SHA256_SIZE; i++) {
        char c = *r->p++;
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0) {
            return false;
        }
        root[i / 2] = (uint8_t)(i % 2 ? root[i / 2] | v : v << 4);
    }
    return true;
}

static bool read_head(struct reader *r, struct routes_head *h)
{
    uint64_t layers, experts, topk;
    if (!words(r, WORDS "model ") || !hex(r, h->root) || !words(r, " layers ") ||
        !number(r, ROUTES_LAYERS_MAX, &layers) || !words(r, " experts ") ||
        !number(r, ROUTES_EXPERTS_MAX, &experts) || !words(r, " topk ") ||
        !number(r, experts, &topk) || !words(r, " bytes ") ||
        !number(r, (uint64_t)1 << 40, &h->expert_bytes) || !words(r, "\n")) {
        return false;
    }
    h->layers = (uint32_t)layers;
    h->experts = (uint32_t)experts;
    h->topk = (uint32_t)topk;
    return layers && experts && topk && h->expert_bytes;
}

static int bad(const struct reader *r, struct err *e, const char *why)
{
    return err_set(e, ERR_FORMAT, "line %zu of the routes: %s", r->line, why);
}

static int add(struct routes *o, size_t *room, uint32_t object)
{
    if (o->n == *room) {
        size_t n = *room ? 2 * *room : 4096;
        struct routes_use *p = realloc(o->use, n * sizeof *p);
        if (!p) {
            return ERR_NOMEM;
        }
        o->use = p;
        *room = n;
    }
    o->use[o->n++] = (struct routes_use){object, o->steps - 1};
    return 0;
}

/* "LAYER EXPERT EXPERT ..." */
static int read_layer(struct reader *r, struct routes *o, size_t *room, int64_t *last,
                      struct err *e)
{
    uint64_t layer, id, before = 0;
    if (!number(r, o->head.layers - 1, &layer)) {
        return bad(r, e, "it begins with no layer of the model");
    }
    if (!o->steps || (int64_t)layer <= *last) {
        return bad(r, e, "a layer that is not above the last one needs a step before it");
    }
    *last = (int64_t)layer;
    for (bool first = true; !words(r, "\n"); first = false) {
        if (!words(r, " ") || !number(r, o->head.experts - 1, &id) || (!first && id <= before)) {
            return bad(r, e, "experts of the model in ascending order are expected");
        }
        before = id;
        if (add(o, room, (uint32_t)(layer * o->head.experts + id))) {
            return err_set(e, ERR_NOMEM, "no memory for the routes");
        }
    }
    return 0;
}

int routes_parse(const char *text, size_t n, struct routes *o, struct err *e)
{
    struct reader r = {text, text + n, 1};
    size_t room = 0;
    int64_t last = -1;
    memset(o, 0, sizeof *o);
    if (!read_head(&r, &o->head)) {
        return err_set(e, ERR_FORMAT,
                       "the file does not begin as recorded routes do (shoal run --record-routes "
                       "FILE makes them)");
    }
    for (r.line = 3; r.p < r.end; r.line++) {
        uint64_t rows;
        if (words(&r, "step ")) {
            if (!number(&r, ROUTES_ROWS_MAX, &rows) || !rows || !words(&r, "\n") ||
                o->steps == UINT32_MAX) {
                return bad(&r, e, "a step has 1 to 65536 rows");
            }
            o->steps++;
            o->rows += rows;
            last = -1;
            continue;
        }
        int c = read_layer(&r, o, &room, &last, e);
        if (c) {
            return c;
        }
    }
    return o->n ? 0 : err_set(e, ERR_FORMAT, "the routes are empty: nothing was computed");
}

int routes_read(const char *path, struct routes *o, struct err *e)
{
    struct buf b;
    struct err e1 = {0};
    memset(o, 0, sizeof *o);
    buf_init(&b, ROUTES_FILE_MAX);
    int r = file_read_all(path, &b, e);
    if (!r) {
        r = routes_parse(b.p ? b.p : "", b.n, o, &e1);
        if (r) {
            err_set(e, r, "%s: %s", path, e1.msg);
        }
    }
    buf_free(&b);
    return r;
}

/* ---- a flat router ---- */

#define FLAT_LAYERS 93
#define FLAT_DENSE 1
#define FLAT_EXPERTS 896
#define FLAT_TOPK 16
#define FLAT_BYTES 17547264

int routes_flat(uint32_t tokens, struct routes *o, struct err *e)
{
    memset(o, 0, sizeof *o);
    o->head = (struct routes_head){.layers = FLAT_LAYERS,
                                   .experts = FLAT_EXPERTS,
                                   .topk = FLAT_TOPK,
                                   .expert_bytes = FLAT_BYTES};
    uint64_t s = 0x9e3779b97f4a7c15u;
    size_t room = 0;
    for (uint32_t t = 0; t < tokens; t++) {
        o->steps++;
        o->rows++;
        for (uint32_t l = FLAT_DENSE; l < FLAT_LAYERS; l++) {
            uint8_t in[FLAT_EXPERTS] = {0};
            for (uint32_t k = 0; k < FLAT_TOPK;) {
                s ^= s << 13;
                s ^= s >> 7;
                s ^= s << 17;
                uint32_t x = (uint32_t)((s >> 32) * FLAT_EXPERTS >> 32);
                k += !in[x];
                in[x] = 1;
            }
            for (uint32_t x = 0; x < FLAT_EXPERTS; x++) {
                if (in[x] && add(o, &room, l * FLAT_EXPERTS + x)) {
                    return err_set(e, ERR_NOMEM, "no memory for %u tokens: give fewer", tokens);
                }
            }
        }
    }
    return 0;
}

void routes_free(struct routes *r)
{
    free(r->use);
    memset(r, 0, sizeof *r);
}
