/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Decodes single pages of a packed file (docs/frozen-format.md).
 *
 * Freestanding C11: no library, no floating point, no division, no recursion, no memory except the caller's and less
 * than 512 bytes of stack (on i386). Any number of calls may run at once, even on the same packed file.
 */
#ifndef KDECOMP_RT_DECODE_H
#define KDECOMP_RT_DECODE_H

#ifdef __KERNEL__
#include <linux/init.h>
#include <linux/limits.h>
#include <linux/stddef.h>
#include <linux/types.h>
#define UINT32_MAX U32_MAX
#else
#include <stddef.h>
#include <stdint.h>
/* Marks code that the kernel frees after boot. */
#define __init
#endif

/* The machines whose code is decoded. Default: in a kernel, its own machine; elsewhere, all machines. */
#if !defined(FROZEN_I386) && !defined(FROZEN_X86_64) && !defined(FROZEN_ARM)
#ifdef __KERNEL__
#define FROZEN_I386 IS_ENABLED(CONFIG_X86_32)
#define FROZEN_X86_64 IS_ENABLED(CONFIG_X86_64)
#define FROZEN_ARM IS_ENABLED(CONFIG_ARM)
#else
#define FROZEN_I386 1
#define FROZEN_X86_64 1
#define FROZEN_ARM 1
#endif
#endif
#ifndef FROZEN_I386
#define FROZEN_I386 0
#endif
#ifndef FROZEN_X86_64
#define FROZEN_X86_64 0
#endif
#ifndef FROZEN_ARM
#define FROZEN_ARM 0
#endif

/* Errors, as return values. */
#define FROZEN_DAMAGED (-1) /* the packed file, its tables or the page */
#define FROZEN_NO_PAGE (-2) /* there is no page of this number */

/*
 * Distributions of symbols (`nodes`), and the offset of a distribution for each first value of a context (`contexts`).
 */
struct frozen_tables {
	const uint8_t *contexts;
	const uint8_t *nodes;
	uint32_t node_size;
};

/* A packed file. The caller allocates it, frozen_open fills it in, and nothing writes to it afterwards. */
struct frozen {
	const uint8_t *segments;
	const uint8_t *index;
	const uint8_t *streams;
	const uint8_t *templates;
	const uint8_t *words;
	const uint8_t *branches;
	const uint8_t *dictionary;
	uint32_t page_size;
	uint32_t segment_count;
	uint32_t page_count;
	uint32_t template_count;
	uint32_t word_count;
	uint32_t branch_count;
	uint32_t dictionary_size;
	/* Whether pages differ in size (see the index), and if so, the upper byte of nearby addresses. */
	int has_sizes;
	uint32_t high;
	/*
	 * The machine of code: 1 i386, 2 32-bit ARM, 3 x86-64. For 32-bit ARM, also whether it is ARM code, not Thumb
	 * code, and the formats of instructions.
	 */
	uint32_t machine;
	int is_arm_code;
	uint32_t format_count;
	const uint8_t *formats;
	struct frozen_tables code;
	struct frozen_tables data;
};

/*
 * Checks header, segments, index and all tables of the packed file of `size` bytes at `bytes`, which must not change
 * while `frozen` is in use. Does not verify the checksum. Returns 0 or FROZEN_DAMAGED.
 */
int frozen_open(struct frozen *frozen, const void *bytes, size_t size);

/*
 * Decodes a page, counted from 0, into `out`, which has room for a page. Writes nowhere else. After an error, `out` is
 * undefined. Returns the size of the page in bytes, FROZEN_DAMAGED or FROZEN_NO_PAGE.
 */
int frozen_page(const struct frozen *frozen, uint32_t page, void *out);

/*
 * The same for a page of code that will run at an address other than the one for which it is coded. Branches out of the
 * page keep their targets.
 */
int frozen_page_at(const struct frozen *frozen, uint32_t page, uint32_t runs_at, void *out);

/*
 * Returns the size of a page in bytes, or FROZEN_NO_PAGE. `address` gets the address for which the page is coded; all
 * regions share one.
 */
int frozen_place(const struct frozen *frozen, uint32_t page, uint32_t *address);

#endif
