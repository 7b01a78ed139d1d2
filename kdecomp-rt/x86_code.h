/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Decodes instructions of an i386 and x86-64. */
#ifndef KDECOMP_RT_X86_CODE_H
#define KDECOMP_RT_X86_CODE_H

#include "values.h"

/* Operands of an instruction; one of 8 bytes exists only for x86-64. */
enum {
	NO_OPERAND, OPERAND_IMM8, OPERAND_IMM16, OPERAND_IMM32, OPERAND_REL8, OPERAND_REL32, OPERAND_ADDRESS,
	OPERAND_IMM64
};
/* The size of an operand in bytes: 4 bits for each kind. */
#define OPERAND_SIZE(operand) (0x84414210u >> 4 * (operand) & 15)

/*
 * Returns the distance from the address `end` to a target, which is the same for all copies of the page only within it.
 */
static inline uint32_t distance(const struct code *code, uint32_t target, uint32_t end)
{
	if (target - code->address >= code->size)
		end += code->away;
	return target - end;
}

/*
 * Decodes an opcode symbol and the fields after it to `out`, which has room for LONGEST bytes. Returns the end of
 * output.
 */
static inline uint8_t *x86_instruction(struct code *code, uint8_t *out)
{
	struct stream *stream = &code->stream;
	const uint8_t *template;
	uint32_t last = code->last, op = listed(stream, records(stream, OPCODE + last));
	uint32_t number = op - 1, desc, mod_rm, displacement, found;

	if (op == MORE_TEMPLATES)
		number += symbol(stream, MORE + last);
	code->last = op;
	if (number >= code->frozen->template_count) {
		if (op)
			stream->error = FROZEN_DAMAGED;
		*out = (uint8_t)symbol(stream, RAW);
		return out + 1;
	}
	template = code->frozen->templates + TEMPLATE_SIZE * number;
	put32(out, get32(template));
	put32(out + 4, get32(template + 4));
	desc = get32(template + 8);
	out += LENGTH(desc);
	if (!FOLLOWS(desc))
		return out;
	mod_rm = TEMPLATE_MOD_RM(desc);
	displacement = DISPLACEMENT(desc);
	if (desc & MOD_RM_FOLLOWS) {
		mod_rm = symbol(stream, MOD_RM + op);
		*out++ = (uint8_t)mod_rm;
		if (desc & ONLY_TEST && mod_rm & 0x30)
			desc &= ~OPERAND_MASK;
		desc &= ~SIB_FOLLOWS;
		displacement = mod_rm >> 6;
		if ((mod_rm & 7) == 4 && displacement < 3)
			desc |= SIB_FOLLOWS;
		else if (mod_rm < 0x40 && (mod_rm & 7) == 5)
			displacement = 2;
	}
	if (desc & SIB_FOLLOWS) {
		uint32_t sib = symbol(stream, SIB + mod_rm);

		*out++ = (uint8_t)sib;
		displacement = mod_rm >> 6;
		if (mod_rm < 0x40 && (sib & 7) == 5)
			displacement = 2;
	}
	if (displacement == 1) {
		*out++ = (uint8_t)symbol(stream, DISP8 + op);
	} else if (displacement == 2) {
		found = value(code, DISP32 + mod_rm, 0, KIND_WORD, code->address);
		if (IS_X86_64(code->frozen) && (mod_rm & 0xC7) == 5)
			found = distance(code, found, (uint32_t)(uintptr_t)out + code->moved + 4 + OPERAND_SIZE(OPERAND(desc)));
		put32(out, found);
		out += 4;
	}
	switch (OPERAND(desc)) {
	case OPERAND_IMM8:
		*out++ = (uint8_t)symbol(stream, IMM8 + op);
		break;
	case OPERAND_REL8:
		*out++ = (uint8_t)symbol(stream, REL8 + op);
		break;
	case OPERAND_IMM16:
		out[1] = (uint8_t)symbol(stream, IMM16);
		out[0] = (uint8_t)symbol(stream, IMM16 + 1);
		out += 2;
		break;
#if FROZEN_X86_64
	case OPERAND_IMM64:
		put32(out, value(code, IMM32 + op, 0, KIND_WORD, code->address));
		out += 4;
#endif
		/* fallthrough */
	case OPERAND_IMM32:
	case OPERAND_ADDRESS:
		put32(out, value(code, IMM32 + op, 0, KIND_WORD, code->address));
		out += 4;
		break;
	case OPERAND_REL32:
		displacement = (uint32_t)(uintptr_t)out + code->moved + 4;
		found = value(code, BRANCH + op, 0, KIND_BRANCH, displacement);
		put32(out, distance(code, found, displacement));
		out += 4;
		break;
	}
	return out;
}

#endif
