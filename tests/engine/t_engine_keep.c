/* SPDX-License-Identifier: MIT
 * t_engine_keep.c: states of prefixes: a growing chat starts from the longest kept one and gets the
 * same receipt; they survive a restart, private; damaged ones are put aside; budgets hold. */
#include "tests/engine/eng_kit.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char tiny[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
#define HEX (2 * SHA256_SIZE + 1)

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/t_keep_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    rig_remove(dir);
    return 0;
}

/* One turn: ask, compare with the engine-less receipt, return what was reused. */
static size_t turn(struct eng *x, struct eng_job *j, const char *want)
{
    char got[HEX];
    assert_int_equal(eng_submit(x, j), 0);
    eng_wait(j);
    if (j->end.reason == ENGINE_ERROR) {
        fail_msg("%s", j->end.err.msg);
    }
    eng_receipt(j, got);
    assert_string_equal(got, want);
    return j->end.reused;
}

/* The conversation grows by its answer and ten more tokens a turn. */
static void grow(struct eng_job *next, const struct eng_job *last, uint32_t seed, uint32_t V)
{
    size_t n = last->ask.n_prompt + last->n;
    eng_job(next, seed, n + 10, 6, V);
    memcpy(next->prompt, last->prompt, last->ask.n_prompt * sizeof(uint32_t));
    memcpy(next->prompt + last->ask.n_prompt, last->ids, last->n * sizeof(uint32_t));
    next->keep_all = true;
}

static void test_chat(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.keep_ram = 64 << 20, .keep_disk = 64 << 20, .keep_dir = dir};
    struct eng_job *j = calloc(8, sizeof *j);
    assert_non_null(j);
    char want[8][HEX];
    uint32_t bounds[] = {20, 33};
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    eng_job(&j[0], 7, 40, 6, V);
    j[0].keep_all = true;
    j[0].ask.bounds = bounds;
    j[0].ask.n_bounds = 2;
    eng_alone(&x, &j[0], want[0]);
    assert_int_equal(turn(&x, &j[0], want[0]), 0);
    /* the grown chat starts behind the whole answer but its last token, which was never fed */
    grow(&j[1], &j[0], 8, V);
    eng_alone(&x, &j[1], want[1]);
    assert_int_equal(turn(&x, &j[1], want[1]), 45);
    /* the last message edited: from the last boundary before it */
    eng_job(&j[2], 7, 40, 6, V);
    j[2].prompt[36] ^= 1;
    eng_alone(&x, &j[2], want[2]);
    assert_int_equal(turn(&x, &j[2], want[2]), 33);
    /* the same again, and without reuse */
    eng_job(&j[3], 7, 40, 6, V);
    j[3].ask.no_keep = true;
    assert_int_equal(turn(&x, &j[3], want[0]), 0);
    eng_job(&j[4], 7, 40, 6, V);
    assert_int_equal(turn(&x, &j[4], want[0]), 33);
    eng_close(&x);
    /* a new process: from the disk */
    eng_open(&x, tiny, &o);
    struct engine_stats s;
    grow(&j[5], &j[1], 9, V);
    eng_alone(&x, &j[5], want[5]);
    assert_int_equal(turn(&x, &j[5], want[5]), j[1].ask.n_prompt + 5);
    engine_get_stats(x.g, &s);
    assert_true(s.kept_disk > 0);
    /* private: modes of folder and files */
    struct stat sb;
    assert_int_equal(stat(dir, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0700);
    DIR *d = opendir(dir);
    int files = 0;
    for (struct dirent *f; (f = readdir(d));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        if (f->d_name[0] != '.' && stat(path, &sb) == 0) {
            assert_int_equal(sb.st_mode & 0777, 0600);
            files++;
        }
    }
    closedir(d);
    assert_true(files >= 4);
    struct err e = {0};
    assert_int_equal(engine_forget(x.g, &e), 0);
    d = opendir(dir);
    for (struct dirent *f; (f = readdir(d));) {
        assert_true(f->d_name[0] == '.');
    }
    closedir(d);
    eng_job(&j[6], 7, 40, 6, V);
    assert_int_equal(turn(&x, &j[6], want[0]), 0);
    eng_close(&x);
    for (int i = 0; i < 7; i++) {
        eng_free(&j[i]);
    }
    free(j);
}

/* A long prompt is given up half way; when it comes again it goes on from what was kept. */
static void test_cut_off(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.keep_ram = 64 << 20, .chunk = 8, .keep_ms = 1, .say_ms = 1};
    struct eng_job *j = calloc(2, sizeof *j);
    assert_non_null(j);
    char want[HEX];
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    for (int i = 0; i < 2; i++) {
        eng_job(&j[i], 7, 500, 4, V);
    }
    eng_alone(&x, &j[0], want);
    assert_int_equal(eng_submit(&x, &j[0]), 0);
    eng_wait_prefill(&j[0], 150);
    engine_cancel(j[0].job);
    eng_wait(&j[0]);
    assert_int_equal(j[0].end.err.code, ERR_CANCELLED);
    assert_true(j[0].step_calls > 0);
    size_t reused = turn(&x, &j[1], want);
    assert_in_range(reused, 16, 499);
    assert_int_equal(reused % 8, 0);
    eng_close(&x);
    eng_free(&j[0]);
    eng_free(&j[1]);
    free(j);
}

/* Every kept file damaged: each costs one attempt, is put aside, and the answer is right. */
static void test_damage(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.keep_ram = 64 << 20, .keep_disk = 64 << 20, .keep_dir = dir};
    struct eng_job *j = calloc(3, sizeof *j);
    assert_non_null(j);
    char want[HEX];
    uint32_t bounds[] = {20, 33};
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    for (int i = 0; i < 3; i++) {
        eng_job(&j[i], 7, 40, 6, V);
        j[i].ask.bounds = bounds;
        j[i].ask.n_bounds = 2;
    }
    eng_alone(&x, &j[0], want);
    assert_int_equal(turn(&x, &j[0], want), 0);
    eng_close(&x);
    DIR *d = opendir(dir);
    for (struct dirent *f; (f = readdir(d));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        if (strstr(f->d_name, ".state")) {
            FILE *fp = fopen(path, "r+");
            assert_non_null(fp);
            fseek(fp, 3000, SEEK_SET);
            int c = fgetc(fp);
            fseek(fp, 3000, SEEK_SET);
            fputc(c ^ 4, fp);
            fclose(fp);
        }
    }
    closedir(d);
    eng_open(&x, tiny, &o);
    struct engine_stats s;
    assert_int_equal(turn(&x, &j[1], want), 0);
    engine_get_stats(x.g, &s);
    assert_int_equal(s.keep_hits, 0);
    assert_int_equal(turn(&x, &j[2], want), 33); /* kept anew by the one before */
    eng_close(&x);
    for (int i = 0; i < 3; i++) {
        eng_free(&j[i]);
    }
    free(j);
}

/* Two states of equal length, each under the other's name: neither is taken for what it is not. */
static void test_swapped(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.keep_ram = 64 << 20, .keep_disk = 64 << 20, .keep_dir = dir};
    struct eng_job *j = calloc(4, sizeof *j);
    assert_non_null(j);
    char want[2][HEX], names[2][300], from[400], to[400];
    uint32_t bound = 33;
    size_t n = 0;
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    for (int i = 0; i < 4; i++) {
        eng_job(&j[i], 7 + (uint32_t)i % 2, 40, 6, V);
        j[i].ask.bounds = &bound;
        j[i].ask.n_bounds = 1;
    }
    for (int i = 0; i < 2; i++) {
        eng_alone(&x, &j[i], want[i]);
        assert_int_equal(turn(&x, &j[i], want[i]), 0);
    }
    eng_close(&x);
    DIR *d = opendir(dir);
    for (struct dirent *f; (f = readdir(d));) {
        if (strstr(f->d_name, ".state")) {
            assert_true(n < 2);
            snprintf(names[n++], sizeof names[0], "%s", f->d_name);
        }
    }
    closedir(d);
    assert_int_equal(n, 2);
    snprintf(from, sizeof from, "%s/%s", dir, names[0]);
    snprintf(to, sizeof to, "%s/other", dir);
    assert_int_equal(rename(from, to), 0);
    snprintf(to, sizeof to, "%s/%s", dir, names[1]);
    assert_int_equal(rename(to, from), 0);
    snprintf(from, sizeof from, "%s/other", dir);
    assert_int_equal(rename(from, to), 0);
    eng_open(&x, tiny, &o);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(turn(&x, &j[2 + i], want[i]), 0);
    }
    eng_close(&x);
    for (int i = 0; i < 4; i++) {
        eng_free(&j[i]);
    }
    free(j);
}

/* FIFOs and links in place of the files, and what a process that died was writing: nothing hangs,
 * nothing of it is used, and it is gone. */
static void test_odd_files(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.keep_ram = 64 << 20, .keep_disk = 64 << 20, .keep_dir = dir};
    struct eng_job *j = calloc(6, sizeof *j);
    assert_non_null(j);
    char want[HEX], path[400], away[400];
    uint32_t bound = 33;
    static const char *const suffix[] = {".state", ".ids", ".state", ".ids"};
    for (int round = 0; round < 6; round++) {
        eng_open(&x, tiny, &o);
        eng_job(&j[round], 7, 40, 6, infer_config(x.rig.f)->vocab);
        j[round].ask.bounds = &bound;
        j[round].ask.n_bounds = 1;
        if (round == 0) {
            eng_alone(&x, &j[0], want);
        }
        DIR *d = opendir(dir); /* nothing but the entry that was whole */
        for (struct dirent *f; (f = readdir(d));) {
            assert_null(strstr(f->d_name, ".tmp"));
            assert_true(f->d_name[0] == '.' || round == 5);
        }
        closedir(d);
        assert_int_equal(turn(&x, &j[round], want), round < 5 ? 0 : 33);
        eng_close(&x);
        d = opendir(dir);
        for (struct dirent *f; round < 4 && (f = readdir(d));) {
            if (f->d_name[0] != '.' && strstr(f->d_name, suffix[round])) {
                snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
                snprintf(away, sizeof away, "%s/%s.tmp123", dir, f->d_name);
                assert_int_equal(rename(path, away), 0);
                assert_int_equal(round < 2 ? mkfifo(path, 0600) : symlink(away, path), 0);
                break;
            }
        }
        closedir(d);
    }
    for (int i = 0; i < 6; i++) {
        eng_free(&j[i]);
    }
    free(j);
}

/* Budgets of two states each: never more, and the newest are there. */
static void test_budget(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.keep_dir = dir};
    struct eng_job *j = calloc(8, sizeof *j);
    assert_non_null(j);
    char want[HEX];
    struct engine_opts none = {0};
    eng_open(&x, tiny, &none);
    uint64_t one = infer_state_bytes(x.rig.f, 30);
    uint32_t V = infer_config(x.rig.f)->vocab, bound = 30;
    eng_close(&x);
    o.keep_ram = 2 * one + one / 2;
    o.keep_disk = 2 * one + one / 2;
    eng_open(&x, tiny, &o);
    struct engine_stats s;
    for (uint32_t i = 0; i < 6; i++) {
        eng_job(&j[i], 50 + i, 32, 2, V);
        j[i].ask.bounds = &bound;
        j[i].ask.n_bounds = 1;
        eng_alone(&x, &j[i], want);
        assert_int_equal(turn(&x, &j[i], want), 0);
        engine_get_stats(x.g, &s);
        assert_true(s.kept_ram_bytes <= o.keep_ram && s.kept_disk_bytes <= o.keep_disk);
        eng_free(&j[i]);
    }
    eng_job(&j[6], 55, 32, 2, V);
    eng_alone(&x, &j[6], want);
    assert_int_equal(turn(&x, &j[6], want), 30);
    eng_job(&j[7], 50, 32, 2, V); /* the oldest is gone */
    eng_alone(&x, &j[7], want);
    assert_int_equal(turn(&x, &j[7], want), 0);
    eng_free(&j[6]);
    eng_free(&j[7]);
    free(j);
    eng_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_chat, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cut_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_swapped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_odd_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_budget, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
