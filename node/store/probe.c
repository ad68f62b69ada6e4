/* SPDX-License-Identifier: MIT
 * probe.c: see probe.h. */
#include "node/store/probe.h"

#include "node/store/http_head.h"
#include "node/store/http_net.h"
#include "node/store/signed_url.h"
#include "proto/base/buf.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOPS 8
#define TIMEOUT_MS 20000
#define PART ((size_t)4 << 20)
#define HEAD_MAX (256u << 10)
#define INDEX_MAX ((size_t)256 << 10) /* a shard's name stands in its first bytes */

struct get {
    struct http_head head;
    size_t head_bytes, n, most;  /* bytes of the body, and how many are wanted */
    struct buf *body;            /* NULL: counted alone */
    uint64_t asked, first, last; /* clock_ns of the last hop */
    int64_t date;                /* of the first answer */
    int64_t wall;                /* ours, when it came */
    char url[4096];              /* where the answer came from */
};

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct get *g = arg;
    (void)size;
    g->head_bytes += n;
    if (g->head_bytes > HEAD_MAX) {
        return 0;
    }
    http_head_line(&g->head, p, n, (int64_t)time(NULL));
    if (!g->date && g->head.date) {
        g->date = g->head.date;
        g->wall = (int64_t)time(NULL);
    }
    return n;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct get *g = arg;
    (void)size;
    g->last = clock_ns();
    g->first = g->first ? g->first : g->last;
    size_t k = n < g->most - g->n ? n : g->most - g->n;
    if (g->body && buf_add(g->body, p, k)) {
        return 0;
    }
    g->n += k;
    return g->n == g->most ? 0 : n;
}

/* One hop. *to: where it redirects, malloc'ed, or NULL. */
static int hop(const struct probe_opts *o, bool with_token, size_t range, struct get *g, char **to,
               struct err *e)
{
    char why[CURL_ERROR_SIZE] = "", part[64];
    *to = NULL;
    CURL *h = curl_easy_init();
    struct curl_slist *l = h ? curl_slist_append(NULL, "Accept-Encoding: identity") : NULL;
    if (l && with_token && http_same_site(g->url, o->address)) {
        size_t n = strlen(o->token) + 32;
        char *line = malloc(n);
        struct curl_slist *more = NULL;
        if (line) {
            snprintf(line, n, "Authorization: Bearer %s", o->token);
            more = curl_slist_append(l, line);
        }
        free(line);
        if (!more) {
            curl_slist_free_all(l);
            l = NULL;
        }
    }
    if (!l) {
        curl_easy_cleanup(h);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    http_net(h, o->ca_file);
    if (!with_token) {
        http_net_login(h, g->url, o->address);
    }
    curl_easy_setopt(h, CURLOPT_URL, g->url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, l);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, g);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, g);
    if (range) {
        snprintf(part, sizeof part, "0-%zu", range - 1);
        curl_easy_setopt(h, CURLOPT_RANGE, part);
    }
    g->n = 0;
    g->first = 0;
    g->asked = clock_ns();
    CURLcode rc = curl_easy_perform(h);
    int r = 0;
    if (rc && !(rc == CURLE_WRITE_ERROR && g->n == g->most && g->head_bytes <= HEAD_MAX)) {
        http_net_error(h, rc, g->url, why, e);
        r = ERR_NET;
    } else if (g->head.status >= 300 && g->head.status < 400) {
        char *u = NULL;
        curl_easy_getinfo(h, CURLINFO_REDIRECT_URL, &u);
        *to = u ? strdup(u) : NULL;
    }
    g->first = g->first ? g->first : clock_ns();
    g->last = g->last > g->first ? g->last : g->first;
    curl_easy_cleanup(h);
    curl_slist_free_all(l);
    return r;
}

/* GET of a file of the model, by the same rules of redirects as the store's. */
static int get(const struct probe_opts *o, const char *name, bool with_token, size_t range,
               struct get *g, struct err *e)
{
    int r = 0;
    if (snprintf(g->url, sizeof g->url, "%s/%s", o->address, name) >= (int)sizeof g->url) {
        return err_set(e, ERR_LIMIT, "the address is too long");
    }
    for (int hops = 0; !r; hops++) {
        char *to;
        memset(&g->head, 0, sizeof g->head);
        r = hop(o, with_token, range, g, &to, e);
        if (r || !to) {
            return r;
        }
        bool https = strncasecmp(to, "https://", 8) == 0, http = strncasecmp(to, "http://", 7) == 0;
        if (hops == HOPS) {
            r = err_set(e, ERR_NET, "%s is redirected in a circle", name);
        } else if ((!https && !http) || (http && strncasecmp(g->url, "https://", 8) == 0)) {
            r = err_set(e, ERR_NET,
                        "%s is redirected to an address that is not https: it is not followed",
                        name);
        } else if (strlen(to) >= sizeof g->url) {
            r = err_set(e, ERR_NET, "%s is redirected to an address that is too long", name);
        } else {
            memcpy(g->url, to, strlen(to) + 1);
        }
        free(to);
    }
    return r;
}

/* The first name of a shard in the index. */
static void find_shard(const struct buf *index, char out[208])
{
    const char *end = index->p ? strstr(index->p, ".safetensors\"") : NULL, *p = end;
    while (p && p > index->p && p[-1] != '"') {
        p--;
    }
    size_t n = p ? (size_t)(end - p) + 12 : 0;
    if (n > 12 && n < 208 && !memchr(p, '/', n) && !memchr(p, '\\', n) && !memchr(p, '%', n)) {
        memcpy(out, p, n);
        out[n] = 0;
    }
}

static void probe_shard(const struct probe_opts *o, struct probe *out)
{
    struct get g = {.most = INDEX_MAX};
    struct buf index;
    buf_init(&index, INDEX_MAX + 1);
    g.body = &index;
    int r = get(o, "model.safetensors.index.json", o->token != NULL, 0, &g, &out->why);
    if (!r && g.head.status == 200) {
        find_shard(&index, out->shard);
    }
    buf_free(&index);
    if (r) {
        return;
    }
    if (!*out->shard) {
        err_set(&out->why, ERR_NOTFOUND,
                "no name of a shard is in its model.safetensors.index.json (status %d)",
                g.head.status);
        return;
    }
    g = (struct get){.most = PART};
    if (get(o, out->shard, o->token != NULL, PART, &g, &out->why)) {
        return;
    }
    if (!http_same_site(g.url, o->address)) {
        CURLU *u = curl_url();
        char *host = NULL, *port = NULL;
        if (u && !curl_url_set(u, CURLUPART_URL, g.url, 0)) {
            curl_url_get(u, CURLUPART_HOST, &host, 0);
            curl_url_get(u, CURLUPART_PORT, &port, 0);
        }
        snprintf(out->far, sizeof out->far, "%s%s%s", host ? host : "another host", port ? ":" : "",
                 port ? port : "");
        curl_free(host);
        curl_free(port);
        curl_url_cleanup(u);
        int64_t until = signed_url_expires(g.url);
        int64_t now = g.date ? g.date : (int64_t)time(NULL);
        out->life_s = until > now ? until - now : 0;
    }
    uint64_t total = g.head.total, n = g.head.end + 1;
    bool part = g.head.has_range && !g.head.bad_range && g.head.start == 0 &&
                (n == PART || (total != HTTP_UNKNOWN && n == total));
    out->ranges = g.head.status == 206 && part && !g.head.encoded;
    if (!out->ranges) {
        http_judge(&g.head, 0, PART, HTTP_UNKNOWN, &out->why);
    }
    double s = (double)(g.last - g.asked) * 1e-9;
    out->bytes_s = out->ranges && s > 0 ? (double)g.n / s : 0;
}

int probe_origin(const struct probe_opts *o, struct probe *out, struct err *e)
{
    struct get g = {.most = 1 << 20};
    memset(out, 0, sizeof *out);
    http_net_start();
    int r = get(o, "config.json", o->token != NULL, 0, &g, e);
    if (r) {
        return r;
    }
    out->status = g.head.status;
    out->latency_s = (double)(g.first - g.asked) * 1e-9;
    out->skew_known = g.date != 0;
    out->skew_s = g.date ? g.date - g.wall : 0;
    out->refused = out->status == 401 || out->status == 403;
    if (out->status != 200) {
        http_judge(&g.head, 0, HTTP_UNKNOWN, HTTP_UNKNOWN, &out->why);
        return 0;
    }
    if (o->token) {
        struct get without = {.most = 1 << 20};
        struct err e1 = {0};
        bool open = !get(o, "config.json", false, 0, &without, &e1) && without.head.status == 200;
        out->token = open ? PROBE_TOKEN_NOT_NEEDED : PROBE_TOKEN_NEEDED;
    }
    probe_shard(o, out);
    return 0;
}
