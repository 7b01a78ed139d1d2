/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef KSHRINK_ARM32_H
#define KSHRINK_ARM32_H

#include <linux/pgtable.h>
#include <linux/types.h>

/*
 * The processor's own function, because the kernel's tables of them are filled in setup_arch() (arch/arm/mm/proc-v7-2level.S).
 */
void cpu_v7_set_pte_ext(pte_t *entry, pte_t value, unsigned int extended);

/* Gives addresses from `kshrink_mapped` on their page tables. */
void kshrink_add_tables(void);

/* Whether memblock has memory that is mapped; until then, pages come from init data. */
extern bool kshrink_has_memblock;

/* To be called when that is so, before there are processes. */
void kshrink_begin_memblock(void);

/* Makes code that was written there code that can be fetched (ARM DDI 0406C, section A3.5.4), on all processors. */
void kshrink_make_coherent(const void *start, size_t size);

/*
 * Maps a page of the linear mapping at an address that has a page table, with these bits besides those of kernel memory, in any
 * context. Returns whether nothing was there; if something was, it stays.
 */
bool kshrink_map_as(unsigned long address, const void *page, pteval_t bits);

/* Writes another entry for an address, in any context. Returns the one that was there. Translation buffers may have that. */
pte_t kshrink_change(unsigned long address, pte_t (*change)(pte_t entry));

#endif
