/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loaded paths: what the parts of the runtime share. */
#ifndef KCUSTOM_KERNEL_H
#define KCUSTOM_KERNEL_H

#include <linux/atomic.h>
#include <linux/types.h>

#include "kcustom.h"

/* A function whose callers enter through a gate: `jmp *head`. */
struct kcustom_gate {
	const char *name;
	void *original;
	/* What the gate jumps to. */
	void **head;
};

/* gates.c, which kshrink-spec generates */
extern const struct kcustom_gate kcustom_gates[];
extern const u32 kcustom_gate_count;
extern const u8 kcustom_key[32];

/* paths.c */
void kcustom_build(u8 build[32]);
int kcustom_load(const u8 *bytes, u32 size);
void kcustom_drop(void);
void kcustom_limit(u32 limit);
void kcustom_count(struct kcustom_statistics *statistics);

/*
 * GATE(name) defines __wrap_name, to which the rewriter redirects all references to the function. An own function, so that
 * backtraces name it.
 */
#define KCUSTOM_GATE(name)                                                                                   \
	extern char __real_##name[];                                                                         \
	static void *head_of_##name __used = __real_##name;                                                  \
	asm(".pushsection .text\n"                                                                           \
	    ".globl __wrap_" #name "\n"                                                                      \
	    ".type __wrap_" #name ", @function\n"                                                            \
	    "__wrap_" #name ": jmp *head_of_" #name "\n"                                                     \
	    ".size __wrap_" #name ", . - __wrap_" #name "\n"                                                 \
	    ".popsection\n");

#define KCUSTOM_ROW(name) { #name, __real_##name, &head_of_##name },

#endif
