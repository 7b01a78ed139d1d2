// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Compares the command line with the one that the kernel was made for.
 *
 * kshrink-spec compiles this with the flags of init/main.c and links it into a kernel without some of its boot parameters.
 * The kernel compares every word of its command line with the strings of .init.setup and calls the handlers of those that
 * it begins with, until one returns 1 (obsolete_checksetup() in init/main.c). The string here is empty and comes last, so
 * that this handler sees every word that nothing else took, and no such word becomes an argument of init.
 */
#define pr_fmt(text) "kshrink: " text

#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/string.h>

/*
 * Records, written when the kernel was made, each of a letter, a name, and of 'f' what follows the name; all strings end
 * with a 0 byte. A 0 byte follows the last record.
 *
 *	e	words with exactly this name were for a parameter that was removed
 *	p	words that begin with this name were
 *	f	a variable has the value that words with this name gave it for good
 *
 * A letter becomes a capital once the record was of use.
 */
extern char kshrink_parameters[];

static bool mismatch __initdata;

/* The string behind this one. */
static char *__init behind(char *string)
{
	return string + strlen(string) + 1;
}

/* The record that is about a word of the command line: that with the longest name. */
static char *__init find(const char *word)
{
	char *record = kshrink_parameters, *found = NULL;
	size_t longest = 0;

	while (*record) {
		char *name = record + 1, *end = behind(name);
		char kind = *record | 0x20;
		size_t length = strlen(name);
		bool fits = kind == 'p' || word[length] == '\0' || word[length] == '=';

		if (length > longest && parameqn(word, name, length) && fits) {
			longest = length;
			found = record;
		}
		record = kind == 'f' ? behind(end) : end;
	}
	return found;
}

static int __init check_word(char *word)
{
	char *record = find(word);
	char *name, *end, kind;
	size_t length;
	bool is_first;

	if (!record)
		return 0;
	name = record + 1;
	end = behind(name);
	kind = *record | 0x20;
	length = strlen(name);
	is_first = *record == kind;
	*record = kind & ~0x20;
	if (kind == 'f' && !strcmp(word + length, end))
		return 1;
	mismatch = true;
	/* Handlers decide what of "names", "name=" and "name" is for them. Of the first, one cannot know. */
	if (word[length] != '\0' && word[length] != '=' && word[length - 1] != '=') {
		if (is_first)
			pr_err("\"%s\" on the command line may be for the parameter %s: this kernel was made without it\n",
			       word, name);
		return 0;
	}
	if (is_first && kind == 'f')
		pr_err("\"%s\" on the command line does nothing: this kernel was made for \"%s%s\"\n", word, name, end);
	else if (is_first)
		pr_err("\"%s\" on the command line does nothing: this kernel was made without the parameter %s\n",
		       word, name);
	return 1;
}
__setup("", check_word);

static int __init check_rest(void)
{
	char *record = kshrink_parameters;

	while (*record) {
		char *name = record + 1, *end = behind(name);
		char kind = *record | 0x20;

		if (*record == 'f') {
			pr_err("\"%s%s\" is not on the command line, but this kernel was made for it\n", name, end);
			mismatch = true;
		}
		record = kind == 'f' ? behind(end) : end;
	}
	if (mismatch && KSHRINK_PANIC)
		panic("kshrink: the command line is not the one that this kernel was made for");
	return 0;
}
early_initcall(check_rest);
