/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Definitions for the decoders of code: values of 32 bits, and the state of decoding a page of code. */
#ifndef KDECOMP_RT_VALUES_H
#define KDECOMP_RT_VALUES_H

#include "symbols.h"

/* The opcode symbol that a symbol with the number of a template follows. */
#define MORE_TEMPLATES 255

/* Kinds of values, forms of values. */
enum {
	KIND_BRANCH, KIND_WORD
};
#define FORM_RECENT 128
#define FORM_BYTE 144
#define FORM_HALF 145
#define FORM_NEAR 146
#define FORM_FULL 147
#define FORM_STEP 148
#define REMEMBERED 16
#define HIGH 0xFF000000u

/* The most recent values of a kind. */
struct recent {
	uint32_t values[REMEMBERED];
	uint32_t next;
};

static uint32_t remembered(const struct recent *recent, uint32_t age)
{
	return recent->values[(recent->next - 1 - age) % REMEMBERED];
}

/* The state of decoding a page of code. */
struct code {
	struct stream stream;
	const struct frozen *frozen;
	struct recent recent[2];
	/* The page's address and size, and the distance from there to the address where it runs. */
	uint32_t address;
	uint32_t size;
	uint32_t away;
	/* The upper byte of nearby addresses. */
	uint32_t high;
	/* The distance from a position in the output buffer to the address for which it is coded. */
	uint32_t moved;
	/* The last opcode symbol. */
	uint32_t last;
#if FROZEN_ARM
	/*
	 * Indexed by a part's dependency: 0, the previous part, the register written last, the previous opcode symbol.
	 */
	uint32_t known[4];
	/* The address of the literal that was read last. */
	uint32_t literal;
#endif
};

/* Decodes the next symbol: for code of 32-bit ARM in a context of both values, for other code only of the first. */
static inline uint32_t coded(const struct frozen *frozen, struct stream *stream, uint32_t context, uint32_t second)
{
	return IS_ARM(frozen) ? symbol_of_two(stream, context, second) : symbol(stream, context);
}

/* Decodes a number of `count` bytes, highest first. */
static uint32_t number(struct code *code, uint32_t kind, uint32_t shape, uint32_t count)
{
	uint32_t value = 0, bytes = IS_ARM(code->frozen) ? ARM_BYTES : BYTES, i;

	for (i = 0; i < count; i++)
		value = value << 8 | coded(code->frozen, &code->stream, bytes + (kind << 6 | shape << 2 | i), 0);
	return value;
}

/* Decodes a value of 32 bits. `end` is the address after the branch; other values ignore it. */
static uint32_t value(struct code *code, uint32_t context, uint32_t second, uint32_t kind, uint32_t end)
{
	const struct frozen *frozen = code->frozen;
	struct recent *recent = &code->recent[kind];
	uint32_t form = coded(code->frozen, &code->stream, context, second);
	uint32_t found;

	if (form < FORM_RECENT) {
		uint32_t index = grouped(&code->stream, form);

		if (index >= (kind == KIND_BRANCH ? frozen->branch_count : frozen->word_count)) {
			code->stream.error = FROZEN_DAMAGED;
			return 0;
		}
		if (kind == KIND_BRANCH) {
			const uint8_t *at = frozen->branches + 3 * index;

			found = code->high | get16(at) | (uint32_t)at[2] << 16;
		} else {
			found = get32(frozen->words + 4 * index);
		}
	} else if (form < FORM_BYTE) {
		return remembered(recent, form - FORM_RECENT);
	} else if (form == FORM_BYTE) {
		return (uint32_t)(int8_t)number(code, kind, 0, 1);
	} else if (form == FORM_HALF) {
		found = (uint32_t)(int16_t)number(code, kind, 1, 2);
		return kind == KIND_BRANCH ? end + found : found;
	} else if (form == FORM_NEAR) {
		found = code->high | number(code, kind, 2, 3);
	} else if (form == FORM_FULL) {
		found = number(code, kind, 3, 4);
	} else {
		if (form != FORM_STEP)
			code->stream.error = FROZEN_DAMAGED;
		found = remembered(recent, 0) + (uint32_t)(int8_t)number(code, kind, 4, 1);
	}
	recent->values[recent->next++ % REMEMBERED] = found;
	return found;
}


/* Maximum number of bytes to which an opcode symbol and the fields after it decode. */
#define LONGEST (TEMPLATE_BYTES + 2 + 4 + (FROZEN_X86_64 ? 8 : 4))

#endif
