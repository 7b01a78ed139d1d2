// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The part of the runtime for an ARMv7-A (ARM DDI 0406C, section B3), for both mechanisms: addresses, page tables, and
 * memory during boot.
 *
 * Frozen addresses lie below the kernel, at the end of the module area, which direct branches reach. With short
 * descriptors, page-table entries come in pairs (arch/arm/include/asm/pgtable-2level.h): Linux's own, and after these the
 * processor's, which cpu_v7_set_pte_ext() derives from them. With long descriptors (CONFIG_ARM_LPAE), they are the
 * processor's, with bits of Linux. In both, the table of a page maps 2 MiB.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/spinlock.h>

#include <asm/cp15.h>
#include <asm/cputype.h>
#include <asm/pgalloc.h>
#include <asm/smp_plat.h>
#include <asm/unwind.h>

#include "arm32.h"
#include "runtime.h"

void __real_memblock_free_all(void);
void __wrap_memblock_free_all(void);

/* The function for this processor, like cpu_v7_set_pte_ext() (arch/arm/mm/cache-v7.S). */
void v7_flush_icache_all(void);

KSHRINK_PLACE(MODULES_VADDR, MODULES_END, true);

/* Protects changes of entries. */
static DEFINE_RAW_SPINLOCK(changes);

/* Pages for thaws before the memory of memblock is mapped. They are freed with init data. */
static char pool[128][PAGE_SIZE] __initdata __aligned(PAGE_SIZE);
static u32 pool_used __initdata;

/* Whether memblock has given its memory to the page allocator. */
static bool has_allocator __ro_after_init;

bool kshrink_has_memblock __ro_after_init;

bool kshrink_can_allocate(void)
{
	return has_allocator;
}

void __ref *kshrink_early_page(bool for_good)
{
	if (kshrink_has_memblock)
		return memblock_alloc(PAGE_SIZE, PAGE_SIZE);
	return !for_good && pool_used < ARRAY_SIZE(pool) ? pool[pool_used++] : NULL;
}

void __init kshrink_check_addresses(unsigned long first, unsigned long end)
{
	if (first < MODULES_VADDR || end > MODULES_END)
		panic("kshrink: frozen code at %lx-%lx is not within the area of modules", first, end);
}

/*
 * Writes cached data back to memory, from which instructions and, on some processors, page-table entries are fetched.
 * Some kernel functions for this do nothing before setup_arch() has identified the processor.
 */
static void clean(const void *start, size_t size)
{
	u32 line = 4 << ((read_cpuid_cachetype() >> 16) & 0xf);
	const char *at;

	for (at = PTR_ALIGN_DOWN((const char *)start, line); at < (const char *)start + size; at += line)
		asm volatile("mcr p15, 0, %0, c7, c10, 1" : : "r" (at) : "memory");
	dsb(ish);
}

void kshrink_add_tables(void)
{
	unsigned long address = (unsigned long)kshrink_mapped & PMD_MASK;
	pte_t *table = kshrink_page_tables;

	for (; address < (unsigned long)kshrink_frozen_end; address += PMD_SIZE, table += PAGE_SIZE / sizeof(pte_t)) {
		clean(table, PAGE_SIZE);
		pmd_populate_kernel(&init_mm, pmd_off_k(address), table);
		clean(pmd_off_k(address), sizeof(pgd_t));
	}
	isb();
}

void kshrink_make_coherent(const void *start, size_t size)
{
	clean(start, size);
	v7_flush_icache_all();
	dsb(ish);
	isb();
}

static pte_t entry_for(const void *page, pteval_t bits)
{
	pteval_t kind = pgprot_val(pgprot_kernel);

	/*
	 * Before build_mem_type_table() (arch/arm/mm/mmu.c), use its later value, which arch/arm/mm/proc-v7.S also
	 * uses.
	 */
	if (!kind)
		kind = L_PTE_PRESENT | L_PTE_YOUNG | L_PTE_DIRTY |
		       (is_smp() ? L_PTE_MT_WRITEALLOC | L_PTE_SHARED : L_PTE_MT_WRITEBACK);
	return pfn_pte(__pa(page) >> PAGE_SHIFT, __pgprot(kind | bits));
}

bool kshrink_map_as(unsigned long address, const void *page, pteval_t bits)
{
	pte_t *entry = kshrink_pte_of(address);
	unsigned long flags;
	bool is_empty;

	raw_spin_lock_irqsave(&changes, flags);
	is_empty = pte_none(*entry);
	if (is_empty) {
		kshrink_set_entry(entry, entry_for(page, bits));
		/* Nothing to flush: the processor does not cache absent entries. */
		dsb(ishst);
		isb();
	}
	raw_spin_unlock_irqrestore(&changes, flags);
	return is_empty;
}

pte_t kshrink_change(unsigned long address, pte_t (*change)(pte_t entry))
{
	pte_t *entry = kshrink_pte_of(address), old;
	unsigned long flags;

	raw_spin_lock_irqsave(&changes, flags);
	old = *entry;
	kshrink_set_entry(entry, change(old));
	dsb(ishst);
	raw_spin_unlock_irqrestore(&changes, flags);
	return old;
}

void __init kshrink_begin_memblock(void)
{
	/* Before there are processes, which get copies of these entries (with long descriptors, when they fault). */
	kshrink_add_tables();
	kshrink_has_memblock = true;
}

/* Replaces memblock_free_all() (mm/memblock.c), which passes its memory to the page allocator. */
void __init __wrap_memblock_free_all(void)
{
	has_allocator = true;
	__real_memblock_free_all();
}

#ifdef CONFIG_ARM_UNWIND
/* From the link: the unwind table of frozen code. */
extern const char kshrink_unwind[], kshrink_unwind_end[];

static int __init add_unwind_table(void)
{
	unwind_table_add((unsigned long)kshrink_unwind, kshrink_unwind_end - kshrink_unwind, (unsigned long)kshrink_frozen_text,
			 kshrink_frozen_data - kshrink_frozen_text);
	return 0;
}
core_initcall(add_unwind_table);
#endif
