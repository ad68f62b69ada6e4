/* SPDX-License-Identifier: MIT
 * pressure.c: see pressure.h. */
#include "node/store/pressure.h"

void pressure_look(struct pressure_watch *w, struct store *st, enum pressure p)
{
    struct store_stats s;
    if (p == PRESSURE_WARN || p == PRESSURE_CRITICAL) {
        store_get_stats(st, &s);
        (void)store_ram_back_off(st, p == PRESSURE_WARN ? s.ram_experts / 8 : s.ram_experts / 2);
        w->calm = 0;
        return;
    }
    if (++w->calm < PRESSURE_CALM) {
        return;
    }
    w->calm = 0;
    store_get_stats(st, &s);
    if (s.ram_budget < w->plan) {
        uint64_t more = w->plan / 8, left = w->plan - s.ram_budget;
        store_set_ram_budget(st, s.ram_budget + (more < left ? more : left));
    }
}
