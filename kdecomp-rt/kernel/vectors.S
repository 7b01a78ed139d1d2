/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exception vectors (ARM DDI 0406C, section B1.8.1) from start_kernel() until the kernel has its own. They handle
 * aborts at frozen addresses, in supervisor mode, because no other mode has a stack yet. No other exception is
 * expected.
 */
#ifdef CONFIG_THUMB2_KERNEL
	.thumb
#define B b.w
#else
	.arm
#define B b
#endif
	.syntax unified
	.arch armv7-a
	.section .init.text, "ax", %progbits
	.balign 32
	.globl kshrink_early_vectors
	.type kshrink_early_vectors, %object
kshrink_early_vectors:
	B	.			@ reset
	B	.			@ undefined instruction
	B	.			@ supervisor call
	B	fetch
	B	access
	B	.			@ not used
	B	.			@ interrupt
	B	.			@ fast interrupt
	.size kshrink_early_vectors, . - kshrink_early_vectors

	@ Saves the return address, the status, and registers that a call changes, on the stack of supervisor mode.
	.macro	enter, ahead
	sub	lr, lr, #\ahead
	srsdb	sp!, #0x13
	cps	#0x13
	push	{r0-r4, ip, lr}
	.endm

	.type fetch, %function
fetch:
	enter	4
	mrc	p15, 0, r0, c6, c0, 2	@ the address
	mrc	p15, 0, r1, c5, c0, 1	@ the status
	B	handle

	.type access, %function
access:
	enter	8
	mrc	p15, 0, r0, c6, c0, 0
	mrc	p15, 0, r1, c5, c0, 0
handle:
	ldr	r2, [sp, #28]		@ the return address
	mov	r4, sp
	bic	r3, r4, #7		@ alignment that callees expect
	mov	sp, r3
	bl	kshrink_early_abort
	mov	sp, r4
	pop	{r0-r4, ip, lr}
	rfeia	sp!
