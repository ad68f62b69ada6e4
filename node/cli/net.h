/* SPDX-License-Identifier: MIT
 * net.h: what commands that use an origin have in common: its token, certificates, rates, and which
 * commit of a hub's model it is; from options and from the environment variables that the hub's own
 * tools obey. */
#ifndef SHOAL_NODE_CLI_NET_H
#define SHOAL_NODE_CLI_NET_H

#include "node/cli/opt.h"

struct net_opts {
    const char *token, *ca_file;
    struct opt_count rate_conn;
    bool new_revision;
};

/* Lines of an option table whose struct T has a net_opts F. */
#define CLI_MIRROR_RATE_HELP \
    "most bytes a second from each mirror; default: no limit, for --rate-limit is the origin's"
#define CLI_MIRROR_HELP \
    "another address with the model's files, asked before the origin; may be given several times"
#define NET_OPTS_COUNT 4
#define NET_OPTS(T, F)                                                                            \
    {"rate-limit-connection",                                                                     \
     "SIZE",                                                                                      \
     "most bytes a second by each connection to the origin",                                      \
     OPT_BYTES,                                                                                   \
     offsetof(T, F.rate_conn),                                                                    \
     1,                                                                                           \
     1e18,                                                                                        \
     NULL},                                                                                       \
        {"token",                                                                                 \
         "WHICH",                                                                                 \
         "the token for the origin: none, hub (the hub's own, though --model is no hub's), or a " \
         "file "                                                                                  \
         "that holds one; default: SHOAL_TOKEN, or for the hub alone HF_TOKEN or its token file", \
         OPT_TEXT,                                                                                \
         offsetof(T, F.token),                                                                    \
         0,                                                                                       \
         0,                                                                                       \
         NULL},                                                                                   \
        {"ca-file",                                                                               \
         "FILE",                                                                                  \
         "certificates of authorities for https, in place of the system's; also a folder of "     \
         "them; "                                                                                 \
         "default: REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR",              \
         OPT_TEXT,                                                                                \
         offsetof(T, F.ca_file),                                                                  \
         0,                                                                                       \
         0,                                                                                       \
         NULL},                                                                                   \
    {                                                                                             \
        "new-revision", NULL,                                                                     \
            "ask the hub anew which commit the branch of the model is, and stay with that one",   \
            OPT_FLAG, offsetof(T, F.new_revision), 0, 0, NULL                                     \
    }

struct cli_net {
    struct buf token; /* n == 0: none */
    struct buf ca;    /* the same */
    bool offline;
    char said[400]; /* what the user should know: a pinned commit; "" */
};

/* The hub's site: HF_ENDPOINT, or huggingface.co. */
const char *cli_hub_site(void);
/* Does HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbid the network? Its name, or NULL. */
const char *cli_hub_offline(void);
/* Fill *n (to be closed whatever is returned) for the model at `source`, a folder or URL: a hub's
 * address of a branch becomes that of the commit, which is kept in `cache`. */
int cli_net_open(struct cli_net *n, const struct net_opts *o, bool offline, const char *cache,
                 struct buf *source, struct err *e);
void cli_net_close(struct cli_net *n);
/* For store_opts; NULL: none. */
const char *cli_net_token(const struct cli_net *n);
const char *cli_net_ca(const struct cli_net *n);

#endif
