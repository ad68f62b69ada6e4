/* SPDX-License-Identifier: MIT
 * manifest_cache.c: see words.h: manifests in a cache folder. The imported one lies beside the
 * model's objects as the file "manifest". */
#include "node/store/words.h"

#include "node/store/catalog.h"
#include "node/store/disk.h"
#include "node/store/engine.h"
#include "node/store/layout.h"
#include "node/store/manifest.h"
#include "proto/base/file.h"

#include <stdlib.h>
#include <string.h>

struct against {
    const struct manifest *mf;
    uint64_t same, differ, others; /* others: that rest on peers' words */
    uint32_t first;
};

static int compare_row(void *ctx, uint32_t id, struct digest *d, uint64_t last_use)
{
    struct against *a = ctx;
    (void)last_use;
    const uint8_t *want = id < a->mf->n ? manifest_digest(a->mf, id) : NULL;
    if (want && memcmp(want, d->sha, SHA256_SIZE) == 0) {
        a->same++;
    } else if (want && d->source == DIGEST_ORIGIN) {
        a->first = a->differ++ ? a->first : id;
    } else if (want) {
        a->others++;
    }
    free(d);
    return 0;
}

int store_manifest_import(const char *cache_dir, const void *p, size_t n, struct err *e)
{
    struct manifest mf;
    struct catalog *c = NULL;
    struct against a = {.mf = &mf};
    char hex[2 * SHA256_SIZE + 1];
    int64_t model = 0;
    uint64_t bad = 0;
    int r = manifest_parse(p, n, &mf, e);
    if (r) {
        return r;
    }
    sha256_hex(mf.root, hex);
    r = layout_prepare(cache_dir, e);
    r = r ? r : catalog_open(cache_dir, NULL, NULL, &c, e);
    r = r ? r : catalog_model(c, hex, &model, e);
    r = r ? r : catalog_load(c, model, compare_row, &a, &bad, e);
    catalog_close(c);
    if (!r && a.differ) {
        r = err_set(e, ERR_DIGEST,
                    "%llu of the %llu objects that %s holds by its own download have other digests "
                    "in this manifest (the first is number %u): it is of another checkpoint with "
                    "the same metadata; use another cache folder for that one",
                    (unsigned long long)a.differ, (unsigned long long)(a.same + a.differ),
                    cache_dir, a.first);
    }
    char *dir = layout_model_dir(cache_dir, mf.root);
    char *path = dir ? layout_path("%s/manifest", dir) : NULL;
    if (!r && !path) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    r = r ? r : file_mkdirs(dir, e);
    r = r ? r : file_write_atomic(path, p, n, 0600, e);
    free(dir);
    free(path);
    return r;
}

int store_manifest_export(const char *cache_dir, const char *root_hex, struct buf *out,
                          struct err *e)
{
    if (strlen(root_hex) < 16 || strspn(root_hex, "0123456789abcdef") < 16) {
        return err_set(e, ERR_ARG, "\"%.80s\" is not the root of a model", root_hex);
    }
    char *path = layout_path("%s/models/%.16s/manifest", cache_dir, root_hex);
    struct err e1 = {0};
    int r = path ? file_read_all(path, out, &e1) : err_set(e, ERR_NOMEM, "out of memory");
    if (r == ERR_NOTFOUND) {
        r = err_set(e, ERR_NOTFOUND, "no manifest was imported for the model %.16s into %s",
                    root_hex, cache_dir);
    } else if (r && path && e) {
        *e = e1;
    }
    free(path);
    return r;
}

int store_manifest_gather(struct store *st, struct buf *out, uint32_t *known, struct err *e)
{
    *known = 0;
    int r = st->disk ? manifest_begin(out, model_root(st->m), st->n_ent, 0)
                     : err_set(e, ERR_UNSUPPORTED, "there is no cache to make a manifest of");
    for (uint32_t id = 0; !r && id < st->n_ent; id++) {
        uint8_t digest[SHA256_SIZE];
        bool own = disk_own_digest(st->disk, id, digest);
        *known += own;
        r = manifest_add_object(out, eng_object(st, id)->size, own ? digest : NULL);
    }
    return r && st->disk ? err_set(e, r, "a manifest: %s", err_text(r)) : r;
}
