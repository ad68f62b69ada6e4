/* SPDX-License-Identifier: MIT
 * line.h: a household's way to the internet: an HTTP origin of one folder behind one line that all
 * members share, whose rate, latency and moods are set by the test. Each member has a port of its
 * own, to be used as its HTTP proxy, so the origin knows who asks. Counts how often each byte was
 * given. In a thread of its own; all functions may be called from any other. */
#ifndef SHOAL_TESTS_FAULTS_LINE_H
#define SHOAL_TESTS_FAULTS_LINE_H

#include <stdbool.h>
#include <stdint.h>

#define LINE_MEMBERS 8

struct line; /* opaque */

struct line *line_start(const char *dir, int members);
void line_stop(struct line *l);
int line_port(const struct line *l, int member);

/* Bytes a second of the whole line, and of what one member gets of it; 0: no bound. */
void line_rate(struct line *l, double all);
void line_member_rate(struct line *l, int member, double rate);
/* Nothing goes to or from this member, nothing is reset: a cable that is pulled. */
void line_cut(struct line *l, int member, bool cut);
/* From a request's last byte to the answer's first one. */
void line_latency(struct line *l, unsigned ms);
/* The next request of this member for an object is answered with 429 and Retry-After. */
void line_busy(struct line *l, int member, unsigned retry_s);
/* Returns when all that has been sent to it by now has been read. */
void line_settle(struct line *l);
/* When that answer was sent (clock_ns), 0: not yet. */
uint64_t line_busy_said(struct line *l);
/* Requests of this member that arrived in this stretch of clock_ns; when the first of them did (may
 * be NULL). */
unsigned line_requests(struct line *l, int member, uint64_t from, uint64_t to, uint64_t *first);

/* All counters back to nothing, rates and moods too; connections stay. */
void line_reset(struct line *l);
double line_time(struct line *l); /* seconds since then */
/* Bytes of bodies that were sent, to all and to one member. */
uint64_t line_bytes(struct line *l);
uint64_t line_member_bytes(struct line *l, int member);
/* The largest number of times that a byte of this range was sent (of an answer that was broken off:
 * what had been sent by then, whatever was asked for); in *twice how many bytes of it were sent
 * beyond one copy, in *both how many both to these members (bits) and to others. */
unsigned line_given(struct line *l, const char *file, uint64_t off, uint64_t n, unsigned who,
                    uint64_t *twice, uint64_t *both);

/* The files of the folder. */
int line_files(const struct line *l);
const char *line_file(const struct line *l, int i, uint64_t *size);

#endif
