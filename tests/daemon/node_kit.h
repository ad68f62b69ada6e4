/* SPDX-License-Identifier: MIT
 * node_kit.h: whole nodes in one process: homes of one shoal, the demo model behind a server that
 * counts, peers named by port. */
#ifndef SHOAL_TESTS_DAEMON_NODE_KIT_H
#define SHOAL_TESTS_DAEMON_NODE_KIT_H

#include "peer/home_util.h"
#include "store/util.h"

#include "node/daemon/node.h"
#include "node/demo/server.h"

/* Wait until it is so; fails the test after a minute (times what sanitizers cost). */
#define until(x)                                                     \
    do {                                                             \
        int tries_ = 0;                                              \
        while (!(x)) {                                               \
            if (++tries_ > 30000) {                                  \
                fail_msg("%s:%d never: %s", __FILE__, __LINE__, #x); \
            }                                                        \
            usleep(2000);                                            \
        }                                                            \
    } while (0)

struct kit_node {
    char *home;
    bool second; /* the home is another kit_node's */
    struct util_log log;
    struct node_opts o;
    char peer[64];
    const char *peers[1];
    struct node *n;
    struct store *st;
    const struct model *m;
};

/* A home of its own: in no shoal, of a new one, or taken in by a keeper's. */
void kit_lonely(struct kit_node *k);
void kit_keeper(struct kit_node *k);
void kit_member(struct kit_node *k, const struct kit_node *keeper);
/* The same home once more, for a second process's part. */
void kit_second(struct kit_node *k, const struct kit_node *first);
/* On 127.0.0.1, with `to` as a static peer (NULL: none). model NULL: none. */
void kit_open(struct kit_node *k, const char *model, const struct kit_node *to);
void kit_close(struct kit_node *k);
void kit_end(struct kit_node *k); /* closes; a home of its own goes */

/* Ask for an object and compare it with the model's bytes. */
int kit_try(struct kit_node *k, uint32_t id);
void kit_get(struct kit_node *k, uint32_t id);
void kit_get_all(struct kit_node *k, uint32_t from, uint32_t step);
uint64_t kit_bytes(struct kit_node *k, uint32_t from, uint32_t step); /* of those objects */
uint32_t kit_count(const struct kit_node *k);
struct store_stats kit_stats(struct kit_node *k);
/* A number of the node's status by path, "peers.0.gave.bytes"; -1 when absent. */
double kit_status(struct kit_node *k, const char *path);
char *kit_status_text(struct kit_node *k, const char *path); /* "" when absent; freed */
void kit_connected(struct kit_node *k, int peers);           /* waits for it */

/* The demo model at an origin. */
struct demo_server *kit_origin(char url[128]);
uint64_t kit_origin_bytes(struct demo_server *s);

#endif
