/* SPDX-License-Identifier: MIT
 * habits_read.c: see habits.h; the readings that are the same on every system. The cache's marks
 * serve as the files that are looked at: nothing is written. */
#include "node/cli/habits.h"

#include "node/store/uncached.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum known said(bool yes)
{
    return yes ? YES : NO;
}

/* A mark of ours under a name in the other case: there is no second such file. */
static enum known tells_case(const char *dir)
{
    char p[PATH_MAX];
    struct stat a, b;
    if (snprintf(p, sizeof p, "%s/CACHEDIR.TAG", dir) >= (int)sizeof p || stat(p, &a)) {
        return NOT_KNOWN;
    }
    snprintf(p, sizeof p, "%s/cachedir.tag", dir);
    return said(stat(p, &b) || a.st_ino != b.st_ino || a.st_dev != b.st_dev);
}

static enum known reads_past(const char *dir)
{
    char p[PATH_MAX];
    struct uncached f;
    if (snprintf(p, sizeof p, "%s/CACHEDIR.TAG", dir) >= (int)sizeof p ||
        uncached_open(&f, p, 0, true) < 0) {
        return NOT_KNOWN;
    }
    enum known k = said(f.past);
    close(f.fd);
    return k;
}

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

void habits_read(struct habits *h, const char *cache, const char *exe)
{
    struct stat sb;
    h->cache = cache;
    h->cache_there = cache && !stat(cache, &sb) && S_ISDIR(sb.st_mode);
    privacy_read(&h->start);
    power_read(&h->power);
    h->program_moves = begins(exe, "/tmp/") || begins(exe, "/private/tmp/") ||
                       begins(exe, "/var/tmp/") || strstr(exe, "/Downloads/") ||
                       strstr(exe, "/AppTranslocation/");
    if (h->cache_there) {
        h->case_told = tells_case(cache);
        h->past_cache = reads_past(cache);
        nobackup_look(cache, &h->marks);
    }
    habits_system(h);
}
