// SPDX-License-Identifier: MIT OR Apache-2.0
/* Aborts, and pages that thaw at their addresses, of an ARMv7-A (ARM DDI 0406C, section B3). */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/ptrace.h>

#include <asm/cp15.h>
#include <asm/pgalloc.h>

#include "arm32.h"
#include "runtime.h"

struct machine_desc;

asmlinkage void __real_do_DataAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void __wrap_do_DataAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void __real_do_PrefetchAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void __wrap_do_PrefetchAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void kshrink_early_abort(unsigned long address, unsigned int status, unsigned long ip);
void __real_early_trap_init(void *vectors);
void __wrap_early_trap_init(void *vectors);
void __real_paging_init(const struct machine_desc *machine);
void __wrap_paging_init(const struct machine_desc *machine);

/* vectors.S */
extern const char kshrink_early_vectors[];

/* Of the status of an abort (ARM DDI 0406C, table B3-23). */
#define WRITE BIT(11)
#define FAULT(status) ((status) & (BIT(10) | 0xf))
#define TRANSLATION_OF_SECTION 0x5
#define TRANSLATION_OF_PAGE 0x7

/* Where the kernel has its vectors. */
#define VECTORS 0xffff0000UL

void __init kshrink_prepare(void)
{
	kshrink_add_tables();
	/* Until the kernel has vectors of its own, those of vectors.S are used in place of high ones. */
	asm volatile("mcr p15, 0, %0, c12, c0, 0" : : "r" (kshrink_early_vectors));
	isb();
	set_cr(get_cr() & ~CR_V);
}

bool kshrink_map(unsigned long address, const void *page)
{
	kshrink_make_coherent(page, PAGE_SIZE);
	return kshrink_map_as(address, page,
			      address < (unsigned long)kshrink_frozen_data ? L_PTE_RDONLY : L_PTE_RDONLY | L_PTE_XN);
}

static pte_t nothing(pte_t entry)
{
	return __pte(0);
}

pte_t kshrink_unmap(unsigned long address)
{
	return kshrink_change(address, nothing);
}

/* The linear mapping is one of sections, of which none is read-only but the kernel's. */
void kshrink_protect(unsigned long address)
{
}

bool kshrink_unprotect(pte_t entry)
{
	return true;
}

/* Whose fault it is says the address alone. */
static bool is_handled(unsigned long address, unsigned int status, unsigned long ip, bool enabled)
{
	if (likely(!kshrink_is_frozen(address)) || status & WRITE)
		return false;
	/* Without a table: prepare_page_table() takes all away that lies below the kernel. Processes have a copy of the entry for it. */
	if (FAULT(status) == TRANSLATION_OF_SECTION) {
		if (!pmd_none(*pmd_off_k(address)))
			return false;
		kshrink_add_tables();
		return true;
	}
	return FAULT(status) == TRANSLATION_OF_PAGE && kshrink_thaw_at(address, ip, enabled);
}

/* Instead of do_DataAbort() (arch/arm/mm/fault.c), with interrupts off. */
asmlinkage void __wrap_do_DataAbort(unsigned long address, unsigned int status, struct pt_regs *regs)
{
	if (user_mode(regs) || !is_handled(address, status, regs->ARM_pc, interrupts_enabled(regs)))
		__real_do_DataAbort(address, status, regs);
}

/* The address that was not there: that of the abort may be that of an instruction whose second half lies on the next page. */
static unsigned long fetched(unsigned long address)
{
	bool is_there = kshrink_is_frozen(address) && pte_present(READ_ONCE(*kshrink_pte_of(address)));
	bool may_go_on = offset_in_page(address) == PAGE_SIZE - 2 && kshrink_is_frozen(address + 2);

	return is_there && may_go_on ? address + 2 : address;
}

/* Instead of do_PrefetchAbort() (arch/arm/mm/fault.c), with interrupts off. A fetch is no write, whatever its status says. */
asmlinkage void __wrap_do_PrefetchAbort(unsigned long address, unsigned int status, struct pt_regs *regs)
{
	if (user_mode(regs) || !is_handled(fetched(address), status & ~WRITE, regs->ARM_pc, interrupts_enabled(regs)))
		__real_do_PrefetchAbort(address, status, regs);
}

/*
 * What vectors.S calls. An abort that is not about frozen addresses is what it is without the runtime: it goes to vectors that
 * are not there.
 */
asmlinkage void kshrink_early_abort(unsigned long address, unsigned int status, unsigned long ip)
{
	if (!is_handled(fetched(address), status, ip, false))
		set_cr(get_cr() | CR_V);
}

/* Maps the vectors where devicemaps_init() is about to map them (arch/arm/mm/mmu.c). */
static void __init map_vectors(const char *vectors)
{
	pmd_t *table = pmd_off_k(VECTORS);
	u32 i;

	if (pmd_none(*table))
		pmd_populate_kernel(&init_mm, table, memblock_alloc(PAGE_SIZE, PAGE_SIZE));
	for (i = 0; i < 2; i++)
		cpu_v7_set_pte_ext(pte_offset_kernel(table, VECTORS + i * PAGE_SIZE),
				   pfn_pte((__pa(vectors) >> PAGE_SHIFT) + i, PAGE_KERNEL_EXEC), 0);
	dsb(ishst);
	isb();
}

/* Instead of early_trap_init() (arch/arm/kernel/traps.c): what it is called for is mapped some time later, and used from here on. */
void __init __wrap_early_trap_init(void *vectors)
{
	__real_early_trap_init(vectors);
	map_vectors(vectors);
	set_cr(get_cr() | CR_V);
}

/* Instead of paging_init() (arch/arm/mm/mmu.c): behind it, all memory of memblock is mapped. */
void __init __wrap_paging_init(const struct machine_desc *machine)
{
	__real_paging_init(machine);
	kshrink_begin_memblock();
}
