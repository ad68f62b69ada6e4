/* SPDX-License-Identifier: MIT
 * web_rules.c: see web_rules.h. */
#include "node/api/web_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool web_loopback(const struct sockaddr_storage *sa)
{
    if (sa->ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, sa, sizeof in6);
    return sa->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

/* Is it "localhost", 127.x.x.x or [::1], with or without a port, of n bytes? */
static bool names_loopback(const char *s, size_t n)
{
    char host[64];
    if (n == 0 || n >= sizeof host) {
        return false;
    }
    memcpy(host, s, n);
    host[n] = 0;
    char *end = host[0] == '[' ? strchr(host, ']') : strrchr(host, ':');
    if (host[0] == '[') {
        if (!end || (end[1] && end[1] != ':')) {
            return false;
        }
        *end = 0;
        return !strcmp(host + 1, "::1");
    }
    if (end) {
        if (strspn(end + 1, "0123456789") != strlen(end + 1)) {
            return false;
        }
        *end = 0;
    }
    struct in_addr a;
    return !strcasecmp(host, "localhost") ||
           (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

bool web_host_fine(const char *host, bool has_key)
{
    return !host || has_key || names_loopback(host, strlen(host));
}

bool web_origin_fine(const char *origin, const char *cors)
{
    if (!origin || (cors && (!strcmp(cors, "*") || !strcasecmp(cors, origin)))) {
        return true;
    }
    const char *at = strstr(origin, "://");
    return at && !strchr(at + 3, '/') && names_loopback(at + 3, strlen(at + 3));
}

static bool same(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned char d = n != m;
    for (size_t i = 0; i < m; i++) {
        d |= (unsigned char)(a[n ? i % n : 0] ^ b[i]);
    }
    return d == 0;
}

bool web_key_fine(const char *key, const char *authorization, const char *x_api_key,
                  const char **why)
{
    if (!key) {
        return true;
    }
    const char *given = x_api_key;
    if (authorization && !strncasecmp(authorization, "Bearer ", 7)) {
        given = authorization + 7 + strspn(authorization + 7, " ");
    }
    *why = given ? "the API key is not the one of this node"
                 : "this node asks for an API key: send it as `Authorization: Bearer KEY`";
    return given && same(key, given);
}

bool web_length_fine(const char *v, size_t max)
{
    if (!v) {
        return true;
    }
    return strspn(v, "0123456789") == strlen(v) && strlen(v) < 19 && strtoull(v, NULL, 10) <= max;
}
