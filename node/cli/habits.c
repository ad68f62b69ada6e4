/* SPDX-License-Identifier: MIT
 * habits.c: see habits.h. Each line says how it is, and where something is to be done, what. */
#include "node/cli/habits.h"

#include <stdarg.h>
#include <stdio.h>

struct out {
    habits_say *say;
    void *ctx;
};

__attribute__((format(printf, 4, 5))) static void line(const struct out *o, enum verdict v,
                                                       const char *name, const char *fmt, ...)
{
    char text[HABITS_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    o->say(o->ctx, v, name, text);
}

/* ---- the local network ---- */

static void judge_lan(const struct habits *h, const struct out *o)
{
    enum privacy_how how = privacy_how(&h->start);
    char text[PRIVACY_TEXT];
    if (h->notice[0]) {
        line(o, WARN, "localnet", "the running node says: %s", h->notice);
        return;
    }
    if (how == PRIVACY_NO_SETTING) {
        line(o, GOOD, "localnet", "%s",
             h->mac ? "this macOS asks nobody about it (15 and later do)"
                    : "no setting of this system is in the way; a firewall may be");
        return;
    }
    privacy_text(how, h->start.terminal, text);
    if (h->bonjour_denied == YES) {
        line(o, WARN, "localnet", "Bonjour is refused by policy: %s", text);
    } else if (privacy_free(how)) {
        line(o, GOOD, "localnet",
             "%s: macOS lets it through without asking; a node started by launchd or by another "
             "app is asked about separately",
             how == PRIVACY_TERMINAL ? "started in Terminal"
             : how == PRIVACY_SSH    ? "started by ssh"
                                     : "started as a daemon or by root");
    } else {
        line(o, GOOD, "localnet",
             "%s: macOS asks once whether %s may use the local network; System Settings, Privacy "
             "& Security, Local Network shows the answer",
             how == PRIVACY_AGENT ? "started by launchd" : "started in another app than Terminal",
             how == PRIVACY_AGENT ? "shoal" : "that app");
    }
}

static void judge_plist(const struct habits *h, const struct out *o)
{
    if (h->plist == YES) {
        line(o, GOOD, "plist",
             "the program carries its Info.plist: identifier, Bonjour service, reason");
    } else if (h->plist == NO) {
        line(o, BAD, "plist",
             "macOS sees no Info.plist in this program, so it cannot ask for the local network: "
             "build it anew (./bootstrap build), and do not strip it");
    }
}

/* ---- power, sleep, threads ---- */

static void judge_power(const struct habits *h, const struct out *o)
{
    struct power p;
    power_judge(&h->power, &p);
    line(o, GOOD, "power", "%s",
         p.on_battery                    ? "on battery: nothing is done that nobody waits for"
         : h->power.battery == POWER_YES ? "on mains"
         : h->power.battery == POWER_NO  ? "no battery"
                                         : "the system does not say");
    bool said = h->power.expensive != POWER_NOT_SAID || h->power.constrained != POWER_NOT_SAID;
    line(o, GOOD, "network", "%s",
         p.little_data      ? "in Low Data Mode: nothing is copied in the background (switch that "
                              "off in the network's details, or say shoal up --metered no)"
         : p.costly_network ? "it costs, says the system: nothing is copied in the background "
                              "(shoal up --metered no, if it does not)"
         : said             ? "it does not cost, says the system"
                : "the system does not say whether it costs: shoal up --metered yes, if "
                  "it does");
}

static void judge_sleep(const struct habits *h, const struct out *o)
{
    if (h->holds_sleep == NOT_KNOWN && h->tells_sleep == NOT_KNOWN) {
        line(o, GOOD, "sleep",
             "this system neither tells of it nor is held off: a node finds the others again when "
             "it wakes; where it sleeps by itself during long answers, switch that off");
        return;
    }
    bool fine = h->holds_sleep == YES && h->tells_sleep == YES;
    line(
        o, fine ? GOOD : WARN, "sleep", "%s",
        fine ? "held off while there is work, no longer; peers are told before it"
        : h->holds_sleep != YES
            ? "it cannot be held off: long answers stop when the machine falls asleep; caffeinate "
              "-i shoal up does it from outside"
            : "the system does not tell of it: peers take this machine for dead for a while; start "
              "shoal in a session of the user");
}

static void judge_priority(const struct habits *h, const struct out *o)
{
    if (h->lowered == YES) {
        line(o, WARN, "priority",
             h->mac
                 ? "this process is in the background class, with slow cores and slow disks: "
                   "start shoal without taskpolicy -b, and a service with ProcessType Interactive "
                   "(shoal service install writes that)"
                 : "this process was started with lowered priority (nice): answers take longer "
                   "beside other programs");
    } else if (h->lowered == NO) {
        line(o, GOOD, "priority", "%s",
             h->mac ? "threads say by classes what matters: answers, serving, upkeep"
                    : "normal; upkeep lowers itself");
    }
}

static void judge_files(const struct habits *h, const struct out *o)
{
    bool few = h->files < 1024;
    line(o, few ? WARN : GOOD, "files", "%llu may be open at once (the limit was %llu)%s",
         (unsigned long long)h->files, (unsigned long long)h->files_before,
         !few ? ""
         : h->mac
             ? ": raise the hard limit (sudo launchctl limit maxfiles 10240 unlimited), then log "
               "in anew"
             : ": raise the hard limit (ulimit -Hn) to 4096 or more");
}

/* ---- the cache's volume ---- */

static void judge_volume(const struct habits *h, const struct out *o)
{
    const char *odd =
        h->local == NO ? "it is of a server on the network: put the cache on a disk of "
                         "this machine (shoal cache move DIR)"
        : h->full_sync == NO
            ? "it does not pass syncs on to its disk, so a power cut may cost some of the "
              "last files, which are then fetched again"
        : h->past_cache == NO
            ? "reads cannot go past the page cache there, so a model larger than memory "
              "is read more slowly; APFS, ext4 and XFS can"
            : NULL;
    const char *names =
        h->case_told == NO
            ? "it takes upper and lower case for the same, which no name of Shoal's needs"
        : h->case_told == YES ? "it tells upper from lower case"
                              : "";
    if (odd) {
        line(o, WARN, "volume", "of %s: %s%s%s", h->cache, odd, *names ? "; " : "", names);
    } else if (*names) {
        line(o, GOOD, "volume", "of %s: syncs and reads past the page cache work; %s", h->cache,
             names);
    }
}

/* A mark that somebody took away is set again when the cache is opened next. */
static void judge_marks(const struct habits *h, const struct out *o)
{
    const struct nobackup_marks *m = &h->marks;
    const char *again = "; the next start of shoal up, run or setup with this cache sets it again";
    if (h->mac) {
        line(o, m->never_index ? GOOD : WARN, "spotlight", "%s%s",
             m->never_index ? "leaves the cache out (.metadata_never_index)"
                            : "would index the cache: .metadata_never_index is not there",
             m->never_index ? "" : again);
        line(o, m->excluded ? GOOD : WARN, "backup", "%s%s",
             m->excluded ? "Time Machine leaves the cache out"
                         : "Time Machine would back the cache up: its attribute is not there (or: "
                           "tmutil addexclusion FOLDER)",
             m->excluded ? "" : again);
    } else {
        line(o, m->tag ? GOOD : WARN, "backup", "%s%s",
             m->tag ? "the cache is marked for backup programs (CACHEDIR.TAG)"
                    : "backup programs would take the cache: CACHEDIR.TAG is not there",
             m->tag ? "" : again);
    }
}

/* ---- the service ---- */

static void judge_service(const struct habits *h, const struct out *o)
{
    if (h->service == NO) {
        line(o, GOOD, "service", "none is installed: shoal service install starts a node at login");
    } else if (h->service == YES && h->service_loaded == NO) {
        line(o, WARN, "service",
             "its file is there, but the service manager does not have it: shoal service install "
             "again, with the same options");
    } else if (h->service == YES) {
        line(o, GOOD, "service", "%s",
             h->service_loaded == YES ? "installed, and the manager has it" : "installed");
    }
    if (h->program_moves) {
        line(o, h->service == YES ? WARN : GOOD, "program",
             "it lies where such things are deleted (a folder for temporary or downloaded files)%s",
             h->service == YES ? ": move it, and install the service again" : "");
    }
}

void habits_judge(const struct habits *h, habits_say *say, void *ctx)
{
    struct out o = {say, ctx};
    judge_files(h, &o);
    judge_lan(h, &o);
    judge_plist(h, &o);
    judge_power(h, &o);
    judge_sleep(h, &o);
    judge_priority(h, &o);
    if (h->cache && h->cache_there) {
        judge_volume(h, &o);
        judge_marks(h, &o);
    }
    judge_service(h, &o);
}
