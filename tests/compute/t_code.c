/* SPDX-License-Identifier: MIT
 * t_code.c: the compiled kernels of a GPU, kept between starts: hit, miss, damage, other systems,
 * folders that cannot be written, many processes and threads at once. The GPU is the fake one,
 * whose compiled kernels are a file that names what it was made of. */
#include "node/compute/code.h"

#include "proto/base/file.h"
#include "tests/shaders/fake.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH 600
#define THREADS 6
#define PROCESSES 4

static char folder[] = "/tmp/t-code-XXXXXX", said[4096];

static void hear(void *ctx, const char *line)
{
    (void)ctx;
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s\n", line);
}

/* One start: is the code from an earlier one, how often was built and loaded for it. */
struct start {
    struct code code;
    int rc;
    unsigned builds, loads;
};

static struct start start(const struct fake_opts *fo, const char *program)
{
    struct code_setup o = {.folder = folder, .program = program, .say = hear};
    struct start s = {.builds = fake_builds(), .loads = fake_loads()};
    struct sh_device *d = fake_open(fo);
    char why[200] = "";
    said[0] = 0;
    assert_non_null(d);
    s.rc = code_ready(d, &o, &s.code, why, sizeof why);
    d->close(d);
    s.builds = fake_builds() - s.builds;
    s.loads = fake_loads() - s.loads;
    return s;
}

/* Files of the folder whose names end so; the path of one of them. */
static unsigned files(const char *end, char one[PATH])
{
    char path[PATH];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/kernels", folder);
    DIR *d = opendir(path);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        size_t len = strlen(x->d_name), tail = strlen(end);
        if (x->d_name[0] != '.' && len >= tail && !strcmp(x->d_name + len - tail, end)) {
            n++;
            if (one) {
                snprintf(one, PATH, "%s/kernels/%.300s", folder, x->d_name);
            }
        }
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static void empty(void)
{
    char path[PATH];
    while (files("", path)) {
        assert_true(!unlink(path) || !rmdir(path));
    }
    snprintf(path, sizeof path, "%s/kernels", folder);
    (void)rmdir(path);
    (void)unlink(path);
}

static void is_made(const struct start *s)
{
    assert_int_equal(s->rc, 0);
    assert_false(s->code.kept);
    assert_int_equal(strlen(s->code.from), 2 * SHA256_SIZE);
    assert_int_equal(s->builds, 1);
    assert_int_equal(s->loads, 1); /* taken back from the disk */
    assert_string_equal(said, "");
}

static void is_kept(const struct start *s, const struct start *by)
{
    assert_int_equal(s->rc, 0);
    assert_true(s->code.kept);
    assert_string_equal(s->code.from, by->code.from);
    assert_int_equal(s->builds, 0);
    assert_int_equal(s->loads, 1);
    assert_string_equal(said, "");
}

static void age(const char *path, time_t by)
{
    struct timespec t[2] = {{.tv_sec = time(NULL) - by}, {.tv_sec = time(NULL) - by}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void hit_and_miss(void **state)
{
    struct fake_opts fo = {.sabotage = -1};
    struct start a = start(&fo, "shoal 1"), b;
    is_made(&a);
    assert_int_equal(files(".code", NULL), 1);
    assert_int_equal(files("", NULL), 1); /* and nothing else */
    b = start(&fo, "shoal 1");
    is_kept(&b, &a);
    b = start(&fo, "shoal 1");
    is_kept(&b, &a);
    empty();
}

/* Whatever the kernels' code depends on. Those of before stay, up to a number. */
static void other_keys(void **state)
{
    struct fake_opts fo = {.sabotage = -1}, build = fo, text = fo;
    char first[PATH], path[PATH];
    struct start a = start(&fo, "shoal 1"), b, c, d, e;
    is_made(&a);
    assert_int_equal(files(".code", first), 1);
    age(first, 100);
    build.system = "test 2";
    b = start(&build, "shoal 1");
    is_made(&b);
    text.text = "kernel void some();";
    c = start(&text, "shoal 1");
    is_made(&c);
    d = start(&fo, "shoal 2");
    is_made(&d);
    assert_int_equal(files(".code", NULL), 4);
    struct start again = start(&fo, "shoal 1");
    is_kept(&again, &a);
    again = start(&build, "shoal 1");
    is_kept(&again, &b);
    again = start(&text, "shoal 1");
    is_kept(&again, &c);
    /* what a process left that was killed while it wrote, and what somebody may be writing */
    snprintf(path, sizeof path, "%s/kernels/new-1-0", folder);
    assert_int_equal(file_write_atomic(path, "x", 1, 0600, NULL), 0);
    age(path, 4000);
    snprintf(path, sizeof path, "%s/kernels/new-1-1", folder);
    assert_int_equal(file_write_atomic(path, "x", 1, 0600, NULL), 0);
    snprintf(path, sizeof path, "%s/kernels/notes", folder); /* not ours */
    assert_int_equal(file_write_atomic(path, "x", 1, 0600, NULL), 0);
    e = start(&fo, "shoal 3");
    is_made(&e);
    assert_int_equal(files(".code", NULL), CODE_FILES_MAX);
    assert_int_equal(files("new-1-0", NULL), 0);
    assert_int_equal(files("new-1-1", NULL), 1);
    assert_int_equal(files("notes", NULL), 1);
    assert_int_not_equal(access(first, F_OK), 0); /* the oldest went */
    empty();
}

static void replace(const char *path, const void *p, size_t n)
{
    assert_int_equal(file_write_atomic(path, p, n, 0600, NULL), 0);
}

/* Whatever is not what was written is not given to the system: one load, of what was made anew. */
static void damage(void **state)
{
    struct fake_opts fo = {.sabotage = -1};
    struct start a = start(&fo, "shoal 1"), b;
    char path[PATH];
    struct buf whole;
    is_made(&a);
    for (int way = 0; way < 8; way++) {
        assert_int_equal(files(".code", path), 1);
        buf_init(&whole, 1 << 20);
        assert_int_equal(file_read_all(path, &whole, NULL), 0);
        size_t n = whole.n;
        switch (way) {
        case 0:
        case 1:
        case 2:
            whole.p[way == 0 ? 0 : way == 1 ? n / 2 : n - 1] ^= 1;
            replace(path, whole.p, n);
            break;
        case 3:
            replace(path, whole.p, n - 1);
            break;
        case 4:
            replace(path, "", 0);
            break;
        case 5:
            assert_int_equal(buf_add(&whole, "k", 1), 0);
            replace(path, whole.p, n + 1);
            break;
        case 6: /* a link to what would be right */
            replace("/tmp/t-code-aside", whole.p, n);
            assert_int_equal(unlink(path), 0);
            assert_int_equal(symlink("/tmp/t-code-aside", path), 0);
            break;
        default: /* what nobody would end to read */
            assert_int_equal(unlink(path), 0);
            assert_int_equal(mkfifo(path, 0600), 0);
        }
        buf_free(&whole);
        b = start(&fo, "shoal 1");
        is_made(&b);
        assert_int_equal(files("", NULL), 1);
        b = start(&fo, "shoal 1");
        is_kept(&b, &a);
    }
    unlink("/tmp/t-code-aside");
    /* a folder cannot be taken away; what is made has another name */
    assert_int_equal(files(".code", path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    b = start(&fo, "shoal 1");
    assert_int_equal(b.rc, 0);
    assert_string_equal(b.code.from, "");
    assert_non_null(strstr(said, "cannot be kept"));
    empty();
}

/* Whole, well named, and nothing that this system takes. */
static void foreign(void **state)
{
    struct fake_opts fo = {.sabotage = -1};
    char path[PATH], to[PATH], sum[2 * SHA256_SIZE + 1];
    static const char text[] = "somebody's else\n";
    uint8_t d[SHA256_SIZE];
    struct start a = start(&fo, "shoal 1"), b;
    is_made(&a);
    assert_int_equal(files(".code", path), 1);
    sha256(text, sizeof text - 1, d);
    sha256_hex(d, sum);
    memcpy(to, path, sizeof to);
    memcpy(strrchr(to, '-') + 1, sum, 2 * SHA256_SIZE);
    replace(to, text, sizeof text - 1);
    assert_int_equal(unlink(path), 0);
    b = start(&fo, "shoal 1");
    assert_int_equal(b.rc, 0);
    assert_int_equal(b.builds, 1);
    assert_int_equal(b.loads, 2); /* it was asked, and said no */
    assert_string_equal(b.code.from, a.code.from);
    assert_int_not_equal(access(to, F_OK), 0);
    empty();
}

/* A system that does not take what it wrote: said once, then not tried again for this build. */
static void not_taken_back(void **state)
{
    struct fake_opts refuses = {.sabotage = -1, .refuses = true}, half = refuses, fo = {0};
    struct start a;
    half.refuses = false;
    half.half = true;
    for (int i = 0; i < 2; i++) {
        const struct fake_opts *o = i ? &half : &refuses;
        a = start(o, "shoal 1");
        assert_int_equal(a.rc, 0);
        assert_string_equal(a.code.from, "");
        assert_non_null(strstr(said, "does not take the file"));
        assert_int_equal(files(".code", NULL), 0);
        assert_int_equal(files(".bad", NULL), 1);
        a = start(o, "shoal 1");
        assert_int_equal(a.rc, 0);
        assert_int_equal(a.builds, 1);
        assert_int_equal(a.loads, 0);
        assert_string_equal(said, "");
        if (!i) {
            empty();
        }
    }
    fo.sabotage = -1;
    a = start(&fo, "shoal 2"); /* another build tries, and takes the note away */
    is_made(&a);
    assert_int_equal(files(".bad", NULL), 0);
    empty();
}

/* Nothing can be written: each start builds, and says why. */
static void nowhere_to_write(void **state)
{
    struct fake_opts fo = {.sabotage = -1, .no_archive = true};
    struct start a = start(&fo, "shoal 1");
    char path[PATH];
    assert_int_equal(a.rc, 0);
    assert_string_equal(a.code.from, "");
    assert_non_null(strstr(said, "the fake writes no archive"));
    assert_int_equal(files("", NULL), 0);
    empty();
    fo.no_archive = false;
    snprintf(path, sizeof path, "%s/kernels", folder); /* a file where the folder should be */
    replace(path, "", 0);
    for (int i = 0; i < 2; i++) {
        a = start(&fo, "shoal 1");
        assert_int_equal(a.rc, 0);
        assert_int_equal(a.builds, 1);
        assert_string_equal(a.code.from, "");
        assert_non_null(strstr(said, "cannot be kept, so each start compiles them: "));
    }
    empty();
    fflush(NULL);
    pid_t child = fork(); /* a folder that may be read alone, as somebody for whom that counts */
    if (!child) {
        assert_int_equal(mkdir(path, 0555), 0);
        chmod(folder, 0755);
        bool ok = geteuid() != 0 || (!setgid(65534) && !setuid(65534));
        a = start(&fo, "shoal 1");
        ok = ok && !a.rc && a.builds == 1 && !a.code.from[0] && strstr(said, "cannot write to");
        _exit(ok ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(files("", NULL), 0);
    empty();
    struct code_setup none = {.program = "shoal 1"}; /* no home at all */
    struct sh_device *d = fake_open(&fo);
    struct code code;
    assert_int_equal(code_ready(d, &none, &code, path, sizeof path), 0);
    assert_true(!code.kept && !code.from[0]);
    d->close(d);
}

/* ---- at once ---- */

static int race(uint32_t salt)
{
    struct code_setup o = {.folder = folder, .program = "shoal 1"};
    int bad = 0;
    for (uint32_t i = 0; !bad && i < 3; i++) {
        struct fake_opts fo = {.sabotage = -1, .salt = salt * 8 + i};
        struct sh_device *d = fake_open(&fo);
        struct code code;
        char why[200], path[PATH];
        bad = !d || code_ready(d, &o, &code, why, sizeof why);
        if (d) {
            d->close(d);
        }
        if (i == 1 && files(".code", path)) { /* who damages it harms nobody */
            (void)truncate(path, 100);
        } else if (i == 0 && salt % 3 == 0 && files(".code", path)) {
            (void)unlink(path);
        }
    }
    return bad;
}

static void *race_thread(void *ctx)
{
    return (void *)(intptr_t)race((uint32_t)(intptr_t)ctx);
}

static void at_once(void **state)
{
    pid_t child[PROCESSES];
    pthread_t t[THREADS];
    struct fake_opts fo = {.sabotage = -1};
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        assert_int_not_equal(child[i], -1);
        if (!child[i]) {
            _exit(race(100 + (uint32_t)i));
        }
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, race_thread, (void *)(intptr_t)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        assert_int_equal(pthread_join(t[i], &bad), 0);
        assert_null(bad);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 1;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(files(".bad", NULL), 0);
    assert_in_range(files(".code", NULL), 0, CODE_FILES_MAX);
    assert_int_equal(files("", NULL), files(".code", NULL)); /* nothing unfinished */
    struct start a = start(&fo, "shoal 1"), b = start(&fo, "shoal 1");
    assert_int_equal(a.rc, 0);
    is_kept(&b, &a);
    empty();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hit_and_miss),   cmocka_unit_test(other_keys),
        cmocka_unit_test(damage),         cmocka_unit_test(foreign),
        cmocka_unit_test(not_taken_back), cmocka_unit_test(nowhere_to_write),
        cmocka_unit_test(at_once),
    };
    if (!mkdtemp(folder)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return r;
}
