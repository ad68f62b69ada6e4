/* SPDX-License-Identifier: MIT
 * fuzz_rules.c: what anybody who reaches the API's port may put into headers: Host, Origin,
 * Content-Length and the key. The input is a line for each. Without a key no name but one of this
 * machine is let in; with one, nobody without it. */
#include "node/api/web_rules.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine) {
        abort();
    }
}

/* Begins as names of the loopback do. */
static bool ours(const char *s)
{
    return !strncasecmp(s, "localhost", 9) || !strncmp(s, "127.", 4) || !strncmp(s, "[::1]", 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char key[] = "sesame-7";
    const char *why = NULL;
    char *text = malloc(size + 1), *line[4] = {"", "", "", ""};
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    char *at = text;
    for (int i = 0; i < 4 && at; i++) {
        line[i] = at;
        at = strchr(at, '\n');
        if (at) {
            *at++ = 0;
        }
    }
    const char *host = line[0], *origin = line[1], *length = line[2], *auth = line[3];
    check(web_host_fine(host, true));
    check(!web_host_fine(host, false) || ours(host));
    const char *site = strstr(origin, "://");
    check(!web_origin_fine(origin, NULL) || (site && ours(site + 3)));
    check(web_origin_fine(origin, origin));
    if (web_length_fine(length, 1000) && *length) {
        char *end;
        unsigned long long v = strtoull(length, &end, 10);
        check(v <= 1000 && end != length);
    }
    check(web_key_fine(NULL, auth, NULL, &why));
    if (web_key_fine(key, auth, NULL, &why)) {
        check(strstr(auth, key) != NULL);
    } else {
        check(why && *why);
    }
    check(web_key_fine(key, NULL, auth, &why) == !strcmp(auth, key));
    free(text);
    return 0;
}
