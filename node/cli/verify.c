/* SPDX-License-Identifier: MIT
 * verify.c: see verify.h. */
#include "node/cli/verify.h"

#include "node/infer/generate.h"

#include <string.h>

#define BUILT_IN 16 /* ids 1, 2, ... of the prompt without text */

int verify_prompt(const struct cli_session *s, const char *text, struct tok_ids *ids, struct err *e)
{
    if (text[0]) {
        int r = cli_session_need_tok(s, e);
        r = r ? r : tok_encode(s->tok, text, strlen(text), false, ids, e);
        return r || ids->n ? r : err_set(e, ERR_ARG, "the prompt is empty");
    }
    uint32_t vocab = model_config(s->m)->vocab;
    for (uint32_t i = 1; i <= BUILT_IN; i++) {
        if (tok_ids_add(ids, i % vocab)) {
            return err_set(e, ERR_NOMEM, "no memory for the token ids");
        }
    }
    return 0;
}

static int on_token(void *ctx, uint32_t id)
{
    (void)ctx;
    (void)id;
    return cli_interrupted();
}

int verify_run(struct cli_session *s, const struct mesh_verify_ask *ask,
               struct mesh_verify_answer *out, struct err *e)
{
    struct tok_ids ids = {0};
    struct generate_opts g = {.max_new = ask->max_new ? ask->max_new : VERIFY_NEW,
                              .sample = {.top_p = 1},
                              .prefill_chunk = s->chunk,
                              .on_token = on_token};
    struct generate_result res = {0};
    memset(out, 0, sizeof *out);
    int r = verify_prompt(s, ask->prompt, &ids, e);
    if (!r) {
        g.max_new = g.max_new < MESH_VERIFY_NEW ? g.max_new : MESH_VERIFY_NEW;
        g.prompt = ids.v;
        g.n_prompt = ids.n;
        cli_session_computing(s, 1);
        r = generate(s->f, s->m, &g, &res, e);
        cli_session_computing(s, -1);
    }
    if (!r && cli_interrupted()) {
        r = err_set(e, ERR_CANCELLED, "interrupted");
    }
    if (!r) {
        memcpy(out->receipt, res.receipt.h, SHA256_SIZE);
        memcpy(out->model_root, model_root(s->m), SHA256_SIZE);
        out->numerics_version = SHOAL_NUMERICS_VERSION;
        out->n_ids = (uint32_t)(res.n < MESH_VERIFY_NEW ? res.n : MESH_VERIFY_NEW);
        memcpy(out->ids, res.ids, out->n_ids * sizeof *out->ids);
    }
    generate_result_free(&res);
    tok_ids_free(&ids);
    return r;
}

bool verify_compare(const struct mesh_verify_answer *a, const struct mesh_verify_answer *b,
                    const char **what, uint32_t *at)
{
    uint32_t i = 0, n = a->n_ids < b->n_ids ? a->n_ids : b->n_ids;
    while (i < n && a->ids[i] == b->ids[i]) {
        i++;
    }
    *at = i;
    *what = memcmp(a->model_root, b->model_root, SHA256_SIZE) != 0 ? "model"
            : a->numerics_version != b->numerics_version           ? "numerics"
            : i < n || a->n_ids != b->n_ids                        ? "tokens"
            : memcmp(a->receipt, b->receipt, SHA256_SIZE) != 0     ? "bits"
                                                                   : "same";
    return !strcmp(*what, "same");
}
