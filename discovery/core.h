/* SPDX-License-Identifier: MIT
 * core.h: the inside of a disco, shared by disco.c, sessions.c, names.c and why.c. */
#ifndef SHOAL_DISCOVERY_CORE_H
#define SHOAL_DISCOVERY_CORE_H

#include "discovery/backend.h"
#include "discovery/peers.h"
#include "discovery/privacy.h"

#define MS_NS UINT64_C(1000000)

/* One interface: what it is and how announcing and browsing on it goes. Kept when the interface
 * goes away, so that one that comes and goes every second cannot flood the network. */
struct ifstate {
    struct disco_if net;
    bool up, allowed, started, registered, browsed;
    bool broken; /* to be stopped from the loop */
    char name[DISCO_NAME_MAX + 1];
    uint64_t starts, failures, callbacks, callback_ns, found;
    uint64_t start_ns, error_ns, retry_ns;
    unsigned backoff;
    char error[DISCO_TEXT];
};

enum responder { RESPONDER_UNKNOWN, RESPONDER_UP, RESPONDER_DOWN };

struct disco {
    uv_loop_t *loop;
    char node[DISCO_ID_MAX + 1], name[DISCO_NAME_MAX + 1];
    struct txt txt;
    uint16_t port;
    uint64_t interval_ns, poll_ns;
    char *remember; /* path or NULL */
    void *ctx;
    bool (*allow)(void *ctx, const struct disco_if *net);
    void (*why_not)(void *ctx, const struct disco_if *net, char out[DISCO_TEXT]);
    void (*on_peer)(void *ctx, const struct disco_peer *p, enum disco_event ev);
    void (*log)(void *ctx, const char *line);
    bool brief;

    struct peers t;
    struct ifstate ifs[DISCO_IFS_MAX];
    size_t n_ifs;
    struct backend *be;     /* NULL = no Bonjour and the real interfaces */
    struct backend *looker; /* who lists the interfaces, NULL = ifs_read */
    enum responder responder;
    struct privacy privacy;
    struct privacy_start start;
    char notice[DISCO_NOTICE]; /* PRIVACY_TEXT fits */
    bool notice_privacy;
    uint64_t other_group, malformed, clones, reports, resolves, resolve_failures;
    struct sockaddr_storage clone; /* last address that bore our id */

    uv_timer_t tick, flush;
    struct row *gone; /* a removed row that is being told of */
    uint64_t poll_at, save_at, saved_ns, tick_ns, tick_due;
    int64_t tick_unix;
    bool asleep, closing, ask_again, saving;
    unsigned open; /* handles, requests and the backend: what must end before the memory goes */
    void (*closed)(void *ctx);
    void *closed_ctx;
};

void core_log(struct disco *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void core_touch(struct disco *d);   /* rows may have changed: tell of it from the loop */
void core_soon(struct disco *d);    /* run the tick now */
void core_release(struct disco *d); /* one thing of `open` has ended */
/* Printable UTF-8 of bytes from outside; whatever is not becomes '?'. */
void core_clean(const char *in, char *out, size_t room);
/* The earlier of two due times, 0 = none. */
uint64_t core_min(uint64_t a, uint64_t b);

/* sessions.c: interfaces, announcing and browsing. Each returns when it is next due. */
extern const struct be_events sessions_events;
uint64_t sessions_poll(struct disco *d, uint64_t now);
uint64_t sessions_run(struct disco *d, uint64_t now);
uint64_t sessions_refresh(struct disco *d, uint64_t now);
void sessions_stop_all(struct disco *d);
void sessions_wake(struct disco *d, uint64_t now);
void sessions_reported(struct disco *d, uint64_t now, const char *node, enum disco_outcome o);
int sessions_update(struct disco *d, struct err *e); /* the TXT record changed */

/* names.c: host names of static peers. */
uint64_t names_run(struct disco *d, uint64_t now);
void names_due(struct disco *d, uint64_t now); /* those without an address: ask now */
void names_close(struct disco *d);

#endif
