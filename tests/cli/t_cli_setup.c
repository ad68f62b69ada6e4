/* SPDX-License-Identifier: MIT
 * t_cli_setup.c: shoal setup from outside: what it fetches and from whom, what it refuses, how it
 * goes on after kill -9 and after a full disk. */
#include "homes.h"

#include "node/demo/server.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

static struct demo_server *origin;
static const char *url;

static int start(void **state)
{
    struct err e = {0};
    if (demo_server_start(MODEL, 0, &origin, &e)) {
        fail_msg("%s", e.msg);
    }
    url = demo_server_url(origin);
    return 0;
}

static int stop(void **state)
{
    demo_server_stop(origin);
    return 0;
}

static uint64_t sent(void)
{
    struct demo_server_stats s;
    demo_server_get_stats(origin, &s);
    return s.bytes;
}

/* The answer of a run that may not ask anybody any more. */
static char *receipt(const char *flag, const char *dir)
{
    json_t *j = MUST("run", flag, dir, "--model", url, "--offline", "--ids", "5,6,7", "--max-new",
                     "12", "--ignore-eos");
    char *r = strdup(str_of(j, "receipt"));
    json_decref(j);
    return r;
}

static char *want_receipt(void)
{
    json_t *j = MUST("run", "--model", MODEL, "--ids", "5,6,7", "--max-new", "12", "--ignore-eos");
    char *r = strdup(str_of(j, "receipt"));
    json_decref(j);
    return r;
}

static void t_setup(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c"), *want = want_receipt();
    json_t *j = MUST("setup", url, "--cache", cache);
    double spine = num_of(j, "bytes");
    assert_true(spine > 1e6 && num_of(j, "fetched") == spine);
    assert_true(num_of(j, "origin_bytes") >= spine);
    assert_true(json_is_false(json_object_get(j, "full")));
    assert_non_null(strstr(str_of(j, "next"), url));
    json_decref(j);
    uint64_t before = sent();
    j = MUST("setup", url, "--cache", cache); /* nothing is left to do */
    assert_true(num_of(j, "bytes") == spine && num_of(j, "fetched") == 0);
    assert_true(num_of(j, "objects") == 0);
    assert_int_equal(sent(), before);
    json_decref(j);
    /* the spine is here, an expert is not */
    FAILS("offline", "run", "--cache", cache, "--model", url, "--offline", "--ids", "5");
    j = MUST("setup", url, "--full", "--cache", cache);
    assert_true(num_of(j, "bytes") > spine);
    assert_true(num_of(j, "fetched") == num_of(j, "bytes") - spine);
    assert_true(json_is_true(json_object_get(j, "full")));
    json_decref(j);
    char *got = receipt("--cache", cache);
    assert_string_equal(got, want);
    free(got);
    struct spawn_result r;
    SPAWN(&r, NULL, "setup", url, "--model", MODEL, "--cache", cache);
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err.p, "name one"));
    spawn_free(&r);
    SPAWN(&r, NULL, "setup", "--model", url, "--cache", cache);
    assert_int_equal(r.status, 0);
    assert_int_equal(r.out.n, 0);
    static const char *const says[] = {"0 objects of 0 B are missing", "it takes 0 B more",
                                       "stay free", "next:   shoal run --cache"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        assert_non_null(strstr(r.err.p, says[i]));
    }
    spawn_free(&r);
    /* a folder that is read in place needs nothing */
    SPAWN(&r, NULL, "setup", MODEL, "--cache", cache, "--home", dir);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    free(want);
    free(cache);
    homes_drop(dir);
}

/* The spine packed and unpacked: what is asked for is kept until something else is. */
static void t_spine(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c"), *want = want_receipt(), *got;
    json_t *j = MUST("setup", url, "--full", "--cache", cache);
    assert_string_equal(str_of(json_object_get(j, "spine"), "form"), "bf16");
    assert_non_null(
        strstr(str_of(json_object_get(j, "spine"), "why"), "fits into memory as it is"));
    json_decref(j);
    for (int again = 0; again < 2; again++) {
        j = again ? MUST("setup", url, "--cache", cache)
                  : MUST("setup", url, "--cache", cache, "--spine", "packed");
        assert_string_equal(str_of(json_object_get(j, "spine"), "form"), "packed");
        assert_true(num_of(j, "spine.packed_bytes") <= 0.7 * num_of(j, "spine.bytes"));
        assert_true(num_of(j, "spine.packed_from") == num_of(j, "spine.bytes"));
        json_decref(j);
        got = receipt("--cache", cache);
        assert_string_equal(got, want);
        free(got);
    }
    j = MUST("cache", "path", "spine/global/lm_head.weight", "--cache", cache);
    assert_non_null(strstr(str_of(j, "path"), "lm_head.weight.packed"));
    json_decref(j);
    FAILS("no_such.weight", "cache", "path", "spine/global/no_such.weight", "--cache", cache);
    j = MUST("run", "--cache", cache, "--model", url, "--offline", "--ids", "5,6,7", "--max-new",
             "12", "--ignore-eos", "--spine-ram", "8M");
    assert_string_equal(str_of(j, "receipt"), want);
    assert_true(num_of(j, "stats.spine.kept") > 1e6);
    assert_true(num_of(j, "stats.spine.kept") < 0.75 * num_of(j, "stats.spine.kept_from"));
    json_decref(j);
    j = MUST("cache", "verify", "--deep", "--cache", cache);
    json_decref(j);
    j = MUST("setup", url, "--cache", cache, "--spine", "auto");
    assert_string_equal(str_of(json_object_get(j, "spine"), "form"), "bf16");
    assert_true(num_of(j, "origin_bytes") < 100000);
    json_decref(j);
    got = receipt("--cache", cache);
    assert_string_equal(got, want);
    free(got);
    FAILS("read in place", "setup", MODEL, "--spine", "packed");
    free(want);
    free(cache);
    homes_drop(dir);
}

static void t_refused(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c");
    uint64_t before = sent();
    FAILS("raise it (shoal cache budget SIZE); without --full the spine alone fits", "setup", url,
          "--full", "--cache", cache, "--disk-budget", "15M");
    FAILS("the spine (12.5 MB) does not fit", "setup", url, "--cache", cache, "--disk-budget",
          "5M");
    FAILS("are to stay free: free some, take another volume", "setup", url, "--cache", cache,
          "--disk-floor", "1000T");
    assert_true(sent() - before < 4000000); /* metadata, and no weights (the spine has 12 MB) */
    /* exactly what it takes is enough */
    DO("setup", url, "--full", "--cache", cache, "--disk-budget", "19116224B");
    FAILS("does not fit", "setup", url, "--full", "--home", dir, "--disk-budget", "19116223B");
    free(cache);
    homes_drop(dir);
}

/* Bytes of files below a folder whose paths hold `part`. */
static double bytes_of(const char *dir, const char *part)
{
    double sum = 0;
    DIR *d = opendir(dir);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        struct stat sb;
        char *p = homes_at(dir, x->d_name);
        if (x->d_name[0] != '.' && !lstat(p, &sb)) {
            sum += S_ISDIR(sb.st_mode) ? bytes_of(p, part)
                   : strstr(p, part)   ? (double)sb.st_size
                                       : 0;
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    return sum;
}

static double complete(const char *cache)
{
    return bytes_of(cache, "/experts/") + bytes_of(cache, "/spine/");
}

/* Killed again and again: each start begins with exactly what was there, and the end is whole. */
static void t_killed(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c"), *want = want_receipt();
    const char *many = getenv("SETUP_KILLS");
    long kills = many ? strtol(many, NULL, 10) : 4;
    for (long i = 0; i < kills && complete(cache) < 15e6; i++) {
        struct spawn_child c;
        double from = bytes_of(cache, "/models/"), more = 5e5 + (double)(i * 7919 % 13) * 2e5;
        SPAWN_START(&c, "setup", MODEL, "--full", "--cache", cache, "--rate-limit", "9M");
        while (bytes_of(cache, "/models/") < from + more && !kill((pid_t)c.pid, 0)) {
            usleep(1000);
        }
        int status = spawn_end(&c, SIGKILL); /* 0: it was done before we looked */
        assert_true(status == 128 + SIGKILL || (!status && complete(cache) == 19116224));
    }
    double had = complete(cache);
    json_t *j = MUST("setup", MODEL, "--full", "--cache", cache);
    print_message("%ld kills: the last start found %.1f MB of %.1f, and fetched %.1f MB\n", kills,
                  had * 1e-6, num_of(j, "bytes") * 1e-6, num_of(j, "origin_bytes") * 1e-6);
    assert_true(num_of(j, "bytes") == 19116224);
    assert_true(num_of(j, "bytes") - num_of(j, "fetched") == had);
    assert_true(complete(cache) == 19116224);
    assert_true(num_of(j, "origin_bytes") <= 19116224 - had);
    json_decref(j);
    j = MUST("run", "--cache", cache, "--model", MODEL, "--ids", "5,6,7", "--max-new", "12",
             "--ignore-eos");
    assert_string_equal(str_of(j, "receipt"), want);
    assert_true(num_of(j, "stats.origin_bytes") == 0);
    json_decref(j);
    free(want);
    free(cache);
    homes_drop(dir);
}

#ifdef __linux__
static void fill(const char *path)
{
    static const char block[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    for (size_t k = sizeof block; k >= 512; k /= 2) {
        while (write(fd, block, k) == (ssize_t)k) {
        }
    }
    close(fd);
}
#endif

/* Somebody else fills the disk meanwhile: it says so, and goes on once there is room. */
static void t_full_disk(void **state)
{
#ifdef __linux__
    char *dir = homes_new(), *mnt = homes_at(dir, "v"), *cache = homes_at(dir, "v/c"),
         *junk = homes_at(dir, "v/junk"), *want = want_receipt();
    assert_int_equal(mkdir(mnt, 0700), 0);
    if (mount("tmpfs", mnt, "tmpfs", 0, "size=32m") != 0) {
        print_message("skipped: a small volume can be mounted by root only\n");
        homes_drop(dir);
        skip();
    }
    FAILS("volume has", "setup", url, "--full", "--cache", cache, "--disk-floor", "16M");
    struct spawn_child c;
    uint64_t from = sent();
    SPAWN_START(&c, "setup", url, "--full", "--cache", cache, "--rate-limit", "3M", "--disk-floor",
                "100K");
    while (sent() - from < 1500000) {
        usleep(500);
    }
    fill(junk);
    int status = spawn_end(&c, 0);
    assert_true(status == 1 || status == 0); /* 0: it was done before the disk was full */
    assert_int_equal(unlink(junk), 0);
    json_t *j = MUST("setup", url, "--full", "--cache", cache, "--disk-floor", "100K");
    assert_true(num_of(j, "bytes") == 19116224);
    json_decref(j);
    char *got = receipt("--cache", cache);
    assert_string_equal(got, want);
    free(got);
    umount2(mnt, MNT_DETACH);
    free(want);
    free(junk);
    free(cache);
    free(mnt);
    homes_drop(dir);
#else
    print_message("skipped: small volumes are made on Linux only\n");
    skip();
#endif
}

/* Beside a running node: its model, its disk, one copy from the origin. */
static void t_node(void **state)
{
    char *dir = homes_new(), *home = homes_at(dir, "home");
    struct spawn_child c;
    json_t *ready = UP(&c, home, "--model", url);
    uint64_t before = sent();
    json_t *j = MUST("setup", "--full", "--home", home);
    assert_string_equal(str_of(j, "model"), url);
    assert_true(num_of(j, "bytes") == 19116224);
    assert_true(sent() - before < 19116224 + 4000000); /* one copy, and metadata at most */
    json_decref(j);
    await_num(home, "tiers.disk.used", 19116224);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    free(home);
    homes_drop(dir);
}

/* A member that has it gives it, before the origin is asked. */
static void t_peers(void **state)
{
    char *dir = homes_new(), *a = homes_at(dir, "a"), *b = homes_at(dir, "b");
    DO("init", "--home", a);
    DO("setup", url, "--full", "--home", a, "--spine",
       "packed"); /* it gives the objects themselves */
    struct spawn_child c, d;
    json_t *ready = UP(&c, a, "--model", url);
    take_in(a, b);
    json_t *second = UP(&d, b, "--model", url);
    await_num(b, "connected", 1);
    await_num(b, "coverage.experts.percent", 100); /* it knows what the other one has */
    uint64_t before = sent();
    json_t *j = MUST("setup", "--full", "--home", b);
    assert_true(num_of(j, "bytes") == 19116224);
    json_decref(j);
    j = status_of(b);
    assert_true(num_of(j, "tiers.peer_bytes") > 0);
    print_message("the peer gave %.1f MB, the origin %.1f MB\n",
                  num_of(j, "tiers.peer_bytes") * 1e-6, (double)(sent() - before) * 1e-6);
    json_decref(j);
    json_decref(ready);
    json_decref(second);
    assert_int_equal(spawn_end(&d, SIGTERM), 0);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    char *want = want_receipt(), *got = receipt("--home", b);
    assert_string_equal(got, want);
    free(got);
    free(want);
    free(a);
    free(b);
    homes_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_setup),  cmocka_unit_test(t_spine),     cmocka_unit_test(t_refused),
        cmocka_unit_test(t_killed), cmocka_unit_test(t_full_disk), cmocka_unit_test(t_node),
        cmocka_unit_test(t_peers),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
