/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the parts of the runtime share.
 *
 * Frozen code comes back by one of two mechanisms: by page (a page fault; page.c) or by stub (a call; stub.c). A comment that
 * begins "By page" or "By stub" is about that one alone.
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

/* From the link: where frozen code begins, where frozen data does, and where that ends, each the start of a page. */
extern const char kshrink_frozen_text[], kshrink_frozen_data[], kshrink_frozen_end[];

/*
 * From the link: the page tables of addresses from `kshrink_mapped` up to the end, one behind the other. By page, these are all
 * frozen addresses. By stub on ARM, copies of regions lie there, in the place of frozen data; i386 has none by stub.
 */
extern const char kshrink_mapped[];
extern pte_t kshrink_page_tables[];

/*
 * From the link, by page: the ends of the pages of code and of data that are used whenever the kernel boots, the first ones of
 * each; and these pages as they are, in its init data.
 */
extern const char kshrink_boot_text_end[], kshrink_boot_data_end[], kshrink_boot_pages[];

/* By page, whether these, and all else that lies in init data, are no longer mapped. */
extern bool kshrink_boot_is_over;

/*
 * From the link: the packed file (docs/frozen-format.md) behind its size. The size is no symbol, because frozen code refers
 * to it, and it is not known before that is packed.
 */
extern const struct kshrink_packed {
	u32 size;
	u8 file[];
} kshrink_packed;

/* What the boot parameter kshrink.thaw says. */
enum kshrink_mode {
	LOG,	/* thaw, and remember each thaw for /proc/kshrink */
	COUNT,	/* thaw, and count */
	REFUSE,	/* do not thaw for tasks of user space, for which it is fatal then; thaw and remember for all else */
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

/* Thaws are remembered in pages that are allocated when they are needed. */
#define THAWS_PER_SHEET (PAGE_SIZE / sizeof(struct kshrink_thaw))
#define THAW_SHEETS 16

extern struct kshrink_thaw *kshrink_thaw_sheets[THAW_SHEETS];

/* How many pages have been thawed and refrozen, and how many accesses were refused. */
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

/* By page, the number of the page of a frozen address. */
static inline u32 kshrink_page_of(unsigned long address)
{
	return (address - (unsigned long)kshrink_frozen_text) >> PAGE_SHIFT;
}

/*
 * The entry of the page table for an address that has one. A table fills a page; on ARM, the second half of it is the
 * processor's own.
 */
static inline pte_t *kshrink_pte_of(unsigned long address)
{
	unsigned long table = (address >> PMD_SHIFT) - ((unsigned long)kshrink_mapped >> PMD_SHIFT);

	return kshrink_page_tables + table * (PAGE_SIZE / sizeof(pte_t)) + pte_index(address);
}

/* Frees the memory of a page, given its address in the linear mapping; also if it was taken before there was an allocator. */
void kshrink_free(void *address);

/* A page in the linear mapping, in any context, for good or to be mapped at a frozen address; NULL if there is no memory. */
void *kshrink_take_page(bool for_good);

/* Gives a page back that nothing uses. */
void kshrink_give_back(void *page);

/* Fills the reserve again, from which the last pages came perhaps. */
void kshrink_refill(void);

/* Counts a thaw that began at `since`, and remembers it for /proc/kshrink: of which page or region, and why. */
void kshrink_remember(unsigned long ip, u32 number, u64 since);

/* Asks for kshrink_settle(), soon. May be called in any context. */
void kshrink_settle_later(void);

/* Whether the current task must not thaw anything, which is counted. */
bool kshrink_is_refused(void);

/*
 * What follows is defined for each machine (x86.c and arm.c; by page, x86_page.c and arm_page.c; by stub, x86_stub.c and
 * arm_stub.c).
 */

/* Whether there is a page allocator already. */
bool kshrink_can_allocate(void);

/*
 * A page until then, on one processor and with interrupts off, for good or to be mapped at a frozen address; NULL if there is none
 * left. The latter may lie in init data.
 */
void *kshrink_early_page(bool for_good);

/* Stops the kernel if frozen addresses are not free in this boot. */
void kshrink_check_addresses(unsigned long first, unsigned long end);

/* By page, lets faults come here, and gives frozen addresses their page tables. */
void kshrink_prepare(void);

/*
 * By page, maps a page of the linear mapping at a frozen address, read-only, in any context. Returns whether nothing was there;
 * if something was, it stays.
 */
bool kshrink_map(unsigned long address, const void *page);

/* By page, takes what is mapped at a frozen address away. Returns the entry that was there. Translation buffers may have it. */
pte_t kshrink_unmap(unsigned long address);

/* By page, makes the linear mapping of a page that has thawed read-only, where the kernel's own text is. May sleep. */
void kshrink_protect(unsigned long address);

/* The reverse, given what kshrink_unmap() has returned. Returns whether the page can be freed. May sleep. */
bool kshrink_unprotect(pte_t entry);

/* By stub, the size of a stub in bytes, and whether what stands at the first one is a stub. */
#if defined(CONFIG_X86)
#define STUB_SIZE 5
#elif defined(CONFIG_THUMB2_KERNEL)
#define STUB_SIZE 6
#else
#define STUB_SIZE 8
#endif

bool kshrink_is_stub(const u8 *at);

/* By stub, a page for copies of regions, where they can be written and run, in any context; NULL if there is no memory. */
void *kshrink_take_room(void);

/* By stub, gives such a page back, in which there are no copies. */
void kshrink_give_room_back(void *room);

/* By stub, makes code that was just written there be what all processors run. */
void kshrink_publish(const void *code, size_t size);

/* By stub, makes a page of copies read-only, where the kernel's own text is. May sleep. */
void kshrink_seal(unsigned long page);

/*
 * What follows is defined for each mechanism.
 */

/* The frozen address of a page or region. */
unsigned long kshrink_address(u32 number);

/* By stub, what stubs call has this called: where to go, given where the stub ends, with bit 0 of Thumb code. */
asmlinkage unsigned long kshrink_copy(unsigned long behind);

/* By stub, the address that an instruction of a copy has in the tables of the kernel; any other address itself. */
unsigned long kshrink_translated(unsigned long address);

/* By stub, forgets all copies, and where they were. Nothing else may run. */
void kshrink_forget(void);

/*
 * By page, for the handlers of faults: sees to it that something is mapped at a frozen address, for an instruction that ran with
 * or without interrupts enabled, and leaves them disabled. Returns whether something is.
 */
bool kshrink_thaw_at(unsigned long address, unsigned long ip, bool enabled);

/* What the list of thaws is about. */
extern const char kshrink_unit[];

/* The first thing that is done in the kernel, once the packed file is known to be good. */
void kshrink_begin(void);

/* Whether an address is that of code which is frozen or thawed. */
bool kshrink_is_code(unsigned long address);

/* An instruction of frozen code, and where the kernel's table of symbols has that code. */
struct kshrink_code {
	unsigned long address;	/* its frozen address, which System.map has a name for */
	unsigned long stub;	/* by stub, the address of the region's stub, which has the region's symbol, if there is one; else 0 */
	unsigned long size;	/* by stub, the size of the region, */
	unsigned long offset;	/* and where in it the instruction is */
};

/* The instruction at an address of which kshrink_is_code(). */
struct kshrink_code kshrink_code_at(unsigned long address);

/* Says how much is frozen. */
void kshrink_show(struct seq_file *file);

/* Does what has to be done some time after something was thawed, once the system is up. May sleep. */
void kshrink_settle(void);

/*
 * Unmaps the thawed pages from `first` on up to `behind`, and frees their memory: who touches one of them gets it back. May
 * sleep. Returns 0, -EPERM if thawing is refused, -EBUSY while the kernel boots, or -EOPNOTSUPP if what is thawed stays.
 */
int kshrink_refreeze(unsigned long first, unsigned long behind);

#endif
