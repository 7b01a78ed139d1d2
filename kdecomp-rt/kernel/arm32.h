/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef KSHRINK_ARM32_H
#define KSHRINK_ARM32_H

#include <linux/pgtable.h>
#include <linux/types.h>

/*
 * The function for this processor (arch/arm/mm/proc-v7-2level.S, proc-v7-3level.S); the kernel's table of such functions
 * is filled only in setup_arch().
 */
#ifdef CONFIG_ARM_LPAE
void cpu_v7_set_pte_ext(pte_t *entry, pte_t value);
#define kshrink_set_entry(entry, value) cpu_v7_set_pte_ext(entry, value)
#else
void cpu_v7_set_pte_ext(pte_t *entry, pte_t value, unsigned int extended);
#define kshrink_set_entry(entry, value) cpu_v7_set_pte_ext(entry, value, 0)
#endif

/* Installs the page tables of addresses from `kshrink_mapped` on. */
void kshrink_add_tables(void);

/* Whether the memory of memblock is mapped. Until then, pages come from init data. */
extern bool kshrink_has_memblock;

/* Must be called when that is so, before there are processes. */
void kshrink_begin_memblock(void);

/* Makes written code visible to instruction fetches of all processors (ARM DDI 0406C, section A3.5.4). */
void kshrink_make_coherent(const void *start, size_t size);

/*
 * Maps a page of the linear mapping at an address with a page table, as kernel memory with these additional bits, in
 * any context. Returns false, and changes nothing, if a page is already mapped there.
 */
bool kshrink_map_as(unsigned long address, const void *page, pteval_t bits);

/* Changes the entry of an address, in any context. Returns the old entry, which translation buffers may still have. */
pte_t kshrink_change(unsigned long address, pte_t (*change)(pte_t entry));

#endif
