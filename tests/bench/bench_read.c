/* SPDX-License-Identifier: MIT
 * bench_read.c: experts of K3's size into a cache, then `shoal bench read` on it: cold reads beside
 * fio. Limit: 0.9 of what fio reaches; below it the exit status is 1. Without fio it only prints
 * the rate. Files (1 GB) lie in TMPDIR, else in /tmp. bench_read [layers of 16 experts, 3] */
#include "store/faulty.h"
#include "store/k3rig.h"
#include "store/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fetch(const char *url, const char *cache, unsigned layers)
{
    struct store_opts o = {
        .model = url, .cache_dir = cache, .ram_budget = 20ull * K3_EXPERT_BYTES, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    int r = store_open(&o, &st, &e);
    for (unsigned l = 1; !r && l <= layers; l++) {
        for (unsigned x = 0; !r && x < 16; x++) {
            struct store_view v;
            r = store_get(st, model_expert_id(store_model(st), l, x * 53), STORE_DEMAND, 0, &v, &e);
            if (!r) {
                store_release(st, &v);
            }
        }
    }
    if (r) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    store_close(st);
    return 0;
}

int main(int argc, char **argv)
{
    const char *t = getenv("TMPDIR");
    unsigned long layers = argc > 1 ? strtoul(argv[1], NULL, 10) : 3;
    char tmp[64], cmd[512], line[256];
    snprintf(tmp, sizeof tmp, "%.40s/shoal-bench-XXXXXX", t && *t ? t : "/tmp");
    if (!mkdtemp(tmp)) {
        perror(tmp);
        return 1;
    }
    char *dir = util_path("%s/k3", tmp), *cache = util_path("%s/cache", tmp);
    int r = k3_table() || k3_folder(dir);
    struct faulty *f = r ? NULL : k3_origin(dir);
    char *url = util_path("http://127.0.0.1:%d", f ? faulty_port(f) : 0);
    r = r || fetch(url, cache, layers < 1 || layers > 92 ? 3 : (unsigned)layers);
    if (!r) {
        snprintf(cmd, sizeof cmd, "'%s' bench read --model %s --cache '%s' --seconds 10", SHOAL_EXE,
                 url, cache);
        FILE *p = popen(cmd, "r");
        while (p && fgets(line, sizeof line, p)) {
            fputs(line, stdout);
            r = r || strstr(line, "not met") != NULL;
        }
        r = !p || pclose(p) != 0 || r;
    }
    if (f) {
        faulty_stop(f);
    }
    util_rmtree(tmp);
    free(dir);
    free(cache);
    free(url);
    return r;
}
