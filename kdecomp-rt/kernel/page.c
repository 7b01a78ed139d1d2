// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Thaws pages of a frozen kernel when something touches them (docs/freezing.md).
 *
 * Frozen code and data have addresses at the top of the vmalloc area and no memory. The first access to a page faults;
 * the handler below decodes the page into memory of its own, which it writes through the linear mapping, and then maps
 * it, read-only, at its address. It stays from then on.
 *
 * Any number of processors and contexts (tasks, interrupts, non-maskable interrupts) may thaw at once, and the same page
 * as well: each decodes into a page of its own, and one compare-and-exchange of the page-table entry decides whose page
 * it is. What the handler calls is never frozen.
 *
 * Pages that are used whenever the kernel boots lie in its init data as well, and are mapped there until that is freed.
 */
#include <linux/cpu.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/sched/clock.h>
#include <linux/string.h>

#include <asm/e820/api.h>
#include <asm/setup.h>
#include <asm/text-patching.h>
#include <asm/tlbflush.h>
#include <asm/trap_pf.h>
#include <asm/trapnr.h>

#include "runtime.h"

void __real_e820__reallocate_tables(void);
void __wrap_e820__reallocate_tables(void);
void __real_exc_page_fault(struct pt_regs *regs, unsigned long error_code);
void __wrap_exc_page_fault(struct pt_regs *regs, unsigned long error_code);
void __real_early_fixup_exception(struct pt_regs *regs, int trap);
void __wrap_early_fixup_exception(struct pt_regs *regs, int trap);

const char kshrink_unit[] = "page";
bool kshrink_boot_is_over __ro_after_init;

bool kshrink_is_code(unsigned long address)
{
	return kshrink_is_frozen(address) && address < (unsigned long)kshrink_frozen_data;
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

static pte_t entry_for(const void *linear, unsigned long address)
{
	return pfn_pte(__pa(linear) >> PAGE_SHIFT,
		       address < (unsigned long)kshrink_frozen_data ? PAGE_KERNEL_ROX : PAGE_KERNEL_RO);
}

/* Maps these pages, or unmaps what is there if they are NULL. Returns what is behind the last one. */
static const char __init *map_boot(const char *from, const char *end, const char *pages)
{
	for (; from < end; from += PAGE_SIZE) {
		unsigned long address = (unsigned long)from;

		set_pte(kshrink_pte_of(address), pages ? entry_for(pages, address) : __pte(0));
		pages += pages ? PAGE_SIZE : 0;
	}
	return pages;
}

/*
 * Instead of e820__reallocate_tables() (arch/x86/kernel/e820.c), which is the first thing that free_initmem() does. From here
 * on, what is used at boot thaws like all else. A processor that starts meanwhile would not be asked to flush.
 */
void __init __wrap_e820__reallocate_tables(void)
{
	cpus_read_lock();
	map_boot(kshrink_frozen_text, kshrink_boot_text_end, NULL);
	map_boot(kshrink_frozen_data, kshrink_boot_data_end, NULL);
	flush_tlb_kernel_range((unsigned long)kshrink_frozen_text, (unsigned long)kshrink_frozen_end);
	cpus_read_unlock();
	kshrink_boot_is_over = true;
	__real_e820__reallocate_tables();
}

void __init kshrink_begin(void)
{
	unsigned long address = (unsigned long)kshrink_frozen_text & PMD_MASK;
	pte_t *table = kshrink_page_tables;
	const char *pages = map_boot(kshrink_frozen_text, kshrink_boot_text_end, kshrink_boot_pages);

	map_boot(kshrink_frozen_data, kshrink_boot_data_end, pages);

	/* setup_arch() copies these entries to the page directory that all others are copied from. */
	for (; address < (unsigned long)kshrink_frozen_end; address += PMD_SIZE, table += PTRS_PER_PTE)
		initial_page_table[pgd_index(address)] = __pgd(__pa(table) | _KERNPG_TABLE);
}

/* Decodes a page and maps it. Returns whether it is there now. */
static bool thaw(struct pt_regs *regs, unsigned long address)
{
	u32 number = kshrink_page_of(address);
	u64 since = local_clock();
	pte_t *entry = kshrink_pte_of(address), empty = __pte(0), full;
	bool is_there = false;
	void *page = kshrink_take_page();
	int size;

	if (!page)
		return false;
	size = frozen_page(&kshrink_frozen, number, page);
	if (size < 0) {
		kshrink_give_back(page);
		return false;
	}
	memset(page + size, 0, PAGE_SIZE - size);
	full = entry_for(page, address);
	/* The processor keeps no entries that are not present, so that there is nothing to flush. */
#ifdef CONFIG_X86_PAE
	is_there = cmpxchg64(&entry->pte, empty.pte, full.pte) == empty.pte;
#else
	is_there = cmpxchg(&entry->pte, empty.pte, full.pte) == empty.pte;
#endif
	if (is_there) {
		kshrink_remember(regs->ip, number, since);
		kshrink_settle_later();
	} else {
		kshrink_give_back(page);
	}
	kshrink_refill();
	return true;
}

/* Whose fault it is says the address alone: an instruction that begins on one page may end on a frozen one. */
static bool is_handled(struct pt_regs *regs, unsigned long error_code, unsigned long address)
{
	bool enabled = regs->flags & X86_EFLAGS_IF, is_there;

	if (likely(!kshrink_is_frozen(address)) || error_code & ~X86_PF_INSTR)
		return false;
	if (pte_present(READ_ONCE(*kshrink_pte_of(address))))
		return true;
	if (kshrink_is_refused())
		return false;
	/* As in the interrupted context: it takes a while. */
	if (enabled)
		raw_local_irq_enable();
	is_there = thaw(regs, address);
	raw_local_irq_disable();
	if (!is_there)
		write_cr2(address);
	return is_there;
}

/* Instead of exc_page_fault() (arch/x86/mm/fault.c), with interrupts off. */
__visible noinstr void __wrap_exc_page_fault(struct pt_regs *regs, unsigned long error_code)
{
	if (!is_handled(regs, error_code, read_cr2()))
		__real_exc_page_fault(regs, error_code);
}

/* Instead of early_fixup_exception() (arch/x86/mm/extable.c), which handles exceptions until setup_arch() changes that. */
void __init __wrap_early_fixup_exception(struct pt_regs *regs, int trap)
{
	if (trap != X86_TRAP_PF || !is_handled(regs, regs->orig_ax, read_cr2()))
		__real_early_fixup_exception(regs, trap);
}
