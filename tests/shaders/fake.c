/* SPDX-License-Identifier: MIT
 * fake.c: see fake.h. */
#include "tests/shaders/fake.h"

#include "tests/shaders/emu_backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct alloc {
    char *host;
    unsigned uses; /* launches not yet executed */
};

struct item {
    struct sh_launch l;
    struct alloc *a[SH_BUFFERS];
    bool ends; /* a batch, after this launch */
    struct item *next;
};

struct fake {
    struct sh_device d;
    struct fake_opts o;
    pthread_mutex_t lock;
    pthread_cond_t work, progress;
    pthread_t thread;
    struct item *open, **open_end; /* the open batch */
    struct item *queue, **queue_end;
    uint64_t committed, done, launches;
    unsigned faults, buffers;
    bool closing, failed;
    uint32_t rng;
};

static atomic_uint builds, loads;

static uint32_t rnd(struct fake *f)
{
    return f->rng = f->rng * 1664525u + 1013904223u;
}

static void nap(struct fake *f)
{
    if (f->o.delay_us && (!f->o.seldom || (rnd(f) >> 8) % f->o.seldom == 0)) {
        struct timespec t = {0, (long)(rnd(f) >> 8) % ((long)f->o.delay_us * 1000)};
        nanosleep(&t, NULL);
    }
}

static void execute(struct fake *f, struct item *it)
{
    struct emu_opts o = {.reverse = rnd(f) >> 31};
    struct kern_buf bufs[SH_BUFFERS];
    for (uint32_t i = 0; i < it->l.buffers; i++) {
        bufs[i] = (struct kern_buf){it->a[i]->host, SIZE_MAX, NULL};
        it->l.buf[i].buf = &bufs[i];
    }
    if (emu_launch(&o, &it->l)) {
        f->faults++;
    }
    if ((int)it->l.kernel == f->o.sabotage) {
        it->a[f->o.in_buffer]->host[it->l.buf[f->o.in_buffer].off] ^= 1;
    }
}

static void *run(void *ctx)
{
    struct fake *f = ctx;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->queue && !f->closing) {
            pthread_cond_wait(&f->work, &f->lock);
        }
        struct item *it = f->queue;
        if (!it) {
            break;
        }
        bool skip = f->failed || f->done + 1 == f->o.fail_batch;
        pthread_mutex_unlock(&f->lock);
        nap(f);
        if (!skip) {
            execute(f, it);
        }
        pthread_mutex_lock(&f->lock);
        f->launches++;
        f->failed = f->failed || skip;
        f->queue = it->next;
        if (!f->queue) {
            f->queue_end = &f->queue;
        }
        for (uint32_t i = 0; i < it->l.buffers; i++) {
            it->a[i]->uses--;
        }
        if (it->ends) {
            f->done++;
            pthread_cond_broadcast(&f->progress);
        }
        free(it);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static int fake_alloc(struct sh_device *d, size_t size, struct sh_mem *m)
{
    struct fake *f = (struct fake *)(void *)d;
    struct alloc *a = calloc(1, sizeof *a);
    size_t whole = (size + 4095) / 4096 * 4096;
    a->host = aligned_alloc(4096, whole);
    if (!a->host) {
        free(a);
        return KERN_ENOMEM;
    }
    memset(a->host, 0, whole);
    *m = (struct sh_mem){a->host, a};
    pthread_mutex_lock(&f->lock);
    f->buffers++;
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static void fake_free(struct sh_device *d, struct sh_mem *m)
{
    struct fake *f = (struct fake *)(void *)d;
    struct alloc *a = m->handle;
    pthread_mutex_lock(&f->lock);
    f->faults += a->uses != 0;
    f->buffers--;
    bool keep = a->uses != 0; /* already counted; a crash would say less */
    pthread_mutex_unlock(&f->lock);
    if (!keep) {
        free(a->host);
        free(a);
    }
}

static int fake_encode(struct sh_device *d, const struct sh_launch *l, void *const *handle)
{
    struct fake *f = (struct fake *)(void *)d;
    struct item *it = calloc(1, sizeof *it);
    if (!it) {
        return KERN_ENOMEM;
    }
    it->l = *l;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < l->buffers; i++) {
        it->a[i] = handle[i];
        it->a[i]->uses++;
    }
    *f->open_end = it;
    f->open_end = &it->next;
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static int fake_commit(struct sh_device *d, uint64_t *batch)
{
    struct fake *f = (struct fake *)(void *)d;
    pthread_mutex_lock(&f->lock);
    struct item *last = f->open;
    while (last->next) {
        last = last->next;
    }
    last->ends = true;
    *f->queue_end = f->open;
    f->queue_end = &last->next;
    f->open = NULL;
    f->open_end = &f->open;
    *batch = ++f->committed;
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static void fake_discard(struct sh_device *d)
{
    struct fake *f = (struct fake *)(void *)d;
    pthread_mutex_lock(&f->lock);
    while (f->open) {
        struct item *it = f->open;
        f->open = it->next;
        for (uint32_t i = 0; i < it->l.buffers; i++) {
            it->a[i]->uses--;
        }
        free(it);
    }
    f->open_end = &f->open;
    pthread_mutex_unlock(&f->lock);
}

static int fake_wait(struct sh_device *d, uint64_t batch, char *why, size_t size)
{
    struct fake *f = (struct fake *)(void *)d;
    pthread_mutex_lock(&f->lock);
    while (f->done < batch) {
        pthread_cond_wait(&f->progress, &f->lock);
    }
    bool failed = f->failed;
    pthread_mutex_unlock(&f->lock);
    if (failed) {
        snprintf(why, size, "the fake GPU stopped at batch %llu",
                 (unsigned long long)f->o.fail_batch);
    }
    return failed ? KERN_EINVAL : 0;
}

static uint64_t fake_done(struct sh_device *d)
{
    struct fake *f = (struct fake *)(void *)d;
    pthread_mutex_lock(&f->lock);
    uint64_t done = f->done;
    pthread_mutex_unlock(&f->lock);
    return done;
}

/* ---- compiled kernels: a file that names what it was made of ---- */

#define ARCHIVE \
    "a fake's kernels for %s, %s, of %zu bytes that begin with %.20s; wrong: %d, salt %u\n"
#define FILLING 60000 /* more than one write */

static size_t archive_head(const struct fake *f, int wrong, unsigned salt, char out[400])
{
    return (size_t)snprintf(out, 400, ARCHIVE, f->d.name, f->d.system, f->d.text_size,
                            (const char *)f->d.text, wrong, salt);
}

static int fake_build(struct sh_device *d, const char *file, bool *kept, char *why, size_t size)
{
    struct fake *f = (struct fake *)(void *)d;
    char head[400];
    size_t n = archive_head(f, f->o.wrong_code, f->o.salt, head);
    FILE *out = file && !f->o.no_archive ? fopen(file, "wx") : NULL;
    builds++;
    *kept = false;
    if (file && !out) {
        snprintf(why, size, "the fake writes no archive");
    }
    if (out) {
        bool ok = fwrite(head, 1, n, out) == n;
        for (int i = 0; ok && i < (f->o.half ? FILLING / 2 : FILLING); i++) {
            ok = putc('k', out) != EOF;
        }
        *kept = !fclose(out) && ok;
    }
    return 0;
}

static int fake_load(struct sh_device *d, const char *file, char *why, size_t size)
{
    struct fake *f = (struct fake *)(void *)d;
    char want[400], got[400];
    FILE *in = f->o.refuses ? NULL : fopen(file, "r");
    int wrong = 0, filling = 0, c;
    unsigned salt = 0;
    loads++;
    bool ok = in && fgets(got, sizeof got, in);
    const char *tail = ok ? strrchr(got, ';') : NULL;
    ok = tail && sscanf(tail, "; wrong: %d, salt %u", &wrong, &salt) == 2;
    if (ok) {
        (void)archive_head(f, wrong, salt, want);
        while ((c = getc(in)) == 'k') {
            filling++;
        }
        ok = !strcmp(got, want) && c == EOF && filling == FILLING;
    }
    if (in) {
        fclose(in);
    }
    if (!ok) {
        snprintf(why, size, "the fake does not take the file");
        return KERN_ENOTSUP;
    }
    f->o.sabotage = wrong ? wrong : f->o.sabotage;
    return 0;
}

unsigned fake_builds(void)
{
    return builds;
}

unsigned fake_loads(void)
{
    return loads;
}

static void fake_close(struct sh_device *d)
{
    struct fake *f = (struct fake *)(void *)d;
    fake_discard(d);
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->progress);
    free(f);
}

struct sh_device *fake_open(const struct fake_opts *o)
{
    struct fake *f = calloc(1, sizeof *f);
    if (!f) {
        return NULL;
    }
    f->o = *o;
    f->rng = o->seed * 2654435761u + 1;
    f->open_end = &f->open;
    f->queue_end = &f->queue;
    f->d = (struct sh_device){
        .name = "fake",
        .system = o->system ? o->system : "test 1",
        .text = o->text ? o->text : "kernel void all();",
        .text_size = strlen(o->text ? o->text : "kernel void all();"),
        .build = fake_build,
        .load = fake_load,
        .limit = o->limit ? o->limit : (size_t)1 << 30,
        .alloc = fake_alloc,
        .free = fake_free,
        .encode = fake_encode,
        .commit = fake_commit,
        .discard = fake_discard,
        .wait = fake_wait,
        .done = fake_done,
        .close = fake_close,
    };
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->progress, NULL);
    if (pthread_create(&f->thread, NULL, run, f)) {
        free(f);
        return NULL;
    }
    return &f->d;
}

unsigned fake_faults(const struct sh_device *d)
{
    return ((const struct fake *)(const void *)d)->faults;
}

unsigned fake_buffers(struct sh_device *d)
{
    return ((const struct fake *)(const void *)d)->buffers;
}

uint64_t fake_launches(struct sh_device *d)
{
    return ((const struct fake *)(const void *)d)->launches;
}
