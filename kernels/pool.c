/* SPDX-License-Identifier: MIT
 * pool.c: see pool.h.
 *
 * One atomic word, `ticket`, holds (generation, ranges of this run, next range). A thread takes a
 * range by compare-and-swap; only then does it read the run's description, which cannot change
 * before that range is done. So late or sleeping workers never need to be waited for. */
#include "kernels/pool.h"

#include "kernels/fpenv.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __APPLE__
#include <pthread/qos.h>
#include <sys/sysctl.h>
#endif

#define PER_THREAD 4  /* ranges per thread: slack for uneven progress */
#define SPIN 2000     /* looks before sleeping, a few ten microseconds */
#define SPIN_YIELD 32 /* looks with a yield in between, when there are more threads than cores */

struct worker {
    struct kern_pool *pool;
    unsigned id;
    pthread_t thread;
};

struct kern_pool {
    unsigned threads;
    bool flush, crowded;

    /* the present run; written while no range is taken */
    kern_range_fn *fn;
    void *ctx;
    size_t n, step;

    _Alignas(64) _Atomic uint64_t ticket; /* generation << 32 | ranges << 16 | next */
    _Alignas(64) atomic_uint done;        /* ranges finished in this run */
    _Alignas(64) atomic_uint sleepers;
    atomic_bool stop;
    atomic_bool caller_sleeps;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    struct worker w[KERN_POOL_MAX];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool ticket_open(uint64_t t)
{
    return (t & 0xffff) < (t >> 16 & 0xffff);
}

static uint64_t ticket_at(const struct kern_pool *p)
{
    return atomic_load_explicit(&p->ticket, memory_order_seq_cst);
}

/* Takes and runs ranges until none is left. */
static void work(struct kern_pool *p, unsigned id)
{
    uint64_t t = ticket_at(p);
    while (ticket_open(t)) {
        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &t, t + 1, memory_order_acq_rel,
                                                   memory_order_acquire)) {
            continue;
        }
        size_t begin = (size_t)(t & 0xffff) * p->step;
        size_t end = begin + p->step;
        unsigned ranges = t >> 16 & 0xffff;
        p->fn(p->ctx, begin, end < p->n ? end : p->n, id);
        if (atomic_fetch_add_explicit(&p->done, 1, memory_order_seq_cst) + 1 == ranges &&
            atomic_load_explicit(&p->caller_sleeps, memory_order_seq_cst)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
        t = ticket_at(p);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct kern_pool *p = w->pool;
#ifdef __APPLE__
    pthread_set_qos_class_self_np(QOS_CLASS_USER_INITIATED, 0);
#endif
    kern_fpenv_enter(p->flush);
    while (!atomic_load(&p->stop)) {
        work(p, w->id);
        int looks = p->crowded ? SPIN_YIELD : SPIN;
        while (looks > 0 && !ticket_open(ticket_at(p)) && !atomic_load(&p->stop)) {
            if (p->crowded) {
                sched_yield();
            } else {
                relax();
            }
            looks--;
        }
        if (looks > 0) {
            continue;
        }
        pthread_mutex_lock(&p->lock);
        atomic_fetch_add(&p->sleepers, 1);
        while (!ticket_open(ticket_at(p)) && !atomic_load(&p->stop)) {
            pthread_cond_wait(&p->work, &p->lock);
        }
        atomic_fetch_sub(&p->sleepers, 1);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void wait_done(struct kern_pool *p, unsigned ranges)
{
    int looks = p->crowded ? SPIN_YIELD : SPIN;
    while (looks-- > 0) {
        if (atomic_load_explicit(&p->done, memory_order_acquire) == ranges) {
            return;
        }
        if (p->crowded) {
            sched_yield();
        } else {
            relax();
        }
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->done) != ranges) {
        pthread_cond_wait(&p->finished, &p->lock);
    }
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void kern_pool_run(struct kern_pool *p, size_t n, size_t grain, kern_range_fn *fn, void *ctx)
{
    if (!n) {
        return;
    }
    if (!grain) {
        grain = 1;
    }
    size_t ranges = (n - 1) / grain + 1;
    if (ranges > (size_t)p->threads * PER_THREAD) {
        ranges = (size_t)p->threads * PER_THREAD;
    }
    if (p->threads == 1 || ranges == 1) {
        fn(ctx, 0, n, 0);
        return;
    }
    size_t step = (n - 1) / ranges + 1;
    step = step < grain ? grain : step;
    ranges = (n - 1) / step + 1;
    p->fn = fn;
    p->ctx = ctx;
    p->n = n;
    p->step = step;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    uint64_t gen = ((ticket_at(p) >> 32) + 1) & 0xffffffffu;
    atomic_store_explicit(&p->ticket, gen << 32 | (uint64_t)ranges << 16, memory_order_seq_cst);
    unsigned asleep = atomic_load_explicit(&p->sleepers, memory_order_seq_cst);
    if (asleep) {
        pthread_mutex_lock(&p->lock);
        if (ranges > asleep) {
            pthread_cond_broadcast(&p->work);
        } else {
            for (size_t i = 1; i < ranges; i++) {
                pthread_cond_signal(&p->work);
            }
        }
        pthread_mutex_unlock(&p->lock);
    }
    work(p, 0);
    wait_done(p, (unsigned)ranges);
}

unsigned kern_pool_threads(const struct kern_pool *p)
{
    return p->threads;
}

static unsigned online_cores(void)
{
    long n = 0;
#ifdef __APPLE__
    int v = 0;
    size_t len = sizeof v;
    if (!sysctlbyname("hw.perflevel0.physicalcpu", &v, &len, NULL, 0)) {
        n = v;
    }
#elif defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) {
        n = CPU_COUNT(&set);
    }
#endif
    if (n < 1) {
        n = sysconf(_SC_NPROCESSORS_ONLN);
    }
    return n < 1 ? 1 : (unsigned)n;
}

unsigned kern_pool_cores(void)
{
    unsigned n = online_cores();
    return n > KERN_POOL_MAX ? KERN_POOL_MAX : n;
}

struct kern_pool *kern_pool_open(unsigned threads, bool flush)
{
    unsigned cores = online_cores();
    if (!threads) {
        threads = kern_pool_cores();
    }
    if (threads > KERN_POOL_MAX) {
        return NULL;
    }
    struct kern_pool *p = NULL;
    if (posix_memalign((void **)&p, 64, sizeof *p)) {
        return NULL;
    }
    *p = (struct kern_pool){.threads = 1, .flush = flush, .crowded = threads > cores};
    if (pthread_mutex_init(&p->lock, NULL)) {
        free(p);
        return NULL;
    }
    if (pthread_cond_init(&p->work, NULL)) {
        pthread_mutex_destroy(&p->lock);
        free(p);
        return NULL;
    }
    if (pthread_cond_init(&p->finished, NULL)) {
        pthread_cond_destroy(&p->work);
        pthread_mutex_destroy(&p->lock);
        free(p);
        return NULL;
    }
    unsigned started = 1;
    while (started < threads) {
        struct worker *w = &p->w[started];
        w->pool = p;
        w->id = started;
        if (pthread_create(&w->thread, NULL, worker_main, w)) {
            break;
        }
        started++;
    }
    p->threads = started;
    if (started < threads) {
        kern_pool_close(p);
        return NULL;
    }
    return p;
}

void kern_pool_close(struct kern_pool *p)
{
    if (!p) {
        return;
    }
    atomic_store(&p->stop, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 1; i < p->threads; i++) {
        pthread_join(p->w[i].thread, NULL);
    }
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
