// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What the two ways of thawing frozen code share (docs/freezing.md): page.c does it in page faults, stub.c in stubs.
 * Memory, what is refused, what is remembered, and where frozen addresses are.
 *
 * The names __wrap_X and __real_X are those of `ld --wrap=X`: what refers to X in the kernel gets __wrap_X, and __real_X
 * is the kernel's own X.
 */
#include <linux/init.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/task.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include <asm/sections.h>

#include "runtime.h"

asmlinkage void __noreturn __real_start_kernel(void);
asmlinkage void __noreturn __wrap_start_kernel(void);
void __real_vmalloc_init(void);
void __wrap_vmalloc_init(void);

enum kshrink_mode kshrink_mode __ro_after_init = LOG;
struct frozen kshrink_frozen __ro_after_init;

struct kshrink_thaw *kshrink_thaw_sheets[THAW_SHEETS];
atomic_t kshrink_thawed, kshrink_refrozen, kshrink_refused;

/* Pages for non-maskable interrupts, and for when there is no other memory. */
static void *reserve[2];

/* Takes pages that others must leave alone, but neither waits for nor wakes anybody. */
static void *buddy_page(void)
{
	struct page *page = alloc_pages(__GFP_HIGH | __GFP_MEMALLOC | __GFP_NOWARN, 0);

	return page ? page_address(page) : NULL;
}

void *kshrink_take_page(bool for_good)
{
	void *page = NULL;
	u32 i;

	if (unlikely(!kshrink_can_allocate()))
		page = kshrink_early_page(for_good);
	else if (!in_nmi())
		page = buddy_page();
	for (i = 0; !page && i < ARRAY_SIZE(reserve); i++)
		page = xchg(&reserve[i], NULL);
	return page;
}

/* What was taken before the page allocator was up is reserved memory to it. */
void kshrink_free(void *address)
{
	struct page *page = virt_to_page(address);

	if (PageReserved(page))
		free_reserved_page(page);
	else
		__free_page(page);
}

void kshrink_give_back(void *page)
{
	u32 i;

	/* What goes with the init data is not worth keeping. */
	if (init_section_contains(page, PAGE_SIZE))
		return;
	for (i = 0; i < ARRAY_SIZE(reserve); i++)
		if (!cmpxchg(&reserve[i], NULL, page))
			return;
	/* In a non-maskable interrupt the page came from the reserve; that it is full again by now is not worth a list. */
	if (kshrink_can_allocate() && !in_nmi())
		kshrink_free(page);
}

void kshrink_refill(void)
{
	u32 i;

	if (!kshrink_can_allocate() || in_nmi())
		return;
	for (i = 0; i < ARRAY_SIZE(reserve); i++) {
		void *page = reserve[i] ? NULL : buddy_page();

		if (page)
			kshrink_give_back(page);
	}
}

/*
 * What thawed is write-protected by a worker, because making a page read-only may split a large one, which takes locks and
 * memory; and not before the kernel has protected its own text.
 */
static void kshrink_run_settling(struct work_struct *unused);
static DECLARE_DELAYED_WORK(settling, kshrink_run_settling);

static void kshrink_run_settling(struct work_struct *unused)
{
	if (system_state == SYSTEM_RUNNING)
		kshrink_settle();
	else
		schedule_delayed_work(&settling, HZ);
}

static void request_settling(struct irq_work *unused)
{
	schedule_delayed_work(&settling, 0);
}

void kshrink_settle_later(void)
{
	static struct irq_work request = IRQ_WORK_INIT(request_settling);

	if (system_state == SYSTEM_RUNNING)
		irq_work_queue(&request);
}

static int __init settle_after_boot(void)
{
	schedule_delayed_work(&settling, HZ);
	return 0;
}
device_initcall(settle_after_boot);

/* In which context the processor was. */
static char context(void)
{
	if (in_nmi())
		return 'N';
	if (in_hardirq())
		return 'I';
	return in_task() ? 'T' : 'S';
}

void kshrink_remember(unsigned long ip, u32 number, u64 since)
{
	u32 before = atomic_inc_return(&kshrink_thawed) - 1, sheet = before / THAWS_PER_SHEET;
	struct kshrink_thaw *thaw;

	if (kshrink_mode == COUNT || sheet >= THAW_SHEETS)
		return;
	thaw = READ_ONCE(kshrink_thaw_sheets[sheet]);
	if (!thaw) {
		void *fresh = in_nmi() ? NULL : kshrink_take_page(true);

		if (!fresh)
			return;
		memset(fresh, 0, PAGE_SIZE);
		thaw = cmpxchg(&kshrink_thaw_sheets[sheet], NULL, fresh);
		if (thaw)
			kshrink_give_back(fresh);
		else
			thaw = fresh;
	}
	thaw += before % THAWS_PER_SHEET;
	thaw->when = since;
	thaw->took = local_clock() - since;
	thaw->number = number;
	thaw->pid = current->pid;
	thaw->context = context();
	memcpy(thaw->comm, current->comm, sizeof(thaw->comm) - 1);
	/* Last: a reader takes an entry without it for one that is being written. */
	smp_store_release(&thaw->ip, ip);
}

/* A task that was refused. Another one may have its address later, but has started later as well. */
struct ending {
	struct task_struct *task;
	u64 start;	/* start_boottime of the task */
};

/*
 * With kshrink.thaw=refuse, whether the task must not have the page or region. What a refused task then runs, to report that
 * and to end, may be frozen as well.
 */
bool kshrink_is_refused(void)
{
	static struct ending endings[4];
	static atomic_t next;
	struct ending *ending;
	u32 i;

	if (likely(kshrink_mode != REFUSE) || system_state != SYSTEM_RUNNING || !in_task() || current->flags & PF_KTHREAD ||
	    is_global_init(current))
		return false;
	for (i = 0; i < ARRAY_SIZE(endings); i++)
		if (READ_ONCE(endings[i].task) == current && READ_ONCE(endings[i].start) == current->start_boottime)
			return false;
	ending = &endings[atomic_inc_return(&next) % ARRAY_SIZE(endings)];
	WRITE_ONCE(ending->task, current);
	WRITE_ONCE(ending->start, current->start_boottime);
	atomic_inc(&kshrink_refused);
	return true;
}

static int __init set_mode(char *value)
{
	if (!value)
		return -EINVAL;
	if (!strcmp(value, "log"))
		kshrink_mode = LOG;
	else if (!strcmp(value, "count"))
		kshrink_mode = COUNT;
	else if (!strcmp(value, "refuse"))
		kshrink_mode = REFUSE;
	else
		pr_warn("kshrink.thaw=%s: expected log, count or refuse; log is used\n", value);
	return 0;
}
early_param("kshrink.thaw", set_mode);

/* Instead of start_kernel() (init/main.c), before anything else: from here on, what is frozen can come back. */
asmlinkage __visible void __init __noreturn __wrap_start_kernel(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(reserve); i++)
		reserve[i] = kshrink_early_page(true);
	if (frozen_open(&kshrink_frozen, kshrink_packed.file, kshrink_packed.size))
		panic("kshrink: the packed code and data of this kernel are damaged");
	kshrink_begin();
	__real_start_kernel();
}

/* Instead of vmalloc_init() (mm/vmalloc.c): takes the addresses out of its area. */
void __init __wrap_vmalloc_init(void)
{
	static struct vm_struct area;
	unsigned long first = (unsigned long)kshrink_frozen_text, end = (unsigned long)kshrink_frozen_end;

	kshrink_check_addresses(first, end);
	area.addr = (void *)first;
	area.size = end - first;
	area.flags = VM_MAP | VM_NO_GUARD;
	vm_area_add_early(&area);
	__real_vmalloc_init();
}
