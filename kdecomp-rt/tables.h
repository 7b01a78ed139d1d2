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
 * A record: above, in 12 bits, the first of the numbers that its class has; in 12 bits how many bytes behind the record
 * its symbols begin; below, in 8 bits, the code of the frequency of each. Records stand by falling first numbers; the
 * last one has 0. That may be the escape, which has code 0, and between its frequency less 1; the word behind it says at
 * which offset in bytes the records are that go on, 0 if there are none.
 */
#define FIRST_SHIFT 20
#define FIRST(record) ((record) >> FIRST_SHIFT)
#define SYMBOLS(record) ((record) >> 8 & 0xFFF)
#define CODE(record) ((record) & 0xFF)
#define ESCAPE_FREQUENCY(record) (SYMBOLS(record) + 1)

/*
 * In fields with contexts of two values, what stands in front of the records for the first one: 32 less the logarithm of
 * how many entries stand in front of that, 0 if there are none.
 */
#define MIN_SHIFT 24
#define MAX_SHIFT 31

/* An entry: above, the second value that it is for; below, where the records are, in units of 4 bytes. */
#define VALUE_SHIFT 24
#define OFFSET_BITS 24

/* The place of the entry for a value in the lower byte, the first one being the last in front of the shift. */
#define PLACE(value, shift) ((value) * 0x9D000000u >> (shift))

/* How many values each field's context begins with, one field behind the other: that many contexts. */
enum {
	HEAD = 0,
	OPCODE = HEAD + 1,
	MOD_RM = OPCODE + 256,
	SIB = MOD_RM + 256,
	DISP8 = SIB + 256,
	IMM8 = DISP8 + 256,
	IMM16 = IMM8 + 256,
	REL8 = IMM16 + 2,
	RAW = REL8 + 256,
	BRANCH = RAW + 2,
	DISP32 = BRANCH + 256,
	IMM32 = DISP32 + 256,
	BYTES = IMM32 + 256,
	MORE = BYTES + 81,
	CODE_CONTEXTS = MORE + 256
};
enum {
	TOKEN = 0,
	BYTE = TOKEN + 256,
	FORM = BYTE + 256,
	DATA_CONTEXTS = FORM + 256
};
/* An entry of the index: above, the layout of the page; below, where its stream is. */
#define INDEX_BITS 28
#define INDEX_MASK ((1u << INDEX_BITS) - 1)

/* Where pages have sizes of their own: above, where the stream is, in units of 2 bytes; below, the size. */
#define SIZE_BITS 12
#define SIZE_MASK ((1u << SIZE_BITS) - 1)

extern const uint16_t frozen_frequency[CODES];

/*
 * A template: bytes; and in a word how many there are (8 bits), what follows (8 bits), and ModRM (8 bits).
 */
#define TEMPLATE_SIZE 12
#define TEMPLATE_BYTES 8
#define LENGTH(rest) ((rest) & 0xFF)
#define FOLLOWS(rest) ((rest) & 0xFF00)
#define MOD_RM_FOLLOWS 0x100u
#define SIB_FOLLOWS 0x200u
#define DISPLACEMENT(rest) ((rest) >> 10 & 3)
#define OPERAND(rest) ((rest) >> 12 & 7)
#define OPERAND_MASK 0x7000u
#define ONLY_TEST 0x8000u
#define TEMPLATE_MOD_RM(rest) ((rest) >> 16 & 0xFF)

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
