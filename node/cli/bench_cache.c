/* SPDX-License-Identifier: MIT
 * bench_cache.c: see bench_cache.h. */
#include "node/cli/bench_cache.h"

#include "node/routes/replay.h"

#include <stdio.h>

/* Of all experts of the model. */
static const double shares[] = {0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9};
#define SHARES (sizeof shares / sizeof *shares)

struct table {
    const struct routes *r;
    uint32_t experts, used; /* of the model (layers that have some); different ones in the routes */
    double disk;
};

static uint32_t moe_experts(const struct routes *r)
{
    uint8_t has[ROUTES_LAYERS_MAX] = {0};
    uint32_t layers = 0;
    for (size_t i = 0; i < r->n; i++) {
        uint32_t l = r->use[i].object / r->head.experts;
        layers += !has[l];
        has[l] = 1;
    }
    return layers * r->head.experts;
}

static json_t *row_json(const struct table *t, enum replay_policy p, uint32_t capacity,
                        const struct replay_result *x)
{
    double rows = (double)t->r->rows;
    return json_pack("{s:s, s:I, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "policy", replay_name(p),
                     "capacity", (json_int_t)capacity, "capacity_share",
                     (double)capacity / t->experts, "uses", (json_int_t)x->uses, "misses",
                     (json_int_t)x->misses, "bytes", (json_int_t)x->bytes, "hit_share",
                     1 - (double)x->misses / (double)x->uses, "bytes_token",
                     (double)x->bytes / rows, "stall_s_token", (double)x->bytes / rows / t->disk,
                     "worst_layer", (json_int_t)x->worst);
}

static void row_text(const struct table *t, enum replay_policy p, uint32_t capacity,
                     const struct replay_result *x)
{
    double token = (double)x->bytes / (double)t->r->rows;
    char size[CLI_NUM], bytes[CLI_NUM];
    if (p == REPLAY_LRU) {
        printf("%3.0f %%  %s\n", 100.0 * capacity / t->experts,
               cli_bytes(capacity * t->r->head.expert_bytes, size));
    }
    printf("        %-8s found %5.1f %%   %9s a token   %9.3g s a token\n", replay_name(p),
           100 * (1 - (double)x->misses / (double)x->uses), cli_bytes((uint64_t)token, bytes),
           token / t->disk);
}

static int rows(struct cli *c, const struct table *t, json_t *list, struct err *e)
{
    for (size_t i = 0; i < SHARES; i++) {
        uint32_t capacity = (uint32_t)(shares[i] * t->experts);
        for (int p = 0; p < REPLAY_POLICIES && capacity; p++) {
            struct replay_result x;
            int r = replay_run(t->r, (enum replay_policy)p, capacity, &x, e);
            if (r) {
                return r;
            }
            if (c->json) {
                json_array_append_new(list, row_json(t, (enum replay_policy)p, capacity, &x));
            } else {
                row_text(t, (enum replay_policy)p, capacity, &x);
            }
        }
    }
    return 0;
}

int cli_bench_cache(struct cli *c, const char *path, uint32_t flat, uint64_t disk)
{
    struct routes r;
    struct err e = {0};
    struct table t = {.r = &r, .disk = (double)disk};
    int code = path ? routes_read(path, &r, &e) : routes_flat(flat, &r, &e);
    code = code ? code : replay_objects(&r, &t.used, &e);
    json_t *out = json_object(), *list = json_array();
    if (!code) {
        char size[CLI_NUM], all[CLI_NUM];
        t.experts = moe_experts(&r);
        uint64_t token = r.n * r.head.expert_bytes / r.rows;
        if (!c->json) {
            printf("%llu tokens in %u steps; %u of %u experts used (%s of %s), %s a token without "
                   "a cache.\nA miss is read at %s a second; times without what is computed "
                   "meanwhile.\n\n",
                   (unsigned long long)r.rows, r.steps, t.used, t.experts,
                   cli_bytes(t.used * r.head.expert_bytes, size),
                   cli_bytes(t.experts * r.head.expert_bytes, all),
                   cli_bytes(token, (char[CLI_NUM]){0}), cli_bytes(disk, (char[CLI_NUM]){0}));
        }
        code = rows(c, &t, list, &e);
        json_object_set_new(out, "tokens", json_integer((json_int_t)r.rows));
        json_object_set_new(out, "steps", json_integer(r.steps));
        json_object_set_new(out, "experts", json_integer(t.experts));
        json_object_set_new(out, "experts_used", json_integer(t.used));
        json_object_set_new(out, "expert_bytes", json_integer((json_int_t)r.head.expert_bytes));
        json_object_set_new(out, "disk_bytes_s", json_integer((json_int_t)disk));
        json_object_set(out, "caches", list);
    }
    json_decref(list);
    routes_free(&r);
    if (code || !c->json) {
        json_decref(out);
        return code ? cli_fail(c, &e) : CLI_OK;
    }
    return cli_json(c, out);
}
