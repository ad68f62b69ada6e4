/* SPDX-License-Identifier: MIT
 * habits.h: what `shoal doctor` says of a machine's habits: who may use the local network, power
 * and networks that cost, sleep, the cache's volume, indexing and backups, the service. Readings
 * are taken by habits_read.c and, thinly, by habits_darwin.c and habits_linux.c; what follows from
 * them is decided in habits.c, which asks the system nothing. */
#ifndef SHOAL_NODE_CLI_HABITS_H
#define SHOAL_NODE_CLI_HABITS_H

#include "discovery/privacy.h"
#include "node/daemon/power.h"
#include "node/store/nobackup.h"

#include <stdint.h>

enum verdict { GOOD, WARN, BAD };
enum known { NOT_KNOWN, NO, YES };

#define HABITS_TEXT 800

struct habits {
    bool mac;
    struct privacy_start start;
    enum known bonjour_denied; /* the system's Bonjour refuses this program by policy */
    char notice[HABITS_TEXT];  /* what the running node has noticed; "" */
    enum known plist;          /* macOS sees the program's Info.plist */
    struct power_reading power;
    enum known holds_sleep;       /* the machine can be kept awake while there is work */
    enum known tells_sleep;       /* it tells before it sleeps */
    enum known lowered;           /* this process was started with little priority */
    uint64_t files, files_before; /* open at once: now, and as found */

    const char *cache; /* NULL: not known where it is */
    bool cache_there;
    enum known case_told;  /* the volume tells upper from lower case */
    enum known past_cache; /* reads can go past the page cache */
    enum known full_sync;  /* a sync reaches the disk, not only the drive's memory */
    enum known local;      /* a disk of this machine, not of a server */
    struct nobackup_marks marks;

    enum known service;        /* one is installed for this home */
    enum known service_loaded; /* the manager has it */
    bool program_moves; /* this program lies where it may go away: build or download folder */
};

typedef void habits_say(void *ctx, enum verdict v, const char *name, const char *text);

/* Judges all readings, each by one line or none. */
void habits_judge(const struct habits *h, habits_say *say, void *ctx);

/* ---- readings ---- */

/* `cache` (NULL: not known) and `exe` stay the caller's. Fields about the running node and the
 * service are not touched. A second or so. */
void habits_read(struct habits *h, const char *cache, const char *exe);
/* What this system alone says: plist, sleep, priority, Bonjour, the volume of `h->cache`. */
void habits_system(struct habits *h);

#endif
