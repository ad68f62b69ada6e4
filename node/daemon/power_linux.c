/* SPDX-License-Identifier: MIT
 * power_linux.c: see power.h: the kernel's power supplies. A machine is on battery when a battery
 * of its own discharges and no mains supply is on line. Whether a network costs is known to the
 * desktop's network manager alone; without one it is not known. */
#include "node/daemon/power.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define SUPPLIES "/sys/class/power_supply"

static bool word(const char *supply, const char *file, char out[32])
{
    char path[400];
    snprintf(path, sizeof path, SUPPLIES "/%s/%s", supply, file);
    FILE *f = fopen(path, "r");
    bool ok = f && fgets(out, 32, f);
    if (f) {
        fclose(f);
    }
    if (ok) {
        out[strcspn(out, "\n")] = 0;
    }
    return ok;
}

void power_read(struct power_reading *out)
{
    memset(out, 0, sizeof *out);
    DIR *d = opendir(SUPPLIES);
    if (!d) {
        return;
    }
    bool mains = false, battery = false;
    struct dirent *x;
    while ((x = readdir(d))) {
        char type[32], v[32];
        if (x->d_name[0] == '.' || !word(x->d_name, "type", type)) {
            continue;
        }
        if (!strcmp(type, "Battery")) { /* of scope Device: a mouse's */
            battery = battery || (!(word(x->d_name, "scope", v) && !strcmp(v, "Device")) &&
                                  word(x->d_name, "status", v) && !strcmp(v, "Discharging"));
        } else {
            mains = mains || (word(x->d_name, "online", v) && v[0] == '1');
        }
    }
    closedir(d);
    out->battery = battery ? POWER_YES : POWER_NO;
    out->outside = mains ? POWER_YES : POWER_NO;
}

void power_now(struct power *out)
{
    struct power_reading r;
    power_read(&r);
    power_judge(&r, out);
}
