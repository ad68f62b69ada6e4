/* SPDX-License-Identifier: MIT
 * files.c: HOME/run/port, the port used last, and HOME/peers, static peers: one "host:port" a line,
 * lines that begin with # are for people. See node_int.h. */
#include "node/daemon/node_int.h"

#include "peer/home.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEERS_MAX (DISCO_STATIC_MAX * DISCO_STATIC_TEXT * 4)

/* Colons in a host are of an IPv6 address, which stands in brackets. */
static bool host_fine(const char *s, const char *end)
{
    bool in = *s == '[';
    size_t n = (size_t)(end - s);
    if (in && (n < 4 || end[-1] != ']')) {
        return false;
    }
    return in ? !memchr(s + 1, '[', n - 1) && !memchr(s, ']', n - 1)
              : !memchr(s, ':', n) && !memchr(s, '[', n) && !memchr(s, ']', n);
}

int files_check_peer(const char *s, struct err *e)
{
    size_t n = strlen(s);
    const char *colon = strrchr(s, ':');
    unsigned port = 0;
    bool fine = colon && colon != s && n < DISCO_STATIC_TEXT && strlen(colon + 1) <= 5 &&
                host_fine(s, colon);
    for (const char *p = fine ? colon + 1 : ""; *p; p++) {
        fine = fine && isdigit((unsigned char)*p);
        port = port * 10 + (unsigned)(*p - '0');
    }
    for (const char *p = s; fine && *p; p++) {
        fine = (unsigned char)*p > ' ' && (unsigned char)*p < 127;
    }
    if (fine && port >= 1 && port <= 65535) {
        return 0;
    }
    char shown[81]; /* a damaged file must not speak to the terminal */
    size_t k = 0;
    for (; k < sizeof shown - 1 && s[k]; k++) {
        shown[k] = (unsigned char)s[k] >= ' ' && (unsigned char)s[k] < 127 ? s[k] : '?';
    }
    shown[k] = 0;
    return err_set(e, ERR_ARG, "\"%s\" is no peer: give HOST:PORT, or [IPv6]:PORT", shown);
}

bool files_add_peer(struct node_files *f, const char *s)
{
    for (size_t i = 0; i < f->n_peers; i++) {
        if (!strcmp(f->peers[i], s)) {
            return false;
        }
    }
    char *c = f->n_peers < DISCO_STATIC_MAX ? strdup(s) : NULL;
    if (c) {
        f->peers[f->n_peers++] = c;
    }
    return c != NULL;
}

static void load_peers(const char *home, struct node_files *f,
                       void (*log)(void *ctx, const char *line), void *ctx)
{
    struct buf b;
    struct err e = {0};
    char line[700];
    buf_init(&b, PEERS_MAX);
    if (home_read(home, "peers", false, PEERS_MAX, &b, &e)) {
        if (log) {
            snprintf(line, sizeof line, "the list of static peers is not used: %s", e.msg);
            log(ctx, line);
        }
        buf_free(&b);
        return;
    }
    char *rest = NULL;
    for (char *l = b.n ? strtok_r(b.p, "\r\n", &rest) : NULL; l;
         l = strtok_r(NULL, "\r\n", &rest)) {
        l += strspn(l, " \t");
        l[strcspn(l, " \t")] = 0;
        if (!*l || *l == '#') {
            continue;
        }
        if (files_check_peer(l, &e)) {
            if (log) {
                snprintf(line, sizeof line, "%s/peers: %.300s; the line is not used", home, e.msg);
                log(ctx, line);
            }
        } else {
            files_add_peer(f, l);
        }
    }
    buf_free(&b);
}

void files_load(const char *home, struct node_files *f, void (*log)(void *ctx, const char *line),
                void *ctx)
{
    struct buf b;
    memset(f, 0, sizeof *f);
    buf_init(&b, 16);
    if (home_has(home, "run/port") && !home_read(home, "run/port", false, 15, &b, NULL) && b.n) {
        char *end;
        long v = strtol(b.p, &end, 10);
        f->port = end != b.p && v >= 1 && v <= 65535 ? (int)v : 0;
    }
    buf_free(&b);
    if (home_has(home, "peers")) {
        load_peers(home, f, log, ctx);
    }
}

void files_free(struct node_files *f)
{
    for (size_t i = 0; i < f->n_peers; i++) {
        free(f->peers[i]);
    }
    memset(f, 0, sizeof *f);
}

int files_save_peers(const char *home, const struct node_files *f, struct err *e)
{
    struct buf b;
    buf_init(&b, PEERS_MAX);
    int r = buf_adds(&b, "# static peers of this node, one HOST:PORT a line\n");
    for (size_t i = 0; !r && i < f->n_peers; i++) {
        r = buf_addf(&b, "%s\n", f->peers[i]);
    }
    r = r ? err_set(e, r, "the list of static peers is too long")
          : home_write(home, "peers", b.p, b.n, e);
    buf_free(&b);
    return r;
}

int files_save_port(const char *home, int port, struct err *e)
{
    char s[16];
    int n = snprintf(s, sizeof s, "%d\n", port);
    return home_write(home, "run/port", s, (size_t)n, e);
}

void files_host_name(char out[WIRE_NAME_MAX + 1])
{
    char s[256] = "";
    if (gethostname(s, sizeof s - 1)) {
        s[0] = 0;
    }
    s[strcspn(s, ".")] = 0;
    snprintf(out, WIRE_NAME_MAX + 1, "%.*s", WIRE_NAME_MAX, s);
}
