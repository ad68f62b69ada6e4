/* SPDX-License-Identifier: MIT
 * codec_text.c: see codec.h. Text that peers send, and names and sentences for what they send. */
#include "peer/codec.h"

#include <string.h>

/* Bytes of the UTF-8 character at p (RFC 3629) and its number; 0: it is none, or a control. */
static size_t printable(const uint8_t *p, uint32_t *number)
{
    uint32_t c = *p;
    size_t more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c >= 0x80 && (c < 0xc2 || c > 0xf4)) {
        return 0;
    }
    c = more == 0 ? c : c & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) { /* a NUL, too, ends it here */
            return 0;
        }
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff ||
        (more == 2 && c < 0x800) || (more == 3 && c < 0x10000)) {
        return 0;
    }
    *number = c;
    return more + 1;
}

bool codec_text_ok(const char *s, size_t max)
{
    uint32_t c;
    size_t n = strlen(s), k = 1;
    for (const char *p = s; n <= max && k && *p; p += k) {
        k = printable((const uint8_t *)p, &c);
    }
    return n <= max && k;
}

void codec_clean(const char *in, char *out, size_t max)
{
    size_t n = 0;
    for (const char *p = in ? in : ""; *p;) {
        uint32_t c = 0;
        size_t k = printable((const uint8_t *)p, &c);
        bool shown = k && !(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e) &&
                     !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff && c != 0x61c && c != 0xad;
        if (shown && n + k > max) {
            break;
        }
        if (shown) {
            memcpy(out + n, p, k);
            n += k;
        }
        p += k ? k : 1;
    }
    out[n] = 0;
}

/* ---- names ---- */

const char *codec_kind_name(Shoal__Frame__KindCase kind)
{
    static const char *const names[] = {
        "",
        "Hello",
        "Goodbye",
        "Ping",
        "Pong",
        "Roster",
        "Join",
        "JoinReply",
        "Have",
        "HaveDelta",
        "HaveAsk",
        "Get",
        "Data",
        "Digests",
        "Credit",
        "Cancel",
        "Refuse",
        "BadChunk",
        "FileGet",
        "FileData",
        "KeyAsk",
        "KeyReply",
        [SHOAL__FRAME__KIND_ORIGIN_STATE] = "OriginState",
        [SHOAL__FRAME__KIND_LEASE_TAKE] = "LeaseTake",
        [SHOAL__FRAME__KIND_PLACE] = "Place",
        [SHOAL__FRAME__KIND_WARM] = "Warm",
        [SHOAL__FRAME__KIND_OFFER] = "Offer",
        [SHOAL__FRAME__KIND_KEPT] = "Kept",
        [SHOAL__FRAME__KIND_STATEMENTS] = "Statements",
        [SHOAL__FRAME__KIND_STATEMENTS_ASK] = "StatementsAsk",
        [SHOAL__FRAME__KIND_VERIFY] = "Verify",
        [SHOAL__FRAME__KIND_VERIFY_REPLY] = "VerifyReply",
    };
    size_t k = (size_t)kind;
    return k && k < sizeof names / sizeof *names && names[k] ? names[k]
                                                             : "a message of an unknown kind";
}

static const char *pick(const char *const *t, size_t n, int i, const char *other)
{
    return i > 0 && (size_t)i < n ? t[i] : other;
}

const char *codec_goodbye_text(int reason)
{
    static const char *const t[] = {
        "",
        "the peer is stopping",
        "the peer goes to sleep",
        "another connection to the same peer is kept",
        "a fresh connection takes over",
        "the two programs have no protocol version in common: update the older one",
        "the peer does not know a required feature: update the older program",
        "the peer belongs to another shoal",
        "this node was removed from the shoal",
        "the same identity runs on two machines: give the copy its own home folder",
        "the node reached itself",
        "the peer says that this node broke the protocol",
        "the peer has too many connections",
        "the peer has banned this node for a while: its data did not match its digests",
    };
    return pick(t, sizeof t / sizeof *t, reason, "the peer said goodbye without a known reason");
}

const char *codec_refuse_text(int reason)
{
    static const char *const t[] = {
        "",
        "the peer does not have the object",
        "the peer is busy",
        "a rate limit of the peer is reached",
        "the peer is stopping",
        "the object has no such chunk",
        "the peer's copy is damaged",
        "the deadline cannot be met",
        "the peer has another model",
        "too many requests are open on this connection",
        "the peer does not fetch it from the origin for others",
    };
    return pick(t, sizeof t / sizeof *t, reason, "the peer refused without a known reason");
}

const char *codec_join_text(int result)
{
    static const char *const t[] = {
        "",
        "joined",
        "the invite is not known here: ask for a new one",
        "the invite has expired: ask for a new one",
        "the invite was used already: ask for a new one",
        "joining failed at the peer",
        "the node reached cannot make members: reach one that holds the shoal's key",
        "this node's key was removed from the shoal before",
        "joining failed at the peer",
    };
    return pick(t, sizeof t / sizeof *t, result, "the peer answered without a known result");
}
