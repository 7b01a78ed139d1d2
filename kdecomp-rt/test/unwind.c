// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Looks up unwind states for tests. Reads packed tables from standard input, after their size in 4 bytes, and the sizes of
 * the regions in 4 bytes each. Writes the state of each byte of each region, in 4 bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../unwind.h"

int main(void)
{
	uint32_t head[1 + UNWIND_REGIONS], region, distance;
	/* Exactly the tables, so that a sanitizer detects a read after them. */
	void *tables;

	if (fread(head, sizeof(head), 1, stdin) != 1)
		return 1;
	tables = malloc(head[0]);
	if (!tables || fread(tables, 1, head[0], stdin) != head[0])
		return 1;
	for (region = 0; region < UNWIND_REGIONS; region++) {
		for (distance = 0; distance < head[1 + region]; distance++) {
			uint32_t state = unwind_state(tables, region, distance);

			fwrite(&state, sizeof(state), 1, stdout);
		}
	}
	free(tables);
	return fflush(stdout) ? 1 : 0;
}
