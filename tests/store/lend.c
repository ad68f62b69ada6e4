/* SPDX-License-Identifier: MIT
 * lend.c: see lend.h. */
#include "tests/store/lend.h"

#include "proto/base/sha256.h"
#include "tests/store/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy_file(const char *from, const char *to, mode_t mode)
{
    static char b[1 << 16];
    int i = open(from, O_RDONLY), o = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ssize_t n;
    assert_true(i >= 0 && o >= 0);
    while ((n = read(i, b, sizeof b)) > 0) {
        assert_int_equal(write(o, b, (size_t)n), n);
    }
    close(i);
    close(o);
    chmod(to, mode);
}

void lend_shards(const char *dir, const char *which, bool meta)
{
    mkdir(dir, 0700);
    for (const char *c = which; *c; c++) {
        char *from = util_path("%s/model-0000%c-of-000009.safetensors", DEMO_MODEL, *c);
        char *to = util_path("%s/model-0000%c-of-000009.safetensors", dir, *c);
        copy_file(from, to, 0400);
        free(from);
        free(to);
    }
    static const char *const names[] = {"config.json", "model.safetensors.index.json"};
    for (int i = 0; i < 2 && meta; i++) {
        char *from = util_path("%s/%s", DEMO_MODEL, names[i]),
             *to = util_path("%s/%s", dir, names[i]);
        copy_file(from, to, 0400);
        free(from);
        free(to);
    }
}

static void hex_of_file(const char *path, char hex[2 * SHA256_SIZE + 1])
{
    static char b[1 << 16];
    struct sha256 h;
    uint8_t sha[SHA256_SIZE];
    int fd = open(path, O_RDONLY);
    ssize_t n;
    sha256_init(&h);
    while ((n = read(fd, b, sizeof b)) > 0) {
        sha256_add(&h, b, (size_t)n);
    }
    close(fd);
    sha256_done(&h, sha);
    sha256_hex(sha, hex);
}

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

char *lend_hub(const char *hub, const char *which)
{
    char *m = util_path("%s/models--someone--demo", hub), *blobs = util_path("%s/blobs", m);
    char *refs = util_path("%s/refs", m), *snaps = util_path("%s/snapshots", m);
    char *snap = util_path("%s/" COMMIT, snaps), *tmp = util_path("%s/tmp", hub);
    char *ref = util_path("%s/main", refs);
    mkdir(hub, 0700);
    mkdir(m, 0700);
    mkdir(blobs, 0700);
    mkdir(refs, 0700);
    mkdir(snaps, 0700);
    mkdir(snap, 0700);
    FILE *f = fopen(ref, "w");
    fputs(COMMIT, f);
    fclose(f);
    lend_shards(tmp, which, true);
    for (const char *c = which; *c; c++) {
        char hex[2 * SHA256_SIZE + 1];
        char *name = util_path("model-0000%c-of-000009.safetensors", *c);
        char *from = util_path("%s/%s", tmp, name), *link = util_path("%s/%s", snap, name);
        hex_of_file(from, hex);
        char *blob = util_path("%s/%s", blobs, hex), *to = util_path("../../blobs/%s", hex);
        assert_int_equal(rename(from, blob), 0);
        assert_int_equal(symlink(to, link), 0);
        free(name);
        free(from);
        free(link);
        free(blob);
        free(to);
    }
    static const char *const names[] = {"config.json", "model.safetensors.index.json"};
    for (int i = 0; i < 2; i++) { /* small files have names of git's digests */
        char *from = util_path("%s/%s", tmp, names[i]), *link = util_path("%s/%s", snap, names[i]);
        char *blob = util_path("%s/%.39s%d", blobs, COMMIT, i);
        char *to = util_path("../../blobs/%.39s%d", COMMIT, i);
        assert_int_equal(rename(from, blob), 0);
        assert_int_equal(symlink(to, link), 0);
        free(from);
        free(link);
        free(blob);
        free(to);
    }
    rmdir(tmp);
    free(m);
    free(blobs);
    free(refs);
    free(snaps);
    free(tmp);
    free(ref);
    return snap;
}

void lend_experts(const struct model *m, const char *dir, uint32_t layer, uint32_t step)
{
    mkdir(dir, 0700);
    for (uint32_t id = 0; id < model_object_count(m); id += step) {
        const struct model_object *o = model_object(m, id);
        if (o->kind != MODEL_EXPERT || (layer && o->layer != layer)) {
            continue;
        }
        char *p = util_path("%s/L%u-E%u.bin", dir, o->layer, o->index);
        uint8_t *truth = util_truth(m, DEMO_MODEL, id);
        int fd = open(p, O_WRONLY | O_CREAT | O_EXCL, 0400);
        assert_int_equal(write(fd, truth, (size_t)o->size), (ssize_t)o->size);
        close(fd);
        free(truth);
        free(p);
    }
}
