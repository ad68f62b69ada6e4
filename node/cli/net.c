/* SPDX-License-Identifier: MIT
 * net.c: see net.h. */
#include "node/cli/net.h"

#include "node/store/hub.h"
#include "proto/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_MAX 4096
#define PATH_ROOM 4096

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

/* As huggingface_hub reads its switches. */
static bool env_true(const char *name)
{
    static const char *const yes[] = {"1", "on", "yes", "true"};
    const char *v = env(name);
    for (size_t i = 0; v && i < sizeof yes / sizeof *yes; i++) {
        if (!strcasecmp(v, yes[i])) {
            return true;
        }
    }
    return false;
}

const char *cli_hub_site(void)
{
    const char *v = env("HF_ENDPOINT");
    return v ? v : HUB_SITE;
}

const char *cli_hub_offline(void)
{
    return env_true("HF_HUB_OFFLINE")         ? "HF_HUB_OFFLINE"
           : env_true("TRANSFORMERS_OFFLINE") ? "TRANSFORMERS_OFFLINE"
                                              : NULL;
}

/* The text without blanks around it. */
static int add_trimmed(struct buf *out, const char *p, size_t n)
{
    while (n && strchr(" \t\r\n", p[n - 1])) {
        n--;
    }
    while (n && strchr(" \t\r\n", *p)) {
        p++;
        n--;
    }
    return buf_add(out, p, n);
}

static int from_file(const char *path, struct buf *out, struct err *e)
{
    struct buf text;
    buf_init(&text, TOKEN_MAX - 1);
    int r = file_read_all(path, &text, e);
    if (!r && add_trimmed(out, text.p ? text.p : "", text.n)) {
        r = err_set(e, ERR_LIMIT, "the token in %s is too long", path);
    }
    if (!r && !out->n) {
        r = err_set(e, ERR_FORMAT, "%s holds no token", path);
    }
    buf_free(&text);
    return r;
}

/* A path of huggingface_hub's variables: a leading ~ is the user's folder. */
static int expand(struct buf *out, const char *path)
{
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && env("HOME")) {
        return buf_addf(out, "%s%s", env("HOME"), path + 1);
    }
    return buf_adds(out, path);
}

/* HF_TOKEN_PATH, else token in HF_HOME, else in the cache folder of the user. */
static int token_path(struct buf *out)
{
    if (env("HF_TOKEN_PATH")) {
        return expand(out, env("HF_TOKEN_PATH"));
    }
    int r;
    if (env("HF_HOME")) {
        r = expand(out, env("HF_HOME"));
    } else if (env("XDG_CACHE_HOME")) {
        r = expand(out, env("XDG_CACHE_HOME"));
        r = r ? r : buf_adds(out, "/huggingface");
    } else {
        r = expand(out, "~/.cache/huggingface");
    }
    return r ? r : buf_adds(out, "/token");
}

/* The hub's own token, if there is one. */
static int hub_token(struct buf *out, struct err *e)
{
    const char *t = env("HF_TOKEN") ? env("HF_TOKEN") : env("HUGGING_FACE_HUB_TOKEN");
    if (t) {
        return add_trimmed(out, t, strlen(t)) ? err_set(e, ERR_LIMIT, "HF_TOKEN is too long") : 0;
    }
    struct buf path;
    buf_init(&path, PATH_ROOM);
    int r =
        token_path(&path) ? err_set(e, ERR_LIMIT, "the path of the hub's token is too long") : 0;
    if (!r && access(path.p, F_OK) == 0) {
        r = from_file(path.p, out, e);
    }
    buf_free(&path);
    return r;
}

static int find_token(struct buf *out, const char *which, const char *source, struct err *e)
{
    if (which && !strcmp(which, "none")) {
        return 0;
    }
    if (which && !strcmp(which, "hub")) {
        int r = hub_token(out, e);
        return r || out->n ? r
                           : err_set(e, ERR_ARG,
                                     "--token hub: there is none, neither HF_TOKEN nor the hub's "
                                     "token file (log in with the hub's own tool)");
    }
    if (which && !strncmp(which, "hf_", 3) && access(which, F_OK)) {
        return err_set(e, ERR_ARG,
                       "--token names a file, or hub, or none: a token itself would be seen by all "
                       "who list processes; put it into HF_TOKEN or SHOAL_TOKEN");
    }
    if (which) {
        return from_file(which, out, e);
    }
    const char *own = env("SHOAL_TOKEN");
    if (own) {
        return add_trimmed(out, own, strlen(own)) ? err_set(e, ERR_LIMIT, "SHOAL_TOKEN is too long")
                                                  : 0;
    }
    if (!hub_same_site(source, cli_hub_site()) || env_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
        return 0;
    }
    return hub_token(out, e);
}

static int find_ca(struct buf *out, const char *named, struct err *e)
{
    static const char *const names[] = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE",
                                        "SSL_CERT_DIR"};
    const char *by = "--ca-file", *v = named;
    for (size_t i = 0; !v && i < sizeof names / sizeof *names; i++) {
        by = names[i];
        v = env(by);
    }
    if (!v) {
        return 0;
    }
    if (access(v, R_OK)) {
        return err_sys(e, errno, "%s: cannot read the certificates in %s", by, v);
    }
    return buf_adds(out, v) ? err_set(e, ERR_LIMIT, "%s is too long", by) : 0;
}

static int find_commit(struct cli_net *n, const struct net_opts *o, const char *cache,
                       const struct hub_name *name, struct buf *source, struct err *e)
{
    struct hub_pin_opts po = {.cache_dir = cache,
                              .token = cli_net_token(n),
                              .ca_file = cli_net_ca(n),
                              .offline = n->offline,
                              .anew = o->new_revision};
    struct hub_pin p;
    if (o->new_revision && n->offline) {
        return err_set(e, ERR_ARG, "--new-revision asks the hub, which may not be asked (offline)");
    }
    int r = hub_pin(&po, name, &p, e);
    if (r == ERR_OFFLINE && hub_cached(cache, source->p)) {
        return 0; /* a cache from before commits were kept */
    }
    if (r) {
        return r;
    }
    if (!hub_is_commit(name->revision)) {
        char day[32] = "";
        time_t t = (time_t)p.since;
        struct tm tm;
        if (localtime_r(&t, &tm)) {
            strftime(day, sizeof day, "%Y-%m-%d", &tm);
        }
        if (p.fresh) {
            snprintf(n->said, sizeof n->said,
                     "revision %.100s of %.150s is commit %.64s, and stays so here until "
                     "--new-revision",
                     name->revision, name->repo, p.commit);
        } else {
            snprintf(n->said, sizeof n->said,
                     "revision %.100s of %.150s is commit %.64s since %s (--new-revision asks the "
                     "hub anew)",
                     name->revision, name->repo, p.commit, day);
        }
    }
    source->n = 0;
    return hub_address(name, p.commit, source)
               ? err_set(e, ERR_LIMIT, "the model's address is too long")
               : 0;
}

int cli_net_open(struct cli_net *n, const struct net_opts *o, bool offline, const char *cache,
                 struct buf *source, struct err *e)
{
    memset(n, 0, sizeof *n);
    buf_init(&n->token, TOKEN_MAX);
    buf_init(&n->ca, PATH_ROOM);
    n->offline = offline || cli_hub_offline();
    if (strncasecmp(source->p, "http://", 7) && strncasecmp(source->p, "https://", 8)) {
        return 0; /* a folder: nothing of it matters */
    }
    struct hub_name name;
    int r = n->offline ? 0 : find_token(&n->token, o->token, source->p, e);
    r = r || n->offline ? r : find_ca(&n->ca, o->ca_file, e);
    if (r) {
        return r;
    }
    if (hub_parse(source->p, cli_hub_site(), false, &name)) {
        if (!cache) {
            return err_set(e, ERR_ARG,
                           "a hub's model needs a cache folder, which keeps its commit");
        }
        return find_commit(n, o, cache, &name, source, e);
    }
    return o->new_revision
               ? err_set(e, ERR_ARG,
                         "--new-revision is for models of a hub (org/name), which %.300s "
                         "is not",
                         source->p)
               : 0;
}

void cli_net_close(struct cli_net *n)
{
    if (n->token.p) {
        memset(n->token.p, 0, n->token.n);
    }
    buf_free(&n->token);
    buf_free(&n->ca);
}

const char *cli_net_token(const struct cli_net *n)
{
    return n->token.n ? n->token.p : NULL;
}

const char *cli_net_ca(const struct cli_net *n)
{
    return n->ca.n ? n->ca.p : NULL;
}
