/* SPDX-License-Identifier: MIT
 * yield.c: serving gives way to the own decode. See README.md for the rule and why.
 *
 * While a decode runs, what is served to peers is paid from a budget: YIELD_CORE bytes a second for
 * each processor. A byte costs up to 8 ns of one (small objects; reading, checksum, AES-GCM,
 * messages, socket), so that is less than a twentieth of them, and next to nothing of an SSD's
 * rate. Demand may take the budget as it comes, prefetch only while at least half of a quarter
 * second's is left, background copies only when all of it is. So they wait for as long as a demand
 * of a peer or the decode wants the machine, and nobody is starved into taking this node for dead.
 */
#include "node/daemon/node_int.h"

#include "proto/base/clock.h"

#include <unistd.h>

#define YIELD_CORE 6e6
#define YIELD_SPAN 0.25 /* seconds of the rate that can be saved up */

void yield_init(struct yield *y)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *y = (struct yield){.rate = YIELD_CORE * (double)(cores > 0 ? cores : 1)};
    y->at = clock_ns();
    pthread_mutex_init(&y->mu, NULL);
}

void yield_free(struct yield *y)
{
    pthread_mutex_destroy(&y->mu);
}

/* With mu. */
static void fill(struct yield *y)
{
    uint64_t now = clock_ns();
    y->level += y->rate * (double)(now - y->at) / 1e9;
    y->at = now;
    if (y->level > y->rate * YIELD_SPAN) {
        y->level = y->rate * YIELD_SPAN;
    }
}

void yield_computing(struct yield *y, int by)
{
    pthread_mutex_lock(&y->mu);
    y->computing += by;
    y->computing = y->computing < 0 ? 0 : y->computing;
    pthread_mutex_unlock(&y->mu);
}

bool yield_busy(struct yield *y)
{
    pthread_mutex_lock(&y->mu);
    bool r = y->computing > 0;
    pthread_mutex_unlock(&y->mu);
    return r;
}

unsigned yield_ms(struct yield *y, unsigned prio)
{
    static const double wanted[] = {1, 0.5, 0};
    unsigned ms = 0;
    pthread_mutex_lock(&y->mu);
    if (y->computing) {
        fill(y);
        double need = y->rate * YIELD_SPAN * wanted[prio < 2 ? prio : 2] - y->level;
        if (need > 0) {
            double t = need / y->rate * 1e3;
            ms = t < 1 ? 1 : t > 1000 ? 1000 : (unsigned)t + 1;
            y->puts_off++;
        }
    }
    pthread_mutex_unlock(&y->mu);
    return ms;
}

void yield_served(struct yield *y, uint64_t bytes)
{
    pthread_mutex_lock(&y->mu);
    if (y->computing) {
        fill(y);
        y->level -= (double)bytes;
    }
    pthread_mutex_unlock(&y->mu);
}

json_t *yield_json(struct yield *y)
{
    pthread_mutex_lock(&y->mu);
    json_t *j = json_pack("{s:i,s:f,s:I}", "computing", y->computing, "bytes_s", y->rate,
                          "puts_off", (json_int_t)y->puts_off);
    pthread_mutex_unlock(&y->mu);
    return j;
}
