/* SPDX-License-Identifier: MIT
 * t_store_forms.c: the spine packed on disk and back: the same bytes by every way out of the store,
 * budgets that count what lies there, damage that is found and made good, other processes that go
 * on, kills at any time. `t_store_forms N` makes N kills in place of a few. */
#include "node/store/budget.h"
#include "node/store/forms.h"
#include "node/store/at_rest.h"
#include "tests/store/cache_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILLS 4

static unsigned kills = KILLS;

/* A cache with all objects, published. */
static uint64_t start(struct rig *r)
{
    rig_start(r);
    get_all(r, 1);
    uint64_t came = origin_bytes(r);
    rig_close(r); /* what is being published is finished */
    rig_open(r);
    return came;
}

static uint64_t used(struct rig *r)
{
    struct store_budget b;
    assert_int_equal(store_get_budget(r->st, &b, NULL), 0);
    return b.used;
}

/* Bytes of plain files below experts and spine. */
static uint64_t on_disk(struct rig *r)
{
    static const char *const below[] = {"experts", "spine"};
    uint64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        char *cmd = util_path("find '%s/models' -path '*/%s/*' -type f -exec cat {} + | wc -c",
                              r->cache, below[i]);
        FILE *f = popen(cmd, "r");
        unsigned long long n;
        assert_non_null(f);
        while (fscanf(f, "%llu", &n) == 1) {
            sum += n;
        }
        pclose(f);
        free(cmd);
    }
    return sum;
}

static int convert_all(struct store *st, bool packed, struct err *e)
{
    struct store_converting *c;
    int r = store_convert_begin(st, &c, e);
    for (uint32_t id = 0; !r && id < model_object_count(store_model(st)); id++) {
        r = store_has_forms(st, id) ? store_convert(c, id, packed, e) : 0;
    }
    store_convert_end(c);
    return r;
}

static void convert(struct rig *r, bool packed)
{
    struct err e = {0};
    if (convert_all(r->st, packed, &e)) {
        fail_msg("%s", e.msg);
    }
}

/* Every spine object whole, and by parts that begin anywhere. */
static void spine_right(struct rig *r)
{
    struct err e = {0};
    for (uint32_t id = 0; id < r->n && model_object(r->m, id)->kind == MODEL_SPINE; id++) {
        uint64_t size = model_object(r->m, id)->size;
        uint8_t *t = util_truth(r->m, DEMO_MODEL, id), part[3000];
        get_right(r, id);
        for (uint64_t off = 0; off < size; off += size / 3 + 1) {
            size_t n = size - off < sizeof part ? (size_t)(size - off) : sizeof part;
            assert_int_equal(store_read(r->st, id, off, part, n, &e), 0);
            assert_memory_equal(part, t + off, n);
        }
        free(t);
    }
}

static uint32_t a_packed_one(struct rig *r, uint64_t *size)
{
    for (uint32_t id = 0; id < r->n; id++) {
        if (store_packed(r->st, id) && model_object(r->m, id)->size > 200000) {
            *size = store_packed(r->st, id);
            return id;
        }
    }
    fail_msg("nothing is packed");
    return 0;
}

static void there_and_back(void **s)
{
    struct rig r;
    struct store_forms f;
    uint64_t came = start(&r), plain = used(&r);
    assert_int_equal(plain, on_disk(&r));
    store_get_forms(r.st, &f);
    assert_true(f.objects > 20 && !f.packed && f.bytes > 1000000);

    convert(&r, true);
    store_get_forms(r.st, &f);
    assert_int_equal(f.packed, f.objects);
    assert_int_equal(f.packed_from, f.bytes);
    assert_true(f.packed_bytes * 100 <= f.bytes * 70);
    assert_int_equal(used(&r), plain - f.bytes + f.packed_bytes);
    assert_int_equal(used(&r), on_disk(&r));
    spine_right(&r);
    convert(&r, true); /* nothing to do */

    rig_close(&r);
    rig_open(&r);
    assert_int_equal(used(&r), on_disk(&r));
    spine_right(&r);
    assert_int_equal(origin_bytes(&r), 0);

    convert(&r, false);
    store_get_forms(r.st, &f);
    assert_int_equal(f.packed, 0);
    assert_int_equal(used(&r), plain);
    assert_int_equal(on_disk(&r), plain);
    spine_right(&r);
    assert_int_equal(origin_bytes(&r), 0);
    assert_true(came > 0);
    rig_end(&r);
}

static void in_memory(void **s)
{
    struct rig r;
    struct store_forms f;
    struct store_stats before, after;
    struct store_view v;
    struct err e = {0};
    start(&r);
    convert(&r, true);
    uint64_t size = 0;
    uint32_t id = a_packed_one(&r, &size), plain = 0;
    while (store_packed(r.st, plain)) {
        plain++;
    }
    assert_int_equal(store_keep_packed(r.st, &plain, 1, &e), ERR_NOTFOUND);
    assert_int_equal(store_keep_packed(r.st, &id, 1, &e), 0);
    assert_int_equal(store_keep_packed(r.st, &id, 1, &e), 0);
    store_get_forms(r.st, &f);
    assert_int_equal(f.kept, size);
    store_get_stats(r.st, &before);
    assert_int_equal(store_get(r.st, id, STORE_DEMAND, 0, &v, &e), 0);
    assert_true(util_right(r.m, DEMO_MODEL, &v));
    assert_int_equal(v.from, STORE_RAM);
    store_release_drop(r.st, &v);
    store_get_stats(r.st, &after);
    assert_int_equal(after.disk_bytes, before.disk_bytes);
    /* the file is not looked at */
    char name[128], *cmd = util_path("find '%s' -name '*.packed' -delete", r.cache);
    model_object_name(r.m, id, name, sizeof name);
    assert_int_equal(system(cmd), 0);
    free(cmd);
    get_right(&r, id);
    assert_int_equal(origin_bytes(&r), before.origin_bytes);
    rig_end(&r);
}

static void damage(void **s)
{
    struct rig r;
    struct store_forms f;
    struct err e = {0};
    start(&r);
    convert(&r, true);
    uint64_t size = 0, had;
    uint32_t id = a_packed_one(&r, &size);
    for (int harm = 0; harm < 4; harm++) {
        struct store_converting *c;
        assert_int_equal(store_convert_begin(r.st, &c, &e), 0);
        assert_int_equal(store_convert(c, id, true, &e), 0);
        store_convert_end(c);
        size = store_packed(r.st, id);
        assert_true(size > 0);
        char *p = store_file(r.st, id, &(bool){false}, &(size_t){0});
        assert_non_null(p);
        assert_non_null(strstr(p, ".packed"));
        if (harm == 0) {
            poke(p, (long)size / 2, 3);
        } else if (harm == 1) {
            poke(p, 26, 0); /* a length in its head */
        } else if (harm == 2) {
            assert_int_equal(truncate(p, (off_t)size - 1), 0);
        } else {
            assert_int_equal(unlink(p), 0);
        }
        free(p);
        had = origin_bytes(&r);
        get_right(&r, id);
        assert_int_equal(origin_bytes(&r), had + model_object(r.m, id)->size);
        rig_close(&r); /* what is being published is finished */
        rig_open(&r);
        assert_int_equal(store_packed(r.st, id), 0); /* it came back as it is */
        assert_int_equal(used(&r), on_disk(&r));
    }
    store_get_forms(r.st, &f);
    assert_int_equal(f.packed + 1, f.objects);
    rig_end(&r);
}

/* Another store on the same cache meets files that are gone, in their other form. */
static void two_at_once(void **s)
{
    struct rig a, b;
    struct err e = {0};
    struct store_converting *c, *d;
    start(&a);
    b = a;
    rig_open(&b);
    convert(&b, true);
    assert_int_equal(store_convert_begin(b.st, &c, &e), 0);
    assert_int_equal(store_convert_begin(a.st, &d, &e), ERR_BUSY);
    store_convert_end(c);
    uint64_t had = origin_bytes(&a);
    spine_right(&a);
    convert(&b, false);
    spine_right(&a);
    assert_int_equal(origin_bytes(&a), had);
    assert_int_equal(used(&a), on_disk(&a));
    rig_close(&b);
    rig_end(&a);
}

/* Names, sizes, journal and every chunk's SHA-256. */
static void verified(struct rig *r)
{
    struct rest_models l = {0};
    struct rest_verified out;
    struct rest_verify o = {.deep = true};
    struct err e = {0};
    assert_int_equal(rest_models(r->cache, &l, &e), 0);
    assert_int_equal(l.n, 1);
    assert_int_equal(rest_verify(r->cache, &l.v[0], &o, &out, &e), 0);
    assert_int_equal(out.faults, 0);
    assert_int_equal(out.bytes, on_disk(r));
    rest_models_free(&l);
}

static void killed(void **s)
{
    struct rig r;
    unsigned seed = 7;
    start(&r);
    uint64_t plain = used(&r);
    rig_close(&r);
    for (unsigned k = 0; k < kills; k++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            struct store *st;
            struct err e = {0};
            if (store_open(&r.o, &st, &e)) {
                _exit(2);
            }
            for (bool packed = k % 2 == 0;; packed = !packed) {
                if (convert_all(st, packed, &e)) {
                    fprintf(stderr, "%s\n", e.msg);
                    _exit(3);
                }
            }
        }
        seed = seed * 1664525u + 1013904223u;
        struct timespec t = {0, 20000000 + (long)(seed >> 8) % 250000000};
        nanosleep(&t, NULL);
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        rig_open(&r);
        assert_int_equal(used(&r), on_disk(&r)); /* nothing in two forms, nothing left over */
        spine_right(&r);
        assert_int_equal(origin_bytes(&r), 0);
        rig_close(&r);
        assert_int_equal(util_count_files(r.cache, ".form", NULL), 0);
    }
    verified(&r);
    rig_open(&r);
    convert(&r, true);
    rig_close(&r);
    verified(&r);
    rig_open(&r);
    convert(&r, false);
    assert_int_equal(used(&r), plain);
    rig_end(&r);
}

/* Catalog and journal are lost: what is packed is read again, and needs no origin. */
static void lost_digests(void **s)
{
    struct rig r;
    start(&r);
    convert(&r, true);
    rig_close(&r);
    char *cmd = util_path("find '%s' -name 'catalog.sqlite*' -delete -o -name digests.log -delete",
                          r.cache);
    assert_int_equal(system(cmd), 0);
    free(cmd);
    rig_open(&r);
    assert_true(util_log_has(&r.log, "no digest on record") > 0);
    spine_right(&r);
    assert_int_equal(origin_bytes(&r), 0);
    struct store_forms f;
    store_get_forms(r.st, &f);
    assert_int_equal(f.packed, f.objects);
    rig_end(&r);
}

int main(int argc, char **argv)
{
    kills = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : KILLS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back), cmocka_unit_test(in_memory),    cmocka_unit_test(damage),
        cmocka_unit_test(two_at_once),    cmocka_unit_test(lost_digests), cmocka_unit_test(killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
