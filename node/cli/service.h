/* SPDX-License-Identifier: MIT
 * service.h: a session's model behind the API: it listens at once, loads the spine on a thread of
 * its own, then answers through one engine, which also runs what members want verified, so that no
 * weights are loaded twice.
 *
 * Life: session open at SESSION_PLAN, with service_progress as its hook of progress; service_open;
 * ...; service_stop; session and node are closed; service_free. */
#ifndef SHOAL_NODE_CLI_SERVICE_H
#define SHOAL_NODE_CLI_SERVICE_H

#include "node/cli/session.h"
#include "peer/mesh.h"

struct service; /* opaque */

/* ---- options ---- */

struct service_opts {
    const char *api, *key_file, *cors, *model_name, *think, *speculate;
    struct opt_count parallel, queue, timeout;
    bool no_save_states;
};
extern const struct opt service_opts_table[]; /* offsets from a struct service_opts */
#define SERVICE_OPTS_COUNT 10
#define SERVICE_NAME 128 /* bytes of a model's name with its NUL */
/* What can be told without opening anything; ERR_ARG. Without `api` the others must not be given.
 */
int service_opts_check(const struct service_opts *o, struct err *e);
/* What is found out in a moment, and would else be found out only when the model is open: the key
 * file is there and holds a key, the port is free. 0 without `api`. */
int service_may_open(const struct service_opts *o, struct err *e);
/* The file's first line, which must be all there is; the caller frees *key. *others: other users of
 * this machine can read it. */
int service_read_key(const char *path, char **key, bool *others, struct err *e);
/* Add to why the API cannot listen which option helps. Returns e->code. */
int service_api_hint(struct err *e);

/* ---- life ---- */

struct service_setup {
    const struct service_opts *o; /* `api` is set */
    struct cli *c;                /* whose notes are written */
    const char *states; /* folder in which BASE/states is made (states.h); NULL: RAM only */
    const char *key;    /* in place of key_file's; NULL */
    bool demo;          /* the model is the demo's, since none was named */
    bool brief;         /* no notes but of trouble */
    bool retry;         /* a model that cannot be loaded is tried again */
};

/* Make one before the session is opened, since that has to know of it. NULL: no memory. */
struct service *service_new(void);
/* model_opts.progress; ctx: the service. */
int service_progress(void *service, const struct infer_progress *p);
/* The session is borrowed until service_stop; the setup and what it points to are copied as far as
 * needed. */
int service_open(struct service *v, const struct service_setup *u, struct cli_session *s,
                 struct err *e);
/* Ends requests, the loading and the API; the session may be closed afterwards, and nothing here
 * uses it any more. The others below still work and say that the node is stopping. */
void service_stop(struct service *v);
void service_free(struct service *v); /* NULL is fine */

const char *service_url(const struct service *v);
const char *service_model(const struct service *v); /* its name in requests */
/* True: the model could not be loaded, and is not tried again; *e says why. */
bool service_failed(struct service *v, struct err *e);
/* 0: ready. ERR_TIMEOUT: it still loads after so long. Others: failed, stopping. */
int service_wait(struct service *v, unsigned ms, struct err *e);

/* ---- what a node asks of it; any thread ---- */

int service_verify(struct service *v, const struct mesh_verify_ask *ask,
                   struct mesh_verify_answer *out, struct err *e);
/* Delete the kept states of this model and of all others below its folder. */
int service_forget(struct service *v, size_t *n, uint64_t *bytes, struct err *e);

#endif
