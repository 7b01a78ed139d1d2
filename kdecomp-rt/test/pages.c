// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Decodes pages for tests. Reads packed files from standard input, each after its size in 4 bytes. For each file,
 * writes the result of frozen_open in 4 bytes; if that is 0, also the result of frozen_page in 4 bytes, and the page,
 * for each page.
 *
 * `pages FIRST COUNT` decodes only these pages, and `pages FIRST COUNT TIMES` decodes each page that often.
 * `pages FIRST COUNT TIMES ADDRESS` decodes them to run elsewhere: page 0 at that address, others at the same distance.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../decode.h"

static int decode(const struct frozen *frozen, uint32_t page, uint32_t times, const char *where)
{
	/* Exactly a page, so that a sanitizer detects a write after it. */
	void *out = malloc(frozen->page_size);
	uint32_t runs_at = where ? (uint32_t)strtoul(where, NULL, 0) + page * frozen->page_size : 0;
	int result = 0;

	if (!out)
		return 1;
	for (; times; times--)
		result = where ? frozen_page_at(frozen, page, runs_at, out) : frozen_page(frozen, page, out);
	fwrite(&result, sizeof(result), 1, stdout);
	if (result > 0)
		fwrite(out, 1, (size_t)result, stdout);
	free(out);
	return 0;
}

int main(int argc, char **argv)
{
	uint32_t first = argc > 2 ? (uint32_t)strtoul(argv[1], NULL, 0) : 0;
	uint32_t count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : UINT32_MAX;
	uint32_t times = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 1;
	uint32_t size;

	while (fread(&size, sizeof(size), 1, stdin) == 1) {
		struct frozen frozen;
		/* Exactly the file, so that a sanitizer detects a read after it. */
		uint8_t *bytes = malloc(size ? size : 1);
		uint32_t page;
		int result;

		if (!bytes || fread(bytes, 1, size, stdin) != size)
			return 1;
		result = frozen_open(&frozen, bytes, size);
		fwrite(&result, sizeof(result), 1, stdout);
		for (page = first; !result && page - first < count && page < frozen.page_count; page++)
			if (decode(&frozen, page, times, argc > 4 ? argv[4] : NULL))
				return 1;
		free(bytes);
	}
	return fflush(stdout) ? 1 : 0;
}
