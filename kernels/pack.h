/* SPDX-License-Identifier: MIT
 * pack.h: bf16 values in about two thirds of their bytes, without loss.
 *
 * Trained weights use few exponents: three of them cover three quarters of the values, eleven
 * nearly all, while sign and mantissa are as good as random. So sign and mantissa stay as they are,
 * one byte for each value, and the exponent becomes a code: two bits for the three most frequent
 * exponents of a block and for "another"; three bits more for the eight next ones; what is rarer
 * still is listed with its place. For normally distributed weights this is 0.68 of the bytes,
 * against 0.66 of an ideal entropy coder, and it decodes by table look-ups in vectors, no bit at a
 * time.
 *
 * Layout, little-endian: a u16 for each block of 4096 values (the last may be shorter), its bytes;
 * then the blocks. A block is
 *   u8 0, values as they are (u16)                                          or
 *   u8 1, u8 top[3], u8 next[8], u16 others, u16 patches, u8 0: 17 bytes;
 *   a byte for each value: its mantissa << 1 | sign;
 *   first codes, four in a byte from the low bits up (0..2: top[code]; 3: the next second code);
 *   second codes, 3 bits each from the low bits up (next[code]), `others` of them;
 *   `patches` times u16 place, u8 exponent, places ascending: the exponent there is this one.
 * Unused bits are 0. The packed form of given values is one and the same on every machine.
 *
 * No allocation, no I/O, no state; any thread. Needs 5 KiB of stack. */
#ifndef SHOAL_KERNELS_PACK_H
#define SHOAL_KERNELS_PACK_H

#include "kernels/cpu.h"

#include <stddef.h>
#include <stdint.h>

#define KERN_PACK_BLOCK 4096 /* values */

/* The most bytes that n values can take. 0: n is too large for this machine. */
size_t kern_pack_bound(size_t n);

/* Packs n values (host order) into out[0 .. kern_pack_bound(n)); returns the bytes used. */
size_t kern_pack(const uint16_t *v, size_t n, uint8_t *out);

/* Unpacks `count` of the n values packed in p[0 .. size), from value `first` on, which is a
 * multiple of KERN_PACK_BLOCK, into v[0 .. count) (host order). Whatever p holds, nothing beyond
 * the two ranges is touched, and a part is unpacked as it would be with the whole. Every
 * instruction set gives the same. `isa` is one that kern_isa_available() accepts, not AUTO.
 * KERN_EINVAL: these are not n packed values, or the range is outside of them; v is undefined. */
int kern_unpack(const uint8_t *p, size_t size, size_t n, size_t first, size_t count, uint16_t *v,
                enum kern_isa isa);

#endif
