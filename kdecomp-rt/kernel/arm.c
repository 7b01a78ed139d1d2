// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Aborts, page tables, and memory while the kernel boots, of an ARMv7-A with short descriptors (ARM DDI 0406C, section B3).
 *
 * Frozen addresses lie below the kernel, at the end of the area of modules, which direct branches reach. Entries of page tables
 * come in pairs (arch/arm/include/asm/pgtable-2level.h): Linux's own, and behind these the processor's, which
 * cpu_v7_set_pte_ext() makes of them.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/ptrace.h>
#include <linux/spinlock.h>

#include <asm/cp15.h>
#include <asm/cputype.h>
#include <asm/pgalloc.h>
#include <asm/smp_plat.h>
#include <asm/unwind.h>

#include "runtime.h"

struct machine_desc;

asmlinkage void __real_do_DataAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void __wrap_do_DataAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void __real_do_PrefetchAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void __wrap_do_PrefetchAbort(unsigned long address, unsigned int status, struct pt_regs *regs);
asmlinkage void kshrink_early_abort(unsigned long address, unsigned int status, unsigned long ip);
void __real_early_trap_init(void *vectors);
void __wrap_early_trap_init(void *vectors);
void __real_paging_init(const struct machine_desc *machine);
void __wrap_paging_init(const struct machine_desc *machine);
void __real_memblock_free_all(void);
void __wrap_memblock_free_all(void);

/*
 * The processor's own functions, because the kernel's tables of them are filled in setup_arch() (arch/arm/mm/proc-v7-2level.S,
 * arch/arm/mm/cache-v7.S).
 */
void cpu_v7_set_pte_ext(pte_t *entry, pte_t value, unsigned int extended);
void v7_flush_icache_all(void);

/* vectors.S */
extern const char kshrink_early_vectors[];

/* For the link, which reads it from the object: where frozen addresses may be. */
__section(".discard.kshrink") __used const unsigned long kshrink_range[2] = { MODULES_VADDR, MODULES_END };

/* Of the status of an abort (ARM DDI 0406C, table B3-23). */
#define WRITE BIT(11)
#define FAULT(status) ((status) & (BIT(10) | 0xf))
#define TRANSLATION_OF_SECTION 0x5
#define TRANSLATION_OF_PAGE 0x7

/* Where the kernel has its vectors. */
#define VECTORS 0xffff0000UL

/* Held by who changes an entry. */
static DEFINE_RAW_SPINLOCK(changes);

/* Pages for what thaws before memblock has memory that is mapped. They go with the init data. */
static char pool[128][PAGE_SIZE] __initdata __aligned(PAGE_SIZE);
static u32 pool_used __initdata;

/* Whether memblock has memory that is mapped, and whether it has given it to the page allocator. */
static bool has_memblock __initdata, has_allocator __ro_after_init;

bool kshrink_can_allocate(void)
{
	return has_allocator;
}

void __ref *kshrink_early_page(bool stays)
{
	if (has_memblock)
		return memblock_alloc(PAGE_SIZE, PAGE_SIZE);
	return !stays && pool_used < ARRAY_SIZE(pool) ? pool[pool_used++] : NULL;
}

void __init kshrink_check_addresses(unsigned long first, unsigned long end)
{
	if (first < MODULES_VADDR || end > MODULES_END)
		panic("kshrink: frozen code at %lx-%lx is not within the area of modules", first, end);
}

/*
 * Writes what lies here back to memory. Instructions are fetched from there, and so are entries of page tables by some processors;
 * of the kernel's functions for that, some do nothing before setup_arch() knows the processor.
 */
static void clean(const void *start, size_t size)
{
	u32 line = 4 << ((read_cpuid_cachetype() >> 16) & 0xf);
	const char *at;

	for (at = start; at < (const char *)start + size; at += line)
		asm volatile("mcr p15, 0, %0, c7, c10, 1" : : "r" (at) : "memory");
	dsb(ish);
}

/* Gives frozen addresses their page tables. */
static void add_tables(void)
{
	unsigned long address = (unsigned long)kshrink_frozen_text & PMD_MASK;
	pte_t *table = kshrink_page_tables;

	for (; address < (unsigned long)kshrink_frozen_end; address += PMD_SIZE, table += PAGE_SIZE / sizeof(pte_t)) {
		clean(table, PAGE_SIZE);
		pmd_populate_kernel(&init_mm, pmd_off_k(address), table);
		clean(pmd_off_k(address), sizeof(pgd_t));
	}
	isb();
}

void __init kshrink_prepare(void)
{
	add_tables();
	/* Until the kernel has vectors of its own, those of vectors.S are used in place of high ones. */
	asm volatile("mcr p15, 0, %0, c12, c0, 0" : : "r" (kshrink_early_vectors));
	isb();
	set_cr(get_cr() & ~CR_V);
}

/* Makes a page that was written one that instructions can be fetched from (ARM DDI 0406C, section A3.5.4). */
static void publish(const void *page)
{
	clean(page, PAGE_SIZE);
	v7_flush_icache_all();
	dsb(ish);
	isb();
}

static pte_t entry_for(const void *page, unsigned long address)
{
	pteval_t kind = pgprot_val(pgprot_kernel);

	/* Before build_mem_type_table() (arch/arm/mm/mmu.c), what it will say, and arch/arm/mm/proc-v7.S has said of the kernel. */
	if (!kind)
		kind = L_PTE_PRESENT | L_PTE_YOUNG | L_PTE_DIRTY |
		       (is_smp() ? L_PTE_MT_WRITEALLOC | L_PTE_SHARED : L_PTE_MT_WRITEBACK);
	if (address >= (unsigned long)kshrink_frozen_data)
		kind |= L_PTE_XN;
	return pfn_pte(__pa(page) >> PAGE_SHIFT, __pgprot(kind | L_PTE_RDONLY));
}

bool kshrink_map(unsigned long address, const void *page)
{
	pte_t *entry = kshrink_pte_of(address);
	unsigned long flags;
	bool is_empty;

	publish(page);
	raw_spin_lock_irqsave(&changes, flags);
	is_empty = pte_none(*entry);
	if (is_empty) {
		cpu_v7_set_pte_ext(entry, entry_for(page, address), 0);
		/* The processor keeps no entries that are not present, so that there is nothing to flush. */
		dsb(ishst);
		isb();
	}
	raw_spin_unlock_irqrestore(&changes, flags);
	return is_empty;
}

pte_t kshrink_unmap(unsigned long address)
{
	pte_t *entry = kshrink_pte_of(address), old;
	unsigned long flags;

	raw_spin_lock_irqsave(&changes, flags);
	old = *entry;
	cpu_v7_set_pte_ext(entry, __pte(0), 0);
	dsb(ishst);
	raw_spin_unlock_irqrestore(&changes, flags);
	return old;
}

/* The linear mapping is one of sections, of which none is read-only but the kernel's. */
void kshrink_protect(unsigned long address)
{
}

bool kshrink_unprotect(pte_t entry)
{
	return true;
}

/* Whose fault it is says the address alone. */
static bool is_handled(unsigned long address, unsigned int status, unsigned long ip, bool enabled)
{
	if (likely(!kshrink_is_frozen(address)) || status & WRITE)
		return false;
	/* Without a table: prepare_page_table() takes all away that lies below the kernel. Processes have a copy of the entry for it. */
	if (FAULT(status) == TRANSLATION_OF_SECTION) {
		if (!pmd_none(*pmd_off_k(address)))
			return false;
		add_tables();
		return true;
	}
	return FAULT(status) == TRANSLATION_OF_PAGE && kshrink_thaw_at(address, ip, enabled);
}

/* Instead of do_DataAbort() (arch/arm/mm/fault.c), with interrupts off. */
asmlinkage void __wrap_do_DataAbort(unsigned long address, unsigned int status, struct pt_regs *regs)
{
	if (user_mode(regs) || !is_handled(address, status, regs->ARM_pc, interrupts_enabled(regs)))
		__real_do_DataAbort(address, status, regs);
}

/* The address that was not there: that of the abort may be that of an instruction whose second half lies on the next page. */
static unsigned long fetched(unsigned long address)
{
	bool is_there = kshrink_is_frozen(address) && pte_present(READ_ONCE(*kshrink_pte_of(address)));
	bool may_go_on = offset_in_page(address) == PAGE_SIZE - 2 && kshrink_is_frozen(address + 2);

	return is_there && may_go_on ? address + 2 : address;
}

/* Instead of do_PrefetchAbort() (arch/arm/mm/fault.c), with interrupts off. A fetch is no write, whatever its status says. */
asmlinkage void __wrap_do_PrefetchAbort(unsigned long address, unsigned int status, struct pt_regs *regs)
{
	if (user_mode(regs) || !is_handled(fetched(address), status & ~WRITE, regs->ARM_pc, interrupts_enabled(regs)))
		__real_do_PrefetchAbort(address, status, regs);
}

/*
 * What vectors.S calls. An abort that is not about frozen addresses is what it is without the runtime: it goes to vectors that
 * are not there.
 */
asmlinkage void kshrink_early_abort(unsigned long address, unsigned int status, unsigned long ip)
{
	if (!is_handled(fetched(address), status, ip, false))
		set_cr(get_cr() | CR_V);
}

/* Maps the vectors where devicemaps_init() is about to map them (arch/arm/mm/mmu.c). */
static void __init map_vectors(const char *vectors)
{
	pmd_t *table = pmd_off_k(VECTORS);
	u32 i;

	if (pmd_none(*table))
		pmd_populate_kernel(&init_mm, table, memblock_alloc(PAGE_SIZE, PAGE_SIZE));
	for (i = 0; i < 2; i++)
		cpu_v7_set_pte_ext(pte_offset_kernel(table, VECTORS + i * PAGE_SIZE),
				   pfn_pte((__pa(vectors) >> PAGE_SHIFT) + i, PAGE_KERNEL_EXEC), 0);
	dsb(ishst);
	isb();
}

/* Instead of early_trap_init() (arch/arm/kernel/traps.c): what it is called for is mapped some time later, and used from here on. */
void __init __wrap_early_trap_init(void *vectors)
{
	__real_early_trap_init(vectors);
	map_vectors(vectors);
	set_cr(get_cr() | CR_V);
}

/* Instead of paging_init() (arch/arm/mm/mmu.c): behind it, all memory of memblock is mapped. */
void __init __wrap_paging_init(const struct machine_desc *machine)
{
	__real_paging_init(machine);
	/* Before there are processes, which get copies of what is in these entries. */
	add_tables();
	has_memblock = true;
}

/* Instead of memblock_free_all() (mm/memblock.c), which lets the page allocator have its memory. */
void __init __wrap_memblock_free_all(void)
{
	has_allocator = true;
	__real_memblock_free_all();
}

#ifdef CONFIG_ARM_UNWIND
/* From the link: how frozen code is unwound. */
extern const char kshrink_unwind[], kshrink_unwind_end[];

static int __init add_unwind_table(void)
{
	unwind_table_add((unsigned long)kshrink_unwind, kshrink_unwind_end - kshrink_unwind, (unsigned long)kshrink_frozen_text,
			 kshrink_frozen_data - kshrink_frozen_text);
	return 0;
}
core_initcall(add_unwind_table);
#endif
