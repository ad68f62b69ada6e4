/* SPDX-License-Identifier: MIT
 * cap.h: private to node/store: a cap on bytes a second. Plain arithmetic on times that the caller
 * gives (clock_ns), so that it can be tested without waiting. Not for several threads at once. */
#ifndef SHOAL_STORE_CAP_H
#define SHOAL_STORE_CAP_H

#include <stdint.h>

struct cap {
    uint64_t per_s; /* 0: no cap */
    uint64_t free_at;
    uint64_t rest; /* of the division, in 1/per_s ns */
};

/* What was not used may be made up for, but no more than this of it. */
#define CAP_CREDIT_NS 100000000u

void cap_init(struct cap *r, uint64_t per_s, uint64_t now);
/* How long to wait before the next bytes, in ns; 0: not at all. */
uint64_t cap_wait(const struct cap *r, uint64_t now);
/* n bytes have passed: they may be more than there was room for, what follows waits for them. */
void cap_take(struct cap *r, uint64_t n, uint64_t now);
/* A good size for one piece under this cap: a fortieth of a second, from `least` to `most` bytes.
 */
uint64_t cap_piece(const struct cap *r, uint64_t least, uint64_t most);

#endif
