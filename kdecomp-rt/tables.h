/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Definitions for all files of the decoder: the structure of a packed file, and the contexts of symbols. */
#ifndef KDECOMP_RT_TABLES_H
#define KDECOMP_RT_TABLES_H

#include "decode.h"

/* Machines. The version of the format is twice this number, or 1 more. */
enum {
	MACHINE_I386 = 1, MACHINE_ARM, MACHINE_X86_64
};

/* Whether code is for 32-bit ARM, or for x86-64: a constant in a decoder for only one machine. */
#define FROZEN_X86 (FROZEN_I386 || FROZEN_X86_64)
#define IS_ARM(frozen) (FROZEN_ARM && (!FROZEN_X86 || (frozen)->machine == MACHINE_ARM))
#define IS_X86_64(frozen) (FROZEN_X86_64 && (!(FROZEN_I386 || FROZEN_ARM) || (frozen)->machine == MACHINE_X86_64))

/* The sum of the frequencies of a distribution, a power of two. */
#define TOTAL_BITS 12
#define TOTAL (1u << TOTAL_BITS)

/* Number of codes of frequencies. Code 0 is not a frequency. */
#define CODES 54

/*
 * A record of a class of symbols. Upper 12 bits: the first number of the class; next 12 bits: the distance in bytes
 * from the record to the symbols; lower 8 bits: the code of their frequency. Records are sorted by descending first
 * numbers; the last one has 0. The last record may be the escape: its code is 0, and its middle bits are its frequency
 * less 1. The word after an escape is the offset in bytes of the next records, or 0 without any.
 */
#define FIRST_SHIFT 20
#define FIRST(record) ((record) >> FIRST_SHIFT)
#define SYMBOLS(record) ((record) >> 8 & 0xFFF)
#define CODE(record) ((record) & 0xFF)
#define ESCAPE_FREQUENCY(record) (SYMBOLS(record) + 1)

/*
 * The shift, in fields with contexts of two values. It precedes the records of the first value: 32 less the logarithm
 * of the number of entries before it, or 0 without any.
 */
#define MIN_SHIFT 24
#define MAX_SHIFT 31

/* An entry. Upper bits: its second value; lower bits: the offset of the records, in units of 4 bytes. */
#define VALUE_SHIFT 24
#define OFFSET_BITS 24

/* The index of the entry for a value in the lower byte. Entry 0 directly precedes the shift. */
#define PLACE(value, shift) ((value) * 0x9D000000u >> (shift))

/* The first context of each field. A field has a context for each first value. */
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
	DATA_CONTEXTS = FORM + 256,
	/* Only for x86-64. */
	STEP = DATA_CONTEXTS,
	STEP_BYTES = STEP + 256,
	X86_64_DATA_CONTEXTS = STEP_BYTES + 6
};
/* An entry of the index. Upper bits: the layout of the page; lower bits: the offset of its stream. */
#define INDEX_BITS 28
#define INDEX_MASK ((1u << INDEX_BITS) - 1)

/* The same if pages differ in size. Upper bits: the offset of the stream, in units of 2 bytes; lower bits: the size. */
#define SIZE_BITS 12
#define SIZE_MASK ((1u << SIZE_BITS) - 1)

extern const uint16_t frozen_frequency[CODES];

/* A template: bytes, and a descriptor: the number of valid bytes (8 bits), followers (8 bits), and ModRM (8 bits). */
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

/*
 * In a template of ARM code, the number of the last instruction's format, and the number of its parts among the bytes.
 */
#define FORMAT_NUMBER(desc) ((desc) >> 8 & 0xFF)
#define INCLUDED_PARTS(desc) ((desc) >> 16 & 0xFF)

/*
 * A format: a halfword with the instruction's size and the register that it writes, one halfword for each part, and 0.
 * A part has, from the lowest bit, its position (5 bits), its size less 1 (3), its dependency (2), and its field (6).
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
/* The smallest part of the field whose first context is `first`. Parts of later fields are greater. */
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
