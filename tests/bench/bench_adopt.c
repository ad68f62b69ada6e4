/* SPDX-License-Identifier: MIT
 * bench_adopt.c: a hub's snapshot of K3 as huggingface_hub lays it out, adopted: 96 shards of the
 * real sizes with the real headers, sparse. Adopting it, starting with it before and after all of
 * it was looked at, reading experts out of the shards, unplugging and plugging in. Limits: 1 s for
 * a start, 1 s until an unplugged folder is used again, 300 MB; beyond one of them the exit status
 * is 1. Each measurement is a process of its own; files lie in TMPDIR, else in /tmp. */
#include "model/k3gen.h"
#include "store/faulty.h"
#include "store/k3full.h"
#include "store/k3rig.h"
#include "store/util.h"

#include "node/store/adopt_list.h"
#include "node/store/catalog_looked.h"
#include "node/store/upkeep.h"
#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READS 64
#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static struct {
    char tmp[64], *dir, *cache, *hub, *away, *snap, url[64];
} g;

static double peak_mb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
#ifdef __APPLE__
    return (double)u.ru_maxrss / 1e6; /* bytes */
#else
    return (double)u.ru_maxrss * 1024 / 1e6; /* KiB */
#endif
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int in_child(int (*body)(void))
{
    fflush(NULL);
    pid_t p = fork();
    if (p == 0) {
        int r = body();
        fflush(NULL);
        _exit(r);
    }
    int status = 1;
    return p < 0 || waitpid(p, &status, 0) != p || status != 0;
}

static int failed(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    return 1;
}

/* The hub's folder of the same files: blobs (hard links), and relative links to them. */
static int make_hub(void)
{
    char *top = util_path("%s/models--someone--k3", g.hub), *blobs = util_path("%s/blobs", top);
    char *refs = util_path("%s/refs", top), *ref = util_path("%s/main", refs);
    char *snaps = util_path("%s/snapshots", top);
    g.snap = util_path("%s/" COMMIT, snaps);
    const char *const folders[] = {g.hub, top, blobs, refs, snaps, g.snap};
    int r = 0, no = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        r |= mkdir(folders[i], 0700);
    }
    FILE *f = fopen(ref, "w");
    r |= !f || fputs(COMMIT, f) < 0 || fclose(f);
    DIR *d = opendir(g.dir);
    struct dirent *x;
    while (!r && d && (x = readdir(d))) {
        if (x->d_name[0] == '.') {
            continue;
        }
        int digits = strstr(x->d_name, ".safetensors") && !strstr(x->d_name, "index") ? 64 : 40;
        char *from = util_path("%s/%s", g.dir, x->d_name);
        char *blob = util_path("%s/%0*x", blobs, digits, ++no);
        char *to = util_path("../../blobs/%0*x", digits, no);
        char *at = util_path("%s/%s", g.snap, x->d_name);
        r |= link(from, blob) || symlink(to, at);
        free(from);
        free(blob);
        free(to);
        free(at);
    }
    if (d) {
        closedir(d);
    }
    free(top);
    free(blobs);
    free(refs);
    free(ref);
    free(snaps);
    return r || no < K3_SHARDS;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static struct store *open_store(double *s)
{
    struct store_opts o = {
        .model = g.url, .cache_dir = g.cache, .disk_floor = 1, .ram_budget = K3_EXPERT_BYTES};
    struct store *st;
    struct err e = {0};
    double t = clock_s();
    if (store_open(&o, &st, &e)) {
        failed(&e);
        return NULL;
    }
    *s = clock_s() - t;
    store_background(st, never, NULL);
    return st;
}

static struct store_adopted folder(struct store *st)
{
    struct store_adopted a[2] = {{.path = NULL}};
    store_adopted(st, a, 2);
    return a[0];
}

static int adopting(void)
{
    struct adopt_list l = {.n = 0};
    struct err e = {0};
    double s;
    size_t changed;
    struct store *st = open_store(&s);
    if (!st) {
        return 1;
    }
    double before = peak_mb(), t = clock_s(), cpu = cpu_s();
    if (adopt_find(g.hub, &l, &e) || adopt_list_change(g.cache, &l, true, &changed, &e)) {
        return failed(&e);
    }
    store_adopt_look(st);
    t = clock_s() - t;
    cpu = cpu_s() - cpu;
    struct store_adopted a = folder(st);
    printf("adopted: %.3f s (processor %.3f), %u experts of %u objects, %.1f TB; peak %.0f MB, "
           "%.0f before\n",
           t, cpu, a.experts, a.objects, (double)a.bytes / 1e12, peak_mb(), before);
    adopt_list_free(&l);
    store_close(st);
    return a.experts != (uint32_t)(K3_LAYERS - 1) * K3_EXPERTS;
}

/* A start is over when what was looked at counts again. */
static int start(uint32_t looked, const char *what)
{
    double s, t = clock_s(), cpu = cpu_s();
    struct store *st = open_store(&s);
    if (!st) {
        return 1;
    }
    while (folder(st).looked < looked && clock_s() - t < 60) {
        usleep(1000);
    }
    t = clock_s() - t;
    cpu = cpu_s() - cpu;
    struct store_adopted a = folder(st);
    double mb = peak_mb();
    printf(
        "started, %s: %.3f s (limit 1; opening %.3f, processor %.3f); %u objects looked at; peak "
        "%.0f MB (limit 300)\n",
        what, t, s, cpu, a.looked, mb);
    store_close(st);
    return t > 1 || mb > 300 || a.looked < looked;
}

static int start_new(void)
{
    return start(0, "nothing looked at yet");
}

static int start_all(void)
{
    return start((uint32_t)(K3_LAYERS - 1) * K3_EXPERTS, "all looked at");
}

static uint32_t some(const struct model *m, uint32_t i)
{
    return model_expert_id(m, 1 + i * 29 % (K3_LAYERS - 1), i * 331 % K3_EXPERTS);
}

static int get(struct store *st, uint32_t id, enum store_tier want)
{
    struct store_view v;
    struct err e = {0};
    if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
        return failed(&e);
    }
    int r = v.from != want;
    for (size_t i = 0; want == STORE_DISK && i < v.n && !r; i += 4096) {
        r = v.p[i] != 0; /* sparse */
    }
    store_release_drop(st, &v);
    return r;
}

static int reading(void)
{
    double s;
    int r = 0;
    struct store *st = open_store(&s);
    if (!st) {
        return 1;
    }
    const struct model *m = store_model(st);
    store_adopt_look(st);
    double t = clock_s();
    for (uint32_t i = 0; i < READS && !r; i++) {
        r = get(st, some(m, i), STORE_DISK);
    }
    double first = (clock_s() - t) / READS;
    t = clock_s();
    for (uint32_t i = 0; i < READS && !r; i++) {
        r = get(st, some(m, i), STORE_DISK);
    }
    double again = (clock_s() - t) / READS;
    struct store_adopted a = folder(st);
    printf("an expert out of a shard (holes): %.1f ms when it is looked at first, %.1f ms later; "
           "%u looked at; peak %.0f MB\n",
           1e3 * first, 1e3 * again, a.looked, peak_mb());
    /* unplugged: the next tier has it, at once; and back */
    t = clock_s();
    r = r || rename(g.hub, g.away) || get(st, some(m, 0), STORE_ORIGIN);
    double gone = clock_s() - t;
    r = r || folder(st).here || rename(g.away, g.hub);
    t = clock_s();
    while (!r && !folder(st).here && clock_s() - t < 60) {
        usleep(1000);
    }
    double noticed = clock_s() - t;
    r = r || get(st, some(m, 1), STORE_DISK);
    t = clock_s();
    store_adopt_look(st);
    double look = clock_s() - t;
    printf("unplugged: the same expert from the origin in %.0f ms; plugged in: noticed after %.1f "
           "s; a look round the folder takes %.3f s (limit 1)\n",
           1e3 * gone, noticed, look);
    store_close(st);
    return r || look > 1;
}

/* As if everything had been read: digests, and what the shards were like then. */
static int look_at_all(void)
{
    struct err e = {0};
    char hex[2 * SHA256_SIZE + 1];
    struct store_opts o = {.model = g.url, .cache_dir = g.cache, .disk_floor = 1};
    struct adopt_list l = {.n = 0};
    struct store *st;
    size_t changed;
    if (adopt_find(g.hub, &l, &e) || store_open(&o, &st, &e) ||
        adopt_list_change(g.cache, &l, true, &changed, &e)) {
        return failed(&e);
    }
    const struct model *m = store_model(st);
    struct catalog *c;
    int64_t no;
    uint8_t sha[SHA256_SIZE];
    k3_record(g.cache, m);
    sha256_hex(model_root(m), hex);
    sha256(l.path[0], strlen(l.path[0]), sha);
    if (catalog_open(g.cache, NULL, NULL, &c, &e) || catalog_model(c, hex, &no, &e)) {
        return failed(&e);
    }
    uint32_t n = model_object_count(m);
    struct looked *v = calloc(n, sizeof *v);
    for (uint32_t id = 0; v && id < n; id++) {
        const struct model_object *ob = model_object(m, id);
        char *p = util_path("%s/%s", l.path[0], model_shard(m, ob->shard)->file);
        struct stat sb;
        struct chunk_sum *s = k3_sums(m, id);
        struct digest *d = digest_make(ob->size, s, DIGEST_ORIGIN);
        if (!d || stat(p, &sb)) {
            return 1;
        }
#ifdef __APPLE__
        int64_t ns = (int64_t)sb.st_mtimespec.tv_sec * 1000000000 + sb.st_mtimespec.tv_nsec;
#else
        int64_t ns = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
#endif
        v[id] = (struct looked){
            id, {(uint64_t)sb.st_size, ns, (uint64_t)sb.st_ino}, num_get_le64(d->sha)};
        free(d);
        free(s);
        free(p);
    }
    int r = !v || catalog_looked_add(c, no, (int64_t)num_get_le64(sha), v, n, &e);
    catalog_close(c);
    store_close(st);
    adopt_list_free(&l);
    free(v);
    return r;
}

/* The server's memory and threads are not the store's. */
static pid_t serve(int *port)
{
    int a[2];
    if (pipe(a)) {
        return -1;
    }
    pid_t p = fork();
    if (p == 0) {
        struct faulty *f = k3_origin(g.dir);
        int n = faulty_port(f);
        if (write(a[1], &n, sizeof n) != sizeof n) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(a[1]);
    bool ok = read(a[0], port, sizeof *port) == sizeof *port;
    close(a[0]);
    return ok ? p : -1;
}

int main(void)
{
    const char *t = getenv("TMPDIR");
    int port = 0;
    snprintf(g.tmp, sizeof g.tmp, "%.40s/shoal-bench-XXXXXX", t && *t ? t : "/tmp");
    if (!mkdtemp(g.tmp)) {
        perror(g.tmp);
        return 1;
    }
    g.dir = util_path("%s/k3", g.tmp);
    g.cache = util_path("%s/cache", g.tmp);
    g.hub = util_path("%s/hub", g.tmp);
    g.away = util_path("%s/away", g.tmp);
    int r = k3_table() || k3_folder(g.dir) || make_hub();
    pid_t server = r ? -1 : serve(&port);
    snprintf(g.url, sizeof g.url, "http://127.0.0.1:%d", port);
    r = r || server < 0 || in_child(adopting);
    if (!r) {
        r = in_child(start_new);
        r = in_child(reading) || r;
        free(g.cache); /* these digests are not the bytes' */
        g.cache = util_path("%s/cache2", g.tmp);
        r = in_child(look_at_all) || in_child(start_all) || r;
    }
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    util_rmtree(g.tmp);
    free(g.dir);
    free(g.cache);
    free(g.hub);
    free(g.away);
    free(g.snap);
    return r;
}
