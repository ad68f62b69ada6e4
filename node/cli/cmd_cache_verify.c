/* SPDX-License-Identifier: MIT
 * cmd_cache_verify.c: `shoal cache verify`: is everything in a cache right, and what is done about
 * what is not. */
#include "node/cli/cache.h"
#include "node/cli/session.h"
#include "node/store/address.h"
#include "node/store/at_rest.h"
#include "node/store/want.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES_MAX 1000
#define SAY_NS 1000000000u

struct verify_opts {
    struct common_opts common;
    struct cache_where where;
    bool deep, repair, offline;
};

static const struct opt table[] = {
    {"deep", NULL, "read every chunk of every file; else names, sizes, catalog and journal",
     OPT_FLAG, offsetof(struct verify_opts, deep), 0, 0, NULL},
    {"repair", NULL, "fetch again what was damaged", OPT_FLAG, offsetof(struct verify_opts, repair),
     0, 0, NULL},
    {"offline", NULL, "with --repair: from peers alone, never from the origin", OPT_FLAG,
     offsetof(struct verify_opts, offline), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Verifying", table, 3, 0},
    {"Where", cache_where_table, CACHE_WHERE_COUNT, offsetof(struct verify_opts, where)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

struct report {
    struct cli *c;
    json_t *lines; /* the first LINES_MAX */
    uint32_t *ids; /* to be fetched again */
    size_t n, cap;
    uint64_t faults, started, said;
};

static void found(void *ctx, uint32_t id, const char *line)
{
    struct report *r = ctx;
    r->faults++;
    cli_note(r->c, "%s", line);
    if (json_array_size(r->lines) < LINES_MAX) {
        json_array_append_new(r->lines, json_string(line));
    }
    if (id == MODEL_NONE) {
        return;
    }
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        uint32_t *v = realloc(r->ids, cap * sizeof *v);
        r->ids = v ? v : r->ids;
        r->cap = v ? cap : r->cap;
    }
    if (r->n < r->cap) {
        r->ids[r->n++] = id;
    }
}

static bool progress(void *ctx, uint64_t done, uint64_t total)
{
    struct report *r = ctx;
    uint64_t now = clock_ns();
    if (done && now - r->said > SAY_NS && isatty(STDERR_FILENO)) {
        char a[CLI_NUM], b[CLI_NUM], s[CLI_NUM], t[CLI_NUM];
        double took = (double)(now - r->started) / 1e9, rate = (double)done / took;
        cli_note(r->c, "%s of %s read, %s/s, %s left", cli_bytes(done, a), cli_bytes(total, b),
                 cli_bytes((uint64_t)rate, s), cli_duration((double)(total - done) / rate, t));
        r->said = now;
    }
    return cli_interrupted();
}

/* Fetch what was set aside, by the address that the model was used with. */
static int repair(struct cli *c, const struct verify_opts *o, const struct cli_home *h,
                  const struct rest_model *x, const struct report *rep, uint64_t *repaired,
                  struct err *e)
{
    struct model_opts m = {
        .model = x->address, .home = h->path, .cache = o->where.cache, .offline = o->offline};
    struct cli_session s;
    struct store_wants *w = NULL;
    size_t asked = 0;
    int first = 0;
    if (!*x->address) {
        return err_set(e, ERR_NOTFOUND,
                       "the address of model %s is not on record: use it once (shoal run --model)",
                       x->folder);
    }
    int r = cli_session_open(&s, c, &m, NULL, SESSION_STORE, e);
    if (r) {
        return r;
    }
    r = store_wants_open(s.st, &w, e);
    for (size_t i = 0; i < rep->n && !r; i++) {
        r = store_wants_add(w, i, rep->ids[i], STORE_PREFETCH, e);
        asked += !r;
    }
    for (; asked && !r; asked--) {
        uint64_t tag;
        uint32_t id;
        int code = 0;
        struct err why = {0};
        r = store_wants_next(w, &tag, &id, &code, &why) ? ERR_CANCELLED : 0;
        *repaired += !r && !code;
        if (code) {
            cli_note(c, "%s", why.msg);
            if (!first && e) {
                *e = why;
            }
            first = first ? first : code;
        }
    }
    if (w) {
        store_wants_stop(w);
        store_wants_close(w);
    }
    cli_session_close(&s);
    return r ? r : first;
}

/* One model; its part of the result is added to `list`. */
static int one(struct cli *c, const struct verify_opts *o, const struct cli_home *h,
               const char *folder, const struct rest_model *x, json_t *list, struct report *all,
               uint64_t *left, struct err *e)
{
    struct report r = {.c = c, .lines = all->lines, .started = clock_ns()};
    struct rest_verify v = {.deep = o->deep, .found = found, .progress = progress, .ctx = &r};
    struct rest_verified out = {0};
    uint64_t repaired = 0;
    struct err e1 = {0};
    char shown[4096];
    int code = 0;
    if (x->m) {
        code = rest_verify(folder, x, &v, &out, e);
    } else {
        char line[200];
        snprintf(line, sizeof line,
                 "model %s: its metadata are not in the cache, so its files cannot be looked at",
                 x->folder);
        found(&r, MODEL_NONE, line);
    }
    int fixed = !code && o->repair && r.n ? repair(c, o, h, x, &r, &repaired, &e1) : 0;
    if (fixed) {
        cli_note(c, "not repaired: %s", e1.msg);
    }
    *left += r.n - repaired;
    all->faults += r.faults;
    json_array_append_new(
        list, json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "root", x->root, "address",
                        address_shown(x->address, shown, sizeof shown), "objects",
                        (json_int_t)out.objects, "bytes", (json_int_t)out.bytes, "adopted",
                        (json_int_t)out.lent, "adopted_bytes", (json_int_t)out.lent_bytes,
                        "read_bytes", (json_int_t)out.read_bytes, "faults", (json_int_t)r.faults,
                        "damaged", (json_int_t)r.n, "repaired", (json_int_t)repaired,
                        "journal_added", (json_int_t)out.journal_added));
    if (!c->json && !code && x->m) {
        char a[CLI_NUM], b[CLI_NUM];
        printf("%s  %llu objects, %s", *shown ? shown : x->folder, (unsigned long long)out.objects,
               cli_bytes(out.bytes, a));
        if (out.lent) {
            printf("; adopted %llu, %s", (unsigned long long)out.lent,
                   cli_bytes(out.lent_bytes, b));
        }
        printf("; %llu fault%s%s", (unsigned long long)r.faults, r.faults == 1 ? "" : "s",
               r.faults ? "" : ": all is right");
        if (o->repair && r.n) {
            printf("; %llu of %llu damaged object%s fetched again", (unsigned long long)repaired,
                   (unsigned long long)r.n, r.n == 1 ? "" : "s");
        }
        printf("\n");
    }
    free(r.ids);
    return code;
}

static int work(struct cli *c, const struct verify_opts *o, struct cli_home *h, const char *folder)
{
    struct rest_models l = {0};
    struct err e = {0};
    struct report all = {.c = c, .lines = json_array()};
    json_t *list = json_array();
    uint64_t left = 0;
    int r = access(folder, F_OK) == 0
                ? rest_models(folder, &l, &e)
                : err_set(&e, ERR_NOTFOUND, "there is no cache at %s", folder);
    r = r || !o->repair ? r : rest_writable(folder, "a repair", &e);
    cli_catch_interrupts();
    for (size_t i = 0; i < l.n && !r; i++) {
        r = one(c, o, h, folder, &l.v[i], list, &all, &left, &e);
    }
    int status = r ? cli_fail(c, &e) : all.faults ? CLI_FAILED : CLI_OK;
    if (!r && c->json) {
        int w = cli_json(c, json_pack("{s:s,s:b,s:I,s:I,s:O,s:O}", "folder", folder, "deep",
                                      o->deep, "faults", (json_int_t)all.faults, "left",
                                      (json_int_t)left, "found", all.lines, "models", list));
        status = w ? w : status;
    } else if (!r) {
        if (!l.n) {
            printf("there is no model in the cache %s: nothing to verify\n", folder);
        }
        if (left) {
            printf(left == 1 ? "%llu damaged object is fetched again when it is wanted, or by "
                               "--repair\n"
                             : "%llu damaged objects are fetched again when they are wanted, or by "
                               "--repair\n",
                   (unsigned long long)left);
        }
        int w = cli_write(c, "", 0);
        status = w ? w : status;
    }
    json_decref(list);
    json_decref(all.lines);
    rest_models_free(&l);
    return status;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct verify_opts *o = opts;
    struct cli_home h;
    struct buf folder;
    struct err e = {0};
    buf_init(&folder, 4096);
    int r = cache_where_open(c, &o->where, &h, &folder, &e);
    int status = r == ERR_ARG ? cli_usage(c, "%s", e.msg)
                 : r          ? cli_fail(c, &e)
                              : work(c, o, &h, folder.p);
    buf_free(&folder);
    cli_home_close(&h);
    return status;
}

const struct command cmd_cache_verify = {
    .name = "cache verify",
    .args = "",
    .summary = "look whether everything in the cache is right",
    .details =
        "Looks at the names and sizes of all files, at the catalog and at the journal it could be\n"
        "rebuilt from; with --deep also at every byte, of adopted folders too (whose files are\n"
        "never touched). A damaged file goes to the folder quarantine beside the model's files "
        "and\n"
        "is fetched again when it is wanted, or at once with --repair. Works beside a running\n"
        "node. The exit status is 1 when something was wrong, repaired or not.",
    .examples = "  shoal cache verify\n  shoal cache verify --deep --repair\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct verify_opts),
    .run = run,
};
