/* SPDX-License-Identifier: MIT
 * statement_sign.c: see statement.h: whose word it is. */
#include "peer/crypto.h"
#include "peer/statement.h"

_Static_assert(CRYPTO_SIG_MAX == STATEMENT_SIG_MAX, "signatures fit");

int statement_sign(struct crypto_key *k, const uint8_t root[SHA256_SIZE], uint64_t seq,
                   const struct statement_entry *v, size_t n, struct buf *out, struct err *e)
{
    uint8_t sig[CRYPTO_SIG_MAX], len;
    size_t sig_n = 0;
    out->n = 0;
    int r = statement_body(crypto_key_public(k), root, seq, v, n, out, e);
    r = r ? r : crypto_sign(k, out->p, out->n, sig, &sig_n, e);
    if (r) {
        return r;
    }
    len = (uint8_t)sig_n;
    r = buf_add(out, &len, 1);
    r = r ? r : buf_add(out, sig, sig_n);
    return r ? err_set(e, r, "a statement: %s", err_text(r)) : 0;
}

int statement_open(const void *blob, size_t n, struct statement *out, struct key_id *signer,
                   struct err *e)
{
    int r = statement_parse(blob, n, out, e);
    r = r ? r : crypto_public_check(out->pub, e);
    if (r) {
        return r;
    }
    crypto_key_id(out->pub, signer);
    return crypto_verify(out->pub, blob, out->signed_n, out->sig, out->sig_n, e);
}
