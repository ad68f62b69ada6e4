/* SPDX-License-Identifier: MIT
 * demo_table.c: who got what from whom. See demo.h. */
#include "node/cli/demo.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS (DEMO_NODES + 3)

void demo_row_free(struct demo_row *r)
{
    answer_free(&r->answer);
    json_decref(r->stats);
    memset(r, 0, sizeof *r);
}

/* RAM, own disk, each node, origin. Experts are all of one size, so what was read from RAM is a
 * product. The origin's bytes are by its own count, which has the metadata in it, as those of peers
 * have. */
static void parts(const struct demo_row *r, struct demo_part out[COLUMNS])
{
    out[0] = (struct demo_part){r->store.ram_hits * r->expert_size, r->store.ram_hits};
    out[1] = (struct demo_part){r->store.disk_bytes, r->store.disk_hits};
    memcpy(out + 2, r->from, sizeof r->from);
    out[COLUMNS - 1] = (struct demo_part){r->served, r->store.experts_fetched};
}

void demo_table(const struct demo_row *rows, size_t n)
{
    static const char *const head[COLUMNS] = {"RAM",    "own disk", "node 1",
                                              "node 2", "node 3",   "origin"};
    fprintf(stderr, "\n  %-9s", "asked by");
    for (size_t k = 0; k < COLUMNS; k++) {
        fprintf(stderr, "%9s", head[k]);
    }
    fprintf(stderr, "%7s  receipt\n", "time");
    for (size_t i = 0; i < n; i++) {
        const struct demo_row *r = &rows[i];
        struct demo_part p[COLUMNS];
        char t[CLI_NUM];
        parts(r, p);
        fprintf(stderr, r->again ? "    again  " : "  node %u   ", r->node + 1);
        for (size_t k = 0; k < COLUMNS; k++) {
            fprintf(stderr, "%9s", p[k].bytes ? cli_bytes(p[k].bytes, t) : "-");
        }
        fprintf(stderr, "%7s  %.8s\n  %-9s", cli_duration(r->seconds, t), r->answer.receipt,
                "  experts");
        for (size_t k = 0; k < COLUMNS; k++) {
            snprintf(t, sizeof t, "%llu", (unsigned long long)p[k].experts);
            fprintf(stderr, "%9s", p[k].experts ? t : "-");
        }
        fprintf(stderr, "\n");
    }
    fprintf(stderr, "\n");
}

static json_t *part_json(const struct demo_part *p)
{
    return json_pack("{s:I, s:I}", "bytes", (json_int_t)p->bytes, "experts",
                     (json_int_t)p->experts);
}

json_t *demo_table_json(const struct demo_row *rows, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct demo_row *r = &rows[i];
        struct demo_part p[COLUMNS];
        json_t *peers = json_array();
        parts(r, p);
        for (unsigned k = 0; k < DEMO_NODES; k++) {
            json_array_append_new(peers, json_pack("{s:i, s:I, s:I, s:I}", "node", (int)k + 1,
                                                   "bytes", (json_int_t)p[2 + k].bytes, "experts",
                                                   (json_int_t)p[2 + k].experts, "given_bytes",
                                                   (json_int_t)r->given[k]));
        }
        json_array_append_new(list, json_pack("{s:i, s:b, s:s, s:f, s:o, s:o, s:o, s:o}", "node",
                                              (int)r->node + 1, "again", (int)r->again, "receipt",
                                              r->answer.receipt, "seconds", r->seconds, "ram",
                                              part_json(&p[0]), "disk", part_json(&p[1]), "peers",
                                              peers, "origin", part_json(&p[COLUMNS - 1])));
    }
    return list;
}
