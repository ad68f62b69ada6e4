/* SPDX-License-Identifier: MIT
 * fuzz_statement.c: any bytes as a statement. What the parser takes is in its one form: the same
 * objects written again give the same bytes up to the signature. */
#include "peer/statement.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct statement s;
    struct err e = {0};
    int r = statement_parse(data, size, &s, &e);
    if (r) {
        check(r == ERR_FORMAT && e.code == r && e.msg[0]);
        return 0;
    }
    check(s.n >= 1 && s.n <= STATEMENT_OBJECTS_MAX && s.seq);
    check(s.signed_n + 1 + s.sig_n == size);
    struct statement_entry *v = malloc(s.n * sizeof *v);
    struct buf b;
    check(v != NULL);
    for (uint32_t i = 0; i < s.n; i++) {
        statement_get(&s, i, &v[i]);
    }
    buf_init(&b, STATEMENT_BLOB_MAX);
    check(!statement_body(s.pub, s.root, s.seq, v, s.n, &b, &e));
    check(b.n == s.signed_n && memcmp(b.p, data, b.n) == 0);
    buf_free(&b);
    free(v);
    return 0;
}
