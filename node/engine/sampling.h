/* SPDX-License-Identifier: MIT
 * sampling.h: private to node/engine: from a request's wishes and the model's logits to one token.
 */
#ifndef SHOAL_ENGINE_SAMPLING_H
#define SHOAL_ENGINE_SAMPLING_H

#include "node/engine/engine.h"

struct sampling {
    const struct engine_sampling *o;
    uint32_t vocab;
    float *work;     /* [vocab] logits as sampled from */
    void *scratch;   /* [vocab] 8 bytes each */
    uint32_t *count; /* [vocab] how often chosen; NULL: no penalty needs it */
    uint8_t *seen;   /* [vocab] in prompt or answer; NULL: no repetition penalty */
};

/* Refuses values out of range, by name. */
int sampling_check(const struct engine_sampling *o, uint32_t vocab, struct err *e);
int sampling_open(struct sampling *s, const struct engine_sampling *o, uint32_t vocab,
                  const uint32_t *prompt, size_t n, struct err *e);
void sampling_close(struct sampling *s);
/* The token number `counter` of the answer. mask: NULL, or the tokens that may come; ERR_NUMERIC
 * when there is none. */
int sampling_pick(struct sampling *s, const float *logits, const uint32_t *mask, uint64_t counter,
                  uint32_t *id, struct err *e);
/* It was chosen (by whomever). */
void sampling_took(struct sampling *s, uint32_t id);
/* t->id is set; fill the rest from the model's own logits. */
void sampling_logprobs(struct sampling *s, const float *logits, struct engine_token *t);
/* Natural logarithm of a positive finite number, the same on every machine; within 1e-12. */
double sampling_ln(double x);

#endif
