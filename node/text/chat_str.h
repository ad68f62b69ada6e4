/* SPDX-License-Identifier: MIT
 * chat_str.h: private to the renderer: two small questions about strings of a request. */
#ifndef SHOAL_TEXT_CHAT_STR_H
#define SHOAL_TEXT_CHAT_STR_H

#include <stdbool.h>
#include <stddef.h>

/* Nothing but what Python's str.strip removes. s is valid UTF-8. */
bool chat_blank(const char *s, size_t n);

/* A piece of a request fit for an error sentence: whole characters of the beginning, at most 40
 * bytes, control characters and quotes replaced by '?', "..." when cut. Returns out. */
#define CHAT_SHOWN 48
const char *chat_shown(const char *s, size_t n, char out[CHAT_SHOWN]);

#endif
