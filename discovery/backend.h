/* SPDX-License-Identifier: MIT
 * backend.h: what discovery needs of a responder: announce and browse on one interface, resolve,
 * withdraw. Two implementations: bonjour.c (dns_sd.h, behind bridge.c) and bus.c (in memory).
 *
 * Events come from the loop, never from inside a call of the ops. A handler may call no op but
 * `refresh`: what an event leads to happens later, from the loop. */
#ifndef SHOAL_DISCOVERY_BACKEND_H
#define SHOAL_DISCOVERY_BACKEND_H

#include "discovery/disco.h"

/* Codes of `failed` and start beside those of dns_sd.h: nobody answers at all. */
#define BE_NO_RESPONDER 1

struct be_announce {
    const char *name; /* wished instance name */
    uint16_t port;    /* host byte order */
    const uint8_t *txt;
    size_t n_txt;
};

struct be_found {
    const char *instance;
    uint16_t port;
    const uint8_t *txt; /* unchecked bytes of the announcement */
    size_t n_txt;
    const struct sockaddr_storage *addrs; /* the whole present set, with the port */
    size_t n_addrs;
};

struct be_events {
    void (*registered)(void *ctx, uint32_t ifindex, const char *name); /* again after a rename */
    /* The session of that interface is broken; the core stops it and starts it again later. */
    void (*failed)(void *ctx, uint32_t ifindex, int code, const char *text);
    void (*found)(void *ctx, uint32_t ifindex, const struct be_found *f);
    void (*unresolved)(void *ctx, uint32_t ifindex, const char *instance, const char *text);
    void (*lost)(void *ctx, uint32_t ifindex, const char *instance); /* a goodbye */
    /* Of a backend whose `later` is set: a start that was asked for has been done. */
    void (*started)(void *ctx, uint32_t ifindex);
};

struct backend {
    /* Interfaces that are up, in order of index. */
    size_t (*interfaces)(struct backend *b, struct disco_if *out, size_t max);
    /* Announces and browses on an interface that is not started. On failure nothing is left
     * started and *code says why. */
    int (*start)(struct backend *b, uint32_t ifindex, const struct be_announce *a, int *code,
                 struct err *e);
    void (*stop)(struct backend *b, uint32_t ifindex);
    /* Another TXT record for a started interface. */
    int (*update)(struct backend *b, uint32_t ifindex, const struct be_announce *a, struct err *e);
    /* Resolve again: `found` or `unresolved` follows, or nothing when the instance is unknown. */
    void (*refresh)(struct backend *b, uint32_t ifindex, const char *instance);
    /* Withdraws all, closes its handles, calls `closed` from the loop and is gone. */
    void (*close)(struct backend *b, void (*closed)(void *ctx), void *ctx);
    bool later; /* start only says that it is asked for: `started` or `failed` follows */
};

int bonjour_open(uv_loop_t *loop, const struct be_events *ev, void *ctx, struct backend **out,
                 struct err *e);
int bus_open(uv_loop_t *loop, struct disco_bus *bus, const char *host, const struct be_events *ev,
             void *ctx, struct backend **out, struct err *e);

#endif
