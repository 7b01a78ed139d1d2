/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Decodes the symbols of a page: asymmetric numeral systems with a distribution for each context. All functions are
 * static, so that the compiler can inline them in decode.c.
 */
#ifndef KDECOMP_RT_SYMBOLS_H
#define KDECOMP_RT_SYMBOLS_H

#include "tables.h"

/* Minimum of the state between two symbols. */
#define LOW 0x10000u

const uint16_t frozen_frequency[CODES] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40,
	48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896,
	1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 3840, 3968, 4032, 4064, 4080, 4088, 4092, 4094, 4095, 4096,
};

/*
 * 2^31 divided by each frequency, rounded up; 0 if a class cannot have more than one symbol. Then
 * (2 * slot + 1) * reciprocal >> 32 is slot / frequency for all slots below TOTAL.
 */
static const uint32_t reciprocal[CODES] = {
	0, 0x80000000, 0x40000000, 0x2AAAAAAB, 0x20000000, 0x1999999A, 0x15555556, 0x12492493,
	0x10000000, 0xCCCCCCD, 0xAAAAAAB, 0x924924A, 0x8000000, 0x6666667, 0x5555556, 0x4924925,
	0x4000000, 0x3333334, 0x2AAAAAB, 0x2492493, 0x2000000, 0x199999A, 0x1555556, 0x124924A,
	0x1000000, 0xCCCCCD, 0xAAAAAB, 0x924925, 0x800000, 0x666667, 0x555556, 0x492493,
	0x400000, 0x333334, 0x2AAAAB, 0x24924A, 0x200000, 0x19999A, 0x155556, 0x124925,
	0x100000,
};

struct stream {
	uint32_t state;
	const uint8_t *next;
	/* The distance from `next` is a multiple of 2 bytes. */
	const uint8_t *end;
	const uint8_t *contexts;
	const uint8_t *nodes;
	int error;
};

/* Refills a state that may be too small from the stream. */
static inline __attribute__((__always_inline__)) uint32_t filled(struct stream *stream, uint32_t state)
{
	if (state < LOW) {
		const uint8_t *next = stream->next;

		if (next == stream->end) {
			stream->error = FROZEN_DAMAGED;
			state = LOW;
		} else {
			state = state << 16 | get16(next);
			stream->next = next + 2;
		}
	}
	return state;
}

/* Decodes the next `count` bits, at most 16. */
static inline uint32_t bits(struct stream *stream, uint32_t count)
{
	uint32_t state = stream->state;

	stream->state = filled(stream, state >> count);
	return state & ((1u << count) - 1);
}

/* Decodes the next symbol with the distribution that begins at `record`, and with those to which escapes lead. */
static inline __attribute__((__always_inline__)) uint32_t listed(struct stream *stream, const uint8_t *record)
{
	uint32_t state = stream->state;

	for (;;) {
		/* Exactly the records whose first number exceeds the slot are greater than this key. */
		uint32_t key = ~(~state << FIRST_SHIFT), found, next;

		while (get32(record) > key)
			record += 4;
		found = get32(record);
		/* Subtracts the first number; the shift drops the lower bits. */
		key = (key - found) >> FIRST_SHIFT;
		state >>= TOTAL_BITS;
		if (CODE(found)) {
			uint32_t index = (uint64_t)(2 * key + 1) * reciprocal[CODE(found)] >> 32;

			stream->state = filled(stream, frozen_frequency[CODE(found)] * (state - index) + key);
			return record[SYMBOLS(found) + index];
		}
		state = filled(stream, ESCAPE_FREQUENCY(found) * state + key);
		next = get32(record + 4);
		if (!next) {
			/* Without damage, the shortest context has all symbols. */
			stream->error = FROZEN_DAMAGED;
			return 0;
		}
		record = stream->nodes + next;
	}
}

/* Returns the records of a context, which is the number of a field and a first value. */
static inline const uint8_t *records(const struct stream *stream, uint32_t context)
{
	return stream->nodes + 4 * get16(stream->contexts + 2 * context);
}

/* Decodes the next symbol in a context of one value. */
static __attribute__((__noinline__)) uint32_t symbol(struct stream *stream, uint32_t context)
{
	return listed(stream, records(stream, context));
}

/* Decodes the next symbol in a context of two values. The second value is the lower byte of `value`. */
static __attribute__((__noinline__)) uint32_t symbol_of_two(struct stream *stream, uint32_t context, uint32_t value)
{
	const uint8_t *record = records(stream, context);
	/* frozen_open has checked that the bytes above are 0. */
	uint32_t shift = record[-4];

	if (shift) {
		uint32_t entry = get32(record - 8 - 4 * (int)PLACE(value, shift)) ^ value << VALUE_SHIFT;

		if (entry < 1u << OFFSET_BITS)
			record = stream->nodes + 4 * entry;
	}
	return listed(stream, record);
}

/* Decodes an index, given its group; the other bits follow in the stream. */
static uint32_t grouped(struct stream *stream, uint32_t group)
{
	uint32_t count;

	if (group < 16)
		return group;
	count = (group >> 3) - 1;
	return ((8 + (group & 7)) << count) + bits(stream, count);
}

#endif
