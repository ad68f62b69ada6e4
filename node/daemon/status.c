/* SPDX-License-Identifier: MIT
 * status.c: the report of a node: what the mesh says, with the tiers, the limits and words for
 * people beside it. See README.md for its fields. */
#include "node/daemon/node_int.h"

#include "kernels/backend.h"
#include "node/store/budget.h"
#include "node/store/forms.h"
#include "node/store/words.h"
#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static json_t *num(uint64_t v)
{
    return json_integer((json_int_t)v);
}

/* "2,143" */
static const char *grouped(uint64_t v, char out[32])
{
    char s[24];
    int n = snprintf(s, sizeof s, "%llu", (unsigned long long)v), k = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) {
            out[k++] = ',';
        }
        out[k++] = s[i];
    }
    out[k] = 0;
    return out;
}

/* In percent with one decimal, cut: 100 only when it is all. */
static double percent(uint64_t have, uint64_t of)
{
    return of ? (double)(have * 1000 / of) / 10 : 0;
}

/* ---- the model and its tiers ---- */

static json_t *model_json(struct node *n, struct store *st)
{
    char hex[2 * SHA256_SIZE + 1];
    json_t *j = json_object();
    json_object_set_new(j, "address", json_string(n->model));
    if (st) {
        const struct model *m = store_model(st);
        const struct model_config *c = model_config(m);
        sha256_hex(model_root(m), hex);
        json_object_set_new(j, "root", json_string(hex));
        json_object_set_new(j, "short", json_stringn(hex, 12));
        json_object_set_new(j, "layers", num(c->n_layers));
        json_object_set_new(j, "experts_per_layer", num(c->n_experts));
        json_object_set_new(j, "experts",
                            num(model_expert_bytes(m) / model_expert_layout(m)->size));
        json_object_set_new(j, "expert_bytes", num(model_expert_bytes(m)));
        json_object_set_new(j, "spine_bytes", num(model_spine_bytes(m)));
        struct store_forms f;
        char note[STORE_FORMS_NOTE];
        store_get_forms(st, &f);
        store_forms_note(st, note);
        json_object_set_new(j, "spine_packed_from", num(f.packed_from));
        json_object_set_new(j, "spine_packed_bytes", num(f.packed_bytes));
        json_object_set_new(j, "spine_why", json_string(note));
    } else {
        json_object_set_new(j, "root", json_null());
        json_object_set_new(j, "short", json_null());
    }
    json_object_set_new(j, "open", json_boolean(st != NULL));
    return j;
}

struct own {
    uint64_t objects, bytes, experts;
};

static void count_own(struct store *st, struct own *o)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    memset(o, 0, sizeof *o);
    if (store_share_list(st, &ids, &n, NULL)) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct model_object *x = model_object(store_model(st), ids[i]);
        o->objects++;
        o->bytes += x->size;
        o->experts += x->kind == MODEL_EXPERT;
    }
    free(ids);
}

static json_t *mirrors_json(struct store *st)
{
    struct store_mirror v[STORE_MIRRORS_MAX];
    size_t n = store_mirrors(st, v, STORE_MIRRORS_MAX);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *state = v[i].wrong ? "wrong" : v[i].pause_ms ? "left alone" : "in use";
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:f,s:I,s:I,s:I,s:f,s:s}", "address", v[i].host,
                                        "state", state, "pause_s", (double)v[i].pause_ms / 1e3,
                                        "bytes", (json_int_t)v[i].bytes, "parts",
                                        (json_int_t)v[i].parts, "failed", (json_int_t)v[i].failed,
                                        "measured_bytes_s", v[i].bytes_s, "last_fault", v[i].why));
    }
    return list;
}

static json_t *tiers_json(struct node *n, struct store *st, const struct own *own)
{
    struct store_stats s;
    struct statvfs v;
    bool up = false;
    double rate = 0, latency = 0;
    store_get_stats(st, &s);
    bool has = store_has_origin(st);
    if (has) {
        store_origin_measured(st, &up, &rate, &latency);
    }
    json_t *ram = json_pack("{s:I,s:I,s:I,s:I}", "used", (json_int_t)s.ram_used, "peak",
                            (json_int_t)s.ram_peak, "budget", (json_int_t)s.ram_budget, "hits",
                            (json_int_t)s.ram_hits);
    struct store_budget b;
    (void)store_get_budget(st, &b, NULL); /* zeros without a disk tier */
    json_t *disk =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "folder", n->cache, "used",
                  (json_int_t)b.used, "objects", (json_int_t)own->objects, "budget",
                  (json_int_t)b.budget, "floor", (json_int_t)b.floor, "hits",
                  (json_int_t)s.disk_hits, "bytes_read", (json_int_t)s.disk_bytes, "written",
                  (json_int_t)b.written, "written_today", (json_int_t)b.written_today);
    json_object_set_new(disk, "limits", budget_json(st));
    if (!statvfs(n->cache, &v)) {
        json_object_set_new(disk, "free", num((uint64_t)v.f_bavail * v.f_frsize));
    }
    json_t *origin =
        json_pack("{s:b,s:b,s:f,s:f,s:f,s:I,s:I,s:I,s:I}", "used", has, "answers", up, "rate",
                  s.origin_rate, "measured_bytes_s", rate, "latency_s", latency, "bytes",
                  (json_int_t)s.origin_bytes, "unused", (json_int_t)s.origin_unused, "retries",
                  (json_int_t)s.retries, "fetches", (json_int_t)s.origin_fetches);
    return json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I}", "ram", ram, "disk", disk, "origin",
                     origin, "mirrors", mirrors_json(st), "mirror_bytes",
                     (json_int_t)s.mirror_bytes, "peer_bytes", (json_int_t)s.peer_bytes,
                     "bad_chunks", (json_int_t)s.bad_chunks, "refetched", (json_int_t)s.refetched);
}

static json_t *basis_json(struct store *st)
{
    static const char *const names[] = {"none", "one_member", "two_members", "origin", "manifest"};
    struct store_basis b;
    json_t *j = json_object();
    store_get_basis(st, &b);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_object_set_new(j, names[i],
                            json_pack("{s:I,s:I}", "objects", (json_int_t)b.objects[i], "bytes",
                                      (json_int_t)b.bytes[i]));
    }
    return j;
}

/* {"statements",...,"manifest","members":[{"id","statements","objects","alone","void","why"}]} */
static json_t *words_json(struct node *n, struct store *st)
{
    struct store_words_member v[STORE_WORDS_MEMBERS];
    struct words_stats s = {0};
    uint32_t known = 0;
    uint8_t sha[SHA256_SIZE];
    size_t k = store_words_members(st, v, STORE_WORDS_MEMBERS);
    json_t *list = json_array(), *manifest = json_null();
    for (size_t i = 0; i < k; i++) {
        struct key_id id;
        char text[ID_TEXT];
        memcpy(id.b, v[i].id, SHA256_SIZE);
        id_text(&id, text);
        json_array_append_new(
            list, json_pack("{s:s,s:I,s:I,s:I,s:b,s:I,s:s}", "id", text, "statements",
                            (json_int_t)v[i].statements, "objects", (json_int_t)v[i].objects,
                            "alone", (json_int_t)v[i].alone, "void", v[i].void_at != 0, "void_at",
                            (json_int_t)v[i].void_at, "why", v[i].why));
    }
    store_words_manifest(st, &known, sha);
    if (known) {
        char hex[2 * SHA256_SIZE + 1];
        sha256_hex(sha, hex);
        manifest = json_pack("{s:I,s:s}", "objects", (json_int_t)known, "sha256", hex);
    }
    if (n->words) {
        words_get_stats(n->words, &s);
    }
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "taken", (json_int_t)s.taken,
                     "refused", (json_int_t)s.refused, "made", (json_int_t)s.made, "made_objects",
                     (json_int_t)s.made_objects, "audits", (json_int_t)s.audits, "audit_bytes",
                     (json_int_t)s.audit_bytes, "audits_failed", (json_int_t)s.audits_failed,
                     "manifest", manifest, "members", list);
}

/* What is known of a peer's word, beside its row. */
static void add_words(json_t *root, const json_t *words)
{
    const json_t *list = json_object_get(words, "members");
    json_t *peers = json_object_get(root, "peers");
    for (size_t i = 0; i < json_array_size(peers); i++) {
        json_t *p = json_array_get(peers, i);
        for (size_t k = 0; k < json_array_size(list); k++) {
            json_t *m = json_array_get(list, k);
            if (json_equal(json_object_get(m, "id"), json_object_get(p, "id"))) {
                json_object_set(p, "word", m);
            }
        }
    }
}

/* ---- coverage ---- */

static void coverage(json_t *root, struct store *st, const struct own *own, bool others)
{
    json_t *c = json_object_get(root, "coverage");
    const json_t *kinds = json_object_get(c, "kinds");
    uint64_t have = 0, of = 0;
    char words[200], count[32];
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const json_t *k = json_array_get(kinds, i);
        if (json_integer_value(json_object_get(k, "kind")) == STORE_KEY_EXPERT) {
            have = (uint64_t)json_integer_value(json_object_get(k, "have"));
            of = (uint64_t)json_integer_value(json_object_get(k, "of"));
        }
    }
    uint64_t all = model_expert_bytes(store_model(st)) / model_expert_layout(store_model(st))->size;
    if (of < have || !of) { /* the mesh has not counted yet */
        have = own->experts;
        of = all;
    }
    if (have < own->experts) { /* its count is up to two seconds old, ours is of now */
        have = own->experts;
    }
    snprintf(words, sizeof words, "%s %.1f %%; %s expert%s on no disk",
             others ? "your Macs hold" : "this Mac holds", percent(have, of),
             grouped(of - have, count), of - have == 1 ? " is" : "s are");
    json_object_set_new(c, "experts",
                        json_pack("{s:I,s:I,s:I,s:f}", "have", (json_int_t)have, "of",
                                  (json_int_t)of, "missing", (json_int_t)(of - have), "percent",
                                  percent(have, of)));
    json_object_set_new(c, "own",
                        json_pack("{s:I,s:I,s:f,s:I,s:I}", "experts", (json_int_t)own->experts,
                                  "of", (json_int_t)all, "percent", percent(own->experts, all),
                                  "objects", (json_int_t)own->objects, "bytes",
                                  (json_int_t)own->bytes));
    json_object_set_new(c, "words", json_string(words));
}

/* ---- peers ---- */

/* What each peer gave, beside its row. */
static void add_gave(json_t *root, const json_t *gave)
{
    const json_t *list = json_object_get(gave, "peers");
    json_t *peers = json_object_get(root, "peers");
    for (size_t i = 0; i < json_array_size(peers); i++) {
        json_t *p = json_array_get(peers, i);
        for (size_t k = 0; k < json_array_size(list); k++) {
            json_t *g = json_array_get(list, k);
            if (json_equal(json_object_get(g, "id"), json_object_get(p, "id"))) {
                json_object_set(p, "gave", g);
            }
        }
    }
}

static json_t *limits_json(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    uint64_t all = n->o.serve_bytes_s, each = n->o.serve_peer_bytes_s;
    pthread_mutex_unlock(&n->mu);
    const struct store_opts *s = &n->o.store;
    struct store_budget b = {.budget = s->disk_budget, .floor = s->disk_floor};
    struct store *st = node_store_now(n);
    if (st) {
        (void)store_get_budget(st, &b, NULL);
    }
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:i,s:i,s:i}", "out_bytes_s",
                     (json_int_t)all, "out_peer_bytes_s", (json_int_t)each, "origin_bytes_s",
                     (json_int_t)s->rate_limit, "origin_conn_bytes_s", (json_int_t)s->rate_conn,
                     "mirror_bytes_s", (json_int_t)s->mirror_rate, "disk_budget",
                     (json_int_t)b.budget, "disk_floor", (json_int_t)b.floor, "ram_budget",
                     (json_int_t)s->ram_budget, "yield", yield_json(&n->yield), "peers",
                     FETCH_PEERS_MAX, "static_peers", DISCO_STATIC_MAX, "processes",
                     CONTROL_CLIENTS_MAX);
}

static void node_fields(struct node *n, json_t *root)
{
    struct control_stats c;
    control_get_stats(n->control, &c);
    json_object_set_new(root, "name", json_string(n->name));
    json_object_set_new(root, "home", json_string(n->home));
    json_object_set_new(root, "pid", json_integer(getpid()));
    json_object_set_new(root, "numerics", json_integer(SHOAL_NUMERICS_VERSION));
    json_object_set_new(root, "uptime_s", json_real((double)(clock_ns() - n->opened_at) / 1e9));
    json_object_set_new(root, "control",
                        json_pack("{s:i,s:I,s:I,s:I,s:I}", "connected", (int)c.connected,
                                  "requests", (json_int_t)c.requests, "malformed",
                                  (json_int_t)c.malformed, "refused", (json_int_t)c.refused,
                                  "dropped", (json_int_t)c.dropped));
    const char *hint = NULL;
    if (json_is_null(json_object_get(root, "group"))) {
        hint = "this node is in no shoal: make one with \"shoal init\", or join one with \"shoal "
               "join TOKEN\" (\"shoal invite\" on the other Mac prints the token)";
    } else if (json_is_true(json_object_get(root, "removed"))) {
        hint = "this node was removed from its shoal: to come back it needs a new key and an "
               "invite: move the folders identity and shoal of its home away, then join";
    } else if (json_integer_value(json_object_get(root, "members")) <= 1) {
        hint = "no other Mac is in this shoal yet: \"shoal invite\" prints the token for one";
    }
    json_object_set_new(root, "compute",
                        n->o.compute ? n->o.compute(n->o.compute_ctx) : json_null());
    json_object_set_new(root, "hint", hint ? json_string(hint) : json_null());
}

int status_make(struct node *n, json_t **out, struct err *e)
{
    struct buf b;
    buf_init(&b, CONTROL_ANSWER_MAX);
    int r = mesh_status(n->mesh, &b, e);
    json_t *root = r ? NULL : json_loadb(b.p ? b.p : "", b.n, 0, NULL);
    buf_free(&b);
    if (!r && !json_is_object(root)) {
        json_decref(root);
        return err_set(e, ERR_FORMAT, "the report of the mesh cannot be read");
    }
    if (r) {
        return r;
    }
    struct store *st = node_store_now(n);
    struct guests *g = node_guests_now(n);
    struct own own = {0};
    json_t *gave = gave_json(&n->gave);
    bool others = json_integer_value(json_object_get(root, "connected")) > 0;
    node_fields(n, root);
    json_object_set_new(root, "model", n->model ? model_json(n, st) : json_null());
    json_object_set_new(root, "limits", limits_json(n));
    add_gave(root, gave);
    json_object_set_new(root, "gave", gave);
    if (st) {
        struct store_stats s;
        count_own(st, &own);
        store_get_stats(st, &s);
        json_object_set_new(json_object_get(root, "limits"), "ram_budget", num(s.ram_budget));
        json_object_set_new(root, "tiers", tiers_json(n, st, &own));
        json_object_set_new(root, "basis", basis_json(st));
        json_object_set_new(root, "adopted", adopted_json(st));
        json_object_set_new(root, "upkeep", upkeep_json(st));
        json_t *words = words_json(n, st);
        add_words(root, words);
        json_object_set_new(root, "words", words);
        coverage(root, st, &own, others);
    } else {
        json_object_set_new(root, "tiers", json_null());
        json_object_set_new(root, "basis", json_null());
        json_object_set_new(root, "adopted", json_array());
        json_object_set_new(root, "upkeep", json_null());
        json_object_set_new(root, "words", json_null());
    }
    json_object_set_new(root, "homes", homes_json(n->homes));
    json_object_set_new(root, "guests", g ? guests_json(g) : json_null());
    *out = root;
    return 0;
}
