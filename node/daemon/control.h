/* SPDX-License-Identifier: MIT
 * control.h: the socket by which other processes of this machine talk to the owner of a home.
 *
 * A Unix socket, HOME/run/control (folder 0700, socket 0600); only the same user or root is heard.
 * Where that path is longer than a socket's may be, the socket lies in a folder of its own below
 * TMPDIR or /tmp, and HOME/run/control.at says where. One JSON object a line each way. An answer
 * carries the "seq" of its request when that had one; a failure is
 * {"error": {"code": N, "message": "..."}}, N an enum err_code.
 *
 * Limits: the CONTROL_ constants. A client that sends a longer line, does not end a line, or does
 * not take its answers is dropped; while many answers wait for it, nothing more is read from it.
 *
 * Threads: the server has one of its own. Callbacks come on it and must not wait; answers may come
 * from any thread. */
#ifndef SHOAL_NODE_DAEMON_CONTROL_H
#define SHOAL_NODE_DAEMON_CONTROL_H

#include "proto/base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_LINE_MAX (1u << 20)   /* a request with its line end */
#define CONTROL_ANSWER_MAX (8u << 20) /* an answer with its line end */
#define CONTROL_CLIENTS_MAX 32        /* a further one hears that there are too many */
#define CONTROL_PENDING_MAX 4096      /* requests of one client without an answer */
#define CONTROL_DEPTH_MAX 8           /* of nested objects and arrays in a request */
#define CONTROL_VALUES_MAX 8192       /* in one request */
#define CONTROL_OP_MAX 32             /* bytes of "op" */
#define CONTROL_BACKLOG (1u << 20)    /* bytes of answers at which reading pauses */
#define CONTROL_STUCK_MS 30000        /* for the rest of a line, or until answers are taken */
#define CONTROL_PATH_MAX 108          /* of a socket, with the NUL; the Mac has 104 */

/* ---- the owner's side ---- */

/* Become the owner of a home: HOME/run/lock, held until *lock is closed or the process dies.
 * ERR_BUSY: another process has it. */
int control_lock(const char *home, int *lock, struct err *e);

struct control; /* opaque */

/* Which request an answer belongs to. */
struct control_to {
    uint64_t client;
    json_int_t seq;
    bool has_seq;
};

struct control_ops {
    void *ctx;
    /* To be answered by control_answer exactly once, now or later. `req` is an object with a string
     * "op"; the reference becomes the callee's (no other is left: counting references does not
     * order what two threads do). */
    void (*request)(void *ctx, const struct control_to *to, json_t *req);
    /* A client has gone; its requests that are under way need no answer any more, but may get one.
     * May be NULL. */
    void (*gone)(void *ctx, uint64_t client);
    unsigned stuck_ms; /* 0: CONTROL_STUCK_MS */
};

/* With the lock held: a socket that a dead owner left is replaced. *out is set before the first
 * callback. */
int control_open(const char *home, const struct control_ops *ops, struct control **out,
                 struct err *e);
/* The reference to `answer` becomes control's. */
void control_answer(struct control *c, const struct control_to *to, json_t *answer);
/* A line that answers nothing, to a client that understands it. The reference stays the caller's.
 */
void control_tell(struct control *c, uint64_t client, const json_t *line);
void control_fail(struct control *c, const struct control_to *to, int code, const struct err *e);
/* No callback comes after it; what is answered then goes nowhere. What was answered before is sent
 * as far as the clients take it at once. */
void control_stop(struct control *c);
void control_free(struct control *c); /* after control_stop; NULL is fine */

struct control_stats {
    uint64_t clients, requests, malformed, refused, dropped;
    uint32_t connected;
};
void control_get_stats(struct control *c, struct control_stats *out);

/* One line without its end: checked against the limits. The caller owns *out. */
int control_parse(const char *line, size_t n, json_t **out, struct err *e);

/* ---- the other side ---- */

/* A non-blocking descriptor. ERR_OFFLINE: nobody owns this home (or not yet). */
int control_connect(const char *home, int *fd, struct err *e);
/* A request as a line to be sent; freed by the caller. NULL: no memory or too long. */
char *control_line(const json_t *req, size_t *n);
/* Does the answer carry an error? Returns its code, and the sentence in e. */
int control_error(const json_t *answer, struct err *e);
/* Send and receive without SIGPIPE; as send and recv of a non-blocking socket. */
long control_send(int fd, const void *p, size_t n);

/* ---- private to control*.c ---- */

/* The user at the other end of a Unix socket. (control_cred_*.c) */
int control_peer_uid(int fd, unsigned *uid);
/* Where the socket is to lie (the folder is made; elsewhere: not in the home), or lies.
 * (control_path.c) */
int control_path_make(const char *home, bool elsewhere, char path[CONTROL_PATH_MAX], struct err *e);
int control_path_find(const char *home, char path[CONTROL_PATH_MAX], struct err *e);
/* Close-on-exec, non-blocking, no SIGPIPE. */
int control_tame(int fd);

#endif
