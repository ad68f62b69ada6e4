/* SPDX-License-Identifier: MIT
 * ask.h: what the tests of the API by the real program share: requests, answers and streams read as
 * a client reads them. Includes cmocka, by homes.h. */
#ifndef SHOAL_TESTS_CLI_ASK_H
#define SHOAL_TESTS_CLI_ASK_H

#include "homes.h"

#include <stdatomic.h>

struct ask {
    const char *base, *path;
    const char *body;   /* NULL: GET */
    const char *header; /* one more, or NULL */
    /* the answer; all are set when ask_run returns */
    long status;           /* 0: the connection ended before its answer was whole */
    struct buf out;        /* NUL-terminated */
    _Atomic(size_t) bytes; /* that have come so far, for another thread */
    char basis[32];        /* the header X-Shoal-Basis, "" when there is none */
};
/* out is the caller's: buf_free. */
void ask_run(struct ask *a);
/* The same on a thread, for pthread_create. */
void *ask_main(void *ask);

/* One request; the JSON of its answer, the caller's, whatever the status is. */
json_t *ask_json(const char *base, const char *path, const char *body, long want_status);
/* The body of a chat completion: one message, greedy unless `more` says otherwise (", \"seed\":
 * 1"). The caller frees it. */
char *ask_chat(const char *text, bool stream, const char *more);
/* The content of an answer, or of a stream put together; the fingerprint into fp[0..64). The
 * caller frees it. */
char *ask_content(const char *answer, bool stream, char *fp);
/* Wait until /health says 200; every answer before must be a 503 that says "loading". */
void ask_await(const char *base);
/* A number of /metrics by its name with labels; -1: it is not there. */
double ask_metric(const char *base, const char *name);
/* Wait until it has that value. */
void ask_await_metric(const char *base, const char *name, double value);

#endif
