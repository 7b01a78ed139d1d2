// SPDX-License-Identifier: MIT OR Apache-2.0
#include "unwind.h"

/* The longest code word, in bits. */
#define LONGEST 16

/* A symbol: upper bits, the rank of the next state among the successors; lower bits, the class of the distance. */
#define CLASS_BITS 6
#define CLASS_MASK ((1u << CLASS_BITS) - 1)
/* Each class below has one distance. */
#define WIDE 32u

struct stream {
	const uint8_t *bytes;
	uint32_t bit;
};

static const void *part(const struct unwind_tables *tables, uint32_t offset)
{
	return (const uint8_t *)tables + offset;
}

static uint32_t next_bits(struct stream *stream, uint32_t count)
{
	uint32_t value = 0;

	for (; count; count--, stream->bit++)
		value = value << 1 | (stream->bytes[stream->bit >> 3] >> (~stream->bit & 7) & 1);
	return value;
}

/* Decodes a code word of a canonical code: those of one length are successive numbers, after the shorter ones. */
static uint32_t next_symbol(struct stream *stream, const uint16_t *counts)
{
	const uint16_t *symbols = counts + LONGEST;
	uint32_t word = 0, first = 0, length;

	for (length = 0; length < LONGEST; length++) {
		word = word << 1 | next_bits(stream, 1);
		first <<= 1;
		if (word - first < counts[length])
			return symbols[word - first];
		symbols += counts[length];
		first += counts[length];
	}
	return 0;
}

/* Decodes the rest of a distance. */
static uint32_t next_distance(struct stream *stream, uint32_t class)
{
	uint32_t count;

	if (class < WIDE)
		return class + 1;
	count = class - WIDE + 4;
	return (1u << count) + next_bits(stream, count) + WIDE + 1 - 16;
}

uint32_t unwind_state(const struct unwind_tables *tables, uint32_t region, uint32_t distance)
{
	const uint32_t *distances = part(tables, tables->distances), *bits = part(tables, tables->bits);
	const uint16_t *states = part(tables, tables->states), *lists = part(tables, tables->lists);
	const uint16_t *successors = part(tables, tables->successors), *codes = part(tables, tables->codes);
	uint32_t low = tables->regions[region], high = tables->regions[region + 1], last = tables->code_count - 1;
	struct stream stream = { .bytes = part(tables, tables->stream) };
	uint32_t at, state;

	if (low == high)
		return UNWIND_NONE;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (distances[middle] <= distance)
			low = middle;
		else
			high = middle;
	}
	stream.bit = bits[low];
	at = distances[low];
	state = states[low];
	for (;;) {
		uint32_t code = codes[state < last ? state : last];
		uint32_t symbol = next_symbol(&stream, codes + tables->code_count + code);

		at += next_distance(&stream, symbol & CLASS_MASK);
		if (at > distance)
			return state;
		state = successors[lists[state] + (symbol >> CLASS_BITS)];
	}
}
