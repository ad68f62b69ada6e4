/* SPDX-License-Identifier: MIT
 * home.c: see home.h. */
#include "node/cli/home.h"

#include "node/cli/plat.h"
#include "node/daemon/node.h"
#include "node/store/place.h"
#include "peer/home.h"

#include <stdlib.h>
#include <string.h>

const struct opt home_opts_table[HOME_OPTS_COUNT] = {
    {"home", "DIR",
     "the folder of this node; default: SHOAL_HOME, else the platform's place for data", OPT_TEXT,
     offsetof(struct home_opts, home), 0, 0, NULL},
};

static int find_path(struct cli_home *h, const struct home_opts *o, struct err *e)
{
    char path[HOME_PATH_MAX];
    if (o->home && !o->home[0]) {
        return err_set(e, ERR_ARG, "--home is empty: give a folder");
    }
    h->path = o->home;
    if (!h->path) {
        int r = plat_home(&h->buf, e);
        if (r) {
            return r;
        }
        h->path = h->buf.p;
    }
    return home_path(h->path, "", path, e);
}

static bool never_used(const char *home)
{
    return !home_has(home, "identity/node.key") && !home_has(home, "identity/node.id");
}

/* What a command cannot do without a shoal, and how one comes to be; `what` names the home by %s.
 */
__attribute__((format(printf, 2, 0))) static int no_shoal(struct cli_home *h, const char *what,
                                                          struct err *e)
{
    char begin[HOME_PATH_MAX + 80];
    const char *flag = cli_home_flag(h);
    snprintf(begin, sizeof begin, what, h->path);
    return err_set(e, ERR_REFUSED,
                   "%.200s: make a shoal with shoal init%.100s, or join one with shoal join%.100s "
                   "TOKEN",
                   begin, flag, flag);
}

int cli_home_open(struct cli_home *h, struct cli *c, const struct home_opts *o,
                  enum cli_home_need need, struct err *e)
{
    memset(h, 0, sizeof *h);
    h->c = c;
    buf_init(&h->buf, HOME_PATH_MAX);
    buf_init(&h->flag, 4 * HOME_PATH_MAX);
    int r = find_path(h, o, e);
    if (r || need == HOME_PATH) {
        return r;
    }
    h->fresh = never_used(h->path);
    if (h->fresh && need != HOME_MAKE) {
        return need == HOME_LOOK ? 0 : no_shoal(h, "there is no node in %s yet", e);
    }
    r = home_folder(h->path, "", e);
    r = r ? r : identity_open(h->path, NULL, &h->me, e);
    if (!r) {
        h->fresh = false;
        r = member_open(h->path, &h->me, &h->m, e);
    }
    if (!r && need == HOME_SHOAL && !h->m.in_group) {
        r = no_shoal(h, "the node in %s belongs to no shoal", e);
    }
    if (!r && h->me.moved) {
        char text[600];
        identity_moved_text(&h->me, text, sizeof text);
        cli_note(c, "%s", text);
    }
    return r;
}

void cli_home_close(struct cli_home *h)
{
    if (h->me.key) {
        member_close(&h->m);
        identity_close(&h->me);
    }
    buf_free(&h->buf);
    buf_free(&h->flag);
}

const char *cli_home_named(struct cli_home *h)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,";
    h->flag.n = 0;
    int r = buf_adds(&h->flag, " --home ");
    if (strspn(h->path, plain) == strlen(h->path)) {
        r = r ? r : buf_adds(&h->flag, h->path);
        return r ? "" : h->flag.p;
    }
    r = r ? r : buf_adds(&h->flag, "'");
    for (const char *p = h->path; !r && *p; p++) {
        r = *p == '\'' ? buf_adds(&h->flag, "'\\''") : buf_add(&h->flag, p, 1);
    }
    r = r ? r : buf_adds(&h->flag, "'");
    return r ? "" : h->flag.p;
}

const char *cli_home_flag(struct cli_home *h)
{
    struct buf standard;
    struct err e;
    buf_init(&standard, HOME_PATH_MAX);
    bool same = !plat_home(&standard, &e) && !strcmp(standard.p, h->path);
    buf_free(&standard);
    return same ? "" : cli_home_named(h);
}

int cli_cache_find(const char *cache, const char *home, struct buf *named, struct buf *out,
                   struct err *e)
{
    struct buf b;
    buf_init(&b, PLACE_PATH_MAX);
    int r = cache || home ? 0 : plat_home(&b, e);
    if (!r) {
        r = cache  ? buf_adds(&b, cache)
            : home ? buf_addf(&b, "%s/cache", home)
                   : buf_adds(&b, "/cache");
        r = r || !named ? r : buf_adds(named, b.p);
        r = r ? err_set(e, ERR_LIMIT, "the path of the cache folder is too long") : 0;
    }
    r = r || !out ? r : place_find(b.p, out, e);
    buf_free(&b);
    return r;
}

void cli_id_json(json_t *o, const struct key_id *id)
{
    char full[ID_TEXT], brief[ID_SHORT];
    id_text(id, full);
    id_short(id, brief);
    json_object_set_new(o, "node", json_string(full));
    json_object_set_new(o, "short", json_string(brief));
}

json_t *cli_home_json(const struct cli_home *h)
{
    char group[ID_TEXT];
    json_t *o = json_object();
    bool known = h->me.key != NULL, in = known && h->m.in_group;
    json_object_set_new(o, "home", json_string(h->path));
    if (known) {
        cli_id_json(o, &h->me.id);
    } else {
        json_object_set_new(o, "node", json_null());
        json_object_set_new(o, "short", json_null());
    }
    if (in) {
        id_text(&h->m.group, group);
    }
    json_object_set_new(o, "group", in ? json_string(group) : json_null());
    json_object_set_new(o, "member",
                        json_boolean(in && roster_find(&h->m.roster, &h->me.id) != NULL));
    json_object_set_new(o, "keeper", json_boolean(in && h->m.signing_key != NULL));
    json_object_set_new(o, "members", json_integer(in ? (json_int_t)h->m.roster.members_n : 0));
    json_object_set_new(o, "roster_version",
                        json_integer(in ? (json_int_t)h->m.roster.version : 0));
    return o;
}

/* Among the peers of a running node, the one of this name. */
static int find_name(struct cli_home *h, const char *word, struct key_id *id, struct err *e)
{
    json_t *answer = NULL, *p;
    const char *hit = NULL;
    size_t i, hits = 0;
    if (cli_home_ask(h, json_pack("{s:s}", "op", "status"), 0, &answer, NULL)) {
        return e->code;
    }
    json_array_foreach(json_object_get(answer, "peers"), i, p)
    {
        const char *name = json_string_value(json_object_get(p, "name"));
        const char *full = json_string_value(json_object_get(p, "id"));
        if (name && full && !strcmp(name, word)) {
            hit = full;
            hits++;
        }
    }
    int r = hits == 1  ? id_parse(hit, id, e)
            : hits > 1 ? err_set(e, ERR_ARG, "%zu nodes are called %s: give an id", hits, word)
                       : e->code;
    json_decref(answer);
    return r;
}

int cli_home_find(struct cli_home *h, const char *word, struct key_id *id, struct err *e)
{
    const struct roster *r = &h->m.roster;
    struct key_id *ids = calloc(r->members_n ? r->members_n : 1, sizeof *ids);
    size_t which = 0;
    if (!ids) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < r->members_n; i++) {
        ids[i] = r->members[i].id;
    }
    int code = id_find(word, ids, r->members_n, &which, e);
    if (!code) {
        *id = ids[which];
    }
    free(ids);
    return code && code != ERR_ARG ? find_name(h, word, id, e) : code;
}

int cli_home_ask(struct cli_home *h, json_t *request, unsigned timeout_ms, json_t **answer,
                 struct err *e)
{
    *answer = NULL;
    if (!request) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = node_ask(h->path, request, timeout_ms, answer, e);
    json_decref(request);
    return r;
}

int cli_home_add_peer(struct cli_home *h, const char *host_port, struct err *e)
{
    json_t *a = NULL;
    int r = cli_home_ask(h, json_pack("{s:s, s:s}", "op", "add_peer", "peer", host_port), 0, &a, e);
    json_decref(a);
    return r == ERR_OFFLINE ? node_keep_peer(h->path, host_port, e) : r;
}

void cli_home_look(struct cli_home *h)
{
    json_t *a = NULL;
    (void)cli_home_ask(h, json_pack("{s:s}", "op", "look"), 0, &a, NULL);
    json_decref(a);
}
