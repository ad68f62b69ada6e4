/* SPDX-License-Identifier: MIT
 * place_plain.h: place_compute in its straightforward form, to compare with. */
#ifndef SHOAL_TESTS_PEER_PLACE_PLAIN_H
#define SHOAL_TESTS_PEER_PLACE_PLAIN_H

#include "peer/place.h"

int place_plain(const struct place_in *in, struct place_out *out, struct err *e);

#endif
