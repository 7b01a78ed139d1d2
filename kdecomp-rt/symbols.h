/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The symbols of a page: asymmetric numeral systems with distributions by context. All of it is static, so that the
 * compiler may lay it into decode.c as it likes.
 */
#ifndef KDECOMP_RT_SYMBOLS_H
#define KDECOMP_RT_SYMBOLS_H

#include "tables.h"

/* The state is never below this between two symbols. */
#define LOW 0x10000u

const uint16_t frozen_frequency[CODES] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40,
	48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896,
	1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 3840, 3968, 4032, 4064, 4080, 4088, 4092, 4094, 4095, 4096,
};

/*
 * 2^31 by each frequency, rounded up; 0 where a class cannot have more than one symbol. With it,
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
	const uint8_t *end;
	const struct frozen_tables *tables;
	int error;
};

static inline void fill(struct stream *stream, uint32_t state)
{
	if (state < LOW) {
		if (stream->end - stream->next < 2) {
			stream->error = FROZEN_DAMAGED;
			state = LOW;
		} else {
			state = state << 16 | get16(stream->next);
			stream->next += 2;
		}
	}
	stream->state = state;
}

/* The next `count` bits, at most 16. */
static uint32_t bits(struct stream *stream, uint32_t count)
{
	uint32_t state = stream->state;

	fill(stream, state >> count);
	return state & ((1u << count) - 1);
}

/* The next symbol of a field, given two values, the more telling one in the second byte. */
static uint32_t symbol(struct stream *stream, uint32_t field, uint32_t values)
{
	const uint8_t *nodes = stream->tables->nodes;
	const uint8_t *node = nodes + get32(stream->tables->roots + 4 * field);
	/* The distributions of shorter contexts, for when there is an escape. */
	const uint8_t *root = NULL, *shorter = NULL, *record;
	uint32_t slot, start, frequency, index;

	if (SHIFT(node) != NO_CHILDREN) {
		uint32_t offset = get16(node - ROW + 2 * (values >> 8));

		if (offset) {
			root = node;
			node = nodes + 4 * offset;
			if (SHIFT(node) != NO_CHILDREN) {
				uint32_t entry = get32(node - 4 - 4 * PLACE(values & 0xFF, SHIFT(node)));

				if (entry >> VALUE_SHIFT == (values & 0xFF)) {
					shorter = root;
					root = node;
					node = nodes + 4 * (entry & OFFSET_MASK);
				}
			}
		}
	}
	for (;;) {
		slot = stream->state & (TOTAL - 1);
		for (record = node + 4; slot >= get16(record);)
			record += 4;
		start = get16(record - 4);
		slot -= start;
		if (record[2])
			break;
		/* The escape has what the classes leave. */
		fill(stream, (TOTAL - start) * (stream->state >> TOTAL_BITS) + slot);
		node = root;
		root = shorter;
		shorter = NULL;
		if (!node) {
			stream->error = FROZEN_DAMAGED;
			return 0;
		}
	}
	frequency = frozen_frequency[record[2]];
	index = (uint64_t)(2 * slot + 1) * reciprocal[record[2]] >> 32;
	fill(stream, frequency * (stream->state >> TOTAL_BITS) + slot - index * frequency);
	return node[4 + 4 * RECORDS(node) + record[3] + index];
}

static uint32_t context(uint32_t a, uint32_t b)
{
	return a << 8 | b;
}

/* The index that a group of indices and the bits behind it stand for. */
static uint32_t grouped(struct stream *stream, uint32_t group)
{
	uint32_t count;

	if (group < 16)
		return group;
	count = (group >> 3) - 1;
	return ((8 + (group & 7)) << count) + bits(stream, count);
}

#endif
