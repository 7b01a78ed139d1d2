// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Thaws regions of code of a frozen kernel when they are entered (docs/freezing.md; Chanet et al. 2007, section 4).
 *
 * All references to a region lead to its stub, which never freezes: a call of kshrink_enter, on ARM after an
 * instruction that saves the link register. Stubs are consecutive, so the return address identifies the stub. The
 * region is decoded into allocated memory, which is never freed; a word holds its address. kshrink_enter continues
 * there instead of returning, with all registers and flags unchanged. No fault is needed, and no instruction is ever
 * overwritten: one compare-and-exchange of that word suffices, on any number of processors.
 *
 * Any number of processors and contexts (tasks, interrupts, non-maskable interrupts) may thaw at once, even the same
 * region: each decodes into separate memory, and the exchange chooses one copy. Code that this file calls never
 * freezes.
 *
 * Each region also has frozen addresses, at which nothing is mapped; regions are consecutive there. The tables of traps
 * and exceptions contain these addresses. Before the kernel looks up an address of a copy there, it is translated.
 */
#include <linux/bug.h>
#include <linux/extable.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/sched/clock.h>
#include <linux/string.h>

#include "runtime.h"

/* From the link: the stubs. */
extern const u8 kshrink_stubs[];

/* Alignment of regions and of copies: instructions of ARM code read literals at such addresses. */
#define REGION_ALIGN 4

const struct exception_table_entry *__real_search_exception_tables(unsigned long address);
const struct exception_table_entry *__wrap_search_exception_tables(unsigned long address);
enum bug_trap_type __real_report_bug(unsigned long address, struct pt_regs *regs);
enum bug_trap_type __wrap_report_bug(unsigned long address, struct pt_regs *regs);

const char kshrink_unit[] = "region";

/* Addresses of the copies of regions, or 0, in pages that are allocated on demand. */
#define COPIES_PER_SHEET (PAGE_SIZE / sizeof(unsigned long))
#define COPY_SHEETS 16

static unsigned long *copy_sheets[COPY_SHEETS];

/* Bounds of the addresses of all copies. */
static unsigned long lowest = ULONG_MAX, highest;

/* The header of a page of copies. */
struct room {
	u32 end;	/* the end of its copies, once no more are added */
	atomic_t done;	/* the number of bytes of copies that are written, or abandoned */
};

/* Address of the next copy; the start of a page if there is no room. */
static unsigned long place;

static struct room *room_of(unsigned long address)
{
	return (struct room *)(address & PAGE_MASK);
}

/* Allocates a copy of a size that is a multiple of REGION_ALIGN, in any context; returns 0 without memory. */
static unsigned long make_room(u32 size)
{
	struct room *fresh = NULL;

	for (;;) {
		unsigned long old = READ_ONCE(place), at = old;
		u32 used = offset_in_page(old), left = used ? PAGE_SIZE - used : 0;

		if (size > left) {
			if (!fresh) {
				fresh = kshrink_take_room();
				if (!fresh)
					return 0;
				*fresh = (struct room){ 0 };
			}
			at = (unsigned long)(fresh + 1);
			/* The page with more room left gets the next copies. */
			if (PAGE_SIZE - sizeof(*fresh) - size < left) {
				fresh->end = sizeof(*fresh) + size;
				return at;
			}
		}
		if (cmpxchg(&place, old, at + size) != old)
			continue;
		if (at != old && used)
			WRITE_ONCE(room_of(old)->end, used);
		else if (at == old && fresh)
			kshrink_give_room_back(fresh);
		if (!offset_in_page(at + size))
			WRITE_ONCE(room_of(at)->end, PAGE_SIZE);
		return at;
	}
}

/* Returns the word that holds the address of a region's copy; NULL without one, if it must not or cannot be made. */
static unsigned long *copy_of(u32 number, bool make)
{
	unsigned long **sheet = &copy_sheets[number / COPIES_PER_SHEET], *there = READ_ONCE(*sheet), *fresh;

	if (!there && make) {
		/* Not permanent: kshrink_forget() discards sheets in init data. */
		fresh = kshrink_take_page(false);
		if (!fresh)
			return NULL;
		memset(fresh, 0, PAGE_SIZE);
		there = cmpxchg(sheet, NULL, fresh);
		if (there)
			kshrink_give_back(fresh);
		else
			there = fresh;
	}
	return there ? there + number % COPIES_PER_SHEET : NULL;
}

/* Returns the address of a region's copy; 0 without one. */
static unsigned long find_copy(u32 number)
{
	unsigned long *copy = copy_of(number, false);

	return copy ? READ_ONCE(*copy) : 0;
}

static void widen(unsigned long start, unsigned long end)
{
	unsigned long low, high;

	while ((low = READ_ONCE(lowest)) > start && cmpxchg(&lowest, low, start) != low)
		;
	while ((high = READ_ONCE(highest)) < end && cmpxchg(&highest, high, end) != high)
		;
}

/* Decodes a region, and returns the address of its copy; 0 without memory. */
static unsigned long thaw(u32 number, unsigned long stub)
{
	u64 since = local_clock();
	unsigned long *copy = copy_of(number, true), fresh, first;
	u32 address, room;
	int size = frozen_place(&kshrink_frozen, number, &address);

	if (!copy || size < 0)
		return 0;
	room = ALIGN(size, REGION_ALIGN);
	fresh = make_room(room);
	if (!fresh)
		return 0;
	if (frozen_page_at(&kshrink_frozen, number, fresh, (void *)fresh) != size)
		return 0;
	kshrink_publish((void *)fresh, size);
	widen(fresh, fresh + size);
	first = cmpxchg(copy, 0, fresh);
	if (!first) {
		first = fresh;
		atomic_add(room, &room_of(fresh)->done);
		kshrink_remember(stub, number, since);
		if (READ_ONCE(room_of(fresh)->end))
			kshrink_settle_later();
	} else if (cmpxchg(&place, fresh + room, fresh) != fresh + room) {
		/* Another processor was first. This copy cannot be freed, because another follows it. */
		atomic_add(room, &room_of(fresh)->done);
	}
	kshrink_refill();
	return first;
}

/*
 * Returns the address at which to continue instead of returning from a stub. Without memory, or if the task is refused,
 * this is a kernel BUG, which ends the task.
 */
asmlinkage __visible unsigned long kshrink_copy(unsigned long behind)
{
	u32 number = (behind - STUB_SIZE - (unsigned long)kshrink_stubs) / STUB_SIZE;
	unsigned long stub = (unsigned long)kshrink_stubs + number * STUB_SIZE, copy;

	copy = find_copy(number);
	if (likely(copy))
		return copy;
	if (!kshrink_is_refused()) {
		copy = thaw(number, stub);
		if (copy)
			return copy;
	}
	/* The report includes the registers. Printing more would call more code that must not freeze. */
	BUG();
}

void kshrink_forget(void)
{
	memset(copy_sheets, 0, sizeof(copy_sheets));
	place = 0;
	lowest = ULONG_MAX;
	highest = 0;
}

/* A position in a region. */
struct spot {
	u32 number;
	u32 size;
	unsigned long offset;
	unsigned long frozen;	/* the frozen address of the region */
};

/* Finds the region that contains an address, frozen or of a copy. Returns whether there is one. */
static bool find(unsigned long address, struct spot *spot)
{
	bool is_frozen = kshrink_is_frozen_code(address);
	u32 ignored;

	if (!is_frozen && (address < READ_ONCE(lowest) || address >= READ_ONCE(highest)))
		return false;
	spot->frozen = (unsigned long)kshrink_frozen_text;
	for (spot->number = 0; spot->number < kshrink_frozen.page_count; spot->number++) {
		unsigned long start = is_frozen ? spot->frozen : find_copy(spot->number);

		spot->size = frozen_place(&kshrink_frozen, spot->number, &ignored);
		spot->offset = address - start;
		if (start && spot->offset < spot->size)
			return true;
		spot->frozen += ALIGN(spot->size, REGION_ALIGN);
	}
	return false;
}

unsigned long kshrink_address(u32 number)
{
	unsigned long address = (unsigned long)kshrink_frozen_text;
	u32 before, ignored;

	for (before = 0; before < number; before++)
		address += ALIGN(frozen_place(&kshrink_frozen, before, &ignored), REGION_ALIGN);
	return address;
}

unsigned long kshrink_translated(unsigned long address)
{
	struct spot spot;

	return find(address, &spot) ? spot.frozen + spot.offset : address;
}

struct kshrink_code kshrink_code_at(unsigned long address)
{
	struct spot spot;

	if (!find(address, &spot))
		return (struct kshrink_code){ .address = address };
	return (struct kshrink_code){
		.address = spot.frozen + spot.offset,
		.stub = (unsigned long)kshrink_stubs + spot.number * STUB_SIZE,
		.size = spot.size,
		.offset = spot.offset,
	};
}

/* Replaces search_exception_tables() (kernel/extable.c). The entry leads to a stub or to code that is not frozen. */
const struct exception_table_entry *__wrap_search_exception_tables(unsigned long address)
{
	return __real_search_exception_tables(kshrink_translated(address));
}

#ifdef CONFIG_GENERIC_BUG
/* Replaces report_bug() (lib/bug.c). */
enum bug_trap_type __wrap_report_bug(unsigned long address, struct pt_regs *regs)
{
	return __real_report_bug(kshrink_translated(address), regs);
}
#endif

bool kshrink_is_code(unsigned long address)
{
	struct spot spot;

	return find(address, &spot);
}

/* Returns the page of a region's copy if no more copies are added there and all are written; else 0. */
static unsigned long complete_page(u32 number)
{
	unsigned long copy = find_copy(number);
	struct room *room = room_of(copy);
	u32 end;

	if (!copy)
		return 0;
	end = READ_ONCE(room->end);
	return end && atomic_read(&room->done) == end - sizeof(*room) ? (unsigned long)room : 0;
}

/* Makes full pages of copies read-only. */
void kshrink_settle(void)
{
	u32 number;

	for (number = 0; number < kshrink_frozen.page_count; number++) {
		unsigned long page = complete_page(number);

		if (page)
			kshrink_seal(page);
	}
}

/* Copies are never freed, because return addresses lead into them. */
int kshrink_refreeze(unsigned long first, unsigned long behind)
{
	return -EOPNOTSUPP;
}

void kshrink_show(struct seq_file *file)
{
	u32 number, bytes = 0, ignored;

	for (number = 0; number < kshrink_frozen.page_count; number++)
		if (find_copy(number))
			bytes += frozen_place(&kshrink_frozen, number, &ignored);
	seq_printf(file, "frozen_regions %u\nthawed_bytes %u\n", kshrink_frozen.page_count, bytes);
}

void __init kshrink_begin(void)
{
	if (!kshrink_is_stub(kshrink_stubs))
		panic("kshrink: the stubs of this kernel are damaged");
	kshrink_prepare();
}
