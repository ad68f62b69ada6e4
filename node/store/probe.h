/* SPDX-License-Identifier: MIT
 * probe.h: what a model's address is like: a few requests beside any store, for `shoal doctor`. */
#ifndef SHOAL_STORE_PROBE_H
#define SHOAL_STORE_PROBE_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct probe_opts {
    const char *address;         /* http(s) URL of the model's files */
    const char *token, *ca_file; /* may be NULL */
};

enum probe_token { PROBE_NO_TOKEN, PROBE_TOKEN_NEEDED, PROBE_TOKEN_NOT_NEEDED };

struct probe {
    int status;       /* of config.json */
    double latency_s; /* to the first byte of its answer */
    bool skew_known;  /* it says what time it is */
    int64_t skew_s;   /* how much later its clock is than this machine's */
    bool refused;     /* 401 or 403, with the token if there is one */
    enum probe_token token;
    char shard[208]; /* the file that was asked for the rest; "": none could be found */
    char far[256];   /* host and port that the shard's bytes come from; "": the same */
    int64_t life_s;  /* how long the address there says it lasts; 0: it does not say */
    bool ranges;     /* it gives the part that was asked for and nothing else */
    double bytes_s;  /* of that part: 4 MiB at most */
    struct err why;  /* of what is missing here; code 0: nothing is */
};

/* Blocks: a minute at most. ERR_NET when it cannot be reached at all, with the reason in *e. */
int probe_origin(const struct probe_opts *o, struct probe *out, struct err *e);

#endif
