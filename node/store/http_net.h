/* SPDX-License-Identifier: MIT
 * http_net.h: private to node/store: what all uses of libcurl have in common: protocols,
 * certificates, and its errors as sentences. Proxies are libcurl's affair (https_proxy, no_proxy
 * and so on). */
#ifndef SHOAL_STORE_HTTP_NET_H
#define SHOAL_STORE_HTTP_NET_H

#include "proto/base/err.h"

#include <curl/curl.h>
#include <stdbool.h>

/* libcurl's own state, once for the process. Any thread. */
void http_net_start(void);
/* The common options of a handle: http and https alone, no redirects, no signals. ca_file: a file
 * or folder of certificates in place of the system's; NULL: the system's. */
void http_net(CURL *h, const char *ca_file);
/* A user name and password for the address that the user named, from the file that NETRC names,
 * else
 * ~/.netrc: only if nobody else can read it, and only where the request is for that site. */
void http_net_login(CURL *h, const char *url, const char *named);
/* Why a transfer has failed; `why` is its CURLOPT_ERRORBUFFER. True: it will not get better. */
bool http_net_error(CURL *h, CURLcode rc, const char *url, const char *why, struct err *e);
/* Same scheme, host and port. */
bool http_same_site(const char *a, const char *b);

#endif
