// SPDX-License-Identifier: MIT OR Apache-2.0
/* By page, faults and page tables of x86. */
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/set_memory.h>

#include <asm/tlbflush.h>
#include <asm/trap_pf.h>
#include <asm/trapnr.h>

#include "runtime.h"
#include "x86.h"

/* The bit of a page-table entry that marks a read-only linear mapping. Processors ignore it. */
#define PROTECTED _PAGE_BIT_SOFTW2

void __real_exc_page_fault(struct pt_regs *regs, unsigned long error_code);
void __wrap_exc_page_fault(struct pt_regs *regs, unsigned long error_code);
void __real_early_fixup_exception(struct pt_regs *regs, int trap);
void __wrap_early_fixup_exception(struct pt_regs *regs, int trap);

bool kshrink_map(unsigned long address, const void *page)
{
	return kshrink_map_as(address, page,
			      address < (unsigned long)kshrink_frozen_data ? PAGE_KERNEL_ROX : PAGE_KERNEL_RO);
}

pte_t kshrink_unmap(unsigned long address)
{
	pte_t *entry = kshrink_pte_of(address), old, found = READ_ONCE(*entry);

	do {
		old = found;
		found = kshrink_exchange(entry, old, __pte(0));
	} while (!pte_same(found, old));
	return old;
}

void kshrink_protect(unsigned long address)
{
	pte_t *entry = kshrink_pte_of(address), pte = READ_ONCE(*entry);

	if (pte_present(pte) && !(pte_flags(pte) & BIT(PROTECTED)) &&
	    kshrink_write_protect((unsigned long)page_address(pte_page(pte))))
		set_bit(PROTECTED, (unsigned long *)&entry->pte);
}

/* A page that remains write-protected, for lack of memory, is unusable. */
bool kshrink_unprotect(pte_t entry)
{
	return !(pte_flags(entry) & BIT(PROTECTED)) || !set_memory_rw((unsigned long)page_address(pte_page(entry)), 1);
}

/* The faulting address alone decides whether the fault is ours: an instruction may begin on another page. */
static bool is_handled(struct pt_regs *regs, unsigned long error_code, unsigned long address)
{
	if (likely(!kshrink_is_frozen(address)) || error_code & ~X86_PF_INSTR)
		return false;
	if (kshrink_thaw_at(address, regs->ip, regs->flags & X86_EFLAGS_IF))
		return true;
	/* Another fault may have changed it. */
	write_cr2(address);
	return false;
}

/* Replaces exc_page_fault() (arch/x86/mm/fault.c), with interrupts off. */
__visible noinstr void __wrap_exc_page_fault(struct pt_regs *regs, unsigned long error_code)
{
	if (!is_handled(regs, error_code, read_cr2()))
		__real_exc_page_fault(regs, error_code);
}

/*
 * Replaces early_fixup_exception() (arch/x86/mm/extable.c), which handles exceptions until setup_arch() changes that.
 */
void __init __wrap_early_fixup_exception(struct pt_regs *regs, int trap)
{
	if (trap != X86_TRAP_PF || !is_handled(regs, regs->orig_ax, read_cr2()))
		__real_early_fixup_exception(regs, trap);
}
