/* SPDX-License-Identifier: MIT
 * cmd_setup.c: `shoal setup`: what a model needs is on this disk before it is first used.
 *
 * With a home that a node runs on, or that belongs to a shoal, by that node's ways: peers first,
 * then mirrors and origin. Else by a store of its own. Objects that are there are left alone, so a
 * second run goes on where the first one ended, however it ended. */
#include "node/cli/budget.h"
#include "node/cli/home.h"
#include "node/cli/plat.h"
#include "node/cli/session.h"
#include "node/cli/spine.h"
#include "node/daemon/node.h"
#include "node/store/budget.h"
#include "node/store/chunk.h"
#include "node/store/want.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT_ONCE 128               /* objects asked for; neighbours among them become one range */
#define LOOK_US 10000             /* between two looks at what has come */
#define PEERS_MS 10000            /* what a peer has should not come from the origin */
#define RATE_SECONDS 15           /* the rate is that of the last ones */
#define SLACK ((uint64_t)4 << 20) /* the catalog's log and what is begun, while it is written */
#define RECORD 300                /* bytes of an object in journal and catalog, */
#define RECORD_CHUNK 100          /* and of each MiB of it; more than they are */

struct setup_opts {
    struct common_opts common;
    struct model_opts model;
    bool full;
    struct opt_choice spine;
};

#define AT(f) offsetof(struct setup_opts, f)
static const struct opt what_table[] = {
    {"model", "MODEL", "the same as MODEL alone: other commands have it so", OPT_TEXT,
     AT(model.model), 0, 0, NULL},
    {"full", NULL, "all experts, too; without it the spine alone, and experts come when used",
     OPT_FLAG, AT(full), 0, 0, NULL},
    {"spine", "FORM",
     "how the spine lies on disk: bf16 as it is, packed (without loss, two thirds of the bytes), "
     "auto: what makes a token quicker here; default: as the last time, at first auto",
     OPT_CHOICE, AT(spine), 0, 0, cli_spine_names},
};
static const struct opt where_table[] = {
    {"home", "DIR",
     "the folder of this node; default: SHOAL_HOME, else the platform's place for data", OPT_TEXT,
     AT(model.home), 0, 0, NULL},
    {"cache", "DIR", "in place of a home: this cache folder, without peers", OPT_TEXT,
     AT(model.cache), 0, 0, NULL},
    {"offline", NULL, "never contact the origin: only peers", OPT_FLAG, AT(model.offline), 0, 0,
     NULL},
    {"mirror", "URL", CLI_MIRROR_HELP, OPT_TEXTS, AT(model.mirrors), 0, 0, NULL},
    {"rate-limit", "SIZE", "most bytes a second from the origin", OPT_BYTES, AT(model.rate_limit),
     1, 1e18, NULL},
    {"mirror-rate-limit", "SIZE", CLI_MIRROR_RATE_HELP, OPT_BYTES, AT(model.mirror_rate), 1, 1e18,
     NULL},
    NET_OPTS(struct setup_opts, model.net),
    {"disk-budget", "SIZE", CLI_DISK_BUDGET_HELP, OPT_BYTES, AT(model.disk_budget), 1, 1e18, NULL},
    {"disk-floor", "SIZE", CLI_DISK_FLOOR_HELP, OPT_BYTES, AT(model.disk_floor), 1, 1e18, NULL},
};
static const struct opt_group groups[] = {
    {"What", what_table, sizeof what_table / sizeof *what_table, 0},
    {"Where", where_table, sizeof where_table / sizeof *where_table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

struct setup {
    struct cli *c;
    const struct setup_opts *o;
    struct cli_session s;
    struct cli_home home;
    bool open, running;
    uint32_t *ids; /* to fetch: the spine, then experts */
    size_t n, next, under_way;
    /* bytes: wanted in all, on disk now, at the beginning; and of objects that had begun to come */
    uint64_t total, there, begun, unfinished;
    uint64_t spine_missing, missing, experts_here;
    uint64_t records; /* of what is missing */
    double at[RATE_SECONDS + 1];
    uint64_t done_at[RATE_SECONDS + 1];
    size_t n_at;
};

/* ---- where ---- */

/* The home's node, when one runs or the home has peers to ask; else the cache alone. */
static int choose_place(struct setup *u, struct model_opts *m, struct err *e)
{
    struct home_opts ho = {m->home};
    json_t *a = NULL;
    if (m->cache) {
        return 0;
    }
    int r = cli_home_open(&u->home, u->c, &ho, HOME_LOOK, e);
    if (r) {
        return r;
    }
    u->running = !cli_home_ask(&u->home, json_pack("{s:s}", "op", "ping"), 0, &a, NULL);
    json_decref(a);
    if (u->running && m->mirrors.n) {
        return err_set(e, ERR_ARG,
                       "the running node of %.200s fetches, from its own mirrors: name them where "
                       "it starts (shoal up --mirror), or end it first",
                       u->home.path);
    }
    bool shoal = u->home.me.key && u->home.m.in_group;
    if (u->running || shoal || m->home) {
        m->home = u->home.path;
        return 0;
    }
    return 0; /* the session takes the data folder's cache for what is no folder */
}

/* ---- how much ---- */

static int count(struct setup *u, struct err *e)
{
    struct cli_session *s = &u->s;
    uint32_t n = model_object_count(s->m);
    u->ids = calloc(n ? n : 1, sizeof *u->ids);
    if (!u->ids) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (int experts = 0; experts < 2; experts++) {
        for (uint32_t id = 0; id < n; id++) {
            const struct model_object *o = model_object(s->m, id);
            bool expert = o->kind == MODEL_EXPERT;
            bool here = store_where(s->st, id) == STORE_DISK;
            if (expert != (experts == 1)) {
                continue;
            }
            u->experts_here += expert && here ? o->size : 0;
            if (expert && !u->o->full) {
                continue;
            }
            u->total += o->size;
            if (here) {
                u->there += o->size;
            } else {
                u->ids[u->n++] = id;
                u->missing += o->size;
                u->records += RECORD + RECORD_CHUNK * (o->size / CHUNK_SIZE + 1);
                u->spine_missing += expert ? 0 : o->size;
            }
        }
    }
    u->begun = u->there;
    return 0;
}

/* `bytes` of what is missing, its records, and what is needed while it comes. */
static uint64_t with_slack(const struct setup *u, uint64_t bytes)
{
    return bytes ? bytes + u->records + SLACK : 0;
}

/* What it will take and leave; ERR_FULL when it does not fit. Experts that are there make room for
 * the spine, but not for other experts. The budget counts objects alone, the volume all. */
static int check_room(struct setup *u, const struct store_budget *b, struct err *e)
{
    char in_all[CLI_NUM], need[CLI_NUM], room[CLI_NUM], lack[CLI_NUM], size[CLI_NUM],
        floor[CLI_NUM], why[200], while_it[60] = "", hint[200] = "";
    uint64_t wanted = with_slack(u, u->missing), stays = u->missing + u->records,
             gives_way = u->o->full ? 0 : u->experts_here;
    uint64_t volume = (b->free > b->floor_now ? b->free - b->floor_now : 0) + gives_way;
    uint64_t kept = b->others + b->used - (gives_way < b->used ? gives_way : b->used);
    uint64_t budget = !b->budget ? UINT64_MAX : b->budget > kept ? b->budget - kept : 0;
    if (wanted <= volume && u->missing <= budget) {
        cli_note(u->c, "disk    it takes %s more and leaves %s free on the volume of %s",
                 cli_bytes(stays, need), cli_bytes(b->free > stays ? b->free - stays : 0, size),
                 u->s.cache);
        return 0;
    }
    bool of_budget = u->missing > budget;
    uint64_t least = of_budget ? budget : volume, asked = of_budget ? u->missing : wanted;
    uint64_t spine = of_budget ? u->spine_missing : with_slack(u, u->spine_missing);
    if (of_budget) {
        snprintf(why, sizeof why,
                 "the cache's budget of %s has room for %s: raise it (shoal cache "
                 "budget SIZE)",
                 cli_bytes(b->budget, size), cli_bytes(least, room));
    } else {
        snprintf(why, sizeof why,
                 "the volume has %s free, and %s are to stay free: free some, take another volume "
                 "(--home or --cache there), or lower --disk-floor",
                 cli_bytes(b->free, size), cli_bytes(b->floor_now, floor));
        snprintf(while_it, sizeof while_it, " and %s while it is written",
                 cli_bytes(wanted - stays, room));
    }
    if (u->o->full && spine <= least) {
        snprintf(hint, sizeof hint, "; without --full the spine alone fits, it takes %s",
                 cli_bytes(spine, size));
    }
    return err_set(e, ERR_FULL,
                   "%s (%s) does not fit on the disk of %s: it needs %s more%s, %s lack: "
                   "%s%s",
                   u->o->full ? "the whole model" : "the spine", cli_bytes(u->total, in_all),
                   u->s.cache, cli_bytes(of_budget ? asked : stays, need), while_it,
                   cli_bytes(asked - least, lack), why, hint);
}

/* ---- fetching ---- */

/* Bytes a second over the last seconds, of what is on disk or has come for it. */
static double rate_of(struct setup *u, uint64_t done)
{
    double now = clock_s();
    if (!u->n_at || now - u->at[u->n_at - 1] >= 1) {
        if (u->n_at == RATE_SECONDS + 1) {
            memmove(u->at, u->at + 1, RATE_SECONDS * sizeof *u->at);
            memmove(u->done_at, u->done_at + 1, RATE_SECONDS * sizeof *u->done_at);
            u->n_at--;
        }
        u->at[u->n_at] = now;
        u->done_at[u->n_at++] = done;
    }
    double t = now - u->at[0];
    return t > 0.2 && done > u->done_at[0] ? (double)(done - u->done_at[0]) / t : 0;
}

/* Large objects take minutes: what has come of them is told, too, but never more than that all but
 * one byte is there until it is. */
static void tell(struct setup *u)
{
    struct store_stats v;
    store_get_stats(u->s.st, &v);
    uint64_t come = u->begun + u->unfinished + v.origin_bytes + v.peer_bytes + v.mirror_bytes;
    uint64_t done = come > u->there ? come : u->there;
    if (done >= u->total && u->there < u->total) {
        done = u->total - 1;
    }
    cli_session_fetching(&u->s, done < u->total ? done : u->total, u->total, rate_of(u, done));
}

static int fetch(struct setup *u, struct err *e)
{
    struct store_wants *w;
    struct err first = {0}, why;
    int code, failed = 0;
    uint64_t tag;
    uint32_t id;
    int r = store_wants_open(u->s.st, &w, e);
    if (r) {
        return r;
    }
    while (u->under_way || (u->next < u->n && !failed)) {
        while (!failed && u->next < u->n && u->under_way < AT_ONCE) {
            failed = store_wants_add(w, u->next, u->ids[u->next], STORE_PREFETCH, &first);
            u->next += !failed;
            u->under_way += !failed;
        }
        while (u->under_way && !store_wants_poll(w, &tag, &id, &code, &why)) {
            u->under_way--;
            u->there += code ? 0 : model_object(u->s.m, id)->size;
            if (code && !failed) {
                failed = code;
                first = why;
            }
        }
        if (cli_interrupted() && failed != ERR_CANCELLED) {
            failed = err_set(&first, ERR_CANCELLED, "interrupted");
            break; /* what has come of the others stays for the next time */
        }
        tell(u);
        usleep(LOOK_US);
    }
    store_wants_stop(w);
    store_wants_close(w);
    if (failed) {
        char a[CLI_NUM], b[CLI_NUM];
        *e = first;
        e->code = failed;
        err_prefix(e, "%s of %s are on disk, and the same command goes on there",
                   cli_bytes(u->there, a), cli_bytes(u->total, b));
    }
    return failed;
}

/* ---- the end ---- */

static const char *next_words(struct setup *u, struct buf *b)
{
    const char *model = u->s.source;
    int r = 0;
    bool home = u->s.node != NULL;
    if (u->o->model.home || (home && *cli_home_flag(&u->home))) {
        r = buf_adds(b, home ? cli_home_named(&u->home) : "");
    } else if (u->o->model.cache) {
        r = buf_addf(b, " --cache %s", u->o->model.cache);
    } else if (home) {
        r = buf_adds(b, cli_home_named(&u->home));
    }
    if (!u->s.demo && !(home && u->running)) {
        r = r ? r : buf_addf(b, " --model %s", model);
    }
    return r || !b->n ? "" : b->p;
}

static int finish(struct setup *u)
{
    struct cli_session *s = &u->s;
    struct store_stats v;
    struct buf b;
    char a[CLI_NUM], p[CLI_NUM], o[CLI_NUM], m[CLI_NUM], hex[2 * SHA256_SIZE + 1];
    buf_init(&b, 16384);
    const char *with = next_words(u, &b);
    store_get_stats(s->st, &v);
    sha256_hex(model_root(s->m), hex);
    cli_session_phase(s, PHASE_QUIET, 0, 0);
    cli_note(u->c, "done: %s of %s on disk in %s; %s came from peers, %s%s%s from the origin",
             u->o->full ? "all" : "the spine", cli_bytes(u->there, a),
             s->cache ? s->cache : s->source, cli_bytes(v.peer_bytes, p),
             v.mirror_bytes ? cli_bytes(v.mirror_bytes, m) : "",
             v.mirror_bytes ? " from mirrors, " : "", cli_bytes(v.origin_bytes, o));
    int status = CLI_OK;
    if (u->c->json) {
        char next[2048];
        snprintf(next, sizeof next, "shoal run%.1900s --chat \"Hello\"", with);
        status = cli_json(
            u->c,
            json_pack("{s:s, s:s, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o}", "model",
                      s->source, "model_root", hex, "cache",
                      s->cache ? json_string(s->cache) : json_null(), "full", u->o->full, "bytes",
                      (json_int_t)u->there, "fetched", (json_int_t)(u->there - u->begun), "objects",
                      (json_int_t)u->n, "peer_bytes", (json_int_t)v.peer_bytes, "mirror_bytes",
                      (json_int_t)v.mirror_bytes, "origin_bytes", (json_int_t)v.origin_bytes,
                      "next", next, "spine", cli_spine_json(s->st)));
    } else {
        cli_note(u->c, "next:   shoal run%s --chat \"Hello\"", with);
        if (!u->running) {
            cli_note(u->c,
                     "        shoal up%s --api 127.0.0.1:8080    (a node, for peers and other "
                     "programs)",
                     u->o->model.cache ? "" : with);
        }
    }
    buf_free(&b);
    return status;
}

static int settle_spine(struct setup *u, struct err *e)
{
    const struct opt_choice *o = &u->o->spine;
    enum spine_form form = o->set ? (enum spine_form)o->v : SPINE_AUTO;
    cli_session_phase(&u->s, PHASE_QUIET, 0, 0);
    return cli_spine_setup(&u->s, o->set ? &form : NULL, e);
}

static int work(struct setup *u, struct err *e)
{
    struct store_budget b;
    char d[CLI_BUDGET];
    if (store_get_budget(u->s.st, &b, NULL)) { /* read in place: all is there */
        u->there = u->begun =
            model_spine_bytes(u->s.m) + (u->o->full ? model_expert_bytes(u->s.m) : 0);
        cli_note(u->c,
                 "the folder %s is read in place: there is nothing to fetch (--home or "
                 "--cache would copy it)",
                 u->s.source);
        return settle_spine(u, e);
    }
    struct err why = {0};
    int closed = store_closed(u->s.st, &why), r = count(u, e);
    if (!r && closed == ERR_REFUSED) {
        r = err_set(e, ERR_REFUSED,
                    "the cache %.400s: setup would write to it. What it holds can be used (shoal "
                    "run); give "
                    "another --home or --cache, or make it writable",
                    why.msg);
    }
    if (r) {
        return r;
    }
    u->unfinished = b.unfinished < u->missing ? b.unfinished : u->missing;
    char total[CLI_NUM], there[CLI_NUM], missing[CLI_NUM], begun[CLI_NUM];
    cli_note(u->c, "model   %s%s", u->s.source, u->s.demo ? " (the demo model)" : "");
    cli_note(u->c, "wanted  %s, %s: %s are on disk, %zu objects of %s are missing%s%s",
             u->o->full ? "all of the model"
                        : "the spine (experts come when they are used; --full "
                          "for all)",
             cli_bytes(u->total, total), cli_bytes(u->there, there), u->n,
             cli_bytes(u->missing, missing), u->unfinished ? ", of which have come " : "",
             u->unfinished ? cli_bytes(u->unfinished, begun) : "");
    cli_note(u->c, "budget  %s", cli_budget_words(&b, d));
    r = check_room(u, &b, e);
    if (!r && u->n && u->s.node && node_owner(u->s.node)) {
        mesh_wait_peers(node_mesh(u->s.node), 1, PEERS_MS); /* at once when it has no others */
    }
    if (!r) {
        cli_catch_interrupts();
        tell(u);
        r = fetch(u, e);
    }
    return r || closed ? r : settle_spine(u, e); /* all is there, and the spine stays as it is */
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct setup_opts *o = opts;
    struct model_opts m = o->model;
    struct err e = {0};
    struct setup *u = calloc(1, sizeof *u);
    if (!u) {
        err_set(&e, ERR_NOMEM, "out of memory");
        return cli_fail(c, &e);
    }
    if (model_opts_check(&m, &e)) {
        free(u);
        return cli_usage(c, "%s", e.msg);
    }
    if (argc && m.model && strcmp(argv[0], m.model)) {
        free(u);
        return cli_usage(c, "two models, %s and %s: name one", argv[0], o->model.model);
    }
    u->c = c;
    u->o = o;
    m.model = argc ? argv[0] : m.model;
    int r = choose_place(u, &m, &e);
    r = r ? r : cli_session_open(&u->s, c, &m, NULL, SESSION_FETCH, &e);
    u->open = !r;
    if (u->open) {
        awake_work(&u->s.awake, 1); /* until the session is closed */
    }
    r = r ? r : work(u, &e);
    int status = r ? 0 : finish(u);
    if (u->open) {
        cli_session_close(&u->s);
    }
    status = r ? cli_fail(c, &e) : status;
    cli_home_close(&u->home);
    free(u->ids);
    free(u);
    return status;
}

const struct command cmd_setup = {
    .name = "setup",
    .args = "[MODEL]",
    .summary = "bring what a model needs onto this disk: the spine, or all of it",
    .details =
        "Fetches the metadata and the spine of MODEL (a folder or http(s) URL; without it that of\n"
        "the running node, else the demo model), with --full all experts, too. Members of the\n"
        "home's shoal are asked before the origin. Says beforehand what it will take and what\n"
        "stays free, and refuses what does not fit. The spine is then packed, without loss, where\n"
        "that makes a token quicker on this machine, which is measured; or unpacked. It may be "
        "ended at any time, by a signal or a\n"
        "power cut: the same command goes on where it was.",
    .examples = "  shoal setup https://host/model\n"
                "  shoal setup --spine packed https://host/model\n"
                "  shoal setup --full --home /Volumes/Big/shoal https://host/model\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = 1,
    .size = sizeof(struct setup_opts),
    .run = run,
};
