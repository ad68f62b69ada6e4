/* SPDX-License-Identifier: MIT
 * home.h: what the commands about a home share: --home, identity and membership of that home, the
 * process that runs a node on it, and how nodes and homes are written for people. */
#ifndef SHOAL_NODE_CLI_HOME_H
#define SHOAL_NODE_CLI_HOME_H

#include "node/cli/cli.h"
#include "peer/member.h"

struct home_opts {
    const char *home;
};
extern const struct opt home_opts_table[]; /* offsets from a struct home_opts */
#define HOME_OPTS_COUNT 1

struct cli_home {
    struct cli *c;
    const char *path; /* as given, or the platform's place */
    bool fresh;       /* nobody has used this home yet: no identity, no member */
    struct identity me;
    struct member m;
    struct buf buf, flag; /* private */
};

enum cli_home_need {
    HOME_PATH, /* the path alone, which need not exist */
    HOME_LOOK, /* identity and membership if there are any */
    HOME_MAKE, /* the identity, made if there was none */
    HOME_SHOAL /* a home that belongs to a shoal */
};
/* *h is to be closed in any case. */
int cli_home_open(struct cli_home *h, struct cli *c, const struct home_opts *o,
                  enum cli_home_need need, struct err *e);
void cli_home_close(struct cli_home *h);

/* What a command printed for people needs to mean this home: " --home 'DIR'", or "" where DIR is
 * what it means without. The second always names it. Each is valid until the next call. */
const char *cli_home_flag(struct cli_home *h);
const char *cli_home_named(struct cli_home *h);

/* The cache folder that options mean: `cache`, else that of `home` (NULL: the standard one); *named
 * (may be NULL) as it is named, *out where it lies now (node/store/place.h). Both are appended to.
 */
int cli_cache_find(const char *cache, const char *home, struct buf *named, struct buf *out,
                   struct err *e);

/* {"home", "node", "short", "group", "keeper", "member", "members", "roster_version"}: null where
 * there is none. "member" is false for a node that was removed. */
json_t *cli_home_json(const struct cli_home *h);
/* Adds "node" and "short" to an object. */
void cli_id_json(json_t *o, const struct key_id *id);

/* Which member (or, with banned peers in mind, any node of the roster) a word means: an id, a short
 * form, a prefix (id_find), or, when a node runs on the home, a peer's name. */
int cli_home_find(struct cli_home *h, const char *word, struct key_id *id, struct err *e);

/* Ask the process that runs a node on this home (node.h). ERR_OFFLINE: there is none. */
int cli_home_ask(struct cli_home *h, json_t *request, unsigned timeout_ms, json_t **answer,
                 struct err *e);

/* Name a peer by its address to the running node, or keep it for the next one. */
int cli_home_add_peer(struct cli_home *h, const char *host_port, struct err *e);
/* Membership or invites changed on disk: a running node acts on it now rather than in a moment. */
void cli_home_look(struct cli_home *h);

#endif
