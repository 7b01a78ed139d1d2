// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Unwinds with packed tables (docs/unwind-format.md) instead of the kernel's (.orc_unwind; arch/x86/kernel/unwind_orc.c),
 * and through frozen code.
 *
 * The kernel's own tables have only one byte of code for each state. Before each step, the address is replaced by that
 * of the byte with the same state; the step itself is the kernel's. No page faults, and no memory is needed, so this
 * works wherever the kernel unwinds..
 *
 * The names __wrap_X and __real_X are those of `ld --wrap=X`, also for references in the object of X.
 */
#include <linux/types.h>
#include <linux/uaccess.h>

#include <asm/sections.h>
#include <asm/unwind.h>

#ifdef KSHRINK_FREEZES
#include "runtime.h"
#endif
#include "unwind.h"

bool __real_unwind_next_frame(struct unwind_state *state);
bool __wrap_unwind_next_frame(struct unwind_state *state);

/* From the link: the packed tables, and the byte of the first state. */
extern const struct unwind_tables kshrink_unwind_tables;
extern const char kshrink_unwind_states[];

/* Regions, in this order for the link as well. */
enum {
	TEXT, INIT_TEXT, FROZEN_TEXT
};

/* Returns the number of the state at an address, or UNWIND_NONE. */
static u32 state_at(unsigned long address)
{
	if (address >= (unsigned long)_stext && address < (unsigned long)_etext)
		return unwind_state(&kshrink_unwind_tables, TEXT, address - (unsigned long)_stext);
	if (address >= (unsigned long)_sinittext && address < (unsigned long)_einittext)
		return unwind_state(&kshrink_unwind_tables, INIT_TEXT, address - (unsigned long)_sinittext);
#ifdef KSHRINK_FREEZES
	if (kshrink_is_frozen_code(address))
		return unwind_state(&kshrink_unwind_tables, FROZEN_TEXT, address - (unsigned long)kshrink_frozen_text);
#endif
	return UNWIND_NONE;
}

/*
 * Replaces unwind_next_frame() (arch/x86/kernel/unwind_orc.c). That function looks up the address before `ip` if a call
 * returns there, and the address itself after an interrupt.
 */
bool __wrap_unwind_next_frame(struct unwind_state *state)
{
	u32 before = state->signal ? 0 : 1, number = state_at(state->ip - before);

	if (number != UNWIND_NONE)
		state->ip = (unsigned long)kshrink_unwind_states + number + before;
	return __real_unwind_next_frame(state);
}
