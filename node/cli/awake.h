/* SPDX-License-Identifier: MIT
 * awake.h: the machine does not fall asleep by itself while something is being worked on: an
 * answer, or a set-up that fetches for hours. The display may, and whoever closes the lid decides.
 */
#ifndef SHOAL_NODE_CLI_AWAKE_H
#define SHOAL_NODE_CLI_AWAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct awake {
    pthread_mutex_t mu;
    int works;
    bool held;
    uint32_t token;
};

void awake_open(struct awake *a);
void awake_close(struct awake *a);
/* One piece of work more (1) or less (-1); any thread. */
void awake_work(struct awake *a, int by);

/* ---- the system (awake_darwin.c, awake_linux.c) ---- */

/* False: it cannot be asked for, which is no fault: then it sleeps when it likes. */
bool awake_hold(uint32_t *token);
void awake_let_go(uint32_t token);

#endif
