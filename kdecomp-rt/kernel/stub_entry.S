/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The function that stubs call on ARM. A stub pushes the link register and calls; the return address, its end,
 * identifies it. This continues in the copy of the stub's region, with all registers and flags unchanged, and the link
 * register restored from the stack.
 */
#ifdef CONFIG_THUMB2_KERNEL
	.thumb
#else
	.arm
#endif
	.syntax unified
	.arch armv7-a
	.section .text, "ax", %progbits
	.balign 4
	.globl kshrink_enter
	.type kshrink_enter, %function
kshrink_enter:
	.fnstart
	.cantunwind
	push	{r0-r12, lr}
	mrs	r4, cpsr
	mov	r5, sp
	bic	r6, r5, #7		@ alignment that callees expect
	mov	sp, r6
	mov	r0, lr
	bl	kshrink_copy
#ifdef CONFIG_SMP
	isb				@ another processor may have written the copy
#endif
	mov	sp, r5
#ifdef CONFIG_THUMB2_KERNEL
	orr	r0, r0, #1
#endif
	str	r0, [sp, #52]		@ the address of the copy replaces the end of the stub
	ldr	lr, [sp, #56]		@ pushed by the stub
	msr	cpsr_fs, r4
	pop	{r0-r12}
	ldr	pc, [sp], #8
	.fnend
	.size kshrink_enter, . - kshrink_enter
