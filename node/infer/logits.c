/* SPDX-License-Identifier: MIT
 * logits.c: see logits.h. */
#include "node/infer/logits.h"

#include "node/model/model.h"

#include <stdlib.h>
#include <string.h>

/* From the beginning. *spoilt: what it used has been taken back meanwhile, *e says why. */
static int once(struct infer *f, const struct logits_opts *o, float *logits, struct infer_row *rows,
                struct logits_result *out, bool *spoilt, struct err *e)
{
    struct infer_state *st = NULL;
    struct err why = {0};
    int r = infer_state_new(f, &st, e);
    for (size_t at = 0; at < o->n && !r; at += o->chunk) {
        size_t n = o->n - at < o->chunk ? o->n - at : o->chunk;
        for (size_t i = 0; i < n; i++) {
            rows[i] = (struct infer_row){st, o->ids[at + i], true};
        }
        r = infer_forward(f, rows, n, logits, e);
        r = r ? r : infer_state_spoilt(st, e);
        r = r ? r : o->rows(o->ctx, at, n, logits, e);
    }
    *spoilt = st && r != ERR_CANCELLED && infer_state_spoilt(st, &why);
    if (*spoilt) {
        *e = why;
        r = why.code;
    } else if (st) {
        out->since = infer_state_since(st);
    }
    infer_state_free(st);
    return r;
}

int logits_all(struct infer *f, const struct model *m, const struct logits_opts *o,
               struct logits_result *out, struct err *e)
{
    size_t vocab = model_config(m)->vocab;
    float *logits = malloc(o->chunk * vocab * sizeof *logits);
    struct infer_row *rows = calloc(o->chunk, sizeof *rows);
    bool spoilt = false;
    memset(out, 0, sizeof *out);
    int r = logits && rows ? 0 : err_set(e, ERR_NOMEM, "no memory for the logits");
    while (!r) {
        r = once(f, o, logits, rows, out, &spoilt, e);
        if (!spoilt || out->again == LOGITS_AGAIN_MAX) {
            break;
        }
        out->again++;
        if (o->again) {
            o->again(o->ctx, e->msg);
        }
        r = 0;
    }
    free(logits);
    free(rows);
    return r;
}
