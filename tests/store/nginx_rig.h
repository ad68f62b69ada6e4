/* SPDX-License-Identifier: MIT
 * nginx_rig.h: a real nginx for tests of the store: a child with a configuration of its own. */
#ifndef TEST_STORE_NGINX_RIG_H
#define TEST_STORE_NGINX_RIG_H

#include "tests/store/util.h"

#include <sys/types.h>

struct nginx {
    char *dir; /* malloc'ed; the caller removes it */
    pid_t pid;
    int port;
};

/* NULL: there is none on this machine. SHOAL_NGINX names one that is not installed. */
const char *nginx_find(void);
/* `locations`: what stands in its server block. 1: it answers on 127.0.0.1:port. Its log has
 * "URI STATUS BYTES AUTHORIZATION" for each request. */
int nginx_start(struct nginx *g, const char *locations);
void nginx_stop(struct nginx *g); /* finishes its requests and writes its log */
void nginx_kill(struct nginx *g); /* all its processes, in the middle of what they do */
/* Sum of the body bytes of requests answered with 206 whose URI begins so; how many requests;
 * how many of these had an Authorization header. The last two may be NULL. */
uint64_t nginx_logged(struct nginx *g, const char *prefix, uint64_t *requests, uint64_t *with_auth);

#endif
