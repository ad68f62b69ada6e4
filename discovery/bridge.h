/* SPDX-License-Identifier: MIT
 * bridge.h: a backend (backend.h) on a thread and loop of its own, because calls to a responder are
 * round trips to a daemon that may hang. What the core says goes there as a note, what happens
 * there comes back as a note; nothing on the core's loop waits for the daemon. */
#ifndef SHOAL_DISCOVERY_BRIDGE_H
#define SHOAL_DISCOVERY_BRIDGE_H

#include "discovery/backend.h"

#define BRIDGE_HANG_MS 5000  /* a call that takes longer: the responder does not answer */
#define BRIDGE_CLOSE_MS 1500 /* the withdrawal at the end; then the thread is left to itself */
#define BRIDGE_EVENTS_MAX 4096

/* Opens the backend that is to run there, on the loop it is given (which does not run yet). */
typedef int (*bridge_inner_fn)(uv_loop_t *loop, const struct be_events *ev, void *ctx,
                               struct backend **out, struct err *e);

/* A backend on `loop` whose work `inner` does elsewhere. start always succeeds; `started` or
 * `failed` follows. While a call there hangs, `failed` with BE_NO_RESPONDER comes for every session
 * after BRIDGE_HANG_MS; whatever the hanging call answers in the end is ignored. */
int bridge_open(uv_loop_t *loop, bridge_inner_fn inner, const struct be_events *ev, void *ctx,
                struct backend **out, struct err *e);

#endif
