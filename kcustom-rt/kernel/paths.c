// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Loaded paths: checked, relocated, and put in front of what the gate jumped to before. The last used stay; the others make room.
 *
 * The paths of a gate are a chain: the gate jumps to the first one, and each jumps to the next one if one of its facts does not
 * hold; the last one jumps to the original function. Code is writable until its protection changes to executable, and never both.
 */
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/set_memory.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <crypto/blake2s.h>

#include "custom.h"

struct loaded {
	/* In `paths`, the newest first, or in `leaving`. */
	struct list_head list;
	const struct kcustom_gate *gate;
	u8 seal[32];
	u8 *code;
	u32 size, pages;
	/* What runs if a fact does not hold; the code reads it. */
	void *next;
	/* Calls that took the path; the code counts. */
	u32 hits;
	/* `hits` when a path was last chosen to be dropped. */
	u32 seen;
};

static DEFINE_MUTEX(lock);
static LIST_HEAD(paths);
static LIST_HEAD(leaving);
static struct kcustom_statistics now = { .limit = 64 << 10 };
/* Bytes of the code of paths in `leaving`. */
static u32 leaving_bytes;
/* Of paths that were dropped. */
static u32 earlier_hits;

extern const u8 __start_notes[], __stop_notes[];

void kcustom_build(u8 build[32])
{
	blake2s(build, __start_notes, NULL, 32, __stop_notes - __start_notes, 0);
}

/* Frees the memory of code, which loses its protection before. What cannot be made writable again is lost. */
static void free_code(struct loaded *path)
{
	set_memory_nx((unsigned long)path->code, path->pages);
	if (!set_memory_rw((unsigned long)path->code, path->pages))
		vfree(path->code);
}

static void free_path(struct loaded *path)
{
	free_code(path);
	kfree(path);
}

/*
 * Whether the stack of a task that does not run has an address of the code: a return address, or where it was preempted. Without
 * preemption, the start of the code is none of these, but may be left from a load.
 */
static bool is_on_stack(struct task_struct *task, const struct loaded *path)
{
	unsigned long first = (unsigned long)path->code + !IS_ENABLED(CONFIG_PREEMPTION);
	unsigned long last = (unsigned long)path->code + path->size - 1, *word, *end;
	void *stack = try_get_task_stack(task);

	if (!stack)
		return false;
	/* The registers of a program are no addresses of the kernel. */
	end = task->mm ? (unsigned long *)task_pt_regs(task) : stack + THREAD_SIZE;
	for (word = (unsigned long *)task->thread.sp; word < end; word++)
		if (READ_ONCE_NOCHECK(*word) - first <= last - first)
			break;
	put_task_stack(task);
	return word < end;
}

/* While no other task runs, moves the paths that no task is in from `leaving` to a list. */
static int find_unused(void *list)
{
	struct task_struct *process, *task;
	struct loaded *path, *after;

	rcu_read_lock();
	list_for_each_entry_safe(path, after, &leaving, list) {
		bool is_used = false;

		for_each_process_thread(process, task)
			is_used |= task != current && is_on_stack(task, path);
		if (!is_used)
			list_move(&path->list, list);
	}
	rcu_read_unlock();
	return 0;
}

static void free_later(struct work_struct *unused);
static DECLARE_DELAYED_WORK(later, free_later);

static void free_unused(void)
{
	struct loaded *path, *after;
	LIST_HEAD(unused);

	if (list_empty(&leaving))
		return;
	stop_machine(find_unused, &unused, NULL);
	list_for_each_entry_safe(path, after, &unused, list) {
		now.leaving--;
		leaving_bytes -= path->size;
		earlier_hits += path->hits;
		free_path(path);
	}
	if (!list_empty(&leaving))
		schedule_delayed_work(&later, HZ);
}

static void free_later(struct work_struct *unused)
{
	mutex_lock(&lock);
	free_unused();
	mutex_unlock(&lock);
}

/* Leads the paths of a list past a path. */
static void lead_past(struct list_head *list, const struct loaded *path)
{
	struct loaded *before;

	list_for_each_entry(before, list, list)
		if (before->next == path->code)
			WRITE_ONCE(before->next, path->next);
}

static void unlink_path(struct loaded *path)
{
	if (*path->gate->head == path->code)
		WRITE_ONCE(*path->gate->head, path->next);
	lead_past(&paths, path);
	/* A task may be preempted between the comparisons of a path that leaves. */
	lead_past(&leaving, path);
	list_move(&path->list, &leaving);
	now.paths--;
	now.bytes -= path->size;
	now.leaving++;
	leaving_bytes += path->size;
	now.dropped++;
}

/* Drops the path with the fewest calls since `seen`. */
static void drop_one(void)
{
	struct loaded *path, *least = NULL;
	u32 fewest = U32_MAX;

	list_for_each_entry(path, &paths, list) {
		if (path->hits - path->seen <= fewest) {
			fewest = path->hits - path->seen;
			least = path;
		}
	}
	if (least)
		unlink_path(least);
}

static void make_room(u32 size)
{
	struct loaded *path;
	bool drops = now.bytes + size > now.limit;

	while (!list_empty(&paths) && now.bytes + size > now.limit)
		drop_one();
	if (drops)
		list_for_each_entry(path, &paths, list)
			path->seen = path->hits;
	free_unused();
}

void kcustom_drop(void)
{
	mutex_lock(&lock);
	while (!list_empty(&paths))
		drop_one();
	free_unused();
	mutex_unlock(&lock);
}

void kcustom_limit(u32 limit)
{
	mutex_lock(&lock);
	now.limit = limit;
	make_room(0);
	mutex_unlock(&lock);
}

void kcustom_count(struct kcustom_statistics *statistics)
{
	struct loaded *path;

	mutex_lock(&lock);
	*statistics = now;
	statistics->hits = earlier_hits;
	list_for_each_entry(path, &paths, list)
		statistics->hits += path->hits;
	list_for_each_entry(path, &leaving, list)
		statistics->hits += path->hits;
	mutex_unlock(&lock);
}

/* The bytes that a head asks for; 0 if they are more than there can be. */
static u32 size_of(const struct kcustom_head *head)
{
	u32 most = KCUSTOM_MAX;

	if (head->code > most || head->calls > most || head->nexts > most || head->counts > most)
		return 0;
	return sizeof(*head) + head->code + 4 * (head->calls + head->nexts + head->counts);
}

static const struct kcustom_gate *gate_of(u32 entry)
{
	u32 i;

	for (i = 0; i < kcustom_gate_count; i++)
		if ((u32)(unsigned long)kcustom_gates[i].original == entry)
			return &kcustom_gates[i];
	return NULL;
}

/* Whether two seals differ, in a time that does not tell where. A small kernel may lack crypto_memneq. */
static bool differ(const u8 *one, const u8 *other)
{
	u8 bits = 0;
	int i;

	for (i = 0; i < 32; i++)
		bits |= READ_ONCE(one[i]) ^ other[i];
	return bits;
}

/* Whether the head is for this kernel, and the seal that of this device's key. */
static int check(const u8 *bytes, u32 size)
{
	const struct kcustom_head *head = (const void *)bytes;
	struct kcustom_head unsealed;
	struct blake2s_state state;
	u8 build[32], seal[32];

	if (head->magic != KCUSTOM_MAGIC || size_of(head) != size || head->code % 4 || !head->code)
		return -EBADMSG;
	kcustom_build(build);
	if (memcmp(build, head->build, sizeof(build)))
		return -ESTALE;
	unsealed = *head;
	memset(unsealed.seal, 0, sizeof(unsealed.seal));
	blake2s_init_key(&state, sizeof(seal), kcustom_key, sizeof(kcustom_key));
	blake2s_update(&state, (const u8 *)&unsealed, sizeof(unsealed));
	blake2s_update(&state, bytes + sizeof(*head), size - sizeof(*head));
	blake2s_final(&state, seal);
	if (differ(seal, head->seal))
		return -EKEYREJECTED;
	return gate_of(head->entry) ? 0 : -ENOENT;
}

/* Changes fields of the code. */
static int relocate(struct loaded *path, const u32 *places, u32 count, u32 factor, u32 value)
{
	u32 i;

	for (i = 0; i < count; i++) {
		u32 field;

		if (places[i] > path->size - sizeof(field))
			return -EBADMSG;
		memcpy(&field, path->code + places[i], sizeof(field));
		field = field * factor + value;
		memcpy(path->code + places[i], &field, sizeof(field));
	}
	return 0;
}

static int place(struct loaded *path, const u8 *bytes)
{
	const struct kcustom_head *head = (const void *)bytes;
	const u8 *code = bytes + sizeof(*head);
	const u32 *places;
	int error;

	path->gate = gate_of(head->entry);
	path->size = head->code;
	path->pages = DIV_ROUND_UP(head->code, PAGE_SIZE);
	path->code = vmalloc(path->pages * PAGE_SIZE);
	if (!path->code)
		return -ENOMEM;
	memcpy(path->seal, head->seal, sizeof(path->seal));
	/* The rest is filled with traps. */
	memset(path->code, 0xcc, path->pages * PAGE_SIZE);
	memcpy(path->code, code, head->code);
	places = (const u32 *)(code + head->code);
	error = relocate(path, places, head->calls, 1, -(u32)(unsigned long)path->code) ?:
		relocate(path, places + head->calls, head->nexts, 0, (u32)(unsigned long)&path->next) ?:
		relocate(path, places + head->calls + head->nexts, head->counts, 0,
			 (u32)(unsigned long)&path->hits);
	if (error) {
		vfree(path->code);
		return error;
	}
	error = set_memory_ro((unsigned long)path->code, path->pages) ?:
		set_memory_x((unsigned long)path->code, path->pages);
	if (error)
		free_code(path);
	return error;
}

static struct loaded *find(const u8 *seal)
{
	struct loaded *path;

	list_for_each_entry(path, &paths, list)
		if (!memcmp(path->seal, seal, sizeof(path->seal)))
			return path;
	return NULL;
}

/* Loads a path of at least the size of a head, unless it is there. */
int kcustom_load(const u8 *bytes, u32 size)
{
	const struct kcustom_head *head = (const void *)bytes;
	struct loaded *path;
	int error;

	mutex_lock(&lock);
	error = check(bytes, size);
	if (error) {
		now.refused++;
		goto out;
	}
	if (find(head->seal)) {
		now.shared++;
		goto out;
	}
	error = -ENOSPC;
	if (head->code > now.limit)
		goto out;
	make_room(head->code);
	/* Dropped paths that tasks are in take room, too. */
	if (now.bytes + leaving_bytes + head->code > now.limit)
		goto out;
	error = -ENOMEM;
	path = kzalloc(sizeof(*path), GFP_KERNEL);
	if (!path)
		goto out;
	error = place(path, bytes);
	if (error) {
		kfree(path);
		goto out;
	}
	path->next = *path->gate->head;
	list_add(&path->list, &paths);
	/* The code is complete before a gate leads to it. */
	smp_store_release(path->gate->head, path->code);
	now.paths++;
	now.bytes += path->size;
	now.loaded++;
out:
	mutex_unlock(&lock);
	return error;
}
