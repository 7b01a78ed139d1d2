// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Thaws pages of a frozen kernel when they are accessed (docs/freezing.md).
 *
 * Frozen code and data have addresses in the module area or the vmalloc area, and no memory. The first access to a page
 * faults. The fault handler decodes the page into a newly allocated page through the linear mapping, and maps it
 * read-only at its address. It remains there until it is refrozen (refreeze.c).
 *
 * Any number of processors and contexts (tasks, interrupts, non-maskable interrupts) may thaw at once, even the same
 * page: each decodes into a separate page, and the first one maps it. Code that this file calls never freezes, nor, on
 * ARM, does code that handles fast interrupts.
 *
 * Init data also contains the pages that every boot uses; they are mapped from there until init data is freed.
 */
#include <linux/cpu.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/sched/clock.h>
#include <linux/string.h>

#include "runtime.h"

void __real_free_initmem(void);
void __wrap_free_initmem(void);

const char kshrink_unit[] = "page";
bool kshrink_boot_is_over __ro_after_init;

unsigned long kshrink_address(u32 number)
{
	return (unsigned long)kshrink_frozen_text + number * PAGE_SIZE;
}

bool kshrink_is_code(unsigned long address)
{
	return kshrink_is_frozen_code(address);
}

struct kshrink_code kshrink_code_at(unsigned long address)
{
	return (struct kshrink_code){ .address = address };
}

void kshrink_show(struct seq_file *file)
{
	seq_printf(file, "frozen_text_pages %u\nfrozen_data_pages %u\n", kshrink_page_of((unsigned long)kshrink_frozen_data),
		   kshrink_page_of((unsigned long)kshrink_frozen_end) - kshrink_page_of((unsigned long)kshrink_frozen_data));
}

/* Maps these pages. Returns the end of the last one. */
static const char __init *map_boot(const char *from, const char *end, const char *pages)
{
	for (; from < end; from += PAGE_SIZE, pages += PAGE_SIZE)
		kshrink_map((unsigned long)from, pages);
	return pages;
}

void __init kshrink_begin(void)
{
	const char *pages = map_boot(kshrink_frozen_text, kshrink_boot_text_end, kshrink_boot_pages);

	map_boot(kshrink_frozen_data, kshrink_boot_data_end, pages);
	kshrink_prepare();
}

/*
 * Replaces free_initmem() (arch/x86/mm/init.c, arch/arm/mm/init.c). From here on, boot-only pages thaw like all others.
 * No processor may start meanwhile, because it would miss the flush.
 */
void __ref __wrap_free_initmem(void)
{
	unsigned long address;

	cpus_read_lock();
	for (address = (unsigned long)kshrink_frozen_text; kshrink_is_frozen(address); address += PAGE_SIZE) {
		pte_t entry = READ_ONCE(*kshrink_pte_of(address));

		if (pte_present(entry) && kshrink_is_init(page_address(pte_page(entry))))
			kshrink_unmap(address);
	}
	flush_tlb_kernel_range((unsigned long)kshrink_frozen_text, (unsigned long)kshrink_frozen_end);
	cpus_read_unlock();
	kshrink_boot_is_over = true;
	__real_free_initmem();
}

/* Decodes a page and maps it. Returns whether it is mapped now. */
static bool thaw(unsigned long address, unsigned long ip)
{
	u32 number = kshrink_page_of(address);
	u64 since = local_clock();
	void *page = kshrink_take_page(false);
	int size;

	if (!page)
		return false;
	size = frozen_page(&kshrink_frozen, number, page);
	if (size < 0) {
		kshrink_give_back(page);
		return false;
	}
	memset(page + size, 0, PAGE_SIZE - size);
	if (kshrink_map(address, page)) {
		kshrink_remember(ip, number, since);
		kshrink_settle_later();
	} else {
		kshrink_give_back(page);
	}
	kshrink_refill();
	return true;
}

bool kshrink_thaw_at(unsigned long address, unsigned long ip, bool enabled)
{
	bool is_there;

	if (pte_present(READ_ONCE(*kshrink_pte_of(address))))
		return true;
	if (kshrink_is_refused())
		return false;
	/* As in the interrupted context, because thawing takes a while. */
	if (enabled)
		raw_local_irq_enable();
	is_there = thaw(address, ip);
	raw_local_irq_disable();
	return is_there;
}
