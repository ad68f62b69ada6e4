/* SPDX-License-Identifier: MIT
 * disco.h: who is on the LAN, and under which addresses. One row per node, addresses beneath it,
 * however it was found: Bonjour, a peer that the user named, an address remembered from last time,
 * a connection that came in.
 *
 * It opens no connection and believes nobody: an id that an announcement claims is a claim until
 * the layer above has authenticated it and says so with disco_report. That layer tries the
 * addresses in the order given here, not before `retry_ns`, and reports every attempt; reports
 * order the addresses, feed `disco_why` and keep an entry alive. Liveness is the heartbeat of the
 * layer above: a responder says goodbye when a node stops and says nothing when it dies.
 *
 * Threads: everything on the thread of the loop; callbacks come from the loop, never from inside a
 * call made here. A callback may call anything but disco_close.
 * Ownership: disco_open copies its options; pointers in callbacks are valid until they return.
 * Times are clock_ns() (proto/base/clock.h), 0 = never. */
#ifndef SHOAL_DISCOVERY_DISCO_H
#define SHOAL_DISCOVERY_DISCO_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#define DISCO_SERVICE "_shoal._tcp"
#define DISCO_ID_MIN 8           /* characters of a short id: node, group, model root; 0-9 a-z */
#define DISCO_ID_MAX 32          /* the same, longest */
#define DISCO_NAME_MAX 63        /* bytes of an instance name (a DNS label) */
#define DISCO_WISH_MAX 47        /* bytes of the part of it that can be chosen */
#define DISCO_HOST_MAX 253       /* bytes of a host name */
#define DISCO_PEERS_MAX 256      /* rows; announcements beyond it are counted and dropped */
#define DISCO_ADDRS_MAX 16       /* addresses of one row */
#define DISCO_IFS_MAX 32         /* interfaces looked at */
#define DISCO_IF_ADDRS_MAX 16    /* addresses of one interface */
#define DISCO_STATIC_MAX 64      /* static peers */
#define DISCO_HISTORY 4          /* attempts kept for each address */
#define DISCO_NOTICE 500         /* bytes of why.notice */
#define DISCO_TEXT 200           /* bytes of a sentence about an attempt or an interface */
#define DISCO_ADDR_TEXT 80       /* "[fe80::1%eth0]:4433" and its NUL */
#define DISCO_STATIC_TEXT 264    /* "host:port" and its NUL */
#define DISCO_INTERVAL_MS 30000  /* default announce interval */
#define DISCO_POLL_MS 2000       /* default interval of looking at the interfaces */
#define DISCO_RETRY_MAX_MS 60000 /* longest pause between two attempts at a failing address */
/* The longest where the system says "unreachable": that may be this machine's own passing trouble
 * (just booted, just awake), and with the spread it is tried once in an announce interval. */
#define DISCO_UNREACHABLE_MS 24000
#define DISCO_ASLEEP_MS 300000 /* pause after a peer said that it goes to sleep */
#define DISCO_STOPPED_MS 10000 /* and after it said that it stops: it may be started anew */

struct disco;
struct disco_bus; /* bus.h: the in-memory network for tests */

/* Where an address comes from; an address may have several. */
enum disco_source {
    DISCO_STATIC = 1,     /* named by the user */
    DISCO_REMEMBERED = 2, /* authenticated in this run or an earlier one */
    DISCO_BONJOUR = 4,    /* announced now */
    DISCO_INBOUND = 8,    /* the node connected from there and told its port */
};

/* What became of an attempt at one address. X(name, word) */
#define DISCO_OUTCOMES(X)               \
    X(DISCO_UNTRIED, "untried")         \
    X(DISCO_CONNECTED, "connected")     \
    X(DISCO_AUTHENTICATED, "authentic") \
    X(DISCO_REFUSED, "refused")         \
    X(DISCO_UNREACHABLE, "unreachable") \
    X(DISCO_TIMEOUT, "timed out")       \
    X(DISCO_REJECTED, "rejected")       \
    X(DISCO_CLOSED, "closed")           \
    X(DISCO_GOODBYE, "said goodbye")    \
    X(DISCO_DEAD, "silent")

/* CONNECTED: the TCP connection stands. AUTHENTICATED: TLS done, the node is `as`, a member.
 * REJECTED: TLS failed, a stranger, a removed member or a broken protocol. CLOSED: a connection
 * that was authenticated ended without a goodbye. GOODBYE: the peer said that it stops or sleeps.
 * DEAD: no heartbeat for three intervals: the announcement of that address is void too, until the
 * node announces itself anew. */
enum disco_outcome {
#define DISCO_OUTCOME_ENUM(n, w) n,
    DISCO_OUTCOMES(DISCO_OUTCOME_ENUM)
#undef DISCO_OUTCOME_ENUM
};
const char *disco_outcome_word(enum disco_outcome o);

struct disco_try {
    enum disco_outcome outcome;
    int sys;               /* errno value, 0 = none */
    uint64_t ns;           /* when */
    char text[DISCO_TEXT]; /* the sentence of the layer above, may be empty */
};

struct disco_addr {
    struct sockaddr_storage sa; /* AF_INET or AF_INET6 with port; scope id for link-local */
    char text[DISCO_ADDR_TEXT]; /* "10.0.0.2:4433", "[fe80::1%en0]:4433" */
    uint16_t port;              /* host byte order */
    unsigned sources;           /* enum disco_source bits */
    uint32_t ifindex;           /* local interface it is reached by, 0 = through a router */
    char ifname[IF_NAMESIZE];   /* its name, empty with 0 */
    bool virtual_if;            /* that interface belongs to a VM, container or VPN */
    uint64_t seen_ns;           /* last announcement, answer or connection */
    uint64_t retry_ns;          /* no attempt before this; 0 = at once */
    unsigned fails;             /* failures in a row; kept over sleep and wake */
    unsigned live;              /* authenticated connections on it now */
    double bytes_s;             /* last measured rate, 0 = not measured */
    double rtt_s;               /* last measured round trip, 0 = not measured */
    uint64_t tries, goods;      /* attempts and authentications of this run */
    int64_t met_unix;           /* wall-clock second of the last authentication, 0 = never */
    struct disco_try last[DISCO_HISTORY]; /* newest first; UNTRIED past the end */
};

struct disco_peer {
    char node[DISCO_ID_MAX + 1];         /* short node id; empty for a static peer not met yet */
    char static_name[DISCO_STATIC_TEXT]; /* "host:port" when the user named it */
    char instance[DISCO_NAME_MAX + 1];   /* Bonjour name, empty when not announced */
    char model[DISCO_ID_MAX + 1];        /* announced short model root, empty = none told */
    unsigned version;                    /* announced protocol version, 0 = not told */
    bool announced;                      /* Bonjour announces it now */
    bool authentic;                      /* an address authenticated as `node` in this run */
    unsigned live;                       /* authenticated connections now */
    size_t n_addrs;
    struct disco_addr addrs[DISCO_ADDRS_MAX]; /* best first, see README */
};

enum disco_event { DISCO_ADDED, DISCO_CHANGED, DISCO_REMOVED };

/* A local interface as it is asked about and listed. */
struct disco_if {
    uint32_t index;
    char name[IF_NAMESIZE];
    bool loopback;
    bool virtual_if; /* of a VM, container or VPN, or one that Bonjour must leave alone (by name) */
    size_t n_addrs;
    struct {
        struct sockaddr_storage sa; /* port 0 */
        unsigned prefix;            /* bits */
    } addrs[DISCO_IF_ADDRS_MAX];
};

struct privacy_start; /* privacy.h */
struct disco_options {
    const char *node;  /* own short id */
    const char *group; /* short group id; announcements of other groups are counted only */
    const char *model; /* short model root, NULL = none yet */
    const char *name;  /* instance names are this, "-" and the interface; NULL = "shoal-" + node */
    unsigned version;  /* protocol version, 1..65535 */
    uint16_t port;     /* TCP port to announce */
    bool no_bonjour;   /* static, remembered and inbound addresses only */
    const char *const *static_peers; /* "host:port", "1.2.3.4:port", "[::1]:port" */
    size_t n_static;
    const char *remember;  /* file of remembered addresses, NULL = none */
    unsigned interval_ms;  /* announce interval, 0 = DISCO_INTERVAL_MS */
    unsigned poll_ms;      /* interface poll, 0 = DISCO_POLL_MS */
    struct disco_bus *bus; /* in-memory network in place of Bonjour and the real interfaces ... */
    const char *bus_host;  /* ... and the machine of it that this one is */
    void *ctx;
    /* May this interface's network be announced on and browsed? NULL: every interface that is not
     * virtual. Asked for each interface that is not loopback whenever its addresses change and
     * after disco_network_changed. */
    bool (*allow)(void *ctx, const struct disco_if *net);
    /* Why allow says no there, as the end of the sentence "up; ...". NULL: said in general words.
     * Called by disco_why only. */
    void (*why_not)(void *ctx, const struct disco_if *net, char out[DISCO_TEXT]);
    void (*on_peer)(void *ctx, const struct disco_peer *p, enum disco_event ev);
    /* One line for each change of state, without newline. NULL = none. */
    void (*log)(void *ctx, const char *line);
    /* How this process was started (privacy.h); NULL: as the system says. Tests put in their own.
     */
    const struct privacy_start *start;
    /* No lines about interfaces, peers and the responder that come and go: disco_why tells. */
    bool brief;
};

/* Validates and copies the options, reads the remembered addresses, starts announcing and
 * browsing as soon as the loop runs. A missing responder is no error: it is retried. */
int disco_open(uv_loop_t *loop, const struct disco_options *o, struct disco **out, struct err *e);
/* Withdraws, saves, closes every handle, then calls `closed` (may be NULL) and frees. No callback
 * of the options comes after the call. */
void disco_close(struct disco *d, void (*closed)(void *ctx), void *ctx);

/* Announce another model root (NULL = none). */
int disco_set_model(struct disco *d, const char *model, struct err *e);
/* Add a static peer while running; persisting it is the caller's affair. ERR_BUSY when known. */
int disco_add_static(struct disco *d, const char *host_port, struct err *e);
/* Forget a node, remembered addresses included (it was removed from the group). */
void disco_forget(struct disco *d, const char *node);
/* This node is a member now: where TLS was refused before, the next attempt need not wait. NULL:
 * the same for static peers whose node is not known. */
void disco_retry(struct disco *d, const char *node);

/* Before sleep: withdraws and stops looking. After: all starts anew, every address may be tried
 * once, failure counts stay. Both may come twice. */
void disco_sleep(struct disco *d);
void disco_wake(struct disco *d);
/* Addresses or routes changed: looks at the interfaces now, asks `allow` again, announces and
 * resolves anew where something is different. */
void disco_network_changed(struct disco *d);

/* The interfaces that are up now, loopback included, as of the last look. */
size_t disco_interfaces(const struct disco *d, struct disco_if *out, size_t max);

struct disco_report {
    const char *node;            /* the row that the address was taken from; NULL or "" = any */
    const struct sockaddr *addr; /* with the peer's listening port */
    enum disco_outcome outcome;
    const char *as;   /* AUTHENTICATED: the short id it proved; it decides the row */
    bool asleep;      /* GOODBYE: it goes to sleep; else it stops */
    bool inbound;     /* the peer connected to us; `addr` is its host and its told listening port */
    int sys;          /* errno value of a failure, 0 = none */
    unsigned took_ms; /* from the start of the attempt to this outcome */
    const char *text; /* a sentence for `why`, NULL = none */
};
void disco_report(struct disco *d, const struct disco_report *r);
/* A measurement over an authenticated connection; 0 = not measured. */
void disco_measured(struct disco *d, const char *node, const struct sockaddr *addr, double bytes_s,
                    double rtt_s);
/* Something beyond the LAN answered (or did not): evidence for the macOS privacy verdict. */
void disco_outside(struct disco *d, bool answered);

/* The present rows, in order of node id: calls f for each. */
void disco_each(struct disco *d, void (*f)(void *ctx, const struct disco_peer *p), void *ctx);
size_t disco_count(const struct disco *d);

struct disco_why_if {
    struct disco_if net;
    bool up, allowed;
    bool registered;               /* the responder confirmed the announcement */
    bool browsed;                  /* the responder took the browse */
    char name[DISCO_NAME_MAX + 1]; /* the instance name in use there (a clash changes it) */
    uint64_t starts, failures;     /* announcements made, failed ones among them */
    uint64_t callbacks;            /* answers of the responder */
    uint64_t callback_ns;          /* the last of them */
    uint64_t found;                /* announcements of other nodes seen */
    uint64_t error_ns, retry_ns;   /* last failure, next try */
    char error[DISCO_TEXT];        /* its sentence, empty = none since it last worked */
    char says[DISCO_TEXT];         /* the whole state in one sentence */
};

struct disco_why_peer {
    struct disco_peer peer;
    char says[DISCO_TEXT];
    char addr_says[DISCO_ADDRS_MAX][DISCO_TEXT];
};

struct disco_why {
    uint64_t now_ns;
    bool asleep, responder;    /* responder: Bonjour answers */
    char says[DISCO_TEXT];     /* discovery as a whole */
    char notice[DISCO_NOTICE]; /* Local Network privacy or a clone of this node; else empty */
    size_t n_ifs, n_peers;
    struct disco_why_if *ifs;
    struct disco_why_peer *peers;
    uint64_t other_group, malformed, over_limit; /* announcements not used, and why */
    uint64_t clones;                             /* own id announced from an address not ours */
    uint64_t reports, resolves, resolve_failures;
};

/* A snapshot; NULL when out of memory. Free with disco_why_free. */
struct disco_why *disco_why(struct disco *d);
void disco_why_free(struct disco_why *w);
/* The snapshot as one JSON object; times as seconds before now (null = never). */
int disco_why_json(const struct disco_why *w, struct buf *out, struct err *e);

#endif
