/* SPDX-License-Identifier: MIT
 * networks.c: see networks.h. */
#include "peer/networks.h"
#include "peer/home.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX 32768
#define LINE_MAX_BYTES 120

static const char file[] = "networks";
static const char title[] = "shoal networks 1";

int network_make(const uint8_t *addr, bool v6, unsigned prefix, const uint8_t *gateway,
                 struct network *out, struct err *e)
{
    struct network n = {.v6 = v6};
    size_t bytes = v6 ? 16 : 4;
    if (prefix > bytes * 8) {
        return err_set(e, ERR_ARG, "a prefix of %u bits is longer than the address", prefix);
    }
    n.prefix = (uint8_t)prefix;
    for (size_t i = 0; i < bytes; i++) {
        unsigned keep = prefix >= 8 * (i + 1) ? 8 : prefix > 8 * i ? prefix - 8 * (unsigned)i : 0;
        n.addr[i] = (uint8_t)(addr[i] & (0xff00u >> keep));
    }
    if (gateway) {
        n.has_gateway = true;
        memcpy(n.gateway, gateway, sizeof n.gateway);
    }
    *out = n;
    return 0;
}

bool network_same(const struct network *a, const struct network *b)
{
    return a->v6 == b->v6 && a->prefix == b->prefix &&
           memcmp(a->addr, b->addr, sizeof a->addr) == 0 && a->has_gateway == b->has_gateway &&
           memcmp(a->gateway, b->gateway, sizeof a->gateway) == 0;
}

void network_text(const struct network *n, char out[NETWORK_TEXT])
{
    char ip[INET6_ADDRSTRLEN];
    const uint8_t *g = n->gateway;
    inet_ntop(n->v6 ? AF_INET6 : AF_INET, n->addr, ip, sizeof ip);
    if (n->has_gateway) {
        snprintf(out, NETWORK_TEXT, "%s/%u %02x:%02x:%02x:%02x:%02x:%02x", ip, n->prefix, g[0],
                 g[1], g[2], g[3], g[4], g[5]);
    } else {
        snprintf(out, NETWORK_TEXT, "%s/%u -", ip, n->prefix);
    }
}

static bool parse_gateway(const char *s, struct network *n)
{
    if (strcmp(s, "-") == 0) {
        return true;
    }
    if (strlen(s) != 17) {
        return false;
    }
    for (size_t i = 0; i < 6; i++, s += 3) {
        char two[3] = {s[0], s[1], 0};
        if (strspn(two, "0123456789abcdefABCDEF") != 2 || s[2] != (i < 5 ? ':' : 0)) {
            return false;
        }
        n->gateway[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    n->has_gateway = true;
    return true;
}

int network_parse(const char *text, struct network *out, struct err *e)
{
    char copy[NETWORK_TEXT];
    struct network n = {0};
    uint8_t raw[16];
    size_t len = strlen(text);
    if (len >= sizeof copy) {
        return err_set(e, ERR_FORMAT, "that is too long for a network");
    }
    memcpy(copy, text, len + 1);
    char *slash = strchr(copy, '/'), *space = slash ? strchr(slash, ' ') : NULL;
    if (!space) {
        return err_set(e, ERR_FORMAT,
                       "%s is not a network: it reads like 192.168.1.0/24 "
                       "aa:bb:cc:dd:ee:ff, with - for no gateway",
                       text);
    }
    *slash = *space = 0;
    const char *bits = slash + 1;
    size_t digits = strspn(bits, "0123456789");
    n.v6 = inet_pton(AF_INET6, copy, raw) == 1;
    if ((!n.v6 && inet_pton(AF_INET, copy, raw) != 1) || !digits || digits > 3 || bits[digits] ||
        (digits > 1 && bits[0] == '0') || !parse_gateway(space + 1, &n)) {
        return err_set(e, ERR_FORMAT, "%s is not a network", text);
    }
    int r = network_make(raw, n.v6, (unsigned)strtoul(bits, NULL, 10),
                         n.has_gateway ? n.gateway : NULL, out, e);
    if (!r && memcmp(out->addr, raw, n.v6 ? 16 : 4) != 0) {
        r = err_set(e, ERR_FORMAT, "%s has bits after its prefix", text);
    }
    return r;
}

static int parse_line(const char *line, size_t n, struct network_entry *out)
{
    char copy[LINE_MAX_BYTES];
    if (n >= sizeof copy || memchr(line, 0, n)) {
        return ERR_FORMAT;
    }
    memcpy(copy, line, n);
    copy[n] = 0;
    char *net = strchr(copy, ' '), *when = strrchr(copy, ' ');
    if (!net || when == net) {
        return ERR_FORMAT;
    }
    *net++ = *when++ = 0;
    size_t digits = strspn(when, "0123456789");
    if (!digits || digits > 12 || when[digits] || network_parse(net, &out->net, NULL)) {
        return ERR_FORMAT;
    }
    out->when = strtoull(when, NULL, 10);
    out->why = strcmp(copy, "allow") == 0 ? NETWORK_ALLOW : NETWORK_MET;
    return out->why == NETWORK_MET && strcmp(copy, "met") != 0 ? ERR_FORMAT : 0;
}

static int parse(const char *p, size_t n, struct networks *out, size_t *line)
{
    const char *end = p + n;
    for (*line = 1; p < end; ++*line) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl) {
            return ERR_FORMAT; /* cut short */
        }
        size_t len = (size_t)(nl - p);
        if (*line == 1) {
            if (len != sizeof title - 1 || memcmp(p, title, len) != 0) {
                return ERR_FORMAT;
            }
        } else if (out->n == NETWORKS_MAX || parse_line(p, len, &out->v[out->n])) {
            return ERR_FORMAT;
        } else {
            out->n++;
        }
        p = nl + 1;
    }
    return *line == 1 ? ERR_FORMAT : 0;
}

int networks_load(const char *home, struct networks *out, struct err *e)
{
    struct buf b;
    size_t line;
    out->n = 0;
    if (!home_has(home, file)) {
        return 0;
    }
    buf_init(&b, FILE_MAX);
    int r = home_read(home, file, false, FILE_MAX, &b, e);
    if (!r && parse(b.p ? b.p : "", b.n, out, &line)) {
        out->n = 0;
        r = err_set(e, ERR_FORMAT,
                    "%s/%s, line %zu is malformed: mend it, or delete the file and allow the "
                    "networks again",
                    home, file, line);
    }
    buf_free(&b);
    return r;
}

int networks_save(const char *home, const struct networks *list, struct err *e)
{
    struct buf b;
    buf_init(&b, FILE_MAX);
    int r = buf_addf(&b, "%s\n", title);
    for (size_t i = 0; !r && i < list->n; i++) {
        char net[NETWORK_TEXT];
        network_text(&list->v[i].net, net);
        r = buf_addf(&b, "%s %s %llu\n", list->v[i].why == NETWORK_ALLOW ? "allow" : "met", net,
                     (unsigned long long)list->v[i].when);
    }
    r = r ? err_set(e, r, "cannot write the list of networks: %s", err_text(r))
          : home_write(home, file, b.p, b.n, e);
    buf_free(&b);
    return r;
}

static size_t find(const struct networks *list, const struct network *n)
{
    size_t i = 0;
    while (i < list->n && !network_same(&list->v[i].net, n)) {
        i++;
    }
    return i;
}

bool networks_has(const struct networks *list, const struct network *n)
{
    return find(list, n) < list->n;
}

static bool alike_everywhere(const struct network *n)
{
    bool local = n->v6 ? n->addr[0] == 0xfe && (n->addr[1] & 0xc0) == 0x80
                       : n->addr[0] == 169 && n->addr[1] == 254;
    return local && !n->has_gateway;
}

static void drop(struct networks *list, size_t i)
{
    list->n--;
    memmove(list->v + i, list->v + i + 1, (list->n - i) * sizeof *list->v);
}

int networks_add(struct networks *list, const struct network *n, enum network_why why,
                 uint64_t when, bool *changed, struct err *e)
{
    *changed = false;
    if (why == NETWORK_MET && alike_everywhere(n)) {
        return err_set(e, ERR_REFUSED,
                       "this network has nothing to tell it by (link-local addresses, no gateway): "
                       "only shoal networks allow can add it");
    }
    size_t i = find(list, n);
    if (i < list->n) {
        struct network_entry *x = &list->v[i];
        /* a day is fine enough, and spares a write at each contact */
        *changed = (why == NETWORK_ALLOW && x->why == NETWORK_MET) || when > x->when + 86400;
        x->why = why == NETWORK_ALLOW ? why : x->why;
        x->when = when > x->when ? when : x->when;
        return 0;
    }
    if (list->n == NETWORKS_MAX) {
        size_t oldest = NETWORKS_MAX;
        for (i = 0; i < list->n; i++) {
            if (list->v[i].why == NETWORK_MET &&
                (oldest == NETWORKS_MAX || list->v[i].when < list->v[oldest].when)) {
                oldest = i;
            }
        }
        if (oldest == NETWORKS_MAX) {
            return err_set(e, ERR_LIMIT, "%d networks are allowed already: forget one first",
                           NETWORKS_MAX);
        }
        drop(list, oldest);
    }
    list->v[list->n++] = (struct network_entry){*n, why, when};
    *changed = true;
    return 0;
}

bool networks_forget(struct networks *list, const struct network *n)
{
    size_t i = find(list, n);
    if (i == list->n) {
        return false;
    }
    drop(list, i);
    return true;
}
