// SPDX-License-Identifier: GPL-2.0
/*
 * The side table for members that are stored as short codes
 *
 * See include/linux/kshrink_fields.h. The address of a member finds its value.
 * The hash leaves out the low bits of the address. The entries of one object are
 * therefore in few buckets, and freeing the object searches only these.
 */
#include <linux/cache.h>
#include <linux/hash.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/kshrink_fields.h>
#include <linux/moduleparam.h>
#include <linux/proc_fs.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "slab.h"

/* Number of buckets, as a power of two. */
#ifndef KF_BUCKET_BITS
#define KF_BUCKET_BITS 8
#endif

/* Members in one granule of this size, as a power of two, share a bucket. */
#define KF_GRANULE_BITS 8

/* Number of entries that are kept for writers that cannot wait. */
#define KF_RESERVE 64

/* A reader that finds no value is in a race with a writer, and tries again. */
#define KF_TRIES 1000

struct kf_entry {
	struct kf_entry *next;
	const void *field;
	u64 value;
	/* The next entry that was dropped with this one. */
	struct kf_entry *dropped;
	struct rcu_head rcu;
};

unsigned long kf_live;

static struct kf_entry *kf_buckets[1 << KF_BUCKET_BITS];
static DEFINE_RAW_SPINLOCK(kf_lock);

/* Before the allocator works, and when it fails: the reserve. */
static struct kf_entry kf_first[KF_RESERVE];
static struct kf_entry *kf_free;
static unsigned int kf_free_count;
static bool kf_is_filled;

static unsigned long kf_ever;
static unsigned long kf_refused;

/*
 * A value that has neither a code nor memory cannot be stored. By default, the
 * kernel stops, because it would go on with a wrong value.
 */
static bool kf_warn;
module_param_named(warn, kf_warn, bool, 0644);
MODULE_PARM_DESC(warn, "warn and keep the old value when memory for a value is missing, instead of a panic");

static unsigned int kf_bucket(unsigned long granule)
{
	return hash_long(granule, KF_BUCKET_BITS);
}

static struct kf_entry **kf_bucket_of(const void *field)
{
	return &kf_buckets[kf_bucket((unsigned long)field >> KF_GRANULE_BITS)];
}

static u32 kf_ones(const struct kf_member *member)
{
	return member->width == 1 ? U8_MAX : member->width == 2 ? U16_MAX : U32_MAX;
}

/* Pairs with kf_write_code(): who sees a code sees what it stands for. */
static u32 kf_read_code(const void *field, const struct kf_member *member)
{
	switch (member->width) {
	case 1:
		return smp_load_acquire((const u8 *)field);
	case 2:
		return smp_load_acquire((const u16 *)field);
	default:
		return smp_load_acquire((const u32 *)field);
	}
}

static void kf_write_code(void *field, const struct kf_member *member, u32 code)
{
	switch (member->width) {
	case 1:
		smp_store_release((u8 *)field, code);
		break;
	case 2:
		smp_store_release((u16 *)field, code);
		break;
	default:
		smp_store_release((u32 *)field, code);
	}
}

/* Returns the index of a value, from 1 on, or 0 if the table has no room. */
static unsigned int kf_index(struct kf_member *member, unsigned long value)
{
	unsigned long flags, found;
	unsigned int index;

	for (index = 1; index < member->size; index++) {
		found = index < member->known ? member->table[index] :
			smp_load_acquire(&member->table[index]);
		if (found == value)
			return index;
		if (!found)
			break;
	}
	if (index >= member->size)
		return 0;
	raw_spin_lock_irqsave(&kf_lock, flags);
	for (; index < member->size; index++) {
		if (!member->table[index])
			smp_store_release(&member->table[index], value);
		if (member->table[index] == value)
			break;
	}
	raw_spin_unlock_irqrestore(&kf_lock, flags);
	return index < member->size ? index : 0;
}

/* Returns whether a value has a code, which is not the one of all ones. */
static bool kf_encode(struct kf_member *member, u64 value, u32 *code)
{
	u32 ones = kf_ones(member);
	unsigned long low;
	u64 rest;

	*code = 0;
	if (!value)
		return true;
	switch (member->scheme) {
	case KF_NARROW:
		*code = value;
		return value < member->codes;
	case KF_NARROW_SIGNED:
		*code = value & ones;
		rest = *code;
		if (rest > ones / 2)
			rest |= ~(u64)ones;
		return rest == value && *code < member->codes;
	case KF_PREFIX:
		rest = (value - member->base) >> member->shift;
		*code = rest;
		return rest && rest < member->codes && member->base + (rest << member->shift) == value;
	case KF_TABLE:
		*code = kf_index(member, value);
		return *code && *code < ones;
	case KF_PAGES:
		low = (unsigned long)value & 4095;
		if (low & ((1UL << member->shift) - 1))
			return false;
		*code = kf_index(member, (unsigned long)value & ~4095UL);
		if (!*code)
			return false;
		rest = ((u64)*code << member->bits) | (low >> member->shift);
		*code = rest;
		return rest < ones;
	}
	return false;
}

static u64 kf_decode(const struct kf_member *member, u32 code)
{
	u64 value = code;

	if (!code)
		return 0;
	switch (member->scheme) {
	case KF_NARROW:
		return value;
	case KF_NARROW_SIGNED:
		if (code > kf_ones(member) / 2)
			value |= ~(u64)kf_ones(member);
		return value;
	case KF_PREFIX:
		return member->base + (value << member->shift);
	case KF_TABLE:
		return READ_ONCE(member->table[code]);
	default:
		return READ_ONCE(member->table[code >> member->bits]) +
			((code & ((1UL << member->bits) - 1)) << member->shift);
	}
}

/* Returns the place that points to the entry of a member, or to NULL. */
static struct kf_entry **kf_find(const void *field)
{
	struct kf_entry **link = kf_bucket_of(field);

	while (*link && (*link)->field != field)
		link = &(*link)->next;
	return link;
}

/* Takes an entry out of its bucket. Readers may still have it. Needs kf_lock. */
static void kf_unlink(struct kf_entry **link)
{
	smp_store_release(link, (*link)->next);
	WRITE_ONCE(kf_live, kf_live - 1);
}

/*
 * Puts a value into the entry at a place, or into the fresh one, which is then
 * used up. Returns whether there was one. Needs kf_lock.
 */
static bool kf_put(struct kf_entry **link, struct kf_entry **fresh, const void *field, u64 value)
{
	struct kf_entry *entry = *fresh;

	if (*link) {
		WRITE_ONCE((*link)->value, value);
		return true;
	}
	if (!entry) {
		WRITE_ONCE(kf_refused, kf_refused + 1);
		return false;
	}
	entry->next = NULL;
	entry->field = field;
	entry->value = value;
	slab_has_fields(field);
	smp_store_release(link, entry);
	*fresh = NULL;
	WRITE_ONCE(kf_live, kf_live + 1);
	return true;
}

/* Counts a value that is in the table. Needs kf_lock. */
static void kf_count(struct kf_member *member)
{
	WRITE_ONCE(kf_ever, kf_ever + 1);
	WRITE_ONCE(member->spilled, member->spilled + 1);
}

/**
 * kf_load - read a member
 * @field: the code in the object
 * @member: the member
 *
 * May be called in any context.
 */
u64 kf_load(const void *field, const struct kf_member *member)
{
	const struct kf_entry *entry;
	unsigned int tries;
	u64 value = 0;
	u32 code;

	for (tries = 0; tries < KF_TRIES; tries++) {
		code = kf_read_code(field, member);
		if (code != kf_ones(member))
			return kf_decode(member, code);
		rcu_read_lock();
		entry = smp_load_acquire(kf_bucket_of(field));
		while (entry && entry->field != field)
			entry = smp_load_acquire(&entry->next);
		if (entry)
			value = READ_ONCE(entry->value);
		rcu_read_unlock();
		if (entry)
			return value;
	}
	WARN_ONCE(1, "kshrink: %s of %p has no value\n", member->name, field);
	return 0;
}

/* Adds an entry to the reserve. Needs kf_lock. */
static void kf_push(struct kf_entry *entry)
{
	entry->next = kf_free;
	kf_free = entry;
	WRITE_ONCE(kf_free_count, kf_free_count + 1);
}

/* Fills the reserve when a writer took of it. */
static void kf_refill(struct work_struct *work)
{
	struct kf_entry *entry;
	unsigned long flags;

	while (READ_ONCE(kf_free_count) < KF_RESERVE) {
		entry = kmalloc(sizeof(*entry), GFP_KERNEL);
		if (!entry)
			return;
		raw_spin_lock_irqsave(&kf_lock, flags);
		kf_push(entry);
		raw_spin_unlock_irqrestore(&kf_lock, flags);
	}
}

static DECLARE_WORK(kf_refill_work, kf_refill);

static bool kf_is_first(const struct kf_entry *entry)
{
	return entry >= kf_first && entry < kf_first + KF_RESERVE;
}

/* Returns an entry to the reserve, or to the allocator. No reader has it. */
static void kf_give(struct kf_entry *entry)
{
	unsigned long flags;
	bool keep;

	raw_spin_lock_irqsave(&kf_lock, flags);
	keep = kf_is_first(entry) || kf_free_count < KF_RESERVE;
	if (keep)
		kf_push(entry);
	raw_spin_unlock_irqrestore(&kf_lock, flags);
	if (!keep)
		kfree(entry);
}

static void kf_give_rcu(struct rcu_head *rcu)
{
	kf_give(container_of(rcu, struct kf_entry, rcu));
}

/* Returns entries that readers may still have. */
static void kf_give_later(struct kf_entry *entry)
{
	struct kf_entry *next;

	for (; entry; entry = next) {
		next = entry->dropped;
		call_rcu(&entry->rcu, kf_give_rcu);
	}
}

/* Takes an entry: from the reserve, else from the allocator, without waiting. */
static struct kf_entry *kf_take(void)
{
	struct kf_entry *entry;
	unsigned int count;
	unsigned long flags;

	raw_spin_lock_irqsave(&kf_lock, flags);
	if (!kf_is_filled) {
		kf_is_filled = true;
		for (count = 0; count < KF_RESERVE; count++)
			kf_push(&kf_first[count]);
	}
	entry = kf_free;
	if (entry) {
		kf_free = entry->next;
		WRITE_ONCE(kf_free_count, kf_free_count - 1);
	}
	count = kf_free_count;
	raw_spin_unlock_irqrestore(&kf_lock, flags);
	if (count < KF_RESERVE / 2 && slab_is_available() && system_wq)
		schedule_work(&kf_refill_work);
	if (!entry && slab_is_available())
		entry = kmalloc(sizeof(*entry), GFP_ATOMIC | __GFP_NOWARN);
	return entry;
}

static void kf_no_memory(const struct kf_member *member)
{
	if (!kf_warn)
		panic("kshrink: no memory for a value of %s\n", member->name);
	WARN_ONCE(1, "kshrink: no memory for a value of %s\n", member->name);
}

/* Puts a value into the side table, and the code of all ones into the member. */
static void kf_spill(void *field, struct kf_member *member, u64 value)
{
	struct kf_entry *fresh = kf_take();
	unsigned long flags;
	bool is_stored;

	raw_spin_lock_irqsave(&kf_lock, flags);
	is_stored = kf_put(kf_find(field), &fresh, field, value);
	if (is_stored) {
		kf_write_code(field, member, kf_ones(member));
		kf_count(member);
	}
	raw_spin_unlock_irqrestore(&kf_lock, flags);
	if (fresh)
		kf_give(fresh);
	if (!is_stored)
		kf_no_memory(member);
}

/**
 * kf_store - write a member
 * @field: the code in the object
 * @member: the member
 * @value: the value
 *
 * May be called in any context except NMI and under the locks of the scheduler,
 * the workqueues and the slab allocator.
 */
void kf_store(void *field, struct kf_member *member, u64 value)
{
	struct kf_entry **link, *entry;
	unsigned long flags;
	u32 code;

	if (!kf_encode(member, value, &code)) {
		kf_spill(field, member, value);
		return;
	}
	if (likely(kf_read_code(field, member) != kf_ones(member))) {
		/*
		 * A writer that spills at the same time leaves an entry that no
		 * code leads to. The next value that spills replaces it.
		 */
		kf_write_code(field, member, code);
		return;
	}
	raw_spin_lock_irqsave(&kf_lock, flags);
	kf_write_code(field, member, code);
	link = kf_find(field);
	entry = *link;
	if (entry)
		kf_unlink(link);
	raw_spin_unlock_irqrestore(&kf_lock, flags);
	if (entry)
		call_rcu(&entry->rcu, kf_give_rcu);
}

/* Replaces a code if it is still the old one. Returns whether it was. */
static bool kf_exchange_code(void *field, const struct kf_member *member, u32 old, u32 code)
{
	switch (member->width) {
	case 1:
		return cmpxchg((u8 *)field, old, code) == old;
	case 2:
		return cmpxchg((u16 *)field, old, code) == old;
	default:
		return cmpxchg((u32 *)field, old, code) == old;
	}
}

/**
 * kf_exchange - cmpxchg() of a member
 * @field: the code in the object
 * @member: the member
 * @old: the value to replace
 * @value: the new value
 *
 * Returns the value that was found. May be called where kf_store() may.
 */
u64 kf_exchange(void *field, struct kf_member *member, u64 old, u64 value)
{
	u32 ones = kf_ones(member), code, found;
	struct kf_entry *fresh = NULL, *unused = NULL, **link, *entry;
	bool fits = kf_encode(member, value, &code), is_stored = true;
	unsigned long flags;
	u64 current_value;

	if (!fits)
		fresh = kf_take();
again:
	raw_spin_lock_irqsave(&kf_lock, flags);
	link = kf_find(field);
	entry = *link;
	found = kf_read_code(field, member);
	current_value = found == ones && entry ? entry->value : kf_decode(member, found);
	if (current_value != old)
		goto out;
	if (!fits) {
		is_stored = kf_put(link, &fresh, field, value);
		if (!is_stored)
			goto out;
		/* Under the lock, nobody else changes an entry, nor the code of all ones. */
		if (entry && found == ones)
			goto spilled;
		code = ones;
	}
	if (!kf_exchange_code(field, member, found, code)) {
		raw_spin_unlock_irqrestore(&kf_lock, flags);
		goto again;
	}
	if (fits && found == ones && entry) {
		kf_unlink(link);
		unused = entry;
	}
	if (fits)
		goto out;
spilled:
	kf_count(member);
out:
	raw_spin_unlock_irqrestore(&kf_lock, flags);
	if (fresh)
		kf_give(fresh);
	if (unused)
		call_rcu(&unused->rcu, kf_give_rcu);
	if (!is_stored)
		kf_no_memory(member);
	return current_value;
}

/* Forgets the values of an object: see kf_drop(). */
void kf_drop_slow(const void *start, size_t size)
{
	unsigned long granule = (unsigned long)start >> KF_GRANULE_BITS;
	unsigned long last = ((unsigned long)start + size - 1) >> KF_GRANULE_BITS;
	struct kf_entry *dropped = NULL, **link, *entry;
	unsigned long flags;

	if (!size)
		return;
	for (; granule <= last; granule++) {
		if (!READ_ONCE(kf_buckets[kf_bucket(granule)]))
			continue;
		raw_spin_lock_irqsave(&kf_lock, flags);
		link = &kf_buckets[kf_bucket(granule)];
		while ((entry = *link)) {
			if (entry->field < start || entry->field >= start + size) {
				link = &entry->next;
				continue;
			}
			kf_unlink(link);
			entry->dropped = dropped;
			dropped = entry;
		}
		raw_spin_unlock_irqrestore(&kf_lock, flags);
	}
	kf_give_later(dropped);
}

#ifdef CONFIG_PROC_FS
static int kf_show(struct seq_file *file, void *unused)
{
	struct kf_member *const *member;

	seq_printf(file, "now %lu\never %lu\nrefused %lu\nreserve %u\n",
		   READ_ONCE(kf_live), READ_ONCE(kf_ever), READ_ONCE(kf_refused),
		   READ_ONCE(kf_free_count));
	for (member = kf_members; *member; member++)
		if (READ_ONCE((*member)->spilled))
			seq_printf(file, "%s %lu\n", (*member)->name,
				   READ_ONCE((*member)->spilled));
	return 0;
}

static int __init kf_init(void)
{
	proc_create_single("kshrink-fields", 0444, NULL, kf_show);
	return 0;
}
late_initcall(kf_init);
#endif
