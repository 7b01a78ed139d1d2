/* A kernel in miniature: variables with the structures that `census` reads. The linked file, with debugging information,
 * is the kernel; its bytes are the memory of the machine, 16 pages from the physical address 0 on. */

typedef unsigned int phys_addr_t;

struct list_head { struct list_head *next, *prev; };
struct file_system_type { const char *name; };
struct super_block { struct file_system_type *s_type; };
struct address_space { struct inode *host; };
struct inode { struct super_block *i_sb; struct address_space *i_mapping; struct address_space i_data; };

struct page {
    unsigned long flags;
    struct list_head lru;
    struct address_space *mapping;
    unsigned long index;
    unsigned long private;
    unsigned int page_type;
    int _refcount;
};
struct folio { struct page page; unsigned long _flags_1; };

struct kmem_cache_node { unsigned long nr_partial; struct list_head partial; };
struct kmem_cache {
    unsigned long flags;
    unsigned int size, object_size, offset;
    int refcount;
    const char *name;
    struct list_head list;
    struct kmem_cache_node *node[1];
};
struct slab {
    unsigned long __page_flags;
    struct kmem_cache *slab_cache;
    struct list_head slab_list;
    void *freelist;
    union {
        unsigned long counters;
        struct { unsigned inuse : 16, objects : 15, frozen : 1; };
    };
    unsigned int __page_type;
    int __page_refcount;
};

struct per_cpu_pages { int count; struct list_head lists[3]; };
struct zone { struct per_cpu_pages *per_cpu_pageset; };
struct pglist_data { struct zone node_zones[1]; struct page *node_mem_map; unsigned long node_start_pfn, node_spanned_pages; };

struct mm_struct { unsigned long *pgd; };
struct signal_struct { struct list_head thread_head; };
struct task_struct {
    void *stack;
    struct list_head tasks, thread_node;
    struct mm_struct *mm, *active_mm;
    struct signal_struct *signal;
};

enum pageflags { PG_head = 6, PG_reserved = 13 };
enum pagetype { PGTY_buddy = 0xf0, PGTY_table = 0xf2, PGTY_slab = 0xf5 };
enum zone_stat_item { NR_FREE_PAGES };
enum node_stat_item { NR_SLAB_RECLAIMABLE_B, NR_SLAB_UNRECLAIMABLE_B };
enum migratetype { MIGRATE_PCPTYPES = 3 };

#define LIST(list) { &(list), &(list) }
#define NONE 0xffffffffu

const char linux_banner[] = "Linux version 6.12.0 (census) #1 in miniature\n";

#ifdef MINIATURE
int another_content = MINIATURE;
#endif

/* Pages 4 to 15. */
union { unsigned long words[1024]; struct { void *next; char rest[60]; } objects[64]; } pages[12]
    __attribute__((section(".pages"), aligned(4096))) = {
    /* Page 4 is a slab, with the objects 5 and 9 free. */
    [0] = { .objects = { [5] = { &pages[0].objects[9] } } },
    /* Page 7 is the second one of a slab with one object, which points to page 9. */
    [3] = { .words = { [7] = (unsigned long)&pages[5] } },
};

extern struct kmem_cache small, large;
extern union frame { struct page page; struct slab slab; } mem_map[16];

struct list_head slab_caches = { &small.list, &large.list };
struct kmem_cache_node small_node = { 1, { &mem_map[4].slab.slab_list, &mem_map[4].slab.slab_list } };
struct kmem_cache_node large_node = { 0, LIST(large_node.partial) };
struct kmem_cache small = { 0, 64, 60, 0, 3, "small", { &large.list, &slab_caches }, { &small_node } };
struct kmem_cache large = { 0, 8192, 8000, 0, 1, "large", { &slab_caches, &small.list }, { &large_node } };
struct kmem_cache *small_cachep = &small;
void *hash_table = &pages[6];

struct file_system_type ext2 = { "ext2" };
struct super_block super = { &ext2 };
extern struct inode inode;
struct inode inode = { &super, &inode.i_data, { &inode } };

extern struct signal_struct signals;
struct per_cpu_pages processor = {
    1, { { &mem_map[8].page.lru, &mem_map[8].page.lru }, LIST(processor.lists[1]), LIST(processor.lists[2]) } };
struct mm_struct init_mm = { pages[1].words };
struct task_struct init_task = {
    &pages[8], LIST(init_task.tasks), { &signals.thread_head, &signals.thread_head }, 0, &init_mm, &signals };
struct signal_struct signals = { { &init_task.thread_node, &init_task.thread_node } };

#define RESERVED { .page = { .flags = 1 << PG_reserved, .page_type = NONE, ._refcount = 1 } }
union frame mem_map[16] = {
    RESERVED, RESERVED, RESERVED, RESERVED,
    [4] = { .slab = { 0, &small, { &small_node.partial, &small_node.partial }, &pages[0].objects[5], { .inuse = 62, .objects = 64 },
                      PGTY_slab << 24, 1 } },
    [5] = { .page = { .page_type = NONE, ._refcount = 1 } }, /* the upper page table */
    [6] = { .slab = { 1 << PG_head, &large, { 0 }, 0, { .inuse = 1, .objects = 1 }, PGTY_slab << 24, 1 } },
    [7] = { .page = { .flags = 1, .page_type = NONE } }, /* the order of the slab is in the lowest byte */
    [8] = { .page = { .lru = { &processor.lists[0], &processor.lists[0] }, .page_type = NONE } },
    [9] = { .page = { .page_type = NONE, ._refcount = 1 } }, /* an object points to it */
    [10] = { .page = { .page_type = NONE, ._refcount = 1 } }, /* a variable points to it */
    [11] = { .page = { .page_type = NONE } }, /* belongs to page 10 */
    [12] = { .page = { .page_type = NONE, ._refcount = 1 } }, /* the stack */
    [13] = { .page = { .mapping = &inode.i_data, .page_type = NONE, ._refcount = 2 } },
    [14] = { .page = { .page_type = PGTY_buddy << 24, .private = 1 } },
};

struct pglist_data contig_page_data = { { { &processor } }, &mem_map[0].page, 0, 16 };
unsigned long _totalram_pages = 12, vm_zone_stat[1] = { 2 }, vm_node_stat[2] = { 1, 2 };
unsigned long high_memory = 0xffc00000;
asm(".globl __start_init_stack, __end_init_stack; __start_init_stack = 0xc0008000; __end_init_stack = 0xc0009000");
asm(".globl swapper_pg_dir; swapper_pg_dir = pages + 4096");
