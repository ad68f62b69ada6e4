/* SPDX-License-Identifier: MIT
 * background.h: private to node/store: a thread whose work nobody waits for. */
#ifndef SHOAL_STORE_BACKGROUND_H
#define SHOAL_STORE_BACKGROUND_H

/* The calling thread takes processor and disk only when others leave them, from now on. */
void background_self(void);

#endif
