/* SPDX-License-Identifier: MIT
 * peers.h: the table of peers: one row per node, addresses beneath it, what each address has been
 * through. Pure: no loop, no clock, no socket; times come in as arguments. */
#ifndef SHOAL_DISCOVERY_PEERS_H
#define SHOAL_DISCOVERY_PEERS_H

#include "discovery/disco.h"
#include "discovery/txt.h"

#define PEERS_SIGHTS_MAX 512     /* announcements kept: one per instance and interface */
#define PEERS_RETRY_BASE_MS 1000 /* pause after the first failure; it doubles */
#define PEERS_REJECTED_MS \
    3000                      /* first pause after a rejection: a roster on its way may change it */
#define PEERS_INBOUND_FAILS 3 /* failures after which an address told by the peer is dropped */

/* One announcement as it is now. */
struct sight {
    uint32_t ifindex;
    char instance[DISCO_NAME_MAX + 1];
    struct txt txt;
    size_t n_addrs;
    struct sockaddr_storage addrs[DISCO_ADDRS_MAX];
    uint64_t stale_ns;   /* gone unless seen again before this, 0 = it is fresh; kept by the core */
    uint64_t refresh_ns; /* when to resolve it again, 0 = not; kept by the core */
    uint64_t refreshed_ns;
    unsigned refreshes; /* without any change */
};

struct static_peer {
    char name[DISCO_STATIC_TEXT];
    char host[DISCO_HOST_MAX + 1];
    uint16_t port;
    char node[DISCO_ID_MAX + 1]; /* who answered there, empty = not met */
    size_t n_addrs;
    struct sockaddr_storage addrs[DISCO_ADDRS_MAX];
    char error[DISCO_TEXT]; /* why it has no address, empty = it has */
    bool busy;              /* private to the core: being resolved ... */
    uv_getaddrinfo_t *req;  /* ... by this request */
    uint64_t due_ns;
    unsigned fails;
};

struct row {
    struct disco_peer p;
    bool told, dirty;
    bool over; /* a name's own row after the node was met */
};

struct peers {
    struct row *rows[DISCO_PEERS_MAX];
    size_t n;
    struct sight *sights[PEERS_SIGHTS_MAX];
    size_t n_sights;
    struct static_peer *statics[DISCO_STATIC_MAX];
    size_t n_statics;
    struct disco_if ifs[DISCO_IFS_MAX]; /* as of now, by peers_ifs */
    size_t n_ifs;
    uint64_t over_limit;
};

void peers_init(struct peers *t);
void peers_free(struct peers *t);
void peers_ifs(struct peers *t, const struct disco_if *ifs, size_t n);

/* An announcement with its whole set of addresses; `fresh` = the node announced itself just now, so
 * that its addresses may be tried at once. NULL when over a limit or out of memory. */
struct sight *peers_sight(struct peers *t, uint64_t now, uint32_t ifindex, const char *instance,
                          const struct txt *txt, const struct sockaddr_storage *addrs, size_t n,
                          bool fresh);
struct sight *peers_sight_find(struct peers *t, uint32_t ifindex, const char *instance);
void peers_unsight(struct peers *t, uint32_t ifindex, const char *instance);
void peers_unsight_if(struct peers *t, uint32_t ifindex); /* 0 = all */

int peers_add_static(struct peers *t, const char *host_port, struct static_peer **out,
                     struct err *e);
void peers_static_addrs(struct peers *t, uint64_t now, struct static_peer *s,
                        const struct sockaddr_storage *addrs, size_t n);
void peers_remembered(struct peers *t, uint64_t now, const char *node,
                      const struct sockaddr_storage *a, int64_t met_unix);
void peers_forget(struct peers *t, const char *node);
/* What was rejected by or for this node may be tried again at once; NULL: of all rows that are only
 * static addresses. */
void peers_retry(struct peers *t, const char *node);

/* The row and address that a report is about, made when an authenticated node is new. */
void peers_report(struct peers *t, uint64_t now, int64_t unix_s, const struct disco_report *r);
void peers_measured(struct peers *t, const char *node, const struct sockaddr *a, double bytes_s,
                    double rtt_s);
/* Every address may be tried once, `gap_ns` after its last attempt; failure counts stay, so that
 * the pause after the next failure is as long as it was. */
void peers_retry_all(struct peers *t, uint64_t now, uint64_t gap_ns);

/* Rows that changed since the last call: fills *ev and returns the row, NULL when there is none.
 * A REMOVED row is valid until the next call. */
const struct disco_peer *peers_next_event(struct peers *t, struct row **gone, enum disco_event *ev);
struct row *peers_find(struct peers *t, const char *node);
void peers_sort(struct disco_peer *p);

/* Shared by peers.c and peers_report.c. */
struct row *peers_add_row(struct peers *t, const char *node, bool claim);
void peers_drop_row(struct peers *t, size_t i);
bool peers_row_empty(const struct row *r);
struct disco_addr *peers_find_addr(struct row *r, const struct sockaddr_storage *a);
struct disco_addr *peers_need_addr(struct peers *t, struct row *r, uint64_t now,
                                   const struct sockaddr_storage *sa, uint32_t ifindex);
bool peers_among(const struct sockaddr_storage *s, size_t n, const struct sockaddr_storage *a);
void peers_settle(struct peers *t, struct row *r);

#endif
