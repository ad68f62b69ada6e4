/* SPDX-License-Identifier: MIT
 * golden_kit.h: the messages of golden/ in C. */
#ifndef SHOAL_TESTS_PEER_GOLDEN_KIT_H
#define SHOAL_TESTS_PEER_GOLDEN_KIT_H

#include "peer/codec.h"

struct golden {
    const char *name; /* of the file, and of the field of Frame */
    void (*make)(Shoal__Frame *f);
};
extern const struct golden golden_all[];
extern const int golden_n;

/* A message in static memory, to be changed at will; valid until it is made again. */
Shoal__Frame golden_made(void (*make)(Shoal__Frame *f));
/* How many raw bytes it comes with. */
uint32_t golden_raw(const Shoal__Frame *f);

void golden_hello(Shoal__Frame *f);
void golden_goodbye(Shoal__Frame *f);
void golden_ping(Shoal__Frame *f);
void golden_pong(Shoal__Frame *f);
void golden_roster(Shoal__Frame *f);
void golden_join(Shoal__Frame *f);
void golden_join_reply(Shoal__Frame *f);
void golden_have(Shoal__Frame *f);
void golden_have_delta(Shoal__Frame *f);
void golden_have_ask(Shoal__Frame *f);
void golden_get(Shoal__Frame *f);
void golden_data(Shoal__Frame *f);
void golden_digests(Shoal__Frame *f);
void golden_credit(Shoal__Frame *f);
void golden_cancel(Shoal__Frame *f);
void golden_refuse(Shoal__Frame *f);
void golden_bad_chunk(Shoal__Frame *f);
void golden_file_get(Shoal__Frame *f);
void golden_file_data(Shoal__Frame *f);
void golden_key_ask(Shoal__Frame *f);
void golden_key_reply(Shoal__Frame *f);
void golden_verify(Shoal__Frame *f);
void golden_verify_reply(Shoal__Frame *f);
void golden_origin_state(Shoal__Frame *f);
void golden_lease_take(Shoal__Frame *f);
void golden_place(Shoal__Frame *f);
void golden_warm(Shoal__Frame *f);
void golden_offer(Shoal__Frame *f);
void golden_kept(Shoal__Frame *f);
void golden_statements(Shoal__Frame *f);
void golden_statements_ask(Shoal__Frame *f);

#endif
