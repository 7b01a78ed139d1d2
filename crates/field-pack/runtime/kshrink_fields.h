/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Members of structures that are stored as short codes
 *
 * A member that held few different values, or small ones, is stored as a code
 * of one or two bytes (four for a member of eight). Accessors beside the
 * structure read and write it. A value without a code goes into a table beside
 * the objects, and the member has the code of all ones.
 *
 * - The code 0 is the value 0 or NULL, so that zeroed memory is right.
 * - The code of all ones is stored only after the value is in the table, and
 *   only under the table's lock. A value leaves the table only after another
 *   code was stored.
 * - Readers take no lock.
 * - A value lives as long as the memory of its object: until kfree() or
 *   kmem_cache_free(), and in caches whose objects keep their content when they
 *   are free (constructor, SLAB_TYPESAFE_BY_RCU) until the slab is freed.
 */
#ifndef _LINUX_KSHRINK_FIELDS_H
#define _LINUX_KSHRINK_FIELDS_H

#include <asm/barrier.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/limits.h>
#include <linux/types.h>

/* How the code of a member is made from its value. */
enum kf_scheme {
	KF_NARROW,	/* the low bytes of the value */
	KF_NARROW_SIGNED,	/* the same, with the sign extended */
	KF_PREFIX,	/* base + (code << shift) */
	KF_TABLE,	/* an index into a table of values */
	KF_PAGES,	/* an index into a table of pages, and a place in the page */
};

/**
 * struct kf_member - a member that is stored as a code
 * @name: the structure and the member, for /proc/kshrink-fields
 * @scheme: how the code is made
 * @width: size of the code in bytes
 * @bits: number of bits for the place in the page
 * @shift: number of low bits that are 0 in all values
 * @codes: number of codes, 0 included; the next ones are not used
 * @base: the value that codes count from
 * @table: the values or pages of the codes from 0 on; the first is 0
 * @known: number of values that the table had at build time
 * @size: number of values that the table has room for
 * @spilled: number of values that went into the side table
 */
struct kf_member {
	const char *name;
	u8 scheme;
	u8 width;
	u8 bits;
	u8 shift;
	u16 known;
	u16 size;
	u32 codes;
	u64 base;
	unsigned long *table;
	unsigned long spilled;
};

/* The values that are in the side table now. */
extern unsigned long kf_live;

/* Read and write a member in the general case. */
u64 kf_load(const void *field, const struct kf_member *member);
void kf_store(void *field, struct kf_member *member, u64 value);
u64 kf_exchange(void *field, struct kf_member *member, u64 old, u64 value);

void kf_drop_slow(const void *start, size_t size);

/**
 * kf_drop - forget the values of an object
 * @start: the object, which nobody uses any more
 * @size: its size
 */
static inline void kf_drop(const void *start, size_t size)
{
	if (unlikely(READ_ONCE(kf_live)))
		kf_drop_slow(start, size);
}

/* All members, ended by NULL. */
extern struct kf_member *const kf_members[];

#endif /* _LINUX_KSHRINK_FIELDS_H */
