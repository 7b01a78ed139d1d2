// SPDX-License-Identifier: MIT OR Apache-2.0
/* /proc/kshrink: lists frozen and thawed code and data, and accepts the command `refreeze`. */
#include <linux/init.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "runtime.h"
#include "segments.h"

static int show(struct seq_file *file, void *unused)
{
	static const char *const modes[] = { "log", "count", "refuse" };
	u32 count = atomic_read(&kshrink_thawed), i;

	seq_printf(file, "mode %s\n", modes[kshrink_mode]);
	kshrink_show(file);
#ifdef KSHRINK_PACKS
	seq_printf(file, "freed_between_sections_kib %lu\n", kshrink_packed_kib());
#endif
	seq_printf(file, "packed_bytes %u\n", kshrink_packed.size);
	seq_printf(file, "thawed %u\nrefrozen %u\nrefused %u\n", count, (u32)atomic_read(&kshrink_refrozen),
		   (u32)atomic_read(&kshrink_refused));
	seq_printf(file, "# ns took_ns %s context pid command ip\n", kshrink_unit);
	for (i = 0; i < count && i < THAW_SHEETS * THAWS_PER_SHEET; i++) {
		const struct kshrink_thaw *sheet = READ_ONCE(kshrink_thaw_sheets[i / THAWS_PER_SHEET]);
		const struct kshrink_thaw *thaw = sheet + i % THAWS_PER_SHEET;

		if (sheet && smp_load_acquire(&thaw->ip))
			seq_printf(file, "%llu %u %08lx %c %d %s %pS\n", thaw->when, thaw->took,
				   kshrink_address(thaw->number), thaw->context, thaw->pid, thaw->comm,
				   (void *)thaw->ip);
	}
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static ssize_t command(struct file *file, const char __user *text, size_t size, loff_t *position)
{
	char word[16] = "";
	int error;

	if (size >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, text, size))
		return -EFAULT;
	if (!sysfs_streq(word, "refreeze"))
		return -EINVAL;
	error = kshrink_refreeze((unsigned long)kshrink_frozen_text, (unsigned long)kshrink_frozen_end);
	return error ? error : size;
}

static const struct proc_ops operations = {
	.proc_open = open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = command,
};

static int __init start(void)
{
	if (!proc_create("kshrink", 0600, NULL, &operations))
		pr_warn("kshrink: /proc/kshrink is not there: no memory\n");
	return 0;
}
device_initcall(start);
