/* SPDX-License-Identifier: MIT
 * cap.c: see cap.h. The state is one time: when all that has passed is paid for. */
#include "node/store/cap.h"

#define SECOND 1000000000u
#define TAKE_MAX ((uint64_t)1 << 32) /* bytes in one step: times a second they fit 64 bits */
#define SLOWEST_NS ((uint64_t)3600 * SECOND)

void cap_init(struct cap *r, uint64_t per_s, uint64_t now)
{
    *r = (struct cap){.per_s = per_s, .free_at = now};
}

uint64_t cap_wait(const struct cap *r, uint64_t now)
{
    return r->per_s && r->free_at > now ? r->free_at - now : 0;
}

void cap_take(struct cap *r, uint64_t n, uint64_t now)
{
    if (!r->per_s) {
        return;
    }
    if (now > CAP_CREDIT_NS && r->free_at < now - CAP_CREDIT_NS) {
        r->free_at = now - CAP_CREDIT_NS;
        r->rest = 0;
    }
    while (n) {
        uint64_t k = n < TAKE_MAX ? n : TAKE_MAX;
        uint64_t ns = (k * SECOND + r->rest) / r->per_s;
        r->rest = (k * SECOND + r->rest) % r->per_s;
        r->free_at += ns;
        n -= k;
        if (r->free_at > now + SLOWEST_NS) { /* a cap of a few bytes: no longer than that */
            r->free_at = now + SLOWEST_NS;
            return;
        }
    }
}

uint64_t cap_piece(const struct cap *r, uint64_t least, uint64_t most)
{
    uint64_t n = r->per_s ? r->per_s / 40 : most;
    return n < least ? least : n > most ? most : n;
}
