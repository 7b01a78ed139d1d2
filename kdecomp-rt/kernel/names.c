// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The kernel's queries about addresses: whether they are text or read-only data, and the names of their symbols. The
 * kernel compares addresses with the bounds of its sections; frozen code and data lie outside these bounds.
 */
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "runtime.h"

int __real_kernel_text_address(unsigned long address);
int __wrap_kernel_text_address(unsigned long address);
int __real___kernel_text_address(unsigned long address);
int __wrap___kernel_text_address(unsigned long address);
int __real_func_ptr_is_kernel_text(void *pointer);
int __wrap_func_ptr_is_kernel_text(void *pointer);
void __real_kfree_const(const void *pointer);
void __wrap_kfree_const(const void *pointer);
const char *__real_kstrdup_const(const char *string, gfp_t flags);
const char *__wrap_kstrdup_const(const char *string, gfp_t flags);

int __wrap_kernel_text_address(unsigned long address)
{
	return kshrink_is_code(address) || __real_kernel_text_address(address);
}

int __wrap___kernel_text_address(unsigned long address)
{
	return kshrink_is_code(address) || __real___kernel_text_address(address);
}

int __wrap_func_ptr_is_kernel_text(void *pointer)
{
	return kshrink_is_code((unsigned long)pointer) || __real_func_ptr_is_kernel_text(pointer);
}

/* Strings of read-only data are not copied and not freed. */
void __wrap_kfree_const(const void *pointer)
{
	if (!kshrink_is_frozen((unsigned long)pointer))
		__real_kfree_const(pointer);
}

const char *__wrap_kstrdup_const(const char *string, gfp_t flags)
{
	return kshrink_is_frozen((unsigned long)string) ? string : __real_kstrdup_const(string, flags);
}

#ifdef CONFIG_KALLSYMS
/*
 * The kernel's symbol table (kernel/kallsyms_internal.h, scripts/kallsyms.c). It includes the names of frozen code.
 */
extern const int kallsyms_offsets[];
extern const u8 kallsyms_names[];
extern const unsigned int kallsyms_num_syms;
extern const unsigned long kallsyms_relative_base;
extern const char kallsyms_token_table[];
extern const u16 kallsyms_token_index[];
extern const unsigned int kallsyms_markers[];

int __real_sprint_symbol(char *buffer, unsigned long address);
int __wrap_sprint_symbol(char *buffer, unsigned long address);
int __real_sprint_symbol_build_id(char *buffer, unsigned long address);
int __wrap_sprint_symbol_build_id(char *buffer, unsigned long address);
int __real_sprint_symbol_no_offset(char *buffer, unsigned long address);
int __wrap_sprint_symbol_no_offset(char *buffer, unsigned long address);
int __real_sprint_backtrace(char *buffer, unsigned long address);
int __wrap_sprint_backtrace(char *buffer, unsigned long address);
int __real_sprint_backtrace_build_id(char *buffer, unsigned long address);
int __wrap_sprint_backtrace_build_id(char *buffer, unsigned long address);
int __real_kallsyms_lookup_size_offset(unsigned long address, unsigned long *size, unsigned long *offset);
int __wrap_kallsyms_lookup_size_offset(unsigned long address, unsigned long *size, unsigned long *offset);
const char *__real_kallsyms_lookup(unsigned long address, unsigned long *size, unsigned long *offset, char **module,
				   char *name);
const char *__wrap_kallsyms_lookup(unsigned long address, unsigned long *size, unsigned long *offset, char **module,
				   char *name);
int __real_lookup_symbol_name(unsigned long address, char *name);
int __wrap_lookup_symbol_name(unsigned long address, char *name);

/* If per-CPU symbols have absolute addresses, distances of others are negative (scripts/kallsyms.c). */
static unsigned long address_of(u32 symbol)
{
	int offset = kallsyms_offsets[symbol];

	if (!IS_ENABLED(CONFIG_KALLSYMS_ABSOLUTE_PERCPU))
		return kallsyms_relative_base + (u32)offset;
	return offset >= 0 ? offset : kallsyms_relative_base - 1 - offset;
}

/* Reads the length of a compressed name, and advances to the name. */
static u32 length_at(const u8 **at)
{
	u32 length = *(*at)++;

	if (length & 0x80)
		length = (length & 0x7f) | *(*at)++ << 7;
	return length;
}

/* Writes the name of a symbol. The first character of the expanded name is its type. */
static void expand(u32 symbol, char *name)
{
	const u8 *at = kallsyms_names + kallsyms_markers[symbol >> 8];
	char *end = name + KSYM_NAME_LEN - 1;
	bool is_type = true;
	u32 i, length;

	for (i = 0; i < (symbol & 0xff); i++) {
		length = length_at(&at);
		at += length;
	}
	for (length = length_at(&at); length; length--) {
		const char *token = kallsyms_token_table + kallsyms_token_index[*at++];

		for (; *token; token++) {
			if (!is_type && name < end)
				*name++ = *token;
			is_type = false;
		}
	}
	*name = '\0';
}

/* Finds the symbol of an address of frozen code. Returns whether there is one. */
static bool find(unsigned long address, unsigned long *size, unsigned long *offset, char *name)
{
	struct kshrink_code code = kshrink_code_at(address);
	unsigned long start, end, wanted = code.stub ? code.stub : code.address;
	u32 low = 0, high = kallsyms_num_syms;

	while (high - low > 1) {
		u32 middle = low + (high - low) / 2;

		if (address_of(middle) <= wanted)
			low = middle;
		else
			high = middle;
	}
	start = address_of(low);
	/* A region without the beginning of a function has no symbol; the symbol found is then of an earlier stub. */
	if (!kallsyms_num_syms || start > wanted || (code.stub ? start != code.stub : !kshrink_is_frozen_code(start)))
		return false;
	end = (unsigned long)kshrink_frozen_data;
	if (high < kallsyms_num_syms && kshrink_is_frozen_code(address_of(high)))
		end = address_of(high);
	/* Choose the first symbol at the address. */
	while (low && address_of(low - 1) == start)
		low--;
	if (size)
		*size = code.stub ? code.size : end - start;
	if (offset)
		*offset = code.stub ? code.offset : code.address - start;
	if (name)
		expand(low, name);
	return true;
}

/*
 * Like __sprint_symbol() of kernel/kallsyms.c: looks up the address less `back` bytes. Prints an address
 * without a symbol as its frozen address, which System.map names.
 */
static int print(char *buffer, unsigned long address, u32 back, bool with_offset)
{
	unsigned long size, offset;
	int length;

	if (!find(address - back, &size, &offset, buffer))
		return sprintf(buffer, "0x%lx", kshrink_code_at(address - back).address + back);
	length = strlen(buffer);
	if (with_offset)
		length += sprintf(buffer + length, "+%#lx/%#lx", offset + back, size);
	return length;
}

int __wrap_sprint_symbol(char *buffer, unsigned long address)
{
	return kshrink_is_code(address) ? print(buffer, address, 0, true) : __real_sprint_symbol(buffer, address);
}

int __wrap_sprint_symbol_build_id(char *buffer, unsigned long address)
{
	return kshrink_is_code(address) ? print(buffer, address, 0, true) : __real_sprint_symbol_build_id(buffer, address);
}

int __wrap_sprint_symbol_no_offset(char *buffer, unsigned long address)
{
	return kshrink_is_code(address) ? print(buffer, address, 0, false) : __real_sprint_symbol_no_offset(buffer, address);
}

int __wrap_sprint_backtrace(char *buffer, unsigned long address)
{
	return kshrink_is_code(address - 1) ? print(buffer, address, 1, true) : __real_sprint_backtrace(buffer, address);
}

int __wrap_sprint_backtrace_build_id(char *buffer, unsigned long address)
{
	return kshrink_is_code(address - 1) ? print(buffer, address, 1, true) :
					     __real_sprint_backtrace_build_id(buffer, address);
}

int __wrap_kallsyms_lookup_size_offset(unsigned long address, unsigned long *size, unsigned long *offset)
{
	return kshrink_is_code(address) ? find(address, size, offset, NULL) :
					 __real_kallsyms_lookup_size_offset(address, size, offset);
}

const char *__wrap_kallsyms_lookup(unsigned long address, unsigned long *size, unsigned long *offset, char **module,
				   char *name)
{
	if (!kshrink_is_code(address))
		return __real_kallsyms_lookup(address, size, offset, module, name);
	if (module)
		*module = NULL;
	return find(address, size, offset, name) ? name : NULL;
}

int __wrap_lookup_symbol_name(unsigned long address, char *name)
{
	if (!kshrink_is_code(address))
		return __real_lookup_symbol_name(address, name);
	return find(address, NULL, NULL, name) ? 0 : -ERANGE;
}
#endif
