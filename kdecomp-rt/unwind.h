/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Finds the unwind state of an instruction in packed tables (docs/unwind-format.md). Freestanding C11, like decode.h.
 */
#ifndef KDECOMP_RT_UNWIND_H
#define KDECOMP_RT_UNWIND_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

#define UNWIND_REGIONS 3

/* The region has no entries. */
#define UNWIND_NONE 0xFFFFFFFFu

/* Packed tables begin with this, aligned to 4 bytes. All numbers are little-endian; offsets are in bytes, from here. */
struct unwind_tables {
	/* Of each region, the first entry of the index; then, the number of entries. */
	uint32_t regions[UNWIND_REGIONS + 1];
	/* Number of codes. Each state up to the last code's number has one of its own; the last code is for all others. */
	uint32_t code_count;
	/* The index: the distance from the start of the region, and the bit of the stream (32 bits each); the state (16). */
	uint32_t distances;
	uint32_t bits;
	uint32_t states;
	/* For each state, the number of its first successor; then, the successors (16 bits each). */
	uint32_t lists;
	uint32_t successors;
	/*
	 * For each code, the offset of its numbers from the end of these offsets; then, the numbers: how many code words
	 * there are of 1, 2, … bits; and their symbols (16 bits each).
	 */
	uint32_t codes;
	/* Code words and bits, highest bit of each byte first. */
	uint32_t stream;
};

/*
 * Returns the number of the state of the instruction at a distance from the start of a region, which is less than the
 * region's size, or UNWIND_NONE.
 */
uint32_t unwind_state(const struct unwind_tables *tables, uint32_t region, uint32_t distance);

#endif
