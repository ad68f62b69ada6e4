/* SPDX-License-Identifier: MIT
 * verify.h: one short run whose receipt two nodes compare: what `shoal verify` does here and what a
 * node that is asked does there. */
#ifndef SHOAL_NODE_CLI_VERIFY_H
#define SHOAL_NODE_CLI_VERIFY_H

#include "node/cli/session.h"
#include "peer/mesh.h"

#define VERIFY_NEW 16 /* new tokens unless told otherwise */

/* Run the question's prompt: its text, raw, or without one ids that every model has. Greedy, and
 * never stopped by an end token, so that both sides compute the same number of steps. */
int verify_run(struct cli_session *s, const struct mesh_verify_ask *ask,
               struct mesh_verify_answer *out, struct err *e);

/* Append the prompt's ids: its text's, or without one some that every model has. */
int verify_prompt(const struct cli_session *s, const char *text, struct tok_ids *ids,
                  struct err *e);

/* Which of the two answers differs, and where: true when they are the same. `what` is "same",
 * "model", "numerics", "tokens" or "bits"; *at is the first token that differs. */
bool verify_compare(const struct mesh_verify_answer *a, const struct mesh_verify_answer *b,
                    const char **what, uint32_t *at);

#endif
