/* SPDX-License-Identifier: MIT
 * adopt_list.c: see adopt_list.h. */
#include "node/store/adopt_list.h"

#include "node/store/layout.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "shoal adopted 1\n"
#define FILE_MAX ((size_t)ADOPT_FOLDERS_MAX * (ADOPT_PATH_MAX + 1) + sizeof HEAD)

void adopt_list_free(struct adopt_list *l)
{
    while (l->n) {
        free(l->path[--l->n]);
    }
}

static bool has(const struct adopt_list *l, const char *path, size_t *at)
{
    for (size_t i = 0; i < l->n; i++) {
        if (!strcmp(l->path[i], path)) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* Takes the path. */
static int add(struct adopt_list *l, char *path, struct err *e)
{
    size_t at;
    if (!path) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (has(l, path, &at)) {
        free(path);
        return 0;
    }
    if (l->n == ADOPT_FOLDERS_MAX || strlen(path) > ADOPT_PATH_MAX || strchr(path, '\n')) {
        int r = l->n == ADOPT_FOLDERS_MAX
                    ? err_set(e, ERR_LIMIT, "at most %d folders can be adopted", ADOPT_FOLDERS_MAX)
                    : err_set(e, ERR_ARG, "%.80s...: such a path cannot be kept", path);
        free(path);
        return r;
    }
    l->path[l->n++] = path;
    return 0;
}

int adopt_list_parse(struct adopt_list *l, const char *p, size_t n, struct err *e)
{
    size_t head = sizeof HEAD - 1;
    if (n < head || memcmp(p, HEAD, head) != 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "the list of adopted folders is of another version of this program, or "
                       "damaged: adopt them again");
    }
    for (size_t at = head; at < n;) {
        const char *end = memchr(p + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (p + at)) : n - at;
        bool good = end && len && len <= ADOPT_PATH_MAX && p[at] == '/' && !memchr(p + at, 0, len);
        if (good && l->n < ADOPT_FOLDERS_MAX) {
            char *s = malloc(len + 1);
            if (s) {
                memcpy(s, p + at, len);
                s[len] = 0;
            }
            int r = add(l, s, e);
            if (r) {
                return r;
            }
        }
        at += len + 1;
    }
    return 0;
}

int adopt_list_read(const char *cache_dir, struct adopt_list *l, struct err *e)
{
    char *path = layout_path("%s/adopted", cache_dir);
    struct buf b;
    buf_init(&b, FILE_MAX);
    int r = path ? file_read_all(path, &b, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (r == ERR_NOTFOUND) {
        r = 0;
    } else if (!r) {
        r = adopt_list_parse(l, b.p ? b.p : "", b.n, e);
        if (r) {
            err_prefix(e, "%s", path);
        }
    }
    buf_free(&b);
    free(path);
    return r;
}

static int write_list(const char *cache_dir, const struct adopt_list *l, struct err *e)
{
    char *path = layout_path("%s/adopted", cache_dir);
    struct buf b;
    buf_init(&b, FILE_MAX);
    int r = path ? buf_adds(&b, HEAD) : ERR_NOMEM;
    for (size_t i = 0; i < l->n && !r; i++) {
        r = buf_addf(&b, "%s\n", l->path[i]);
    }
    r = r ? err_set(e, r, "the list of adopted folders: %s", err_text(r))
          : file_write_atomic(path, b.p, b.n, 0600, e);
    buf_free(&b);
    free(path);
    return r;
}

int adopt_list_change(const char *cache_dir, const struct adopt_list *folders, bool adding,
                      size_t *changed, struct err *e)
{
    struct adopt_list l = {.n = 0};
    *changed = 0;
    int r = layout_prepare(cache_dir, e);
    int lock = r ? -1 : layout_lock(cache_dir, e);
    if (lock < 0) {
        return r ? r : e ? e->code : ERR_IO;
    }
    struct err e1 = {0};
    r = adopt_list_read(cache_dir, &l, &e1);
    if (r && r != ERR_UNSUPPORTED && e) { /* a damaged list is replaced */
        *e = e1;
    }
    r = r == ERR_UNSUPPORTED ? 0 : r;
    for (size_t i = 0; i < folders->n && !r; i++) {
        size_t at;
        bool there = has(&l, folders->path[i], &at);
        if (adding && !there) {
            r = add(&l, strdup(folders->path[i]), e);
            (*changed)++;
        } else if (!adding && there) {
            free(l.path[at]);
            memmove(l.path + at, l.path + at + 1, (l.n - at - 1) * sizeof *l.path);
            l.n--;
            (*changed)++;
        }
    }
    if (!r && *changed) {
        r = write_list(cache_dir, &l, e);
    }
    layout_unlock(lock);
    adopt_list_free(&l);
    return r;
}

/* ---- what a path means ---- */

/* A decimal number as printf writes it: no sign, no zeros in front. */
static bool number(const char **s, unsigned *out)
{
    const char *p = *s;
    unsigned v = 0;
    if (*p == '0' && p[1] >= '0' && p[1] <= '9') {
        return false;
    }
    while (*p >= '0' && *p <= '9' && p - *s < 6) {
        v = v * 10 + (unsigned)(*p++ - '0');
    }
    bool any = p != *s;
    *s = p;
    *out = v;
    return any;
}

bool adopt_expert_name(const char *name, unsigned *layer, unsigned *expert)
{
    if (*name++ != 'L' || !number(&name, layer) || *name++ != '-' || *name++ != 'E') {
        return false;
    }
    return number(&name, expert) && !strcmp(name, ".bin");
}

bool adopt_hex_sha(const char *s, uint8_t out[SHA256_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(s) != 2 * SHA256_SIZE) {
        return false;
    }
    for (size_t i = 0; i < 2 * SHA256_SIZE; i++) {
        const char *c = strchr(digits, s[i]);
        if (!c) {
            return false;
        }
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (c - digits));
    }
    return true;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool ends(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n > k && !strcmp(s + n - k, tail);
}

/* Are there shards or expert files in it? */
static bool holds(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *x;
    unsigned a, b;
    bool any = false;
    while (d && !any && (x = readdir(d))) {
        any = ends(x->d_name, ".safetensors") || adopt_expert_name(x->d_name, &a, &b);
    }
    if (d) {
        closedir(d);
    }
    return any;
}

static int add_if_holds(struct adopt_list *out, const char *path, struct err *e)
{
    if (!path) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!is_dir(path) || !holds(path)) {
        return 0;
    }
    char *real = realpath(path, NULL);
    return real ? add(out, real, e) : err_sys(e, errno, "%s", path);
}

/* Each folder in `dir` whose name begins with `prefix`. */
static int each_in(const char *dir, const char *prefix,
                   int (*f)(struct adopt_list *out, const char *path, struct err *e),
                   struct adopt_list *out, struct err *e)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    int r = 0;
    while (d && !r && (x = readdir(d))) {
        if (x->d_name[0] != '.' && !strncmp(x->d_name, prefix, strlen(prefix))) {
            char *p = layout_path("%s/%s", dir, x->d_name);
            r = p ? f(out, p, e) : err_set(e, ERR_NOMEM, "out of memory");
            free(p);
        }
    }
    if (d) {
        closedir(d);
    }
    return r;
}

/* A folder with snapshots/: the one that refs/main names, if it is there. */
static int one_model(struct adopt_list *out, const char *path, struct err *e)
{
    char *snaps = layout_path("%s/snapshots", path), *ref = layout_path("%s/refs/main", path);
    struct buf b;
    struct err e1 = {0};
    int r = 0;
    size_t before = out->n;
    buf_init(&b, 200);
    if (!snaps || !ref) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    } else if (is_dir(snaps)) {
        if (!file_read_all(ref, &b, &e1) && b.n && !buf_add(&b, "", 1)) {
            size_t n = strspn(b.p, "0123456789abcdef");
            char *p = n ? layout_path("%s/%.*s", snaps, (int)n, b.p) : NULL;
            r = p ? add_if_holds(out, p, e) : 0;
            free(p);
        }
        if (!r && out->n == before) {
            r = each_in(snaps, "", add_if_holds, out, e);
        }
    }
    buf_free(&b);
    free(snaps);
    free(ref);
    return r;
}

int adopt_find(const char *dir, struct adopt_list *out, struct err *e)
{
    if (!is_dir(dir)) {
        return err_set(e, ERR_NOTFOUND, "%.300s is not a folder that is there", dir);
    }
    static const char *const inside[] = {"k3-experts", "hub"};
    int r = add_if_holds(out, dir, e);
    if (!r && !out->n) {
        r = one_model(out, dir, e);
    }
    if (!r && !out->n) {
        r = each_in(dir, "models--", one_model, out, e);
    }
    for (size_t i = 0; i < 2 && !r && !out->n; i++) {
        char *p = layout_path("%s/%s", dir, inside[i]);
        r = add_if_holds(out, p, e);
        if (!r && !out->n) {
            r = each_in(p, "models--", one_model, out, e);
        }
        free(p);
    }
    if (!r && !out->n) {
        r = err_set(
            e, ERR_NOTFOUND,
            "%.300s holds neither shards (*.safetensors), nor a hub's snapshots, nor expert "
            "files (L1-E0.bin)",
            dir);
    }
    if (r) {
        adopt_list_free(out);
    }
    return r;
}
