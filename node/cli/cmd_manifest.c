/* SPDX-License-Identifier: MIT
 * cmd_manifest.c: `shoal manifest`: published digests of a whole model: made, taken in, given on,
 * shown. */
#include "node/cli/home.h"
#include "node/cli/manifest.h"
#include "node/store/manifest.h"
#include "node/store/words.h"
#include "proto/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct manifest_opts {
    struct common_opts common;
    struct home_opts home;
    const char *cache, *model, *out, *key, *sha256;
    bool sign;
};

#define AT(f) offsetof(struct manifest_opts, f)
static const struct opt table[] = {
    {"out", "FILE", "build, export: where the manifest goes", OPT_TEXT, AT(out), 0, 0, NULL},
    {"sign", NULL, "build: sign it with the key of the home's node", OPT_FLAG, AT(sign), 0, 0,
     NULL},
    {"key", "NODE", "import: take it only if this node (its id in full) signed it", OPT_TEXT,
     AT(key), 0, 0, NULL},
    {"sha256", "HEX", "import: take it only if the file has this SHA-256", OPT_TEXT, AT(sha256), 0,
     0, NULL},
    {"cache", "DIR", "the cache folder, in place of that of the home", OPT_TEXT, AT(cache), 0, 0,
     NULL},
    {"model", "DIR|URL",
     "build without a folder: the model's address, whose cached objects are "
     "listed",
     OPT_TEXT, AT(model), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Manifest", table, sizeof table / sizeof *table, 0},
    {"Where", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

/* HOME/cache, or what was given. */
static int cache_of(const struct manifest_opts *o, const struct cli_home *h, struct buf *out,
                    struct err *e)
{
    return cli_cache_find(o->cache, h->path, NULL, out, e);
}

/* ---- show ---- */

/* Whose signature it has, checked; "" for none. */
static int signer(const struct manifest *m, const struct buf *b, char text[ID_TEXT], struct err *e)
{
    struct key_id id;
    text[0] = 0;
    if (!m->pub) {
        return 0;
    }
    int r = crypto_public_check(m->pub, e);
    r = r ? r : crypto_verify(m->pub, b->p, m->signed_n, m->sig, m->sig_n, e);
    if (r) {
        err_prefix(e, "the manifest's signature is wrong");
        return r;
    }
    crypto_key_id(m->pub, &id);
    id_text(&id, text);
    return 0;
}

static json_t *describe(const struct manifest *m, const struct buf *b, const char *who)
{
    char hex[2 * SHA256_SIZE + 1], root[2 * SHA256_SIZE + 1];
    uint8_t sum[SHA256_SIZE];
    struct manifest_shard s;
    size_t at = 0;
    uint32_t compared = 0;
    uint64_t bytes = 0;
    json_t *shards = json_array();
    sha256(b->p, b->n, sum);
    sha256_hex(sum, hex);
    sha256_hex(m->root, root);
    while (manifest_shard(m, &at, &s)) {
        char x[2 * SHA256_SIZE + 1];
        sha256_hex(s.sha256, x);
        compared += s.checked == MANIFEST_HUB;
        json_array_append_new(shards, json_pack("{s:s, s:I, s:s, s:b}", "name", s.name, "size",
                                                (json_int_t)s.size, "sha256", x, "hub",
                                                s.checked == MANIFEST_HUB));
    }
    for (uint32_t i = 0; i < m->n; i++) {
        bytes += manifest_size(m, i);
    }
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:s?}", "sha256", hex, "root", root,
                     "objects", (json_int_t)m->n, "known", (json_int_t)m->known, "bytes",
                     (json_int_t)bytes, "compared", (json_int_t)compared, "shards", shards,
                     "signed_by", *who ? who : NULL);
}

static int show(struct cli *c, const struct manifest *m, const struct buf *b, const char *who)
{
    json_t *d = describe(m, b, who);
    char n[CLI_NUM];
    if (c->json) {
        return cli_json(c, d);
    }
    printf("model %.12s: digests of %u of %u objects, %s\n",
           json_string_value(json_object_get(d, "root")), m->known, m->n,
           cli_bytes((uint64_t)json_integer_value(json_object_get(d, "bytes")), n));
    printf("SHA-256 of the file: %s\n", json_string_value(json_object_get(d, "sha256")));
    if (m->n_shards) {
        printf("from %u whole shards, %lld of them compared with the hub's SHA-256\n", m->n_shards,
               json_integer_value(json_object_get(d, "compared")));
    } else {
        printf("from objects of a cache; no whole shard was looked at\n");
    }
    printf(*who ? "signed by %s\n" : "not signed\n", who);
    json_decref(d);
    return cli_write(c, "", 0);
}

static int parse(const struct buf *b, struct manifest *m, char who[ID_TEXT], struct err *e)
{
    int r = manifest_parse(b->p, b->n, m, e);
    return r ? r : signer(m, b, who, e);
}

static int cmd_show(struct cli *c, const char *from)
{
    struct buf b;
    struct manifest m;
    struct err e = {0};
    char who[ID_TEXT];
    buf_init(&b, MANIFEST_MAX);
    int r = manifest_fetch(from, &b, &e);
    r = r ? r : parse(&b, &m, who, &e);
    int status = r ? cli_fail(c, &e) : show(c, &m, &b, who);
    buf_free(&b);
    return status;
}

/* ---- import ---- */

static int pinned(const struct manifest_opts *o, const char *from, const struct buf *b,
                  const char *who, struct err *e)
{
    char hex[2 * SHA256_SIZE + 1];
    uint8_t sum[SHA256_SIZE];
    struct key_id want, got;
    sha256(b->p, b->n, sum);
    sha256_hex(sum, hex);
    if (o->sha256 && strcasecmp(o->sha256, hex) != 0) {
        return err_set(e, ERR_DIGEST, "%.200s has the SHA-256 %s, not the one that was given", from,
                       hex);
    }
    if (o->key) {
        int r = id_parse(o->key, &want, e);
        if (r) {
            return r;
        }
        if (!*who || id_parse(who, &got, NULL) || !id_equal(&want, &got)) {
            return err_set(e, ERR_DIGEST, "%.200s is %s%s, not by the node that was given", from,
                           *who ? "signed by " : "not signed", who);
        }
    }
    if (!strncmp(from, "http://", 7) && !o->key && !o->sha256) {
        return err_set(e, ERR_REFUSED,
                       "%.200s comes over a connection that anybody may change: give --sha256 or "
                       "--key",
                       from);
    }
    return 0;
}

static int cmd_import(struct cli *c, const struct manifest_opts *o, struct cli_home *h,
                      const char *from)
{
    struct buf b, cache;
    struct manifest m;
    struct err e = {0};
    char who[ID_TEXT];
    buf_init(&b, MANIFEST_MAX);
    buf_init(&cache, 4096);
    int r = manifest_fetch(from, &b, &e);
    r = r ? r : parse(&b, &m, who, &e);
    r = r ? r : pinned(o, from, &b, who, &e);
    r = r ? r : cache_of(o, h, &cache, &e);
    r = r ? r : store_manifest_import(cache.p, b.p, b.n, &e);
    int status = r ? cli_fail(c, &e) : show(c, &m, &b, who);
    if (!r) {
        cli_note(c, "imported into %s: a running node acts on it within half a minute", cache.p);
    }
    buf_free(&b);
    buf_free(&cache);
    return status;
}

/* ---- build, export ---- */

static int put(struct cli *c, const char *path, const struct buf *b)
{
    struct err e = {0};
    struct manifest m;
    char who[ID_TEXT];
    int r = parse(b, &m, who, &e);
    r = r ? r : file_write_atomic(path, b->p, b->n, 0644, &e);
    return r ? cli_fail(c, &e) : show(c, &m, b, who);
}

static int finish(const struct manifest_opts *o, struct cli_home *h, struct buf *b, struct err *e)
{
    uint8_t sig[CRYPTO_SIG_MAX];
    size_t n = 0;
    int r = 0;
    if (o->sign && !h->me.key) {
        return err_set(e, ERR_NOTFOUND, "there is no node in %s whose key could sign", h->path);
    }
    if (o->sign) {
        r = crypto_sign(h->me.key, b->p, b->n, sig, &n, e);
    }
    if (!r && manifest_end(b, o->sign ? crypto_key_public(h->me.key) : NULL, sig, n)) {
        r = err_set(e, ERR_LIMIT, "the manifest is too long");
    }
    return r;
}

static int cmd_build(struct cli *c, const struct manifest_opts *o, struct cli_home *h,
                     const char *dir)
{
    struct buf b, cache;
    struct err e = {0};
    uint32_t objects, shards, compared;
    buf_init(&b, MANIFEST_MAX);
    buf_init(&cache, 4096);
    int r = dir ? manifest_of_folder(c, dir, &b, &objects, &shards, &compared, &e)
                : cache_of(o, h, &cache, &e);
    if (!r && !dir) {
        r = manifest_of_cache(o->model, cache.p, &b, &objects, &e);
    }
    r = r ? r : finish(o, h, &b, &e);
    int status = r ? cli_fail(c, &e) : put(c, o->out, &b);
    buf_free(&b);
    buf_free(&cache);
    return status;
}

static int cmd_export(struct cli *c, const struct manifest_opts *o, struct cli_home *h,
                      const char *root)
{
    struct buf b, cache;
    struct err e = {0};
    buf_init(&b, MANIFEST_MAX);
    buf_init(&cache, 4096);
    int r = cache_of(o, h, &cache, &e);
    r = r ? r : store_manifest_export(cache.p, root, &b, &e);
    int status = r ? cli_fail(c, &e) : put(c, o->out, &b);
    buf_free(&b);
    buf_free(&cache);
    return status;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct manifest_opts *o = opts;
    const char *what = argv[0], *arg = argc > 1 ? argv[1] : NULL;
    bool build = !strcmp(what, "build"), import = !strcmp(what, "import"),
         export = !strcmp(what, "export"), is_show = !strcmp(what, "show");
    struct cli_home h;
    struct err e = {0};
    if (!build && !import && !export && !is_show) {
        return cli_usage(c, "manifest: \"%.40s\" is none of build, import, export, show", what);
    }
    if (!arg && !(build && o->model)) {
        return cli_usage(c, build    ? "manifest build: a folder with whole shards, or --model and "
                                       "its cache"
                            : export ? "manifest export: the model's root (shoal manifest show "
                                       "prints it)"
                                     : "manifest: the file or address of a manifest");
    }
    if ((build || export) && !o->out) {
        return cli_usage(c, "manifest %s: give --out FILE", what);
    }
    if (build && arg && o->model) {
        return cli_usage(c, "manifest build: either a folder or --model");
    }
    if (is_show) {
        return cmd_show(c, arg);
    }
    int status;
    if (cli_home_open(&h, c, &o->home, o->sign ? HOME_LOOK : HOME_PATH, &e)) {
        status = cli_fail(c, &e);
    } else {
        status = build    ? cmd_build(c, o, &h, arg)
                 : import ? cmd_import(c, o, &h, arg)
                          : cmd_export(c, o, &h, arg);
    }
    cli_home_close(&h);
    return status;
}

const struct command cmd_manifest = {
    .name = "manifest",
    .args = "build|import|export|show [DIR|FILE|URL|ROOT]",
    .summary = "publish, take in and show the digests of a whole model",
    .details =
        "A manifest lists the digest of every object of a model. Who built it from whole shards "
        "that\n"
        "were compared with the hub has checked the weights once for all: with it in the cache, "
        "bytes\n"
        "from peers and mirrors are compared on receipt, and a member that states other digests "
        "is\n"
        "found at once. Take one from somebody you trust: by the signer's id (--key) or by the "
        "SHA-256\n"
        "of the file (--sha256).\n",
    .examples = "  shoal manifest build /models/k3 --out k3.manifest --sign\n"
                "  shoal manifest import k3.manifest --sha256 4f0c...\n"
                "  shoal manifest show k3.manifest\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .min_args = 1,
    .max_args = 2,
    .size = sizeof(struct manifest_opts),
    .run = run,
};
