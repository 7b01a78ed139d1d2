// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Decodes a page. Errors are recorded and reported at the end. Until then, decoding continues with arbitrary values; it
 * ends, because every iteration fills at least one byte of the page.
 */
#include "values.h"
#if FROZEN_ARM
#include "arm.h"
#endif
#if FROZEN_X86
#include "x86_code.h"
#endif

/* Forms of repetitions. */
#define DISTANCES 4
#define FORM_DICTIONARY 128

/* A step of two bytes. One of four bytes is greater. */
#define STEP_HALF 254

static int finish(const struct stream *stream)
{
	return stream->error || stream->state != LOW || stream->next != stream->end ? FROZEN_DAMAGED : 0;
}

/*
 * Decodes an opcode symbol and what follows it to `out`, which has room for LONGEST bytes. Returns the end of output.
 */
static inline uint8_t *instruction(struct code *code, uint8_t *out)
{
#if FROZEN_ARM
	if (IS_ARM(code->frozen))
		return arm_instruction(code, out);
#endif
#if FROZEN_X86
	return x86_instruction(code, out);
#endif
}

static int decode_code(const struct frozen *frozen, const struct stream *stream, uint32_t address, uint32_t runs_at,
		       uint8_t *out, uint32_t size)
{
	struct code code = {
		.stream = *stream, .frozen = frozen, .address = address, .size = size, .away = runs_at - address,
		.high = frozen->has_sizes ? frozen->high : address & HIGH,
	};
	uint8_t *end = out + size, *limit = size > LONGEST ? end - LONGEST : out;
	/* Holds instructions that may cross the end of the page, where they are cut off. */
	uint8_t last[2 * LONGEST], *straddling = NULL;
	uint32_t head, i;

	code.stream.contexts = frozen->code.contexts;
	code.stream.nodes = frozen->code.nodes;
	code.moved = address - (uint32_t)(uintptr_t)out;
	head = coded(frozen, &code.stream, HEAD, 0);
	if (head > size)
		return FROZEN_DAMAGED;
	for (; head; head--)
		*out++ = (uint8_t)coded(frozen, &code.stream, (IS_ARM(frozen) ? ARM_RAW : RAW) + 1, 0);
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

/* Returns the kind of a byte: 0, other control characters, ASCII, or other. */
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

#if FROZEN_X86_64
/* Decodes a page of distances to increasing addresses. */
static int decode_distances(const struct frozen *frozen, struct stream *stream, uint8_t *out, uint32_t size)
{
	uint32_t one = 0, two = 0, distance = 0, at;

	stream->contexts = frozen->data.contexts;
	stream->nodes = frozen->data.nodes;
	if (size & 3)
		return FROZEN_DAMAGED;
	for (at = 0; at < size; at += 4) {
		uint32_t step = symbol_of_two(stream, STEP + one, two);

		two = one;
		one = step;
		if (step >= STEP_HALF) {
			uint32_t context = step == STEP_HALF ? STEP_BYTES : STEP_BYTES + 2;
			uint32_t count = step == STEP_HALF ? 2 : 4;

			for (step = 0; count; count--)
				step = step << 8 | symbol_of_two(stream, context++, 0);
		}
		distance += step - 4;
		put32(out + at, distance);
	}
	return finish(stream);
}
#endif

int frozen_place(const struct frozen *frozen, uint32_t page, uint32_t *address)
{
	const uint8_t *segment = frozen->segments;
	uint32_t start, size, i;

	if (page >= frozen->page_count)
		return FROZEN_NO_PAGE;
	/* Find the last segment whose first page is not after this page. */
	for (i = 1; i < frozen->segment_count && get32(segment + 12 + 8) <= page; i++)
		segment += 12;
	*address = get32(segment);
	if (frozen->has_sizes)
		return (int)(get32(frozen->index + 4 * page) & SIZE_MASK);
	start = (page - get32(segment + 8)) * frozen->page_size;
	*address += start;
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
#if FROZEN_X86_64
	if (layout == 3)
		error = frozen->dictionary ? decode_distances(frozen, &stream, out, (uint32_t)size) : FROZEN_DAMAGED;
	else
#endif
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
