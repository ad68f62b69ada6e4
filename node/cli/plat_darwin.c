/* SPDX-License-Identifier: MIT
 * plat_darwin.c: see plat.h. */
#include "node/cli/plat.h"

#include <mach-o/dyld.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysctl.h>

static uint64_t number(const char *name)
{
    uint64_t v = 0;
    uint32_t v4 = 0;
    size_t n = sizeof v;
    if (!sysctlbyname(name, &v, &n, NULL, 0) && n == sizeof v) {
        return v;
    }
    n = sizeof v4;
    return !sysctlbyname(name, &v4, &n, NULL, 0) && n == sizeof v4 ? v4 : 0;
}

uint64_t plat_memory(void)
{
    return number("hw.memsize");
}

/* The level by which the system asks programs to give memory back: 1, 2, 4. */
enum pressure plat_pressure(void)
{
    switch (number("kern.memorystatus_vm_pressure_level")) {
    case 0:
        return PRESSURE_UNKNOWN;
    case 1:
        return PRESSURE_NONE;
    case 2:
        return PRESSURE_WARN;
    default:
        return PRESSURE_CRITICAL;
    }
}

void plat_cpu(char *out, size_t n)
{
    size_t k = n;
    if (sysctlbyname("machdep.cpu.brand_string", out, &k, NULL, 0)) {
        snprintf(out, n, "%s", "");
    }
}

unsigned plat_cores(unsigned *fast)
{
    uint64_t all = number("hw.logicalcpu"), p = number("hw.perflevel0.logicalcpu");
    *fast = (unsigned)(p ? p : all ? all : 1);
    return (unsigned)(all ? all : 1);
}

void plat_exe(char *out, size_t n)
{
    char raw[PATH_MAX], whole[PATH_MAX];
    uint32_t k = sizeof raw;
    if (_NSGetExecutablePath(raw, &k)) {
        snprintf(out, n, "%s", "");
        return;
    }
    snprintf(out, n, "%s", realpath(raw, whole) ? whole : raw);
}

int plat_home(struct buf *out, struct err *e)
{
    const char *own = getenv("SHOAL_HOME"), *home = getenv("HOME");
    int r;
    if (own && *own) {
        r = buf_adds(out, own);
    } else if (home && *home) {
        r = buf_addf(out, "%s/Library/Application Support/Shoal", home);
    } else {
        return err_set(e, ERR_ARG,
                       "neither SHOAL_HOME nor HOME is set: say where data may be kept");
    }
    return r ? err_set(e, r, "the path of the data folder is too long") : 0;
}

bool plat_has_launchd(void)
{
    return true;
}

const char *plat_bonjour_socket(void)
{
    return "/var/run/mDNSResponder";
}
