/* SPDX-License-Identifier: MIT
 * receipt.c: see receipt.h. */
#include "node/infer/receipt.h"

#include "kernels/backend.h"
#include "proto/base/num.h"

#include <string.h>

static void add_le32(struct sha256 *s, uint32_t v)
{
    uint8_t b[4];
    num_put_le32(b, v);
    sha256_add(s, b, sizeof b);
}

void receipt_begin(struct receipt *r, const uint8_t root[SHA256_SIZE], const char *spine_form,
                   const uint32_t *prompt, size_t n)
{
    static const char title[] = "shoal receipt 1\n";
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, title, sizeof title - 1);
    add_le32(&s, SHOAL_NUMERICS_VERSION);
    sha256_add(&s, root, SHA256_SIZE);
    add_le32(&s, (uint32_t)strlen(spine_form));
    sha256_add(&s, spine_form, strlen(spine_form));
    add_le32(&s, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        add_le32(&s, prompt[i]);
    }
    sha256_done(&s, r->h);
}

void receipt_add(struct receipt *r, const float *logits, size_t n, uint32_t id)
{
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, r->h, sizeof r->h);
    sha256_add(&s, logits, n * sizeof *logits); /* little-endian machines only: state_file.c */
    add_le32(&s, id);
    sha256_done(&s, r->h);
}

void receipt_hex(const struct receipt *r, char out[2 * SHA256_SIZE + 1])
{
    sha256_hex(r->h, out);
}
