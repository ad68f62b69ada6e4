/* SPDX-License-Identifier: MIT
 * params.c: oai_int.h: fields of requests, checked one by one; a refusal begins with its field. */
#include "node/api/oai_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What both have, and what says nothing about the answer: taken and not looked at. */
const char *const oai_common[] = {"model",
                                  "temperature",
                                  "top_p",
                                  "top_k",
                                  "min_p",
                                  "seed",
                                  "n",
                                  "presence_penalty",
                                  "frequency_penalty",
                                  "repetition_penalty",
                                  "logit_bias",
                                  "stop",
                                  "max_tokens",
                                  "max_completion_tokens",
                                  "ignore_eos",
                                  "timeout",
                                  "stream",
                                  "stream_options",
                                  "user",
                                  "metadata",
                                  "store",
                                  "service_tier",
                                  "prompt_cache_key",
                                  "prompt_cache_retention",
                                  "safety_identifier",
                                  NULL};

int oai_body(struct web_req *r, struct pyjson_doc **d, struct err *e)
{
    size_t n;
    const char *p = web_body(r, &n);
    *d = NULL;
    int rc = pyjson_parse(p, n, false, d, e);
    if (rc) {
        err_prefix(e, "request");
        return rc;
    }
    if (pyjson_root(*d)->type != PYJSON_OBJECT) {
        pyjson_free(*d);
        *d = NULL;
        return err_set(e, ERR_FORMAT, "request: it must be a JSON object");
    }
    return 0;
}

static bool listed(const struct pyjson *m, const char *const *names)
{
    for (; names && *names; names++) {
        if (m->key_n == strlen(*names) && !memcmp(m->key, *names, m->key_n)) {
            return true;
        }
    }
    return false;
}

int oai_known(const struct pyjson *root, const char *const *names, const char *const *more,
              struct err *e)
{
    for (size_t i = 0; i < root->count; i++) {
        const struct pyjson *m = root->items[i];
        if (!listed(m, names) && !listed(m, more) && m->type != PYJSON_NULL) {
            return err_set(e, ERR_ARG, "%.*s: this parameter is not supported",
                           (int)(m->key_n < 100 ? m->key_n : 100), m->key);
        }
    }
    return 0;
}

static const struct pyjson *field(const struct pyjson *root, const char *name)
{
    const struct pyjson *v = pyjson_get(root, name);
    return v && v->type != PYJSON_NULL ? v : NULL;
}

int oai_check_model(struct oai *a, const struct pyjson *root, struct err *e)
{
    const struct pyjson *v = field(root, "model");
    if (!v) {
        return 0; /* there is only one */
    }
    if (v->type != PYJSON_STRING) {
        return err_set(e, ERR_ARG, "model: it must be a string");
    }
    if (!pyjson_is(v, a->m.id)) {
        return err_set(e, ERR_NOTFOUND, "model: there is no `%.*s` here; this node has `%s`",
                       (int)(v->n < 100 ? v->n : 100), v->s, a->m.id);
    }
    return 0;
}

int oai_bool(const struct pyjson *root, const char *name, bool *out, struct err *e)
{
    const struct pyjson *v = field(root, name);
    if (!v) {
        return 0;
    }
    if (v->type != PYJSON_TRUE && v->type != PYJSON_FALSE) {
        return err_set(e, ERR_ARG, "%s: it must be true or false", name);
    }
    *out = v->type == PYJSON_TRUE;
    return 0;
}

static int number(const struct pyjson *root, const char *name, double *out, bool *given,
                  struct err *e)
{
    const struct pyjson *v = field(root, name);
    *given = v != NULL;
    if (v && (v->type != PYJSON_NUMBER || pyjson_double(v->s, v->n, out) || !isfinite(*out))) {
        return err_set(e, ERR_ARG, "%s: it must be a number", name);
    }
    return 0;
}

int oai_real(const struct pyjson *root, const char *name, double min, double max, float *out,
             struct err *e)
{
    double x;
    bool given;
    int r = number(root, name, &x, &given, e);
    if (!r && given && !(x >= min && x <= max)) {
        return err_set(e, ERR_ARG, "%s: it must be from %g to %g", name, min, max);
    }
    if (!r && given) {
        *out = (float)x;
    }
    return r;
}

int oai_int(const struct pyjson *root, const char *name, int64_t min, int64_t max, int64_t *out,
            struct err *e)
{
    double x;
    bool given;
    int r = number(root, name, &x, &given, e);
    if (r || !given) {
        return r;
    }
    const struct pyjson *v = field(root, name);
    char *end;
    errno = 0;
    long long i = strtoll(v->s, &end, 10);
    if (*end || errno) { /* 1.0 counts as 1 */
        i = x == floor(x) && fabs(x) < 9e15 ? (long long)x : INT64_MIN;
        if (i == INT64_MIN) {
            return err_set(e, ERR_ARG, "%s: it must be a whole number", name);
        }
    }
    if (i < min || i > max) {
        return err_set(e, ERR_ARG, "%s: it must be from %lld to %lld", name, (long long)min,
                       (long long)max);
    }
    *out = i;
    return 0;
}

int oai_stops(const struct pyjson *root, const char *name, struct gen_ask *a, struct err *e)
{
    const struct pyjson *v = field(root, name);
    size_t n = !v ? 0 : v->type == PYJSON_ARRAY ? v->count : 1;
    if (n > STOPS_MAX) {
        return err_set(e, ERR_ARG, "%s: at most %d strings are taken", name, STOPS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const struct pyjson *s = v->type == PYJSON_ARRAY ? v->items[i] : v;
        if (s->type != PYJSON_STRING || !s->n || s->n > STOP_BYTES_MAX || memchr(s->s, 0, s->n)) {
            return err_set(e, ERR_ARG,
                           "%s: it must be a string or a list of strings of 1 to %d bytes", name,
                           STOP_BYTES_MAX);
        }
        a->stops[a->n_stops] = strdup(s->s);
        if (!a->stops[a->n_stops]) {
            return err_set(e, ERR_NOMEM, "out of memory");
        }
        a->n_stops++;
    }
    return 0;
}

static int bias(struct oai *o, const struct pyjson *root, struct gen_ask *a, struct err *e)
{
    const struct pyjson *v = field(root, "logit_bias");
    if (!v) {
        return 0;
    }
    if (v->type != PYJSON_OBJECT || v->count > ENGINE_BIAS_MAX) {
        return err_set(e, ERR_ARG, "logit_bias: it must be an object of at most %d token ids",
                       ENGINE_BIAS_MAX);
    }
    struct engine_bias *b = calloc(v->count ? v->count : 1, sizeof *b);
    if (!b) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    a->sampling.bias = b;
    for (size_t i = 0; i < v->count; i++) {
        const struct pyjson *m = v->items[i];
        char *end;
        double x = NAN;
        unsigned long id = strtoul(m->key, &end, 10);
        if (m->type == PYJSON_NUMBER) {
            pyjson_double(m->s, m->n, &x);
        }
        if (!m->key_n || *end || m->key[0] < '0' || m->key[0] > '9' || id >= tok_vocab(o->m.tok) ||
            !(x >= -100 && x <= 100)) {
            return err_set(e, ERR_ARG,
                           "logit_bias: keys must be token ids below %u, values from -100 to 100",
                           tok_vocab(o->m.tok));
        }
        b[i] = (struct engine_bias){(uint32_t)id, (float)x};
    }
    a->sampling.n_bias = v->count;
    return 0;
}

int oai_sampling(struct oai *o, const struct pyjson *root, struct gen_ask *a, struct err *e)
{
    struct engine_sampling *s = &a->sampling;
    float timeout = (float)o->o.timeout_s;
    int64_t top_k = 0, seed = 0, n = 1, max = 0, max2 = 0;
    s->base.temperature = 1; /* as trained, and as the API has it; a fixed seed keeps it the same */
    s->base.top_p = 1;
    int r = oai_real(root, "temperature", 0, 100, &s->base.temperature, e);
    r = r ? r : oai_real(root, "top_p", 0, 1, &s->base.top_p, e);
    r = r ? r : oai_real(root, "min_p", 0, 1, &s->base.min_p, e);
    r = r ? r : oai_real(root, "presence_penalty", -2, 2, &s->presence, e);
    r = r ? r : oai_real(root, "frequency_penalty", -2, 2, &s->frequency, e);
    r = r ? r : oai_real(root, "repetition_penalty", 0.01, 10, &s->repetition, e);
    r = r ? r : oai_real(root, "timeout", 0, 1e7, &timeout, e);
    r = r ? r : oai_int(root, "top_k", -1, 1000000000, &top_k, e);
    r = r ? r : oai_int(root, "seed", INT64_MIN + 1, INT64_MAX, &seed, e);
    r = r ? r : oai_int(root, "n", 1, GEN_CHOICES_MAX, &n, e);
    r = r ? r : oai_int(root, "max_tokens", 1, INT32_MAX, &max, e);
    r = r ? r : oai_int(root, "max_completion_tokens", 1, INT32_MAX, &max2, e);
    r = r ? r : oai_bool(root, "ignore_eos", &a->ignore_stop_ids, e);
    r = r ? r : oai_stops(root, "stop", a, e);
    r = r ? r : bias(o, root, a, e);
    if (r) {
        return r;
    }
    if (max && max2 && max != max2) {
        return err_set(e, ERR_ARG,
                       "max_tokens: it differs from max_completion_tokens; give one of them");
    }
    s->base.top_p = s->base.top_p < 1e-6f ? 1e-6f : s->base.top_p;
    s->base.temperature =
        s->base.temperature > 0 && s->base.temperature < 1e-4f ? 1e-4f : s->base.temperature;
    s->base.top_k = top_k > 0 ? (uint32_t)top_k : 0;
    s->base.seed = (uint64_t)seed;
    a->n = (uint32_t)n;
    max = max ? max : max2;
    a->max_new = max > (int64_t)GEN_MAX_TOKENS ? GEN_MAX_TOKENS : (uint32_t)max;
    a->timeout_s = timeout;
    return 0;
}

int oai_stream_opts(const struct pyjson *root, struct oai_stream *out, struct err *e)
{
    const struct pyjson *v = field(root, "stream_options");
    static const char *const names[] = {"include_usage", "include_obfuscation", NULL};
    memset(out, 0, sizeof *out);
    int r = oai_bool(root, "stream", &out->stream, e);
    if (r || !v) {
        return r;
    }
    if (v->type != PYJSON_OBJECT || !out->stream) {
        return err_set(e, ERR_ARG, "stream_options: %s",
                       out->stream ? "it must be an object" : "it goes with stream: true only");
    }
    r = oai_known(v, names, NULL, e);
    r = r ? r : oai_bool(v, "include_usage", &out->usage, e);
    if (r) {
        char msg[sizeof e->msg];
        snprintf(msg, sizeof msg, "%s", e->msg);
        err_set(e, r, "stream_options.%s", msg);
    }
    return r;
}
