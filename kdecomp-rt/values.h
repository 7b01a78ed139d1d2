/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the decoders of code share: values of 32 bits, and what is known while a page of code is decoded. */
#ifndef KDECOMP_RT_VALUES_H
#define KDECOMP_RT_VALUES_H

#include "symbols.h"

/* The opcode symbol behind which another says which template it is. */
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

/* The values of a kind that came last. */
struct recent {
	uint32_t values[REMEMBERED];
	uint32_t next;
};

static uint32_t remembered(const struct recent *recent, uint32_t age)
{
	return recent->values[(recent->next - 1 - age) % REMEMBERED];
}

/* What decoding an instruction needs to know, besides its page. */
struct code {
	struct stream stream;
	const struct frozen *frozen;
	struct recent recent[2];
	/* The page's address and size, and what is added to that of a branch that leaves it. */
	uint32_t address;
	uint32_t size;
	uint32_t away;
	/* The upper byte of addresses near by. */
	uint32_t high;
	/* What an address in memory has to be increased by for that of the instruction. */
	uint32_t moved;
	/* The last opcode symbol. */
	uint32_t last;
#if FROZEN_ARM
	/* By what a part may depend on: 0, the part before, the register that was written last, the opcode symbol before. */
	uint32_t known[4];
	/* The address of the literal that was read last. */
	uint32_t literal;
#endif
};

/* The next symbol of code of 32-bit ARM in a context of two values, and of other code in one of the first value. */
static inline uint32_t coded(const struct frozen *frozen, struct stream *stream, uint32_t context, uint32_t second)
{
	return IS_ARM(frozen) ? symbol_of_two(stream, context, second) : symbol(stream, context);
}

/* A number of `count` bytes, the highest first. */
static uint32_t number(struct code *code, uint32_t kind, uint32_t shape, uint32_t count)
{
	uint32_t value = 0, bytes = IS_ARM(code->frozen) ? ARM_BYTES : BYTES, i;

	for (i = 0; i < count; i++)
		value = value << 8 | coded(code->frozen, &code->stream, bytes + (kind << 6 | shape << 2 | i), 0);
	return value;
}

/* A value of 32 bits; `end` is the address behind a branch, and with other values that of the page. */
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


/* The most bytes that an opcode symbol and the fields behind it decode to. */
#define LONGEST (TEMPLATE_BYTES + 2 + 4 + 4)

#endif
