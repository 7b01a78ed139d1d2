/* The structures whose layouts `census` needs. Compiled with -g and -fno-eliminate-unused-debug-types; only the
 * debugging information is read. The allocator's own source has the structures that no header has. */
#include <../mm/slub.c>
#include <linux/fs.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
