/* SPDX-License-Identifier: MIT
 * hub_ask.c: see hub_ask.h. */
#include "node/store/hub_ask.h"

#include "node/store/http_head.h"
#include "node/store/http_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 3
#define HOPS 4
#define WAIT_MS 500
#define WAIT_MAX_MS 10000
#define TIMEOUT_MS 15000
#define HEAD_MAX (256u << 10)

struct answer {
    struct http_head head;
    size_t bytes;
    char code[64]; /* X-Error-Code */
    char *to;      /* where it redirects */
    bool fatal;
};

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct answer *a = arg;
    (void)size;
    a->bytes += n;
    if (a->bytes > HEAD_MAX) {
        return 0;
    }
    http_head_line(&a->head, p, n, (int64_t)time(NULL));
    static const char name[] = "x-error-code:";
    if (n > sizeof name && strncasecmp(p, name, sizeof name - 1) == 0) {
        size_t k = 0;
        for (size_t i = sizeof name - 1; i < n && k + 1 < sizeof a->code; i++) {
            bool letter = (p[i] >= 'A' && p[i] <= 'Z') || (p[i] >= 'a' && p[i] <= 'z');
            if (letter) {
                a->code[k++] = p[i];
            }
        }
        a->code[k] = 0;
    }
    return n;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    (void)p;
    (void)size;
    (void)arg;
    return n; /* HEAD: there is none */
}

static int one(const char *url, const char *token, const char *ca_file, struct answer *a,
               struct err *e)
{
    char why[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    CURL *h = curl_easy_init();
    if (!h) {
        return err_set(e, ERR_NOMEM, "cannot start libcurl");
    }
    http_net(h, ca_file);
    if (token) {
        size_t n = strlen(token) + 32;
        char *line = malloc(n);
        if (line) {
            snprintf(line, n, "Authorization: Bearer %s", token);
            headers = curl_slist_append(NULL, line);
        }
        free(line);
        if (!headers) {
            curl_easy_cleanup(h);
            return err_set(e, ERR_NOMEM, "out of memory");
        }
    }
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, a);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    CURLcode rc = curl_easy_perform(h);
    int r = 0;
    if (a->bytes > HEAD_MAX) {
        a->fatal = true;
        r = err_set(e, ERR_NET, "the head of its answer is too large");
    } else if (rc) {
        a->fatal = http_net_error(h, rc, url, why, e);
        r = ERR_NET;
    } else if (a->head.status >= 300 && a->head.status < 400) {
        char *to = NULL;
        curl_easy_getinfo(h, CURLINFO_REDIRECT_URL, &to);
        a->to = to ? strdup(to) : NULL;
    }
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    return r;
}

static int refused(const struct hub_name *n, const struct answer *a, bool with_token, struct err *e)
{
    int s = a->head.status;
    if (s == 401 || s == 403) {
        return err_set(e, ERR_NET, "it refuses access (status %d%s%s): %s", s, *a->code ? ", " : "",
                       a->code,
                       with_token ? "the token is not valid there, or has not been given access to "
                                    "this model"
                                  : "the model is private, gated or misspelt: name a token by "
                                    "HF_TOKEN, the hub's token file or --token");
    }
    if (s == 404) {
        bool rev = strcmp(a->code, "RevisionNotFound") == 0;
        return err_set(e, ERR_NOTFOUND, "there is no %s%s%s (status 404%s%s)",
                       rev ? "revision " : "", rev ? n->revision : "such model or file",
                       rev ? " of it" : "", *a->code ? ", " : "", a->code);
    }
    return err_set(e, ERR_NET, "it answers with status %d and without a commit", s);
}

static int ask(const struct hub_name *n, const char *first, const char *token, const char *ca_file,
               struct answer *a, struct err *e)
{
    char *url = strdup(first);
    int r = url ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (int hops = 0; !r; hops++) {
        memset(a, 0, sizeof *a);
        r = one(url, token, ca_file, a, e);
        char *to = a->to;
        a->to = NULL;
        if (r || *a->head.commit || !to || hops == HOPS || !http_same_site(to, n->site)) {
            free(to); /* a model that was renamed is found at the same site, or not at all */
            break;
        }
        free(url);
        url = to;
    }
    free(url);
    if (!r && !*a->head.commit) {
        r = refused(n, a, token != NULL, e);
    }
    return r;
}

int hub_ask(const struct hub_name *n, const char *token, const char *ca_file,
            char commit[HUB_COMMIT_MAX], struct err *e)
{
    struct buf url;
    struct answer a = {.fatal = false};
    http_net_start();
    buf_init(&url, 4096);
    int r = hub_address(n, n->revision, &url) || buf_adds(&url, "/config.json")
                ? err_set(e, ERR_LIMIT, "the model's name is too long")
                : 0;
    bool asked = !r;
    for (uint32_t i = 0; !r; i++) {
        r = ask(n, url.p, token, ca_file, &a, e);
        int s = a.head.status;
        bool again = r == ERR_NET && !a.fatal && (s == 0 || s == 408 || s == 429 || s >= 500);
        if (!again || i + 1 == ATTEMPTS) {
            break;
        }
        uint64_t ms = a.head.retry_after_ms ? a.head.retry_after_ms : (uint64_t)WAIT_MS << i;
        if (ms > WAIT_MAX_MS) { /* nobody waits for that without a word, nor asks before it */
            char why[sizeof e->msg];
            memcpy(why, e->msg, sizeof why);
            r = err_set(e, ERR_NET, "%.400s; it asks to come back in %llu s", why,
                        (unsigned long long)(ms / 1000));
            break;
        }
        usleep((useconds_t)ms * 1000);
        r = 0;
    }
    buf_free(&url);
    if (r) {
        if (asked) {
            err_prefix(e, "cannot ask %s which commit %s of %s is", n->site, n->revision, n->repo);
        }
        return r;
    }
    snprintf(commit, HUB_COMMIT_MAX, "%s", a.head.commit);
    return 0;
}
