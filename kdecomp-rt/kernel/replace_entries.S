/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * void kshrink_replace_entries(pmd_t *entries, pmdval_t first, pmdval_t second)
 *
 * Replaces the two entries of a pair of sections, which may map anything but `entries` and this code: clears them,
 * invalidates the translation buffers of this processor, and writes the new entries (ARM DDI 0406C, section B3.10.1).
 * Uses no stack. The code must not cross the end of a section, so its alignment is at least its size.
 */
#ifdef CONFIG_THUMB2_KERNEL
	.thumb
#else
	.arm
#endif
	.syntax unified
	.arch armv7-a
	.section .init.text, "ax", %progbits
	.balign 128
	.globl kshrink_replace_entries
	.type kshrink_replace_entries, %function
kshrink_replace_entries:
	mrs	r3, cpsr
	cpsid	aif
	mov	r12, #0
	str	r12, [r0]
	str	r12, [r0, #4]
	mcr	p15, 0, r0, c7, c10, 1	@ DCCMVAC: the walker may read memory
	dsb
	mcr	p15, 0, r12, c8, c7, 0	@ TLBIALL
	mcr	p15, 0, r12, c7, c5, 6	@ BPIALL
	dsb
	isb
	str	r1, [r0]
	str	r2, [r0, #4]
	mcr	p15, 0, r0, c7, c10, 1
	dsb
	isb
	msr	cpsr_cx, r3		@ with the mask of asynchronous aborts
	bx	lr
	.org	kshrink_replace_entries + 128	@ an error if it is longer
	.size kshrink_replace_entries, . - kshrink_replace_entries
