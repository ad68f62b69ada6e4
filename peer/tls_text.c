/* SPDX-License-Identifier: MIT
 * tls_text.c: reasons in words (tls_conn.h). Alert numbers: RFC 8446 section 6, RFC 5246 section
 * 7.2. Several numbers mean the same to a person: a node that is not known gets 48 from this
 * program, 41, 46, 49 or 116 from other versions of the library. */
#include "peer/tls_conn.h"

const char *tls_end_text(enum tls_end end)
{
    static const char *const t[] = {
#define TLS_END_TEXT(n, text) text,
        TLS_ENDS(TLS_END_TEXT)
#undef TLS_END_TEXT
    };
    return (size_t)end < sizeof t / sizeof *t ? t[end] : "ended";
}

const char *tls_alert_text(int alert)
{
    switch (alert) {
    case 41:  /* no_certificate (SSL 3 and old libraries) */
    case 42:  /* bad_certificate */
    case 46:  /* certificate_unknown */
    case 48:  /* unknown_ca */
    case 49:  /* access_denied */
    case 116: /* certificate_required */
        return "the peer does not know us: join first";
    case 44: /* certificate_revoked */
        return "the peer's shoal has removed this node";
    case 43: /* unsupported_certificate */
        return "the peer cannot use this node's kind of key";
    case 45: /* certificate_expired */
        return "the peer calls this node's certificate expired, which a shoal never does: is it a "
               "shoal node?";
    case 40: /* handshake_failure */
    case 71: /* insufficient_security */
        return "the peer and this node have no cipher suite in common";
    case 70: /* protocol_version */
        return "the peer and this node have no TLS version in common (1.2 or 1.3 is needed)";
    case 20: /* bad_record_mac */
    case 21: /* decryption_failed */
    case 51: /* decrypt_error */
        return "the peer could not decrypt what it received: the data was changed on the way";
    case 10: /* unexpected_message */
    case 22: /* record_overflow */
    case 47: /* illegal_parameter */
    case 50: /* decode_error */
        return "the peer could not make sense of what this node sent";
    case 80: /* internal_error */
        return "the peer failed inside";
    case 90: /* user_canceled */
        return "the peer gave up";
    default:
        return "the peer refused the connection";
    }
}
