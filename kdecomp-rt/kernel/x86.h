/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef KSHRINK_X86_H
#define KSHRINK_X86_H

#include <linux/atomic.h>
#include <linux/pgtable.h>
#include <linux/types.h>

#include "runtime.h"

/* Whether kernel text is read-only. */
bool kshrink_is_strict(void);

/* Makes a page of the linear mapping read-only if kernel text is. Returns whether it is read-only now. May sleep. */
bool kshrink_write_protect(unsigned long page);

/* Writes a page-table entry if it still has its old value. Returns the value that it had. */
static inline pte_t kshrink_exchange(pte_t *entry, pte_t old, pte_t new)
{
#ifdef CONFIG_X86_PAE
	return native_make_pte(cmpxchg64(&entry->pte, old.pte, new.pte));
#else
	return native_make_pte(cmpxchg(&entry->pte, old.pte, new.pte));
#endif
}

/* Maps a page of the linear mapping at an address with a page table. Returns false if a page is already mapped there. */
static inline bool kshrink_map_as(unsigned long address, const void *page, pgprot_t protection)
{
	pte_t full = pfn_pte(__pa(page) >> PAGE_SHIFT, protection);

	/* Nothing to flush: the processor does not cache absent entries. */
	return pte_none(kshrink_exchange(kshrink_pte_of(address), __pte(0), full));
}

#endif
