/* SPDX-License-Identifier: MIT
 * hub.c: see hub.h: names and addresses, and the record of a commit. The question is hub_ask.c. */
#include "node/store/hub.h"

#include "node/store/hub_ask.h"
#include "node/store/http_net.h"
#include "node/store/layout.h"
#include "proto/base/file.h"
#include "proto/base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define RECORD_MAX 2048
#define SEGMENT_MAX 96 /* of org and of name */

static bool word(const char *p, size_t n)
{
    if (n == 0 || n > SEGMENT_MAX || p[0] == '.' || p[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') ||
              (p[i] >= '0' && p[i] <= '9') || p[i] == '.' || p[i] == '_' || p[i] == '-')) {
            return false;
        }
    }
    return true;
}

/* Branches may have slashes ("refs/pr/1"); nothing that could leave the path. It is to fit as an
 * address has it, too. */
static bool revision_ok(const char *s)
{
    size_t escaped = 0;
    if (!*s || *s == '/' || *s == '.' || strstr(s, "..") || s[strlen(s) - 1] == '/') {
        return false;
    }
    for (; *s; s++) {
        if (!word(s, 1) && *s != '/' && *s != '.' && *s != '-') {
            return false;
        }
        escaped += *s == '/' ? 3 : 1;
    }
    return escaped < HUB_PART_MAX;
}

static bool copy(char out[HUB_PART_MAX], const char *p, size_t n)
{
    if (n >= HUB_PART_MAX) {
        return false;
    }
    memcpy(out, p, n);
    out[n] = 0;
    return true;
}

/* "%2F" stands for a slash in a revision of an address. */
static bool unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s == '%') {
            if (strncasecmp(s, "%2f", 3) != 0) {
                return false;
            }
            *to++ = '/';
            s += 2;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
    return true;
}

/* org/name at p: how many bytes, 0: it is none, or something else of the hub. */
static size_t repo_at(const char *p)
{
    static const char *const not_models[] = {"datasets/", "spaces/", "api/", "docs/"};
    for (size_t i = 0; i < sizeof not_models / sizeof *not_models; i++) {
        if (strncmp(p, not_models[i], strlen(not_models[i])) == 0) {
            return 0;
        }
    }
    size_t a = strcspn(p, "/");
    if (p[a] != '/' || !word(p, a)) {
        return 0;
    }
    size_t b = strcspn(p + a + 1, "/@");
    return word(p + a + 1, b) ? a + 1 + b : 0;
}

static bool by_address(const char *model, size_t site_n, struct hub_name *out)
{
    const char *p = model + site_n;
    while (*p == '/') {
        p++;
    }
    size_t n = repo_at(p);
    if (!n || p[n] == '@' || strpbrk(p, "?#") || !copy(out->repo, p, n)) {
        return false;
    }
    p += n;
    while (*p == '/') {
        p++;
    }
    if (!*p) {
        return copy(out->revision, "main", 4);
    }
    size_t verb = strncmp(p, "tree/", 5) == 0 ? 5 : strncmp(p, "resolve/", 8) == 0 ? 8 : 0;
    if (!verb) {
        return false;
    }
    p += verb;
    n = strcspn(p, "/");
    if (!copy(out->revision, p, n) || !unescape(out->revision) || !revision_ok(out->revision)) {
        return false;
    }
    p += n;
    n = strlen(p);
    while (n && p[n - 1] == '/') {
        n--;
    }
    return copy(out->folder, p, n);
}

bool hub_parse(const char *model, const char *site, bool short_form, struct hub_name *out)
{
    memset(out, 0, sizeof *out);
    size_t n = strlen(site);
    while (n && site[n - 1] == '/') {
        n--;
    }
    if (!copy(out->site, site, n)) {
        return false;
    }
    if (strncasecmp(model, out->site, n) == 0 && (model[n] == '/')) {
        return by_address(model, n, out);
    }
    if (strncmp(model, "hf://", 5) == 0) {
        model += 5;
    } else if (!short_form) {
        return false;
    }
    n = repo_at(model);
    if (!n || (model[n] && model[n] != '@') || !copy(out->repo, model, n)) {
        return false;
    }
    const char *rev = model[n] ? model + n + 1 : "main";
    return revision_ok(rev) && copy(out->revision, rev, strlen(rev));
}

bool hub_is_commit(const char *revision)
{
    size_t n = strspn(revision, "0123456789abcdef");
    return (n == 40 || n == 64) && !revision[n];
}

int hub_address(const struct hub_name *n, const char *revision, struct buf *out)
{
    int r = buf_addf(out, "%s/%s/resolve/", n->site, n->repo);
    for (; !r && *revision; revision++) {
        r = *revision == '/' ? buf_adds(out, "%2F") : buf_add(out, revision, 1);
    }
    return r ? r : buf_adds(out, n->folder);
}

bool hub_same_site(const char *url, const char *site)
{
    return http_same_site(url, site);
}

bool hub_cached(const char *cache_dir, const char *address)
{
    char *dir = layout_origin_dir(cache_dir, address);
    bool there = dir && access(dir, F_OK) == 0;
    free(dir);
    return there;
}

/* ---- the record ---- */

int hub_pin_text(const struct hub_name *n, const struct hub_pin *p, struct buf *out)
{
    return buf_addf(out, "shoal-revision 1\n%s/%s\n%s\n%s\n%lld\n", n->site, n->repo, n->revision,
                    p->commit, (long long)p->since);
}

int hub_pin_parse(const struct hub_name *n, const void *text, size_t size, struct hub_pin *out)
{
    struct hub_pin p = {.commit = ""};
    char copy_of[RECORD_MAX];
    if (size >= sizeof copy_of) {
        return ERR_FORMAT;
    }
    memcpy(copy_of, text, size);
    copy_of[size] = 0;
    char *line = copy_of;
    for (int i = 0; i < 3; i++) {
        line = strchr(line, '\n');
        if (!line) {
            return ERR_FORMAT;
        }
        line++;
    }
    size_t k = strcspn(line, "\n");
    if (k >= sizeof p.commit) {
        return ERR_FORMAT;
    }
    memcpy(p.commit, line, k);
    long long since = line[k] ? strtoll(line + k + 1, NULL, 10) : 0;
    p.since = since;
    struct buf again; /* it is right if it would be written so */
    buf_init(&again, RECORD_MAX);
    bool same = hub_is_commit(p.commit) && since > 0 && !hub_pin_text(n, &p, &again) &&
                again.n == size && memcmp(again.p, text, size) == 0;
    buf_free(&again);
    if (!same) {
        return ERR_FORMAT;
    }
    *out = p;
    return 0;
}

static char *record_path(const char *cache_dir, const struct hub_name *n)
{
    struct buf key;
    uint8_t d[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1], *path = NULL;
    buf_init(&key, RECORD_MAX);
    if (!buf_addf(&key, "%s/%s\n%s", n->site, n->repo, n->revision)) {
        sha256(key.p, key.n, d);
        sha256_hex(d, hex);
        path = layout_path("%s/revisions/%.16s", cache_dir, hex);
    }
    buf_free(&key);
    return path;
}

static int read_record(const char *path, const struct hub_name *n, struct hub_pin *out,
                       struct err *e)
{
    struct buf text;
    buf_init(&text, RECORD_MAX - 1);
    int r = access(path, F_OK) ? err_set(e, ERR_NOTFOUND, "nothing is on record")
                               : file_read_all(path, &text, e);
    if (!r && hub_pin_parse(n, text.p ? text.p : "", text.n, out)) {
        r = err_set(e, ERR_FORMAT,
                    "the record %s of which commit %s of %s is used here is damaged: "
                    "--new-revision asks the hub and makes a new one",
                    path, n->revision, n->repo);
    }
    buf_free(&text);
    return r;
}

static int write_record(const char *path, const struct hub_name *n, const struct hub_pin *p,
                        struct err *e)
{
    struct buf text;
    buf_init(&text, RECORD_MAX);
    char *dir = strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
    int r = slash && !hub_pin_text(n, p, &text) ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r) {
        *slash = 0;
        r = file_mkdirs(dir, e);
    }
    r = r ? r : file_write_atomic(path, text.p, text.n, 0644, e);
    free(dir);
    buf_free(&text);
    return r;
}

int hub_pin(const struct hub_pin_opts *o, const struct hub_name *n, struct hub_pin *out,
            struct err *e)
{
    memset(out, 0, sizeof *out);
    if (hub_is_commit(n->revision)) {
        snprintf(out->commit, sizeof out->commit, "%.64s", n->revision);
        return 0;
    }
    char *path = record_path(o->cache_dir, n);
    if (!path) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = o->anew ? ERR_NOTFOUND : read_record(path, n, out, e);
    if (r == ERR_NOTFOUND && o->offline) {
        r = err_set(e, ERR_OFFLINE,
                    "which commit %s of %s is has not been asked yet, and the hub may not be asked "
                    "(offline): run once without, or name a commit: %s@COMMIT",
                    n->revision, n->repo, n->repo);
    } else if (r == ERR_NOTFOUND) {
        r = hub_ask(n, o->token, o->ca_file, out->commit, e);
        out->since = (int64_t)time(NULL);
        out->fresh = true;
        r = r ? r : write_record(path, n, out, e);
    }
    free(path);
    return r;
}
