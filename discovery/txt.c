/* SPDX-License-Identifier: MIT
 * txt.c: see txt.h. */
#include "discovery/txt.h"

#include <stdio.h>
#include <string.h>

bool txt_id_ok(const char *s, size_t n)
{
    if (n < DISCO_ID_MIN || n > DISCO_ID_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z'))) {
            return false;
        }
    }
    return true;
}

static int take_id(char key, const char *v, size_t n, char out[DISCO_ID_MAX + 1], struct err *e)
{
    if (out[0]) {
        return err_set(e, ERR_FORMAT, "TXT key %c comes twice", key);
    }
    if (!txt_id_ok(v, n)) {
        return err_set(e, ERR_FORMAT, "TXT key %c is no short id", key);
    }
    memcpy(out, v, n);
    out[n] = 0;
    return 0;
}

static int take_version(const char *v, size_t n, unsigned *out, struct err *e)
{
    if (*out) {
        return err_set(e, ERR_FORMAT, "TXT key v comes twice");
    }
    unsigned x = 0;
    bool ok = n >= 1 && n <= 5 && v[0] != '0';
    for (size_t i = 0; ok && i < n; i++) {
        ok = v[i] >= '0' && v[i] <= '9';
        x = x * 10 + (unsigned)(v[i] - '0');
    }
    if (!ok || x > 65535) {
        return err_set(e, ERR_FORMAT, "TXT key v is no version from 1 to 65535");
    }
    *out = x;
    return 0;
}

int txt_parse(const void *p, size_t n, struct txt *out, struct err *e)
{
    const char *b = p;
    memset(out, 0, sizeof *out);
    if (n > TXT_MAX) {
        return err_set(e, ERR_FORMAT, "TXT record of %zu bytes, more than %d", n, TXT_MAX);
    }
    for (size_t at = 0; at < n;) {
        size_t len = (uint8_t)b[at++];
        if (len > n - at) {
            return err_set(e, ERR_FORMAT, "TXT record ends inside a string");
        }
        const char *s = b + at;
        at += len;
        /* Keys of ours have one letter and always a value; keys know no case (RFC 6763, 6.4). */
        if (len < 2 || s[1] != '=') {
            continue;
        }
        int r = 0;
        switch (s[0] | 0x20) {
        case 'v':
            r = take_version(s + 2, len - 2, &out->version, e);
            break;
        case 'g':
            r = take_id('g', s + 2, len - 2, out->group, e);
            break;
        case 'n':
            r = take_id('n', s + 2, len - 2, out->node, e);
            break;
        case 'm':
            r = take_id('m', s + 2, len - 2, out->model, e);
            break;
        default:
            break;
        }
        if (r) {
            return r;
        }
    }
    if (!out->version || !out->group[0] || !out->node[0]) {
        return err_set(e, ERR_FORMAT, "TXT record lacks %s",
                       !out->version ? "v" : (!out->group[0] ? "g" : "n"));
    }
    return 0;
}

static size_t put(uint8_t *out, size_t at, char key, const char *v)
{
    size_t n = strlen(v);
    out[at++] = (uint8_t)(n + 2);
    out[at++] = (uint8_t)key;
    out[at++] = '=';
    memcpy(out + at, v, n);
    return at + n;
}

size_t txt_make(const struct txt *t, uint8_t out[TXT_OWN_MAX])
{
    char v[12];
    snprintf(v, sizeof v, "%u", t->version);
    size_t n = put(out, 0, 'v', v);
    n = put(out, n, 'g', t->group);
    n = put(out, n, 'n', t->node);
    return t->model[0] ? put(out, n, 'm', t->model) : n;
}
