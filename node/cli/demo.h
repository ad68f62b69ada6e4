/* SPDX-License-Identifier: MIT
 * demo.h: the parts of `shoal demo`: three nodes of one shoal in this process, and who got what
 * from whom as a table and as JSON. */
#ifndef SHOAL_NODE_CLI_DEMO_H
#define SHOAL_NODE_CLI_DEMO_H

#include "node/cli/answer.h"
#include "peer/identity.h"

#define DEMO_NODES 3

/* What one source gave: bytes of everything, and experts among it (RAM: how often one was used). */
struct demo_part {
    uint64_t bytes, experts;
};

/* One asking of the question. */
struct demo_row {
    unsigned node; /* who asked: 0 is "node 1" */
    bool again;    /* it had asked before */
    struct answer answer;
    struct store_stats store;
    json_t *stats;
    uint64_t experts, expert_size; /* of the model */
    uint64_t served;               /* bytes that the origin says it sent */
    double seconds;                /* from opening to the answer's end */
    struct demo_part from[DEMO_NODES];
    uint64_t given[DEMO_NODES]; /* bytes, as the givers have counted them */
};
void demo_row_free(struct demo_row *r);

/* ---- three nodes (demo_nodes.c) ---- */

struct demo_node {
    char home[96], cache[112], address[32];
    struct key_id id;
    struct compute *compute; /* NULL: it answers no question */
    struct node *node;
};

/* What is not private is set by the caller, before anything is called, and outlives it. */
struct demo_shoal {
    struct cli *c;
    const struct compute_opts *compute;
    const char *model; /* the origin's URL */
    uint64_t disk_floor;
    bool log;                          /* show the nodes' log */
    struct demo_node node[DEMO_NODES]; /* private but for cache and be */
};

/* Name the homes below the folder `dir`; nothing is made yet. */
void demo_shoal_init(struct demo_shoal *s, const char *dir);
/* Make the shoal with node 0 and run it over its cache; the others join by its invite. Binds to
 * 127.0.0.1 alone and announces nothing, as the others do. */
int demo_shoal_begin(struct demo_shoal *s, struct err *e);
/* Run node i, with those before it as its peers, and wait until it knows what they hold. */
int demo_shoal_run(struct demo_shoal *s, unsigned i, struct err *e);
/* Fill r->from and r->given: what node r->node has got from each of the others since it runs. */
int demo_shoal_account(struct demo_shoal *s, struct demo_row *r, struct err *e);
/* Ends all of them. */
void demo_shoal_end(struct demo_shoal *s);

/* ---- the result (demo_table.c) ---- */

/* To standard error, for people. */
void demo_table(const struct demo_row *rows, size_t n);
/* {"node", "again", "receipt", "seconds", "ram": {"bytes", "experts"}, "disk", "peers": [{"node",
 * "bytes", "experts", "given_bytes"}], "origin"} for each row. */
json_t *demo_table_json(const struct demo_row *rows, size_t n);

#endif
