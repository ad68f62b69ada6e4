/* SPDX-License-Identifier: MIT
 * fuzz_txt.c: the TXT record of an announcement, which anybody on the LAN may send. What is taken
 * must be within its limits and must come back the same from a record made of it. The bytes are
 * also read as a file of remembered addresses and as an address of a peer. */
#include "discovery/addr.h"
#include "discovery/remember.h"
#include "discovery/txt.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct txt t, again;
    struct err e = {0};
    int r = txt_parse(data, size, &t, &e);
    if (r) {
        check(r == ERR_FORMAT && e.msg[0]);
    } else {
        uint8_t own[TXT_OWN_MAX];
        size_t n = txt_make(&t, own);
        check(t.version >= 1 && t.version <= 65535 && size <= TXT_MAX && n <= sizeof own);
        check(txt_id_ok(t.node, strlen(t.node)) && txt_id_ok(t.group, strlen(t.group)));
        check(!t.model[0] || txt_id_ok(t.model, strlen(t.model)));
        check(!txt_parse(own, n, &again, &e) && !memcmp(&t, &again, sizeof t));
    }

    struct peers *p = malloc(sizeof *p);
    check(p != NULL);
    peers_init(p);
    remember_parse(p, 1, "00000000", (const char *)data, size);
    for (size_t i = 0; i < p->n; i++) {
        check(p->rows[i]->p.n_addrs <= DISCO_ADDRS_MAX);
    }
    peers_free(p);
    free(p);

    char *text = malloc(size + 1);
    struct sockaddr_storage a, b;
    char out[DISCO_ADDR_TEXT];
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    if (!addr_parse(text, &a)) { /* what is read can be written and read again */
        addr_text(&a, true, out);
        check(!addr_parse(out, &b) && addr_same(&a, &b, true));
    }
    free(text);
    return 0;
}
