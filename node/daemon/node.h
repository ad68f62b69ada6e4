/* SPDX-License-Identifier: MIT
 * node.h: one node: a home with its cache, the store over it, the mesh of peers, and the socket by
 * which other processes of this machine use them.
 *
 * Two processes may work on one home. The first is its *owner*: it holds HOME/run/lock, runs the
 * mesh and answers on the control socket. The second is a *guest*: it reads the same cache, asks
 * the owner to fetch what is missing, and when the owner goes away it goes to the origin by itself.
 *
 * Threads: node_open and node_close on one thread; the others from any between them. */
#ifndef SHOAL_NODE_DAEMON_NODE_H
#define SHOAL_NODE_DAEMON_NODE_H

#include "node/daemon/power.h"
#include "node/store/store.h"
#include "peer/mesh.h"

#include <jansson.h>

struct node; /* opaque */

/* 0 and NULL mean the default or "none". Copied, but for what store_opts says of its own. */
/* Does this machine's network cost? AUTO: what power.h says. */
enum node_metered { NODE_METERED_AUTO, NODE_METERED_YES, NODE_METERED_NO };

struct node_opts {
    const char *home;
    /* The model and its tiers. cache_dir NULL: HOME/cache. model NULL: none (a node that only
     * keeps membership; then there is no store). log is used for the mesh's lines too. */
    struct store_opts store;
    const char *listen_host; /* numeric; "::" */
    int listen_port;         /* 0: the one used last time if it is free, else the system's choice */
    const char *const *peers; /* static ones, "host:port"; also added to the home's own list */
    size_t n_peers;
    bool no_bonjour;
    uint64_t serve_bytes_s, serve_peer_bytes_s; /* upload limits, all peers together and each */
    uint64_t scrub_s;  /* every own file is read once in so long; 0: 30 days, UINT64_MAX: never */
    unsigned audit_ms; /* between two audits of what peers gave; 60000 */
    /* Homes (homes.h): copies in the background begin so long after the start, 30000; what stands
     * in for the look at batteries and networks (power.h), NULL: the system. */
    unsigned homes_after_ms;
    unsigned homes_settle_ms; /* and so long after somebody came or went, 3000 */
    void (*power)(struct power *out);
    enum node_metered metered; /* if it costs, no copies are made in the background */
    bool must_own;             /* ERR_BUSY with a sentence when another process owns the home */
    bool brief;            /* no lines about interfaces and peers that come and go as they should */
    unsigned meta_wait_ms; /* how long a cold start waits for peers before it asks the origin;
                              3000 */
    /* Run a prompt for `shoal verify`, on a thread of the node's own, one at a time. NULL: refused.
     */
    void (*verify)(void *ctx, const struct mesh_verify_ask *ask, struct mesh_verify_answer *out);
    void *verify_ctx;
    /* Another process asks this owner to stop ("op": "stop"): on a thread of the node; it should
     * only make node_close be called soon. NULL: such a request is refused in words. */
    void (*stop)(void *ctx);
    void *stop_ctx;
    /* Delete the kept states of conversations ("op": "forget"): how many and their bytes. On a
     * thread of the node. NULL: refused, since this process keeps none. */
    int (*forget)(void *ctx, size_t *n, uint64_t *bytes, struct err *e);
    void *forget_ctx;
    /* What computes in this process, an object for the report. NULL: nothing does. */
    json_t *(*compute)(void *ctx);
    void *compute_ctx;
};

int node_open(const struct node_opts *o, struct node **out, struct err *e);
/* Says goodbye to peers, ends what is under way, closes the store. NULL is fine. */
void node_close(struct node *n);

struct store *node_store(struct node *n); /* NULL without a model */
bool node_owner(const struct node *n);
/* NULL for a guest. */
struct mesh *node_mesh(struct node *n);
int node_port(const struct node *n); /* peers connect here; 0 for a guest */
/* The node's own decode has begun (+1) or ended (-1): serving gives way to it. */
void node_computing(struct node *n, int by);

/* ---- reports, also for commands in other processes: asked of the owner by its socket ---- */

/* Everything `shoal status` shows: mesh_status, tiers, coverage, limits, origin. The caller owns
 * *out. */
int node_status(struct node *n, json_t **out, struct err *e);
/* One request to the owner of a home: {"op": "status" | "why" | "unban" | "limits" | "invite" |
 * "add_peer" | "verify" | "ping" | "stop" | "forget", ...}; the answer is an object, "error":
 * {"code", "message"} in it when it failed (and then this fails with it). ERR_OFFLINE: no process
 * owns the home. timeout_ms 0: 10 s. The request stays the caller's, and so becomes *answer. */
int node_ask(const char *home, json_t *request, unsigned timeout_ms, json_t **answer,
             struct err *e);

/* ---- a home whose node does not run ---- */

/* The port that its next owner will listen on unless told otherwise: the last one used, or one that
 * is free now, which is then kept for it. */
int node_next_port(const char *home, int *port, struct err *e);
/* Add a static peer to the home's list for the next owner. */
int node_keep_peer(const char *home, const char *host_port, struct err *e);

#endif
