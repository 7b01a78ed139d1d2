// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Deferred work on thawed pages: write protection, and refreezing on request.
 *
 * A page can be refrozen at any time, even while it runs: a frozen page may be absent at any access, and thaws with the
 * same bytes at the same address.
 */
#include <linux/cpu.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mutex.h>

#include <asm/tlbflush.h>

#include "runtime.h"

/* Number of pages to unmap before flushing the translation buffers of all processors and freeing the memory. */
#define BATCH 64

/* Protects changes of the linear mapping of thawed pages, and unmapping. */
static DEFINE_MUTEX(changes);

/*
 * Prevents processors from starting or stopping: such a processor runs kernel code, but does not yet, or no longer,
 * flush its translation buffers on request.
 */
static void begin(void)
{
	cpus_read_lock();
	mutex_lock(&changes);
}

static void end(void)
{
	mutex_unlock(&changes);
	cpus_read_unlock();
}

/* Unmaps the pages from `first` up to `behind`, and frees their memory. */
static void take_away(unsigned long first, unsigned long behind)
{
	unsigned long address = first;

	while (address < behind) {
		pte_t entries[BATCH];
		u32 count = 0, i;

		for (; address < behind && count < BATCH; address += PAGE_SIZE) {
			entries[count] = kshrink_unmap(address);
			count += !!pte_present(entries[count]);
		}
		if (count)
			flush_tlb_kernel_range(first, address);
		for (i = 0; i < count; i++)
			if (kshrink_unprotect(entries[i]))
				kshrink_free(page_address(pte_page(entries[i])));
		atomic_add(count, &kshrink_refrozen);
	}
}

int kshrink_refreeze(unsigned long first, unsigned long behind)
{
	if (kshrink_mode == REFUSE)
		return -EPERM;
	if (!kshrink_is_frozen(first) || !kshrink_is_frozen(behind - 1))
		return -EINVAL;
	/* The memory of some pages is freed with the init data. */
	if (system_state < SYSTEM_RUNNING)
		return -EBUSY;
	begin();
	take_away(first, behind);
	end();
	return 0;
}

/*
 * Once the kernel has booted, refreezes all thawed pages: most are not needed again, and pages from before the page
 * allocator was up lie in memory that it does not manage. The linear mapping of pages that thaw later is writable until
 * this makes it read-only.
 */
void kshrink_settle(void)
{
	static bool has_refrozen;
	unsigned long address;

	if (!kshrink_boot_is_over)
		panic("kshrink: this kernel freed its init data while pages of it were mapped as frozen code; freeze without --after-boot");
	begin();
	if (!has_refrozen && kshrink_mode != REFUSE)
		take_away((unsigned long)kshrink_frozen_text, (unsigned long)kshrink_frozen_end);
	has_refrozen = true;
	for (address = (unsigned long)kshrink_frozen_text; kshrink_is_frozen(address); address += PAGE_SIZE)
		kshrink_protect(address);
	end();
}
