/* SPDX-License-Identifier: MIT
 * Of notify.h, what this project calls: names and types as in Apple's. */
#ifndef SHOAL_STUB_NOTIFY_H
#define SHOAL_STUB_NOTIFY_H

#include <stdint.h>

#define NOTIFY_STATUS_OK 0
uint32_t notify_register_check(const char *name, int *out_token);
uint32_t notify_get_state(int token, uint64_t *state64);
uint32_t notify_cancel(int token);

#endif
