/* SPDX-License-Identifier: MIT
 * t_store_adopt.c: folders of others as a part of the disk tier: plain shards, a hub's snapshot,
 * expert files; read only, in place; gone and back, changed, damaged, another model's. The origin
 * is a folder, so that every byte that comes from it is counted. */
#include "node/store/adopt_list.h"
#include "node/store/share.h"
#include "node/store/upkeep.h"
#include "proto/base/clock.h"
#include "proto/base/sha256.h"
#include "tests/store/cache_rig.h"
#include "tests/store/lend.h"
#include "tests/store/share_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static void adopt(struct rig *r, const char *dir)
{
    struct adopt_list l = {.n = 0};
    struct err e = {0};
    size_t changed;
    if (adopt_find(dir, &l, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(adopt_list_change(r->cache, &l, true, &changed, &e), 0);
    adopt_list_free(&l);
    if (r->st) {
        store_adopt_look(r->st);
    }
}

/* ---- what is to be seen ---- */

static struct store_adopted one(struct rig *r)
{
    struct store_adopted a[2];
    assert_int_equal(store_adopted(r->st, a, 2), 1);
    return a[0];
}

static bool in_shards(struct rig *r, uint32_t id, const char *which)
{
    const char *file = model_shard(r->m, model_object(r->m, id)->shard)->file;
    return strchr(which, file[strlen("model-0000")]) != NULL;
}

static uint64_t bytes_outside(struct rig *r, const char *which)
{
    uint64_t n = 0;
    for (uint32_t id = 0; id < r->n; id++) {
        n += in_shards(r, id, which) ? 0 : model_object(r->m, id)->size;
    }
    return n;
}

static bool all_looked(struct rig *r)
{
    struct store_upkeep u;
    store_get_upkeep(r->st, &u);
    return u.to_look == 0;
}

#define WAIT_FOR(cond)                              \
    do {                                            \
        uint64_t end_ = clock_ns() + 120000000000u; \
        while (!(cond) && clock_ns() < end_) {      \
            usleep(20000);                          \
        }                                           \
        assert_true(cond);                          \
    } while (0)

static uint64_t basis_of(struct rig *r, enum basis b)
{
    struct store_basis v;
    store_get_basis(r->st, &v);
    return v.objects[b];
}

/* ---- the tests ---- */

static void t_shards(void **s)
{
    struct rig r;
    (void)s;
    rig_start(&r);
    char *dir = util_path("%s/shards", r.tmp), *link = util_path("%s/link", r.tmp);
    lend_shards(dir, "2579", false);
    symlink(dir, link);
    chmod(dir, 0500);
    struct stat before, after;
    stat(dir, &before);
    adopt(&r, link);
    struct store_adopted a = one(&r);
    assert_true(a.here && !a.other_model && a.objects && a.experts < a.objects);
    assert_null(strstr(a.path, "link")); /* the folder itself is on the list */
    uint32_t mine = a.objects;
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), bytes_outside(&r, "2579"));
    /* not one of them was copied */
    char *models = util_path("%s/models", r.cache);
    WAIT_FOR(util_count_files(models, "experts/", NULL) +
                 util_count_files(models, "spine/", NULL) ==
             (int)(r.n - mine)); /* the last ones are still being written */
    a = one(&r);
    assert_int_equal(a.looked, mine);
    assert_int_equal(a.refused, 0);
    WAIT_FOR(basis_of(&r, BASIS_ORIGIN) == r.n - mine);
    assert_int_equal(basis_of(&r, BASIS_NONE), mine);
    struct store_space sp;
    store_get_space(r.st, &sp);
    assert_int_equal(sp.used, bytes_outside(&r, "2579")); /* they need no room */
    rig_close(&r);
    /* after a start they are there at once, unread */
    rig_open(&r);
    for (uint32_t id = 0; id < r.n; id++) {
        assert_int_equal(store_where(r.st, id), STORE_DISK);
    }
    assert_true(all_looked(&r));
    /* part of an object, and a peer's read */
    uint8_t p[64], *truth = util_truth(r.m, DEMO_MODEL, 0), *chunk;
    struct err e = {0};
    size_t n;
    assert_true(in_shards(&r, 0, "9"));
    assert_int_equal(store_read(r.st, 0, 1000, p, sizeof p, &e), 0);
    assert_memory_equal(p, truth + 1000, sizeof p);
    assert_int_equal(up_read(r.st, 0, 0, 2, &chunk, &n), 0);
    assert_memory_equal(chunk, truth, n);
    free(chunk);
    free(truth);
    assert_int_equal(origin_bytes(&r), 0);
    /* given up: gone, not deleted */
    struct adopt_list l = {.n = 1, .path = {realpath(dir, NULL)}};
    size_t changed;
    assert_int_equal(adopt_list_change(r.cache, &l, false, &changed, &e), 0);
    assert_int_equal(changed, 1);
    adopt_list_free(&l);
    store_adopt_look(r.st);
    assert_int_equal(store_adopted(r.st, NULL, 0), 0);
    assert_int_equal(store_where(r.st, 0), STORE_ORIGIN);
    stat(dir, &after);
    assert_int_equal(before.st_mtime, after.st_mtime);
    assert_int_equal(util_count_files(dir, "safetensors", NULL), 4);
    chmod(dir, 0700);
    free(models);
    free(dir);
    free(link);
    rig_end(&r);
}

static void t_hub(void **s)
{
    struct rig r;
    (void)s;
    rig_start(&r);
    char *hub = util_path("%s/hub", r.tmp);
    char *snap = lend_hub(hub, "1346");
    char *model = util_path("%s/models--someone--demo", hub), *real = realpath(snap, NULL);
    /* the cache, the model's folder, the snapshot, and HF_HOME */
    const char *const dirs[] = {hub, model, snap, r.tmp};
    for (int i = 0; i < 4; i++) {
        struct adopt_list l = {.n = 0};
        struct err e = {0};
        assert_int_equal(adopt_find(dirs[i], &l, &e), 0);
        assert_int_equal(l.n, 1);
        assert_string_equal(l.path[0], real);
        adopt_list_free(&l);
    }
    /* a bit of one blob is wrong, before anybody has looked */
    char *rotten = util_path("%s/model-00003-of-000009.safetensors", snap);
    char *blob = realpath(rotten, NULL);
    chmod(blob, 0600);
    poke(blob, -50000, 2);
    adopt(&r, hub);
    WAIT_FOR(all_looked(&r));
    /* the whole files agree with the names of their blobs: as good as an own download */
    assert_int_equal(util_log_has(&r.log, "is not the one in the name of its blob"), 1);
    assert_int_equal(basis_of(&r, BASIS_NONE), 0);
    uint32_t mine = one(&r).looked;
    assert_int_equal(basis_of(&r, BASIS_ORIGIN), mine);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), bytes_outside(&r, "146"));
    rig_close(&r);
    rig_open(&r);
    assert_int_equal(basis_of(&r, BASIS_ORIGIN), r.n);
    free(rotten);
    free(blob);
    free(real);
    free(model);
    free(snap);
    free(hub);
    rig_end(&r);
}

static void t_experts(void **s)
{
    struct rig r;
    (void)s;
    rig_start(&r);
    char *dir = util_path("%s/deltafin", r.tmp), *in = util_path("%s/deltafin/k3-experts", r.tmp);
    mkdir(dir, 0700);
    lend_experts(r.m, in, 0, 3);
    /* what is no expert file of this model, and one that is too short */
    static const char *const odd[] = {"L1-E0.bin.tmp", "L01-E0.bin", "L0-E0.bin", "L1-E999.bin",
                                      "L-E.bin",       "L1-E00.bin", "notes.txt"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char *p = util_path("%s/%s", in, odd[i]);
        close(open(p, O_WRONLY | O_CREAT, 0600));
        free(p);
    }
    uint64_t have = 0;
    uint32_t n = 0, victim = MODEL_NONE;
    for (uint32_t id = 0; id < r.n; id += 3) {
        if (model_object(r.m, id)->kind == MODEL_EXPERT) {
            have += model_object(r.m, id)->size;
            victim = id;
            n++;
        }
    }
    const struct model_object *v = model_object(r.m, victim);
    char *p = util_path("%s/L%u-E%u.bin", in, v->layer, v->index);
    assert_int_equal(truncate(p, 5), 0);
    adopt(&r, dir);
    assert_int_equal(one(&r).objects, n);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), sizes(&r, 1) - have + v->size);
    assert_int_equal(one(&r).looked, n - 1);
    assert_int_equal(util_log_has(&r.log, "has 5 bytes instead of"), 1);
    free(p);
    free(dir);
    free(in);
    rig_end(&r);
}

/* Gone in the middle: by umount where that can be done, else by another name. */
static void t_unplugged(void **s)
{
    struct rig r;
    struct err e = {0};
    (void)s;
    rig_start(&r);
    char *vol = util_path("%s/volume", r.tmp), *src = util_path("%s/source", r.tmp);
    char *in = util_path("%s/volume/shards", r.tmp), *away = util_path("%s/away", r.tmp);
    mkdir(vol, 0700);
    mkdir(src, 0700);
    bool mounted = false;
#ifdef __linux__
    mounted = mount(src, vol, NULL, MS_BIND, NULL) == 0;
#endif
    lend_shards(in, "123456789", true);
    adopt(&r, in);
    for (uint32_t id = 0; id < r.n / 2; id++) {
        get_right(&r, id);
    }
    assert_int_equal(origin_bytes(&r), 0);
    int open_somewhere = -1;
    (void)open_somewhere; /* where there are no mounts */
    if (mounted) {
#ifdef __linux__
        char *f = util_path("%s/config.json", in);
        open_somewhere = open(f, O_RDONLY); /* somebody uses the volume: it is cut all the same */
        free(f);
        assert_int_equal(umount2(vol, MNT_DETACH), 0);
#endif
    } else {
        print_message("no mounts here: the folder is renamed\n");
        assert_int_equal(rename(in, away), 0);
    }
    get_all(&r, 1); /* with no error, whatever was looked at before */
    struct store_stats st;
    store_get_stats(r.st, &st);
    assert_true(st.origin_bytes > 0);
    assert_int_equal(st.bad_chunks, 0);
    assert_int_equal(util_log_has(&r.log, "is gone (unplugged?)"), 1);
    assert_int_equal(util_log_has(&r.log, "\n"), 1); /* and nothing else was said */
    assert_false(one(&r).here);
    /* plugged in again: noticed by itself, and used without another reading where it was looked at
     */
    if (mounted) {
#ifdef __linux__
        close(open_somewhere);
        assert_int_equal(mount(src, vol, NULL, MS_BIND | MS_RDONLY, NULL), 0);
#endif
    } else {
        assert_int_equal(rename(away, in), 0);
    }
    WAIT_FOR(one(&r).here);
    assert_int_equal(util_log_has(&r.log, "is there again"), 1);
    rig_close(&r);
    char *models = util_path("%s/models", r.cache), *spine = file_of(&r, "spine/global/model.norm");
    assert_int_equal(unlink(spine), 0);
    rig_open(&r);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), 0);
    /* a read of part of an object meets the same */
    uint8_t b[16];
    uint32_t id = 0;
    while (id < r.n && store_where(r.st, id) != STORE_DISK) {
        id++;
    }
    assert_int_equal(store_read(r.st, id, 0, b, sizeof b, &e), 0);
    rig_close(&r);
#ifdef __linux__
    if (mounted) {
        umount2(vol, MNT_DETACH);
    }
#endif
    free(spine);
    free(models);
    free(vol);
    free(src);
    free(in);
    free(away);
    rig_end(&r);
}

static void set_mtime(const char *p, const struct timespec *t)
{
    struct timespec v[2] = {*t, *t};
    assert_int_equal(utimensat(AT_FDCWD, p, v, 0), 0);
}

static void t_changed(void **s)
{
    struct rig r;
    (void)s;
    rig_start(&r);
    char *dir = util_path("%s/shards", r.tmp),
         *shard = util_path("%s/model-00004-of-000009.safetensors", dir);
    lend_shards(dir, "48", false);
    adopt(&r, dir);
    get_all(&r, 1);
    uint64_t base = origin_bytes(&r);
    uint32_t id = model_expert_id(r.m, 3, 5), other = model_expert_id(r.m, 3, 9);
    uint32_t third = model_expert_id(r.m, 3, 11);
    long other_at = (long)model_object(r.m, other)->offset;
    long third_at = (long)model_object(r.m, third)->offset;
    assert_true(in_shards(&r, id, "4"));
    /* rot: the same file by all that the system says */
    struct stat st;
    stat(shard, &st);
    chmod(shard, 0600);
    poke(shard, (long)model_object(r.m, id)->offset + 100, 4);
#ifdef __APPLE__
    set_mtime(shard, &st.st_mtimespec);
#else
    set_mtime(shard, &st.st_mtim);
#endif
    rig_close(&r); /* out of RAM */
    rig_open(&r);
    get_right(&r, id);
    assert_int_equal(origin_bytes(&r), model_object(r.m, id)->size);
    assert_int_equal(util_log_has(&r.log, "is damaged (the checksum of its MiB 0 differs)"), 1);
    assert_int_equal(util_log_has(&r.log, "nothing is done to the file"), 1);
    assert_int_equal(one(&r).refused, 1);
    get_all(&r, 1); /* the neighbours are good */
    assert_int_equal(origin_bytes(&r), model_object(r.m, id)->size);
    rig_close(&r);
    /* the file is written to: all of it is looked at again before a byte is believed */
    poke(shard, other_at + 7, 1);
    struct timespec t = {st.st_mtime + 100, 0};
    set_mtime(shard, &t);
    rig_open(&r);
    struct store_adopted a = one(&r);
    assert_true(a.looked < a.objects);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), model_object(r.m, other)->size);
    /* and while it is in use */
    rig_close(&r);
    rig_open(&r);
    poke(shard, third_at + 9, 1);
    t.tv_sec += 100;
    set_mtime(shard, &t);
    get_all(&r, 1);
    assert_true(origin_bytes(&r) >= model_object(r.m, third)->size);
    assert_true(base > 0);
    free(dir);
    free(shard);
    rig_end(&r);
}

/* A folder whose config is another's gives nothing; shards of other bytes than on record neither.
 */
static void t_other_model(void **s)
{
    struct rig r;
    (void)s;
    rig_start(&r);
    char *dir = util_path("%s/shards", r.tmp), *conf = util_path("%s/config.json", dir);
    lend_shards(dir, "23", true);
    chmod(conf, 0600);
    poke(conf, -3, 0);
    adopt(&r, dir);
    assert_true(one(&r).other_model);
    assert_int_equal(one(&r).objects, 0);
    get_all(&r, 7);
    assert_int_equal(origin_bytes(&r), sizes(&r, 7));
    free(dir);
    free(conf);
    rig_end(&r);
}

/* Our own download, of which the disk has lost a file, denies other bytes in a folder. */
static void t_denied(void **s)
{
    struct rig r;
    (void)s;
    rig_start(&r);
    get_all(&r, 1);
    uint32_t id = model_expert_id(r.m, 4, 2);
    char *own = file_of(&r, "experts/004/002.mxfp4");
    rig_close(&r);
    assert_int_equal(unlink(own), 0);
    char *dir = util_path("%s/shards", r.tmp),
         *shard = util_path("%s/model-00005-of-000009.safetensors", dir);
    lend_shards(dir, "5", false);
    chmod(shard, 0600);
    rig_open(&r);
    assert_true(in_shards(&r, id, "5"));
    poke(shard, (long)model_object(r.m, id)->offset + 100, 4);
    adopt(&r, dir);
    get_right(&r, id);
    assert_int_equal(origin_bytes(&r), model_object(r.m, id)->size);
    assert_int_equal(util_log_has(&r.log, "has other bytes there than on record here"), 1);
    WAIT_FOR(basis_of(&r, BASIS_ORIGIN) == r.n); /* it is being written */
    free(own);
    free(dir);
    free(shard);
    rig_end(&r);
}

/* ---- scrub and quarantine ---- */

static bool scrubbed(struct rig *r, uint64_t bad)
{
    struct store_upkeep u;
    store_get_upkeep(r->st, &u);
    return u.scrub_bad == bad && u.quarantine_files == bad;
}

static bool never(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
    return false;
}

static void t_scrub(void **s)
{
    struct rig r;
    atomic_int asked = 0;
    (void)s;
    rig_start(&r);
    get_all(&r, 40); /* few, since sixteen a second are read */
    rig_close(&r);   /* all of them are files */
    rig_open(&r);
    uint32_t id = 40;
    while (model_object(r.m, id)->kind != MODEL_EXPERT) {
        id += 40;
    }
    const struct model_object *o = model_object(r.m, id);
    char *part = util_path("experts/%03u/%03u", o->layer, o->index), *f = file_of(&r, part);
    poke(f, 77, 5);
    /* not while it may not */
    store_background(r.st, never, &asked);
    store_scrub(r.st, 1);
    WAIT_FOR(atomic_load(&asked) > 0);
    assert_true(scrubbed(&r, 0));
    store_background(r.st, NULL, NULL);
    WAIT_FOR(scrubbed(&r, 1));
    assert_int_equal(util_log_has(&r.log, "a scrub of the cache has found damage"), 1);
    WAIT_FOR(access(f, F_OK) == 0); /* fetched again by itself */
    assert_int_equal(try_get(r.st, id), 0);
    struct store_upkeep u;
    store_get_upkeep(r.st, &u);
    assert_int_equal(u.quarantine_bytes, o->size);
    assert_int_equal(util_count_files(u.quarantine, "expert", NULL), 1);
    char *aside = strdup(u.quarantine);
    rig_close(&r);
    /* where it stands survives, and so does what was set aside, but for what is too old */
    char *old = util_path("%s/1000000000-expert-1-2", aside);
    close(open(old, O_WRONLY | O_CREAT, 0600));
    rig_open(&r);
    store_get_upkeep(r.st, &u);
    assert_int_equal(u.scrub_bad, 1);
    assert_int_equal(u.quarantine_files, 1);
    assert_int_equal(access(old, F_OK), -1);
    rig_close(&r);
    free(old);
    free(aside);
    /* when there is no room it is the first to go */
    r.o.disk_budget = 1;
    rig_open(&r);
    assert_int_equal(try_get(r.st, id + 1), 0);
    store_get_upkeep(r.st, &u);
    assert_int_equal(u.quarantine_files, 0);
    free(part);
    free(f);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_shards),    cmocka_unit_test(t_hub),     cmocka_unit_test(t_experts),
        cmocka_unit_test(t_unplugged), cmocka_unit_test(t_changed), cmocka_unit_test(t_other_model),
        cmocka_unit_test(t_denied),    cmocka_unit_test(t_scrub),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
