/* SPDX-License-Identifier: MIT
 * bonjour_none.c: in place of bonjour.c where the build found no dns_sd.h. */
#include "discovery/backend.h"

int bonjour_open(uv_loop_t *loop, const struct be_events *ev, void *ctx, struct backend **out,
                 struct err *e)
{
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without Bonjour: other nodes are found by --peer and by "
                   "remembered addresses only");
}
