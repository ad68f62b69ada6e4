/* SPDX-License-Identifier: MIT
 * web_rules.h: private to node/api: who may come in, told by headers alone. Pure functions. */
#ifndef SHOAL_API_WEB_RULES_H
#define SHOAL_API_WEB_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

bool web_loopback(const struct sockaddr_storage *sa);
/* Without a key only names of the loopback are taken: a page in a browser could have made another
 * name lead here (DNS rebinding). NULL: no header (HTTP/1.0). */
bool web_host_fine(const char *host, bool has_key);
/* NULL: no page asks. Pages of this machine's loopback (null origins never) or of `cors`. */
bool web_origin_fine(const char *origin, const char *cors);
/* "Authorization: Bearer KEY" or "x-api-key: KEY"; compared in constant time. key NULL: none asked.
 * *why: a sentence. */
bool web_key_fine(const char *key, const char *authorization, const char *x_api_key,
                  const char **why);
bool web_length_fine(const char *content_length, size_t max);

#endif
