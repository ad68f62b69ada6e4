/* SPDX-License-Identifier: MIT
 * fuzz_routes.c: any bytes as recorded routes. What is accepted stays within its own limits and
 * goes through every policy, the optimum never the worse for it. */
#include "node/routes/replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct routes r;
    struct err e = {0};
    struct replay_result x[REPLAY_POLICIES];
    if (!routes_parse((const char *)data, size, &r, &e)) {
        check(r.n && r.steps && r.rows >= r.steps);
        for (size_t i = 0; i < r.n; i++) {
            check(r.use[i].object < r.head.layers * r.head.experts && r.use[i].step < r.steps);
        }
        if ((uint64_t)r.head.layers * r.head.experts <= 100000) {
            for (int p = 0; p < REPLAY_POLICIES; p++) {
                check(!replay_run(&r, (enum replay_policy)p, 3, &x[p], &e));
                check(x[p].misses && x[p].misses <= r.n);
            }
            check(x[REPLAY_BEST].misses <= x[REPLAY_LRU].misses);
            check(x[REPLAY_BEST].misses <= x[REPLAY_S3FIFO].misses);
            check(x[REPLAY_BEST].misses <= x[REPLAY_LFU].misses);
        }
    } else {
        check(e.msg[0]);
    }
    routes_free(&r);
    return 0;
}
