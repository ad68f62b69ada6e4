/* SPDX-License-Identifier: MIT
 * plat_linux.c: see plat.h. */
#include "node/cli/plat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number in a one-line file, or 0 ("max", or no such file). */
static uint64_t number_in(const char *path)
{
    FILE *f = fopen(path, "re");
    unsigned long long v = 0;
    if (f) {
        if (fscanf(f, "%llu", &v) != 1) {
            v = 0;
        }
        fclose(f);
    }
    return v;
}

uint64_t plat_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    uint64_t all = pages > 0 ? (uint64_t)pages * plat_page() : 0;
    uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
    if (!limit) {
        limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    }
    return limit && limit < all ? limit : all;
}

void plat_cpu(char *out, size_t n)
{
    snprintf(out, n, "%s", "");
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (colon && (!strncmp(line, "model name", 10) || !strncmp(line, "Model", 5))) {
            colon += strspn(colon, ": \t");
            colon[strcspn(colon, "\n")] = 0;
            snprintf(out, n, "%s", colon);
            break;
        }
    }
    if (f) {
        fclose(f);
    }
}

unsigned plat_cores(unsigned *fast)
{
    long v = sysconf(_SC_NPROCESSORS_ONLN);
    *fast = v > 0 ? (unsigned)v : 1;
    return *fast;
}

void plat_exe(char *out, size_t n)
{
    ssize_t k = readlink("/proc/self/exe", out, n - 1);
    out[k > 0 ? k : 0] = 0;
}

int plat_home(struct buf *out, struct err *e)
{
    const char *own = getenv("SHOAL_HOME"), *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int r;
    if (own && *own) {
        r = buf_adds(out, own);
    } else if (xdg && *xdg == '/') {
        r = buf_addf(out, "%s/shoal", xdg);
    } else if (home && *home) {
        r = buf_addf(out, "%s/.local/share/shoal", home);
    } else {
        return err_set(e, ERR_ARG,
                       "neither SHOAL_HOME nor HOME is set: say where data may be kept");
    }
    return r ? err_set(e, r, "the path of the data folder is too long") : 0;
}

enum pressure plat_pressure(void)
{
    return PRESSURE_UNKNOWN; /* what it takes from caches it does not call short */
}

bool plat_has_launchd(void)
{
    return false;
}

const char *plat_bonjour_socket(void)
{
    return "/run/avahi-daemon/socket";
}
