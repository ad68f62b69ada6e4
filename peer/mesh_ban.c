/* SPDX-License-Identifier: MIT
 * mesh_ban.c: bans across restarts, in the home's file `bans`. See mesh_int.h. One line each after
 * the first:
 *   shoal bans 1
 *   ID(64 hex digits) END COUNT NAME
 * END is in seconds since 1970, because no other clock goes on while the program does not run. A
 * clock that was set wrong makes a ban a day long at most, the longest there is, or ends it. COUNT
 * (1..3) is which ban of that node it is: the next one is longer. The engine (fetch.h) is what
 * decides; the file follows it. */
#include "peer/home.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BANS_MAX 512
#define FILE_MAX 131072
#define LINE_ROOM 200
#define COUNT_MAX 3
#define SLACK_S 5 /* ends that differ by less are one */
#define LONGEST_S (FETCH_BAN_3_NS / FETCH_S)

static const char file[] = "bans";
static const char title[] = "shoal bans 1";

struct ban {
    uint8_t id[SHA256_SIZE];
    uint64_t end; /* wall clock */
    unsigned count;
    char name[FETCH_NAME];
};

struct mesh_bans {
    bool loaded, writing, again;
    size_t n; /* as written last */
    struct ban v[BANS_MAX];
};

/* ---- the file ---- */

static bool number(const char **p, uint64_t max, uint64_t *out)
{
    size_t n = strspn(*p, "0123456789");
    if (!n || n > 12 || (*p)[n] != ' ') {
        return false;
    }
    *out = strtoull(*p, NULL, 10);
    *p += n + 1;
    return *out <= max;
}

static bool parse_line(const char *line, size_t n, struct ban *b)
{
    char copy[LINE_ROOM];
    uint64_t count;
    if (n >= sizeof copy || n < 2 * SHA256_SIZE + 1 || memchr(line, 0, n)) {
        return false;
    }
    memcpy(copy, line, n);
    copy[n] = 0;
    if (strspn(copy, "0123456789abcdef") != 2 * SHA256_SIZE || copy[2 * SHA256_SIZE] != ' ') {
        return false;
    }
    for (size_t i = 0; i < SHA256_SIZE; i++) {
        char two[3] = {copy[2 * i], copy[2 * i + 1], 0};
        b->id[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    const char *p = copy + 2 * SHA256_SIZE + 1;
    if (!number(&p, UINT64_MAX, &b->end) || !number(&p, COUNT_MAX, &count) || !count ||
        strlen(p) >= sizeof b->name) {
        return false;
    }
    b->count = (unsigned)count;
    memcpy(b->name, p, strlen(p) + 1);
    return true;
}

static bool parse(const char *p, size_t n, struct mesh_bans *x)
{
    const char *end = p + n;
    for (size_t line = 1; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = nl ? (size_t)(nl - p) : 0;
        if (!nl) {
            return false; /* cut short */
        }
        if (line == 1 ? len != sizeof title - 1 || memcmp(p, title, len) != 0
                      : x->n == BANS_MAX || !parse_line(p, len, &x->v[x->n++])) {
            return false;
        }
        p = nl + 1;
    }
    return n > 0;
}

/* A file that says nothing usable keeps its bytes under another name. */
static void set_aside(struct mesh *m, const char *why)
{
    char from[HOME_PATH_MAX], to[HOME_PATH_MAX];
    bool moved = !home_path(m->home, file, from, NULL) &&
                 !home_path(m->home, "bans.damaged", to, NULL) && rename(from, to) == 0;
    mesh_log(m, "the bans of an earlier run are lost: %s%s", why,
             moved ? "; the file is kept as bans.damaged" : "");
}

static void read_file(struct mesh *m, struct mesh_bans *x)
{
    struct err e = {0};
    struct buf b;
    if (!home_has(m->home, file)) {
        return;
    }
    buf_init(&b, FILE_MAX);
    if (home_read(m->home, file, false, FILE_MAX, &b, &e)) {
        set_aside(m, e.msg);
    } else if (!parse(b.p ? b.p : "", b.n, x)) {
        x->n = 0;
        set_aside(m, "the file bans is malformed");
    }
    buf_free(&b);
}

static int as_text(const struct mesh_bans *x, struct buf *b)
{
    int r = buf_addf(b, "%s\n", title);
    for (size_t i = 0; !r && i < x->n; i++) {
        const struct ban *v = &x->v[i];
        char hex[2 * SHA256_SIZE + 1];
        sha256_hex(v->id, hex);
        r = buf_addf(b, "%s %llu %u %s\n", hex, (unsigned long long)v->end, v->count, v->name);
    }
    return r;
}

struct ban_work {
    uv_work_t req;
    struct mesh *m;
    struct buf b;
    struct err e;
};

static void write_bans(uv_work_t *w)
{
    struct ban_work *x = w->data;
    home_write(x->m->home, file, x->b.p, x->b.n, &x->e);
}

static void drop_work(struct ban_work *w)
{
    if (w->e.code) {
        mesh_log_once(w->m, "bans will not survive a restart: %s", w->e.msg);
    }
    buf_free(&w->b);
    free(w);
}

static void save(struct mesh *m, bool now);

static void bans_written(uv_work_t *w, int status)
{
    struct ban_work *x = w->data;
    struct mesh *m = x->m;
    (void)status;
    m->bans->writing = false;
    drop_work(x);
    if (m->bans->again) {
        save(m, m->closing);
    }
    mesh_unref(m);
}

static void save(struct mesh *m, bool now)
{
    struct mesh_bans *x = m->bans;
    x->again = x->writing;
    struct ban_work *w = x->writing ? NULL : calloc(1, sizeof *w);
    if (!w) {
        return;
    }
    w->m = m;
    w->req.data = w;
    buf_init(&w->b, FILE_MAX);
    if (as_text(x, &w->b)) {
        err_set(&w->e, ERR_NOMEM, "out of memory");
    } else if (now || uv_queue_work(m->loop, &w->req, write_bans, bans_written)) {
        write_bans(&w->req);
    } else {
        x->writing = true;
        mesh_ref(m);
        return;
    }
    drop_work(w);
}

/* ---- the engine ---- */

static void load(struct mesh *m, struct mesh_bans *x)
{
    uint64_t now = (uint64_t)time(NULL);
    read_file(m, x);
    for (size_t i = 0; i < x->n; i++) {
        const struct ban *v = &x->v[i];
        uint64_t left = v->end > now ? v->end - now : 0;
        left = left < LONGEST_S ? left : LONGEST_S;
        for (unsigned k = 0; left && k < v->count; k++) { /* each call is one more */
            if (fetch_ban(m->fetch, v->id, v->name, left * FETCH_S)) {
                break;
            }
        }
        if (left) {
            char s[ID_SHORT];
            struct key_id id;
            memcpy(id.b, v->id, sizeof id.b);
            id_short(&id, s);
            mesh_log(m, "peer %s is still banned, for another %llu s (shoal peers unban lifts it)",
                     s, (unsigned long long)left);
        }
    }
}

/* The present bans into *v. */
static size_t present(struct mesh *m, struct ban *v)
{
    size_t all = fetch_get_peers(m->fetch, NULL, 0), n = 0;
    struct fetch_peer_stats *s = calloc(all + 1, sizeof *s);
    uint64_t now = (uint64_t)time(NULL);
    size_t got = s ? fetch_get_peers(m->fetch, s, all) : 0;
    for (size_t i = 0; i < got && i < all && n < BANS_MAX; i++) {
        if (!s[i].banned_ns) {
            continue;
        }
        struct ban *b = &v[n++];
        memset(b, 0, sizeof *b);
        memcpy(b->id, s[i].id, sizeof b->id);
        b->end = now + (s[i].banned_ns + FETCH_S - 1) / FETCH_S;
        b->count = s[i].bans < 1 ? 1 : s[i].bans < COUNT_MAX ? s[i].bans : COUNT_MAX;
        snprintf(b->name, sizeof b->name, "%s", s[i].name);
        for (char *c = b->name; *c; c++) {
            *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
        }
    }
    free(s);
    return n;
}

static bool differ(const struct mesh_bans *x, const struct ban *v, size_t n)
{
    if (x->n != n) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        const struct ban *old = NULL;
        for (size_t k = 0; k < x->n && !old; k++) {
            old = memcmp(x->v[k].id, v[i].id, SHA256_SIZE) == 0 ? &x->v[k] : NULL;
        }
        if (!old || old->count != v[i].count || old->end > v[i].end + SLACK_S ||
            v[i].end > old->end + SLACK_S) {
            return true;
        }
    }
    return false;
}

void mesh_bans_look(struct mesh *m, bool now)
{
    struct mesh_bans *x = m->bans;
    if (!m->fetch) {
        return;
    }
    if (!x) {
        x = m->bans = calloc(1, sizeof *x);
    }
    struct ban *v = x ? calloc(BANS_MAX, sizeof *v) : NULL;
    if (!v) {
        return;
    }
    if (!x->loaded) {
        x->loaded = true;
        load(m, x);
    }
    size_t n = present(m, v);
    if (differ(x, v, n)) {
        x->n = n;
        memcpy(x->v, v, n * sizeof *v);
        save(m, now);
    }
    free(v);
}

void mesh_bans_free(struct mesh *m)
{
    free(m->bans);
    m->bans = NULL;
}

/* Without an engine (no model yet) the file alone knows. */
static int forget_on_disk(struct mesh *m, const struct key_id *id)
{
    struct mesh_bans *x = m->bans ? NULL : calloc(1, sizeof *x);
    size_t i = 0;
    if (!x) {
        return ERR_NOTFOUND;
    }
    read_file(m, x);
    while (i < x->n && memcmp(x->v[i].id, id->b, SHA256_SIZE) != 0) {
        i++;
    }
    bool found = i < x->n;
    if (found) {
        x->v[i] = x->v[--x->n];
        m->bans = x;
        save(m, true);
        m->bans = NULL;
    }
    free(x);
    return found ? 0 : ERR_NOTFOUND;
}

int mesh_bans_lift(struct mesh *m, const struct key_id *id)
{
    int r = m->fetch ? fetch_unban(m->fetch, id->b) : forget_on_disk(m, id);
    if (!r) {
        mesh_bans_look(m, true);
    }
    return r;
}
