/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Decodes instructions of 32-bit ARM, Thumb-2 or ARM code. How they are cut into parts, the packed file says. */
#ifndef KDECOMP_RT_ARM_H
#define KDECOMP_RT_ARM_H

#include "values.h"

/* The bits of a branch over a distance, in ARM and in Thumb code. */
static inline uint32_t arm_branch(const struct frozen *frozen, uint32_t distance)
{
	uint32_t sign = distance >> 24 & 1;

	if (frozen->is_arm_code)
		return distance >> 2 & 0xFFFFFF;
	return sign << 10 | (~(distance >> 23 ^ sign) & 1) << 29 | (~(distance >> 22 ^ sign) & 1) << 27 |
	       (distance >> 12 & 0x3FF) | (distance >> 1 & 0x7FF) << 16;
}

/* Decodes an opcode symbol and the parts behind it to `out`, which has room for LONGEST bytes. Returns what is behind. */
static inline uint8_t *arm_instruction(struct code *code, uint8_t *out)
{
	struct stream *stream = &code->stream;
	const struct frozen *frozen = code->frozen;
	const uint8_t *template, *format;
	uint32_t last = code->last, op = symbol_of_two(stream, ARM_OPCODE + last, code->before);
	uint32_t number = op - 1, rest, part, head, before = 0, word = 0, here;
	uint8_t *insn;

	if (op == MORE_TEMPLATES)
		number += symbol_of_two(stream, ARM_MORE + last, code->before);
	code->before = last;
	code->last = op;
	if (number >= frozen->template_count) {
		if (op)
			stream->error = FROZEN_DAMAGED;
		out[0] = (uint8_t)symbol_of_two(stream, ARM_RAW, 0);
		out[1] = (uint8_t)symbol_of_two(stream, ARM_RAW, 0);
		return out + 2;
	}
	template = frozen->templates + TEMPLATE_SIZE * number;
	put32(out, get32(template));
	put32(out + 4, get32(template + 4));
	rest = get32(template + 8);
	out += LENGTH(rest);
	format = frozen->formats + FORMAT_SIZE * FORMAT_NUMBER(rest);
	head = get16(format);
	insn = out - FORMAT_BYTES(head);
	here = (uint32_t)(uintptr_t)insn + code->moved + (frozen->is_arm_code ? 8 : 4);
	for (format += 2 + 2 * TOLD(rest); (part = get16(format)) != 0; format += 2) {
		uint32_t context = PART_CONTEXT(part) + op, second = 0, end = here, found;

		if (AFTER(part) == AFTER_PART)
			second = before;
		else if (AFTER(part) == AFTER_REGISTER)
			second = code->written;
		else if (AFTER(part) == AFTER_OPCODE)
			second = code->before;
		if (context < ARM_WORD) {
			found = value(code, context, second, KIND_BRANCH, end);
			if (found - code->address >= code->size)
				end += code->away;
			word |= arm_branch(frozen, found - end);
		} else if (context < ARM_LITERAL) {
			word |= value(code, context, second, KIND_WORD, code->address);
		} else {
			found = symbol_of_two(stream, context, second);
			if (context < ARM_REGISTER) {
				code->literal += 4 * found;
				found = (code->literal - (end & ~3u)) >> 2 & 0xFF;
			} else {
				before = found;
			}
			word |= found << PART_SHIFT(part);
		}
	}
	word |= head & FORMAT_WIDE ? get32(insn) : get16(insn);
	put32(insn, word);
	if (head & FORMAT_WRITES)
		code->written = word >> FORMAT_SHIFT(head) & (head & FORMAT_WIDE ? 15 : 7);
	return out;
}

#endif
