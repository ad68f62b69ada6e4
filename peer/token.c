/* SPDX-License-Identifier: MIT
 * token.c: see token.h. */
#include "peer/token.h"
#include "peer/b32.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define CHECK 4
#define ADDR_MAX (1 + TOKEN_HOST_MAX + 2)
#define BYTES_MAX (TOKEN_GROUP + TOKEN_SECRET + 1 + TOKEN_ADDRS_MAX * ADDR_MAX + CHECK)

static const char shown[] = "shoal1";
static const char head[] = "sh0a1"; /* "shoal" after b32_clean; the version follows */

_Static_assert(sizeof shown + B32_CHARS(BYTES_MAX) <= TOKEN_TEXT_MAX, "token text too small");

int token_make(const struct key_id *group, struct token *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    memcpy(out->group, group->b, sizeof out->group);
    return crypto_random(out->secret, sizeof out->secret, e);
}

static bool name_ok(const char *s, size_t n)
{
    bool letter = false;
    for (size_t i = 0; i < n; i++) {
        letter = letter || (s[i] >= 'a' && s[i] <= 'z');
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= '0' && s[i] <= '9') && s[i] != '-' &&
            s[i] != '.') {
            return false;
        }
    }
    /* at least one letter: 10.0.0.256 is a mistyped address, not a name */
    return n > 0 && n <= TOKEN_HOST_MAX && letter && s[0] != '.' && s[0] != '-';
}

/* fe80::/10 means something on one link only, and the link has another name on each machine. */
static bool link_local(const uint8_t a[16])
{
    return a[0] == 0xfe && (a[1] & 0xc0) == 0x80;
}

int token_add_address(struct token *t, const char *host, uint16_t port, struct err *e)
{
    struct token_addr a = {.port = port};
    uint8_t raw[16];
    size_t n = strlen(host);
    if (!port || n > TOKEN_HOST_MAX) {
        return err_set(e, ERR_ARG, "%.100s port %u is no address for an invite", host, port);
    }
    if (inet_pton(AF_INET, host, raw) == 1) {
        inet_ntop(AF_INET, raw, a.host, sizeof a.host);
    } else if (inet_pton(AF_INET6, host, raw) == 1 && !link_local(raw)) {
        inet_ntop(AF_INET6, raw, a.host, sizeof a.host);
    } else {
        for (size_t i = 0; i < n; i++) {
            a.host[i] = (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] + 32 : host[i]);
        }
        if (!name_ok(a.host, n)) {
            return err_set(e, ERR_ARG, "%.100s is no address that another machine could use", host);
        }
    }
    for (size_t i = 0; i < t->addrs_n; i++) {
        if (t->addrs[i].port == port && strcmp(t->addrs[i].host, a.host) == 0) {
            return 0;
        }
    }
    if (t->addrs_n == TOKEN_ADDRS_MAX) {
        return err_set(e, ERR_LIMIT, "an invite holds at most %d addresses", TOKEN_ADDRS_MAX);
    }
    t->addrs[t->addrs_n++] = a;
    return 0;
}

static void check_bytes(const uint8_t *p, size_t n, uint8_t out[CHECK])
{
    static const char domain[] = "shoal invite";
    struct sha256 s;
    uint8_t d[SHA256_SIZE];
    sha256_init(&s);
    sha256_add(&s, domain, sizeof domain - 1);
    sha256_add(&s, p, n);
    sha256_done(&s, d);
    memcpy(out, d, CHECK);
}

static size_t put_addr(const struct token_addr *a, uint8_t *p)
{
    size_t n;
    if (inet_pton(AF_INET, a->host, p + 1) == 1) {
        p[0] = 4;
        n = 4;
    } else if (inet_pton(AF_INET6, a->host, p + 1) == 1) {
        p[0] = 6;
        n = 16;
    } else {
        n = strlen(a->host);
        p[0] = (uint8_t)(128 + n);
        memcpy(p + 1, a->host, n);
    }
    p[1 + n] = (uint8_t)a->port;
    p[2 + n] = (uint8_t)(a->port >> 8);
    return n + 3;
}

void token_text(const struct token *t, char out[TOKEN_TEXT_MAX])
{
    uint8_t b[BYTES_MAX];
    size_t n = TOKEN_GROUP + TOKEN_SECRET;
    memcpy(b, t->group, TOKEN_GROUP);
    memcpy(b + TOKEN_GROUP, t->secret, TOKEN_SECRET);
    b[n++] = (uint8_t)t->addrs_n;
    for (size_t i = 0; i < t->addrs_n; i++) {
        n += put_addr(&t->addrs[i], b + n);
    }
    check_bytes(b, n, b + n);
    memcpy(out, shown, sizeof shown - 1);
    b32_encode(b, n + CHECK, out + sizeof shown - 1);
    crypto_wipe(b, sizeof b);
}

/* One address; the bytes used, or 0 when malformed or not in its one form. */
static size_t get_addr(struct token *t, const uint8_t *p, size_t n)
{
    char host[TOKEN_HOST_MAX + 1];
    size_t len = n == 0 ? 0 : p[0] == 4 ? 4 : p[0] == 6 ? 16 : p[0] > 128 ? p[0] - 128u : 0;
    if (!len || len > TOKEN_HOST_MAX || n < len + 3) {
        return 0;
    }
    if (p[0] <= 6) {
        inet_ntop(p[0] == 4 ? AF_INET : AF_INET6, p + 1, host, sizeof host);
    } else {
        memcpy(host, p + 1, len);
        host[len] = 0;
    }
    uint8_t again[ADDR_MAX];
    size_t had = t->addrs_n;
    if (token_add_address(t, host, (uint16_t)(p[1 + len] | p[2 + len] << 8), NULL) ||
        t->addrs_n != had + 1 || put_addr(&t->addrs[had], again) != len + 3 ||
        memcmp(again, p, len + 3) != 0) {
        return 0;
    }
    return len + 3;
}

static int damaged(struct err *e)
{
    return err_set(e, ERR_DIGEST,
                   "the invite was damaged on the way (its check does not fit): copy all of it, "
                   "from shoal1 to its last character");
}

static int parse_clean(const char *s, size_t n, struct token *t, struct err *e)
{
    uint8_t b[BYTES_MAX], want[CHECK];
    size_t len;
    if (n < sizeof head || memcmp(s, head, sizeof head - 1) != 0) {
        return err_set(e, ERR_FORMAT, "that is no invite: an invite begins with shoal1");
    }
    if (s[sizeof head - 1] != '1') {
        return err_set(e, ERR_UNSUPPORTED,
                       "the invite was made by another version of Shoal: use the same here");
    }
    int r = b32_decode(s + sizeof head, n - sizeof head, b, sizeof b, &len);
    if (r || len < TOKEN_GROUP + TOKEN_SECRET + 1 + CHECK) {
        return damaged(e);
    }
    len -= CHECK;
    check_bytes(b, len, want);
    if (memcmp(want, b + len, CHECK) != 0) {
        return damaged(e);
    }
    memcpy(t->group, b, TOKEN_GROUP);
    memcpy(t->secret, b + TOKEN_GROUP, TOKEN_SECRET);
    size_t at = TOKEN_GROUP + TOKEN_SECRET, count = b[at++];
    crypto_wipe(b + TOKEN_GROUP, TOKEN_SECRET);
    for (size_t i = 0; i < count; i++) {
        size_t used = get_addr(t, b + at, len - at);
        if (!used) {
            return err_set(e, ERR_FORMAT, "the invite holds a malformed address: make a new one");
        }
        at += used;
    }
    return at == len ? 0 : err_set(e, ERR_FORMAT, "the invite is malformed: make a new one");
}

int token_parse(const char *text, size_t n, struct token *out, struct err *e)
{
    if (n > TOKEN_INPUT_MAX) {
        return err_set(e, ERR_LIMIT, "that is too long to be an invite");
    }
    struct buf b;
    struct token t = {0};
    buf_init(&b, TOKEN_TEXT_MAX);
    int r = b32_clean("an invite", text, n, &b, e);
    r = r ? r : parse_clean(b.p ? b.p : "", b.n, &t, e);
    if (!r) {
        *out = t;
    }
    if (b.p) {
        crypto_wipe(b.p, b.n);
    }
    buf_free(&b);
    crypto_wipe(&t, sizeof t);
    return r;
}
