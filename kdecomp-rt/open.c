// SPDX-License-Identifier: MIT OR Apache-2.0
/* Checks a packed file once, so that decoding a page need not. In a kernel, at boot: the code is freed afterwards. */
#include "tables.h"

#define HEADER 40
#define SEGMENT 12
#define LAYOUTS 3
#define INDEX_BITS 28

/* What of a part has not been taken yet. */
struct rest {
	const uint8_t *at;
	size_t size;
};

/* Takes `count` things of `each` bytes; NULL, and nothing is left, if there are not as many. */
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

/* Checks the records of a distribution, and gives how many symbols they have; negative if they do not make sense. */
static int __init check_records(const uint8_t *record, uint32_t count)
{
	uint32_t start = 0, symbols = 0, code = 1;

	for (; count; count--, record += 4) {
		uint32_t end = get16(record), of_class = 0;

		if (!code || end < start || record[3] != (symbols & 0xFF))
			return FROZEN_DAMAGED;
		code = record[2];
		if (code >= CODES)
			return FROZEN_DAMAGED;
		for (; code && start < end; start += frozen_frequency[code])
			of_class++;
		if (code && (start != end || of_class < 1 || of_class > 255))
			return FROZEN_DAMAGED;
		symbols += of_class;
		start = end;
	}
	return code || start != TOTAL || symbols > 256 ? FROZEN_DAMAGED : (int)symbols;
}

/* Checks a distribution alone. */
static int __init check_distribution(const struct frozen_tables *tables, uint32_t offset)
{
	const uint8_t *node;
	int symbols;

	if (offset > tables->node_size || tables->node_size - offset < 4)
		return FROZEN_DAMAGED;
	node = tables->nodes + offset;
	if (get16(node) || SHIFT(node) > NO_CHILDREN || 4u * RECORDS(node) > tables->node_size - offset - 4)
		return FROZEN_DAMAGED;
	symbols = check_records(node + 4, RECORDS(node));
	if (symbols < 0 || (uint32_t)symbols > tables->node_size - offset - 4 - 4 * RECORDS(node))
		return FROZEN_DAMAGED;
	return 0;
}

/* Checks a distribution for a context of one value, and those below it. */
static int __init check_child(const struct frozen_tables *tables, uint32_t offset)
{
	const uint8_t *node;
	uint32_t i;

	if (check_distribution(tables, offset))
		return FROZEN_DAMAGED;
	node = tables->nodes + offset;
	if (SHIFT(node) == NO_CHILDREN)
		return 0;
	if (4u << (8 - SHIFT(node)) > offset)
		return FROZEN_DAMAGED;
	for (i = 1; i <= 1u << (8 - SHIFT(node)); i++)
		if (check_distribution(tables, 4 * (get32(node - 4 * i) & OFFSET_MASK)))
			return FROZEN_DAMAGED;
	return 0;
}

/* Checks a root, and all below it. */
static int __init check_root(const struct frozen_tables *tables, uint32_t offset)
{
	const uint8_t *node;
	uint32_t i;

	if (check_distribution(tables, offset))
		return FROZEN_DAMAGED;
	node = tables->nodes + offset;
	if (SHIFT(node) == NO_CHILDREN)
		return 0;
	if (offset < ROW)
		return FROZEN_DAMAGED;
	for (i = 0; i < ROW; i += 2)
		if (get16(node - ROW + i) && check_child(tables, 4 * get16(node - ROW + i)))
			return FROZEN_DAMAGED;
	return 0;
}

static int __init open_tables(struct frozen_tables *tables, struct rest *rest, const uint8_t *head, uint32_t fields)
{
	uint32_t i;

	tables->node_size = get32(head);
	tables->roots = take(rest, fields, 4);
	tables->nodes = take(rest, tables->node_size, 1);
	if (!tables->nodes)
		return FROZEN_DAMAGED;
	for (i = 0; i < fields; i++)
		if (check_root(tables, get32(tables->roots + 4 * i)))
			return FROZEN_DAMAGED;
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
	frozen->templates = take(&rest, frozen->template_count, TEMPLATE_SIZE);
	frozen->words = take(&rest, frozen->word_count, 4);
	if (!frozen->words || open_tables(&frozen->code, &rest, head + 12, CODE_FIELDS))
		return FROZEN_DAMAGED;
	frozen->branches = take(&rest, frozen->branch_count, 3);
	for (i = 0; i < frozen->template_count; i++) {
		const uint8_t *rest_of = frozen->templates + TEMPLATE_SIZE * i + TEMPLATE_BYTES;

		/* There is a byte at least, 3 kinds of displacement, and 7 operands. */
		if (rest_of[0] < 1 || rest_of[0] > TEMPLATE_BYTES || (rest_of[1] >> 2 & 3) == 3 || (rest_of[1] >> 4 & 7) == 7)
			return FROZEN_DAMAGED;
	}
	return frozen->branches ? 0 : FROZEN_DAMAGED;
}

static int __init open_data(struct frozen *frozen, struct rest rest)
{
	const uint8_t *head = take(&rest, 2, 4);

	if (!head || open_tables(&frozen->data, &rest, head + 4, DATA_FIELDS))
		return FROZEN_DAMAGED;
	frozen->dictionary_size = get32(head);
	frozen->dictionary = take(&rest, frozen->dictionary_size, 1);
	return frozen->dictionary ? 0 : FROZEN_DAMAGED;
}

static int __init check_index(const struct frozen *frozen, uint32_t streams)
{
	uint32_t page, last = 0, mask = (1u << INDEX_BITS) - 1;

	for (page = 0; page <= frozen->page_count; page++) {
		uint32_t entry = get32(frozen->index + 4 * page);

		if ((entry & mask) < last || (page < frozen->page_count && entry >> INDEX_BITS >= LAYOUTS))
			return FROZEN_DAMAGED;
		last = entry & mask;
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

int __init frozen_open(struct frozen *frozen, const void *bytes, size_t size)
{
	static const uint8_t magic[8] = "kfrozen\n";
	struct rest rest = { bytes, size }, code, data;
	const uint8_t *head = take(&rest, HEADER, 1);
	uint32_t i;

	*frozen = (struct frozen){ 0 };
	if (!head || get32(head + 8) != 1)
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
	code.size = get32(head + 24);
	code.at = take(&rest, get32(head + 24), 1);
	data.size = get32(head + 28);
	data.at = take(&rest, get32(head + 28), 1);
	frozen->streams = take(&rest, get32(head + 32), 1);
	if (!frozen->streams || rest.size)
		return FROZEN_DAMAGED;
	if (code.size && open_code(frozen, code))
		return FROZEN_DAMAGED;
	if (data.size && open_data(frozen, data))
		return FROZEN_DAMAGED;
	if (check_index(frozen, get32(head + 32)))
		return FROZEN_DAMAGED;
	return check_segments(frozen);
}
