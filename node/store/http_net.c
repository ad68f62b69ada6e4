/* SPDX-License-Identifier: MIT
 * http_net.c: see http_net.h. */
#include "node/store/http_net.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static void curl_start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

void http_net_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, curl_start);
}

void http_net(CURL *h, const char *ca_file)
{
    struct stat st;
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "shoal");
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
    if (ca_file) {
        bool folder = stat(ca_file, &st) == 0 && S_ISDIR(st.st_mode);
        curl_easy_setopt(h, folder ? CURLOPT_CAPATH : CURLOPT_CAINFO, ca_file);
    }
}

bool http_same_site(const char *a, const char *b)
{
    static const CURLUPart part[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    CURLU *u = curl_url(), *v = curl_url();
    bool same =
        u && v && !curl_url_set(u, CURLUPART_URL, a, 0) && !curl_url_set(v, CURLUPART_URL, b, 0);
    for (int i = 0; same && i < 3; i++) {
        char *x = NULL, *y = NULL;
        same = !curl_url_get(u, part[i], &x, CURLU_DEFAULT_PORT) &&
               !curl_url_get(v, part[i], &y, CURLU_DEFAULT_PORT) && strcasecmp(x, y) == 0;
        curl_free(x);
        curl_free(y);
    }
    curl_url_cleanup(u);
    curl_url_cleanup(v);
    return same;
}

void http_net_login(CURL *h, const char *url, const char *named)
{
    const char *file = getenv("NETRC"), *home = getenv("HOME");
    char path[4096];
    struct stat st;
    if (!file || !*file) {
        int n = home ? snprintf(path, sizeof path, "%s/.netrc", home) : 0;
        file = n > 0 && (size_t)n < sizeof path ? path : NULL;
    }
    if (file && stat(file, &st) == 0 && S_ISREG(st.st_mode) && !(st.st_mode & 077) &&
        http_same_site(url, named)) {
        curl_easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
        curl_easy_setopt(h, CURLOPT_NETRC_FILE, file);
    }
}

bool http_net_error(CURL *h, CURLcode rc, const char *url, const char *why, struct err *e)
{
    long through = 0; /* what a proxy answered to CONNECT */
    curl_easy_getinfo(h, CURLINFO_HTTP_CONNECTCODE, &through);
    if (through == 407) {
        err_set(e, ERR_NET,
                "the proxy wants a user name and password (status 407): name it as "
                "http://USER:PASSWORD@HOST:PORT in https_proxy");
        return true;
    }
    if (through >= 400 && through < 500) {
        CURLU *u = curl_url();
        char *host = NULL;
        if (u && !curl_url_set(u, CURLUPART_URL, url, 0)) {
            curl_url_get(u, CURLUPART_HOST, &host, 0);
        }
        err_set(
            e, ERR_NET,
            "the proxy of https_proxy refuses to connect to %s (status %ld): allow it there, or "
            "name the host in no_proxy",
            host ? host : "the host", through);
        curl_free(host);
        curl_url_cleanup(u);
        return true;
    }
    err_set(e, ERR_NET, "%s", *why ? why : curl_easy_strerror(rc));
    if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE) {
        err_set(e, ERR_NET,
                "its certificate is not trusted (%s): name a file with that of its authority by "
                "--ca-file",
                *why ? why : curl_easy_strerror(rc));
        return true;
    }
    return rc == CURLE_URL_MALFORMAT;
}
