/* SPDX-License-Identifier: MIT
 * ifs.c: see ifs.h. */
#include "discovery/ifs.h"

#include "discovery/addr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ifs_virtual_name(const char *name)
{
    static const char *const prefixes[] = {
        "docker", "br-",    "veth",      "virbr",    "vmnet", "vboxnet", "vnet",
        "tun",    "tap",    "utun",      "wg",       "ppp",   "ipsec",   "gif",
        "stf",    "zt",     "cni",       "flannel",  "cali",  "kube",    "lxc",
        "lxdbr",  "podman", "tailscale", "nordlynx", "dummy", "ifb",     "awdl",
        "llw",    "anpi",   "feth",      "vmenet",   "ap",    "hyperv",  "vethernet",
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        if (!strncmp(name, prefixes[i], n)) {
            /* "ap1" is Apple's access point, "apple0" is nobody's: letters must end there unless
             * the system appends random ones */
            if (strcmp(prefixes[i], "ap") || (name[n] >= '0' && name[n] <= '9')) {
                return true;
            }
        }
    }
    /* macOS numbers the bridges of virtual machines from 100; bridge0 is Thunderbolt. */
    return !strncmp(name, "bridge", 6) && strlen(name) >= 9;
}

static unsigned mask_bits(const uint8_t *p, size_t n)
{
    unsigned bits = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint8_t b = p[i]; b & 0x80; b = (uint8_t)(b << 1)) {
            bits++;
        }
        if (p[i] != 0xff) {
            break;
        }
    }
    return bits;
}

bool ifs_add(struct disco_if *t, size_t *n, size_t max, uint32_t index, const char *name,
             bool loopback, const struct sockaddr_storage *a, unsigned prefix)
{
    struct disco_if *f = NULL;
    for (size_t i = 0; i < *n; i++) {
        if (t[i].index == index) {
            f = &t[i];
        }
    }
    if (!f) {
        if (*n == max) {
            return false;
        }
        f = &t[(*n)++];
        memset(f, 0, sizeof *f);
        f->index = index;
        snprintf(f->name, sizeof f->name, "%s", name);
        f->loopback = loopback;
        f->virtual_if = ifs_virtual_name(name);
    }
    if (f->n_addrs == DISCO_IF_ADDRS_MAX) {
        return false;
    }
    f->addrs[f->n_addrs].sa = *a;
    f->addrs[f->n_addrs++].prefix = prefix;
    return true;
}

static int by_index(const void *a, const void *b)
{
    const struct disco_if *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

size_t ifs_read(struct disco_if *out, size_t max)
{
    uv_interface_address_t *list;
    int count;
    size_t n = 0;
    if (uv_interface_addresses(&list, &count)) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        const uv_interface_address_t *u = &list[i];
        uint32_t index = if_nametoindex(u->name);
        struct sockaddr_storage a;
        if (!index || !addr_copy(&a, (const struct sockaddr *)(const void *)&u->address)) {
            continue;
        }
        addr_set_port(&a, 0);
        const uint8_t *m4 = (const uint8_t *)&u->netmask.netmask4.sin_addr;
        const uint8_t *m6 = u->netmask.netmask6.sin6_addr.s6_addr;
        unsigned bits = a.ss_family == AF_INET ? mask_bits(m4, 4) : mask_bits(m6, 16);
        ifs_add(out, &n, max, index, u->name, u->is_internal != 0, &a, bits);
    }
    uv_free_interface_addresses(list, count);
    qsort(out, n, sizeof *out, by_index);
    return n;
}

bool ifs_same(const struct disco_if *a, const struct disco_if *b)
{
    if (a->index != b->index || strcmp(a->name, b->name) || a->n_addrs != b->n_addrs) {
        return false;
    }
    for (size_t i = 0; i < a->n_addrs; i++) { /* systems list them in a stable order */
        if (!addr_same(&a->addrs[i].sa, &b->addrs[i].sa, false) ||
            a->addrs[i].prefix != b->addrs[i].prefix) {
            return false;
        }
    }
    return true;
}

const struct disco_if *ifs_for(const struct disco_if *t, size_t n, const struct sockaddr_storage *a)
{
    const struct disco_if *best = NULL;
    unsigned bits = 0;
    for (size_t i = 0; i < n; i++) {
        if (addr_scope(a) && addr_scope(a) == t[i].index) {
            return &t[i];
        }
        for (size_t k = 0; k < t[i].n_addrs; k++) {
            if (t[i].addrs[k].prefix > bits &&
                addr_in_net(a, &t[i].addrs[k].sa, t[i].addrs[k].prefix)) {
                best = &t[i];
                bits = t[i].addrs[k].prefix;
            }
        }
    }
    return best;
}

bool ifs_own(const struct disco_if *t, size_t n, const struct sockaddr_storage *a)
{
    if (addr_is_loopback(a)) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < t[i].n_addrs; k++) {
            if (addr_same(a, &t[i].addrs[k].sa, false)) {
                return true;
            }
        }
    }
    return false;
}
