// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The window of addresses for copies of regions, whose pages are mapped one by one: on ARM, direct branches of copies
 * must reach the kernel; on an i386 with physical address extension, data is not executable.
 */
#include <linux/atomic.h>
#include <linux/kernel.h>

#include "runtime.h"

/* The number of pages of the window in use, and some released pages, which remain mapped. */
static atomic_t used;
static void *spare[4];

void *kshrink_take_from_window(void)
{
	unsigned long address;
	void *page;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(spare); i++) {
		page = xchg(&spare[i], NULL);
		if (page)
			return page;
	}
	page = kshrink_take_page(false);
	if (!page)
		return NULL;
	address = (unsigned long)kshrink_mapped + (atomic_inc_return(&used) - 1) * PAGE_SIZE;
	if (address < (unsigned long)kshrink_frozen_end && kshrink_map_room(address, page))
		return (void *)address;
	kshrink_give_back(page);
	return NULL;
}

/* If there are many already, the page is lost; the window has room for some such pages. */
void kshrink_give_room_back(void *room)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(spare); i++)
		if (!cmpxchg(&spare[i], NULL, room))
			return;
}
