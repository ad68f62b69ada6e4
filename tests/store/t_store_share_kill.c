/* SPDX-License-Identifier: MIT
 * t_store_share_kill.c: what is left of an object that came in by an upstream and was not finished:
 * chunks of our own download are taken up again, those of others never. */
#include "tests/store/cache_rig.h"
#include "tests/store/share_rig.h"

#include "node/store/session.h"
#include "proto/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPS (&store_storage_ops)

static void ms(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* The object is asked for, and its first chunk is put: from the origin, or from somebody. */
static struct storage_put *begin(struct rig *r, struct up *u, uint32_t id, bool own)
{
    struct err e = {0};
    struct storage_put *put = NULL;
    struct object_key k = store_key(r->st, id);
    store_hint(r->st, &id, 1);
    assert_int_equal(OPS->put_begin(r->st, k, model_object(r->m, id)->size, &put, &e), 0);
    if (own) {
        u->parts = 0;
        assert_int_equal(store_origin_get(r->st, 7, k, 0, 1, STORE_DEMAND, false), 0);
        assert_true(up_wait(u, &u->parts, 1));
        assert_int_equal(
            OPS->put_chunk(r->st, put, 0, u->part[0], u->part_n[0], u->part_sha[0], &e), 0);
        free(u->part[0]);
        u->part[0] = NULL;
    } else {
        uint8_t *truth = util_truth(r->m, DEMO_MODEL, id), sha[SHA256_SIZE];
        sha256(truth, STORAGE_CHUNK, sha);
        assert_int_equal(OPS->put_chunk(r->st, put, 0, truth, STORAGE_CHUNK, sha, &e), 0);
        free(truth);
    }
    return put;
}

static long size_of(const char *dir, const char *part)
{
    char *f = NULL;
    struct stat st = {.st_size = 0};
    if (util_count_files(dir, part, &f) && stat(f, &st)) {
        st.st_size = 0;
    }
    free(f);
    return (long)st.st_size;
}

/* A process that is killed when it has the first chunk in its file. */
static void killed(struct rig *r, uint32_t id, bool own)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rig c = {.o = r->o, .cache = r->cache};
        struct up up;
        util_log_init(&c.log);
        c.o.log_ctx = &c.log;
        rig_open(&c);
        up_start(&up, c.st, NULL, UP_HOLD);
        begin(&c, &up, id, own);
        for (;;) {
            pause();
        }
    }
    char *part = util_path("/%u.part", id), *rec = util_path("/%u.rec", id);
    uint64_t end = clock_ns() + 60000000000u;
    while ((size_of(r->cache, part) < (long)STORAGE_CHUNK ||
            (own && size_of(r->cache, rec) < (long)SESSION_RECORD)) &&
           clock_ns() < end) {
        ms();
    }
    kill(pid, SIGKILL);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_true(size_of(r->cache, part) >= (long)STORAGE_CHUNK);
    free(part);
    free(rec);
}

static void wait_published(struct rig *r, uint32_t id)
{
    for (int i = 0; i < 20000 && !OPS->have(r->st, store_key(r->st, id)); i++) {
        ms();
    }
    assert_true(OPS->have(r->st, store_key(r->st, id)));
}

static void t_killed(void **state)
{
    struct rig r;
    rig_start(&r);
    uint32_t id = model_spine_id(r.m, MODEL_NONE, MODEL_LM_HEAD);
    uint64_t size = model_object(r.m, id)->size;
    assert_int_equal(storage_chunks(size), 2);
    for (int i = 0; i < 5; i++) {
        rig_close(&r);
        util_rmtree(r.cache);
        rig_open(&r);
        rig_close(&r);
        bool own = i != 1;
        killed(&r, id, own);
        char *f = file_of(&r, ".part");
        if (i == 2) {
            poke(f, 5000, 4);
        }
        free(f);
        rig_open(&r);
        uint64_t want = own && i != 2 ? size - STORAGE_CHUNK : size;
        struct up up;
        if (i < 3) {
            up_start(&up, r.st, NULL, UP_ORIGIN | (i == 0 ? UP_REVERSE : 0));
            up.basis = BASIS_ORIGIN;
        } else { /* there is no upstream any more, or it is of no use */
            up_start(&up, r.st, NULL, UP_FAIL);
            up_mode(&up, UP_FAIL, ERR_OFFLINE);
            if (i == 4) {
                store_set_upstream(r.st, NULL);
            }
        }
        get_right(&r, id);
        assert_int_equal(origin_bytes(&r), want);
        wait_published(&r, id);
        up_stop(&up);
        rig_close(&r);
        assert_int_equal(util_count_files(r.cache, "/tmp/s-", NULL), 0);
        rig_open(&r);
        get_right(&r, id);
        assert_int_equal(origin_bytes(&r), 0);
    }
    rig_end(&r);
}

static void t_thrown_away(void **state)
{
    /* in one process, and chunks of others over what was our own */
    struct rig r;
    struct up up;
    rig_start(&r);
    uint32_t id = model_spine_id(r.m, MODEL_NONE, MODEL_LM_HEAD);
    uint64_t size = model_object(r.m, id)->size;
    static const uint8_t none[SHA256_SIZE];
    struct err e = {0};
    for (int i = 0; i < 3; i++) {
        rig_close(&r);
        util_rmtree(r.cache);
        rig_open(&r);
        up_start(&up, r.st, NULL, UP_ORIGIN);
        up.basis = BASIS_ORIGIN;
        up_mode(&up, UP_HOLD, 0);
        struct storage_put *put = begin(&r, &up, id, true);
        uint8_t *other = calloc(1, STORAGE_CHUNK), sha[SHA256_SIZE];
        sha256(other, STORAGE_CHUNK, sha);
        if (i == 1) { /* somebody else's bytes in its place: nothing is our own any more */
            assert_int_equal(OPS->put_chunk(r.st, put, 0, other, STORAGE_CHUNK, sha, &e), 0);
        }
        OPS->put_end(r.st, put, ERR_NET, BASIS_NONE, none, &e);
        struct store_upstream_result res = {.code = ERR_NET};
        if (i == 2) { /* and again, only now */
            store_upstream_done(r.st, id, &res);
            up.n_q = 0;
            for (int k = 0; k < 5000 && store_where(r.st, id) != STORE_ORIGIN; k++) {
                ms();
            }
            int code;
            store_hint(r.st, &id, 1);
            while ((code = OPS->put_begin(r.st, store_key(r.st, id), size, &put, &e)) != 0) {
                assert_true(code == ERR_BUSY || code == ERR_NOTFOUND);
                ms();
                store_hint(r.st, &id, 1);
            }
            assert_int_equal(OPS->put_chunk(r.st, put, 0, other, STORAGE_CHUNK, sha, &e), 0);
            OPS->put_end(r.st, put, ERR_NET, BASIS_NONE, none, &e);
        }
        free(other);
        pthread_mutex_lock(&up.mu);
        up.n_q = 0;
        up.mode = UP_ORIGIN;
        pthread_mutex_unlock(&up.mu);
        store_upstream_done(r.st, id, &res);
        struct store_view v;
        int code = store_get(r.st, id, STORE_DEMAND, 0, &v, &e);
        if (code) { /* it joined the request that has failed */
            get_right(&r, id);
        } else {
            assert_true(util_right(r.m, DEMO_MODEL, &v));
            store_release(r.st, &v);
        }
        assert_int_equal(origin_bytes(&r), i == 0 ? size : size + STORAGE_CHUNK);
        up_stop(&up);
    }
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_killed), cmocka_unit_test(t_thrown_away)};
    return cmocka_run_group_tests_name("store_share_kill", t, NULL, NULL);
}
