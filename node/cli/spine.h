/* SPDX-License-Identifier: MIT
 * spine.h: in which form the spine lies on this disk: decided by what it makes of a token's time on
 * this machine, changed by `shoal setup`, told by setup, doctor and status. */
#ifndef SHOAL_NODE_CLI_SPINE_H
#define SHOAL_NODE_CLI_SPINE_H

#include "node/cli/session.h"
#include "node/store/forms.h"

enum spine_form { SPINE_AUTO, SPINE_BF16, SPINE_PACKED };
extern const char *const cli_spine_names[]; /* in that order, NULL-terminated */

/* "packed: ..." or "bf16: ..." with the reason. True: packed. */
bool spine_decide(const struct spine_facts *f, char why[STORE_FORMS_NOTE]);

/* Decides, measuring for a second where it matters, changes what is to be changed (a second call
 * goes on where a first one ended), and says so. `asked`: NULL: as the last time, at first auto.
 * Nothing is done when the model is read in place, unless it was asked for (ERR_UNSUPPORTED). */
int cli_spine_setup(struct cli_session *s, const enum spine_form *asked, struct err *e);

/* {"form", "why", ...} of a store; how it is, in words. */
json_t *cli_spine_json(struct store *st);
void cli_spine_words(struct store *st, char *out, size_t n);

#endif
