/* SPDX-License-Identifier: MIT
 * t_cli_closed.c: caches and homes that cannot be written, by the real program: a full volume, and
 * one that may only be read. The same receipt, one sentence that names the folder, refusals by name
 * of what would write. And how many bytes were written today, after a kill and beside a node. Small
 * volumes are mounted, which only root may. */
#include "homes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

#define IDS "--ids", "1,2,3", "--max-new", "12", "--ignore-eos", "--speculate", "off"
#define RECEIPT "8bd5634767f6"

static char *dir, *vol;

static void vol_start(void)
{
    dir = homes_new();
    vol = homes_at(dir, "v");
    assert_int_equal(mkdir(vol, 0700), 0);
#ifdef __linux__
    bool no = mount("tmpfs", vol, "tmpfs", 0, "size=40m") != 0;
#else
    bool no = true;
#endif
    if (no) {
        print_message("skipped: a small volume can be mounted by root on Linux only\n");
        homes_drop(dir);
        free(vol);
        skip();
    }
}

static void vol_end(void)
{
#ifdef __linux__
    umount2(vol, MNT_DETACH);
#endif
    free(vol);
    homes_drop(dir);
}

static void fill(void)
{
    char *p = homes_at(vol, "fill"), block[4096];
    int fd = open(p, O_WRONLY | O_CREAT | O_APPEND, 0600);
    memset(block, 1, sizeof block);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) > 0) {
    }
    assert_int_equal(errno, ENOSPC);
    close(fd);
    free(p);
}

static void drain(void)
{
    char *p = homes_at(vol, "fill");
    assert_int_equal(unlink(p), 0);
    free(p);
}

static int times(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p++) {
        n++;
    }
    return n;
}

/* The right answer; `says` once, and never a temporary file or SQLite's words. */
static void answers(const char *says, const char *place, const char *where)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "run", "--model", MODEL, IDS, place, where);
    if (r.status || !strstr(r.err.p, "receipt " RECEIPT) || times(r.err.p, says) != 1 ||
        strstr(r.err.p, ".tmp") || strstr(r.err.p, "disk I/O")) {
        fail_msg("status %d: %s", r.status, r.err.p);
    }
    spawn_free(&r);
}

#define FULL "is full (0.0 of 41.9 MB are free): going on from memory"

static void t_full(void **state)
{
    vol_start();
    char *cache = homes_at(vol, "c"), *home = homes_at(vol, "h");
    fill();
    answers(FULL, "--cache", cache);
    answers(FULL, "--home", home);
    FAILS("it needs 12.6 MB more and 4.19 MB while it is written, 16.8 MB lack: the volume has 0 B "
          "free",
          "setup", MODEL, "--cache", cache);
    FAILS("no node can run in", "up", "--model", MODEL, "--no-bonjour", "--home", home);
    drain();
    DO("init", "--home", home);
    DO("setup", MODEL, "--home", home);
    fill();
    answers(FULL, "--home", home);
    FAILS("does not fit", "setup", MODEL, "--full", "--home", home);
    DO("cache", "verify", "--home", home);
    DO("cache", "ls", "--home", home);
    FAILS("cannot write", "cache", "budget", "10M", "--home", home);
    /* a node that starts so, a guest of it, and the space that comes back */
    struct spawn_child c;
    json_t *ready = UP(&c, home, "--model", MODEL);
    struct spawn_result r;
    SPAWN(&r, NULL, "run", IDS, "--home", home);
    if (r.status || !strstr(r.err.p, "receipt " RECEIPT)) {
        fail_msg("status %d: %s", r.status, r.err.p);
    }
    spawn_free(&r);
    drain();
    json_decref(MUST("setup", "--full", "--home", home));
    json_t *j = MUST("cache", "ls", "--home", home);
    assert_true(num_of(json_array_get(json_object_get(j, "models"), 0), "experts") == 336);
    json_decref(j);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    free(cache);
    free(home);
    vol_end();
}

static void t_read_only(void **state)
{
    vol_start();
    char *cache = homes_at(vol, "c"), *home = homes_at(vol, "h"), *to = homes_at(dir, "to");
    DO("setup", MODEL, "--cache", cache);
    DO("run", "--model", MODEL, IDS, "--cache", cache);
    DO("init", "--home", home);
#ifdef __linux__
    assert_int_equal(mount(NULL, vol, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
#endif
    static const char only[] = "cannot be written (Read-only file system): it is only read";
    answers(only, "--cache", cache);
    answers(only, "--home", home);
    json_t *j = MUST("cache", "verify", "--deep", "--cache", cache);
    assert_true(num_of(j, "faults") == 0);
    assert_true(num_of(json_array_get(json_object_get(j, "models"), 0), "read_bytes") > 12e6);
    json_decref(j);
    j = MUST("cache", "ls", "--cache", cache);
    assert_true(num_of(json_array_get(json_object_get(j, "models"), 0), "last_use") > 1e9);
    json_decref(j);
    DO("cache", "path", "--cache", cache);
    DO("cache", "adopt", "--list", "--cache", cache);
    FAILS("setup would write to it", "setup", MODEL, "--full", "--cache", cache);
    FAILS("removing would change it", "cache", "rm", "1.1", "--yes", "--cache", cache);
    FAILS("moving it would change it", "cache", "move", to, "--cache", cache);
    FAILS("a budget that is kept in it would", "cache", "budget", "10M", "--cache", cache);
    FAILS("adopting or forgetting", "cache", "adopt", MODEL, "--cache", cache);
    FAILS("a repair would change it", "cache", "verify", "--repair", "--cache", cache);
    FAILS("no node can run in", "up", "--model", MODEL, "--no-bonjour", "--home", home);
    struct stat sb;
    assert_int_not_equal(stat(to, &sb), 0);
    free(cache);
    free(home);
    free(to);
    vol_end();
}

/* What all processes have written, at any time, and after a kill. */
static double written(const char *home)
{
    json_t *j = MUST("cache", "ls", "--home", home);
    double n = num_of(json_array_get(json_object_get(j, "models"), 0), "written_today");
    json_decref(j);
    return n;
}

static void t_written(void **state)
{
    dir = homes_new();
    char *home = homes_at(dir, "h");
    struct spawn_child c;
    json_t *ready = UP(&c, home, "--model", MODEL);
    DO("setup", "--home", home); /* the spine, by the node */
    DO("run", IDS, "--home", home);
    double used = 0, node = 0, all = 0;
    for (int i = 0; i < 600; i++) { /* the last files are being published */
        json_t *s = status_of(home);
        used = num_of(s, "tiers.disk.limits.used");
        node = num_of(s, "tiers.disk.written_today");
        json_decref(s);
        all = written(home);
        if (node == all) {
            break;
        }
        usleep(100000);
    }
    /* each byte once, and the records beside them; the node and everybody else say the same */
    assert_true(node == all);
    assert_true(used > 12e6 && all >= used && all < used * 1.1);
    json_decref(ready);
    (void)spawn_end(&c, SIGKILL);
    assert_true(written(home) >= all);
    DO("run", "--model", MODEL, IDS, "--home", home); /* it finds what the other one has left */
    double after = written(home);
    if (after < all || after > all + 1e6) {
        fail_msg("%.0f after %.0f", after, all);
    }
    free(home);
    homes_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(t_full), cmocka_unit_test(t_read_only),
                                       cmocka_unit_test(t_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
