/* SPDX-License-Identifier: MIT
 * address.c: see address.h. */
#include "node/store/address.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* [*from, *at): what stands before the host's '@'; false: there is none. */
static bool user(const char *url, const char **from, const char **at)
{
    const char *p = !strncasecmp(url, "http://", 7)    ? url + 7
                    : !strncasecmp(url, "https://", 8) ? url + 8
                                                       : NULL;
    *at = NULL;
    for (const char *q = p; q && *q && !strchr("/?#", *q); q++) {
        *at = *q == '@' ? q : *at;
    }
    *from = p;
    return *at != NULL;
}

bool address_has_user(const char *url)
{
    const char *from, *at;
    return user(url, &from, &at);
}

const char *address_shown(const char *url, char *out, size_t cap)
{
    const char *from, *at;
    if (!user(url, &from, &at)) {
        snprintf(out, cap, "%s", url);
        return out;
    }
    const char *colon = memchr(from, ':', (size_t)(at - from));
    int name = (int)((colon ? colon : at) - from);
    snprintf(out, cap, "%.*s%.*s%s%s", (int)(from - url), url, name, from, colon ? ":***" : "", at);
    return out;
}

int address_check(const char *url, struct err *e)
{
    const char *from, *at;
    if (!user(url, &from, &at)) {
        return 0;
    }
    size_t host = strcspn(at + 1, ":/?#");
    char shown[200];
    address_shown(url, shown, sizeof shown);
    return err_set(e, ERR_ARG,
                   "%.150s: everybody on this machine sees a password that stands in an address: "
                   "leave user name and password out, and put the line \"machine %.*s login USER "
                   "password PASSWORD\" into ~/.netrc, which only you may read (chmod 600)",
                   shown, (int)(host < 100 ? host : 100), at + 1);
}
