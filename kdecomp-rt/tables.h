/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The seam between the decoder's files: what a packed file consists of, and the symbols of a page. */
#ifndef KDECOMP_RT_TABLES_H
#define KDECOMP_RT_TABLES_H

#include "decode.h"

/* Frequencies of a distribution are of this, a power of two. */
#define TOTAL_BITS 12
#define TOTAL (1u << TOTAL_BITS)

/* Codes of frequencies; code 0 is not used. */
#define CODES 54

/*
 * A distribution is a header, records and symbols. The header is two bytes of 0, then 8 less the logarithm of how many
 * entries stand in front of it (8 if there are none; of a root, 8 if no row is in front of it), then how many records
 * there are.
 */
#define NO_CHILDREN 8
#define SHIFT(node) ((node)[2])
#define RECORDS(node) ((node)[3])

/* In front of a root: for each value, where the distribution is, in units of 4 bytes, 0 if there is none. */
#define ROW 512

/* An entry: above, the value that it is for; below, where the distribution is, in units of 4 bytes. */
#define VALUE_SHIFT 24
#define OFFSET_MASK 0xFFFFFFu

/* The place of the entry for a value, the first one being the last in front of the distribution. */
#define PLACE(value, shift) (((value) * 0x9D & 0xFF) >> (shift))

/* How many fields the layouts have. */
#define CODE_FIELDS 14
#define DATA_FIELDS 3

extern const uint16_t frozen_frequency[CODES];

/* A template: bytes, how many there are, what follows, ModRM, SIB. */
#define TEMPLATE_SIZE 12
#define TEMPLATE_BYTES 8

static inline uint32_t get16(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8;
}

static inline uint32_t get32(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline void put32(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)value;
	at[1] = (uint8_t)(value >> 8);
	at[2] = (uint8_t)(value >> 16);
	at[3] = (uint8_t)(value >> 24);
}

#endif
