// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What the runtime needs of an ARMv7-A with short descriptors (ARM DDI 0406C, section B3) by either mechanism: addresses, page
 * tables, and memory while the kernel boots.
 *
 * Frozen addresses lie below the kernel, at the end of the area of modules, which direct branches reach. Entries of page tables
 * come in pairs (arch/arm/include/asm/pgtable-2level.h): Linux's own, and behind these the processor's, which
 * cpu_v7_set_pte_ext() makes of them.
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

/* The processor's own, as cpu_v7_set_pte_ext() (arch/arm/mm/cache-v7.S). */
void v7_flush_icache_all(void);

/* For the link, which reads it from the object: where frozen addresses may be. */
__section(".discard.kshrink") __used const unsigned long kshrink_range[2] = { MODULES_VADDR, MODULES_END };

/* Held by who changes an entry. */
static DEFINE_RAW_SPINLOCK(changes);

/* Pages for what thaws before memblock has memory that is mapped. They go with the init data. */
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
 * Writes what lies here back to memory. Instructions are fetched from there, and so are entries of page tables by some processors;
 * of the kernel's functions for that, some do nothing before setup_arch() knows the processor.
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

	/* Before build_mem_type_table() (arch/arm/mm/mmu.c), what it will say, and arch/arm/mm/proc-v7.S has said of the kernel. */
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
		cpu_v7_set_pte_ext(entry, entry_for(page, bits), 0);
		/* The processor keeps no entries that are not present, so that there is nothing to flush. */
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
	cpu_v7_set_pte_ext(entry, change(old), 0);
	dsb(ishst);
	raw_spin_unlock_irqrestore(&changes, flags);
	return old;
}

void __init kshrink_begin_memblock(void)
{
	/* Before there are processes, which get copies of what is in these entries. */
	kshrink_add_tables();
	kshrink_has_memblock = true;
}

/* Instead of memblock_free_all() (mm/memblock.c), which lets the page allocator have its memory. */
void __init __wrap_memblock_free_all(void)
{
	has_allocator = true;
	__real_memblock_free_all();
}

#ifdef CONFIG_ARM_UNWIND
/* From the link: how frozen code is unwound. */
extern const char kshrink_unwind[], kshrink_unwind_end[];

static int __init add_unwind_table(void)
{
	unwind_table_add((unsigned long)kshrink_unwind, kshrink_unwind_end - kshrink_unwind, (unsigned long)kshrink_frozen_text,
			 kshrink_frozen_data - kshrink_frozen_text);
	return 0;
}
core_initcall(add_unwind_table);
#endif
