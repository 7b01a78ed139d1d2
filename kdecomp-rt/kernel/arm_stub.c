// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Stubs and copies of regions on an ARMv7-A.
 *
 * Direct branches of copies must reach the kernel. Copies therefore lie in a window of addresses below it (window.c).
 * Until paging_init() has mapped all memory, they lie in init data, which branches reach as well. Then they are
 * discarded: the only task is in start_kernel() and setup_arch(), which do not freeze. Regions that are needed again
 * thaw into the window.
 */
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/string.h>

#include <asm/stacktrace.h>
#include <asm/tlbflush.h>
#include <asm/unwind.h>

#include "arm32.h"
#include "runtime.h"

struct machine_desc;

void __real_paging_init(const struct machine_desc *machine);
void __wrap_paging_init(const struct machine_desc *machine);

/* stub_entry.S */
asmlinkage void kshrink_enter(void);

/* Whether code saves the link register and calls kshrink_enter (ARM DDI 0406C, section A8.8.25). */
bool __init kshrink_is_stub(const u8 *at)
{
	unsigned long end = (unsigned long)at + STUB_SIZE, enter = (unsigned long)kshrink_enter;
#ifdef CONFIG_THUMB2_KERNEL
	const u16 *code = (const u16 *)at;
	u32 distance = (enter & ~1ul) - end, sign = distance >> 24 & 1;
	u16 first = 0xf000 | sign << 10 | (distance >> 12 & 0x3ff), second = 0xd000 | (distance >> 1 & 0x7ff);

	second |= (~(distance >> 23 ^ sign) & 1) << 13 | (~(distance >> 22 ^ sign) & 1) << 11;
	return code[0] == 0xb500 && code[1] == first && code[2] == second;
#else
	const u32 *code = (const u32 *)at;

	return code[0] == 0xe52de004 && code[1] == (0xeb000000 | ((enter - end - 4) >> 2 & 0xffffff));
#endif
}

/* Replaces paging_init() (arch/arm/mm/mmu.c), with interrupts off. */
void __init __wrap_paging_init(const struct machine_desc *machine)
{
	__real_paging_init(machine);
	kshrink_begin_memblock();
	kshrink_forget();
}

void __init kshrink_prepare(void)
{
}

void *kshrink_take_room(void)
{
	return kshrink_has_memblock ? kshrink_take_from_window() : kshrink_take_page(false);
}

bool kshrink_map_room(unsigned long address, const void *page)
{
	return kshrink_map_as(address, page, 0);
}

void kshrink_publish(const void *code, size_t size)
{
	kshrink_make_coherent(code, size);
}

void kshrink_seal(unsigned long page)
{
	if (pte_write(*kshrink_pte_of(page))) {
		kshrink_change(page, pte_wrprotect);
		flush_tlb_kernel_range(page, page + PAGE_SIZE);
	}
}

#ifdef CONFIG_ARM_UNWIND
int __real_unwind_frame(struct stackframe *frame);
int __wrap_unwind_frame(struct stackframe *frame);

/* Replaces unwind_frame() (arch/arm/kernel/unwind.c): the index has frozen addresses. */
int __wrap_unwind_frame(struct stackframe *frame)
{
	frame->pc = kshrink_translated(frame->pc);
	return __real_unwind_frame(frame);
}
#endif
