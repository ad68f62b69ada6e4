/* SPDX-License-Identifier: MIT
 * t_store_full.c: rows of an embedding that does not fit on the disk: the server itself counts what
 * it sends, so that begun and thrown away transfers show. Needs root for a small volume. */
#include "tests/store/util.h"

#include "node/demo/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/mount.h>
#endif
#include <unistd.h>

#define ROWS 200

static void t_rows(void **state)
{
    char *tmp = util_tmpdir(), *mnt = util_path("%s/v", tmp), *cache = util_path("%s/c", mnt);
    assert_int_equal(mkdir(mnt, 0700), 0);
#ifdef __linux__
    if (mount("tmpfs", mnt, "tmpfs", 0, "size=1500k") != 0) {
        print_message("skipped: a small volume can be mounted by root only\n");
        util_rmtree(tmp);
        free(tmp);
        free(mnt);
        free(cache);
        skip();
    }
#else
    print_message("skipped: small volumes are made on Linux only\n");
    skip();
#endif
    struct err e = {0};
    struct demo_server *srv;
    assert_int_equal(demo_server_start(DEMO_MODEL, 0, &srv, &e), 0);
    struct store_opts o = {.model = demo_server_url(srv), .cache_dir = cache, .disk_floor = 1};
    struct store *st;
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    const struct model *m = store_model(st);
    uint32_t id = model_spine_id(m, MODEL_NONE, MODEL_EMBED);
    const struct model_object *ob = model_object(m, id);
    uint64_t whole = ob->size;
    struct demo_server_stats before, after;
    demo_server_get_stats(srv, &before);
    size_t row = ob->shape[1] * 2;
    unsigned char *got = malloc(row), *want = malloc(row);
    char *shard = util_path("%s/%s", DEMO_MODEL, model_shard(m, ob->shard)->file);
    FILE *f = fopen(shard, "rb");
    assert_non_null(f);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint64_t at = (uint64_t)(i * 37 % ob->shape[0]) * row;
        if (store_read(st, id, at, got, row, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_int_equal(fseek(f, (long)(ob->offset + at), SEEK_SET), 0);
        assert_int_equal(fread(want, 1, row, f), row);
        assert_memory_equal(got, want, row);
    }
    fclose(f);
    store_close(st);
    demo_server_get_stats(srv, &after);
    uint64_t sent = after.bytes - before.bytes;
    print_message("%d rows of %zu bytes: the origin sent %llu bytes (the whole is %llu)\n", ROWS,
                  row, (unsigned long long)sent, (unsigned long long)whole);
    /* the rows, and at most two begun transfers of the whole */
    assert_true(sent <= ROWS * row + 2 * whole);
    demo_server_stop(srv);
#ifdef __linux__
    umount2(mnt, MNT_DETACH);
#endif
    util_rmtree(tmp);
    free(shard);
    free(got);
    free(want);
    free(tmp);
    free(mnt);
    free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(t_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
