/* SPDX-License-Identifier: MIT
 * opt.h: command-line options from tables: parsing, checks, messages and --help derive from them.
 */
#ifndef SHOAL_NODE_CLI_OPT_H
#define SHOAL_NODE_CLI_OPT_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an option takes, and what type its value has in the command's struct. A value that was not
 * given stays zero: absence is `set == false` or NULL, never a magic number. */
enum opt_type {
    OPT_FLAG,  /* bool */
    OPT_TEXT,  /* const char *, from argv */
    OPT_TEXTS, /* struct opt_texts: may be given up to OPT_TEXTS_MAX times */
    OPT_COUNT, /* struct opt_count: decimal, in [min, max] */
    OPT_BYTES, /* struct opt_count: a number with K M G T (powers of 1000) or Ki Mi Gi Ti (of 1024)
                  and an optional B, in [min, max]; a small number without any unit is refused */
    OPT_TIME,  /* struct opt_count, in seconds: a number with s, m, h or d, in [min, max] */
    OPT_REAL,  /* struct opt_real: finite, in [min, max] */
    OPT_CHOICE /* struct opt_choice: index into choices */
};

#define OPT_TEXTS_MAX 16
struct opt_texts {
    const char *v[OPT_TEXTS_MAX]; /* from argv */
    size_t n;
};
struct opt_count {
    uint64_t v;
    bool set;
};
struct opt_real {
    double v;
    bool set;
};
struct opt_choice {
    unsigned v;
    bool set;
};

struct opt {
    const char *name; /* without the dashes */
    const char *arg;  /* what the value is called in the help; NULL for flags */
    const char *help; /* one sentence or more, wrapped by the printer */
    enum opt_type type;
    size_t at; /* offset of its value in the group's struct */
    double min, max;
    const char *const *choices; /* NULL-terminated */
};

/* Options that belong together, with the offset of their struct in the command's. */
struct opt_group {
    const char *title; /* heading in the help */
    const struct opt *opts;
    size_t n;
    size_t at;
};

/* Read argv[0..argc) into `values` (zeroed by the caller). What is no option is moved to the front
 * of argv, in order, and *n_args tells how many there are; "--" ends the options. A later value of
 * the same option replaces the earlier one, but for OPT_TEXTS. ERR_ARG: the sentence quotes the
 * offender and suggests the nearest option. */
int opt_parse(const struct opt_group *groups, size_t n_groups, void *values, int argc, char **argv,
              int *n_args, struct err *e);

/* Append the groups as they stand in a help text, lines of at most 80 columns. */
int opt_help(const struct opt_group *groups, size_t n_groups, struct buf *out);

/* A size as OPT_BYTES reads it. False when it is none. */
bool opt_bytes(const char *s, uint64_t *out);
/* ERR_ARG for a size v, read of s, that has no unit and is too small to be meant as bytes: nobody
 * has a budget of 12 bytes. 0 may well be meant. `name` is what it was given for. */
int opt_bare_size(const char *name, const char *s, uint64_t v, struct err *e);
/* A time as OPT_TIME reads it, in seconds. */
bool opt_seconds(const char *s, uint64_t *out);
/* "HOST:PORT" with an IPv6 address in brackets: the host without them into host[0..cap). Port 0
 * only when `any_port`. False when it is none; whether the host is a good one is the caller's
 * affair. */
bool opt_host_port(const char *s, char *host, size_t cap, uint16_t *port, bool any_port);
/* Which of the n names (each at names + i * stride is a const char *) is nearest to `word`, or NULL
 * when none is near. */
const char *opt_nearest(const char *word, const char *const *names, size_t n, size_t stride);

#endif
