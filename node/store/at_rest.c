/* SPDX-License-Identifier: MIT
 * at_rest.c: see at_rest.h: the models of a cache folder, and adopted folders. */
#include "node/store/at_rest.h"

#include "node/store/disk.h"
#include "node/store/layout.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOB_MAX ((size_t)256 << 20)
#define LIST_MAX ((size_t)16 << 20)
#define MODELS_MAX 256

int rest_can_write(const char *dir, struct err *why)
{
    enum layout_state s = layout_state(dir, why);
    return s == LAYOUT_FULL ? ERR_FULL : s == LAYOUT_LOCKED ? ERR_REFUSED : 0;
}

int rest_writable(const char *cache_dir, const char *what, struct err *e)
{
    struct err why = {0};
    if (layout_state(cache_dir, &why) != LAYOUT_LOCKED) {
        return 0;
    }
    return err_set(
        e, ERR_REFUSED,
        "the cache %.400s: %s would change it; make it writable (mount it so, or change its "
        "permissions), or do it on the machine that owns it",
        why.msg, what);
}

void rest_models_free(struct rest_models *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].address);
        model_close(l->v[i].m);
    }
    free(l->v);
    l->v = NULL;
    l->n = 0;
}

/* The address in the first line of an origin's list. */
static char *address_of(const char *dir)
{
    static const char head[] = "shoal-origin 1 ";
    char *path = layout_path("%s/origin.txt", dir), *out = NULL;
    struct buf b;
    struct err e;
    buf_init(&b, LIST_MAX);
    if (path && !file_read_all(path, &b, &e) && b.n > sizeof head &&
        !memcmp(b.p, head, sizeof head - 1)) {
        char *at = b.p + sizeof head - 1;
        out = strndup(at, strcspn(at, "\n"));
    }
    buf_free(&b);
    free(path);
    return out;
}

/* The inventory in the folder of an address, the caller's; NULL: none that can be read. */
static struct model *inventory(const char *dir, char hex[2 * SHA256_SIZE + 1])
{
    char *path = layout_path("%s/inventory.bin", dir);
    struct model *m = NULL;
    struct buf b;
    struct err e;
    buf_init(&b, BLOB_MAX);
    if (path && !file_read_all(path, &b, &e) && !model_load(b.p, b.n, &m, &e)) {
        sha256_hex(model_root(m), hex);
    }
    buf_free(&b);
    free(path);
    return m;
}

int rest_origins(const char *cache_dir, const char *root,
                 int (*each)(void *ctx, const char *dir, const char *address, struct err *e),
                 void *ctx, struct err *e)
{
    char *p = layout_path("%s/origins", cache_dir), hex[2 * SHA256_SIZE + 1];
    DIR *d = p ? opendir(p) : NULL;
    struct dirent *x;
    int r = 0;
    while (d && !r && (x = readdir(d))) {
        char *dir = x->d_name[0] == '.' ? NULL : layout_path("%s/%s", p, x->d_name);
        struct model *m = dir ? inventory(dir, hex) : NULL;
        if (m && !strcmp(hex, root)) {
            char *address = address_of(dir);
            r = each(ctx, dir, address ? address : "", e);
            free(address);
        }
        model_close(m);
        free(dir);
    }
    if (d) {
        closedir(d);
    }
    free(p);
    return r;
}

/* An inventory of an origin belongs to the model with its root. */
static void match(struct rest_models *l, const char *dir)
{
    char hex[2 * SHA256_SIZE + 1];
    struct model *m = inventory(dir, hex);
    if (m) {
        for (size_t i = 0; i < l->n; i++) {
            if (!strcmp(l->v[i].root, hex) && !l->v[i].m) {
                l->v[i].m = m;
                m = NULL;
                free(l->v[i].address);
                l->v[i].address = address_of(dir);
            }
        }
    }
    model_close(m);
}

static int add(struct rest_models *l, const char *dir, const char *name, struct err *e)
{
    char *path = layout_path("%s/root", dir);
    struct buf b;
    struct err e1;
    int r = 0;
    buf_init(&b, 200);
    if (path && strlen(name) < sizeof l->v->folder && !file_read_all(path, &b, &e1) && b.n >= 64 &&
        strspn(b.p, "0123456789abcdef") >= 64 && l->n < MODELS_MAX) {
        struct rest_model *v = realloc(l->v, (l->n + 1) * sizeof *v);
        char *none = strdup("");
        l->v = v ? v : l->v;
        if (v && none) {
            struct rest_model *x = &v[l->n++];
            memset(x, 0, sizeof *x);
            memcpy(x->root, b.p, 64);
            snprintf(x->folder, sizeof x->folder, "%s", name);
            x->address = none;
        } else {
            free(none);
            r = err_set(e, ERR_NOMEM, "out of memory");
        }
    }
    buf_free(&b);
    free(path);
    return r;
}

int rest_models(const char *cache_dir, struct rest_models *l, struct err *e)
{
    static const char *const below[] = {"models", "origins"};
    int r = 0;
    memset(l, 0, sizeof *l);
    for (int i = 0; i < 2 && !r; i++) {
        char *p = layout_path("%s/%s", cache_dir, below[i]);
        DIR *d = p ? opendir(p) : NULL;
        struct dirent *x;
        while (d && !r && (x = readdir(d))) {
            char *dir = x->d_name[0] == '.' ? NULL : layout_path("%s/%s", p, x->d_name);
            if (dir && !i) {
                r = add(l, dir, x->d_name, e);
            } else if (dir) {
                match(l, dir);
            }
            free(dir);
        }
        if (d) {
            closedir(d);
        }
        free(p);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (!l->v[i].address) {
            l->v[i].address = strdup("");
        }
    }
    if (r) {
        rest_models_free(l);
    }
    return r;
}

int rest_adopted(const char *cache_dir, const struct rest_model *x, struct store_adopted *v,
                 size_t max, size_t *n, struct err *e)
{
    struct disk_opts o = {.cache_dir = cache_dir, .m = x->m};
    struct disk_adopted a[STORE_ADOPTED_MAX];
    struct disk *d;
    *n = 0;
    int r = disk_open(&o, &d, e);
    if (r) {
        return r;
    }
    size_t k = disk_adopted(d, a, max < STORE_ADOPTED_MAX ? max : STORE_ADOPTED_MAX);
    for (size_t i = 0; i < k && !r; i++) {
        v[i] = (struct store_adopted){strdup(a[i].path), a[i].here,    a[i].other_model,
                                      a[i].objects,      a[i].experts, a[i].looked,
                                      a[i].refused,      a[i].bytes,   a[i].looked_bytes};
        if (!v[i].path) {
            r = err_set(e, ERR_NOMEM, "out of memory");
        } else {
            *n = i + 1;
        }
    }
    disk_close(d);
    return r;
}
