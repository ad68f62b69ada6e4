/* SPDX-License-Identifier: MIT
 * cmd_cache_ls.c: `shoal cache ls` and `shoal cache path`: what lies in a cache, and where. */
#include "node/cli/cache.h"
#include "node/store/address.h"
#include "node/store/rest_room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct ls_opts {
    struct common_opts common;
    struct cache_where where;
    const char *model;
};

static const struct opt_group ls_groups[] = {
    {"Where", cache_where_table, CACHE_WHERE_COUNT, offsetof(struct ls_opts, where)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static void ago(uint64_t us, char out[CLI_NUM])
{
    int64_t s = (int64_t)time(NULL) - (int64_t)(us / 1000000u);
    if (!us || us < (uint64_t)1000000u * 1000000000u) { /* before 2001: no time was kept then */
        snprintf(out, CLI_NUM, "not known");
    } else if (s < 60) {
        snprintf(out, CLI_NUM, "just now");
    } else {
        char d[CLI_NUM];
        snprintf(out, CLI_NUM, "%.20s ago", s >= 172800 ? "" : cli_duration((double)s, d));
        if (s >= 172800) {
            snprintf(out, CLI_NUM, "%lld days ago", (long long)(s / 86400));
        }
    }
}

static void say_model(const struct rest_model *x, const struct rest_count *k)
{
    char a[CLI_NUM], b[CLI_NUM], d[CLI_NUM], t[CLI_NUM];
    char shown[1000];
    printf("model    %.16s%s%s%s\n", x->root, *x->address ? ", " : "",
           address_shown(x->address, shown, sizeof shown), k->in_use ? ", in use" : "");
    printf("         %llu objects, %s", (unsigned long long)k->objects, cli_bytes(k->bytes, a));
    if (k->of) {
        printf(" of %s; %llu experts, %u of %u layers complete", cli_bytes(k->of_bytes, b),
               (unsigned long long)k->experts, k->complete, k->layers);
    }
    ago(k->last_use, t);
    printf("\n         last used %s; %s written today (UTC)\n", t, cli_bytes(k->written_today, d));
}

static json_t *model_json(const struct rest_model *x, const struct rest_count *k)
{
    json_t *j = json_object();
    json_object_set_new(j, "root", json_string(x->root));
    char shown[4096];
    address_shown(x->address, shown, sizeof shown);
    json_object_set_new(j, "address", *shown ? json_string(shown) : json_null());
    json_object_set_new(j, "objects", json_integer((json_int_t)k->objects));
    json_object_set_new(j, "bytes", json_integer((json_int_t)k->bytes));
    json_object_set_new(j, "experts", json_integer((json_int_t)k->experts));
    json_object_set_new(j, "expert_bytes", json_integer((json_int_t)k->expert_bytes));
    json_object_set_new(j, "objects_of", k->of ? json_integer((json_int_t)k->of) : json_null());
    json_object_set_new(j, "bytes_of", k->of ? json_integer((json_int_t)k->of_bytes) : json_null());
    json_object_set_new(j, "layers", k->of ? json_integer(k->layers) : json_null());
    json_object_set_new(j, "layers_complete", k->of ? json_integer(k->complete) : json_null());
    json_object_set_new(j, "last_use",
                        k->last_use ? json_real((double)k->last_use * 1e-6) : json_null());
    json_object_set_new(j, "written_today", json_integer((json_int_t)k->written_today));
    json_object_set_new(j, "in_use", json_boolean(k->in_use));
    return j;
}

static int run_ls(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct ls_opts *o = opts;
    struct cli_home h;
    struct buf folder;
    struct err e = {0};
    struct rest_models l = {0};
    uint64_t sum = 0;
    char a[CLI_NUM];
    json_t *list = json_array();
    buf_init(&folder, 4096);
    int r = cache_where_open(c, &o->where, &h, &folder, &e);
    r = r ? r : rest_models(folder.p, &l, &e);
    for (size_t i = 0; i < l.n && !r; i++) {
        struct rest_count k;
        r = rest_count(folder.p, &l.v[i], &k, &e);
        sum += k.bytes;
        if (!r && c->json) {
            json_array_append_new(list, model_json(&l.v[i], &k));
        } else if (!r) {
            say_model(&l.v[i], &k);
        }
    }
    int status = r ? cli_fail(c, &e) : CLI_OK;
    if (!r && c->json) {
        status = cli_json(c, json_pack("{s:s,s:I,s:O}", "folder", folder.p, "bytes",
                                       (json_int_t)sum, "models", list));
    } else if (!r) {
        printf("cache    %s: %zu model%s, %s (shoal cache budget: how much it may take)\n",
               folder.p, l.n, l.n == 1 ? "" : "s", cli_bytes(sum, a));
        status = cli_write(c, "", 0);
    }
    json_decref(list);
    rest_models_free(&l);
    buf_free(&folder);
    cli_home_close(&h);
    return status;
}

const struct command cmd_cache_ls = {
    .name = "cache ls",
    .args = "",
    .summary = "show the models in a cache: how much of each is there, and when it was used",
    .details = "Looks at the files; a node may run beside it. Exit status 0 also when there is\n"
               "nothing.",
    .examples = "  shoal cache ls\n  shoal cache ls --cache ~/k3 --json\n",
    .groups = ls_groups,
    .n_groups = sizeof ls_groups / sizeof *ls_groups,
    .size = sizeof(struct ls_opts),
    .run = run_ls,
};

/* ---- path ---- */

static const struct opt path_table[] = {
    {"model", "ROOT",
     "the model whose root begins so, where the cache has several; alone: its folder", OPT_TEXT,
     offsetof(struct ls_opts, model), 0, 0, NULL},
};
static const struct opt_group path_groups[] = {
    {"Which", path_table, 1, 0},
    {"Where", cache_where_table, CACHE_WHERE_COUNT, offsetof(struct ls_opts, where)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static int find_path(const struct ls_opts *o, const char *folder, const char *object,
                     struct buf *out, struct err *e)
{
    struct rest_models l = {0};
    const struct rest_model *x = NULL;
    struct stat sb;
    uint32_t layer, expert;
    if (!object && !o->model) {
        return buf_adds(out, folder);
    }
    int r = rest_models(folder, &l, e);
    r = r ? r : cache_model(&l, folder, o->model, &x, e);
    r = r ? r : buf_addf(out, "%s/models/%s", folder, x->folder);
    if (!r && object && cache_expert(object, &layer, &expert)) {
        r = buf_addf(out, "/experts/%03u/%03u.mxfp4", layer, expert);
    } else if (!r && object && !strncmp(object, "spine/", 6) && !strstr(object, "..")) {
        r = buf_addf(out, "/%s", object);
    } else if (!r && object) {
        r = err_set(e, ERR_ARG,
                    "%.100s is no object: say LAYER.EXPERT such as 17.301, or spine/LLL/TENSOR",
                    object);
    }
    bool missing = !r && stat(out->p, &sb);
    if (missing && object && !strncmp(object, "spine/", 6)) { /* as it lies packed, perhaps */
        size_t plain = out->n;
        r = buf_adds(out, ".packed");
        missing = !r && stat(out->p, &sb);
        if (missing) {
            out->n = plain;
            out->p[plain] = 0;
        }
    }
    if (missing) {
        r = err_set(e, ERR_NOTFOUND, "%.100s is not in the cache: there is no %.400s",
                    object ? object : "it", out->p);
    }
    rest_models_free(&l);
    return r;
}

static int run_path(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct ls_opts *o = opts;
    struct cli_home h;
    struct buf folder, path;
    struct err e = {0};
    buf_init(&folder, 4096);
    buf_init(&path, 8192);
    int r = cache_where_open(c, &o->where, &h, &folder, &e);
    r = r ? r : find_path(o, folder.p, argc ? argv[0] : NULL, &path, &e);
    int status = r         ? cli_fail(c, &e)
                 : c->json ? cli_json(c, json_pack("{s:s}", "path", path.p))
                           : CLI_OK;
    if (!r && !c->json) {
        printf("%s\n", path.p);
        status = cli_write(c, "", 0);
    }
    buf_free(&folder);
    buf_free(&path);
    cli_home_close(&h);
    return status;
}

const struct command cmd_cache_path = {
    .name = "cache path",
    .args = "[LAYER.EXPERT | spine/LLL/TENSOR]",
    .summary = "show where an object, a model or the cache lies",
    .details = "Without an object the folder of the cache, or with --model that of the model. It\n"
               "fails when nothing is there. Read these files as you like, and change none.",
    .examples = "  shoal cache path 17.301\n  shoal cache path --model 4444735e\n",
    .groups = path_groups,
    .n_groups = sizeof path_groups / sizeof *path_groups,
    .max_args = 1,
    .size = sizeof(struct ls_opts),
    .run = run_path,
};
