/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What stubs call on ARM. A stub has pushed the link register, and the call has changed it: it ends where the stub does, which
 * says which one it was. With all registers and flags as they were, and the link register from the stack, this goes on in the
 * copy of the stub's region.
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
	bic	r6, r5, #7		@ as callees expect the stack
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
	str	r0, [sp, #52]		@ where to go on, in the place of the end of the stub
	ldr	lr, [sp, #56]		@ what the stub has pushed
	msr	cpsr_fs, r4
	pop	{r0-r12}
	ldr	pc, [sp], #8
	.fnend
	.size kshrink_enter, . - kshrink_enter
