/* SPDX-License-Identifier: MIT
 * t_mixed.c: one prompt, one receipt, whatever the tiers hold. Each layer's experts lie somewhere
 * else: a hub's snapshot, plain shards on a volume that is unplugged in the middle of the answer
 * and plugged in again, expert files, the own disk, a mirror (nginx), a peer (a real node, by TLS),
 * and the origin. Over that RAM and disk budgets from one token's choice to everything, eviction by
 * last use and by rank, guesses ahead on and off. By the numbers every source has given something.
 *
 * `t_mixed` goes a few ways, `t_mixed ladder` fifteen, `t_mixed all` 48. */
#include "tests/daemon/node_kit.h"
#include "tests/store/lend.h"
#include "tests/store/nginx_rig.h"

#include "kernels/cpu.h"
#include "node/infer/generate.h"
#include "node/store/adopt_list.h"
#include "node/store/budget.h"
#include "node/store/share.h"
#include "node/store/upkeep.h"

#define EXPERT 19584 /* bytes of the demo model's */
#define EXPERTS 48   /* in a layer */
#define LAYERS 8     /* layer L lies in shard L + 1, layer 0 is dense */
#define TOPK 4
#define ALL (UINT64_C(64) << 20)
#define NEW 40       /* tokens */
#define UNPLUG_AT 8  /* tokens */
#define REPLUG_AT 26 /* tokens */

/* Where each layer's experts lie. */
enum { HUB = 1, VOLUME, FILES, DISK, MIRROR, PEER, ORIGIN };

enum unplug { NEVER, BETWEEN, WITHIN };

struct way {
    uint64_t ram, disk; /* bytes; disk: of experts, 0: no budget */
    enum infer_prefetch prefetch;
    bool ranks;  /* what leaves the disk goes by rank, not by last use alone */
    bool shrink; /* the disk budget becomes one layer's choice in the middle */
    enum unplug unplug;
};

/* ---- a decode, and what happens in the middle of it ---- */

struct decode {
    struct store *st;
    const struct way *w;
    const char *volume, *away;
    unsigned tokens;
    bool armed, gone;
    /* 0: not chosen; else in which of the three parts it was chosen first, from 1 */
    uint8_t part, first[LAYERS][EXPERTS];
    uint64_t budget; /* for shrink */
};

static void chosen(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n)
{
    struct decode *d = ctx;
    (void)rows;
    for (size_t i = 0; i < n; i++) {
        assert_true(layer < LAYERS && ids[i] < EXPERTS);
        uint8_t *f = &d->first[layer][ids[i]];
        *f = *f ? *f : d->part;
    }
}

static int progress(void *ctx, const struct infer_progress *p)
{
    struct decode *d = ctx;
    bool now = d->w && (d->w->unplug == BETWEEN ? p->layer == VOLUME - 1 && p->experts_done == 0
                                                : p->layer == VOLUME && p->experts_done == 1);
    if (d->armed && now) {
        assert_int_equal(rename(d->volume, d->away), 0);
        d->armed = false;
        d->gone = true;
        d->part = 2;
    }
    return 0;
}

static const struct store_adopted *folder(struct store *st, const char *name,
                                          struct store_adopted *a)
{
    size_t n = store_adopted(st, a, STORE_ADOPTED_MAX);
    for (size_t i = 0; i < n; i++) {
        if (strstr(a[i].path, name)) {
            return &a[i];
        }
    }
    fail_msg("%s is not adopted", name);
    return NULL;
}

static int on_token(void *ctx, uint32_t id)
{
    struct decode *d = ctx;
    struct store_adopted a[STORE_ADOPTED_MAX];
    struct err e = {0};
    (void)id;
    d->tokens++;
    if (!d->w) {
        return 0;
    }
    d->armed = d->armed || (d->tokens == UNPLUG_AT && d->w->unplug != NEVER);
    if (d->tokens == UNPLUG_AT && d->w->shrink) {
        ok(store_set_budget(d->st, &d->budget, NULL, &e));
    }
    if (d->tokens == REPLUG_AT && d->w->unplug != NEVER) {
        assert_true(d->gone);
        assert_int_equal(rename(d->away, d->volume), 0);
        store_adopt_look(d->st);
        assert_true(folder(d->st, "volume", a)->here);
        d->part = 3;
    }
    return 0;
}

/* The receipt of the one prompt, 64 digits. */
static void decode(struct decode *d, struct kern_backend *be, enum infer_prefetch prefetch,
                   char receipt[65])
{
    static const uint32_t prompt[] = {17, 1450, 2201};
    struct err e = {0};
    struct infer *f;
    d->part = 1;
    store_set_admit(d->st, infer_admit, (void *)(uintptr_t)store_model(d->st));
    struct infer_opts io = {.st = d->st,
                            .be = be,
                            .spine_budget = UINT64_MAX,
                            .prefetch = prefetch,
                            .progress = progress,
                            .progress_ctx = d,
                            .routed = chosen,
                            .routed_ctx = d};
    ok(infer_open(&io, &f, &e));
    struct generate_opts g = {.prompt = prompt,
                              .n_prompt = 3,
                              .max_new = NEW,
                              .sample = {.temperature = 1, .top_p = 1, .seed = 11},
                              .on_token = on_token,
                              .ctx = d};
    struct generate_result res;
    if (generate(f, store_model(d->st), &g, &res, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(res.n, NEW);
    receipt_hex(&res.receipt, receipt);
    generate_result_free(&res);
    infer_close(f);
}

/* Different experts of a layer that were chosen, in that part first or (0) in any. */
static uint64_t distinct(const struct decode *d, int layer, int part)
{
    uint64_t n = 0;
    for (int x = 0; x < EXPERTS; x++) {
        n += part ? d->first[layer][x] == part : d->first[layer][x] != 0;
    }
    return n;
}

/* ---- the places ---- */

struct places {
    char url[128], mirror_url[128], *tmp, *hub, *volume, *away, *files, *mirror_dir;
    struct demo_server *origin;
    struct nginx mirror;
    bool has_mirror;
    struct kit_node peer, me;
    struct kern_backend *be;
    uint64_t spine, peer_bytes, mirror_bytes; /* of the model; taken, in all rounds */
    char receipt[65];
};

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static void on_battery(struct power *out)
{
    *out = (struct power){.on_battery = true};
}

/* One layer's experts, and the spine if wanted, from wherever they are. */
static void get(struct store *st, uint32_t layer, bool spine)
{
    const struct model *m = store_model(st);
    uint32_t *ids = malloc(model_object_count(m) * sizeof *ids), n = 0;
    struct store_batch *b;
    struct store_view v;
    struct err e = {0};
    assert_non_null(ids);
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        const struct model_object *o = model_object(m, id);
        if (o->kind == MODEL_SPINE ? spine : o->layer == layer) {
            ids[n++] = id;
        }
    }
    ok(store_batch_begin(st, ids, n, STORE_DEMAND, &b, &e));
    for (size_t i = 0, which; i < n; i++) {
        ok(store_batch_next(b, &which, &v, &e));
        store_release(st, &v);
    }
    store_batch_end(b);
    free(ids);
}

/* The folder alone, read in place: what every other way must give. Then the folders to be adopted,
 * since their files' names are the model's. */
static void alone(struct places *p)
{
    struct err e = {0};
    struct store_opts o = {.model = DEMO_MODEL, .ram_budget = ALL, .mem = infer_store_mem(p->be)};
    struct decode d = {0};
    ok(store_open(&o, &d.st, &e));
    p->spine = model_spine_bytes(store_model(d.st));
    assert_int_equal(model_expert_layout(store_model(d.st))->size, EXPERT);
    decode(&d, p->be, INFER_PREFETCH_OFF, p->receipt);
    lend_experts(store_model(d.st), p->files, FILES, 1);
    store_close(d.st);
}

static void open_places(struct places *p)
{
    memset(p, 0, sizeof *p);
    p->tmp = util_tmpdir();
    p->hub = util_path("%s/hub", p->tmp);
    p->volume = util_path("%s/volume", p->tmp);
    p->away = util_path("%s/away", p->tmp);
    p->files = util_path("%s/k3-experts", p->tmp);
    p->mirror_dir = util_path("%s/mirror", p->tmp);
    struct kern_cpu_opts ko = {.threads = 2};
    assert_int_equal(kern_cpu_open(&ko, &p->be), 0);
    alone(p);
    free(lend_hub(p->hub, "2"));
    lend_shards(p->volume, "3", false);
    lend_shards(p->mirror_dir, "6", false);
    p->origin = kit_origin(p->url);
    p->has_mirror = nginx_find() != NULL;
    if (p->has_mirror) {
        char *loc = util_path("location / { root %s; }\n", p->mirror_dir);
        assert_true(nginx_start(&p->mirror, loc));
        snprintf(p->mirror_url, sizeof p->mirror_url, "http://127.0.0.1:%d", p->mirror.port);
        free(loc);
    } else {
        print_message("  no nginx here: its experts come from the origin\n");
    }
    kit_keeper(&p->peer);
    kit_open(&p->peer, p->url, NULL);
    get(p->peer.st, PEER, false);
    until(kit_status(&p->peer, "objects") == EXPERTS);
    kit_close(&p->peer);
    kit_member(&p->me, &p->peer);
    p->peer.o.store.offline = true; /* it gives what it has, fetches nothing for others, */
    p->peer.o.power = on_battery;   /* and takes nothing over that goes from a full disk */
    kit_open(&p->peer, p->url, NULL);
}

static void close_places(struct places *p)
{
    /* the givers' own counts */
    assert_true(kit_status(&p->peer, "serve.bytes") >= (double)p->peer_bytes);
    kit_end(&p->me);
    kit_end(&p->peer);
    demo_server_stop(p->origin);
    if (p->has_mirror) {
        nginx_stop(&p->mirror);
        assert_true(nginx_logged(&p->mirror, "/", NULL, NULL) >= p->mirror_bytes);
        util_rmtree(p->mirror.dir);
        free(p->mirror.dir);
    }
    p->be->close(p->be);
    util_rmtree(p->tmp);
    free(p->tmp);
    free(p->hub);
    free(p->volume);
    free(p->away);
    free(p->files);
    free(p->mirror_dir);
}

/* A cache with the spine and one layer. */
static void fill(const struct places *p, const char *cache)
{
    struct err e = {0};
    struct store_opts o = {
        .model = p->url, .cache_dir = cache, .ram_budget = ALL, .disk_floor = 1 << 20};
    struct store *st;
    ok(store_open(&o, &st, &e));
    get(st, DISK, true);
    store_close(st);
}

static void adopt(const char *cache, const char *dir)
{
    struct adopt_list l = {.n = 0};
    struct err e = {0};
    size_t changed;
    ok(adopt_find(dir, &l, &e));
    ok(adopt_list_change(cache, &l, true, &changed, &e));
    assert_int_equal(changed, 1);
    adopt_list_free(&l);
}

static void open_me(struct places *p, const struct way *w, const char *cache)
{
    static const char *mirrors[1];
    struct kit_node *k = &p->me;
    mirrors[0] = p->mirror_url;
    memset(&k->o, 0, sizeof k->o);
    k->o.store.cache_dir = cache;
    k->o.store.ram_budget = w->ram;
    k->o.store.mem = infer_store_mem(p->be);
    k->o.store.disk_budget = w->disk && !w->shrink ? p->spine + w->disk : 0;
    k->o.store.mirrors = mirrors;
    k->o.store.n_mirrors = p->has_mirror;
    kit_open(k, p->url, &p->peer);
    store_background(k->st, never, NULL); /* nothing is looked at that was not asked for */
    adopt(cache, p->hub);
    adopt(cache, p->volume);
    adopt(cache, p->files);
    store_adopt_look(k->st);
    kit_connected(k, 1);
    until(kit_status(k, "peers.0.objects") == EXPERTS);
}

static void rank(struct kit_node *k)
{
    uint8_t *r = malloc(kit_count(k));
    assert_non_null(r);
    for (uint32_t i = 0; i < kit_count(k); i++) {
        r[i] = (uint8_t)(i * 7 % 3);
    }
    assert_int_equal(store_ranks(k->st, r, 2), 0);
    free(r);
}

/* Everything fits and nothing is guessed: each expert is asked for once, so it is known how many
 * came from where. */
static void count_exactly(const struct places *p, const struct decode *d,
                          const struct store_stats *s)
{
    struct store_adopted a[STORE_ADOPTED_MAX];
    uint64_t lost = distinct(d, VOLUME, 2), all = 0;
    for (int l = 1; l < LAYERS; l++) {
        all += distinct(d, l, 0);
    }
    assert_true(d->w->unplug == NEVER || lost > 0);
    assert_true(distinct(d, VOLUME, 1) > 0);
    assert_true(d->w->unplug == NEVER || distinct(d, VOLUME, 3) > 0);
    uint64_t hub = distinct(d, HUB, 0), volume = distinct(d, VOLUME, 0) - lost;
    uint64_t files = distinct(d, FILES, 0), disk = distinct(d, DISK, 0);
    assert_int_equal(folder(d->st, "hub", a)->looked, hub);
    assert_int_equal(folder(d->st, "volume", a)->looked, volume);
    assert_int_equal(folder(d->st, "k3-experts", a)->looked, files);
    assert_int_equal(s->disk_hits, hub + volume + files + disk);
    uint64_t net = lost + distinct(d, MIRROR, 0) + distinct(d, PEER, 0) + distinct(d, ORIGIN, 0);
    assert_int_equal(s->peer_fetches + s->origin_fetches, net);
    assert_int_equal(s->disk_hits + net, all);
    print_message("  hub %llu, volume %llu (unplugged %llu), files %llu, disk %llu; of peers %llu, "
                  "mirror or origin %llu\n",
                  (unsigned long long)hub, (unsigned long long)volume, (unsigned long long)lost,
                  (unsigned long long)files, (unsigned long long)disk,
                  (unsigned long long)s->peer_fetches, (unsigned long long)s->origin_fetches);
    /* Who of the net was slow for once on a busy machine is left out by somebody else. */
    assert_true(s->peer_fetches <= distinct(d, PEER, 0));
    assert_true(s->mirror_bytes <= distinct(d, MIRROR, 0) * EXPERT + (p->has_mirror ? 0 : 1));
}

static void round_of(struct places *p, const struct way *w)
{
    char *cache = util_path("%s/cache", p->tmp), receipt[65];
    struct store_adopted a[STORE_ADOPTED_MAX];
    struct decode d = {
        .w = w, .volume = p->volume, .away = p->away, .budget = p->spine + TOPK * EXPERT};
    fill(p, cache);
    open_me(p, w, cache);
    d.st = p->me.st;
    if (w->ranks) {
        rank(&p->me);
    }
    struct store_stats before = kit_stats(&p->me);
    decode(&d, p->be, w->prefetch, receipt);
    assert_string_equal(receipt, p->receipt);
    assert_int_equal(d.gone, w->unplug != NEVER);
    struct store_stats s = kit_stats(&p->me);
    assert_int_equal(s.bad_chunks + s.refetched, 0);
    s.origin_bytes -= before.origin_bytes;
    assert_true(folder(d.st, "hub", a)->looked > 0);
    assert_true(folder(d.st, "volume", a)->looked > 0);
    assert_true(folder(d.st, "k3-experts", a)->looked > 0);
    assert_int_equal(folder(d.st, "hub", a)->refused, 0);
    assert_true(s.disk_hits > 0 && s.peer_bytes > 0 && s.origin_bytes > 0);
    assert_true(!p->has_mirror || s.mirror_bytes > 0);
    assert_int_equal(util_log_has(&p->me.log, "is gone (unplugged?)"), w->unplug != NEVER);
    p->peer_bytes += s.peer_bytes;
    p->mirror_bytes += s.mirror_bytes;
    if (w->ram == ALL && !w->disk && w->prefetch == INFER_PREFETCH_OFF && w->unplug != WITHIN) {
        count_exactly(p, &d, &s);
    }
    kit_close(&p->me);
    p->me.log.n = 0;
    memset(p->me.log.text, 0, sizeof p->me.log.text);
    util_rmtree(cache);
    free(cache);
}

static enum { FEW, LADDER, WHOLE } much;

static void t_every_source(void **state)
{
    static const struct way ways[] = {
        {.ram = ALL, .prefetch = INFER_PREFETCH_OFF, .unplug = BETWEEN},
        {.ram = ALL, .prefetch = INFER_PREFETCH_ON, .unplug = WITHIN},
        {.ram = TOPK * EXPERT, .disk = TOPK * EXPERT, .unplug = BETWEEN},
        {.ram = 2 * TOPK * EXPERT, .shrink = true, .prefetch = INFER_PREFETCH_ON, .ranks = true},
    };
    struct places p;
    (void)state;
    open_places(&p);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        round_of(&p, &ways[i]);
    }
    close_places(&p);
}

static void t_ladder(void **state)
{
    static const uint64_t ram[] = {1, TOPK, 2 * TOPK, EXPERTS, 3 * EXPERTS, ALL / EXPERT};
    static const uint64_t disk[] = {TOPK, EXPERTS, 3 * EXPERTS, 0};
    struct places p;
    unsigned n = 0;
    (void)state;
    open_places(&p);
    for (size_t i = 0; i < sizeof ram / sizeof *ram; i++) {
        for (size_t j = 0; j < sizeof disk / sizeof *disk; j++) {
            for (int guess = 0; guess < 2; guess++) {
                bool most = ram[i] == 3 * EXPERTS || disk[j] == 3 * EXPERTS;
                if (much == LADDER && (most || guess != (int)(i + j) % 2)) {
                    continue;
                }
                struct way w = {.ram = ram[i] == ALL / EXPERT ? ALL : ram[i] * EXPERT,
                                .disk = disk[j] * EXPERT,
                                .prefetch = guess ? INFER_PREFETCH_ON : INFER_PREFETCH_OFF,
                                .ranks = (i + j) / 2 % 2,
                                .unplug = (enum unplug)((i + 2 * j + (unsigned)guess) % 3)};
                round_of(&p, &w);
                n++;
            }
        }
    }
    print_message("  %u ways, one receipt\n", n);
    close_places(&p);
}

int main(int argc, char **argv)
{
    much = argc < 2                     ? FEW
           : !strcmp(argv[1], "ladder") ? LADDER
           : !strcmp(argv[1], "all")    ? WHOLE
                                        : FEW;
    const struct CMUnitTest few[] = {cmocka_unit_test(t_every_source)};
    const struct CMUnitTest ladder[] = {cmocka_unit_test(t_ladder)};
    return much == FEW ? cmocka_run_group_tests(few, NULL, NULL)
                       : cmocka_run_group_tests(ladder, NULL, NULL);
}
