/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The seam between the decoder's files: what a packed file consists of, and the symbols of a page. */
#ifndef KDECOMP_RT_TABLES_H
#define KDECOMP_RT_TABLES_H

#include "decode.h"

/* Whether code is of 32-bit ARM: a constant where there is a decoder for one machine alone. */
#define IS_ARM(frozen) (FROZEN_ARM && (!FROZEN_I386 || (frozen)->is_arm))

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
	ARM_HEAD = 0,
	ARM_OPCODE = ARM_HEAD + 1,
	ARM_MORE = ARM_OPCODE + 256,
	ARM_RAW = ARM_MORE + 256,
	ARM_BYTES = ARM_RAW + 2,
	ARM_BRANCH = ARM_BYTES + 81,
	ARM_WORD = ARM_BRANCH + 256,
	ARM_LITERAL = ARM_WORD + 256,
	ARM_PAIR = ARM_LITERAL + 256,
	ARM_REGISTER = ARM_PAIR + 256,
	ARM_CONTEXTS = ARM_REGISTER + 4 * 256
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
 * A template: bytes; and a word that describes them: how many there are (8 bits), what follows (8 bits), and ModRM (8 bits).
 */
#define TEMPLATE_SIZE 12
#define TEMPLATE_BYTES 8
#define LENGTH(desc) ((desc) & 0xFF)
#define FOLLOWS(desc) ((desc) & 0xFF00)
#define MOD_RM_FOLLOWS 0x100u
#define SIB_FOLLOWS 0x200u
#define DISPLACEMENT(desc) ((desc) >> 10 & 3)
#define OPERAND(desc) ((desc) >> 12 & 7)
#define OPERAND_MASK 0x7000u
#define ONLY_TEST 0x8000u
#define TEMPLATE_MOD_RM(desc) ((desc) >> 16 & 0xFF)

/* Of a template of ARM, the number of the format of its last instruction, and how many parts of that are among the bytes. */
#define FORMAT_NUMBER(desc) ((desc) >> 8 & 0xFF)
#define INCLUDED_PARTS(desc) ((desc) >> 16 & 0xFF)

/*
 * A format: a halfword that says how large the instruction is and which register it writes, one for each part, and 0. Of
 * a part, from the lowest bit: where it is (5 bits), its size less 1 (3), on what it depends (2), its field (6).
 */
#define PARTS 6
#define FORMAT_SIZE (2 * (PARTS + 2))
#define FORMAT_SHIFT(head) ((head) & 31)
#define FORMAT_WRITES 0x20u
#define FORMAT_WIDE 0x40u
#define FORMAT_BYTES(head) ((head) & FORMAT_WIDE ? 4u : 2u)
#define FORMAT_HEAD 0x7Fu
#define PART_SHIFT(part) ((part) & 31)
#define AFTER(part) ((part) >> 8 & 3)
#define AFTER_PART 1
#define AFTER_REGISTER 2
#define AFTER_OPCODE 3
#define PART_FIELD(part) ((part) >> 10)
#define FIRST_FIELD 5
#define FIELDS 13
#define PART_CONTEXT(part) ((PART_FIELD(part) << 8) + (ARM_BRANCH - (FIRST_FIELD << 8)))
/* The least part of the field whose contexts begin with `first`; the parts of all fields behind it are greater. */
#define PART_OF(first) ((FIRST_FIELD + ((first) - ARM_BRANCH) / 256) << 10)

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
