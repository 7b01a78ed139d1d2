// SPDX-License-Identifier: MIT OR Apache-2.0
/* What the runtime needs of an i386 by either mechanism: addresses, and memory while the kernel boots. */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/set_memory.h>
#include <linux/vmalloc.h>

#include <asm/setup.h>
#include <asm/text-patching.h>

#include "runtime.h"
#include "x86.h"

/*
 * For the link, which reads it from the object: where frozen addresses may be. They end where the vmalloc area does, if nothing
 * is reserved above it at boot (as mem_init() in arch/x86/mm/init_32.c computes it), and take half of that area at most, of a
 * kernel with as much memory as it can map.
 */
#define __FIXADDR_TOP (-PAGE_SIZE)
__section(".discard.kshrink") __used const unsigned long kshrink_range[2] = { VMALLOC_END - SZ_64M, VMALLOC_END };
#undef __FIXADDR_TOP

/* The first page of the room behind the kernel. */
static void *first_page __initdata;

/* Room behind the kernel for pages that are thawed before memblock knows any memory; what is not used is free then. */
RESERVE_BRK(kshrink, 128 * PAGE_SIZE);

bool kshrink_can_allocate(void)
{
	return after_bootmem;
}

/*
 * reserve_brk() in setup_arch() ends the use of the room behind the kernel by reserving what was taken of it, and that is a page
 * at least.
 */
void __ref *kshrink_early_page(bool for_good)
{
	void *page;

	if (memblock_phys_mem_size())
		return memblock_alloc(PAGE_SIZE, PAGE_SIZE);
	if (first_page && memblock_is_reserved(__pa(first_page)))
		return NULL;
	page = extend_brk(PAGE_SIZE, PAGE_SIZE);
	if (!first_page)
		first_page = page;
	return page;
}

void __init kshrink_check_addresses(unsigned long first, unsigned long end)
{
	if (first < VMALLOC_START || end > VMALLOC_END)
		panic("kshrink: frozen code at %lx-%lx is not within the vmalloc area %lx-%lx; boot without vmalloc= and reservetop=",
		      first, end, VMALLOC_START, VMALLOC_END);
}

bool kshrink_write_protect(unsigned long page)
{
	if (!IS_ENABLED(CONFIG_STRICT_KERNEL_RWX) || !rodata_enabled)
		return false;
	if (!set_memory_ro(page, 1))
		return true;
	pr_warn_once("kshrink: no memory to write-protect a page; tried again with the next one\n");
	return false;
}
