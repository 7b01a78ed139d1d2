// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Protection by pages for an ARMv7-A kernel whose segments (text, read-only data, init, data) are packed
 * (docs/memory.md).
 *
 * The kernel's own linker script begins each segment in a section of its own, 1 MiB, because the kernel protects whole
 * sections. In a packed kernel, a segment begins on the next page. This file replaces the functions that protect
 * sections. Where the protection changes within a section, it has a page table. As in create_mapping()
 * (arch/arm/mm/mmu.c), a page table is always for a pair of sections.
 *
 * The names __wrap_X and __real_X are those of `ld --wrap=X`. free_initmem() and mark_rodata_ro() take the place of the
 * kernel's own functions of the same name.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/proc_fs.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

#include <asm/cacheflush.h>
#include <asm/mach-types.h>
#include <asm/pgalloc.h>
#include <asm/ptdump.h>
#include <asm/sections.h>
#include <asm/tlbflush.h>

#include "segments.h"

void __real_bootmem_init(void);
void __wrap_bootmem_init(void);

/* replace_entries.S */
void kshrink_replace_entries(pmd_t *entries, pmdval_t first, pmdval_t second);
void kshrink_split_sections(void);

/* A pair of sections that is free in the page tables before there are processes: user space. */
#define ALIAS PMD_SIZE

/* Returns the entry of an address in the first level. */
static pmd_t *entry_of(struct mm_struct *mm, unsigned long address)
{
	return pmd_off(mm, address) + (address & SECTION_SIZE ? 1 : 0);
}

static bool is_section(pmd_t entry)
{
	return (pmd_val(entry) & PMD_TYPE_MASK) == PMD_TYPE_SECT;
}

static bool is_table(pmd_t entry)
{
	return (pmd_val(entry) & PMD_TYPE_MASK) == PMD_TYPE_TABLE;
}

/* Returns the end of the range or of the section at an address, whichever comes first. */
static unsigned long section_end(unsigned long address, unsigned long end)
{
	return min((address & SECTION_MASK) + SECTION_SIZE, end);
}

/* Fills the part of a page table that maps a section, with the same protection. */
static void __init fill(pte_t *table, unsigned long address, pmd_t section)
{
	unsigned long pfn = (pmd_val(section) & SECTION_MASK) >> PAGE_SHIFT, behind = address + SECTION_SIZE;

	for (; address != behind; address += PAGE_SIZE, pfn++) {
		bool runs = !(pmd_val(section) & PMD_SECT_XN) && address < (unsigned long)__init_end;

		set_pte_ext(table + pte_index(address), pfn_pte(pfn, runs ? PAGE_KERNEL_EXEC : PAGE_KERNEL), 0);
	}
}

/* Copies the part of a page table for one section of a pair, with the processor's part. */
static void __init copy_half(pte_t *table, const pte_t *from, u32 half)
{
	u32 first = half * (PTRS_PER_PTE / 2);

	memcpy(table + first, from + first, PTRS_PER_PTE / 2 * sizeof(pte_t));
	memcpy(table + PTE_HWTABLE_PTRS + first, from + PTE_HWTABLE_PTRS + first, PTRS_PER_PTE / 2 * sizeof(pte_t));
	clean_dcache_area(table + PTE_HWTABLE_PTRS + first, PTRS_PER_PTE / 2 * sizeof(pte_t));
}

/*
 * Replaces a pair of sections by pages. A processor must not find a section and a page for the same address (ARM DDI
 * 0406C, section B3.10.1), so the pair is unmapped in between. The code that does this, and the entries of the first
 * level, are reached through an alias meanwhile.
 */
static void __init __nocfi split(unsigned long pair)
{
	pte_t *table = memblock_alloc(PAGE_SIZE, PAGE_SIZE);
	pmd_t *entries = pmd_off_k(pair);
	pmdval_t value = __pa(table + PTE_HWTABLE_PTRS) | _PAGE_KERNEL_TABLE;
	typeof(kshrink_replace_entries) *replace = (void *)(ALIAS + ((unsigned long)kshrink_replace_entries & ~SECTION_MASK));
	u32 i;

	if (!table)
		panic("kshrink: no memory for a page table");
	for (i = 0; i < 2; i++) {
		if (is_section(entries[i]))
			fill(table, pair + i * SECTION_SIZE, entries[i]);
		else if (is_table(entries[i]))
			copy_half(table, __va(pmd_val(entries[i]) & PAGE_MASK), i);
	}
	replace((void *)(ALIAS + SECTION_SIZE + ((unsigned long)entries & ~SECTION_MASK)), value,
		value + PTRS_PER_PTE / 2 * sizeof(pte_t));
}

/* Splits the pairs of sections in which the protection changes, before there are processes and other processors. */
void __init kshrink_split_sections(void)
{
	const unsigned long bounds[] = {
		(unsigned long)__start_rodata, (unsigned long)__init_begin, (unsigned long)__init_end,
	};
	pmd_t *alias = pmd_off_k(ALIAS);
	u32 i;

	alias[0] = *entry_of(&init_mm, (unsigned long)kshrink_replace_entries);
	alias[1] = *entry_of(&init_mm, (unsigned long)swapper_pg_dir);
	flush_pmd_entry(alias);
	isb();
	for (i = 0; i < ARRAY_SIZE(bounds); i++)
		if (bounds[i] & ~SECTION_MASK && is_section(*entry_of(&init_mm, bounds[i])))
			split(bounds[i] & PMD_MASK);
	pmd_clear(alias);
	local_flush_tlb_all();
	__flush_icache_all();
}

/* Replaces bootmem_init() (arch/arm/mm/init.c), which paging_init() calls when all memory is mapped. */
void __init __wrap_bootmem_init(void)
{
	kshrink_split_sections();
	__real_bootmem_init();
}

/* Additional bits of entries. */
struct protection {
	unsigned long start, end;
	pmdval_t section;
	pteval_t page;
};

/* Everything up to the data, except for the text. */
static const struct protection no_execution[] = {
	{ PAGE_OFFSET, (unsigned long)_stext, PMD_SECT_XN, L_PTE_XN },
	{ (unsigned long)__start_rodata, (unsigned long)__init_end, PMD_SECT_XN, L_PTE_XN },
};

static const struct protection no_writing[] = {
	{ (unsigned long)_stext, (unsigned long)__init_begin, PMD_SECT_APX | PMD_SECT_AP_WRITE, L_PTE_RDONLY },
};

/* Protects the whole sections of a range in the page tables of a process. */
static void protect_sections(struct mm_struct *mm, const struct protection *protection)
{
	unsigned long address, next;

	for (address = protection->start; address < protection->end; address = next) {
		pmd_t *entry = entry_of(mm, address);

		next = section_end(address, protection->end);
		if (is_section(*entry)) {
			*entry = __pmd(pmd_val(*entry) | protection->section);
			flush_pmd_entry(entry);
		}
	}
}

/* Protects the single pages of a range, whose page tables all processes share. */
static void protect_pages(const struct protection *protection)
{
	unsigned long address, next;

	for (address = protection->start; address < protection->end; address = next) {
		next = section_end(address, protection->end);
		if (!is_table(*entry_of(&init_mm, address)))
			continue;
		for (; address < next; address += PAGE_SIZE) {
			pte_t *entry = pte_offset_kernel(pmd_off_k(address), address);

			set_pte_ext(entry, __pte(pte_val(*entry) | protection->page), 0);
		}
	}
}

/* Protects a range for all processes, like update_sections_early() (arch/arm/mm/init.c). Nothing else may run. */
static int protect(void *argument)
{
	const struct protection *protection = argument;
	struct task_struct *process, *thread;

	for_each_process(process) {
		if (process->flags & PF_KTHREAD)
			continue;
		for_each_thread(process, thread)
			if (thread->mm)
				protect_sections(thread->mm, protection);
	}
	protect_sections(current->active_mm, protection);
	protect_sections(&init_mm, protection);
	protect_pages(protection);
	return 0;
}

static void protect_all(const struct protection *protections, u32 count)
{
	u32 i;

	/* As arch_has_strict_perms(): ARMv7 always has these bits. */
	for (i = 0; i < count; i++) {
		stop_machine(protect, (void *)(protections + i), NULL);
		flush_tlb_kernel_range(protections[i].start, protections[i].end);
	}
}

/* Returns the size of the memory that the kernel's own linker script leaves unused behind a segment. */
static unsigned long unused_behind(const char *start, const char *end)
{
	return -(end - start) & ~SECTION_MASK & PAGE_MASK;
}

unsigned long kshrink_packed_kib(void)
{
	unsigned long size = unused_behind(_stext, __init_begin);

	if (IS_ENABLED(CONFIG_DEBUG_ALIGN_RODATA))
		size = unused_behind(_stext, _etext) + unused_behind(__start_rodata, __init_begin);
	return size >> 10;
}

/* Takes the place of free_initmem() (arch/arm/mm/init.c). */
void __ref free_initmem(void)
{
	u32 *word;

	protect_all(no_execution, ARRAY_SIZE(no_execution));
	/* An undefined instruction, as poison_init_mem(). */
	for (word = (u32 *)__init_begin; word != (u32 *)__init_end; word++)
		*word = 0xe7fddef0;
	if (!machine_is_integrator() && !machine_is_cintegrator())
		free_initmem_default(-1);
	pr_info("kshrink: %lu KiB between sections freed\n", kshrink_packed_kib());
}

/* Takes the place of mark_rodata_ro() (arch/arm/mm/init.c). */
void mark_rodata_ro(void)
{
	protect_all(no_writing, ARRAY_SIZE(no_writing));
#ifdef arm_debug_checkwx
	arm_debug_checkwx();
#else
	debug_checkwx();
#endif
}

#if !defined(KSHRINK_FREEZES) && defined(CONFIG_PROC_FS)
/* /proc/kshrink of a kernel without frozen parts; those have the file of proc.c. */
static int show(struct seq_file *file, void *unused)
{
	seq_printf(file, "freed_between_sections_kib %lu\n", kshrink_packed_kib());
	return 0;
}

static int __init start(void)
{
	if (!proc_create_single("kshrink", 0400, NULL, show))
		pr_warn("kshrink: /proc/kshrink is not there: no memory\n");
	return 0;
}
device_initcall(start);
#endif
