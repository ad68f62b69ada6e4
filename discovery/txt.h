/* SPDX-License-Identifier: MIT
 * txt.h: the TXT record of an announcement. Keys, in any order (responders change it):
 *   v  protocol version, decimal, 1..65535
 *   g  short group id      n  short node id      m  short model root, may be absent
 * Short ids: DISCO_ID_MIN..DISCO_ID_MAX characters 0-9 a-z. Unknown keys are ignored, so that later
 * versions may add some; of a key of ours that comes twice, or a value out of range, the whole
 * record is refused. Format of the bytes: RFC 6763, section 6. */
#ifndef SHOAL_DISCOVERY_TXT_H
#define SHOAL_DISCOVERY_TXT_H

#include "discovery/disco.h"

#define TXT_MAX 1024    /* bytes of a record that is read */
#define TXT_OWN_MAX 128 /* bytes of one that txt_make makes */

struct txt {
    unsigned version;
    char group[DISCO_ID_MAX + 1];
    char node[DISCO_ID_MAX + 1];
    char model[DISCO_ID_MAX + 1]; /* empty = none */
};

bool txt_id_ok(const char *s, size_t n);
/* ERR_FORMAT with a sentence for what is not such a record; *out is then unspecified. */
int txt_parse(const void *p, size_t n, struct txt *out, struct err *e);
/* The bytes of a record; ids must be valid. Returns their number. */
size_t txt_make(const struct txt *t, uint8_t out[TXT_OWN_MAX]);

#endif
