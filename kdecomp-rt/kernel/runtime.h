/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Definitions for all parts of the runtime.
 *
 * Frozen code thaws by one of two mechanisms: by page (a page fault; page.c) or by stub (a call; stub.c). A comment
 * that begins with "By page" or "By stub" applies only to that mechanism.
 */
#ifndef KSHRINK_RUNTIME_H
#define KSHRINK_RUNTIME_H

#include <linux/atomic.h>
#include <linux/linkage.h>
#include <linux/pgtable.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/types.h>

#include "decode.h"

/* From the link: the start of frozen code, the start of frozen data, and its end. Each is page-aligned. */
extern const char kshrink_frozen_text[], kshrink_frozen_data[], kshrink_frozen_end[];

/*
 * For the link, which reads it from the object: the range of possible frozen addresses, the size of what a page of page
 * tables maps, and whether copies of regions need a window of addresses. Defined once for each machine.
 */
#define KSHRINK_PLACE(start, end, has_window) \
	__section(".discard.kshrink") __used const unsigned long kshrink_place[4] = { start, end, PMD_SIZE, has_window }

/*
 * From the link: consecutive page tables of the addresses from `kshrink_mapped` up to the end. By page, these are all
 * frozen addresses. By stub, copies of regions lie there, in place of frozen data, if they need a window; otherwise
 * there are none.
 */
extern const char kshrink_mapped[];
extern pte_t kshrink_page_tables[];

/*
 * From the link, by page: the pages that every boot uses come first, in code and in data. These are the two ends, and
 * the unpacked pages, in init data.
 */
extern const char kshrink_boot_text_end[], kshrink_boot_data_end[], kshrink_boot_pages[];

/* By page, whether pages in init data, including these, are no longer mapped. */
extern bool kshrink_boot_is_over;

/*
 * From the link: the packed file (docs/frozen-format.md) after its size. The size is not a symbol, because frozen code
 * refers to it, and it is unknown before frozen code is packed.
 */
extern const struct kshrink_packed {
	u32 size;
	u8 file[];
} kshrink_packed;

/* The boot parameter kshrink.thaw. */
enum kshrink_mode {
	LOG,	/* thaw, and record each thaw for /proc/kshrink */
	COUNT,	/* thaw, and count */
	REFUSE,	/* do not thaw for tasks of user space, which is fatal for them; thaw and record for all others */
};

extern enum kshrink_mode kshrink_mode;

/* One thaw. */
struct kshrink_thaw {
	u64 when;	/* nanoseconds of local_clock() */
	u32 took;	/* nanoseconds */
	u32 number;	/* of the page or region */
	unsigned long ip;
	pid_t pid;
	char context;
	char comm[TASK_COMM_LEN];
};

/* Thaws are recorded in pages that are allocated on demand. */
#define THAWS_PER_SHEET (PAGE_SIZE / sizeof(struct kshrink_thaw))
#define THAW_SHEETS 16

extern struct kshrink_thaw *kshrink_thaw_sheets[THAW_SHEETS];

/* Numbers of thawed and refrozen pages, and of refused accesses. */
extern atomic_t kshrink_thawed, kshrink_refrozen, kshrink_refused;

static __always_inline bool kshrink_is_frozen(unsigned long address)
{
	return address - (unsigned long)kshrink_frozen_text < (unsigned long)(kshrink_frozen_end - kshrink_frozen_text);
}

static inline bool kshrink_is_frozen_code(unsigned long address)
{
	return kshrink_is_frozen(address) && address < (unsigned long)kshrink_frozen_data;
}

/* The packed file, checked. */
extern struct frozen kshrink_frozen;

/* By page, returns the number of the page at a frozen address. */
static inline u32 kshrink_page_of(unsigned long address)
{
	return (address - (unsigned long)kshrink_frozen_text) >> PAGE_SHIFT;
}

/*
 * Returns the page-table entry of an address, which must have a table. A table fills a page; on ARM, its second half is
 * the processor's.
 */
static inline pte_t *kshrink_pte_of(unsigned long address)
{
	unsigned long table = (address >> PMD_SHIFT) - ((unsigned long)kshrink_mapped >> PMD_SHIFT);

	return kshrink_page_tables + table * (PAGE_SIZE / sizeof(pte_t)) + pte_index(address);
}

/* Frees a page, given its address in the linear mapping; also one from before the page allocator was up. */
void kshrink_free(void *address);

/*
 * Returns a page in the linear mapping, permanent or to be mapped at a frozen address; NULL without memory. May be
 * called in any context.
 */
void *kshrink_take_page(bool for_good);

/* Whether a page, of the linear mapping or of the kernel's image, is in init data. */
bool kshrink_is_init(const void *page);

/* Releases an unused page, to the reserve or to the allocator. */
void kshrink_give_back(void *page);

/* Refills the reserve. */
void kshrink_refill(void);

/* Counts a thaw of a page or region that began at `since`, and records it for /proc/kshrink. */
void kshrink_remember(unsigned long ip, u32 number, u64 since);

/* Schedules kshrink_settle(). May be called in any context. */
void kshrink_settle_later(void);

/* Whether the current task must not thaw anything. Counts refusals. */
bool kshrink_is_refused(void);

/*
 * Defined for each machine (x86.c and arm.c; by page, x86_page.c and arm_page.c; by stub, x86_stub.c and arm_stub.c):
 */

/* Whether the page allocator is up. */
bool kshrink_can_allocate(void);

/*
 * Returns a page before the page allocator is up, with one processor and interrupts off; NULL without memory. A page
 * that is not permanent, to be mapped at a frozen address, may lie in init data.
 */
void *kshrink_early_page(bool for_good);

/* Panics if frozen addresses are not free in this boot. */
void kshrink_check_addresses(unsigned long first, unsigned long end);

/* By page, redirects faults to the runtime; in both mechanisms, installs the page tables of its addresses. */
void kshrink_prepare(void);

/*
 * By page, maps a page of the linear mapping read-only at a frozen address, in any context. Returns false, and changes
 * nothing, if a page is already mapped there.
 */
bool kshrink_map(unsigned long address, const void *page);

/* By page, unmaps a frozen address. Returns the old entry, which translation buffers may still have. */
pte_t kshrink_unmap(unsigned long address);

/* By page, makes the linear mapping of a thawed page read-only if kernel text is read-only. May sleep. */
void kshrink_protect(unsigned long address);

/* Reverses kshrink_protect(), given the result of kshrink_unmap(). Returns whether the page can be freed. May sleep. */
bool kshrink_unprotect(pte_t entry);

/* By stub, the size of a stub in bytes. */
#if defined(CONFIG_X86)
#define STUB_SIZE 5
#elif defined(CONFIG_THUMB2_KERNEL)
#define STUB_SIZE 6
#else
#define STUB_SIZE 8
#endif

/* By stub, whether there is a stub at this address. */
bool kshrink_is_stub(const u8 *at);

/* By stub, returns a writable and executable page for copies of regions, in any context; NULL without memory. */
void *kshrink_take_room(void);

/* By stub, releases such a page, which must have no copies. */
void kshrink_give_room_back(void *room);

/* By stub, returns such a page in the window of addresses for copies, if there is one (window.c). */
void *kshrink_take_from_window(void);

/* By stub, maps a page of the linear mapping in the window, writable and executable. Returns false if it has one. */
bool kshrink_map_room(unsigned long address, const void *page);

/* By stub, makes newly written code visible to instruction fetches of all processors. */
void kshrink_publish(const void *code, size_t size);

/* By stub, makes a page of copies read-only if kernel text is read-only. May sleep. */
void kshrink_seal(unsigned long page);

/*
 * Defined for each mechanism:
 */

/* Returns the frozen address of a page or region. */
unsigned long kshrink_address(u32 number);

/*
 * By stub, kshrink_enter, which stubs call, calls this. Returns the address of the copy, given the end of the stub,
 * which in Thumb code has bit 0 set.
 */
asmlinkage unsigned long kshrink_copy(unsigned long behind);

/*
 * By stub, returns the frozen address of an instruction in a copy, which kernel tables contain; any other address
 * unchanged.
 */
unsigned long kshrink_translated(unsigned long address);

/* By stub, discards all copies. Nothing else may run. */
void kshrink_forget(void);

/*
 * By page, for fault handlers: thaws the page at a frozen address if it is absent. `enabled` is whether the instruction
 * ran with interrupts enabled; on return, they are disabled. Returns whether the page is mapped.
 */
bool kshrink_thaw_at(unsigned long address, unsigned long ip, bool enabled);

/* The unit of a thaw: page or region. */
extern const char kshrink_unit[];

/* Starts the mechanism, after the packed file was checked, before all other kernel code. */
void kshrink_begin(void);

/* Whether an address is in frozen or thawed code. */
bool kshrink_is_code(unsigned long address);

/* An instruction of frozen code, and its place in the kernel's symbol table. */
struct kshrink_code {
	unsigned long address;	/* its frozen address, for which System.map has a name */
	unsigned long stub;	/* by stub, the region's stub, which has the region's symbol, if any; else 0 */
	unsigned long size;	/* by stub, the size of the region */
	unsigned long offset;	/* by stub, the offset of the instruction in the region */
};

/* Returns the instruction at an address for which kshrink_is_code() is true. */
struct kshrink_code kshrink_code_at(unsigned long address);

/* Prints how much is frozen. */
void kshrink_show(struct seq_file *file);

/* Does the deferred work after thaws, once the system is up. May sleep. */
void kshrink_settle(void);

/*
 * Unmaps the thawed pages from `first` up to `behind`, and frees their memory; they thaw again when accessed. May
 * sleep. Returns 0, -EPERM if thawing is refused, -EINVAL if the pages are not all frozen ones, -EBUSY while the kernel
 * boots, or -EOPNOTSUPP if thawed code is never freed.
 */
int kshrink_refreeze(unsigned long first, unsigned long behind);

#endif
