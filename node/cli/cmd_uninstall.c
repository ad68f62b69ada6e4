/* SPDX-License-Identifier: MIT
 * cmd_uninstall.c: `shoal uninstall`: service, keys and cache leave this machine, after it was said
 * what goes with them. Only what Shoal made is deleted: adopted folders, and what somebody else put
 * into the home, stay. */
#include "node/cli/home.h"
#include "node/cli/installed.h"
#include "node/cli/plat.h"
#include "node/daemon/control.h"
#include "node/store/place.h"
#include "peer/home.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASK_MS 600000
#define END_S 120 /* a node that was told to stop is waited for so long */

struct uninstall_opts {
    struct common_opts common;
    struct home_opts home;
    bool keep_cache, yes;
};

static const struct opt table[] = {
    {"keep-cache", NULL, "the model's files stay", OPT_FLAG,
     offsetof(struct uninstall_opts, keep_cache), 0, 0, NULL},
    {"yes", NULL, "do not ask", OPT_FLAG, offsetof(struct uninstall_opts, yes), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"What", table, sizeof table / sizeof *table, 0},
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct uninstall_opts, home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

/* All that Shoal makes in a home (peer/home.h, node/daemon/README.md). */
static const char *const ours[] = {"identity",   "shoal",   "networks", "bans",   "addresses",
                                   "trust.lock", "peers",   "run",      "states", "service.log",
                                   "gpu",        "kernels", NULL};

struct leave {
    struct cli *c;
    const struct uninstall_opts *o;
    struct cli_home h;
    struct installed s;
    struct buf cache; /* where it lies, which `shoal cache move` may have chosen */
    bool service, runs, cache_known;
    uint64_t objects, bytes, last, last_bytes; /* experts of the model that the node has open */
    json_t *layers;                            /* [[layer, experts], ...] of the last copies */
    uint64_t cache_bytes, cache_files;
};

/* Files and bytes on disk below a folder, links not followed; a depth of 16 is twice a cache's. */
static void count(const char *path, unsigned depth, uint64_t *files, uint64_t *bytes)
{
    char p[PATH_MAX];
    struct stat sb;
    DIR *d = depth ? opendir(path) : NULL;
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            (size_t)snprintf(p, sizeof p, "%s/%s", path, e->d_name) >= sizeof p || lstat(p, &sb)) {
            continue;
        }
        if (S_ISDIR(sb.st_mode)) {
            count(p, depth - 1, files, bytes);
        } else if (S_ISREG(sb.st_mode)) {
            ++*files;
            *bytes += (uint64_t)sb.st_blocks * 512;
        }
    }
    if (d) {
        closedir(d);
    }
}

static json_int_t whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* What the running node knows of its cache: how much nobody else has. */
static void ask_last(struct leave *l)
{
    json_t *st = NULL, *a = NULL;
    l->runs = !cli_home_ask(&l->h, json_pack("{s:s}", "op", "status"), 0, &st, NULL);
    const char *root = json_string_value(json_object_get(json_object_get(st, "model"), "root"));
    if (root && !cli_home_ask(&l->h,
                              json_pack("{s:s,s:s,s:[],s:i,s:b}", "op", "drop", "root", root,
                                        "experts", "older_than", 0, "dry", 1),
                              ASK_MS, &a, NULL)) {
        l->cache_known = true;
        l->objects = (uint64_t)whole(a, "objects");
        l->bytes = (uint64_t)whole(a, "bytes");
        l->last = (uint64_t)whole(a, "last_copies");
        l->last_bytes = (uint64_t)whole(a, "last_bytes");
        l->layers = json_incref(json_object_get(a, "last_layers"));
    }
    json_decref(a);
    json_decref(st);
}

static int look(struct leave *l, struct err *e)
{
    char p[HOME_PATH_MAX + 8];
    int r = cli_home_open(&l->h, l->c, &l->o->home, HOME_PATH, e);
    if (r) {
        return r;
    }
    if (!home_has(l->h.path, "identity") && !home_has(l->h.path, "cache") &&
        !home_has(l->h.path, "run/lock")) {
        return err_set(e, ERR_NOTFOUND, "there is no node in %s: nothing was removed", l->h.path);
    }
    r = installed_open(&l->s, plat_has_launchd() ? UNIT_LAUNCHD : UNIT_SYSTEMD, l->h.path, e);
    if (!r) {
        l->service = installed_there(&l->s);
        ask_last(l);
        snprintf(p, sizeof p, "%s/cache", l->h.path);
        r = place_find(p, &l->cache, e);
        if (r && l->o->keep_cache) {
            l->cache.n = 0; /* wherever it is, it stays there */
            r = buf_adds(&l->cache, p) ? err_set(e, ERR_LIMIT, "the path is too long") : 0;
        }
    }
    if (!r) {
        count(l->cache.p, 16, &l->cache_files, &l->cache_bytes);
    }
    return r;
}

/* "layer 3: 12, layers 4-60: 16 each": neighbours with the same number together. What does not fit
 * is left out; --json has all. */
static void say_layers(const json_t *v, char *out, size_t n)
{
    size_t k = 0, at = 0;
    out[0] = 0;
    while (at < json_array_size(v) && k + 60 < n) {
        json_int_t from = json_integer_value(json_array_get(json_array_get(v, at), 0)), to = from;
        json_int_t count_of = json_integer_value(json_array_get(json_array_get(v, at), 1));
        for (at++; at < json_array_size(v); at++, to++) {
            const json_t *x = json_array_get(v, at);
            if (json_integer_value(json_array_get(x, 0)) != to + 1 ||
                json_integer_value(json_array_get(x, 1)) != count_of) {
                break;
            }
        }
        k += (size_t)(from == to
                          ? snprintf(out + k, n - k, "%slayer %lld: %lld", k ? ", " : "",
                                     (long long)from, (long long)count_of)
                          : snprintf(out + k, n - k, "%slayers %lld-%lld: %lld each", k ? ", " : "",
                                     (long long)from, (long long)to, (long long)count_of));
    }
    if (at < json_array_size(v)) {
        snprintf(out + k, n - k, ", ...");
    }
}

static void say_plan(const struct leave *l)
{
    char a[CLI_NUM], layers[400];
    struct cli *c = l->c;
    if (l->service) {
        cli_note(c, "the service %s goes (%s)", l->s.name.p, l->s.path.p);
    } else if (l->runs) {
        cli_note(c, "the node that runs is stopped");
    }
    if (home_has(l->h.path, "shoal/group.key")) {
        cli_note(c,
                 "the shoal's signing key in %s goes: without another keeper or a backup "
                 "(shoal backup) nobody can invite or remove members any more",
                 l->h.path);
    } else if (home_has(l->h.path, "shoal/roster")) {
        cli_note(c, "this node's key goes: the others list it until a keeper says shoal remove");
    }
    if (l->o->keep_cache) {
        cli_note(c, "the cache stays: %s, %s", cli_bytes(l->cache_bytes, a), l->cache.p);
        return;
    }
    cli_note(c, "the cache goes: %s in %llu files, %s", cli_bytes(l->cache_bytes, a),
             (unsigned long long)l->cache_files, l->cache.p);
    if (l->cache_known && l->last) {
        say_layers(l->layers, layers, sizeof layers);
        cli_note(c,
                 "%llu of its %llu experts no other connected member holds: they are the last "
                 "copies that are known (%s; %s)",
                 (unsigned long long)l->last, (unsigned long long)l->objects,
                 cli_bytes(l->last_bytes, a), layers);
    } else if (l->cache_known && l->objects) {
        cli_note(c, "other connected members hold all of its %llu experts",
                 (unsigned long long)l->objects);
    } else if (l->cache_files) {
        cli_note(c, "no node runs on it, so it is not known whether others hold them, too "
                    "(shoal up, and a minute later again, would tell)");
    }
}

static int confirm(const struct leave *l, struct err *e)
{
    char line[16] = "";
    if (l->o->yes) {
        return 0;
    }
    if (!isatty(STDIN_FILENO)) {
        return err_set(e, ERR_REFUSED,
                       "nothing was removed: say --yes to do it without being asked");
    }
    fprintf(stderr, "shoal: go on? [y/N] ");
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin) || (line[0] != 'y' && line[0] != 'Y')) {
        return err_set(e, ERR_CANCELLED, "nothing was removed");
    }
    return 0;
}

/* Nobody may write below the home any more: the lock of its owner is taken, and never given back.
 */
static int stop(struct leave *l, struct err *e)
{
    json_t *a = NULL;
    int lock, r = 0;
    if (l->service) {
        r = installed_remove(&l->s, e);
    }
    if (!r && l->runs) {
        r = cli_home_ask(&l->h, json_pack("{s:s}", "op", "stop"), 0, &a, e);
        r = r == ERR_REFUSED ? r : 0; /* else it has ended already, or is ending */
    }
    json_decref(a);
    r = r ? r : home_folder(l->h.path, "run", e);
    for (int i = 0; !r; i++) {
        r = control_lock(l->h.path, &lock, e);
        if (r != ERR_BUSY || i == END_S * 10) {
            break;
        }
        poll(NULL, 0, 100);
        r = 0;
    }
    return r;
}

static int gone(const char *path, struct err *e)
{
    struct stat sb;
    return lstat(path, &sb) && errno == ENOENT ? 0 : plat_remove_tree(path, e);
}

static int delete_all(struct leave *l, json_t *kept, struct err *e)
{
    char p[HOME_PATH_MAX + 300], to[PATH_MAX];
    struct stat sb;
    int r = 0;
    if (!l->o->keep_cache) {
        snprintf(p, sizeof p, "%s/cache", l->h.path);
        if (!lstat(p, &sb) && S_ISLNK(sb.st_mode) && realpath(p, to)) {
            cli_note(l->c, "the cache is a link to %s, whose files stay: delete them by hand", to);
            json_array_append_new(kept, json_string(to));
        }
        r = gone(l->cache.p, e); /* before what tells where it is */
        r = r ? r : gone(p, e);
    }
    for (size_t i = 0; !r && ours[i]; i++) {
        snprintf(p, sizeof p, "%s/%s", l->h.path, ours[i]);
        r = gone(p, e);
    }
    if (r || !rmdir(l->h.path)) {
        return r;
    }
    DIR *d = opendir(l->h.path);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) {
            snprintf(p, sizeof p, "%s/%s", l->h.path, x->d_name);
            cli_note(l->c, "%s stays", p);
            json_array_append_new(kept, json_string(p));
        }
    }
    if (d) {
        closedir(d);
    }
    return 0;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    struct leave l = {.c = c, .o = opts};
    buf_init(&l.cache, PLACE_PATH_MAX);
    struct err e = {0};
    json_t *kept = json_array();
    int r = look(&l, &e);
    if (!r) {
        say_plan(&l);
        r = confirm(&l, &e);
    }
    r = r ? r : stop(&l, &e);
    r = r ? r : delete_all(&l, kept, &e);
    int status = CLI_OK;
    if (r) {
        status = cli_fail(c, &e);
    } else if (c->json) {
        status =
            cli_json(c, json_pack("{s:s,s:b,s:I,s:I,s:I,s:O?,s:O}", "home", l.h.path, "service",
                                  (int)l.service, "cache_bytes",
                                  (json_int_t)(l.o->keep_cache ? 0 : l.cache_bytes), "last_copies",
                                  (json_int_t)l.last, "last_bytes", (json_int_t)l.last_bytes,
                                  "last_layers", l.layers, "kept", kept));
    } else {
        cli_note(c, "done; the program itself is not deleted");
    }
    json_decref(kept);
    json_decref(l.layers);
    buf_free(&l.cache);
    installed_close(&l.s);
    cli_home_close(&l.h);
    return status;
}

const struct command cmd_uninstall = {
    .name = "uninstall",
    .args = "",
    .summary = "remove the service, keys and cache of this node from the machine",
    .details =
        "Says first what goes: the service, the node's key (and the shoal's signing key), the\n"
        "cache and how much of it no other member holds; then asks. Folders that were adopted are\n"
        "not touched, nor what else lies in the home.",
    .examples = "  shoal uninstall\n  shoal uninstall --keep-cache\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct uninstall_opts),
    .run = run,
};
