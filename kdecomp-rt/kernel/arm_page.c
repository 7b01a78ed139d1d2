// SPDX-License-Identifier: MIT OR Apache-2.0
/* By page, aborts and page tables of an ARMv7-A (ARM DDI 0406C, section B3). */
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

/* Bits of the status of an abort (ARM DDI 0406C, tables B3-23 and B3-24). */
#define WRITE BIT(11)
#ifdef CONFIG_ARM_LPAE
#define FAULT(status) ((status) & 0x3f)
#define TRANSLATION_OF_SECTION 0x6
#else
#define FAULT(status) ((status) & (BIT(10) | 0xf))
#define TRANSLATION_OF_SECTION 0x5
#endif
#define TRANSLATION_OF_PAGE 0x7

/* The address of the kernel's vectors. */
#define VECTORS 0xffff0000UL

void __init kshrink_prepare(void)
{
	kshrink_add_tables();
	/* Until the kernel has its own vectors, use those of vectors.S instead of high vectors. */
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

/* The linear mapping consists of sections; only the kernel's are read-only. */
void kshrink_protect(unsigned long address)
{
}

bool kshrink_unprotect(pte_t entry)
{
	return true;
}

/*
 * Adds a missing page table. prepare_page_table() (arch/arm/mm/mmu.c) clears all entries below the kernel. Processes copy
 * the entries that are there then; with long descriptors, each begins without entries of the module area (pgd_alloc() in
 * arch/arm/mm/pgd.c). Returns false if nothing is missing.
 */
static bool add_table(unsigned long address)
{
	pmd_t *entry = pmd_off_k(address);

	if (pmd_none(*entry)) {
		kshrink_add_tables();
		return true;
	}
#ifdef CONFIG_ARM_LPAE
	{
		pgd_t *own = cpu_get_pgd() + pgd_index(address);
		pmd_t *copy = pmd_offset(pud_offset(p4d_offset(own, address), address), address);

		if (pmd_none(*copy)) {
			copy_pmd(copy, entry);
			return true;
		}
	}
#endif
	return false;
}

/* The faulting address alone decides whether the abort is ours. */
static bool is_handled(unsigned long address, unsigned int status, unsigned long ip, bool enabled)
{
	if (likely(!kshrink_is_frozen(address)) || status & WRITE)
		return false;
	if (FAULT(status) == TRANSLATION_OF_SECTION)
		return add_table(address);
	return FAULT(status) == TRANSLATION_OF_PAGE && kshrink_thaw_at(address, ip, enabled);
}

/* Replaces do_DataAbort() (arch/arm/mm/fault.c), with interrupts off. */
asmlinkage void __wrap_do_DataAbort(unsigned long address, unsigned int status, struct pt_regs *regs)
{
	if (user_mode(regs) || !is_handled(address, status, regs->ARM_pc, interrupts_enabled(regs)))
		__real_do_DataAbort(address, status, regs);
}

/* Returns the absent address. The abort may report an instruction whose second half lies on the next page. */
static unsigned long fetched(unsigned long address)
{
	bool is_there = kshrink_is_frozen(address) && pte_present(READ_ONCE(*kshrink_pte_of(address)));
	bool may_go_on = offset_in_page(address) == PAGE_SIZE - 2 && kshrink_is_frozen(address + 2);

	return is_there && may_go_on ? address + 2 : address;
}

/*
 * Replaces do_PrefetchAbort() (arch/arm/mm/fault.c), with interrupts off. A fetch is never a write, despite its status.
 */
asmlinkage void __wrap_do_PrefetchAbort(unsigned long address, unsigned int status, struct pt_regs *regs)
{
	if (user_mode(regs) || !is_handled(fetched(address), status & ~WRITE, regs->ARM_pc, interrupts_enabled(regs)))
		__real_do_PrefetchAbort(address, status, regs);
}

/*
 * Called by vectors.S. An abort at another address ends as without the runtime: it is taken again at high vectors,
 * which do not exist yet.
 */
asmlinkage void kshrink_early_abort(unsigned long address, unsigned int status, unsigned long ip)
{
	if (!is_handled(fetched(address), status, ip, false))
		set_cr(get_cr() | CR_V);
}

/* Maps the vectors where devicemaps_init() (arch/arm/mm/mmu.c) will map them. */
static void __init map_vectors(const char *vectors)
{
	pmd_t *table = pmd_off_k(VECTORS);
	u32 i;

	if (pmd_none(*table))
		pmd_populate_kernel(&init_mm, table, memblock_alloc(PAGE_SIZE, PAGE_SIZE));
	for (i = 0; i < 2; i++)
		kshrink_set_entry(pte_offset_kernel(table, VECTORS + i * PAGE_SIZE),
				  pfn_pte((__pa(vectors) >> PAGE_SHIFT) + i, PAGE_KERNEL_EXEC));
	dsb(ishst);
	isb();
}

/* Replaces early_trap_init() (arch/arm/kernel/traps.c): uses its vectors at once; the kernel maps them only later. */
void __init __wrap_early_trap_init(void *vectors)
{
	__real_early_trap_init(vectors);
	map_vectors(vectors);
	set_cr(get_cr() | CR_V);
}

/* Replaces paging_init() (arch/arm/mm/mmu.c), which maps all memory of memblock. */
void __init __wrap_paging_init(const struct machine_desc *machine)
{
	__real_paging_init(machine);
	kshrink_begin_memblock();
}
