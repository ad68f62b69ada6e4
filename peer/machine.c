/* SPDX-License-Identifier: MIT
 * machine.c: the id that the system gives this machine; it survives restarts, and a copy of a
 * folder does not take it along. */
#include "peer/identity.h"

#include <stdio.h>
#include <string.h>

#ifdef __APPLE__
#include <time.h>
#include <unistd.h>
#include <uuid/uuid.h>

int machine_id(char *out, size_t cap)
{
    uuid_t u;
    struct timespec wait = {.tv_sec = 1};
    if (gethostuuid(u, &wait) != 0 || cap < 2 * sizeof u + 1) {
        return ERR_NOTFOUND;
    }
    for (size_t i = 0; i < sizeof u; i++) {
        snprintf(out + 2 * i, 3, "%02x", u[i]);
    }
    return 0;
}
#else
int machine_id(char *out, size_t cap)
{
    static const char *const files[] = {"/etc/machine-id", "/var/lib/dbus/machine-id"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(files[i], "re");
        if (!f) {
            continue;
        }
        char line[128];
        char *got = fgets(line, sizeof line, f);
        fclose(f);
        size_t n = got ? strspn(line, "0123456789abcdefABCDEF-") : 0;
        if (n >= 16 && n < cap) { /* shorter: empty, or "uninitialized" of an image */
            memcpy(out, line, n);
            out[n] = 0;
            return 0;
        }
    }
    return ERR_NOTFOUND;
}
#endif
