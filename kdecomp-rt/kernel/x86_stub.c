// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Stubs and copies of regions on an i386. Copies lie in pages of the linear mapping, which are all executable; with
 * physical address extension, in a window (window.c).
 */
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/string.h>

#include <asm/tlbflush.h>

#include "runtime.h"
#include "x86.h"

/* The first byte of a stub, a direct call. */
#define CALL 0xe8

asmlinkage void kshrink_enter(void);

asm(".pushsection .text, \"ax\"\n"
    ".globl kshrink_enter\n"
    ".type kshrink_enter, @function\n"
    "kshrink_enter:\n"
    "	pushfl\n"
    "	pushal\n"
    "	pushl 36(%esp)\n"
    "	call kshrink_copy\n"
    "	addl $4, %esp\n"
    "	movl %eax, 36(%esp)\n"
    "	popal\n"
    "	popfl\n"
    "	ret\n"
    ".size kshrink_enter, . - kshrink_enter\n"
    ".popsection\n");

bool __init kshrink_is_stub(const u8 *at)
{
	s32 distance;

	memcpy(&distance, at + 1, sizeof(distance));
	return *at == CALL && (unsigned long)at + STUB_SIZE + distance == (unsigned long)kshrink_enter;
}

/* Processors detect modified code (Intel SDM, volume 3A, section 12.6). */
void kshrink_publish(const void *code, size_t size)
{
}

#ifdef CONFIG_X86_PAE
bool kshrink_map_room(unsigned long address, const void *page)
{
	return kshrink_map_as(address, page, PAGE_KERNEL_EXEC);
}

void *kshrink_take_room(void)
{
	return kshrink_take_from_window();
}

void kshrink_seal(unsigned long page)
{
	pte_t *entry = kshrink_pte_of(page), pte = READ_ONCE(*entry);

	if (!kshrink_is_strict() || !pte_write(pte))
		return;
	native_set_pte(entry, pfn_pte(pte_pfn(pte), PAGE_KERNEL_ROX));
	flush_tlb_kernel_range(page, page + PAGE_SIZE);
}
#else
void *kshrink_take_room(void)
{
	return kshrink_take_page(true);
}

void kshrink_give_room_back(void *room)
{
	kshrink_give_back(room);
}

void kshrink_seal(unsigned long page)
{
	u32 level;
	pte_t *linear = lookup_address(page, &level);

	if (linear && pte_write(*linear))
		kshrink_write_protect(page);
}
#endif
