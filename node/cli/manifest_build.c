/* SPDX-License-Identifier: MIT
 * manifest_build.c: see manifest.h. */
#include "node/cli/manifest.h"

#include "node/store/chunk.h"
#include "node/store/manifest.h"
#include "node/store/store.h"
#include "node/store/words.h"
#include "proto/base/file.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_AT_ONCE ((size_t)1 << 20)

/* The second line of what the hub's program notes beside a download: for a large file its SHA-256.
 */
static bool hub_sha256(const char *dir, const char *name, char hex[2 * SHA256_SIZE + 1])
{
    char path[1200];
    struct buf b;
    bool found = false;
    snprintf(path, sizeof path, "%s/.cache/huggingface/download/%s.metadata", dir, name);
    buf_init(&b, 4096);
    if (!file_read_all(path, &b, NULL)) {
        const char *line = strchr(b.p, '\n');
        found = line && strspn(line + 1, "0123456789abcdef") == (size_t)2 * SHA256_SIZE;
        if (found) {
            memcpy(hex, line + 1, (size_t)2 * SHA256_SIZE);
            hex[2 * SHA256_SIZE] = 0;
        }
    }
    buf_free(&b);
    return found;
}

static int hash_file(const char *path, struct manifest_shard *s, struct err *e)
{
    struct sha256 h;
    struct stat st;
    uint8_t *p = malloc(READ_AT_ONCE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = !p                         ? err_set(e, ERR_NOMEM, "out of memory")
            : fd < 0 || fstat(fd, &st) ? err_sys(e, errno, "cannot read %s", path)
                                       : 0;
    sha256_init(&h);
    for (uint64_t at = 0; !r && at < (uint64_t)st.st_size;) {
        size_t n = (uint64_t)st.st_size - at < READ_AT_ONCE ? (size_t)((uint64_t)st.st_size - at)
                                                            : READ_AT_ONCE;
        r = file_pread(fd, path, p, n, at, e);
        sha256_add(&h, p, n);
        at += n;
    }
    if (!r) {
        s->size = (uint64_t)st.st_size;
        sha256_done(&h, s->sha256);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(p);
    return r;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct manifest_shard *)a)->name,
                  ((const struct manifest_shard *)b)->name);
}

static int add_shards(const struct cli *c, const char *dir, const struct model *m, struct buf *out,
                      uint32_t *compared, struct err *e)
{
    uint32_t n = model_shard_count(m);
    struct manifest_shard *s = calloc(n ? n : 1, sizeof *s);
    int r = s ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; !r && i < n; i++) {
        char path[1200], hub[2 * SHA256_SIZE + 1], hex[2 * SHA256_SIZE + 1];
        const char *name = model_shard(m, i)->file;
        if (strlen(name) > MANIFEST_NAME_MAX || strchr(name, '/')) {
            r = err_set(e, ERR_UNSUPPORTED, "the shard %.80s cannot stand in a manifest", name);
            break;
        }
        snprintf(s[i].name, sizeof s[i].name, "%s", name);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        cli_note(c, "%s: reading all of it (%u of %u)", name, i + 1, n);
        r = hash_file(path, &s[i], e);
        if (!r && hub_sha256(dir, name, hub)) {
            sha256_hex(s[i].sha256, hex);
            s[i].checked = MANIFEST_HUB;
            ++*compared;
            if (strcmp(hex, hub) != 0) {
                r = err_set(e, ERR_DIGEST,
                            "%s has the SHA-256 %.16s..., and the hub has %.16s... for it: the "
                            "file is damaged or was changed; fetch it again",
                            path, hex, hub);
            }
        }
    }
    if (!r && n) {
        qsort(s, n, sizeof *s, by_name);
    }
    for (uint32_t i = 0; !r && i < n; i++) {
        r = manifest_add_shard(out, &s[i]);
        r = r ? err_set(e, r, "a manifest: %s", err_text(r)) : 0;
    }
    free(s);
    return r;
}

static int object_digest(struct store *st, uint32_t id, uint64_t size, uint8_t *p,
                         uint8_t out[SHA256_SIZE], struct err *e)
{
    struct sha256 all;
    sha256_init(&all);
    for (uint32_t i = 0; i < chunk_count(size); i++) {
        uint8_t one[SHA256_SIZE];
        size_t n = chunk_len(size, i);
        int r = store_read(st, id, (uint64_t)i * CHUNK_SIZE, p, n, e);
        if (r) {
            return r;
        }
        sha256(p, n, one);
        sha256_add(&all, one, sizeof one);
    }
    sha256_done(&all, out);
    return 0;
}

int manifest_of_folder(const struct cli *c, const char *dir, struct buf *out, uint32_t *objects,
                       uint32_t *shards, uint32_t *compared, struct err *e)
{
    struct store_opts o = {.model = dir, .offline = true};
    struct store *st = NULL;
    *objects = *shards = *compared = 0;
    int r = store_open(&o, &st, e);
    if (r) {
        return r;
    }
    const struct model *m = store_model(st);
    uint8_t *p = malloc(CHUNK_SIZE);
    *objects = model_object_count(m);
    *shards = model_shard_count(m);
    if (!p || manifest_begin(out, model_root(m), *objects, *shards)) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    r = r ? r : add_shards(c, dir, m, out, compared, e);
    for (uint32_t id = 0; !r && id < *objects; id++) {
        uint8_t digest[SHA256_SIZE];
        uint64_t size = model_object(m, id)->size;
        r = object_digest(st, id, size, p, digest, e);
        if (!r && manifest_add_object(out, size, digest)) {
            r = err_set(e, ERR_LIMIT, "the model has too many objects for a manifest");
        }
        if (!r && cli_interrupted()) {
            r = err_set(e, ERR_CANCELLED, "interrupted");
        }
    }
    free(p);
    store_close(st);
    return r;
}

int manifest_of_cache(const char *model, const char *cache, struct buf *out, uint32_t *known,
                      struct err *e)
{
    struct store_opts o = {.model = model, .cache_dir = cache, .offline = true};
    struct store *st = NULL;
    int r = store_open(&o, &st, e);
    r = r ? r : store_manifest_gather(st, out, known, e);
    store_close(st);
    return r;
}

/* ---- reading one ---- */

static size_t take(char *p, size_t size, size_t n, void *ctx)
{
    return buf_add(ctx, p, size * n) ? 0 : size * n;
}

static int download(const char *url, struct buf *out, struct err *e)
{
    long status = 0;
    CURL *h = curl_global_init(CURL_GLOBAL_DEFAULT) ? NULL : curl_easy_init();
    if (!h) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR,
                     strncmp(url, "https", 5) ? "http,https" : "https");
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(h, CURLOPT_MAXREDIRS, 8L);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, 20L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, 30L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, out);
    CURLcode k = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    int r = k == CURLE_WRITE_ERROR ? err_set(e, ERR_LIMIT, "%.300s is too long for a manifest", url)
            : k ? err_set(e, ERR_NET, "cannot fetch %.300s: %s", url, curl_easy_strerror(k))
            : status != 200
                ? err_set(e, ERR_NET, "cannot fetch %.300s: the answer is %ld", url, status)
                : 0;
    curl_easy_cleanup(h);
    curl_global_cleanup();
    return r;
}

int manifest_fetch(const char *from, struct buf *out, struct err *e)
{
    bool url = !strncmp(from, "http://", 7) || !strncmp(from, "https://", 8);
    return url ? download(from, out, e) : file_read_all(from, out, e);
}
