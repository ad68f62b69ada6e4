/* SPDX-License-Identifier: MIT
 * grammar.h: which tokens may come next, so that an answer has the form that was asked for: JSON, a
 * JSON schema, a call of a given tool.
 *
 * A grammar is a set of rules over bytes and special tokens (a pushdown automaton without
 * counters). A run follows one answer through it: before each token it marks all tokens of the
 * vocabulary that can still become a sentence of the grammar; whatever the sampler chooses among
 * them, it is one at the end. The mask is a function of the tokens so far alone, so it changes no
 * bit between machines.
 *
 * Threads: a grammar and a vocabulary are immutable and shared; a run belongs to one thread. */
#ifndef SHOAL_NODE_GRAMMAR_H
#define SHOAL_NODE_GRAMMAR_H

#include "node/text/pyjson.h"
#include "node/text/tok.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_NODES_MAX (1u << 20)   /* of one grammar */
#define GRAMMAR_REPEAT_MAX 4096u       /* minItems, maxItems, minLength, maxLength, {m,n} */
#define GRAMMAR_SCHEMA_MAX (1u << 20)  /* bytes of a schema */
#define GRAMMAR_STATES_MAX 4096u       /* of a run's cache; beyond it the cache begins anew */
#define GRAMMAR_CONFIGS_MAX (1u << 16) /* ways to read the text so far that are kept at once */
#define GRAMMAR_DEPTH_MAX 1000u        /* rules inside one another in the answer */

struct grammar;
struct grammar_vocab;
struct grammar_run;

/* ---- making one ---- */

/* The whole text is one JSON value that fits the schema. README.md lists the keywords; what would
 * narrow the schema and is not supported is ERR_UNSUPPORTED, and the sentence begins with its place
 * ("schema.properties.a.not: ..."). NULL: any JSON object. */
int grammar_json(const struct pyjson *schema, struct grammar **out, struct err *e);

/* What K3 answers after the prompt's end (see node/text/chat.h), from inside `think` or `response`
 * to <|end_of_msg|>. */
struct grammar_tool {
    const char *name;                /* NUL-terminated */
    const struct pyjson *parameters; /* a schema of type object, NULL: no arguments */
    bool strict; /* arguments fit the schema; else any arguments of any JSON type */
};
enum grammar_calls { GRAMMAR_NO_CALLS, GRAMMAR_MAY_CALL, GRAMMAR_MUST_CALL };
struct grammar_answer {
    bool thinking;               /* it begins inside `think` */
    bool json;                   /* the response is JSON: */
    const struct pyjson *schema; /* of this schema; NULL: any object */
    enum grammar_calls calls;
    bool one_call; /* at most one */
    const struct grammar_tool *tools;
    size_t n_tools; /* those that may be called */
};
int grammar_answer(const struct grammar_answer *a, const struct tok *t, struct grammar **out,
                   struct err *e);
void grammar_free(struct grammar *g); /* NULL is fine */

/* ---- using one ---- */

/* The vocabulary in the order in which masks are computed: 12 bytes a token and those of its text.
 * t must outlive it. */
int grammar_vocab_open(const struct tok *t, struct grammar_vocab **out, struct err *e);
void grammar_vocab_close(struct grammar_vocab *v);

/* Both must outlive the run. */
int grammar_run_open(const struct grammar *g, const struct grammar_vocab *v,
                     struct grammar_run **out, struct err *e);
void grammar_run_close(struct grammar_run *r);
/* Bit id % 32 of mask[id / 32] is set when the token may come next; (vocab + 31) / 32 words. Valid
 * until the next call for this run. NULL (and *e) when the grammar became too ambiguous
 * (ERR_LIMIT) or memory is short. */
const uint32_t *grammar_run_mask(struct grammar_run *r, struct err *e);
/* Take a token in. ERR_ARG when it may not come here; then the run is as it was. */
int grammar_run_accept(struct grammar_run *r, uint32_t id, struct err *e);
/* The text so far is a whole sentence. */
bool grammar_run_complete(const struct grammar_run *r);

#endif
