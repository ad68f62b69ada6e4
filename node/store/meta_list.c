/* SPDX-License-Identifier: MIT
 * meta_list.c: see meta_list.h. */
#include "node/store/meta_list.h"

#include "node/store/chunk.h"
#include "proto/base/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 100000u

void meta_list_free(struct meta_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->it[i].name);
    }
    free(l->it);
    memset(l, 0, sizeof *l);
}

/* A name that may be one of a file in the cache: nothing that leaves the folder. */
static bool name_ok(const char *s)
{
    size_t n = strlen(s);
    bool ok = n > 0 && n <= 240 && s[0] != '.';
    for (size_t i = 0; ok && i < n; i++) {
        ok = (unsigned char)s[i] >= 32 && s[i] != 127 && s[i] != '/';
    }
    return ok;
}

static struct meta_item *find(const struct meta_list *l, enum meta_kind kind, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->it[i].kind == kind && strcmp(l->it[i].name, name) == 0) {
            return &l->it[i];
        }
    }
    return NULL;
}

const struct meta_item *meta_list_find(const struct meta_list *l, enum meta_kind kind,
                                       const char *name)
{
    return find(l, kind, name);
}

int meta_list_set(struct meta_list *l, const char *name, const struct meta_item *it)
{
    if (!name_ok(name)) {
        return ERR_FORMAT;
    }
    struct meta_item *old = find(l, it->kind, name);
    if (!old && it->kind == META_FILE) {
        old = find(l, META_ABSENT, name);
    }
    if (old) {
        char *own = old->name;
        *old = *it;
        old->name = own;
        return 0;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct meta_item *t = cap > ITEMS_MAX ? NULL : realloc(l->it, cap * sizeof *t);
        if (!t) {
            return ERR_NOMEM;
        }
        l->it = t;
        l->cap = cap;
    }
    char *own = strdup(name);
    if (!own) {
        return ERR_NOMEM;
    }
    l->it[l->n] = *it;
    l->it[l->n++].name = own;
    return 0;
}

void meta_list_doubt(struct meta_list *l)
{
    size_t left = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->it[i].kind == META_ABSENT) {
            free(l->it[i].name);
        } else {
            l->it[left++] = l->it[i];
        }
    }
    l->n = left;
}

int meta_list_write(const struct meta_list *l, const char *address, struct buf *out)
{
    size_t from = out->n;
    int r = buf_addf(out, "shoal-origin 1 %s\n", address);
    for (size_t i = 0; i < l->n && !r; i++) {
        const struct meta_item *it = &l->it[i];
        char hex[2 * SHA256_SIZE + 1];
        if (it->kind == META_FILE) {
            sha256_hex(it->sha, hex);
            r = buf_addf(out, "file %s %" PRIu64 " %s\n", hex, it->size, it->name);
        } else if (it->kind == META_ABSENT) {
            r = buf_addf(out, "absent %s\n", it->name);
        } else {
            r = buf_addf(out, "shard %" PRIu64 " %s %s\n", it->size, *it->etag ? it->etag : "-",
                         it->name);
        }
    }
    return r ? r : buf_addf(out, "end %016" PRIx64 "\n", chunk_xxh(out->p + from, out->n - from));
}

/* ---- reading ---- */

static bool number(char **p, uint64_t *out)
{
    uint64_t v = 0;
    char *q = *p;
    while (*q >= '0' && *q <= '9') {
        if (!num_mul_u64(v, 10, &v) || !num_add_u64(v, (uint64_t)(*q - '0'), &v)) {
            return false;
        }
        q++;
    }
    if (q == *p || *q != ' ') {
        return false;
    }
    *p = q + 1;
    *out = v;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool digest(char **p, uint8_t out[SHA256_SIZE])
{
    char *q = *p;
    for (int i = 0; i < SHA256_SIZE; i++, q += 2) {
        int hi = hex_digit(q[0]), lo = hi < 0 ? -1 : hex_digit(q[1]);
        if (lo < 0) {
            return false;
        }
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    if (*q != ' ') {
        return false;
    }
    *p = q + 1;
    return true;
}

/* One NUL-terminated line without its end. */
static int item(struct meta_list *l, char *s)
{
    struct meta_item it = {.kind = META_FILE};
    bool ok;
    if (strncmp(s, "file ", 5) == 0) {
        s += 5;
        ok = digest(&s, it.sha) && number(&s, &it.size);
    } else if (strncmp(s, "absent ", 7) == 0) {
        s += 7;
        it.kind = META_ABSENT;
        ok = true;
    } else if (strncmp(s, "shard ", 6) == 0) {
        s += 6;
        it.kind = META_SHARD;
        ok = number(&s, &it.size);
        char *sp = ok ? strchr(s, ' ') : NULL;
        ok = sp && sp - s < (long)sizeof it.etag;
        if (ok) {
            if (!(sp - s == 1 && *s == '-')) {
                memcpy(it.etag, s, (size_t)(sp - s));
            }
            s = sp + 1;
        }
    } else {
        return ERR_FORMAT;
    }
    return ok ? meta_list_set(l, s, &it) : ERR_FORMAT;
}

int meta_list_parse(struct meta_list *l, const char *p, size_t n, const char *address,
                    struct err *e)
{
    static const char LAST[] = "end 0123456789abcdef\n";
    size_t tail = sizeof LAST - 1;
    char want[sizeof LAST];
    if (n < tail || memchr(p, 0, n)) {
        return err_set(e, ERR_FORMAT, "the list is cut short or damaged");
    }
    snprintf(want, sizeof want, "end %016" PRIx64 "\n", chunk_xxh(p, n - tail));
    if (memcmp(want, p + n - tail, tail) != 0) {
        return err_set(e, ERR_FORMAT, "the list's checksum differs");
    }
    char *copy = malloc(n + 1);
    if (!copy) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memcpy(copy, p, n);
    copy[n - tail] = 0;
    int r = 0;
    char *line = copy;
    for (int no = 0; !r && *line; no++) {
        char *nl = strchr(line, '\n');
        if (!nl) {
            r = ERR_FORMAT;
            break;
        }
        *nl = 0;
        if (no == 0) {
            r = strncmp(line, "shoal-origin 1 ", 15) == 0 && strcmp(line + 15, address) == 0
                    ? 0
                    : ERR_FORMAT;
        } else {
            r = item(l, line);
        }
        line = nl + 1;
    }
    free(copy);
    if (r) {
        meta_list_free(l);
        return err_set(e, r, "the list is not of this version or not for %s", address);
    }
    return 0;
}
