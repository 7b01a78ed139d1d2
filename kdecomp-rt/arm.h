/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Decodes instructions of 32-bit ARM, Thumb-2 or ARM code. The packed file defines how they divide into parts. */
#ifndef KDECOMP_RT_ARM_H
#define KDECOMP_RT_ARM_H

#include "values.h"

/* Returns the bits of a branch over a distance, in ARM or in Thumb code. */
static inline uint32_t arm_branch(const struct frozen *frozen, uint32_t distance)
{
	uint32_t sign = distance >> 24 & 1;

	if (frozen->is_arm_code)
		return distance >> 2 & 0xFFFFFF;
	return sign << 10 | (~(distance >> 23 ^ sign) & 1) << 29 | (~(distance >> 22 ^ sign) & 1) << 27 |
	       (distance >> 12 & 0x3FF) | (distance >> 1 & 0x7FF) << 16;
}

/*
 * Decodes an opcode symbol and the parts after it to `out`, which has room for LONGEST bytes. Returns the end of
 * output.
 */
static inline uint8_t *arm_instruction(struct code *code, uint8_t *out)
{
	struct stream *stream = &code->stream;
	const struct frozen *frozen = code->frozen;
	const uint8_t *template, *format;
	uint32_t last = code->last, op = symbol_of_two(stream, ARM_OPCODE + last, code->known[AFTER_OPCODE]);
	uint32_t number = op - 1, desc, part, head, word = 0;
	uint8_t *insn;

	if (op == MORE_TEMPLATES)
		number += symbol_of_two(stream, ARM_MORE + last, code->known[AFTER_OPCODE]);
	code->known[AFTER_OPCODE] = last;
	code->known[AFTER_PART] = 0;
	code->last = op;
	if (number >= frozen->template_count) {
		if (op)
			stream->error = FROZEN_DAMAGED;
		out[0] = (uint8_t)symbol_of_two(stream, ARM_RAW, 0);
		out[1] = (uint8_t)symbol_of_two(stream, ARM_RAW, 0);
		return out + 2;
	}
	template = frozen->templates + TEMPLATE_SIZE * number;
	__builtin_memcpy(out, template, TEMPLATE_BYTES);
	desc = get32(template + TEMPLATE_BYTES);
	out += LENGTH(desc);
	format = frozen->formats + FORMAT_SIZE * FORMAT_NUMBER(desc);
	head = get16(format);
	insn = out - FORMAT_BYTES(head);
	for (format += 2 + 2 * INCLUDED_PARTS(desc); (part = get16(format)) != 0; format += 2) {
		uint32_t context = PART_CONTEXT(part) + op, second = code->known[AFTER(part)], end, found;

		if (part >= PART_OF(ARM_REGISTER)) {
			found = symbol_of_two(stream, context, second);
			code->known[AFTER_PART] = found;
			word |= found << PART_SHIFT(part);
			continue;
		}
		if (part >= PART_OF(ARM_PAIR)) {
			found = symbol_of_two(stream, context, second);
			code->known[AFTER_PART] = found;
			word |= (found & 15) | found >> 4 << PART_SHIFT(part);
			continue;
		}
		end = (uint32_t)(uintptr_t)insn + code->moved + (frozen->is_arm_code ? 8 : 4);
		if (part >= PART_OF(ARM_LITERAL)) {
			code->literal += 4 * symbol_of_two(stream, context, second);
			word |= ((code->literal - (end & ~3u)) >> 2 & 0xFF) << PART_SHIFT(part);
		} else if (part >= PART_OF(ARM_WORD)) {
			word |= value(code, context, second, KIND_WORD, code->address);
		} else {
			found = value(code, context, second, KIND_BRANCH, end);
			if (found - code->address >= code->size)
				end += code->away;
			word |= arm_branch(frozen, found - end);
		}
	}
	word |= head & FORMAT_WIDE ? get32(insn) : get16(insn);
	put32(insn, word);
	if (head & FORMAT_WRITES)
		code->known[AFTER_REGISTER] = word >> FORMAT_SHIFT(head) & (head & FORMAT_WIDE ? 15 : 7);
	return out;
}

#endif
