// SPDX-License-Identifier: MIT OR Apache-2.0
/* The part of the runtime for x86, for both mechanisms: addresses, and memory during boot. */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/set_memory.h>
#include <linux/vmalloc.h>

#include <asm/setup.h>
#include <asm/text-patching.h>

#include "runtime.h"
#include "x86.h"

#ifdef CONFIG_X86_64
/*
 * Frozen addresses end a GiB above the lowest address of the kernel's mapping, within the area of modules and the reach
 * of every instruction, in the page of page tables that maps the kernel (level2_kernel_pgt). The kernel is below that
 * area (KERNEL_IMAGE_SIZE).
 */
#define AREA_START MODULES_VADDR
#define AREA_END MODULES_END
KSHRINK_PLACE(__START_KERNEL_map + SZ_1G - SZ_64M, __START_KERNEL_map + SZ_1G, false);
#else
/*
 * Frozen addresses end with the vmalloc area, if nothing is reserved above that at boot (as mem_init() in
 * arch/x86/mm/init_32.c computes it). They are at most half of that area, in a kernel with as much memory as it can map.
 * Without physical address extension, data is executable, so copies need no window.
 */
#define AREA_START VMALLOC_START
#define AREA_END VMALLOC_END
#define __FIXADDR_TOP (-PAGE_SIZE)
KSHRINK_PLACE(VMALLOC_END - SZ_64M, VMALLOC_END, IS_ENABLED(CONFIG_X86_PAE));
#undef __FIXADDR_TOP
#endif

/* The first page taken from the room after the kernel, and the number of pages of memory that were mapped then. */
static void *first_page __initdata;
static unsigned long mapped_first __initdata;

/* Room after the kernel for thaws before memblock has any memory; the unused rest is then free. */
RESERVE_BRK(kshrink, 128 * PAGE_SIZE);

bool kshrink_can_allocate(void)
{
	return after_bootmem;
}

/*
 * While init_mem_mapping() maps memory, allocations are limited to the first MiB, and reserve_real_mode() may have
 * reserved all of it. i386 has mapped more from the start; x86-64 maps what is accessed (early_make_pgtable()).
 */
static void *__init page_above(void)
{
	phys_addr_t end = IS_ENABLED(CONFIG_X86_64) ? MEMBLOCK_ALLOC_ANYWHERE : PFN_PHYS(mapped_first);
	phys_addr_t page = memblock_phys_alloc_range(PAGE_SIZE, PAGE_SIZE, SZ_1M, end);

	return page ? __va(page) : NULL;
}

/*
 * reserve_brk() in setup_arch() reserves the used part of the room after the kernel, which is at least one page. The
 * room can then no longer be used.
 */
void __ref *kshrink_early_page(bool for_good)
{
	void *page;

	if (memblock_phys_mem_size()) {
		page = memblock_alloc(PAGE_SIZE, PAGE_SIZE);
		return page ? page : page_above();
	}
	if (first_page && memblock_is_reserved(__pa(first_page)))
		return NULL;
	page = extend_brk(PAGE_SIZE, PAGE_SIZE);
	if (!first_page) {
		first_page = page;
		mapped_first = max_pfn_mapped;
	}
	return page;
}

void __init kshrink_check_addresses(unsigned long first, unsigned long end)
{
	if (first < AREA_START || end > AREA_END)
		panic("kshrink: frozen code at %lx-%lx is not within the area %lx-%lx; boot without vmalloc= and reservetop=",
		      first, end, AREA_START, AREA_END);
}

/* Returns the entry of the page middle directory for an address. */
static pmd_t __init *pmd_of(unsigned long address)
{
#ifdef CONFIG_X86_64
	return level2_kernel_pgt + pmd_index(address);
#else
	pgd_t *entry = initial_page_table + pgd_index(address);

	return pmd_offset(pud_offset(p4d_offset(entry, address), address), address);
#endif
}

void __init kshrink_prepare(void)
{
	unsigned long address = (unsigned long)kshrink_mapped & PMD_MASK;
	pte_t *table = kshrink_page_tables;

	/*
	 * On an i386, setup_arch() copies entries of the page directory to the one from which all others are copied. With
	 * physical address extension, both lead to one table of these entries.
	 */
	for (; address < (unsigned long)kshrink_frozen_end; address += PMD_SIZE, table += PTRS_PER_PTE)
		native_set_pmd(pmd_of(address), __pmd(__pa(table) | _KERNPG_TABLE));
}

bool kshrink_is_strict(void)
{
	return IS_ENABLED(CONFIG_STRICT_KERNEL_RWX) && rodata_enabled;
}

bool kshrink_write_protect(unsigned long page)
{
	if (!kshrink_is_strict())
		return false;
	if (!set_memory_ro(page, 1))
		return true;
	pr_warn_once("kshrink: no memory to write-protect a page; tried again with the next one\n");
	return false;
}
