// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The common part of both mechanisms that thaw frozen code (docs/freezing.md), page faults (page.c) and stubs (stub.c):
 * memory, refusals, the record of thaws, and the range of frozen addresses.
 *
 * The names __wrap_X and __real_X are those of `ld --wrap=X`: references to X in the kernel lead to __wrap_X, and
 * __real_X is the kernel's own X.
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

/* Pages for non-maskable interrupts, and for use without other memory. */
static void *reserve[2];

/* Allocates from the allocator's reserves, without waiting and without waking any thread. */
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

/* Pages from before the page allocator was up are reserved memory to it. */
void kshrink_free(void *address)
{
	struct page *page = virt_to_page(address);

	if (PageReserved(page))
		free_reserved_page(page);
	else
		__free_page(page);
}

/* Kernels for 64 bits map the image apart from the linear mapping. */
bool kshrink_is_init(const void *page)
{
	phys_addr_t at = __pa(page);

	return at >= __pa_symbol(__init_begin) && at < __pa_symbol(__init_end);
}

void kshrink_give_back(void *page)
{
	u32 i;

	/* Pages in init data will be freed with it. */
	if (kshrink_is_init(page))
		return;
	for (i = 0; i < ARRAY_SIZE(reserve); i++)
		if (!cmpxchg(&reserve[i], NULL, page))
			return;
	/*
	 * In a non-maskable interrupt, the page came from the reserve. If the reserve is full again, the page is lost.
	 */
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
 * A worker write-protects thawed pages, because making a page read-only may split a large page, which takes locks and
 * memory. It waits until the kernel has protected its own text.
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

/* Returns the letter of the processor's context. */
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
	/* Last: readers treat an entry without it as incomplete. */
	smp_store_release(&thaw->ip, ip);
}

/* A refused task. A later task may have the same address, but has another start time. */
struct ending {
	struct task_struct *task;
	u64 start;	/* start_boottime of the task */
};

/*
 * With kshrink.thaw=refuse, whether the task must not thaw a page or region. A task that was refused may thaw from then
 * on, because the code that reports the error and ends the task may be frozen.
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

/* Replaces start_kernel() (init/main.c), before anything else. From here on, frozen code can thaw. */
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

/* Replaces vmalloc_init() (mm/vmalloc.c): reserves the frozen addresses in its area. */
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
