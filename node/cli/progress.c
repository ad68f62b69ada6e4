/* SPDX-License-Identifier: MIT
 * progress.c: what a session says while it works: phase, share done, rate, time left, tiers. */
#include "node/cli/session.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <string.h>

void cli_session_phase(struct cli_session *s, enum phase p, uint64_t done, uint64_t total)
{
    pthread_mutex_lock(&s->lock);
    if (p != s->phase) {
        s->phase = p;
        s->phase_start = clock_s();
        memset(&s->layer, 0, sizeof s->layer);
    }
    s->done = done;
    s->total = total;
    pthread_mutex_unlock(&s->lock);
    if (p == PHASE_QUIET) {
        live_clear(s->live); /* the live thread takes the two locks in the other order */
    }
}

void cli_session_fetching(struct cli_session *s, uint64_t done, uint64_t total, double rate)
{
    pthread_mutex_lock(&s->lock);
    s->phase = PHASE_FETCH;
    s->done = done;
    s->total = total;
    s->rate = rate;
    pthread_mutex_unlock(&s->lock);
}

int cli_session_progress(void *ctx, const struct infer_progress *p)
{
    struct cli_session *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->layer = *p;
    pthread_mutex_unlock(&s->lock);
    return cli_interrupted();
}

/* " | RAM 120, disk 3, origin 45 (12.3 MB at 3.3 MB/s)": experts by the tier that gave them, and
 * the origin's bytes, or the peers' experts when there are such. Short, so that all of it fits on a
 * line of 80 columns. */
static void tiers(const struct store_stats *v, char *out, size_t n)
{
    char a[CLI_NUM], b[CLI_NUM];
    if (v->peer_fetches) {
        snprintf(out, n, " | RAM %llu, disk %llu, peers %llu, origin %llu",
                 (unsigned long long)v->ram_hits, (unsigned long long)v->disk_hits,
                 (unsigned long long)v->peer_fetches, (unsigned long long)v->origin_fetches);
        return;
    }
    int k = snprintf(out, n, " | RAM %llu, disk %llu, origin %llu (%s",
                     (unsigned long long)v->ram_hits, (unsigned long long)v->disk_hits,
                     (unsigned long long)v->origin_fetches, cli_bytes(v->origin_bytes, a));
    if (k > 0 && (size_t)k < n) {
        bool busy = v->origin_rate >= 1;
        snprintf(out + k, n - (size_t)k, "%s%s%s", busy ? " at " : "",
                 busy ? cli_bytes((uint64_t)v->origin_rate, b) : "", busy ? "/s)" : ")");
    }
}

/* Share of the present forward call that is done, from its layers and experts. */
static double call_share(const struct infer_progress *p)
{
    if (!p->n_layers) {
        return 0;
    }
    double in = p->experts_total ? (double)p->experts_done / p->experts_total : 0;
    double share = (p->layer + in) / p->n_layers;
    return share < 1 ? share : 1;
}

static void compose_spine(double t, uint64_t read, uint64_t total, const char *tail, char *line,
                          size_t n)
{
    char a[CLI_NUM], b[CLI_NUM], d[CLI_NUM], left[CLI_NUM];
    double rate = t > 0 ? (double)read / t : 0;
    double eta = rate > 0 && total > read ? (double)(total - read) / rate : 0;
    snprintf(line, n, "spine %s of %s, %s/s, %s left%s", cli_bytes(read, a), cli_bytes(total, b),
             cli_bytes((uint64_t)rate, d), rate > 0 ? cli_duration(eta, left) : "?", tail);
}

static void compose_fetch(const struct cli_session *s, const struct store_stats *v, char *line,
                          size_t n)
{
    char a[CLI_NUM], b[CLI_NUM], d[CLI_NUM], left[CLI_NUM], peers[CLI_NUM];
    uint64_t rest = s->total - s->done;
    /* cut, not rounded: 100.0 is all */
    double percent = s->total ? (double)(s->done * 1000 / s->total) / 10 : 100;
    snprintf(line, n, "%.1f%%, %s of %s, %s/s, %s left%s%s", percent, cli_bytes(s->done, a),
             cli_bytes(s->total, b), s->rate > 0 ? cli_bytes((uint64_t)s->rate, d) : "?",
             s->rate > 0 ? cli_duration((double)rest / s->rate, left) : "?",
             v->peer_bytes ? "; from peers " : "",
             v->peer_bytes ? cli_bytes(v->peer_bytes, peers) : "");
}

static void compose_prefill(const struct cli_session *s, double t, const char *tail, char *line,
                            size_t n)
{
    char left[CLI_NUM];
    uint64_t rest = s->total - s->done;
    double rows = rest < s->chunk ? (double)rest : (double)s->chunk;
    double share =
        s->total ? ((double)s->done + rows * call_share(&s->layer)) / (double)s->total : 0;
    /* The first layers of a cold start say little; no guess before two hundredths are done. */
    bool guess = share > 0.02 && t > 1;
    snprintf(line, n, "prompt %.0f%% of %llu tokens, layer %u/%u, %s left%s", 100 * share,
             (unsigned long long)s->total, s->layer.layer + 1, model_config(s->m)->n_layers,
             guess ? cli_duration(t * (1 - share) / share, left) : "?", tail);
}

static void compose_decode(const struct cli_session *s, double t, const char *tail, char *line,
                           size_t n)
{
    double rate = t > 0 ? (double)s->done / t : 0;
    int k =
        snprintf(line, n, rate < 10 ? "token %llu of %llu, %.2f/s" : "token %llu of %llu, %.0f/s",
                 (unsigned long long)s->done, (unsigned long long)s->total, rate);
    if (k > 0 && (size_t)k < n && rate < 2) { /* slow enough to watch the layers */
        k += snprintf(line + k, n - (size_t)k, ", layer %u/%u", s->layer.layer + 1,
                      model_config(s->m)->n_layers);
    }
    if (k > 0 && (size_t)k < n) {
        snprintf(line + k, n - (size_t)k, "%s", tail);
    }
}

void cli_session_compose(void *ctx, char *line, size_t n)
{
    struct cli_session *s = ctx;
    char tail[160] = "", took[CLI_NUM];
    struct store_stats v = {0};
    pthread_mutex_lock(&s->lock);
    if (s->store_ready) {
        store_get_stats(s->st, &v);
        tiers(&v, tail, sizeof tail);
    }
    double t = clock_s() - s->phase_start;
    switch (s->phase) {
    case PHASE_OPEN:
        snprintf(line, n, "opening %.150s (%s)", s->source, cli_duration(t, took));
        break;
    case PHASE_FETCH:
        compose_fetch(s, &v, line, n);
        break;
    case PHASE_SPINE:
        compose_spine(t, v.spine_bytes_read, s->total, tail, line, n);
        break;
    case PHASE_PREFILL:
        compose_prefill(s, t, tail, line, n);
        break;
    case PHASE_DECODE:
        compose_decode(s, t, tail, line, n);
        break;
    default:
        line[0] = 0;
    }
    pthread_mutex_unlock(&s->lock);
}
