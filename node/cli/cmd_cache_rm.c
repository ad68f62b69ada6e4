/* SPDX-License-Identifier: MIT
 * cmd_cache_rm.c: `shoal cache rm`: experts, or a whole model, leave the disk. */
#include "node/cli/cache.h"
#include "node/cli/states.h"
#include "node/store/at_rest.h"
#include "node/store/rest_room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPERTS_MAX 4096
#define DROP_MS 600000

struct rm_opts {
    struct common_opts common;
    struct cache_where where;
    const char *model;
    struct opt_count older;
    bool yes;
};

static const struct opt which_table[] = {
    {"model", "ROOT", "the model whose root begins so; alone: all of it, and what is known of it",
     OPT_TEXT, offsetof(struct rm_opts, model), 0, 0, NULL},
    {"older-than", "TIME", "experts that were not used for so long, such as 30d", OPT_TIME,
     offsetof(struct rm_opts, older), 0, 1e10, NULL},
    {"yes", NULL, "do not ask", OPT_FLAG, offsetof(struct rm_opts, yes), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Which", which_table, sizeof which_table / sizeof *which_table, 0},
    {"Where", cache_where_table, CACHE_WHERE_COUNT, offsetof(struct rm_opts, where)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

struct rm {
    struct cli *c;
    const struct rm_opts *o;
    struct cli_home h;
    struct buf folder;
    struct rest_models l;
    const struct rest_model *x;
    uint32_t (*experts)[2];
    size_t n;
    bool whole, by_node; /* the home's node has this model open */
    uint64_t objects, bytes, last, in_use;
    size_t states; /* of conversations, with a whole model */
};

/* By the node that has the model open, since only it knows what present requests need. */
static int by_node(struct rm *m, bool dry, struct err *e)
{
    json_t *q = json_pack("{s:s,s:s,s:b}", "op", "drop", "root", m->x->root, "dry", (int)dry);
    json_t *list = json_array(), *a = NULL;
    for (size_t i = 0; i < m->n; i++) {
        json_array_append_new(
            list, json_pack("[I,I]", (json_int_t)m->experts[i][0], (json_int_t)m->experts[i][1]));
    }
    json_object_set_new(q, "experts", list);
    if (m->o->older.set) {
        json_object_set_new(q, "older_than", json_integer((json_int_t)m->o->older.v));
    }
    int r = cli_home_ask(&m->h, q, DROP_MS, &a, e);
    if (!r) {
        m->objects = (uint64_t)json_integer_value(json_object_get(a, "objects"));
        m->bytes = (uint64_t)json_integer_value(json_object_get(a, "bytes"));
        m->in_use = (uint64_t)json_integer_value(json_object_get(a, "in_use"));
        if (dry) {
            m->last = (uint64_t)json_integer_value(json_object_get(a, "last_copies"));
        }
    }
    json_decref(a);
    return r;
}

static int drop(struct rm *m, bool dry, struct err *e)
{
    if (m->by_node) {
        return by_node(m, dry, e);
    }
    struct rest_dropped d = {0};
    struct timespec t = {0};
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
    uint64_t older = m->o->older.v * 1000000u; /* at most 1e10 seconds */
    struct rest_drop o = {.whole = m->whole,
                          .experts = (const uint32_t(*)[2])m->experts,
                          .n = m->n,
                          .before = m->o->older.set && older < now ? now - older : 0,
                          .dry = dry};
    const char *base = m->h.path ? m->h.path : m->folder.p;
    uint64_t state_bytes = 0;
    int r = m->whole && !dry ? states_drop(base, m->x->folder, &m->states, &state_bytes, e) : 0;
    r = r ? r : rest_drop(m->folder.p, m->x, &o, &d, e);
    m->objects = d.objects;
    m->bytes = d.bytes;
    return r;
}

/* Does the home's node run on this model? */
static bool node_has(struct rm *m)
{
    json_t *a = NULL;
    bool has = m->h.path && !cli_home_ask(&m->h, json_pack("{s:s}", "op", "status"), 0, &a, NULL);
    const char *root = json_string_value(json_object_get(json_object_get(a, "model"), "root"));
    has = has && root && !strcmp(root, m->x->root);
    json_decref(a);
    return has;
}

static int find(struct rm *m, struct err *e)
{
    int r = cache_where_open(m->c, &m->o->where, &m->h, &m->folder, e);
    r = r ? r : rest_writable(m->folder.p, "removing", e);
    r = r ? r : rest_models(m->folder.p, &m->l, e);
    r = r ? r : cache_model(&m->l, m->folder.p, m->o->model, &m->x, e);
    if (!r) {
        m->by_node = node_has(m);
        struct rest_count k;
        if (m->by_node && m->whole) {
            r = err_set(e, ERR_BUSY,
                        "the running node works on model %s: end it (shoal up), or give experts or "
                        "--older-than",
                        m->x->folder);
        } else if (!m->by_node) {
            r = rest_count(m->folder.p, m->x, &k, e);
            if (!r && k.in_use) {
                r = err_set(e, ERR_BUSY, "a process has model %s open: end it, or try again later",
                            m->x->folder);
            }
        }
    }
    return r;
}

/* True: go on. */
static bool confirmed(struct rm *m, struct err *e)
{
    char a[CLI_NUM], line[16] = "";
    cli_note(m->c, "%llu objects, %s, of model %s leave %s", (unsigned long long)m->objects,
             cli_bytes(m->bytes, a), m->x->folder, m->folder.p);
    if (m->last) {
        cli_note(m->c,
                 "%llu of them no other connected member holds: they are the last copies "
                 "that are known",
                 (unsigned long long)m->last);
    } else if (!m->by_node && m->objects) {
        cli_note(m->c, "no node runs on it, so it is not known whether others hold them, too");
    }
    if (m->o->yes || !m->objects) {
        return true;
    }
    if (!isatty(STDIN_FILENO)) {
        err_set(e, ERR_REFUSED, "nothing was removed: say --yes to do it without being asked");
        return false;
    }
    fprintf(stderr, "shoal: go on? [y/N] ");
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin) || (line[0] != 'y' && line[0] != 'Y')) {
        err_set(e, ERR_CANCELLED, "nothing was removed");
        return false;
    }
    return true;
}

static int finish(struct rm *m)
{
    char a[CLI_NUM];
    if (m->c->json) {
        return cli_json(m->c, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I}", "root", m->x->root, "objects",
                                        (json_int_t)m->objects, "bytes", (json_int_t)m->bytes,
                                        "last_copies", (json_int_t)m->last, "in_use",
                                        (json_int_t)m->in_use, "states", (json_int_t)m->states));
    }
    cli_note(m->c, "%llu objects removed, %s", (unsigned long long)m->objects,
             cli_bytes(m->bytes, a));
    if (m->states) {
        cli_note(m->c, "%zu kept states of conversations were removed, too", m->states);
    }
    if (m->in_use) {
        cli_note(m->c, "%llu stay, since present requests need them",
                 (unsigned long long)m->in_use);
    }
    return CLI_OK;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    struct rm m = {.c = c, .o = opts};
    struct err e = {0};
    m.whole = !argc && !m.o->older.set;
    if (m.whole && !m.o->model) {
        return cli_usage(c, "cache rm: say what: LAYER.EXPERT, --older-than or --model ROOT");
    }
    m.experts = calloc((size_t)argc + 1, sizeof *m.experts);
    for (int i = 0; m.experts && i < argc; i++) {
        if (!cache_expert(argv[i], &m.experts[i][0], &m.experts[i][1])) {
            free(m.experts);
            return cli_usage(c, "cache rm: %.60s is no expert: say LAYER.EXPERT such as 17.301",
                             argv[i]);
        }
    }
    m.n = (size_t)argc;
    buf_init(&m.folder, 4096);
    int r = m.experts ? find(&m, &e) : err_set(&e, ERR_NOMEM, "out of memory");
    r = r ? r : drop(&m, true, &e);
    if (!r && !confirmed(&m, &e)) {
        r = e.code;
    }
    r = r ? r : drop(&m, false, &e);
    int status = r ? cli_fail(c, &e) : finish(&m);
    free(m.experts);
    rest_models_free(&m.l);
    buf_free(&m.folder);
    cli_home_close(&m.h);
    return status;
}

const struct command cmd_cache_rm = {
    .name = "cache rm",
    .args = "[LAYER.EXPERT...]",
    .summary = "remove experts, or a whole model, from a cache",
    .details =
        "By the running node of the home where it works on that model: what present requests need\n"
        "stays, and it says how many of them no other connected member of the shoal holds. "
        "Without\n"
        "a node the files are removed, unless some process has the model open. Asks first; --yes\n"
        "does not. The spine leaves only with its whole model (--model alone).",
    .examples = "  shoal cache rm 17.301 17.302\n  shoal cache rm --older-than 30d --yes\n"
                "  shoal cache rm --model 4444735e\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = EXPERTS_MAX,
    .size = sizeof(struct rm_opts),
    .run = run,
};
