/* SPDX-License-Identifier: MIT
 * remember.c: see remember.h. */
#include "discovery/remember.h"

#include "discovery/addr.h"
#include "proto/base/file.h"

#include <string.h>

static const char head[] = "shoal-addresses 1";

static bool seconds(const char *s, size_t n, int64_t *out)
{
    int64_t v = 0;
    if (n == 0 || n > 18) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
        v = v * 10 + (s[i] - '0');
    }
    *out = v;
    return true;
}

static bool take_line(struct peers *t, uint64_t now, const char *own, const char *s, size_t n)
{
    const char *sp1 = memchr(s, ' ', n);
    const char *sp2 = sp1 ? memchr(sp1 + 1, ' ', n - (size_t)(sp1 + 1 - s)) : NULL;
    char node[DISCO_ID_MAX + 1], addr[DISCO_ADDR_TEXT];
    struct sockaddr_storage sa;
    int64_t met;
    if (!sp2 || !txt_id_ok(s, (size_t)(sp1 - s)) || (size_t)(sp2 - sp1 - 1) >= sizeof addr ||
        !seconds(sp2 + 1, n - (size_t)(sp2 + 1 - s), &met)) {
        return false;
    }
    memcpy(node, s, (size_t)(sp1 - s));
    node[sp1 - s] = 0;
    memcpy(addr, sp1 + 1, (size_t)(sp2 - sp1 - 1));
    addr[sp2 - sp1 - 1] = 0;
    if (strlen(addr) != (size_t)(sp2 - sp1 - 1) || addr_parse(addr, &sa) || !addr_usable(&sa) ||
        !strcmp(node, own)) {
        return false;
    }
    peers_remembered(t, now, node, &sa, met);
    return true;
}

size_t remember_parse(struct peers *t, uint64_t now, const char *own, const char *text, size_t n)
{
    size_t skipped = 0, line = 0;
    for (size_t at = 0; at < n; line++) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - (text + at)) : n - at;
        if (line == 0) {
            if (len != sizeof head - 1 || memcmp(text, head, len)) {
                return 1; /* not such a file: nothing of it is used */
            }
        } else if (!nl || !take_line(t, now, own, text + at, len)) {
            skipped++;
        }
        at += len + 1;
    }
    return skipped;
}

int remember_load(struct peers *t, uint64_t now, const char *own, const char *path, size_t *skipped,
                  struct err *e)
{
    struct buf b;
    buf_init(&b, REMEMBER_FILE_MAX);
    *skipped = 0;
    int r = file_read_all(path, &b, e);
    if (!r && b.n) {
        *skipped = remember_parse(t, now, own, b.p, b.n);
    }
    buf_free(&b);
    return r == ERR_NOTFOUND ? 0 : r;
}

int remember_text(const struct peers *t, struct buf *out)
{
    int r = buf_addf(out, "%s\n", head);
    for (size_t i = 0; !r && i < t->n; i++) {
        const struct disco_peer *p = &t->rows[i]->p;
        for (size_t k = 0; !r && k < p->n_addrs && p->node[0]; k++) {
            const struct disco_addr *a = &p->addrs[k];
            size_t later = 0;
            for (size_t j = 0; j < p->n_addrs; j++) {
                later += p->addrs[j].met_unix > a->met_unix;
            }
            if (a->sources & DISCO_REMEMBERED && later < REMEMBER_PER_NODE) {
                r = buf_addf(out, "%s %s %lld\n", p->node, a->text, (long long)a->met_unix);
            }
        }
    }
    return r;
}
