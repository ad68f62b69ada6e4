/* SPDX-License-Identifier: MIT
 * token.h: an invite as one line of text that survives copy and paste. Pure functions.
 *
 * "shoal1" and base 32 (peer/b32.h) of: 16 bytes of the group id, 16 secret bytes, the number of
 * addresses, each address, and the first 4 bytes of SHA-256("shoal invite" | all before) as the
 * check. An address is a tag (4: IPv4, 6: IPv6, 128 + n: a name of n characters), its bytes, and
 * the port, little-endian. White space, line breaks, dashes, quotes and zero-width characters may
 * be lost or added on the way, and case may change. */
#ifndef SHOAL_PEER_TOKEN_H
#define SHOAL_PEER_TOKEN_H

#include "peer/crypto.h"

#define TOKEN_GROUP 16
#define TOKEN_SECRET 16
#define TOKEN_ADDRS_MAX 8
#define TOKEN_HOST_MAX 63
#define TOKEN_TEXT_MAX 1024 /* of token_text, with the NUL */
#define TOKEN_INPUT_MAX 8192

struct token_addr {
    char host[TOKEN_HOST_MAX + 1]; /* numeric in the form inet_ntop gives, or a lower-case name */
    uint16_t port;
};

struct token {
    uint8_t group[TOKEN_GROUP]; /* the first bytes of the group's id */
    uint8_t secret[TOKEN_SECRET];
    struct token_addr addrs[TOKEN_ADDRS_MAX];
    size_t addrs_n;
};

/* A new secret and no address. */
int token_make(const struct key_id *group, struct token *out, struct err *e);
/* ERR_ARG for what is no address of another machine (a scope, which means nothing elsewhere; port
 * 0; characters no name has), ERR_LIMIT when there are TOKEN_ADDRS_MAX. One given twice stays one.
 */
int token_add_address(struct token *t, const char *host, uint16_t port, struct err *e);
void token_text(const struct token *t, char out[TOKEN_TEXT_MAX]);
/* The sentence says whether it is no invite at all, of a newer program, or damaged on the way. */
int token_parse(const char *text, size_t n, struct token *out, struct err *e);

#endif
