/* SPDX-License-Identifier: MIT
 * hub.h: models named as on a hub: org/name[@revision] or the hub's own addresses. A revision that
 * is a branch or tag may move: it is asked for once, at first use, and the commit is kept in the
 * cache folder, so that files of two commits are never mixed.
 *
 * Any thread; nothing is shared. */
#ifndef SHOAL_STORE_HUB_H
#define SHOAL_STORE_HUB_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define HUB_SITE "https://huggingface.co" /* unless the user names another (HF_ENDPOINT) */
#define HUB_PART_MAX 256
#define HUB_COMMIT_MAX 65

struct hub_name {
    char site[HUB_PART_MAX];     /* scheme, host and port, no slash behind */
    char repo[HUB_PART_MAX];     /* org/name */
    char revision[HUB_PART_MAX]; /* a branch, tag or commit; "main" when none was named */
    char folder[HUB_PART_MAX];   /* in the repository, with a slash before it, or "" */
};

/* Is it the address of a model at `site`, or with `short_form` org/name[@revision] (also with hf://
 * before it)? */
bool hub_parse(const char *model, const char *site, bool short_form, struct hub_name *out);
/* A whole commit id: it cannot move. */
bool hub_is_commit(const char *revision);
/* Append the address of the model's files at this revision. */
int hub_address(const struct hub_name *n, const char *revision, struct buf *out);
/* Same scheme, host and port: what may get the hub's token. */
bool hub_same_site(const char *url, const char *site);

struct hub_pin {
    char commit[HUB_COMMIT_MAX];
    int64_t since; /* seconds since 1970 */
    bool fresh;    /* asked for just now */
};
struct hub_pin_opts {
    const char *cache_dir; /* where it is kept: <cache>/revisions/<16 digits> */
    const char *token, *ca_file;
    bool offline; /* do not ask: ERR_OFFLINE when nothing is on record */
    bool anew;    /* ask though something is on record */
};
/* The commit that this revision means in this cache. What is on record counts, however old. */
int hub_pin(const struct hub_pin_opts *o, const struct hub_name *n, struct hub_pin *out,
            struct err *e);
/* Is there metadata in the cache that came from exactly this address? */
bool hub_cached(const char *cache_dir, const char *address);
/* The record as text, and back: ERR_FORMAT when it is not one of this name. */
int hub_pin_text(const struct hub_name *n, const struct hub_pin *p, struct buf *out);
int hub_pin_parse(const struct hub_name *n, const void *text, size_t size, struct hub_pin *out);

#endif
