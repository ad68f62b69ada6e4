/* SPDX-License-Identifier: MIT
 * hub.h: servers for tests that do what a model hub and its file servers do: the hub answers for a
 * shard with a redirect to a signed address at the other, which expires; and both have bad habits
 * on command. Each has loopback ports, threads and a log of all that it was sent. */
#ifndef TEST_STORE_HUB_H
#define TEST_STORE_HUB_H

#include "tests/store/hub_tls.h"

#include <stdint.h>

#define HUB_REPO "org/model"
#define HUB_COMMIT_A "0123456789abcdef0123456789abcdef01234567"
#define HUB_COMMIT_B "fedcba9876543210fedcba9876543210fedcba98"

enum hub_habit { /* of what is asked for a shard; `arg` with each */
                 HUB_GOOD,
                 HUB_CUT,        /* the connection ends after each arg bytes of a body */
                 HUB_TRICKLE,    /* arg bytes of a body, then one byte after each other, slowly, for
                                    ever */
                 HUB_ETAG_OTHER, /* another entity tag */
                 HUB_ETAG_GZIP,  /* the same with "-gzip" behind it */
                 HUB_ETAG_WEAK,  /* a weak one with changing text */
                 HUB_GZIP,       /* a packed body */
                 HUB_BUSY,       /* 429 with Retry-After: arg */
                 HUB_BUSY_DATE,  /* 503 with Retry-After as a date, arg seconds after its own clock
                                  */
                 HUB_416,        /* 416 */
                 HUB_WHOLE,      /* 200 with all */
                 HUB_RANGE,      /* a Content-Range of other bytes */
                 HUB_LOOP,      /* a redirect back to the other server, which sends it here again */
                 HUB_DOWNGRADE, /* a redirect to http */
                 HUB_HEAD,      /* arg KiB of head, then the right answer; -1: a head without end */
                 HUB_LINE,      /* one line of arg KiB in the head */
                 HUB_ENDLESS,   /* a body without length and without end */
                 HUB_ENDLESS_FILE, /* the same for small files, by the hub itself */
                 HUB_EXPIRED,      /* what was signed is refused (403) whatever it says */
                 HUB_HABITS
};

struct hub_opts {
    const char *dir;       /* of plain files */
    const char *host;      /* "127.0.0.1" or "::1" */
    const char *name;      /* in its address, such as "localhost"; NULL: host */
    struct hub_cert *cert; /* NULL: plain http */
    const char *token;     /* the hub asks for it; NULL: public */
    int64_t clock;         /* what its clock says is later by so many seconds */
    int64_t life; /* seconds that a signed address lasts by its own text; 0: it says none */
};

struct hub; /* opaque */
struct hub *hub_start(const struct hub_opts *o);
void hub_stop(struct hub *h);
const char *hub_url(const struct hub *h); /* scheme, name, port */
/* Shards are sent on to `cdn`; NULL: h gives them itself. */
void hub_redirect_to(struct hub *h, struct hub *cdn);
/* The next `times` answers that concern shards have this habit; times < 0: all. */
void hub_set(struct hub *h, enum hub_habit k, long arg, int times);
/* What the branch "main" is at. The files are the same; tags are not. */
void hub_commit(struct hub *h, const char *commit);
/* All that was signed until now is refused by the file server h. */
void hub_expire(struct hub *h);

struct hub_numbers {
    uint64_t requests, redirects, refused, habits; /* refused: expired or false signatures */
    uint64_t bodies, resolved; /* bytes of shards given; questions for a branch's commit */
};
void hub_get(struct hub *h, struct hub_numbers *n);
/* How often the text occurs in all that clients have sent so far. */
int hub_heard(struct hub *h, const char *text);

#endif
