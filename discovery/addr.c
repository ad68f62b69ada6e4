/* SPDX-License-Identifier: MIT
 * addr.c: see addr.h. */
#include "discovery/addr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const struct sockaddr_in *v4(const struct sockaddr_storage *a)
{
    return (const struct sockaddr_in *)(const void *)a;
}

static const struct sockaddr_in6 *v6(const struct sockaddr_storage *a)
{
    return (const struct sockaddr_in6 *)(const void *)a;
}

bool addr_copy(struct sockaddr_storage *out, const struct sockaddr *in)
{
    memset(out, 0, sizeof *out);
    if (in->sa_family == AF_INET) {
        memcpy(out, in, sizeof(struct sockaddr_in));
        memset(((struct sockaddr_in *)(void *)out)->sin_zero, 0, 8);
        return true;
    }
    if (in->sa_family != AF_INET6) {
        return false;
    }
    struct sockaddr_in6 s;
    memcpy(&s, in, sizeof s);
    if (IN6_IS_ADDR_V4MAPPED(&s.sin6_addr)) {
        struct sockaddr_in *o = (struct sockaddr_in *)(void *)out;
        o->sin_family = AF_INET;
        o->sin_port = s.sin6_port;
        memcpy(&o->sin_addr, s.sin6_addr.s6_addr + 12, 4);
        return true;
    }
    s.sin6_flowinfo = 0;
    if (!IN6_IS_ADDR_LINKLOCAL(&s.sin6_addr)) {
        s.sin6_scope_id = 0;
    }
    memcpy(out, &s, sizeof s);
    return true;
}

socklen_t addr_len(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

uint16_t addr_port(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET ? v4(a)->sin_port : v6(a)->sin6_port);
}

void addr_set_port(struct sockaddr_storage *a, uint16_t port)
{
    if (a->ss_family == AF_INET) {
        ((struct sockaddr_in *)(void *)a)->sin_port = htons(port);
    } else {
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = htons(port);
    }
}

uint32_t addr_scope(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? v6(a)->sin6_scope_id : 0;
}

bool addr_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b, bool port)
{
    if (a->ss_family != b->ss_family || (port && addr_port(a) != addr_port(b))) {
        return false;
    }
    if (a->ss_family == AF_INET) {
        return v4(a)->sin_addr.s_addr == v4(b)->sin_addr.s_addr;
    }
    return a->ss_family == AF_INET6 && addr_scope(a) == addr_scope(b) &&
           !memcmp(&v6(a)->sin6_addr, &v6(b)->sin6_addr, 16);
}

bool addr_is_linklocal6(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(a)->sin6_addr);
}

bool addr_is_loopback(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET) {
        return ntohl(v4(a)->sin_addr.s_addr) >> 24 == 127;
    }
    return a->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(a)->sin6_addr);
}

bool addr_usable(const struct sockaddr_storage *a)
{
    if ((a->ss_family != AF_INET && a->ss_family != AF_INET6) || addr_port(a) == 0) {
        return false;
    }
    if (a->ss_family == AF_INET) {
        uint32_t h = ntohl(v4(a)->sin_addr.s_addr);
        return h >> 24 != 0 && h >> 28 < 14; /* 0/8, multicast, reserved and broadcast are none */
    }
    const struct in6_addr *h = &v6(a)->sin6_addr;
    return !IN6_IS_ADDR_UNSPECIFIED(h) && !IN6_IS_ADDR_MULTICAST(h) &&
           !(IN6_IS_ADDR_LINKLOCAL(h) && v6(a)->sin6_scope_id == 0);
}

bool addr_in_net(const struct sockaddr_storage *a, const struct sockaddr_storage *net,
                 unsigned bits)
{
    if (a->ss_family != net->ss_family) {
        return false;
    }
    const uint8_t *x, *y;
    unsigned max;
    if (a->ss_family == AF_INET) {
        x = (const uint8_t *)&v4(a)->sin_addr;
        y = (const uint8_t *)&v4(net)->sin_addr;
        max = 32;
    } else {
        if (addr_scope(a) != addr_scope(net)) {
            return false;
        }
        x = v6(a)->sin6_addr.s6_addr;
        y = v6(net)->sin6_addr.s6_addr;
        max = 128;
    }
    bits = bits < max ? bits : max;
    if (memcmp(x, y, bits / 8)) {
        return false;
    }
    unsigned rest = bits % 8;
    return !rest || (x[bits / 8] ^ y[bits / 8]) >> (8 - rest) == 0;
}

void addr_text(const struct sockaddr_storage *a, bool port, char out[DISCO_ADDR_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "?";
    char scope[IF_NAMESIZE + 1] = "";
    if (a->ss_family == AF_INET) {
        inet_ntop(AF_INET, &v4(a)->sin_addr, host, sizeof host);
    } else if (a->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6(a)->sin6_addr, host, sizeof host);
        uint32_t id = v6(a)->sin6_scope_id;
        scope[0] = id ? '%' : 0;
        if (id && !if_indextoname(id, scope + 1)) {
            snprintf(scope, sizeof scope, "%%%u", (unsigned)id);
        }
    }
    if (!port) {
        snprintf(out, DISCO_ADDR_TEXT, "%s%s", host, scope);
    } else if (a->ss_family == AF_INET6) {
        snprintf(out, DISCO_ADDR_TEXT, "[%s%s]:%u", host, scope, addr_port(a));
    } else {
        snprintf(out, DISCO_ADDR_TEXT, "%s:%u", host, addr_port(a));
    }
}

static bool number(const char *s, uint32_t max, uint32_t *out)
{
    uint64_t v = 0;
    size_t n = strlen(s);
    if (n == 0 || n > 10) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    if (v > max) {
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

int addr_split(const char *text, char host[DISCO_HOST_MAX + 1], uint16_t *port, struct err *e)
{
    size_t n = strnlen(text, DISCO_STATIC_TEXT);
    const char *colon = n < DISCO_STATIC_TEXT ? strrchr(text, ':') : NULL;
    uint32_t p = 0;
    if (!colon || colon == text || !number(colon + 1, 65535, &p) || p == 0) {
        return err_set(
            e, ERR_FORMAT,
            "\"%.80s\" is no peer address: write HOST:PORT or [IPV6]:PORT, port 1 to 65535", text);
    }
    const char *from = text, *to = colon;
    if (*from == '[') {
        from++;
        to--;
        if (to <= from || *to != ']') {
            return err_set(e, ERR_FORMAT, "\"%.80s\" lacks the ] of an IPv6 address", text);
        }
    } else if (memchr(from, ':', (size_t)(to - from))) {
        return err_set(e, ERR_FORMAT, "\"%.80s\": write an IPv6 address in brackets, [::1]:4433",
                       text);
    }
    size_t len = (size_t)(to - from);
    if (len == 0 || len > DISCO_HOST_MAX) {
        return err_set(e, ERR_FORMAT, "\"%.80s\" has no usable host name", text);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)from[i] <= ' ' || from[i] == 127 || strchr("[]/\"\\", from[i])) {
            return err_set(e, ERR_FORMAT, "\"%.80s\" has a character that no host name has", text);
        }
    }
    memcpy(host, from, len);
    host[len] = 0;
    *port = (uint16_t)p;
    return 0;
}

int addr_parse(const char *text, struct sockaddr_storage *out)
{
    char host[DISCO_HOST_MAX + 1];
    uint16_t port;
    memset(out, 0, sizeof *out);
    if (addr_split(text, host, &port, NULL)) {
        return ERR_FORMAT;
    }
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (text[0] != '[') {
        if (inet_pton(AF_INET, host, &in.sin_addr) != 1) {
            return ERR_FORMAT;
        }
        addr_copy(out, (const struct sockaddr *)&in);
        return 0;
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    char *scope = strchr(host, '%');
    if (scope) {
        *scope++ = 0;
    }
    if (inet_pton(AF_INET6, host, &in6.sin6_addr) != 1) {
        return ERR_FORMAT;
    }
    if (scope) {
        uint32_t id = 0;
        if (!number(scope, UINT32_MAX, &id)) {
            id = strlen(scope) < IF_NAMESIZE ? if_nametoindex(scope) : 0;
        }
        if (id == 0) {
            return ERR_NOTFOUND;
        }
        in6.sin6_scope_id = id;
    }
    addr_copy(out, (const struct sockaddr *)&in6);
    return 0;
}
