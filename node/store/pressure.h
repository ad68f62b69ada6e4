/* SPDX-License-Identifier: MIT
 * pressure.h: the machine's memory gets short: experts give way by steps, and have it back by steps
 * when that is over. */
#ifndef SHOAL_STORE_PRESSURE_H
#define SHOAL_STORE_PRESSURE_H

#include "node/store/store.h"

/* What the system says of its memory. UNKNOWN: it does not. */
enum pressure { PRESSURE_UNKNOWN, PRESSURE_NONE, PRESSURE_WARN, PRESSURE_CRITICAL };

#define PRESSURE_CALM 60 /* looks without pressure before a step back up */

struct pressure_watch { /* zero but for plan */
    uint64_t plan;      /* the RAM budget where nothing is short */
    unsigned calm;
};

/* One look, to be made each second: at a warning the experts give an eighth of what they hold, when
 * it is critical a half; after PRESSURE_CALM looks without, the budget grows by an eighth of the
 * plan. That also takes back what store_ram_back_off gave for other reasons. Any thread. */
void pressure_look(struct pressure_watch *w, struct store *st, enum pressure p);

#endif
