/* SPDX-License-Identifier: MIT
 * t_store_cache.c: the disk tier: damaged, missing and foreign files, a damaged or lost catalog,
 * full disks and budgets. The origin is a folder, so that every byte
 * that comes from it is counted by the store itself. */
#include "node/store/share.h"
#include "tests/store/cache_rig.h"

#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void t_layout(void **s)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), sizes(&r, 1));
    rig_close(&r);
    rig_open(&r);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), 0);
    /* exactly the object's bytes, below the stated names */
    uint32_t id = model_expert_id(r.m, 4, 17);
    char *p = file_of(&r, "experts/004/017.mxfp4");
    struct buf b;
    buf_init(&b, 1 << 20);
    FILE *f = fopen(p, "rb");
    assert_non_null(f);
    buf_reserve(&b, 1 << 19);
    b.n = fread(b.p, 1, 1 << 19, f);
    fclose(f);
    uint8_t *t = util_truth(r.m, DEMO_MODEL, id);
    assert_int_equal(b.n, model_object(r.m, id)->size);
    assert_memory_equal(b.p, t, b.n);
    free(t);
    buf_free(&b);
    free(p);
    free(file_of(&r, "spine/004/self_attn.o_proj.weight"));
    free(file_of(&r, "spine/global/model.embed_tokens.weight"));
    p = util_path("%s/CACHEDIR.TAG", r.cache);
    assert_int_equal(access(p, F_OK), 0);
    free(p);
    p = util_path("%s/.metadata_never_index", r.cache);
    assert_int_equal(access(p, F_OK), 0);
    free(p);
    rig_close(&r);
    assert_int_equal(util_count_files(r.cache, "/tmp/s-", NULL), 0); /* nothing unfinished */
    rig_end(&r);
}

enum harm { FLIP, FLIP_LAST, TRUNCATE, EMPTY, GROW, PIPE, REMOVE, HARMS };

static void do_harm(const char *p, enum harm h)
{
    struct stat st;
    assert_int_equal(stat(p, &st), 0);
    switch (h) {
    case FLIP:
        poke(p, st.st_size / 3, 5);
        break;
    case FLIP_LAST:
        poke(p, -1, 0);
        break;
    case TRUNCATE:
        assert_int_equal(truncate(p, st.st_size - 1), 0);
        break;
    case EMPTY:
        assert_int_equal(truncate(p, 0), 0);
        break;
    case GROW:
        assert_int_equal(truncate(p, st.st_size + 1), 0);
        break;
    case PIPE:
        assert_int_equal(unlink(p), 0);
        assert_int_equal(mkfifo(p, 0600), 0);
        break;
    default:
        assert_int_equal(unlink(p), 0);
    }
}

static void t_damage(void **s)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 1);
    rig_close(&r);
    for (int h = 0; h < HARMS; h++) {
        for (int open_first = 0; open_first < 2; open_first++) {
            if (open_first) {
                rig_open(&r);
            }
            char *a = file_of(&r, "experts/002/020.mxfp4");
            char *b = file_of(&r, "spine/global/model.embed_tokens.weight");
            do_harm(a, (enum harm)h);
            do_harm(b, (enum harm)h);
            if (!open_first) {
                rig_open(&r);
            }
            uint32_t ea = model_expert_id(r.m, 2, 20), eb = model_spine_id(r.m, 0, MODEL_EMBED);
            get_right(&r, ea);
            /* the second one through a partial read that hits the damage */
            uint64_t size = model_object(r.m, eb)->size;
            uint8_t *t = util_truth(r.m, DEMO_MODEL, eb), row[512];
            struct err e = {0};
            uint64_t off = h == FLIP ? size / 3 - 100 : size - sizeof row;
            assert_int_equal(store_read(r.st, eb, off, row, sizeof row, &e), 0);
            assert_memory_equal(row, t + off, sizeof row);
            free(t);
            get_right(&r, eb);
            bool known_gone = h == REMOVE && !open_first; /* seen at open: not a fault any more */
            assert_int_equal(util_log_has(&r.log, "expert 2/20"), known_gone ? 0 : 1);
            assert_int_equal(util_log_has(&r.log, "embed_tokens"), known_gone ? 0 : 2);
            assert_int_equal(origin_bytes(&r), model_object(r.m, ea)->size + size);
            struct store_stats x;
            store_get_stats(r.st, &x);
            assert_int_equal(x.refetched, known_gone ? 0 : 2);
            assert_int_equal(x.bad_chunks, h == REMOVE ? 0 : 2);
            rig_close(&r);
            rig_open(&r);
            get_right(&r, ea);
            get_right(&r, eb);
            assert_int_equal(origin_bytes(&r), 0);
            rig_close(&r);
            free(a);
            free(b);
        }
    }
    rig_end(&r);
}

/* The file that says which model a folder is of: damage is mended, another model's is respected. */
static void t_root(void **s)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 50);
    rig_close(&r);
    /* in two, so that no check takes it for the path of a machine */
    char *p = file_of(&r, "/"
                          "root");
    for (int i = 0; i < 3; i++) {
        poke(p, i == 0 ? 3 : 40, i == 0 ? 0 : 7); /* another digit in front; no digit; nothing */
        if (i == 2) {
            assert_int_equal(truncate(p, 0), 0);
        }
        rig_open(&r);
        get_all(&r, 50);
        assert_int_equal(origin_bytes(&r), 0);
        rig_close(&r);
    }
    struct buf b;
    struct err e = {0};
    struct store *st = NULL;
    buf_init(&b, 100);
    assert_int_equal(file_read_all(p, &b, &e), 0);
    assert_int_equal(b.n, 64);
    b.p[63] = b.p[63] == '0' ? '1' : '0';
    assert_int_equal(file_write_atomic(p, b.p, b.n, 0600, &e), 0);
    assert_int_equal(store_open(&r.o, &st, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "another model"));
    buf_free(&b);
    free(p);
    rig_end(&r);
}

static void t_catalog(void **s)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 1);
    rig_close(&r);
    char *cat = util_path("%s/catalog.sqlite", r.cache);
    char *wal = util_path("%s/catalog.sqlite-wal", r.cache);
    char *journal = file_of(&r, "digests.log");
    for (int how = 0; how < 5; how++) {
        unlink(wal);
        struct stat st;
        assert_int_equal(stat(cat, &st), 0);
        if (how == 0) {
            unlink(cat);
        } else if (how == 1) {
            assert_int_equal(truncate(cat, 0), 0);
        } else if (how == 2) {
            assert_int_equal(truncate(cat, st.st_size / 2), 0);
        } else if (how == 3) {
            for (long i = 0; i < 100; i++) {
                poke(cat, i, 3);
            }
        } else { /* pages in the middle */
            for (long i = 8192; i < (long)st.st_size; i += 40) {
                poke(cat, i, 3);
            }
        }
        rig_open(&r);
        assert_int_equal(util_log_has(&r.log, "rebuilt with"), 1);
        assert_int_equal(util_log_has(&r.log, "\n"), 1); /* one line, and no more */
        get_all(&r, 3);
        assert_int_equal(origin_bytes(&r), 0);
        rig_close(&r);
        rig_open(&r);
        assert_int_equal(util_log_has(&r.log, "catalog"), 0);
        rig_close(&r);
    }
    /* a damaged row: its checksum tells, the journal has it */
    sqlite3 *db;
    assert_int_equal(sqlite3_open(cat, &db), 0);
    assert_int_equal(
        sqlite3_exec(db, "UPDATE objects SET chunks = zeroblob(length(chunks)) WHERE id = 400",
                     NULL, NULL, NULL),
        0);
    sqlite3_close(db);
    rig_open(&r);
    get_right(&r, 400);
    assert_int_equal(origin_bytes(&r), 0);
    rig_close(&r);
    /* without catalog, and one record of the journal damaged: that file is read again, nothing is
     * fetched, and nobody vouches for it */
    unlink(cat);
    unlink(wal);
    poke(journal, 30, 1);
    rig_open(&r);
    get_all(&r, 1);
    struct store_basis basis;
    store_get_basis(r.st, &basis);
    assert_int_equal(origin_bytes(&r), 0);
    assert_int_equal(basis.objects[BASIS_NONE], 1);
    assert_int_equal(basis.objects[BASIS_ORIGIN], r.n - 1);
    assert_int_equal(util_log_has(&r.log, "1 cached objects"), 1);
    rig_close(&r);
    /* without both, the same for all */
    unlink(cat);
    unlink(wal);
    unlink(journal);
    rig_open(&r);
    get_all(&r, 1);
    store_get_basis(r.st, &basis);
    assert_int_equal(origin_bytes(&r), 0);
    assert_int_equal(basis.objects[BASIS_NONE], r.n);
    rig_close(&r);
    /* both damaged in their middles, and a file shorter than it was: that one moves again */
    for (long i = 4096; i < 60000; i += 40) {
        poke(cat, i, 3);
    }
    char *short_file = file_of(&r, "experts/003/007.mxfp4");
    struct stat js;
    assert_int_equal(stat(journal, &js), 0);
    for (long i = 30; i < (long)js.st_size; i += 997) {
        poke(journal, i, 1);
    }
    assert_int_equal(truncate(short_file, 100), 0);
    rig_open(&r);
    get_all(&r, 1);
    store_get_basis(r.st, &basis);
    for (int i = 0; i < 6000 && !basis.objects[BASIS_ORIGIN]; i++) { /* it is being published */
        usleep(10000);
        store_get_basis(r.st, &basis);
    }
    assert_int_equal(origin_bytes(&r), model_object(r.m, model_expert_id(r.m, 3, 7))->size);
    assert_int_equal(basis.objects[BASIS_NONE], r.n - 1);
    assert_int_equal(basis.objects[BASIS_ORIGIN], 1);
    free(short_file);
    rig_close(&r);
    /* a newer program's catalog is left alone */
    assert_int_equal(sqlite3_open(cat, &db), 0);
    sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL);
    sqlite3_close(db);
    struct err e = {0};
    assert_int_equal(store_open(&r.o, &r.st, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "newer"));
    r.st = NULL;
    free(cat);
    free(wal);
    free(journal);
    rig_end(&r);
}

static void t_catalog_in_use(void **s)
{
    /* damaged while it is open */
    struct rig r;
    rig_start(&r);
    get_all(&r, 40);
    rig_close(&r);
    rig_open(&r);
    char *cat = util_path("%s/catalog.sqlite", r.cache);
    struct stat st;
    stat(cat, &st);
    for (long i = 0; i < (long)st.st_size; i += 16) {
        poke(cat, i, 2);
    }
    get_all(&r, 2);
    rig_close(&r);
    rig_open(&r);
    get_all(&r, 2);
    assert_int_equal(origin_bytes(&r), 0);
    rig_close(&r);
    free(cat);
    rig_end(&r);
}

static void t_metadata(void **s)
{
    struct rig r;
    rig_start(&r);
    struct buf b;
    buf_init(&b, 1 << 20);
    struct err e = {0};
    assert_int_equal(store_read_file(r.st, "tiktoken.model", &b, &e), 0);
    buf_free(&b);
    rig_close(&r);
    static const char *const part[] = {"/config.json", "/inventory.bin", "/origin.txt",
                                       "/tiktoken.model", "/model-00004-of-000009.safetensors@8+"};
    for (int i = 0; i < 5; i++) {
        for (int h = 0; h < HARMS; h++) {
            char *f = file_of(&r, part[i]);
            do_harm(f, (enum harm)h);
            if (i != 1) { /* so that it has to be read */
                char *inv = file_of(&r, "/inventory.bin");
                unlink(inv);
                free(inv);
            }
            rig_open(&r);
            buf_init(&b, 1 << 20);
            assert_int_equal(store_read_file(r.st, "tiktoken.model", &b, &e), 0);
            buf_free(&b);
            get_right(&r, 100);
            rig_close(&r);
            free(f);
        }
    }
    rig_end(&r);
}

static uint64_t bytes_below(struct rig *r)
{
    uint64_t n = 0;
    for (uint32_t id = 0; id < r->n; id++) {
        n += store_where(r->st, id) == STORE_DISK ? model_object(r->m, id)->size : 0;
    }
    return n;
}

static void t_budget(void **s)
{
    struct rig r;
    rig_start(&r);
    uint64_t x = model_expert_layout(r.m)->size;
    rig_close(&r);
    r.o.disk_budget = 10 * x;
    r.o.ram_budget = 0;
    rig_open(&r);
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t id = model_expert_id(r.m, 1, i);
        get_right(&r, id);
        get_right(&r, model_expert_id(r.m, 1, 0)); /* used all the time */
        uint64_t end = clock_ns() + 60000000000u;
        while (store_where(r.st, id) != STORE_DISK) {
            assert_true(clock_ns() < end);
            usleep(1000); /* written before the next one comes: the budget is ten files */
        }
        assert_true(bytes_below(&r) <= 10 * x);
    }
    assert_int_equal(r.log.n, 0);
    assert_true(bytes_below(&r) <= 10 * x);
    assert_true(bytes_below(&r) >= 8 * x);
    assert_int_equal(store_where(r.st, model_expert_id(r.m, 1, 0)), STORE_DISK);
    assert_int_equal(store_where(r.st, model_expert_id(r.m, 1, 3)), STORE_ORIGIN);
    rig_close(&r);
    char *first;
    assert_true(util_count_files(r.cache, ".mxfp4", &first) <= 10);
    free(first);
    rig_open(&r); /* the order of use is remembered: the oldest ones go */
    get_right(&r, model_expert_id(r.m, 2, 0));
    get_right(&r, model_expert_id(r.m, 2, 1));
    rig_close(&r);
    rig_open(&r);
    assert_int_equal(store_where(r.st, model_expert_id(r.m, 1, 0)), STORE_DISK);
    assert_int_equal(store_where(r.st, model_expert_id(r.m, 1, 39)), STORE_DISK);
    assert_int_equal(store_where(r.st, model_expert_id(r.m, 2, 1)), STORE_DISK);
    rig_close(&r);
    /* no budget for anything: everything still works, from memory */
    r.o.disk_budget = 1;
    rig_open(&r);
    for (uint32_t i = 0; i < 20; i++) {
        get_right(&r, model_expert_id(r.m, 3, i));
    }
    uint8_t row[100];
    struct err e = {0};
    assert_int_equal(store_read(r.st, model_spine_id(r.m, 0, MODEL_EMBED), 5000, row, 100, &e), 0);
    assert_int_equal(util_log_has(&r.log, "not everything is being cached"), 1);
    rig_close(&r);
    r.o.disk_budget = 0;
    r.o.disk_floor = UINT64_MAX / 2; /* more than any volume has */
    rig_open(&r);
    for (uint32_t i = 20; i < 30; i++) {
        get_right(&r, model_expert_id(r.m, 3, i));
    }
    assert_int_equal(util_log_has(&r.log, "are to stay free"), 1);
    rig_end(&r);
}

static void t_full_volume(void **s)
{
#ifdef __linux__
    char *mnt = util_tmpdir();
    if (mount("tmpfs", mnt, "tmpfs", 0, "size=6m") != 0) {
        print_message("no right to mount a small volume: t_write_errors stands alone\n");
        rmdir(mnt);
        free(mnt);
        skip();
    }
    struct rig r;
    rig_start(&r);
    rig_close(&r);
    free(r.cache);
    r.cache = util_path("%s/cache", mnt);
    r.o.cache_dir = r.cache;
    rig_open(&r);
    get_all(&r, 1); /* 19 MB through a volume of 6 */
    /* said once, and once more only after it was said to be over, as it is for a while when experts
     * have left */
    int said = util_log_has(&r.log, "not everything is being cached");
    assert_in_range(said, 1, 1 + util_log_has(&r.log, "the cache can be written again"));
    rig_close(&r);
    rig_open(&r); /* what did get there is right, the rest comes again */
    get_all(&r, 1);
    assert_true(origin_bytes(&r) < sizes(&r, 1));
    assert_true(origin_bytes(&r) > 0);
    /* filled to the last block by somebody else: even the catalog cannot be written */
    char *fill = util_path("%s/fill", mnt);
    int fd = open(fill, O_WRONLY | O_CREAT, 0600);
    static char z[4096];
    while (write(fd, z, sizeof z) > 0) {
    }
    close(fd);
    get_all(&r, 2);
    rig_close(&r);
    struct err e = {0};
    int rc = store_open(&r.o, &r.st, &e); /* may or may not open, but says why */
    if (rc) {
        print_message("full volume: %s\n", e.msg);
        assert_true(rc == ERR_FULL || rc == ERR_IO);
        unlink(fill);
        mount(NULL, mnt, "tmpfs", MS_REMOUNT, "size=64m");
        rig_open(&r);
    } else {
        get_all(&r, 5);
        unlink(fill); /* room again: it goes on without a restart */
        assert_int_equal(mount(NULL, mnt, "tmpfs", MS_REMOUNT, "size=64m"), 0);
    }
    /* one that nobody has asked for since: those were written, or could not be, while it was full
     */
    uint32_t gone = UINT32_MAX;
    for (uint32_t id = r.n; id-- > 0 && gone == UINT32_MAX;) {
        gone = id % 5 && store_where(r.st, id) == STORE_ORIGIN ? id : gone;
    }
    assert_true(gone != UINT32_MAX);
    get_right(&r, gone);
    rig_close(&r);
    rig_open(&r);
    assert_int_equal(store_where(r.st, gone), STORE_DISK);
    get_all(&r, 1);
    rig_close(&r);
    rig_open(&r);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), 0);
    rig_close(&r);
    umount(mnt);
    rmdir(mnt);
    free(mnt);
    free(fill);
    rig_end(&r);
#else
    skip();
#endif
}

static int limited(const char *cache)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit l = {300000, 300000};
    setrlimit(RLIMIT_FSIZE, &l);
    struct store_opts o = {
        .model = DEMO_MODEL, .cache_dir = cache, .ram_budget = 1 << 20, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    for (uint32_t id = 0; id < model_object_count(store_model(st)); id++) {
        if (try_get(st, id)) {
            return 3;
        }
    }
    store_close(st);
    return 0;
}

/* Every file is cut off at 300 kB by the system: large objects, journal, catalog. */
static void t_write_errors(void **s)
{
    struct rig r;
    rig_start(&r);
    rig_close(&r);
    fflush(NULL);
    pid_t p = fork();
    if (p == 0) {
        _exit(limited(r.cache));
    }
    int status;
    waitpid(p, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    rig_open(&r);
    get_all(&r, 1);
    rig_close(&r);
    rig_open(&r);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), 0);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_layout),         cmocka_unit_test(t_damage),
        cmocka_unit_test(t_catalog),        cmocka_unit_test(t_root),
        cmocka_unit_test(t_catalog_in_use), cmocka_unit_test(t_metadata),
        cmocka_unit_test(t_budget),         cmocka_unit_test(t_full_volume),
        cmocka_unit_test(t_write_errors),
    };
    return cmocka_run_group_tests_name("store_cache", t, NULL, NULL);
}
