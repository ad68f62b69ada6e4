/* SPDX-License-Identifier: MIT
 * cmd_cache_adopt.c: `shoal cache adopt`: folders of others, used in place. The list of them is a
 * file of the cache; a running node is told to look at it. */
#include "node/cli/cache.h"
#include "node/daemon/node.h"
#include "node/store/adopt_list.h"
#include "node/store/at_rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct adopt_opts {
    struct common_opts common;
    struct cache_where where;
    bool list, forget;
};

static const struct opt table[] = {
    {"list", NULL, "show what is adopted, and what it gives", OPT_FLAG,
     offsetof(struct adopt_opts, list), 0, 0, NULL},
    {"forget", NULL, "use the folder no longer; nothing in it is touched", OPT_FLAG,
     offsetof(struct adopt_opts, forget), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Adopting", table, 2, 0},
    {"Where", cache_where_table, CACHE_WHERE_COUNT, offsetof(struct adopt_opts, where)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static json_t *row(const struct store_adopted *a, const char *root)
{
    return json_pack("{s:s,s:s,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:I}", "path", a->path, "root", root,
                     "here", a->here, "other_model", a->other_model, "objects",
                     (json_int_t)a->objects, "experts", (json_int_t)a->experts, "bytes",
                     (json_int_t)a->bytes, "looked", (json_int_t)a->looked, "looked_bytes",
                     (json_int_t)a->looked_bytes, "refused", (json_int_t)a->refused);
}

/* What the folders give, of each model whose metadata the cache has. */
static int at_rest(const char *folder, json_t *rows, size_t *models, struct err *e)
{
    struct rest_models l;
    int r = rest_models(folder, &l, e);
    *models = 0;
    for (size_t i = 0; i < l.n && !r; i++) {
        struct store_adopted v[STORE_ADOPTED_MAX];
        size_t n = 0;
        if (!l.v[i].m) {
            continue;
        }
        ++*models;
        r = rest_adopted(folder, &l.v[i], v, STORE_ADOPTED_MAX, &n, e);
        for (size_t k = 0; k < n; k++) {
            json_array_append_new(rows, row(&v[k], l.v[i].root));
            free((char *)v[k].path);
        }
    }
    rest_models_free(&l);
    return r;
}

static double number(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

/* The rows of one folder, for people; false: it gives nothing of any model. */
static bool say_folder(const char *path, const json_t *rows, size_t models)
{
    char a[CLI_NUM], b[CLI_NUM];
    bool any = false, here = false, other = false;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *x = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(x, "path")), path) != 0) {
            continue;
        }
        here |= json_is_true(json_object_get(x, "here"));
        other |= json_is_true(json_object_get(x, "other_model"));
        if (number(x, "objects") > 0) {
            any = true;
            printf("%s\n  %.0f experts and %.0f other objects, %s; %s of them read and right", path,
                   number(x, "experts"), number(x, "objects") - number(x, "experts"),
                   cli_bytes((uint64_t)number(x, "bytes"), a),
                   cli_bytes((uint64_t)number(x, "looked_bytes"), b));
            printf(number(x, "refused") > 0 ? ", %.0f objects refused\n" : "\n",
                   number(x, "refused"));
        }
    }
    if (!any) {
        printf("%s\n  %s\n", path,
               !models ? "this cache knows no model yet: it is used as soon as one is opened"
               : other ? "it is of another model: nothing of it is used"
               : !here ? "nothing of a model of this cache is there now"
                       : "what it has is there already, or in another adopted folder");
    }
    return any;
}

static int show(struct cli *c, const char *folder, const struct adopt_list *which, json_t *rows,
                size_t models, const char *key, size_t changed)
{
    if (c->json) {
        json_t *paths = json_array();
        for (size_t i = 0; i < which->n; i++) {
            json_array_append_new(paths, json_string(which->path[i]));
        }
        return cli_json(c, json_pack("{s:s,s:I,s:o,s:O}", "folder", folder, key,
                                     (json_int_t)changed, "folders", paths, "adopted", rows));
    }
    for (size_t i = 0; i < which->n; i++) {
        say_folder(which->path[i], rows, models);
    }
    if (!which->n) {
        printf("nothing is adopted in %s\n", folder);
    }
    return cli_write(c, "", 0);
}

/* --forget may name a folder that is away: then its path as it stands on the list. */
static int named(const char *dir, const char *folder, struct adopt_list *out, struct err *e)
{
    struct err e1 = {0};
    struct adopt_list all = {.n = 0};
    int r = adopt_find(dir, out, &e1);
    if (r != ERR_NOTFOUND) {
        if (r && e) {
            *e = e1;
        }
        return r;
    }
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') {
        n--;
    }
    r = adopt_list_read(folder, &all, e);
    for (size_t i = 0; i < all.n && !r; i++) {
        const char *p = all.path[i];
        if (!strncmp(p, dir, n) && (p[n] == 0 || p[n] == '/')) {
            char *s = strdup(p);
            if (s) {
                out->path[out->n++] = s;
            }
        }
    }
    adopt_list_free(&all);
    return r || out->n ? r : err_set(e, ERR_NOTFOUND, "%.300s is not adopted", dir);
}

/* A cache must not be a part of itself. */
static int outside(const char *folder, const struct adopt_list *l, struct err *e)
{
    char *own = realpath(folder, NULL);
    size_t n = own ? strlen(own) : 0;
    int r = 0;
    for (size_t i = 0; i < l->n && own && !r; i++) {
        if (!strncmp(l->path[i], own, n) && (l->path[i][n] == '/' || !l->path[i][n])) {
            r = err_set(e, ERR_ARG, "%.300s is a part of this cache: it is used already",
                        l->path[i]);
        }
    }
    free(own);
    return r;
}

static int work(struct cli *c, const struct adopt_opts *o, struct cli_home *h, const char *folder,
                const char *dir)
{
    struct adopt_list l = {.n = 0};
    struct err e = {0};
    size_t changed = 0, models = 0;
    json_t *rows = json_array(), *answer = NULL;
    int r = o->list ? 0 : rest_writable(folder, "adopting or forgetting a folder", &e);
    r = r           ? r
        : o->list   ? adopt_list_read(folder, &l, &e)
        : o->forget ? named(dir, folder, &l, &e)
                    : adopt_find(dir, &l, &e);
    r = r || o->list || o->forget ? r : outside(folder, &l, &e);
    r = r || o->list ? r : adopt_list_change(folder, &l, !o->forget, &changed, &e);
    if (!r && h->path) { /* the node that runs, if one does: it has looked when it answers */
        struct err e1 = {0};
        json_t *q = json_pack("{s:s}", "op", "adopted");
        if (cli_home_ask(h, q, 0, &answer, &e1) == 0) {
            json_t *got = json_object_get(answer, "adopted");
            models = 1;
            json_array_extend(rows, got);
        } else if (e1.code != ERR_OFFLINE) {
            cli_note(c, "the running node did not look: %s", e1.msg);
        }
    }
    if (!r && !answer && !o->forget) {
        r = at_rest(folder, rows, &models, &e);
    }
    int status = r ? cli_fail(c, &e)
                   : show(c, folder, &l, rows, models, o->forget ? "forgotten" : "added", changed);
    json_decref(answer);
    json_decref(rows);
    adopt_list_free(&l);
    return status;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct adopt_opts *o = opts;
    struct cli_home h;
    struct buf folder;
    struct err e = {0};
    if (o->list && (o->forget || argc)) {
        return cli_usage(c, "cache adopt: --list takes nothing else");
    }
    if (!o->list && !argc) {
        return cli_usage(c, "cache adopt: name the folder");
    }
    buf_init(&folder, 4096);
    int r = cache_where_open(c, &o->where, &h, &folder, &e);
    int status = r == ERR_ARG ? cli_usage(c, "%s", e.msg)
                 : r          ? cli_fail(c, &e)
                              : work(c, o, &h, folder.p, argc ? argv[0] : NULL);
    buf_free(&folder);
    cli_home_close(&h);
    return status;
}

const struct command cmd_cache_adopt = {
    .name = "cache adopt",
    .args = "[DIR]",
    .summary = "use a model's files where they are: a hub's snapshot, shards, expert files",
    .details =
        "DIR is a cache of huggingface_hub, one of its models--ORG--NAME folders or snapshots, "
        "any\n"
        "folder with shards (all of them or some), or a folder of expert files (L1-E0.bin). What\n"
        "is there is read in place, by this machine's own answers and for its peers: nothing is\n"
        "copied, and nothing in DIR is ever written or deleted. Each object is read once as a\n"
        "whole, compared with what is known of it, and from then on checked on every read. The\n"
        "folder may lie on a volume that is unplugged and comes back.",
    .examples = "  shoal cache adopt ~/.cache/huggingface/hub\n"
                "  shoal cache adopt /Volumes/T9/k3-experts\n  shoal cache adopt --list\n"
                "  shoal cache adopt --forget /Volumes/T9/k3-experts\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = 1,
    .size = sizeof(struct adopt_opts),
    .run = run,
};
