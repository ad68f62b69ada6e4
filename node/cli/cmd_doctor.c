/* SPDX-License-Identifier: MIT
 * cmd_doctor.c: `shoal doctor`: is this machine fit, and if not, what to do. */
#include "kernels/cpu.h"
#include "node/cli/habits.h"
#include "node/cli/home.h"
#include "node/cli/installed.h"
#include "node/cli/plat.h"
#include "node/cli/session.h"
#include "node/cli/spine.h"
#include "node/demo/where.h"
#include "node/store/probe.h"

#include <curl/curl.h>
#include <errno.h>
#include <microhttpd.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct doctor_opts {
    struct common_opts common;
    struct model_opts model;
};

static const struct opt_group groups[] = {
    {"Model (checked when --model is given)", model_opts_table, MODEL_OPTS_COUNT,
     offsetof(struct doctor_opts, model)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

#define DISK_FLOOR ((uint64_t)1 << 30) /* the store's default */

static const char *const verdict_words[] = {"ok", "warn", "fail"}; /* by enum verdict */

struct exam {
    struct cli *c;
    json_t *checks; /* with --json */
    unsigned count[3];
};

__attribute__((format(printf, 4, 5))) static void say(struct exam *x, enum verdict v,
                                                      const char *what, const char *fmt, ...)
{
    char text[HABITS_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    x->count[v]++;
    if (x->checks) {
        json_t *t = json_string(text);
        json_array_append_new(x->checks, json_pack("{s:s, s:s, s:o}", "name", what, "verdict",
                                                   verdict_words[v], "detail",
                                                   t ? t : json_string("(not UTF-8)")));
    } else {
        printf("%-5s %-10s %s\n", verdict_words[v], what, text);
        fflush(stdout);
    }
}

static void exam_processor(struct exam *x)
{
    char cpu[128];
    unsigned fast, all = plat_cores(&fast);
    plat_cpu(cpu, sizeof cpu);
    const char *isa = kern_isa_available(KERN_ISA_NEON)   ? "neon"
                      : kern_isa_available(KERN_ISA_AVX2) ? "avx2"
                                                          : "scalar";
    bool slow = !strcmp(isa, "scalar");
    say(x, slow ? WARN : GOOD, "processor", "%s, %u cores, %u of them fast, instruction set %s%s",
        cpu[0] ? cpu : "unnamed", all, fast, isa,
        slow ? ": no AVX2 with FMA and no NEON, so everything runs many times slower" : "");
}

static void keep_line(void *ctx, const char *line)
{
    struct buf *said = ctx;
    (void)buf_addf(said, "%s%s", said->n ? "; " : "", line);
}

/* The GPU as `run` would use it; at its first start the self-test is made here. */
static void exam_gpu(struct exam *x, const char *home)
{
    struct compute_opts k = {.threads = {1, true}};
    struct compute *c;
    struct compute_report r;
    struct err e = {0};
    struct buf said;
    char words[600];
    buf_init(&said, 4096);
    if (cli_compute_open(x->c, &k, home, keep_line, &said, &c, &e)) {
        say(x, WARN, "gpu", "%s", e.msg);
    } else {
        compute_report(c, &r);
        cli_compute_words(c, words, sizeof words);
        if (!r.gpu) {
            /* a message of a compiler or a self-test is worth reading; no GPU is not */
            say(x, said.n ? WARN : GOOD, "gpu", "not used: %s%s%s", r.why, said.n ? "; " : "",
                said.n ? said.p : "");
        } else {
            say(x, r.on_cpu[0] ? WARN : GOOD, "gpu", "%s, its self-test %s%s%s", words,
                r.remembered ? "was made before" : "made now", said.n ? "; " : "",
                said.n ? said.p : "");
        }
        compute_close(c);
    }
    buf_free(&said);
}

static void exam_memory(struct exam *x)
{
    char a[CLI_NUM], b[CLI_NUM];
    uint64_t m = plat_memory();
    if (!m) {
        say(x, WARN, "memory", "the system does not say how much there is: give --ram-budget");
        return;
    }
    bool little = m < (uint64_t)16 << 30;
    say(x, little ? WARN : GOOD, "memory", "%s, of which Shoal takes at most %s by default%s",
        cli_bytes(m, a), cli_bytes(m / 2, b),
        little ? ": enough for small models; Kimi K3 wants 16 GB or more" : "");
    uint64_t page = plat_page();
    say(x, GOOD, "pages", "%llu bytes", (unsigned long long)page);
}

/* The cache folder as `run` would use it. */
static void exam_cache(struct exam *x, const char *cache, const char *home)
{
    struct err e = {0};
    struct buf path;
    char a[CLI_NUM];
    uint64_t room;
    buf_init(&path, 4096);
    if (cli_cache_find(cache, home, NULL, &path, &e)) {
        say(x, WARN, "cache", "%s", e.msg);
        buf_free(&path);
        return;
    }
    cache = path.p;
    struct stat sb;
    bool there = !stat(cache, &sb);
    if (there && !S_ISDIR(sb.st_mode)) {
        say(x, BAD, "cache", "%s is a file: remove it or name another folder by --cache", cache);
    } else if (there && access(cache, R_OK | W_OK | X_OK)) {
        say(x, BAD, "cache", "%s cannot be written (%s): correct its owner or mode", cache,
            strerror(errno));
    } else {
        say(x, GOOD, "cache", "%s %s", cache,
            there ? "can be written" : "will be made when needed");
    }
    if (plat_disk_free(cache, &room, &e)) {
        say(x, BAD, "disk", "%s", e.msg);
    } else {
        bool full = room < DISK_FLOOR, small = room < (uint64_t)150000000000;
        say(x, small ? WARN : GOOD, "disk", "%s free there%s", cli_bytes(room, a),
            full    ? ": nothing new is kept in the cache where less than 1.07 GB are free"
            : small ? ": enough for small models; Kimi K3's spine (all but the experts) takes 115 "
                      "GB, its experts 1.45 TB"
                    : "");
    }
    buf_free(&path);
}

static void exam_libraries(struct exam *x)
{
    const curl_version_info_data *cv = curl_version_info(CURLVERSION_NOW);
    bool tls = cv->features & CURL_VERSION_SSL;
    say(x, tls ? GOOD : WARN, "libraries",
        "libcurl %s (%s), sqlite %s, jansson %s, libmicrohttpd %s%s", cv->version,
        cv->ssl_version ? cv->ssl_version : "no TLS", sqlite3_libversion(), jansson_version_str(),
        MHD_get_version(), tls ? "" : ": this libcurl cannot read https URLs");
}

static void exam_demo(struct exam *x)
{
    struct err e = {0};
    struct buf path;
    buf_init(&path, 4096);
    int r = demo_model_find(x->c->exe, &path, &e);
    say(x, r ? WARN : GOOD, "demo", "%s", r ? e.msg : path.p);
    buf_free(&path);
}

static void say_token(struct exam *x, const struct probe *p, bool sent)
{
    if (p->refused) {
        say(x, BAD, "token",
            sent ? "not accepted (status %d): it is not valid there, or has no access to this model"
                 : "needed (status %d): name one by HF_TOKEN, the hub's token file or --token",
            p->status);
    } else if (p->status == 200) {
        say(x, GOOD, "token", "%s",
            !sent                            ? "none, and none is needed"
            : p->token == PROBE_TOKEN_NEEDED ? "accepted, and needed"
                                             : "not needed");
    }
}

static void say_files(struct exam *x, const struct probe *p)
{
    char a[CLI_NUM], life[64] = "";
    if (p->why.code) {
        say(x, BAD, "shards", "%s", p->why.msg);
    }
    if (!*p->shard) {
        return;
    }
    if (p->life_s) {
        snprintf(life, sizeof life, ", by addresses that last %lld s", (long long)p->life_s);
    }
    if (*p->far) {
        say(x, GOOD, "redirect", "shards come from %s%s; the token does not go there", p->far,
            life);
    }
    if (p->ranges) {
        say(x, GOOD, "ranges", "parts of files are given as asked for; %s/s by one connection",
            cli_bytes((uint64_t)p->bytes_s, a));
    } else if (p->why.code == 0) {
        say(x, BAD, "ranges", "parts of files are not given: Shoal needs a server that does");
    }
}

static void say_clock(struct exam *x, const struct probe *p)
{
    long long s = p->skew_s < 0 ? -(long long)p->skew_s : (long long)p->skew_s;
    if (p->skew_known && s > 60) {
        say(x, WARN, "clock",
            "this machine's is %lld s %s the server's: certificates may look expired; set the "
            "clock",
            s, p->skew_s > 0 ? "behind" : "ahead of");
    } else if (p->skew_known) {
        say(x, GOOD, "clock", "within %lld s of the server's", s);
    }
}

/* The address of --model, when it is one and may be asked. False: not even its commit is known, so
 * nothing can be opened. */
static bool exam_origin(struct exam *x, const struct model_opts *o)
{
    struct err e = {0};
    struct buf source, cache;
    struct cli_net net = {.offline = false};
    struct probe p;
    buf_init(&source, 4096);
    buf_init(&cache, 4096);
    int r = cli_model_source(x->c->exe, o->model, &source, &e);
    bool url =
        !r && (!strncasecmp(source.p, "http://", 7) || !strncasecmp(source.p, "https://", 8));
    if (url) {
        r = cli_cache_find(o->cache, o->home, NULL, &cache, &e);
        r = r ? r : cli_net_open(&net, &o->net, o->offline, cache.p, &source, &e);
    }
    bool known = !r;
    if (url && !r && net.offline) {
        say(x, GOOD, "origin", "not asked (%s)", o->offline ? "--offline" : cli_hub_offline());
    } else if (url && !r) {
        struct probe_opts po = {source.p, cli_net_token(&net), cli_net_ca(&net)};
        r = probe_origin(&po, &p, &e);
        if (!r) {
            say(x, p.status >= 500 || p.status == 404 ? BAD : GOOD, "origin",
                "%s answers in %.0f ms with status %d", source.p, p.latency_s * 1e3, p.status);
            say_token(x, &p, po.token != NULL);
            if (!p.refused) {
                say_files(x, &p);
            }
            say_clock(x, &p);
        }
    }
    if (url && r) {
        say(x, BAD, "origin", "%s", e.msg);
    }
    cli_net_close(&net);
    buf_free(&source);
    buf_free(&cache);
    return known || !url;
}

static void exam_model(struct exam *x, const struct model_opts *o)
{
    struct err e = {0};
    struct cli_session s;
    char a[CLI_NUM], b[CLI_NUM];
    struct cli quiet = *x->c;
    quiet.quiet = true;
    if (cli_session_open(&s, &quiet, o, NULL, SESSION_STORE, &e)) {
        say(x, BAD, "model", "%s", e.msg);
        return;
    }
    const struct model_config *k = model_config(s.m);
    uint64_t experts = 0, have = 0;
    for (uint32_t i = 0; i < model_object_count(s.m); i++) {
        if (model_object(s.m, i)->kind == MODEL_EXPERT) {
            enum store_tier t = store_where(s.st, i);
            experts++;
            have += t == STORE_DISK || t == STORE_RAM;
        }
    }
    say(x, GOOD, "model", "%s: %u layers, spine %s, experts %s; %llu of %llu experts on this disk",
        s.source, k->n_layers, cli_bytes(model_spine_bytes(s.m), a),
        cli_bytes(model_expert_bytes(s.m), b), (unsigned long long)have,
        (unsigned long long)experts);
    char words[STORE_FORMS_NOTE + 200];
    cli_spine_words(s.st, words, sizeof words);
    say(x, GOOD, "spine", "%s", words);
    say(x, GOOD, "tokenizer", "%u ids", tok_vocab(s.tok));
    cli_session_close(&s);
}

/* The home of a node: is it sound, does it belong to a shoal, does a node run on it? */
static void exam_home(struct exam *x, const char *home)
{
    struct home_opts o = {home};
    struct cli quiet = *x->c;
    struct cli_home h;
    struct err e = {0};
    json_t *a = NULL;
    char id[ID_SHORT], group[ID_SHORT];
    quiet.quiet = true;
    if (cli_home_open(&h, &quiet, &o, HOME_LOOK, &e)) {
        say(x, BAD, "node", "%s", e.msg);
    } else if (!h.me.key) {
        say(x, GOOD, "node", "none in %s yet (shoal init, shoal join)", h.path);
    } else {
        id_short(&h.me.id, id);
        id_short(&h.m.group, group);
        say(x, h.me.moved ? WARN : GOOD, "node", "%s in %s, %s%s%s", id, h.path,
            h.m.in_group ? "of the shoal " : "in no shoal", h.m.in_group ? group : "",
            h.me.moved ? "; the folder was last used on another machine (shoal peers)" : "");
        int r = cli_home_ask(&h, json_pack("{s:s}", "op", "status"), 3000, &a, &e);
        if (!r) {
            say(x, GOOD, "running", "yes, %lld of %lld other members connected",
                json_integer_value(json_object_get(a, "connected")),
                h.m.in_group ? (long long)h.m.roster.members_n - 1 : 0);
        } else {
            say(x, r == ERR_OFFLINE ? GOOD : WARN, "running", "%s",
                r == ERR_OFFLINE ? "no (shoal up starts it)" : e.msg);
        }
        json_decref(a);
    }
    cli_home_close(&h);
}

static void exam_bonjour(struct exam *x)
{
    int no = plat_listens(plat_bonjour_socket());
    if (no) {
        say(x, WARN, "bonjour",
            "its service does not answer at %s (%s): other machines are found by shoal peers add "
            "and by remembered addresses only",
            plat_bonjour_socket(), strerror(no));
    } else {
        say(x, GOOD, "bonjour", "its service answers");
    }
}

static void say_habit(void *ctx, enum verdict v, const char *name, const char *text)
{
    say(ctx, v, name, "%s", text);
}

/* The service of this home, and what its running node has noticed. */
static void read_node(struct habits *h, const struct cli *c, const char *home)
{
    struct home_opts o = {home};
    struct cli quiet = *c;
    struct cli_home ch;
    struct installed s;
    struct err e = {0};
    json_t *a = NULL;
    bool loaded;
    quiet.quiet = true;
    if (!cli_home_open(&ch, &quiet, &o, HOME_PATH, &e)) {
        if (!installed_open(&s, plat_has_launchd() ? UNIT_LAUNCHD : UNIT_SYSTEMD, ch.path, &e)) {
            h->service = installed_there(&s) ? YES : NO;
            if (h->service == YES && !installed_loaded(&s, &loaded)) {
                h->service_loaded = loaded ? YES : NO;
            }
        }
        installed_close(&s);
        if (!cli_home_ask(&ch, json_pack("{s:s}", "op", "why"), 3000, &a, NULL)) {
            const char *notice = json_string_value(json_object_get(a, "notice"));
            bool lan = notice && strstr(notice, "no route to host"); /* privacy.c: all say it */
            snprintf(h->notice, sizeof h->notice, "%s", lan ? notice : "");
        }
        json_decref(a);
    }
    cli_home_close(&ch);
}

static void exam_habits(struct exam *x, const struct model_opts *o)
{
    struct err e = {0};
    struct buf path;
    struct habits h = {.files = x->c->files, .files_before = x->c->files_before};
    buf_init(&path, 4096);
    bool found = !cli_cache_find(o->cache, o->home, NULL, &path, &e);
    habits_read(&h, found ? path.p : NULL, x->c->exe);
    read_node(&h, x->c, o->home);
    habits_judge(&h, say_habit, x);
    buf_free(&path);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct doctor_opts *o = opts;
    struct err e = {0};
    if (model_opts_check(&o->model, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    struct exam x = {.c = c, .checks = c->json ? json_array() : NULL};
    exam_processor(&x);
    exam_gpu(&x, o->model.home);
    exam_memory(&x);
    exam_cache(&x, o->model.cache, o->model.home);
    exam_libraries(&x);
    exam_demo(&x);
    exam_home(&x, o->model.home);
    exam_bonjour(&x);
    exam_habits(&x, &o->model);
    if (o->model.model) {
        if (exam_origin(&x, &o->model)) {
            exam_model(&x, &o->model);
        }
    }
    const char *all = x.count[BAD] ? "fail" : x.count[WARN] ? "warn" : "ok";
    if (c->json) {
        int r = cli_json(c, json_pack("{s:s, s:o}", "verdict", all, "checks", x.checks));
        return r ? r : x.count[BAD] ? CLI_FAILED : CLI_OK;
    }
    if (x.count[BAD]) {
        printf("\n%u of the checks failed: see the lines that begin with fail.\n", x.count[BAD]);
    } else if (x.count[WARN]) {
        printf("\nShoal can run here; lines that begin with warn say what to expect.\n");
    } else {
        printf("\nShoal can run here.\n");
    }
    return x.count[BAD] ? CLI_FAILED : cli_write(c, "", 0);
}

const struct command cmd_doctor = {
    .name = "doctor",
    .args = "",
    .summary = "check this machine, the cache folder and a model",
    .details =
        "One line for each check: ok, warn (it runs, but see) or fail (and what to do). The exit\n"
        "status is 1 when a check failed.",
    .examples = "  shoal doctor\n  shoal doctor --model https://host/model --cache ~/k3\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct doctor_opts),
    .run = run,
};
