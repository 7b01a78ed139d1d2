// SPDX-License-Identifier: MIT OR Apache-2.0
/* Checks a packed file once, so that decoding need not. A kernel does this at boot, and frees the code afterwards. */
#include "tables.h"

#define HEADER 40
/* Versions of the format. Odd versions have regions. */
#define FIRST_VERSION 2
#define LAST_VERSION 7
#define SEGMENT 12
/* Number of layouts, without the one for x86-64. */
#define LAYOUTS 3u

/* The unread rest of a part. */
struct rest {
	const uint8_t *at;
	size_t size;
};

/* Reads `count` items of `each` bytes. Without enough bytes, returns NULL, and the rest becomes empty. */
static const uint8_t __init *take(struct rest *rest, uint32_t count, uint32_t each)
{
	const uint8_t *taken = rest->at;
	uint64_t size = (uint64_t)count * each;

	if (!taken || size > rest->size) {
		rest->at = NULL;
		return NULL;
	}
	rest->at += size;
	rest->size -= (size_t)size;
	return taken;
}

/*
 * Checks the records of the distribution at this offset. Returns the offset to which its escape leads, 0 without one,
 * or a negative value on damage.
 */
static int __init check_records(const struct frozen_tables *tables, uint32_t offset)
{
	uint32_t end = TOTAL;

	for (; offset <= tables->node_size && tables->node_size - offset >= 4; offset += 4) {
		uint32_t record = get32(tables->nodes + offset), start = FIRST(record), code = CODE(record);
		uint32_t left = tables->node_size - offset, symbols = 0, next;

		if (start >= end || code >= CODES)
			return FROZEN_DAMAGED;
		if (!code) {
			if (record >> 8 != end - 1 || left < 8)
				return FROZEN_DAMAGED;
			next = get32(tables->nodes + offset + 4);
			return next > tables->node_size || next & 3 ? FROZEN_DAMAGED : (int)next;
		}
		for (; start < end; start += frozen_frequency[code])
			symbols++;
		if (start != end || left < SYMBOLS(record) + symbols)
			return FROZEN_DAMAGED;
		end = FIRST(record);
		if (!end)
			return 0;
	}
	return FROZEN_DAMAGED;
}

/* Checks the records at this offset, and follows escapes to up to `depth` shorter contexts. */
static int __init check_chain(const struct frozen_tables *tables, uint32_t offset, uint32_t depth)
{
	int next = check_records(tables, offset);

	for (; next > 0 && depth; depth--)
		next = check_records(tables, (uint32_t)next);
	return next ? FROZEN_DAMAGED : 0;
}

/* Checks the distributions for a first value: its own records, and the entries for second values before them. */
static int __init check_context(const struct frozen_tables *tables, uint32_t offset, uint32_t depth)
{
	uint32_t shift, i;

	if (check_chain(tables, offset, 1))
		return FROZEN_DAMAGED;
	if (depth == 1)
		return 0;
	if (offset < 4)
		return FROZEN_DAMAGED;
	offset -= 4;
	shift = get32(tables->nodes + offset);
	if (!shift)
		return 0;
	if (shift < MIN_SHIFT || shift > MAX_SHIFT || 4u << (32 - shift) > offset)
		return FROZEN_DAMAGED;
	for (i = 1; i <= 1u << (32 - shift); i++) {
		uint32_t entry = get32(tables->nodes + offset - 4 * i);

		if (check_chain(tables, 4 * (entry & ((1u << OFFSET_BITS) - 1)), 2))
			return FROZEN_DAMAGED;
	}
	return 0;
}

/* Reads the tables of a number of first values; a context has `depth` values. */
static int __init open_tables(struct frozen_tables *tables, struct rest *rest, const uint8_t *head, uint32_t contexts,
			      uint32_t depth)
{
	uint32_t i;

	tables->node_size = get32(head);
	tables->contexts = take(rest, contexts, 2);
	tables->nodes = take(rest, tables->node_size, 1);
	/* Offsets must be positive as an int. */
	if (!tables->nodes || tables->node_size >= 1u << 30)
		return FROZEN_DAMAGED;
	for (i = 0; i < contexts; i++) {
		uint32_t offset = 4 * get16(tables->contexts + 2 * i);

		/* Many contexts share an offset. */
		if (i && offset == 4 * get16(tables->contexts + 2 * (i - 1)))
			continue;
		if (check_context(tables, offset, depth))
			return FROZEN_DAMAGED;
	}
	return 0;
}

/* Checks that a template has at least one byte, and a valid displacement and operand: only x86-64 has operand 7. */
static int __init check_x86_template(const struct frozen *frozen, uint32_t desc)
{
	if (LENGTH(desc) < 1 || DISPLACEMENT(desc) == 3)
		return FROZEN_DAMAGED;
	return !IS_X86_64(frozen) && OPERAND(desc) == 7 ? FROZEN_DAMAGED : 0;
}

/* Checks that a template has at least one instruction, and a valid number of parts. */
static int __init check_arm_template(const struct frozen *frozen, uint32_t desc)
{
	uint32_t number = FORMAT_NUMBER(desc);

	if (number >= frozen->format_count || INCLUDED_PARTS(desc) > PARTS)
		return FROZEN_DAMAGED;
	return LENGTH(desc) < FORMAT_BYTES(get16(frozen->formats + FORMAT_SIZE * number)) ? FROZEN_DAMAGED : 0;
}

/* Reads the formats of ARM instructions. No part may follow a halfword of 0. */
static int __init open_formats(struct frozen *frozen, struct rest *rest)
{
	const uint8_t *head = take(rest, 2, 4);
	uint32_t i, j;

	if (!head || get32(head + 4) > 1)
		return FROZEN_DAMAGED;
	frozen->format_count = get32(head);
	frozen->is_arm_code = (int)get32(head + 4);
	frozen->formats = take(rest, frozen->format_count, FORMAT_SIZE);
	if (!frozen->formats)
		return FROZEN_DAMAGED;
	for (i = 0; i < frozen->format_count; i++) {
		const uint8_t *format = frozen->formats + FORMAT_SIZE * i;
		uint32_t before = 1;

		if (get16(format) > FORMAT_HEAD || get16(format + FORMAT_SIZE - 2))
			return FROZEN_DAMAGED;
		for (j = 1; j <= PARTS; j++) {
			uint32_t part = get16(format + 2 * j);

			if (part && (!before || PART_FIELD(part) < FIRST_FIELD || PART_FIELD(part) >= FIELDS))
				return FROZEN_DAMAGED;
			before = part;
		}
	}
	return 0;
}

static int __init open_code(struct frozen *frozen, struct rest rest)
{
	const uint8_t *head = take(&rest, 4, 4);
	uint32_t i;

	if (!head)
		return FROZEN_DAMAGED;
	frozen->template_count = get32(head);
	frozen->word_count = get32(head + 4);
	frozen->branch_count = get32(head + 8);
	if (IS_ARM(frozen) && open_formats(frozen, &rest))
		return FROZEN_DAMAGED;
	frozen->templates = take(&rest, frozen->template_count, TEMPLATE_SIZE);
	frozen->words = take(&rest, frozen->word_count, 4);
	if (!frozen->words || open_tables(&frozen->code, &rest, head + 12, IS_ARM(frozen) ? ARM_CONTEXTS : CODE_CONTEXTS,
					  IS_ARM(frozen) ? 2 : 1))
		return FROZEN_DAMAGED;
	frozen->branches = take(&rest, frozen->branch_count, 3);
	for (i = 0; i < frozen->template_count; i++) {
		uint32_t desc = get32(frozen->templates + TEMPLATE_SIZE * i + TEMPLATE_BYTES);

		if (LENGTH(desc) > TEMPLATE_BYTES ||
		    (IS_ARM(frozen) ? check_arm_template(frozen, desc) : check_x86_template(frozen, desc)))
			return FROZEN_DAMAGED;
	}
	return frozen->branches ? 0 : FROZEN_DAMAGED;
}

static int __init has_decoder(uint32_t machine)
{
	return (FROZEN_I386 && machine == MACHINE_I386) || (FROZEN_ARM && machine == MACHINE_ARM) ||
	       (FROZEN_X86_64 && machine == MACHINE_X86_64);
}

static int __init open_data(struct frozen *frozen, struct rest rest)
{
	const uint8_t *head = take(&rest, 2, 4);

	if (!head || open_tables(&frozen->data, &rest, head + 4,
				 IS_X86_64(frozen) ? X86_64_DATA_CONTEXTS : DATA_CONTEXTS, 2))
		return FROZEN_DAMAGED;
	frozen->dictionary_size = get32(head);
	frozen->dictionary = take(&rest, frozen->dictionary_size, 1);
	return frozen->dictionary ? 0 : FROZEN_DAMAGED;
}

static int __init check_index(const struct frozen *frozen, uint32_t streams)
{
	uint32_t page, last = 0;

	for (page = 0; page <= frozen->page_count; page++) {
		uint32_t entry = get32(frozen->index + 4 * page);

		if ((entry & INDEX_MASK) < last || (page < frozen->page_count && entry >> INDEX_BITS >= LAYOUTS + IS_X86_64(frozen)))
			return FROZEN_DAMAGED;
		last = entry & INDEX_MASK;
		if (page == frozen->page_count && entry != streams)
			return FROZEN_DAMAGED;
	}
	return 0;
}

static int __init check_segments(const struct frozen *frozen)
{
	uint32_t i, next = 0;

	for (i = 0; i < frozen->segment_count; i++) {
		uint32_t size = get32(frozen->segments + SEGMENT * i + 4);
		uint32_t pages;

		if (size == 0 || get32(frozen->segments + SEGMENT * i + 8) != next)
			return FROZEN_DAMAGED;
		for (pages = 0; (uint64_t)pages * frozen->page_size < size && next + pages <= frozen->page_count;)
			pages++;
		next += pages;
	}
	return next == frozen->page_count ? 0 : FROZEN_DAMAGED;
}

/* Checks the index if pages differ in size. */
static int __init check_sizes(const struct frozen *frozen, uint32_t streams)
{
	uint32_t page, last = 0;

	for (page = 0; page <= frozen->page_count; page++) {
		uint32_t entry = get32(frozen->index + 4 * page), size = entry & SIZE_MASK;

		if (entry >> SIZE_BITS < last)
			return FROZEN_DAMAGED;
		last = entry >> SIZE_BITS;
		if (page < frozen->page_count && (size == 0 || size > frozen->page_size))
			return FROZEN_DAMAGED;
		if (page == frozen->page_count && (size || streams != last << 1))
			return FROZEN_DAMAGED;
	}
	return 0;
}

int __init frozen_open(struct frozen *frozen, const void *bytes, size_t size)
{
	static const uint8_t magic[8] = "kfrozen\n";
	struct rest rest = { bytes, size }, code, data;
	const uint8_t *head = take(&rest, HEADER, 1);
	uint32_t i;

	*frozen = (struct frozen){ 0 };
	if (!head || get32(head + 8) < FIRST_VERSION || get32(head + 8) > LAST_VERSION)
		return FROZEN_DAMAGED;
	for (i = 0; i < sizeof(magic); i++)
		if (head[i] != magic[i])
			return FROZEN_DAMAGED;
	frozen->page_size = get32(head + 12);
	frozen->segment_count = get32(head + 16);
	frozen->page_count = get32(head + 20);
	if (frozen->page_size < 256 || frozen->page_size > 65536 || frozen->page_size & (frozen->page_size - 1))
		return FROZEN_DAMAGED;
	frozen->segments = take(&rest, frozen->segment_count, SEGMENT);
	if (frozen->page_count == UINT32_MAX)
		return FROZEN_DAMAGED;
	frozen->index = take(&rest, frozen->page_count + 1, 4);
	frozen->has_sizes = get32(head + 8) & 1;
	frozen->machine = get32(head + 8) >> 1;
	if (frozen->has_sizes) {
		const uint8_t *high = take(&rest, 1, 4);

		if (!high)
			return FROZEN_DAMAGED;
		frozen->high = get32(high) & 0xFF000000u;
	}
	code.size = get32(head + 24);
	code.at = take(&rest, get32(head + 24), 1);
	data.size = get32(head + 28);
	data.at = take(&rest, get32(head + 28), 1);
	frozen->streams = take(&rest, get32(head + 32), 1);
	if (!frozen->streams || rest.size)
		return FROZEN_DAMAGED;
	if (code.size && (!has_decoder(frozen->machine) || open_code(frozen, code)))
		return FROZEN_DAMAGED;
	/* A decoder for only x86-64 decodes no other data. */
	if (data.size && IS_X86_64(frozen) && frozen->machine != MACHINE_X86_64)
		return FROZEN_DAMAGED;
	if (data.size && open_data(frozen, data))
		return FROZEN_DAMAGED;
	if (frozen->has_sizes ? check_sizes(frozen, get32(head + 32)) : check_index(frozen, get32(head + 32)))
		return FROZEN_DAMAGED;
	return check_segments(frozen);
}
