/* SPDX-License-Identifier: MIT
 * fuzz_token.c: any text as an invite, as an id and as a network. What is taken must come back from
 * its own text, and what is refused must say why. */
#include "peer/identity.h"
#include "peer/networks.h"
#include "peer/token.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static void as_token(const char *text, size_t n)
{
    struct token t, again;
    char out[TOKEN_TEXT_MAX];
    struct err e = {0};
    int r = token_parse(text, n, &t, &e);
    if (r) {
        check(e.code == r && e.msg[0]);
        return;
    }
    token_text(&t, out);
    check(!token_parse(out, strlen(out), &again, NULL));
    check(t.addrs_n == again.addrs_n && !memcmp(t.secret, again.secret, sizeof t.secret) &&
          !memcmp(t.group, again.group, sizeof t.group));
    for (size_t i = 0; i < t.addrs_n; i++) {
        check(t.addrs[i].port && t.addrs[i].port == again.addrs[i].port &&
              !strcmp(t.addrs[i].host, again.addrs[i].host));
    }
}

/* The check guards all that lies behind it: mend it, so that the fuzzer gets there. */
static void as_payload(const uint8_t *data, size_t size)
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    char buf[12 + 600] = "shoal invite", text[1024] = "shoal1";
    uint8_t d[SHA256_SIZE], all[604];
    if (size > 600) {
        return;
    }
    memcpy(buf + 12, data, size);
    sha256(buf, 12 + size, d);
    memcpy(all, data, size);
    memcpy(all + size, d, 4);
    size_t n = 6, bits = (size + 4) * 8;
    for (size_t i = 0; i < bits; i += 5) {
        unsigned v = 0;
        for (size_t k = i; k < i + 5; k++) {
            v = v << 1 | (k < bits ? all[k / 8] >> (7 - k % 8) & 1u : 0);
        }
        text[n++] = digits[v];
    }
    as_token(text, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct key_id id, same;
    struct network net, net2;
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    as_token(text, size);
    as_payload(data, size);
    if (!id_parse(text, &id, NULL)) {
        char full[ID_TEXT];
        id_text(&id, full);
        check(!id_parse(full, &same, NULL) && id_equal(&id, &same));
    }
    if (!network_parse(text, &net, NULL)) {
        char full[NETWORK_TEXT];
        network_text(&net, full);
        check(!network_parse(full, &net2, NULL));
        struct networks one = {.n = 0};
        bool changed;
        check(!networks_add(&one, &net, NETWORK_ALLOW, 1, &changed, NULL));
        check(networks_has(&one, &net2));
    }
    free(text);
    return 0;
}
