// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Decodes a page. An error is remembered and told at the end: until then decoding goes on with anything, and comes to
 * an end because every round of its loops fills at least a byte of the page.
 */
#include "symbols.h"

/* What stands behind an opcode. */
enum {
	NO_OPERAND, OPERAND_IMM8, OPERAND_IMM16, OPERAND_IMM32, OPERAND_REL8, OPERAND_REL32, OPERAND_ADDRESS
};

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

/* Forms of repetitions. */
#define DISTANCES 4
#define FORM_DICTIONARY 128

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
};

/* A number of `count` bytes, the highest first. */
static uint32_t number(struct code *code, uint32_t kind, uint32_t shape, uint32_t count)
{
	uint32_t value = 0, i;

	for (i = 0; i < count; i++)
		value = value << 8 | symbol(&code->stream, BYTES + (kind << 6 | shape << 2 | i));
	return value;
}

/* A value of 32 bits; `end` is the address behind a branch, and with other values that of the page. */
static uint32_t value(struct code *code, uint32_t context, uint32_t kind, uint32_t end)
{
	const struct frozen *frozen = code->frozen;
	struct recent *recent = &code->recent[kind];
	uint32_t form = symbol(&code->stream, context);
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

/* Decodes an opcode symbol and the fields behind it to `out`, which has room for LONGEST bytes. Returns what is behind. */
static inline uint8_t *instruction(struct code *code, uint8_t *out)
{
	struct stream *stream = &code->stream;
	const uint8_t *template;
	uint32_t last = code->last, op = listed(stream, records(stream, OPCODE + last));
	uint32_t number = op - 1, rest, mod_rm, displacement, target;

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
	rest = get32(template + 8);
	out += LENGTH(rest);
	if (!FOLLOWS(rest))
		return out;
	mod_rm = TEMPLATE_MOD_RM(rest);
	displacement = DISPLACEMENT(rest);
	if (rest & MOD_RM_FOLLOWS) {
		mod_rm = symbol(stream, MOD_RM + op);
		*out++ = (uint8_t)mod_rm;
		if (rest & ONLY_TEST && mod_rm & 0x30)
			rest &= ~OPERAND_MASK;
		rest &= ~SIB_FOLLOWS;
		displacement = mod_rm >> 6;
		if ((mod_rm & 7) == 4 && displacement < 3)
			rest |= SIB_FOLLOWS;
		else if (mod_rm < 0x40 && (mod_rm & 7) == 5)
			displacement = 2;
	}
	if (rest & SIB_FOLLOWS) {
		uint32_t sib = symbol(stream, SIB + mod_rm);

		*out++ = (uint8_t)sib;
		displacement = mod_rm >> 6;
		if (mod_rm < 0x40 && (sib & 7) == 5)
			displacement = 2;
	}
	if (displacement == 1) {
		*out++ = (uint8_t)symbol(stream, DISP8 + op);
	} else if (displacement == 2) {
		put32(out, value(code, DISP32 + mod_rm, KIND_WORD, code->address));
		out += 4;
	}
	switch (OPERAND(rest)) {
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
	case OPERAND_IMM32:
	case OPERAND_ADDRESS:
		put32(out, value(code, IMM32 + op, KIND_WORD, code->address));
		out += 4;
		break;
	case OPERAND_REL32:
		displacement = (uint32_t)(uintptr_t)out + code->moved + 4;
		target = value(code, BRANCH + op, KIND_BRANCH, displacement);
		if (target - code->address >= code->size)
			displacement += code->away;
		put32(out, target - displacement);
		out += 4;
		break;
	}
	return out;
}

static int finish(const struct stream *stream)
{
	return stream->error || stream->state != LOW || stream->next != stream->end ? FROZEN_DAMAGED : 0;
}

static int decode_code(const struct frozen *frozen, const struct stream *stream, uint32_t address, uint32_t runs_at,
		       uint8_t *out, uint32_t size)
{
	struct code code = {
		.stream = *stream, .frozen = frozen, .address = address, .size = size, .away = runs_at - address,
		.high = frozen->has_sizes ? frozen->high : address & HIGH,
	};
	uint8_t *end = out + size, *limit = size > LONGEST ? end - LONGEST : out;
	/* For what may straddle the end of the page, which is cut off there. */
	uint8_t last[2 * LONGEST], *straddling = NULL;
	uint32_t head, i;

	code.stream.contexts = frozen->code.contexts;
	code.stream.nodes = frozen->code.nodes;
	code.moved = address - (uint32_t)(uintptr_t)out;
	head = symbol(&code.stream, HEAD);
	if (head > size)
		return FROZEN_DAMAGED;
	for (; head; head--)
		*out++ = (uint8_t)symbol(&code.stream, RAW + 1);
	for (;;) {
		if (out < limit) {
			out = instruction(&code, out);
		} else if (!straddling) {
			straddling = out;
			limit = last + (end - out);
			code.moved += (uint32_t)(out - last);
			out = last;
		} else {
			break;
		}
	}
	for (i = 0; straddling + i < end; i++)
		straddling[i] = last[i];
	return finish(&code.stream);
}

/* Which of four kinds of byte a byte is: 0, other control characters, ASCII, the rest. */
static uint32_t class_of(uint32_t byte)
{
	return (byte > 0) + (byte > 31) + (byte > 127);
}

static int decode_data(const struct frozen *frozen, struct stream *stream, uint8_t *out, uint32_t size)
{
	uint32_t distances[DISTANCES] = { 0 };
	uint32_t before = 0, at = 0;

	stream->contexts = frozen->data.contexts;
	stream->nodes = frozen->data.nodes;
	while (at < size) {
		uint32_t one = at > 0 ? out[at - 1] : 0, two = at > 1 ? out[at - 2] : 0;
		uint32_t kinds = before << 6 | class_of(two) << 4 | class_of(one) << 2 | (at & 3);
		uint32_t token = symbol_of_two(stream, TOKEN + kinds, one);
		uint32_t length = token + 1, form, distance, i;
		const uint8_t *from;

		if (token == 0) {
			out[at] = (uint8_t)symbol_of_two(stream, BYTE + one, two);
			at++;
			before = (before << 1 | 1) & 3;
			continue;
		}
		form = symbol_of_two(stream, FORM + token, at & 3);
		before = before << 1 & 3;
		if (length > size - at)
			return FROZEN_DAMAGED;
		if (form >= FORM_DICTIONARY) {
			uint32_t offset = grouped(stream, form - FORM_DICTIONARY);

			if (offset > frozen->dictionary_size || length > frozen->dictionary_size - offset)
				return FROZEN_DAMAGED;
			from = frozen->dictionary + offset;
		} else {
			uint32_t place = form;

			if (form < DISTANCES) {
				distance = distances[form];
			} else {
				distance = grouped(stream, form - DISTANCES) + 1;
				for (place = 0; place < DISTANCES - 1 && distances[place] != distance;)
					place++;
			}
			if (distance == 0 || distance > at)
				return FROZEN_DAMAGED;
			for (; place; place--)
				distances[place] = distances[place - 1];
			distances[0] = distance;
			from = out + at - distance;
		}
		for (i = 0; i < length; i++)
			out[at++] = *from++;
	}
	return finish(stream);
}

int frozen_place(const struct frozen *frozen, uint32_t page, uint32_t *address)
{
	const uint8_t *segment = frozen->segments;
	uint32_t start, size, i;

	if (page >= frozen->page_count)
		return FROZEN_NO_PAGE;
	/* The last segment whose first page is not behind this one. */
	for (i = 1; i < frozen->segment_count && get32(segment + 12 + 8) <= page; i++)
		segment += 12;
	start = (page - get32(segment + 8)) * frozen->page_size;
	*address = get32(segment) + start;
	if (frozen->has_sizes)
		return (int)(get32(frozen->index + 4 * page) & SIZE_MASK);
	size = get32(segment + 4) - start;
	return (int)(size > frozen->page_size ? frozen->page_size : size);
}

int frozen_page_at(const struct frozen *frozen, uint32_t page, uint32_t runs_at, void *out)
{
	const uint8_t *index = frozen->index + 4 * page;
	uint32_t address, i, layout = 1;
	struct stream stream = { 0 };
	int size = frozen_place(frozen, page, &address), error = 0;

	if (size < 0)
		return size;
	if (frozen->has_sizes) {
		stream.next = frozen->streams + (get32(index) >> SIZE_BITS << 1);
		stream.end = frozen->streams + (get32(index + 4) >> SIZE_BITS << 1);
	} else {
		stream.next = frozen->streams + (get32(index) & INDEX_MASK);
		stream.end = frozen->streams + (get32(index + 4) & INDEX_MASK);
		layout = get32(index) >> INDEX_BITS;
	}
	if (layout == 0) {
		if (stream.end - stream.next != size)
			return FROZEN_DAMAGED;
		for (i = 0; i < (uint32_t)size; i++)
			((uint8_t *)out)[i] = stream.next[i];
		return size;
	}
	if (stream.end - stream.next < 4 || (stream.end - stream.next) & 1)
		return FROZEN_DAMAGED;
	stream.state = get32(stream.next);
	stream.next += 4;
	if (stream.state < LOW)
		return FROZEN_DAMAGED;
	if (layout != 1)
		error = frozen->dictionary ? decode_data(frozen, &stream, out, (uint32_t)size) : FROZEN_DAMAGED;
	else if (frozen->templates)
		error = decode_code(frozen, &stream, address, runs_at, out, (uint32_t)size);
	else
		error = FROZEN_DAMAGED;
	return error ? error : size;
}

int frozen_page(const struct frozen *frozen, uint32_t page, void *out)
{
	uint32_t address;
	int size = frozen_place(frozen, page, &address);

	return size < 0 ? size : frozen_page_at(frozen, page, address, out);
}
